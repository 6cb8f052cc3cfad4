//! The catalogue: series dictionary, runs, writers, segment manifest and the log, in one database.
//!
//! Everything above talks in [`Change`]s, each of them one durable transaction, and [`Contents`],
//! read once at open. The tables are described in `docs/format/log.md`.

use std::ops::{ControlFlow, RangeInclusive};
use std::path::Path;
use std::sync::Arc;

use model::{RunId, WriterId};
use redb::{Database, ReadTransaction, ReadableDatabase, ReadableTable, TableDefinition};

use crate::events::EventKey;
use crate::{SeriesId, StateRow};

type Key<const N: usize> = [u8; N];
type Table<const N: usize> = TableDefinition<'static, Key<N>, &'static [u8]>;
const META: TableDefinition<'static, &str, u64> = TableDefinition::new("meta");
const SERIES: Table<8> = Table::new("series");
const RUNS: Table<8> = Table::new("runs");
const SESSIONS: Table<12> = Table::new("sessions");
const WRITERS: Table<16> = Table::new("writers");
const SEGMENTS: Table<8> = Table::new("segments");
const LOG: Table<8> = Table::new("log");
const TOKENS: Table<6> = Table::new("tokens");
const METADATA: TableDefinition<'static, &str, &[u8]> = TableDefinition::new("metadata");
const TELEMETRY: Table<8> = Table::new("telemetry");
const TELEMETRY_FILES: Table<8> = Table::new("telemetry_files");
const EXEMPLARS: Table<8> = Table::new("exemplars");
const EVENTS: Table<24> = Table::new("events");
const STATE: TableDefinition<'static, &[u8], &[u8]> = TableDefinition::new("state");

/// Version of tables and rows together.
const FORMAT: u64 = 1;
const CACHE_BYTES: usize = 32 << 20;

/// Numbers that only grow, kept with every transaction.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Counters {
    /// Transactions so far; tells whether one whose commit failed is there after all.
    pub(crate) commit: u64,
    /// The next series' number; numbers are never given twice.
    pub(crate) series: u64,
    /// The next segment's number.
    pub(crate) segment: u64,
    /// The next log row's number.
    pub(crate) row: u64,
    /// The next number of a row of spans or log records.
    pub(crate) telemetry: u64,
}

impl Counters {
    /// Those of a catalogue that holds nothing.
    pub(crate) const FIRST: Self = Self { commit: 0, series: 1, segment: 1, row: 1, telemetry: 1 };
}

/// One transaction. A row without bytes is removed.
#[derive(Debug, Default)]
pub(crate) struct Change {
    pub(crate) series: Vec<(SeriesId, Option<Arc<[u8]>>)>,
    pub(crate) runs: Vec<(RunId, Option<Vec<u8>>)>,
    pub(crate) sessions: Vec<([u8; 12], Option<Vec<u8>>)>,
    pub(crate) writers: Vec<(WriterId, Option<Vec<u8>>)>,
    pub(crate) segments: Vec<(u64, Option<Vec<u8>>)>,
    /// By the metric's name.
    pub(crate) metadata: Vec<(String, Option<Vec<u8>>)>,
    pub(crate) tokens: Vec<([u8; 6], Option<Vec<u8>>)>,
    /// Log rows, numbered from [`Counters::row`] on.
    pub(crate) rows: Vec<Vec<u8>>,
    /// Every log row before this number goes.
    pub(crate) rows_before: Option<u64>,
    /// From when on points of series of no run are complete.
    pub(crate) raw_from_ns: Option<i64>,
    /// Spans and log records, by the number of their row.
    pub(crate) telemetry: Vec<(u64, Option<Arc<[u8]>>)>,
    /// Every row of them before this number goes.
    pub(crate) telemetry_before: Option<u64>,
    /// Manifests of their files, by number.
    pub(crate) telemetry_files: Vec<(u64, Option<Vec<u8>>)>,
    /// The caller's own rows, in order.
    pub(crate) state: Vec<(Vec<u8>, Option<Vec<u8>>)>,
    /// By number, in order of arrival.
    pub(crate) exemplars: Vec<(u64, Option<Vec<u8>>)>,
    pub(crate) events: Vec<(EventKey, Option<Vec<u8>>)>,
}

impl Change {
    /// Whether there is nothing to write.
    pub(crate) fn is_empty(&self) -> bool {
        self.series.is_empty()
            && self.runs.is_empty()
            && self.sessions.is_empty()
            && self.writers.is_empty()
            && self.segments.is_empty()
            && self.metadata.is_empty()
            && self.tokens.is_empty()
            && self.rows.is_empty()
            && self.rows_before.is_none()
            && self.raw_from_ns.is_none()
            && self.telemetry.is_empty()
            && self.telemetry_before.is_none()
            && self.telemetry_files.is_empty()
            && self.state.is_empty()
            && self.exemplars.is_empty()
            && self.events.is_empty()
    }
}

/// The counter that holds [`Change::raw_from_ns`]; catalogues from which nothing went lack it.
const RAW_FROM: &str = "raw_from";

/// Everything but the log.
#[derive(Debug, Default)]
pub(crate) struct Contents {
    pub(crate) counters: Counters,
    pub(crate) series: Vec<(SeriesId, Arc<[u8]>)>,
    pub(crate) runs: Vec<(RunId, Vec<u8>)>,
    pub(crate) sessions: Vec<([u8; 12], Vec<u8>)>,
    pub(crate) writers: Vec<(WriterId, Vec<u8>)>,
    pub(crate) segments: Vec<(u64, Vec<u8>)>,
    pub(crate) metadata: Vec<(String, Vec<u8>)>,
    pub(crate) tokens: Vec<([u8; 6], Vec<u8>)>,
    /// See [`Change::raw_from_ns`].
    pub(crate) raw_from_ns: Option<i64>,
    pub(crate) exemplars: Vec<(u64, Vec<u8>)>,
    pub(crate) telemetry_files: Vec<(u64, Vec<u8>)>,
    /// Read of a damaged catalogue only, as are events and rows of state.
    pub(crate) telemetry: Vec<(u64, Vec<u8>)>,
    pub(crate) events: Vec<(EventKey, Vec<u8>)>,
    pub(crate) state: Vec<StateRow>,
    /// Rows that are not as they were written, in words.
    pub(crate) damage: Vec<String>,
}

/// Why the catalogue did not do something.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{reason}")]
pub(crate) struct CatalogueError {
    /// In words.
    pub(crate) reason: String,
    /// The disk is full.
    pub(crate) full: bool,
    /// The file is not what was written.
    pub(crate) damaged: bool,
}

impl CatalogueError {
    fn damaged(reason: String) -> Self {
        Self { reason, full: false, damaged: true }
    }
}

impl<E: Into<redb::Error>> From<E> for CatalogueError {
    fn from(error: E) -> Self {
        use std::io::ErrorKind::{InvalidData, StorageFull, UnexpectedEof};

        let error = error.into();
        let (full, damaged) = match &error {
            redb::Error::Io(io) => {
                (io.kind() == StorageFull, matches!(io.kind(), InvalidData | UnexpectedEof))
            }
            redb::Error::Corrupted(_)
            | redb::Error::TableTypeMismatch { .. }
            | redb::Error::TableDoesNotExist(_)
            | redb::Error::TypeDefinitionChanged { .. } => (false, true),
            _ => (false, false),
        };
        Self { reason: error.to_string(), full, damaged }
    }
}

/// Takes a log row's number and bytes.
pub(crate) type EachRow<'a> = dyn FnMut(u64, std::result::Result<&[u8], String>) + 'a;

type Result<T> = std::result::Result<T, CatalogueError>;

/// See [`Catalogue::snapshot`].
pub(crate) struct Snapshot(ReadTransaction);

/// The open database.
pub(crate) struct Catalogue(Open);

/// An open database. It writes when it is closed, which is guarded like all else that it does.
struct Open(Option<Database>);

impl Open {
    fn database(&self) -> Result<&Database> {
        let closed = || CatalogueError { reason: "it is closed".into(), full: false, damaged: false };
        self.0.as_ref().ok_or_else(closed)
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        let database = self.0.take();
        let closed = guarded(|| {
            drop(database);
            Ok(())
        });
        if let Err(error) = closed {
            tracing::warn!(%error, "the catalogue's database could not be closed in order");
        }
    }
}

impl Catalogue {
    /// Opens or makes the database at `path`. `check` reads every page and compares its checksum.
    pub(crate) fn open(path: &Path, check: bool) -> Result<Self> {
        let mut builder = Database::builder();
        builder.set_cache_size(CACHE_BYTES).set_check_integrity_on_open(check);
        let database = guarded(|| Ok(builder.create(path)?))?;
        let catalogue = Self(Open(Some(database)));
        if catalogue.counter("format")?.is_none() {
            catalogue.commit(&Change::default(), Counters::FIRST)?;
        }
        match catalogue.counter("format")? {
            Some(FORMAT) => Ok(catalogue),
            found => Err(CatalogueError {
                reason: format!(
                    "its catalogue has format {}, this version knows format {FORMAT}: use the version that wrote it",
                    found.unwrap_or_default()
                ),
                full: false,
                damaged: false,
            }),
        }
    }

    fn counter(&self, name: &str) -> Result<Option<u64>> {
        guarded(|| {
            let reading = self.0.database()?.begin_read()?;
            match reading.open_table(META) {
                Ok(meta) => Ok(meta.get(name)?.map(|v| v.value())),
                Err(redb::TableError::TableDoesNotExist(_)) => Ok(None),
                Err(error) => Err(error.into()),
            }
        })
    }

    /// The counters of the last transaction.
    pub(crate) fn counters(&self) -> Result<Counters> {
        let get = |name: &str| {
            let lacking = || CatalogueError::damaged(format!("its catalogue lacks the counter `{name}`"));
            self.counter(name)?.ok_or_else(lacking)
        };
        Ok(Counters {
            commit: get("commit")?,
            series: get("series")?,
            segment: get("segment")?,
            row: get("row")?,
            // Catalogues of before spans were kept lack it.
            telemetry: self.counter("telemetry")?.unwrap_or(Counters::FIRST.telemetry),
        })
    }

    /// Does `change` as one durable transaction, after which the counters are `counters`.
    pub(crate) fn commit(&self, change: &Change, counters: Counters) -> Result<()> {
        guarded(|| {
            let writing = self.0.database()?.begin_write()?;
            {
                let mut meta = writing.open_table(META)?;
                let Counters { commit, series, segment, row, telemetry } = counters;
                let all = [("commit", commit), ("series", series), ("segment", segment), ("row", row)];
                for (name, value) in all.into_iter().chain([("telemetry", telemetry)]) {
                    meta.insert(name, value)?;
                }
                if let Some(raw_from_ns) = change.raw_from_ns {
                    meta.insert(RAW_FROM, raw_from_ns as u64)?;
                }
                meta.insert("format", FORMAT)?;
                let number = |id: &u64| id.to_be_bytes();
                let series = change.series.iter().map(|(id, row)| (number(id), row.as_deref()));
                put(&mut writing.open_table(SERIES)?, series)?;
                let runs = change.runs.iter().map(|(id, row)| (id.0, row.as_deref()));
                put(&mut writing.open_table(RUNS)?, runs)?;
                let sessions = change.sessions.iter().map(|(key, row)| (*key, row.as_deref()));
                put(&mut writing.open_table(SESSIONS)?, sessions)?;
                let writers = change.writers.iter().map(|(id, row)| (*id, row.as_deref()));
                put(&mut writing.open_table(WRITERS)?, writers)?;
                let segments = change.segments.iter().map(|(id, row)| (number(id), row.as_deref()));
                put(&mut writing.open_table(SEGMENTS)?, segments)?;
                let mut metadata = writing.open_table(METADATA)?;
                for (metric, row) in &change.metadata {
                    match row {
                        Some(row) => _ = metadata.insert(&**metric, &sealed(metric.as_bytes(), row)[..])?,
                        None => _ = metadata.remove(&**metric)?,
                    }
                }
                if !change.tokens.is_empty() {
                    let tokens = change.tokens.iter().map(|(id, row)| (*id, row.as_deref()));
                    put(&mut writing.open_table(TOKENS)?, tokens)?;
                }
                put_telemetry(&writing, change)?;
                let mut log = writing.open_table(LOG)?;
                let first = counters.row - change.rows.len() as u64;
                put(&mut log, (first..).zip(&change.rows).map(|(id, row)| (number(&id), Some(&row[..]))))?;
                if let Some(end) = change.rows_before {
                    log.retain_in(..end.to_be_bytes(), |_, _| false)?;
                }
            }
            writing.commit()?;
            Ok(())
        })
    }

    /// The database as of the last transaction, whatever comes after.
    pub(crate) fn snapshot(&self) -> Result<Snapshot> {
        guarded(|| Ok(Snapshot(self.0.database()?.begin_read()?)))
    }

    /// Reads everything but the log. Damaged rows are left out and said.
    pub(crate) fn contents(&self) -> Result<Contents> {
        let counters = self.counters()?;
        let raw_from_ns = self.counter(RAW_FROM)?.map(|raw_from_ns| raw_from_ns as i64);
        guarded(|| {
            let reading = self.0.database()?.begin_read()?;
            let mut damage = Vec::new();
            let number = u64::from_be_bytes;
            let series = all(&reading, SERIES, &mut damage)?.into_iter();
            let runs = all(&reading, RUNS, &mut damage)?.into_iter();
            let segments = all(&reading, SEGMENTS, &mut damage)?.into_iter();
            Ok(Contents {
                counters,
                series: series.map(|(key, row)| (number(key), row.into())).collect(),
                runs: runs.map(|(key, row)| (RunId(key), row)).collect(),
                sessions: all(&reading, SESSIONS, &mut damage)?,
                writers: all(&reading, WRITERS, &mut damage)?,
                segments: segments.map(|(key, row)| (number(key), row)).collect(),
                metadata: metadata(&reading, &mut damage)?,
                tokens: later(&reading, TOKENS, &mut damage)?,
                raw_from_ns,
                exemplars: numbered(later(&reading, EXEMPLARS, &mut damage)?),
                telemetry_files: numbered(later(&reading, TELEMETRY_FILES, &mut damage)?),
                telemetry: Vec::new(),
                events: Vec::new(),
                state: Vec::new(),
                damage,
            })
        })
    }

    /// Hands the log's rows to `each`, in order; a damaged one as an error in words.
    pub(crate) fn rows(&self, each: &mut EachRow<'_>) -> Result<()> {
        self.each_row(LOG, each)
    }

    /// The same of rows of spans and log records.
    pub(crate) fn telemetry_rows(&self, each: &mut EachRow<'_>) -> Result<()> {
        self.each_row(TELEMETRY, each)
    }

    /// Hands the keys of events to `each`, in order of time.
    pub(crate) fn event_keys(&self, each: &mut dyn FnMut(EventKey)) -> Result<()> {
        guarded(|| {
            let reading = self.0.database()?.begin_read()?;
            let Some(table) = opened(&reading, EVENTS)? else { return Ok(()) };
            for row in table.iter()? {
                each(row?.0.value());
            }
            Ok(())
        })
    }

    fn each_row(&self, table: Table<8>, each: &mut EachRow<'_>) -> Result<()> {
        guarded(|| {
            let reading = self.0.database()?.begin_read()?;
            let Some(table) = opened(&reading, table)? else { return Ok(()) };
            for row in table.iter()? {
                let (key, sealed) = row?;
                let number = u64::from_be_bytes(key.value());
                let row = unsealed(&key.value(), sealed.value());
                each(number, row.ok_or_else(|| "the checksum does not match".to_owned()));
            }
            Ok(())
        })
    }
}

/// The table, unless the catalogue is older than it.
fn opened<K: redb::Key + 'static, V: redb::Value + 'static>(
    reading: &ReadTransaction,
    table: TableDefinition<'static, K, V>,
) -> Result<Option<redb::ReadOnlyTable<K, V>>> {
    match reading.open_table(table) {
        Ok(table) => Ok(Some(table)),
        Err(redb::TableError::TableDoesNotExist(_)) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// The rows of the caller's own whose keys start with `prefix`, in order; damaged ones are said.
pub(crate) fn state(snapshot: &Snapshot, prefix: &[u8], damage: &mut Vec<String>) -> Result<Vec<StateRow>> {
    guarded(|| {
        let mut rows = Vec::new();
        let Some(table) = opened(&snapshot.0, STATE)? else { return Ok(rows) };
        for row in table.range(prefix..)? {
            let (key, sealed) = row?;
            let key = key.value();
            if !key.starts_with(prefix) {
                break;
            }
            match unsealed(key, sealed.value()) {
                Some(row) => rows.push((key.to_vec(), row.to_vec())),
                None => {
                    damage.push(format!("a row of the catalogue's table `state` is damaged: key {key:02x?}"));
                }
            }
        }
        Ok(rows)
    })
}

/// Takes an event's key and, unless it is damaged, its row.
pub(crate) type EachEvent<'a> = dyn FnMut(EventKey, Option<&[u8]>) -> ControlFlow<()> + 'a;

/// Hands the events within `keys` to `each`, the latest first.
pub(crate) fn events(
    snapshot: &Snapshot,
    keys: RangeInclusive<EventKey>,
    each: &mut EachEvent<'_>,
) -> Result<()> {
    guarded(|| {
        let Some(table) = opened(&snapshot.0, EVENTS)? else { return Ok(()) };
        for row in table.range(keys)?.rev() {
            let (key, sealed) = row?;
            if each(key.value(), unsealed(&key.value(), sealed.value())).is_break() {
                break;
            }
        }
        Ok(())
    })
}

fn put_telemetry(writing: &redb::WriteTransaction, change: &Change) -> Result<()> {
    let number = |id: &u64| id.to_be_bytes();
    if !change.telemetry.is_empty() || change.telemetry_before.is_some() {
        let mut table = writing.open_table(TELEMETRY)?;
        put(&mut table, change.telemetry.iter().map(|(id, row)| (number(id), row.as_deref())))?;
        if let Some(end) = change.telemetry_before {
            table.retain_in(..end.to_be_bytes(), |_, _| false)?;
        }
    }
    if !change.telemetry_files.is_empty() {
        let mut table = writing.open_table(TELEMETRY_FILES)?;
        put(&mut table, change.telemetry_files.iter().map(|(id, row)| (number(id), row.as_deref())))?;
    }
    if !change.exemplars.is_empty() {
        let mut table = writing.open_table(EXEMPLARS)?;
        put(&mut table, change.exemplars.iter().map(|(id, row)| (number(id), row.as_deref())))?;
    }
    if !change.events.is_empty() {
        let mut table = writing.open_table(EVENTS)?;
        put(&mut table, change.events.iter().map(|(key, row)| (*key, row.as_deref())))?;
    }
    if !change.state.is_empty() {
        let mut table = writing.open_table(STATE)?;
        for (key, row) in &change.state {
            match row {
                Some(row) => _ = table.insert(&**key, &sealed(key, row)[..])?,
                None => _ = table.remove(&**key)?,
            }
        }
    }
    Ok(())
}

/// Copies a snapshot into a new database at `path`, durably.
pub(crate) fn write_copy(snapshot: &Snapshot, path: &Path) -> Result<()> {
    guarded(|| {
        let database = Database::builder().set_cache_size(CACHE_BYTES).create(path)?;
        let writing = database.begin_write()?;
        let reading = &snapshot.0;
        copy(reading, &writing, META)?;
        for table in [SERIES, RUNS, SEGMENTS, LOG] {
            copy(reading, &writing, table)?;
        }
        copy(reading, &writing, SESSIONS)?;
        copy(reading, &writing, WRITERS)?;
        copy(reading, &writing, METADATA)?;
        copy(reading, &writing, TOKENS)?;
        copy(reading, &writing, TELEMETRY)?;
        copy(reading, &writing, TELEMETRY_FILES)?;
        copy(reading, &writing, EXEMPLARS)?;
        copy(reading, &writing, EVENTS)?;
        copy(reading, &writing, STATE)?;
        writing.commit()?;
        Ok(())
    })
}

fn copy<K: redb::Key + 'static, V: redb::Value + 'static>(
    reading: &ReadTransaction,
    writing: &redb::WriteTransaction,
    table: TableDefinition<'static, K, V>,
) -> Result<()> {
    let Some(from) = opened(reading, table)? else { return Ok(()) };
    let mut to = writing.open_table(table)?;
    for row in from.iter()? {
        let (key, value) = row?;
        to.insert(key.value(), value.value())?;
    }
    Ok(())
}

/// What can still be read of a damaged database, log rows included.
pub(crate) fn salvage(path: &Path) -> (Contents, Vec<Vec<u8>>) {
    let mut damage = Vec::new();
    let opened = guarded(|| Ok(Open(Some(Database::builder().set_cache_size(CACHE_BYTES).open(path)?))));
    let reading = opened.and_then(|open| {
        let reading = guarded(|| Ok(open.database()?.begin_read()?))?;
        Ok((reading, open))
    });
    let reading = match &reading {
        Ok((reading, _open)) => reading,
        Err(error) => {
            damage.push(format!("nothing of the catalogue is readable: {error}"));
            return (Contents { damage, ..Contents::default() }, Vec::new());
        }
    };
    let number = u64::from_be_bytes;
    let series = sound(reading, SERIES, &mut damage).into_iter();
    let runs = sound(reading, RUNS, &mut damage).into_iter();
    let segments = sound(reading, SEGMENTS, &mut damage).into_iter();
    let contents = Contents {
        counters: Counters::default(),
        series: series.map(|(key, row)| (number(key), row.into())).collect(),
        runs: runs.map(|(key, row)| (RunId(key), row)).collect(),
        sessions: sound(reading, SESSIONS, &mut damage),
        writers: sound(reading, WRITERS, &mut damage),
        segments: segments.map(|(key, row)| (number(key), row)).collect(),
        metadata: guarded(|| metadata(reading, &mut damage)).unwrap_or_default(),
        tokens: sound_later(reading, TOKENS, &mut damage),
        raw_from_ns: None,
        exemplars: numbered(sound_later(reading, EXEMPLARS, &mut damage)),
        telemetry_files: numbered(sound_later(reading, TELEMETRY_FILES, &mut damage)),
        telemetry: numbered(sound_later(reading, TELEMETRY, &mut damage)),
        events: sound_later(reading, EVENTS, &mut damage),
        state: sound_state(reading, &mut damage),
        damage: Vec::new(),
    };
    let log = sound(reading, LOG, &mut damage).into_iter().map(|(_, row)| row).collect();
    (Contents { damage, ..contents }, log)
}

fn numbered(rows: Vec<(Key<8>, Vec<u8>)>) -> Vec<(u64, Vec<u8>)> {
    rows.into_iter().map(|(key, row)| (u64::from_be_bytes(key), row)).collect()
}

/// As [`sound`], of a table that older catalogues do not have.
fn sound_later<const N: usize>(
    reading: &ReadTransaction,
    table: Table<N>,
    damage: &mut Vec<String>,
) -> Vec<(Key<N>, Vec<u8>)> {
    let lacks = guarded(|| Ok(opened(reading, table)?.is_none()));
    if matches!(lacks, Ok(true)) { Vec::new() } else { sound(reading, table, damage) }
}

/// The sound rows of the caller's own, up to the damage.
fn sound_state(reading: &ReadTransaction, damage: &mut Vec<String>) -> Vec<StateRow> {
    let mut rows = Vec::new();
    let read = guarded(|| {
        let Some(table) = opened(reading, STATE)? else { return Ok(()) };
        for row in table.iter()? {
            let (key, sealed) = row?;
            rows.extend(
                unsealed(key.value(), sealed.value()).map(|row| (key.value().to_vec(), row.to_vec())),
            );
        }
        Ok(())
    });
    if let Err(error) = read {
        damage.push(format!("the catalogue's table `state`: {error}"));
    }
    rows
}

/// The sound rows of a damaged table: from its start up to the damage, then from its end back to it.
fn sound<const N: usize>(
    reading: &ReadTransaction,
    table: Table<N>,
    damage: &mut Vec<String>,
) -> Vec<(Key<N>, Vec<u8>)> {
    let mut rows = Vec::new();
    let forward = guarded(|| {
        for row in reading.open_table(table)?.iter()? {
            let (key, sealed) = row?;
            take_row(table, key.value(), sealed.value(), &mut rows, damage);
        }
        Ok(())
    });
    let Err(error) = forward else { return rows };
    damage.push(format!("the catalogue's table `{}`: {error}", redb::TableHandle::name(&table)));
    let reached = rows.last().map(|(key, _)| *key);
    let mut behind = Vec::new();
    _ = guarded(|| {
        for row in reading.open_table(table)?.iter()?.rev() {
            let (key, sealed) = row?;
            if Some(key.value()) <= reached {
                break;
            }
            take_row(table, key.value(), sealed.value(), &mut behind, damage);
        }
        Ok(())
    });
    rows.extend(behind.into_iter().rev());
    rows
}

/// What is said about metrics. Catalogues that are older than the table have none.
fn metadata(reading: &ReadTransaction, damage: &mut Vec<String>) -> Result<Vec<(String, Vec<u8>)>> {
    let Some(table) = opened(reading, METADATA)? else { return Ok(Vec::new()) };
    let mut rows = Vec::new();
    for row in table.iter()? {
        let (key, sealed) = row?;
        let metric = key.value();
        if let Some(row) = unsealed(metric.as_bytes(), sealed.value()) {
            rows.push((metric.to_owned(), row.to_vec()));
        } else {
            damage.push(format!("a row of the catalogue's table `metadata` is damaged: key {metric:?}"));
        }
    }
    Ok(rows)
}

/// Every sound row of a table that older catalogues do not have.
fn later<const N: usize>(
    reading: &ReadTransaction,
    table: Table<N>,
    damage: &mut Vec<String>,
) -> Result<Vec<(Key<N>, Vec<u8>)>> {
    if opened(reading, table)?.is_some() { all(reading, table, damage) } else { Ok(Vec::new()) }
}

/// Every sound row of a table, in order.
fn all<const N: usize>(
    reading: &ReadTransaction,
    table: Table<N>,
    damage: &mut Vec<String>,
) -> Result<Vec<(Key<N>, Vec<u8>)>> {
    let mut rows = Vec::new();
    for row in reading.open_table(table)?.iter()? {
        let (key, sealed) = row?;
        take_row(table, key.value(), sealed.value(), &mut rows, damage);
    }
    Ok(rows)
}

fn take_row<const N: usize>(
    table: Table<N>,
    key: Key<N>,
    sealed: &[u8],
    rows: &mut Vec<(Key<N>, Vec<u8>)>,
    damage: &mut Vec<String>,
) {
    if let Some(row) = unsealed(&key, sealed) {
        rows.push((key, row.to_vec()));
    } else {
        let table = redb::TableHandle::name(&table);
        damage.push(format!("a row of the catalogue's table `{table}` is damaged: key {key:02x?}"));
    }
}

fn put<'r, const N: usize>(
    table: &mut redb::Table<'_, Key<N>, &'static [u8]>,
    rows: impl Iterator<Item = (Key<N>, Option<&'r [u8]>)>,
) -> Result<()> {
    for (key, row) in rows {
        match row {
            Some(row) => _ = table.insert(key, &sealed(&key, row)[..])?,
            None => _ = table.remove(key)?,
        }
    }
    Ok(())
}

/// A row with the checksum of its key and itself behind it.
fn sealed(key: &[u8], row: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(row.len() + 4);
    bytes.extend_from_slice(row);
    bytes.extend(checksum(key, row).to_le_bytes());
    bytes
}

fn unsealed<'r>(key: &[u8], sealed: &'r [u8]) -> Option<&'r [u8]> {
    let (row, crc) = sealed.split_last_chunk::<4>()?;
    (checksum(key, row) == u32::from_le_bytes(*crc)).then_some(row)
}

fn checksum(key: &[u8], row: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(key);
    hasher.update(row);
    hasher.finalize()
}

/// The database checks its invariants by panicking; a damaged file must not end the server.
fn guarded<T>(work: impl FnOnce() -> Result<T>) -> Result<T> {
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        let said = panic
            .downcast_ref::<String>()
            .map(String::as_str)
            .or_else(|| panic.downcast_ref::<&str>().copied())
            .unwrap_or("no reason given");
        Err(CatalogueError::damaged(format!("the catalogue's database stopped: {said}")))
    })
}
