//! What no client of metrana sends, and what becomes of the others meanwhile.

use std::io::{Read, Write};
use std::net::TcpStream;

use prost::Message;
use server::StartError;
use wire::metrana::{
    AttributeUpdate, AttributeValue, PointBatch, ResumePolicy, SeriesUpdate, UpdateRunRequest,
};

use crate::grpc::{INVALID_ARGUMENT, NOT_FOUND, Peer, UNAVAILABLE};
use crate::metrana::{
    Given, World, acknowledged, asks, block, config, declared, initialize, points, stream, update,
};

async fn ready(world: &World) -> (Peer, Given) {
    let mut peer = world.peer().await;
    let run = initialize(&mut peer, &asks(1, "job", ResumePolicy::Never)).await.unwrap();
    (peer, run)
}

#[test]
fn unusable_streams_end_with_a_reason_and_the_next_is_served() {
    let world = World::new();
    block(async {
        let (mut peer, run) = ready(&world).await;
        let huge = [&[0][..], &u32::MAX.to_be_bytes(), &[0; 64]].concat();
        let garbage = [&[0][..], &4_u32.to_be_bytes(), &[0xff; 4]].concat();
        let packed = [&[1][..], &4_u32.to_be_bytes(), &[0xff; 4]].concat();
        let empties = [0x2a, 0].repeat(1 << 20);
        let many = [&[0][..], &(empties.len() as u32).to_be_bytes(), &empties].concat();
        for (bytes, wanted) in
            [(&garbage, "protobuf"), (&many, "in parts"), (&huge, "length"), (&packed, "encoding")]
        {
            let call = stream(&mut peer, &run, 1).await;
            call.send_raw(bytes).await;
            let (_, end) = call.rest().await;
            assert_ne!(end.code, 0, "{wanted}");
            assert!(end.words.contains(wanted), "{end:?} does not say `{wanted}`");
        }
        let mut call = stream(&mut peer, &run, 1).await;
        let mut message = update(&run, 1, 1);
        message.series_declarations = vec![declared("loss", 1)];
        message.series = vec![points(1, 0, &[1.0])];
        call.send(&message).await;
        acknowledged(&mut call).await;
        assert_eq!(world.series().await, [("loss".to_owned(), 1)]);
    });
}

#[test]
fn a_stream_is_of_one_logger_and_a_run_that_is_known() {
    let world = World::new();
    block(async {
        let (mut peer, run) = ready(&world).await;
        let hello =
            |run_id: Vec<u8>| UpdateRunRequest { run_id, logger_id: 1, ..UpdateRunRequest::default() };
        let unknown = [&[0; 8][..], &run.id[8..]].concat();
        let others = [&run.id[..8], &[0; 8]].concat();
        for run_id in [unknown, others, Vec::new(), vec![0; 99]] {
            let (_, end) = peer.ask("UpdateRunStream", &hello(run_id)).await;
            assert_eq!(end.code, NOT_FOUND, "{end:?}");
        }
        let call = stream(&mut peer, &run, 1).await;
        call.send(&update(&run, 2, 1)).await;
        assert_eq!(call.rest().await.1.code, INVALID_ARGUMENT);
        let mut nameless = asks(1, "job", ResumePolicy::Never);
        nameless.run.as_mut().unwrap().run_name.clear();
        assert_eq!(initialize(&mut peer, &nameless).await.err().unwrap().code, INVALID_ARGUMENT);
    });
}

#[test]
fn points_that_cannot_be_kept_cost_themselves_only() {
    let world = World::new();
    block(async {
        let (mut peer, run) = ready(&world).await;
        let mut call = stream(&mut peer, &run, 1).await;
        let mut message = update(&run, 1, 1);
        let batch = |batch: PointBatch| SeriesUpdate { series_id: 1, point_batches: vec![batch] };
        let values = vec![1.0, 2.0];
        message.series_declarations = vec![declared("loss", 1), declared("bad\u{7}name", 2)];
        message.series = vec![
            points(1, 0, &[1.0, f32::NAN, f32::NEG_INFINITY]),
            points(2, 0, &[1.0]),
            points(404, 0, &[1.0, 2.0]),
            batch(PointBatch { values: values.clone(), steps: vec![1], ..PointBatch::default() }),
            batch(PointBatch {
                values: values.clone(),
                timestamps_millis: vec![1; 3],
                ..PointBatch::default()
            }),
            batch(PointBatch { values: values.clone(), values_f32: vec![1.0], ..PointBatch::default() }),
            batch(PointBatch { values: values.clone(), first_step: Some(u64::MAX), ..PointBatch::default() }),
            batch(PointBatch {
                values: values.clone(),
                first_step: Some(i64::MAX as u64),
                ..PointBatch::default()
            }),
            batch(PointBatch { values, timestamp_millis: Some(i64::MAX), ..PointBatch::default() }),
        ];
        call.send(&message).await;
        acknowledged(&mut call).await;
        assert_eq!(world.series().await, [("loss".to_owned(), 3)]);
        let refused = world.the_run().await["refused"].clone();
        let wanted = serde_json::json!({
            "metric_name": 1, "unknown_series": 2, "columns": 7, "step": 4, "time_out_of_range": 2
        });
        assert_eq!(refused, wanted);
    });
}

#[test]
fn points_without_steps_go_on_where_the_series_is() {
    let world = World::new();
    block(async {
        let (mut peer, run) = ready(&world).await;
        for (sequence, logger_session) in [(1, 5), (1, 6)] {
            let mut call = stream(&mut peer, &run, 1).await;
            let mut message = update(&run, 1, sequence);
            message.logger_session_id = logger_session;
            message.series_declarations = vec![declared("loss", 1)];
            let batch = PointBatch { values: vec![1.0, 2.0], ..PointBatch::default() };
            message.series = vec![SeriesUpdate { series_id: 1, point_batches: vec![batch.clone(), batch] }];
            call.send(&message).await;
            acknowledged(&mut call).await;
        }
        let again = initialize(&mut peer, &asks(1, "job", ResumePolicy::Never)).await.unwrap();
        assert_eq!(again.steps, [("loss".to_owned(), String::new(), 7)]);
    });
}

#[test]
fn twenty_thousand_series_are_declared_at_once() {
    let world = World::new();
    block(async {
        let (mut peer, run) = ready(&world).await;
        let mut call = stream(&mut peer, &run, 1).await;
        let mut message = update(&run, 1, 0);
        message.series_declarations = (0..20_000).map(|id| declared(&format!("metric/{id}"), id)).collect();
        call.send(&message).await;
        acknowledged(&mut call).await;
        let mut message = update(&run, 1, 1);
        message.series = (0..20_000).map(|id| points(id, 0, &[1.0])).collect();
        call.send(&message).await;
        acknowledged(&mut call).await;
        let again = initialize(&mut peer, &asks(2, "job", ResumePolicy::Never)).await.unwrap();
        assert_eq!(again.steps.len(), 20_000);
    });
}

#[test]
fn messages_that_never_end_hold_a_bounded_part_of_the_memory() {
    const PART: usize = 15 << 20;
    let world = World::new();
    block(async {
        let (mut peer, run) = ready(&world).await;
        let mut halves = tokio::task::JoinSet::new();
        for _ in 0..10 {
            let call = peer.call("UpdateRunStream").await;
            halves.spawn(async move {
                let whole = (PART as u32 + 1).to_be_bytes();
                call.send_raw(&[&[0][..], &whole].concat()).await;
                let piece = vec![0; 1 << 16];
                for _ in 0..PART >> 16 {
                    call.send_raw(&piece).await;
                }
                call.rest().await.1
            });
        }
        let end = halves.join_next().await.unwrap().unwrap();
        assert_eq!(end.code, UNAVAILABLE, "{end:?}");
        assert!(end.words.contains("busy"), "{end:?}");
        halves.shutdown().await;
        let mut call = stream(&mut peer, &run, 1).await;
        let mut message = update(&run, 1, 1);
        message.series_declarations = vec![declared("loss", 1)];
        message.series = vec![points(1, 0, &[1.0])];
        call.send(&message).await;
        acknowledged(&mut call).await;
    });
}

#[test]
fn long_words_about_a_run_are_refused_when_it_is_made() {
    let world = World::new();
    block(async {
        let mut peer = world.peer().await;
        let mut asked = asks(1, &"j".repeat(5_000), ResumePolicy::Never);
        let end = initialize(&mut peer, &asked).await.err().unwrap();
        assert_eq!(end.code, INVALID_ARGUMENT, "{end:?}");
        assert!(end.words.contains("5000 bytes"), "{end:?}");
        let run = asked.run.as_mut().unwrap();
        run.orchestration_identifier = Some("job".into());
        run.experiment = Some("e".repeat(900 << 10));
        initialize(&mut peer, &asked).await.unwrap();
        let run = world.the_run().await;
        assert_eq!(run["refused"], serde_json::json!({"attribute": 1}));
        assert!(run["attributes"]["experiment"].is_null(), "{run}");
    });
}

#[test]
fn who_does_not_read_its_answers_holds_nobody_up() {
    const MESSAGES: u64 = 200;
    let world = World::new();
    block(async {
        let mut slow = Peer::connect(world.running.grpc_addr.unwrap(), 32).await;
        let run = initialize(&mut slow, &asks(1, "job", ResumePolicy::Never)).await.unwrap();
        let mut slow_call = stream(&mut slow, &run, 1).await;
        let first = update(&run, 1, 1);
        let text = Some(AttributeValue::Text("x".repeat(32 << 10)));
        let note = vec![AttributeUpdate { path: "note".into(), value: text }];
        {
            let sends = async {
                for sequence in 1..=MESSAGES {
                    let mut message = UpdateRunRequest { sequence_number: sequence * 256, ..first.clone() };
                    message.series_declarations = vec![declared("slow", 1)];
                    message.attributes = note.clone();
                    message.series = vec![points(1, sequence, &[0.5])];
                    slow_call.send(&message).await;
                }
            };
            let quick = async {
                let mut peer = world.peer().await;
                let mut call = stream(&mut peer, &run, 2).await;
                for sequence in 1..=10 {
                    let mut message = update(&run, 2, sequence);
                    message.series_declarations = vec![declared("quick", 1)];
                    message.series = vec![points(1, sequence, &[1.0])];
                    call.send(&message).await;
                    acknowledged(&mut call).await;
                }
            };
            // The slow one's sending stalls until somebody reads; the quick one is done meanwhile.
            tokio::pin!(sends);
            tokio::select! {
                () = &mut sends => panic!("nothing held the sender back"),
                () = quick => {}
            }
        }
        slow_call.finish();
        let (answers, end) = slow_call.rest().await;
        assert_eq!(end.code, 0, "{end:?}");
        let stored = world.series().await;
        assert_eq!(stored, [("quick".to_owned(), 10), ("slow".to_owned(), answers.len() as u64)]);
    });
}

#[test]
fn who_speaks_http_1_is_told_what_the_port_speaks() {
    let world = World::new();
    block(async {
        let mut stream = TcpStream::connect(world.running.grpc_addr.unwrap()).unwrap();
        stream.write_all(b"POST /v1/metrics HTTP/1.1\r\nhost: localhost\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 400 ") && answer.contains("this port speaks gRPC"), "{answer}");
    });
}

#[test]
fn the_port_is_opened_when_it_is_free_and_guarded_as_the_other() {
    let folder = tempfile::tempdir().unwrap();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let mut settings = config(folder.path());
    settings.otlp_grpc_listen = taken.local_addr().unwrap();
    let running = server::start(settings.clone()).unwrap();
    assert_eq!(running.grpc_addr, None, "the server does without");
    running.stop();
    settings.otlp_grpc_listen = ([0, 0, 0, 0], 0).into();
    assert!(
        matches!(server::start(settings), Err(StartError::Open { address }) if address.ip().is_unspecified())
    );
}

#[test]
fn rubbish_in_a_message_is_never_a_panic() {
    let message = UpdateRunRequest { series: vec![points(1, 0, &[1.0])], ..UpdateRunRequest::default() };
    let bytes = message.encode_to_vec();
    for cut in 0..bytes.len() {
        let _ = wire::metrana::decode_update(&bytes[..cut]);
    }
    assert_eq!(wire::metrana::decode_update(&bytes).unwrap(), message);
}
