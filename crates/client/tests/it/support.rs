//! What the tests share.

use std::path::Path;
use std::time::{Duration, Instant};

use client::{Config, FlushOutcome, Run};
use model::{RunPath, SessionEnd};
use wire::push::PushRequest;

/// A wait that only a broken client makes long.
pub(crate) const LONG: Duration = Duration::from_mins(1);

/// A config that knows no server and spools to `dir`, without the sampler.
pub(crate) fn config(dir: &Path) -> Config {
    Config {
        path: RunPath { project: "p".into(), run: "r".into(), ..RunPath::default() },
        spool_dir: Some(dir.to_owned()),
        capture_system_metrics: false,
        ..Config::default()
    }
}

/// The config of a client whose server is away: nobody listens at the port.
pub(crate) fn away(dir: &Path) -> Config {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    Config { url: Some(format!("http://{}", listener.local_addr().unwrap())), ..config(dir) }
}

/// Waits until `condition` holds.
pub(crate) fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + LONG;
    while !condition() {
        assert!(Instant::now() < deadline, "{what} did not come to pass");
        std::thread::yield_now();
    }
}

pub(crate) fn flush(run: &Run) -> FlushOutcome {
    run.flush(LONG, &mut || false)
}

pub(crate) fn close(run: &Run) -> client::CloseOutcome {
    run.close(SessionEnd::Finished, "", LONG, &mut || false)
}

/// The requests of every spool in `dir`, whoever owns them.
pub(crate) fn spooled(dir: &Path) -> Vec<PushRequest> {
    let mut requests = Vec::new();
    for spool in spool::list(dir) {
        let mut reader = spool::Reader::open(&spool).unwrap();
        while let Some(record) = reader.next().unwrap() {
            requests.push(wire::push::decode(&record.bytes).unwrap());
        }
    }
    requests
}

/// Points in requests.
pub(crate) fn count(requests: &[PushRequest]) -> u64 {
    requests.iter().flat_map(|r| &r.series).map(|s| s.values.len() as u64).sum()
}
