//! The fleet: incidents folded from what nodes tell, and the state of their cards.
//!
//! Events are stored with the batch they came in; [`take_events`] folds them afterwards. An open incident
//! that asks for something is a series, `tg_incident`, and every step of it an event.

mod asks;
mod bridge;
mod cards;
mod gpus;
mod keeper;
mod listed;
mod nodes;
mod owner;
mod reading;
mod rules;
mod signals;
mod watch;
mod words;

use std::ops::ControlFlow;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use model::{Event, EventAsk, NANOS_PER_SECOND, Sample, stale_marker};
use semconv::canonical::INCIDENT;
use store::{Batch, Collision, SeriesBatch, Store};

use crate::app::{App, Shared, stopped};
use crate::clock::{now_ms, now_ns};
use crate::ingest::outcome;
use crate::intake;
pub(crate) use asks::{Fault, asks, end, replay, run_of};
pub(crate) use cards::seats;
pub(crate) use gpus::{GpuAsk, GpusAnswer, gpus};
pub(crate) use keeper::INCIDENT_EVENT;
use keeper::{Keeper, SeriesKey};
pub(crate) use listed::{IncidentAsk, IncidentsAnswer, incidents};
pub(crate) use nodes::{NodesAnswer, nodes};
pub(crate) use owner::name_owners;

/// Name of this door in the counters.
const DOOR: &str = "fleet";
/// Time between two looks at what is over by now.
const PERIOD: Duration = Duration::from_secs(10);
/// Such looks between two at the series of all cards.
const WATCH_ROUNDS: u64 = 3;
/// Events that are folded in one go.
const FOLDED_AT_ONCE: usize = 1_000;
/// How far back events are folded at start.
const REPLAYED_NS: i64 = 14 * 86_400 * NANOS_PER_SECOND;
/// Most events that are folded at start, the latest.
const REPLAYED_MAX: usize = 200_000;

/// What is known of the fleet beside its series.
#[derive(Debug, Default)]
pub(crate) struct Fleet {
    keeper: Mutex<Keeper>,
}

impl Fleet {
    /// What the events of `store` come to.
    pub(crate) fn restore(store: &Store) -> Self {
        let mut keeper = Keeper::default();
        keeper.replay(&replayed(store), now_ns());
        Self { keeper: Mutex::new(keeper) }
    }

    fn keeper(&self) -> MutexGuard<'_, Keeper> {
        self.keeper.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The events of the last days, oldest first.
fn replayed(store: &Store) -> Vec<Event> {
    let ask = EventAsk { time_ns: now_ns().saturating_sub(REPLAYED_NS)..=i64::MAX, ..EventAsk::default() };
    let mut events = Vec::new();
    let read = store.events(&ask, &mut |event| {
        events.push(event);
        if events.len() < REPLAYED_MAX { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    });
    if let Err(error) = read {
        tracing::error!(%error, "events can't be read: incidents of before are not known");
    }
    events.reverse();
    events
}

/// Folds events that are stored now. Blocks while what follows from them is stored.
pub(crate) fn take_events(shared: &Shared, host: &str, events: &[Event]) {
    if events.is_empty() {
        return;
    }
    // A node tells its boot first and then the lines from before it, which that boot has made good.
    let mut of_host: Vec<&Event> = events.iter().filter(|event| event.label("host") == Some(host)).collect();
    of_host.sort_by_key(|event| event.time_ns);
    // Whoever asks for incidents meanwhile waits for a part only.
    for part in of_host.chunks(FOLDED_AT_ONCE) {
        let mut keeper = shared.fleet.keeper();
        for event in part {
            keeper.take(event);
        }
    }
    shared.fleet.keeper().settle(now_ns());
    tell(shared, true);
}

/// Gives incidents the run and job of their card where these became known after the fault.
fn adopt_owners(shared: &Shared) {
    let without = shared.fleet.keeper().without_run(now_ns());
    for (id, host, uuid, since_ns, had_process) in without {
        let names = owner::owner_since(&shared.store, (&host, &uuid), since_ns, had_process);
        if !names.is_empty() {
            shared.fleet.keeper().adopt(&id, &names);
        }
    }
}

/// Ends what is open on the card of an incident; `false` when no such incident is open.
pub(crate) fn close(shared: &Shared, id: &str, by: &str) -> bool {
    let now_ns = now_ns();
    let is_closed = {
        let mut keeper = shared.fleet.keeper();
        let is_closed = keeper.close(id, by, now_ns);
        keeper.settle(now_ns);
        is_closed
    };
    tell(shared, true);
    is_closed
}

/// Stores what incidents came to: their events, and as of now their series or those that are new.
fn tell(shared: &Shared, is_new: bool) {
    let (events, open, ended) = {
        let mut keeper = shared.fleet.keeper();
        let (open, ended) = keeper.take_series(is_new);
        shared.live.incidents_changed(keeper.take_changed());
        (keeper.take_waiting(), open, ended)
    };
    if events.is_empty() && open.is_empty() && ended.is_empty() {
        return;
    }
    let time_ns = now_ms().saturating_mul(model::NANOS_PER_MILLI);
    let mut batch = Batch { collision: Collision::LastWriteWins, ..Batch::default() };
    for (keys, value) in [(open, 1.0), (ended, stale_marker())] {
        batch.series.extend(keys.iter().filter_map(|key| series(key, Sample { time_ns, value, step: None })));
    }
    batch.events.clone_from(&events);
    if let Err(error) = intake::keep(shared, batch) {
        shared.metrics.rejected.add(&[DOOR, outcome(&error)], 1);
        tracing::warn!(%error, "what became of incidents is not stored yet");
        shared.fleet.keeper().give_back(events);
    }
}

fn series([id, host, gpu, action]: &SeriesKey, sample: Sample) -> Option<SeriesBatch> {
    let labels = [("__name__", INCIDENT.name), ("id", id), ("host", host), ("gpu", gpu), ("action", action)];
    let labels = labels.into_iter().filter(|(_, value)| !value.is_empty());
    let identity = intake::own_identity(labels).ok()?;
    Some(SeriesBatch { identity, samples: vec![sample] })
}

/// Starts the rounds; they end when the server stops.
pub(crate) fn spawn(app: &App) {
    let app = Arc::clone(app);
    let mut stopping = app.stopping.clone();
    tokio::spawn(async move {
        for number in 0_u64.. {
            tokio::select! {
                () = tokio::time::sleep(PERIOD) => (),
                () = stopped(&mut stopping) => return,
            }
            let shared = Arc::clone(&app);
            let round = tokio::task::spawn_blocking(move || {
                if number.is_multiple_of(WATCH_ROUNDS) {
                    watch::look(&shared);
                }
                adopt_owners(&shared);
                shared.fleet.keeper().settle(now_ns());
                tell(&shared, false);
            });
            if let Err(error) = round.await {
                tracing::error!(%error, "a look at incidents ended early");
            }
        }
    });
}
