//! Sends a made-up GPU fleet's past by remote write, as fast as it is taken, and prints what it took:
//! `fleet_load HOST:PORT PATH [GPUS] [HOURS] [INTERVAL_SECONDS] [TRAININGS]`.
//!
//! Two connections, one request at a time on each, every host on one of them. A request holds at most
//! [`SAMPLES_PER_REQUEST`] samples. An answer that asks to come again is followed.
#![expect(clippy::print_stdout, reason = "a program that prints what it measured")]

mod fleet;

use std::error::Error;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use fleet::{Fleet, Labels, SERIES_PER_GPU, START_MS};
use wire::remote_write::{CONTENT_TYPE, Point, RequestWriter, VERSION_1};

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

const CONNECTIONS: usize = 2;
/// Few enough that every server takes it at once.
const SAMPLES_PER_REQUEST: usize = 10_000;
/// Tries of one request that a server has no room for.
const TRIES: u32 = 200;

/// Samples of some series, by number.
type Part = Vec<(usize, Vec<Point>)>;

/// What one connection did.
#[derive(Default)]
struct Sent {
    requests: u64,
    again: u64,
    bytes: u64,
    milliseconds: Vec<f64>,
}

/// One connection to a server.
struct Door {
    address: String,
    path: String,
    stream: BufReader<TcpStream>,
}

impl Door {
    fn open(address: &str, path: &str) -> Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        Ok(Self { address: address.to_owned(), path: path.to_owned(), stream: BufReader::new(stream) })
    }

    /// Posts a body; the status of the answer and its text.
    fn post(&mut self, body: &[u8]) -> Result<(u16, String)> {
        let head = format!(
            "POST {} HTTP/1.1\r\nHost: {}\r\nContent-Encoding: snappy\r\nContent-Type: {CONTENT_TYPE}\r\n\
             X-Prometheus-Remote-Write-Version: {VERSION_1}\r\nContent-Length: {}\r\n\r\n",
            self.path,
            self.address,
            body.len()
        );
        self.stream.get_mut().write_all(head.as_bytes())?;
        self.stream.get_mut().write_all(body)?;
        let mut line = String::new();
        self.stream.read_line(&mut line)?;
        let status = line.split(' ').nth(1).ok_or("the server closed the connection")?.parse()?;
        let mut length = 0;
        loop {
            line.clear();
            self.stream.read_line(&mut line)?;
            if line.trim().is_empty() {
                break;
            }
            if let Some((name, value)) = line.split_once(':')
                && name.eq_ignore_ascii_case("content-length")
            {
                length = value.trim().parse()?;
            }
        }
        let mut text = vec![0; length];
        self.stream.read_exact(&mut text)?;
        Ok((status, String::from_utf8_lossy(&text).into_owned()))
    }
}

/// Sends every part that comes, one after another.
fn send(mut door: Door, labels: &[Labels], parts: &Receiver<Part>) -> Result<Sent> {
    let mut sent = Sent::default();
    let mut request = RequestWriter::new();
    for part in parts {
        for (series, points) in &part {
            request.series(labels[*series].iter().map(|(name, value)| (*name, value.as_str())), points);
        }
        let body = request.finish()?;
        let started = Instant::now();
        for attempt in 1.. {
            let (status, text) = door.post(&body)?;
            match status {
                200..300 => break,
                429 | 503 if attempt < TRIES => {
                    sent.again += 1;
                    std::thread::sleep(Duration::from_millis(50));
                }
                _ => return Err(format!("the server answered {status}: {text}").into()),
            }
        }
        sent.milliseconds.push(started.elapsed().as_secs_f64() * 1e3);
        sent.requests += 1;
        sent.bytes += body.len() as u64;
    }
    Ok(sent)
}

/// The connection that a series goes over: hosts and runs stay together.
fn connection(series: usize) -> usize {
    series / (SERIES_PER_GPU * 8) % CONNECTIONS
}

/// Makes all samples and hands them to the connections; returns how many there were. Ends early when
/// a connection did.
fn make(fleet: &mut Fleet, ticks: i64, doors: &[SyncSender<Part>]) -> u64 {
    let mut total = 0;
    for tick in 0..ticks {
        let mut waiting: Vec<Part> = vec![Vec::new(); doors.len()];
        let mut sizes = vec![0; doors.len()];
        let mut failed = None;
        fleet.tick(tick, |series, point| {
            total += 1;
            let at = connection(series);
            let part = &mut waiting[at];
            match part.last_mut().filter(|(last, _)| *last == series) {
                Some((_, points)) => points.push(point),
                None => match part.iter_mut().rev().take(16).find(|(known, _)| *known == series) {
                    Some((_, points)) => points.push(point),
                    None => part.push((series, vec![point])),
                },
            }
            sizes[at] += 1;
            if sizes[at] >= SAMPLES_PER_REQUEST {
                sizes[at] = 0;
                failed = failed.take().or(doors[at].send(std::mem::take(part)).err());
            }
        });
        for (part, door) in waiting.into_iter().zip(doors).filter(|(part, _)| !part.is_empty()) {
            failed = failed.take().or(door.send(part).err());
        }
        if failed.is_some() {
            break;
        }
    }
    total
}

/// The value below which `part` of the sorted `values` lie.
fn quantile(values: &[f64], part: f64) -> f64 {
    values.get((values.len() as f64 * part) as usize).copied().unwrap_or_default()
}

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [address, path, numbers @ ..] = &arguments[..] else {
        return Err("usage: fleet_load HOST:PORT PATH [GPUS] [HOURS] [INTERVAL_SECONDS] [TRAININGS]".into());
    };
    let mut numbers = numbers.iter().map(|text| text.parse::<f64>());
    let mut next = |default: f64| numbers.next().transpose().map(|number| number.unwrap_or(default));
    let (gpus, hours, interval, trainings) = (next(1_000.0)?, next(1.0)?, next(30.0)?, next(20.0)?);
    let mut fleet = Fleet::new(gpus as usize, trainings as usize, interval as i64);
    let labels = fleet.series.clone();
    let ticks = (hours * 3_600.0 / interval) as i64;
    let started = Instant::now();
    let (samples, sent) = std::thread::scope(|scope| -> Result<_> {
        let mut doors = Vec::new();
        let mut senders = Vec::new();
        for _ in 0..CONNECTIONS {
            let (door, parts) = sync_channel::<Part>(2);
            let connection = Door::open(address, path)?;
            let labels = &labels;
            senders.push(scope.spawn(move || send(connection, labels, &parts)));
            doors.push(door);
        }
        let samples = make(&mut fleet, ticks, &doors);
        drop(doors);
        let mut all = Sent::default();
        for sender in senders {
            let sent = sender.join().map_err(|_panic| "a sender ended by a panic")??;
            all.requests += sent.requests;
            all.again += sent.again;
            all.bytes += sent.bytes;
            all.milliseconds.extend(sent.milliseconds);
        }
        Ok((samples, all))
    })?;
    let wall = started.elapsed().as_secs_f64();
    let mut milliseconds = sent.milliseconds;
    milliseconds.sort_by(f64::total_cmp);
    println!(
        "RESULT {{\"samples\": {samples}, \"series\": {}, \"wall_seconds\": {wall:.3}, \"requests\": {}, \
         \"sent_again\": {}, \"wire_bytes\": {}, \"start_ms\": {START_MS}, \"request_ms\": \
         {{\"p50\": {:.2}, \"p99\": {:.2}, \"max\": {:.2}}}}}",
        labels.len(),
        sent.requests,
        sent.again,
        sent.bytes,
        quantile(&milliseconds, 0.5),
        quantile(&milliseconds, 0.99),
        milliseconds.last().copied().unwrap_or_default(),
    );
    Ok(())
}
