//! Where the bytes of segment files go, read from the files as `docs/format/segment.md` has them.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use store::SeriesId;

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

/// Prints bytes a sample of every metric, and of the parts behind the blocks. `metrics` names series.
pub(crate) fn print(folder: &Path, metrics: &HashMap<SeriesId, String>) {
    let mut spent: BTreeMap<&str, Spent> = BTreeMap::new();
    let (mut index, mut names, mut directory) = (0_u64, 0_u64, 0_u64);
    for file in std::fs::read_dir(folder).unwrap() {
        let bytes = std::fs::read(file.unwrap().path()).unwrap();
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
            let metric = metrics.get(&series).map_or("?", String::as_str);
            let spent = spent.entry(metric).or_default();
            let kind = block[2];
            block = &block[3..];
            let points = varint(&mut block);
            let times = column(&mut block);
            let values = column(&mut block);
            let steps = block.len() as u64;
            debug_assert!(kind > 0 || steps == 0);
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
    for (metric, spent) in &spent {
        spent.print(metric);
        all.points += spent.points;
        all.chunks += spent.chunks;
        all.times += spent.times;
        all.values += spent.values;
        all.steps += spent.steps;
        all.frames += spent.frames;
    }
    all.print("all blocks");
    let part = |bytes: u64| bytes as f64 / all.points as f64;
    println!("entries {:.3}, names {:.3}, directory {:.3}", part(index), part(names), part(directory));
}

impl Spent {
    fn print(&self, what: &str) {
        let part = |bytes: u64| bytes as f64 / self.points as f64;
        println!(
            "{what:34}{:>8}{:>8.3}{:>8.3}{:>8.3}{:>8.3}{:>8.3}",
            self.points / self.chunks.max(1),
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
    *bytes = &bytes[1..];
    let len = varint(bytes) as usize;
    *bytes = &bytes[len..];
    (before - bytes.len()) as u64
}
