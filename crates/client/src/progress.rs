//! How far this process is in the collective operations of its job.
//!
//! The program only sets numbers here; the delivery thread tells them. So the last operation that was entered is
//! told although the program hangs in it, and a thousand operations a second cost two points.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::clock::When;
use crate::shared::{Shared, lock};

/// Most groups of ranks that a process is in; those beyond are counted as refused.
const GROUPS_MAX: usize = 64;
/// Longest name of a group, bytes.
const GROUP_BYTES_MAX: usize = 64;
/// Shortest time between two tellings.
const TELL_EVERY: Duration = Duration::from_secs(1);

/// The last operation that was entered, and the last one that was completed.
const ENTERED: &str = "train_collective_sequence";
const COMPLETED: &str = "train_collective_completed";
/// What the program is in: 1 a checkpoint, 2 an evaluation, which it logs itself; 0 none of these.
const PHASE: &str = "train_step_phase";
/// No step is open.
const BETWEEN_STEPS: f64 = 3.0;

/// Of one group.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Place {
    entered: Option<i64>,
    completed: Option<i64>,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    /// Where this process is, and what of it was told.
    groups: BTreeMap<String, (Place, Place)>,
    told_at: Option<Instant>,
}

impl Progress {
    /// Notes an operation; whether there was room for its group.
    fn note(&mut self, group: &str, number: i64, is_completed: bool) -> bool {
        if !self.groups.contains_key(group) && self.groups.len() >= GROUPS_MAX {
            return false;
        }
        let (place, _) = self.groups.entry(group.to_owned()).or_default();
        // Completing needs no order: what was begun later may be done before.
        let further = |last: Option<i64>| Some(last.map_or(number, |last| last.max(number)));
        place.entered = further(place.entered);
        if is_completed {
            place.completed = further(place.completed);
        }
        true
    }

    /// What is to be told now, as group, name and number.
    fn due(&mut self, now: Instant, is_last: bool) -> Vec<(String, &'static str, i64)> {
        let is_due = self.told_at.is_none_or(|told| now.duration_since(told) >= TELL_EVERY);
        let mut news = Vec::new();
        if !is_due && !is_last {
            return news;
        }
        for (group, (place, told)) in &mut self.groups {
            let changed =
                [(ENTERED, place.entered, told.entered), (COMPLETED, place.completed, told.completed)];
            let changed = changed.into_iter().filter(|(_, now, told)| now != told);
            news.extend(changed.filter_map(|(name, now, _)| Some((group.clone(), name, now?))));
            *told = *place;
        }
        if !news.is_empty() {
            self.told_at = Some(now);
        }
        news
    }
}

impl Shared {
    /// Notes that this process entered an operation, or completed it.
    pub(crate) fn collective(&self, group: &str, number: i64, is_completed: bool) {
        let cut = (0..=group.len().min(GROUP_BYTES_MAX)).rev().find(|at| group.is_char_boundary(*at));
        let group = &group[..cut.unwrap_or(0)];
        if !lock(&self.progress).note(group, number, is_completed) {
            self.refuse("collective_groups", 1, &format!("a process is in {GROUPS_MAX} groups at most"));
        }
    }

    /// Tells that no step is open, once that is so for a while: what the program does between its steps, such as an
    /// evaluation, is not a step that does not end.
    fn tell_lull(&self) {
        if lock(&self.log).untold_lull().is_none() {
            return;
        }
        match self.series(PHASE, &[], "") {
            Ok(handle) => {
                let mut log = lock(&self.log);
                // The next step may have begun meanwhile.
                let Some(step) = log.untold_lull() else { return };
                log.push(handle.index, BETWEEN_STEPS, Some(step), When::Now.read());
                log.between = Some(handle.index);
            }
            Err(error) => self.refuse(error.reason(), 1, &error.to_string()),
        }
    }

    /// Tells where this process is, where that has changed; `is_last` does not wait for its time.
    pub(crate) fn tell_progress(&self, is_last: bool) {
        self.tell_lull();
        let news = lock(&self.progress).due(Instant::now(), is_last);
        for (group, name, number) in news {
            // A group without a name is the only one.
            let labels = [("group", group.as_str())];
            let labels = if group.is_empty() { &labels[..0] } else { &labels[..] };
            match self.series(name, labels, "") {
                Ok(handle) => self.log(handle, number as f64, None, When::Now),
                Err(error) => self.refuse(error.reason(), 1, &error.to_string()),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_changed_is_told_once_and_not_more_often_than_every_second() {
        let mut progress = Progress::default();
        let start = Instant::now();
        assert!(
            progress.note("dp", 7, false) && progress.note("dp", 7, true) && progress.note("dp", 8, false)
        );
        let told = |group: &str, name, number| (group.to_owned(), name, number);
        assert_eq!(progress.due(start, false), [told("dp", ENTERED, 8), told("dp", COMPLETED, 7)]);
        progress.note("dp", 8, true);
        assert_eq!(progress.due(start, false), []);
        assert_eq!(progress.due(start + TELL_EVERY, false), [told("dp", COMPLETED, 8)]);
        assert_eq!(progress.due(start + 2 * TELL_EVERY, false), []);
        progress.note("tp", 1, false);
        assert_eq!(
            progress.due(start + TELL_EVERY, true),
            [told("tp", ENTERED, 1)],
            "the end waits for nothing"
        );
    }

    #[test]
    fn one_that_completes_late_takes_nothing_back_and_groups_have_a_bound() {
        let mut progress = Progress::default();
        for (number, is_completed) in [(1, false), (2, false), (2, true), (1, true)] {
            progress.note("", number, is_completed);
        }
        let due = progress.due(Instant::now(), false);
        assert_eq!(due, [(String::new(), ENTERED, 2), (String::new(), COMPLETED, 2)]);
        assert_eq!((0..100).filter(|n| progress.note(&n.to_string(), 1, false)).count(), GROUPS_MAX - 1);
    }
}
