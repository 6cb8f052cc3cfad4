//! Files of spans and log records: what becomes of them by age, with their run, and when they are
//! damaged.

use std::path::{Path, PathBuf};

use model::{LogRecord, RecordAsk, Span, SpanAsk};
use store::{Batch, Options, Store};

use crate::support::*;
use crate::telemetry::{records, seal, span_batch, spans, step_span};

const DAY_NS: i64 = 86_400 * model::NANOS_PER_SECOND;

fn step(run: &str, iteration: i64) -> Vec<Span> {
    (0..8).flat_map(|rank| (0..6).map(move |n| step_span(run, rank, iteration, n))).collect()
}

fn steps(run: &str, iterations: std::ops::Range<i64>) -> Vec<Span> {
    iterations.flat_map(|iteration| step(run, iteration)).collect()
}

/// In the order in which the store hands them out.
fn sorted(mut spans: Vec<Span>) -> Vec<Span> {
    spans.sort_by(|a, b| {
        let key = |span: &Span| (span.start_ns, span.run);
        key(a).cmp(&key(b)).then_with(|| a.instance.cmp(&b.instance)).then_with(|| a.id.cmp(&b.id))
    });
    spans
}

fn record(n: i64) -> LogRecord {
    LogRecord {
        run: Some(path("a").id()),
        time_ns: T0 + n * MS,
        body: format!("line {n}"),
        severity: 9,
        ..LogRecord::default()
    }
}

fn all(store: &Store) -> Vec<Span> {
    spans(store, &SpanAsk::default())
}

fn files(dir: &Path) -> Vec<PathBuf> {
    let files = std::fs::read_dir(dir.join("telemetry")).unwrap();
    let mut files: Vec<_> = files.map(|file| file.unwrap().path()).collect();
    files.sort();
    files
}

fn class_bytes(store: &Store, class: &str) -> u64 {
    store.status().class_bytes.iter().find(|(name, _)| *name == class).unwrap().1
}

fn edit(file: &Path, change: impl FnOnce(&mut Vec<u8>)) {
    let mut bytes = std::fs::read(file).unwrap();
    change(&mut bytes);
    std::fs::write(file, bytes).unwrap();
}

#[test]
fn memory_is_sealed_once_it_holds_many() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), Options { seal_spans: 500, ..options() }).unwrap();
    let mut want = Vec::new();
    for iteration in 0..30 {
        want.extend(step("a", iteration));
        store.append(span_batch("a", step("a", iteration))).unwrap();
        store.maintain(T0).unwrap();
        assert!(store.status().head_rows < 500);
    }
    let status = store.status();
    assert_eq!((status.spans, status.records), (30 * 48, 0));
    assert!(files(dir.path()).len() == 2 && class_bytes(&store, "spans") > 10_000);
    assert!(status.disk_bytes > class_bytes(&store, "spans"));
    assert_eq!(all(&store), sorted(want.clone()));
    store.close();
    assert_eq!(all(&store), sorted(want.clone()));
    drop(store);
    assert_eq!(all(&open(dir.path())), sorted(want));
}

#[test]
fn a_later_version_of_a_span_counts_wherever_both_lie() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = open(dir.path());
    let asks = [
        SpanAsk::default(),
        SpanAsk { iterations: Some(0..=2), ..SpanAsk::default() },
        SpanAsk { names: Some(vec!["late".into()]), ..SpanAsk::default() },
    ];
    store.append(span_batch("a", steps("a", 0..5))).unwrap();
    seal(&store);
    let mut changed = step_span("a", 3, 1, 2);
    (changed.name, changed.iteration) = ("late".into(), Some(4_000));
    changed.start_ns += DAY_NS;
    changed.end_ns += DAY_NS;
    store.append(span_batch("a", vec![changed.clone()])).unwrap();
    let count = |store: &Store| asks.clone().map(|ask| spans(store, &ask).len());
    // In memory, in a file of its own, and found again at the next start.
    assert_eq!(count(&store), [240, 143, 1]);
    seal(&store);
    assert_eq!(count(&store), [240, 143, 1]);
    drop(store);
    store = open(dir.path());
    assert_eq!(count(&store), [240, 143, 1]);
    // The first once more, later still.
    store.append(span_batch("a", step("a", 1))).unwrap();
    assert_eq!(count(&store), [240, 144, 0]);
    seal(&store);
    assert_eq!(count(&store), [240, 144, 0]);
    assert_eq!(all(&store), sorted(steps("a", 0..5)));
}

#[test]
fn spans_and_records_go_by_whole_days_each_in_their_time() {
    let dir = tempfile::tempdir().unwrap();
    let keeps = Options { span_retention_ns: 3 * DAY_NS, record_retention_ns: 5 * DAY_NS, ..options() };
    let store = Store::open(dir.path(), keeps).unwrap();
    let aged = |days: i64| {
        let mut span = step_span("a", 0, days, 0);
        span.start_ns -= days * DAY_NS;
        span.end_ns -= days * DAY_NS;
        let mut line = record(0);
        line.time_ns -= days * DAY_NS;
        (span, line)
    };
    let (spans_in, records_in): (Vec<_>, Vec<_>) = (0..9).map(aged).unzip();
    store.append(Batch { records: records_in, ..span_batch("a", spans_in) }).unwrap();
    seal(&store);
    let kept = |store: &Store| (all(store).len(), records(store, &RecordAsk::default()).len());
    // The day of three days ago is not over for three whole days yet.
    assert_eq!(kept(&store), (4, 6));
    store.maintain(T0 + DAY_NS).unwrap();
    assert_eq!(kept(&store), (3, 5));
    assert_eq!(files(dir.path()).len(), 8);
    store.maintain(T0 + 40 * DAY_NS).unwrap();
    assert_eq!((kept(&store), files(dir.path()).len()), ((0, 0), 0));
    assert_eq!((class_bytes(&store, "spans"), class_bytes(&store, "records")), (0, 0));
    // The run itself stays.
    assert!(store.run(path("a").id()).is_some());
}

#[test]
fn a_purged_run_leaves_memory_and_files() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    store.append(span_batch("a", steps("a", 0..40))).unwrap();
    store.append(span_batch("b", steps("b", 0..40))).unwrap();
    store.append(Batch { records: (0..500).map(record).collect(), ..Batch::default() }).unwrap();
    seal(&store);
    store.append(span_batch("a", steps("a", 40..44))).unwrap();
    store.append(span_batch("b", steps("b", 40..44))).unwrap();
    let of_run = |store: &Store, run: &str| {
        spans(store, &SpanAsk { run: Some(path(run).id()), ..SpanAsk::default() }).len()
    };
    let before = class_bytes(&store, "spans");
    store.delete_run(path("a").id(), T0).unwrap();
    assert_eq!((of_run(&store, "a"), all(&store).len()), (0, 44 * 48));
    assert_eq!(records(&store, &RecordAsk::default()), []);
    store.restore_run(path("a").id()).unwrap();
    assert_eq!((of_run(&store, "a"), records(&store, &RecordAsk::default()).len()), (44 * 48, 500));
    store.delete_run(path("a").id(), T0).unwrap();
    assert_eq!(store.purge_deleted(i64::MAX).unwrap(), 1);
    // The file of the records held nothing else.
    assert_eq!((class_bytes(&store, "records"), files(dir.path()).len()), (0, 1));
    let check = |store: &Store| {
        assert_eq!((of_run(store, "a"), of_run(store, "b")), (0, 44 * 48));
        assert_eq!(all(store), sorted(steps("b", 0..44)));
        assert_eq!(store.status().spans, 44 * 48);
    };
    check(&store);
    drop(store);
    let store = open(dir.path());
    check(&store);
    store.maintain(T0).unwrap();
    check(&store);
    assert!(class_bytes(&store, "spans") < before * 6 / 10);
    // The run comes again, with spans of the same keys.
    store.append(span_batch("a", steps("a", 0..2))).unwrap();
    assert_eq!(of_run(&store, "a"), 2 * 48);
    assert_eq!(store.status().damage, Vec::<String>::new());
}

/// A store with two files of spans, of iterations 0 to 200 in more than one block each, and more in
/// memory.
fn make(dir: &Path) -> Vec<Span> {
    let store = open(dir);
    store.append(span_batch("a", steps("a", 0..200))).unwrap();
    seal(&store);
    store.append(Batch { records: (0..300).map(record).collect(), ..Batch::default() }).unwrap();
    seal(&store);
    store.append(span_batch("a", steps("a", 200..210))).unwrap();
    sorted(steps("a", 0..210))
}

fn blocks(file: &Path) -> Vec<usize> {
    let bytes = std::fs::read(file).unwrap();
    (0..bytes.len() - 4).filter(|at| bytes[*at..].starts_with(b"TGTB")).collect()
}

#[test]
fn a_flipped_bit_costs_its_block_only() {
    let dir = tempfile::tempdir().unwrap();
    let want = make(dir.path());
    let file = &files(dir.path())[0];
    let at = blocks(file)[1];
    assert!(blocks(file).len() >= 3);
    edit(file, |bytes| bytes[at + 2_000] ^= 1);
    let store = open(dir.path());
    let found = all(&store);
    assert!(found.len() < want.len() && found.len() >= want.len() - 4_096, "{} spans", found.len());
    assert!(found.iter().all(|span| want.contains(span)));
    let damage = store.status().damage;
    assert!(damage.len() == 1 && damage[0].contains(&format!("byte {at}")), "{damage:?}");
    assert!(damage[0].contains(&*file.to_string_lossy()), "{damage:?}");
    assert_eq!(records(&store, &RecordAsk::default()).len(), 300);
    // What was purged can't be cut out of it, and is not shown all the same.
    store.append(span_batch("b", steps("b", 0..1))).unwrap();
    store.delete_run(path("a").id(), T0).unwrap();
    store.purge_deleted(i64::MAX).unwrap();
    store.maintain(T0).unwrap();
    assert_eq!(all(&store).len(), 48);
}

#[test]
fn a_file_that_is_cut_anywhere_is_read_up_to_there() {
    let dir = tempfile::tempdir().unwrap();
    let want = make(dir.path());
    let file = &files(dir.path())[0];
    let whole = std::fs::metadata(file).unwrap().len() as usize;
    let mut before = want.len();
    for cut in [whole - 1, whole - 30, whole - 200, whole / 2, whole / 3, 20, 5, 0] {
        edit(file, |bytes| bytes.truncate(cut));
        let store = open(dir.path());
        let found = all(&store);
        assert!(found.len() <= before && found.len() >= 480, "{} spans at {cut}", found.len());
        assert!(found.len() + 2 * 4_096 >= before, "{} spans at {cut}", found.len());
        assert!(found.iter().all(|span| want.contains(span)));
        assert!(!store.status().damage.is_empty(), "cut at {cut}");
        before = found.len();
    }
    assert_eq!(before, 480);
    std::fs::remove_file(file).unwrap();
    let store = open(dir.path());
    assert_eq!(all(&store).len(), 480);
    assert!(store.status().damage.iter().any(|why| why.contains(&*file.to_string_lossy())));
}

#[test]
fn files_outlive_the_catalogue() {
    let dir = tempfile::tempdir().unwrap();
    let want = make(dir.path());
    std::fs::remove_file(dir.path().join("catalogue.redb")).unwrap();
    let check = |store: &Store| {
        let sealed = want.iter().filter(|span| span.iteration < Some(200)).cloned().collect::<Vec<_>>();
        assert_eq!(all(store), sealed);
        assert_eq!(records(store, &RecordAsk::default()).len(), 300);
        assert_eq!(store.run(path("a").id()).unwrap().path, path("a"));
    };
    let store = open(dir.path());
    check(&store);
    assert!(store.status().damage.iter().any(|why| why.contains("was lost")));
    drop(store);
    check(&open(dir.path()));
}

#[test]
fn a_backup_has_files_and_memory() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let want = make(&data);
    let store = open(&data);
    let made = store.backup(&dir.path().join("copy")).unwrap();
    assert_eq!((made.segments, made.linked), (2, 2));
    store.delete_run(path("a").id(), T0).unwrap();
    store.purge_deleted(i64::MAX).unwrap();
    drop(store);
    let copy = open(&dir.path().join("copy"));
    assert_eq!(all(&copy), want);
    assert_eq!(records(&copy, &RecordAsk::default()).len(), 300);
}

#[test]
fn a_file_that_was_never_named_is_removed() {
    let dir = tempfile::tempdir().unwrap();
    let want = make(dir.path());
    for name in ["00000000000000ff.tel", "00000000000000fe.tmp"] {
        std::fs::copy(&files(dir.path())[0], dir.path().join("telemetry").join(name)).unwrap();
    }
    let store = open(dir.path());
    assert_eq!((files(dir.path()).len(), all(&store)), (2, want));
}

#[test]
fn many_small_files_of_a_day_become_one() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let mut counts = Vec::new();
    for iteration in 0..20 {
        // The step before comes again with each.
        store.append(span_batch("a", steps("a", iteration.max(1) - 1..iteration + 1))).unwrap();
        seal(&store);
        counts.push(files(dir.path()).len());
        assert_eq!(all(&store), sorted(steps("a", 0..iteration + 1)));
    }
    assert_eq!(counts[..9], [1, 2, 3, 4, 5, 6, 7, 1, 2]);
    assert!(counts.iter().all(|count| *count < 8), "{counts:?}");
    assert_eq!(store.status().damage, Vec::<String>::new());
    drop(store);
    let store = open(dir.path());
    assert_eq!(all(&store), sorted(steps("a", 0..20)));
    // A block that is damaged keeps its file and those beside it from being merged.
    drop(store);
    let file = files(dir.path()).into_iter().max_by_key(|file| file.metadata().unwrap().len()).unwrap();
    let at = blocks(&file)[0];
    edit(&file, |bytes| bytes[at + 500] ^= 1);
    let store = open(dir.path());
    for iteration in 20..30 {
        store.append(span_batch("a", steps("a", iteration..iteration + 1))).unwrap();
        seal(&store);
    }
    assert!(file.exists());
    assert!(spans(&store, &SpanAsk { iterations: Some(20..=29), ..SpanAsk::default() }).len() == 480);
    assert!(!store.status().damage.is_empty());
}

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name)
}

fn of_fixture() -> (Vec<Span>, Vec<LogRecord>) {
    let mut spans = steps("fixture", 0..4);
    for (n, span) in (0_u8..).zip(&mut spans) {
        let text = || format!("value {}", n % 5);
        span.attributes.extend([
            ("nothing".to_owned(), model::AttributeValue::Null),
            ("yes".to_owned(), model::AttributeValue::Bool(n % 2 == 0)),
            ("loss".to_owned(), model::AttributeValue::Float(f64::from(n) * 0.1)),
            ("text".to_owned(), model::AttributeValue::Text(text())),
        ]);
        span.incarnation = [0, 1, u32::MAX][usize::from(n % 3)];
        let attributes = vec![("n".to_owned(), model::AttributeValue::Int(i64::from(n)))];
        if n % 7 == 0 {
            let time_ns = span.start_ns + 5;
            span.events.push(model::SpanEvent { time_ns, name: text(), attributes: attributes.clone() });
            span.links.push(model::SpanLink { trace: [n; 16], id: [n; 8], attributes });
            (span.status, span.status_text, span.parent) = (2, "it failed".to_owned(), Some([9; 8]));
            (span.parts_left_out, span.is_goodput) = (3, true);
        }
    }
    let records = (0..50).map(|n| LogRecord {
        run: Some(path("fixture").id()),
        instance: "fixture-rank0".into(),
        rank: (n % 2 == 0).then_some(0),
        severity_text: "INFO".into(),
        event: "step".into(),
        scope: "train".into(),
        trace: (n % 3 == 0).then_some([1; 16]),
        span: (n % 6 == 0).then_some([2; 8]),
        ..record(n)
    });
    (sorted(spans), records.collect())
}

/// Writes the latest version's fixtures anew when asked to; only for a new format version.
#[test]
fn fixtures_can_be_written() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let (spans, records) = of_fixture();
    store.append(Batch { records, ..span_batch("fixture", spans) }).unwrap();
    store.close();
    let files = files(dir.path());
    assert_eq!(files.len(), 2);
    if std::env::var_os("STORE_WRITE_FIXTURE").is_some() {
        std::fs::copy(&files[0], fixture("spans-v1.tel")).unwrap();
        std::fs::copy(&files[1], fixture("records-v1.tel")).unwrap();
    }
}

#[test]
fn version_1_files_are_read() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(dir.path().join("telemetry")).unwrap();
    for (name, id) in [("spans-v1.tel", 1), ("records-v1.tel", 2)] {
        std::fs::copy(fixture(name), dir.path().join(format!("telemetry/{id:016x}.tel"))).unwrap();
    }
    let store = open(dir.path());
    let (want_spans, want_records) = of_fixture();
    assert_eq!(all(&store), want_spans);
    assert_eq!(records(&store, &RecordAsk::default()), want_records);
    assert!(store.run(path("fixture").id()).is_some());
}
