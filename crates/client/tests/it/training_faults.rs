//! Training telemetry beside backends that refuse, hang, lie or go away.

use std::net::TcpListener;
use std::time::{Duration, Instant};

use client::training::Training;
use semconv::instruments::MEGATRON;
use wire::otlp::answer::{self, Encoding, Signal};
use wire::otlp::{Outcome, Refusal};

use crate::receiver::{Manner, Receiver, gauge, sum};
use crate::support::{LONG, until};
use crate::training::{NOW, eight, sent, settings, shut, training};

/// A bound that a shutdown is given where its backend is no use.
const BOUND: Duration = Duration::from_millis(500);

fn flush_fails(training: &Training) {
    assert!(!training.force_flush(LONG, &mut || false));
}

#[test]
fn what_a_busy_backend_turned_away_comes_again_after_its_wish() {
    let receiver = Receiver::start();
    let training = training(&receiver);
    let [_, loss, _, _, skipped, ..] = eight(&training);
    let retry_info = answer::status(14, "later", Some(1), Encoding::Protobuf);
    receiver.set(Manner::Status(429, "retry-after: 1\r\n", Vec::new()));
    training.record(&[(loss, 0.0), (skipped, 1.0)], NOW);
    flush_fails(&training);
    receiver.set(Manner::Take);
    // Nobody asks for it: it comes by itself.
    until("it came again", || training.totals().sent_points == 2);
    let manners = [
        Manner::Status(503, "", retry_info),
        Manner::Status(502, "", Vec::new()),
        Manner::Status(504, "", Vec::new()),
        Manner::Hang,
    ];
    for (n, manner) in (1..).zip(manners) {
        let is_hanging = matches!(manner, Manner::Hang);
        receiver.set(manner);
        training.record(&[(loss, f64::from(n)), (skipped, 1.0)], NOW);
        if is_hanging {
            assert!(!training.force_flush(Duration::from_millis(100), &mut || false));
        } else {
            flush_fails(&training);
        }
    }
    receiver.set(Manner::Take);
    until("the hanging request has ended", || training.force_flush(LONG, &mut || false));
    let losses: Vec<f64> = receiver.metrics(MEGATRON[1].name).iter().map(|m| gauge(m)[0].0).collect();
    assert_eq!(losses, [0.0, 1.0, 2.0, 3.0, 4.0], "in order, none missing, none doubled");
    let mut totals: Vec<i64> = receiver.metrics(MEGATRON[4].name).iter().map(|m| sum(m).0).collect();
    // Each flush tells the total, whether it has changed or not.
    totals.dedup();
    assert_eq!(totals, [1, 2, 3, 4, 5]);
    assert_eq!(training.totals().lost_points, 0);
}

#[test]
fn what_is_refused_for_good_is_lost_and_counted() {
    let receiver = Receiver::start();
    let training = training(&receiver);
    let [_, loss, ..] = eight(&training);
    for status in [301, 400, 401, 404, 413, 500] {
        receiver.set(Manner::Status(status, "", answer::status(3, "no", None, Encoding::Protobuf)));
        training.record(&[(loss, 1.0)], NOW);
        flush_fails(&training);
    }
    // The loss, and the counter at zero.
    assert_eq!((training.totals().lost_points, training.totals().sent_points), (12, 0));
    receiver.set(Manner::Take);
    training.record(&[(loss, 2.0)], NOW);
    sent(&training);
    assert_eq!(gauge(&receiver.metrics(MEGATRON[1].name)[0])[0].0, 2.0);
}

#[test]
fn partial_success_is_counted() {
    let receiver = Receiver::start();
    let training = training(&receiver);
    let [_, loss, ..] = eight(&training);
    let mut outcome = Outcome::default();
    outcome.refuse("megatron.training.loss", 1, Refusal::new("limit", "too many"));
    receiver.set(Manner::TakeAndSay(answer::response(Signal::Metrics, &outcome, Encoding::Protobuf)));
    training.record(&[(loss, 1.0)], NOW);
    flush_fails(&training);
    assert_eq!((training.totals().lost_points, training.totals().sent_points), (1, 1));
    // Advice without a refusal is no loss, and neither is an answer that can't be read.
    for answer in [b"\x0a\x03\x12\x01x".to_vec(), b"<html>".to_vec()] {
        receiver.set(Manner::TakeAndSay(answer));
        training.record(&[(loss, 1.0)], NOW);
        sent(&training);
    }
    assert_eq!((training.totals().lost_points, training.totals().sent_points), (1, 5));
}

#[test]
fn an_answer_that_is_lost_repeats_the_same_bytes() {
    let receiver = Receiver::start();
    let training = training(&receiver);
    let [_, loss, ..] = eight(&training);
    receiver.set(Manner::TakeAndHangUp);
    training.record(&[(loss, 1.0)], NOW);
    flush_fails(&training);
    receiver.set(Manner::Take);
    sent(&training);
    let seen = receiver.seen();
    assert_eq!(seen.metrics[0], seen.metrics[1]);
}

#[test]
fn backend_that_comes_back_misses_nothing() {
    let mut receiver = Receiver::start();
    let training = training(&receiver);
    let [_, loss, _, _, skipped, ..] = eight(&training);
    training.record(&[(loss, 0.0), (skipped, 1.0)], NOW);
    sent(&training);
    receiver.stop();
    for n in 1..=5_i32 {
        training.record(&[(loss, f64::from(n)), (skipped, 1.0)], NOW);
        let span = training.start("s", &format!("step {n}"), None, &[]);
        span.end(None);
        flush_fails(&training);
    }
    receiver.start_again();
    sent(&training);
    let losses: Vec<f64> = receiver.metrics(MEGATRON[1].name).iter().map(|m| gauge(m)[0].0).collect();
    assert_eq!(losses, [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]);
    let last = receiver.metrics(MEGATRON[4].name).last().map(sum).unwrap();
    assert_eq!(last.0, 6);
    let seen = receiver.seen();
    let resources = seen.traces.iter().flat_map(|request| &request.resource_spans);
    let spans = resources.flat_map(|resource| &resource.scope_spans).flat_map(|scope| &scope.spans);
    let names: Vec<&str> = spans.map(|span| span.name.as_str()).collect();
    assert_eq!(names, ["step 1", "step 2", "step 3", "step 4", "step 5"]);
    drop(seen);
    assert_eq!(training.totals().lost_spans + training.totals().lost_points, 0);
}

#[test]
fn ten_minutes_of_an_absent_backend_are_kept() {
    let mut receiver = Receiver::start();
    let training = training(&receiver);
    let [step, loss, _, _, skipped, ..] = eight(&training);
    receiver.stop();
    // A hundred values a second for ten minutes, an export every ten seconds.
    for export in 0..60_i32 {
        for _ in 0..333 {
            training.record(&[(loss, f64::from(export)), (step, 30_000.0), (skipped, 1.0)], NOW);
        }
        flush_fails(&training);
    }
    assert_eq!(training.totals().lost_points, 0);
    receiver.start_again();
    sent(&training);
    let losses: Vec<f64> = receiver.metrics(MEGATRON[1].name).iter().map(|m| gauge(m)[0].0).collect();
    assert_eq!(losses, (0..60).map(f64::from).collect::<Vec<_>>(), "none missing, none doubled");
    let totals: Vec<i64> = receiver.metrics(MEGATRON[4].name).iter().map(|m| sum(m).0).collect();
    assert_eq!(totals[..60], (1..=60).map(|n| n * 333).collect::<Vec<_>>());
    assert_eq!(training.totals().recorded, 60 * 999);
}

#[test]
fn shutdown_is_bounded_beside_a_port_that_refuses_and_one_that_is_silent() {
    let refusing = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    // Connections wait in its backlog for ever.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    for (address, waits) in [(refusing, false), (silent.local_addr().unwrap(), true)] {
        let training = Training::setup(settings(&format!("http://{address}"), &[]), None);
        let [_, loss, ..] = eight(&training);
        training.record(&[(loss, 1.0)], NOW);
        training.start("s", "n", None, &[]).end(None);
        training.log(model::LogRecord::default());
        let started = Instant::now();
        let shutdown = training.shutdown(BOUND, &mut || false);
        // A bound that only a shutdown without one exceeds, however busy the machine is.
        assert!(started.elapsed() < LONG);
        assert!(shutdown.is_first && (shutdown.took >= BOUND) == waits, "{address} {shutdown:?}");
        assert_eq!((shutdown.lost_points, shutdown.lost_spans, shutdown.lost_records), (2, 1, 1));
        assert_eq!(shut(&training), client::training::Shutdown::default(), "the second says nothing");
        training.record(&[(loss, 1.0), (loss, 2.0)], NOW);
        training.log(model::LogRecord::default());
        assert_eq!((training.totals().after_shutdown, training.totals().lost_points), (3, 2));
        flush_fails(&training);
    }
}

#[test]
fn shutdown_waits_for_a_busy_backend_within_its_bound() {
    let receiver = Receiver::start();
    let training = training(&receiver);
    let [_, loss, ..] = eight(&training);
    receiver.set(Manner::Status(503, "retry-after: 1\r\n", Vec::new()));
    training.record(&[(loss, 1.0)], NOW);
    std::thread::scope(|scope| {
        let ending = scope.spawn(|| shut(&training));
        until("it was turned away", || receiver.seen().requests > 0);
        receiver.set(Manner::Take);
        let shutdown = ending.join().unwrap();
        assert_eq!((shutdown.is_first, shutdown.lost_points), (true, 0));
    });
    assert_eq!(receiver.metrics(MEGATRON[1].name).len(), 1);
}

#[test]
fn caller_can_give_up_waiting() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", silent.local_addr().unwrap());
    let training = Training::setup(settings(&url, &[]), None);
    let [_, loss, ..] = eight(&training);
    training.record(&[(loss, 1.0)], NOW);
    assert!(!training.force_flush(LONG * 10, &mut || true));
    let shutdown = training.shutdown(LONG * 10, &mut || true);
    // Two of the flush, and the counter's total once more at the end.
    assert!(shutdown.is_first && shutdown.took < LONG && shutdown.lost_points == 3, "{shutdown:?}");
}

#[test]
fn full_queue_of_spans_keeps_the_latest() {
    let receiver = Receiver::start();
    let training = Training::setup(settings(&receiver.url(), &[("OTEL_BSP_MAX_QUEUE_SIZE", "100")]), None);
    receiver.set(Manner::Hang);
    // The sender is held by a batch of metrics, so that spans have to wait.
    let [_, loss, ..] = eight(&training);
    training.record(&[(loss, 1.0)], NOW);
    assert!(!training.force_flush(Duration::from_millis(50), &mut || false));
    until("the backend was asked", || receiver.seen().requests > 0);
    for n in 0..250 {
        training.start("s", &n.to_string(), None, &[]).end(None);
    }
    assert_eq!(training.totals().lost_spans, 150);
    receiver.set(Manner::Take);
    until("spans arrived", || training.totals().sent_spans == 100);
    let seen = receiver.seen();
    let resources = seen.traces.iter().flat_map(|request| &request.resource_spans);
    let spans = resources.flat_map(|resource| &resource.scope_spans).flat_map(|scope| &scope.spans);
    let names: Vec<String> = spans.map(|span| span.name.clone()).collect();
    assert_eq!(names, (150..250).map(|n| n.to_string()).collect::<Vec<_>>());
}

#[test]
fn missing_certificates_lose_data_and_nothing_else() {
    let more = [("OTEL_EXPORTER_OTLP_CERTIFICATE", "/nowhere/ca.pem")];
    let training = Training::setup(settings("https://127.0.0.1:1", &more), None);
    let [_, loss, ..] = eight(&training);
    training.record(&[(loss, 1.0)], NOW);
    flush_fails(&training);
    assert_eq!(training.totals().lost_points, 2);
}
