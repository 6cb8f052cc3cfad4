//! What the far storage refused for good: kept on disk, with its words, until somebody looks.
//!
//! One file an entry: a line of JSON, then the request's body. Bounded in number and bytes; beyond
//! that the oldest goes, and is counted.

use std::collections::VecDeque;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Most entries kept.
const ENTRIES_MAX: usize = 10_000;
/// Most bytes kept.
pub(super) const BYTES_MAX: u64 = 256 << 20;
/// Longest words of the far end that are kept, bytes.
pub(super) const WORDS_BYTES_MAX: usize = 500;
/// Behind the name of an entry's file.
const ENDING: &str = "refused";

/// Samples that the far storage refused.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub(crate) struct Refusal {
    /// Its number.
    #[serde(default)]
    pub(super) id: u64,
    /// When, milliseconds since the epoch.
    pub(super) time_ms: i64,
    /// The HTTP status.
    pub(super) status: u16,
    /// What the far storage said.
    pub(super) words: String,
    /// Samples refused.
    pub(super) samples: u64,
    /// One of their series.
    pub(super) series: String,
    /// Earliest sample, milliseconds since the epoch.
    pub(super) first_ms: i64,
    /// Latest sample, milliseconds since the epoch.
    pub(super) last_ms: i64,
    /// Bytes on disk.
    #[serde(default)]
    pub(super) bytes: u64,
}

#[derive(Debug, Default)]
struct Held {
    entries: VecDeque<Refusal>,
    bytes: u64,
    next: u64,
    discarded_samples: u64,
}

/// The list.
#[derive(Debug)]
pub(super) struct Refused {
    dir: PathBuf,
    held: Mutex<Held>,
}

impl Refused {
    /// Opens the list in `dir`; what can't be read of it is left out.
    pub(super) fn open(dir: PathBuf) -> io::Result<Self> {
        fs::create_dir_all(&dir)?;
        let mut found: Vec<Refusal> = Vec::new();
        for file in fs::read_dir(&dir)? {
            let path = file?.path();
            let id = path.file_stem().and_then(|stem| stem.to_str()).and_then(|stem| stem.parse().ok());
            if let (Some(id), Some(ENDING)) = (id, path.extension().and_then(|ending| ending.to_str())) {
                match read(&path) {
                    Ok((mut entry, body)) => {
                        (entry.id, entry.bytes) = (id, body.len() as u64);
                        found.push(entry);
                    }
                    Err(error) => {
                        tracing::warn!(path = %path.display(), %error, "a refused request is damaged");
                    }
                }
            }
        }
        found.sort_by_key(|entry| entry.id);
        let held = Held {
            bytes: found.iter().map(|entry| entry.bytes).sum(),
            next: found.last().map_or(0, |entry| entry.id + 1),
            entries: found.into(),
            discarded_samples: 0,
        };
        Ok(Self { dir, held: Mutex::new(held) })
    }

    fn lock(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn path(&self, id: u64) -> PathBuf {
        self.dir.join(format!("{id:010}.{ENDING}"))
    }

    /// Keeps a refused request. Durable when this returns without an error.
    pub(super) fn keep(&self, mut entry: Refusal, body: &[u8]) -> io::Result<()> {
        let mut held = self.lock();
        (entry.id, entry.bytes) = (held.next, body.len() as u64);
        let mut bytes = serde_json::to_vec(&entry).map_err(io::Error::from)?;
        bytes.push(b'\n');
        bytes.extend_from_slice(body);
        let path = self.path(entry.id);
        let fresh = path.with_extension("new");
        let mut file = fs::File::create(&fresh)?;
        io::Write::write_all(&mut file, &bytes)?;
        file.sync_all()?;
        fs::rename(&fresh, &path)?;
        held.next += 1;
        held.bytes += entry.bytes;
        held.entries.push_back(entry);
        while held.entries.len() > ENTRIES_MAX || held.bytes > BYTES_MAX {
            let Some(oldest) = held.entries.pop_front() else { break };
            held.bytes -= oldest.bytes;
            held.discarded_samples += oldest.samples;
            fs::remove_file(self.path(oldest.id))?;
        }
        Ok(())
    }

    /// The entries, oldest first, and their bytes.
    pub(super) fn list(&self) -> (Vec<Refusal>, u64) {
        let held = self.lock();
        (held.entries.iter().cloned().collect(), held.bytes)
    }

    /// Samples of entries that went because there were too many.
    pub(super) fn discarded_samples(&self) -> u64 {
        self.lock().discarded_samples
    }

    /// An entry's body.
    pub(super) fn body(&self, id: u64) -> io::Result<Vec<u8>> {
        read(&self.path(id)).map(|(_, body)| body)
    }

    /// Forgets an entry.
    pub(super) fn forget(&self, id: u64) -> io::Result<()> {
        let mut held = self.lock();
        if let Some(at) = held.entries.iter().position(|entry| entry.id == id)
            && let Some(entry) = held.entries.remove(at)
        {
            held.bytes -= entry.bytes;
            fs::remove_file(self.path(id))?;
        }
        Ok(())
    }
}

fn read(path: &Path) -> io::Result<(Refusal, Vec<u8>)> {
    let bytes = fs::read(path)?;
    let end = bytes.iter().position(|b| *b == b'\n').ok_or(io::ErrorKind::UnexpectedEof)?;
    let entry = serde_json::from_slice(&bytes[..end])?;
    Ok((entry, bytes[end + 1..].to_vec()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(words: &str) -> Refusal {
        Refusal {
            id: 0,
            time_ms: 1,
            status: 400,
            words: words.into(),
            samples: 2,
            series: "up".into(),
            first_ms: 3,
            last_ms: 4,
            bytes: 0,
        }
    }

    #[test]
    fn what_was_refused_is_there_after_a_restart_until_it_is_forgotten() {
        let dir = tempfile::tempdir().unwrap();
        let list = Refused::open(dir.path().to_owned()).unwrap();
        list.keep(entry("too old"), b"a\nb").unwrap();
        list.keep(entry("too new"), b"c").unwrap();
        drop(list);
        let list = Refused::open(dir.path().to_owned()).unwrap();
        let (entries, bytes) = list.list();
        assert_eq!((entries.len(), bytes, &*entries[0].words), (2, 4, "too old"));
        assert_eq!(list.body(entries[0].id).unwrap(), b"a\nb");
        list.forget(entries[0].id).unwrap();
        list.keep(entry("again"), b"d").unwrap();
        let ids: Vec<u64> = list.list().0.iter().map(|entry| entry.id).collect();
        assert_eq!(ids, [1, 2]);
    }
}
