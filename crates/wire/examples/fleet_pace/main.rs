//! Sends what a fleet of GPUs says now, at the pace at which it says it, and prints whether that was kept up:
//! `fleet_pace HOST:PORT KIND [GPUS] [SERIES_PER_GPU] [INTERVAL_SECONDS] [SECONDS]`.
//!
//! `dcgm` is remote write of an exporter's names, which a server may know by others; `plain` is the same with names
//! that nobody knows; `push` is what agents send, a request for each node. Nodes are spread over the interval.
#![expect(clippy::print_stdout, reason = "a program that prints what it measured")]

mod names;

use std::error::Error;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use model::Sample;
use wire::push::{self, Node, PushRequest, Series};
use wire::remote_write::{self, Point, RequestWriter, VERSION_1};

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

const CONNECTIONS: usize = 16;
const GPUS_PER_NODE: usize = 8;
/// As Prometheus sends: this many samples in a request, or the first more.
const SAMPLES_PER_REQUEST: usize = 2_000;
/// Tries of one request that a server has no room for.
const TRIES: u32 = 200;

/// What is sent.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Dcgm,
    Plain,
    Push,
}

/// How much of it.
#[derive(Clone, Copy)]
struct Load {
    kind: Kind,
    gpus: usize,
    series: usize,
    interval: Duration,
    length: Duration,
}

impl Load {
    /// Nodes that one request tells of.
    fn nodes_per_request(&self) -> usize {
        match self.kind {
            Kind::Push => 1,
            Kind::Dcgm | Kind::Plain => SAMPLES_PER_REQUEST.div_ceil(GPUS_PER_NODE * self.series).max(1),
        }
    }
}

/// What was sent, and how it was answered.
#[derive(Default)]
struct Sent {
    samples: u64,
    requests: u64,
    again: u64,
    bytes: u64,
    latest: Duration,
    milliseconds: Vec<f64>,
}

/// Some nodes that are told of together, and what they say.
struct Group {
    nodes: std::ops::Range<usize>,
    /// Labels and present value of each series.
    series: Vec<(Vec<(&'static str, String)>, f64)>,
    client_id: [u8; 16],
    sequence: u64,
    chance: u64,
}

impl Group {
    fn new(load: &Load, number: usize) -> Self {
        let size = load.nodes_per_request();
        let nodes = number * size..((number + 1) * size).min(load.gpus.div_ceil(GPUS_PER_NODE));
        let mut series = Vec::new();
        for node in nodes.clone() {
            for gpu in 0..GPUS_PER_NODE {
                let labels = |at| match load.kind {
                    Kind::Dcgm => names::dcgm(node, gpu, at),
                    Kind::Plain => names::plain(node, gpu, at),
                    Kind::Push => names::canonical(node, gpu, at),
                };
                series.extend((0..load.series).map(|at| (labels(at), names::first(at))));
            }
        }
        let mut client_id = [7; 16];
        client_id[..8].copy_from_slice(&(number as u64).to_be_bytes());
        // A server that was asked before has seen other writers.
        client_id[8..].copy_from_slice(&(now_ns() as u64).to_be_bytes());
        Self { nodes, series, client_id, sequence: 0, chance: number as u64 + 1 }
    }

    /// Goes on to the next values: gauges walk, counters rise.
    fn walk(&mut self, per_gpu: usize) {
        for (at, (_, value)) in self.series.iter_mut().enumerate() {
            self.chance =
                self.chance.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let part = (self.chance >> 40) as f64 / f64::from(1 << 24);
            *value = names::next(at % per_gpu, *value, part);
        }
    }

    fn body(&mut self, load: &Load, request: &mut RequestWriter) -> Result<Vec<u8>> {
        self.walk(load.series);
        let time_ns = now_ns();
        if load.kind != Kind::Push {
            let time_ms = time_ns / 1_000_000;
            for (labels, value) in &self.series {
                let point = [Point { time_ms, value: *value }];
                request.series(labels.iter().map(|(name, value)| (*name, value.as_str())), &point);
            }
            return Ok(request.finish()?);
        }
        self.sequence += 1;
        let series = self.series.iter().map(|(labels, value)| {
            let others = labels[1..].iter().map(|(name, value)| ((*name).to_owned(), value.clone()));
            let sample = [Sample { time_ns, value: *value, step: None }];
            Series::new(&labels[0].1, &others.collect::<Vec<_>>(), "", &sample)
        });
        let node = Node {
            host: names::host(self.nodes.start),
            interval_ms: load.interval.as_millis() as u64,
            agent_id: self.client_id.to_vec(),
            ..Node::default()
        };
        let request = PushRequest {
            client_id: self.client_id.to_vec(),
            sequence: self.sequence,
            series: series.collect(),
            node: Some(node),
            ..PushRequest::default()
        };
        Ok(push::encode(&request)?)
    }
}

fn now_ns() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_nanos()).unwrap_or(i64::MAX) / 1_000_000 * 1_000_000
}

/// One connection to a server.
struct Door {
    head: String,
    stream: BufReader<TcpStream>,
}

impl Door {
    fn open(address: &str, kind: Kind) -> Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        let head = match kind {
            Kind::Push => format!(
                "POST /api/tg/v1/push HTTP/1.1\r\nHost: {address}\r\nContent-Encoding: zstd\r\n\
                 Content-Type: {}\r\nContent-Length: ",
                push::CONTENT_TYPE
            ),
            Kind::Dcgm | Kind::Plain => format!(
                "POST /api/v1/write HTTP/1.1\r\nHost: {address}\r\nContent-Encoding: snappy\r\nContent-Type: {}\r\n\
                 X-Prometheus-Remote-Write-Version: {VERSION_1}\r\nContent-Length: ",
                remote_write::CONTENT_TYPE
            ),
        };
        Ok(Self { head, stream: BufReader::new(stream) })
    }

    /// Posts a body; the status of the answer and its text.
    fn post(&mut self, body: &[u8]) -> Result<(u16, String)> {
        let head = format!("{}{}\r\n\r\n", self.head, body.len());
        self.stream.get_mut().write_all(&[head.as_bytes(), body].concat())?;
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

/// Sends of each `CONNECTIONS`th group, each once in the interval, until it is over.
fn send(address: &str, load: Load, connection: usize, groups: usize, begun: Instant) -> Result<Sent> {
    let mut door = Door::open(address, load.kind)?;
    let mut request = RequestWriter::new();
    let mut own: Vec<(Duration, Group)> = (connection..groups)
        .step_by(CONNECTIONS)
        .map(|number| (load.interval * number as u32 / groups as u32, Group::new(&load, number)))
        .collect();
    let mut sent = Sent::default();
    for round in 0.. {
        for (phase, group) in &mut own {
            let due = load.interval * round + *phase;
            if due >= load.length {
                return Ok(sent);
            }
            std::thread::sleep(due.saturating_sub(begun.elapsed()));
            sent.latest = sent.latest.max(begun.elapsed().saturating_sub(due));
            let body = group.body(&load, &mut request)?;
            let started = Instant::now();
            for attempt in 1.. {
                match door.post(&body)? {
                    (200..300, _) => break,
                    (429 | 503, _) if attempt < TRIES => {
                        sent.again += 1;
                        std::thread::sleep(Duration::from_millis(50));
                    }
                    (status, text) => return Err(format!("the server answered {status}: {text}").into()),
                }
            }
            sent.milliseconds.push(started.elapsed().as_secs_f64() * 1e3);
            sent.samples += group.series.len() as u64;
            sent.requests += 1;
            sent.bytes += body.len() as u64;
        }
    }
    Ok(sent)
}

/// The value below which `part` of the sorted `values` lie.
fn quantile(values: &[f64], part: f64) -> f64 {
    values.get((values.len() as f64 * part) as usize).copied().unwrap_or_default()
}

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [address, kind, numbers @ ..] = &arguments[..] else {
        return Err(
            "usage: fleet_pace HOST:PORT dcgm|plain|push [GPUS] [SERIES_PER_GPU] [INTERVAL] [SECONDS]".into(),
        );
    };
    let kind = match kind.as_str() {
        "dcgm" => Kind::Dcgm,
        "plain" => Kind::Plain,
        "push" => Kind::Push,
        other => return Err(format!("no kind is called `{other}`").into()),
    };
    let mut numbers = numbers.iter().map(|text| text.parse::<f64>());
    let mut next = |default: f64| numbers.next().transpose().map(|number| number.unwrap_or(default));
    let (gpus, series) = (next(16_384.0)? as usize, next(40.0)? as usize);
    let (interval, length) = (Duration::from_secs_f64(next(10.0)?), Duration::from_secs_f64(next(60.0)?));
    let load = Load { kind, gpus, series: series.min(names::SERIES_MAX), interval, length };
    let groups = gpus.div_ceil(GPUS_PER_NODE).div_ceil(load.nodes_per_request());
    let begun = Instant::now();
    let mut all = Sent::default();
    std::thread::scope(|scope| -> Result<()> {
        let work = |connection| move || send(address, load, connection, groups, begun);
        let workers: Vec<_> = (0..CONNECTIONS).map(|connection| scope.spawn(work(connection))).collect();
        for worker in workers {
            let sent = worker.join().map_err(|_panic| "a sender ended by a panic")??;
            all.samples += sent.samples;
            all.requests += sent.requests;
            all.again += sent.again;
            all.bytes += sent.bytes;
            all.latest = all.latest.max(sent.latest);
            all.milliseconds.extend(sent.milliseconds);
        }
        Ok(())
    })?;
    let wall = begun.elapsed().as_secs_f64();
    all.milliseconds.sort_by(f64::total_cmp);
    println!(
        "RESULT {{\"samples\": {}, \"series\": {}, \"wall_seconds\": {wall:.3}, \"requests\": {}, \"sent_again\": {}, \
         \"wire_bytes\": {}, \"late_ms\": {:.0}, \"request_ms\": {{\"p50\": {:.2}, \"p99\": {:.2}, \"max\": {:.2}}}}}",
        all.samples,
        gpus * load.series,
        all.requests,
        all.again,
        all.bytes,
        all.latest.as_secs_f64() * 1e3,
        quantile(&all.milliseconds, 0.5),
        quantile(&all.milliseconds, 0.99),
        all.milliseconds.last().copied().unwrap_or_default(),
    );
    Ok(())
}
