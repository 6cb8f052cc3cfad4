//! Takes series in that come as labels and samples: scrapes and remote write.
//!
//! What can't be kept is refused and counted under a bounded reason, the rest is kept. Sending a
//! sample again changes nothing; another value at the same time takes the place of the first.

use std::collections::BTreeMap;

use model::{
    LABELS_PER_SERIES_MAX, Labels, MetricKind, NAME_BYTES_MAX, REFUSED_LABELS, RESERVED_LABELS, RunId,
    RunPath, Sample, SeriesIdentity, is_stale_marker,
};
use store::{AppendError, Batch, Bounds, Collision, MetricMetadata, Receipt, SeriesBatch, SeriesId};

use crate::adapters::LISTING;
use crate::app::Shared;
use crate::canonical::Origin;
use crate::far::Outgoing;
use crate::ingest::{outcome, shorten};

/// Longest label value at these doors, bytes.
const LABEL_VALUE_BYTES_MAX: usize = 1 << 10;
/// Put before a label of the sender's that has the name of one of a run's.
const EXPORTED: &str = "exported_";

/// What was refused: reason, how many samples, one example in words.
pub(crate) type Refused = Vec<(&'static str, u64, String)>;

/// What arrives together, checked.
#[derive(Debug)]
pub(crate) struct Intake {
    door: &'static str,
    is_own: bool,
    /// Labels that every series gets, whatever the sender says.
    stamp: Vec<(&'static str, String)>,
    batch: Batch,
    refused: Refused,
    /// Labels that points are refused for, with the job that sent them.
    refused_labels: BTreeMap<(&'static str, String), u64>,
    points: u64,
    bytes: usize,
}

/// What became of it.
#[derive(Debug)]
pub(crate) struct Taken {
    /// Samples that are durable now, those that were so before among them.
    pub(crate) written: u64,
    /// What is not kept.
    pub(crate) refused: Refused,
}

impl Intake {
    /// An empty one; `door` is its name in the counters.
    pub(crate) fn new(door: &'static str) -> Self {
        let batch = Batch { collision: Collision::LastWriteWins, ..Batch::default() };
        Self {
            door,
            is_own: false,
            stamp: Vec::new(),
            batch,
            refused: Vec::new(),
            refused_labels: BTreeMap::new(),
            points: 0,
            bytes: 1_024,
        }
    }

    /// An empty one for what this server makes itself: labels of runs are what they say.
    pub(crate) fn own(door: &'static str) -> Self {
        Self { is_own: true, ..Self::new(door) }
    }

    /// An empty one for what a sender brings that is confined to `bounds`: its series get these names,
    /// and what it says of metrics, which all share, is not kept.
    pub(crate) fn within(door: &'static str, bounds: &Bounds) -> Self {
        let stamp = bounds.iter().map(|(label, name)| (label, name.to_owned())).collect();
        Self { stamp, ..Self::new(door) }
    }

    /// Adds samples of a series by its number.
    pub(crate) fn points(&mut self, series: SeriesId, samples: impl ExactSizeIterator<Item = Sample>) {
        self.points += samples.len() as u64;
        self.bytes += samples.len() * size_of::<(SeriesId, Sample)>();
        self.batch.points.extend(samples.map(|sample| (series, sample)));
    }

    /// Adds samples of a series; its name is the label `__name__`. Returns its number if it has one.
    pub(crate) fn series_of<'l>(
        &mut self,
        shared: &Shared,
        labels: impl Iterator<Item = (&'l str, &'l str)>,
        samples: Vec<Sample>,
    ) -> Option<SeriesId> {
        let labels: Vec<(&str, &str)> = labels.collect();
        if labels.contains(&("__name__", LISTING)) {
            self.listing(shared, &labels, &samples);
            return None;
        }
        let at = self.batch.series.len();
        self.series(labels.into_iter(), samples);
        let known = self.batch.series.get(at).map(|series| &series.identity);
        known.and_then(|identity| shared.store.series_number(identity))
    }

    /// Adds the samples of a series that lists adapters to those of each of them. That a list has ended says
    /// nothing: its adapters go on in others.
    fn listing(&mut self, shared: &Shared, labels: &[(&str, &str)], samples: &[Sample]) {
        let door = self.door;
        let samples: Vec<Sample> =
            samples.iter().filter(|sample| !is_stale_marker(sample.value)).copied().collect();
        for (rest, adapter, state) in shared.adapters.unlisted(labels) {
            let job = rest.iter().find(|(name, _)| *name == "job").map_or("", |(_, job)| *job);
            shared.metrics.folded_labels.add(&[door, "lora_adapter", job], samples.len() as u64);
            let added = [("lora_adapter", adapter.as_str()), ("state", state)];
            self.series(rest.iter().copied().chain(added), samples.clone());
        }
    }

    /// Adds samples of a series; its name is the label `__name__`.
    pub(crate) fn series<'l>(
        &mut self,
        labels: impl Iterator<Item = (&'l str, &'l str)>,
        samples: Vec<Sample>,
    ) {
        if samples.is_empty() {
            return;
        }
        match identity(labels, self.is_own, &self.stamp) {
            Ok(identity) => {
                let labels: usize =
                    identity.labels.iter().map(|(name, value)| name.len() + value.len() + 32).sum();
                self.bytes +=
                    labels + identity.display.len() + samples.capacity() * size_of::<Sample>() + 128;
                self.points += samples.len() as u64;
                self.batch.series.push(SeriesBatch { identity, samples });
            }
            Err(Refusal { reason, example, label }) => {
                let count = samples.len() as u64;
                if let Some(label) = label {
                    *self.refused_labels.entry(label).or_default() += count;
                }
                self.refuse(reason, count, || example);
            }
        }
    }

    /// Counts what is not kept.
    pub(crate) fn refuse(&mut self, reason: &'static str, count: u64, example: impl FnOnce() -> String) {
        add(&mut self.refused, reason, count, example);
    }

    /// Adds what is said about a metric.
    pub(crate) fn describe(&mut self, metric: &str, kind: MetricKind, help: &str, unit: &str) {
        if !self.stamp.is_empty() {
            return;
        }
        self.bytes += metric.len() + help.len() + unit.len() + 128;
        self.batch.metadata.push(MetricMetadata {
            metric: metric.to_owned(),
            kind,
            help: help.to_owned(),
            unit: unit.to_owned(),
        });
    }

    /// What it holds in memory, bytes, near enough.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Stores it; blocks until it is durable.
    pub(crate) fn store(self, shared: &Shared) -> Result<Taken, AppendError> {
        let Self { door, is_own, batch, mut refused, refused_labels, points, .. } = self;
        let kept =
            if is_own { keep(shared, batch) } else { keep_canonical(shared, Origin::Elsewhere, batch) };
        let receipt = kept.inspect_err(|error| {
            shared.metrics.requests.add(&[door, outcome(error)], 1);
        })?;
        if !receipt.gone.is_empty() {
            // What was kept is kept; the series that went are named again with the next try.
            shared.known.forget();
            let reason = format!("{} series were removed meanwhile: send it again", receipt.gone.len());
            return Err(AppendError::Failed { reason });
        }
        let mut lost = 0;
        for (reason, count, example) in receipt.refused {
            lost += count;
            add(&mut refused, reason, count, || example);
        }
        shared.metrics.requests.add(&[door, "stored"], 1);
        shared.metrics.samples.add(&[door], receipt.stored);
        for (reason, count, _) in &refused {
            shared.metrics.rejected.add(&[door, reason], *count);
        }
        for ((label, job), count) in refused_labels {
            shared.metrics.refused_labels.add(&[door, label, &job], count);
        }
        Ok(Taken { written: points.saturating_sub(lost), refused })
    }
}

/// The same as [`keep`] and [`keep_of_runs`], with what the samples are under canonical names. The receipt is of the
/// originals.
pub(crate) fn keep_canonical(
    shared: &Shared,
    origin: Origin,
    mut batch: Batch,
) -> Result<Receipt, AppendError> {
    let originals = batch.series.len();
    let look = match origin {
        Origin::Elsewhere => shared.engine_watch.look(&shared.store, shared.canon.vocabulary(), &mut batch),
        Origin::Agent | Origin::Telemetry => None,
    };
    let made = shared.canon.apply(&shared.store, origin, &mut batch);
    let mut receipt = match origin {
        Origin::Telemetry => keep_of_runs(shared, batch)?,
        Origin::Agent | Origin::Elsewhere => keep(shared, batch)?,
    };
    shared.canon.settled(&receipt);
    if !receipt.gone.is_empty() {
        shared.engine_watch.forget_numbers();
    }
    for host in look.map(|look| shared.engine_watch.settled(look)).unwrap_or_default() {
        shared.live.host_changed(&host);
    }
    let mut lost = 0;
    for (_, reason, count) in receipt.refused_series.iter().filter(|(at, ..)| *at >= originals) {
        lost += count;
        shared.metrics.rejected.add(&["canonical", reason], *count);
        if let Some((_, total, _)) = receipt.refused.iter_mut().find(|(known, ..)| known == reason) {
            *total = total.saturating_sub(*count);
        }
    }
    receipt.refused.retain(|(_, count, _)| *count > 0);
    receipt.refused_series.retain(|(at, ..)| *at < originals);
    receipt.stored = receipt.stored.saturating_sub(made.saturating_sub(lost));
    Ok(receipt)
}

/// Stores a batch here, and queues it for the far storage where there is one.
pub(crate) fn keep(shared: &Shared, batch: Batch) -> Result<Receipt, AppendError> {
    let Some(far) = &shared.far else { return shared.store.append(batch) };
    if !(batch.series.is_empty() && batch.points.is_empty()) {
        far.check_room()?;
    }
    let outgoing = Outgoing { pushed: None, series: named(shared, &batch), metadata: batch.metadata.clone() };
    let receipt = shared.store.append(batch)?;
    far.take(&shared.store, outgoing, &receipt)?;
    Ok(receipt)
}

/// The same for what processes of runs send: their points keep apart at the far storage as pushed ones do.
pub(crate) fn keep_of_runs(shared: &Shared, batch: Batch) -> Result<Receipt, AppendError> {
    let Some(far) = &shared.far else { return shared.store.append(batch) };
    if !(batch.series.is_empty() && batch.points.is_empty()) {
        far.check_room()?;
    }
    let mut rest = Outgoing { metadata: batch.metadata.clone(), ..Outgoing::default() };
    let mut of_runs: BTreeMap<RunId, Outgoing> = BTreeMap::new();
    for series in named(shared, &batch) {
        let Some((run, id)) = run_of(&series.identity.labels) else {
            rest.series.push(series);
            continue;
        };
        let of_run = of_runs.entry(id).or_insert_with(|| {
            // Who sends is not told apart: nobody else of the run sends by this door.
            let mut writer = model::WriterId::default();
            writer[..8].copy_from_slice(&id.0);
            Outgoing { pushed: Some((run, writer)), ..Outgoing::default() }
        });
        of_run.series.push(series);
    }
    let receipt = shared.store.append(batch)?;
    for outgoing in std::iter::once(rest).chain(of_runs.into_values()) {
        far.take(&shared.store, outgoing, &receipt)?;
    }
    Ok(receipt)
}

/// The run that a series' labels name.
fn run_of(labels: &Labels) -> Option<(RunPath, RunId)> {
    let id = RunId::parse(labels.get("run_id")?)?;
    let text = |name| labels.get(name).unwrap_or_default().to_owned();
    let run = RunPath {
        organization: text("organization"),
        workspace: text("workspace"),
        project: text("project"),
        run: text("run"),
    };
    Some((run, id))
}

/// The series of a batch by name, also those that it names by number.
fn named(shared: &Shared, batch: &Batch) -> Vec<SeriesBatch> {
    let mut series = batch.series.clone();
    for part in batch.points.chunk_by(|a, b| a.0 == b.0) {
        let Some(info) = shared.store.series(part[0].0) else { continue };
        let identity =
            SeriesIdentity { labels: (*info.labels).clone(), display: info.display.as_ref().to_owned() };
        series.push(SeriesBatch { identity, samples: part.iter().map(|(_, sample)| *sample).collect() });
    }
    series
}

fn add(refused: &mut Refused, reason: &'static str, count: u64, example: impl FnOnce() -> String) {
    match refused.iter_mut().find(|(known, ..)| *known == reason) {
        Some((_, sum, _)) => *sum += count,
        None => refused.push((reason, count, shorten(example()))),
    }
}

/// Why there can't be a series.
struct Refusal {
    reason: &'static str,
    example: String,
    /// The label that is refused by its name, and the job.
    label: Option<(&'static str, String)>,
}

impl Refusal {
    fn new(reason: &'static str, example: String) -> Self {
        Self { reason, example, label: None }
    }
}

/// The series that labels name, where labels of runs are what they say; why there can't be one, and an
/// example.
pub(crate) fn own_identity<'l>(
    labels: impl Iterator<Item = (&'l str, &'l str)>,
) -> Result<SeriesIdentity, (&'static str, String)> {
    identity(labels, true, &[]).map_err(|refusal| (refusal.reason, shorten(refusal.example)))
}

/// The series that labels name, or why there can't be one.
/// Whether [`Intake::own`] surely keeps a series under these very labels.
pub(crate) fn keeps_as_is(labels: &Labels) -> bool {
    let is_plain = |name: &str| name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | ':'));
    labels.len() <= LABELS_PER_SERIES_MAX
        && !labels.metric().is_empty()
        && is_plain(labels.metric())
        && labels.iter().all(|(name, value)| {
            !REFUSED_LABELS.contains(&name)
                && name.len() <= NAME_BYTES_MAX
                && value.len() <= LABEL_VALUE_BYTES_MAX
        })
}

fn identity<'l>(
    labels: impl Iterator<Item = (&'l str, &'l str)>,
    is_own: bool,
    stamp: &[(&'static str, String)],
) -> Result<SeriesIdentity, Refusal> {
    let labels: Vec<(&str, &str)> = labels.collect();
    let display = labels.iter().find(|(name, _)| *name == "__name__").map_or("", |(_, value)| value);
    model::check_display_name(display).map_err(|error| Refusal::new(error.reason(), error.to_string()))?;
    let mut set = Labels::builder();
    for (name, value) in &labels {
        if let Some(label) = REFUSED_LABELS.into_iter().find(|refused| refused == name) {
            let why = format!(
                "`{display}` has the label `{name}`: each of its values would be a series of its own"
            );
            let job = labels.iter().find(|(name, _)| *name == "job").map_or("", |(_, job)| job).to_owned();
            return Err(Refusal { label: Some((label, job)), ..Refusal::new("label_refused", why) });
        }
        if name.len() > NAME_BYTES_MAX || value.len() > LABEL_VALUE_BYTES_MAX {
            let found = name.len().max(value.len());
            let why = format!(
                "`{display}` has a label of {found} bytes, at most {LABEL_VALUE_BYTES_MAX} are kept in a value and {NAME_BYTES_MAX} in a name"
            );
            return Err(Refusal::new("label_too_long", why));
        }
        let mut name = (*name).to_owned();
        if !is_own && RESERVED_LABELS.contains(&name.as_str()) {
            while labels.iter().any(|(other, _)| *other == name) {
                name.insert_str(0, EXPORTED);
            }
        }
        set.set(name, *value);
    }
    for (name, value) in stamp {
        set.set(*name, value.as_str());
    }
    set.metric(model::prometheus_name(display));
    if !display.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | ':' | '/')) {
        set.set("display", display);
    }
    let labels = set.build();
    let found = labels.len() - 1;
    if found > LABELS_PER_SERIES_MAX {
        let why = format!("`{display}` has {found} labels, at most {LABELS_PER_SERIES_MAX} are kept");
        return Err(Refusal::new("label_count", why));
    }
    Ok(SeriesIdentity { labels, display: display.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(labels: &[(&str, &str)]) -> Result<String, &'static str> {
        identity(labels.iter().copied(), false, &[])
            .map(|series| series.labels.to_string())
            .map_err(|refusal| refusal.reason)
    }

    #[test]
    fn labels_of_a_run_are_exported_and_never_meet_those_that_are() {
        assert_eq!(named(&[("__name__", "up"), ("run", "x")]), Ok("up{exported_run=\"x\"}".to_owned()));
        assert_eq!(
            named(&[("__name__", "up"), ("exported_run", "y"), ("run", "x")]),
            Ok("up{exported_exported_run=\"x\",exported_run=\"y\"}".to_owned())
        );
    }

    #[test]
    fn names_that_promql_can_not_spell_keep_their_form_as_a_label() {
        assert_eq!(named(&[("__name__", "gpu.power")]), Ok("gpu_power{display=\"gpu.power\"}".to_owned()));
        assert_eq!(named(&[("__name__", "gpu:power")]), Ok("gpu:power".to_owned()));
    }

    #[test]
    fn what_can_not_be_kept_has_a_reason() {
        let long = "x".repeat(1_025);
        assert_eq!(named(&[("a", "b")]), Err("metric_name"));
        assert_eq!(named(&[("__name__", "m"), ("trace_id", "1")]), Err("label_refused"));
        assert_eq!(named(&[("__name__", "m"), ("a", &long)]), Err("label_too_long"));
        let many: Vec<(String, String)> = (0..31).map(|n| (format!("l{n}"), "v".to_owned())).collect();
        let many: Vec<(&str, &str)> =
            many.iter().map(|(n, v)| (n.as_str(), v.as_str())).chain([("__name__", "m")]).collect();
        assert_eq!(named(&many), Err("label_count"));
    }
}
