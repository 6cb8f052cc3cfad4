//! Runs beside each other: what their metrics came to, alone and in groups.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

use model::{AttributeValue, RunRecord};
use store::{ReadError, SeriesInfo, Store};

/// A value and the step of its point.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct At {
    pub(crate) value: f64,
    pub(crate) step: Option<i64>,
}

/// What one series, or all series of one metric in one run, came to.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Outcome {
    /// Series.
    pub(crate) series: u32,
    pub(crate) points: u64,
    /// The latest value: of several series the mean of those that are finite.
    pub(crate) last: At,
    /// The least finite value; none where there is none.
    pub(crate) min: Option<At>,
    /// The greatest finite value.
    pub(crate) max: Option<At>,
}

impl Outcome {
    /// Reads a series; with `step_max` only its points up to that step. None when it has none.
    pub(crate) fn of(
        store: &Store,
        series: &SeriesInfo,
        step_max: Option<i64>,
    ) -> Result<Option<Self>, ReadError> {
        let mut found = Search::default();
        let mut partly: Vec<(i64, i64)> = Vec::new();
        store.scan(series.id, i64::MIN, i64::MAX, &mut |block| {
            let summary = block.summary();
            let whole = match (step_max, summary.steps) {
                (None, _) => true,
                // Within the bound only if every point has a step; else the points have to tell.
                (Some(bound), Some((least, greatest))) => {
                    if least > bound {
                        return ControlFlow::Continue(());
                    }
                    greatest <= bound && summary.last_step.is_some()
                }
                (Some(_), None) => return ControlFlow::Continue(()),
            };
            if !whole {
                partly.push(summary.time_ns);
                return ControlFlow::Continue(());
            }
            found.points += u64::from(summary.count);
            let last = At { value: summary.last, step: summary.last_step };
            found.last_at(summary.time_ns.1, last);
            if summary.min.is_finite() {
                found.low(summary.min, Place::Chunk(summary.time_ns));
                found.high(summary.max, Place::Chunk(summary.time_ns));
            }
            ControlFlow::Continue(())
        })?;
        for span_ns in partly {
            points(store, series, span_ns, &mut |time_ns, at| {
                if at.step.is_none_or(|step| Some(step) > step_max) {
                    return;
                }
                found.points += 1;
                found.last_at(time_ns, at);
                if at.value.is_finite() {
                    found.low(at.value, Place::Step(at.step));
                    found.high(at.value, Place::Step(at.step));
                }
            })?;
        }
        let Some((_, last)) = found.last else { return Ok(None) };
        let (min, max) = (found.min.map(|found| found.at(store, series)), found.max);
        let max = max.map(|found| found.at(store, series));
        Ok(Some(Self { series: 1, points: found.points, last, min: min.transpose()?, max: max.transpose()? }))
    }

    /// Puts several series together.
    pub(crate) fn together(all: &[Self]) -> Option<Self> {
        let first = all.first()?;
        let pick = |of: fn(&Self) -> Option<At>, better: fn(f64, f64) -> bool| {
            all.iter().filter_map(of).reduce(|a, b| if better(b.value, a.value) { b } else { a })
        };
        let step = all.iter().filter_map(|one| one.last.step).max();
        let value =
            Spread::of(all.iter().map(|one| one.last.value)).map_or(first.last.value, |spread| spread.mean);
        Some(Self {
            series: all.iter().map(|one| one.series).sum(),
            points: all.iter().map(|one| one.points).sum(),
            last: At { value, step },
            min: pick(|one| one.min, |a, b| a < b),
            max: pick(|one| one.max, |a, b| a > b),
        })
    }
}

/// Where an extreme lies: its step is known, or it is somewhere in a chunk.
#[derive(Debug, Clone, Copy)]
enum Place {
    Step(Option<i64>),
    Chunk((i64, i64)),
}

#[derive(Debug, Clone, Copy)]
struct Extreme(f64, Place);

impl Extreme {
    fn at(self, store: &Store, series: &SeriesInfo) -> Result<At, ReadError> {
        let Self(value, place) = self;
        let step = match place {
            Place::Step(step) => step,
            Place::Chunk(span_ns) => {
                let mut step = None;
                points(store, series, span_ns, &mut |_, at| {
                    if at.value == value && step.is_none() {
                        step = Some(at.step);
                    }
                })?;
                step.flatten()
            }
        };
        Ok(At { value, step })
    }
}

#[derive(Debug, Default)]
struct Search {
    points: u64,
    last: Option<(i64, At)>,
    min: Option<Extreme>,
    max: Option<Extreme>,
}

impl Search {
    fn last_at(&mut self, time_ns: i64, at: At) {
        if self.last.is_none_or(|(latest_ns, _)| time_ns >= latest_ns) {
            self.last = Some((time_ns, at));
        }
    }

    fn low(&mut self, value: f64, place: Place) {
        if self.min.is_none_or(|known| value < known.0) {
            self.min = Some(Extreme(value, place));
        }
    }

    fn high(&mut self, value: f64, place: Place) {
        if self.max.is_none_or(|known| value > known.0) {
            self.max = Some(Extreme(value, place));
        }
    }
}

/// The points of a span, in order of time.
fn points(
    store: &Store,
    series: &SeriesInfo,
    (from_ns, to_ns): (i64, i64),
    visit: &mut dyn FnMut(i64, At),
) -> Result<(), ReadError> {
    let mut failed = None;
    store.read(series.id, from_ns, to_ns, &mut |chunk| match chunk.samples() {
        Ok(samples) => {
            for sample in samples.iter().filter(|sample| (from_ns..=to_ns).contains(&sample.time_ns)) {
                visit(sample.time_ns, At { value: sample.value, step: sample.step });
            }
            ControlFlow::Continue(())
        }
        Err(error) => {
            failed = Some(error);
            ControlFlow::Break(())
        }
    })?;
    failed.map_or(Ok(()), Err)
}

/// Mean, least and greatest of some values.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Spread {
    pub(crate) count: u32,
    pub(crate) mean: f64,
    pub(crate) min: f64,
    pub(crate) max: f64,
}

impl Spread {
    /// Of those that are finite; none where there is none.
    pub(crate) fn of(values: impl Iterator<Item = f64>) -> Option<Self> {
        let mut spread: Option<Self> = None;
        for value in values.filter(|value| value.is_finite()) {
            let Some(known) = &mut spread else {
                spread = Some(Self { count: 1, mean: value, min: value, max: value });
                continue;
            };
            known.count += 1;
            // Step by step: two of the largest numbers have a mean, too.
            let share = f64::from(known.count);
            known.mean = known.mean * ((share - 1.0) / share) + value / share;
            known.min = known.min.min(value);
            known.max = known.max.max(value);
        }
        spread
    }
}

/// What series are put together by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum GroupBy {
    Tag,
    Host,
    Rank,
    /// An attribute of the run.
    Attribute(String),
}

impl GroupBy {
    /// Reads `tag`, `host`, `rank`, or an attribute's key, which `attribute:` may stand in front of.
    pub(crate) fn parse(text: &str) -> Self {
        match text {
            "tag" => Self::Tag,
            "host" => Self::Host,
            "rank" => Self::Rank,
            key => Self::Attribute(key.strip_prefix("attribute:").unwrap_or(key).to_owned()),
        }
    }

    /// Names of the groups that a series belongs to: several where its run has several tags.
    pub(crate) fn groups_of(&self, run: &RunRecord, series: &SeriesInfo) -> Vec<String> {
        match self {
            Self::Tag if run.tags.is_empty() => vec!["without a tag".to_owned()],
            Self::Tag => run.tags.iter().cloned().collect(),
            Self::Host => {
                let label = series.labels.get("host").map(str::to_owned);
                vec![label.or_else(|| only_host(run)).unwrap_or_else(|| "without host".to_owned())]
            }
            Self::Rank => {
                vec![series.labels.get("rank").map_or_else(|| "without rank".to_owned(), str::to_owned)]
            }
            Self::Attribute(key) => {
                let value = run.attributes.get(key);
                vec![value.map_or_else(|| "without it".to_owned(), text_of)]
            }
        }
    }
}

fn only_host(run: &RunRecord) -> Option<String> {
    let hosts: BTreeSet<&String> = run.sessions.iter().map(|session| &session.facts.host).collect();
    let mut hosts = hosts.into_iter();
    hosts.next().filter(|host| !host.is_empty() && hosts.next().is_none()).cloned()
}

/// An attribute as text.
pub(crate) fn text_of(value: &AttributeValue) -> String {
    match value {
        AttributeValue::Null => "null".to_owned(),
        AttributeValue::Bool(value) => value.to_string(),
        AttributeValue::Int(value) => value.to_string(),
        AttributeValue::Float(value) => value.to_string(),
        AttributeValue::Text(value) => value.clone(),
    }
}

/// Attributes that are not the same in all runs, those of the configuration first: key, and what each
/// run has.
pub(crate) fn differences<'r>(
    runs: impl Iterator<Item = &'r RunRecord> + Clone,
) -> Vec<(&'r str, Vec<Option<&'r AttributeValue>>)> {
    let keys: BTreeSet<&str> =
        runs.clone().flat_map(|run| run.attributes.keys().map(String::as_str)).collect();
    let mut all: Vec<_> = keys
        .into_iter()
        .map(|key| (key, runs.clone().map(|run| run.attributes.get(key)).collect::<Vec<_>>()))
        .filter(|(_, values)| values.iter().any(|value| *value != values[0]))
        .collect();
    all.sort_by_key(|(key, _)| !key.starts_with("config/"));
    all
}

/// Which way a metric is better, as far as its name tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Better {
    Lower,
    Higher,
}

/// Words that say so; the first that is found counts.
const LOWER: [&str; 13] = [
    "loss",
    "error",
    "perplexity",
    "ppl",
    "wer",
    "cer",
    "mae",
    "mse",
    "rmse",
    "fid",
    "bpb",
    "latency",
    "seconds",
];
const HIGHER: [&str; 16] = [
    "accuracy",
    "acc",
    "f1",
    "auc",
    "bleu",
    "rouge",
    "reward",
    "recall",
    "precision",
    "score",
    "mfu",
    "tflops",
    "throughput",
    "tokens_per_second",
    "samples_per_second",
    "goodput",
];

impl Better {
    /// Of a metric's name as logged; none where no word of it is known.
    pub(crate) fn of(name: &str) -> Option<Self> {
        let name = name.to_lowercase();
        let rates = ["_per_second", "throughput"];
        if rates.iter().any(|rate| name.contains(rate)) {
            return Some(Self::Higher);
        }
        let words: Vec<&str> = name.split(|c: char| !c.is_ascii_alphanumeric()).collect();
        let has = |known: &[&str]| known.iter().any(|word| words.contains(word));
        if has(&LOWER) {
            Some(Self::Lower)
        } else if has(&HIGHER) {
            Some(Self::Higher)
        } else {
            None
        }
    }
}

/// Sorts metrics: those of loss first, then those of the training, then those of the machine.
pub(crate) fn rank(display: &str) -> (u8, &str) {
    let class = match Better::of(display) {
        _ if display.starts_with("system/") => 3,
        Some(_) if display.to_lowercase().contains("loss") => 0,
        Some(_) => 1,
        None => 2,
    };
    (class, display)
}

/// Groups of one metric: name, and the outcomes of its series with the runs that they are of.
pub(crate) type Groups = BTreeMap<String, (BTreeSet<usize>, Vec<Outcome>)>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_tell_which_way_is_better_or_nothing_is_said() {
        let check = |name, want| assert_eq!(Better::of(name), want, "{name}");
        check("val/loss", Some(Better::Lower));
        check("eval/F1", Some(Better::Higher));
        check("tokens_per_second", Some(Better::Higher));
        check("step_seconds", Some(Better::Lower));
        check("lr", None);
        check("glossary", None);
        check("access", None);
    }

    #[test]
    fn a_spread_leaves_out_what_is_not_finite_and_does_not_overflow() {
        let spread = Spread::of([f64::NAN, f64::MAX, f64::MAX, f64::INFINITY].into_iter()).unwrap();
        assert_eq!((spread.count, spread.min, spread.max), (2, f64::MAX, f64::MAX));
        assert!((spread.mean / f64::MAX - 1.0).abs() < 1e-12);
        assert_eq!(Spread::of([f64::NAN].into_iter()), None);
    }

    #[test]
    fn series_together_have_the_mean_of_their_last_and_the_outermost_values() {
        let one = |value: f64, low: f64| Outcome {
            series: 1,
            points: 3,
            last: At { value, step: Some(9) },
            min: Some(At { value: low, step: Some(1) }),
            max: Some(At { value: 10.0, step: Some(2) }),
        };
        let both = Outcome::together(&[one(1.0, 0.5), one(2.0, 0.25)]).unwrap();
        assert_eq!((both.series, both.points, both.last.value), (2, 6, 1.5));
        assert_eq!(both.min, Some(At { value: 0.25, step: Some(1) }));
        assert_eq!(Outcome::together(&[]), None);
    }
}
