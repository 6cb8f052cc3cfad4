//! `/dev/kmsg`, wherever it is mounted.

use std::{
    fs::{File, OpenOptions},
    io::{self, Read},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

use collect::kernel_log::{Position, Reader, Record, Taken};
use rustix::fs::OFlags;

use super::{Lines, Taking, place::RecordPlace};

/// Most records of a look; the kernel keeps fewer.
const RECORDS_MAX: usize = 100_000;

/// Records that were never read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Gap {
    /// How many, where their numbers tell.
    pub(super) missed: u64,
    /// How often the kernel has overwritten what was not read yet.
    pub(super) overruns: u64,
    /// The record behind it.
    pub(super) sequence: u64,
}

#[derive(Debug)]
pub(super) struct Kmsg {
    path: PathBuf,
    reader: Option<Reader<File>>,
    /// When it was last read to its end.
    read_ns: Option<i64>,
}

impl Kmsg {
    pub(super) fn new(path: &Path) -> Self {
        Self { path: path.to_owned(), reader: None, read_ns: None }
    }

    /// Gives the records that are new; what was missed between them.
    pub(super) fn read(&mut self, taking: &mut Taking<'_>, lines: &mut Lines<'_>) -> Result<Gap, String> {
        let cannot = |error| format!("cannot read `{}`: {error}", self.path.display());
        let reader = match &mut self.reader {
            Some(reader) => reader,
            none => none.insert(Reader::new(open(&self.path).map_err(cannot)?)),
        };
        let since_ns = self.read_ns;
        let (gap, outcome) = read_on(reader, taking, &mut |record| lines(record, None, since_ns));
        match outcome {
            Ok(true) => self.read_ns = Some(taking.now_ns),
            Ok(false) => self.read_ns = None,
            Err(error) => {
                // It may be opened again, and the position tells what was read before.
                self.reader = None;
                return Err(cannot(error));
            }
        }
        Ok(gap)
    }
}

/// Reads what is new, and whether that was all.
fn read_on<R: Read>(
    reader: &mut Reader<R>,
    taking: &mut Taking<'_>,
    lines: &mut dyn FnMut(Record),
) -> (Gap, io::Result<bool>) {
    let mut position = taking.behind.record.as_ref().map(RecordPlace::position).unwrap_or_default();
    let mut is_first = position == Position::default();
    let overruns = reader.overruns();
    let mut gap = Gap::default();
    let mut outcome = Ok(false);
    for _ in 0..RECORDS_MAX {
        let record = match reader.next_record() {
            Ok(Some(record)) => record,
            last => {
                outcome = last.map(|_| true);
                break;
            }
        };
        match position.take(&record, taking.boot_id) {
            Taken::Repeated => continue,
            Taken::Missed(missed) if !is_first => {
                gap.missed += missed;
                gap.sequence = position.sequence;
            }
            _ => {}
        }
        is_first = false;
        lines(record);
    }
    gap.overruns = reader.overruns() - overruns;
    taking.behind.record = Some(RecordPlace::of(&position)).filter(|_| position != Position::default());
    (gap, outcome)
}

fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).custom_flags(OFlags::NONBLOCK.bits() as i32).open(path)
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::*;
    use crate::log::place::Behind;

    struct Reads(VecDeque<String>);

    impl Read for Reads {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let text = self.0.pop_front().ok_or(io::ErrorKind::WouldBlock)?;
            if text == OVERWRITTEN {
                return Err(io::Error::from_raw_os_error(32));
            }
            buffer[..text.len()].copy_from_slice(text.as_bytes());
            Ok(text.len())
        }
    }

    const OVERWRITTEN: &str = "EPIPE";

    fn record(sequence: u64) -> String {
        format!("4,{sequence},{},-;line {sequence}\n", 1000 + sequence)
    }

    fn read(behind: &mut Behind, boot_id: &str, reads: Vec<String>) -> (Vec<u64>, Gap) {
        let mut taking = Taking { behind, boot_id, now_ns: 0 };
        let mut taken = Vec::new();
        let mut reader = Reader::new(Reads(reads.into()));
        let (gap, outcome) = read_on(&mut reader, &mut taking, &mut |record| taken.extend(record.sequence));
        assert!(outcome.unwrap());
        (taken, gap)
    }

    #[test]
    fn what_the_kernel_overwrote_is_a_gap_with_its_size() {
        let mut behind = Behind::default();
        let first = vec![record(7), record(8), OVERWRITTEN.to_owned(), record(90), record(91)];
        let (taken, gap) = read(&mut behind, "a", first);
        assert_eq!(taken, [7, 8, 90, 91], "the first record is behind no gap");
        assert_eq!(gap, Gap { missed: 81, overruns: 1, sequence: 90 });
        // Overwritten while nobody read.
        let (taken, gap) = read(&mut behind, "a", vec![record(100)]);
        assert_eq!((taken, gap.missed, gap.overruns), (vec![100], 8, 0));
    }

    #[test]
    fn a_restart_takes_nothing_twice_and_a_boot_begins_anew() {
        let mut behind = Behind::default();
        read(&mut behind, "a", vec![record(1), record(2)]);
        let (taken, gap) = read(&mut behind, "a", vec![record(1), record(2), record(3)]);
        assert_eq!((taken, gap), (vec![3], Gap::default()));
        let (taken, gap) = read(&mut behind, "b", vec![record(1)]);
        assert_eq!((taken, gap), (vec![1], Gap::default()));
        // Numbers that go back while time goes on lose nothing.
        let (taken, _) = read(&mut behind, "b", vec!["4,0,5000,-;x\n".to_owned()]);
        assert_eq!(taken, [0]);
    }
}
