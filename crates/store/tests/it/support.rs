//! What the tests build batches with and read stores by.

use std::ops::ControlFlow;
use std::path::Path;

use model::{
    DEFAULT_SCALE, RunChange, RunPath, Sample, SessionEvent, SessionFacts, WriterId, series_identity,
};
use store::{Batch, Options, SeriesBatch, SeriesId, SeriesInfo, Store};

/// 2027-01-15, on a whole second.
pub(crate) const T0: i64 = 1_800_000_000 * model::NANOS_PER_SECOND;
pub(crate) const MS: i64 = model::NANOS_PER_MILLI;

pub(crate) fn options() -> Options {
    Options { reserve_bytes: 0, clock: || T0, ..Options::default() }
}

/// Options of a store that makes no roll-ups.
pub(crate) fn raw_only() -> Options {
    Options { minute_retention_ns: 0, quarter_retention_ns: 0, ..options() }
}

pub(crate) fn open(dir: &Path) -> Store {
    Store::open(dir, options()).unwrap()
}

pub(crate) fn path(run: &str) -> RunPath {
    RunPath { project: "llm".into(), run: run.into(), ..RunPath::default() }
}

pub(crate) fn writer(n: u8) -> WriterId {
    [n; 16]
}

/// A batch with one series of `run`; `points` are (time, value, step).
pub(crate) fn batch(
    run: &str,
    metric: &str,
    points: impl IntoIterator<Item = (i64, f64, Option<i64>)>,
) -> Batch {
    let identity = series_identity(&path(run), metric, DEFAULT_SCALE, &[]);
    let samples = points.into_iter().map(|(time_ns, value, step)| Sample { time_ns, value, step }).collect();
    let change = Some(RunChange { path: path(run), ..RunChange::default() });
    Batch { change, series: vec![SeriesBatch { identity, samples }], ..Batch::default() }
}

/// The same from a writer that has a session.
pub(crate) fn sent(mut batch: Batch, writer: WriterId, sequence: u64) -> Batch {
    batch.writer = Some((writer, sequence));
    if let Some(change) = &mut batch.change {
        let facts = SessionFacts { job_token: "job".into(), ..SessionFacts::default() };
        let event = SessionEvent { time_ns: T0, opens: true, end: None, reason: String::new(), facts };
        change.session = Some((writer, event));
    }
    batch
}

/// Points a second apart from [`T0`] on; the value and the step count them.
pub(crate) fn line(from: i64, count: i64) -> impl Iterator<Item = (i64, f64, Option<i64>)> {
    (from..from + count).map(|n| (T0 + n * model::NANOS_PER_SECOND, n as f64, Some(n)))
}

pub(crate) fn series(store: &Store, run: &str, metric: &str) -> SeriesInfo {
    let all = store.run_series(path(run).id());
    all.into_iter().find(|s| &*s.display == metric).unwrap_or_else(|| panic!("no series {metric} in {run}"))
}

/// Every readable point; checks that chunks are in order, apart, and as their summaries say.
pub(crate) fn read(store: &Store, id: SeriesId) -> Vec<Sample> {
    read_range(store, id, i64::MIN, i64::MAX)
}

pub(crate) fn read_range(store: &Store, id: SeriesId, from_ns: i64, to_ns: i64) -> Vec<Sample> {
    let mut all: Vec<Sample> = Vec::new();
    store
        .read(id, from_ns, to_ns, &mut |chunk| {
            let summary = *chunk.summary();
            if let Some(last) = all.last() {
                assert!(summary.time_ns.0 > last.time_ns, "chunks overlap at {}", last.time_ns);
            }
            let samples = chunk.samples().unwrap();
            assert_eq!(samples.len(), summary.count as usize);
            assert_eq!((samples[0].time_ns, samples[samples.len() - 1].time_ns), summary.time_ns);
            let finite = || samples.iter().map(|s| s.value).filter(|v| v.is_finite());
            assert_eq!(finite().fold(f64::INFINITY, f64::min), summary.min);
            assert_eq!(finite().fold(f64::NEG_INFINITY, f64::max), summary.max);
            assert_eq!(samples.len() - finite().count(), summary.non_finite as usize);
            assert!(samples.is_sorted_by(|a, b| a.time_ns < b.time_ns), "points are out of order");
            all.extend(samples);
            ControlFlow::Continue(())
        })
        .unwrap();
    all
}

pub(crate) fn values(samples: &[Sample]) -> Vec<f64> {
    samples.iter().map(|s| s.value).collect()
}

/// Cases of a property: `few`, in proportion more where `PROPTEST_CASES` asks for more than its 256.
pub(crate) fn cases(few: u32) -> u32 {
    let asked = proptest::test_runner::Config::default().cases;
    (asked / 256 * few).max(few)
}
