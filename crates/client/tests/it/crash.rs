//! A client that is killed keeps what it has flushed.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use client::{Config, Run};

use crate::peer::Peer;
use crate::support::{config, flush, spooled};

const DIR: &str = "TG_TEST_CRASH_DIR";
const URL: &str = "TG_TEST_CRASH_URL";

/// The program that is killed: it logs steps for ever, flushes now and then, and says how far that
/// went. As a test of its own it does nothing.
#[test]
fn victim() {
    let Ok(dir) = std::env::var(DIR) else { return };
    let url = std::env::var(URL).ok();
    let run = Run::start(Config { url, queue_capacity: 3_000, ..config(Path::new(&dir)) }).unwrap();
    let loss = run.series("loss", &[], "").unwrap();
    for step in 0.. {
        run.log(loss, step as f64, Some(step), None);
        if step % 997 == 0 {
            let outcome = flush(&run);
            assert!(!matches!(outcome, client::FlushOutcome::Incomplete { .. }));
            println!("flushed {step}");
        }
    }
}

fn start_victim(dir: &Path, url: &str) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "crash::victim", "--nocapture"])
        .env(DIR, dir)
        .env(URL, url)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

/// Kills the victim behind its `flushes`th flush; the last step it reported as flushed.
fn kill_behind(mut victim: Child, flushes: usize) -> i64 {
    let mut reports = BufReader::new(victim.stdout.take().unwrap()).lines();
    let steps = reports
        .by_ref()
        .map(Result::unwrap)
        .filter_map(|line| line.split_once("flushed ").and_then(|(_, step)| step.parse::<i64>().ok()));
    let last = steps.take(flushes).last().unwrap();
    victim.kill().unwrap();
    victim.wait().unwrap();
    last
}

/// Steps that the peer has or a spool holds; none may be there twice.
fn kept(peer: &Peer, dir: &Path) -> Vec<i64> {
    client::sync::send(dir, &peer.url(), None, &mut |_| ()).unwrap();
    assert!(spooled(dir).is_empty());
    peer.steps("loss{}")
}

#[test]
fn flushed_points_outlive_a_kill_without_a_server() {
    let (mut peer, dir) = (Peer::start(), tempfile::tempdir().unwrap());
    peer.stop();
    let flushed = kill_behind(start_victim(dir.path(), &peer.url()), 40);
    peer.start_again();
    let kept = kept(&peer, dir.path());
    assert!(kept.len() as i64 > flushed, "{} of {flushed}", kept.len());
    assert_eq!(kept, (0..kept.len() as i64).collect::<Vec<_>>());
}

#[test]
fn flushed_points_outlive_kills_of_client_and_server() {
    for flushes in [3, 17, 29] {
        let (mut peer, dir) = (Peer::start(), tempfile::tempdir().unwrap());
        let victim = start_victim(dir.path(), &peer.url());
        crate::support::until("the first points", || peer.count() > 0);
        peer.stop();
        peer.start_again();
        let flushed = kill_behind(victim, flushes);
        let kept = kept(&peer, dir.path());
        assert!(kept.len() as i64 > flushed, "{} of {flushed}", kept.len());
        assert_eq!(kept, (0..kept.len() as i64).collect::<Vec<_>>());
    }
}
