//! From what senders tell to counters that Prometheus can read.
//!
//! A sender tells a sum since a start, or what was added since the point before. Prometheus reads
//! counters by comparing neighbours, so a start that changes while the value does not, a first value
//! and an amount added after a silence would all be lost. The [`Cumulator`] keeps what is needed to
//! say them as samples: a zero where a sum began, the total so far where a gap ends, running totals of
//! amounts. `increase()` over its samples is what was recorded. See
//! `docs/decisions/0013-delta-state.md`.

mod state;

use std::collections::HashMap;

use foldhash::fast::RandomState;
use model::{Labels, NANOS_PER_MILLI, stale_marker};
use sha2::{Digest, Sha256};

use super::buckets::{BOUNDS_MAX, Histogram};
use super::metrics::{Point, PointValue, Temporality};
use super::{Instrument, Refusal};

/// Most series whose state is kept; beyond, those that were silent longest are forgotten.
pub const STATES_MAX: usize = 200_000;
/// So many intervals of a delta series are remembered, to recognise one that is sent again.
const RECENT_MAX: usize = 8;

/// Which series of a point's family a sample belongs to.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Part {
    /// The family's only one.
    Value,
    /// Observations not above a bound, `+Inf` among them.
    Bucket(f64),
    /// How many observations.
    Count,
    /// Their sum.
    Sum,
    /// A quantile of a summary.
    Quantile(f64),
}

impl Part {
    /// What the series adds to its family's name.
    pub fn suffix(self) -> &'static str {
        match self {
            Self::Value | Self::Quantile(_) => "",
            Self::Bucket(_) => "_bucket",
            Self::Count => "_count",
            Self::Sum => "_sum",
        }
    }

    /// The series of this part, from the labels of its family.
    pub fn series(self, family: &Labels) -> Labels {
        let mut set = Labels::builder();
        for (name, value) in family.iter().filter(|(name, _)| *name != "__name__") {
            set.set(name, value);
        }
        set.metric(format!("{}{}", family.metric(), self.suffix()));
        match self {
            Self::Bucket(f64::INFINITY) => _ = set.set("le", "+Inf"),
            Self::Bucket(bound) => _ = set.set("le", bound.to_string()),
            Self::Quantile(quantile) => _ = set.set("quantile", quantile.to_string()),
            Self::Value | Self::Count | Self::Sum => {}
        }
        set.build()
    }
}

/// A sample for the store.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PartSample {
    /// Of which series of the family.
    pub part: Part,
    /// When, nanoseconds since the epoch.
    pub time_ns: i64,
    /// Its value; a stale marker where the series ends.
    pub value: f64,
}

/// The identity of a family with state: the first half of SHA-256 over its labels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SeriesKey(pub [u8; 16]);

impl SeriesKey {
    /// The key of a family's labels, its canonical name among them.
    pub fn of(family: &Labels) -> Self {
        let mut hash = Sha256::new();
        for (name, value) in family.iter() {
            for text in [name, value] {
                hash.update((text.len() as u64).to_le_bytes());
                hash.update(text.as_bytes());
            }
        }
        let mut key = [0; 16];
        key.copy_from_slice(&hash.finalize()[..16]);
        Self(key)
    }
}

/// What was odd about a point that was taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Note {
    /// Nothing.
    Regular,
    /// It came before; nothing was added.
    Repeated,
    /// It is older than what is known of its series.
    Late,
    /// Its sequence began anew.
    Reset,
    /// Its interval overlaps the one before, which one writer alone does not do. It was added.
    Overlap,
}

/// What a point tells, without who sent it.
#[derive(Debug, Clone, Copy)]
pub struct Told<'a> {
    /// What its data are.
    pub instrument: Instrument,
    /// How they are told.
    pub temporality: Temporality,
    /// When the sequence or interval began, nanoseconds since the epoch; 0 when not known.
    pub start_ns: i64,
    /// When it was so.
    pub time_ns: i64,
    /// What it says.
    pub value: &'a PointValue,
}

impl<'a> Told<'a> {
    /// What a point tells.
    pub fn of(point: &'a Point<'_, '_>) -> Self {
        Self {
            instrument: point.metric.instrument,
            temporality: point.metric.temporality,
            start_ns: point.start_ns,
            time_ns: point.time_ns,
            value: &point.value,
        }
    }

    /// The start, where it says something: it is before the point.
    fn start(&self) -> Option<i64> {
        (self.start_ns > 0 && self.start_ns < self.time_ns).then_some(self.start_ns)
    }
}

/// The state of one family.
#[derive(Debug, Clone, PartialEq)]
struct State {
    temporality: Temporality,
    start_ns: i64,
    /// Where its samples begin with zeros; 0 where they don't.
    zero_ns: i64,
    /// The time of the newest point.
    told_ns: i64,
    /// The time of the newest sample: a late amount comes after those that are there.
    last_ns: i64,
    /// What the newest samples say.
    total: PointValue,
    /// Start and time of the newest intervals, delta only.
    recent: Vec<(i64, i64)>,
}

#[derive(Debug)]
struct Slot {
    state: State,
    used: u64,
    changed: bool,
}

/// Turns points into samples, family by family.
#[derive(Debug)]
pub struct Cumulator {
    slots: HashMap<SeriesKey, Slot, RandomState>,
    states_max: usize,
    used: u64,
    /// Since the last [`Cumulator::changes`].
    changed: Vec<SeriesKey>,
    forgotten: Vec<SeriesKey>,
    /// What was there before each change since the last [`Cumulator::settle`], oldest first.
    before: Vec<(SeriesKey, Option<Slot>)>,
}

impl Default for Cumulator {
    fn default() -> Self {
        Self::new(STATES_MAX)
    }
}

impl Cumulator {
    /// One that keeps the state of so many families.
    pub fn new(states_max: usize) -> Self {
        let (changed, forgotten, before) = (Vec::new(), Vec::new(), Vec::new());
        let slots = HashMap::with_hasher(RandomState::default());
        Self { slots, states_max: states_max.max(1), used: 0, changed, forgotten, before }
    }

    /// How many families have state.
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// Whether none has.
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// Adds the samples that a point makes to `out`, oldest first for each series; none for a point that
    /// is refused.
    pub fn take(
        &mut self,
        key: SeriesKey,
        told: &Told<'_>,
        out: &mut Vec<PartSample>,
    ) -> Result<Note, Refusal> {
        let stateless = match told.instrument {
            Instrument::Gauge => true,
            Instrument::UpDownCounter => told.temporality == Temporality::Cumulative,
            _ => false,
        };
        if stateless {
            let ended = *told.value == PointValue::Ended;
            let only = if ended { &PointValue::Number(0.0) } else { told.value };
            put(only, told.time_ns, if ended { Say::Ended } else { Say::Value }, out);
            return Ok(Note::Regular);
        }
        if *told.value == PointValue::Ended {
            self.end(key, told, out);
            return Ok(Note::Regular);
        }
        let slot = self.slots.get_mut(&key);
        let known = slot.as_ref().map(|slot| &slot.state);
        if let Some(other) = known.filter(|state| !state.continues(told)) {
            other.end_bounds_of(told, out);
        }
        let known = known.filter(|state| state.continues(told));
        let (next, note) = match told.temporality {
            Temporality::Cumulative => cumulative(known, told, out)?,
            Temporality::Delta => delta(known, told, out)?,
        };
        self.used += 1;
        let used = self.used;
        match (slot, next) {
            (Some(slot), Some(state)) => {
                let keeps = !slot.changed && slot.state.is_worth_keeping(&state);
                if keeps {
                    self.changed.push(key);
                }
                let changed = slot.changed || keeps;
                let before = std::mem::replace(slot, Slot { state, used, changed });
                self.before.push((key, Some(before)));
            }
            (Some(slot), None) => slot.used = used,
            (None, Some(state)) => self.insert(key, Slot { state, used, changed: true }),
            (None, None) => {}
        }
        Ok(note)
    }

    /// Takes the first state of a family.
    fn insert(&mut self, key: SeriesKey, slot: Slot) {
        self.make_room();
        self.changed.push(key);
        self.before.push((key, None));
        self.slots.insert(key, slot);
    }

    /// The markers of "no recorded value", on every series of the family that is known.
    fn end(&self, key: SeriesKey, told: &Told<'_>, out: &mut Vec<PartSample>) {
        let known = self.slots.get(&key).map(|slot| slot.state.total.clone());
        let total = known.unwrap_or(match told.instrument {
            Instrument::Histogram => {
                PointValue::Histogram(Histogram { sum: Some(0.0), ..Histogram::default() })
            }
            Instrument::Summary => PointValue::Summary { count: 0, sum: 0.0, quantiles: Vec::new() },
            _ => PointValue::Number(0.0),
        });
        put(&total, told.time_ns, Say::Ended, out);
    }

    /// Forgets the eighth that was silent longest when there is no room for one more.
    fn make_room(&mut self) {
        if self.slots.len() < self.states_max {
            return;
        }
        let mut used: Vec<u64> = self.slots.values().map(|slot| slot.used).collect();
        let last = (used.len() / 8).max(1) - 1;
        let newest = *used.select_nth_unstable(last).1;
        for (key, slot) in self.slots.extract_if(|_, slot| slot.used <= newest) {
            self.forgotten.push(key);
            self.before.push((key, Some(slot)));
        }
    }

    /// Hands over what changed since the last call, as bytes to keep; no bytes where the state is gone.
    ///
    /// Keep them in the commit that keeps the samples: totals of amounts that are older than the samples
    /// of their series would make counters fall. Lost state costs nothing but a visible reset. Of a sum
    /// since a start nothing changes while it only grows: its values say all that is needed.
    ///
    /// Say [`Cumulator::settle`] when they are kept and [`Cumulator::undo`] when they could not be.
    pub fn changes(&mut self, mut take: impl FnMut(SeriesKey, Option<Vec<u8>>)) {
        for key in std::mem::take(&mut self.forgotten) {
            if !self.slots.contains_key(&key) {
                take(key, None);
            }
        }
        for key in std::mem::take(&mut self.changed) {
            // One that was forgotten and came again stands in the list twice.
            if let Some(slot) = self.slots.get_mut(&key).filter(|slot| slot.changed) {
                slot.changed = false;
                take(key, Some(slot.state.to_bytes()));
            }
        }
    }

    /// What was taken is kept: there is no way back any more.
    pub fn settle(&mut self) {
        self.before.clear();
    }

    /// What was taken since the last [`Cumulator::settle`] was not kept: everything is as it was then,
    /// and the same points can be taken again.
    pub fn undo(&mut self) {
        for (key, before) in std::mem::take(&mut self.before).into_iter().rev() {
            match before {
                Some(slot) => _ = self.slots.insert(key, slot),
                None => _ = self.slots.remove(&key),
            }
        }
        self.changed.clear();
        self.forgotten.clear();
    }

    /// Takes back what [`Cumulator::changes`] handed over; says whether it could be read.
    pub fn restore(&mut self, key: SeriesKey, bytes: &[u8]) -> bool {
        let Some(state) = State::from_bytes(bytes) else { return false };
        self.make_room();
        self.used += 1;
        self.slots.insert(key, Slot { state, used: self.used, changed: false });
        self.before.clear();
        true
    }
}

impl State {
    /// Whether what follows on this state has to be kept. Amounts always; of a sum since a start its
    /// start, its zero and its bounds, since older values than the stored ones lead to the same samples.
    fn is_worth_keeping(&self, next: &Self) -> bool {
        let bounds_differ = || match (&self.total, &next.total) {
            (PointValue::Histogram(a), PointValue::Histogram(b)) => {
                a.ladder != b.ladder || !same_bounds(a, b)
            }
            (a, b) => std::mem::discriminant(a) != std::mem::discriminant(b),
        };
        next.temporality == Temporality::Delta
            || self.temporality != next.temporality
            || (self.start_ns, self.zero_ns) != (next.start_ns, next.zero_ns)
            || bounds_differ()
    }

    /// Whether the point is of the same shape as what is known.
    fn continues(&self, told: &Told<'_>) -> bool {
        self.temporality == told.temporality
            && match (&self.total, told.value) {
                (PointValue::Histogram(a), PointValue::Histogram(b)) => a.ladder == b.ladder,
                (a, b) => std::mem::discriminant(a) == std::mem::discriminant(b),
            }
    }
}

impl State {
    /// A sender that now tells its histogram in another way leaves bounds behind.
    fn end_bounds_of(&self, told: &Told<'_>, out: &mut Vec<PartSample>) {
        let (PointValue::Histogram(was), PointValue::Histogram(now)) = (&self.total, told.value) else {
            return;
        };
        if told.time_ns > self.last_ns {
            let bounds = was.buckets.iter().map(|(bound, _)| *bound);
            let gone: Vec<f64> = bounds.filter(|b| now.buckets.iter().all(|(bound, _)| bound != b)).collect();
            end_bounds(&gone, told.time_ns, out);
        }
    }
}

type Taken = Result<(Option<State>, Note), Refusal>;

/// A sum since a start.
fn cumulative(known: Option<&State>, told: &Told<'_>, out: &mut Vec<PartSample>) -> Taken {
    let state = |total: PointValue, start_ns: i64, zero_ns: i64| State {
        temporality: Temporality::Cumulative,
        start_ns,
        zero_ns,
        told_ns: told.time_ns,
        last_ns: told.time_ns,
        total,
        recent: Vec::new(),
    };
    let Some(known) = known else {
        if let Some(start) = told.start() {
            put(told.value, start, Say::Zero, out);
        }
        put(told.value, told.time_ns, Say::Value, out);
        let start = told.start().unwrap_or(0);
        return Ok((Some(state(told.value.clone(), start, start)), Note::Regular));
    };
    if told.time_ns <= known.last_ns {
        let again = told.time_ns == known.last_ns && *told.value == known.total;
        if !again {
            put(told.value, told.time_ns, Say::Value, out);
        }
        return Ok((None, if again { Note::Repeated } else { Note::Late }));
    }
    let start = told.start().unwrap_or(known.start_ns);
    if start < known.start_ns {
        return Err(Refusal::new(
            "two_writers",
            "another process that started later sends the same series: give each its own `service.instance.id`",
        ));
    }
    let began_anew = start > known.start_ns && known.start_ns > 0;
    let reset = began_anew || fell(&known.total, told.value);
    let (total, gone) = carry(&known.total, told.value);
    let mut zero_ns = known.zero_ns;
    if reset {
        let began = if began_anew { start.max(known.last_ns + 1) } else { known.last_ns + 1 };
        zero_ns = if began < told.time_ns { began } else { 0 };
        if zero_ns > 0 {
            put(&total, began, Say::Zero, out);
        }
    } else {
        backfill(known, &total, out);
    }
    put(&total, told.time_ns, Say::Value, out);
    end_bounds(&gone, told.time_ns, out);
    Ok((Some(state(total, start, zero_ns)), if reset { Note::Reset } else { Note::Regular }))
}

/// What was added in an interval.
fn delta(known: Option<&State>, told: &Told<'_>, out: &mut Vec<PartSample>) -> Taken {
    if let PointValue::Number(added) = told.value
        && told.instrument == Instrument::Counter
        && !(0.0..f64::INFINITY).contains(added)
    {
        return Err(Refusal::told(
            "delta_value",
            format!("{added} was added to a counter, which only grows"),
        ));
    }
    let interval = (told.start_ns, told.time_ns);
    // Without a start, the amount was still added just before.
    let start = told.start().unwrap_or(told.time_ns - NANOS_PER_MILLI);
    let Some(known) = known else {
        put(told.value, start, Say::Zero, out);
        put(told.value, told.time_ns, Say::Value, out);
        let next = State {
            temporality: Temporality::Delta,
            start_ns: start,
            zero_ns: start,
            told_ns: told.time_ns,
            last_ns: told.time_ns,
            total: told.value.clone(),
            recent: vec![interval],
        };
        return Ok((Some(next), Note::Regular));
    };
    if known.recent.contains(&interval) {
        return Ok((None, Note::Repeated));
    }
    let mut next = known.clone();
    next.told_ns = told.time_ns.max(known.told_ns);
    next.recent.insert(0, interval);
    next.recent.truncate(RECENT_MAX);
    let Some((total, gone)) = added(&known.total, told.value) else {
        // Other bounds: what was counted by the old ones can't be told by the new.
        let (_, gone) = carry(&known.total, told.value);
        next.zero_ns = start.max(known.last_ns + 1);
        next.last_ns = told.time_ns.max(next.zero_ns + 1);
        (next.total, next.start_ns) = (told.value.clone(), start);
        put(told.value, next.zero_ns, Say::Zero, out);
        put(told.value, next.last_ns, Say::Value, out);
        end_bounds(&gone, next.last_ns, out);
        return Ok((Some(next), Note::Reset));
    };
    // Totals must not run backwards in time: an amount of long ago is added now.
    next.last_ns = told.time_ns.max(known.last_ns + 1);
    backfill(known, &total, out);
    if start > known.told_ns && start > known.last_ns {
        put(&before(&known.total, &total), start, Say::Value, out);
    }
    put(&total, next.last_ns, Say::Value, out);
    end_bounds(&gone, next.last_ns, out);
    next.total = total;
    let note = match told.start() {
        _ if told.time_ns <= known.told_ns => Note::Late,
        Some(start) if start < known.told_ns => Note::Overlap,
        _ => Note::Regular,
    };
    Ok((Some(next), note))
}

/// Whether two histograms have the same bounds, as those of one sender most often have.
fn same_bounds(a: &Histogram, b: &Histogram) -> bool {
    a.buckets.len() == b.buckets.len() && a.buckets.iter().zip(&b.buckets).all(|(a, b)| a.0 == b.0)
}

/// Whether a sum fell, or any count of it.
fn fell(before: &PointValue, after: &PointValue) -> bool {
    match (before, after) {
        (PointValue::Number(before), PointValue::Number(after)) => after < before,
        (PointValue::Summary { count: before, .. }, PointValue::Summary { count: after, .. }) => {
            after < before
        }
        (PointValue::Histogram(before), PointValue::Histogram(after)) if same_bounds(before, after) => {
            let mut counts = before.buckets.iter().zip(&after.buckets);
            after.count < before.count || counts.any(|(before, after)| after.1 < before.1)
        }
        (PointValue::Histogram(before), PointValue::Histogram(after)) => {
            let at_bounds =
                before.buckets.iter().any(|(bound, count)| after.at(*bound).is_some_and(|now| now < *count));
            after.count < before.count || at_bounds
        }
        _ => false,
    }
}

/// The new value at its own bounds and at those of before that it can tell, and the bounds that end.
fn carry(before: &PointValue, after: &PointValue) -> (PointValue, Vec<f64>) {
    let (PointValue::Histogram(before), PointValue::Histogram(after)) = (before, after) else {
        return (after.clone(), Vec::new());
    };
    let mut now = after.clone();
    let mut gone = Vec::new();
    if same_bounds(before, after) {
        return (PointValue::Histogram(now), gone);
    }
    for (bound, _) in &before.buckets {
        if after.buckets.binary_search_by(|(b, _)| b.total_cmp(bound)).is_ok() {
            continue;
        }
        match after.at(*bound).filter(|_| after.ladder && now.buckets.len() < BOUNDS_MAX) {
            Some(count) => now.buckets.push((*bound, count)),
            None => gone.push(*bound),
        }
    }
    now.buckets.sort_by(|a, b| a.0.total_cmp(&b.0));
    (PointValue::Histogram(now), gone)
}

/// The sum of a total and what is added to it, and the bounds that end; none when their bounds differ
/// and are the sender's own.
fn added(total: &PointValue, more: &PointValue) -> Option<(PointValue, Vec<f64>)> {
    let (total, more) = match (total, more) {
        (PointValue::Number(total), PointValue::Number(more)) => {
            return Some((PointValue::Number(total + more), Vec::new()));
        }
        (PointValue::Histogram(total), PointValue::Histogram(more)) => (total, more),
        _ => return None,
    };
    let same = same_bounds(total, more);
    if !same && !total.ladder {
        return None;
    }
    let mut bounds: Vec<f64> = total.buckets.iter().map(|(bound, _)| *bound).collect();
    if !same {
        let room = BOUNDS_MAX.saturating_sub(bounds.len());
        let fresh = more.buckets.iter().map(|(bound, _)| *bound);
        let fresh: Vec<f64> =
            fresh.filter(|b| bounds.binary_search_by(|a| a.total_cmp(b)).is_err()).collect();
        bounds.extend(fresh.into_iter().take(room));
        bounds.sort_by(f64::total_cmp);
    }
    let mut sum = Histogram {
        count: total.count.saturating_add(more.count),
        sum: total.sum.zip(more.sum).map(|(a, b)| a + b),
        min: total.min.into_iter().chain(more.min).reduce(f64::min),
        max: total.max.into_iter().chain(more.max).reduce(f64::max),
        buckets: Vec::with_capacity(bounds.len()),
        ladder: total.ladder,
    };
    let mut gone = Vec::new();
    for bound in bounds {
        match total.at(bound).zip(more.at(bound)) {
            Some((a, b)) => sum.buckets.push((bound, a.saturating_add(b))),
            None if total.buckets.iter().any(|(b, _)| *b == bound) => gone.push(bound),
            None => {}
        }
    }
    Some((PointValue::Histogram(sum), gone))
}

/// What was known before, at the bounds of now.
fn before(known: &PointValue, now: &PointValue) -> PointValue {
    let (PointValue::Histogram(known), PointValue::Histogram(now)) = (known, now) else {
        return known.clone();
    };
    let buckets = now.buckets.iter().filter_map(|(bound, _)| Some((*bound, known.at(*bound)?)));
    PointValue::Histogram(Histogram { buckets: buckets.collect(), ..known.clone() })
}

/// Bounds that appear within a sequence held a count before; without it their first increase would be lost.
fn backfill(known: &State, now: &PointValue, out: &mut Vec<PartSample>) {
    let (PointValue::Histogram(was), PointValue::Histogram(now)) = (&known.total, now) else { return };
    if same_bounds(was, now) {
        return;
    }
    for (bound, _) in &now.buckets {
        let fresh = was.buckets.binary_search_by(|(b, _)| b.total_cmp(bound)).is_err();
        let Some(count) = was.at(*bound).filter(|_| fresh) else { continue };
        let part = Part::Bucket(*bound);
        if known.zero_ns > 0 {
            out.push(PartSample { part, time_ns: known.zero_ns, value: 0.0 });
        }
        out.push(PartSample { part, time_ns: known.last_ns, value: count as f64 });
    }
}

fn end_bounds(bounds: &[f64], time_ns: i64, out: &mut Vec<PartSample>) {
    let ends = bounds.iter().map(|b| PartSample { part: Part::Bucket(*b), time_ns, value: stale_marker() });
    out.extend(ends);
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Say {
    Value,
    /// That nothing was counted yet; quantiles say nothing.
    Zero,
    /// That the series ends.
    Ended,
}

/// The samples of a value at a time.
fn put(value: &PointValue, time_ns: i64, say: Say, out: &mut Vec<PartSample>) {
    let mut one = |part: Part, value: f64| {
        let value = match say {
            Say::Value => value,
            Say::Zero if matches!(part, Part::Quantile(_)) => return,
            Say::Zero => 0.0,
            Say::Ended => stale_marker(),
        };
        out.push(PartSample { part, time_ns, value });
    };
    match value {
        PointValue::Number(number) => one(Part::Value, *number),
        PointValue::Histogram(histogram) => {
            for (bound, count) in &histogram.buckets {
                one(Part::Bucket(*bound), *count as f64);
            }
            one(Part::Bucket(f64::INFINITY), histogram.count as f64);
            one(Part::Count, histogram.count as f64);
            if let Some(sum) = histogram.sum {
                one(Part::Sum, sum);
            }
        }
        PointValue::Summary { count, sum, quantiles } => {
            for (quantile, value) in quantiles {
                one(Part::Quantile(*quantile), *value);
            }
            one(Part::Count, *count as f64);
            one(Part::Sum, *sum);
        }
        PointValue::Ended => {}
    }
}
