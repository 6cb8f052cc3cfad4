//! What is wrong with a job as a whole, measured against what was usual.

use super::ring::{WINDOW, median_of};
use super::window::{Findings, Note};
use super::{Class, Level, Settings};
use crate::change::{Change, Cusum, LEARNED};

/// One step counts for at most so many standard deviations: a single long one is no change.
const CLIP: f64 = 4.0;
/// The exchange is slow from this multiple of what was usual.
const WAIT_RATIO: f64 = 1.5;
/// Nobody is the last in more steps than this share, or in more of those that cost, when ranks take turns.
const TURNS_RATIO: f64 = 0.5;
/// Without knowing what was usual, turns are told from noise by their share of a step,
const TURNS_SHARE: f64 = 0.1;
/// of which this much has to be left for them to go on,
const TURNS_KEPT: f64 = 0.05;
/// and by how far out the last is, in standard deviations of its peers.
const TURNS_Z: f64 = 12.0;
/// A stage is over the others by this ratio,
const STAGE_RATIO: f64 = 1.05;
/// Standard error of a median, in standard deviations over the root of how many it is of.
const MEDIAN_ERROR: f64 = 1.2533;
/// A rise of this share of a step wakes somebody.
const PAGE_RISE: f64 = 0.1;
/// A median of twenty lies within a third of their spread, so three spreads are no chance.
const RISE_SPREADS: f64 = 3.0;
/// Steps are out of the usual from this share of one above those that are long for good.
const APART: f64 = 0.02;
/// Windows after which a faster step is what is usual,
const FASTER_WINDOWS: u32 = 20;
/// and a slower one.
const SLOWER_WINDOWS: u32 = 2_000;

/// What was usual, seconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Baseline {
    /// Length of a step.
    pub step_seconds: f64,
    /// Median of what ranks were busy themselves.
    pub own_seconds: f64,
    /// The shortest wait of a step: the exchange itself.
    pub wait_seconds: f64,
    /// Spread of the steps, as their standard deviation.
    pub spread_seconds: f64,
    /// The same of the shortest waits.
    pub wait_spread_seconds: f64,
    /// The same of what the last of a step was behind the ranks in the middle.
    pub behind_spread_seconds: f64,
    /// What 85 % of the steps were not longer than. Where more are long for good, half of a window may be by chance.
    pub step_seconds_p85: f64,
    /// The same of what the last was behind.
    pub behind_seconds_p85: f64,
}

impl Baseline {
    /// What the last of each step is behind the ranks in the middle.
    fn behind(&self) -> f64 {
        (self.step_seconds - self.own_seconds - self.wait_seconds).max(0.0)
    }

    /// Whether the median of a window rose by more than it does by chance, and enough to matter.
    fn is_rise(&self, rise: f64, spread: f64, settings: &Settings) -> bool {
        rise >= settings.change_ratio * self.step_seconds && rise >= RISE_SPREADS * spread
    }
}

/// What a window says of the job.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Sign {
    pub(super) class: Class,
    pub(super) stage: Option<u32>,
    pub(super) level: Level,
    pub(super) rho: f64,
    pub(super) z: f64,
    /// The number in question now and before, seconds.
    pub(super) now: f64,
    pub(super) before: f64,
    /// How long a step would be without it.
    pub(super) without: f64,
}

/// The memory of a job's usual steps.
#[derive(Debug, Clone, Default)]
pub(super) struct Job {
    learning: Vec<[f32; 3]>,
    baseline: Option<Baseline>,
    cusum: Option<Cusum>,
    faster: u32,
    slower: u32,
}

impl Job {
    pub(super) fn baseline(&self) -> Option<Baseline> {
        self.baseline
    }

    pub(super) fn expect(&mut self, baseline: Baseline) {
        self.learning = Vec::new();
        self.cusum = Some(Cusum::knowing(baseline.step_seconds, baseline.spread_seconds).clipped(CLIP));
        self.baseline = Some(baseline);
        (self.faster, self.slower) = (0, 0);
    }

    pub(super) fn change(&self) -> Option<Change> {
        self.cusum.as_ref().and_then(Cusum::change)
    }

    /// Adds a step.
    pub(super) fn take(&mut self, note: &Note) {
        if let Some(cusum) = &mut self.cusum {
            cusum.push(note.step, note.time_ns, f64::from(note.length));
        } else if self.baseline.is_none() {
            self.learning.push([note.length, note.own, note.wait]);
            if self.learning.len() >= LEARNED {
                let learning = std::mem::take(&mut self.learning);
                self.expect(learned(&learning));
            }
        }
    }

    /// What is usual changes when steps stay faster, or slower for long enough that it is known.
    pub(super) fn settle(&mut self, step: f64) {
        let Some(usual) = self.baseline else { return };
        let is_faster = step < 0.97 * usual.step_seconds;
        let is_slower = step > 1.03 * usual.step_seconds;
        self.faster = if is_faster { self.faster + 1 } else { 0 };
        self.slower = if is_slower { self.slower + 1 } else { 0 };
        if self.faster >= FASTER_WINDOWS || self.slower >= SLOWER_WINDOWS {
            *self = Self::default();
        }
    }

    /// What this window says of the job.
    pub(super) fn signs(
        &self,
        found: &Findings,
        stages: &[(u32, Vec<usize>)],
        settings: &Settings,
    ) -> Vec<Sign> {
        let mut signs: Vec<Sign> = stage(found, stages, settings).into_iter().collect();
        signs.extend(self.communication(found, settings));
        signs.extend(self.turns(found, settings));
        signs.extend(self.slowdown(found, &signs, settings));
        signs
    }

    fn communication(&self, found: &Findings, settings: &Settings) -> Option<Sign> {
        let usual = self.baseline?;
        let rise = found.wait - usual.wait_seconds;
        let is_rise = usual.is_rise(rise, usual.wait_spread_seconds, settings);
        if !is_rise || found.wait < WAIT_RATIO * usual.wait_seconds {
            return None;
        }
        Some(Sign {
            class: Class::Communication,
            stage: None,
            level: level_of(rise / usual.step_seconds),
            rho: found.wait / usual.wait_seconds,
            z: f64::NAN,
            now: found.wait,
            before: usual.wait_seconds,
            without: found.step - rise,
        })
    }

    /// Another rank is the last in each step.
    fn turns(&self, found: &Findings, settings: &Settings) -> Option<Sign> {
        let longest = found.centres.iter().map(|(middle, _)| *middle).fold(f32::NAN, f32::max);
        let behind = found.without - f64::from(longest) - found.wait;
        if found.most >= TURNS_RATIO || behind.is_nan() {
            return None;
        }
        let z = behind / found.spread;
        let sign = |level, before| Sign {
            class: Class::Rotating,
            stage: None,
            level,
            rho: found.step / (found.step - behind + before),
            z,
            now: behind,
            before,
            without: found.step - behind + before,
        };
        if let Some(usual) = self.baseline
            && behind > usual.behind_seconds_p85 + APART * usual.step_seconds
            && usual.is_rise(behind - usual.behind(), usual.behind_spread_seconds, settings)
        {
            return Some(sign(Level::Warn, usual.behind()));
        }
        if behind >= TURNS_SHARE * found.step && z >= TURNS_Z {
            return Some(sign(Level::Info, 0.0));
        }
        // Where some steps are long and others are not, one window has it and the next has not.
        let (step, behind) = found.behind;
        (found.is_turning && behind >= TURNS_KEPT * step).then(|| Sign {
            rho: step / (step - behind),
            z: behind / found.spread,
            now: behind,
            without: found.step * (1.0 - behind / step),
            ..sign(Level::Info, 0.0)
        })
    }

    /// Steps are longer, and nothing else says why.
    fn slowdown(&self, found: &Findings, signs: &[Sign], settings: &Settings) -> Option<Sign> {
        let (usual, _) = (self.baseline?, self.change()?);
        let rise = found.step - usual.step_seconds;
        let is_usual = found.step <= usual.step_seconds_p85 + APART * usual.step_seconds;
        if is_usual || !usual.is_rise(rise, usual.spread_seconds, settings) {
            return None;
        }
        let of_signs: f64 = signs.iter().map(|sign| found.step - sign.without).sum();
        let explained = found.step - found.without + of_signs;
        (explained < 0.5 * rise).then(|| Sign {
            class: Class::Slowdown,
            stage: None,
            level: level_of(rise / usual.step_seconds),
            rho: found.step / usual.step_seconds,
            z: rise / usual.spread_seconds,
            now: found.step,
            before: usual.step_seconds,
            without: usual.step_seconds,
        })
    }
}

fn level_of(rise: f64) -> Level {
    if rise >= PAGE_RISE { Level::Page } else { Level::Warn }
}

fn learned(steps: &[[f32; 3]]) -> Baseline {
    let mut scratch = Vec::new();
    let mut of = |get: fn(&[f32; 3]) -> f32| {
        let middle = median_of(steps.iter().map(get), &mut scratch);
        let off = median_of(steps.iter().map(|row| (get(row) - middle).abs()), &mut scratch);
        (f64::from(middle), 1.4826 * f64::from(off))
    };
    let (step_seconds, spread) = of(|row| row[0]);
    let (own_seconds, _) = of(|row| row[1]);
    let (wait, wait_spread) = of(|row| row[2]);
    let behind = |row: &[f32; 3]| row[0] - row[1] - row[2].max(0.0);
    let (_, behind_spread_seconds) = of(behind);
    let high = |get: fn(&[f32; 3]) -> f32| {
        let mut values: Vec<f32> = steps.iter().map(get).collect();
        values.sort_unstable_by(f32::total_cmp);
        values.get(values.len() * 17 / 20).copied().map_or(f64::NAN, f64::from)
    };
    let known = |value: f64| if value.is_nan() { 0.0 } else { value };
    Baseline {
        step_seconds,
        own_seconds,
        wait_seconds: known(wait),
        spread_seconds: spread.max(0.005 * step_seconds),
        wait_spread_seconds: known(wait_spread),
        behind_spread_seconds,
        step_seconds_p85: high(|row| row[0]),
        behind_seconds_p85: high(behind),
    }
}

/// The stage that is over the others. Its ranks are compared with each other elsewhere.
fn stage(found: &Findings, stages: &[(u32, Vec<usize>)], settings: &Settings) -> Option<Sign> {
    if stages.len() < 2 {
        return None;
    }
    let mut scratch = Vec::new();
    let mut middles: Vec<(u32, f32)> = Vec::with_capacity(stages.len());
    // How far the median of a stage may be out by chance, of the stage that is most: of few ranks, far.
    let mut chance = 0.0_f64;
    for (stage, ranks) in stages {
        let medians = ranks.iter().map(|place| found.medians[*place]);
        let (middle, spread) = super::ring::centre(medians, &mut scratch);
        if middle.is_nan() {
            continue;
        }
        let of_rank = f64::from(spread).max(MEDIAN_ERROR / (WINDOW as f64).sqrt() * found.spread);
        chance = chance.max(MEDIAN_ERROR * of_rank / (ranks.len() as f64).sqrt());
        middles.push((*stage, middle));
    }
    let (top, highest) = middles.iter().copied().max_by(|a, b| a.1.total_cmp(&b.1))?;
    let others = middles.iter().filter(|(stage, _)| *stage != top).map(|(_, middle)| *middle);
    let (middle, spread) = super::ring::centre(others, &mut scratch);
    let spread = f64::from(spread).max(std::f64::consts::SQRT_2 * chance);
    let (rho, z) = (f64::from(highest / middle), f64::from(highest - middle) / spread);
    if rho.is_nan() || rho < STAGE_RATIO || z < settings.z {
        return None;
    }
    let all = f64::from(middles.iter().map(|(_, middle)| middle).sum::<f32>()) / middles.len() as f64;
    Some(Sign {
        class: Class::StageImbalance,
        stage: Some(top),
        level: Level::Warn,
        rho,
        z,
        now: f64::from(highest),
        before: f64::from(middle),
        without: found.step - (f64::from(highest) - all),
    })
}
