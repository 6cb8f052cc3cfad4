//! How much of a long training's time is not lost to interruptions, and how often to write checkpoints.
//!
//! ETTR, effective training time, is productive time over wall time; work that is rolled back later is not
//! productive.

/// Seconds of a day.
pub const SECONDS_PER_DAY: f64 = 86_400.0;

/// Interruptions of a job in some time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Interruptions {
    /// How many.
    pub count: f64,
    /// In how long, seconds.
    pub wall_seconds: f64,
}

impl Interruptions {
    /// Mean time between them, seconds; none where there was none.
    pub fn mtbi_seconds(self) -> Option<f64> {
        (self.count > 0.0).then(|| self.wall_seconds / self.count)
    }

    /// How many in a thousand days of one node.
    pub fn per_thousand_node_days(self, nodes: f64) -> Option<f64> {
        let node_days = nodes * self.wall_seconds / SECONDS_PER_DAY;
        (node_days > 0.0).then(|| self.count / node_days * 1_000.0)
    }

    /// The share of the wall that is left where each costs so much; none where they cost more than there is.
    pub fn ettr(self, lost: Lost) -> Option<f64> {
        ettr(self.wall_seconds, self.count * lost.seconds())
    }
}

/// What an interruption costs.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Lost {
    /// Work since the last checkpoint, seconds.
    pub rolled_back_seconds: f64,
    /// Until it is noticed and a job is queued and placed again, seconds.
    pub detect_seconds: f64,
    /// Until the checkpoint is loaded and steps go on, seconds.
    pub load_seconds: f64,
}

impl Lost {
    /// All of it, seconds.
    pub fn seconds(self) -> f64 {
        self.rolled_back_seconds + self.detect_seconds + self.load_seconds
    }
}

/// The share of the wall that is left of it. None where there is no time, or more is lost than there is.
pub fn ettr(wall_seconds: f64, lost_seconds: f64) -> Option<f64> {
    let ratio = 1.0 - lost_seconds / wall_seconds;
    (wall_seconds > 0.0 && (0.0..=1.0).contains(&ratio)).then_some(ratio)
}

/// Young's interval between checkpoints: where the time of writing them and the work that is rolled back cost
/// least together, seconds.
pub fn checkpoint_interval_seconds(checkpoint_seconds: f64, mtbi_seconds: f64) -> f64 {
    (2.0 * checkpoint_seconds * mtbi_seconds).sqrt()
}

/// A job that writes a checkpoint every so often, for a while, and is interrupted once in a while.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Plan {
    /// How long training stands still for a checkpoint, seconds.
    pub checkpoint_seconds: f64,
    /// From one checkpoint to the next, seconds.
    pub interval_seconds: f64,
    /// From an interruption until steps go on, seconds.
    pub restart_seconds: f64,
    /// Mean time between interruptions, seconds.
    pub mtbi_seconds: f64,
}

impl Plan {
    /// The share of time that is left, to the first order: checkpoints, and for each interruption half an
    /// interval of work and the restart. None where nothing is left: the estimate ends there.
    pub fn ettr(self) -> Option<f64> {
        let checkpoints = self.checkpoint_seconds / self.interval_seconds;
        let interruptions = (self.interval_seconds / 2.0 + self.restart_seconds) / self.mtbi_seconds;
        let ratio = 1.0 - checkpoints - interruptions;
        (ratio > 0.0 && ratio <= 1.0).then_some(ratio)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is(found: Option<f64>, want: f64, digit: f64) {
        let found = found.unwrap();
        assert!((found - want).abs() <= digit / 2.0, "{found} is not {want}");
    }

    #[test]
    fn a_day_with_three_interruptions() {
        let day = Interruptions { count: 3.0, wall_seconds: SECONDS_PER_DAY };
        let lost = Lost { rolled_back_seconds: 900.0, detect_seconds: 420.0, load_seconds: 180.0 };
        is(day.ettr(lost), 0.9479, 1e-4);
        assert_eq!(day.ettr(Lost { detect_seconds: 1e6, ..lost }), None, "more than there is");
        assert_eq!(Interruptions { count: 0.0, ..day }.ettr(lost), Some(1.0));
    }

    #[test]
    fn fifty_four_days_of_a_large_job() {
        let of = |count: f64| Interruptions { count, wall_seconds: 54.0 * SECONDS_PER_DAY };
        let hours = |count: f64| of(count).mtbi_seconds().map(|seconds| seconds / 3_600.0);
        is(hours(419.0), 3.093, 1e-3);
        is(hours(466.0), 2.781, 1e-3);
        is(hours(419.0).map(|hours| hours * 16_384.0), 50_677.0, 1.0);
        is(of(419.0).per_thousand_node_days(16_384.0 / 8.0), 3.79, 0.01);
        assert_eq!(of(0.0).mtbi_seconds(), None);
        assert_eq!(of(1.0).per_thousand_node_days(0.0), None);
    }

    #[test]
    fn a_faster_restart_wins_more_than_anything_else() {
        let mtbi_seconds = 11_135.0;
        let interval_seconds = checkpoint_interval_seconds(30.0, mtbi_seconds);
        is(Some(interval_seconds), 817.4, 0.1);
        for (restart_seconds, want) in [(600.0, 0.8727), (300.0, 0.8997), (120.0, 0.9158)] {
            let plan = Plan { checkpoint_seconds: 30.0, interval_seconds, restart_seconds, mtbi_seconds };
            is(plan.ettr(), want, 1e-4);
        }
        let hopeless =
            Plan { checkpoint_seconds: 30.0, interval_seconds, restart_seconds: 20_000.0, mtbi_seconds };
        assert_eq!(hopeless.ettr(), None);
    }
}
