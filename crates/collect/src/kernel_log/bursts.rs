//! The same report again and again: the first ones go on, the others are counted.

use std::collections::BTreeMap;

/// Kinds of reports that are counted apart at one time; more are counted together.
const KINDS_MAX: usize = 4096;

/// What becomes of a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Burst {
    /// It goes on.
    Pass,
    /// It is only counted.
    Held,
}

#[derive(Debug, Clone, Copy)]
struct Window {
    start_us: u64,
    passed: u32,
    held: u64,
}

/// Counts reports of a kind, such as a card and a number, in windows of time.
#[derive(Debug)]
pub struct Bursts<K> {
    passes: u32,
    window_us: u64,
    windows: BTreeMap<Option<K>, Window>,
}

impl<K: Ord + Clone> Bursts<K> {
    /// Lets `passes` reports of a kind go on in each window.
    pub fn new(passes: u32, window_us: u64) -> Self {
        Self { passes, window_us, windows: BTreeMap::new() }
    }

    /// Judges a report at a time that does not go back. `None` of what [`Bursts::ended`] gives stands for
    /// kinds beyond the bound.
    pub fn take(&mut self, kind: K, at_us: u64) -> Burst {
        let has_room = self.windows.len() < KINDS_MAX || self.windows.contains_key(&Some(kind.clone()));
        let window = self.windows.entry(has_room.then_some(kind)).or_insert(Window {
            start_us: at_us,
            passed: 0,
            held: 0,
        });
        if window.passed < self.passes {
            window.passed += 1;
            Burst::Pass
        } else {
            window.held += 1;
            Burst::Held
        }
    }

    /// Gives what was held back since this was asked last, and goes on counting in the same windows: for who
    /// keeps nothing back from one look to the next.
    pub fn held(&mut self) -> Vec<(Option<K>, u64)> {
        let held = self.windows.iter_mut().filter(|(_, window)| window.held > 0);
        held.map(|(kind, window)| (kind.clone(), std::mem::take(&mut window.held))).collect()
    }

    /// Ends the windows that are over and gives what was held back in them. Asked before each report and
    /// from time to time.
    pub fn ended(&mut self, at_us: u64) -> Vec<(Option<K>, u64)> {
        let window_us = self.window_us;
        let over = |window: &Window| at_us.saturating_sub(window.start_us) >= window_us;
        let mut held = Vec::new();
        self.windows.retain(|kind, window| {
            let is_over = over(window);
            if is_over && window.held > 0 {
                held.push((kind.clone(), window.held));
            }
            !is_over
        });
        held
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_is_counted_and_none_of_it_lost() {
        let mut bursts = Bursts::new(5, 1_000_000);
        let judged: Vec<Burst> = (0..11_760).map(|at| bursts.take(("gpu", 45), at)).collect();
        assert_eq!(judged.iter().filter(|burst| **burst == Burst::Pass).count(), 5);
        assert_eq!(bursts.take(("gpu", 79), 9), Burst::Pass, "another kind");
        assert_eq!(bursts.ended(999_999), []);
        assert_eq!(bursts.ended(1_000_000), [(Some(("gpu", 45)), 11_755)]);
        assert_eq!(bursts.take(("gpu", 45), 1_000_001), Burst::Pass);
    }

    #[test]
    fn what_is_held_is_told_once_and_the_window_goes_on() {
        let mut bursts = Bursts::new(1, 100);
        for at in 0..4 {
            bursts.take("a", at);
        }
        assert_eq!(bursts.held(), [(Some("a"), 3)]);
        assert_eq!(bursts.held(), []);
        assert_eq!(bursts.take("a", 99), Burst::Held);
        assert_eq!(bursts.ended(100), [(Some("a"), 1)]);
    }

    #[test]
    fn kinds_are_bounded() {
        let mut bursts = Bursts::new(1, 10);
        for kind in 0..10_000 {
            bursts.take(kind, 0);
        }
        assert_eq!(bursts.windows.len(), KINDS_MAX + 1);
        assert_eq!(bursts.ended(10), [(None, 10_000 - KINDS_MAX as u64 - 1)]);
    }
}
