//! A damaged or missing catalogue: what is readable is carried over into a new one.
//!
//! The damaged file is kept beside it for whoever wants to look. Series and runs that are not
//! readable any more come back from the segments, which name them too; what only the catalogue knew
//! (points not sealed yet, sessions, sequences of writers) is lost as far as it is damaged.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::{fs, io};

use model::RunId;

use crate::catalogue::{Catalogue, CatalogueError, Change, Contents, Counters, salvage};
use crate::record;
use crate::retention::guessed_raw_from_ns;
use crate::segment::{self, Class, Manifest, Segment};
use crate::telemetry;
use crate::telemetry::file::SealedFile;

/// Opens the catalogue at `path` of the store in `dir`, or makes a new one from what is left.
pub(crate) fn open_catalogue(
    dir: &Path,
    path: &Path,
    damage: &mut Vec<String>,
) -> Result<Catalogue, CatalogueError> {
    let error = match Catalogue::open(path, true) {
        Ok(catalogue) => {
            let fresh = catalogue.counters()?.commit == 0;
            let none = segment_files(dir).is_empty() && telemetry_files(dir).is_empty();
            if !fresh || none {
                return Ok(catalogue);
            }
            damage.push(format!("`{}` was lost; it is made again from the segments", path.display()));
            adopt(dir, &catalogue, Contents::default(), Vec::new(), damage)?;
            return Ok(catalogue);
        }
        Err(error) if error.full => {
            // The check writes; reading what is there needs no space.
            return Catalogue::open(path, false);
        }
        Err(error) if error.damaged => error,
        Err(error) => return Err(error),
    };
    let (contents, log) = salvage(path);
    let failed = |io: io::Error| CatalogueError {
        reason: format!("{error}, and a new one can't be put in its place: {io}"),
        ..error.clone()
    };
    let made = path.with_extension("new");
    match fs::remove_file(&made) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
        _ => {}
    }
    adopt(dir, &Catalogue::open(&made, false)?, contents, log, damage)?;
    let aside = keep_aside(path).map_err(failed)?;
    fs::rename(&made, path).and_then(|()| fs::File::open(dir)?.sync_all()).map_err(failed)?;
    damage.push(format!(
        "`{}` is damaged ({error}); what is readable was carried over, the damaged file is kept as `{}`",
        path.display(),
        aside.display()
    ));
    Catalogue::open(path, false)
}

/// Gives the file a second name, one that is free, so that its place is never empty.
fn keep_aside(path: &Path) -> io::Result<PathBuf> {
    let mut number = 1;
    loop {
        let aside = path.with_extension(format!("damaged-{number}"));
        if !aside.exists() {
            fs::hard_link(path, &aside).or_else(|_| fs::copy(path, &aside).map(|_| ()))?;
            return Ok(aside);
        }
        number += 1;
    }
}

fn segment_files(dir: &Path) -> Vec<(u64, PathBuf)> {
    let files = fs::read_dir(dir.join("segments")).into_iter().flatten().flatten().map(|file| file.path());
    let mut files: Vec<_> = files.filter_map(|path| Some((segment::id_of(&path)?, path))).collect();
    files.sort();
    files
}

fn telemetry_files(dir: &Path) -> Vec<(u64, PathBuf)> {
    let files = fs::read_dir(telemetry::file::folder_of(dir)).into_iter().flatten().flatten();
    let files = files.map(|file| file.path());
    let mut files: Vec<_> = files.filter_map(|path| Some((telemetry::file::id_of(&path)?, path))).collect();
    files.sort();
    files
}

/// Names the files of spans and log records that the damaged catalogue does not name any more; returns
/// the next free number.
fn adopt_telemetry(dir: &Path, known: &mut Known, change: &mut Change, damage: &mut Vec<String>) -> u64 {
    let mut next = 1;
    for (id, path) in telemetry_files(dir) {
        next = next.max(id + 1);
        if change.telemetry_files.iter().any(|(known, _)| *known == id) {
            continue;
        }
        match SealedFile::open(dir, id, None, &mut |_| {}) {
            Ok(file) => {
                change.telemetry_files.push((id, Some(file.manifest.encode())));
                for run in file.runs.iter() {
                    adopt_run(run.clone(), known, change);
                }
            }
            Err(error) => damage.push(format!("`{}`: {error}", path.display())),
        }
    }
    next
}

/// Fills an empty catalogue with what was read from the damaged one and what the segments know.
fn adopt(
    dir: &Path,
    catalogue: &Catalogue,
    contents: Contents,
    log: Vec<Vec<u8>>,
    damage: &mut Vec<String>,
) -> Result<(), CatalogueError> {
    damage.extend(contents.damage);
    let mut known = Known {
        series: contents.series.iter().map(|(id, _)| *id).collect(),
        runs: contents.runs.iter().map(|(id, _)| *id).collect(),
        segments: contents.segments.iter().map(|(id, _)| *id).collect(),
    };
    let mut change = Change {
        series: contents.series.into_iter().map(|(id, row)| (id, Some(row))).collect(),
        runs: contents.runs.into_iter().map(|(id, row)| (id, Some(row))).collect(),
        sessions: contents.sessions.into_iter().map(|(key, row)| (key, Some(row))).collect(),
        writers: contents.writers.into_iter().map(|(id, row)| (id, Some(row))).collect(),
        segments: contents.segments.into_iter().map(|(id, row)| (id, Some(row))).collect(),
        metadata: contents.metadata.into_iter().map(|(metric, row)| (metric, Some(row))).collect(),
        tokens: contents.tokens.into_iter().map(|(id, row)| (id, Some(row))).collect(),
        rows: log,
        rows_before: None,
        raw_from_ns: None,
        telemetry: contents.telemetry.into_iter().map(|(id, row)| (id, Some(row.into()))).collect(),
        telemetry_before: None,
        telemetry_files: contents.telemetry_files.into_iter().map(|(id, row)| (id, Some(row))).collect(),
        state: contents.state.into_iter().map(|(key, row)| (key, Some(row))).collect(),
        events: contents.events.into_iter().map(|(key, row)| (key, Some(row))).collect(),
        exemplars: contents.exemplars.into_iter().map(|(id, row)| (id, Some(row))).collect(),
    };
    let telemetry = change.telemetry.iter().map(|(id, _)| *id + 1).max().unwrap_or(1);
    let mut counters =
        Counters { commit: 1, row: 1 + change.rows.len() as u64, telemetry, ..Counters::FIRST };
    for (id, path) in segment_files(dir) {
        counters.segment = counters.segment.max(id + 1);
        match adopt_segment(dir, id, &path, &mut known, &mut change) {
            Ok(last) => counters.series = counters.series.max(last + 1),
            Err(why) => damage.push(format!("`{}`: {why}", path.display())),
        }
    }
    counters.segment = counters.segment.max(adopt_telemetry(dir, &mut known, &mut change, damage));
    let manifests = change.segments.iter().filter_map(|(id, row)| Manifest::decode(*id, row.as_deref()?));
    change.raw_from_ns = guessed_raw_from_ns(&manifests.collect::<Vec<_>>());
    let last = change.series.iter().map(|(id, _)| *id).max().unwrap_or_default();
    counters.series = counters.series.max(last + 1);
    catalogue.commit(&change, counters)
}

struct Known {
    series: HashSet<u64>,
    runs: HashSet<RunId>,
    segments: HashSet<u64>,
}

/// Takes a segment's names into `change`; returns the largest number of its series.
fn adopt_segment(
    dir: &Path,
    id: u64,
    path: &Path,
    known: &mut Known,
    change: &mut Change,
) -> Result<u64, String> {
    // A header that can't be read hides the class only; runs are what must not be dropped by age.
    let class = segment::class_in(path).map_err(|error| error.to_string())?.unwrap_or(Class::Run);
    let opened = Segment::open(dir, id, class, &mut |_| {}).map_err(|error| error.to_string())?;
    let segment = opened.segment;
    if known.segments.insert(id) {
        change.segments.push((id, Some(segment.manifest().encode())));
    }
    let last = segment.listed().last().map_or(0, |listed| listed.series);
    let names = segment.names()?;
    for (series, identity) in names.series {
        if known.series.insert(series) {
            change.series.push((series, Some(identity)));
        }
    }
    for row in names.runs {
        adopt_run(row, known, change);
    }
    Ok(last)
}

fn adopt_run(row: Vec<u8>, known: &mut Known, change: &mut Change) {
    let Some(run) = record::decode_run(&row) else { return };
    if known.runs.insert(run.path.id()) {
        change.runs.push((run.path.id(), Some(row)));
    }
}
