//! What a series costs in memory: `cargo run --release -p store --example series_room [SERIES] [POINTS]`.
//!
//! Names so many series of cards as an agent does, gives each so many points of a scrape, 10 s apart, and
//! prints what of the process' memory is its own after the first and at the end.

#![expect(clippy::print_stdout, clippy::unwrap_used, reason = "a program for humans")]

use model::{Labels, Sample, SeriesIdentity};
use store::{Batch, Options, SeriesBatch, SeriesId, Store};

const T0: i64 = 1_800_000_000 * model::NANOS_PER_SECOND;
/// Series of a card.
const OF_CARD: usize = 40;
/// Series of one batch.
const BATCH: usize = 10_240;

fn main() {
    let argument = |at, usual| std::env::args().nth(at).map_or(usual, |text| text.parse().unwrap());
    let (series, points): (usize, usize) = (argument(1, 655_360), argument(2, 60));
    let dir = std::env::current_dir().unwrap().join("measure-room");
    let store =
        Store::open(&dir, Options { reserve_bytes: 0, fleet_series_max: series, ..Options::default() })
            .unwrap();
    let empty = own_bytes();
    let mut numbers: Vec<SeriesId> = Vec::new();
    for first in (0..series).step_by(BATCH) {
        let all: Vec<SeriesIdentity> = (first..series.min(first + BATCH)).map(identity).collect();
        let batch = all.iter().map(|identity| SeriesBatch {
            identity: identity.clone(),
            samples: vec![sample(numbers.len(), 0)],
        });
        store.append(Batch { series: batch.collect(), ..Batch::default() }).unwrap();
        numbers.extend(all.iter().map(|identity| store.series_number(identity).unwrap()));
    }
    let named = own_bytes();
    println!(
        "{series} series with a point: {} MiB, {} B each",
        (named - empty) >> 20,
        (named - empty) / series
    );
    for point in 1..points {
        for part in numbers.chunks(BATCH) {
            let points = part.iter().map(|id| (*id, sample(*id as usize, point))).collect();
            store.append(Batch { points, ..Batch::default() }).unwrap();
        }
    }
    let full = own_bytes().saturating_sub(named);
    let each = full as f64 / (series * (points - 1).max(1)) as f64;
    println!("with {points} points: {} MiB more, {each:.1} B a point", full >> 20);
    store.maintain(T0 + 3 * 3_600 * model::NANOS_PER_SECOND).unwrap();
    store.maintain(T0 + 6 * 3_600 * model::NANOS_PER_SECOND).unwrap();
    println!("after a seal: {} MiB in all", own_bytes() >> 20);
    drop(store);
    std::fs::remove_dir_all(&dir).unwrap();
}

fn identity(at: usize) -> SeriesIdentity {
    let (card, of_card) = (at / OF_CARD, at % OF_CARD);
    let display = format!("tg_gpu_reading_{of_card}_ratio");
    let uuid =
        format!("GPU-{:08x}-0000-4000-8000-{card:012x}", card.wrapping_mul(2_654_435_761) & 0xffff_ffff);
    let (host, gpu) = (format!("node-{:04}", card / 8), (card % 8).to_string());
    let labels =
        Labels::from_pairs([("__name__", &*display), ("gpu", &gpu), ("host", &host), ("uuid", &uuid)]);
    SeriesIdentity { display, labels }
}

/// A third stays as it is, a third counts, a third is noise of a tenth.
fn sample(series: usize, point: usize) -> Sample {
    let noise = (series.wrapping_mul(2_654_435_761) ^ point.wrapping_mul(40_503)) % 1_000;
    let value = match series % 3 {
        0 => 1_410.0,
        1 => (point * 30_000 + noise) as f64,
        _ => noise as f64 / 10.0,
    };
    let time_ns = T0 + (point as i64 * 10_000 + (noise % 3) as i64) * model::NANOS_PER_MILLI;
    Sample { time_ns, value, step: None }
}

/// Memory that is this process' own.
fn own_bytes() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<usize>().unwrap() << 10
}
