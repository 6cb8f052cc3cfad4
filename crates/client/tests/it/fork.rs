//! The child's side of a fork. The fork itself is tested where there is one, in Python.

use client::{FlushOutcome, Run};

use crate::peer::{Manner, Peer};
use crate::support::{close, flush, until};

#[test]
fn child_has_a_session_and_a_writer_of_its_own() {
    let (peer, dir) = (Peer::start(), tempfile::tempdir().unwrap());
    let parent = Run::start(peer.config(dir.path())).unwrap();
    let loss = parent.series("loss", &[], "").unwrap();
    parent.log(loss, 1.0, None, None);
    let child = parent.forget_after_fork();
    let other = child.series("other", &[], "").unwrap();
    child.log(other, 1.0, None, None);
    child.log(loss, 1.0, None, None);
    assert_eq!(flush(&child), FlushOutcome::Server);
    assert_eq!(child.counters().dropped["foreign_handle"], 1);
    close(&child);
    parent.log(loss, 2.0, None, None);
    close(&parent);
    let writers: std::collections::BTreeSet<_> =
        peer.seen().requests.iter().map(|r| r.client_id.clone()).collect();
    assert_eq!((writers.len(), peer.steps("loss{}"), peer.steps("other{}")), (2, vec![0, 1], vec![0]));
    assert_eq!(child.run_id(), parent.run_id());
}

#[test]
fn child_does_not_wait_for_what_the_parent_was_doing() {
    let (peer, dir) = (Peer::start(), tempfile::tempdir().unwrap());
    let parent = Run::start(peer.config(dir.path())).unwrap();
    peer.set(Manner::Hang);
    let loss = parent.series("loss", &[], "").unwrap();
    parent.log(loss, 1.0, None, None);
    until("a hanging push", || peer.seen().pushes > 0);
    let child = parent.forget_after_fork();
    let loss = child.series("loss", &[], "").unwrap();
    child.log(loss, 1.0, None, None);
    let mut asked = 0;
    let outcome = child.flush(crate::support::LONG, &mut || {
        asked += 1;
        asked == 2
    });
    assert!(matches!(outcome, FlushOutcome::Spool { .. }), "{outcome:?}");
    peer.set(Manner::Serve);
    close(&child);
    close(&parent);
}

#[test]
fn child_that_logs_nothing_leaves_no_trace() {
    let (peer, dir) = (Peer::start(), tempfile::tempdir().unwrap());
    let parent = Run::start(peer.config(dir.path())).unwrap();
    let child = parent.forget_after_fork();
    assert_eq!(close(&child), client::CloseOutcome::default());
    drop(child);
    close(&parent);
    let sessions = peer.changes().into_iter().filter(|c| c.session.as_ref().is_some_and(|s| s.1.opens));
    assert_eq!(sessions.count(), 1);
}
