//! Steps and times, as seen from outside.

use client::{Config, Launch, Run, Steps, When};

use crate::peer::Peer;
use crate::support::close;

#[test]
fn steps_continue_what_the_server_knows() {
    let (peer, dir) = (Peer::start(), tempfile::tempdir().unwrap());
    peer.seen().metrics = Some(serde_json::json!({"metrics": [
        {"name": "loss", "display": "loss", "labels": {"split": "val", "rank": "1"}, "scale": "ML_STEP", "last_step": 41},
    ]}));
    let launch = Launch { rank: Some(1), world_size: Some(2), ..Launch::default() };
    let run = Run::start(Config { launch, ..peer.config(dir.path()) }).unwrap();
    assert_eq!(run.last_step("loss", &[("split", "val")], "ML_STEP"), Some(41));
    assert_eq!(run.last_step("loss", &[], ""), None);
    let known = run.series("loss", &[("split", "val")], "").unwrap();
    let fresh = run.series("loss", &[("rank", "7")], "").unwrap();
    for series in [known, known, fresh] {
        run.log(series, 1.0, None, None);
    }
    assert_eq!(run.last_step("loss", &[("split", "val")], ""), Some(43));
    close(&run);
    assert_eq!(peer.steps("loss{rank=1,split=val}"), [42, 43]);
    assert_eq!(peer.steps("loss{rank=7}"), [0], "a label that the caller sets stays");
}

#[test]
fn step_context_is_taken_and_left() {
    let (peer, dir) = (Peer::start(), tempfile::tempdir().unwrap());
    let run = Run::start(peer.config(dir.path())).unwrap();
    let loss = run.series("loss", &[], "").unwrap();
    let log = |step: Option<i64>| run.log(loss, 1.0, step, None);
    run.begin_step(100);
    log(None);
    log(None);
    log(Some(7));
    run.end_step();
    log(None);
    close(&run);
    let steps: Vec<_> = peer.points()["loss{}"].iter().filter_map(|p| p.step).collect();
    assert_eq!(steps, [100, 100, 7, 8]);
}

#[test]
fn arrays_take_their_steps() {
    let (peer, dir) = (Peer::start(), tempfile::tempdir().unwrap());
    let run = Run::start(Config { queue_capacity: 10, ..peer.config(dir.path()) }).unwrap();
    let a = run.series("a", &[], "").unwrap();
    run.log_many(a, &[1.0; 25], Steps::First(5), Some(1_000_000));
    run.log_many(a, &[1.0; 3], Steps::Each(&[9, 8, 7]), Some(2_000_000));
    run.log_many(a, &[1.0; 2], Steps::None, Some(3_000_000));
    run.begin_step(50);
    run.log_many(a, &[1.0; 2], Steps::None, Some(4_000_000));
    run.log_many(a, &[], Steps::None, None);
    close(&run);
    let mut points = peer.points()["a{}"].clone();
    points.sort_by_key(|p| p.time_ns);
    let steps: Vec<i64> = points.iter().filter_map(|p| p.step).collect();
    let want: Vec<i64> = (5..30).chain([9, 8, 7, 8, 9, 50, 51]).collect();
    assert_eq!(steps, want);
    assert_eq!(points[24].time_ns, 1_000_024, "equal times are spread by a nanosecond");
}

#[test]
fn points_of_one_stamp_have_one_time() {
    let (peer, dir) = (Peer::start(), tempfile::tempdir().unwrap());
    let run = Run::start(peer.config(dir.path())).unwrap();
    let [a, b, c] = ["a", "b", "c"].map(|name| run.series(name, &[], "").unwrap());
    let stamp = When::stamp();
    let When::Stamped(time_ns) = stamp else { panic!("{stamp:?}") };
    run.log(a, 1.0, Some(1), stamp);
    while When::stamp() == stamp {
        std::hint::spin_loop();
    }
    run.log_all(&[(b, 1.0)], Some(1), stamp);
    run.log_many(c, &[1.0, 2.0], Steps::First(1), stamp);
    run.log(a, 2.0, Some(2), stamp);
    close(&run);
    let points = peer.points();
    let times = |series: &str| points[series].iter().map(|point| point.time_ns).collect::<Vec<_>>();
    assert_eq!(times("b{}"), [time_ns]);
    assert_eq!([times("a{}"), times("c{}")], [[time_ns, time_ns + 1], [time_ns, time_ns + 1]]);
}

#[test]
fn hundred_thousand_logs_stay_in_their_seconds() {
    let (peer, dir) = (Peer::start(), tempfile::tempdir().unwrap());
    let run = Run::start(peer.config(dir.path())).unwrap();
    let loss = run.series("loss", &[], "").unwrap();
    let now = || {
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
        i64::try_from(since.as_nanos()).unwrap()
    };
    let before = now();
    for _ in 0..100_000 {
        run.log(loss, 1.0, None, None);
    }
    let after = now();
    close(&run);
    let mut times: Vec<i64> = peer.points()["loss{}"].iter().map(|p| p.time_ns).collect();
    times.sort_unstable();
    assert!(times[0] > before - 1_000_000 && times[99_999] <= after, "{before} {after}");
    times.dedup();
    assert_eq!(times.len(), 100_000);
}
