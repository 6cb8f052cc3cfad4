//! Spans, log records, exemplars and the caller's own rows.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use model::{
    AttributeValue, Exemplar, LogRecord, RecordAsk, RunChange, Span, SpanAsk, SpanEvent, SpanLink,
    series_identity,
};
use proptest::prelude::*;
use store::{Batch, Options, Store};

use crate::support::*;

pub(crate) fn spans(store: &Store, ask: &SpanAsk) -> Vec<Span> {
    let mut found = Vec::new();
    store
        .spans(ask, &mut |span| {
            found.push(span);
            ControlFlow::Continue(())
        })
        .unwrap();
    found
}

pub(crate) fn records(store: &Store, ask: &RecordAsk) -> Vec<LogRecord> {
    let mut found = Vec::new();
    store
        .records(ask, &mut |record| {
            found.push(record);
            ControlFlow::Continue(())
        })
        .unwrap();
    found
}

fn run_change(run: &str) -> RunChange {
    RunChange { path: path(run), ..RunChange::default() }
}

/// A span of a training step, as a rank sends it.
pub(crate) fn step_span(run: &str, rank: u32, iteration: i64, n: u8) -> Span {
    let start_ns = T0 + iteration * 1_000 * MS + i64::from(n) * 10 * MS + i64::from(rank);
    let mut trace = [7; 16];
    trace[..8].copy_from_slice(&iteration.to_be_bytes());
    Span {
        run: Some(path(run).id()),
        instance: format!("{run}-rank{rank}"),
        rank: Some(rank),
        host: format!("node{}", rank / 8),
        trace,
        id: [n, 0, 0, 0, 0, 0, 0, 1],
        parent: (n > 0).then_some([0, 0, 0, 0, 0, 0, 0, 1]),
        name: ["train_step", "forward-backward", "optimizer"][usize::from(n) % 3].into(),
        scope: "nemo.lens".into(),
        kind: 1,
        start_ns,
        end_ns: start_ns + 9 * MS,
        iteration: Some(iteration),
        attributes: vec![("dl.iteration".into(), AttributeValue::Int(iteration))],
        ..Span::default()
    }
}

pub(crate) fn span_batch(run: &str, spans: Vec<Span>) -> Batch {
    Batch { changes: vec![run_change(run)], spans, ..Batch::default() }
}

/// Everything there is in memory becomes files.
pub(crate) fn seal(store: &Store) {
    let a_day_ns = 86_400 * model::NANOS_PER_SECOND;
    store.maintain(T0).unwrap();
    store.maintain(T0 + a_day_ns / 2).unwrap();
}

fn any_value() -> impl Strategy<Value = AttributeValue> {
    prop_oneof![
        Just(AttributeValue::Null),
        any::<bool>().prop_map(AttributeValue::Bool),
        any::<i64>().prop_map(AttributeValue::Int),
        (-1e9..1e9_f64).prop_map(AttributeValue::Float),
        "[a-c]{0,3}".prop_map(AttributeValue::Text),
    ]
}

fn any_attributes() -> impl Strategy<Value = Vec<(String, AttributeValue)>> {
    prop::collection::vec(("[a-c]{1,2}", any_value()), 0..4)
}

fn any_time() -> impl Strategy<Value = i64> {
    prop_oneof![
        8 => (0..50_i64).prop_map(|n| T0 + n * MS),
        1 => (-40..40_i64).prop_map(|day| T0 + day * 86_400_000 * MS),
        1 => prop_oneof![Just(i64::MIN), Just(i64::MAX), Just(0)],
    ]
}

fn any_run() -> impl Strategy<Value = Option<&'static str>> {
    prop_oneof![Just(None), Just(Some("a")), Just(Some("b"))]
}

fn any_span() -> impl Strategy<Value = Span> {
    let incarnation = prop_oneof![3 => Just(0), 1 => Just(1), 1 => Just(u32::MAX)];
    let who = (any_run(), "[ab]?", prop::option::of(0..4_u32), 0..2_u8, 0..12_u8, incarnation);
    let what = ("[xyz]{1,2}", 0..6_u8, 0..3_u8, any::<bool>(), prop::option::of(0..6_i64));
    let when = (any_time(), -3..40_i64);
    let event = (any_time(), "[xyz]", any_attributes()).prop_map(|(time_ns, name, attributes)| SpanEvent {
        time_ns,
        name,
        attributes,
    });
    let link = (0..3_u8, any::<u64>(), any_attributes()).prop_map(|(trace, id, attributes)| SpanLink {
        trace: [trace; 16],
        id: id.to_be_bytes(),
        attributes,
    });
    let parts = (
        any_attributes(),
        prop::collection::vec(event, 0..3),
        prop::collection::vec(link, 0..3),
        prop_oneof![Just(0), any::<u64>()],
        prop::option::of(0..14_u8),
    );
    (who, what, when, parts).prop_map(|(who, what, when, parts)| Span {
        run: who.0.map(|run| path(run).id()),
        instance: who.1,
        incarnation: who.5,
        rank: who.2,
        host: who.2.map_or(String::new(), |rank| format!("node{rank}")),
        trace: [who.3; 16],
        id: [who.4; 8],
        parent: parts.4.map(|n| [n; 8]),
        name: what.0,
        scope: "scope".into(),
        kind: what.1,
        start_ns: when.0,
        end_ns: when.0.wrapping_add(when.1 * MS),
        status: what.2,
        status_text: if what.2 == 2 { "it failed".into() } else { String::new() },
        iteration: what.4,
        is_goodput: what.3,
        attributes: parts.0,
        events: parts.1,
        links: parts.2,
        parts_left_out: parts.3,
    })
}

fn any_record() -> impl Strategy<Value = LogRecord> {
    let who = (any_run(), "[ab]?", prop::option::of(0..4_u32));
    let ids = (prop::option::of(0..3_u8), prop::option::of(0..3_u8));
    let texts = ("[xyz ]{0,20}", "[xy]?", "[ab]?");
    (who, any_time(), 0..25_u8, texts, any_attributes(), ids).prop_map(
        |(who, time_ns, severity, texts, attributes, ids)| LogRecord {
            run: who.0.map(|run| path(run).id()),
            instance: who.1,
            rank: who.2,
            host: String::new(),
            time_ns,
            severity,
            severity_text: texts.1,
            scope: texts.2,
            event: String::new(),
            body: texts.0,
            attributes,
            trace: ids.0.map(|n| [n; 16]),
            span: ids.1.map(|n| [n; 8]),
        },
    )
}

fn any_ranks() -> impl Strategy<Value = Option<Vec<u32>>> {
    prop::option::of(
        prop::collection::btree_set(0..5_u32, 1..3).prop_map(|ranks| ranks.into_iter().collect()),
    )
}

fn any_span_ask() -> impl Strategy<Value = SpanAsk> {
    let time = prop_oneof![
        Just(i64::MIN..=i64::MAX),
        (0..50_i64, 0..30_i64).prop_map(|(from, len)| T0 + from * MS..=T0 + (from + len) * MS),
    ];
    let names = prop::collection::btree_set("[xyz]{1,2}", 1..4);
    let iterations = prop::option::of((0..6_i64, 0..3_i64).prop_map(|(first, more)| first..=first + more));
    (any_run(), time, iterations, any_ranks(), prop::option::of(names), prop::option::of(0..2_u8)).prop_map(
        |(run, time_ns, iterations, ranks, names, trace)| SpanAsk {
            run: run.map(|run| path(run).id()),
            time_ns,
            iterations,
            ranks,
            names: names.map(|names| names.into_iter().collect()),
            trace: trace.map(|trace| [trace; 16]),
        },
    )
}

fn any_record_ask() -> impl Strategy<Value = RecordAsk> {
    let time = prop_oneof![
        Just(i64::MIN..=i64::MAX),
        (0..50_i64, 0..30_i64).prop_map(|(from, len)| T0 + from * MS..=T0 + (from + len) * MS),
    ];
    (any_run(), time, any_ranks(), 0..25_u8, prop::option::of(0..3_u8)).prop_map(
        |(run, time_ns, ranks, severity_min, trace)| RecordAsk {
            run: run.map(|run| path(run).id()),
            time_ns,
            ranks,
            severity_min,
            trace: trace.map(|trace| [trace; 16]),
        },
    )
}

#[derive(Debug, Clone)]
enum Step {
    Append(Vec<Span>, Vec<LogRecord>),
    Seal,
    Reopen,
    Close,
    Delete(&'static str),
    Restore(&'static str),
    Purge,
    Ask(SpanAsk, RecordAsk),
}

fn any_step() -> impl Strategy<Value = Step> {
    let run = || prop_oneof![Just("a"), Just("b")];
    let batch = (prop::collection::vec(any_span(), 0..25), prop::collection::vec(any_record(), 0..12));
    prop_oneof![
        8 => batch.prop_map(|(spans, records)| Step::Append(spans, records)),
        3 => Just(Step::Seal),
        1 => Just(Step::Reopen),
        1 => Just(Step::Close),
        1 => run().prop_map(Step::Delete),
        1 => run().prop_map(Step::Restore),
        1 => Just(Step::Purge),
        6 => (any_span_ask(), any_record_ask()).prop_map(|(spans, records)| Step::Ask(spans, records)),
    ]
}

/// The same, as simple as can be.
#[derive(Debug, Default)]
struct Simple {
    spans: Vec<Span>,
    records: Vec<LogRecord>,
    deleted: Vec<&'static str>,
}

impl Simple {
    fn is_shown(&self, run: Option<model::RunId>) -> bool {
        !self.deleted.iter().any(|deleted| run == Some(path(deleted).id()))
    }

    fn spans(&self, ask: &SpanAsk) -> Vec<Span> {
        let mut last = BTreeMap::new();
        for span in &self.spans {
            last.insert((span.run, &span.instance, span.incarnation, span.trace, span.id), span);
        }
        let among = |wanted: &Option<Vec<u32>>, rank: Option<u32>| {
            wanted.as_ref().is_none_or(|wanted| rank.is_some_and(|rank| wanted.contains(&rank)))
        };
        let fulfils = |span: &&Span| {
            let (first_ns, last_ns) = (span.start_ns.min(span.end_ns), span.start_ns.max(span.end_ns));
            self.is_shown(span.run)
                && ask.run.is_none_or(|run| span.run == Some(run))
                && first_ns <= *ask.time_ns.end()
                && *ask.time_ns.start() <= last_ns
                && ask.iterations.as_ref().is_none_or(|i| span.iteration.is_some_and(|n| i.contains(&n)))
                && among(&ask.ranks, span.rank)
                && ask.names.as_ref().is_none_or(|names| names.contains(&span.name))
                && ask.trace.is_none_or(|trace| span.trace == trace)
        };
        let mut found: Vec<Span> = last.into_values().filter(fulfils).cloned().collect();
        found.sort_by_key(|span| span.start_ns);
        found
    }

    fn records(&self, ask: &RecordAsk) -> Vec<LogRecord> {
        let fulfils = |record: &&LogRecord| {
            self.is_shown(record.run)
                && ask.run.is_none_or(|run| record.run == Some(run))
                && ask.time_ns.contains(&record.time_ns)
                && ask.ranks.as_ref().is_none_or(|r| record.rank.is_some_and(|rank| r.contains(&rank)))
                && record.severity >= ask.severity_min
                && ask.trace.is_none_or(|trace| record.trace == Some(trace))
        };
        let mut found: Vec<LogRecord> = self.records.iter().filter(fulfils).cloned().collect();
        found.sort_by_key(|record| record.time_ns);
        let mut once: Vec<LogRecord> = Vec::new();
        for record in found {
            if !once.contains(&record) {
                once.push(record);
            }
        }
        once
    }
}

/// Records of one time may come in any order of their runs.
fn sorted(mut records: Vec<LogRecord>) -> Vec<LogRecord> {
    assert!(records.is_sorted_by_key(|record| record.time_ns));
    records.sort_by(|a, b| a.time_ns.cmp(&b.time_ns).then_with(|| format!("{a:?}").cmp(&format!("{b:?}"))));
    records
}

/// Spans and records are kept for longer than the ones of these tests are old.
fn kept() -> Options {
    Options { span_retention_ns: i64::MAX, record_retention_ns: i64::MAX, ..options() }
}

fn play(steps: Vec<Step>) {
    let dir = tempfile::tempdir().unwrap();
    let (mut store, mut simple) = (Store::open(dir.path(), kept()).unwrap(), Simple::default());
    for step in steps {
        match step {
            Step::Append(spans, records) => {
                let changes = vec![run_change("a"), run_change("b")];
                let batch =
                    Batch { changes, spans: spans.clone(), records: records.clone(), ..Batch::default() };
                store.append(batch).unwrap();
                simple.spans.extend(spans);
                simple.records.extend(records);
            }
            Step::Seal => seal(&store),
            Step::Reopen => {
                drop(store);
                store = Store::open(dir.path(), kept()).unwrap();
            }
            Step::Close => {
                store.close();
                drop(store);
                store = Store::open(dir.path(), kept()).unwrap();
            }
            Step::Delete(run) => {
                if store.delete_run(path(run).id(), T0).unwrap() {
                    simple.deleted.push(run);
                }
            }
            Step::Restore(run) => {
                store.restore_run(path(run).id()).unwrap();
                simple.deleted.retain(|deleted| *deleted != run);
            }
            Step::Purge => {
                store.purge_deleted(i64::MAX).unwrap();
                let gone = std::mem::take(&mut simple.deleted);
                let is_gone = |run| gone.iter().any(|gone| run == Some(path(gone).id()));
                simple.spans.retain(|span| !is_gone(span.run));
                simple.records.retain(|record| !is_gone(record.run));
            }
            Step::Ask(ask, of_records) => {
                assert_eq!(spans(&store, &ask), simple.spans(&ask), "{ask:?}");
                let found = sorted(records(&store, &of_records));
                assert_eq!(found, sorted(simple.records(&of_records)), "{of_records:?}");
            }
        }
    }
    let all = SpanAsk::default();
    assert_eq!(spans(&store, &all), simple.spans(&all));
    let all = RecordAsk::default();
    assert_eq!(sorted(records(&store, &all)), sorted(simple.records(&all)));
    assert_eq!(store.status().damage, Vec::<String>::new());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases(24)))]

    #[test]
    fn the_store_answers_as_a_simple_list_does(steps in prop::collection::vec(any_step(), 1..24)) {
        play(steps);
    }

    /// So many files of a day that they are merged.
    #[test]
    fn merged_files_answer_as_a_simple_list_does(
        rounds in prop::collection::vec(
            (prop::collection::vec(any_span(), 0..12), prop::collection::vec(any_record(), 0..4), any_step()),
            9..22,
        ),
    ) {
        let steps = rounds.into_iter().flat_map(|(spans, records, more)| {
            let all = Step::Ask(SpanAsk::default(), RecordAsk::default());
            [Step::Append(spans, records), Step::Seal, all, more]
        });
        play(steps.collect());
    }
}

#[test]
fn equal_ids_of_ranks_that_seed_alike_stay_apart() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let all: Vec<Span> = (0..4).flat_map(|rank| (0..3).map(move |n| step_span("a", rank, 1, n))).collect();
    store.append(span_batch("a", all.clone())).unwrap();
    // The same again changes nothing.
    store.append(span_batch("a", all.clone())).unwrap();
    let of_rank = |rank| spans(&store, &SpanAsk { ranks: Some(vec![rank]), ..SpanAsk::default() }).len();
    assert_eq!(spans(&store, &SpanAsk::default()).len(), all.len());
    assert_eq!((0..5).map(of_rank).collect::<Vec<_>>(), [3, 3, 3, 3, 0]);
}

#[test]
fn equal_ids_of_a_restarted_process_stay_apart_wherever_they_lie() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = open(dir.path());
    // The second life goes on at step 5, with the ids of step 1.
    let life = |incarnation: u32, iteration: i64| -> Vec<Span> {
        let later_ns = (iteration - 1) * 1_000 * MS;
        let span = |n| {
            let span = step_span("a", 0, 1, n);
            let (start_ns, end_ns) = (span.start_ns + later_ns, span.end_ns + later_ns);
            Span { incarnation, iteration: Some(iteration), start_ns, end_ns, ..span }
        };
        (0..3).map(span).collect()
    };
    let (first, second) = (life(0x9e37_79b9, 1), life(0xdead_beef, 5));
    let both = [first.clone(), second.clone()].concat();
    let check = |store: &Store| {
        let of = |iteration| SpanAsk { iterations: Some(iteration..=iteration), ..SpanAsk::default() };
        assert_eq!(spans(store, &of(1)), first);
        assert_eq!(spans(store, &of(5)), second);
        let of_trace = SpanAsk { trace: Some(first[0].trace), ..SpanAsk::default() };
        assert_eq!(spans(store, &of_trace), both);
    };
    // One request holds both, as after the network was away.
    store.append(span_batch("a", both.clone())).unwrap();
    check(&store);
    // Each is sent again by itself: in memory, and over what is sealed.
    for _ in 0..2 {
        store.append(span_batch("a", first.clone())).unwrap();
        store.append(span_batch("a", second.clone())).unwrap();
        check(&store);
        seal(&store);
        check(&store);
    }
    // What comes again of one life replaces that one's only.
    let changed: Vec<Span> = first.iter().map(|span| Span { status: 2, ..span.clone() }).collect();
    store.append(span_batch("a", changed.clone())).unwrap();
    for step in 0..3 {
        assert_eq!(spans(&store, &SpanAsk::default()), [changed.clone(), second.clone()].concat(), "{step}");
        if step == 0 {
            seal(&store);
        }
        drop(store);
        store = open(dir.path());
    }
    assert_eq!(store.status().damage, Vec::<String>::new());
}

#[test]
fn the_callers_rows_come_back_by_prefix_and_survive() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    assert_eq!(store.state(b"").unwrap(), []);
    let row =
        |key: &str, value: Option<&str>| (key.as_bytes().to_vec(), value.map(|v| v.as_bytes().to_vec()));
    let rows =
        vec![row("a/1", Some("x")), row("a/2", Some("")), row("b/1", Some("y")), row("a/1", Some("z"))];
    store.append(Batch { state: rows, ..Batch::default() }).unwrap();
    store.append(Batch { state: vec![row("b/1", None), row("b/9", None)], ..Batch::default() }).unwrap();
    let check = |store: &Store| {
        let kept = |key: &str, value: &str| (key.as_bytes().to_vec(), value.as_bytes().to_vec());
        assert_eq!(store.state(b"a/").unwrap(), [kept("a/1", "z"), kept("a/2", "")]);
        assert_eq!(store.state(b"").unwrap().len(), 2);
        assert_eq!(store.state(b"b").unwrap(), []);
    };
    check(&store);
    store.backup(&dir.path().join("copy")).unwrap();
    drop(store);
    check(&open(dir.path()));
    check(&open(&dir.path().join("copy")));
}

#[test]
fn a_repeated_delivery_brings_nothing_twice() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let record = LogRecord { time_ns: T0, body: "once".into(), ..LogRecord::default() };
    let batch = || Batch {
        writer: Some((writer(1), 1)),
        records: vec![record.clone()],
        state: vec![(b"count".to_vec(), Some(b"1".to_vec()))],
        ..Batch::default()
    };
    assert!(!store.append(batch()).unwrap().duplicate);
    store.append(Batch { state: vec![(b"count".to_vec(), None)], ..Batch::default() }).unwrap();
    assert!(store.append(batch()).unwrap().duplicate);
    assert_eq!(records(&store, &RecordAsk::default()), [record]);
    assert_eq!(store.state(b"").unwrap(), []);
}

#[test]
fn a_record_that_is_sent_again_is_one_and_equal_words_at_another_time_are_another() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), kept()).unwrap();
    let record = |at: i64| LogRecord { time_ns: T0 + at, body: "loss is nan".into(), ..LogRecord::default() };
    let batch = |records| Batch { records, ..Batch::default() };
    store.append(batch(vec![record(0), record(1)])).unwrap();
    seal(&store);
    store.append(batch(vec![record(0), record(1), record(2)])).unwrap();
    let other = LogRecord { rank: Some(3), ..record(1) };
    store.append(batch(vec![other.clone()])).unwrap();
    let found = records(&store, &RecordAsk::default());
    assert_eq!(found, [record(0), record(1), other, record(2)]);
}

#[test]
fn the_newest_exemplars_of_a_series_are_kept() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let identity = series_identity(&path("a"), "loss", model::DEFAULT_SCALE, &[]);
    let exemplar = |n: i64| Exemplar {
        time_ns: T0 + n * MS,
        value: n as f64,
        labels: vec![("trace_id".into(), format!("{n:032x}"))],
    };
    let beside = |n| (identity.clone(), exemplar(n));
    for first in [0, 60, 120] {
        // Exporters send the latest again and again.
        let exemplars = (first..first + 60).flat_map(|n| [beside(n), beside(n)]).collect();
        store.append(Batch { exemplars, ..batch("a", "loss", line(first, 60)) }).unwrap();
    }
    let unknown = series_identity(&path("a"), "other", model::DEFAULT_SCALE, &[]);
    store.append(Batch { exemplars: vec![(unknown, exemplar(1))], ..Batch::default() }).unwrap();
    let check = |store: &Store| {
        let id = series(store, "a", "loss").id;
        let kept = store.exemplars(id, i64::MIN, i64::MAX);
        assert_eq!(kept, (80..180).map(exemplar).collect::<Vec<_>>());
        let some = store.exemplars(id, T0 + 100 * MS, T0 + 101 * MS);
        assert_eq!(some, (100..102).map(exemplar).collect::<Vec<_>>());
        id
    };
    let id = check(&store);
    drop(store);
    let store = open(dir.path());
    check(&store);
    store.delete_run(path("a").id(), T0).unwrap();
    assert_eq!(store.exemplars(id, i64::MIN, i64::MAX), []);
    store.restore_run(path("a").id()).unwrap();
    check(&store);
    store.delete_run(path("a").id(), T0).unwrap();
    store.purge_deleted(i64::MAX).unwrap();
    store.append(batch("a", "loss", line(0, 1))).unwrap();
    drop(store);
    let store = open(dir.path());
    assert_eq!(store.exemplars(series(&store, "a", "loss").id, i64::MIN, i64::MAX), []);
}

#[test]
fn exemplars_of_no_run_go_with_the_samples_beside_them() {
    let dir = tempfile::tempdir().unwrap();
    let day_ns = 86_400 * model::NANOS_PER_SECOND;
    let store = Store::open(dir.path(), Options { fleet_retention_ns: 2 * day_ns, ..raw_only() }).unwrap();
    let identity = |name: &str| model::SeriesIdentity {
        labels: model::Labels::from_pairs([("__name__", name)]),
        display: name.into(),
    };
    let exemplar = |time_ns| Exemplar { time_ns, value: 1.0, labels: Vec::new() };
    let append = |name: &str, time_ns| {
        let samples = vec![model::Sample { time_ns, value: 1.0, step: None }];
        let series = vec![store::SeriesBatch { identity: identity(name), samples }];
        let exemplars = vec![(identity(name), exemplar(time_ns))];
        store.append(Batch { series, exemplars, ..Batch::default() }).unwrap();
    };
    append("old", T0 - 5 * day_ns);
    append("both", T0 - 5 * day_ns);
    append("both", T0);
    let kept = |store: &Store, name: &str| {
        let id = store.series_number(&identity(name));
        id.map_or(0, |id| store.exemplars(id, i64::MIN, i64::MAX).len())
    };
    assert_eq!((kept(&store, "old"), kept(&store, "both")), (1, 2));
    seal(&store);
    assert_eq!((kept(&store, "old"), kept(&store, "both")), (0, 1));
    drop(store);
    let store = open(dir.path());
    assert_eq!((kept(&store, "old"), kept(&store, "both")), (0, 1));
    store
        .append(Batch { exemplars: vec![(identity("both"), exemplar(T0 + 1))], ..Batch::default() })
        .unwrap();
    assert_eq!(kept(&store, "both"), 2);
}
