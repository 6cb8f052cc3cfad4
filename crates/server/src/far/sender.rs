//! Sends what waits: one request under way a shard, in order, until the far storage has taken it.
//!
//! What fails for a reason of the far end or of the way there is tried again for as long as it takes.
//! What is refused by itself is split until the refused samples stand alone, and those are set aside.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use axum::http::{HeaderName, Method, StatusCode, header};
use bytes::Bytes;
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use wire::remote_write::{self, Item, Point, RequestWriter, Version};

use super::Far;
use super::http::{Ask, Connection};
use super::queue::{Record, Shard, decode};
use super::refused::{Refusal, WORDS_BYTES_MAX};
use crate::clock::now_ms;

/// Least and longest pause between two tries.
const PAUSE_MIN: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(5);
/// Longest pause that the far end may ask for.
const RETRY_AFTER_MAX: Duration = Duration::from_mins(5);
/// Unpacked bytes of one request, about.
const REQUEST_BYTES: usize = 8 << 20;
/// Records of one request.
const RECORDS_MAX: usize = 256;
/// Requests that are spent on finding the refused samples of one; then parts are set aside whole.
const SPLITS_MAX: u32 = 500;
/// How long a shard that is well may go on after the server was told to stop.
const DRAIN_TIME_MAX: Duration = Duration::from_secs(2);
/// Words of Prometheus for samples that it will not take the next time either, whatever its status.
const NEVER_TAKEN: [&str; 4] =
    ["too old sample", "out of bounds", "out of order sample", "duplicate sample for timestamp"];
/// How often an idle shard looks around.
const IDLE: Duration = Duration::from_millis(500);

pub(super) static HEADERS: [(HeaderName, &str); 3] = [
    (header::CONTENT_TYPE, remote_write::CONTENT_TYPE),
    (header::CONTENT_ENCODING, "snappy"),
    (HeaderName::from_static("x-prometheus-remote-write-version"), remote_write::VERSION_1),
];

/// Where records come from.
pub(super) enum Spool {
    /// This start's.
    Live(Arc<Shard>),
    /// An earlier one's; it ends.
    Left(Box<spool::Reader>),
}

/// What became of a try.
enum Said {
    Taken,
    /// Try again, no earlier than after so long.
    Later(String, Option<Duration>),
    /// This will never be taken.
    Never(u16, String),
}

/// A request or a part of one.
struct Part {
    body: Vec<u8>,
    samples: u64,
}

/// One shard's work.
pub(super) struct Sender {
    far: Arc<Far>,
    spool: Spool,
    connection: Option<Connection>,
    pause: Duration,
    /// Set by the last try.
    fails: bool,
}

impl Sender {
    pub(super) fn new(far: Arc<Far>, spool: Spool) -> Self {
        Self { far, spool, connection: None, pause: PAUSE_MIN, fails: false }
    }

    /// Sends until the server stops, or a left spool is at its end; says whether it is.
    pub(super) fn run(mut self) -> bool {
        let mut stop_at: Option<Instant> = None;
        loop {
            if self.far.is_stopping() {
                let until = *stop_at.get_or_insert_with(|| Instant::now() + DRAIN_TIME_MAX);
                if self.fails || Instant::now() > until {
                    return false;
                }
            }
            let records = match self.read() {
                Ok(records) => records,
                Err(error) => {
                    tracing::error!(%error, "cannot read what waits for the far storage");
                    self.far.pause(PAUSE_MAX);
                    continue;
                }
            };
            if records.is_empty() {
                match &self.spool {
                    Spool::Left(_) => return true,
                    Spool::Live(_) if stop_at.is_some() => return true,
                    Spool::Live(shard) => shard.wait(IDLE),
                }
            } else if !self.deliver(&records) || !self.consume(&records) {
                return false;
            }
        }
    }

    /// The next records, as many as make up a request.
    fn read(&mut self) -> Result<Vec<Record>, spool::ReadError> {
        let samples_max = self.far.config.request_samples_max as u64;
        let (mut records, mut samples, mut bytes): (Vec<Record>, u64, usize) = (Vec::new(), 0, 0);
        while records.len() < RECORDS_MAX && samples < samples_max && bytes < REQUEST_BYTES {
            let next = match &mut self.spool {
                Spool::Live(shard) => shard.lock().next()?,
                Spool::Left(reader) => reader.next()?,
            };
            let Some(next) = next else { break };
            let position = next.position;
            if let Some(record) = decode(next) {
                samples += u64::from(record.samples);
                bytes += record.body.len() * 8;
                records.push(record);
            } else {
                tracing::error!(
                    "a record for the far storage is of a version that is not known: it is passed over"
                );
                self.far.counts.damaged.fetch_add(1, Ordering::Relaxed);
                if records.is_empty() {
                    self.step_over(position)?;
                }
            }
        }
        let damage = match &mut self.spool {
            Spool::Live(shard) => shard.lock().take_damage(),
            Spool::Left(reader) => reader.take_damage(),
        };
        for place in damage {
            self.far.counts.damaged.fetch_add(1, Ordering::Relaxed);
            tracing::error!(file = %place.file.display(), offset = place.offset, bytes = place.bytes, why = ?place.why,
                "what waits for the far storage is damaged, the rest is sent");
        }
        if let (Spool::Live(shard), Some(first)) = (&self.spool, records.first()) {
            shard.oldest_ms.store(first.kept_ms, Ordering::Relaxed);
        }
        Ok(records)
    }

    fn step_over(&mut self, position: spool::Position) -> Result<(), spool::ReadError> {
        match &mut self.spool {
            Spool::Live(shard) => shard.lock().consume(position),
            Spool::Left(reader) => reader.consume(position),
        }
    }

    /// Frees what was delivered.
    fn consume(&mut self, records: &[Record]) -> bool {
        for record in records {
            if let Err(error) = self.step_over(record.position) {
                tracing::error!(%error, "cannot free what the far storage has taken");
                return false;
            }
            self.far.queue.bytes.fetch_sub(record.bytes, Ordering::Relaxed);
            if matches!(self.spool, Spool::Live(_)) {
                self.far.counts.waiting.fetch_sub(u64::from(record.samples), Ordering::Relaxed);
            }
        }
        if let Spool::Live(shard) = &self.spool {
            let spool = shard.lock();
            if spool.is_drained() {
                shard.oldest_ms.store(0, Ordering::Relaxed);
            }
        }
        true
    }

    /// Delivers records as one request; `false` when the server stops before they are taken.
    fn deliver(&mut self, records: &[Record]) -> bool {
        let samples = records.iter().map(|record| u64::from(record.samples)).sum();
        let body = match records {
            [one] => one.body.clone(),
            many => match merge(many) {
                Ok(body) => body,
                Err(error) => {
                    // Checksummed, so this is a mistake of ours: what is whole goes by itself.
                    tracing::error!(%error, "cannot join records for the far storage");
                    return many.iter().all(|one| self.deliver(std::slice::from_ref(one)));
                }
            },
        };
        let mut parts = vec![Part { body, samples }];
        let mut splits = 0;
        let mut set_aside: Vec<(u16, String, Part)> = Vec::new();
        while let Some(part) = parts.pop() {
            match self.try_until_said(&part) {
                None => return false,
                Some(Said::Taken) => {
                    self.far.counts.sent.fetch_add(part.samples, Ordering::Relaxed);
                    self.far.counts.sent_ms.store(now_ms(), Ordering::Relaxed);
                }
                Some(Said::Never(status, words)) => match halves(&part).filter(|_| splits < SPLITS_MAX) {
                    Some([first, second]) => {
                        splits += 1;
                        parts.push(second);
                        parts.push(first);
                    }
                    None => set_aside.push((status, words, part)),
                },
                Some(Said::Later(..)) => parts.push(part),
            }
        }
        self.keep_refused(set_aside);
        true
    }

    /// Tries until the far end takes or refuses a request; none when the server stops.
    fn try_until_said(&mut self, part: &Part) -> Option<Said> {
        loop {
            match self.once(part) {
                Said::Later(words, after) => {
                    self.fails = true;
                    self.far.note_failure(&words);
                    let pause = after.map_or(self.pause, |after| after.clamp(PAUSE_MIN, RETRY_AFTER_MAX));
                    self.pause = (self.pause * 2).min(PAUSE_MAX);
                    if self.far.pause(jittered(pause)) {
                        return None;
                    }
                }
                said => {
                    (self.fails, self.pause) = (false, PAUSE_MIN);
                    self.far.note_success();
                    return Some(said);
                }
            }
        }
    }

    fn once(&mut self, part: &Part) -> Said {
        let far = Arc::clone(&self.far);
        let connection = self.connection.take();
        let body = Bytes::copy_from_slice(&part.body);
        let limit = far.config.request_time_max;
        let work = async {
            tokio::select! {
                said = tokio::time::timeout(limit, post(&far, connection, body)) => said,
                () = over(&far) => Ok(Err("the server stops".to_owned())),
            }
        };
        let said = match far.runtime.block_on(work) {
            Ok(Ok((said, connection))) => {
                self.connection = connection;
                said
            }
            Ok(Err(words)) => Said::Later(words, None),
            Err(_elapsed) => Said::Later(format!("no answer within {} s", limit.as_secs()), None),
        };
        let outcome = match &said {
            Said::Taken => "taken",
            Said::Later(..) => "later",
            Said::Never(..) => "refused",
        };
        self.far.counts.requests.add(&[outcome], 1);
        said
    }

    /// Sets refused samples aside, those with one reason together.
    fn keep_refused(&self, set_aside: Vec<(u16, String, Part)>) {
        let mut by_words: Vec<(u16, String, Vec<Part>)> = Vec::new();
        for (status, words, part) in set_aside {
            match by_words.iter_mut().find(|(s, w, _)| (*s, w.as_str()) == (status, words.as_str())) {
                Some((.., parts)) => parts.push(part),
                None => by_words.push((status, words, vec![part])),
            }
        }
        for (status, words, parts) in by_words {
            let samples = parts.iter().map(|part| part.samples).sum();
            let Some((body, series, (first_ms, last_ms))) = joined(&parts) else { continue };
            let entry = Refusal {
                id: 0,
                time_ms: now_ms(),
                status,
                words,
                samples,
                series,
                first_ms,
                last_ms,
                bytes: 0,
            };
            self.far.counts.refused.fetch_add(samples, Ordering::Relaxed);
            tracing::warn!(
                samples,
                status,
                words = entry.words,
                series = entry.series,
                "the far storage refuses samples: they are set aside (`truegauge doctor`)"
            );
            if let Err(error) = self.far.refused.keep(entry, &body) {
                tracing::error!(%error, samples, "cannot set aside what the far storage refused");
            }
        }
    }
}

/// Returns a while after the server was told to stop: a far end that is silent does not hold it up.
async fn over(far: &Far) {
    while !far.is_stopping() {
        tokio::time::sleep(IDLE).await;
    }
    tokio::time::sleep(DRAIN_TIME_MAX).await;
}

/// Posts a body; what the far end said, and the connection if it can be used again.
async fn post(
    far: &Far,
    connection: Option<Connection>,
    body: Bytes,
) -> Result<(Said, Option<Connection>), String> {
    let ask = |body| Ask { method: Method::POST, below: "", headers: &HEADERS, body };
    let kept = match connection {
        // The far end may have closed it meanwhile, as VictoriaMetrics does after two minutes.
        Some(mut kept) if !kept.is_closed() => {
            let answer = far.client.send(&mut kept, &far.write, ask(body.clone())).await;
            answer.ok().map(|answer| (kept, answer))
        }
        _ => None,
    };
    let (connection, answer) = if let Some(pair) = kept {
        pair
    } else {
        let mut fresh = far.client.connect(&far.write).await?;
        let answer = far.client.send(&mut fresh, &far.write, ask(body)).await?;
        (fresh, answer)
    };
    let status = answer.status();
    let after = answer.headers().get(header::RETRY_AFTER).and_then(|v| v.to_str().ok());
    let after = after.and_then(|text| text.trim().parse().ok()).map(Duration::from_secs);
    let words = words(answer.into_body()).await;
    let usable = words.is_some() && !connection.is_closed();
    let words = words.unwrap_or_default();
    Ok((judge(status, words, after), usable.then_some(connection)))
}

/// The answer's text in one line, none when it broke off.
async fn words(body: Incoming) -> Option<String> {
    let bytes = Limited::new(body, 64 << 10).collect().await.ok()?.to_bytes();
    let text = String::from_utf8_lossy(&bytes);
    let line: String = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let mut line: String = line.chars().filter(|c| !c.is_control()).collect();
    if line.len() > WORDS_BYTES_MAX {
        let cut = (0..=WORDS_BYTES_MAX).rev().find(|at| line.is_char_boundary(*at)).unwrap_or(0);
        line.truncate(cut);
    }
    Some(line)
}

fn judge(status: StatusCode, words: String, after: Option<Duration>) -> Said {
    let said = || if words.is_empty() { status.to_string() } else { format!("{status}: {words}") };
    match status.as_u16() {
        200..=299 => Said::Taken,
        // Not a fault of the samples: a wrong address or credential is mended, and nothing is lost.
        300..=399 => Said::Later(format!("it redirects ({status}), which is not followed"), after),
        401 | 403 => Said::Later(format!("it refuses our credentials: {}", said()), after),
        // Prometheus answers with 500 to samples behind its out-of-order window.
        500 if NEVER_TAKEN.iter().any(|known| words.contains(known)) => Said::Never(500, words),
        404 | 405 | 408 | 429 | 500..=599 => Said::Later(said(), after),
        code => Said::Never(code, words),
    }
}

/// `pause` less up to a third, so that shards and servers don't come back all at once.
fn jittered(pause: Duration) -> Duration {
    let mut byte = [0];
    let part = if getrandom::fill(&mut byte).is_ok() { f64::from(byte[0]) / 256.0 } else { 0.5 };
    pause.mul_f64(1.0 - part / 3.0)
}

fn merge(records: &[Record]) -> Result<Vec<u8>, remote_write::RemoteWriteError> {
    let mut writer = RequestWriter::new();
    for record in records {
        writer.extend(&remote_write::decompress(&record.body)?);
    }
    writer.finish()
}

/// Labels of a series and its points.
type Row = (Vec<(String, String)>, Vec<Point>);

fn rows(body: &[u8]) -> Option<Vec<Row>> {
    let plain = remote_write::decompress(body).ok()?;
    let mut rows = Vec::new();
    let read = remote_write::read(Version::V1, &plain, |item| {
        if let Item::Series(series) = item {
            let labels = series.labels.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
            rows.push((labels, series.samples.clone()));
        }
    });
    read.ok().map(|()| rows)
}

fn pack(rows: &[Row]) -> Option<Part> {
    let mut writer = RequestWriter::new();
    for (labels, points) in rows {
        writer.series(labels.iter().map(|(k, v)| (k.as_str(), v.as_str())), points);
    }
    let samples = rows.iter().map(|(_, points)| points.len() as u64).sum();
    Some(Part { body: writer.finish().ok()?, samples })
}

/// Cuts a request in two, by series and then by time; none when it holds one sample.
fn halves(part: &Part) -> Option<[Part; 2]> {
    let mut first = rows(&part.body)?;
    let second = if first.len() > 1 {
        first.split_off(first.len() / 2)
    } else {
        let (labels, points) = first.first_mut().filter(|(_, points)| points.len() > 1)?;
        vec![(labels.clone(), points.split_off(points.len() / 2))]
    };
    Some([pack(&first)?, pack(&second)?])
}

/// Several parts as one body, with one of their series and the first and last time.
fn joined(parts: &[Part]) -> Option<(Vec<u8>, String, (i64, i64))> {
    let all: Vec<Row> = parts.iter().filter_map(|part| rows(&part.body)).flatten().collect();
    let (labels, _) = all.first()?;
    let series = model::Labels::from_pairs(labels.iter().map(|(k, v)| (k.as_str(), v.as_str()))).to_string();
    let times = all.iter().flat_map(|(_, points)| points.iter().map(|point| point.time_ms));
    let span = times.fold((i64::MAX, i64::MIN), |(a, b), ms| (a.min(ms), b.max(ms)));
    let series = series.chars().take(WORDS_BYTES_MAX).collect();
    Some((pack(&all)?.body, series, span))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(series: usize, points: usize) -> Part {
        let row = |n: usize| {
            let point = |ms: usize| Point { time_ms: ms as i64, value: n as f64 };
            (vec![("__name__".to_owned(), format!("m{n}"))], (0..points).map(point).collect())
        };
        pack(&(0..series).map(row).collect::<Vec<_>>()).unwrap()
    }

    #[test]
    fn halves_hold_what_the_whole_held_and_end_at_one_sample() {
        let mut parts = vec![part(5, 3)];
        let (mut alone, mut requests) = (Vec::new(), 0);
        while let Some(part) = parts.pop() {
            requests += 1;
            match halves(&part) {
                Some([a, b]) => {
                    assert_eq!(a.samples + b.samples, part.samples);
                    parts.extend([a, b]);
                }
                None => alone.push(part),
            }
        }
        assert_eq!((alone.len(), requests), (15, 29));
        let (body, series, span) = joined(&alone).unwrap();
        assert_eq!((rows(&body).unwrap().len(), span), (15, (0, 2)));
        assert!(series.starts_with('m'));
    }

    #[test]
    fn only_what_will_never_be_taken_is_refused() {
        let said = |status: u16| judge(StatusCode::from_u16(status).unwrap(), String::new(), None);
        for status in [400, 409, 413, 415, 422] {
            assert!(matches!(said(status), Said::Never(..)), "{status}");
        }
        for status in [301, 401, 403, 404, 408, 429, 500, 502, 503, 504] {
            assert!(matches!(said(status), Said::Later(..)), "{status}");
        }
        assert!(matches!(said(204), Said::Taken));
        let too_old = judge(StatusCode::INTERNAL_SERVER_ERROR, "too old sample".to_owned(), None);
        assert!(matches!(too_old, Said::Never(500, _)));
    }
}
