//! One target's series: what they are called after relabelling, and which of them have ended.

use std::collections::{HashMap, HashSet};
use std::ops::ControlFlow;
use std::sync::Arc;

use model::{Labels, NANOS_PER_MILLI, Sample, stale_marker};

use crate::config::Job;
use crate::page::{
    MetricMetadata, PageEntry, PageFormat, PageParser, PageSample, ScrapedExemplar, ScrapedSample,
};
use crate::relabel::{self, LabelSet};

/// Most metrics of a target whose metadata is kept.
const METADATA_MAX: usize = 10_000;
/// Longest help text kept, bytes.
const HELP_BYTES_MAX: usize = 1 << 10;
/// Longest unit kept, bytes.
const UNIT_BYTES_MAX: usize = 64;
/// Longest name of a metric whose metadata is kept, bytes.
const METRIC_BYTES_MAX: usize = 256;

/// What is known of a target's series.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    /// By the page's own spelling.
    slots: HashMap<Box<str>, Slot>,
    round: u64,
    /// Series that were delivered under rules that no longer hold.
    leftover: Vec<Arc<Labels>>,
    metadata: HashMap<String, MetricMetadata>,
}

#[derive(Debug)]
struct Slot {
    /// None when relabelling drops the series.
    labels: Option<Arc<Labels>>,
    /// When it was last on a page.
    round: u64,
    /// Whether it is to get a marker when it vanishes: it has no times of its own.
    is_tracked: bool,
    /// Whether it was delivered and gets one.
    is_live: bool,
}

/// What a page comes to.
#[derive(Debug, Default)]
pub(crate) struct Taken {
    pub(crate) samples: Vec<ScrapedSample>,
    pub(crate) exemplars: Vec<ScrapedExemplar>,
    pub(crate) metadata: Vec<MetricMetadata>,
    /// Samples on the page.
    pub(crate) scraped: usize,
    /// Samples left after relabelling.
    pub(crate) kept: usize,
    /// Series that were not on the page before.
    pub(crate) added: usize,
}

/// Under which circumstances a page is taken.
pub(crate) struct Circumstances<'a> {
    pub(crate) job: &'a Job,
    pub(crate) target: &'a Labels,
    pub(crate) time_ms: i64,
    pub(crate) parser: &'a PageParser,
}

pub(crate) fn sample_at(time_ms: i64, value: f64) -> Sample {
    Sample { time_ns: time_ms.saturating_mul(NANOS_PER_MILLI), value, step: None }
}

impl Ledger {
    /// Takes a whole page, or says why it can't be taken. `taken` counts in both cases; its samples
    /// are to be used only when the page was taken.
    pub(crate) fn take(
        &mut self,
        format: PageFormat,
        page: &[u8],
        with: &Circumstances<'_>,
        taken: &mut Taken,
    ) -> Result<(), String> {
        self.round += 1;
        let mut failure = None;
        let mut metadata: HashMap<String, MetricMetadata> = HashMap::new();
        let parsed = (with.parser)(format, page, &mut |entry| match entry {
            PageEntry::Sample(sample) => match self.sample(sample, with, taken) {
                Ok(()) => ControlFlow::Continue(()),
                Err(why) => {
                    failure = Some(why);
                    ControlFlow::Break(())
                }
            },
            PageEntry::Kind { metric, kind } => learn(&mut metadata, metric, |m| m.kind = kind),
            PageEntry::Help { metric, text } => {
                learn(&mut metadata, metric, |m| cut(text, HELP_BYTES_MAX).clone_into(&mut m.help))
            }
            PageEntry::Unit { metric, unit } => {
                learn(&mut metadata, metric, |m| cut(unit, UNIT_BYTES_MAX).clone_into(&mut m.unit))
            }
        });
        if let Some(why) = failure.or(parsed.err()) {
            return Err(why);
        }
        self.settle(with.time_ms, taken);
        for (metric, facts) in &metadata {
            if self.metadata.get(metric) != Some(facts) {
                taken.metadata.push(facts.clone());
            }
        }
        taken.metadata.sort_by(|a, b| a.metric.cmp(&b.metric));
        self.metadata = metadata;
        Ok(())
    }

    fn sample(
        &mut self,
        sample: PageSample<'_>,
        with: &Circumstances<'_>,
        taken: &mut Taken,
    ) -> Result<(), String> {
        taken.scraped += 1;
        let honor = with.job.honor;
        let own_time = sample.time_ms.filter(|_| honor.timestamps);
        let is_tracked = own_time.is_none() || honor.track_staleness;
        let labels = if let Some(slot) = self.slots.get_mut(sample.series) {
            slot.round = self.round;
            slot.is_tracked = is_tracked;
            slot.labels.clone()
        } else {
            let labels = series_labels(sample.name, sample.labels, with)?.map(Arc::new);
            taken.added += usize::from(labels.is_some());
            let slot = Slot { labels: labels.clone(), round: self.round, is_tracked, is_live: false };
            self.slots.insert(sample.series.into(), slot);
            labels
        };
        let limit = with.job.limits.samples;
        // Series that relabelling drops cost memory too.
        if self.slots.len() > limit.saturating_mul(4).max(limit) {
            return Err(format!("the page has over {} series before relabelling", limit.saturating_mul(4)));
        }
        let Some(labels) = labels else { return Ok(()) };
        taken.kept += 1;
        if taken.kept > limit {
            return Err(format!(
                "the page has over {limit} samples: raise `sample_limit` if they are wanted"
            ));
        }
        let time_ms = own_time.unwrap_or(with.time_ms);
        if let Some(exemplar) = sample.exemplar {
            taken.exemplars.push(ScrapedExemplar {
                series: Arc::clone(&labels),
                labels: Labels::from_pairs(exemplar.labels),
                value: exemplar.value,
                time_ns: exemplar.time_ms.unwrap_or(time_ms).saturating_mul(NANOS_PER_MILLI),
            });
        }
        taken.samples.push(ScrapedSample { labels, sample: sample_at(time_ms, sample.value) });
        Ok(())
    }

    /// Ends what the page no longer has and forgets it.
    fn settle(&mut self, time_ms: i64, taken: &mut Taken) {
        let round = self.round;
        let mut ended = std::mem::take(&mut self.leftover);
        self.slots.retain(|_, slot| {
            if slot.round == round {
                slot.is_live = slot.is_tracked;
                return true;
            }
            if slot.is_live {
                ended.extend(slot.labels.take());
            }
            false
        });
        if ended.is_empty() {
            return;
        }
        // Two spellings may be one series after relabelling.
        let there: HashSet<&Labels> = self.slots.values().filter_map(|slot| slot.labels.as_deref()).collect();
        ended.retain(|labels| !there.contains(&**labels));
        taken.samples.extend(markers(ended, time_ms));
    }

    /// Markers for all series: the target did not answer, or is gone.
    ///
    /// A page that could not be taken whole is forgotten as well, so that a hostile one leaves nothing.
    pub(crate) fn end(&mut self, time_ms: i64, forget: bool) -> Vec<ScrapedSample> {
        let mut ended = std::mem::take(&mut self.leftover);
        for slot in self.slots.values_mut() {
            let was_live = std::mem::take(&mut slot.is_live);
            if was_live {
                ended.extend(slot.labels.clone());
            }
        }
        if forget {
            self.slots = HashMap::new();
            self.metadata = HashMap::new();
        }
        markers(ended, time_ms).collect()
    }

    /// New rules: names are settled anew, and what goes by none of them any more is ended then.
    pub(crate) fn reset(&mut self) {
        let live = self.slots.drain().filter(|(_, slot)| slot.is_live).filter_map(|(_, slot)| slot.labels);
        self.leftover.extend(live);
    }
}

fn markers(ended: Vec<Arc<Labels>>, time_ms: i64) -> impl Iterator<Item = ScrapedSample> {
    ended.into_iter().map(move |labels| ScrapedSample { labels, sample: sample_at(time_ms, stale_marker()) })
}

fn learn(
    metadata: &mut HashMap<String, MetricMetadata>,
    metric: &str,
    set: impl FnOnce(&mut MetricMetadata),
) -> ControlFlow<()> {
    let is_known = metadata.contains_key(metric);
    if metric.len() <= METRIC_BYTES_MAX && (is_known || metadata.len() < METADATA_MAX) {
        let facts = metadata.entry(metric.to_owned()).or_default();
        if !is_known {
            metric.clone_into(&mut facts.metric);
        }
        set(facts);
    }
    ControlFlow::Continue(())
}

fn cut(text: &str, bytes: usize) -> &str {
    let end = (0..=bytes.min(text.len())).rev().find(|at| text.is_char_boundary(*at));
    &text[..end.unwrap_or(0)]
}

/// The labels of a series after the target's labels and `metric_relabel_configs`; none when dropped.
fn series_labels<'a>(
    name: &str,
    labels: &mut dyn Iterator<Item = (&'a str, &'a str)>,
    with: &Circumstances<'_>,
) -> Result<Option<Labels>, String> {
    let on_page: Vec<(&str, &str)> = labels.collect();
    let mut set: LabelSet = on_page.iter().copied().collect();
    set.set("__name__", name);
    let mut conflicts = Vec::new();
    for (name, value) in with.target.iter() {
        let found = on_page.iter().find(|(known, _)| *known == name);
        if with.job.honor.labels {
            if found.is_none() {
                set.set(name, value);
            }
            continue;
        }
        if let Some((_, found)) = found.filter(|(_, value)| !value.is_empty()) {
            conflicts.push((name, *found));
        }
        set.set(name, value);
    }
    conflicts.sort_by_key(|(name, _)| name.len());
    for (name, value) in conflicts {
        let mut renamed = format!("exported_{name}");
        while !set.get(&renamed).is_empty() {
            renamed.insert_str(0, "exported_");
        }
        set.set(renamed, value);
    }
    if !relabel::apply(&with.job.metric_relabel, &mut set) {
        return Ok(None);
    }
    if set.get("__name__").is_empty() {
        return Err(format!("the series `{name}` has no name after relabelling"));
    }
    let labels = set.to_labels();
    check(name, &labels, with.job)?;
    Ok(Some(labels))
}

fn check(metric: &str, labels: &Labels, job: &Job) -> Result<(), String> {
    let metric = cut(metric, METRIC_BYTES_MAX);
    let limits = &job.limits;
    if limits.labels > 0 && labels.len() > limits.labels {
        let found = labels.len();
        return Err(format!("a series of `{metric}` has {found} labels, `label_limit` is {}", limits.labels));
    }
    for (name, value) in labels.iter() {
        let shown = cut(name, METRIC_BYTES_MAX);
        if limits.label_name_bytes > 0 && name.len() > limits.label_name_bytes {
            return Err(format!(
                "a label of `{metric}` has a name of {} bytes, `label_name_length_limit` is {}",
                name.len(),
                limits.label_name_bytes
            ));
        }
        if limits.label_value_bytes > 0 && value.len() > limits.label_value_bytes {
            return Err(format!(
                "the label `{shown}` of `{metric}` has {} bytes, `label_value_length_limit` is {}",
                value.len(),
                limits.label_value_bytes
            ));
        }
    }
    Ok(())
}
