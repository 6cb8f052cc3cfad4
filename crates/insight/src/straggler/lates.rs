//! Ranks that hold up the others in some steps and not in others.
//!
//! Medians do not see a rank that is stopped in one step of ten, however long it is stopped, so what is counted is
//! in which steps time was lost, and to whom: by how much the last was behind the next is what would be won without
//! it. Ranks that are alike are the last equally often. So a rank is late by more than chance if it is the last in
//! far more of these steps than its share, in the older half of a span and in the newer one.

use std::collections::VecDeque;

use super::ring::median_of;
use super::window::Note;
use super::{Level, Settings};

/// Steps that are looked back at, and the spans of them, the shortest first: what is seen in it is news.
const MEMORY: usize = 256;
const SPANS: [usize; 4] = [32, 64, 128, MEMORY];
/// Time is lost in a step in which the last is behind the next by this share of a median step.
const LOST_SHARE: f32 = 0.05;
/// Where ranks take turns in little, who is late by much is told by the steps in which much is lost.
const LOST_SHARES: [f32; 4] = [LOST_SHARE, 0.2, 0.5, 1.5];
/// Steps by which it is told whether ranks take turns,
const TURNS: usize = 128;
/// and how many of them time has to be lost in for it to matter to whom.
const LOST_MIN: usize = 8;
/// Steps of a half in which a rank is at least the last,
const LATE_MIN: usize = 3;
/// and the chance that any of equal ranks is it so often, in one half.
const CHANCE_MAX: f64 = 5e-5;
/// A rank that was late is on time again after so many times the steps that lay between two late ones.
const ON_TIME: f64 = 7.0;
/// From this share of all steps on a rank wakes somebody.
const PAGE_SHARE: f64 = 0.1;

/// A step, and what was lost in it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Loss {
    /// Its gap is 0 where no wait is known.
    pub(super) note: Note,
    /// How long the last waited for its data, and the ranks in the middle; NaN where that is not known.
    pub(super) data: (f32, f32),
}

/// A rank that is late by more than chance. Means are of its late steps.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Late {
    pub(super) place: usize,
    pub(super) level: Level,
    /// Steps that were looked at, those of them in which time was lost, and those in which it was lost to this rank.
    pub(super) steps: usize,
    pub(super) lost: usize,
    pub(super) times: usize,
    /// By how much it was behind the next, and what ranks in the middle were busy themselves.
    pub(super) behind: f64,
    pub(super) own: f64,
    /// How long it waited, and the next.
    pub(super) wait: f64,
    pub(super) next_wait: f64,
    /// Time for its data, and for that of the ranks in the middle; NaN where that is not known.
    pub(super) data: f64,
    pub(super) peers_data: f64,
    /// Mean length of all steps, and the same without it.
    pub(super) length: f64,
    pub(super) without: f64,
    pub(super) onset: (i64, i64),
}

/// See the module.
#[derive(Debug, Clone, Default)]
pub(super) struct Lates(VecDeque<Loss>);

impl Lates {
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    pub(super) fn take(&mut self, loss: Loss) {
        if self.0.len() == MEMORY {
            self.0.pop_front();
        }
        self.0.push_back(loss);
    }

    pub(super) fn bytes(&self) -> usize {
        self.0.capacity() * size_of::<Loss>()
    }

    /// The greatest share that one rank has of the latest steps as the last, or of those of them in which time was
    /// lost: where that is much, ranks do not take turns.
    pub(super) fn most(&self, scratch: &mut Vec<f32>) -> f64 {
        let latest = || self.0.iter().rev().take(TURNS);
        let least = LOST_SHARE * median_of(latest().map(|loss| loss.note.length), scratch);
        let mut lasts: Vec<usize> = latest().map(|loss| loss.note.last).collect();
        let mut losers: Vec<usize> =
            latest().filter(|loss| loss.note.gap >= least).map(|loss| loss.note.last).collect();
        let of = |places: &mut [usize]| most_often(places).map_or(0.0, |(_, ratio)| ratio);
        let of_losers = if losers.len() >= LOST_MIN { of(&mut losers) } else { 0.0 };
        of(&mut lasts).max(of_losers)
    }

    /// Mean length of the latest steps, and by how much the last was behind the ranks in the middle.
    pub(super) fn behind(&self) -> (f64, f64) {
        let latest = || self.0.iter().rev().take(TURNS);
        let mean = |of: &dyn Fn(&Loss) -> f32| {
            latest().map(|loss| f64::from(of(loss))).sum::<f64>() / latest().count() as f64
        };
        (
            mean(&|loss| loss.note.length),
            mean(&|loss| loss.note.length - loss.note.own - loss.note.wait.max(0.0)),
        )
    }

    /// Who is late by more than chance among so many ranks.
    pub(super) fn found(&self, ranks: usize, settings: &Settings, scratch: &mut Vec<f32>) -> Vec<Late> {
        let mut found: Vec<Late> = Vec::new();
        for steps in SPANS.into_iter().filter(|steps| *steps <= self.0.len()) {
            let span: Vec<&Loss> = self.0.iter().skip(self.0.len() - steps).collect();
            let median = median_of(span.iter().map(|loss| loss.note.length), scratch);
            for share in LOST_SHARES {
                let bench = Span { steps: &span, least: share * median, ranks, settings };
                for place in bench.suspects() {
                    if found.iter().all(|late| late.place != place) {
                        found.extend(bench.judge(place));
                    }
                }
            }
        }
        found
    }
}

/// Some of the latest steps.
struct Span<'a> {
    steps: &'a [&'a Loss],
    /// By how much the last is behind at least for time to be lost, seconds.
    least: f32,
    ranks: usize,
    settings: &'a Settings,
}

impl Span<'_> {
    fn is_lost(&self, loss: &Loss) -> bool {
        loss.note.gap > 0.0 && loss.note.gap >= self.least
    }

    /// Ranks that are the last often enough to be looked at.
    fn suspects(&self) -> Vec<usize> {
        let mut lasts: Vec<usize> =
            self.steps.iter().filter(|loss| self.is_lost(loss)).map(|loss| loss.note.last).collect();
        lasts.sort_unstable();
        let often = lasts.chunk_by(|a, b| a == b).filter(|same| same.len() >= 2 * LATE_MIN);
        often.map(|same| same[0]).collect()
    }

    fn judge(&self, place: usize) -> Option<Late> {
        let (older, newer) = self.steps.split_at(self.steps.len() / 2);
        let share = self.share_of(place, older)?.min(self.share_of(place, newer)?);
        let late: Vec<&Loss> = self.late(place, self.steps).collect();
        let between = self.steps.len() as f64 / late.len() as f64;
        let is_late = |loss: &&Loss| loss.note.last == place && self.is_lost(loss);
        let since = self.steps.iter().rev().position(is_late)?;
        if share.is_nan() || share < self.settings.change_ratio || since as f64 > ON_TIME * between {
            return None;
        }
        let mean = |of: &dyn Fn(&Loss) -> f32| {
            late.iter().map(|loss| f64::from(of(loss))).sum::<f64>() / late.len() as f64
        };
        let all = |of: fn(&Loss) -> f32| self.steps.iter().map(|loss| f64::from(of(loss))).sum::<f64>();
        let (n, behind) = (self.steps.len() as f64, mean(&|loss| loss.note.gap));
        let length = all(|loss| loss.note.length) / n;
        let without = (length - behind * late.len() as f64 / n).max(0.0);
        let is_page = length - without >= PAGE_SHARE * length && self.ranks >= self.settings.page_ranks_min;
        Some(Late {
            place,
            level: if is_page { Level::Page } else { Level::Warn },
            steps: self.steps.len(),
            lost: self.steps.iter().filter(|loss| self.is_lost(loss)).count(),
            times: late.len(),
            behind,
            own: mean(&|loss| loss.note.own),
            wait: mean(&|loss| loss.note.wait),
            next_wait: mean(&|loss| loss.note.wait + loss.note.gap),
            data: mean(&|loss| loss.data.0),
            peers_data: mean(&|loss| loss.data.1),
            length,
            without,
            onset: self.onset(place),
        })
    }

    fn late<'s>(&'s self, place: usize, steps: &'s [&'s Loss]) -> impl Iterator<Item = &'s Loss> {
        steps.iter().copied().filter(move |loss| loss.note.last == place && self.is_lost(loss))
    }

    /// The share of the time of steps that is lost to a rank, its longest one aside: a single step proves nothing.
    /// None if it may be the last so often by chance.
    fn share_of(&self, place: usize, steps: &[&Loss]) -> Option<f64> {
        let lost = steps.iter().filter(|loss| self.is_lost(loss)).count();
        let late = self.late(place, steps).count();
        let chance = at_least(late, lost, 1.0 / self.ranks as f64) * self.ranks as f64;
        if late < LATE_MIN || chance > CHANCE_MAX {
            return None;
        }
        let gaps = || self.late(place, steps).map(|loss| f64::from(loss.note.gap));
        let longest = gaps().fold(0.0, f64::max);
        let all: f64 = steps.iter().map(|loss| f64::from(loss.note.length)).sum();
        Some((gaps().sum::<f64>() - longest) / (all - longest))
    }

    /// The first late step of the span.
    fn onset(&self, place: usize) -> (i64, i64) {
        let first = self.late(place, self.steps).next();
        first.map_or((0, 0), |loss| (loss.note.step, loss.note.time_ns))
    }
}

/// What is there most often, and which share of all that is.
pub(super) fn most_often(places: &mut [usize]) -> Option<(usize, f64)> {
    places.sort_unstable();
    let most = places.chunk_by(|a, b| a == b).max_by_key(|same| same.len())?;
    Some((most[0], most.len() as f64 / places.len() as f64))
}

/// The chance of at least `k` of `n` where each has the chance `p`.
fn at_least(k: usize, n: usize, p: f64) -> f64 {
    if p >= 1.0 {
        return 1.0;
    }
    // From one term to the next, from none on; of many small ones no digits are lost by it that matter.
    let mut term = (1.0 - p).powi(n as i32);
    let mut sum = 0.0;
    for at in 0..=n {
        if at >= k {
            sum += term;
        }
        term *= (n - at) as f64 / (at + 1) as f64 * p / (1.0 - p);
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chances_are_those_of_a_binomial() {
        let near = |value: f64, wanted: f64| assert!((value / wanted - 1.0).abs() < 1e-9, "{value} {wanted}");
        near(at_least(0, 10, 0.25), 1.0);
        near(at_least(10, 10, 0.25), 0.25_f64.powi(10));
        near(at_least(3, 4, 0.25), 4.0 * 0.25_f64.powi(3) * 0.75 + 0.25_f64.powi(4));
        near(at_least(1, 128, 1.0 / 1_024.0), 1.0 - (1.0 - 1.0 / 1_024.0_f64).powi(128));
        near(at_least(1, 3, 1.0), 1.0);
    }
}
