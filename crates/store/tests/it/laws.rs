//! The store against the simplest thing that could be right: a map from time to point.

use std::collections::{BTreeMap, HashMap};

use model::Sample;
use proptest::prelude::*;
use store::{Options, Store};

use crate::support::*;

#[derive(Debug, Clone)]
enum Act {
    /// Points of a series: (time from the start, step).
    Append {
        series: u8,
        points: Vec<(i64, Option<i64>)>,
    },
    /// The latest delivery once more.
    Resend,
    Maintain,
    Reopen,
    CloseAndReopen,
}

fn any_act() -> impl Strategy<Value = Act> {
    let time = prop_oneof![
        4 => (0..200_i64).prop_map(|n| n * MS),
        1 => 0..50_i64,
        1 => (-5_000..5_000_i64).prop_map(|n| n * 3_600 * model::NANOS_PER_SECOND),
    ];
    let step = prop_oneof![Just(None), (-3..40_i64).prop_map(Some)];
    let scattered = prop::collection::vec((time, step), 1..40);
    let line = (0..3_000_i64, 1..400_i64)
        .prop_map(|(from, count)| (from..from + count).map(|n| (n * 10 * MS, Some(n))).collect::<Vec<_>>());
    let points = prop_oneof![scattered, line];
    prop_oneof![
        8 => (0..3_u8, points).prop_map(|(series, points)| Act::Append { series, points }),
        1 => Just(Act::Resend),
        2 => Just(Act::Maintain),
        1 => Just(Act::Reopen),
        1 => Just(Act::CloseAndReopen),
    ]
}

#[derive(Default)]
struct Expected(HashMap<u8, BTreeMap<i64, (f64, Option<i64>)>>);

impl Expected {
    fn append(&mut self, series: u8, samples: &[Sample]) {
        let points = self.0.entry(series).or_default();
        let mut samples = samples.to_vec();
        samples.sort_by_key(|s| s.time_ns);
        for sample in samples {
            let free = (sample.time_ns..=i64::MAX).find(|t| !points.contains_key(t)).unwrap();
            points.insert(free, (sample.value, sample.step));
        }
    }

    fn check(&self, store: &Store) {
        for (series_number, points) in &self.0 {
            let info = series(store, "a", &format!("m{series_number}"));
            let want: Vec<Sample> =
                points.iter().map(|(t, p)| Sample { time_ns: *t, value: p.0, step: p.1 }).collect();
            assert_eq!(read(store, info.id), want);
            let last = want[want.len() - 1];
            assert_eq!((info.points, info.last, info.last_step), (want.len() as u64, last.value, last.step));
            assert_eq!(info.time_ns, (want[0].time_ns, last.time_ns));
            assert_eq!(info.max_step, want.iter().filter_map(|s| s.step).max());
            let (from, to) = (T0 + 40 * MS, T0 + 1_000 * MS);
            let inside = |s: &&Sample| (from..=to).contains(&s.time_ns);
            let got: Vec<Sample> =
                read_range(store, info.id, from, to).iter().filter(inside).copied().collect();
            assert_eq!(got, want.iter().filter(inside).copied().collect::<Vec<_>>());
        }
        assert_eq!(store.status().damage, Vec::<String>::new());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases(24)))]

    #[test]
    fn whatever_happens_a_store_holds_the_points_it_acknowledged(acts in prop::collection::vec(any_act(), 1..40)) {
        let dir = tempfile::tempdir().unwrap();
        let reopen = || Store::open(dir.path(), Options { seal_points: 500, ..options() }).unwrap();
        let mut store = reopen();
        let mut expected = Expected::default();
        let mut latest = None;
        let mut sequence = 0;
        for act in acts {
            match act {
                Act::Append { series, points } => {
                    sequence += 1;
                    let points = points.into_iter().enumerate();
                    let points = points.map(|(n, (t, step))| (T0 + t, (sequence * 1_000) as f64 + n as f64, step));
                    let batch = sent(batch("a", &format!("m{series}"), points), writer(1), sequence);
                    expected.append(series, &batch.series[0].samples);
                    latest = Some(batch.clone());
                    prop_assert!(!store.append(batch).unwrap().duplicate);
                }
                Act::Resend => {
                    if let Some(batch) = latest.clone() {
                        prop_assert!(store.append(batch).unwrap().duplicate);
                    }
                }
                Act::Maintain => store.maintain(T0).unwrap(),
                Act::Reopen => {
                    drop(store);
                    store = reopen();
                }
                Act::CloseAndReopen => {
                    store.close();
                    expected.check(&store);
                    drop(store);
                    store = reopen();
                }
            }
        }
        expected.check(&store);
        drop(store);
        expected.check(&reopen());
    }
}
