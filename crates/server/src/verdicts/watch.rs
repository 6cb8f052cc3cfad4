//! One run under watch: its steps, its detector, and whether it goes on.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;

use insight::hang::{self, HangAsk, HangInput, Phase};
use insight::straggler::{Detector, RankFacts, Ranks, Settings, StepTimes, Watched};
use model::{NANOS_PER_MILLI, NANOS_PER_SECOND, RunId, RunRecord, SESSION_HEARTBEAT_SECONDS, Session};
use store::Store;

use super::cards::{self, HeldBack, Readings};
use super::faults;
use super::inbox::{Mail, Point};
use super::kept::Kept;
use super::places::{Place, Seats, places, sit};
use super::row::{CulpritRow, NearRow, VerdictRow};
use super::steps::{OPEN_MAX, Rank, Row, Steps};

/// Steps that are kept to begin anew with when a rank joins, and most bytes of them.
const RECENT_MAX: usize = 100;
const RECENT_BYTES_MAX: usize = 8 << 20;
/// Steps that are taken at once.
const AT_ONCE_STEPS: i64 = OPEN_MAX as i64 / 2;
/// Steps that a median and a throughput are of.
const PACE_STEPS: usize = 50;
const THROUGHPUT_STEPS: usize = 20;
/// Steps before which a run is still starting up.
const STARTED_STEPS: u64 = 3;
/// Arrivals of steps that tell how often a run's processes send.
const ARRIVALS: usize = 17;
/// A step's checkpoint or evaluation counts as one from here on, seconds.
const LULL_SECONDS_MIN: f64 = 0.5;
/// How long a rank may tell nothing while others go on, nanoseconds.
const SILENT_NS: i64 = 60 * NANOS_PER_SECOND;
/// A process that gave no sign of life for three times the usual is taken for gone, nanoseconds.
const SIGNS_MISSED_NS: i64 = 3 * SESSION_HEARTBEAT_SECONDS as i64 * NANOS_PER_SECOND;
/// Windows after which the detector has judged whatever there is.
const SURE_WINDOWS: u64 = 6;

/// A step as the detector takes it.
#[derive(Debug, Clone)]
struct Flat {
    step: i64,
    time_ns: i64,
    own: Vec<f32>,
    wait: Vec<f32>,
    data: Vec<f32>,
    checkpoint: Vec<f32>,
}

impl Flat {
    fn of(row: &Row, ranks: &[Rank]) -> Self {
        let each = |of: fn(&super::steps::Cell) -> f32| row.cells.iter().map(of).collect::<Vec<f32>>();
        Self {
            step: row.step,
            time_ns: row.end_ns(ranks),
            own: each(|cell| if cell.wait.is_nan() { cell.step } else { (cell.step - cell.wait).max(0.0) }),
            wait: each(|cell| cell.wait),
            data: each(|cell| cell.data),
            checkpoint: each(|cell| match (cell.checkpoint.is_nan(), cell.eval.is_nan()) {
                (true, _) => cell.eval,
                (_, true) => cell.checkpoint,
                _ => cell.checkpoint + cell.eval,
            }),
        }
    }

    fn times(&self) -> StepTimes<'_> {
        StepTimes {
            step: self.step,
            time_ns: self.time_ns,
            own: &self.own,
            wait: &self.wait,
            data: &self.data,
            checkpoint: &self.checkpoint,
        }
    }

    fn bytes(&self) -> usize {
        size_of::<Self>() + self.own.len() * 4 * size_of::<f32>()
    }
}

/// Checkpoints and evaluations as they come again and again.
#[derive(Debug, Default)]
struct Lulls {
    last_step: Option<i64>,
    every: Option<i64>,
    longest_seconds: f64,
}

impl Lulls {
    fn note(&mut self, row: &Row) {
        let seconds = row.who().map(|(_, cell)| cell.checkpoint.max(cell.eval)).fold(0.0_f32, f32::max);
        if f64::from(seconds) < LULL_SECONDS_MIN {
            return;
        }
        self.every = self.last_step.map(|last| row.step.saturating_sub(last)).filter(|every| *every > 0);
        self.last_step = Some(row.step);
        self.longest_seconds = self.longest_seconds.max(f64::from(seconds));
    }

    /// How much longer than others the step after `last` may take.
    fn allowance_seconds(&self, last: i64) -> f64 {
        let due = |at: i64, every: i64| last.saturating_add(1) >= at.saturating_add(every);
        match (self.last_step, self.every) {
            (Some(at), Some(every)) if due(at, every) => 2.0 * self.longest_seconds,
            _ => 0.0,
        }
    }
}

/// The run's attempt, and how many processes it has as those say that started last; 0 where none does.
pub(super) fn layout(record: &RunRecord) -> (u32, u32) {
    let attempt = record.attempts.last().map_or(0, |attempt| attempt.number);
    let of_attempt = record.sessions.iter().filter(|session| session.attempt == attempt);
    (attempt, of_attempt.rev().find_map(|session| session.facts.world_size).unwrap_or(0))
}

/// See the module.
pub(super) struct Watch {
    pub(super) id: RunId,
    attempt: u32,
    /// Processes of the job, as those say that started last; 0 where none does.
    world: u32,
    pub(super) steps: Steps,
    record: Option<Arc<RunRecord>>,
    pub(super) places: BTreeMap<u32, Place>,
    seats: Arc<Seats>,
    detector: Option<Detector>,
    /// Ranks that the detector knows.
    known: usize,
    recent: VecDeque<Flat>,
    recent_bytes: usize,
    pub(super) kept: Kept,
    /// Seconds and tokens of the latest steps.
    pace: VecDeque<(f64, f64)>,
    done_steps: u64,
    /// The same since what was known before the watch began.
    fresh_steps: u64,
    /// Points of it that were not looked at, since there were too many.
    pub(super) missed_points: u64,
    lulls: Lulls,
    /// When steps came in, by this server's clock, nanoseconds.
    arrivals: VecDeque<i64>,
    /// Whether the steps of before this server's start were read, so that there is no warm-up.
    is_replayed: bool,
    /// Whether its steps are means of many, as histograms tell them.
    is_of_means: bool,
    /// When the watch began, by this server's clock, nanoseconds.
    begun_ns: i64,
    /// Whether what the run did before the watch began may be on its way still.
    is_behind: bool,
}

impl Watch {
    pub(super) fn new(id: RunId, seats: Arc<Seats>, now_ns: i64) -> Self {
        Self {
            seats,
            begun_ns: now_ns,
            id,
            attempt: 0,
            world: 0,
            steps: Steps::default(),
            record: None,
            places: BTreeMap::new(),
            detector: None,
            known: 0,
            recent: VecDeque::new(),
            recent_bytes: 0,
            kept: Kept::default(),
            pace: VecDeque::new(),
            done_steps: 0,
            fresh_steps: 0,
            missed_points: 0,
            lulls: Lulls::default(),
            arrivals: VecDeque::new(),
            is_replayed: false,
            is_of_means: false,
            is_behind: false,
        }
    }

    /// Takes up what is known of the run beside its points. A new attempt is watched anew, and so is one that goes
    /// on with fewer ranks.
    pub(super) fn meet(&mut self, record: &Arc<RunRecord>) {
        if self.record.as_ref().is_some_and(|known| Arc::ptr_eq(known, record)) {
            return;
        }
        let (attempt, world) = layout(record);
        let has_gone =
            world > 0 && world < self.world && self.steps.ranks.iter().any(|rank| rank.number >= world);
        if (attempt != self.attempt && self.attempt != 0) || has_gone {
            self.begin_anew();
        }
        (self.attempt, self.world) = (attempt, world);
        self.place(record);
        self.record = Some(Arc::clone(record));
    }

    fn place(&mut self, record: &RunRecord) {
        let mut places = places(record);
        sit(&mut places, &self.seats);
        if places != self.places {
            self.places = places;
            // What is known of where ranks are may name their peers anew.
            self.known = 0;
        }
    }

    /// Takes up where agents say that cards are.
    pub(super) fn sit(&mut self, seats: &Arc<Seats>) {
        if Arc::ptr_eq(seats, &self.seats) {
            return;
        }
        self.seats = Arc::clone(seats);
        if let Some(record) = self.record.clone() {
            self.place(&record);
        }
    }

    fn begin_anew(&mut self) {
        let kept = std::mem::take(&mut self.kept);
        *self = Self { kept, ..Self::new(self.id, Arc::clone(&self.seats), self.begun_ns) };
    }

    fn world(&self) -> usize {
        self.world.max(1) as usize
    }

    /// Whether any of its processes lives, each by its own clock.
    pub(super) fn lives(&self, record: &RunRecord, now_ns: i64) -> bool {
        let attempt = record.attempts.last().map_or(0, |attempt| attempt.number);
        let mut sessions = record.sessions.iter().filter(|session| session.attempt == attempt);
        sessions.any(|session| {
            let rank = self.steps.rank(session.facts.rank.unwrap_or(0));
            session.is_live(rank.map_or(now_ns, |rank| rank.there_ns(now_ns)))
        })
    }

    /// Takes what came in; whether verdicts may have changed.
    pub(super) fn take(&mut self, mail: Mail, now_ns: i64) -> bool {
        let Mail { mut points, signs, missed } = mail;
        self.missed_points += missed;
        self.steps.note(signs, now_ns);
        let numbers = || points.iter().map(|point| point.step);
        let span = numbers().max().unwrap_or(0).saturating_sub(numbers().min().unwrap_or(0));
        if span < AT_ONCE_STEPS {
            self.steps.take(&points, now_ns);
            return self.advance(now_ns);
        }
        // Whoever catches up sends more steps than may be open at once, rank by rank.
        points.sort_by_key(|point| (point.step, point.time_ns));
        let mut has_changed = false;
        for part in
            points.chunk_by(|a, b| a.step.div_euclid(AT_ONCE_STEPS) == b.step.div_euclid(AT_ONCE_STEPS))
        {
            self.steps.take(part, now_ns);
            has_changed |= self.advance(now_ns);
        }
        has_changed
    }

    /// The same of means of steps. Each stands for many steps, so that their time can't be added up.
    pub(super) fn take_means(&mut self, points: Vec<Point>, now_ns: i64) {
        self.is_of_means = true;
        self.is_replayed = true;
        self.take(Mail { points, ..Mail::default() }, now_ns);
    }

    /// Whether its steps are means of many.
    pub(super) fn is_of_means(&self) -> bool {
        self.is_of_means
    }

    /// Judges the steps that are complete by now.
    pub(super) fn advance(&mut self, now_ns: i64) -> bool {
        let came = self.steps.ready(self.world(), now_ns);
        if came.rows.is_empty() {
            return false;
        }
        self.arrivals.push_back(now_ns);
        if self.arrivals.len() > ARRIVALS {
            self.arrivals.pop_front();
        }
        let mut may_count = came.went_back;
        let mut has_changed = false;
        for row in &came.rows {
            may_count |= self.kept.last().is_none_or(|last| row.step > last);
            if may_count && !self.is_of_means {
                self.kept.push(row.step, row.seconds());
            }
            has_changed |= self.judge(row);
        }
        has_changed
    }

    fn judge(&mut self, row: &Row) -> bool {
        self.done_steps += 1;
        self.fresh_steps += 1;
        self.lulls.note(row);
        self.pace.push_back((row.seconds(), row.tokens()));
        if self.pace.len() > PACE_STEPS {
            self.pace.pop_front();
        }
        let flat = Flat::of(row, &self.steps.ranks);
        let mut has_changed = false;
        if self.known < self.steps.ranks.len() || self.detector.is_none() {
            self.detect_anew();
            has_changed = true;
        }
        if let Some(detector) = &mut self.detector {
            has_changed |= detector.take(&flat.times());
        }
        self.recent_bytes += flat.bytes();
        self.recent.push_back(flat);
        while self.recent.len() > RECENT_MAX || self.recent_bytes > RECENT_BYTES_MAX {
            let Some(oldest) = self.recent.pop_front() else { break };
            self.recent_bytes -= oldest.bytes();
        }
        has_changed
    }

    /// A detector that knows all ranks, and the steps of lately.
    fn detect_anew(&mut self) {
        let facts = |rank: &Rank| {
            let place = self.places.get(&rank.number).cloned().unwrap_or_default();
            RankFacts {
                rank: rank.number,
                host: place.host,
                gpu: place.gpu,
                uuid: place.uuid,
                role: String::new(),
                stage: place.pp,
                tensor: place.tp,
                data: place.dp,
                expert: place.ep,
                context: place.cp,
            }
        };
        let ranks = Ranks(self.steps.ranks.iter().map(facts).collect());
        let seen = self.done_steps.saturating_sub(self.recent.len() as u64 + 1);
        let warm_up = u64::from(Settings::default().warm_up_steps);
        let left = if self.is_replayed { 0 } else { warm_up.saturating_sub(seen) };
        let settings = Settings { warm_up_steps: left as u32, ..Settings::default() };
        let mut detector = Detector::new(ranks, settings);
        for flat in &self.recent {
            detector.take(&flat.times());
        }
        self.known = self.steps.ranks.len();
        self.detector = Some(detector);
    }

    /// Notes that the steps of before this watch are known from now on; `is_behind` if later ones may be on their way.
    pub(super) fn replayed(&mut self, kept: Kept, is_behind: bool) {
        (self.kept, self.is_behind) = (kept, is_behind);
        self.arrivals.clear();
        self.fresh_steps = 0;
    }

    /// Says that what comes is not the beginning of an attempt.
    pub(super) fn skip_warm_up(&mut self) {
        self.is_replayed = true;
    }

    /// Hands over what the cards of the ranks do.
    pub(super) fn cards(&mut self, agents: &Readings, run: &Readings) {
        let Some(detector) = &mut self.detector else { return };
        for (at, rank) in self.steps.ranks.iter().enumerate().take(self.known) {
            let place = self.places.get(&rank.number);
            if let Some(reading) = place.and_then(|place| cards::find(place, agents, run)) {
                detector.gpu(at, reading.time_ns, &reading.facts);
            }
        }
    }

    /// Hands over for how long quotas held back the ranks' processes.
    pub(super) fn quotas(&mut self, held: &HeldBack) {
        let Some(detector) = self.detector.as_mut().filter(|_| !held.is_empty()) else { return };
        for (at, rank) in self.steps.ranks.iter().enumerate().take(self.known) {
            let process = self.places.get(&rank.number).and_then(|place| place.process.as_ref());
            if let Some((seconds, time_ns)) = process.and_then(|process| held.get(process)) {
                detector.held_back(at, *time_ns, *seconds);
            }
        }
    }

    /// Whether any rank has a card that an agent may tell of.
    pub(super) fn has_cards(&self) -> bool {
        self.places.values().any(|place| !place.uuid.is_empty() || !place.gpu.is_empty())
    }

    /// What the detector says.
    pub(super) fn of_steps(&self) -> Vec<VerdictRow> {
        let Some(detector) = &self.detector else { return Vec::new() };
        detector.verdicts().iter().map(VerdictRow::of).collect()
    }

    /// What was looked at.
    pub(super) fn watched(&self) -> Option<Watched> {
        self.detector.as_ref().map(Detector::watched)
    }

    /// The median of the latest steps, seconds.
    pub(super) fn step_seconds(&self) -> Option<f64> {
        let mut all: Vec<f64> = self.pace.iter().map(|(seconds, _)| *seconds).collect();
        let half = all.len() / 2;
        (!all.is_empty()).then(|| *all.select_nth_unstable_by(half, f64::total_cmp).1)
    }

    /// Tokens a second of the latest steps; none where none were told.
    pub(super) fn tokens_per_second(&self) -> Option<f64> {
        let lately = || self.pace.iter().rev().take(THROUGHPUT_STEPS);
        let seconds: f64 = lately().map(|(seconds, _)| seconds).sum();
        let tokens: f64 = lately().map(|(_, tokens)| tokens).sum();
        (tokens > 0.0 && seconds > 0.0).then(|| tokens / seconds)
    }

    /// How far the slowest rank's own time is from the median of all, over the median, in the latest steps.
    pub(super) fn spread_ratio(&self) -> Option<f64> {
        let mut all = Vec::new();
        for flat in self.recent.iter().rev().take(THROUGHPUT_STEPS) {
            let mut own: Vec<f32> = flat.own.iter().copied().filter(|own| own.is_finite()).collect();
            if own.len() < 2 {
                continue;
            }
            let most = own.iter().copied().fold(0.0_f32, f32::max);
            let half = own.len() / 2;
            let median = *own.select_nth_unstable_by(half, f32::total_cmp).1;
            if median > 0.0 {
                all.push(f64::from((most - median) / median));
            }
        }
        let half = all.len() / 2;
        (!all.is_empty()).then(|| *all.select_nth_unstable_by(half, f64::total_cmp).1)
    }

    /// The hosts of its ranks.
    pub(super) fn hosts(&self) -> BTreeSet<String> {
        self.places.values().map(|place| place.host.clone()).filter(|host| !host.is_empty()).collect()
    }

    /// When a step was done last, or a time ended in which none is, by this server's clock, nanoseconds. Of ranks that are known from the store only
    /// nobody can say, as long as others have said what their clocks show.
    pub(super) fn progress_ns(&self) -> Option<i64> {
        let told = || self.steps.ranks.iter().filter(|rank| rank.last_step.is_some());
        let known = told().filter(|rank| rank.knows_clock()).map(Rank::going_ns).max();
        known.or_else(|| told().map(Rank::going_ns).max())
    }

    /// The last step that any rank told.
    fn reached(&self) -> Option<i64> {
        self.steps.ranks.iter().filter_map(|rank| rank.last_step).max()
    }

    /// Time between two arrivals of steps, which come together where a process sends now and then, seconds.
    fn batch_seconds(&self) -> f64 {
        let mut gaps: Vec<i64> =
            self.arrivals.iter().zip(self.arrivals.iter().skip(1)).map(|(a, b)| b - a).collect();
        let half = gaps.len() / 2;
        if gaps.len() < 3 {
            return 0.0;
        }
        let median = *gaps.select_nth_unstable(half).1 as f64 / NANOS_PER_SECOND as f64;
        // What comes every few seconds comes as it is done, and so does each long step by itself.
        let more = median - self.step_seconds().unwrap_or(0.0);
        if median > 5.0 && more > 0.0 { more } else { 0.0 }
    }

    /// How long no step may be done now, seconds; none while it has not got under way.
    fn patience_seconds(&self) -> Option<f64> {
        let step_seconds = self.step_seconds().filter(|_| self.done_steps >= STARTED_STEPS)?;
        let last = self.steps.done()?;
        Some(hang::limit_seconds(step_seconds) + self.batch_seconds() + self.lulls.allowance_seconds(last))
    }

    /// The verdict, if the run makes no progress.
    pub(super) fn hang(&self, store: &Store, now_ns: i64) -> Option<VerdictRow> {
        let progress_ns = self.progress_ns()?;
        let patience_ns = (self.patience_seconds()? * NANOS_PER_SECOND as f64) as i64;
        // Whoever was away for a while has its steps to tell yet.
        let waits_since_ns = if self.is_behind { progress_ns.max(self.begun_ns) } else { progress_ns };
        if now_ns.saturating_sub(waits_since_ns) < patience_ns {
            return None;
        }
        let record = self.record.as_ref()?;
        let sessions = self.sessions(record);
        let input = |rank: &Rank| self.hang_input(rank, sessions.get(&rank.number).copied(), now_ns);
        let mut ranks: Vec<HangInput> = self.steps.ranks.iter().filter_map(input).collect();
        let from_ns = progress_ns.saturating_sub(faults::NEAR_NS);
        let events = faults::events(store, &record.path, &self.hosts(), (from_ns, now_ns));
        faults::add_collectives(&events, &mut ranks);
        let faults = faults::faults(&events);
        let ask = HangAsk { now_ns, step_seconds: self.step_seconds(), ranks: &ranks, faults: &faults };
        let verdict = hang::judge(&ask)?;
        let mut row = VerdictRow::of_hang(&verdict, self.step_seconds());
        row.events = faults::near(&events, verdict.since_ns);
        row.onset.step = self.reached();
        Some(row)
    }

    fn hang_input(&self, rank: &Rank, session: Option<&Session>, now_ns: i64) -> Option<HangInput> {
        rank.last_step?;
        let phase = match rank.phase {
            _ if session.is_some_and(|session| session.end.is_some()) => Phase::Finished,
            (1, since_ns) if since_ns > rank.last_step_ns => Phase::Checkpoint,
            (2, since_ns) if since_ns > rank.last_step_ns => Phase::Evaluation,
            (3, since_ns) if since_ns > rank.last_step_ns => Phase::Between,
            _ => Phase::Training,
        };
        let host = self.places.get(&rank.number).map(|place| place.host.clone()).unwrap_or_default();
        // Between two signs of life a process lives. One that exports by OTLP gives none but its exports.
        let is_sign_due = now_ns.saturating_sub(rank.heard_ns()) < SIGNS_MISSED_NS;
        let lives = session.is_some_and(|session| match session.facts.silent_after_seconds {
            0 => is_sign_due,
            _ => session.is_live(rank.there_ns(now_ns)),
        });
        let heard_ns = if lives { now_ns } else { rank.heard_ns() };
        Some(HangInput {
            rank: rank.number,
            host,
            last_step: rank.last_step,
            last_step_time_ns: Some(rank.step_heard_ns()),
            last_heartbeat_ns: Some(heard_ns),
            collectives: rank.collectives.clone(),
            phase,
            lull_end_ns: rank.lull_end_ns(),
        })
    }

    /// The latest session of each rank in this attempt.
    fn sessions<'r>(&self, record: &'r RunRecord) -> HashMap<u32, &'r Session> {
        let of_attempt = record.sessions.iter().filter(|session| session.attempt == self.attempt);
        of_attempt.map(|session| (session.facts.rank.unwrap_or(0), session)).collect()
    }

    /// Ranks that tell nothing while others go on.
    pub(super) fn silent(&self, now_ns: i64) -> Option<VerdictRow> {
        let record = self.record.as_ref()?;
        let patience_ns = (self.patience_seconds()? * NANOS_PER_SECOND as f64) as i64;
        if now_ns.saturating_sub(self.progress_ns()?) >= patience_ns {
            return None;
        }
        let limit_ns = patience_ns.max(SILENT_NS);
        // One that never told a step may be one that is not to tell any.
        let least_ns = if self.is_behind { self.begun_ns } else { i64::MIN };
        let is_silent = |rank: &&Rank| {
            rank.last_step.is_some() && now_ns.saturating_sub(rank.step_heard_ns().max(least_ns)) > limit_ns
        };
        if !self.steps.ranks.iter().any(|rank| is_silent(&rank)) {
            return None;
        }
        let sessions = self.sessions(record);
        let culprits: Vec<CulpritRow> = self
            .steps
            .ranks
            .iter()
            .filter(is_silent)
            .filter_map(|rank| {
                let session = sessions.get(&rank.number);
                let has_ended = session.is_some_and(|session| session.end.is_some());
                let lives = session.is_some_and(|session| session.is_live(rank.there_ns(now_ns)));
                (!has_ended).then(|| self.silent_rank(rank, lives, now_ns))
            })
            .collect();
        if culprits.is_empty() {
            return None;
        }
        let named: BTreeSet<u32> = culprits.iter().map(|one| one.rank).collect();
        let is_host_silent = |host: &str| {
            let mut of_host = self.places.iter().filter(|(_, place)| place.host == host);
            of_host.all(|(rank, _)| named.contains(rank))
        };
        Some(VerdictRow::of_silent(culprits, &is_host_silent))
    }

    fn silent_rank(&self, rank: &Rank, lives: bool, now_ns: i64) -> CulpritRow {
        let seconds = now_ns.saturating_sub(rank.step_heard_ns()) / NANOS_PER_SECOND;
        let host = self.places.get(&rank.number).map(|place| place.host.clone());
        let life = if lives { "its process lives" } else { "its process shows no life" };
        CulpritRow {
            rank: rank.number,
            host: host.filter(|host| !host.is_empty()),
            last_step: rank.last_step,
            last_step_time: Some(rank.step_heard_ns().div_euclid(NANOS_PER_MILLI)),
            sequence: rank.collectives.first().map(|of| of.entered),
            completed: rank.collectives.first().map(|of| of.completed),
            state: format!("Rank {} has told no step for {seconds} s, {life}", rank.number),
        }
    }

    /// Whether a verdict that was told before this server's start, and is not found by now, is over.
    pub(super) fn is_over(&self, row: &VerdictRow, now_ns: i64) -> bool {
        match row.class.as_str() {
            // A job that is started again goes on from a step before.
            "hang" => self.reached() > row.onset.step || self.fresh_steps >= STARTED_STEPS,
            "silent" => now_ns.saturating_sub(self.begun_ns) > 2 * SILENT_NS,
            _ => self.watched().is_some_and(|watched| watched.windows >= SURE_WINDOWS),
        }
    }

    /// What happened around the beginning of a verdict.
    pub(super) fn events_near(&self, store: &Store, row: &VerdictRow) -> Vec<NearRow> {
        let (Some(time), Some(record)) = (row.onset.time, &self.record) else { return Vec::new() };
        let at_ns = time.saturating_mul(NANOS_PER_MILLI);
        let range = (at_ns.saturating_sub(faults::NEAR_NS), at_ns.saturating_add(faults::NEAR_NS));
        faults::near(&faults::events(store, &record.path, &self.hosts(), range), at_ns)
    }
}
