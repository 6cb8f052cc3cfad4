//! What can't be kept is counted and told.

use std::sync::Mutex;
use std::time::Duration;

use client::{FlushOutcome, Run, Warning};
use model::{AttributeValue, SessionEnd, TagChange};

use crate::peer::{Manner, Peer};
use crate::support::{LONG, away, close, count, flush, spooled, until};

#[test]
fn spool_that_is_full_drops_and_counts() {
    let (mut peer, dir) = (Peer::start(), tempfile::tempdir().unwrap());
    let small =
        client::Config { queue_capacity: 10_000, spool_bytes_max: 200_000, ..peer.config(dir.path()) };
    let run = Run::start(small).unwrap();
    let noise = run.series("noise", &[], "").unwrap();
    peer.stop();
    flush(&run);
    let mut value = 0.5f64;
    let mut log = |times: i64| {
        for _ in 0..times {
            // Noise, which does not compress.
            value = (value * 9_301.0 + 0.211_327).fract();
            run.log(noise, value, None, None);
        }
    };
    until("a spool that refuses", || {
        log(10_000);
        !run.counters().dropped.is_empty()
    });
    assert!(matches!(flush(&run), FlushOutcome::Incomplete { points: 1.., .. }));
    peer.start_again();
    // What it could not keep is told when the server is back, and nothing else is missing.
    until("delivery", || flush(&run) == FlushOutcome::Server);
    assert_eq!(close(&run).hint, None);
    let counters = run.counters();
    let dropped = counters.dropped["spool_full"];
    assert_eq!(peer.count() + dropped, counters.logged, "{counters:?}");
    assert_eq!(peer.dropped()["spool_full"], dropped);
}

#[test]
fn spool_that_can_not_be_made_keeps_what_fits_into_memory() {
    let (mut peer, dir) = (Peer::start(), tempfile::tempdir().unwrap());
    let file = dir.path().join("file");
    std::fs::write(&file, "in the way").unwrap();
    let run = Run::start(peer.config(&file)).unwrap();
    let loss = run.series("loss", &[], "").unwrap();
    peer.stop();
    run.log(loss, 1.0, None, None);
    assert!(matches!(flush(&run), FlushOutcome::Incomplete { points: 1, .. }));
    peer.start_again();
    until("delivery", || flush(&run) == FlushOutcome::Server);
    close(&run);
    assert_eq!(peer.steps("loss{}"), [0]);
}

#[test]
fn refused_batch_is_counted_and_not_tried_for_ever() {
    let (peer, dir) = (Peer::start(), tempfile::tempdir().unwrap());
    let run = Run::start(peer.config(dir.path())).unwrap();
    let loss = run.series("loss", &[], "").unwrap();
    flush(&run);
    peer.set(Manner::Status(400));
    run.log(loss, 1.0, None, None);
    until("a refusal", || run.counters().dropped.contains_key("refused_batch"));
    peer.set(Manner::Serve);
    run.log(loss, 2.0, None, None);
    assert_eq!(flush(&run), FlushOutcome::Server);
    close(&run);
    assert_eq!((peer.steps("loss{}"), peer.dropped()["refused_batch"]), (vec![1], 1));
}

#[test]
fn missing_token_keeps_the_run_in_the_spool() {
    let (peer, dir) = (Peer::start(), tempfile::tempdir().unwrap());
    peer.seen().token = Some("Bearer secret".into());
    let run = Run::start(peer.config(dir.path())).unwrap();
    let loss = run.series("loss", &[], "").unwrap();
    run.log(loss, 1.0, None, None);
    until("a refusal", || !run.counters().is_server_up);
    let left = close(&run);
    assert!(left.undelivered_batches > 0, "{left:?}");
    assert_eq!(count(&spooled(dir.path())), 1);
    let wrong = client::sync::send(dir.path(), &peer.url(), Some("wrong"), &mut |_| ());
    assert!(matches!(wrong, Err(client::sync::SyncError::Away { hint: Some(_), .. })), "{wrong:?}");
    client::sync::send(dir.path(), &peer.url(), Some("secret"), &mut |_| ()).unwrap();
    assert_eq!(peer.steps("loss{}"), [0]);
}

#[test]
fn another_program_at_the_port_costs_no_points() {
    for status in [200, 301, 404, 405] {
        let (peer, dir) = (Peer::start(), tempfile::tempdir().unwrap());
        peer.set(Manner::Status(status));
        let run = Run::start(peer.config(dir.path())).unwrap();
        let loss = run.series("loss", &[], "").unwrap();
        run.log(loss, 1.0, None, None);
        until("an answer", || !run.counters().is_server_up);
        close(&run);
        assert_eq!(count(&spooled(dir.path())), 1, "{status}");
    }
}

#[test]
fn refusals_are_counted_by_reason() {
    let (peer, dir) = (Peer::start(), tempfile::tempdir().unwrap());
    let run = Run::start(peer.config(dir.path())).unwrap();
    run.refuse("value_type", 2, "loss=None");
    run.refuse("value_type", 1, "loss='a'");
    let labels: Vec<(String, String)> = (0..40).map(|n| (format!("k{n}"), "v".to_owned())).collect();
    let labels: Vec<(&str, &str)> = labels.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
    let wide = run.series("wide", &labels, "").unwrap();
    run.log(wide, 1.0, None, None);
    run.log_many(wide, &[1.0, 2.0], client::Steps::Each(&[1]), None);
    assert!(run.series("a\nb", &[], "").is_err());
    assert!(run.series("loss", &[("run_id", "x")], "").is_err());
    close(&run);
    let want = [("label_count", 1), ("steps_length", 2), ("value_type", 3)];
    assert_eq!(run.counters().dropped, want.map(|(k, v)| (k.to_owned(), v)).into());
    assert_eq!(peer.dropped(), run.counters().dropped);
}

#[test]
fn long_texts_are_refused_and_counted() {
    let (peer, dir) = (Peer::start(), tempfile::tempdir().unwrap());
    let run = Run::start(peer.config(dir.path())).unwrap();
    let text = |bytes: usize| AttributeValue::Text("x".repeat(bytes));
    run.set_attribute("long", text(1 << 20));
    run.set_attribute("too/long", text((1 << 20) + 1));
    run.set_attribute(&"k".repeat(257), AttributeValue::Null);
    run.change_tags(&[TagChange::Add("t".repeat(257)), TagChange::Clear, TagChange::Add("kept".into())]);
    run.set_description(&"d".repeat((1 << 20) + 1));
    close(&run);
    let want = [("attribute_too_long", 2), ("description_too_long", 1), ("tag_too_long", 1)];
    assert_eq!(peer.dropped(), want.map(|(k, v)| (k.to_owned(), v)).into());
    let changes = peer.changes();
    let keys: Vec<&str> = changes.iter().flat_map(|c| &c.attributes).map(|(key, _)| key.as_str()).collect();
    assert_eq!(
        keys.iter().filter(|key| !key.starts_with(model::CAPTURE_PREFIX)).collect::<Vec<_>>(),
        [&"long"]
    );
    let tags: Vec<_> = changes.iter().flat_map(|c| c.tags.clone()).collect();
    assert_eq!(tags, [TagChange::Clear, TagChange::Add("kept".into())]);
}

static SAID: Mutex<Vec<Warning>> = Mutex::new(Vec::new());

#[test]
fn warnings_come_once_a_cause() {
    let dir = tempfile::tempdir().unwrap();
    client::set_warning_hook(|warning| SAID.lock().unwrap().push(warning));
    let run = Run::start(away(dir.path())).unwrap();
    assert!(!SAID.lock().unwrap().is_empty(), "a run without a server says so at once");
    for n in 0..3 {
        run.refuse("once_for_a_test", 1, &format!("example {n}"));
        flush(&run);
    }
    let place = dir.path().display().to_string();
    let said = |cause: &str, part: &str| {
        let said = SAID.lock().unwrap();
        said.iter().filter(|w| w.cause == cause && w.message.contains(part)).count()
    };
    until("a word on where the run is kept", || said("server_away", &place) > 0);
    flush(&run);
    run.finish();
    let counts =
        [said("once_for_a_test", "example 0"), said("once_for_a_test", ""), said("server_away", &place)];
    assert_eq!((counts, said("undelivered", &place)), ([1, 1, 1], 1));
}

#[test]
fn handle_of_another_run_is_not_mixed_up() {
    let dir = tempfile::tempdir().unwrap();
    let (one, two) = (Run::start(away(dir.path())).unwrap(), Run::start(away(dir.path())).unwrap());
    let theirs = one.series("a", &[], "").unwrap();
    two.series("b", &[], "").unwrap();
    two.log(theirs, 1.0, None, None);
    assert_eq!((two.counters().logged, two.counters().dropped["foreign_handle"]), (0, 1));
}

#[test]
fn disabled_run_does_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let run = Run::start(client::Config { disabled: true, ..away(dir.path()) }).unwrap();
    let loss = run.series("loss", &[], "").unwrap();
    run.log(loss, 1.0, None, None);
    assert_eq!(run.flush(LONG, &mut || false), FlushOutcome::Server);
    assert_eq!(run.finish(), client::CloseOutcome::default());
    assert_eq!((run.counters(), run.url()), (client::Counters::default(), None));
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn no_password_of_the_url_reaches_a_warning_a_page_or_the_spool() {
    static SAID: Mutex<Vec<String>> = Mutex::new(Vec::new());
    let dir = tempfile::tempdir().unwrap();
    client::set_warning_hook(|warning: Warning| SAID.lock().unwrap().push(warning.message));
    let gone = away(dir.path());
    let url = gone.url.clone().unwrap().replace("http://", "http://user:hunter2@");
    let run = Run::start(client::Config { url: Some(url), ..gone }).unwrap();
    let loss = run.series("loss", &[], "").unwrap();
    run.log(loss, 1.0, None, None);
    assert!(matches!(flush(&run), FlushOutcome::Spool { .. }));
    let (url, config) = (run.url().unwrap(), format!("{:?}", run.config()));
    let spool = run.spool_dir().unwrap();
    let closed = run.close(SessionEnd::Finished, "", Duration::ZERO, &mut || false);
    let header = std::fs::read_to_string(spool.join("header")).unwrap();
    let said = SAID.lock().unwrap().join("\n");
    for text in [&url, &config, &closed.hint.unwrap(), &header, &said] {
        assert!(text.contains("http://127.0.0.1:"), "{text}");
        assert!(!text.contains("hunter2"), "{text}");
    }
    let error = Run::start(client::Config { url: Some("ftp://u:hunter2@h".into()), ..away(dir.path()) });
    assert!(!format!("{:?}", error.err().unwrap()).contains("hunter2"));
}
