//! Deleting a run, undoing it, and removing it for good.

use crate::support::*;

#[test]
fn a_deleted_run_is_hidden_and_can_be_restored() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let id = path("a").id();
    store.append(batch("a", "loss", line(0, 10))).unwrap();
    store.append(batch("b", "loss", line(0, 10))).unwrap();
    assert_eq!((store.delete_run(id, T0).unwrap(), store.delete_run(id, T0).unwrap()), (true, false));
    assert!(!store.delete_run(path("none").id(), T0).unwrap());
    assert!(store.run(id).is_none());
    assert_eq!(store.runs().iter().map(|r| r.path.run.clone()).collect::<Vec<_>>(), ["b"]);
    drop(store);
    let store = open(dir.path());
    assert!(store.run(id).is_none());
    assert_eq!((store.restore_run(id).unwrap(), store.restore_run(id).unwrap()), (true, false));
    assert_eq!(store.runs().len(), 2);
    assert_eq!(read(&store, series(&store, "a", "loss").id).len(), 10);
}

#[test]
fn purging_removes_points_record_and_writers_and_frees_the_disk() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let noise = |seed: i64| {
        (0..20_000_i64).map(move |n| (T0 + n * 1_000_003, (n * n % 7_919 + seed) as f64 * 0.37, Some(n)))
    };
    store.append(sent(batch("a", "loss", noise(1)), writer(1), 1)).unwrap();
    store.append(sent(batch("b", "loss", noise(2)), writer(2), 1)).unwrap();
    store.close();
    drop(store);
    let store = open(dir.path());
    let (id, before) = (path("a").id(), store.status());
    let (gone, kept) = (series(&store, "a", "loss").id, series(&store, "b", "loss").id);
    let kept_points = read(&store, kept);
    store.append(sent(batch("a", "loss", line(0, 5)), writer(1), 2)).unwrap();
    assert!(store.delete_run(id, T0).unwrap());
    assert_eq!(store.purge_deleted(T0).unwrap(), 0, "not deleted before that time");
    assert_eq!(store.purge_deleted(T0 + 1).unwrap(), 1);
    assert!(store.read(gone, i64::MIN, i64::MAX, &mut |_| panic!("there are points")).is_err());
    assert!(store.run_series(id).is_empty() && store.run(id).is_none());
    assert_eq!((store.status().series, store.status().head_points), (1, 0));
    store.maintain(T0).unwrap();
    let segment_bytes = || -> u64 {
        let files = std::fs::read_dir(dir.path().join("segments")).unwrap();
        files.map(|f| f.unwrap().metadata().unwrap().len()).sum()
    };
    assert!(segment_bytes() < before.disk_bytes / 2, "{} of {}", segment_bytes(), before.disk_bytes);
    drop(store);
    let store = open(dir.path());
    assert_eq!((store.status().series, store.status().head_points), (1, 0));
    assert_eq!(store.status().damage, Vec::<String>::new());
    assert_eq!(read(&store, series(&store, "b", "loss").id), kept_points);
    // The run can come again, and nothing of the old one is in it.
    let again = store.append(sent(batch("a", "loss", line(0, 5)), writer(1), 1)).unwrap();
    assert_eq!((again.duplicate, again.stored), (false, 5));
    assert_eq!(read(&store, series(&store, "a", "loss").id).len(), 5);
    assert_eq!(store.append(sent(batch("b", "loss", line(0, 5)), writer(2), 1)).unwrap().stored, 0);
}

#[test]
fn a_file_that_held_purged_runs_only_goes_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    store.append(batch("a", "loss", line(0, 100))).unwrap();
    store.close();
    drop(store);
    let store = open(dir.path());
    store.delete_run(path("a").id(), T0).unwrap();
    store.purge_deleted(i64::MAX).unwrap();
    assert_eq!(store.status().segments, 0);
    assert_eq!(std::fs::read_dir(dir.path().join("segments")).unwrap().count(), 0);
}
