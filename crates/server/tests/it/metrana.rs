//! A client of metrana, as it behaves.

use std::path::Path;
use std::time::{Duration, Instant};

use prost::Message;
use serde_json::Value;
use server::{Config, Running};
use tempfile::TempDir;
use wire::metrana::{
    CloseRun, InitializeRunLoggingRequest, InitializeRunLoggingResponse, Initialized, Ordering, PointBatch,
    ResumePolicy, Run, SeriesDeclaration, SeriesUpdate, UpdateRunRequest, UpdateRunResponse,
};

use crate::grpc::{Call, End, PERMISSION_DENIED, Peer, UNAUTHENTICATED, UNAVAILABLE, UNIMPLEMENTED};

/// 2023-11-14, milliseconds.
pub(crate) const T0_MS: i64 = 1_700_000_000_000;

/// Does it, on a runtime that is gone before the server is: a server can't be stopped from within one.
pub(crate) fn block(what: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let bounded = async { tokio::time::timeout(Duration::from_secs(50), what).await };
    runtime.block_on(bounded).unwrap();
}

/// A server in this process.
pub(crate) struct World {
    pub(crate) running: Running,
    pub(crate) _folder: TempDir,
}

/// A run that a client was given.
pub(crate) struct Given {
    pub(crate) id: Vec<u8>,
    pub(crate) created: bool,
    pub(crate) job: Option<String>,
    pub(crate) steps: Vec<(String, String, u64)>,
}

pub(crate) fn config(folder: &Path) -> Config {
    Config {
        data_dir: folder.join("data"),
        spool_dir: folder.join("spool"),
        listen: ([127, 0, 0, 1], 0).into(),
        otlp_grpc_listen: ([127, 0, 0, 1], 0).into(),
        otlp_http_listen: ([127, 0, 0, 1], 0).into(),
        own_metrics: false,
        starter_rules: false,
        ..Config::default()
    }
}

impl World {
    pub(crate) fn new() -> Self {
        Self::with(|_| ())
    }

    pub(crate) fn with(change: impl FnOnce(&mut Config)) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut config = config(folder.path());
        change(&mut config);
        Self { running: server::start(config).unwrap(), _folder: folder }
    }

    pub(crate) async fn peer(&self) -> Peer {
        Peer::connect(self.running.grpc_addr.unwrap(), 1 << 20).await
    }

    pub(crate) async fn get(&self, path: &str) -> Value {
        let url = format!("{}/api/tg/v1/{path}", self.running.url);
        let asked = tokio::task::spawn_blocking(move || {
            ureq::get(&url).call().unwrap().body_mut().read_to_string().unwrap()
        });
        serde_json::from_str(&asked.await.unwrap()).unwrap()
    }

    pub(crate) async fn the_run(&self) -> Value {
        let runs = self.get("runs").await;
        let id = runs["runs"][0]["run_id"].as_str().unwrap();
        self.get(&format!("runs/{id}")).await
    }

    /// Name as logged and number of points of every series.
    pub(crate) async fn series(&self) -> Vec<(String, u64)> {
        let id = self.the_run().await["run_id"].as_str().unwrap().to_owned();
        let found = self.get(&format!("runs/{id}/metrics")).await;
        let one = |m: &Value| (m["display"].as_str().unwrap().to_owned(), m["points"].as_u64().unwrap());
        found["metrics"].as_array().unwrap().iter().map(one).collect()
    }
}

/// Waits until a run of the world is as wanted.
pub(crate) async fn eventually(world: &World, what: &str, ready: impl Fn(&Value) -> bool) -> Value {
    let until = Instant::now() + Duration::from_mins(1);
    loop {
        let run = world.the_run().await;
        if ready(&run) {
            return run;
        }
        assert!(Instant::now() < until, "waited in vain: {what}; the run is {run}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

pub(crate) fn asks(logger_id: u64, job: &str, policy: ResumePolicy) -> InitializeRunLoggingRequest {
    let run = Run {
        workspace: "w".into(),
        project: "p".into(),
        run_name: "r".into(),
        orchestration_identifier: Some(job.into()),
        ..Run::default()
    };
    InitializeRunLoggingRequest { run: Some(run), logger_id, resume_policy: policy.into() }
}

pub(crate) async fn initialize(peer: &mut Peer, asked: &InitializeRunLoggingRequest) -> Result<Given, End> {
    let (parts, end) = peer.ask("InitializeRunLogging", asked).await;
    if end.code != 0 {
        return Err(end);
    }
    let mut given = Given { id: Vec::new(), created: false, job: None, steps: Vec::new() };
    let mut ends = Vec::new();
    for part in parts {
        match InitializeRunLoggingResponse::decode(&*part).unwrap().part.unwrap() {
            Initialized::Run(run) => {
                (given.id, given.created, given.job) =
                    (run.run_id, run.created, run.orchestration_identifier);
            }
            Initialized::LastLoggedSteps(steps) => {
                ends.push(("steps", steps.is_last));
                let one = steps.series.into_iter().map(|s| (s.metric_name, s.flat_labels, s.last_step));
                given.steps.extend(one);
            }
            Initialized::EnvStatuses(envs) => ends.push(("environments", envs.is_last)),
        }
    }
    let lasts = ends.split_off(ends.len() - 2);
    assert_eq!(lasts, [("steps", true), ("environments", true)], "the client asks again without them");
    assert!(ends.iter().all(|(what, is_last)| *what == "steps" && !is_last));
    assert_eq!(given.id.len(), 16);
    Ok(given)
}

/// A stream that was greeted.
pub(crate) async fn stream(peer: &mut Peer, run: &Given, logger_id: u64) -> Call {
    let mut call = peer.call("UpdateRunStream").await;
    call.send(&UpdateRunRequest { run_id: run.id.clone(), logger_id, ..UpdateRunRequest::default() }).await;
    acknowledged(&mut call).await;
    call
}

pub(crate) async fn acknowledged(call: &mut Call) {
    let answer = call.next().await.unwrap();
    UpdateRunResponse::decode(&*answer).unwrap();
}

pub(crate) fn declared(name: &str, declaration_id: u64) -> SeriesDeclaration {
    SeriesDeclaration {
        metric_name: name.into(),
        scale: "ML_STEP".into(),
        ordering: Ordering::AbsoluteOrdered.into(),
        declaration_id,
        ..SeriesDeclaration::default()
    }
}

pub(crate) fn points(series_id: u64, first_step: u64, values: &[f32]) -> SeriesUpdate {
    let batch = PointBatch {
        values_f32: values.to_vec(),
        first_step: Some(first_step),
        timestamps_millis: (0..values.len() as i64).map(|at| T0_MS + at).collect(),
        ..PointBatch::default()
    };
    SeriesUpdate { series_id, point_batches: vec![batch] }
}

/// A message that brings points.
pub(crate) fn update(run: &Given, logger_id: u64, sequence: u64) -> UpdateRunRequest {
    UpdateRunRequest {
        run_id: run.id.clone(),
        logger_id,
        logger_session_id: 77,
        sequence_number: sequence * 256,
        ..UpdateRunRequest::default()
    }
}

#[test]
fn a_message_is_stored_once_however_often_it_comes() {
    let world = World::new();
    block(async {
        let mut peer = world.peer().await;
        let run = initialize(&mut peer, &asks(1, "job", ResumePolicy::Never)).await.unwrap();
        assert!(run.created);
        let mut message = update(&run, 1, 1);
        message.series_declarations = vec![declared("loss", 9)];
        message.series = vec![points(9, 0, &[1.0, 2.0, 3.0])];
        for _ in 0..2 {
            // As after a connection that was lost: greeted, declared and sent again.
            let mut call = stream(&mut peer, &run, 1).await;
            call.send(&message).await;
            acknowledged(&mut call).await;
            call.send(&message).await;
            acknowledged(&mut call).await;
        }
        assert_eq!(world.series().await, [("loss".to_owned(), 3)]);
        let mut other = stream(&mut peer, &run, 1).await;
        message.logger_session_id = 78;
        other.send(&message).await;
        acknowledged(&mut other).await;
        assert_eq!(world.series().await, [("loss".to_owned(), 6)], "another process numbers on its own");
    });
}

#[test]
fn of_ranks_that_ask_at_once_one_has_made_the_run() {
    let world = World::new();
    block(async {
        let mut ranks = Vec::new();
        for logger_id in 0..8 {
            let mut peer = world.peer().await;
            ranks.push(tokio::spawn(async move {
                initialize(&mut peer, &asks(logger_id, "job", ResumePolicy::Never)).await.unwrap()
            }));
        }
        let mut created = Vec::new();
        for (logger_id, rank) in ranks.into_iter().enumerate() {
            let given = rank.await.unwrap();
            assert_eq!(given.job.as_deref(), Some("job"));
            created.extend(given.created.then_some(logger_id as u64));
        }
        assert_eq!(created.len(), 1);
        let mut peer = world.peer().await;
        let again = initialize(&mut peer, &asks(created[0], "job", ResumePolicy::Never)).await.unwrap();
        assert!(again.created, "its answer may have been lost, and it has the run's facts to send");
    });
}

#[test]
fn a_run_ends_with_its_last_logger_and_tells_where_it_was() {
    let world = World::new();
    block(async {
        let mut peer = world.peer().await;
        let run = initialize(&mut peer, &asks(1, "job", ResumePolicy::Never)).await.unwrap();
        let second = initialize(&mut peer, &asks(2, "job", ResumePolicy::Never)).await.unwrap();
        assert!(!second.created);
        let mut calls = [stream(&mut peer, &run, 1).await, stream(&mut peer, &run, 2).await];
        for (call, logger_id) in calls.iter_mut().zip(1..) {
            let mut message = update(&run, logger_id, 1);
            let mut series = declared("loss", 1);
            series.labels =
                [("pid".to_owned(), logger_id.to_string()), ("host".to_owned(), "h".to_owned())].into();
            message.series_declarations = vec![series];
            message.series = vec![points(1, 5, &[0.5, 0.25])];
            call.send(&message).await;
            acknowledged(call).await;
        }
        let close = |logger_id| UpdateRunRequest {
            close_run: Some(CloseRun::default()),
            ..update(&run, logger_id, 2)
        };
        calls[0].send(&close(1)).await;
        acknowledged(&mut calls[0]).await;
        calls[0].finish();
        eventually(&world, "the other goes on", |run| run["state"] == "running").await;
        calls[1].send(&close(2)).await;
        acknowledged(&mut calls[1]).await;
        eventually(&world, "both have closed", |run| run["state"] == "finished").await;
        let again = initialize(&mut peer, &asks(3, "job", ResumePolicy::Never)).await.unwrap();
        let known = |pid: &str| ("loss".to_owned(), format!("host=h&pid={pid}"), 6);
        assert_eq!(again.steps, [known("1"), known("2")]);
        let other = initialize(&mut peer, &asks(4, "other", ResumePolicy::Never)).await.unwrap();
        assert_eq!((other.created, other.job.as_deref()), (false, Some("job")), "its client turns it away");
    });
}

#[test]
fn a_stream_that_ends_without_a_word_leaves_the_run_for_later() {
    let world = World::new();
    block(async {
        let mut peer = world.peer().await;
        let run = initialize(&mut peer, &asks(1, "job", ResumePolicy::Never)).await.unwrap();
        let mut call = stream(&mut peer, &run, 1).await;
        let mut message = update(&run, 1, 1);
        message.series_declarations = vec![declared("loss", 1)];
        message.series = vec![points(1, 0, &[1.0])];
        call.send(&message).await;
        acknowledged(&mut call).await;
        call.finish();
        assert_eq!(call.rest().await.1.code, 0);
        eventually(&world, "the logger left", |run| run["state"] == "paused").await;
    });
}

#[test]
fn messages_come_packed_too() {
    use std::io::Write;

    let world = World::new();
    block(async {
        let mut peer = world.peer().await;
        let run = initialize(&mut peer, &asks(1, "job", ResumePolicy::Never)).await.unwrap();
        let mut message = update(&run, 1, 1);
        message.series_declarations = vec![declared("loss", 1)];
        let mut sent = 0;
        for packing in ["gzip", "zstd"] {
            peer.headers = vec![("grpc-encoding", packing.to_owned())];
            let mut call = stream(&mut peer, &run, 1).await;
            sent += 1;
            message.sequence_number = sent * 256;
            message.series = vec![points(1, sent, &[0.5])];
            let plain = message.encode_to_vec();
            let packed = if packing == "gzip" {
                let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
                encoder.write_all(&plain).unwrap();
                encoder.finish().unwrap()
            } else {
                zstd::bulk::compress(&plain, 1).unwrap()
            };
            call.send_packed(&packed, true).await;
            acknowledged(&mut call).await;
        }
        assert_eq!(world.series().await, [("loss".to_owned(), sent)]);
    });
}

#[test]
fn who_may_not_send_is_told_why() {
    let token = "a-token-of-the-settings";
    let world = World::with(|config| {
        let variable = |name: &str| (name == "TRUEGAUGE_TOKEN").then(|| token.to_owned());
        let before = config.clone();
        *config = Config::resolve(before, &server::config::Given::new(), &variable, None).unwrap();
    });
    block(async {
        let mut peer = world.peer().await;
        let asked = asks(1, "job", ResumePolicy::Never);
        let end = initialize(&mut peer, &asked).await.err().unwrap();
        assert_eq!(end.code, UNAUTHENTICATED, "{end:?}");
        peer.headers = vec![("authorization", "Bearer wrong".into())];
        let end = initialize(&mut peer, &asked).await.err().unwrap();
        assert_eq!(end.code, UNAUTHENTICATED, "{end:?}");
        assert!(end.words.contains("no token of this server"), "{end:?}");
        peer.headers = vec![("authorization", format!("Bearer {token}")), ("origin", "http://evil".into())];
        let end = initialize(&mut peer, &asked).await.err().unwrap();
        assert_eq!(end.code, PERMISSION_DENIED, "{end:?}");
        peer.headers = vec![("authorization", format!("Bearer {token}"))];
        assert!(initialize(&mut peer, &asked).await.unwrap().created);
    });
}

#[test]
fn a_full_disk_is_said_and_can_be_waited_for() {
    let world = World::with(|config| config.reserve_bytes = u64::MAX / 2);
    block(async {
        let mut peer = world.peer().await;
        let end = initialize(&mut peer, &asks(1, "job", ResumePolicy::Never)).await.err().unwrap();
        assert_eq!(end.code, UNAVAILABLE, "{end:?}");
        assert!(end.words.contains("free"), "{end:?}");
    });
}

#[test]
fn a_server_that_stops_tells_its_streams_to_come_again() {
    let World { running, _folder } = World::new();
    block(async {
        let mut peer = Peer::connect(running.grpc_addr.unwrap(), 1 << 20).await;
        let run = initialize(&mut peer, &asks(1, "job", ResumePolicy::Never)).await.unwrap();
        let call = stream(&mut peer, &run, 1).await;
        let stopping = tokio::task::spawn_blocking(move || running.stop());
        let (_, end) = call.rest().await;
        assert_eq!(end.code, UNAVAILABLE, "{end:?}");
        stopping.await.unwrap();
    });
}

#[test]
fn other_calls_are_named_as_what_is_not_there() {
    let world = World::new();
    block(async {
        let mut peer = world.peer().await;
        for call in ["CreateRun", "UpdateTracesStream"] {
            let (_, end) = peer.ask(call, &UpdateRunRequest::default()).await;
            assert_eq!(end.code, UNIMPLEMENTED, "{call}: {end:?}");
        }
    });
}
