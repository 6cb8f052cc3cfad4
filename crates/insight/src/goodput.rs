//! How much of a run's time its model learnt in.
//!
//! The wall reaches from the first span of any rank to the last. Every instant of a rank goes to the
//! innermost span's kind, see [`Slice`]: time in iterations is productive but for what within them is
//! startup, loading, checkpoint, evaluation or housekeeping. What no span covers is a restart where the
//! run was started anew in it, and idle otherwise. The run's figures are the mean over its ranks.

use crate::sweep::{stretches, within};

pub use crate::sweep::Slice;

/// What time goes to, in the order of the shares that spans may have; the last two have no spans.
pub const KINDS: [&str; 8] =
    ["productive", "startup", "data_loading", "checkpoint", "evaluation", "housekeeping", "restart", "idle"];

const RESTART: usize = 6;
const IDLE: usize = 7;

/// The time of a run, told apart.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Goodput {
    /// Start of the first span, nanoseconds.
    pub from_ns: i64,
    /// End of the last span, nanoseconds.
    pub to_ns: i64,
    /// What of it went to each of [`KINDS`], seconds.
    pub seconds: [f64; KINDS.len()],
}

impl Goodput {
    /// The whole time, seconds.
    pub fn wall_seconds(&self) -> f64 {
        self.to_ns.saturating_sub(self.from_ns) as f64 / 1e9
    }

    /// The productive share of the wall.
    pub fn ratio(&self) -> f64 {
        self.seconds[0] / self.wall_seconds()
    }
}

/// Tells the time of a run apart by the spans of some of its ranks; `starts` are the times, in order, at
/// which it was started. None where no span takes any time.
pub fn goodput(ranks: &[Vec<Slice>], starts: &[i64]) -> Option<Goodput> {
    let all =
        || ranks.iter().flatten().filter(|slice| slice.share.is_some() && slice.end_ns > slice.start_ns);
    let from_ns = all().map(|slice| slice.start_ns).min()?;
    let to_ns = all().map(|slice| slice.end_ns).max()?;
    let mut seconds = [0.0; KINDS.len()];
    let told = ranks.iter().filter(|slices| !slices.is_empty());
    let count = told.clone().count().max(1) as f64;
    for slices in told {
        let stretches = stretches(slices);
        let mut sums = [0; KINDS.len()];
        within(&stretches, (from_ns, to_ns), &mut sums);
        let mut last_ns = from_ns;
        let ends = stretches.iter().map(|stretch| (stretch.start_ns, stretch.end_ns)).chain([(to_ns, to_ns)]);
        for (start_ns, end_ns) in ends {
            let next = starts.partition_point(|start| *start <= last_ns);
            let restarts = starts.get(next).is_some_and(|start| *start <= start_ns);
            sums[if restarts { RESTART } else { IDLE }] += start_ns.saturating_sub(last_ns).max(0);
            last_ns = last_ns.max(end_ns);
        }
        for (total, sum) in seconds.iter_mut().zip(sums) {
            *total += sum as f64 / 1e9 / count;
        }
    }
    Some(Goodput { from_ns, to_ns, seconds })
}
