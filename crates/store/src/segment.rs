//! Segment files: sealed chunks of many series, never changed after they were written.
//!
//! The bytes are described in `docs/format/segment.md`. A file is written beside its name, synced,
//! renamed, and its folder synced, before the manifest names it. Opening reads the directory at its
//! end only; when that is damaged, the blocks in front of it say themselves what they hold.

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::{fs, io};

use model::{Labels, RollupBucket, RollupParts, Sample, SeriesIdentity};

use crate::SeriesId;
use crate::chunk::{self, CHUNK_POINTS_MAX, Summary};
use crate::codec::{Reader, next_mark, put_bytes, put_i64, put_u64};
use crate::column::Effort;
use crate::record;
use crate::rollup::{MINUTE_NS, QUARTER_NS, day_of};
use crate::rollup_chunk;
use crate::times::{self, Owner, SHARED_POINTS_MIN, WrittenTimes};

const MAGIC: [u8; 8] = *b"TGSEG\r\n\x1a";
const VERSION: u32 = 2;
/// Had every chunk's times in the chunk itself.
const VERSION_APART: u32 = 1;
/// Stands for a series in the blocks of times; no series has it.
const TIMES: SeriesId = 0;
const HEADER_BYTES: u64 = 16;
const BLOCK_MARK: [u8; 4] = *b"TGCK";
const BLOCK_HEADER_BYTES: u64 = 12;
/// Longer blocks are damage: a chunk's points as plain numbers, and room.
const BLOCK_BYTES_MAX: u32 = CHUNK_POINTS_MAX as u32 * 25 + 1_024;
const TRAILER_BYTES: u64 = 44;
const TRAILER_MAGIC: [u8; 4] = *b"TGSE";
/// Most points of a sealed chunk. Long chunks pack better and make a smaller index.
pub(crate) const SEALED_POINTS_MAX: usize = 4_096;
/// Points from which a chunk is packed as what stays: when it is merged, it is copied.
const THOROUGH_POINTS_MIN: usize = 1_024;

/// What decides how long points are kept; a segment holds one class only.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Class {
    /// Series of a run: kept until the run is deleted.
    Run,
    /// All others: kept for a time.
    Fleet,
    /// Roll-ups of a minute of the others.
    Minute,
    /// Roll-ups of 15 minutes of the others.
    Quarter,
}

impl Class {
    /// The width of its roll-ups; none where single samples are kept.
    pub(crate) fn width_ns(self) -> Option<i64> {
        match self {
            Self::Run | Self::Fleet => None,
            Self::Minute => Some(MINUTE_NS),
            Self::Quarter => Some(QUARTER_NS),
        }
    }

    /// Every class.
    pub(crate) const ALL: [Self; 4] = [Self::Run, Self::Fleet, Self::Minute, Self::Quarter];

    /// What its files hold, for people.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Run => "run",
            Self::Fleet => "fleet",
            Self::Minute => "rollup_1m",
            Self::Quarter => "rollup_15m",
        }
    }

    /// Days of points that share a file, unless none do so by time.
    pub(crate) fn partition_days(self) -> i64 {
        match self {
            Self::Run => i64::MAX,
            Self::Fleet => 1,
            Self::Minute => 8,
            Self::Quarter => 32,
        }
    }

    /// Which of the stretches of days a time lies in.
    pub(crate) fn stretch_of(self, time_ns: i64) -> i64 {
        match self {
            Self::Run => 0,
            _ => day_of(time_ns).div_euclid(self.partition_days()),
        }
    }

    /// Whether it holds single samples.
    pub(crate) fn is_raw(self) -> bool {
        self.width_ns().is_none()
    }
}

/// What the manifest keeps of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Manifest {
    pub(crate) class: Class,
    pub(crate) points: u64,
    pub(crate) bytes: u64,
    pub(crate) time_ns: (i64, i64),
    /// Tells which of two segments has the later word: the number of the latest one merged into it.
    pub(crate) age: u64,
    /// Whether its samples are in roll-ups.
    pub(crate) rolled: bool,
}

impl Manifest {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = vec![1, class_byte(self.class)];
        put_u64(&mut out, self.points);
        put_u64(&mut out, self.bytes);
        put_i64(&mut out, self.time_ns.0);
        put_i64(&mut out, self.time_ns.1);
        put_u64(&mut out, self.age);
        out.push(u8::from(self.rolled));
        out
    }

    /// The row of segment `id`; rows of before ages or roll-ups were kept have none.
    pub(crate) fn decode(id: u64, bytes: &[u8]) -> Option<Self> {
        let mut reader = Reader::new(bytes);
        if reader.byte()? != 1 {
            return None;
        }
        let class = class_of(reader.byte()?)?;
        let (points, bytes) = (reader.u64()?, reader.u64()?);
        let time_ns = (reader.i64()?, reader.i64()?);
        let age = if reader.is_empty() { id } else { reader.u64()? };
        let rolled = !reader.is_empty() && reader.byte()? != 0;
        Some(Self { class, points, bytes, time_ns, age, rolled })
    }
}

fn class_byte(class: Class) -> u8 {
    match class {
        Class::Run => 1,
        Class::Fleet => 2,
        Class::Minute => 3,
        Class::Quarter => 4,
    }
}

fn class_of(byte: u8) -> Option<Class> {
    match byte {
        1 => Some(Class::Run),
        2 => Some(Class::Fleet),
        3 => Some(Class::Minute),
        4 => Some(Class::Quarter),
        _ => None,
    }
}

/// The number in a segment's file name.
pub(crate) fn id_of(path: &Path) -> Option<u64> {
    let name = path.file_name()?.to_str()?.strip_suffix(".seg")?;
    (name.len() == 16).then(|| u64::from_str_radix(name, 16).ok()).flatten()
}

/// The class that a segment's header names.
pub(crate) fn class_in(path: &Path) -> io::Result<Option<Class>> {
    let mut header = [0; HEADER_BYTES as usize];
    File::open(path)?.read_exact_at(&mut header, 0)?;
    Ok(class_of(header[12]).filter(|_| header[..8] == MAGIC))
}

/// Where the segment `id` lies below the store's directory.
pub(crate) fn path_of(dir: &Path, id: u64) -> PathBuf {
    dir.join("segments").join(format!("{id:016x}.seg"))
}

/// A chunk's place in a segment.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Entry {
    pub(crate) summary: Summary,
    offset: u64,
    len: u32,
}

/// A chunk as it was read, with the times that it shares.
#[derive(Debug)]
pub(crate) struct Encoded {
    block: Vec<u8>,
    /// Where in the block the chunk starts.
    start: usize,
    times: Option<Arc<[i64]>>,
}

impl Encoded {
    fn bytes(&self) -> &[u8] {
        &self.block[self.start..]
    }

    /// The points; `None` when it is written by something newer.
    pub(crate) fn samples(&self) -> Option<Vec<Sample>> {
        chunk::decode(self.bytes(), self.times.as_deref())
    }

    /// Appends times and values, see [`Encoded::samples`].
    pub(crate) fn columns(&self, times_ns: &mut Vec<i64>, values: &mut Vec<f64>) -> Option<()> {
        chunk::decode_columns(self.bytes(), self.times.as_deref(), times_ns, values)
    }
}

/// One series in a segment's directory, as far as it stays in memory.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Listed {
    pub(crate) series: SeriesId,
    pub(crate) points: u32,
    len: u32,
    offset: u64,
    pub(crate) time_ns: (i64, i64),
}

impl Listed {
    fn new(series: SeriesId, summary: &Summary, offset: u64, len: u32) -> Self {
        Self { series, points: summary.count, len, offset, time_ns: summary.time_ns }
    }

    pub(crate) fn overlaps(&self, from_ns: i64, to_ns: i64) -> bool {
        self.time_ns.0 <= to_ns && from_ns <= self.time_ns.1
    }
}

/// A segment as it is opened, with the summaries of its series in the order of its directory.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) segment: Segment,
    pub(crate) summaries: Vec<Summary>,
}

/// What a segment says of itself for the day on which the catalogue is lost.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Names {
    /// Identities as `record::encode_identity` writes them, in order of number.
    pub(crate) series: Vec<(SeriesId, Arc<[u8]>)>,
    /// Rows as `record::encode_run` writes them.
    pub(crate) runs: Vec<Vec<u8>>,
}

impl Names {
    /// Names and values repeat from series to series, so each text is written once.
    fn encode(&self) -> Vec<u8> {
        let mut texts: Vec<String> = Vec::new();
        let mut places: HashMap<String, u64> = HashMap::new();
        let mut place = |text: String| {
            *places.entry(text).or_insert_with_key(|text| {
                texts.push(text.clone());
                texts.len() as u64 - 1
            })
        };
        let mut body = Vec::new();
        let mut before = 0;
        let known = self.series.iter().filter_map(|(id, row)| Some((*id, record::decode_identity(row)?)));
        for (id, identity) in known {
            put_u64(&mut body, id - before);
            before = id;
            put_u64(&mut body, place(identity.display));
            put_u64(&mut body, identity.labels.len() as u64);
            for (name, value) in identity.labels.iter() {
                put_u64(&mut body, place(name.to_owned()));
                put_u64(&mut body, place(value.to_owned()));
            }
        }
        let mut out = Vec::new();
        put_u64(&mut out, texts.len() as u64);
        for text in &texts {
            put_bytes(&mut out, text.as_bytes());
        }
        put_u64(&mut out, self.runs.len() as u64);
        for run in &self.runs {
            put_bytes(&mut out, run);
        }
        out.extend(body);
        out
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let mut reader = Reader::new(bytes);
        let count = reader.count(1)?;
        let texts: Vec<String> = (0..count).map(|_| reader.text()).collect::<Option<_>>()?;
        let count = reader.count(1)?;
        let runs = (0..count).map(|_| reader.bytes().map(<[u8]>::to_vec)).collect::<Option<_>>()?;
        let text = |reader: &mut Reader<'_>| texts.get(usize::try_from(reader.u64()?).ok()?);
        let mut series = Vec::new();
        let mut id = 0_u64;
        while !reader.is_empty() {
            id = id.checked_add(reader.u64()?)?;
            let display = text(&mut reader)?.clone();
            let count = reader.count(2)?;
            let mut labels = Labels::builder();
            for _ in 0..count {
                let name = text(&mut reader)?.as_str();
                labels.set(name, text(&mut reader)?.as_str());
            }
            let identity = SeriesIdentity { labels: labels.build(), display };
            series.push((id, record::encode_identity(&identity).into()));
        }
        Some(Self { series, runs })
    }
}

/// The end of a file: where its parts are.
struct Trailer {
    entries_at: u64,
    names_at: u64,
    directory_at: u64,
    directory_len: u32,
    directory_crc: u32,
    names_crc: u32,
}

impl Trailer {
    fn decode(bytes: &[u8]) -> Option<Self> {
        let mut reader = Reader::new(bytes);
        let [entries_at, names_at, directory_at] =
            [reader.array()?, reader.array()?, reader.array()?].map(u64::from_le_bytes);
        let [directory_len, directory_crc, names_crc, crc] =
            [reader.array()?, reader.array()?, reader.array()?, reader.array()?].map(u32::from_le_bytes);
        let sound = crc == crc32fast::hash(&bytes[..36]) && reader.rest() == TRAILER_MAGIC;
        sound.then_some(Self { entries_at, names_at, directory_at, directory_len, directory_crc, names_crc })
    }
}

/// Writes one segment; dropped before [`SegmentWriter::finish`] it leaves nothing behind.
#[derive(Debug)]
pub(crate) struct SegmentWriter {
    id: u64,
    class: Class,
    dir: PathBuf,
    temporary: PathBuf,
    file: BufWriter<File>,
    finished: bool,
    at: u64,
    entries: Vec<u8>,
    listed: Vec<Listed>,
    summaries: Vec<Summary>,
    current: Vec<Entry>,
    series: SeriesId,
    points: u64,
    times: WrittenTimes,
}

impl SegmentWriter {
    /// Starts segment `id` of the store in `dir`.
    pub(crate) fn create(dir: &Path, id: u64, class: Class) -> io::Result<Self> {
        let temporary = path_of(dir, id).with_extension("tmp");
        let mut file = BufWriter::with_capacity(256 << 10, File::create(&temporary)?);
        file.write_all(&MAGIC)?;
        file.write_all(&VERSION.to_le_bytes())?;
        file.write_all(&[class_byte(class), 0, 0, 0])?;
        Ok(Self {
            id,
            class,
            dir: dir.to_owned(),
            temporary,
            file,
            finished: false,
            at: HEADER_BYTES,
            entries: Vec::new(),
            listed: Vec::new(),
            summaries: Vec::new(),
            current: Vec::new(),
            series: 0,
            points: 0,
            times: WrittenTimes::default(),
        })
    }

    /// Adds points of `series`, in order of time and after its earlier ones. Series come in order of
    /// their numbers.
    pub(crate) fn push(&mut self, series: SeriesId, samples: &[Sample]) -> io::Result<()> {
        let pieces = samples.len().div_ceil(SEALED_POINTS_MAX).max(1);
        for piece in samples.chunks(samples.len().div_ceil(pieces).max(1)) {
            let effort = if piece.len() < THOROUGH_POINTS_MIN { Effort::Usual } else { Effort::Thorough };
            let chunk = if piece.len() < SHARED_POINTS_MIN {
                chunk::encode(piece, effort)
            } else {
                let times_ns: Vec<i64> = piece.iter().map(|s| s.time_ns).collect();
                chunk::encode_shared(piece, self.put_times(&times_ns, effort)?, effort)
            };
            self.push_chunk(series, &Summary::of(piece), &chunk)?;
        }
        Ok(())
    }

    /// Adds a chunk of another file as it is.
    pub(crate) fn copy(&mut self, series: SeriesId, summary: &Summary, chunk: &Encoded) -> io::Result<()> {
        let moved = match &chunk.times {
            None => None,
            Some(times) => chunk::with_times_at(chunk.bytes(), self.put_times(times, Effort::Thorough)?),
        };
        self.push_chunk(series, summary, moved.as_deref().unwrap_or(chunk.bytes()))
    }

    /// The place of these times in the file; they are written when they are not there yet.
    fn put_times(&mut self, times_ns: &[i64], effort: Effort) -> io::Result<u64> {
        if let Some(at) = self.times.find(times_ns) {
            return Ok(at);
        }
        let at = self.at;
        self.put_block(TIMES, &chunk::encode_times(times_ns, effort))?;
        self.times.insert(times_ns, at);
        Ok(at)
    }

    /// Adds an encoded chunk as it is.
    pub(crate) fn push_chunk(&mut self, series: SeriesId, summary: &Summary, chunk: &[u8]) -> io::Result<()> {
        if series != self.series {
            self.end_series();
            debug_assert!(series > self.series, "series {series} after {}", self.series);
            self.series = series;
        }
        let offset = self.at;
        let len = self.put_block(series, chunk)?;
        self.current.push(Entry { summary: *summary, offset, len });
        self.points += u64::from(summary.count);
        Ok(())
    }

    /// Returns how long it is.
    fn put_block(&mut self, series: SeriesId, bytes: &[u8]) -> io::Result<u32> {
        let mut body = Vec::with_capacity(bytes.len() + 10);
        put_u64(&mut body, series);
        body.extend_from_slice(bytes);
        let mut header = [0; BLOCK_HEADER_BYTES as usize];
        header[..4].copy_from_slice(&BLOCK_MARK);
        header[4..8].copy_from_slice(&(body.len() as u32).to_le_bytes());
        header[8..].copy_from_slice(&crc32fast::hash(&body).to_le_bytes());
        self.write(&header)?;
        self.write(&body)?;
        Ok(BLOCK_HEADER_BYTES as u32 + body.len() as u32)
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.at += bytes.len() as u64;
        self.file.write_all(bytes)
    }

    fn end_series(&mut self) {
        let Some(first) = self.current.first() else { return };
        let mut summary = first.summary;
        let start = self.entries.len();
        let mut before = 0;
        for (at, entry) in self.current.iter().enumerate() {
            if at > 0 {
                summary.merge(&entry.summary);
            }
            put_u64(&mut self.entries, entry.offset - before);
            before = entry.offset;
            put_u64(&mut self.entries, u64::from(entry.len));
            entry.summary.put(&mut self.entries);
        }
        let crc = crc32fast::hash(&self.entries[start..]);
        self.entries.extend(crc.to_le_bytes());
        let len = (self.entries.len() - start) as u32;
        self.listed.push(Listed::new(self.series, &summary, start as u64, len));
        self.summaries.push(summary);
        self.current.clear();
    }

    /// Makes the file durable under its name and opens it.
    pub(crate) fn finish(mut self, names: &dyn Fn(&[SeriesId]) -> Names) -> io::Result<Segment> {
        self.end_series();
        let entries = std::mem::take(&mut self.entries);
        let entries_at = self.at;
        self.write(&entries)?;
        let ids: Vec<SeriesId> = self.listed.iter().map(|listed| listed.series).collect();
        let names = names(&ids).encode();
        let names_at = self.at;
        self.write(&names)?;
        let mut directory = Vec::new();
        put_u64(&mut directory, self.listed.len() as u64);
        let mut before = 0;
        for (listed, summary) in self.listed.iter().zip(&self.summaries) {
            put_u64(&mut directory, listed.series - before);
            before = listed.series;
            put_u64(&mut directory, u64::from(listed.len));
            summary.put(&mut directory);
        }
        let directory_at = self.at;
        self.write(&directory)?;
        let mut trailer = Vec::with_capacity(TRAILER_BYTES as usize);
        trailer.extend(entries_at.to_le_bytes());
        trailer.extend(names_at.to_le_bytes());
        trailer.extend(directory_at.to_le_bytes());
        trailer.extend((directory.len() as u32).to_le_bytes());
        trailer.extend(crc32fast::hash(&directory).to_le_bytes());
        trailer.extend(crc32fast::hash(&names).to_le_bytes());
        trailer.extend(crc32fast::hash(&trailer).to_le_bytes());
        trailer.extend(TRAILER_MAGIC);
        self.write(&trailer)?;
        self.file.flush()?;
        self.file.get_ref().sync_all()?;
        let path = path_of(&self.dir, self.id);
        fs::rename(&self.temporary, &path)?;
        File::open(self.dir.join("segments"))?.sync_all()?;
        let mut listed = std::mem::take(&mut self.listed);
        for one in &mut listed {
            one.offset += entries_at;
        }
        let segment = Segment::new(self.id, self.class, path, listed)?;
        self.finished = true;
        Ok(segment)
    }
}

impl Drop for SegmentWriter {
    fn drop(&mut self) {
        if !self.finished {
            // One of the two is there, depending on how far it came; found at the next open otherwise.
            _ = fs::remove_file(&self.temporary);
            _ = fs::remove_file(path_of(&self.dir, self.id));
        }
    }
}

/// An open segment.
#[derive(Debug)]
pub(crate) struct Segment {
    pub(crate) id: u64,
    pub(crate) class: Class,
    pub(crate) path: PathBuf,
    pub(crate) bytes: u64,
    pub(crate) points: u64,
    pub(crate) time_ns: (i64, i64),
    /// See [`Manifest::age`].
    pub(crate) age: u64,
    file: File,
    owner: Owner,
    /// In order of number.
    listed: Vec<Listed>,
    /// Found by reading the blocks when the directory is damaged, in order of series and place.
    found: Option<Vec<(SeriesId, Entry)>>,
    damaged: AtomicBool,
    rolled: AtomicBool,
}

impl Segment {
    fn new(id: u64, class: Class, path: PathBuf, listed: Vec<Listed>) -> io::Result<Self> {
        let file = File::open(&path)?;
        let bytes = file.metadata()?.len();
        let points = listed.iter().map(|l| u64::from(l.points)).sum();
        let time_ns = listed
            .iter()
            .fold((i64::MAX, i64::MIN), |(first, last), l| (first.min(l.time_ns.0), last.max(l.time_ns.1)));
        let (damaged, rolled) = (AtomicBool::new(false), AtomicBool::new(false));
        let (age, owner, found) = (id, Owner::new(), None);
        Ok(Self { id, class, path, bytes, points, time_ns, age, file, owner, listed, found, damaged, rolled })
    }

    /// The same with another [`Manifest::age`].
    pub(crate) fn aged(self, age: u64) -> Self {
        Self { age, ..self }
    }

    /// Opens the segment `id`; what is damaged is said in words to `damage` and left out.
    pub(crate) fn open(
        dir: &Path,
        id: u64,
        class: Class,
        damage: &mut dyn FnMut(String),
    ) -> io::Result<Opened> {
        let path = path_of(dir, id);
        let mut segment = Self::new(id, class, path.clone(), Vec::new())?;
        let (listed, summaries) = match segment.read_directory() {
            Ok(directory) => directory,
            Err(why) => {
                damage(format!("`{}`: {why}; its blocks are read one by one", path.display()));
                segment.recover(damage)?
            }
        };
        let whole = Self::new(id, class, path, listed)?;
        Ok(Opened { segment: Self { found: segment.found, damaged: segment.damaged, ..whole }, summaries })
    }

    fn read_directory(&self) -> Result<(Vec<Listed>, Vec<Summary>), String> {
        let header = self.bytes_at(0, HEADER_BYTES)?;
        if header[..8] != MAGIC {
            return Err("no segment header at byte 0".to_owned());
        }
        if ![VERSION, VERSION_APART]
            .map(u32::to_le_bytes)
            .contains(&[header[8], header[9], header[10], header[11]])
        {
            return Err(format!("segment version {:?} at byte 8 is not known", &header[8..12]));
        }
        let trailer = self.trailer()?;
        let wrong = || format!("the directory at byte {} is damaged", trailer.directory_at);
        let directory = self.bytes_at(trailer.directory_at, u64::from(trailer.directory_len))?;
        if crc32fast::hash(&directory) != trailer.directory_crc {
            return Err(wrong());
        }
        take_directory(&directory, trailer.entries_at).ok_or_else(wrong)
    }

    fn trailer(&self) -> Result<Trailer, String> {
        let end = self.bytes.checked_sub(TRAILER_BYTES).ok_or("it is too short for a trailer")?;
        let bytes = self.bytes_at(end, TRAILER_BYTES)?;
        Trailer::decode(&bytes)
            .filter(|t| t.directory_at.checked_add(u64::from(t.directory_len)) == Some(end))
            .ok_or_else(|| format!("no trailer at byte {end}"))
    }

    /// The identities of its series and the records of their runs, as they were when it was written.
    /// Read only when the catalogue was lost.
    pub(crate) fn names(&self) -> Result<Names, String> {
        let trailer = self.trailer()?;
        let wrong = || format!("the names at byte {} are damaged", trailer.names_at);
        let len = trailer.directory_at.checked_sub(trailer.names_at).ok_or_else(wrong)?;
        let bytes = self.bytes_at(trailer.names_at, len)?;
        if crc32fast::hash(&bytes) != trailer.names_crc {
            return Err(wrong());
        }
        Names::decode(&bytes).ok_or_else(wrong)
    }

    fn bytes_at(&self, offset: u64, len: u64) -> Result<Vec<u8>, String> {
        if offset.checked_add(len).is_none_or(|end| end > self.bytes) {
            return Err(format!("it ends at byte {} where byte {} is wanted", self.bytes, offset + len));
        }
        let mut bytes = vec![0; len as usize];
        match self.file.read_exact_at(&mut bytes, offset) {
            Ok(()) => Ok(bytes),
            Err(error) => Err(format!("reading {len} bytes at byte {offset}: {error}")),
        }
    }

    /// Builds a directory from the blocks themselves.
    fn recover(&mut self, damage: &mut dyn FnMut(String)) -> io::Result<(Vec<Listed>, Vec<Summary>)> {
        self.mark_damaged();
        let mut found = Vec::new();
        self.scan(&mut |series, entry| found.push((series, entry)), damage)?;
        found.sort_by_key(|(series, entry)| (*series, entry.offset));
        let mut all: Vec<(SeriesId, Summary)> = Vec::new();
        for (series, entry) in &found {
            match all.last_mut() {
                Some((last, summary)) if last == series => summary.merge(&entry.summary),
                _ => all.push((*series, entry.summary)),
            }
        }
        self.found = Some(found);
        Ok(all.into_iter().map(|(series, summary)| (Listed::new(series, &summary, 0, 0), summary)).unzip())
    }

    /// Hands every readable block to `each`; from a damaged one it goes to the next mark.
    fn scan(&self, each: &mut dyn FnMut(SeriesId, Entry), damage: &mut dyn FnMut(String)) -> io::Result<()> {
        let mut at = HEADER_BYTES.min(self.bytes);
        let mut sound = true;
        while at + BLOCK_HEADER_BYTES <= self.bytes {
            let found = self.block(at);
            if let Ok((series, body, len)) = &found {
                match self.summary(body) {
                    _ if *series == TIMES => {}
                    Ok(summary) => each(*series, Entry { summary, offset: at, len: *len }),
                    Err(why) => damage(format!("`{}`: the block at byte {at}: {why}", self.path.display())),
                }
                at += u64::from(*len);
                sound = true;
                continue;
            }
            if sound && self.has_mark(at) {
                damage(format!("`{}`: the block at byte {at} is damaged", self.path.display()));
            }
            sound = false;
            match next_mark(&self.file, (at + 1, self.bytes), BLOCK_MARK)? {
                Some(next) => at = next,
                None => break,
            }
        }
        Ok(())
    }

    fn has_mark(&self, at: u64) -> bool {
        self.bytes_at(at, 4).is_ok_and(|mark| mark == BLOCK_MARK)
    }

    /// The series and the body after it of the block at `offset`, and the block's length; an error says
    /// in words what is wrong with it.
    fn block(&self, offset: u64) -> Result<(SeriesId, Vec<u8>, u32), String> {
        let header = self.bytes_at(offset, BLOCK_HEADER_BYTES)?;
        let mut reader = Reader::new(&header);
        let (Some(BLOCK_MARK), Some(len), Some(crc)) = (reader.array(), reader.array(), reader.array())
        else {
            return Err("no block".to_owned());
        };
        let len = u32::from_le_bytes(len);
        if len > BLOCK_BYTES_MAX {
            return Err(format!("a block of {len} bytes"));
        }
        let mut body = self.bytes_at(offset + BLOCK_HEADER_BYTES, u64::from(len))?;
        if crc32fast::hash(&body) != u32::from_le_bytes(crc) {
            return Err("the checksum does not match".to_owned());
        }
        let mut reader = Reader::new(&body);
        let series = reader.u64().ok_or("no series")?;
        let before = body.len() - reader.rest().len();
        body.drain(..before);
        Ok((series, body, BLOCK_HEADER_BYTES as u32 + len))
    }

    /// The summary of a block's chunk.
    fn summary(&self, chunk: &[u8]) -> Result<Summary, String> {
        if let Some((_, buckets)) = rollup_chunk::decode(chunk, RollupParts::ALL) {
            return Ok(rollup_chunk::summary(&buckets));
        }
        let times = chunk::times_at(chunk).map(|at| self.times(at)).transpose()?;
        let samples = chunk::decode(chunk, times.as_deref()).ok_or("it holds no chunk")?;
        Ok(Summary::of(&samples))
    }

    /// The times at `at`.
    fn times(&self, at: u64) -> Result<Arc<[i64]>, String> {
        times::cached(self.owner, at, || {
            let damaged = |why: String| format!("its times at byte {at}: {why}");
            let (series, body, _) = self.block(at).map_err(damaged)?;
            let times = chunk::decode_times(&body).filter(|_| series == TIMES);
            times.ok_or_else(|| damaged("the block holds no times".to_owned()))
        })
    }

    /// Its series, in order of number.
    pub(crate) fn listed(&self) -> &[Listed] {
        &self.listed
    }

    /// The series' line in the directory.
    pub(crate) fn find(&self, series: SeriesId) -> Option<&Listed> {
        self.listed.binary_search_by_key(&series, |l| l.series).ok().map(|at| &self.listed[at])
    }

    /// The chunks of `series`. When the index of that series is damaged the blocks are read one by
    /// one, and the damage is said.
    pub(crate) fn entries(&self, series: SeriesId, damage: &mut dyn FnMut(String)) -> Vec<Entry> {
        let Some(listed) = self.find(series) else { return Vec::new() };
        if let Some(found) = &self.found {
            let start = found.partition_point(|(id, _)| *id < series);
            return found[start..].iter().take_while(|(id, _)| *id == series).map(|(_, e)| *e).collect();
        }
        if let Some(entries) = self.read_entries(listed) {
            return entries;
        }
        self.mark_damaged();
        damage(format!(
            "`{}`: the index of series {series} at byte {} is damaged; its blocks are read one by one",
            self.path.display(),
            listed.offset
        ));
        let mut entries = Vec::new();
        let scanned = self.scan(
            &mut |id, entry| {
                if id == series {
                    entries.push(entry);
                }
            },
            damage,
        );
        if let Err(error) = scanned {
            damage(format!("`{}`: {error}", self.path.display()));
        }
        entries
    }

    fn read_entries(&self, listed: &Listed) -> Option<Vec<Entry>> {
        let bytes = self.bytes_at(listed.offset, u64::from(listed.len)).ok()?;
        let (body, crc) = bytes.split_last_chunk::<4>()?;
        if crc32fast::hash(body) != u32::from_le_bytes(*crc) {
            return None;
        }
        let mut reader = Reader::new(body);
        let mut entries = Vec::new();
        let mut offset = 0_u64;
        while !reader.is_empty() {
            offset = offset.checked_add(reader.u64()?)?;
            let len = reader.u32()?;
            entries.push(Entry { summary: Summary::take(&mut reader)?, offset, len });
        }
        Some(entries)
    }

    /// The encoded chunk at `entry`; an error says in words what and where the damage is.
    pub(crate) fn chunk(&self, series: SeriesId, entry: &Entry) -> Result<Encoded, String> {
        self.read_chunk(series, entry).map_err(|why| {
            self.mark_damaged();
            format!("`{}`: the block at byte {}: {why}", self.path.display(), entry.offset)
        })
    }

    fn read_chunk(&self, series: SeriesId, entry: &Entry) -> Result<Encoded, String> {
        let block = self.bytes_at(entry.offset, u64::from(entry.len))?;
        let mut reader = Reader::new(&block);
        let (Some(BLOCK_MARK), Some(len), Some(crc)) = (reader.array(), reader.array(), reader.array())
        else {
            return Err("no block".to_owned());
        };
        let body = reader.rest();
        if body.len() as u64 != u64::from(u32::from_le_bytes(len))
            || crc32fast::hash(body) != u32::from_le_bytes(crc)
        {
            return Err("the checksum does not match".to_owned());
        }
        if reader.u64() != Some(series) {
            return Err(format!("it is not of series {series}"));
        }
        let times = chunk::times_at(reader.rest()).map(|at| self.times(at)).transpose()?;
        let start = block.len() - reader.rest().len();
        Ok(Encoded { block, start, times })
    }

    /// The points at `entry`; an error says in words what and where the damage is.
    pub(crate) fn samples(&self, series: SeriesId, entry: &Entry) -> Result<Vec<Sample>, String> {
        self.chunk(series, entry)?.samples().ok_or_else(|| {
            self.mark_damaged();
            format!("`{}`: the block at byte {} holds no chunk", self.path.display(), entry.offset)
        })
    }

    /// The roll-ups at `entry`; an error says in words what and where the damage is.
    pub(crate) fn buckets(
        &self,
        series: SeriesId,
        entry: &Entry,
        parts: RollupParts,
    ) -> Result<Vec<RollupBucket>, String> {
        let found = rollup_chunk::decode(self.chunk(series, entry)?.bytes(), parts);
        let fits = |(width_ns, buckets)| (Some(width_ns) == self.class.width_ns()).then_some(buckets);
        found.and_then(fits).ok_or_else(|| {
            self.mark_damaged();
            format!("`{}`: the block at byte {} holds no roll-ups", self.path.display(), entry.offset)
        })
    }

    /// Whether its samples are in roll-ups.
    pub(crate) fn is_rolled(&self) -> bool {
        self.rolled.load(Ordering::Relaxed)
    }

    pub(crate) fn mark_rolled(&self) {
        self.rolled.store(true, Ordering::Relaxed);
    }

    /// Whether damage was met; such a file is kept as it is, never merged away.
    pub(crate) fn is_damaged(&self) -> bool {
        self.damaged.load(Ordering::Relaxed)
    }

    fn mark_damaged(&self) {
        self.damaged.store(true, Ordering::Relaxed);
    }

    /// What the manifest keeps of it.
    pub(crate) fn manifest(&self) -> Manifest {
        let Self { class, points, bytes, time_ns, age, .. } = *self;
        Manifest { class, points, bytes, time_ns, age, rolled: self.is_rolled() }
    }
}

fn take_directory(directory: &[u8], entries_at: u64) -> Option<(Vec<Listed>, Vec<Summary>)> {
    let mut reader = Reader::new(directory);
    let count = reader.count(40)?;
    let (mut listed, mut summaries) = (Vec::with_capacity(count), Vec::with_capacity(count));
    let (mut series, mut offset) = (0_u64, entries_at);
    for _ in 0..count {
        series = series.checked_add(reader.u64()?)?;
        let len = reader.u32()?;
        let summary = Summary::take(&mut reader)?;
        listed.push(Listed::new(series, &summary, offset, len));
        summaries.push(summary);
        offset = offset.checked_add(u64::from(len))?;
    }
    reader.is_empty().then_some((listed, summaries))
}
