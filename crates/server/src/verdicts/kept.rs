//! The time of steps that count: a step that was done again after a run went back to a checkpoint counts once.

/// Steps that are held apart; of more, the older ones are held as one sum. Thousands of runs are judged at once.
const HELD_MAX: usize = 2_048;

/// Steps in the order in which they count.
#[derive(Debug, Default, Clone)]
pub(super) struct Kept {
    /// Step and its seconds; steps grow.
    held: Vec<(i64, f32)>,
    /// Seconds and steps of what is not held apart any more, and its last step.
    old_seconds: f64,
    old_steps: u64,
    old_last: Option<i64>,
    held_seconds: f64,
    /// Of steps that were done again.
    lost_seconds: f64,
    lost_steps: u64,
}

impl Kept {
    /// Takes a step that was done. All from its number on that came before it were in vain.
    pub(super) fn push(&mut self, step: i64, seconds: f64) {
        while let Some((_, was)) = self.held.pop_if(|(held, _)| *held >= step) {
            self.held_seconds -= f64::from(was);
            self.lose(f64::from(was), 1);
        }
        if let Some(last) = self.old_last.filter(|last| self.held.is_empty() && *last >= step) {
            self.cut_old(last, step);
        }
        self.held.push((step, seconds as f32));
        self.held_seconds += f64::from(seconds as f32);
        if self.held.len() >= 2 * HELD_MAX {
            self.fold();
        }
    }

    fn lose(&mut self, seconds: f64, steps: u64) {
        self.lost_seconds += seconds;
        self.lost_steps += steps;
    }

    /// Going back further than steps are held apart: of the older ones each counts the same.
    fn cut_old(&mut self, last: i64, step: i64) {
        let gone = last.abs_diff(step).saturating_add(1).min(self.old_steps);
        let seconds = self.old_seconds * gone as f64 / self.old_steps.max(1) as f64;
        self.old_seconds -= seconds;
        self.old_steps -= gone;
        self.old_last = step.checked_sub(1).filter(|_| self.old_steps > 0);
        self.lose(seconds, gone);
    }

    fn fold(&mut self) {
        for (step, seconds) in self.held.drain(..HELD_MAX) {
            self.old_seconds += f64::from(seconds);
            self.held_seconds -= f64::from(seconds);
            self.old_steps += 1;
            self.old_last = Some(step);
        }
    }

    /// Seconds of steps that count.
    pub(super) fn seconds(&self) -> f64 {
        self.old_seconds + self.held_seconds.max(0.0)
    }

    /// How many count.
    pub(super) fn steps(&self) -> u64 {
        self.old_steps + self.held.len() as u64
    }

    /// Seconds and number of steps that were done in vain.
    pub(super) fn lost(&self) -> (f64, u64) {
        (self.lost_seconds, self.lost_steps)
    }

    /// The last step that counts.
    pub(super) fn last(&self) -> Option<i64> {
        self.held.last().map(|(step, _)| *step).or(self.old_last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_done_again_count_once() {
        let mut kept = Kept::default();
        for step in (0..100).chain(90..120) {
            kept.push(step, 2.0);
        }
        assert_eq!((kept.steps(), kept.seconds(), kept.lost()), (120, 240.0, (20.0, 10)));
        assert_eq!(kept.last(), Some(119));
    }

    #[test]
    fn of_a_long_run_little_is_held_and_all_is_counted() {
        let mut kept = Kept::default();
        let many = 5 * HELD_MAX as i64;
        (0..many).for_each(|step| kept.push(step, 1.0));
        assert!(kept.held.len() <= 2 * HELD_MAX);
        assert_eq!((kept.steps(), kept.seconds()), (many as u64, many as f64));
        kept.push(1_000, 1.0);
        assert_eq!((kept.steps(), kept.seconds()), (1_001, 1_001.0));
        assert_eq!(kept.lost().1, many as u64 - 1_000);
        kept.push(i64::MIN, 1.0);
        assert_eq!((kept.steps(), kept.seconds(), kept.last()), (1, 1.0, Some(i64::MIN)));
    }
}
