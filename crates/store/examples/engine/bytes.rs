//! Where the bytes of segment files go, read from the files as `docs/format/segment.md` has them.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use store::SeriesId;

/// The type of chunks whose times are in a block of series 0.
const SHARED: u8 = 3;
/// The classes of files that hold single samples.
const RAW: [u8; 2] = [1, 2];

/// Bytes of one metric's blocks, by part.
#[derive(Default)]
struct Spent {
    points: u64,
    chunks: u64,
    times: u64,
    values: u64,
    steps: u64,
    frames: u64,
}

/// Prints bytes a sample of every metric, and of the parts behind the blocks, in files of single
/// samples; of roll-ups only how large they are. `metrics` names series.
pub(crate) fn print(folder: &Path, metrics: &HashMap<SeriesId, String>) {
    let mut spent: BTreeMap<&str, Spent> = BTreeMap::new();
    let (mut index, mut names, mut directory) = (0_u64, 0_u64, 0_u64);
    let (mut raw, mut rolled) = (0_u64, 0_u64);
    for file in std::fs::read_dir(folder).unwrap() {
        let bytes = std::fs::read(file.unwrap().path()).unwrap();
        if !RAW.contains(&bytes[12]) {
            rolled += bytes.len() as u64;
            continue;
        }
        raw += bytes.len() as u64;
        let trailer = bytes.len() - 44;
        let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
        let (entries_at, names_at, directory_at) = (word(trailer), word(trailer + 8), word(trailer + 16));
        index += names_at - entries_at;
        names += directory_at - names_at;
        directory += bytes.len() as u64 - directory_at;
        let mut rest = &bytes[16..entries_at as usize];
        while let Some((block, after)) = next(rest) {
            let mut block = block;
            let whole = block.len() as u64;
            let series = varint(&mut block);
            let metric = if series == 0 {
                "times that series share"
            } else {
                metrics.get(&series).map_or("?", String::as_str)
            };
            let spent = spent.entry(metric).or_default();
            if series == 0 {
                spent.chunks += 1;
                spent.times += whole - 1;
                spent.frames += 13;
                rest = after;
                continue;
            }
            let shared = block[0] == SHARED;
            block = &block[if shared { 2 } else { 3 }..];
            let points = varint(&mut block);
            let times = if shared {
                varint(&mut block);
                0
            } else {
                column(&mut block)
            };
            let values = column(&mut block);
            let steps = block.len() as u64;
            spent.points += points;
            spent.chunks += 1;
            spent.times += times;
            spent.values += values;
            spent.steps += steps;
            spent.frames += 12 + whole - times - values - steps;
            rest = after;
        }
    }
    let mut all = Spent::default();
    println!(
        "{:34}{:>8}{:>8}{:>8}{:>8}{:>8}{:>8}",
        "bytes a sample", "length", "times", "values", "steps", "frames", "all"
    );
    for spent in spent.values() {
        all.points += spent.points;
        all.chunks += spent.chunks;
        all.times += spent.times;
        all.values += spent.values;
        all.steps += spent.steps;
        all.frames += spent.frames;
    }
    for (metric, spent) in &spent {
        // Shared times are told as their part of all samples.
        let points = if spent.points == 0 { all.points } else { spent.points };
        spent.print(metric, points);
    }
    all.print("all blocks", all.points);
    let part = |bytes: u64| bytes as f64 / all.points as f64;
    println!("entries {:.3}, names {:.3}, directory {:.3}", part(index), part(names), part(directory));
    println!("samples and index {:.3}, roll-ups {:.3}", part(raw), part(rolled));
}

impl Spent {
    fn print(&self, what: &str, points: u64) {
        let part = |bytes: u64| bytes as f64 / points as f64;
        println!(
            "{what:34}{:>8}{:>8.3}{:>8.3}{:>8.3}{:>8.3}{:>8.3}",
            points / self.chunks.max(1),
            part(self.times),
            part(self.values),
            part(self.steps),
            part(self.frames),
            part(self.times + self.values + self.steps + self.frames)
        );
    }
}

/// The body of the block in front, and what follows it.
fn next(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let len = u32::from_le_bytes(bytes.get(4..8)?.try_into().ok()?) as usize;
    bytes.get(12..)?.split_at_checked(len)
}

fn varint(bytes: &mut &[u8]) -> u64 {
    let mut value = 0;
    for shift in (0..).step_by(7) {
        let byte = bytes[0];
        *bytes = &bytes[1..];
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            break;
        }
    }
    value
}

/// Passes over a column; returns how many bytes it takes with its codec and length.
fn column(bytes: &mut &[u8]) -> u64 {
    let before = bytes.len();
    // A column of decimals says how many.
    *bytes = &bytes[if bytes[0] == 2 { 2 } else { 1 }..];
    let len = varint(bytes) as usize;
    *bytes = &bytes[len..];
    (before - bytes.len()) as u64
}
