//! Step times of ranks that export a histogram of them and no step by itself: the mean of what was added since the
//! last look counts as one step.

use std::collections::HashMap;

use model::{NANOS_PER_SECOND, RunId, is_stale_marker};
use store::{Matcher, Store};

use super::inbox::{Point, What};

/// The trainer's histogram, milliseconds.
const SUM: &str = "megatron_training_step_duration_ms_milliseconds_sum";
const COUNT: &str = "megatron_training_step_duration_ms_milliseconds_count";
/// How old a value may be, nanoseconds.
const FRESH_NS: i64 = 600 * NANOS_PER_SECOND;

/// What the histograms of a run's ranks said when they were used last.
#[derive(Debug, Default)]
pub(super) struct Means {
    /// Sum and count by rank.
    last: HashMap<u32, (f64, f64)>,
}

impl Means {
    /// A step of all ranks, once the histograms of all have grown.
    pub(super) fn points(&mut self, store: &Store, run: RunId, now_ns: i64) -> Vec<Point> {
        let (sums, counts) = (latest(store, run, SUM, now_ns), latest(store, run, COUNT, now_ns));
        let now: HashMap<u32, (f64, f64)> =
            sums.iter().filter_map(|(rank, sum)| Some((*rank, (*sum, *counts.get(rank)?)))).collect();
        // One rank has no peers, and one that is seen for the first time has told no mean yet.
        let grew = |(rank, (_, count)): (&u32, &(f64, f64))| {
            self.last.get(rank).is_none_or(|(_, before)| count != before)
        };
        if now.len() < 2 || !now.iter().all(grew) {
            return Vec::new();
        }
        let step = now.values().map(|(_, count)| *count).fold(0.0, f64::max) as i64;
        let mut points = Vec::new();
        for (rank, (sum, count)) in &now {
            let before = self.last.insert(*rank, (*sum, *count));
            let Some((sum_before, count_before)) = before.filter(|(_, before)| count > before) else {
                continue;
            };
            let value = (sum - sum_before) / (count - count_before) / 1e3;
            if value.is_finite() && value > 0.0 {
                let (what, rank) = (What::Step, *rank);
                points.push(Point { what, rank, step, time_ns: now_ns, value, adds: false });
            }
        }
        points
    }
}

/// The latest value of a counter of each rank.
fn latest(store: &Store, run: RunId, metric: &str, now_ns: i64) -> HashMap<u32, f64> {
    let id = run.to_string();
    let since_ns = now_ns.saturating_sub(FRESH_NS);
    let matchers = [Matcher::equal("__name__", metric), Matcher::equal("run_id", &id)];
    let value = |found: store::Found| {
        let rank = found.labels.get("dl_rank")?.parse().ok()?;
        let info = store.series(found.id)?;
        (info.time_ns.1 >= since_ns && !is_stale_marker(info.last)).then_some((rank, info.last))
    };
    store.select(&matchers, since_ns, i64::MAX).into_iter().filter_map(value).collect()
}

#[cfg(test)]
mod tests {
    use model::{RunPath, Sample, series_identity};
    use store::{Batch, SeriesBatch};

    use super::*;

    #[test]
    fn what_histograms_added_is_a_step_once_all_ranks_told() {
        let dir = tempfile::tempdir().unwrap();
        let store =
            Store::open(dir.path(), store::Options { reserve_bytes: 0, ..Default::default() }).unwrap();
        let path = RunPath { run: "r".into(), ..RunPath::default() };
        let mut means = Means::default();
        let mut say = |at: i64, told: &[(u32, f64, f64)]| {
            let time_ns = 1_800_000_000_000_000_000 + at * NANOS_PER_SECOND;
            let series = told.iter().flat_map(|(rank, sum, count)| {
                [(SUM, *sum), (COUNT, *count)].map(|(name, value)| {
                    let label = [("dl_rank".to_owned(), rank.to_string())];
                    let samples = vec![Sample { time_ns, value, step: None }];
                    SeriesBatch { identity: series_identity(&path, name, "", &label), samples }
                })
            });
            store.append(Batch { series: series.collect(), ..Batch::default() }).unwrap();
            let mut points = means.points(&store, path.id(), time_ns);
            points.sort_by_key(|point| point.rank);
            points.iter().map(|point| (point.rank, point.step, point.value)).collect::<Vec<_>>()
        };
        assert_eq!(say(0, &[(0, 1_000.0, 1.0), (1, 1_000.0, 1.0)]), []);
        assert_eq!(say(60, &[(0, 21_000.0, 21.0)]), [], "rank 1 has not told yet");
        assert_eq!(say(61, &[(1, 31_000.0, 21.0)]), [(0, 21, 1.0), (1, 21, 1.5)]);
        assert_eq!(say(120, &[(0, 5.0, 5.0), (1, 61_000.0, 41.0)]), [(1, 41, 1.5)], "rank 0 began anew");
    }
}
