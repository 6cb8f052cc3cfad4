//! What was stored here, as remote write: checked against the far end's limits, on its milliseconds,
//! with the steps beside it.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::ControlFlow;

use model::{Labels, LabelsBuilder, NANOS_PER_MILLI, RunPath, Sample, SeriesIdentity, WriterId};
use store::{MetricMetadata, SeriesBatch, Store};
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
        let mut points: Vec<(i64, Option<i64>, usize, f64)> = Vec::new();
        for (at, series) in batch.iter().enumerate() {
            // Writers share the milliseconds of a run's steps: their points may be of one series.
            let group = hash(&companion(run, None, &series.identity.labels));
            let owner = Owner { series: hash(&series.identity.labels), group };
            if !companions.iter().any(|(known, ..)| *known == group) {
                companions.push((group, companion(run, Some(writer), &series.identity.labels), Vec::new()));
            }
            if self.slots.is_unknown(owner.series) {
                self.recall(store, &series.identity, owner, &series.samples);
            }
            owners.push(owner);
            points.extend(series.samples.iter().map(|s| (s.time_ns, s.step, at, s.value)));
        }
        points.sort_by_key(|(time_ns, step, ..)| (*time_ns, *step));
        let mut placed: Vec<Placed> = batch.iter().map(|s| Vec::with_capacity(s.samples.len())).collect();
        let mut collapsed = BTreeMap::new();
        for (time_ns, step, at, value) in points {
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

    /// Gives the places again that a series' points just before `samples` were given, after a restart
    /// forgot them.
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
