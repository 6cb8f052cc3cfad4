//! What is left of a spool whose bytes were harmed.

use std::fs;
use std::path::{Path, PathBuf};

use proptest::prelude::*;
use spool::{Reader, Why};

use crate::queue::{left_behind, read_all, record};

const COUNT: usize = 12;

fn segments(dir: &Path) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = fs::read_dir(dir)
        .unwrap()
        .map(|e| e.unwrap().path())
        .filter(|p| p.extension().is_some_and(|e| e == "segment"))
        .collect();
    found.sort();
    found
}

/// Where each record of a file with these records starts, and where the last one ends.
fn starts(records: &[Vec<u8>]) -> Vec<usize> {
    let mut at = 0;
    let mut starts = vec![0];
    for record in records {
        at += 12 + record.len();
        starts.push(at);
    }
    starts
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn cut_anywhere_leaves_what_was_whole(cut in 0usize..400) {
        let folder = tempfile::tempdir().unwrap();
        let dir = folder.path().join("one");
        left_behind(&dir, COUNT, 1 << 20);
        let file = &segments(&dir)[0];
        let bytes = fs::read(file).unwrap();
        let cut = cut.min(bytes.len());
        fs::write(file, &bytes[..cut]).unwrap();
        let records: Vec<Vec<u8>> = (0..COUNT).map(record).collect();
        let whole = starts(&records).iter().filter(|end| **end > 0 && **end <= cut).count();
        let mut reader = Reader::open(&dir).unwrap();
        prop_assert_eq!(read_all(&mut reader), records[..whole].to_vec());
        let damage = reader.take_damage();
        let left = cut - starts(&records)[whole];
        prop_assert_eq!(damage.iter().map(|d| d.bytes as usize).sum::<usize>(), left);
        prop_assert!(damage.iter().all(|d| d.why == Why::Torn), "{:?}", damage);
    }

    #[test]
    fn flipped_bit_costs_one_record(at in 0usize..400, bit in 0u8..8) {
        let folder = tempfile::tempdir().unwrap();
        let dir = folder.path().join("one");
        left_behind(&dir, COUNT, 1 << 20);
        let file = &segments(&dir)[0];
        let mut bytes = fs::read(file).unwrap();
        let at = at % bytes.len();
        bytes[at] ^= 1 << bit;
        fs::write(file, &bytes).unwrap();
        let mut records: Vec<Vec<u8>> = (0..COUNT).map(record).collect();
        let starts = starts(&records);
        let hit = starts.iter().rposition(|start| *start <= at).unwrap();
        records.remove(hit);
        let mut reader = Reader::open(&dir).unwrap();
        prop_assert_eq!(read_all(&mut reader), records);
        let damage = reader.take_damage();
        prop_assert_eq!(damage.len(), 1);
        prop_assert_eq!((damage[0].offset as usize, &damage[0].file), (starts[hit], file));
        prop_assert_eq!(damage[0].bytes as usize, starts[hit + 1] - starts[hit]);
    }

    #[test]
    fn rubbish_is_stepped_over(rubbish in prop::collection::vec(any::<u8>(), 1..200)) {
        let folder = tempfile::tempdir().unwrap();
        let dir = folder.path().join("one");
        left_behind(&dir, COUNT, 100);
        let files = segments(&dir);
        fs::write(&files[1], &rubbish).unwrap();
        let mut reader = Reader::open(&dir).unwrap();
        let found = read_all(&mut reader);
        prop_assert!(found.len() < COUNT && found[0] == record(0) && found[found.len() - 1] == record(COUNT - 1));
        let damage = reader.take_damage();
        prop_assert_eq!(damage.iter().map(|d| d.bytes as usize).sum::<usize>(), rubbish.len());
    }
}

#[test]
fn missing_segment_does_not_stop_the_reading() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("one");
    left_behind(&dir, COUNT, 100);
    fs::remove_file(&segments(&dir)[1]).unwrap();
    let found = read_all(&mut Reader::open(&dir).unwrap());
    assert!(found.len() < COUNT);
    assert_eq!(found.last(), Some(&record(COUNT - 1)));
}

#[test]
fn damage_says_where_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("one");
    left_behind(&dir, 2, 1 << 20);
    let file = &segments(&dir)[0];
    let bytes = fs::read(file).unwrap();
    fs::write(file, &bytes[..bytes.len() - 1]).unwrap();
    let mut reader = Reader::open(&dir).unwrap();
    read_all(&mut reader);
    let text = reader.take_damage()[0].to_string();
    assert!(text.contains(" at 21 ") && text.contains("0000000001.segment"), "{text}");
}
