//! The event stream: which runs and hosts changed, at most once a second.

use std::convert::Infallible;
use std::time::Duration;

use axum::extract::State;
use axum::http::{HeaderMap, Uri};
use axum::response::sse::{Event, Sse};
use model::RunId;
use serde::Serialize;
use std::sync::atomic::Ordering;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use utoipa::ToSchema;

use super::Params;
use crate::access::Caller;
use crate::app::{App, Shared, blocking, stopped};
use crate::clock::{now_ms, now_ns, to_ms};
use crate::error::ApiError;
use crate::live::{FleetChange, Missed};

/// Time between two signs of life.
const PING: Duration = Duration::from_secs(10);
/// Most topics of a stream.
const TOPICS_MAX: usize = 100;
/// Events that wait for a slow reader before it is cut off.
const WAITING_MAX: usize = 256;

/// Topics that are told without saying what of them changed, and whether they are for those alone who see
/// all projects.
const PLAIN: [(&str, bool); 2] = [("alerts", false), ("remediation", true)];
const HINT: &str = "topics are `runs`, `run:<id>`, `fleet`, `alerts` and `remediation`, several with commas";

/// What a stream is about.
#[derive(Debug, Clone, Default)]
struct Topics {
    runs: bool,
    fleet: bool,
    plain: Vec<&'static str>,
    each: Vec<RunId>,
}

impl Topics {
    fn is_for_all_seeing(&self) -> bool {
        self.fleet || PLAIN.iter().any(|(name, all)| *all && self.plain.contains(name))
    }
}

/// What a stream is about, and who reads it.
struct About {
    topics: Topics,
    caller: Caller,
}

/// Data of `event: runs`.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct RunsEvent {
    run_ids: Vec<String>,
    time_ms: i64,
}

/// Data of `event: fleet`.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct FleetEvent {
    /// Hosts of which something changed.
    hosts: Vec<String>,
    /// Whether an incident changed.
    incidents: bool,
    /// Too much was missed to say: anything may have changed.
    all: bool,
    time_ms: i64,
}

/// Data of `event: run`.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct RunEvent {
    run_id: String,
    last_step: Option<i64>,
    last_time_ms: Option<i64>,
    points: u64,
    /// A run's state, or `deleted`.
    state: &'static str,
}

/// Data of `event: alerts` and `event: remediation`.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct PlainEvent {
    time_ms: i64,
}

/// Data of `event: ping`.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Ping {
    time_ms: i64,
}

/// Changes as they come: `runs`, `run`, `fleet`, `alerts` and `remediation` events at most once a second, `ping` every ten.
///
/// Each event's `id` is a cursor; sent back as `Last-Event-ID`, what was missed comes first.
#[utoipa::path(get, operation_id = "stream", path = "/api/tg/v1/stream",
    params(
        ("topics" = String, Query, description = "`runs`, `run:<id>`, `fleet`, `alerts`, `remediation`, several with commas; `fleet` and `remediation` are for who sees all projects"),
        ("Last-Event-ID" = Option<String>, Header, description = "the latest `id` seen"),
    ),
    responses(
        (status = 200, content_type = "text/event-stream", body = RunsEvent),
        (status = 400, body = crate::error::ErrorBody)
    ))]
pub(crate) async fn stream(
    State(app): State<App>,
    caller: Caller,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Sse<ReceiverStream<Result<Event, Infallible>>>, ApiError> {
    let topics = topics(&Params::of(&uri)?)?;
    if topics.is_for_all_seeing() {
        caller.check_unbounded()?;
    }
    let seen = headers.get("last-event-id").and_then(|v| v.to_str().ok()).and_then(|v| v.parse().ok());
    let slot = app.turns.streams.try_one();
    let slot = slot.ok_or_else(|| ApiError::unavailable("too many event streams are open", 10))?;
    let (send, receive) = mpsc::channel(WAITING_MAX);
    tokio::spawn(async move {
        app.metrics.streams.fetch_add(1, Ordering::Relaxed);
        feed(&app, &About { topics, caller }, seen, &send).await;
        app.metrics.streams.fetch_sub(1, Ordering::Relaxed);
        drop(slot);
    });
    Ok(Sse::new(ReceiverStream::new(receive)))
}

fn topics(params: &Params) -> Result<Topics, ApiError> {
    let text = params.get("topics").ok_or_else(|| ApiError::bad("`topics` is missing").hint(HINT))?;
    let mut topics = Topics::default();
    for word in text.split(',') {
        match word.strip_prefix("run:").map(RunId::parse) {
            Some(Some(id)) => topics.each.push(id),
            None if word == "runs" => topics.runs = true,
            None if word == "fleet" => topics.fleet = true,
            None if PLAIN.iter().any(|(name, _)| *name == word) => {
                topics.plain.extend(PLAIN.iter().map(|(name, _)| *name).filter(|name| *name == word));
            }
            _ => {
                return Err(ApiError::bad(format!("`{}` is not a topic", super::shown(word))).hint(HINT));
            }
        }
    }
    if topics.each.len() > TOPICS_MAX {
        return Err(ApiError::bad(format!("more than {TOPICS_MAX} topics in one stream")));
    }
    Ok(topics)
}

type Sender = mpsc::Sender<Result<Event, Infallible>>;

/// Sends events until the reader is gone, too slow, or the server stops.
async fn feed(app: &App, about: &About, seen: Option<u64>, send: &Sender) {
    let mut ticks = app.live.subscribe();
    let mut stopping = app.stopping.clone();
    let mut cursor = app.live.cursor();
    let mut ping = tokio::time::interval(PING);
    if let Some(seen) = seen {
        let (missed, latest) = app.live.since(seen);
        cursor = latest;
        let told = tell(app, about, missed, (latest, now_ms()), send).await;
        if !(told && tell_fleet(about, app.live.fleet_since(seen), (latest, now_ms()), send)) {
            return;
        }
    }
    loop {
        let alive = tokio::select! {
            () = stopped(&mut stopping) => return,
            () = send.closed() => return,
            _ = ping.tick() => put(send, "ping", cursor, &Ping { time_ms: now_ms() }),
            tick = ticks.recv() => match tick {
                Ok(tick) if tick.cursor > cursor => {
                    cursor = tick.cursor;
                    let changed = Missed::Runs(tick.runs.iter().copied().collect());
                    tell(app, about, changed, (cursor, tick.time_ms), send).await
                        && tell_fleet(about, Some(tick.fleet.clone()), (cursor, tick.time_ms), send)
                }
                Ok(_) => true,
                Err(RecvError::Lagged(_)) => {
                    let fleet = app.live.fleet_since(cursor);
                    let (missed, latest) = app.live.since(cursor);
                    cursor = latest;
                    tell(app, about, missed, (latest, now_ms()), send).await
                        && tell_fleet(about, fleet, (latest, now_ms()), send)
                }
                Err(RecvError::Closed) => return,
            },
        };
        if !alive {
            return;
        }
    }
}

/// Sends what changed of the topics; false when the reader is gone or too slow.
async fn tell(
    app: &App,
    about: &About,
    mut missed: Missed,
    (cursor, time_ms): (u64, i64),
    send: &Sender,
) -> bool {
    let (shared, each, all) = (app.clone(), about.topics.each.clone(), about.topics.runs);
    let caller = about.caller.clone();
    let gathered = blocking(move || {
        if let Missed::Runs(runs) = &mut missed
            && caller.is_bounded()
        {
            runs.retain(|id| {
                let run = shared.store.run(*id).or_else(|| shared.store.deleted_run(*id));
                run.is_some_and(|run| caller.sees(&run.path))
            });
        }
        let changed = |id: &RunId| match &missed {
            Missed::Runs(runs) => runs.contains(id),
            Missed::TooLong => true,
        };
        let each: Vec<RunEvent> =
            each.iter().filter(|id| changed(id)).map(|id| run_event(&shared, &caller, *id)).collect();
        let runs: Vec<String> = match &missed {
            _ if !all => Vec::new(),
            Missed::Runs(runs) => runs.iter().map(RunId::to_string).collect(),
            Missed::TooLong => {
                caller.seen(shared.store.runs()).iter().map(|run| run.id().to_string()).collect()
            }
        };
        Ok((each, runs))
    })
    .await;
    let Ok((each, run_ids)) = gathered else { return false };
    let told = each.iter().all(|event| put(send, "run", cursor, event));
    told && (run_ids.is_empty() || put(send, "runs", cursor, &RunsEvent { run_ids, time_ms }))
}

/// Sends what changed of the fleet, if that is asked for; none is too much to say.
fn tell_fleet(
    about: &About,
    change: Option<FleetChange>,
    (cursor, time_ms): (u64, i64),
    send: &Sender,
) -> bool {
    let all = change.is_none();
    let FleetChange { hosts, incidents, topics } = change.unwrap_or_default();
    let mut plain = about.topics.plain.iter().filter(|name| all || topics.contains(*name));
    if !plain.all(|name| put(send, name, cursor, &PlainEvent { time_ms })) {
        return false;
    }
    if !about.topics.fleet || !(all || incidents || !hosts.is_empty()) {
        return true;
    }
    let event = FleetEvent { hosts: hosts.into_iter().collect(), incidents: incidents || all, all, time_ms };
    put(send, "fleet", cursor, &event)
}

fn run_event(shared: &Shared, caller: &Caller, id: RunId) -> RunEvent {
    let run = shared.store.run(id).filter(|run| caller.sees(&run.path));
    let facts = run.as_ref().map(|_| shared.board.facts(&shared.store, id)).unwrap_or_default();
    RunEvent {
        run_id: id.to_string(),
        last_step: facts.last_step,
        last_time_ms: facts.last_time_ns.map(to_ms),
        points: facts.points,
        state: run.map_or("deleted", |run| run.state(now_ns()).0.as_str()),
    }
}

/// Hands an event over without waiting: a reader that can't keep up reconnects and resumes.
fn put(send: &Sender, name: &str, cursor: u64, data: &impl Serialize) -> bool {
    let Ok(event) = Event::default().event(name).id(cursor.to_string()).json_data(data) else { return false };
    send.try_send(Ok(event)).is_ok()
}
