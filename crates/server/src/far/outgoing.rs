//! What was stored here, as remote write: checked against the far end's limits, on its milliseconds,
//! with the steps beside it.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::ControlFlow;

use model::{Labels, LabelsBuilder, NANOS_PER_MILLI, RunPath, Sample, SeriesIdentity, WriterId};
use store::{Matcher, MetricMetadata, SeriesBatch, Store};
use wire::remote_write::{Metadata, Point, RequestWriter};

use super::slots::{Owner, SHIFT_MS_MAX, Slots};
use crate::config::StorageConfig;

/// The series that tells the steps of a run's points.
pub(super) const STEP_METRIC: &str = "truegauge_step";
/// The series that tells what a metric was logged as, where its name in PromQL does not.
pub(super) const NAME_METRIC: &str = "truegauge_metric_info";
/// Names told of; beyond it they are forgotten, and told again.
const NAMES_MAX: usize = 100_000;
/// A record is closed at about as many bytes, unpacked.
const RECORD_BYTES: usize = 4 << 20;

/// A batch that the store has taken.
#[derive(Debug, Default)]
pub(crate) struct Outgoing {
    /// The run and writer that its points are of, which keep apart; points of others stand on milliseconds,
    /// or the latest of one stays.
    pub(crate) pushed: Option<(RunPath, WriterId)>,
    /// Its points.
    pub(crate) series: Vec<SeriesBatch>,
    /// What is said about metrics.
    pub(crate) metadata: Vec<MetricMetadata>,
}

/// One request's worth of a shard.
#[derive(Debug)]
pub(super) struct Packed {
    /// A snappy block.
    pub(super) body: Vec<u8>,
    /// Samples in it.
    pub(super) samples: u32,
}

/// What is not sent: reason, samples, an example.
pub(super) type Unsent = Vec<(&'static str, u64, String)>;

/// Packs batches for the shards.
#[derive(Debug)]
pub(super) struct Packer {
    slots: Slots,
    shards: Vec<Open>,
    labels_max: usize,
    value_bytes_max: usize,
    samples_max: usize,
    unsent: Unsent,
    /// Series that tell of names and were sent since the start.
    named: HashSet<u64>,
    /// What was said last about each metric.
    described: HashMap<String, u64>,
}

#[derive(Debug, Default)]
struct Open {
    writer: RequestWriter,
    samples: u32,
    done: Vec<Packed>,
}

impl Open {
    fn close(&mut self) {
        if self.writer.is_empty() {
            return;
        }
        let samples = std::mem::take(&mut self.samples);
        match self.writer.finish() {
            Ok(body) => self.done.push(Packed { body, samples }),
            Err(error) => tracing::error!(%error, samples, "cannot pack samples for the far storage"),
        }
    }
}

/// Points of a series on their milliseconds.
type Placed = Vec<Point>;

impl Packer {
    pub(super) fn new(config: &StorageConfig) -> Self {
        Self {
            slots: Slots::default(),
            shards: (0..config.shards).map(|_| Open::default()).collect(),
            labels_max: config.labels_max,
            value_bytes_max: config.label_value_bytes_max,
            samples_max: config.request_samples_max,
            unsent: Unsent::new(),
            named: HashSet::new(),
            described: HashMap::new(),
        }
    }

    /// Adds a batch. `store` holds it, and is asked for what was there before.
    pub(super) fn add(&mut self, store: &Store, mut batch: Outgoing) {
        batch.series.retain(|series| match self.check(&series.identity.labels) {
            Ok(()) => true,
            Err((reason, example)) => {
                self.unsend(reason, series.samples.len() as u64, || example);
                false
            }
        });
        for about in std::mem::take(&mut batch.metadata) {
            self.describe(about);
        }
        match batch.pushed.take() {
            Some((run, writer)) => self.pushed(store, &run, writer, batch.series),
            None => {
                for series in batch.series {
                    let point =
                        |s: &Sample| Point { time_ms: s.time_ns.div_euclid(NANOS_PER_MILLI), value: s.value };
                    let points = series.samples.iter().map(point).collect();
                    self.put(&series.identity.labels, points);
                }
            }
        }
    }

    /// What is packed, by shard, and what will not be sent.
    pub(super) fn finish(&mut self) -> (Vec<Vec<Packed>>, Unsent) {
        let packed = self.shards.iter_mut().map(|shard| {
            shard.close();
            std::mem::take(&mut shard.done)
        });
        (packed.collect(), std::mem::take(&mut self.unsent))
    }

    fn unsend(&mut self, reason: &'static str, count: u64, example: impl FnOnce() -> String) {
        match self.unsent.iter_mut().find(|(known, ..)| *known == reason) {
            Some((_, sum, _)) => *sum += count,
            None => self.unsent.push((reason, count, example())),
        }
    }

    /// The far end's limits, said before it drops in silence what is beyond them.
    fn check(&self, labels: &Labels) -> Result<(), (&'static str, String)> {
        let name = labels.metric();
        let found = labels.len();
        if found > self.labels_max {
            let why = format!("`{name}` has {found} labels, `storage_labels_max` is {}", self.labels_max);
            return Err(("label_count", why));
        }
        for (label, value) in labels.iter() {
            if !is_plain(label) {
                let why = format!("`{name}` has a label `{label}`, which remote write 1.0 can't name");
                return Err(("label_name", why));
            }
            if value.len() > self.value_bytes_max {
                let (bytes, most) = (value.len(), self.value_bytes_max);
                let why = format!(
                    "the label `{label}` of `{name}` has {bytes} bytes, `storage_label_value_bytes_max` is {most}"
                );
                return Err(("label_too_long", why));
            }
        }
        Ok(())
    }

    fn put(&mut self, labels: &Labels, mut points: Placed) {
        if points.is_empty() {
            return;
        }
        points.sort_by_key(|point| point.time_ms);
        let all = points.len();
        // The far storage takes one a millisecond; of a series here the latest stays.
        points.dedup_by(|later, kept| {
            let same = later.time_ms == kept.time_ms;
            if same {
                kept.value = later.value;
            }
            same
        });
        let collapsed = all - points.len();
        if collapsed > 0 {
            self.unsend("collapsed", collapsed as u64, || {
                format!("`{}` has several points within a millisecond", labels.metric())
            });
        }
        let shard = (hash(labels) % self.shards.len() as u64) as usize;
        let open = &mut self.shards[shard];
        for part in points.chunks(self.samples_max) {
            if open.samples as usize + part.len() > self.samples_max
                || open.writer.plain_bytes() > RECORD_BYTES
            {
                open.close();
            }
            open.writer.series(labels.iter(), part);
            open.samples += part.len() as u32;
        }
    }

    /// Points of a run: each on a millisecond of its own, their steps in companions.
    fn pushed(&mut self, store: &Store, run: &RunPath, writer: WriterId, batch: Vec<SeriesBatch>) {
        let mut companions: Vec<(u64, Labels, Placed)> = Vec::new();
        let mut owners = Vec::with_capacity(batch.len());
        for series in &batch {
            // Writers share the milliseconds of a run's steps: their points may be of one series.
            let group = hash(&companion(run, None, &series.identity.labels));
            let owner = Owner { series: hash(&series.identity.labels), group };
            if !companions.iter().any(|(known, ..)| *known == group) {
                companions.push((group, companion(run, Some(writer), &series.identity.labels), Vec::new()));
            }
            owners.push(owner);
        }
        for (group, ..) in &companions {
            if self.slots.meet(*group) {
                self.recall_group(store, run, *group, &batch, &owners);
            }
        }
        let mut points = Vec::new();
        for (at, (series, owner)) in batch.iter().zip(&owners).enumerate() {
            if self.slots.is_unknown(owner.series) {
                self.recall(store, &series.identity, *owner, &series.samples);
            }
            points.extend(series.samples.iter().map(|sample| Waiting::new(at, *sample)));
        }
        line_up(&mut points);
        let mut placed: Vec<Placed> = batch.iter().map(|s| Vec::with_capacity(s.samples.len())).collect();
        let mut collapsed = BTreeMap::new();
        for Waiting { of: at, sample: Sample { time_ns, step, value }, .. } in points {
            let owner = owners[at];
            let Some(place) = self.slots.place(owner, time_ns, step) else {
                *collapsed.entry(at).or_insert(0) += 1;
                continue;
            };
            placed[at].push(Point { time_ms: place.ms, value });
            let companion = companions.iter_mut().find(|(group, ..)| *group == owner.group);
            if let (Some(step), true, Some((.., told))) = (step, place.is_new_step, companion) {
                told.push(Point { time_ms: place.ms, value: step as f64 });
            }
        }
        for (series, points) in batch.iter().zip(placed) {
            self.name(run, &series.identity, &points);
            self.put(&series.identity.labels, points);
        }
        for (_, labels, points) in companions {
            self.put(&labels, points);
        }
        for (at, count) in collapsed {
            let name = batch[at].identity.labels.metric();
            self.unsend("collapsed", count, || {
                format!("`{name}` has more points within {SHIFT_MS_MAX} ms than milliseconds")
            });
        }
    }

    /// Tells what a metric is, when that is new.
    fn describe(&mut self, about: MetricMetadata) {
        let mut hasher = DefaultHasher::new();
        (about.kind.name(), &about.help, &about.unit).hash(&mut hasher);
        let said = hasher.finish();
        if self.described.get(&about.metric) == Some(&said) {
            return;
        }
        if let Some(open) = self.shards.first_mut() {
            let MetricMetadata { metric, kind, help, unit } = &about;
            open.writer.metadata(&Metadata { metric, kind: *kind, help, unit });
        }
        if self.described.len() >= NAMES_MAX {
            self.described.clear();
        }
        self.described.insert(about.metric, said);
    }

    /// Tells what a series was logged as, once, where its labels don't.
    fn name(&mut self, run: &RunPath, identity: &SeriesIdentity, points: &Placed) {
        let Some(first) = points.first() else { return };
        let metric = identity.labels.metric();
        if identity.display == metric || identity.labels.get("display").is_some() {
            return;
        }
        let mut labels = of_run(NAME_METRIC, run);
        let labels = labels.set("metric", metric).set("display", identity.display.as_str()).build();
        if self.named.len() >= NAMES_MAX {
            self.named.clear();
        }
        if self.named.insert(hash(&labels)) {
            self.put(&labels, vec![Point { time_ms: first.time_ms, value: 1.0 }]);
        }
    }

    /// Forgets what was given away and told, after a failure to keep it. What comes again finds its
    /// places as after a restart.
    pub(super) fn forget(&mut self) {
        self.slots = Slots::default();
        self.named.clear();
        self.described.clear();
    }

    /// Gives the places again that points of a group were given by earlier deliveries, after a restart
    /// forgot them: of all its series, since they share the milliseconds of their steps. The batch's own
    /// points are stored too; where they were queued before they are to find the same places.
    fn recall_group(
        &mut self,
        store: &Store,
        run: &RunPath,
        group: u64,
        batch: &[SeriesBatch],
        owners: &[Owner],
    ) {
        let mut labels = None;
        let mut own = HashSet::new();
        let (mut first_ns, mut last_ns) = (i64::MAX, i64::MIN);
        for (series, owner) in batch.iter().zip(owners).filter(|(_, owner)| owner.group == group) {
            labels = Some(&series.identity.labels);
            for sample in &series.samples {
                own.insert((owner.series, sample.time_ns));
                (first_ns, last_ns) = (first_ns.min(sample.time_ns), last_ns.max(sample.time_ns));
            }
        }
        let Some(labels) = labels else { return };
        let shift_ns = SHIFT_MS_MAX * NANOS_PER_MILLI;
        let from_ns = first_ns.saturating_sub(2 * shift_ns);
        // A batch of hours is looked at where it begins: its first points are the ones in the way.
        let to_ns = last_ns.min(first_ns.saturating_add(2 * shift_ns)).saturating_add(shift_ns);
        let run_id = run.id().to_string();
        let shared = |name| Matcher::equal(name, labels.get(name).unwrap_or_default());
        let matchers = [Matcher::equal("run_id", &run_id), shared("scale"), shared("rank")];
        let (mut places, mut points) = (Vec::new(), Vec::new());
        for found in store.select(&matchers, from_ns, to_ns) {
            let (at, series) = (places.len(), hash(&found.labels));
            places.push(Owner { series, group });
            // What can't be read was reported by the store; a place more or less is no reason to stop.
            let _ = store.read(found.id, from_ns, to_ns, &mut |chunk| {
                for sample in chunk.samples().into_iter().flatten() {
                    let is_near = (from_ns..=to_ns).contains(&sample.time_ns);
                    if is_near && !own.contains(&(series, sample.time_ns)) {
                        points.push(Waiting::new(at, sample));
                    }
                }
                ControlFlow::Continue(())
            });
        }
        line_up(&mut points);
        for Waiting { of, sample, .. } in points {
            self.slots.place(places[of], sample.time_ns, sample.step);
        }
    }

    /// Gives the places again that a series' points just before `samples` were given, where its group
    /// was recalled for another time.
    fn recall(&mut self, store: &Store, identity: &SeriesIdentity, owner: Owner, samples: &[Sample]) {
        let Some(first_ns) = samples.iter().map(|s| s.time_ns).min() else { return };
        let Some(id) = store.series_number(identity) else { return };
        let from_ns = first_ns.saturating_sub(2 * SHIFT_MS_MAX * NANOS_PER_MILLI);
        let is_older =
            store.series(id).is_some_and(|known| known.time_ns.0 < first_ns && known.time_ns.1 >= from_ns);
        if !is_older {
            return;
        }
        let slots = &mut self.slots;
        // What can't be read was reported by the store; a place more or less is no reason to stop.
        let _ = store.read(id, from_ns, first_ns, &mut |chunk| {
            for sample in chunk.samples().into_iter().flatten() {
                if (from_ns..first_ns).contains(&sample.time_ns) {
                    slots.place(owner, sample.time_ns, sample.step);
                }
            }
            ControlFlow::Continue(())
        });
    }
}

/// A point that looks for its place.
#[derive(Debug, Clone, Copy)]
struct Waiting {
    /// Its series, by place in a list.
    of: usize,
    sample: Sample,
    /// Millisecond and step that it waits by.
    turn: (i64, Option<i64>),
}

impl Waiting {
    fn new(of: usize, sample: Sample) -> Self {
        Self { of, sample, turn: (sample.time_ns.div_euclid(NANOS_PER_MILLI), sample.step) }
    }
}

/// Puts points into the order in which they are placed: by millisecond and step, so that a step's points
/// find one place however many its series had before in that millisecond. A series keeps its own order.
fn line_up(points: &mut [Waiting]) {
    points.sort_by_key(|point| (point.of, point.sample.time_ns, point.sample.step));
    let mut before: Option<Waiting> = None;
    for point in points.iter_mut() {
        if let Some(before) = before.filter(|b| (b.of, b.turn.0) == (point.of, point.turn.0)) {
            point.turn.1 = point.turn.1.max(before.turn.1);
        }
        before = Some(*point);
    }
    points.sort_by_key(|point| point.turn);
}

fn is_plain(label: &str) -> bool {
    let starts = |b: &u8| b.is_ascii_alphabetic() || *b == b'_';
    label.as_bytes().first().is_some_and(starts) && label.bytes().all(|b| starts(&b) || b.is_ascii_digit())
}

fn hash(labels: &Labels) -> u64 {
    let mut hasher = DefaultHasher::new();
    labels.hash(&mut hasher);
    hasher.finish()
}

/// The labels of a series of ours about a run.
fn of_run(metric: &str, run: &RunPath) -> LabelsBuilder {
    let mut labels = Labels::builder();
    labels
        .metric(metric)
        .set("organization", run.organization.as_str())
        .set("workspace", run.workspace.as_str())
        .set("project", run.project.as_str())
        .set("run", run.run.as_str())
        .set("run_id", run.id().to_string());
    labels
}

/// The series that tells the steps of a writer's points beside `of`.
fn companion(run: &RunPath, writer: Option<WriterId>, of: &Labels) -> Labels {
    let hex = |id: u64, byte: &u8| id << 8 | u64::from(*byte);
    let writer = writer.map_or_else(String::new, |w| format!("{:016x}", w[..8].iter().fold(0, hex)));
    let mut labels = of_run(STEP_METRIC, run);
    labels.set("writer", writer);
    for shared in ["scale", "rank"] {
        labels.set(shared, of.get(shared).unwrap_or_default());
    }
    labels.build()
}

#[cfg(test)]
mod tests {
    use model::RunChange;
    use store::{Batch, Options};

    use super::*;

    const T: i64 = 1_700_000_000_000 * NANOS_PER_MILLI;
    const WRITER: WriterId = [1; 16];

    fn run() -> RunPath {
        let name = |name: &str| name.to_owned();
        RunPath { organization: name("o"), workspace: name("w"), project: name("p"), run: name("r") }
    }

    /// What a run logs in bursts, stamped on the millisecond as clients do, cut into deliveries: `loss`
    /// and `rate` in each step, `accuracy` in every fifth, after the others.
    fn deliveries(seed: u64, calls: i64) -> Vec<Vec<SeriesBatch>> {
        let mut state = seed;
        let mut random = |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % below
        };
        let path = run();
        let identity = |name| model::series_identity(&path, name, "", &[]);
        let series = |name| SeriesBatch { identity: identity(name), samples: Vec::new() };
        let fresh = || ["loss", "rate", "accuracy"].map(series).to_vec();
        let (mut now_ns, mut latest, mut open, mut done) = (T, [0; 3], fresh(), Vec::new());
        for step in 0..calls {
            now_ns += [0, 0, 0, 1, 25][random(5) as usize] * NANOS_PER_MILLI;
            for at in 0..if step % 5 == 4 { 3 } else { 2 } {
                latest[at] = now_ns.max(latest[at] + 1);
                let value = step as f64;
                open[at].samples.push(Sample { time_ns: latest[at], value, step: Some(step) });
                // A delivery may end between the series of a call.
                if random(20) == 0 {
                    done.push(std::mem::replace(&mut open, fresh()));
                }
            }
        }
        done.push(open);
        for delivery in &mut done {
            delivery.retain(|series| !series.samples.is_empty());
        }
        done.retain(|delivery| !delivery.is_empty());
        done
    }

    fn pack(packer: &mut Packer, store: &Store, series: Vec<SeriesBatch>) -> Vec<Vec<u8>> {
        packer.add(store, Outgoing { pushed: Some((run(), WRITER)), series, ..Outgoing::default() });
        packer.finish().0.into_iter().flatten().map(|packed| packed.body).collect()
    }

    #[test]
    fn a_delivery_finds_its_places_again_after_a_restart() {
        for seed in 0..20 {
            let dir = tempfile::tempdir().unwrap();
            let store = Store::open(dir.path(), Options::default()).unwrap();
            let config = StorageConfig::default();
            let (mut lasting, mut failing) = (Packer::new(&config), Packer::new(&config));
            for (number, series) in (1..).zip(deliveries(seed, 400)) {
                let change = Some(RunChange { path: run(), ..RunChange::default() });
                let batch = Batch {
                    writer: Some((WRITER, number)),
                    change,
                    series: series.clone(),
                    ..Batch::default()
                };
                store.append(batch).unwrap();
                let want = pack(&mut lasting, &store, series.clone());
                let again = pack(&mut Packer::new(&config), &store, series.clone());
                assert_eq!(again, want, "delivery {number} of {seed} after a restart");
                pack(&mut failing, &store, series.clone());
                failing.forget();
                assert_eq!(pack(&mut failing, &store, series), want, "delivery {number} of {seed}");
            }
        }
    }
}
