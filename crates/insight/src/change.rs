//! When a number changed, and what happened around that time.

use std::fmt::Write;

/// Values from which mean and spread are learned.
pub const LEARNED: usize = 50;
/// What a value may lie above the mean without being added, in standard deviations.
const ALLOWANCE: f64 = 0.5;
/// The sum, in standard deviations, at which the number has changed.
const LIMIT: f64 = 8.0;
/// The least spread, as a share of the mean.
const SPREAD_MIN: f64 = 0.005;
/// How far apart a change and its reason may be, nanoseconds.
const AROUND_NS: u64 = 120_000_000_000;

/// A cumulative sum that tells a lasting rise from noise.
///
/// Mean and spread are learned from the first fifty values, then every value adds what it lies above the mean,
/// in standard deviations, less an allowance; what is below takes away. The sum passes its limit soon after a
/// lasting rise, and the rise began where the sum was last zero. For a number that should not fall, its
/// opposite is given.
#[derive(Debug, Clone, PartialEq)]
pub struct Cusum {
    known: Known,
    clip: f64,
    sum: f64,
    began: Option<(i64, i64)>,
    change: Option<Change>,
}

#[derive(Debug, Clone, PartialEq)]
enum Known {
    Learning(Vec<f64>),
    Mean { mean: f64, spread: f64 },
}

/// A change.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Change {
    /// The step at which it began.
    pub onset_step: i64,
    /// When that was, nanoseconds.
    pub onset_time_ns: i64,
    /// The step at which it was found.
    pub found_step: i64,
    /// Mean before.
    pub before: f64,
}

impl Default for Cusum {
    fn default() -> Self {
        Self::new()
    }
}

impl Cusum {
    /// One that has to learn.
    pub fn new() -> Self {
        let known = Known::Learning(Vec::with_capacity(LEARNED));
        Self { known, clip: f64::INFINITY, sum: 0.0, began: None, change: None }
    }

    /// One that knows what is usual.
    pub fn knowing(mean: f64, spread: f64) -> Self {
        let spread = spread.max(SPREAD_MIN * mean.abs());
        Self { known: Known::Mean { mean, spread }, ..Self::new() }
    }

    /// No value counts for more than so many standard deviations, so that a single one is no change.
    #[must_use]
    pub fn clipped(self, clip: f64) -> Self {
        Self { clip, ..self }
    }

    /// Adds a value; the change, when this is the one that shows it.
    pub fn push(&mut self, step: i64, time_ns: i64, value: f64) -> Option<Change> {
        if !value.is_finite() {
            return None;
        }
        let (mean, spread) = match &mut self.known {
            Known::Learning(values) => {
                values.push(value);
                if values.len() == LEARNED {
                    self.known = learned(values);
                }
                return None;
            }
            Known::Mean { mean, spread } => (*mean, *spread),
        };
        let off = if spread > 0.0 { (value - mean) / spread } else { 0.0 };
        self.sum = (self.sum + off.min(self.clip) - ALLOWANCE).max(0.0);
        // What has long lasted has not to be made good by equally long health.
        self.sum = self.sum.min(4.0 * LIMIT);
        if self.sum == 0.0 {
            self.began = None;
            self.change = None;
            return None;
        }
        let (onset_step, onset_time_ns) = *self.began.get_or_insert((step, time_ns));
        if self.sum <= LIMIT || self.change.is_some() {
            return None;
        }
        self.change = Some(Change { onset_step, onset_time_ns, found_step: step, before: mean });
        self.change
    }

    /// The change that lasts now.
    pub fn change(&self) -> Option<Change> {
        self.change
    }

    /// Mean and spread, once they are known.
    pub fn usual(&self) -> Option<(f64, f64)> {
        match self.known {
            Known::Learning(_) => None,
            Known::Mean { mean, spread } => Some((mean, spread)),
        }
    }
}

fn learned(values: &[f64]) -> Known {
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    let spread = (squares / (n - 1.0)).sqrt().max(SPREAD_MIN * mean.abs());
    Known::Mean { mean, spread }
}

/// Something that happened, to be held against a change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// When, nanoseconds.
    pub time_ns: i64,
    /// What kind: `xid`, `throttle`, `clock`, `deploy`, `neighbour` and so on.
    pub kind: String,
    /// As a person is told.
    pub text: String,
}

/// Kind of an event that changes what a job does, so that another speed is no surprise.
pub const DEPLOY: &str = "deploy";

/// The events within two minutes of a time, the nearest first.
pub fn around(time_ns: i64, events: &[Event]) -> Vec<&Event> {
    let far = |event: &&Event| event.time_ns.abs_diff(time_ns);
    let mut near: Vec<&Event> = events.iter().filter(|event| far(event) <= AROUND_NS).collect();
    near.sort_by_key(far);
    near
}

/// A change with what happened around it.
#[derive(Debug, Clone, PartialEq)]
pub struct Story {
    /// Whether the job itself was changed at that time.
    pub is_deploy: bool,
    /// What happened within two minutes, the nearest first.
    pub events: Vec<Event>,
    /// Both as a sentence.
    pub sentence: String,
}

/// Tells a change of a number, by its name for people, to what it is now. For a number given to [`Cusum`] by
/// its opposite, `now` is the opposite too.
pub fn tell(name: &str, change: &Change, now: f64, events: &[Event]) -> Story {
    let near = around(change.onset_time_ns, events);
    let is_deploy = near.iter().any(|event| event.kind == DEPLOY);
    let (before, now) = (change.before.abs(), now.abs());
    let percent = (now / before - 1.0) * 100.0;
    let way = if percent < 0.0 { "fell" } else { "rose" };
    let by = if percent.is_finite() { format!(" by {:.1} %", percent.abs()) } else { String::new() };
    let mut sentence = format!("{name} {way}{by} at step {}", change.onset_step);
    sentence.push_str(if is_deploy { ", as the job was changed" } else { " without a change of the job" });
    match near.first() {
        None => sentence.push_str("; nothing is known to have happened within two minutes of it."),
        Some(first) => {
            let apart = first.time_ns.abs_diff(change.onset_time_ns) as f64 / 1e9;
            let side = if first.time_ns <= change.onset_time_ns { "before" } else { "after" };
            // Writing into a string does not fail.
            let _ = write!(sentence, "; nearest in time, {apart:.0} s {side}: {}.", first.text);
        }
    }
    Story { is_deploy, events: near.into_iter().cloned().collect(), sentence }
}
