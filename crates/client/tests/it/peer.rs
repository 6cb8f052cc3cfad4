//! A peer that takes pushes, can be stopped and started, and can misbehave. It stands in for the
//! server where delivery is tested; the real one is tested with it in `cli`.

use std::collections::{BTreeMap, HashMap};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;

use client::Config;
use model::{RunChange, Sample};
use wire::push::{CONTENT_TYPE, Count, Elsewhere, PushRequest, PushResponse, RefusedSeries};

/// What it does with a push.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Manner {
    /// Stores and acknowledges.
    Serve,
    /// Answers with this status and stores nothing.
    Status(u16),
    /// Stores, and hangs up without a word.
    StoreAndHangUp,
    /// Reads and does not answer, until the manner changes.
    Hang,
}

#[derive(Default)]
pub(crate) struct Seen {
    manner: Option<Manner>,
    /// Bytes of each request by writer and sequence.
    bodies: HashMap<(Vec<u8>, u64), Vec<u8>>,
    /// Requests stored, in order of arrival.
    pub(crate) requests: Vec<PushRequest>,
    /// Pushes that came, the refused and repeated ones included.
    pub(crate) pushes: u64,
    /// Answer to the question for a run's series; 404 without.
    pub(crate) metrics: Option<serde_json::Value>,
    /// Answer to the question for a run; 404 without.
    pub(crate) run: Option<serde_json::Value>,
    /// A metric of which it takes no points, as when a run has too many series.
    pub(crate) refuses: Option<String>,
    /// Devices that it has from other processes.
    pub(crate) elsewhere: Vec<Elsewhere>,
    /// Wanted `authorization`.
    pub(crate) token: Option<String>,
    connections: Vec<TcpStream>,
}

pub(crate) struct Peer {
    address: SocketAddr,
    seen: Arc<Mutex<Seen>>,
    stop: Arc<AtomicBool>,
    accepting: Option<JoinHandle<()>>,
}

impl Peer {
    pub(crate) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let mut peer = Self { address, seen: Arc::default(), stop: Arc::default(), accepting: None };
        peer.accept(listener);
        peer
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// A config that sends here and spools to `dir`, without the sampler.
    pub(crate) fn config(&self, dir: &std::path::Path) -> Config {
        Config { url: Some(self.url()), ..crate::support::config(dir) }
    }

    pub(crate) fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap()
    }

    pub(crate) fn set(&self, manner: Manner) {
        self.seen().manner = Some(manner);
    }

    /// Goes away at once, as a killed server does; what was stored stays.
    pub(crate) fn stop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        drop(TcpStream::connect(self.address));
        if let Some(thread) = self.accepting.take() {
            thread.join().unwrap();
        }
        for connection in self.seen().connections.drain(..) {
            drop(connection.shutdown(std::net::Shutdown::Both));
        }
    }

    /// Comes back at the same address.
    pub(crate) fn start_again(&mut self) {
        self.stop.store(false, Ordering::SeqCst);
        let listener = TcpListener::bind(self.address).unwrap();
        self.accept(listener);
    }

    fn accept(&mut self, listener: TcpListener) {
        let (seen, stop) = (Arc::clone(&self.seen), Arc::clone(&self.stop));
        self.accepting = Some(std::thread::spawn(move || {
            for connection in listener.incoming() {
                if stop.load(Ordering::SeqCst) {
                    return;
                }
                let Ok(connection) = connection else { continue };
                seen.lock().unwrap().connections.push(connection.try_clone().unwrap());
                let seen = Arc::clone(&seen);
                std::thread::spawn(move || converse(connection, &seen));
            }
        }));
    }

    /// Points by metric name and labels, in order of arrival.
    pub(crate) fn points(&self) -> BTreeMap<String, Vec<Sample>> {
        let mut points: BTreeMap<String, Vec<Sample>> = BTreeMap::new();
        for series in self.seen().requests.iter().flat_map(|r| &r.series) {
            let labels: Vec<String> =
                series.labels.iter().map(|l| format!("{}={}", l.key, l.value)).collect();
            let key = format!("{}{{{}}}{}", series.name, labels.join(","), series.scale);
            points.entry(key).or_default().extend(series.samples().unwrap());
        }
        points
    }

    /// All points' count.
    pub(crate) fn count(&self) -> u64 {
        self.points().values().map(|points| points.len() as u64).sum()
    }

    /// Steps of one series, sorted.
    pub(crate) fn steps(&self, key: &str) -> Vec<i64> {
        let mut steps: Vec<i64> =
            self.points().get(key).into_iter().flatten().filter_map(|p| p.step).collect();
        steps.sort_unstable();
        steps
    }

    /// What the requests say of the run.
    pub(crate) fn changes(&self) -> Vec<RunChange> {
        self.seen().requests.iter().map(|r| r.run_change().unwrap()).collect()
    }

    /// Counts that the client has reported, by reason.
    pub(crate) fn dropped(&self) -> BTreeMap<String, u64> {
        let mut sums = BTreeMap::new();
        for (reason, count) in self.changes().into_iter().flat_map(|change| change.dropped) {
            *sums.entry(reason).or_default() += count;
        }
        sums
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        if self.accepting.is_some() {
            self.stop();
        }
    }
}

/// Answers requests until the other side goes.
fn converse(connection: TcpStream, seen: &Mutex<Seen>) {
    let mut reader = BufReader::new(connection.try_clone().unwrap());
    let mut writer = connection;
    while let Some((line, headers, body)) = read_request(&mut reader) {
        let answer = if line.starts_with("POST /api/tg/v1/push ") {
            push(&headers, &body, seen)
        } else {
            Some(question(&line, seen))
        };
        let Some((status, kind, body)) = answer else {
            return drop(writer.shutdown(std::net::Shutdown::Both));
        };
        let head =
            format!("HTTP/1.1 {status} X\r\ncontent-type: {kind}\r\ncontent-length: {}\r\n\r\n", body.len());
        if writer.write_all(&[head.as_bytes(), &body].concat()).is_err() {
            return;
        }
    }
}

pub(crate) type Request = (String, HashMap<String, String>, Vec<u8>);

pub(crate) fn read_request(reader: &mut BufReader<TcpStream>) -> Option<Request> {
    let mut line = String::new();
    reader.read_line(&mut line).ok().filter(|n| *n > 0)?;
    let mut headers = HashMap::new();
    loop {
        let mut header = String::new();
        reader.read_line(&mut header).ok().filter(|n| *n > 0)?;
        let Some((name, value)) = header.trim_end().split_once(':') else { break };
        headers.insert(name.to_ascii_lowercase(), value.trim().to_owned());
    }
    let length = headers.get("content-length").and_then(|v| v.parse().ok()).unwrap_or(0);
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    Some((line, headers, body))
}

/// Status, content type, body.
type Reply = (u16, &'static str, Vec<u8>);
/// `None` hangs up.
type Answer = Option<Reply>;

fn question(line: &str, seen: &Mutex<Seen>) -> Reply {
    let seen = seen.lock().unwrap();
    let answer = if line.contains("/metrics ") { &seen.metrics } else { &seen.run };
    let (status, value) = match (seen.manner, answer) {
        (Some(Manner::Status(status)), _) => (status, serde_json::json!({"error": {"message": "no"}})),
        (_, Some(value)) => (200, value.clone()),
        _ => (404, serde_json::json!({"error": {"code": "not_found", "message": "no such run"}})),
    };
    (status, "application/json", value.to_string().into_bytes())
}

fn push(headers: &HashMap<String, String>, body: &[u8], seen: &Mutex<Seen>) -> Answer {
    let mut lock = seen.lock().unwrap();
    lock.pushes += 1;
    assert_eq!(headers["content-type"], CONTENT_TYPE);
    assert_eq!(headers["content-encoding"], "zstd");
    if lock.token.is_some() && lock.token.as_ref() != headers.get("authorization") {
        return Some((401, "application/json", br#"{"error":{"message":"a token is wanted"}}"#.to_vec()));
    }
    let manner = lock.manner.unwrap_or(Manner::Serve);
    match manner {
        Manner::Status(status) => {
            return Some((status, "application/json", br#"{"error":{"message":"not now"}}"#.to_vec()));
        }
        Manner::Hang => {
            drop(lock);
            while seen.lock().unwrap().manner == Some(Manner::Hang) {
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
            return None;
        }
        Manner::Serve | Manner::StoreAndHangUp => {}
    }
    let request = wire::push::decode(body).unwrap();
    let key = (request.client_id.clone(), request.sequence);
    let before = lock.bodies.insert(key, body.to_vec());
    let duplicate = before.is_some();
    assert!(
        before.is_none_or(|before| before == body),
        "sequence {} came with other bytes",
        request.sequence
    );
    if !duplicate {
        lock.requests.push(request.clone());
    }
    let stored = if duplicate { 0 } else { request.series.iter().map(|s| s.values.len() as u64).sum() };
    let mut answer = PushResponse { stored, duplicate, ..PushResponse::default() };
    refuse(&mut answer, &request, &lock);
    let answer = prost::Message::encode_to_vec(&answer);
    (manner == Manner::Serve).then_some((200, CONTENT_TYPE, answer))
}

/// Says what is not taken; the points are kept, so that a test can count them.
fn refuse(answer: &mut PushResponse, request: &PushRequest, seen: &Seen) {
    for (index, series) in request.series.iter().enumerate() {
        if Some(&series.name) == seen.refuses.as_ref() {
            let (index, count, reason) =
                (index as u32, series.values.len() as u64, "series_limit".to_owned());
            answer.refused.push(Count { reason: reason.clone(), count, example: series.name.clone() });
            answer.refused_series.push(RefusedSeries { index, reason, count });
        }
        let gpu = series.labels.iter().find(|label| label.key == "gpu").map(|label| &label.value);
        let elsewhere = seen.elsewhere.iter().find(|e| Some(&e.gpu.to_string()) == gpu);
        answer.elsewhere.extend(
            elsewhere.filter(|e| !answer.elsewhere.contains(e)).cloned().into_iter().collect::<Vec<_>>(),
        );
    }
}
