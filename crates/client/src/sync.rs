//! Sending spools that their writers left: `truegauge sync DIR`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::header::SpoolHeader;
use crate::transport::{Transport, UrlError, Verdict};
use crate::trust::Trust;

/// Tries of one record before giving up, with pauses that double from [`FIRST_PAUSE`].
const TRIES: u32 = 5;
const FIRST_PAUSE: Duration = Duration::from_millis(200);

/// How far a sync has come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Progress<'a> {
    /// The spool that is being sent.
    pub dir: &'a Path,
    /// Whose it is; `None` when its header can't be read.
    pub header: Option<&'a SpoolHeader>,
    /// Batches sent so far, of all spools.
    pub batches: u64,
    /// Bytes sent so far, of all spools.
    pub bytes: u64,
    /// Bytes left in this spool.
    pub bytes_left: u64,
}

/// What a sync did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SyncOutcome {
    /// Spools that were sent whole and removed.
    pub spools: u64,
    /// Batches the server has taken, those it had already included.
    pub batches: u64,
    /// Points it stored; fewer than sent when it had some already.
    pub points: u64,
    /// Bytes sent.
    pub bytes: u64,
    /// Spools whose writer is still alive, or that are being sent by someone else: left alone.
    pub busy: Vec<PathBuf>,
    /// Spools that a newer client wrote: left alone.
    pub newer: Vec<PathBuf>,
    /// Batches the server refuses for good, with its words; they are gone from the spool.
    pub refused: Vec<String>,
    /// Points it refused out of batches it took, by reason.
    pub refused_points: BTreeMap<String, u64>,
    /// Damaged stretches that were stepped over.
    pub damage: Vec<spool::Damage>,
}

/// Why a sync could not end. What was acknowledged till then is gone from the spool, the rest stays.
#[derive(Debug, thiserror::Error)]
pub enum SyncError {
    /// The URL can't be used.
    #[error(transparent)]
    Url(#[from] UrlError),
    /// Nothing to send from.
    #[error("{} is neither a spool nor a folder of spools", dir.display())]
    NoSpool {
        /// The folder.
        dir: PathBuf,
    },
    /// The server does not take it.
    #[error("could not send {} to {url}: {why}", dir.display())]
    Away {
        /// The spool.
        dir: PathBuf,
        /// The server.
        url: String,
        /// What came back.
        why: String,
        /// What to do about it, where there is something.
        hint: Option<&'static str>,
    },
    /// The spool can't be read.
    #[error(transparent)]
    Spool(#[from] spool::ReadError),
}

/// Sends the spool `dir`, or every spool in the folder `dir`, to the server at `url`, and removes
/// what was sent whole. A header that is damaged does not matter, the batches name their run
/// themselves. `progress` is told behind each batch.
pub fn send(
    dir: &Path,
    url: &str,
    token: Option<&str>,
    progress: &mut dyn FnMut(Progress<'_>),
) -> Result<SyncOutcome, SyncError> {
    send_trusting(dir, (url, token, &Trust::default()), progress)
}

/// [`send`] to a server that is believed by authorities of one's own.
pub fn send_trusting(
    dir: &Path,
    (url, token, trust): (&str, Option<&str>, &Trust),
    progress: &mut dyn FnMut(Progress<'_>),
) -> Result<SyncOutcome, SyncError> {
    let transport = Transport::new(url, token, trust)?;
    let mut outcome = SyncOutcome::default();
    let spools = if dir.join("header").is_file() { vec![dir.to_owned()] } else { spool::list(dir) };
    if spools.is_empty() && !dir.is_dir() {
        return Err(SyncError::NoSpool { dir: dir.to_owned() });
    }
    for spool in spools {
        send_one(&spool, &transport, &mut outcome, progress)?;
    }
    Ok(outcome)
}

fn send_one(
    dir: &Path,
    transport: &Transport,
    outcome: &mut SyncOutcome,
    progress: &mut dyn FnMut(Progress<'_>),
) -> Result<(), SyncError> {
    let Some(_lock) = spool::try_own(dir)? else {
        outcome.busy.push(dir.to_owned());
        return Ok(());
    };
    let mut reader = spool::Reader::open(dir)?;
    let header = SpoolHeader::parse(reader.header());
    if header.is_none() && SpoolHeader::is_newer(reader.header()) {
        outcome.newer.push(dir.to_owned());
        return Ok(());
    }
    while let Some(record) = reader.next()? {
        deliver(dir, transport, &record.bytes, outcome)?;
        reader.consume(record.position)?;
        outcome.batches += 1;
        outcome.bytes += record.bytes.len() as u64;
        let bytes_left = reader.bytes_left()?;
        let (batches, bytes) = (outcome.batches, outcome.bytes);
        progress(Progress { dir, header: header.as_ref(), batches, bytes, bytes_left });
    }
    outcome.damage.append(&mut reader.take_damage());
    outcome.spools += 1;
    Ok(reader.remove()?)
}

/// Sends one batch until the server has decided on it.
fn deliver(
    dir: &Path,
    transport: &Transport,
    bytes: &[u8],
    outcome: &mut SyncOutcome,
) -> Result<(), SyncError> {
    let mut pause = FIRST_PAUSE;
    for attempt in 1.. {
        match transport.push(bytes) {
            Verdict::Stored(answer) => {
                outcome.points += answer.stored;
                for refused in answer.refused {
                    *outcome.refused_points.entry(refused.reason).or_default() += refused.count;
                }
                break;
            }
            Verdict::Refused(why) => {
                outcome.refused.push(why);
                break;
            }
            Verdict::Later(away) if attempt >= TRIES || away.fix.is_some() => {
                let (dir, url) = (dir.to_owned(), transport.shown().to_owned());
                return Err(SyncError::Away { dir, url, why: away.why, hint: away.fix });
            }
            Verdict::Later(away) => {
                std::thread::sleep(away.retry_after.map_or(pause, |wish| wish.min(Duration::from_secs(15))));
                pause *= 2;
            }
        }
    }
    Ok(())
}
