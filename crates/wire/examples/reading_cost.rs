//! How fast pages and remote write are read: `cargo run --release -p wire --example reading_cost [PAGE]`.
//!
//! Without a page it makes one like an inference engine's: histograms with eight labels a series.

#![expect(clippy::print_stdout, reason = "a program that prints what it measured")]

use std::error::Error;
use std::ops::ControlFlow;
use std::time::Instant;

use wire::exposition::{parse, write_sample};
use wire::page::{Entry, PageLimits};
use wire::remote_write::{Item, Point, RequestWriter, Version, decompress, read};

/// The quickest of this many passes counts.
const PASSES: usize = 20;
/// Series of the page and of the request.
const SERIES: usize = 50_000;

/// Seconds of the quickest pass, and the samples that each pass counts.
fn quickest(mut pass: impl FnMut() -> Result<usize, Box<dyn Error>>) -> Result<(f64, usize), Box<dyn Error>> {
    let (mut best, mut count) = (f64::MAX, 0);
    for _ in 0..PASSES {
        let started = Instant::now();
        count = pass()?;
        best = best.min(started.elapsed().as_secs_f64());
    }
    Ok((best, count))
}

fn print(what: &str, bytes: usize, (seconds, samples): (f64, usize)) {
    let (megabytes, nanoseconds) = (bytes as f64 / 1e6 / seconds, seconds * 1e9 / samples as f64);
    println!("{what}: {bytes} bytes, {samples} samples, {megabytes:.0} MB/s, {nanoseconds:.0} ns a sample");
}

fn labels(number: usize) -> [(&'static str, String); 9] {
    [
        ("__name__", "engine_request_seconds_bucket".into()),
        ("engine", "0".into()),
        ("host", format!("gpu-node-{:03}", number / 400)),
        ("instance", format!("gpu-node-{:03}:8000", number / 400)),
        ("job", "engines".into()),
        ("le", format!("{}", number % 20)),
        ("model", "meta-llama/Llama-3.1-8B-Instruct".into()),
        ("pod", format!("engine-{}-7c9f6d5b8-x2v9q", number / 20)),
        ("rack", format!("r{}", number % 40)),
    ]
}

fn main() -> Result<(), Box<dyn Error>> {
    let page = if let Some(path) = std::env::args().nth(1) {
        std::fs::read(path)?
    } else {
        let mut page = String::new();
        for number in 0..SERIES {
            let labels = labels(number);
            let pairs = labels[1..].iter().map(|(name, value)| (*name, value.as_str()));
            write_sample(&mut page, &labels[0].1, pairs, number as f64 * 1.5, None);
        }
        page.into_bytes()
    };
    let page_pass = quickest(|| {
        let mut samples = 0;
        parse(&page, PageLimits::default(), |entry| {
            samples += usize::from(matches!(entry, Entry::Sample(_)));
            ControlFlow::Continue(())
        })?;
        Ok(samples)
    })?;
    print("text page", page.len(), page_pass);

    let mut writer = RequestWriter::new();
    for number in 0..SERIES {
        let labels = labels(number);
        let pairs = labels.iter().map(|(name, value)| (*name, value.as_str()));
        writer.series(pairs, &[Point { time_ms: 1_800_000_000_000, value: number as f64 * 1.5 }]);
    }
    let plain_bytes = writer.plain_bytes();
    let body = writer.finish()?;
    println!("remote write: {plain_bytes} bytes, {} in snappy", body.len());
    let read_pass = quickest(|| {
        let plain = decompress(&body)?;
        let mut samples = 0;
        read(Version::V1, &plain, |item| {
            if let Item::Series(series) = item {
                samples += series.samples.len();
            }
        })?;
        Ok(samples)
    })?;
    print("remote write, unpacked and read", plain_bytes, read_pass);
    Ok(())
}
