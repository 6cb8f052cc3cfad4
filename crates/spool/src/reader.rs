//! Reading from the front.

use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use crate::error::{ReadError, at};
use crate::record::{HEAD_BYTES, MARK, checksum, parse_head};
use crate::{CURSOR_FILE, HEADER_FILE, LOCK_FILE, cursor, segment};

/// A place between two records.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Position {
    pub(crate) segment: u64,
    pub(crate) offset: u64,
}

/// A record that was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// Its bytes, exactly as they were appended.
    pub bytes: Vec<u8>,
    /// The place behind it, for [`Reader::consume`].
    pub position: Position,
}

/// What is wrong with a stretch of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Why {
    /// A record that was not written to its end, as a crash leaves it.
    Torn,
    /// Bytes that are not what was written.
    Corrupt,
}

/// Bytes that could not be read as records.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Damage {
    /// The segment file.
    pub file: PathBuf,
    /// Where the stretch starts, bytes from the file's beginning.
    pub offset: u64,
    /// How long it is, bytes.
    pub bytes: u64,
    /// What is wrong.
    pub why: Why,
}

/// Reads a spool record by record and remembers what was consumed.
///
/// Take the lock first ([`crate::try_own`]); two readers of one spool would hand out records twice.
#[derive(Debug)]
pub struct Reader {
    dir: PathBuf,
    header: Vec<u8>,
    at: Position,
    consumed: Position,
    open: Option<(u64, File)>,
    damage: Vec<Damage>,
}

impl Reader {
    /// Opens the spool `dir` behind what was consumed before.
    pub fn open(dir: &Path) -> Result<Self, ReadError> {
        let path = dir.join(HEADER_FILE);
        let header = match fs::read(&path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                return Err(ReadError::NotASpool { dir: dir.to_owned() });
            }
            other => other.map_err(at(&path))?,
        };
        let (segment, offset) = cursor::read(dir);
        let at = Position { segment, offset };
        Ok(Self { dir: dir.to_owned(), header, at, consumed: at, open: None, damage: Vec::new() })
    }

    /// The header, as it was given to [`crate::Writer::create`].
    pub fn header(&self) -> &[u8] {
        &self.header
    }

    /// The directory.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The next whole record, `None` at the end. Damage on the way is stepped over and kept for
    /// [`Reader::take_damage`].
    #[expect(clippy::should_implement_trait, reason = "an iterator could not lend the reader between items")]
    pub fn next(&mut self) -> Result<Option<Record>, ReadError> {
        loop {
            let segments = segment::all(&self.dir)?;
            let Some(&(number, length)) = segments.iter().find(|(n, _)| *n >= self.at.segment) else {
                return Ok(None);
            };
            if number != self.at.segment {
                self.at = Position { segment: number, offset: 0 };
            }
            let is_last = segments.last().is_none_or(|(last, _)| *last == number);
            if self.at.offset >= length {
                if is_last {
                    return Ok(None);
                }
                self.at = Position { segment: number + 1, offset: 0 };
                continue;
            }
            if let Some(record) = self.read_within(number, length)? {
                return Ok(Some(record));
            }
        }
    }

    /// Reads at the current place of a segment of `length` bytes; `None` when only damage was left.
    fn read_within(&mut self, number: u64, length: u64) -> Result<Option<Record>, ReadError> {
        let start = self.at.offset;
        let left = length - start;
        let head = self.read_at(number, start, (HEAD_BYTES as u64).min(left))?;
        let parsed = parse_head(&head);
        if let Some((bytes, wanted)) = parsed
            && HEAD_BYTES as u64 + bytes as u64 <= left
        {
            let bytes = self.read_at(number, start + HEAD_BYTES as u64, bytes as u64)?;
            if checksum(&bytes) == wanted {
                self.at.offset = start + HEAD_BYTES as u64 + bytes.len() as u64;
                return Ok(Some(Record { bytes, position: self.at }));
            }
        }
        let end = self.find_record(number, start + 1, length)?;
        let torn =
            end == length && (parsed.is_some_and(|(n, _)| (HEAD_BYTES + n) as u64 > left) || is_start(&head));
        self.damage.push(Damage {
            file: segment::path(&self.dir, number),
            offset: start,
            bytes: end - start,
            why: if torn { Why::Torn } else { Why::Corrupt },
        });
        self.at.offset = end;
        Ok(None)
    }

    /// Where the next whole record starts at or behind `from`, else `length`.
    fn find_record(&mut self, number: u64, from: u64, length: u64) -> Result<u64, ReadError> {
        if from >= length {
            return Ok(length);
        }
        let rest = self.read_at(number, from, length - from)?;
        let is_whole = |at: usize| {
            parse_head(&rest[at..]).is_some_and(|(bytes, wanted)| {
                rest.get(at + HEAD_BYTES..at + HEAD_BYTES + bytes).is_some_and(|b| checksum(b) == wanted)
            })
        };
        let found = (0..rest.len().saturating_sub(HEAD_BYTES - 1))
            .filter(|at| rest[*at..].starts_with(&MARK))
            .find(|at| is_whole(*at));
        Ok(found.map_or(length, |at| from + at as u64))
    }

    fn read_at(&mut self, number: u64, offset: u64, bytes: u64) -> Result<Vec<u8>, ReadError> {
        let path = segment::path(&self.dir, number);
        if self.open.as_ref().is_none_or(|(open, _)| *open != number) {
            self.open = Some((number, File::open(&path).map_err(at(&path))?));
        }
        let mut read = vec![0; usize::try_from(bytes).unwrap_or_default()];
        if let Some((_, file)) = &mut self.open {
            file.seek(SeekFrom::Start(offset)).and_then(|_| file.read_exact(&mut read)).map_err(at(&path))?;
        }
        Ok(read)
    }

    /// Marks everything before `position` as done: the next reader starts there, and segments that
    /// are wholly before it are deleted. Where even the mark can't be written, for instance because
    /// the disk is full, the records come again to the next reader.
    pub fn consume(&mut self, position: Position) -> Result<(), ReadError> {
        self.consumed = self.consumed.max(position);
        drop(cursor::write(&self.dir, self.consumed.segment, self.consumed.offset));
        for (number, _) in segment::all(&self.dir)? {
            if number < self.consumed.segment {
                let path = segment::path(&self.dir, number);
                fs::remove_file(&path).map_err(at(&path))?;
            }
        }
        Ok(())
    }

    /// Lets go of the open segment, so that deleting it frees its space.
    pub(crate) fn close(&mut self) {
        self.open = None;
    }

    /// Damage stepped over since the last call.
    pub fn take_damage(&mut self) -> Vec<Damage> {
        std::mem::take(&mut self.damage)
    }

    /// Bytes on disk that were not consumed yet.
    pub fn bytes_left(&self) -> Result<u64, ReadError> {
        Ok(segment::all(&self.dir)?
            .into_iter()
            .map(|(number, length)| match number.cmp(&self.consumed.segment) {
                std::cmp::Ordering::Less => 0,
                std::cmp::Ordering::Equal => length.saturating_sub(self.consumed.offset),
                std::cmp::Ordering::Greater => length,
            })
            .sum())
    }

    /// Removes the spool with everything in it. Meant for one that [`Reader::next`] has come to the
    /// end of; the caller decides.
    pub fn remove(self) -> Result<(), ReadError> {
        remove(&self.dir)
    }
}

/// Deletes a spool's own files, the header last but the lock, and the directory.
pub(crate) fn remove(dir: &Path) -> Result<(), ReadError> {
    let gone = |path: PathBuf| match fs::remove_file(&path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(at(&path)(e)),
        _ => Ok(()),
    };
    for (number, _) in segment::all(dir)? {
        gone(segment::path(dir, number))?;
    }
    for name in [CURSOR_FILE, HEADER_FILE, LOCK_FILE] {
        gone(dir.join(name))?;
    }
    fs::remove_dir(dir).map_err(at(dir))
}

/// Whether bytes at the end of a file could be the start of a record.
fn is_start(head: &[u8]) -> bool {
    head.len() < HEAD_BYTES && head.starts_with(&MARK[..head.len().min(MARK.len())])
}

impl std::fmt::Display for Damage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let why = match self.why {
            Why::Torn => "were not written to their end",
            Why::Corrupt => "are damaged",
        };
        let (bytes, offset, file) = (self.bytes, self.offset, self.file.display());
        write!(f, "{bytes} bytes at {offset} of the spool file {file} {why} and were left out")
    }
}
