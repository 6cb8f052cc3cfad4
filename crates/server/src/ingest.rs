//! Takes push requests into the store: the one path for the network and for spools.
//!
//! What a request may say is checked here again, whatever the client checked: a point that can't be
//! kept is refused and counted under a bounded reason, the rest of the request is kept.

use std::collections::BTreeMap;

use model::{
    AttributeValue, Event, RunChange, RunId, RunPath, SeriesIdentity, TagChange, WriterId, series_identity,
};
use store::{AppendError, Batch, Receipt, SeriesBatch};
use wire::push::{
    Count, Elsewhere, PushError, PushRequest, PushResponse, REFUSED_SERIES_MAX, Read, RefusedSeries, Series,
};

use crate::app::Shared;
use crate::claims;
use crate::far::Outgoing;
use crate::verdicts::Told;

/// Longest of a run's four names, bytes.
const RUN_NAME_BYTES_MAX: usize = 256;
/// Longest key of a fact, bytes.
const ATTRIBUTE_KEY_BYTES_MAX: usize = 256;
/// Longest text of a fact, bytes.
const ATTRIBUTE_TEXT_BYTES_MAX: usize = 64 << 10;
/// Most facts of one run.
const ATTRIBUTES_MAX: usize = 10_000;
/// Longest tag, bytes.
pub(crate) const TAG_BYTES_MAX: usize = 128;
/// Most tags of one run.
const TAGS_MAX: usize = 200;
/// Longest description, bytes.
pub(crate) const DESCRIPTION_BYTES_MAX: usize = 64 << 10;
/// Longest text a session says of itself (host, token, reason), bytes.
pub(crate) const SESSION_TEXT_BYTES_MAX: usize = 4 << 10;
/// Times of sessions lie within as many nanoseconds of the epoch, as those of points do.
const TIME_NS_MAX: u64 = 1 << 62;
/// Most points that one request can say were lost: sums of them don't overflow.
const COUNT_MAX: u64 = 1 << 40;
/// Longest reason under which a client counts what it lost, bytes.
const REASON_BYTES_MAX: usize = 40;
/// Most reasons in one request.
const REASONS_MAX: usize = 32;

/// Most events of one request of a run, and longest body of one, bytes.
const EVENTS_MAX: usize = 1_000;
const EVENT_BODY_BYTES_MAX: usize = 4 << 10;
/// Who says what a run tells, and what such events may be labelled with.
const EVENT_SOURCES: [&str; 2] = ["flight_recorder", "nccl"];
const EVENT_LABELS: [&str; 3] = ["host", "rank", "source"];

/// Prefix of the reasons that the server itself refused for, among a run's lost points.
pub(crate) const REFUSED_PREFIX: &str = "refused/";

/// Why a request is not taken.
#[derive(Debug, thiserror::Error)]
pub(crate) enum IngestError {
    /// It never will be.
    #[error(transparent)]
    Unusable(#[from] PushError),
    /// It may be, later.
    #[error(transparent)]
    Append(#[from] AppendError),
}

/// A request, checked and ready for the store.
#[derive(Debug)]
pub(crate) struct Checked {
    batch: Batch,
    run: RunPath,
    refused: Refused,
    /// The places that the batch's series had in the request.
    places: Vec<usize>,
    /// Cards whose points were refused, and who reports them.
    elsewhere: Vec<Elsewhere>,
}

/// What was refused so far.
#[derive(Debug, Default)]
pub(crate) struct Refused {
    /// Reason to count and one example.
    reasons: BTreeMap<&'static str, (u64, String)>,
    /// The series that is looked at, by its place in the request.
    at: Option<usize>,
    series: Vec<RefusedSeries>,
}

impl Refused {
    /// Whether nothing was.
    pub(crate) fn is_empty(&self) -> bool {
        self.reasons.is_empty()
    }

    /// Counts points, or facts, that are not kept.
    pub(crate) fn add(&mut self, reason: &'static str, count: u64, example: impl FnOnce() -> String) {
        self.reasons.entry(reason).or_insert_with(|| (0, example())).0 += count;
        if let Some(at) = self.at {
            self.name(at, reason, count);
        }
    }

    /// As an answer says it.
    pub(crate) fn into_counts(self) -> Vec<Count> {
        let count = |(reason, (count, example)): (&str, (u64, String))| Count {
            reason: reason.to_owned(),
            count,
            example,
        };
        self.reasons.into_iter().map(count).collect()
    }

    /// Notes which series the points are of.
    fn name(&mut self, at: usize, reason: &str, count: u64) {
        if self.series.len() < REFUSED_SERIES_MAX {
            let (index, reason) = (u32::try_from(at).unwrap_or(u32::MAX), reason.to_owned());
            self.series.push(RefusedSeries { index, reason, count });
        }
    }
}

impl Checked {
    /// The run that it is about.
    pub(crate) fn run(&self) -> &RunPath {
        &self.run
    }

    /// What it holds in memory, bytes, near enough.
    pub(crate) fn bytes(&self) -> usize {
        let series = |s: &SeriesBatch| {
            let labels: usize = s.identity.labels.iter().map(|(k, v)| k.len() + v.len() + 32).sum();
            labels + s.identity.display.len() + s.samples.capacity() * size_of::<model::Sample>() + 128
        };
        let events = self.batch.events.iter();
        let events: usize = events.map(|event| event.text.len() + event.body.len() + 512).sum();
        1024 + events + self.batch.series.iter().map(series).sum::<usize>()
    }
}

/// Checks a request: unusable as a whole is an error, unusable parts are left out and counted.
pub(crate) fn check(shared: &Shared, request: &PushRequest) -> Result<Checked, PushError> {
    let writer: WriterId =
        request.client_id.as_slice().try_into().map_err(|_source: std::array::TryFromSliceError| {
            PushError::Invalid("`client_id` is not 16 bytes".into())
        })?;
    let mut refused = Refused::default();
    let mut change = request.run_change()?;
    check_path(&change.path).map_err(PushError::Invalid)?;
    check_change(shared, &mut change, &mut refused);
    let mut series = Vec::with_capacity(request.series.len());
    let mut places = Vec::with_capacity(request.series.len());
    let mut elsewhere = Vec::new();
    let names = request.series.iter().map(|one| one.name.as_str());
    let mut judge = shared.claims.judge(shared, &change, writer, names);
    shared.owners.learn(&change, writer);
    for (at, one) in request.series.iter().enumerate() {
        refused.at = Some(at);
        if let Some(mut batch) = check_series(&change.path, one, &mut refused)? {
            let stripped = judge.as_mut().and_then(|judge| judge.strip(&mut batch));
            if let Some((points, of)) = stripped {
                refused.add(claims::REFUSED, points, || claims::example(&of));
                claims::name(&mut elsewhere, of);
            }
            if !batch.samples.is_empty() {
                series.push(batch);
                places.push(at);
            }
        } else {
            count_refused_labels(shared, &change.path, one)?;
        }
    }
    refused.at = None;
    let events = check_events(&change.path, request, &mut refused);
    let mut checked = checked(Some((writer, request.sequence)), change, series, refused);
    checked.batch.events = events;
    Ok(Checked { places, elsewhere, ..checked })
}

/// What a process of a run may tell of: how far ranks are in their collective operations. Who else's events are
/// on a run is not its to say, so they are known by the run as well as by their key.
fn check_events(path: &RunPath, request: &PushRequest, refused: &mut Refused) -> Vec<Event> {
    let id = path.id().to_string();
    let mut events = Vec::new();
    for (at, event) in request.events.iter().enumerate() {
        let mut event = event.to_model();
        let is_told_here = event.kind == "run"
            && event.label("source").is_some_and(|source| EVENT_SOURCES.contains(&source))
            && at < EVENTS_MAX
            && event.body.len() <= EVENT_BODY_BYTES_MAX;
        if !is_told_here {
            refused.add("event", 1, || {
                let source = event.label("source").unwrap_or_default();
                shorten(format!(
                    "an event of the kind {:?} from {source:?} is none that a run tells",
                    event.kind
                ))
            });
            continue;
        }
        event.labels.retain(|(name, _)| EVENT_LABELS.contains(&name.as_str()));
        event.labels.push(("run_id".into(), id.clone()));
        event.key = format!("{id}/{}", event.key);
        events.extend(crate::node::bounded_event(event, refused));
    }
    events
}

/// What was checked by other means than [`check`].
pub(crate) fn checked(
    writer: Option<(WriterId, u64)>,
    mut change: RunChange,
    series: Vec<SeriesBatch>,
    refused: Refused,
) -> Checked {
    for (reason, (count, _)) in &refused.reasons {
        change.dropped.push((format!("{REFUSED_PREFIX}{reason}"), *count));
    }
    let run = change.path.clone();
    let batch = Batch { writer, change: Some(change), series, ..Batch::default() };
    Checked { batch, run, refused, places: Vec::new(), elsewhere: Vec::new() }
}

/// Stores what was checked. Blocks until it is durable.
pub(crate) fn store(
    shared: &Shared,
    checked: Checked,
    door: &'static str,
) -> Result<PushResponse, AppendError> {
    let Checked { batch, run, mut refused, places, elsewhere } = checked;
    let session = batch.change.as_ref().and_then(|change| change.session.as_ref());
    let told = Told::of_run(run.id(), &batch.series, session.map(|(_, event)| event));
    let receipt = keep(shared, batch, &run).inspect_err(|error| {
        shared.metrics.requests.add(&[door, outcome(error)], 1);
    })?;
    let id = run.id();
    shared.changed(id);
    if receipt.duplicate {
        shared.metrics.requests.add(&[door, "duplicate"], 1);
    } else {
        shared.metrics.requests.add(&[door, "stored"], 1);
        shared.metrics.samples.add(&[door], receipt.stored);
        if !is_of_earlier_attempt(shared, id, receipt.attempt) {
            shared.verdicts.take(told);
        }
    }
    for (place, reason, count) in &receipt.refused_series {
        if let Some(at) = places.get(*place) {
            refused.name(*at, reason, *count);
        }
    }
    let refused_series = std::mem::take(&mut refused.series);
    let refused = counts(refused, &receipt);
    if !receipt.duplicate {
        for count in &refused {
            shared.metrics.rejected.add(&[door, &count.reason], count.count);
        }
        shared.board.refused(id, &receipt.refused);
    }
    Ok(PushResponse {
        run_id: id.to_string(),
        attempt: receipt.attempt,
        stored: receipt.stored,
        refused,
        duplicate: receipt.duplicate,
        elsewhere,
        refused_series,
    })
}

/// Whether what a process sent is of an attempt before the latest: its steps were done, and say nothing of now.
fn is_of_earlier_attempt(shared: &Shared, run: RunId, attempt: u32) -> bool {
    let latest = shared.store.run(run).and_then(|run| run.attempts.last().map(|latest| latest.number));
    attempt > 0 && latest.is_some_and(|latest| attempt < latest)
}

/// Stores a batch here, and queues it for the far storage where there is one. A delivery that the
/// store had before is queued all the same when that is not known to have happened: the server may
/// have ended in between, and what comes twice changes nothing there.
fn keep(shared: &Shared, batch: Batch, run: &RunPath) -> Result<Receipt, AppendError> {
    let (Some(far), Some(delivery)) = (&shared.far, batch.writer) else { return shared.store.append(batch) };
    if !batch.series.is_empty() {
        far.check_room()?;
    }
    let claim = far.claim(delivery);
    let outgoing = Outgoing {
        pushed: Some((run.clone(), delivery.0)),
        series: batch.series.clone(),
        ..Outgoing::default()
    };
    let receipt = shared.store.append(batch)?;
    if !claim.is_queued {
        far.take(&shared.store, outgoing, &receipt)?;
        claim.done();
    }
    Ok(receipt)
}

/// The word for a failure to store, in the counters.
pub(crate) fn outcome(error: &AppendError) -> &'static str {
    match error {
        AppendError::Full { .. } => "full",
        AppendError::Busy { .. } => "busy",
        AppendError::Failed { .. } => "failed",
    }
}

/// Decodes, checks and stores a spool's record.
pub(crate) fn record(shared: &Shared, bytes: &[u8], door: &'static str) -> Result<PushResponse, IngestError> {
    match wire::push::read(wire::push::decompress(bytes)?)? {
        Read::Node(request) => Ok(crate::node::store(shared, crate::node::check(shared, request)?, door)?),
        Read::Run(request) => Ok(store(shared, check(shared, &request)?, door)?),
    }
}

fn counts(mut refused: Refused, receipt: &Receipt) -> Vec<Count> {
    for (reason, count, example) in &receipt.refused {
        refused.add(reason, *count, || example.clone());
    }
    refused.into_counts()
}

/// Says whether a run may have these names.
pub(crate) fn check_path(path: &RunPath) -> Result<(), String> {
    let names = [
        ("organization", &path.organization),
        ("workspace", &path.workspace),
        ("project", &path.project),
        ("run", &path.run),
    ];
    for (what, name) in names {
        if name.len() > RUN_NAME_BYTES_MAX {
            let found = name.len();
            return Err(format!(
                "the {what}'s name has {found} bytes, at most {RUN_NAME_BYTES_MAX} are kept"
            ));
        }
        if name.chars().any(char::is_control) {
            return Err(format!("the {what}'s name holds a control character"));
        }
    }
    Ok(())
}

/// Counts the labels of a refused series for which it was refused.
fn count_refused_labels(shared: &Shared, path: &RunPath, series: &Series) -> Result<(), PushError> {
    for label in series.labels.iter().filter(|label| model::REFUSED_LABELS.contains(&&*label.key)) {
        let points = series.samples()?.len() as u64;
        shared.metrics.refused_labels.add(&["push", &label.key, &path.project], points);
    }
    Ok(())
}

fn check_series(
    path: &RunPath,
    series: &Series,
    refused: &mut Refused,
) -> Result<Option<SeriesBatch>, PushError> {
    let samples = series.samples()?;
    let points = samples.len() as u64;
    if points == 0 {
        return Ok(None);
    }
    let labels: Vec<_> = series.labels.iter().map(|l| (l.key.clone(), l.value.clone())).collect();
    match check_identity(path, (&series.name, &series.scale), &labels) {
        Ok(identity) => Ok(Some(SeriesBatch { identity, samples })),
        Err((reason, example)) => {
            refused.add(reason, points, || example);
            Ok(None)
        }
    }
}

/// The series of a run that was logged under a name, on a scale; an error is the reason why its points
/// can't be kept, and an example.
pub(crate) fn check_identity(
    path: &RunPath,
    (name, scale): (&str, &str),
    labels: &[(String, String)],
) -> Result<SeriesIdentity, (&'static str, String)> {
    model::check_display_name(name).map_err(|error| (error.reason(), shorten(error.to_string())))?;
    for (key, value) in labels {
        model::check_logged_label(key, value)
            .map_err(|error| (error.reason(), shorten(format!("{name:?}: {error}"))))?;
    }
    if !scale.is_empty() {
        model::check_logged_label("step_scale", scale)
            .map_err(|error| ("scale", shorten(format!("{name:?}: {error}"))))?;
    }
    let identity = series_identity(path, name, scale, labels);
    let found = identity.labels.iter().filter(|(label, _)| *label != "__name__").count();
    if found > model::LABELS_PER_SERIES_MAX {
        let most = model::LABELS_PER_SERIES_MAX;
        let example =
            shorten(format!("{name:?} has {found} labels, at most {most} are kept, the run's included"));
        return Err(("label_count", example));
    }
    Ok(identity)
}

/// An example stays readable in one line.
pub(crate) fn shorten(mut text: String) -> String {
    const BYTES_MAX: usize = 300;
    if text.len() > BYTES_MAX {
        let cut = (0..=BYTES_MAX).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
        text.truncate(cut);
        text.push('…');
    }
    text
}

/// Leaves out what can't be kept of a run's facts, tags and signs of life.
pub(crate) fn check_change(shared: &Shared, change: &mut RunChange, refused: &mut Refused) {
    let sane = |(_, event): &(WriterId, model::SessionEvent)| event.time_ns.unsigned_abs() < TIME_NS_MAX;
    if change.session.as_ref().is_some_and(|session| !sane(session)) {
        change.session = None;
        refused.add("session_time", 1, || "a session's time lies beyond the years 1823 to 2116".into());
    }
    if let Some((_, event)) = &mut change.session {
        let facts = &mut event.facts;
        for text in [&mut facts.host, &mut facts.job_token, &mut facts.client_version, &mut event.reason] {
            cut(text, SESSION_TEXT_BYTES_MAX);
        }
    }
    let known = shared.store.run(change.path.id());
    let facts = known.as_ref().map_or(0, |run| run.attributes.len());
    let mut room = ATTRIBUTES_MAX.saturating_sub(facts);
    for list in [&mut change.attributes, &mut change.attributes_if_absent] {
        list.retain(|(key, value)| {
            let old = known.as_ref().is_some_and(|run| run.attributes.contains_key(key));
            let usable = attribute_usable(key, value) && (old || room > 0);
            if usable && !old {
                room -= 1;
            }
            if !usable {
                refused.add("attribute", 1, || {
                    shorten(format!("attribute {key:?} is too long, or one too many"))
                });
            }
            usable
        });
    }
    let tags = known.as_ref().map_or(0, |run| run.tags.len());
    let mut room = TAGS_MAX.saturating_sub(tags);
    change.tags.retain(|tag| {
        let TagChange::Add(tag) = tag else { return true };
        let usable = tag_usable(tag) && room > 0;
        room = room.saturating_sub(1);
        if !usable {
            refused.add("tag", 1, || shorten(format!("tag {tag:?} is too long, or one too many")));
        }
        usable
    });
    if let Some(description) = &mut change.description {
        cut(description, DESCRIPTION_BYTES_MAX);
    }
    change.dropped.truncate(REASONS_MAX);
    for (reason, count) in &mut change.dropped {
        *count = (*count).min(COUNT_MAX);
        let bounded = !reason.is_empty()
            && reason.len() <= REASON_BYTES_MAX
            && reason.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_');
        if !bounded {
            "other".clone_into(reason);
        }
    }
}

fn attribute_usable(key: &str, value: &AttributeValue) -> bool {
    let text = if let AttributeValue::Text(text) = value { text.len() } else { 0 };
    !key.is_empty()
        && key.len() <= ATTRIBUTE_KEY_BYTES_MAX
        && !key.chars().any(char::is_control)
        && text <= ATTRIBUTE_TEXT_BYTES_MAX
}

/// Whether a tag can be kept.
pub(crate) fn tag_usable(tag: &str) -> bool {
    !tag.is_empty() && tag.len() <= TAG_BYTES_MAX && !tag.chars().any(char::is_control)
}

fn cut(text: &mut String, bytes_max: usize) {
    if text.len() > bytes_max {
        let at = (0..=bytes_max).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
        text.truncate(at);
    }
}
