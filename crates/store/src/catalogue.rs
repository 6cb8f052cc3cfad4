//! The catalogue: series dictionary, runs, writers, segment manifest and the log, in one database.
//!
//! Everything above talks in [`Change`]s, each of them one durable transaction, and [`Contents`],
//! read once at open. The tables are described in `docs/format/log.md`.

use std::path::Path;
use std::sync::Arc;

use model::{RunId, WriterId};
use redb::{Database, ReadableDatabase, ReadableTable, TableDefinition};

use crate::SeriesId;

type Table<K> = TableDefinition<'static, K, &'static [u8]>;
const META: TableDefinition<'static, &str, u64> = TableDefinition::new("meta");
const SERIES: Table<u64> = Table::new("series");
const RUNS: Table<[u8; 8]> = Table::new("runs");
const SESSIONS: Table<[u8; 12]> = Table::new("sessions");
const WRITERS: Table<[u8; 16]> = Table::new("writers");
const SEGMENTS: Table<u64> = Table::new("segments");
const LOG: Table<u64> = Table::new("log");

/// Version of tables and rows together.
const FORMAT: u64 = 1;
const CACHE_BYTES: usize = 32 << 20;

/// Numbers that only grow, kept with every transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Counters {
    /// Transactions so far; tells whether one whose commit failed is there after all.
    pub(crate) commit: u64,
    /// The next series' number; numbers are never given twice.
    pub(crate) series: u64,
    /// The next segment's number.
    pub(crate) segment: u64,
    /// The next log row's number.
    pub(crate) row: u64,
}

/// One transaction. A row without bytes is removed.
#[derive(Debug, Default)]
pub(crate) struct Change {
    pub(crate) series: Vec<(SeriesId, Option<Arc<[u8]>>)>,
    pub(crate) runs: Vec<(RunId, Option<Vec<u8>>)>,
    pub(crate) sessions: Vec<([u8; 12], Option<Vec<u8>>)>,
    pub(crate) writers: Vec<(WriterId, Option<Vec<u8>>)>,
    pub(crate) segments: Vec<(u64, Option<Vec<u8>>)>,
    /// Log rows, numbered from [`Counters::row`] on.
    pub(crate) rows: Vec<Vec<u8>>,
    /// Every log row before this number goes.
    pub(crate) rows_before: Option<u64>,
}

impl Change {
    /// Whether there is nothing to write.
    pub(crate) fn is_empty(&self) -> bool {
        self.series.is_empty()
            && self.runs.is_empty()
            && self.sessions.is_empty()
            && self.writers.is_empty()
            && self.segments.is_empty()
            && self.rows.is_empty()
            && self.rows_before.is_none()
    }
}

/// Everything but the log.
#[derive(Debug)]
pub(crate) struct Contents {
    pub(crate) counters: Counters,
    pub(crate) series: Vec<(SeriesId, Arc<[u8]>)>,
    pub(crate) runs: Vec<(RunId, Vec<u8>)>,
    pub(crate) sessions: Vec<([u8; 12], Vec<u8>)>,
    pub(crate) writers: Vec<(WriterId, Vec<u8>)>,
    pub(crate) segments: Vec<(u64, Vec<u8>)>,
}

/// Why the catalogue did not do something.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{reason}")]
pub(crate) struct CatalogueError {
    /// In words.
    pub(crate) reason: String,
    /// The disk is full.
    pub(crate) full: bool,
}

impl<E: Into<redb::Error>> From<E> for CatalogueError {
    fn from(error: E) -> Self {
        let error = error.into();
        let full = matches!(&error, redb::Error::Io(io) if io.kind() == std::io::ErrorKind::StorageFull);
        Self { reason: error.to_string(), full }
    }
}

type Result<T> = std::result::Result<T, CatalogueError>;

/// The open database.
pub(crate) struct Catalogue(Database);

impl Catalogue {
    /// Opens or makes the database at `path`.
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let database = guarded(|| Ok(Database::builder().set_cache_size(CACHE_BYTES).create(path)?))?;
        let catalogue = Self(database);
        if catalogue.counter("format")?.is_none() {
            let counters = Counters { commit: 0, series: 1, segment: 1, row: 1 };
            catalogue.commit(&Change::default(), counters)?;
        }
        match catalogue.counter("format")? {
            Some(FORMAT) => Ok(catalogue),
            found => Err(CatalogueError {
                reason: format!(
                    "its catalogue has format {}, this version knows format {FORMAT}: use the version that wrote it",
                    found.unwrap_or_default()
                ),
                full: false,
            }),
        }
    }

    fn counter(&self, name: &str) -> Result<Option<u64>> {
        guarded(|| {
            let reading = self.0.begin_read()?;
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
            self.counter(name)?.ok_or_else(|| CatalogueError {
                reason: format!("its catalogue lacks the counter `{name}`"),
                full: false,
            })
        };
        Ok(Counters {
            commit: get("commit")?,
            series: get("series")?,
            segment: get("segment")?,
            row: get("row")?,
        })
    }

    /// Does `change` as one durable transaction, after which the counters are `counters`.
    pub(crate) fn commit(&self, change: &Change, counters: Counters) -> Result<()> {
        guarded(|| {
            let writing = self.0.begin_write()?;
            {
                let mut meta = writing.open_table(META)?;
                let Counters { commit, series, segment, row } = counters;
                let all = [("commit", commit), ("series", series), ("segment", segment), ("row", row)];
                for (name, value) in all {
                    meta.insert(name, value)?;
                }
                meta.insert("format", FORMAT)?;
                let mut table = writing.open_table(SERIES)?;
                for (id, row) in &change.series {
                    match row {
                        Some(row) => _ = table.insert(id, &row[..])?,
                        None => _ = table.remove(id)?,
                    }
                }
                put(&mut writing.open_table(RUNS)?, change.runs.iter().map(|(id, row)| (id.0, row)))?;
                put(
                    &mut writing.open_table(SESSIONS)?,
                    change.sessions.iter().map(|(key, row)| (*key, row)),
                )?;
                put(&mut writing.open_table(WRITERS)?, change.writers.iter().map(|(id, row)| (*id, row)))?;
                put(&mut writing.open_table(SEGMENTS)?, change.segments.iter().map(|(id, row)| (*id, row)))?;
                let mut log = writing.open_table(LOG)?;
                for (number, row) in (counters.row - change.rows.len() as u64..).zip(&change.rows) {
                    log.insert(number, &row[..])?;
                }
                if let Some(end) = change.rows_before {
                    log.retain_in(..end, |_, _| false)?;
                }
            }
            writing.commit()?;
            Ok(())
        })
    }

    /// Reads everything but the log.
    pub(crate) fn contents(&self) -> Result<Contents> {
        let counters = self.counters()?;
        guarded(|| {
            let reading = self.0.begin_read()?;
            let mut series = Vec::new();
            for row in reading.open_table(SERIES)?.iter()? {
                let (id, bytes) = row?;
                series.push((id.value(), bytes.value().into()));
            }
            Ok(Contents {
                counters,
                series,
                runs: all(&reading.open_table(RUNS)?)?
                    .into_iter()
                    .map(|(id, row)| (RunId(id), row))
                    .collect(),
                sessions: all(&reading.open_table(SESSIONS)?)?,
                writers: all(&reading.open_table(WRITERS)?)?,
                segments: all(&reading.open_table(SEGMENTS)?)?,
            })
        })
    }

    /// Hands the log's rows to `each`, in order.
    pub(crate) fn rows(&self, each: &mut dyn FnMut(u64, &[u8])) -> Result<()> {
        guarded(|| {
            let reading = self.0.begin_read()?;
            for row in reading.open_table(LOG)?.iter()? {
                let (number, bytes) = row?;
                each(number.value(), bytes.value());
            }
            Ok(())
        })
    }
}

type BytesTable<'t, K> = redb::Table<'t, K, &'static [u8]>;

fn put<'r, K>(
    table: &mut BytesTable<'_, K>,
    rows: impl Iterator<Item = (K, &'r Option<Vec<u8>>)>,
) -> Result<()>
where
    K: redb::Key + for<'k> redb::Value<SelfType<'k> = K> + std::borrow::Borrow<K> + 'static,
{
    for (key, row) in rows {
        match row {
            Some(row) => _ = table.insert(key, &row[..])?,
            None => _ = table.remove(key)?,
        }
    }
    Ok(())
}

fn all<K>(table: &redb::ReadOnlyTable<K, &'static [u8]>) -> Result<Vec<(K, Vec<u8>)>>
where
    K: redb::Key + for<'k> redb::Value<SelfType<'k> = K> + 'static,
{
    let mut rows = Vec::new();
    for row in table.iter()? {
        let (key, bytes) = row?;
        rows.push((key.value(), bytes.value().to_vec()));
    }
    Ok(rows)
}

/// The database checks its invariants by panicking; a damaged file must not end the server.
fn guarded<T>(work: impl FnOnce() -> Result<T>) -> Result<T> {
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        let said = panic
            .downcast_ref::<String>()
            .map(String::as_str)
            .or_else(|| panic.downcast_ref::<&str>().copied())
            .unwrap_or("no reason given");
        Err(CatalogueError { reason: format!("the catalogue's database stopped: {said}"), full: false })
    })
}
