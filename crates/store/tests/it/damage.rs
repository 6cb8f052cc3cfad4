//! Bytes that are not what was written: the rest is served, and the place is said.

use std::path::{Path, PathBuf};

use proptest::prelude::*;
use store::{OpenError, Store};

use crate::support::*;

const POINTS: i64 = 20_000;

fn points() -> impl Iterator<Item = (i64, f64, Option<i64>)> {
    (0..POINTS).map(|n| (T0 + n * MS, (n * n % 1_009) as f64 * 0.1, Some(n)))
}

/// A store with one sealed segment of two series and some points in the log.
fn make(dir: &Path) {
    let store = open(dir);
    store.append(sent(batch("a", "loss", points()), writer(1), 1)).unwrap();
    store.append(sent(batch("a", "lr", points()), writer(1), 2)).unwrap();
    store.close();
    drop(store);
    let store = open(dir);
    store.append(sent(batch("a", "late", line(0, 50)), writer(1), 3)).unwrap();
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to.join("segments")).unwrap();
    std::fs::copy(from.join("catalogue.redb"), to.join("catalogue.redb")).unwrap();
    for file in std::fs::read_dir(from.join("segments")).unwrap() {
        let file = file.unwrap();
        std::fs::copy(file.path(), to.join("segments").join(file.file_name())).unwrap();
    }
}

fn segment(dir: &Path) -> PathBuf {
    let mut files = std::fs::read_dir(dir.join("segments")).unwrap();
    files.next().unwrap().unwrap().path()
}

fn edit(file: &Path, change: impl FnOnce(&mut Vec<u8>)) {
    let mut bytes = std::fs::read(file).unwrap();
    change(&mut bytes);
    std::fs::write(file, bytes).unwrap();
}

fn count(store: &Store, metric: &str) -> usize {
    let all = store.run_series(path("a").id());
    all.iter().find(|s| &*s.display == metric).map_or(0, |s| read(store, s.id).len())
}

/// Whatever was read is what was written.
fn assert_honest(store: &Store) {
    for info in
        store.run_series(path("a").id()).iter().filter(|s| *s.display == *"loss" || *s.display == *"lr")
    {
        for sample in read(store, info.id) {
            let n = (sample.time_ns - T0) / MS;
            assert_eq!((sample.value, sample.step), ((n * n % 1_009) as f64 * 0.1, Some(n)));
        }
    }
}

/// Where the bodies of the first blocks start, by their series; 0 is a block of times.
fn blocks(file: &Path) -> Vec<(u8, usize)> {
    let bytes = std::fs::read(file).unwrap();
    let starts = (0..bytes.len() - 13).filter(|at| bytes[*at..].starts_with(b"TGCK"));
    starts.map(|at| (bytes[at + 12], at + 12)).collect()
}

#[test]
fn a_flipped_bit_in_a_block_costs_that_block_only() {
    let dir = tempfile::tempdir().unwrap();
    make(dir.path());
    let file = segment(dir.path());
    let at = blocks(&file).iter().find(|(series, _)| *series == 1).unwrap().1;
    edit(&file, |bytes| bytes[at + 90] ^= 4);
    let store = open(dir.path());
    let (loss, lr) = (count(&store, "loss"), count(&store, "lr"));
    assert!(loss < POINTS as usize && loss >= POINTS as usize - 4_096, "{loss} points");
    assert_eq!((lr, count(&store, "late")), (POINTS as usize, 50));
    let damage = store.status().damage;
    let place = format!("byte {}:", at - 12);
    assert!(damage.len() == 1 && damage[0].contains(&place) && damage[0].contains(".seg"), "{damage:?}");
    // The rest goes on, and the damaged file is kept.
    store.append(batch("a", "loss", line(0, 1))).unwrap();
    store.close();
    assert_eq!(count(&store, "loss"), loss + 1);
    assert!(store.status().segments >= 2);
}

#[test]
fn a_flipped_bit_in_shared_times_costs_the_blocks_that_share_them() {
    let dir = tempfile::tempdir().unwrap();
    make(dir.path());
    let file = segment(dir.path());
    let (series, at) = blocks(&file)[0];
    assert_eq!((series, at), (0, 28));
    edit(&file, |bytes| bytes[at + 20] ^= 4);
    let check = |store: &Store| {
        let (loss, lr) = (count(store, "loss"), count(store, "lr"));
        assert!(loss == lr && loss < POINTS as usize && loss >= POINTS as usize - 4_096, "{loss} points");
        assert_honest(store);
        let damage = store.status().damage;
        assert!(damage.iter().filter(|d| d.contains("its times at byte 16")).count() >= 2, "{damage:?}");
    };
    check(&open(dir.path()));
    // Without a directory the blocks are found one by one, and the same ones are lost.
    edit(&file, |bytes| bytes.truncate(bytes.len() - 1));
    check(&open(dir.path()));
}

#[test]
fn a_cut_segment_is_read_up_to_the_cut() {
    let dir = tempfile::tempdir().unwrap();
    make(dir.path());
    let whole = std::fs::metadata(segment(dir.path())).unwrap().len() as usize;
    let mut before = 2 * POINTS as usize;
    for cut in [whole - 1, whole - 40, whole * 3 / 4, whole / 2, whole / 8, 20, 5, 0] {
        edit(&segment(dir.path()), |bytes| bytes.truncate(cut));
        let store = open(dir.path());
        let got = count(&store, "loss") + count(&store, "lr");
        assert!(got <= before, "cut at {cut}");
        assert!(
            got + 2 * 4_096 >= before.min(2 * POINTS as usize * cut / whole),
            "{got} points at {cut} of {whole}"
        );
        before = got;
        assert_honest(&store);
        assert_eq!(count(&store, "late"), 50);
        assert!(!store.status().damage.is_empty(), "cut at {cut}");
        store.append(batch("a", "more", line(0, 3))).unwrap();
    }
    assert_eq!(before, 0);
}

#[test]
fn a_missing_segment_is_said() {
    let dir = tempfile::tempdir().unwrap();
    make(dir.path());
    let file = segment(dir.path());
    std::fs::remove_file(&file).unwrap();
    let store = open(dir.path());
    assert_eq!((count(&store, "loss"), count(&store, "late")), (0, 50));
    assert!(store.status().damage.iter().any(|d| d.contains(&*file.to_string_lossy())));
}

#[test]
fn a_lost_catalogue_is_made_again_from_the_segments() {
    let dir = tempfile::tempdir().unwrap();
    make(dir.path());
    std::fs::remove_file(dir.path().join("catalogue.redb")).unwrap();
    let check = |store: &Store| {
        assert_eq!(
            (count(store, "loss"), count(store, "lr"), count(store, "late")),
            (POINTS as usize, POINTS as usize, 0)
        );
        assert_honest(store);
        let run = store.run(path("a").id()).unwrap();
        assert_eq!((run.path.clone(), run.attempts.len()), (path("a"), 1));
    };
    let store = open(dir.path());
    check(&store);
    assert!(store.status().damage.iter().any(|d| d.contains("was lost")));
    store.append(batch("a", "new", line(0, 7))).unwrap();
    drop(store);
    let store = open(dir.path());
    check(&store);
    assert_eq!((count(&store, "new"), store.status().damage), (7, Vec::new()));
}

#[test]
fn a_catalogue_that_is_no_database_is_set_aside() {
    let dir = tempfile::tempdir().unwrap();
    make(dir.path());
    edit(&dir.path().join("catalogue.redb"), |bytes| bytes.fill(0x5a));
    let store = open(dir.path());
    assert_eq!((count(&store, "loss"), count(&store, "lr")), (POINTS as usize, POINTS as usize));
    assert!(store.status().damage.iter().any(|d| d.contains("damaged-1")), "{:?}", store.status().damage);
    assert!(dir.path().join("catalogue.damaged-1").exists());
}

#[test]
fn a_directory_that_is_a_file_is_refused_in_words() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("data");
    std::fs::write(&file, "x").unwrap();
    let error = Store::open(&file, options()).unwrap_err();
    assert!(matches!(error, OpenError::Unusable { .. }) && error.to_string().contains("data"), "{error}");
}

#[test]
fn unfinished_files_of_a_crash_are_removed() {
    let dir = tempfile::tempdir().unwrap();
    make(dir.path());
    let folder = dir.path().join("segments");
    std::fs::copy(segment(dir.path()), folder.join("00000000000000ff.seg")).unwrap();
    std::fs::write(folder.join("0000000000000100.tmp"), "half").unwrap();
    let store = open(dir.path());
    assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 1);
    assert_eq!((count(&store, "loss"), store.status().damage), (POINTS as usize, Vec::new()));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases(24)))]

    #[test]
    fn any_flipped_byte_of_a_segment_is_survived(at in any::<prop::sample::Index>(), flip in 1..=255_u8) {
        let dir = tempfile::tempdir().unwrap();
        copy(template(), dir.path());
        edit(&segment(dir.path()), |bytes| { let at = at.index(bytes.len()); bytes[at] ^= flip; });
        let store = open(dir.path());
        assert_honest(&store);
        let got = count(&store, "loss") + count(&store, "lr");
        // Both series share their times.
        prop_assert!(got >= 2 * POINTS as usize - 2 * 4_096, "{} points", got);
        prop_assert_eq!(count(&store, "late"), 50);
    }

    #[test]
    fn any_flipped_byte_of_the_catalogue_is_survived(at in any::<prop::sample::Index>(), flip in 1..=255_u8) {
        let dir = tempfile::tempdir().unwrap();
        copy(template(), dir.path());
        edit(&dir.path().join("catalogue.redb"), |bytes| { let at = at.index(bytes.len()); bytes[at] ^= flip; });
        let store = open(dir.path());
        assert_honest(&store);
        prop_assert_eq!(count(&store, "loss") + count(&store, "lr"), 2 * POINTS as usize);
        let late = count(&store, "late");
        prop_assert!(late == 50 || !store.status().damage.is_empty(), "{} late points and no word", late);
        store.append(batch("a", "more", line(0, 3))).unwrap();
        prop_assert_eq!(count(&store, "more"), 3);
    }

    #[test]
    fn a_catalogue_cut_anywhere_is_survived(at in any::<prop::sample::Index>()) {
        let dir = tempfile::tempdir().unwrap();
        copy(template(), dir.path());
        edit(&dir.path().join("catalogue.redb"), |bytes| { let at = at.index(bytes.len()); bytes.truncate(at); });
        let store = open(dir.path());
        assert_honest(&store);
        prop_assert_eq!(count(&store, "loss") + count(&store, "lr"), 2 * POINTS as usize);
        prop_assert!(!store.status().damage.is_empty());
        store.append(batch("a", "more", line(0, 3))).unwrap();
    }
}

/// A store made once for all cases.
fn template() -> &'static Path {
    static TEMPLATE: std::sync::OnceLock<tempfile::TempDir> = std::sync::OnceLock::new();
    let dir = TEMPLATE.get_or_init(|| {
        let dir = tempfile::tempdir().unwrap();
        make(dir.path());
        dir
    });
    dir.path()
}
