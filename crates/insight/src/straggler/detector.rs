//! Takes steps, keeps windows of them, and judges.

use std::collections::BTreeMap;

use super::accuse;
use super::cards::Card;
use super::groups::Groups;
use super::hold::Hold;
use super::job::{Job, Sign};
use super::lates::{Lates, Loss};
use super::ring::{KEPT, Ring, SLIDE, WINDOW, median_of};
use super::window::{Findings, Note, Since, View};
use super::{Baseline, Class, GpuFacts, Level, Ranks, Settings, StepTimes, Verdict};

/// A step in which checkpoints and evaluation took this share of some rank is unlike others.
const CHECKPOINT_RATIO: f32 = 0.05;
/// Longer than that no step is, seconds.
const SECONDS_MAX: f32 = 1e7;

/// What has been looked at.
#[derive(Debug, Clone, PartialEq)]
pub struct Watched {
    /// Ranks that took part in the latest step.
    pub ranks: usize,
    /// All ranks.
    pub of: usize,
    /// Steps of a window.
    pub window_steps: u32,
    /// The latest step.
    pub last_step: Option<i64>,
    /// The first step of this attempt that was looked at.
    pub since_step: Option<i64>,
    /// Windows that were judged.
    pub windows: u64,
    /// Why nothing is judged yet, or no rank can be named.
    pub reason: Option<String>,
}

/// A rank that is out of the ordinary in a window.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Suspect {
    /// The rank.
    pub rank: u32,
    /// Its own time over that of its peers.
    pub rho: f64,
    /// How far out that is, in standard deviations.
    pub z: f64,
    /// What it would be, did it last.
    pub level: Level,
}

/// The latest window, in numbers.
#[derive(Debug, Clone, PartialEq)]
pub struct Window {
    /// Its first step.
    pub first_step: i64,
    /// Its last step.
    pub last_step: i64,
    /// Median length of a step.
    pub step_seconds: f64,
    /// Median of the shortest wait of each step: what the exchange itself takes.
    pub wait_seconds: f64,
    /// The rank that was the last most often, and in which share of the steps.
    pub last: Option<(u32, f64)>,
    /// Median length of a step without the suspects.
    pub counterfactual_seconds: f64,
    /// Ranks that are out of the ordinary, verdict or not.
    pub suspects: Vec<Suspect>,
}

/// Watches the steps of one attempt.
///
/// Every step costs a pass over the ranks, every fifth one a pass over their windows. What it holds is some
/// 500 bytes a rank, and as much again where the data and the GPUs of ranks are told.
#[derive(Debug, Clone)]
pub struct Detector {
    pub(super) settings: Settings,
    pub(super) ranks: Ranks,
    pub(super) groups: Groups,
    own: Ring,
    wait: Ring,
    data: Option<Ring>,
    cards: Vec<Card>,
    notes: [Note; KEPT],
    lates: Lates,
    /// Steps that were looked at in this attempt.
    count: u64,
    /// Steps of this attempt, looked at or not.
    seen: u64,
    /// Steps with too few ranks since the last one with enough.
    thin: u64,
    last_step: Option<i64>,
    since: Option<(i64, i64)>,
    present: usize,
    windows: u64,
    pub(super) job: Job,
    pub(super) rank_holds: BTreeMap<usize, Hold>,
    pub(super) lasts: BTreeMap<usize, Hold>,
    pub(super) signs: BTreeMap<(Class, Option<u32>), Hold>,
    verdicts: Vec<Verdict>,
    window: Option<Window>,
    scratch: Vec<f32>,
    busy: Vec<(f32, f32)>,
}

impl Detector {
    /// One for these ranks.
    pub fn new(ranks: Ranks, settings: Settings) -> Self {
        let n = ranks.0.len();
        Self {
            settings,
            groups: Groups::of(&ranks),
            ranks,
            own: Ring::new(n, KEPT),
            wait: Ring::new(n, WINDOW),
            data: None,
            cards: Vec::new(),
            notes: [Note::NONE; KEPT],
            lates: Lates::default(),
            count: 0,
            seen: 0,
            thin: 0,
            last_step: None,
            since: None,
            present: 0,
            windows: 0,
            job: Job::default(),
            rank_holds: BTreeMap::new(),
            lasts: BTreeMap::new(),
            signs: BTreeMap::new(),
            verdicts: Vec::new(),
            window: None,
            scratch: Vec::with_capacity(n),
            busy: Vec::with_capacity(n),
        }
    }

    /// Says what is usual, as an earlier attempt of the same job has shown. Without it the first fifty steps
    /// after the warm-up are taken for it.
    pub fn expect(&mut self, baseline: Baseline) {
        self.job.expect(baseline);
    }

    /// What is taken for usual.
    pub fn baseline(&self) -> Option<Baseline> {
        self.job.baseline()
    }

    /// Takes a step, in order. True if verdicts may have changed, which is every fifth step at most.
    pub fn take(&mut self, step: &StepTimes<'_>) -> bool {
        let mut is_changed = false;
        match self.last_step {
            Some(last) if step.step == last => return false,
            Some(last) if step.step < last => is_changed = self.begin_anew(),
            _ => {}
        }
        self.last_step = Some(step.step);
        self.seen += 1;
        let has_waits = self.read(step);
        if !self.is_complete(self.present) {
            self.thin += 1;
            return is_changed;
        }
        self.thin = 0;
        if self.seen <= u64::from(self.settings.warm_up_steps) || self.is_checkpoint(step) {
            return is_changed;
        }
        self.keep(step, has_waits);
        if self.count < WINDOW as u64 || !(self.count - WINDOW as u64).is_multiple_of(SLIDE) {
            return is_changed;
        }
        self.judge();
        true
    }

    /// What the GPU of the rank at this place did. To be told every 15 s at the latest.
    pub fn gpu(&mut self, place: usize, time_ns: i64, facts: &GpuFacts) {
        if let Some(card) = self.card(place) {
            card.take(time_ns, facts);
        }
    }

    /// For how long so far a CPU quota held back the process of the rank at this place, seconds. Whoever samples
    /// it has a clock of its own, so it is told apart from the GPU, whether or not there is one.
    pub fn held_back(&mut self, place: usize, time_ns: i64, seconds: f64) {
        if let Some(card) = self.card(place) {
            card.hold_back(time_ns, seconds);
        }
    }

    fn card(&mut self, place: usize) -> Option<&mut Card> {
        if self.cards.is_empty() {
            self.cards = vec![Card::default(); self.ranks.0.len()];
        }
        self.cards.get_mut(place)
    }

    /// What is wrong now, the worst first.
    pub fn verdicts(&self) -> &[Verdict] {
        &self.verdicts
    }

    /// The latest window.
    pub fn window(&self) -> Option<&Window> {
        self.window.as_ref()
    }

    /// What has been looked at.
    pub fn watched(&self) -> Watched {
        Watched {
            ranks: self.present,
            of: self.ranks.0.len(),
            window_steps: WINDOW as u32,
            last_step: self.last_step,
            since_step: self.since.map(|(step, _)| step),
            windows: self.windows,
            reason: self.reason(),
        }
    }

    /// Bytes that it holds, its verdicts aside.
    pub fn bytes(&self) -> usize {
        let n = self.ranks.0.len();
        let text = |text: &String| text.capacity();
        let names: usize = self
            .ranks
            .0
            .iter()
            .map(|rank| text(&rank.host) + text(&rank.gpu) + text(&rank.uuid) + text(&rank.role))
            .sum();
        let facts = self.ranks.0.capacity() * size_of::<super::RankFacts>();
        let rings = self.own.bytes()
            + self.wait.bytes()
            + self.data.as_ref().map_or(0, Ring::bytes)
            + self.lates.bytes();
        let scratch = self.scratch.capacity() * 4 + self.busy.capacity() * 8;
        // Each rank is in up to four groups, and knows three of them.
        let groups = n * (4 * size_of::<usize>() + size_of::<usize>() + 2 * size_of::<Option<usize>>());
        size_of::<Self>() + names + facts + rings + scratch + groups + self.cards.len() * size_of::<Card>()
    }

    fn reason(&self) -> Option<String> {
        if self.thin > 0 {
            return Some(format!(
                "{} of {} ranks reported the latest step; it takes {:.0} % of them",
                self.present,
                self.ranks.0.len(),
                self.settings.reporting_ratio * 100.0
            ));
        }
        if self.count < WINDOW as u64 {
            let needed = u64::from(self.settings.warm_up_steps) + WINDOW as u64;
            return Some(format!(
                "{} steps of this attempt are done; the first verdict takes {needed}, checkpoints aside",
                self.seen
            ));
        }
        let latest = &self.notes[((self.count - 1) % KEPT as u64) as usize];
        (latest.wait.is_nan() && self.ranks.0.len() > 1).then(|| {
            "how long ranks wait for each other is not measured, so a slow one can't be told from those that \
             wait for it; see docs/concepts/stragglers.md"
                .to_owned()
        })
    }

    /// Steps went back: what was found in the lost ones is over. What is usual stays known.
    fn begin_anew(&mut self) -> bool {
        let n = self.ranks.0.len();
        self.own = Ring::new(n, KEPT);
        self.wait = Ring::new(n, WINDOW);
        self.data = None;
        self.notes = [Note::NONE; KEPT];
        self.lates.clear();
        (self.count, self.seen, self.thin) = (0, 0, 0);
        self.since = None;
        self.rank_holds.clear();
        self.lasts.clear();
        self.signs.clear();
        self.window = None;
        let had_verdicts = !self.verdicts.is_empty();
        self.verdicts.clear();
        had_verdicts
    }

    fn is_complete(&self, ranks: usize) -> bool {
        ranks > 0 && ranks as f64 >= self.settings.reporting_ratio * self.ranks.0.len() as f64
    }

    /// Reads what each rank was busy and waited; whether waits are known.
    fn read(&mut self, step: &StepTimes<'_>) -> bool {
        let usable = |value: f32| if (0.0..=SECONDS_MAX).contains(&value) { value } else { f32::NAN };
        let at = |values: &[f32], place: usize| values.get(place).copied().map_or(f32::NAN, usable);
        let (mut with_own, mut with_wait) = (0, 0);
        self.busy.clear();
        for place in 0..self.ranks.0.len() {
            let own = at(step.own, place);
            let own = if own > 0.0 { own } else { f32::NAN };
            let wait = at(step.wait, place);
            with_own += usize::from(!own.is_nan());
            with_wait += usize::from(!own.is_nan() && !wait.is_nan());
            self.busy.push((own, wait));
        }
        // A rank that does not tell its waits seems busy all the time, so it is left out where others do.
        let has_waits = self.is_complete(with_wait);
        for (own, wait) in &mut self.busy {
            if has_waits && wait.is_nan() {
                *own = f32::NAN;
            } else if !has_waits {
                *own += if wait.is_nan() { 0.0 } else { *wait };
                *wait = f32::NAN;
            }
        }
        self.present = if has_waits { with_wait } else { with_own };
        has_waits
    }

    fn is_checkpoint(&self, step: &StepTimes<'_>) -> bool {
        step.checkpoint
            .iter()
            .zip(&self.busy)
            .any(|(checkpoint, (own, _))| *checkpoint > CHECKPOINT_RATIO * own)
    }

    /// Puts the step that was read into the rings.
    fn keep(&mut self, step: &StepTimes<'_>, has_waits: bool) {
        let count = self.count;
        let mut note = Note { step: step.step, time_ns: step.time_ns, ..Note::NONE };
        // Lateness: the wait, or how much less than all others a rank was busy.
        let late = |own: f32, wait: f32| if has_waits { wait } else { -own };
        let (mut first, mut second) = ((f32::INFINITY, 0), f32::INFINITY);
        let is_told = step.data.iter().any(|data| data.is_finite());
        if is_told && self.data.is_none() {
            self.data = Some(Ring::new(self.ranks.0.len(), WINDOW));
        }
        for (place, (own, wait)) in self.busy.iter().copied().enumerate() {
            self.own.put(place, count, own);
            self.wait.put(place, count, wait);
            if let Some(data) = &mut self.data {
                let value =
                    step.data.get(place).copied().filter(|value| *value >= 0.0 && *value <= SECONDS_MAX);
                data.put(place, count, value.unwrap_or(f32::NAN));
            }
            let late = late(own, wait);
            if own.is_nan() || late.is_nan() {
                continue;
            }
            let is_mate = self.groups.tensor_id(place) == self.groups.tensor_id(first.1);
            if late < first.0 {
                if first.0.is_finite() && !is_mate {
                    second = first.0;
                }
                first = (late, place);
            } else if late < second && !is_mate {
                second = late;
            }
        }
        note.last = first.1;
        note.gap = if second.is_finite() { second - first.0 } else { 0.0 };
        note.wait = if has_waits { first.0 } else { f32::NAN };
        note.own = median_of(self.busy.iter().map(|(own, _)| *own), &mut self.scratch);
        let length = |(own, wait): &(f32, f32)| own + if wait.is_nan() { 0.0 } else { *wait };
        note.length = median_of(self.busy.iter().map(length), &mut self.scratch);
        if !has_waits {
            // Nobody waits for nobody, so the longest is when all are done.
            note.length = -first.0;
        }
        self.notes[(count % KEPT as u64) as usize] = note;
        self.remember(&note, step);
        self.since.get_or_insert((note.step, note.time_ns));
        self.count += 1;
        self.job.take(&note);
    }

    /// Keeps of a step what was lost in it, and to whom. Without waits that can't be told.
    fn remember(&mut self, note: &Note, step: &StepTimes<'_>) {
        let usable = |value: f32| if (0.0..=SECONDS_MAX).contains(&value) { value } else { f32::NAN };
        let data = step.data.get(note.last).copied().map_or(f32::NAN, usable);
        let has_data = data.is_finite() && note.gap > 0.0;
        let middle = |scratch| median_of(step.data.iter().copied().map(usable), scratch);
        let peers_data = if has_data { middle(&mut self.scratch) } else { f32::NAN };
        let gap = if note.wait.is_nan() { 0.0 } else { note.gap };
        self.lates.take(Loss { note: Note { gap, ..*note }, data: (data, peers_data) });
    }

    fn view(&self) -> View<'_> {
        View {
            settings: &self.settings,
            groups: &self.groups,
            own: &self.own,
            wait: &self.wait,
            data: self.data.as_ref(),
            cards: &self.cards,
            notes: &self.notes,
            end: self.count,
        }
    }

    fn judge(&mut self) {
        self.windows += 1;
        let mut scratch = std::mem::take(&mut self.scratch);
        let view = self.view();
        let lates = self.lates.found(self.present, &self.settings, &mut scratch);
        let mut found = view.findings(lates, &mut scratch);
        (found.most, found.behind) = (self.lates.most(&mut scratch), self.lates.behind());
        found.is_turning = self.signs.contains_key(&(Class::Rotating, None));
        self.window = Some(self.told(&found));
        let signs = self.job.signs(&found, &self.groups.stages, &self.settings);
        self.hold(&found, &signs);
        let before = std::mem::take(&mut self.verdicts);
        self.verdicts =
            accuse::verdicts(self, &self.view(), &accuse::Seen { found: &found, signs: &signs }, &before);
        self.job.settle(found.step);
        self.scratch = scratch;
    }

    fn told(&self, found: &Findings) -> Window {
        let rank = |place: usize| self.ranks.0[place].rank;
        let view = self.view();
        let mut notes = view.notes(WINDOW);
        let (first, last) = (notes.next(), notes.next_back());
        let step = |note: Option<&Note>| note.map_or(0, |note| note.step);
        Window {
            first_step: step(first),
            last_step: step(last),
            step_seconds: found.step,
            wait_seconds: found.wait,
            last: found.last.map(|(place, ratio)| (rank(place), ratio)),
            counterfactual_seconds: found.without,
            suspects: found
                .suspects
                .iter()
                .map(|one| Suspect { rank: rank(one.place), rho: one.rho, z: one.z, level: one.level })
                .collect(),
        }
    }

    /// Adds the window to what each rank, and the job, has shown before.
    fn hold(&mut self, found: &Findings, signs: &[Sign]) {
        let found_ranks: BTreeMap<usize, (Level, Since)> = found.accused().collect();
        let mut rank_holds = std::mem::take(&mut self.rank_holds);
        for place in found_ranks.keys() {
            rank_holds.entry(*place).or_default();
        }
        for (place, hold) in &mut rank_holds {
            let is_unknown = found.medians[*place].is_nan();
            if is_unknown && self.own.row(*place).iter().any(|own| !own.is_nan()) {
                continue;
            }
            let one = found_ranks.get(place);
            if let (Some((_, since)), None) = (one, hold.onset) {
                hold.onset = match since {
                    Since::Step(step, time_ns) => Some((*step, *time_ns)),
                    Since::Over(middle) => self.view().onset_of(*place, *middle),
                };
            }
            hold.push(one.map(|(level, _)| *level));
        }
        rank_holds.retain(|_, hold| !hold.is_over());
        self.rank_holds = rank_holds;
        self.hold_last(found);
        self.hold_signs(found, signs);
    }

    fn hold_last(&mut self, found: &Findings) {
        let last = found.last.filter(|_| found.is_always_last).map(|(place, _)| place);
        let mut lasts = std::mem::take(&mut self.lasts);
        if let Some(place) = last {
            lasts.entry(place).or_default();
        }
        for (place, hold) in &mut lasts {
            let is_last = last == Some(*place);
            if is_last && hold.onset.is_none() {
                let (middle, _) = found.centres[self.groups.peers_of[*place]];
                hold.onset = self.view().onset_of(*place, middle);
            }
            hold.push(is_last.then_some(Level::Info));
        }
        lasts.retain(|_, hold| !hold.is_over());
        self.lasts = lasts;
    }

    fn hold_signs(&mut self, found: &Findings, signs: &[Sign]) {
        let mut holds = std::mem::take(&mut self.signs);
        for sign in signs {
            holds.entry((sign.class, sign.stage)).or_default();
        }
        for (key, hold) in &mut holds {
            let sign = signs.iter().find(|sign| (sign.class, sign.stage) == *key);
            if let (Some(sign), None) = (sign, hold.onset) {
                hold.onset = self.onset_of_sign(sign, found);
            }
            hold.push(sign.map(|sign| sign.level));
        }
        holds.retain(|_, hold| !hold.is_over());
        self.signs = holds;
    }

    /// When it began with the job: where the number in question rises among the kept steps, unless the sum
    /// over all steps knows it better.
    fn onset_of_sign(&self, sign: &Sign, found: &Findings) -> Option<(i64, i64)> {
        let view = self.view();
        let kept = self.count.min(KEPT as u64) as usize;
        let of = |note: &Note| match sign.class {
            Class::Communication => note.wait,
            Class::Rotating => note.length - note.own - note.wait.max(0.0),
            _ => note.length,
        };
        let before = match sign.class {
            Class::StageImbalance => found.step - (sign.now - sign.before),
            _ => sign.before,
        };
        let over: Vec<f32> = view.notes(kept).map(|note| of(note) - before as f32).collect();
        let by_split = view.onset(&over);
        let change = self.job.change().map(|change| (change.onset_step, change.onset_time_ns));
        if sign.class == Class::Slowdown { change.or(by_split) } else { by_split }
    }
}
