//! The first call: a run is made, or found, and the client learns how far its series are.

use std::collections::{BTreeSet, HashSet};
use std::sync::{Arc, PoisonError};

use bytes::Bytes;
use model::{AttributeValue, NANOS_PER_SECOND, RunChange, RunId, RunPath, RunRecord};
use prost::Message;
use store::{AppendError, Batch, SeriesInfo};
use tonic::Status;
use wire::metrana::{
    EnvStatuses, InitializeRunLoggingRequest, InitializeRunLoggingResponse, Initialized, InitializedRun,
    LastLoggedSteps, Ordering, ResumePolicy, Run, SeriesInfo as Known, Timestamp, ValueKind,
};

use super::{Calls, DOOR, Service, histogram, outer_id, refused};
use crate::access::Caller;
use crate::app::{Shared, blocking};
use crate::error::ApiError;
use crate::ingest::Refused;
use crate::own::is_statement;
use crate::points::OWN_LABELS;
use crate::{grpc, ingest};

/// Series in one part of the answer.
const PART_SERIES: usize = 2_000;
/// The job that made a run.
const JOB: &str = "metrana/orchestration_id";
/// The logger that made it.
const CREATOR: &str = "metrana/creator";
/// Series that many writers log in no order, as a list in JSON. A client that comes again wants to be told,
/// and mixes no two ways.
const UNORDERED: &str = "metrana/unordered";
/// Longest such list, bytes; series beyond are taken for ordered ones.
const UNORDERED_BYTES_MAX: usize = 60 << 10;

/// Makes or finds the run; the parts of the answer, in order.
pub(super) async fn answer(service: Service, caller: Caller, bytes: Bytes) -> Result<Vec<Vec<u8>>, Status> {
    let asked = blocking(move || Ok(ask(&service, &caller, &bytes))).await;
    let parts = asked.map_err(|error: ApiError| grpc::status(&error))??;
    let part = |part| InitializeRunLoggingResponse { part: Some(part) }.encode_to_vec();
    Ok(parts.into_iter().map(part).collect())
}

fn ask(service: &Calls, caller: &Caller, bytes: &[u8]) -> Result<Vec<Initialized>, Status> {
    let invalid = |message: String| Status::invalid_argument(message);
    let request = wire::metrana::decode_initialize(bytes).map_err(|error| invalid(error.to_string()))?;
    let InitializeRunLoggingRequest { run: Some(asked), logger_id, .. } = &request else {
        return Err(invalid("the request names no run".into()));
    };
    let path = RunPath {
        organization: asked.organization.clone().unwrap_or_default(),
        workspace: asked.workspace.clone(),
        project: asked.project.clone(),
        run: asked.run_name.clone(),
    };
    if path.run.is_empty() {
        return Err(invalid("the run has no name: set `run_name`".into()));
    }
    ingest::check_path(&path).map_err(invalid)?;
    let job_bytes = asked.orchestration_identifier.as_ref().map_or(0, String::len);
    if job_bytes > ingest::SESSION_TEXT_BYTES_MAX {
        let most = ingest::SESSION_TEXT_BYTES_MAX;
        return Err(invalid(format!("the orchestration id has {job_bytes} bytes, at most {most} are kept")));
    }
    caller.check_path(&path).map_err(|error| grpc::status(&error))?;
    let (run, created) = make(service, &path, asked, *logger_id)?;
    let job = job_of(&run, asked.orchestration_identifier.as_deref());
    let is_taken =
        !created && request.resume_policy() == ResumePolicy::Never && job != asked.orchestration_identifier;
    if !is_taken {
        // Whoever may not go on with the run is told so by its own client, and has no part in it.
        let job = asked.orchestration_identifier.as_deref().unwrap_or_default();
        service.note_job(path.id(), *logger_id, job);
    }
    let made = InitializedRun {
        created,
        run_id: outer_id(path.id()),
        orchestration_identifier: job,
        creation_time: Some(timestamp(run.created_ns)),
    };
    let mut parts = vec![Initialized::Run(made)];
    let known = if created { Vec::new() } else { known_series(&service.app, &run) };
    parts.extend(steps(known).into_iter().map(Initialized::LastLoggedSteps));
    parts.push(Initialized::EnvStatuses(EnvStatuses { is_last: true }));
    Ok(parts)
}

/// The run, and whether it was made for this logger; one that asks again after a lost answer is told so
/// again, as long as it has sent nothing.
fn make(
    service: &Calls,
    path: &RunPath,
    asked: &Run,
    logger_id: u64,
) -> Result<(Arc<RunRecord>, bool), Status> {
    let store = &service.app.store;
    let _making = service.making.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(run) = store.run(path.id()) {
        let creator = AttributeValue::Text(logger_id.to_string());
        let is_mine = run.sessions.is_empty() && run.attributes.get(CREATOR) == Some(&creator);
        return Ok((run, is_mine));
    }
    if store.deleted_run(path.id()).is_some() {
        return Err(Status::already_exists(format!(
            "the run `{path}` was deleted and can still be restored: restore it, or choose another name"
        )));
    }
    let mut change =
        RunChange { path: path.clone(), attributes: facts(asked, logger_id), ..RunChange::default() };
    let mut left_out = Refused::default();
    ingest::check_change(&service.app, &mut change, &mut left_out);
    let checked = ingest::checked(None, change, Vec::new(), left_out);
    ingest::store(&service.app, checked, DOOR).map_err(refused)?;
    let run =
        store.run(path.id()).ok_or_else(|| Status::unavailable("the run is gone again: try once more"))?;
    Ok((run, true))
}

/// What is said of a run when it is made.
fn facts(asked: &Run, logger_id: u64) -> Vec<(String, AttributeValue)> {
    let text = |key: &str, text: &str| (key.to_owned(), AttributeValue::Text(text.to_owned()));
    let mut facts = vec![text(CREATOR, &logger_id.to_string())];
    facts.extend(asked.orchestration_identifier.as_deref().map(|job| text(JOB, job)));
    facts.extend(asked.experiment.as_deref().map(|experiment| text("experiment", experiment)));
    if let Some(fork) = &asked.fork_point {
        facts.push(text("fork/parent_run", &fork.parent_run_name));
        let step = i64::try_from(fork.fork_step).unwrap_or(i64::MAX);
        facts.push(("fork/step".to_owned(), AttributeValue::Int(step)));
    }
    facts
}

/// The job that has the run: the one that asks, if it has a part in it, else the latest.
fn job_of(run: &RunRecord, asks: Option<&str>) -> Option<String> {
    let first = match run.attributes.get(JOB) {
        Some(AttributeValue::Text(job)) => Some(job.as_str()),
        _ => None,
    };
    let attempts = || run.attempts.iter().rev().map(|attempt| attempt.job_token.as_str());
    let mut all = attempts().chain(first).filter(|job| !job.is_empty());
    let has_part = asks.filter(|asks| all.clone().any(|job| job == *asks));
    has_part.or_else(|| all.next()).map(str::to_owned)
}

/// The job that a run was made by, as long as nothing else is known of who writes to it.
pub(super) fn first_job(run: &RunRecord) -> Option<String> {
    if run.attempts.is_empty() { job_of(run, None) } else { None }
}

/// A series in the list of those that have no order: its name, and its scale if that is not the default.
pub(super) fn unordered_key(name: &str, scale: &str) -> String {
    // No name of the client's holds a space.
    if scale.is_empty() || scale == model::DEFAULT_SCALE {
        name.to_owned()
    } else {
        format!("{name} {scale}")
    }
}

/// Adds series to the list of those that have no order. Blocks until that is durable.
pub(super) fn note_unordered(service: &Calls, run: RunId, keys: Vec<String>) -> Result<(), AppendError> {
    let store = &service.app.store;
    let _making = service.making.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(run) = store.run(run) else { return Ok(()) };
    let before = unordered(&run);
    let mut all = before.clone();
    all.extend(keys);
    let text = all.iter().map(String::as_str).collect::<serde_json::Value>().to_string();
    if all.len() == before.len() || text.len() > UNORDERED_BYTES_MAX {
        return Ok(());
    }
    let attributes = vec![(UNORDERED.to_owned(), AttributeValue::Text(text))];
    let change = RunChange { path: run.path.clone(), attributes, ..RunChange::default() };
    store.append(Batch { change: Some(change), ..Batch::default() }).map(drop)
}

fn unordered(run: &RunRecord) -> BTreeSet<String> {
    match run.attributes.get(UNORDERED) {
        Some(AttributeValue::Text(text)) => serde_json::from_str(text).unwrap_or_default(),
        _ => BTreeSet::new(),
    }
}

fn known_series(shared: &Shared, run: &RunRecord) -> Vec<Known> {
    let series = shared.store.run_series(run.id());
    let histograms: HashSet<&str> = series.iter().filter_map(histogram::name_of_buckets).collect();
    let unordered = unordered(run);
    let known = series.iter().filter(|one| !is_statement(one.labels.metric()));
    known.filter_map(|one| known_one(one, &histograms, &unordered)).collect()
}

/// How far a series is; a histogram's parts are one series to the client, told by its count.
fn known_one(series: &SeriesInfo, histograms: &HashSet<&str>, unordered: &BTreeSet<String>) -> Option<Known> {
    let (name, value_kind) = match histogram::part_of(&series.display, histograms) {
        None => (&*series.display, ValueKind::Float),
        Some((name, histogram::COUNT)) => (name, ValueKind::Histogram),
        Some(_) => return None,
    };
    let last_step = u64::try_from(series.max_step?).ok()?;
    let labels = series.labels.iter().filter(|(key, _)| !OWN_LABELS.contains(key));
    let labels: Vec<String> = labels.map(|(key, value)| format!("{key}={value}")).collect();
    let scale = series.labels.get("scale").unwrap_or(model::DEFAULT_SCALE);
    let has_order = !unordered.contains(&unordered_key(name, scale));
    let ordering = if has_order { Ordering::AbsoluteOrdered } else { Ordering::AbsoluteUnordered };
    Some(Known {
        metric_name: name.to_owned(),
        scale: scale.to_owned(),
        flat_labels: labels.join("&"),
        ordering: ordering.into(),
        last_step,
        value_kind: value_kind.into(),
    })
}

/// In parts of a bounded size, the last of which says so.
fn steps(known: Vec<Known>) -> Vec<LastLoggedSteps> {
    let mut parts: Vec<LastLoggedSteps> = known
        .chunks(PART_SERIES)
        .map(|series| LastLoggedSteps { series: series.to_vec(), is_last: false })
        .collect();
    match parts.last_mut() {
        Some(last) => last.is_last = true,
        None => parts.push(LastLoggedSteps { series: Vec::new(), is_last: true }),
    }
    parts
}

fn timestamp(time_ns: i64) -> Timestamp {
    Timestamp {
        seconds: time_ns.div_euclid(NANOS_PER_SECOND),
        nanos: time_ns.rem_euclid(NANOS_PER_SECOND) as i32,
    }
}
