//! What PyTorch tells of a job's collective operations when they don't end: lines that NCCL's watchdog writes into
//! the job's output, and what its flight recorder leaves in files.
//!
//! Of a group of ranks the first operation that is not done is told, not the last one that was begun: ranks that
//! all wait in one operation have begun different numbers of later ones.

mod dump;
mod log;
mod pickle;

pub use dump::{DUMP_BYTES_MAX, DumpError, read_dump};
pub use log::LogReader;
pub use pickle::PickleError;

/// Longest text of a finding, bytes.
const TEXT_BYTES_MAX: usize = 500;

/// How far a rank is in the collective operations of a group.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Finding {
    /// The rank in its job; none where it is not told.
    pub rank: Option<u32>,
    /// The group, as PyTorch numbers it, such as `pg-0`; empty where it is not told.
    pub group: String,
    /// The first operation that is not completed, else the last one.
    pub sequence: i64,
    /// Whether that one is completed.
    pub is_completed: bool,
    /// Which operation, such as `ALLREDUCE`; empty where it is not told.
    pub op: String,
    /// Its sizes; empty where they are not told.
    pub sizes: String,
    /// How long it may take, milliseconds.
    pub timeout_ms: Option<u64>,
    /// The line, or what was found, cut.
    pub text: String,
}

impl Finding {
    /// The finding of numbers as PyTorch keeps them, where -1 is none: the operation that is at fault, if it is
    /// told, the last that was begun and the last that was completed.
    fn of_numbers(at_fault: Option<i64>, begun: i64, completed: i64) -> Option<Self> {
        // Versions are about that print a number that was never set.
        let completed = if completed > begun { -1 } else { completed };
        let (sequence, is_completed) = match at_fault {
            Some(at_fault) if at_fault > completed => (at_fault, false),
            _ if begun < 0 => return None,
            _ if begun > completed && completed >= 0 => (completed + 1, false),
            _ => (begun, begun == completed),
        };
        Some(Self { sequence, is_completed, ..Self::default() })
    }
}

fn cut(text: &str, bytes_max: usize) -> &str {
    let end = (0..=bytes_max.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    &text[..end]
}
