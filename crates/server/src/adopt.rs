//! Takes in this user's spools whose writer is gone and that were meant for no other server.
//!
//! Records go through the same path as pushes, in order, and are consumed once durable. What can
//! never be taken is set aside in `<spool_dir>/.refused`, so that it is neither lost nor tried for ever.

use std::collections::BTreeSet;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use spool::{ReadError, Reader};

use crate::app::{App, Shared, stopped};
use crate::ingest::{self, IngestError};

/// Time between two looks at the folder.
const PERIOD: Duration = Duration::from_secs(2);
/// Name of this door in the counters.
const DOOR: &str = "spool";
/// Folder of records that can never be taken.
const REFUSED_DIR: &str = ".refused";
/// Most refused records that are kept.
const REFUSED_MAX: usize = 1_000;

/// Starts looking; ends when the server stops.
pub(crate) fn spawn(app: &App) {
    if !app.config.adopt_spools {
        return;
    }
    let app = Arc::clone(app);
    let mut stopping = app.stopping.clone();
    tokio::spawn(async move {
        let mut failing = BTreeSet::new();
        loop {
            let shared = Arc::clone(&app);
            match tokio::task::spawn_blocking(move || round(&shared, &failing)).await {
                Ok(still) => failing = still,
                Err(error) => {
                    tracing::error!(%error, "taking in spools ended early");
                    failing = BTreeSet::new();
                }
            }
            tokio::select! {
                () = tokio::time::sleep(PERIOD) => (),
                () = stopped(&mut stopping) => return,
            }
        }
    });
}

/// What became of a spool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    /// Everything was taken, it is gone.
    Done,
    /// It belongs to somebody alive, or to another server.
    NotOurs,
    /// The store takes nothing at the moment, or the server stops.
    Later,
}

/// Looks at every spool once; `failing` are those that could not be taken in the last time, so that
/// each is warned of once. Gives those that can't be taken in now.
fn round(shared: &Shared, failing: &BTreeSet<PathBuf>) -> BTreeSet<PathBuf> {
    let mut still = BTreeSet::new();
    for dir in spool::list(&shared.config.spool_dir) {
        match adopt(shared, &dir) {
            Ok(Outcome::Done) => {
                shared.metrics.spools.add(&["adopted"], 1);
                tracing::info!(spool = %dir.display(), "took in a spool");
            }
            // One without a header is just being made by its writer.
            Ok(Outcome::NotOurs) | Err(ReadError::NotASpool { .. }) => (),
            Ok(Outcome::Later) => break,
            Err(error) => {
                if !failing.contains(&dir) {
                    shared.metrics.spools.add(&["failed"], 1);
                    tracing::warn!(spool = %dir.display(), %error, "cannot take in a spool, trying again");
                }
                still.insert(dir);
            }
        }
    }
    still
}

fn adopt(shared: &Shared, dir: &Path) -> Result<Outcome, ReadError> {
    // The header is looked at first: whoever owns another server's spool is not to find it locked.
    if !ours(shared, Reader::open(dir)?.header()) {
        return Ok(Outcome::NotOurs);
    }
    let Some(_lock) = spool::try_own(dir)? else { return Ok(Outcome::NotOurs) };
    let mut reader = Reader::open(dir)?;
    let mut records = 0u64;
    while let Some(record) = reader.next()? {
        report(shared, &mut reader);
        if *shared.stopping.borrow() {
            return Ok(Outcome::Later);
        }
        match ingest::record(shared, &record.bytes, DOOR) {
            Ok(_) => records += 1,
            Err(IngestError::Append(error)) => {
                tracing::debug!(%error, "a spool waits for the store");
                return Ok(Outcome::Later);
            }
            Err(IngestError::Unusable(error)) => {
                shared.metrics.spools.add(&["unusable_record"], 1);
                let kept = set_aside(shared, dir, &record.bytes);
                tracing::warn!(spool = %dir.display(), %error, kept = ?kept, "a record can't be taken");
            }
        }
        reader.consume(record.position)?;
    }
    report(shared, &mut reader);
    tracing::debug!(spool = %dir.display(), records, "a spool is read to its end");
    reader.remove()?;
    Ok(Outcome::Done)
}

/// Says where a spool is damaged.
fn report(shared: &Shared, reader: &mut Reader) {
    for damage in reader.take_damage() {
        shared.metrics.spools.add(&["damaged_stretch"], 1);
        tracing::warn!(
            file = %damage.file.display(),
            offset = damage.offset,
            bytes = damage.bytes,
            why = ?damage.why,
            "a spool is damaged, the rest is taken"
        );
    }
}

/// Whether a spool was meant for no server, for the default one, or for this one by its address.
fn ours(shared: &Shared, header: &[u8]) -> bool {
    #[derive(serde::Deserialize)]
    struct Header {
        #[serde(default)]
        target: Option<String>,
    }
    let Ok(Header { target }) = serde_json::from_slice(header) else { return false };
    let Some(target) = target.filter(|target| !target.is_empty()) else { return true };
    let target = target.trim_end_matches('/').trim_start_matches("http://");
    let port = shared.config.listen.port();
    [
        "127.0.0.1:9494".to_owned(),
        "localhost:9494".to_owned(),
        format!("127.0.0.1:{port}"),
        format!("localhost:{port}"),
        shared.config.listen.to_string(),
    ]
    .contains(&target.to_owned())
}

/// Keeps a record that can't be taken; none when it could not be kept.
fn set_aside(shared: &Shared, dir: &Path, bytes: &[u8]) -> Option<PathBuf> {
    let folder = shared.config.spool_dir.join(REFUSED_DIR);
    std::fs::create_dir_all(&folder).ok()?;
    let kept = std::fs::read_dir(&folder).ok()?.count();
    if kept >= REFUSED_MAX {
        return None;
    }
    let name = dir.file_name()?.to_string_lossy().into_owned();
    let path = (0..REFUSED_MAX).map(|at| folder.join(format!("{name}.{at}"))).find(|path| !path.exists())?;
    let mut file = std::fs::File::create_new(&path).ok()?;
    file.write_all(bytes).ok()?;
    Some(path)
}
