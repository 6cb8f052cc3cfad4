//! Which series a selector finds, against looking at each of them.

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use model::{Labels, Sample, SeriesIdentity};
use proptest::prelude::*;
use store::{Batch, MatchOp, Matcher, SeriesBatch, Store};

use crate::support::*;

const ALL: (i64, i64) = (i64::MIN, i64::MAX);

/// A series of no run with one point at `time_ns`.
fn fleet(pairs: &[(&str, &str)], time_ns: i64) -> SeriesBatch {
    let labels = Labels::from_pairs(pairs.iter().copied());
    let identity = SeriesIdentity { display: labels.metric().to_owned(), labels };
    SeriesBatch { identity, samples: vec![Sample { time_ns, value: 1.0, step: None }] }
}

fn whole(pattern: &str) -> regex::Regex {
    regex::Regex::new(&format!("^(?s:{pattern})$")).unwrap()
}

/// A matcher as a caller of the store makes it.
fn matcher<'m>(name: &'m str, op: MatchOp, value: &'m str) -> Matcher<'m> {
    let pattern = whole(value);
    Matcher::new(name, op, value, move |text| pattern.is_match(text) == (op == MatchOp::Regex))
}

/// What the matcher means, said once more.
fn fits(labels: &Labels, name: &str, op: MatchOp, value: &str) -> bool {
    let text = labels.get(name).unwrap_or_default();
    match op {
        MatchOp::Equal => text == value,
        MatchOp::NotEqual => text != value,
        MatchOp::Regex => whole(value).is_match(text),
        MatchOp::NotRegex => !whole(value).is_match(text),
    }
}

fn found(store: &Store, matchers: &[Matcher<'_>]) -> Vec<String> {
    let mut found: Vec<String> =
        store.select(matchers, ALL.0, ALL.1).iter().map(|f| f.labels.to_string()).collect();
    found.sort();
    found
}

fn any_matcher() -> impl Strategy<Value = (&'static str, MatchOp, &'static str)> {
    let name = prop_oneof![Just("__name__"), Just("a"), Just("b"), Just("none")];
    let op = prop_oneof![
        Just(MatchOp::Equal),
        Just(MatchOp::NotEqual),
        Just(MatchOp::Regex),
        Just(MatchOp::NotRegex)
    ];
    let values =
        ["", "x", "y", "xy", "up", "x|y", "(x|up|)", "x.*", "x?y", ".*", ".+", r"x\.", "[^x]", "(?i)X"];
    (name, op, prop::sample::select(values.to_vec()))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases(48)))]

    #[test]
    fn a_selector_finds_what_fits_and_nothing_else(
        series in prop::collection::btree_set((0..3_usize, 0..6_usize, 0..6_usize), 1..60),
        selectors in prop::collection::vec(prop::collection::vec(any_matcher(), 1..4), 1..30),
    ) {
        let dir = tempfile::tempdir().unwrap();
        let mut store = open(dir.path());
        let values = ["", "x", "y", "xy", "x.", "up"];
        let series: Vec<_> = series
            .iter()
            .map(|(n, a, b)| fleet(&[("__name__", ["up", "x", "down"][*n]), ("a", values[*a]), ("b", values[*b])], T0))
            .collect();
        let known: Vec<Labels> = series.iter().map(|s| s.identity.labels.clone()).collect();
        store.append(Batch { series, ..Batch::default() }).unwrap();
        for again in [false, true] {
            if again {
                store.close();
                drop(store);
                store = open(dir.path());
            }
            for selector in &selectors {
                let matchers: Vec<_> = selector.iter().map(|(name, op, value)| matcher(name, *op, value)).collect();
                let fit: Vec<&Labels> = known
                    .iter()
                    .filter(|labels| selector.iter().all(|(name, op, value)| fits(labels, name, *op, value)))
                    .collect();
                let mut want: Vec<String> = fit.iter().map(ToString::to_string).collect();
                want.sort();
                prop_assert_eq!(found(&store, &matchers), want);
                let names: BTreeSet<&str> = fit.iter().flat_map(|l| l.iter().map(|(name, _)| name)).collect();
                prop_assert_eq!(store.label_names(&matchers, ALL.0, ALL.1), names.into_iter().collect::<Vec<_>>());
                let values: BTreeSet<&str> = fit.iter().filter_map(|labels| labels.get("a")).collect();
                prop_assert_eq!(store.label_values("a", &matchers, ALL.0, ALL.1), values.into_iter().collect::<Vec<_>>());
            }
            let values: BTreeSet<&str> = known.iter().filter_map(|labels| labels.get("b")).collect();
            prop_assert_eq!(store.label_values("b", &[], ALL.0, ALL.1), values.into_iter().collect::<Vec<_>>());
        }
    }
}

#[test]
fn a_logged_name_answers_on_equality_only() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    store.append(batch("a", "train/loss", line(0, 3))).unwrap();
    store.append(batch("a", "plain", line(0, 3))).unwrap();
    let names = |matcher: Matcher<'_>| -> Vec<String> {
        let found = store.select(&[matcher], ALL.0, ALL.1);
        found.iter().map(|f| f.labels.metric().to_owned()).collect()
    };
    assert_eq!(names(Matcher::equal("__name__", "train/loss")), ["train_loss"]);
    assert_eq!(names(Matcher::equal("__name__", "train_loss")), ["train_loss"]);
    assert_eq!(names(matcher("__name__", MatchOp::Regex, "train/loss")), Vec::<String>::new());
    assert_eq!(names(matcher("__name__", MatchOp::Regex, "train.loss")), ["train_loss"]);
    assert_eq!(names(Matcher::not_equal("__name__", "train/loss")), ["train_loss", "plain"]);
    assert_eq!(store.label_values("__name__", &[], ALL.0, ALL.1), ["plain", "train_loss"]);
}

#[test]
fn deleted_runs_and_other_times_are_not_found() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    store.append(batch("a", "loss", line(0, 10))).unwrap();
    store.append(batch("b", "loss", line(100, 10))).unwrap();
    store
        .append(Batch { series: vec![fleet(&[("__name__", "up"), ("job", "node")], T0)], ..Batch::default() })
        .unwrap();
    let second = model::NANOS_PER_SECOND;
    let runs = |from_s: i64, to_s: i64| -> Vec<String> {
        store.label_values("run", &[], T0 + from_s * second, T0 + to_s * second)
    };
    assert_eq!(runs(0, 200), ["a", "b"]);
    assert_eq!(runs(10, 99), Vec::<String>::new());
    assert_eq!(runs(109, 500), ["b"]);
    let info = series(&store, "a", "loss");
    assert!(store.series(info.id).is_some());
    let before = store.cardinality(10);
    store.delete_run(path("a").id(), T0).unwrap();
    let check = |restored: &[&str]| {
        assert_eq!(runs(0, 200), restored);
        assert_eq!(store.label_values("run", &[Matcher::equal("__name__", "loss")], ALL.0, ALL.1), restored);
        assert_eq!(store.select(&[Matcher::equal("__name__", "loss")], ALL.0, ALL.1).len(), restored.len());
        assert_eq!(store.cardinality(10).series, 1 + restored.len() as u64);
    };
    check(&["b"]);
    assert!(store.series(info.id).is_none());
    store.restore_run(path("a").id()).unwrap();
    check(&["a", "b"]);
    store.delete_run(path("a").id(), T0).unwrap();
    store.purge_deleted(T0 + 1).unwrap();
    check(&["b"]);
    store.append(batch("a", "loss", line(0, 10))).unwrap();
    check(&["a", "b"]);
    let after = store.cardinality(10);
    assert_eq!(
        (after.series, after.label_pairs, after.metrics),
        (before.series, before.label_pairs, before.metrics)
    );
}

#[test]
fn cardinality_names_the_largest_first() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let numbers: Vec<String> = (0..20).map(|n| n.to_string()).collect();
    let mut series: Vec<_> =
        numbers.iter().map(|n| fleet(&[("__name__", "busy"), ("cpu", n), ("host", "h1")], T0)).collect();
    series.extend(
        numbers[..5].iter().map(|n| fleet(&[("__name__", "idle"), ("disk", n), ("host", "h2")], T0 + 7)),
    );
    store.append(Batch { series, ..Batch::default() }).unwrap();
    let found = store.cardinality(2);
    let list = |counted: &[store::Counted]| -> Vec<(String, u64)> {
        counted.iter().map(|c| (c.name.clone(), c.count)).collect()
    };
    assert_eq!((found.series, found.label_pairs, found.time_ns), (25, 20 + 5 + 2 + 2, Some((T0, T0 + 7))));
    assert_eq!(list(&found.metrics), [("busy".to_owned(), 20), ("idle".to_owned(), 5)]);
    assert_eq!(list(&found.labels), [("cpu".to_owned(), 20), ("disk".to_owned(), 5)]);
    assert_eq!(list(&found.pairs), [("__name__=busy".to_owned(), 20), ("host=h1".to_owned(), 20)]);
    assert_eq!(list(&found.bytes), [("__name__".to_owned(), 100), ("host".to_owned(), 50)]);
}

#[test]
fn scanned_columns_are_the_points_read() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), store::Options { seal_points: 2_000, ..options() }).unwrap();
    for n in 0..10 {
        store.append(batch("a", "loss", line(n * 900, 1_000).map(|(t, v, s)| (t + n, v, s)))).unwrap();
        store.maintain(T0).unwrap();
    }
    let id = series(&store, "a", "loss").id;
    for (from, to) in [ALL, (T0 + 1_000 * model::NANOS_PER_SECOND, T0 + 4_000 * model::NANOS_PER_SECOND)] {
        let (mut times, mut values, mut blocks) = (Vec::new(), Vec::new(), 0);
        store
            .scan(id, from, to, &mut |block| {
                let had = times.len();
                block.columns(&mut times, &mut values).unwrap();
                assert_eq!(times.len() - had, block.summary().count as usize);
                assert_eq!((times[had], times[times.len() - 1]), block.summary().time_ns);
                blocks += 1;
                ControlFlow::Continue(())
            })
            .unwrap();
        let samples = read_range(&store, id, from, to);
        assert!(blocks > 1);
        assert_eq!(times, samples.iter().map(|s| s.time_ns).collect::<Vec<_>>());
        assert_eq!(values, crate::support::values(&samples));
    }
    let mut none = 0;
    let mut count = |_: &store::Block<'_>| {
        none += 1;
        ControlFlow::Continue(())
    };
    store.scan(999, ALL.0, ALL.1, &mut count).unwrap();
    assert_eq!(none, 0, "a series that is no more has no points");
}

#[test]
fn values_and_labels_are_counted_among_the_series_that_fit() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let series = [
        fleet(&[("__name__", "up"), ("job", "api"), ("host", "a")], 1),
        fleet(&[("__name__", "up"), ("job", "api"), ("host", "b")], 1),
        fleet(&[("__name__", "up"), ("job", "web")], 1),
        fleet(&[("__name__", "down"), ("job", "web")], 1),
    ];
    store.append(Batch { series: series.into(), ..Batch::default() }).unwrap();
    let values = |name: &str, matchers: &[Matcher<'_>], prefix: &str, most: usize| {
        let mut found = Vec::new();
        store.each_value(name, matchers, prefix, &mut |value, series| {
            found.push(format!("{value} {series}"));
            if found.len() < most { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        });
        found
    };
    assert_eq!(values("__name__", &[], "", 9), ["down 1", "up 3"]);
    assert_eq!(values("__name__", &[], "u", 9), ["up 3"]);
    assert_eq!(values("__name__", &[], "", 1), ["down 1"]);
    assert_eq!(values("job", &[Matcher::equal("__name__", "up")], "", 9), ["api 2", "web 1"]);
    assert_eq!(values("job", &[Matcher::equal("__name__", "up")], "w", 9), ["web 1"]);
    assert_eq!(values("none", &[], "", 9), [""; 0]);
    let labels = |matchers: &[Matcher<'_>]| {
        let counts = store.label_counts(matchers);
        counts.iter().map(|c| format!("{} {} {}", c.name, c.series, c.values)).collect::<Vec<_>>()
    };
    assert_eq!(labels(&[]), ["host 2 2", "job 4 2"]);
    assert_eq!(labels(&[Matcher::equal("job", "web")]), ["job 2 1"]);
    assert_eq!(labels(&[Matcher::equal("host", "a")]), ["host 1 1", "job 1 1"]);
}

#[test]
fn many_series_are_counted_as_few_are() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let series = (0..6_000).map(|n: usize| {
        let (host, name) = (format!("h{}", n % 7), if n.is_multiple_of(3) { "up" } else { "down" });
        fleet(&[("__name__", name), ("host", &host), ("job", "a"), ("n", &n.to_string())], 1)
    });
    store.append(Batch { series: series.collect(), ..Batch::default() }).unwrap();
    let all = [Matcher::equal("job", "a")];
    let mut found = Vec::new();
    store.each_value("host", &all, "h", &mut |value, series| {
        found.push((value.to_owned(), series));
        ControlFlow::Continue(())
    });
    assert_eq!(found.len(), 7);
    assert_eq!(found.iter().map(|(_, series)| series).sum::<u64>(), 6_000);
    let labels: Vec<(String, u64, u64)> =
        store.label_counts(&all).into_iter().map(|l| (l.name, l.series, l.values)).collect();
    let want = [("host", 6_000, 7), ("job", 6_000, 1), ("n", 6_000, 6_000)];
    assert_eq!(labels, want.map(|(name, series, values)| (name.to_owned(), series, values)));
}
