//! Appending at the back, and draining from the front what was appended.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

use crate::error::{AppendError, CreateError, ReadError};
use crate::reader::{self, Damage, Position, Reader, Record};
use crate::record::{RECORD_BYTES_MAX, frame};
use crate::{HEADER_FILE, lock::Lock, segment};

/// Bounds of a spool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// A segment that has reached this many bytes is closed and the next one begun.
    pub segment_bytes: u64,
    /// Most bytes on disk; an append beyond is refused.
    pub bytes_max: u64,
}

impl Default for Options {
    /// Segments of 8 MiB, 8 GiB in all.
    fn default() -> Self {
        Self { segment_bytes: 8 << 20, bytes_max: 8 << 30 }
    }
}

/// The live owner of a spool.
///
/// Not meant to be used on both sides of a fork: the child must leave it alone and leak it.
#[derive(Debug)]
pub struct Writer {
    options: Options,
    reader: Reader,
    active: Option<Active>,
    next_segment: u64,
    /// Bytes of all segments on disk.
    bytes: u64,
    records_left: u64,
    /// Records handed out and not consumed.
    outstanding: u64,
    _lock: Lock,
}

#[derive(Debug)]
struct Active {
    file: File,
    number: u64,
    bytes: u64,
}

impl Writer {
    /// Makes the spool `dir`, readable by its user alone, and owns it. Parent folders are made too.
    ///
    /// The directory appears whole or not at all.
    pub fn create(dir: &Path, header: &[u8], options: Options) -> Result<Self, CreateError> {
        let failed = |source: io::Error| CreateError::Io { dir: dir.to_owned(), source };
        if dir.exists() {
            return Err(CreateError::Exists { dir: dir.to_owned() });
        }
        let parent = dir.parent().unwrap_or(Path::new("."));
        let name = dir.file_name().unwrap_or_default().to_string_lossy();
        private_dir(parent).map_err(failed)?;
        let fresh = parent.join(format!(".{name}.new"));
        let lock = fill(&fresh, header).map_err(failed)?;
        fs::rename(&fresh, dir).map_err(failed)?;
        sync_dir(parent).map_err(failed)?;
        let reader = Reader::open(dir).map_err(|e| failed(io::Error::other(e)))?;
        Ok(Self {
            options,
            reader,
            active: None,
            next_segment: 1,
            bytes: 0,
            records_left: 0,
            outstanding: 0,
            _lock: lock,
        })
    }

    /// Appends one record. After `Ok` it outlives this process, whatever becomes of it.
    pub fn append(&mut self, bytes: &[u8]) -> Result<(), AppendError> {
        if bytes.len() > RECORD_BYTES_MAX {
            return Err(AppendError::TooLong { found: bytes.len() });
        }
        let framed = frame(bytes);
        let added = framed.len() as u64;
        if self.bytes + added > self.options.bytes_max {
            let (bytes, limit) = (self.bytes, self.options.bytes_max);
            return Err(AppendError::Full { dir: self.dir().to_owned(), bytes, limit });
        }
        self.write(&framed).map_err(|source| AppendError::Io { dir: self.dir().to_owned(), source })?;
        self.bytes += added;
        self.records_left += 1;
        Ok(())
    }

    fn write(&mut self, framed: &[u8]) -> io::Result<()> {
        if let Some(full) = self.active.take_if(|a| a.bytes >= self.options.segment_bytes) {
            full.file.sync_data()?;
        }
        if self.active.is_none() {
            let number = self.next_segment;
            let file =
                File::options().create_new(true).append(true).open(segment::path(self.dir(), number))?;
            self.next_segment += 1;
            sync_dir(self.dir())?;
            self.active = Some(Active { file, number, bytes: 0 });
        }
        let Some(active) = &mut self.active else { return Ok(()) };
        if let Err(error) = active.file.write_all(framed) {
            // What was written of it goes again; where even that fails, the torn end stays and the
            // next record starts a new segment.
            if active.file.set_len(active.bytes).is_err() {
                self.active = None;
            }
            return Err(error);
        }
        active.bytes += framed.len() as u64;
        Ok(())
    }

    /// Makes everything appended so far outlive the machine.
    pub fn sync(&mut self) -> io::Result<()> {
        match &self.active {
            Some(active) => active.file.sync_data(),
            None => Ok(()),
        }
    }

    /// The oldest record that was not handed out yet, `None` when there is none.
    #[expect(clippy::should_implement_trait, reason = "an iterator could not lend the writer between items")]
    pub fn next(&mut self) -> Result<Option<Record>, ReadError> {
        let record = self.reader.next()?;
        if record.is_some() {
            self.outstanding += 1;
        } else if self.outstanding == 0 {
            // Damage may have taken some that were counted.
            self.records_left = 0;
        }
        Ok(record)
    }

    /// Marks everything before `position` as done, one record at a time, and frees its disk space.
    pub fn consume(&mut self, position: Position) -> Result<(), ReadError> {
        self.records_left = self.records_left.saturating_sub(1);
        self.outstanding = self.outstanding.saturating_sub(1);
        self.reader.consume(position)?;
        let at_end =
            self.active.as_ref().is_some_and(|a| a.number == position.segment && a.bytes == position.offset);
        if at_end {
            self.active = None;
            self.reader.close();
            let path = segment::path(self.dir(), position.segment);
            fs::remove_file(&path).map_err(crate::error::at(&path))?;
            self.records_left = 0;
        }
        self.bytes = segment::all(self.dir())?.into_iter().map(|(_, bytes)| bytes).sum();
        Ok(())
    }

    /// Whether everything appended was consumed.
    pub fn is_drained(&self) -> bool {
        self.records_left == 0
    }

    /// Records that were not consumed yet; damage may hide some of them.
    pub fn records_left(&self) -> u64 {
        self.records_left
    }

    /// Bytes on disk that were not consumed yet.
    pub fn bytes_left(&self) -> Result<u64, ReadError> {
        self.reader.bytes_left()
    }

    /// Damage stepped over since the last call.
    pub fn take_damage(&mut self) -> Vec<Damage> {
        self.reader.take_damage()
    }

    /// The directory.
    pub fn dir(&self) -> &Path {
        self.reader.dir()
    }

    /// Removes the spool with everything in it, for when it was drained.
    pub fn remove(self) -> Result<(), ReadError> {
        reader::remove(self.dir())
    }
}

/// Makes the contents of a new spool in `dir` and takes its lock.
fn fill(dir: &Path, header: &[u8]) -> io::Result<Lock> {
    if dir.exists() {
        fs::remove_dir_all(dir)?;
    }
    private_dir(dir)?;
    let lock = Lock::create(dir)?;
    let mut file = File::create_new(dir.join(HEADER_FILE))?;
    file.write_all(header)?;
    file.sync_all()?;
    sync_dir(dir)?;
    Ok(lock)
}

#[cfg(unix)]
fn private_dir(dir: &Path) -> io::Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    fs::DirBuilder::new().recursive(true).mode(0o700).create(dir)
}

#[cfg(not(unix))]
fn private_dir(dir: &Path) -> io::Result<()> {
    fs::create_dir_all(dir)
}

#[cfg(unix)]
fn sync_dir(dir: &Path) -> io::Result<()> {
    File::open(dir)?.sync_all()
}

#[cfg(not(unix))]
#[expect(clippy::unnecessary_wraps, reason = "a directory can't be synced here")]
fn sync_dir(_dir: &Path) -> io::Result<()> {
    Ok(())
}
