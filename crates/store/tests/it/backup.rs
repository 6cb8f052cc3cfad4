//! Copies of a store in use.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::support::*;

#[test]
fn a_backup_is_a_store_with_all_that_was_acknowledged() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(&dir.path().join("data"));
    store.append(sent(batch("a", "loss", line(0, 3_000)), writer(1), 1)).unwrap();
    store.maintain(T0 + options().seal_age_ns).unwrap();
    store.maintain(T0 + 2 * options().seal_age_ns).unwrap();
    store.append(sent(batch("a", "loss", line(3_000, 50)), writer(1), 2)).unwrap();
    let backup = store.backup(&dir.path().join("copy")).unwrap();
    assert_eq!((backup.segments, backup.linked), (1, 1));
    store.append(batch("a", "loss", line(4_000, 5))).unwrap();
    store.delete_run(path("a").id(), T0).unwrap();
    store.purge_deleted(T0 + 1).unwrap();
    drop(store);
    let copy = open(&dir.path().join("copy"));
    let info = series(&copy, "a", "loss");
    assert_eq!(values(&read(&copy, info.id)), (0..3_050).map(f64::from).collect::<Vec<_>>());
    assert_eq!(copy.status().damage, Vec::<String>::new());
    assert_eq!(copy.run(path("a").id()).unwrap().attempts.len(), 1);
    assert!(copy.append(sent(batch("a", "loss", line(0, 1)), writer(1), 2)).unwrap().duplicate);
    assert!(copy.backup(&dir.path().join("data")).unwrap_err().to_string().contains("exists already"));
}

#[test]
fn backups_made_while_points_come_hold_a_whole_beginning_of_them() {
    let dir = tempfile::tempdir().unwrap();
    let store =
        store::Store::open(&dir.path().join("data"), store::Options { seal_points: 400, ..options() })
            .unwrap();
    let ended = AtomicBool::new(false);
    let acknowledged = std::thread::scope(|scope| {
        scope.spawn(|| {
            for n in 0.. {
                store.append(batch("a", "loss", line(n * 20, 20))).unwrap();
                store.maintain(T0).unwrap();
                if ended.load(Ordering::Relaxed) {
                    break;
                }
            }
        });
        let counted = || store.run_series(path("a").id()).first().map_or(0, |info| info.points);
        let acknowledged: Vec<_> = (0..5)
            .map(|n| {
                while counted() < n * 500 + 1 {
                    std::thread::yield_now();
                }
                let before = counted();
                store.backup(&dir.path().join(format!("copy-{n}"))).unwrap();
                (before, counted())
            })
            .collect();
        ended.store(true, Ordering::Relaxed);
        acknowledged
    });
    for (n, (before, after)) in acknowledged.into_iter().enumerate() {
        let copy = open(&dir.path().join(format!("copy-{n}")));
        let got = values(&read(&copy, series(&copy, "a", "loss").id));
        assert_eq!(got, (0..got.len()).map(|v| v as f64).collect::<Vec<_>>());
        // One batch may be durable and not yet counted.
        assert!((before..=after + 20).contains(&(got.len() as u64)), "{before} {} {after}", got.len());
        assert_eq!(copy.status().damage, Vec::<String>::new());
    }
}
