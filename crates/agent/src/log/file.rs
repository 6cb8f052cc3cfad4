//! A file that others write lines to, through its rotations.
//!
//! A file is known by its number and by what it starts with. When the name stands for another one, the old
//! one is read on until it is quiet; when it was truncated, the rest is looked for among the files beside it
//! whose names begin alike, as the programs that rotate leave them.

use std::{
    fs::{self, File, OpenOptions},
    io,
    os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

use collect::kernel_log::{LINE_BYTES_MAX, Record};
use rustix::fs::OFlags;

use super::{Lines, Taking, digest, place::FilePlace};

/// Most bytes of a look.
const LOOK_BYTES_MAX: usize = 8 << 20;
/// Of a file that was never read before, no more than its last part is.
const FIRST_BYTES_MAX: u64 = 4 << 20;
/// What a file is known by beside its number.
const HEAD_BYTES: usize = 256;
/// Looks without anything new after which a file that was rotated is let go: its writer may still have it.
const QUIET_LOOKS: u32 = 3;
/// Most files beside it that are looked at.
const BESIDE_MAX: usize = 1000;

/// The files of one name.
#[derive(Debug)]
pub(super) struct Follower {
    path: PathBuf,
    /// Oldest first; the last one is the current one.
    open: Vec<Open>,
    is_resumed: bool,
    /// It was read before this start of the agent.
    is_known: bool,
}

impl Follower {
    pub(super) fn new(path: &Path) -> Self {
        Self { path: path.to_owned(), open: Vec::new(), is_resumed: false, is_known: false }
    }

    /// Gives the lines that are new.
    pub(super) fn read(&mut self, taking: &mut Taking<'_>, lines: &mut Lines<'_>) -> Result<(), String> {
        if !std::mem::replace(&mut self.is_resumed, true) {
            self.resume(&taking.behind.files);
        }
        let outcome = self.find_current(&mut taking.behind.generation);
        let name = digest(self.path.as_os_str().as_encoded_bytes());
        let last = self.open.len().saturating_sub(1);
        let mut left = LOOK_BYTES_MAX;
        let mut at = 0;
        self.open.retain_mut(|open| {
            let generation = open.place.generation;
            let mut take = |offset: u64, line: &[u8], is_cut: bool| {
                let mut record = Record::of_line(line);
                record.is_cut |= is_cut;
                let key = format!("file:{name:016x}:{generation}:{offset}:{:016x}", digest(line));
                lines(record, Some(key), None);
            };
            let read = open.read_on(left, &mut take);
            left -= read;
            open.quiet = if read == 0 && left > 0 { open.quiet + 1 } else { 0 };
            let is_over = at < last && open.quiet >= QUIET_LOOKS;
            if is_over && !open.line.is_empty() {
                // Nobody will end it any more.
                open.line_ends(&mut take);
            }
            at += 1;
            !is_over
        });
        taking.behind.files = self.open.iter().map(|open| open.place.clone()).collect();
        outcome.map_err(|error| format!("cannot read `{}`: {error}", self.path.display()))
    }

    /// Goes on where the places say, as far as their files can be found.
    fn resume(&mut self, places: &[FilePlace]) {
        for place in places.iter().filter(|place| place.path == self.path) {
            self.is_known = true;
            let own = open(&self.path).ok().filter(|file| is_of(file, place));
            if let Some(file) = own.or_else(|| self.beside(place)) {
                self.open.push(Open::at(file, place.clone()));
            }
        }
    }

    /// Sees whether the name stands for the same file as before, and takes up what it stands for.
    fn find_current(&mut self, generation: &mut u64) -> io::Result<()> {
        let file = open(&self.path)?;
        let found = file.metadata()?;
        let is_first = self.open.is_empty() && !self.is_known;
        if let Some(current) = self.open.last()
            && current.place.inode == found.ino()
            && current.is_there()
        {
            return Ok(());
        }
        let was_truncated = self.open.last().is_some_and(|current| current.place.inode == found.ino());
        if was_truncated && let Some(current) = self.open.pop() {
            // What was written after the last look may stand in a copy.
            let rest = self.beside(&current.place);
            self.open.extend(rest.map(|file| Open::at(file, current.place)));
        }
        *generation += 1;
        let offset = if is_first { found.len().saturating_sub(FIRST_BYTES_MAX) } else { 0 };
        let (path, inode) = (self.path.clone(), found.ino());
        let place = FilePlace { path, inode, generation: *generation, offset, head: String::new() };
        self.open.push(Open::at(file, place));
        Ok(())
    }

    /// The file beside the current one that a place is of, whatever it is called now.
    fn beside(&self, place: &FilePlace) -> Option<File> {
        let name = self.path.file_name()?.as_encoded_bytes();
        let entries = fs::read_dir(self.path.parent()?).ok()?.flatten();
        let beside = entries.filter(|entry| {
            let other = entry.file_name();
            other.as_encoded_bytes() != name && other.as_encoded_bytes().starts_with(name)
        });
        let files: Vec<File> = beside.take(BESIDE_MAX).filter_map(|entry| open(&entry.path()).ok()).collect();
        let is_same = |file: &File| file.metadata().is_ok_and(|found| found.ino() == place.inode);
        let moved = files.iter().position(|file| is_same(file) && is_of(file, place));
        let copied = || files.iter().position(|file| !place.head.is_empty() && starts_alike(file, place));
        let at = moved.or_else(copied)?;
        files.into_iter().nth(at)
    }
}

/// A file that is read.
#[derive(Debug)]
struct Open {
    file: File,
    /// The start of the line that has no end yet.
    place: FilePlace,
    /// Up to where it was read.
    read: u64,
    line: Vec<u8>,
    is_cut: bool,
    /// It was begun amid a line.
    skips_line: bool,
    quiet: u32,
}

impl Open {
    fn at(file: File, mut place: FilePlace) -> Self {
        // A copy has a number of its own.
        place.inode = file.metadata().map_or(0, |found| found.ino());
        let read = place.offset;
        let skips_line = place.head.is_empty() && read > 0;
        Self { file, place, read, line: Vec::new(), is_cut: false, skips_line, quiet: 0 }
    }

    /// Whether it still holds what was read of it.
    fn is_there(&self) -> bool {
        self.file.metadata().is_ok_and(|found| found.len() >= self.read)
            && starts_alike(&self.file, &self.place)
    }

    /// Reads what is new, at most so many bytes; how many there were.
    fn read_on(&mut self, most: usize, take: &mut dyn FnMut(u64, &[u8], bool)) -> usize {
        let mut buffer = vec![0; most.min(64 * 1024)];
        let mut total = 0;
        while total < most {
            let room = buffer.len().min(most - total);
            // A read that fails is tried again at the next look.
            let Ok(length @ 1..) = self.file.read_at(&mut buffer[..room], self.read) else { break };
            self.take(&buffer[..length], take);
            total += length;
        }
        if total > 0 {
            // One that was truncated just now is noticed at the next look.
            if let Some(head) = head(&self.file, self.place.offset) {
                self.place.head = head;
            }
        }
        total
    }

    fn take(&mut self, mut bytes: &[u8], take: &mut dyn FnMut(u64, &[u8], bool)) {
        while let Some(end) = bytes.iter().position(|byte| *byte == b'\n') {
            self.keep(&bytes[..end]);
            self.read += 1;
            self.line_ends(take);
            bytes = &bytes[end + 1..];
        }
        self.keep(bytes);
    }

    fn keep(&mut self, bytes: &[u8]) {
        let room = LINE_BYTES_MAX.saturating_sub(self.line.len());
        self.is_cut |= bytes.len() > room;
        self.line.extend_from_slice(&bytes[..bytes.len().min(room)]);
        self.read += bytes.len() as u64;
    }

    fn line_ends(&mut self, take: &mut dyn FnMut(u64, &[u8], bool)) {
        if !std::mem::take(&mut self.skips_line) && !self.line.is_empty() {
            take(self.place.offset, &self.line, self.is_cut);
        }
        self.line.clear();
        self.is_cut = false;
        self.place.offset = self.read;
    }
}

fn open(path: &Path) -> io::Result<File> {
    // What is no file would keep its reader waiting.
    let file = OpenOptions::new().read(true).custom_flags(OFlags::NONBLOCK.bits() as i32).open(path)?;
    if file.metadata()?.is_file() {
        return Ok(file);
    }
    Err(io::Error::new(io::ErrorKind::InvalidInput, "it is no file"))
}

fn is_of(file: &File, place: &FilePlace) -> bool {
    let found = file.metadata().is_ok_and(|found| found.ino() == place.inode && found.len() >= place.offset);
    found && starts_alike(file, place)
}

/// Whether a file holds at least as much as was taken of another, and starts like it.
fn starts_alike(file: &File, place: &FilePlace) -> bool {
    head(file, place.offset).is_some_and(|head| head == place.head)
}

/// What is kept of the start of a file of which so many bytes were taken.
fn head(file: &File, taken: u64) -> Option<String> {
    let mut bytes = [0; HEAD_BYTES];
    let length = usize::try_from(taken).unwrap_or(HEAD_BYTES).min(HEAD_BYTES);
    file.read_exact_at(&mut bytes[..length], 0).ok()?;
    let is_long_enough = file.metadata().ok()?.len() >= taken;
    is_long_enough
        .then(|| if length == 0 { String::new() } else { format!("{:016x}", digest(&bytes[..length])) })
}
