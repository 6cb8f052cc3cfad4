//! What the numbers of one window say, before it is asked whether they last.

use super::cards::Card;
use super::groups::Groups;
use super::lates::{Late, most_often};
use super::ring::{KEPT, PRESENT_MIN, Ring, WINDOW, centre, median, median_of};
use super::{Level, Settings};

/// Peers that are looked at where all would be too many.
const SAMPLE: usize = 256;
/// A rank is out of the ordinary only if at most this share of its peers' single steps are as long as its
/// median. Were all alike, one median in a thousand million would be. It keeps heavy tails out, which the
/// spread of medians does not show.
const REACHING_MAX: f64 = 0.04;
/// A host of at least this share of its peers moves their median, so it is compared with the others alone.
const HOST_SHARE: f64 = 0.25;
/// From this share of its ranks on a host is slow as a whole.
pub(super) const HOST_RANKS: f64 = 0.75;
/// In a group that meets all the time, who is behind by less than this share is as late as the others.
const TENSOR_APART: f32 = 0.01;
/// Longest and shortest steps of a window that are left out of a mean.
const TRIMMED: usize = 2;
/// Shares of a step by which medians and means may differ where steps are of one kind.
const ONE_KIND: f64 = 0.02;
/// Always the last is who is it in this share of the steps,
const LAST_RATIO: f64 = 0.8;
/// by this share of a step.
const LAST_GAP: f64 = 0.01;

/// A step that was looked at.
#[derive(Debug, Clone, Copy)]
pub(super) struct Note {
    pub(super) step: i64,
    pub(super) time_ns: i64,
    /// How long it was.
    pub(super) length: f32,
    /// Median of what ranks were busy themselves.
    pub(super) own: f32,
    /// The shortest wait; NaN where none is known.
    pub(super) wait: f32,
    /// Place of the rank with that wait.
    pub(super) last: usize,
    /// By how much it was behind the next, its tensor group aside.
    pub(super) gap: f32,
}

impl Note {
    pub(super) const NONE: Self =
        Self { step: 0, time_ns: 0, length: f32::NAN, own: f32::NAN, wait: f32::NAN, last: 0, gap: 0.0 };
}

/// A rank that is out of the ordinary.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Suspect {
    pub(super) place: usize,
    pub(super) median: f32,
    /// Of its peers.
    pub(super) middle: f32,
    pub(super) rho: f64,
    pub(super) z: f64,
    pub(super) level: Level,
}

/// All that a window is judged by.
pub(super) struct View<'a> {
    pub(super) settings: &'a Settings,
    pub(super) groups: &'a Groups,
    pub(super) own: &'a Ring,
    pub(super) wait: &'a Ring,
    pub(super) data: Option<&'a Ring>,
    pub(super) cards: &'a [Card],
    pub(super) notes: &'a [Note; KEPT],
    /// The count of the step after the window.
    pub(super) end: u64,
}

/// What was found.
#[derive(Debug, Clone, Default)]
pub(super) struct Findings {
    /// Median of each rank's own time.
    pub(super) medians: Vec<f32>,
    /// Median and spread of those of each group of peers.
    pub(super) centres: Vec<(f32, f32)>,
    pub(super) suspects: Vec<Suspect>,
    /// Other ranks that are late now and again.
    pub(super) lates: Vec<Late>,
    /// Ranks that are as late as a suspect because they are in its tensor group.
    pub(super) victims: Vec<usize>,
    /// Place of the rank that was the last most often, and in which share of the steps.
    pub(super) last: Option<(usize, f64)>,
    /// The greatest share that one rank has of the steps of late as the last, or of those that lost time.
    pub(super) most: f64,
    /// Mean length of the steps of late, and by how much the last was behind the ranks in the middle.
    pub(super) behind: (f64, f64),
    /// Whether ranks were found to take turns already.
    pub(super) is_turning: bool,
    /// Whether that is so often and so clear that it is to be said.
    pub(super) is_always_last: bool,
    /// Median length of a step.
    pub(super) step: f64,
    /// Median of the shortest waits; 0 where none is known.
    pub(super) wait: f64,
    /// Median of the steps without suspects.
    pub(super) without: f64,
    /// Length of a step with and without them, from which their cost is told.
    pub(super) cost: (f64, f64),
    /// Spread of what single ranks were busy in single steps, at least half a per cent.
    pub(super) spread: f64,
}

/// Since when a rank is out of the ordinary.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Since {
    /// Step and time.
    Step(i64, i64),
    /// Since its own time rose over this one of its peers.
    Over(f32),
}

impl Findings {
    /// Places of ranks that are out of the ordinary one way or the other.
    pub(super) fn accused(&self) -> impl Iterator<Item = (usize, (Level, Since))> {
        let suspects = self.suspects.iter().map(|one| (one.place, (one.level, Since::Over(one.middle))));
        let lates = self.lates.iter();
        suspects.chain(lates.map(|one| (one.place, (one.level, Since::Step(one.onset.0, one.onset.1)))))
    }
}

impl View<'_> {
    pub(super) fn notes(&self, n: usize) -> impl DoubleEndedIterator<Item = &Note> {
        let first = self.end.saturating_sub(n as u64);
        (first..self.end).map(|count| &self.notes[(count % KEPT as u64) as usize])
    }

    pub(super) fn findings(&self, lates: Vec<Late>, scratch: &mut Vec<f32>) -> Findings {
        let medians: Vec<f32> = (0..self.groups.peers_of.len())
            .map(|place| {
                let (median, present) = self.own.median(place, self.end);
                if present >= PRESENT_MIN { median } else { f32::NAN }
            })
            .collect();
        let centres: Vec<(f32, f32)> = self
            .groups
            .peers
            .iter()
            .map(|group| centre(group.iter().map(|place| medians[*place]), scratch))
            .collect();
        let mut found = Findings { medians, centres, ..Findings::default() };
        found.step = f64::from(median_of(self.notes(WINDOW).map(|note| note.length), scratch));
        let wait = f64::from(median_of(self.notes(WINDOW).map(|note| note.wait), scratch));
        found.wait = if wait.is_nan() { 0.0 } else { wait };
        found.spread = self.spread(&found, scratch);
        found.suspects = self.suspects(&found, scratch);
        self.tell_tensor_peers_apart(&mut found);
        let is_seen = |late: &Late| {
            let is_suspect = found.suspects.iter().any(|suspect| suspect.place == late.place);
            is_suspect || found.victims.contains(&late.place)
        };
        found.lates = lates.into_iter().filter(|late| !is_seen(late)).collect();
        self.lasts(&mut found, scratch);
        let accused = found.accused().map(|(place, _)| place);
        let accused: Vec<usize> = accused.chain(found.victims.iter().copied()).collect();
        (found.without, found.cost) = (found.step, (found.step, found.step));
        if !accused.is_empty() {
            let lengths = self.lengths(&accused);
            found.without = median_without(&lengths, scratch).unwrap_or(found.step);
            found.cost = cost(&lengths, (found.step, found.without.min(found.step)));
        }
        found
    }

    /// How long a step would be if these ranks were as fast as the slowest of the others.
    pub(super) fn without(&self, accused: &[usize], scratch: &mut Vec<f32>) -> Option<f64> {
        if accused.is_empty() {
            return None;
        }
        median_without(&self.lengths(accused), scratch)
    }

    /// Lengths of the steps of the window, with and without these ranks.
    fn lengths(&self, accused: &[usize]) -> [(f32, f32); WINDOW] {
        let ranks = self.groups.peers_of.len();
        let mut is_accused = vec![false; ranks];
        for place in accused {
            is_accused[*place] = true;
        }
        let mut lengths = [(f32::NAN, f32::NAN); WINDOW];
        let first = self.end.saturating_sub(WINDOW as u64);
        for (slot, count) in (first..self.end).enumerate() {
            let longest = (0..ranks)
                .filter(|place| !is_accused[*place])
                .map(|place| self.own.at(place, count))
                .fold(f32::NEG_INFINITY, f32::max);
            let note = &self.notes[(count % KEPT as u64) as usize];
            let wait = if note.wait.is_nan() { 0.0 } else { note.wait };
            lengths[slot] = (note.length, if longest.is_finite() { longest + wait } else { f32::NAN });
        }
        lengths
    }

    /// Of the latest step, each rank against the median of its peers.
    fn spread(&self, found: &Findings, scratch: &mut Vec<f32>) -> f64 {
        let over = self.groups.peers_of.iter().enumerate().map(|(place, group)| {
            let (middle, _) = found.centres[*group];
            (self.own.at(place, self.end - 1) / middle - 1.0).abs()
        });
        let longest = found.centres.iter().map(|(middle, _)| *middle).fold(f32::NAN, f32::max);
        f64::from((1.4826 * median_of(over, scratch)).max(0.005) * longest)
    }

    fn suspects(&self, found: &Findings, scratch: &mut Vec<f32>) -> Vec<Suspect> {
        let mut suspects = Vec::new();
        for (number, group) in self.groups.peers.iter().enumerate() {
            let mut of_group = if group.len() < self.settings.page_ranks_min {
                self.of_few(group, &found.medians, scratch)
            } else {
                let (middle, spread) = found.centres[number];
                group
                    .iter()
                    .filter_map(|place| self.suspect(*place, found.medians[*place], (middle, spread)))
                    .collect()
            };
            self.hosts_of(group, &found.medians, &mut of_group, scratch);
            self.drop_likely(group, &mut of_group);
            if group.len() < self.settings.page_ranks_min {
                for suspect in &mut of_group {
                    suspect.level = Level::Warn;
                }
            }
            suspects.append(&mut of_group);
        }
        suspects
    }

    fn suspect(&self, place: usize, median: f32, (middle, spread): (f32, f32)) -> Option<Suspect> {
        if median.is_nan() || middle.is_nan() || middle <= 0.0 || spread <= 0.0 {
            return None;
        }
        let rho = f64::from(median) / f64::from(middle);
        let z = (f64::from(median) - f64::from(middle)) / f64::from(spread);
        if rho < self.settings.warn_ratio || z < self.settings.z {
            return None;
        }
        let level = if rho >= self.settings.page_ratio { Level::Page } else { Level::Warn };
        Some(Suspect { place, median, middle, rho, z, level })
    }

    /// In a small group every rank is compared with the others alone: one of two or three moves the median.
    fn of_few(&self, group: &[usize], medians: &[f32], scratch: &mut Vec<f32>) -> Vec<Suspect> {
        let mut suspects = Vec::new();
        for place in group {
            let others = group.iter().filter(|other| *other != place).map(|other| medians[*other]);
            let centre = centre(others, scratch);
            suspects.extend(self.suspect(*place, medians[*place], centre));
        }
        suspects
    }

    /// A host that is a large part of its peers is compared with the other hosts alone.
    fn hosts_of(
        &self,
        group: &[usize],
        medians: &[f32],
        suspects: &mut Vec<Suspect>,
        scratch: &mut Vec<f32>,
    ) {
        let least = (HOST_SHARE * group.len() as f64).max(2.0);
        let mut hosts: Vec<usize> = group.iter().filter_map(|place| self.groups.host_of[*place]).collect();
        hosts.sort_unstable();
        for host in hosts.chunk_by(|a, b| a == b).filter(|ranks| ranks.len() as f64 >= least) {
            let is_here = |place: &usize| self.groups.host_of[*place] == Some(host[0]);
            let others = group.iter().filter(|place| !is_here(place)).map(|place| medians[*place]);
            if others.clone().filter(|median| !median.is_nan()).count() < 2 {
                continue;
            }
            let centre = centre(others, scratch);
            let mates = group.iter().filter(|place| is_here(place));
            let slow: Vec<Suspect> =
                mates.filter_map(|place| self.suspect(*place, medians[*place], centre)).collect();
            if slow.len() as f64 >= HOST_RANKS * host.len() as f64 {
                suspects.retain(|suspect| !is_here(&suspect.place));
                suspects.extend(slow);
            }
        }
    }

    /// Drops whom its peers' single steps reach too often to be out of the ordinary.
    fn drop_likely(&self, group: &[usize], suspects: &mut Vec<Suspect>) {
        if suspects.is_empty() {
            return;
        }
        let mut accused: Vec<usize> = suspects.iter().map(|suspect| suspect.place).collect();
        accused.sort_unstable();
        let stride = group.len() / SAMPLE + 1;
        let peers = group.iter().step_by(stride).filter(|place| accused.binary_search(place).is_err());
        let mut steps: Vec<f32> = peers
            .flat_map(|place| self.own.last(*place, self.end, WINDOW))
            .filter(|own| !own.is_nan())
            .collect();
        steps.sort_unstable_by(f32::total_cmp);
        suspects.retain(|suspect| {
            let below = steps.partition_point(|own| *own < suspect.median);
            (steps.len() - below) as f64 <= REACHING_MAX * steps.len() as f64
        });
    }

    /// All of a tensor group look late when one of them is. If one is behind the others it is that one, else
    /// the one whose GPU has a reason.
    fn tell_tensor_peers_apart(&self, found: &mut Findings) {
        if self.groups.tensor.is_empty() {
            return;
        }
        let group_of = |suspect: &Suspect| self.groups.tensor_id(suspect.place);
        let mut suspects = std::mem::take(&mut found.suspects);
        suspects.sort_by_key(group_of);
        for together in suspects.chunk_by(|a, b| group_of(a) == group_of(b)) {
            let Some(one) = self.one_of(together, found) else {
                found.suspects.extend_from_slice(together);
                continue;
            };
            found.suspects.push(one);
            let others = together.iter().map(|suspect| suspect.place).filter(|place| *place != one.place);
            found.victims.extend(others);
        }
    }

    fn one_of(&self, together: &[Suspect], found: &Findings) -> Option<Suspect> {
        if together.len() < 2 {
            return None;
        }
        let mut sorted = together.to_vec();
        sorted.sort_by(|a, b| b.median.total_cmp(&a.median));
        let (first, second) = (sorted[0], sorted[1]);
        let (_, spread) = found.centres[self.groups.peers_of[first.place]];
        if first.median - second.median >= (TENSOR_APART * first.middle).max(3.0 * spread) {
            return Some(first);
        }
        let mut with_reason = together.iter().filter(|suspect| self.card_has_reason(suspect.place));
        let one = with_reason.next()?;
        with_reason.next().is_none().then_some(*one)
    }

    fn card_has_reason(&self, place: usize) -> bool {
        let Some(card) = self.cards.get(place).and_then(Card::lately) else { return false };
        let group = &self.groups.peers[self.groups.peers_of[place]];
        let peers = self.cards_of(group, &[place]);
        peers.is_some_and(|peers| super::cards::of_card(&card, &peers).is_some())
    }

    /// Medians of what the GPUs of these ranks did, without the accused.
    pub(super) fn cards_of(&self, group: &[usize], accused: &[usize]) -> Option<super::cards::Lately> {
        let stride = group.len() / SAMPLE + 1;
        let peers = group.iter().step_by(stride).filter(|place| !accused.contains(place));
        let lately: Vec<_> = peers.filter_map(|place| self.cards.get(*place)?.lately()).collect();
        (!lately.is_empty()).then(|| super::cards::middle(&lately))
    }

    /// Median over ranks, without the accused, of their medians in a ring.
    pub(super) fn middle_of(&self, ring: &Ring, group: &[usize], accused: &[usize]) -> f64 {
        let stride = group.len() / SAMPLE + 1;
        let peers = group.iter().step_by(stride).filter(|place| !accused.contains(place));
        let mut medians: Vec<f32> =
            peers.map(|place| ring.median(*place, self.end).0).filter(|median| !median.is_nan()).collect();
        f64::from(median(&mut medians))
    }

    fn lasts(&self, found: &mut Findings, scratch: &mut Vec<f32>) {
        let mut lasts: Vec<usize> = self.notes(WINDOW).map(|note| note.last).collect();
        let Some((place, ratio)) = most_often(&mut lasts) else { return };
        let gaps = self.notes(WINDOW).filter(|note| note.last == place).map(|note| note.gap);
        let gap = f64::from(median_of(gaps, scratch));
        found.last = Some((place, ratio));
        found.is_always_last = ratio >= LAST_RATIO && gap >= LAST_GAP * found.step;
    }

    /// When a rank fell behind: where its steps part best in shorter and longer ones. Its first step that is
    /// kept if they don't.
    pub(super) fn onset_of(&self, place: usize, middle: f32) -> Option<(i64, i64)> {
        let kept = self.end.min(KEPT as u64) as usize;
        let over: Vec<f32> = self.own.last(place, self.end, kept).map(|own| own / middle - 1.0).collect();
        self.onset(&over)
    }

    /// The same of numbers that are 0 where nothing is wrong, one a kept step.
    pub(super) fn onset(&self, over: &[f32]) -> Option<(i64, i64)> {
        let at = split(over).or_else(|| over.iter().position(|value| value.is_finite())).unwrap_or(0);
        self.notes(over.len()).nth(at).map(|note| (note.step, note.time_ns))
    }
}

fn median_without(lengths: &[(f32, f32)], scratch: &mut Vec<f32>) -> Option<f64> {
    let without = median_of(lengths.iter().map(|(_, without)| *without), scratch);
    without.is_finite().then_some(f64::from(without))
}

/// Length of a step with and without ranks: the medians, or where a rank is slow in some steps only, so that
/// medians make too much of it or too little, the means without the longest and shortest steps.
fn cost(lengths: &[(f32, f32)], medians: (f64, f64)) -> (f64, f64) {
    let mut lengths = lengths.to_vec();
    lengths.retain(|(length, without)| length.is_finite() && without.is_finite());
    if lengths.len() <= 2 * TRIMMED {
        return medians;
    }
    lengths.sort_unstable_by(|a, b| a.0.total_cmp(&b.0));
    let kept = &lengths[TRIMMED..lengths.len() - TRIMMED];
    let mean = |of: fn(&(f32, f32)) -> f32| {
        kept.iter().map(|step| f64::from(of(step))).sum::<f64>() / kept.len() as f64
    };
    let step = mean(|(length, _)| *length);
    let means = (step, mean(|(_, without)| *without).min(step));
    let gain = |(step, without): (f64, f64)| 1.0 - without / step;
    if (gain(means) - gain(medians)).abs() > ONE_KIND { means } else { medians }
}

/// Where numbers rise: the place of the first higher one. None if they were high all along.
fn split(over: &[f32]) -> Option<usize> {
    let present: Vec<(usize, f32)> =
        over.iter().copied().enumerate().filter(|(_, value)| value.is_finite()).collect();
    let n = present.len();
    let recent = WINDOW / 2;
    if n <= recent {
        return None;
    }
    let mut latest: Vec<f32> = present[n - recent..].iter().map(|(_, value)| *value).collect();
    let high = median(&mut latest);
    if high <= 0.0 {
        return None;
    }
    // A single long step is to weigh no more than a lasting one.
    let clipped: Vec<f32> = present.iter().map(|(_, value)| value.clamp(-high, 2.0 * high)).collect();
    let all: f32 = clipped.iter().sum();
    let mut below = 0.0;
    let mut best: Option<(f32, usize)> = None;
    for k in 1..n {
        below += clipped[k - 1];
        let (left, right) = (below / k as f32, (all - below) / (n - k) as f32);
        let apart = right - left;
        let weight = apart * apart * (k * (n - k)) as f32;
        let is_rise = apart >= 0.5 * high;
        if is_rise && best.is_none_or(|(most, _)| weight > most) {
            best = Some((weight, k));
        }
    }
    best.map(|(_, k)| present[k].0)
}
