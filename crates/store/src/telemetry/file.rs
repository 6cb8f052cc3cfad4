//! Files of spans or log records: sealed blocks, never changed after they were written.
//!
//! The bytes are described in `docs/format/spans.md`. A file is written beside its name, synced,
//! renamed, and its folder synced, before the manifest names it.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use model::RunId;

use super::block::{Block, Kind, Summary};
use super::filter::Filter;
use crate::codec::{Reader, next_mark, put_bytes, put_i64, put_u64};
use crate::record;
use crate::rollup::day_of;

const MAGIC: [u8; 8] = *b"TGTEL\r\n\x1a";
const VERSION: u32 = 1;
const HEADER_BYTES: u64 = 16;
const MARK: [u8; 4] = *b"TGTB";
const FRAME_BYTES: u64 = 12;
const TRAILER_BYTES: u64 = 36;
const TRAILER_MAGIC: [u8; 4] = *b"TGTE";

/// What the manifest keeps of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Manifest {
    pub(crate) kind: Kind,
    pub(crate) rows: u64,
    /// The UTC day of what it holds, which decides when it goes.
    pub(crate) day: i64,
    /// Tells which of two files has the later word; greater is later.
    pub(crate) age: u64,
    /// Runs whose blocks are passed over: they were purged.
    pub(crate) gone: BTreeSet<RunId>,
}

impl Manifest {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = vec![1, self.kind.byte()];
        put_u64(&mut out, self.rows);
        put_i64(&mut out, self.day);
        put_u64(&mut out, self.age);
        put_u64(&mut out, self.gone.len() as u64);
        out.extend(self.gone.iter().flat_map(|run| run.0));
        out
    }

    pub(crate) fn decode(row: &[u8]) -> Option<Self> {
        let mut reader = Reader::new(row);
        if reader.byte()? != 1 {
            return None;
        }
        let kind = Kind::of(reader.byte()?)?;
        let (rows, day, age) = (reader.u64()?, reader.i64()?, reader.u64()?);
        let count = reader.count(8)?;
        let gone = (0..count).map(|_| reader.array().map(RunId)).collect::<Option<_>>()?;
        reader.is_empty().then_some(Self { kind, rows, day, age, gone })
    }
}

/// A block's place in a file.
#[derive(Debug, Clone)]
pub(crate) struct Entry {
    pub(crate) summary: Summary,
    offset: u64,
    len: u32,
}

/// An open file.
#[derive(Debug, Clone)]
pub(crate) struct SealedFile {
    pub(crate) id: u64,
    pub(crate) path: PathBuf,
    pub(crate) bytes: u64,
    pub(crate) manifest: Manifest,
    pub(crate) entries: Arc<[Entry]>,
    /// Keys of its spans that earlier files may have, sorted.
    replaces: Arc<[u64]>,
    /// Rows of the catalogue's table of runs, for the day on which it is lost.
    pub(crate) runs: Arc<[Vec<u8>]>,
    file: Arc<File>,
    /// Place, length and checksum of the filter.
    filter: Option<(u64, u64, u32)>,
    /// Something of it could not be read.
    pub(super) is_damaged: bool,
}

/// The folder of these files in a store's directory.
pub(crate) fn folder_of(dir: &Path) -> PathBuf {
    dir.join("telemetry")
}

/// Where the file `id` lies.
pub(crate) fn path_of(dir: &Path, id: u64) -> PathBuf {
    folder_of(dir).join(format!("{id:016x}.tel"))
}

/// The number in a file's name.
pub(crate) fn id_of(path: &Path) -> Option<u64> {
    let name = path.file_name()?.to_str()?.strip_suffix(".tel")?;
    (name.len() == 16).then(|| u64::from_str_radix(name, 16).ok()).flatten()
}

/// What a file's directory says.
struct Directory {
    day: i64,
    entries: Vec<Entry>,
    replaces: Vec<u64>,
    runs: Vec<Vec<u8>>,
    filter: Option<(u64, u64, u32)>,
}

/// What ends a file beside its blocks.
#[derive(Debug, Default)]
pub(super) struct Ending<'a> {
    pub(super) filter: &'a [u8],
    /// Keys that earlier files may have.
    pub(super) replaces: Vec<u64>,
    /// Rows of its runs.
    pub(super) runs: Vec<Vec<u8>>,
    pub(super) age: u64,
}

impl SealedFile {
    /// Opens the file `id` of the store in `dir`. What of its end is damaged is found again in its
    /// blocks, and said. Without a manifest it is its own.
    pub(crate) fn open(
        dir: &Path,
        id: u64,
        manifest: Option<Manifest>,
        damage: &mut dyn FnMut(String),
    ) -> io::Result<Self> {
        let path = path_of(dir, id);
        let file = Arc::new(File::open(&path)?);
        let bytes = file.metadata()?.len();
        let place = Place { file: &file, bytes };
        let said = |why: String| format!("`{}`: {why}", path.display());
        let kind = place.kind();
        let (directory, is_damaged) = match kind.and_then(|_| place.directory()) {
            Ok(directory) => (directory, false),
            Err(why) => {
                damage(said(format!("{why}; its blocks are read one by one")));
                (place.recover(&mut |why| damage(said(why)))?, true)
            }
        };
        let rows = directory.entries.iter().map(|entry| u64::from(entry.summary.count)).sum();
        if let Some(manifest) = manifest.as_ref().filter(|manifest| rows < manifest.rows) {
            damage(said(format!("{} of {} rows are lost", manifest.rows - rows, manifest.rows)));
        }
        let known = || place.kind().ok().or_else(|| directory.entries.first().map(|e| e.summary.kind));
        let manifest = manifest.unwrap_or_else(|| Manifest {
            kind: known().unwrap_or(Kind::Spans),
            rows,
            day: directory.day,
            age: id,
            gone: BTreeSet::new(),
        });
        Ok(Self {
            id,
            bytes,
            manifest,
            entries: directory.entries.into(),
            replaces: directory.replaces.into(),
            runs: directory.runs.into(),
            filter: directory.filter,
            is_damaged,
            file,
            path,
        })
    }

    fn place(&self) -> Place<'_> {
        Place { file: &self.file, bytes: self.bytes }
    }

    /// The entries of runs that are not gone, with their numbers.
    pub(crate) fn living(&self) -> impl Iterator<Item = (usize, &Entry)> {
        let is_living =
            |entry: &Entry| entry.summary.run.is_none_or(|run| !self.manifest.gone.contains(&run));
        self.entries.iter().enumerate().filter(move |(_, entry)| is_living(entry))
    }

    /// A block's bytes; an error says in words what and where the damage is.
    pub(super) fn block(&self, place: usize) -> Result<Vec<u8>, String> {
        let Entry { offset, len, .. } = &self.entries[place];
        let found = self.place().block(*offset).and_then(|block| {
            if block.len() as u64 == u64::from(*len) {
                Ok(block)
            } else {
                Err("it has another length".to_owned())
            }
        });
        found.map_err(|why| format!("`{}`: the block at byte {offset}: {why}", self.path.display()))
    }

    /// Keys of its spans that earlier files may have.
    pub(super) fn replaced(&self) -> &[u64] {
        &self.replaces
    }

    /// Whether it has a later word on a span that an earlier file has.
    pub(super) fn replaces(&self, key: u64) -> bool {
        self.replaces.binary_search(&key).is_ok()
    }

    /// What it may hold; an error says in words what and where the damage is.
    pub(super) fn filter(&self) -> Result<Option<Filter>, String> {
        let Some((at, len, crc)) = self.filter else { return Ok(None) };
        let read = self.place().bytes_at(at, len).and_then(|bytes| {
            let sound = crc32fast::hash(&bytes) == crc;
            sound
                .then(|| Filter::from_bytes(bytes))
                .flatten()
                .ok_or_else(|| "the checksum does not match".to_owned())
        });
        read.map(Some).map_err(|why| format!("`{}`: the filter at byte {at}: {why}", self.path.display()))
    }

    /// The same file without what is of runs that are gone, under the number `id`.
    pub(super) fn copy_living(&self, dir: &Path, id: u64) -> Result<SealedFile, String> {
        let said = |error: io::Error| format!("`{}`: {error}", path_of(dir, id).display());
        let mut writer = FileWriter::create(dir, id, self.manifest.kind, self.manifest.day).map_err(said)?;
        for (place, entry) in self.living() {
            writer.push_bytes(&entry.summary, &self.block(place)?).map_err(said)?;
        }
        let filter = self.filter()?;
        let filter = filter.as_ref().map_or(&[][..], Filter::bytes);
        let is_gone = |row: &Vec<u8>| {
            record::decode_run(row).is_some_and(|run| self.manifest.gone.contains(&run.path.id()))
        };
        let runs = self.runs.iter().filter(|row| !is_gone(row)).cloned().collect();
        let ending = Ending { filter, replaces: self.replaces.to_vec(), runs, age: self.manifest.age };
        writer.finish(ending).map_err(said)
    }
}

/// A file's bytes.
struct Place<'f> {
    file: &'f File,
    bytes: u64,
}

impl Place<'_> {
    fn bytes_at(&self, offset: u64, len: u64) -> Result<Vec<u8>, String> {
        if offset.checked_add(len).is_none_or(|end| end > self.bytes) {
            return Err(format!("it ends at byte {}", self.bytes));
        }
        let mut bytes = vec![0; len as usize];
        match self.file.read_exact_at(&mut bytes, offset) {
            Ok(()) => Ok(bytes),
            Err(error) => Err(format!("reading {len} bytes at byte {offset}: {error}")),
        }
    }

    fn kind(&self) -> Result<Kind, String> {
        let header = self.bytes_at(0, HEADER_BYTES)?;
        let version = header[8..12].first_chunk().map_or(0, |version| u32::from_le_bytes(*version));
        if header[..8] != MAGIC {
            return Err("it does not start as such a file".to_owned());
        }
        if version != VERSION {
            return Err(format!("it has version {version}, this program knows {VERSION}"));
        }
        Kind::of(header[12]).ok_or_else(|| format!("it holds kind {}, which is not known", header[12]))
    }

    fn directory(&self) -> Result<Directory, String> {
        let end = self.bytes.checked_sub(TRAILER_BYTES).ok_or("it is too short for a trailer")?;
        let trailer = self.bytes_at(end, TRAILER_BYTES)?;
        let wrong = || format!("no trailer at byte {end}");
        let (fields, rest) = trailer.split_at(28);
        let mut rest = Reader::new(rest);
        let crc = rest.array().map(u32::from_le_bytes);
        if crc != Some(crc32fast::hash(fields)) || rest.rest() != TRAILER_MAGIC {
            return Err(wrong());
        }
        let mut fields = Reader::new(fields);
        let mut place = || fields.array().map(u64::from_le_bytes);
        let (filter_at, directory_at) = (place().ok_or_else(wrong)?, place().ok_or_else(wrong)?);
        let mut crc = || fields.array().map(u32::from_le_bytes);
        let (filter_crc, directory_crc) = (crc().ok_or_else(wrong)?, crc().ok_or_else(wrong)?);
        let len = end.checked_sub(directory_at).ok_or_else(wrong)?;
        let filter_len = directory_at.checked_sub(filter_at).ok_or_else(wrong)?;
        let bytes = self.bytes_at(directory_at, len)?;
        if crc32fast::hash(&bytes) != directory_crc {
            return Err(format!("the directory at byte {directory_at} is damaged"));
        }
        let mut directory = take_directory(&bytes)
            .ok_or_else(|| format!("the directory at byte {directory_at} can't be read"))?;
        directory.filter = (filter_len > 0).then_some((filter_at, filter_len, filter_crc));
        Ok(directory)
    }

    /// The bytes of the block at `offset`.
    fn block(&self, offset: u64) -> Result<Vec<u8>, String> {
        let frame = self.bytes_at(offset, FRAME_BYTES)?;
        let mut reader = Reader::new(&frame);
        let (Some(MARK), Some(len), Some(crc)) = (reader.array(), reader.array(), reader.array()) else {
            return Err("no block".to_owned());
        };
        let block = self.bytes_at(offset + FRAME_BYTES, u64::from(u32::from_le_bytes(len)))?;
        if crc32fast::hash(&block) != u32::from_le_bytes(crc) {
            return Err("the checksum does not match".to_owned());
        }
        Ok(block)
    }

    /// Finds the blocks without the directory.
    fn recover(&self, damage: &mut dyn FnMut(String)) -> io::Result<Directory> {
        let (mut entries, mut at, mut sound) = (Vec::new(), HEADER_BYTES, true);
        while at + FRAME_BYTES <= self.bytes {
            let block = self.block(at);
            let found = block.as_deref().map(|block| (Summary::decode(&mut Reader::new(block)), block.len()));
            if let Ok((Some(summary), len)) = found {
                entries.push(Entry { summary, offset: at, len: len as u32 });
                at += FRAME_BYTES + len as u64;
                sound = true;
                continue;
            }
            if sound && self.bytes_at(at, 4).is_ok_and(|mark| mark == MARK) {
                damage(format!("the block at byte {at} is damaged"));
            }
            sound = false;
            match next_mark(self.file, (at + 1, self.bytes), MARK)? {
                Some(next) => at = next,
                None => break,
            }
        }
        let day = entries.iter().map(|entry| day_of(entry.summary.time_ns.1)).max().unwrap_or_default();
        Ok(Directory { day, entries, replaces: Vec::new(), runs: Vec::new(), filter: None })
    }
}

fn take_directory(bytes: &[u8]) -> Option<Directory> {
    let mut reader = Reader::new(bytes);
    let day = reader.i64()?;
    let count = reader.count(3)?;
    let (mut entries, mut offset) = (Vec::with_capacity(count), 0_u64);
    for _ in 0..count {
        offset = offset.checked_add(reader.u64()?)?;
        let len = reader.u32()?;
        entries.push(Entry { summary: Summary::decode(&mut reader)?, offset, len });
    }
    let count = reader.count(8)?;
    let replaces: Vec<u64> =
        (0..count).map(|_| reader.array().map(u64::from_le_bytes)).collect::<Option<_>>()?;
    let count = reader.count(1)?;
    let runs = (0..count).map(|_| reader.bytes().map(<[u8]>::to_vec)).collect::<Option<_>>()?;
    let sound = reader.is_empty() && replaces.is_sorted();
    sound.then_some(Directory { day, entries, replaces, runs, filter: None })
}

/// Writes one file; dropped before [`FileWriter::finish`] it leaves nothing behind.
#[derive(Debug)]
pub(super) struct FileWriter {
    id: u64,
    kind: Kind,
    day: i64,
    dir: PathBuf,
    temporary: PathBuf,
    file: BufWriter<File>,
    finished: bool,
    at: u64,
    entries: Vec<Entry>,
    /// Of every span in it.
    pub(super) keys: Vec<u64>,
}

impl FileWriter {
    pub(super) fn create(dir: &Path, id: u64, kind: Kind, day: i64) -> io::Result<Self> {
        let temporary = path_of(dir, id).with_extension("tmp");
        let mut file = BufWriter::with_capacity(256 << 10, File::create(&temporary)?);
        file.write_all(&MAGIC)?;
        file.write_all(&VERSION.to_le_bytes())?;
        file.write_all(&[kind.byte(), 0, 0, 0])?;
        Ok(Self {
            id,
            kind,
            day,
            dir: dir.to_owned(),
            temporary,
            file,
            finished: false,
            at: HEADER_BYTES,
            entries: Vec::new(),
            keys: Vec::new(),
        })
    }

    pub(super) fn push(&mut self, block: Block) -> io::Result<()> {
        self.keys.extend(&block.keys);
        self.push_bytes(&block.summary, &block.bytes)
    }

    fn push_bytes(&mut self, summary: &Summary, block: &[u8]) -> io::Result<()> {
        let len = u32::try_from(block.len()).map_err(io::Error::other)?;
        self.file.write_all(&MARK)?;
        self.file.write_all(&len.to_le_bytes())?;
        self.file.write_all(&crc32fast::hash(block).to_le_bytes())?;
        self.file.write_all(block)?;
        self.entries.push(Entry { summary: summary.clone(), offset: self.at, len });
        self.at += FRAME_BYTES + u64::from(len);
        Ok(())
    }

    /// Its number, which is its age too.
    pub(super) fn id(&self) -> u64 {
        self.id
    }

    /// Which runs it has.
    pub(super) fn runs(&self) -> BTreeSet<Option<RunId>> {
        self.entries.iter().map(|entry| entry.summary.run).collect()
    }

    /// Ends the file and gives it its name.
    pub(super) fn finish(mut self, ending: Ending<'_>) -> io::Result<SealedFile> {
        let Ending { filter, mut replaces, runs, age } = ending;
        replaces.sort_unstable();
        replaces.dedup();
        let mut directory = Vec::new();
        put_i64(&mut directory, self.day);
        put_u64(&mut directory, self.entries.len() as u64);
        let mut before = 0;
        for entry in &self.entries {
            put_u64(&mut directory, entry.offset - before);
            put_u64(&mut directory, u64::from(entry.len));
            entry.summary.encode(&mut directory);
            before = entry.offset;
        }
        put_u64(&mut directory, replaces.len() as u64);
        directory.extend(replaces.iter().flat_map(|key| key.to_le_bytes()));
        put_u64(&mut directory, runs.len() as u64);
        for row in &runs {
            put_bytes(&mut directory, row);
        }
        let (filter_at, directory_at) = (self.at, self.at + filter.len() as u64);
        let mut trailer = Vec::new();
        trailer.extend(filter_at.to_le_bytes());
        trailer.extend(directory_at.to_le_bytes());
        trailer.extend(crc32fast::hash(filter).to_le_bytes());
        trailer.extend(crc32fast::hash(&directory).to_le_bytes());
        trailer.extend((directory.len() as u32).to_le_bytes());
        trailer.extend(crc32fast::hash(&trailer).to_le_bytes());
        trailer.extend(TRAILER_MAGIC);
        for part in [filter, &directory, &trailer] {
            self.file.write_all(part)?;
        }
        self.file.flush()?;
        self.file.get_ref().sync_all()?;
        let path = path_of(&self.dir, self.id);
        fs::rename(&self.temporary, &path)?;
        self.finished = true;
        File::open(folder_of(&self.dir))?.sync_all()?;
        let rows = self.entries.iter().map(|entry| u64::from(entry.summary.count)).sum();
        let filter_len = filter.len() as u64;
        Ok(SealedFile {
            id: self.id,
            bytes: directory_at + directory.len() as u64 + TRAILER_BYTES,
            manifest: Manifest { kind: self.kind, rows, day: self.day, age, gone: BTreeSet::new() },
            entries: std::mem::take(&mut self.entries).into(),
            replaces: replaces.into(),
            runs: runs.into(),
            filter: (filter_len > 0).then(|| (filter_at, filter_len, crc32fast::hash(filter))),
            is_damaged: false,
            file: Arc::new(File::open(&path)?),
            path,
        })
    }
}

impl Drop for FileWriter {
    fn drop(&mut self) {
        if !self.finished {
            _ = fs::remove_file(&self.temporary);
        }
    }
}
