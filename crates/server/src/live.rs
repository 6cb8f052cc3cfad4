//! What changed lately: gathered once a second, kept for a while so that a stream can resume.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use model::{RunId, RunState};
use tokio::sync::broadcast;

use crate::app::{App, Shared, stopped};
use crate::clock::{now_ms, now_ns};

/// Time between two events.
const PERIOD: Duration = Duration::from_secs(1);
/// Rounds between two looks at which runs fell silent.
const STATE_ROUNDS: u64 = 5;
/// Events kept for resuming.
const KEPT_MAX: usize = 600;
/// Run ids and hosts in the events kept, together.
const KEPT_IDS_MAX: usize = 200_000;

/// What changed within one second.
#[derive(Debug)]
pub(crate) struct Tick {
    /// Grows from event to event, across restarts too.
    pub(crate) cursor: u64,
    /// When, milliseconds.
    pub(crate) time_ms: i64,
    /// Which runs, in order.
    pub(crate) runs: Vec<RunId>,
    /// What of the fleet.
    pub(crate) fleet: FleetChange,
}

/// What changed of the fleet.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct FleetChange {
    /// Hosts, in order.
    pub(crate) hosts: BTreeSet<String>,
    /// Whether an incident did.
    pub(crate) incidents: bool,
    /// Topics of which anything did, by their names in a stream.
    pub(crate) topics: BTreeSet<&'static str>,
}

impl FleetChange {
    fn is_empty(&self) -> bool {
        self.hosts.is_empty() && !self.incidents && self.topics.is_empty()
    }
}

impl Tick {
    fn size(&self) -> usize {
        self.runs.len() + self.fleet.hosts.len()
    }
}

/// What a stream missed.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Missed {
    /// These runs changed since.
    Runs(BTreeSet<RunId>),
    /// It was away for too long to say.
    TooLong,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Live {
    changed: Mutex<BTreeSet<RunId>>,
    fleet: Mutex<FleetChange>,
    kept: Mutex<Kept>,
    ticks: broadcast::Sender<Arc<Tick>>,
}

#[derive(Debug)]
struct Kept {
    ticks: VecDeque<Arc<Tick>>,
    ids: usize,
    /// Cursor of the latest event, whether kept or not.
    latest: u64,
    /// Everything after this cursor is kept.
    complete_after: u64,
}

impl Live {
    /// Starts with no events; cursors go on from the clock, so that they grow across restarts.
    pub(crate) fn new(now_ms: i64) -> Self {
        let start = u64::try_from(now_ms).unwrap_or(0);
        Self {
            changed: Mutex::default(),
            fleet: Mutex::default(),
            kept: Mutex::new(Kept { ticks: VecDeque::new(), ids: 0, latest: start, complete_after: start }),
            ticks: broadcast::channel(64).0,
        }
    }

    /// Notes that a run changed.
    pub(crate) fn changed(&self, id: RunId) {
        self.changed.lock().unwrap_or_else(PoisonError::into_inner).insert(id);
    }

    /// Notes that something about a host changed.
    pub(crate) fn host_changed(&self, host: &str) {
        let mut fleet = self.fleet.lock().unwrap_or_else(PoisonError::into_inner);
        if !fleet.hosts.contains(host) {
            fleet.hosts.insert(host.to_owned());
        }
    }

    /// Notes that incidents of hosts changed.
    pub(crate) fn incidents_changed(&self, hosts: BTreeSet<String>) {
        let mut fleet = self.fleet.lock().unwrap_or_else(PoisonError::into_inner);
        fleet.incidents |= !hosts.is_empty();
        fleet.hosts.extend(hosts);
    }

    /// Notes that something changed of what a stream calls `topic`.
    pub(crate) fn topic_changed(&self, topic: &'static str) {
        self.fleet.lock().unwrap_or_else(PoisonError::into_inner).topics.insert(topic);
    }

    /// What changed of the fleet after `cursor`; nothing where that is too long ago to say.
    pub(crate) fn fleet_since(&self, cursor: u64) -> Option<FleetChange> {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if cursor < kept.complete_after || cursor > kept.latest {
            return None;
        }
        let mut change = FleetChange::default();
        for tick in kept.ticks.iter().filter(|tick| tick.cursor > cursor) {
            change.hosts.extend(tick.fleet.hosts.iter().cloned());
            change.incidents |= tick.fleet.incidents;
            change.topics.extend(&tick.fleet.topics);
        }
        Some(change)
    }

    /// Events from now on.
    pub(crate) fn subscribe(&self) -> broadcast::Receiver<Arc<Tick>> {
        self.ticks.subscribe()
    }

    /// The latest cursor.
    pub(crate) fn cursor(&self) -> u64 {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner).latest
    }

    /// What changed after `cursor`, and the latest cursor.
    pub(crate) fn since(&self, cursor: u64) -> (Missed, u64) {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if cursor < kept.complete_after || cursor > kept.latest {
            return (Missed::TooLong, kept.latest);
        }
        let after = kept.ticks.iter().filter(|tick| tick.cursor > cursor);
        (Missed::Runs(after.flat_map(|tick| tick.runs.iter().copied()).collect()), kept.latest)
    }

    /// Turns what changed into an event, if anything did.
    pub(crate) fn tick(&self, now_ms: i64) {
        let runs = std::mem::take(&mut *self.changed.lock().unwrap_or_else(PoisonError::into_inner));
        let fleet = std::mem::take(&mut *self.fleet.lock().unwrap_or_else(PoisonError::into_inner));
        if runs.is_empty() && fleet.is_empty() {
            return;
        }
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let cursor = kept.latest + 1;
        let tick = Arc::new(Tick { cursor, time_ms: now_ms, runs: runs.into_iter().collect(), fleet });
        kept.latest = cursor;
        kept.ids += tick.size();
        kept.ticks.push_back(Arc::clone(&tick));
        while kept.ticks.len() > KEPT_MAX || kept.ids > KEPT_IDS_MAX {
            let Some(oldest) = kept.ticks.pop_front() else { break };
            kept.ids -= oldest.size();
            kept.complete_after = oldest.cursor;
        }
        drop(kept);
        let _ = self.ticks.send(tick);
    }
}

/// Starts the rounds; they end when the server stops.
pub(crate) fn spawn(app: &App) {
    let app = Arc::clone(app);
    let mut stopping = app.stopping.clone();
    tokio::spawn(async move {
        let mut states = BTreeMap::new();
        let mut round = 0u64;
        loop {
            tokio::select! {
                () = tokio::time::sleep(PERIOD) => (),
                () = stopped(&mut stopping) => return,
            }
            if round.is_multiple_of(STATE_ROUNDS) {
                let shared = Arc::clone(&app);
                let watched = tokio::task::spawn_blocking(move || watch(&shared, states)).await;
                states = watched.unwrap_or_default();
            }
            round += 1;
            app.live.tick(now_ms());
        }
    });
}

/// Notes the runs whose state changed by the clock alone, as when one falls silent.
fn watch(shared: &Shared, before: BTreeMap<RunId, RunState>) -> BTreeMap<RunId, RunState> {
    let now_ns = now_ns();
    let states: BTreeMap<RunId, RunState> =
        shared.store.runs().iter().map(|run| (run.id(), run.state(now_ns).0)).collect();
    for (id, state) in &states {
        if before.get(id).is_some_and(|old| old != state) {
            shared.live.changed(*id);
        }
    }
    states
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(ids: &[u8]) -> BTreeSet<RunId> {
        ids.iter().map(|id| RunId([*id; 8])).collect()
    }

    fn live(rounds: &[&[u8]]) -> Live {
        let live = Live::new(1_000);
        for (at, round) in rounds.iter().enumerate() {
            for id in *round {
                live.changed(RunId([*id; 8]));
            }
            live.tick(at as i64);
        }
        live
    }

    #[test]
    fn a_stream_resumes_with_all_it_missed_and_nothing_more() {
        let live = live(&[&[1], &[2, 2, 1], &[], &[3]]);
        assert_eq!(live.since(1_000), (Missed::Runs(ids(&[1, 2, 3])), 1_003));
        assert_eq!(live.since(1_001), (Missed::Runs(ids(&[1, 2, 3])), 1_003));
        assert_eq!(live.since(1_002), (Missed::Runs(ids(&[3])), 1_003));
        assert_eq!(live.since(1_003), (Missed::Runs(ids(&[])), 1_003));
    }

    #[test]
    fn hosts_and_incidents_are_told_like_runs() {
        let live = live(&[&[1]]);
        live.host_changed("a");
        live.tick(1);
        live.incidents_changed(["b".to_owned()].into());
        live.host_changed("a");
        live.tick(2);
        live.incidents_changed(BTreeSet::new());
        live.tick(3);
        let change = |hosts: &[&str], incidents| {
            let hosts = hosts.iter().map(|host| (*host).to_owned()).collect();
            Some(FleetChange { hosts, incidents, ..FleetChange::default() })
        };
        assert_eq!(live.fleet_since(1_000), change(&["a", "b"], true));
        assert_eq!(live.fleet_since(1_001), change(&["a", "b"], true));
        assert_eq!(live.fleet_since(1_003), change(&[], false));
        assert_eq!(live.fleet_since(5_000), None);
    }

    #[test]
    fn topics_are_told_once_a_tick() {
        let live = live(&[&[1]]);
        live.topic_changed("alerts");
        live.topic_changed("alerts");
        live.tick(1);
        let topics = |cursor| live.fleet_since(cursor).unwrap().topics;
        assert_eq!(topics(1_001), ["alerts"].into());
        assert!(topics(1_002).is_empty());
    }

    #[test]
    fn a_cursor_of_another_life_or_too_long_ago_is_told_so() {
        let short = live(&[&[1]]);
        assert_eq!(short.since(999).0, Missed::TooLong);
        assert_eq!(short.since(5_000).0, Missed::TooLong);
        let long = live(&vec![&[1u8] as &[u8]; KEPT_MAX + 5]);
        assert_eq!(long.since(1_004).0, Missed::TooLong);
        assert_eq!(long.since(1_005).0, Missed::Runs(ids(&[1])));
    }
}
