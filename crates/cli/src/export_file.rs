//! Where an export goes: stdout, or a file that appears when it is complete.

use std::fs::{self, File};
use std::io::{self, BufWriter, IsTerminal, Read, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use server::Format;

use crate::output::{Failure, stderr_is_terminal};
use crate::table::{bytes, thousands};

/// How often a terminal is told how far it is.
const PROGRESS_EVERY: Duration = Duration::from_millis(200);

/// What was written.
#[derive(Debug)]
pub(crate) struct Written {
    pub(crate) series: u64,
    pub(crate) points: u64,
    pub(crate) bytes: u64,
    pub(crate) seconds: f64,
}

/// Takes the bytes of one export.
pub(crate) struct Sink {
    out: Out,
    lines: Lines,
    series: u64,
    points_max: u64,
    bytes: u64,
    started: Instant,
    told: Option<Instant>,
    tells: bool,
}

enum Out {
    Stdout(io::Stdout),
    File { out: BufWriter<File>, partial: Partial, path: PathBuf },
}

/// A file under another name, removed unless it is finished.
struct Partial(Option<PathBuf>);

impl Drop for Partial {
    fn drop(&mut self) {
        if let Some(path) = self.0.take() {
            let _ = fs::remove_file(path);
        }
    }
}

impl Sink {
    /// Opens the file, or stdout where there is none.
    pub(crate) fn new(path: Option<&Path>, format: Format) -> Result<Self, Failure> {
        let out = match path {
            None if format == Format::Parquet && io::stdout().is_terminal() => {
                return Err(Failure::new("Parquet is not for a terminal to show")
                    .hint("name a file with `-o points.parquet`"));
            }
            None => Out::Stdout(io::stdout()),
            Some(path) => {
                let partial = partial_of(path)?;
                let file = File::create(&partial).map_err(|error| cannot(&partial, &error))?;
                let partial = Partial(Some(partial));
                Out::File { out: BufWriter::with_capacity(1 << 20, file), partial, path: path.to_owned() }
            }
        };
        Ok(Self {
            out,
            lines: Lines::new(format),
            series: 0,
            points_max: 0,
            bytes: 0,
            started: Instant::now(),
            told: None,
            tells: path.is_some() && stderr_is_terminal(),
        })
    }

    /// Notes how much is to come.
    pub(crate) fn expect(&mut self, series: u64, points_max: u64) {
        (self.series, self.points_max) = (series, points_max);
    }

    /// Takes the next bytes.
    pub(crate) fn write(&mut self, piece: &[u8]) -> Result<(), Failure> {
        self.bytes += piece.len() as u64;
        self.lines.count(piece);
        match &mut self.out {
            Out::Stdout(out) => out.write_all(piece)?,
            Out::File { out, path, .. } => out.write_all(piece).map_err(|error| cannot(path, &error))?,
        }
        self.tell();
        Ok(())
    }

    /// Takes all that can be read.
    pub(crate) fn copy(&mut self, from: &mut impl Read) -> Result<(), Failure> {
        let mut piece = vec![0; 256 << 10];
        loop {
            let read = from.read(&mut piece).map_err(|error| {
                Failure::new(format!("the export broke off: {error}"))
                    .hint("the server's log says why; what was written so far is not complete")
            })?;
            if read == 0 {
                return Ok(());
            }
            self.write(&piece[..read])?;
        }
    }

    /// Gives the file its name.
    pub(crate) fn finish(self) -> Result<Written, Failure> {
        if self.tells && self.told.is_some() {
            let _ = io::stderr().lock().write_all(b"\r\x1b[K");
        }
        let mut points = self.lines.points();
        match self.out {
            Out::Stdout(mut out) => out.flush()?,
            Out::File { out, mut partial, path } => {
                let file = out.into_inner().map_err(|error| cannot(&path, error.error()))?;
                file.sync_all().map_err(|error| cannot(&path, &error))?;
                if let Some(name) = &partial.0 {
                    if self.lines.format == Format::Parquet {
                        points = server::parquet_points(name).map_err(|reason| {
                            Failure::new(format!("what was received is no whole Parquet file: {reason}"))
                                .hint("export again; the server's log says why if it broke off there")
                        })?;
                    }
                    fs::rename(name, &path).map_err(|error| cannot(&path, &error))?;
                    partial.0 = None;
                }
            }
        }
        let seconds = self.started.elapsed().as_secs_f64();
        Ok(Written { series: self.series, points, bytes: self.bytes, seconds })
    }

    fn tell(&mut self) {
        if !self.tells || self.told.is_some_and(|told| told.elapsed() < PROGRESS_EVERY) {
            return;
        }
        self.told = Some(Instant::now());
        let of =
            format!("of at most {} points of {} series", thousands(self.points_max), thousands(self.series));
        let line = format!("\r\x1b[K{} {of}", bytes(self.bytes));
        let _ = io::stderr().lock().write_all(line.as_bytes());
    }
}

/// The name that a file has until it is complete: beside it, so that it is on the same disk.
fn partial_of(path: &Path) -> Result<PathBuf, Failure> {
    let name = path.file_name().ok_or_else(|| {
        Failure::new(format!("`{}` is no name of a file", path.display()))
            .hint("name one, such as `points.parquet`")
    })?;
    let mut partial = std::ffi::OsString::from(".");
    partial.push(name);
    partial.push(format!(".{}.partial", std::process::id()));
    Ok(path.with_file_name(partial))
}

fn cannot(path: &Path, error: &io::Error) -> Failure {
    Failure::new(format!("cannot write `{}`: {error}", path.display()))
        .hint("check that its folder exists, is yours and its disk is not full")
}

/// Counts points by the ends of lines; in CSV those within quotes are none.
struct Lines {
    format: Format,
    quoted: bool,
    ends: u64,
}

impl Lines {
    fn new(format: Format) -> Self {
        Self { format, quoted: false, ends: 0 }
    }

    fn count(&mut self, piece: &[u8]) {
        if self.format == Format::Parquet {
            return;
        }
        for byte in piece {
            self.quoted ^= self.format == Format::Csv && *byte == b'"';
            self.ends += u64::from(*byte == b'\n' && !self.quoted);
        }
    }

    fn points(&self) -> u64 {
        self.ends - u64::from(self.format == Format::Csv && self.ends > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_within_quotes_are_no_points() {
        let mut lines = Lines::new(Format::Csv);
        for piece in ["metric,value\na,\"1\n", "\"\"2\"\nb,3\n"] {
            lines.count(piece.as_bytes());
        }
        assert_eq!(lines.points(), 2);
        assert_eq!(Lines::new(Format::Csv).points(), 0);
    }

    #[test]
    fn what_is_not_finished_leaves_nothing_behind() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("points.csv");
        let mut sink = Sink::new(Some(&path), Format::Csv).unwrap();
        sink.write(b"metric\n").unwrap();
        drop(sink);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
        let mut sink = Sink::new(Some(&path), Format::Csv).unwrap();
        sink.write(b"metric\na\n").unwrap();
        assert_eq!(sink.finish().unwrap().points, 1);
        assert_eq!(fs::read(&path).unwrap(), b"metric\na\n");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }
}
