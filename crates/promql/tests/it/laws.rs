//! Laws: kernels equal their naive definitions, and ranges equal many instants.

use model::Labels;
use promql::{Data, MemorySource, Options, Query};
use proptest::prelude::*;

/// Seconds and values, rising in time.
fn samples() -> impl Strategy<Value = Vec<(i64, f64)>> {
    prop::collection::vec((1..40_i64, prop_oneof![4 => 0.0..100.0, 1 => Just(0.0)]), 0..60).prop_map(
        |steps| {
            let mut time = 0;
            steps
                .into_iter()
                .map(|(gap, value)| {
                    time += gap;
                    (time, value)
                })
                .collect()
        },
    )
}

fn source(samples: &[(i64, f64)]) -> MemorySource {
    let mut source = MemorySource::new();
    for (time, value) in samples {
        source.push(Labels::from_pairs([("__name__", "c_total")]), time * 1_000_000_000, *value);
    }
    source
}

fn value(text: &str, source: &MemorySource, time: i64) -> Option<f64> {
    let answer = Query::parse(text).unwrap().instant(source, time * 1000, &Options::default()).unwrap();
    match answer.data {
        Data::Vector { samples, .. } => samples.first().map(|(_, value)| *value),
        _ => None,
    }
}

fn close(a: Option<f64>, b: Option<f64>) -> bool {
    match (a, b) {
        (Some(a), Some(b)) => {
            a == b || (a - b).abs() <= 1e-9 * (a.abs() + b.abs()) || (a.is_nan() && b.is_nan())
        }
        (None, None) => true,
        _ => false,
    }
}

/// The growth as the documentation defines it, written as plainly as possible.
fn naive_increase(window: &[(i64, f64)], start: i64, end: i64) -> Option<f64> {
    if window.len() < 2 {
        return None;
    }
    let mut total = 0.0;
    for pair in window.windows(2) {
        total += if pair[1].1 < pair[0].1 { pair[1].1 } else { pair[1].1 - pair[0].1 };
    }
    let first = window[0];
    let last = window[window.len() - 1];
    let covered = (last.0 - first.0) as f64;
    let usual = covered / (window.len() - 1) as f64;
    let reach = |gap: f64| if gap >= 1.1 * usual { usual / 2.0 } else { gap };
    let mut before = reach((first.0 - start) as f64);
    if total > 0.0 {
        before = before.min(covered * first.1 / total);
    }
    let after = reach((end - last.0) as f64);
    Some(total * (covered + before + after) / covered)
}

proptest! {
    #[test]
    fn increase_and_rate_equal_their_definition(samples in samples(), at in 0..1200_i64, range in 1..600_i64) {
        let source = source(&samples);
        let window: Vec<(i64, f64)> =
            samples.iter().copied().filter(|(time, _)| *time > at - range && *time <= at).collect();
        let wanted = naive_increase(&window, at - range, at);
        let found = value(&format!("increase(c_total[{range}s])"), &source, at);
        prop_assert!(close(found, wanted), "{found:?} {wanted:?}");
        let rate = value(&format!("rate(c_total[{range}s])"), &source, at);
        prop_assert!(close(rate, wanted.map(|grown| grown / range as f64)));
        let resets = window.windows(2).filter(|pair| pair[1].1 < pair[0].1).count();
        let wanted = (!window.is_empty()).then_some(resets as f64);
        let found = value(&format!("resets(c_total[{range}s])"), &source, at);
        prop_assert!(close(found, wanted));
    }

    #[test]
    fn windows_equal_their_definition(samples in samples(), at in 0..1200_i64, range in 1..600_i64) {
        let source = source(&samples);
        let window: Vec<f64> = samples
            .iter()
            .filter(|(time, _)| *time > at - range && *time <= at)
            .map(|(_, value)| *value)
            .collect();
        let some = |value: f64| (!window.is_empty()).then_some(value);
        let count = window.len() as f64;
        let sum: f64 = window.iter().sum();
        let ask = |function: &str| value(&format!("{function}(c_total[{range}s])"), &source, at);
        prop_assert!(close(ask("count_over_time"), some(count)));
        prop_assert!(close(ask("sum_over_time"), some(sum)));
        prop_assert!(close(ask("avg_over_time"), some(sum / count)));
        prop_assert!(close(ask("min_over_time"), some(window.iter().copied().fold(f64::INFINITY, f64::min))));
        prop_assert!(close(ask("max_over_time"), some(window.iter().copied().fold(0.0, f64::max))));
        prop_assert!(close(ask("last_over_time"), window.last().copied()));
        prop_assert!(close(ask("first_over_time"), window.first().copied()));
    }

    #[test]
    fn a_range_is_many_instants(
        samples in samples(),
        start in 0..300_i64,
        step in 1..90_i64,
        query in prop::sample::select(vec![
            "c_total",
            "rate(c_total[90s])",
            "c_total offset 40s",
            "max_over_time(c_total[70s:20s])",
            "sum(c_total) > 50",
            "c_total and c_total offset 1m",
            "count_values(\"v\", c_total)",
            "timestamp(c_total)",
            "topk(1, c_total)",
            "absent(c_total)",
            "quantile_over_time(0.3, c_total[5m])",
            "predict_linear(c_total[5m], 60)",
            "avg_over_time(c_total[3m] @ 200)",
            "hour() + minute()",
        ]),
    ) {
        let source = source(&samples);
        let parsed = Query::parse(query).unwrap();
        let end = start + 20 * step;
        let range = parsed.range(&source, (start * 1000, end * 1000, step * 1000), &Options::default()).unwrap();
        let Data::Matrix(runs) = &range.data else { panic!("no matrix") };
        let mut points = 0;
        for time in (start..=end).step_by(step as usize) {
            let instant = parsed.instant(&source, time * 1000, &Options::default()).unwrap();
            let Data::Vector { samples, .. } = instant.data else { panic!("no vector") };
            for (labels, wanted) in samples {
                let run = runs.iter().find(|run| run.labels == labels);
                let found = run.and_then(|run| run.points().find(|(at, _)| *at == time * 1000));
                prop_assert!(close(found.map(|(_, value)| value), Some(wanted)), "{query} at {time}: {found:?} {wanted}");
                points += 1;
            }
        }
        prop_assert_eq!(points, runs.iter().map(|run| run.points().count()).sum::<usize>());
    }
}
