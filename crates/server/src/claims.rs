//! Cards that several processes of a run see: who reports each, where no lock tells them.
//!
//! Processes of a node share locks and settle it among themselves. Pods that share a card and no folder
//! for locks can't: each finds the card free. Here they meet. The first to send points of a card keeps
//! it, the points of others are refused until its own have ended for a while. All is judged by the times
//! of the points, so that an old spool is taken or refused as it would have been when it was written.
//!
//! What is known is what reports say (a card is its machine's boot id and its UUID) and which points
//! came. It is gathered anew from the run after a start of the server.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};

use model::{
    Arbitration, AttributeValue, CAPTURE_PREFIX, CaptureOwner, CaptureReport, DeviceRole, NANOS_PER_SECOND,
    RunChange, RunId, RunRecord, STALE_AFTER_SECONDS, Sample, WriterId,
};
use store::{SeriesBatch, SeriesInfo};
use wire::push::Elsewhere;

use crate::app::Shared;

/// Start of the names of a card's series.
const GPU_PREFIX: &str = "system/gpu/";
/// Reason for which points are refused.
pub(crate) const REFUSED: &str = "gpu_reported_elsewhere";
/// Most runs that are kept in mind; beyond it all are forgotten, and gathered anew as they send.
const RUNS_MAX: usize = 4_096;
/// Most that is kept in mind of one run, in cards that its writers name, each counted for each of them; and of
/// all runs together. What a run has beyond is taken from everybody: it is no job on machines.
const NAMED_OF_RUN_MAX: usize = 1 << 19;
const NAMED_OF_ALL_MAX: usize = 1 << 21;
/// Most stretches of reporting that are kept of a card.
const SPANS_MAX: usize = 64;
/// The least time without a point after which a card is free, nanoseconds.
const PATIENCE_NS: i64 = STALE_AFTER_SECONDS as i64 * NANOS_PER_SECOND;
/// The same in samples of its reporter.
const PATIENCE_INTERVALS: f64 = 3.0;
/// Bytes of reports of one run that are read at most.
pub(crate) const REPORT_BYTES_MAX: usize = 32 << 20;

/// What is known of runs that send points of cards.
#[derive(Debug, Default)]
pub(crate) struct Claims(Mutex<HashMap<RunId, RunClaims>>);

#[derive(Debug, Default)]
struct RunClaims {
    writers: HashMap<WriterId, Writer>,
    /// By boot id and UUID: the place in `cards`.
    by_name: HashMap<(String, String), usize>,
    cards: Vec<Vec<Span>>,
    /// How many cards the writers name, each counted for each of them.
    named: usize,
    /// Whose points of which card were refused last, and who has it.
    refused: HashMap<(WriterId, u32), CaptureOwner>,
}

/// What a writer's report says of it.
#[derive(Debug, Clone, PartialEq)]
struct Writer {
    itself: CaptureOwner,
    locks: Locks,
    patience_ns: i64,
    /// The label `gpu` to the place of the card.
    cards: HashMap<u32, usize>,
    ended_ns: Option<i64>,
}

/// Whose locks a process sees.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Locks {
    /// Those in this folder.
    Folder(String),
    /// Those of everybody on the host, as far as is known.
    Host(String),
    /// Nobody's.
    None,
}

/// A stretch of time in which one writer reported a card.
#[derive(Debug, Clone, Copy)]
struct Span {
    writer: WriterId,
    first_ns: i64,
    last_ns: i64,
}

/// The claims of one run while one request is looked at.
pub(crate) struct Judge<'c> {
    all: MutexGuard<'c, HashMap<RunId, RunClaims>>,
    run: RunId,
    writer: WriterId,
}

impl Claims {
    /// Takes note of what a request says, and gives who is to judge its points; none where it has
    /// nothing to do with cards.
    pub(crate) fn judge<'c>(
        &'c self,
        shared: &Shared,
        change: &RunChange,
        writer: WriterId,
        names: impl IntoIterator<Item = &'c str>,
    ) -> Option<Judge<'c>> {
        let says = change.attributes.iter().any(|(key, _)| key.starts_with(CAPTURE_PREFIX));
        let has_points = names.into_iter().any(|name| name.starts_with(GPU_PREFIX));
        let ended_ns = change.session.as_ref().filter(|(_, event)| event.end.is_some());
        if !says && !has_points && ended_ns.is_none() {
            return None;
        }
        // Reports are read before others have to wait for this request.
        let reports: Vec<CaptureReport> =
            change.attributes.iter().filter_map(|(key, value)| report_of(key, value)).collect();
        let id = change.path.id();
        let is_known = self.lock().contains_key(&id);
        // One that only ends has nothing to be judged; its end is in the run for later.
        if !is_known && !says && !has_points {
            return None;
        }
        let from_store = || shared.store.run(id).map(|run| gather(&run, &shared.store.run_series(id)));
        let gathered = if is_known { None } else { from_store() };
        let mut all = self.lock();
        if !all.contains_key(&id) {
            if all.len() >= RUNS_MAX || all.values().map(RunClaims::size).sum::<usize>() >= NAMED_OF_ALL_MAX {
                all.clear();
            }
            all.insert(id, gathered.or_else(from_store).unwrap_or_default());
        }
        let claims = all.get_mut(&id)?;
        for report in &reports {
            claims.learn(writer, report);
        }
        if let (Some((_, event)), Some(known)) = (ended_ns, claims.writers.get_mut(&writer)) {
            known.ended_ns = Some(event.time_ns);
        }
        has_points.then_some(Judge { all, run: id, writer })
    }

    /// Cards of a run whose points were refused last: the process by host and id, the label `gpu`, and
    /// who has the card.
    pub(crate) fn elsewhere(&self, id: RunId) -> HashMap<(String, u32, u32), CaptureOwner> {
        let all = self.lock();
        let Some(claims) = all.get(&id) else { return HashMap::new() };
        let told = |((writer, gpu), owner): (&(WriterId, u32), &CaptureOwner)| {
            let itself = &claims.writers.get(writer)?.itself;
            Some(((itself.host.clone(), itself.pid, *gpu), owner.clone()))
        };
        claims.refused.iter().filter_map(told).collect()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<RunId, RunClaims>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Judge<'_> {
    /// Takes out of a series the points of a card that another process reports; how many, and who it is.
    pub(crate) fn strip(&mut self, series: &mut SeriesBatch) -> Option<(u64, Elsewhere)> {
        if !series.identity.display.starts_with(GPU_PREFIX) {
            return None;
        }
        let gpu: u32 = series.identity.labels.get("gpu")?.parse().ok()?;
        let claims = self.all.get_mut(&self.run)?;
        let (refused, owner) = claims.strip(self.writer, gpu, &mut series.samples)?;
        let CaptureOwner { host, pid, rank } = owner;
        Some((refused, Elsewhere { gpu, host, pid, rank }))
    }
}

/// Most cards that an answer names.
const NAMED_MAX: usize = 256;

/// Notes that a card is another's, once.
pub(crate) fn name(named: &mut Vec<Elsewhere>, of: Elsewhere) {
    if named.len() < NAMED_MAX && !named.iter().any(|known| known.gpu == of.gpu) {
        named.push(of);
    }
}

/// What is told of points that were refused.
pub(crate) fn example(of: &Elsewhere) -> String {
    let rank = of.rank.map_or(String::new(), |rank| format!("rank {rank}, "));
    crate::ingest::shorten(format!(
        "GPU {} is reported already by another process of this run, one that shares no lock with this one: {rank}pid {} on `{}`",
        of.gpu, of.pid, of.host
    ))
}

/// A report that an attribute holds; none where it is another's, or no report.
pub(crate) fn report_of(key: &str, value: &AttributeValue) -> Option<CaptureReport> {
    let AttributeValue::Text(text) = value else { return None };
    if !key.starts_with(CAPTURE_PREFIX) {
        return None;
    }
    wire::capture::parse(text).filter(|report| report.attribute() == key)
}

impl RunClaims {
    /// How much there is to keep in mind.
    fn size(&self) -> usize {
        self.named + self.cards.len() + self.writers.len() + self.refused.len()
    }

    fn learn(&mut self, writer: WriterId, report: &CaptureReport) {
        let before = self.writers.get(&writer).map_or(0, |known| known.cards.len());
        if self.size() + report.devices.len() >= NAMED_OF_RUN_MAX + before {
            return;
        }
        let ended_ns = self.writers.get(&writer).and_then(|known| known.ended_ns);
        let mut cards = HashMap::new();
        if !report.boot_id.is_empty() {
            for device in report.devices.iter().filter(|device| !device.uuid.is_empty()) {
                let name = (report.boot_id.clone(), device.uuid.clone());
                let next = self.cards.len();
                let place = *self.by_name.entry(name).or_insert(next);
                if place == next {
                    self.cards.push(Vec::new());
                }
                cards.insert(device.gpu, place);
            }
        }
        let locks = match report.arbitration {
            Arbitration::Shm | Arbitration::Tmp if report.lock_domain.is_empty() => {
                Locks::Host(report.host.clone())
            }
            Arbitration::Shm | Arbitration::Tmp => Locks::Folder(report.lock_domain.clone()),
            Arbitration::Unavailable | Arbitration::None => Locks::None,
        };
        let interval_ns = report.interval_seconds.clamp(0.0, 86_400.0) * NANOS_PER_SECOND as f64;
        let known = Writer {
            itself: CaptureOwner { host: report.host.clone(), pid: report.pid, rank: report.rank },
            locks,
            patience_ns: ((interval_ns * PATIENCE_INTERVALS) as i64).max(PATIENCE_NS),
            cards,
            ended_ns,
        };
        self.named = self.named - before + known.cards.len();
        self.writers.insert(writer, known);
    }

    fn strip(
        &mut self,
        writer: WriterId,
        gpu: u32,
        samples: &mut Vec<Sample>,
    ) -> Option<(u64, CaptureOwner)> {
        let known = self.writers.get(&writer)?;
        let spans = self.cards.get_mut(*known.cards.get(&gpu)?)?;
        let mut owner = None;
        let before = samples.len();
        if spans.iter().any(|span| span.writer != writer) {
            let others = others(&self.writers, spans, (writer, known));
            samples.retain(|sample| {
                let taken = others.iter().find(|(from, to, _)| (*from..=*to).contains(&sample.time_ns));
                owner = taken.map(|(_, _, of)| *of).or(owner);
                taken.is_none()
            });
        }
        let refused = (before - samples.len()) as u64;
        for sample in samples.iter() {
            note(spans, writer, sample.time_ns, known.patience_ns);
        }
        let Some(owner) = owner.cloned() else {
            self.refused.remove(&(writer, gpu));
            return None;
        };
        self.refused.insert((writer, gpu), owner.clone());
        Some((refused, owner))
    }
}

/// When others have the card whose locks this one does not see: from, until, and who.
fn others<'w>(
    writers: &'w HashMap<WriterId, Writer>,
    spans: &[Span],
    (writer, known): (WriterId, &Writer),
) -> Vec<(i64, i64, &'w CaptureOwner)> {
    let taken = |span: &Span| {
        let other = writers.get(&span.writer).filter(|_| span.writer != writer)?;
        if known.locks != Locks::None && other.locks == known.locks {
            return None;
        }
        let patient_ns = span.last_ns.saturating_add(other.patience_ns);
        let until_ns =
            other.ended_ns.map_or(patient_ns, |ended_ns| patient_ns.min(ended_ns.max(span.last_ns)));
        Some((span.first_ns, until_ns, &other.itself))
    };
    spans.iter().filter_map(taken).collect()
}

/// Lengthens a stretch of the writer's by a point, or begins one.
fn note(spans: &mut Vec<Span>, writer: WriterId, time_ns: i64, patience_ns: i64) {
    let near = spans.iter_mut().rev().find(|span| {
        span.writer == writer
            && time_ns >= span.first_ns.saturating_sub(patience_ns)
            && time_ns <= span.last_ns.saturating_add(patience_ns)
    });
    if let Some(span) = near {
        (span.first_ns, span.last_ns) = (span.first_ns.min(time_ns), span.last_ns.max(time_ns));
        return;
    }
    if spans.len() >= SPANS_MAX {
        spans.remove(0);
    }
    spans.push(Span { writer, first_ns: time_ns, last_ns: time_ns });
}

/// What the run's reports and series tell of who reported which card when.
fn gather(run: &RunRecord, series: &[SeriesInfo]) -> RunClaims {
    let mut claims = RunClaims::default();
    let mut seen: HashMap<(&str, u32), (i64, i64)> = HashMap::new();
    for one in series.iter().filter(|one| one.display.starts_with(GPU_PREFIX)) {
        let (Some(host), Some(gpu)) = (one.labels.get("host"), one.labels.get("gpu")) else { continue };
        let Ok(gpu) = gpu.parse() else { continue };
        let span = seen.entry((host, gpu)).or_insert(one.time_ns);
        *span = (span.0.min(one.time_ns.0), span.1.max(one.time_ns.1));
    }
    // By host and device: the reports that say they own it, in order of their start.
    let mut owned: BTreeMap<(String, u32), Vec<(i64, WriterId)>> = BTreeMap::new();
    for report in reports(run) {
        let by_name =
            |session: &&model::Session| session.facts.host == report.host && session.facts.pid == report.pid;
        let Some(session) = run.sessions.iter().rev().find(by_name) else { continue };
        claims.learn(session.writer, &report);
        if let Some(known) = claims.writers.get_mut(&session.writer) {
            known.ended_ns = session.ended_ns;
        }
        for device in report.devices.iter().filter(|device| device.role == DeviceRole::Owned) {
            let owners = owned.entry((report.host.clone(), device.gpu)).or_default();
            owners.push((report.started_ns, session.writer));
        }
    }
    for ((host, gpu), mut owners) in owned {
        let Some((first_ns, last_ns)) = seen.get(&(host.as_str(), gpu)) else { continue };
        owners.sort_unstable();
        for (at, (started_ns, writer)) in owners.iter().enumerate() {
            let until_ns = owners.get(at + 1).map_or(*last_ns, |(next_ns, _)| (*last_ns).min(*next_ns));
            let from_ns = (*first_ns).max(*started_ns);
            let place = claims.writers.get(writer).and_then(|known| known.cards.get(&gpu)).copied();
            if let Some(spans) =
                place.and_then(|place| claims.cards.get_mut(place)).filter(|_| from_ns <= until_ns)
            {
                spans.push(Span { writer: *writer, first_ns: from_ns, last_ns: until_ns });
            }
        }
    }
    claims
}

/// The reports of a run, as many as are read.
pub(crate) fn reports(run: &RunRecord) -> impl Iterator<Item = CaptureReport> {
    let mut bytes = 0;
    let held = run.attributes.range(CAPTURE_PREFIX.to_owned()..);
    held.take_while(|(key, _)| key.starts_with(CAPTURE_PREFIX))
        .take_while(move |(_, value)| {
            bytes += if let AttributeValue::Text(text) = value { text.len() } else { 0 };
            bytes <= REPORT_BYTES_MAX
        })
        .filter_map(|(key, value)| report_of(key, value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_in_mind_of_a_run_is_bounded_whoever_names_what() {
        let mut claims = RunClaims::default();
        let report = |at: usize| {
            let device = |gpu: u32| format!(r#"{{"gpu": {gpu}, "uuid": "GPU-{at}-{gpu}"}}"#);
            let devices: Vec<String> = (0..1_000).map(device).collect();
            let text = format!(r#"{{"boot_id": "b", "devices": [{}]}}"#, devices.join(","));
            wire::capture::parse(&text).unwrap()
        };
        let writer = |at: usize| (at as u128).to_be_bytes();
        for at in 0..300 {
            claims.learn(writer(at), &report(at));
        }
        let full = claims.size();
        assert!(full < NAMED_OF_RUN_MAX && full + 3_000 > NAMED_OF_RUN_MAX, "{full}");
        claims.learn(writer(7), &wire::capture::parse("{}").unwrap());
        assert!(claims.size() < full, "one that names fewer makes room");
        let known = claims.writers.len();
        claims.learn(writer(7), &report(7));
        assert_eq!(claims.writers.len(), known);
    }
}
