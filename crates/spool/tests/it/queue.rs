//! Order, bounds, ownership.

use std::path::Path;

use spool::{AppendError, Options, Reader, Writer, list, try_own};

pub(crate) fn record(n: usize) -> Vec<u8> {
    format!("record {n} {}", "x".repeat(n % 40)).into_bytes()
}

/// A spool with `count` records whose writer is gone.
pub(crate) fn left_behind(dir: &Path, count: usize, segment_bytes: u64) {
    let mut writer = Writer::create(dir, b"head", Options { segment_bytes, ..Options::default() }).unwrap();
    for n in 0..count {
        writer.append(&record(n)).unwrap();
    }
}

pub(crate) fn read_all(reader: &mut Reader) -> Vec<Vec<u8>> {
    let mut found = Vec::new();
    while let Some(record) = reader.next().unwrap() {
        found.push(record.bytes);
    }
    found
}

#[test]
fn records_come_out_in_order_and_whole() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("deep/one");
    left_behind(&dir, 100, 300);
    let mut reader = Reader::open(&dir).unwrap();
    assert_eq!(reader.header(), b"head");
    assert_eq!(read_all(&mut reader), (0..100).map(record).collect::<Vec<_>>());
    assert_eq!(reader.take_damage(), []);
}

#[test]
fn reading_goes_on_behind_what_was_consumed() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("one");
    left_behind(&dir, 30, 200);
    for n in 0..30 {
        let mut reader = Reader::open(&dir).unwrap();
        let before = reader.bytes_left().unwrap();
        let got = reader.next().unwrap().unwrap();
        assert_eq!(got.bytes, record(n));
        reader.consume(got.position).unwrap();
        assert!(reader.bytes_left().unwrap() < before);
    }
    let mut reader = Reader::open(&dir).unwrap();
    assert_eq!(reader.next().unwrap(), None);
    let segments = |dir: &Path| {
        std::fs::read_dir(dir).unwrap().filter(|e| e.as_ref().unwrap().path().extension().is_some()).count()
    };
    assert_eq!(segments(&dir), 1, "consumed segments are deleted");
    reader.remove().unwrap();
    assert!(!dir.exists());
}

#[test]
fn lost_cursor_makes_records_come_again() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("one");
    left_behind(&dir, 3, 1 << 20);
    let mut reader = Reader::open(&dir).unwrap();
    let position = reader.next().unwrap().unwrap().position;
    reader.consume(position).unwrap();
    for torn in [&b""[..], b"short", &[7; 20]] {
        std::fs::write(dir.join("cursor"), torn).unwrap();
        assert_eq!(read_all(&mut Reader::open(&dir).unwrap()).len(), 3);
    }
}

#[test]
fn live_writer_drains_from_the_front_while_it_appends() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("one");
    let mut writer = Writer::create(&dir, b"", Options { segment_bytes: 100, ..Options::default() }).unwrap();
    let mut drained = 0;
    for n in 0..50 {
        writer.append(&record(2 * n)).unwrap();
        writer.append(&record(2 * n + 1)).unwrap();
        let got = writer.next().unwrap().unwrap();
        assert_eq!(got.bytes, record(drained));
        writer.consume(got.position).unwrap();
        drained += 1;
    }
    assert_eq!((writer.records_left(), writer.is_drained()), (50, false));
    while let Some(got) = writer.next().unwrap() {
        assert_eq!(got.bytes, record(drained));
        writer.consume(got.position).unwrap();
        drained += 1;
    }
    assert_eq!((drained, writer.is_drained(), writer.bytes_left().unwrap()), (100, true, 0));
    writer.append(b"again").unwrap();
    assert_eq!(writer.next().unwrap().unwrap().bytes, b"again");
    writer.remove().unwrap();
    assert!(!dir.exists());
}

#[test]
fn full_spool_refuses_and_recovers() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("one");
    let options = Options { segment_bytes: 100, bytes_max: 1_000 };
    let mut writer = Writer::create(&dir, b"", options).unwrap();
    let mut appended = 0;
    let refusal = loop {
        match writer.append(&[1; 50]) {
            Ok(()) => appended += 1,
            Err(refusal) => break refusal,
        }
    };
    assert!(matches!(refusal, AppendError::Full { limit: 1_000, .. }), "{refusal}");
    assert_eq!(appended, 1_000 / 62);
    for _ in 0..4 {
        let got = writer.next().unwrap().unwrap();
        writer.consume(got.position).unwrap();
    }
    writer.append(&[2; 50]).unwrap();
    drop(writer);
    assert_eq!(read_all(&mut Reader::open(&dir).unwrap()).len(), appended - 4 + 1);
}

#[test]
fn live_spool_has_one_owner() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("one");
    let writer = Writer::create(&dir, b"", Options::default()).unwrap();
    assert!(try_own(&dir).unwrap().is_none());
    assert!(Writer::create(&dir, b"", Options::default()).is_err());
    drop(writer);
    let owner = try_own(&dir).unwrap();
    assert!(owner.is_some());
    assert!(try_own(&dir).unwrap().is_none());
    drop(owner);
    assert!(try_own(&dir).unwrap().is_some());
    assert!(try_own(folder.path()).is_err(), "a folder without a header is no spool");
}

#[test]
fn spools_are_found_by_their_header() {
    let folder = tempfile::tempdir().unwrap();
    assert!(list(&folder.path().join("none")).is_empty());
    left_behind(&folder.path().join("b"), 1, 100);
    left_behind(&folder.path().join("a"), 0, 100);
    std::fs::create_dir(folder.path().join("other")).unwrap();
    std::fs::create_dir(folder.path().join(".c.new")).unwrap();
    std::fs::write(folder.path().join(".c.new/header"), "").unwrap();
    assert_eq!(list(folder.path()), ["a", "b"].map(|name| folder.path().join(name)));
}

#[cfg(unix)]
#[test]
fn spool_is_its_users_alone() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("one");
    left_behind(&dir, 1, 100);
    assert_eq!(std::fs::metadata(&dir).unwrap().permissions().mode() & 0o777, 0o700);
}
