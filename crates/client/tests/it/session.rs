//! What a run says of itself.

use client::{Config, Launch, Run, StartError};
use model::{AttributeValue, RunPath, RunRecord, RunState, SessionEnd, TagChange};

use crate::peer::Peer;
use crate::support::{LONG, close, config, flush};

/// The run as the peer's requests make it.
fn record(peer: &Peer) -> RunRecord {
    let changes = peer.changes();
    let mut record = RunRecord::new(changes[0].path.clone(), i64::MAX);
    for change in &changes {
        record.apply(change, i64::MAX);
    }
    record
}

#[test]
fn run_is_introduced_and_ended() {
    let (peer, dir) = (Peer::start(), tempfile::tempdir().unwrap());
    let launch = Launch { rank: Some(3), world_size: Some(8), restart_count: 2, ..Launch::default() };
    let run = Run::start(Config {
        job_token: Some("job".into()),
        launch,
        tags: vec!["a".into(), "b".into()],
        description: Some("d".into()),
        experiment: Some("e".into()),
        config: vec![("lr".into(), AttributeValue::Float(0.1))],
        ..peer.config(dir.path())
    })
    .unwrap();
    run.set_attribute("data/version", AttributeValue::Text("v3".into()));
    run.change_tags(&[TagChange::Remove("a".into()), TagChange::Add("c".into())]);
    run.set_description("better");
    flush(&run);
    let opened = record(&peer);
    assert_eq!(opened.state(opened.heartbeat_ns().unwrap()).0, RunState::Running);
    run.close(SessionEnd::Failed, "ValueError: x", LONG, &mut || false);
    let ended = record(&peer);
    assert_eq!((ended.failure.as_str(), ended.sessions.len()), ("ValueError: x", 1));
    let facts = &ended.sessions[0].facts;
    assert_eq!((facts.rank, facts.world_size, facts.restart_count), (Some(3), Some(8), 2));
    assert_eq!((facts.job_token.as_str(), facts.pid), ("job", std::process::id()));
    assert!(!facts.host.is_empty() && !facts.client_version.is_empty());
    let tags: Vec<&str> = ended.tags.iter().map(String::as_str).collect();
    assert_eq!((tags, ended.description.as_str()), (vec!["b", "c"], "better"));
    let attribute = |key: &str| ended.attributes.get(key).cloned();
    assert_eq!(attribute("config/lr"), Some(AttributeValue::Float(0.1)));
    assert_eq!(attribute("experiment"), Some(AttributeValue::Text("e".into())));
    assert_eq!(attribute("data/version"), Some(AttributeValue::Text("v3".into())));
}

#[test]
fn run_that_is_there_keeps_its_tags() {
    let (peer, dir) = (Peer::start(), tempfile::tempdir().unwrap());
    peer.seen().metrics = Some(serde_json::json!({"metrics": []}));
    let tags = vec!["a".to_owned()];
    let run = Run::start(Config { tags, description: Some("d".into()), ..peer.config(dir.path()) }).unwrap();
    close(&run);
    let record = record(&peer);
    assert_eq!((record.tags.len(), record.description.as_str()), (0, ""));
}

#[test]
fn dropped_run_is_closed() {
    let (peer, dir) = (Peer::start(), tempfile::tempdir().unwrap());
    let run = Run::start(peer.config(dir.path())).unwrap();
    let loss = run.series("loss", &[], "").unwrap();
    run.log(loss, 1.0, None, None);
    drop(run);
    let record = record(&peer);
    assert_eq!(record.state(record.heartbeat_ns().unwrap()).0, RunState::Finished);
    assert_eq!(peer.steps("loss{}"), [0]);
}

#[test]
fn never_refuses_what_belongs_to_another_job() {
    let (peer, dir) = (Peer::start(), tempfile::tempdir().unwrap());
    peer.seen().metrics = Some(serde_json::json!({"metrics": []}));
    peer.seen().run = Some(serde_json::json!({"attempts_list": [{"job_token": "theirs"}]}));
    let never = |token: Option<&str>| {
        Run::start(Config {
            resume: client::ResumeStrategy::Never,
            job_token: token.map(str::to_owned),
            ..peer.config(dir.path())
        })
    };
    for token in [None, Some("ours")] {
        let refused = never(token).err().unwrap();
        assert!(matches!(&refused, StartError::RunExists { job_token, .. } if job_token == "theirs"));
        assert!(refused.hint().is_some());
    }
    assert!(never(Some("theirs")).is_ok());
    peer.seen().run = None;
    assert!(never(None).is_ok());
}

#[test]
fn nameless_runs_are_named_after_job_or_time() {
    let dir = tempfile::tempdir().unwrap();
    let name = |job_token: Option<&str>, run_name: &str| {
        let launch = Launch { run_name: run_name.into(), ..Launch::default() };
        let job_token = job_token.map(str::to_owned);
        let path = RunPath { project: "p".into(), ..RunPath::default() };
        let run =
            Run::start(Config { path, job_token, launch, offline: true, ..config(dir.path()) }).unwrap();
        run.path().run.clone()
    };
    assert_eq!(name(None, "slurm-7"), "slurm-7");
    assert_eq!(name(Some("mine"), "slurm-7"), "mine");
    let by_time = name(None, "");
    assert!(by_time.starts_with("run-20") && by_time.len() == 19, "{by_time}");
}

#[test]
fn unusable_names_and_urls_are_told_at_the_start() {
    let dir = tempfile::tempdir().unwrap();
    let path = RunPath { run: "a\nb".into(), ..RunPath::default() };
    let bad_name = Run::start(Config { path, ..config(dir.path()) });
    assert!(matches!(bad_name, Err(StartError::Path { part: "run name", .. })), "{bad_name:?}");
    let bad_url = Run::start(Config { url: Some("ftp://x".into()), ..config(dir.path()) });
    assert!(matches!(bad_url, Err(StartError::Url(_))), "{bad_url:?}");
}

#[test]
fn secrets_stay_out_of_debug_output() {
    let dir = tempfile::tempdir().unwrap();
    let secret = Config { token: Some("s3cret".into()), offline: true, ..config(dir.path()) };
    let run = Run::start(secret).unwrap();
    assert!(!format!("{run:?} {:?}", run.config()).contains("s3cret"));
}
