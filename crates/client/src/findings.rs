//! What PyTorch told of collective operations that do not end, as events of the run.

use std::path::Path;

use model::{Event, Severity};
use serde_json::json;
use wire::nccl::{DUMP_BYTES_MAX, DumpError, Finding, read_dump};

use crate::clock::now_ns;
use crate::run::Run;
use crate::shared::{Shared, lock};

/// Most findings that wait to be sent, and most of one process.
const WAITING_MAX: usize = 1_000;
const TOLD_MAX: usize = 20_000;

/// Who found something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// NCCL's watchdog, in a line of output.
    Watchdog,
    /// PyTorch's flight recorder, in a file.
    FlightRecorder,
}

impl Source {
    /// As the label `source` of an event says it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Watchdog => "nccl",
            Self::FlightRecorder => "flight_recorder",
        }
    }
}

/// Why a file of the flight recorder tells nothing.
#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    /// It can't be read.
    #[error("cannot read the flight-recorder dump {path}: {source}")]
    File {
        /// The file.
        path: String,
        /// Why.
        source: std::io::Error,
    },
    /// It is none.
    #[error("cannot use {path}: {source}")]
    Dump {
        /// The file.
        path: String,
        /// Why.
        source: DumpError,
    },
}

impl Run {
    /// Tells of a finding; the same one once, however often it is told.
    pub fn report(&self, finding: &Finding, source: Source) {
        if let Some(shared) = self.shared() {
            shared.report(finding, source);
        }
    }

    /// Tells what a file of the flight recorder says of a rank: by default the one that its name ends with, as
    /// PyTorch names it, else this process's. Returns how many groups it told of.
    pub fn report_flight_recorder(&self, path: &Path, rank: Option<u32>) -> Result<usize, ReportError> {
        let shown = || path.display().to_string();
        let bytes = read(path).map_err(|source| ReportError::File { path: shown(), source })?;
        let rank = rank.or_else(|| rank_in(path)).or(self.config().launch.rank).or(Some(0));
        let findings =
            read_dump(&bytes, rank).map_err(|source| ReportError::Dump { path: shown(), source })?;
        for finding in &findings {
            self.report(finding, Source::FlightRecorder);
        }
        Ok(findings.len())
    }
}

/// A file, but for what is beyond the bound; what is no file that ends, such as a pipe, is none.
fn read(path: &Path) -> std::io::Result<Vec<u8>> {
    use std::io::Read as _;

    // Asked before it is opened: to open a pipe waits for who writes to it.
    if !std::fs::metadata(path)?.is_file() {
        return Err(std::io::Error::new(std::io::ErrorKind::InvalidInput, "it is no plain file"));
    }
    let mut bytes = Vec::new();
    std::fs::File::open(path)?.take(DUMP_BYTES_MAX as u64 + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// 3 of `nccl_trace_rank_3`.
fn rank_in(path: &Path) -> Option<u32> {
    let name = path.file_name()?.to_str()?;
    let name = name.strip_suffix(".json").or_else(|| name.strip_suffix(".pkl")).unwrap_or(name);
    let digits = name.len() - name.bytes().rev().take_while(u8::is_ascii_digit).count();
    name[digits..].parse().ok()
}

impl Shared {
    fn report(&self, finding: &Finding, source: Source) {
        let rank = finding.rank.or(self.facts.rank).unwrap_or(0);
        let state = if finding.is_completed { "completed" } else { "started" };
        let body = json!({
            "seq": finding.sequence, "op": finding.op, "group": finding.group, "state": state,
            "timeout_ms": finding.timeout_ms, "sizes": finding.sizes,
        });
        let writer = u128::from_be_bytes(lock(&self.outbox).author.writer);
        let event = Event {
            time_ns: now_ns(),
            kind: "run".into(),
            severity: if finding.is_completed { Severity::Info } else { Severity::Warning },
            // Another attempt may come to grief at the same operation.
            key: format!(
                "{writer:032x}/{}/{rank}/{}/{}/{state}",
                source.name(),
                finding.group,
                finding.sequence
            ),
            labels: vec![
                ("host".into(), self.facts.host.clone()),
                ("rank".into(), rank.to_string()),
                ("source".into(), source.name().into()),
            ],
            text: finding.text.clone(),
            body: body.to_string(),
        };
        let is_taken = {
            let mut log = lock(&self.log);
            let has_room = log.pending.events.len() < WAITING_MAX && log.told_events.len() < TOLD_MAX;
            if has_room && !log.is_closed && log.told_events.insert(event.key.clone()) {
                log.pending.events.push(event);
            }
            has_room
        };
        if !is_taken {
            self.refuse("events", 1, &format!("{WAITING_MAX} findings wait, or {TOLD_MAX} were told"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dump_is_of_the_rank_that_its_name_ends_with() {
        let rank = |name: &str| rank_in(Path::new(name));
        assert_eq!(rank("/tmp/nccl_trace_rank_12"), Some(12));
        assert_eq!(rank("trace_3.json"), Some(3));
        assert_eq!(rank("nccl_trace_rank_"), None);
        assert_eq!(rank("trace_99999999999"), None);
    }
}
