//! A group of batches on its way into one commit: decided against memory, applied to it only after
//! the commit succeeded.

use std::collections::hash_map::Entry as MapEntry;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use model::{
    Event, Exemplar, LABELS_PER_SERIES_MAX, RunChange, RunId, RunRecord, SERIES_PER_RUN_METRIC_MAX, Sample,
    SeriesIdentity, WriterId,
};

use crate::appended::Appended;
use crate::batch::{AppendError, Collision, Options, Packed, Receipt, SeriesBatch};
use crate::catalogue::{Change, Counters};
use crate::chunk;
use crate::events::{self, EVENT_BYTES_MAX, EVENTS_MAX, EventRows};
use crate::exemplars::ExemplarRows;
use crate::head::{self, MemoryChunk};
use crate::metadata::{METRICS_MAX, MetricMetadata};
use crate::read::{Piece, Sources};
use crate::record::{self, Sequences};
use crate::series::{Population, Scope, ScopeKey, Series, State};
use crate::telemetry::Block;
use crate::{SeriesId, log};

/// Times beyond are refused: about 1823 to 2116. Far enough from the ends of `i64` that no
/// difference of two overflows.
const TIME_NS_MAX: i64 = 1 << 62;
/// Most points of one series in one batch that are not worth packing.
const APPENDED_MAX: usize = 64;

/// What a group would change.
pub(crate) struct Staging<'a> {
    state: &'a State,
    options: &'a Options,
    now_ns: i64,
    damage: &'a dyn Fn(String),
    counters: Counters,
    decided: Decided,
}

/// The decisions, free of the state they were taken against.
#[derive(Default)]
pub(crate) struct Decided {
    series: HashMap<Arc<[u8]>, SeriesId>,
    scopes: HashMap<ScopeKey, Scope>,
    writers: HashMap<WriterId, Sequences>,
    runs: HashMap<RunId, RunRecord>,
    points: BTreeMap<SeriesId, Placing>,
    /// Points that need no placing; a series that is in `points` too has them there.
    appended: Appended,
    /// New series of each population.
    populations: HashMap<Population, usize>,
    metadata: BTreeMap<String, MetricMetadata>,
    state: Vec<(Vec<u8>, Option<Vec<u8>>)>,
    /// Blocks of spans and log records, in order of arrival.
    blocks: Vec<Block>,
    /// The number of the first of them.
    first_block: u64,
    exemplars: Vec<(SeriesId, Exemplar)>,
    exemplar_rows: ExemplarRows,
    event_rows: EventRows,
}

/// Points of one series with their final times.
#[derive(Default)]
struct Placing {
    samples: Vec<Sample>,
    /// All of them but a rest, packed.
    packed: Vec<Arc<MemoryChunk>>,
    /// Where that rest starts.
    rest: usize,
    /// Latest time of the series, the new points included.
    latest_ns: Option<i64>,
    /// Made when a point comes late.
    occupied: Option<Box<Occupied>>,
}

impl Placing {
    /// Adds a point at its final time.
    fn push(&mut self, sample: Sample) {
        if let Some(occupied) = &mut self.occupied {
            occupied.insert(sample.time_ns);
        }
        self.latest_ns = self.latest_ns.max(Some(sample.time_ns));
        self.samples.push(sample);
    }
}

impl<'a> Staging<'a> {
    pub(crate) fn new(
        state: &'a State,
        options: &'a Options,
        counters: Counters,
        damage: &'a dyn Fn(String),
    ) -> Self {
        let now_ns = (options.clock)();
        Self { state, options, now_ns, damage, counters, decided: Decided::default() }
    }

    /// Decides what becomes of a batch. An error leaves nothing of it behind.
    pub(crate) fn take(&mut self, Packed { batch, blocks }: Packed) -> Result<Receipt, AppendError> {
        let mut receipt = Receipt::default();
        if let Some((writer, sequence)) = batch.writer {
            receipt.duplicate = self.note_delivery(writer, sequence)?;
        }
        if !receipt.duplicate {
            for change in batch.change.iter().chain(&batch.changes) {
                self.apply_change(change);
            }
            for known in batch.metadata {
                self.take_metadata(known);
            }
            let mut points = Vec::with_capacity(batch.series.len());
            for series in batch.series.into_iter().enumerate() {
                points.extend(self.take_series(series, &mut receipt));
            }
            points.extend(self.take_points(batch.points, &mut receipt));
            self.place_all(points, batch.collision, &mut receipt);
            self.decided.state.extend(batch.state);
            self.decided.blocks.extend(blocks);
            self.take_exemplars(batch.exemplars);
            self.take_events(batch.events, &mut receipt);
        }
        let writer = batch.writer.map(|(writer, _)| writer);
        let writer = writer.or_else(|| batch.change.as_ref()?.session.as_ref().map(|(writer, _)| *writer));
        if let (Some(writer), Some(change)) = (writer, &batch.change) {
            receipt.attempt = self.attempt_of(change.path.id(), writer);
        }
        Ok(receipt)
    }

    /// Remembers a delivery; `true` when it had come before.
    fn note_delivery(&mut self, writer: WriterId, sequence: u64) -> Result<bool, AppendError> {
        let known = self.decided.writers.get(&writer).or_else(|| self.state.writers.get(&writer));
        if known.is_some_and(|sequences| sequences.contains(sequence)) {
            return Ok(true);
        }
        let mut sequences = known.cloned().unwrap_or_default();
        sequences.insert(sequence);
        if sequences.ranges() > Sequences::RANGES_MAX {
            return Err(AppendError::failed(format!(
                "the writer left more than {} gaps in the numbers of its deliveries",
                Sequences::RANGES_MAX
            )));
        }
        self.decided.writers.insert(writer, sequences);
        Ok(false)
    }

    fn apply_change(&mut self, change: &RunChange) {
        let id = change.path.id();
        let run = self.decided.runs.entry(id).or_insert_with(|| match self.state.runs.get(&id) {
            Some(run) => (**run).clone(),
            None => RunRecord::new(change.path.clone(), self.now_ns),
        });
        run.apply(change, self.now_ns);
    }

    fn attempt_of(&self, run: RunId, writer: WriterId) -> u32 {
        let run = self.decided.runs.get(&run).or_else(|| self.state.runs.get(&run).map(|run| &**run));
        let session = run.and_then(|run| run.sessions.iter().rev().find(|s| s.writer == writer));
        session.map_or(0, |session| session.attempt)
    }

    fn take_metadata(&mut self, said: MetricMetadata) {
        let Some(said) = said.bounded() else { return };
        let known = self.state.metadata.get(said.metric.as_str());
        let count = self.state.metadata.len() + self.decided.metadata.len();
        if known.is_some_and(|known| **known == said) {
            self.decided.metadata.remove(&said.metric);
        } else if known.is_some() || count < METRICS_MAX {
            self.decided.metadata.insert(said.metric.clone(), said);
        }
    }

    /// Those of series that are not known have nothing to stand beside.
    fn take_exemplars(&mut self, exemplars: Vec<(SeriesIdentity, Exemplar)>) {
        for (identity, exemplar) in exemplars {
            let bytes = record::encode_identity(&identity);
            let known =
                self.state.by_identity.get(&bytes[..]).or_else(|| self.decided.series.get(&bytes[..]));
            self.decided.exemplars.extend(known.map(|series| (*series, exemplar)));
        }
    }

    fn take_events(&mut self, events: Vec<Event>, receipt: &mut Receipt) {
        for event in events {
            if !(-TIME_NS_MAX..=TIME_NS_MAX).contains(&event.time_ns) {
                let example =
                    || format!("event `{}`: times lie between 1823 and 2116", shortened(&event.key));
                receipt.refuse("event_time", 1, example);
            } else if events::bytes_of(&event) > EVENT_BYTES_MAX {
                let example = || {
                    let (key, bytes) = (shortened(&event.key), events::bytes_of(&event));
                    format!("event `{key}` has {bytes} bytes, at most {EVENT_BYTES_MAX} are kept")
                };
                receipt.refuse("event_size", 1, example);
            } else if self.decided.event_rows.add(&self.state.events, event) {
                receipt.events += 1;
            } else {
                receipt.events_known += 1;
            }
        }
    }

    /// The series' number with the points that can be taken, if there are any.
    fn take_series(
        &mut self,
        (place, mut batch): (usize, SeriesBatch),
        receipt: &mut Receipt,
    ) -> Option<(SeriesId, Vec<Sample>)> {
        let all = batch.samples.len() as u64;
        batch.samples.retain(is_usual);
        let outside = all - batch.samples.len() as u64;
        if outside > 0 {
            let example =
                || format!("`{}`: times lie between 1823 and 2116", shortened(&batch.identity.display));
            receipt.refuse("time_out_of_range", outside, example);
            receipt.refused_series.push((place, "time_out_of_range", outside));
        }
        if batch.samples.is_empty() {
            return None;
        }
        match self.series_id(&batch.identity) {
            Ok(id) => Some((id, batch.samples)),
            Err((reason, example)) => {
                let count = batch.samples.len() as u64;
                receipt.refuse(reason, count, || example);
                receipt.refused_series.push((place, reason, count));
                None
            }
        }
    }

    /// Takes points of series by number that come after all others of theirs; returns the rest.
    fn take_points(
        &mut self,
        mut points: Vec<(SeriesId, Sample)>,
        receipt: &mut Receipt,
    ) -> Vec<(SeriesId, Vec<Sample>)> {
        let mut rest: Vec<(SeriesId, Vec<Sample>)> = Vec::new();
        // A sender keeps an order, which is most often that of the numbers.
        if !points.is_sorted_by_key(|(id, sample)| (*id, sample.time_ns)) {
            points.sort_by_key(|(id, sample)| (*id, sample.time_ns));
        }
        let mut appended = Appended::with_capacity(points.len());
        for part in points.chunk_by(|a, b| a.0 == b.0) {
            let id = part[0].0;
            let Some(series) = self.state.series.get(id) else {
                receipt.gone.push(id);
                continue;
            };
            if part.len() < APPENDED_MAX && self.decided.follow(id, series, part) {
                appended.push(id, part.iter().map(|(_, sample)| *sample));
                receipt.stored += part.len() as u64;
                continue;
            }
            let placing = self.decided.placing(id, self.state);
            for (_, sample) in part {
                if !is_usual(sample) {
                    let example = || format!("series {id}: times lie between 1823 and 2116");
                    receipt.refuse("time_out_of_range", 1, example);
                } else if placing.latest_ns.is_none_or(|latest| latest < sample.time_ns) {
                    placing.push(*sample);
                    receipt.stored += 1;
                } else if let Some((_, late)) = rest.last_mut().filter(|(last, _)| *last == id) {
                    late.push(*sample);
                } else {
                    rest.push((id, vec![*sample]));
                }
            }
        }
        self.decided.appended.merge(appended);
        rest
    }

    fn place_all(
        &mut self,
        mut points: Vec<(SeriesId, Vec<Sample>)>,
        collision: Collision,
        receipt: &mut Receipt,
    ) {
        if collision == Collision::LastWriteWins {
            // What a series has is looked up once a batch, however often the batch names it.
            points.sort_by_key(|(id, _)| *id);
            points.dedup_by(|later, kept| {
                let same = later.0 == kept.0;
                if same {
                    kept.1.append(&mut later.1);
                }
                same
            });
        }
        for (id, samples) in points {
            let count = samples.len() as u64;
            let repeated = match collision {
                Collision::NextFreeNanosecond => {
                    self.place(id, samples);
                    0
                }
                Collision::LastWriteWins => self.replace(id, samples),
            };
            receipt.repeated += repeated;
            receipt.stored += count - repeated;
        }
    }

    /// The series' number, given now if it is new.
    fn series_id(&mut self, identity: &SeriesIdentity) -> Result<SeriesId, (&'static str, String)> {
        let bytes = record::encode_identity(identity);
        let known = self.state.by_identity.get(&bytes[..]).or_else(|| self.decided.series.get(&bytes[..]));
        if let Some(id) = known {
            return Ok(*id);
        }
        let name = || shortened(&identity.display);
        let labels = identity.labels.iter().filter(|(label, _)| *label != "__name__").count();
        if labels > LABELS_PER_SERIES_MAX {
            let example = format!(
                "`{}` has {labels} labels, at most {LABELS_PER_SERIES_MAX} are kept, the run's included",
                name()
            );
            return Err(("label_count", example));
        }
        let population = self.room_for(&bytes).map_err(|(reason, limit)| {
            (reason, format!("`{}` would be one more than {limit} series", name()))
        })?;
        if let Some((Some(run), metric, _)) = record::identity_scope(&bytes) {
            let key = (run, Box::from(metric));
            let mut scope = match self.decided.scopes.get(&key).or_else(|| self.state.scopes.get(&key)) {
                Some(scope) => scope.clone(),
                None => Scope { display: identity.display.as_str().into(), series: 0 },
            };
            if !may_share(metric, &scope.display, &identity.display) {
                let example =
                    format!("`{}` and `{}` are both `{metric}` in PromQL: rename one", name(), scope.display);
                return Err(("display_name_taken", example));
            }
            if scope.series >= SERIES_PER_RUN_METRIC_MAX {
                let example =
                    format!("`{}` has {SERIES_PER_RUN_METRIC_MAX} series in this run already", name());
                return Err(("series_limit", example));
            }
            scope.series += 1;
            self.decided.scopes.insert(key, scope);
        }
        *self.decided.populations.entry(population).or_default() += 1;
        let id = self.counters.series;
        self.counters.series += 1;
        self.decided.series.insert(bytes.into(), id);
        Ok(id)
    }

    /// What a new series would count into; an error is a reason and its limit.
    fn room_for(&self, identity: &[u8]) -> Result<Population, (&'static str, usize)> {
        let run = record::identity_scope(identity).and_then(|(run, ..)| run);
        let population = Population::of(run, identity);
        let (reason, limit) = match &population {
            Population::Project(_) => ("project_series_limit", self.options.project_series_max),
            Population::Fleet => ("fleet_series_limit", self.options.fleet_series_max),
        };
        let count = |of: &HashMap<Population, usize>| of.get(&population).copied().unwrap_or_default();
        let known = count(&self.state.populations) + count(&self.decided.populations);
        if known < limit { Ok(population) } else { Err((reason, limit)) }
    }

    /// Puts every point at its own time; one that is there with the same value stays. Returns how
    /// many did.
    fn replace(&mut self, id: SeriesId, mut samples: Vec<Sample>) -> u64 {
        let count = samples.len();
        chunk::settle(&mut samples);
        let mut repeated = (count - samples.len()) as u64;
        let (state, damage) = (self.state, self.damage);
        let placing = self.decided.placing(id, state);
        let late = samples.partition_point(|s| placing.latest_ns.is_some_and(|latest| s.time_ns <= latest));
        let mut known: HashMap<i64, u64> = HashMap::new();
        if let [first, .., last] | [first @ last] = &samples[..late] {
            let range = (first.time_ns, last.time_ns);
            let pieces = Sources::of(state, id, range.0, range.1).pieces(id, range, &mut |why| damage(why));
            let mut note = |samples: &[Sample]| {
                let inside = samples.iter().filter(|s| (range.0..=range.1).contains(&s.time_ns));
                known.extend(inside.map(|s| (s.time_ns, s.value.to_bits())));
            };
            for piece in pieces {
                match piece.samples() {
                    Ok(samples) => note(&samples),
                    Err(why) => damage(why),
                }
            }
            note(&placing.samples);
        }
        for sample in samples {
            if known.get(&sample.time_ns) == Some(&sample.value.to_bits()) {
                repeated += 1;
                continue;
            }
            placing.push(sample);
        }
        repeated
    }

    /// Gives every point the first free nanosecond from its own time on.
    fn place(&mut self, id: SeriesId, mut samples: Vec<Sample>) {
        samples.sort_by_key(|s| s.time_ns);
        let (state, damage) = (self.state, self.damage);
        let placing = self.decided.placing(id, state);
        placing.samples.reserve(samples.len());
        for mut sample in samples {
            if placing.latest_ns.is_some_and(|latest| sample.time_ns <= latest) {
                let occupied =
                    placing.occupied.get_or_insert_with(|| Box::new(Occupied::new(&placing.samples)));
                occupied.reach(sample.time_ns, state, id, damage);
                sample.time_ns = occupied.next_free(sample.time_ns, damage);
            }
            placing.push(sample);
        }
    }

    /// The transaction that makes the group durable, the counters after it, and what to apply then.
    pub(crate) fn finish(self) -> (Change, Counters, Decided) {
        let Self { state, mut counters, mut decided, .. } = self;
        for placing in decided.points.values_mut() {
            chunk::settle(&mut placing.samples);
            let (packed, rest) = head::pack(&placing.samples);
            placing.rest = placing.samples.len() - rest.len();
            placing.packed = packed;
        }
        decided.points.retain(|_, placing| !placing.samples.is_empty());
        let points = &decided.points;
        decided.appended = std::mem::take(&mut decided.appended).without(|id| points.contains_key(&id));
        decided.runs.retain(|id, run| state.runs.get(id).is_none_or(|known| **known != *run));
        let mut change = Change::default();
        change.series.extend(decided.series.iter().map(|(identity, id)| (*id, Some(identity.clone()))));
        change.series.sort_by_key(|(id, _)| *id);
        change.writers.extend(decided.writers.iter().map(|(id, sequences)| (*id, Some(sequences.encode()))));
        for (id, run) in &decided.runs {
            put_run(&mut change, *id, state.runs.get(id).map(|run| &**run), run);
        }
        change.metadata.extend(decided.metadata.iter().map(|(m, known)| (m.clone(), Some(known.encode()))));
        change.rows = log::encode_rows(decided.appended.iter());
        change
            .rows
            .extend(log::encode_rows(decided.points.iter().map(|(id, placing)| (*id, &placing.samples[..]))));
        counters.row += change.rows.len() as u64;
        change.state = std::mem::take(&mut decided.state);
        decided.first_block = counters.telemetry;
        let blocks = (decided.first_block..).zip(&decided.blocks);
        change.telemetry.extend(blocks.map(|(number, block)| (number, Some(block.bytes.clone()))));
        counters.telemetry += change.telemetry.len() as u64;
        decided.exemplar_rows = state.exemplars.place(std::mem::take(&mut decided.exemplars));
        change.exemplars = decided.exemplar_rows.encode();
        decided.event_rows.bound(&state.events, EVENTS_MAX);
        change.events = decided.event_rows.encode();
        (change, counters, decided)
    }
}

/// Writes what differs between a run's record as it was and as it is.
pub(crate) fn put_run(change: &mut Change, id: RunId, was: Option<&RunRecord>, is: &RunRecord) {
    let row = record::encode_run(is);
    if was.is_none_or(|was| record::encode_run(was) != row) {
        change.runs.push((id, Some(row)));
    }
    for (at, session) in is.sessions.iter().enumerate() {
        if was.is_none_or(|was| was.sessions.get(at) != Some(session)) {
            change.sessions.push((record::session_key(id, at), Some(record::encode_session(session))));
        }
    }
}

impl Decided {
    /// Where points of a series go.
    fn placing(&mut self, id: SeriesId, state: &State) -> &mut Placing {
        self.points.entry(id).or_insert_with(|| {
            let totals = state.series.get(id).map(|s| s.totals).filter(|t| t.points > 0);
            let mut placing = Placing { latest_ns: totals.map(|t| t.time_ns.1), ..Placing::default() };
            self.appended.of(id).iter().for_each(|sample| placing.push(*sample));
            placing
        })
    }

    /// Whether sorted points of a series come after all others of it, each at a time of its own, and
    /// none of its points needs to be placed.
    fn follow(&self, id: SeriesId, series: &Series, points: &[(SeriesId, Sample)]) -> bool {
        let of_group = self.appended.of(id).last().map(|sample| sample.time_ns);
        let of_series = Some(series.totals.time_ns.1).filter(|_| series.totals.points > 0);
        let mut latest_ns = of_group.or(of_series);
        let rises = points.iter().all(|(_, sample)| {
            let before = latest_ns.replace(sample.time_ns);
            before.is_none_or(|before| before < sample.time_ns) && is_usual(sample)
        });
        rises && !self.points.contains_key(&id)
    }

    /// Makes the committed group visible.
    pub(crate) fn apply(self, state: &mut State) {
        let mut series: Vec<_> = self.series.into_iter().collect();
        series.sort_by_key(|(_, id)| *id);
        for (identity, id) in series {
            state.insert_series(id, identity);
        }
        for (writer, sequences) in self.writers {
            state.writers.insert(writer, sequences);
        }
        for (metric, known) in self.metadata {
            state.metadata.insert(metric.into(), Arc::new(known));
        }
        for (id, run) in self.runs {
            match state.runs.entry(id) {
                MapEntry::Occupied(mut entry) => *entry.get_mut() = Arc::new(run),
                MapEntry::Vacant(entry) => _ = entry.insert(Arc::new(run)),
            }
        }
        for (number, block) in (self.first_block..).zip(self.blocks) {
            state.telemetry.push(number, block);
        }
        state.exemplars.apply(self.exemplar_rows);
        state.events.apply(self.event_rows);
        for (id, samples) in self.appended.iter() {
            state.push(id, Vec::new(), samples);
        }
        for (id, placing) in self.points {
            state.push(id, placing.packed, &placing.samples[placing.rest..]);
        }
    }
}

/// Whether a point's time can be kept.
fn is_usual(sample: &Sample) -> bool {
    (-TIME_NS_MAX..=TIME_NS_MAX).contains(&sample.time_ns)
}

/// The first bytes of a name, for a message.
fn shortened(name: &str) -> String {
    let mut short: String = name.chars().take(64).collect();
    if short.len() < name.len() {
        short.push('…');
    }
    short
}

/// The times that a series has points at, as runs of neighbouring nanoseconds, read from its chunks
/// as far as they are asked for.
struct Occupied {
    /// First to last nanosecond of each run.
    runs: BTreeMap<i64, i64>,
    /// Every chunk that reaches to this time or beyond is among `chunks`.
    from_ns: Option<i64>,
    /// In order of their first time.
    chunks: Vec<Loadable>,
}

struct Loadable {
    piece: Piece,
    /// Latest time of this chunk and all before it.
    latest_ns: i64,
    loaded: bool,
}

impl Occupied {
    fn new(placed: &[Sample]) -> Self {
        let mut occupied = Self { runs: BTreeMap::new(), from_ns: None, chunks: Vec::new() };
        for sample in placed {
            occupied.insert(sample.time_ns);
        }
        occupied
    }

    /// Finds the chunks that reach to `time_ns` or beyond. Late points come mostly from just before
    /// the latest, so what lies before stays untouched.
    fn reach(&mut self, time_ns: i64, state: &State, id: SeriesId, damage: &dyn Fn(String)) {
        if self.from_ns.is_some_and(|from_ns| from_ns <= time_ns) {
            return;
        }
        let range = (time_ns, i64::MAX);
        let pieces = Sources::of(state, id, range.0, range.1).pieces(id, range, &mut |why| damage(why));
        let known = self.from_ns.replace(time_ns);
        let is_new = |piece: &Piece| known.is_none_or(|from_ns| piece.summary().time_ns.1 < from_ns);
        let new = pieces.into_iter().filter(is_new);
        self.chunks.extend(new.map(|piece| Loadable { piece, latest_ns: 0, loaded: false }));
        self.chunks.sort_by_key(|chunk| chunk.piece.summary().time_ns);
        let mut latest_ns = i64::MIN;
        for chunk in &mut self.chunks {
            latest_ns = latest_ns.max(chunk.piece.summary().time_ns.1);
            chunk.latest_ns = latest_ns;
        }
    }

    /// The first nanosecond from `time_ns` on that has no point.
    fn next_free(&mut self, mut time_ns: i64, damage: &dyn Fn(String)) -> i64 {
        loop {
            self.load(time_ns, damage);
            match self.runs.range(..=time_ns).next_back() {
                Some((_, last_ns)) if *last_ns >= time_ns => time_ns = last_ns + 1,
                _ => return time_ns,
            }
        }
    }

    /// Reads every chunk around `time_ns`.
    fn load(&mut self, time_ns: i64, damage: &dyn Fn(String)) {
        let after = self.chunks.partition_point(|chunk| chunk.piece.summary().time_ns.0 <= time_ns);
        for at in (0..after).rev() {
            let chunk = &mut self.chunks[at];
            if chunk.latest_ns < time_ns {
                break;
            }
            if chunk.loaded || chunk.piece.summary().time_ns.1 < time_ns {
                continue;
            }
            chunk.loaded = true;
            match chunk.piece.samples() {
                Ok(samples) => samples.iter().for_each(|s| self.insert(s.time_ns)),
                Err(why) => damage(why),
            }
        }
    }

    fn insert(&mut self, time_ns: i64) {
        let (mut first_ns, mut end_ns) = (time_ns, time_ns);
        if let Some((first, last)) = self.runs.range(..=time_ns).next_back() {
            if *last >= time_ns {
                return;
            }
            if *last + 1 == time_ns {
                first_ns = *first;
            }
        }
        if let Some(last) = self.runs.remove(&(time_ns + 1)) {
            end_ns = last;
        }
        self.runs.insert(first_ns, end_ns);
    }
}

/// Whether two display names may be one metric of a run. An OpenTelemetry instrument and the same one
/// that is spelled as PromQL spells it may: their labels differ, so that no two series become one.
fn may_share(metric: &str, known: &str, new: &str) -> bool {
    known == new
        || (known == metric && model::needs_display(new))
        || (new == metric && model::needs_display(known))
}
