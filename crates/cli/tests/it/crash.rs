//! `kill -9` at random moments while several senders write as fast as they can: what was acknowledged is
//! there once, and the next start succeeds.
//!
//! `CRASH_ROUNDS` is how often (`make crash` does it 200 times), `CRASH_SEED` repeats a run's moments.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use model::Sample;
use wire::push::Series;
use wire::remote_write::{CONTENT_TYPE, Point, RequestWriter};

use crate::process::{DEADLINE, Server, eventually, exported, request, truegauge};
use crate::prometheus::escape;

/// Senders of each door.
const SENDERS: u8 = 2;
/// Series of each sender, and samples of each in one batch.
const SERIES: i64 = 10;
const SAMPLES: i64 = 40;
/// Seals come each second under load, so that kills meet seals, roll-ups and merges as well.
const SETTINGS: [&str; 4] = ["--seal-points", "5000", "--seal-age", "3s"];
/// Time between two samples of a series.
const SPACING_MS: i64 = 250;
const DAY_MS: i64 = 86_400_000;

/// Small numbers from nowhere (xorshift).
struct Chance(u64);

impl Chance {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }
}

fn from_environment(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().map_or(default, |text| text.parse().unwrap())
}

#[derive(Clone, Copy, PartialEq)]
enum Door {
    Push,
    RemoteWrite,
}

/// One who sends batches in order, each again until it is acknowledged.
struct Sender {
    door: Door,
    number: u8,
    /// Batches that were acknowledged; one more may be there.
    acknowledged: AtomicU64,
}

impl Sender {
    fn name(&self) -> String {
        format!("{}{}", if self.door == Door::Push { "pushed" } else { "written" }, self.number)
    }

    /// The value of a sample tells its series and place.
    fn value(series: i64, at: i64) -> f64 {
        (at * SERIES + series) as f64 / 8.0
    }

    fn batch(
        &self,
        number: u64,
        start_ms: i64,
    ) -> (&'static str, Vec<(&'static str, &'static str)>, Vec<u8>) {
        let range = number as i64 * SAMPLES..(number as i64 + 1) * SAMPLES;
        let time_ms = |at: i64| start_ms + at * SPACING_MS;
        if self.door == Door::RemoteWrite {
            let mut writer = RequestWriter::new();
            for series in 0..SERIES {
                let points: Vec<Point> = range
                    .clone()
                    .map(|at| Point { time_ms: time_ms(at), value: Self::value(series, at) })
                    .collect();
                let (name, label) = (self.name(), series.to_string());
                writer.series([("__name__", name.as_str()), ("series", label.as_str())], &points);
            }
            let headers = vec![("content-type", CONTENT_TYPE), ("content-encoding", "snappy")];
            return ("/api/v1/write", headers, writer.finish().unwrap());
        }
        let of = |series: i64| {
            let sample = |at: i64| Sample {
                time_ns: time_ms(at) * 1_000_000,
                value: Self::value(series, at),
                step: Some(at),
            };
            let samples: Vec<Sample> = range.clone().map(sample).collect();
            Series::new(&self.name(), &[("series".to_owned(), series.to_string())], "", &samples)
        };
        let sent = request(&self.name(), self.number, number + 1, (0..SERIES).map(of).collect());
        let headers = vec![("content-type", wire::push::CONTENT_TYPE), ("content-encoding", "zstd")];
        ("/api/tg/v1/push", headers, wire::push::encode(&sent).unwrap())
    }

    /// Sends until told to end; a batch that may have been stored without an answer is seen through first.
    fn send_for_ever(&self, start_ms: i64, address: &Mutex<Option<String>>, ended: &AtomicBool) {
        let mut under_way = false;
        while under_way || !ended.load(Ordering::Relaxed) {
            let number = self.acknowledged.load(Ordering::Relaxed);
            let (path, headers, body) = self.batch(number, start_ms);
            let address = address.lock().unwrap_or_else(PoisonError::into_inner).clone();
            let Some(address) = address else {
                // Without a server nothing is seen through: a check has failed.
                under_way &= !ended.load(Ordering::Relaxed);
                std::thread::sleep(Duration::from_millis(1));
                continue;
            };
            match post(&address, path, &headers, &body) {
                Some(200 | 204) => {
                    self.acknowledged.fetch_add(1, Ordering::Relaxed);
                    under_way = false;
                }
                // The server is gone, or busy: the same again.
                None | Some(429 | 503) => {
                    under_way = true;
                    std::thread::sleep(Duration::from_millis(2));
                }
                Some(status) => panic!("{}: batch {number} was answered {status}", self.name()),
            }
        }
    }

    /// Compares every series with what was acknowledged; the batch under way is there whole or not at all.
    /// Asked are the samples themselves, and what roll-ups say of them.
    fn check(&self, server: &Server, round: u64) {
        let least = self.acknowledged.load(Ordering::Relaxed);
        let expected = |batches: u64| -> (BTreeMap<String, f64>, BTreeMap<String, f64>) {
            let samples = batches as i64 * SAMPLES;
            let of = |f: &dyn Fn(i64) -> f64| {
                (0..SERIES).filter(|_| samples > 0).map(|s| (s.to_string(), f(s))).collect()
            };
            let sum = |series: i64| (samples * (samples - 1) / 2 * SERIES + samples * series) as f64 / 8.0;
            (of(&|_| samples as f64), of(&sum))
        };
        for from in ["&rollups=never", ""] {
            let ask = |function| self.ask(server, function, from);
            let found = (ask("count_over_time"), ask("sum_over_time"));
            assert!(
                found == expected(least) || found == expected(least + 1),
                "round {round}{from}: {} has {found:?}, and {least} batches of {SAMPLES} samples were acknowledged",
                self.name()
            );
        }
    }

    /// A function over all samples of each series, at a time at which roll-ups fit.
    fn ask(&self, server: &Server, function: &str, from: &str) -> BTreeMap<String, f64> {
        let query = format!("{function}({}[9d])", self.name());
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() / 900 * 900;
        let answer = server.get(&format!("/api/v1/query?query={}&time={now}{from}", escape(&query)));
        let rows = answer["data"]["result"].as_array().unwrap();
        let row = |row: &serde_json::Value| {
            let value = row["value"][1].as_str().unwrap().parse().unwrap();
            (row["metric"]["series"].as_str().unwrap().to_owned(), value)
        };
        rows.iter().map(row).collect()
    }

    /// Sample by sample, once everything was acknowledged.
    fn check_whole(&self, server: &Server, start_ms: i64) {
        let samples = self.acknowledged.load(Ordering::Relaxed) as i64 * SAMPLES;
        if self.door == Door::Push {
            let mut found = exported(server, &self.name(), &self.name());
            let mut want: Vec<(i64, f64)> = (0..SERIES)
                .flat_map(|series| (0..samples).map(move |at| (at, Self::value(series, at))))
                .collect();
            let order = |a: &(i64, f64), b: &(i64, f64)| a.1.total_cmp(&b.1);
            found.sort_by(order);
            want.sort_by(order);
            assert!(found == want, "{}: {} samples, wanted {}", self.name(), found.len(), want.len());
            return;
        }
        for series in 0..SERIES {
            let query = format!("{}{{series=\"{series}\"}}[9d]", self.name());
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
            let answer = server.get(&format!("/api/v1/query?query={}&time={now}", escape(&query)));
            let found = answer["data"]["result"][0]["values"].as_array().unwrap().iter();
            let found: Vec<(i64, f64)> = found
                .map(|pair| {
                    let seconds = pair[0].as_f64().unwrap();
                    ((seconds * 1_000.0).round() as i64, pair[1].as_str().unwrap().parse().unwrap())
                })
                .collect();
            let want: Vec<(i64, f64)> =
                (0..samples).map(|at| (start_ms + at * SPACING_MS, Self::value(series, at))).collect();
            assert!(
                found == want,
                "{} {series}: {} samples, wanted {}",
                self.name(),
                found.len(),
                want.len()
            );
        }
    }
}

/// Sends a request; the answer's status, or nothing when there was none.
fn post(address: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Option<u16> {
    let mut stream = TcpStream::connect(address).ok()?;
    stream.set_read_timeout(Some(DEADLINE)).ok()?;
    let mut head = format!("POST {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n");
    for (name, value) in headers {
        head.extend([name, ": ", value, "\r\n"]);
    }
    head.extend([format!("content-length: {}\r\n\r\n", body.len())]);
    stream.write_all(head.as_bytes()).ok()?;
    stream.write_all(body).ok()?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).ok()?;
    // An answer cut short is none.
    let text = String::from_utf8_lossy(&answer);
    text.contains("\r\n\r\n").then(|| text.split(' ').nth(1)?.parse().ok()).flatten()
}

/// How many files lie there that a seal, a roll-up or a merge had not finished.
fn unfinished(home: &Path) -> usize {
    let Ok(files) = std::fs::read_dir(home.join("data/segments")) else { return 0 };
    files.flatten().filter(|file| file.path().extension().is_some_and(|e| e == "tmp")).count()
}

/// Starts a server and kills it while it starts.
fn kill_while_starting(home: &Path, chance: &mut Chance) {
    let data = home.join("data");
    let mut child = truegauge(home)
        .args(["up", "--listen", "127.0.0.1:0", "--data-dir", data.to_str().unwrap()])
        .args(SETTINGS)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    std::thread::sleep(Duration::from_millis(chance.below(150)));
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn kill_9_at_random_moments_loses_nothing_that_was_acknowledged() {
    let rounds = from_environment("CRASH_ROUNDS", 6);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let seed = from_environment("CRASH_SEED", now.as_nanos() as u64 | 1);
    let mut chance = Chance(seed);
    println!("CRASH_SEED={seed}");
    // Days that are over, so that they are rolled up and merged for good while samples come in.
    let start_ms = (now.as_millis() as i64 / DAY_MS - 5) * DAY_MS + DAY_MS / 2;
    let doors = [Door::Push, Door::RemoteWrite];
    let senders: Vec<Sender> = (1..=SENDERS)
        .flat_map(|number| doors.map(|door| Sender { door, number, acknowledged: AtomicU64::new(0) }))
        .collect();
    let mut server = Server::start(&SETTINGS);
    let home = server.home.clone();
    let (address, ended) = (Mutex::new(Some(server.address().to_owned())), AtomicBool::new(false));
    let (mut interrupted, mut slowest) = (0, Duration::ZERO);
    std::thread::scope(|scope| {
        for sender in &senders {
            scope.spawn(|| sender.send_for_ever(start_ms, &address, &ended));
        }
        // Lets the senders go when a check below fails.
        let guard = Ending(&ended);
        for round in 1..=rounds {
            let before: Vec<u64> = senders.iter().map(|s| s.acknowledged.load(Ordering::Relaxed)).collect();
            std::thread::sleep(Duration::from_millis(chance.below(1_500)));
            eventually("every sender is heard", || {
                let heard = |(s, before): (&Sender, &u64)| s.acknowledged.load(Ordering::Relaxed) > *before;
                senders.iter().zip(&before).all(heard).then_some(())
            });
            // Its port may be another's from now on.
            *address.lock().unwrap_or_else(PoisonError::into_inner) = None;
            server.kill();
            interrupted += usize::from(unfinished(&home) > 0);
            if chance.below(4) == 0 {
                kill_while_starting(&home, &mut chance);
            }
            let started = Instant::now();
            server.restart();
            slowest = slowest.max(started.elapsed());
            // What is asked now is compared with what nobody adds to.
            for sender in &senders {
                sender.check(&server, round);
            }
            *address.lock().unwrap_or_else(PoisonError::into_inner) = Some(server.address().to_owned());
            let status = server.get("/api/tg/v1/status");
            let damage = &status["store"]["damage"];
            assert_eq!(damage.as_array().map(Vec::len), Some(0), "round {round}: {damage}");
        }
        drop(guard);
    });
    for sender in &senders {
        sender.check_whole(&server, start_ms);
    }
    let batches: u64 = senders.iter().map(|s| s.acknowledged.load(Ordering::Relaxed)).sum();
    println!(
        "{rounds} kills, {interrupted} of them while files were written; {} samples acknowledged, all there once; slowest start {slowest:?}",
        batches as i64 * SERIES * SAMPLES,
    );
}

/// Ends the senders however a scope is left.
struct Ending<'a>(&'a AtomicBool);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
