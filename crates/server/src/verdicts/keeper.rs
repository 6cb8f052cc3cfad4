//! Verdicts of a run as they are told: raised once, told again where they get worse, cleared once.
//!
//! Every step of it is an event, and at start the events of before say what was told: nothing is raised twice, and
//! what held before a restart goes on under its name.

use std::collections::{BTreeMap, VecDeque};

use model::{Event, NANOS_PER_MILLI, NANOS_PER_SECOND, RunId, Severity};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::row::VerdictRow;

/// Kind of the events that tell of verdicts, and what their label `source` says.
pub(super) const KIND: &str = "run";
pub(crate) const SOURCE: &str = "verdict";
/// Most verdicts that are over and still listed, of a run.
const HISTORY_MAX: usize = 100;
/// Most that hold at once.
const OPEN_MAX: usize = 200;
/// For how long a cause stays that is not found any more: cards are looked at every ten seconds, three samples make a
/// cause, and a detector that begins anew has none of them.
const CAUSE_KEPT_NS: i64 = 60 * NANOS_PER_SECOND;

/// The cause of a verdict that no signal explains.
const UNKNOWN: &str = "unknown";

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Keeper {
    /// By key.
    open: BTreeMap<String, Open>,
    /// Newest first.
    history: VecDeque<VerdictRow>,
    /// Events to be stored.
    waiting: Vec<Event>,
}

#[derive(Debug)]
struct Open {
    row: VerdictRow,
    /// How often it was told that it changed.
    changes: u32,
    /// Told by a server before this one, and not found by this one yet.
    is_restored: bool,
    /// When its cause was found last by this server, nanoseconds.
    caused_ns: i64,
}

impl Open {
    fn new(row: VerdictRow, changes: u32, now_ns: i64) -> Self {
        Self { row, changes, is_restored: false, caused_ns: now_ns }
    }

    /// Takes what is found of it now. Whether that is news, and whether anything is other than before.
    fn meet(&mut self, mut row: VerdictRow, now_ns: i64) -> (bool, bool) {
        if std::mem::take(&mut self.is_restored) || row.cause.as_deref() != Some(UNKNOWN) {
            self.caused_ns = now_ns;
        }
        let known = &self.row;
        let has_lost_cause = row.cause.as_deref() == Some(UNKNOWN) && row.cause != known.cause;
        if has_lost_cause && row.level == known.level && now_ns.saturating_sub(self.caused_ns) < CAUSE_KEPT_NS
        {
            return (false, false);
        }
        row.id.clone_from(&known.id);
        row.since = known.since;
        // Where it began is told once: a detector that began anew knows less of that.
        if known.onset.time.is_some() {
            row.onset = known.onset;
        }
        if row.events.is_empty() {
            row.events.clone_from(&known.events);
        }
        let is_news = row.weight() > known.weight() || row.cause != known.cause;
        let is_other = row.claim != known.claim || row.level != known.level;
        self.changes += u32::from(is_news);
        self.row = row;
        (is_news, is_news || is_other)
    }
}

impl Keeper {
    /// What holds now. What a server before this one told, and is not among it, is over when `is_over` says so.
    /// Whether anything is other than before.
    pub(super) fn settle(
        &mut self,
        run: RunId,
        now: Vec<VerdictRow>,
        is_over: &dyn Fn(&VerdictRow) -> bool,
        now_ns: i64,
    ) -> bool {
        let mut found: BTreeMap<String, VerdictRow> =
            now.into_iter().take(OPEN_MAX).map(|row| (row.key(), row)).collect();
        let gone: Vec<String> = self
            .open
            .iter()
            .filter(|(key, open)| !found.contains_key(*key) && (!open.is_restored || is_over(&open.row)))
            .map(|(key, _)| key.clone())
            .collect();
        let mut has_changed = !gone.is_empty();
        for key in gone {
            self.clear(run, &key, now_ns);
        }
        for (key, open) in &mut self.open {
            let Some(row) = found.remove(key) else { continue };
            let (is_news, is_other) = open.meet(row, now_ns);
            has_changed |= is_other;
            if is_news {
                self.waiting.push(event(run, &open.row, "changed", Some(open.changes), now_ns));
            }
        }
        for (key, mut row) in found {
            row.since = now_ns.div_euclid(NANOS_PER_MILLI);
            row.id = id_of(run, &key, row.since);
            self.waiting.push(event(run, &row, "raised", None, now_ns));
            self.open.insert(key, Open::new(row, 0, now_ns));
            has_changed = true;
        }
        has_changed
    }

    fn clear(&mut self, run: RunId, key: &str, now_ns: i64) {
        let Some(Open { mut row, .. }) = self.open.remove(key) else { return };
        row.cleared = Some(now_ns.div_euclid(NANOS_PER_MILLI));
        self.waiting.push(event(run, &row, "cleared", None, now_ns));
        self.remember(row);
    }

    fn remember(&mut self, row: VerdictRow) {
        self.history.push_front(row);
        self.history.truncate(HISTORY_MAX);
    }

    /// Takes an event that a server before this one stored, in order of time.
    pub(super) fn replay(&mut self, event: &Event) {
        let Ok(body) = serde_json::from_str::<Value>(&event.body) else { return };
        let Some(row) = body.get("verdict").cloned() else { return };
        let Ok(row) = serde_json::from_value::<VerdictRow>(row) else { return };
        let key = row.key();
        if body.get("what").and_then(Value::as_str) == Some("cleared") {
            self.open.retain(|_, open| open.row.id != row.id);
            self.remember(row);
            return;
        }
        let changes = body.get("changes").and_then(Value::as_u64).unwrap_or(0) as u32;
        self.open.insert(key, Open { is_restored: true, ..Open::new(row, changes, i64::MIN) });
    }

    /// Whether anything holds.
    pub(super) fn is_open(&self) -> bool {
        !self.open.is_empty()
    }

    /// What holds of a class.
    pub(super) fn of_class(&self, class: &str) -> Option<&VerdictRow> {
        self.rows().find(|row| row.class == class)
    }

    /// What holds.
    pub(super) fn rows(&self) -> impl Iterator<Item = &VerdictRow> {
        self.open.values().map(|open| &open.row)
    }

    /// What holds, the worst first.
    pub(super) fn worst_first(&self) -> Vec<VerdictRow> {
        let mut rows: Vec<VerdictRow> = self.rows().cloned().collect();
        let gain = |row: &VerdictRow| row.gain_ratio.unwrap_or(0.0);
        rows.sort_by(|a, b| b.weight().cmp(&a.weight()).then(gain(b).total_cmp(&gain(a))));
        rows
    }

    /// What is over, the latest first.
    pub(super) fn history(&self) -> Vec<VerdictRow> {
        self.history.iter().cloned().collect()
    }

    /// Events that wait for the store.
    pub(super) fn take_waiting(&mut self) -> Vec<Event> {
        std::mem::take(&mut self.waiting)
    }

    /// Gives back what the store did not take.
    pub(super) fn give_back(&mut self, mut events: Vec<Event>) {
        events.append(&mut self.waiting);
        events.truncate(OPEN_MAX * 4);
        self.waiting = events;
    }
}

fn id_of(run: RunId, key: &str, since: i64) -> String {
    let hash = Sha256::digest(format!("{run}\0{key}\0{since}"));
    hash.iter().take(6).fold(String::from("v-"), |id, byte| format!("{id}{byte:02x}"))
}

fn event(run: RunId, row: &VerdictRow, what: &str, changes: Option<u32>, now_ns: i64) -> Event {
    let text = |value: &Option<String>| value.clone().unwrap_or_default();
    let rank = match row.ranks.as_slice() {
        [one] => one.to_string(),
        _ => String::new(),
    };
    let labels = [
        ("host", text(&row.host)),
        ("gpu", text(&row.gpu)),
        ("uuid", text(&row.uuid)),
        ("run_id", run.to_string()),
        ("rank", rank),
        ("class", row.class.clone()),
        ("level", row.level.clone()),
        ("source", SOURCE.to_owned()),
    ];
    let labels = labels.into_iter().filter(|(_, value)| !value.is_empty());
    let severity = match (what, row.weight()) {
        ("cleared", _) | (_, 0) => Severity::Info,
        (_, 1) => Severity::Warning,
        _ => Severity::Critical,
    };
    let times = changes.map(|count| format!(":{count}")).unwrap_or_default();
    Event {
        // A lane of events shows where it began.
        time_ns: if what == "raised" { row.began().saturating_mul(NANOS_PER_MILLI) } else { now_ns },
        kind: KIND.to_owned(),
        severity,
        key: format!("verdict:{}:{what}{times}", row.id),
        labels: labels.map(|(name, value)| (name.to_owned(), value)).collect(),
        text: match what {
            "cleared" => format!("Over: {}", row.claim),
            _ => format!("{}. {}", row.claim, row.sentence),
        },
        body: json!({ "what": what, "changes": changes.unwrap_or(0), "verdict": row }).to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verdicts::row::CulpritRow;

    const RUN: RunId = RunId([7; 8]);
    const S: i64 = 1_000_000_000;

    fn silent(rank: u32) -> VerdictRow {
        let state = format!("Rank {rank} has told no step for 70 s");
        let culprit = CulpritRow {
            rank,
            host: None,
            last_step: Some(4),
            last_step_time: Some(100),
            sequence: None,
            completed: None,
            state,
        };
        VerdictRow::of_silent(vec![culprit], &|_| false)
    }

    #[test]
    fn a_verdict_is_raised_once_and_cleared_once_over_restarts_too() {
        let mut keeper = Keeper::default();
        assert!(keeper.settle(RUN, vec![silent(3)], &|_| true, 200 * S));
        assert!(!keeper.settle(RUN, vec![silent(3)], &|_| true, 201 * S));
        let id = keeper.worst_first()[0].id.clone();
        let raised = keeper.take_waiting();
        assert_eq!(raised.len(), 1);
        assert_eq!((raised[0].time_ns, raised[0].label("rank")), (100_000_000, Some("3")));
        let mut again = Keeper::default();
        again.replay(&raised[0]);
        assert!(!again.settle(RUN, Vec::new(), &|_| false, 300 * S), "not sure yet");
        assert!(!again.settle(RUN, vec![silent(3)], &|_| false, 301 * S));
        assert_eq!(again.worst_first()[0].id, id);
        assert!(again.take_waiting().is_empty());
        assert!(again.settle(RUN, Vec::new(), &|_| false, 302 * S));
        assert_eq!((again.is_open(), again.history()[0].cleared), (false, Some(302_000)));
        let mut third = Keeper::default();
        raised.iter().chain(&again.take_waiting()).for_each(|event| third.replay(event));
        assert_eq!((third.is_open(), third.history().len()), (false, 1));
    }

    #[test]
    fn a_cause_is_not_lost_while_a_server_that_began_anew_has_seen_no_cards() {
        let slow = |cause: &str| {
            let mut row = VerdictRow { cause: Some(cause.to_owned()), ..silent(3) };
            row.onset.time = Some(if cause == UNKNOWN { 50 } else { 100 });
            row
        };
        let mut keeper = Keeper::default();
        keeper.settle(RUN, vec![slow("thermal")], &|_| true, 200 * S);
        let onset = keeper.worst_first()[0].onset.time;
        let mut again = Keeper::default();
        keeper.take_waiting().iter().for_each(|event| again.replay(event));
        let mut told = |cause: &str, at: i64| {
            again.settle(RUN, vec![slow(cause)], &|_| true, at * S);
            let row = again.worst_first()[0].clone();
            (row.cause, again.take_waiting().len(), row.onset.time == onset)
        };
        assert_eq!(told(UNKNOWN, 300), (Some("thermal".to_owned()), 0, true));
        assert_eq!(told(UNKNOWN, 330), (Some("thermal".to_owned()), 0, true));
        assert_eq!(told("thermal", 335), (Some("thermal".to_owned()), 0, true));
        assert_eq!(told(UNKNOWN, 390), (Some("thermal".to_owned()), 0, true));
        assert_eq!(told(UNKNOWN, 400), (Some(UNKNOWN.to_owned()), 1, true), "it is not found for a minute");
    }

    #[test]
    fn what_was_told_and_is_over_when_that_is_sure_is_cleared() {
        let mut keeper = Keeper::default();
        keeper.settle(RUN, vec![silent(3)], &|_| true, 200 * S);
        let mut again = Keeper::default();
        keeper.take_waiting().iter().for_each(|event| again.replay(event));
        assert!(again.settle(RUN, Vec::new(), &|_| true, 300 * S));
        assert!(!again.is_open());
    }
}
