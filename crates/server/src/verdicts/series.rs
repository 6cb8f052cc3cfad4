//! Verdicts as series, so that an alert on one is a rule like any other. What holds no longer gets a stale marker.

use std::collections::{BTreeSet, HashMap};

use insight::straggler::Level;
use model::{NANOS_PER_SECOND, RunId, RunRecord, Sample, SeriesIdentity, series_identity, stale_marker};
use semconv::canonical::{
    RANK_SILENT_SECONDS, RUN_ETTR_RATIO, RUN_HANG, RUN_SLOWDOWN, RUN_STAGE_IMBALANCE, STRAGGLER,
};
use store::SeriesBatch;

use super::row::{CulpritRow, VerdictRow};
use super::{Known, figures};
use crate::app::Shared;
use crate::clock::to_ms;

/// A series of a run's verdict: its name and what tells it from others.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct SeriesKey {
    name: &'static str,
    labels: Vec<(String, String)>,
}

impl SeriesKey {
    fn new(name: &'static str, labels: &[(&str, String)]) -> Self {
        let labels = labels.iter().filter(|(_, value)| !value.is_empty());
        Self { name, labels: labels.map(|(name, value)| ((*name).to_owned(), value.clone())).collect() }
    }

    /// The series of a verdict.
    pub(super) fn of(row: &VerdictRow) -> Vec<Self> {
        let text = |value: &Option<String>| value.clone().unwrap_or_default();
        let straggler = |rank: String, gpu: String| {
            let (host, cause) = (text(&row.host), text(&row.cause));
            let level = row.level.clone();
            let labels = [("rank", rank), ("host", host), ("gpu", gpu), ("cause", cause), ("level", level)];
            Self::new(STRAGGLER.name, &labels)
        };
        let slowdown = |class: &str| {
            let labels = [("class", class.to_owned()), ("level", row.level.clone())];
            vec![Self::new(RUN_SLOWDOWN.name, &labels)]
        };
        match row.class.as_str() {
            "straggler" | "consistently_last" => {
                row.ranks.iter().map(|rank| straggler(rank.to_string(), text(&row.gpu))).collect()
            }
            "node" => vec![straggler(String::new(), String::new())],
            "stage_imbalance" => {
                let stage = row.stage.map(|stage| stage.to_string()).unwrap_or_default();
                vec![Self::new(RUN_STAGE_IMBALANCE.name, &[("stage", stage)])]
            }
            "rotating" | "communication" => slowdown(&row.class),
            "slowdown" => slowdown("step_change"),
            "silent" => row.culprits.iter().map(Self::silent).collect(),
            // A loop that may have ended wakes nobody; `RunIdle` tells of it.
            "hang" if row.level != Level::Page.word() => Vec::new(),
            "hang" if row.ranks.is_empty() => vec![Self::new(RUN_HANG.name, &[])],
            "hang" => {
                let of_rank = |rank: &u32| Self::new(RUN_HANG.name, &[("rank", rank.to_string())]);
                row.ranks.iter().map(of_rank).collect()
            }
            _ => Vec::new(),
        }
    }

    fn silent(of: &CulpritRow) -> Self {
        let host = of.host.clone().unwrap_or_default();
        Self::new(RANK_SILENT_SECONDS.name, &[("rank", of.rank.to_string()), ("host", host)])
    }

    fn identity(&self, run: &RunRecord) -> SeriesIdentity {
        series_identity(&run.path, self.name, "", &self.labels)
    }

    fn value(&self, row: &VerdictRow, time_ns: i64) -> f64 {
        match self.name {
            name if name == STRAGGLER.name => row.gain_ratio.unwrap_or(0.0),
            name if name == RANK_SILENT_SECONDS.name => {
                let since = row.culprits.iter().find(|of| Self::silent(of) == *self);
                let since = since.and_then(|of| of.last_step_time).unwrap_or(row.since);
                (to_ms(time_ns) - since).max(0) as f64 / 1e3
            }
            name if name == RUN_STAGE_IMBALANCE.name => row.rho.unwrap_or(1.0),
            _ => 1.0,
        }
    }
}

/// Whether a metric is the server's statement on a run.
pub(crate) fn is_verdict(metric: &str) -> bool {
    [STRAGGLER, RUN_HANG, RANK_SILENT_SECONDS, RUN_STAGE_IMBALANCE, RUN_SLOWDOWN, RUN_ETTR_RATIO]
        .iter()
        .any(|desc| desc.name == metric)
}

/// Series by run, as they are written.
type Written = HashMap<RunId, BTreeSet<SeriesKey>>;

/// What is to be stored at `time_ns`: all that holds when it is due, else what is new, and the ends of what was
/// written before; and what is written then.
pub(super) fn write(
    shared: &Shared,
    known: &Known,
    is_due: bool,
    time_ns: i64,
) -> (Vec<SeriesBatch>, Written) {
    let mut series = Vec::new();
    let mut written = Written::new();
    let batch =
        |identity, value| SeriesBatch { identity, samples: vec![Sample { time_ns, value, step: None }] };
    for (id, keeper) in known.keepers.iter().filter(|(_, keeper)| keeper.is_open()) {
        let Some(run) = shared.store.run(*id) else { continue };
        let before = known.written.get(id);
        let mut keys = BTreeSet::new();
        for row in keeper.rows() {
            for key in SeriesKey::of(row) {
                if is_due || before.is_none_or(|before| !before.contains(&key)) {
                    series.push(batch(key.identity(&run), key.value(row, time_ns)));
                }
                keys.insert(key);
            }
        }
        written.insert(*id, keys);
    }
    for (id, before) in &known.written {
        // A run that is deleted takes its series with it.
        let Some(run) = shared.store.run(*id) else { continue };
        let now = written.get(id);
        let gone = before.iter().filter(|key| now.is_none_or(|now| !now.contains(key)));
        series.extend(gone.map(|key| batch(key.identity(&run), stale_marker())));
    }
    if is_due {
        let now_ns = time_ns.max(NANOS_PER_SECOND);
        for (id, watch) in &known.watches {
            let Some(run) = shared.store.run(*id) else { continue };
            if let Some(ratio) = figures::ettr(&run, &watch.kept, now_ns) {
                let key = SeriesKey::new(RUN_ETTR_RATIO.name, &[]);
                series.push(batch(key.identity(&run), ratio));
            }
        }
    }
    (series, written)
}
