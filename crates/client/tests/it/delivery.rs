//! What was logged arrives once, whatever the server does.

use client::{FlushOutcome, Run};
use model::SessionEnd;

use crate::peer::{Manner, Peer};
use crate::support::{LONG, away, close, config, count, flush, spooled, until};

#[test]
fn points_arrive_as_they_were_logged() {
    let (peer, dir) = (Peer::start(), tempfile::tempdir().unwrap());
    let run = Run::start(peer.config(dir.path())).unwrap();
    let loss = run.series("loss", &[("split", "val"), ("empty", "")], "EPISODE").unwrap();
    run.log(loss, 0.5, Some(10), Some(1_000));
    run.log(loss, f64::NAN, None, Some(2_000));
    run.log(loss, f64::NEG_INFINITY, Some(3), Some(2_000));
    assert_eq!(flush(&run), FlushOutcome::Server);
    let points = &peer.points()["loss{split=val}EPISODE"];
    let got: Vec<_> = points.iter().map(|p| (p.time_ns, p.step, p.value.to_bits())).collect();
    let want = [
        (1_000, Some(10), 0.5f64.to_bits()),
        (2_000, Some(11), f64::NAN.to_bits()),
        (2_001, Some(3), f64::NEG_INFINITY.to_bits()),
    ];
    assert_eq!(got, want);
    assert_eq!(run.url(), Some(format!("{}/r/{}", peer.url(), run.run_id())));
    assert_eq!(close(&run), client::CloseOutcome::default());
    assert!(spool::list(dir.path()).is_empty());
}

#[test]
fn restarts_of_the_server_lose_and_double_nothing() {
    let (mut peer, dir) = (Peer::start(), tempfile::tempdir().unwrap());
    let run = Run::start(client::Config { queue_capacity: 2_000, ..peer.config(dir.path()) }).unwrap();
    let loss = run.series("loss", &[], "").unwrap();
    for round in 0..5i64 {
        for n in 0..4_000 {
            run.log(loss, 1.0, Some(round * 4_000 + n), None);
        }
        peer.stop();
        run.log(loss, 1.0, Some(20_000 + round), None);
        assert!(matches!(flush(&run), FlushOutcome::Spool { .. }));
        peer.start_again();
        if round % 2 == 0 {
            let before = peer.count();
            until("delivery after the restart", || peer.count() > before);
        }
    }
    assert_eq!(close(&run).hint, None);
    assert_eq!(peer.steps("loss{}"), (0..20_005).collect::<Vec<_>>());
    assert_eq!(run.counters().delivered, 20_005);
    assert!(spool::list(dir.path()).is_empty(), "a drained spool is removed");
}

#[test]
fn lost_answers_double_nothing() {
    let (peer, dir) = (Peer::start(), tempfile::tempdir().unwrap());
    let run = Run::start(peer.config(dir.path())).unwrap();
    let loss = run.series("loss", &[], "").unwrap();
    peer.set(Manner::StoreAndHangUp);
    for step in 0..1_000 {
        run.log(loss, 1.0, Some(step), None);
    }
    until("a second try", || peer.seen().pushes >= 2);
    peer.set(Manner::Serve);
    assert_eq!(close(&run).hint, None);
    assert_eq!(peer.steps("loss{}"), (0..1_000).collect::<Vec<_>>());
}

#[test]
fn busy_server_gets_the_same_later() {
    for status in [500, 503, 429, 408] {
        let (peer, dir) = (Peer::start(), tempfile::tempdir().unwrap());
        let run = Run::start(peer.config(dir.path())).unwrap();
        let loss = run.series("loss", &[], "").unwrap();
        peer.set(Manner::Status(status));
        run.log(loss, 1.0, None, None);
        until("a try", || peer.seen().pushes > 1);
        assert!(matches!(flush(&run), FlushOutcome::Spool { .. }));
        peer.set(Manner::Serve);
        assert_eq!(close(&run).hint, None, "{status}");
        assert_eq!((peer.count(), run.counters().dropped.len()), (1, 0), "{status}");
    }
}

#[test]
fn run_without_a_server_is_synced_later() {
    let (peer, dir) = (Peer::start(), tempfile::tempdir().unwrap());
    let run = Run::start(away(dir.path())).unwrap();
    let loss = run.series("loss", &[], "").unwrap();
    for _ in 0..100_000 {
        run.log(loss, 1.0, None, None);
    }
    let busy = client::sync::send(dir.path(), &peer.url(), None, &mut |_| ()).unwrap();
    let outcome = close(&run);
    let spool = outcome.spool_dir.unwrap();
    let command = format!("truegauge sync {} --url {}`", spool.display(), run.config().url.as_ref().unwrap());
    let hint = outcome.hint.unwrap();
    assert!(hint.contains(&command), "{hint}");
    assert_eq!(flush(&run), FlushOutcome::Spool { dir: spool.clone() }, "a closed run tells where it is");
    let mut told = 0;
    let sent = client::sync::send(&spool, &peer.url(), None, &mut |progress| {
        told = progress.batches;
        assert_eq!(progress.header.unwrap().path.run, "r");
    })
    .unwrap();
    assert_eq!(busy.spools, 0, "the spool of a live run is left alone");
    assert_eq!((sent.spools, sent.batches, sent.points), (1, outcome.undelivered_batches, 100_000));
    assert_eq!(told, sent.batches);
    assert_eq!(peer.steps("loss{}"), (0..100_000).collect::<Vec<_>>());
    assert!(!spool.exists());
}

#[test]
fn sync_stops_at_a_server_that_is_away_and_goes_on_later() {
    let (mut peer, dir) = (Peer::start(), tempfile::tempdir().unwrap());
    let run = Run::start(away(dir.path())).unwrap();
    let loss = run.series("loss", &[], "").unwrap();
    for step in 0..5 {
        run.log(loss, 1.0, Some(step), None);
        flush(&run);
    }
    close(&run);
    let sent = client::sync::send(dir.path(), &peer.url(), None, &mut |progress| {
        if progress.batches == 2 {
            peer.stop();
        }
    });
    assert!(matches!(sent, Err(client::sync::SyncError::Away { .. })), "{sent:?}");
    peer.start_again();
    client::sync::send(dir.path(), &peer.url(), None, &mut |_| ()).unwrap();
    assert_eq!(peer.steps("loss{}"), (0..5).collect::<Vec<_>>());
    assert!(client::sync::send(&dir.path().join("none"), &peer.url(), None, &mut |_| ()).is_err());
}

#[test]
fn full_queue_goes_to_the_spool_and_nothing_is_lost() {
    let (peer, dir) = (Peer::start(), tempfile::tempdir().unwrap());
    let run = Run::start(client::Config { queue_capacity: 500, ..peer.config(dir.path()) }).unwrap();
    let loss = run.series("loss", &[], "").unwrap();
    peer.set(Manner::Hang);
    until("a hanging push", || {
        run.log(loss, 0.1, Some(-1), None);
        peer.seen().pushes > 0
    });
    let before = run.counters().logged;
    for step in 0..300_000 {
        run.log(loss, (step as f64).sqrt(), Some(step), None);
    }
    let logged = run.counters();
    assert!(logged.spooled > 0, "{logged:?}");
    assert_eq!((logged.logged, logged.dropped.len()), (before + 300_000, 0));
    peer.set(Manner::Serve);
    assert_eq!(close(&run).hint, None);
    assert_eq!(peer.count(), before + 300_000);
}

#[test]
fn many_threads_log_into_one_run() {
    let (peer, dir) = (Peer::start(), tempfile::tempdir().unwrap());
    let run = Run::start(client::Config { queue_capacity: 1_000, ..peer.config(dir.path()) }).unwrap();
    let shared = run.series("shared", &[], "").unwrap();
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let run = run.clone();
            scope.spawn(move || {
                let own = run.series("own", &[("thread", &thread.to_string())], "").unwrap();
                for _ in 0..5_000 {
                    run.log(shared, 1.0, None, None);
                    run.log(own, 2.0, None, None);
                }
            });
        }
    });
    assert_eq!(close(&run).hint, None);
    assert_eq!(peer.steps("shared{}"), (0..40_000).collect::<Vec<_>>());
    for thread in 0..8 {
        let own = &peer.points()[&format!("own{{thread={thread}}}")];
        assert_eq!(own.len(), 5_000);
        let mut times: Vec<i64> = own.iter().map(|p| p.time_ns).collect();
        times.sort_unstable();
        times.dedup();
        assert_eq!(times.len(), 5_000, "equal times are spread");
    }
}

#[test]
fn flush_to_a_hanging_server_ends_in_the_spool() {
    let (peer, dir) = (Peer::start(), tempfile::tempdir().unwrap());
    let run = Run::start(peer.config(dir.path())).unwrap();
    let loss = run.series("loss", &[], "").unwrap();
    peer.set(Manner::Hang);
    run.log(loss, 1.0, None, None);
    let mut asked = 0;
    let outcome = run.flush(LONG, &mut || {
        asked += 1;
        asked == 3
    });
    assert!(matches!(outcome, FlushOutcome::Spool { .. }), "{outcome:?}");
    assert_eq!(count(&spooled(dir.path())), 1, "what is on the wire is on the disk too");
    peer.set(Manner::Serve);
    assert_eq!(close(&run).hint, None);
    assert_eq!(peer.steps("loss{}"), [0]);
}

#[test]
fn close_is_bounded_when_the_server_hangs() {
    let (peer, dir) = (Peer::start(), tempfile::tempdir().unwrap());
    let run = Run::start(peer.config(dir.path())).unwrap();
    let loss = run.series("loss", &[], "").unwrap();
    peer.set(Manner::Hang);
    run.log(loss, 1.0, None, None);
    let outcome = run.close(SessionEnd::Left, "", std::time::Duration::from_millis(200), &mut || false);
    assert!(outcome.undelivered_batches > 0 && outcome.undelivered_bytes > 0, "{outcome:?}");
    assert_eq!(count(&spooled(dir.path())), 1);
    assert_eq!(close(&run), client::CloseOutcome::default(), "the second close finds nothing to do");
    run.log(loss, 1.0, None, None);
    assert_eq!(run.counters().dropped["closed"], 1);
    peer.set(Manner::Serve);
}

#[test]
fn offline_run_never_talks() {
    let (peer, dir) = (Peer::start(), tempfile::tempdir().unwrap());
    let run = Run::start(client::Config { offline: true, ..peer.config(dir.path()) }).unwrap();
    let loss = run.series("loss", &[], "").unwrap();
    run.log(loss, 1.0, None, None);
    assert!(matches!(flush(&run), FlushOutcome::Spool { .. }));
    close(&run);
    assert_eq!((peer.seen().pushes, count(&spooled(dir.path()))), (0, 1));
}

#[test]
fn spool_of_a_newer_client_is_left_alone_and_a_damaged_header_is_not_needed() {
    let (peer, dir) = (Peer::start(), tempfile::tempdir().unwrap());
    for _ in 0..2 {
        let run = Run::start(client::Config { offline: true, ..config(dir.path()) }).unwrap();
        let loss = run.series("loss", &[], "").unwrap();
        run.log(loss, 1.0, None, None);
        close(&run);
    }
    let spools = spool::list(dir.path());
    std::fs::write(spools[0].join("header"), r#"{"version":2}"#).unwrap();
    std::fs::write(spools[1].join("header"), "harmed").unwrap();
    let sent = client::sync::send(dir.path(), &peer.url(), None, &mut |_| ()).unwrap();
    assert_eq!((sent.newer.as_slice(), sent.spools, sent.points), (&spools[..1], 1, 1));
    assert_eq!(spool::list(dir.path()), spools[..1]);
}

#[test]
fn spool_names_its_run_and_target() {
    let dir = tempfile::tempdir().unwrap();
    let run = Run::start(client::Config { offline: true, ..config(dir.path()) }).unwrap();
    flush(&run);
    let spools = spool::list(dir.path());
    let reader = spool::Reader::open(&spools[0]).unwrap();
    let header = client::SpoolHeader::parse(reader.header()).unwrap();
    assert_eq!((header.target, header.path.run.as_str(), header.pid), (None, "r", std::process::id()));
    let name = spools[0].file_name().unwrap().to_str().unwrap().to_owned();
    assert!(name.starts_with(&format!("{}-", run.run_id())) && name.len() == 25, "{name}");
}
