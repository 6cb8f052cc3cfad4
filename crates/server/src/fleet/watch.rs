//! What series of cards say of their health, made events: for cards whose driver nobody follows, and for what no
//! line of a log tells.
//!
//! Only a change is an event. What was told last is known from the stored events, so that a restart tells
//! nothing twice.

use std::collections::HashSet;

use model::{Event, Severity};
use semconv::canonical::{
    GPU_ECC_ERRORS_TOTAL, GPU_RECOVERY_ACTION, GPU_ROW_REMAP_FAILED, GPU_ROW_REMAP_PENDING,
};
use semconv::xid::RECOVERY;
use serde_json::json;
use store::Matcher;

use super::bridge;
use super::keeper::Keeper;
use super::owner::OWNED_NS;
use super::reading::{Last, lasts, lasts_of};
use crate::app::Shared;
use crate::clock::now_ns;
use crate::remediation;

/// What is watched: a metric, and the word for it in events.
const WATCHED: [(&str, Word); 4] = [
    (GPU_RECOVERY_ACTION.name, Word::Recovery),
    (GPU_ROW_REMAP_PENDING.name, Word::Pending),
    (GPU_ROW_REMAP_FAILED.name, Word::Failed),
    (GPU_ECC_ERRORS_TOTAL.name, Word::Uncorrected),
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Word {
    Recovery,
    Pending,
    Failed,
    Uncorrected,
}

impl Word {
    fn name(self) -> &'static str {
        match self {
            Self::Recovery => "recovery_action",
            Self::Pending => "row_remap_pending",
            Self::Failed => "row_remap_failed",
            Self::Uncorrected => "uncorrected_errors",
        }
    }
}

/// A watched series: what, host, id of the card.
pub(super) type WatchKey = (String, String, String);

/// Where an event of this module is from, and the value that it told.
pub(super) fn told_by(event: &Event) -> Option<(WatchKey, f64)> {
    let body = bridge::body(event);
    let word = body.get("watched")?.as_str()?.to_owned();
    let key = (word, event.label("host")?.to_owned(), event.label("uuid")?.to_owned());
    Some((key, body.get("now")?.as_f64()?))
}

/// Looks at every watched series; what changed is folded, and waits for the store.
pub(super) fn look(shared: &Shared) {
    let since_ns = now_ns().saturating_sub(OWNED_NS);
    let agents: HashSet<String> = shared.nodes.list().into_iter().map(|agent| agent.host).collect();
    for (metric, word) in WATCHED {
        let all = match word {
            Word::Uncorrected => {
                let of = |name, value| Matcher::equal(name, value);
                let matchers = [of("__name__", metric), of("kind", "uncorrected"), of("scope", "volatile")];
                lasts(&shared.store, &matchers, since_ns)
            }
            _ => lasts_of(&shared.store, metric, since_ns),
        };
        let mut keeper = shared.fleet.keeper();
        let is_word = |last: &&Last| {
            remediation::is_of_machine(&last.labels) && !last.is_end() && last.value.is_finite()
        };
        for last in all.iter().filter(is_word) {
            // An agent tells the driver's verdict itself, and sooner.
            if word == Word::Recovery && agents.contains(last.label("host")) {
                continue;
            }
            follow(&mut keeper, last, word);
        }
    }
}

fn follow(keeper: &mut Keeper, last: &Last, word: Word) {
    let key = (word.name().to_owned(), last.label("host").to_owned(), last.label("uuid").to_owned());
    if key.1.is_empty() || key.2.is_empty() {
        return;
    }
    let before = keeper.watched(&key);
    // A counter that is seen for the first time has told nothing; a state that is bad is news at once.
    let is_news = match (word, before) {
        (Word::Uncorrected, None) => false,
        (Word::Uncorrected, Some(before)) => last.value > before,
        (_, None) => last.value > 0.0,
        (_, Some(before)) => last.value.to_bits() != before.to_bits(),
    };
    keeper.watch(key, last.value);
    if is_news {
        keeper.tell(event(last, word, before.unwrap_or(0.0)));
    }
}

fn event(last: &Last, word: Word, before: f64) -> Event {
    let (now, gpu, host) = (last.value, last.label("gpu"), last.label("host"));
    let card = format!("GPU {gpu} of {host}");
    let mut body = json!({ "watched": word.name(), "before": before, "now": now });
    let (kind, text) = match word {
        Word::Recovery => {
            let (from, to) = (before as u32, now as u32);
            let name = RECOVERY.iter().find(|row| row.value == to).map_or("unknown", |row| row.name);
            body["from"] = from.into();
            body["to"] = to.into();
            ("recovery", format!("The driver's recovery action of {card} is {to} ({name}), it was {from}"))
        }
        Word::Pending if now > 0.0 => {
            ("ecc", format!("Rows of the memory of {card} wait for a reset to be replaced"))
        }
        Word::Pending => ("ecc", format!("No row of the memory of {card} waits for a reset any more")),
        Word::Failed if now > 0.0 => ("ecc", format!("A row of the memory of {card} could not be replaced")),
        Word::Failed => ("ecc", format!("{card} no longer says that a row could not be replaced")),
        Word::Uncorrected => {
            ("ecc", format!("Uncorrected memory errors of {card} rose from {before:.0} to {now:.0}"))
        }
    };
    body["what"] = word.name().into();
    let labels = ["host", "gpu", "uuid"]
        .iter()
        .filter_map(|name| Some(((*name).to_owned(), last.labels.get(name)?.to_owned())));
    let severity = match word {
        Word::Failed | Word::Recovery if now > 0.0 => Severity::Critical,
        Word::Uncorrected => Severity::Warning,
        _ => Severity::Info,
    };
    Event {
        time_ns: last.time_ns,
        kind: kind.to_owned(),
        severity,
        key: format!("series:{}:{}:{}", word.name(), last.label("uuid"), last.time_ns),
        labels: labels.chain([("source".to_owned(), "series".to_owned())]).collect(),
        text,
        body: body.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use insight::incidents::Action;
    use model::Labels;

    use super::*;

    fn say(keeper: &mut Keeper, word: Word, values: &[f64]) {
        for (n, value) in values.iter().enumerate() {
            let labels = Labels::from_pairs([("host", "node-1"), ("gpu", "3"), ("uuid", "GPU-3")]);
            let time_ns = 1_800_000_000_000_000_000 + n as i64 * 10_000_000_000;
            follow(keeper, &Last { labels: Arc::new(labels), time_ns, value: *value }, word);
        }
    }

    fn told(keeper: &mut Keeper) -> Vec<Event> {
        let mut events = keeper.take_waiting();
        events.retain(|event| event.kind != "incident");
        events
    }

    #[test]
    fn changes_are_told_once_and_a_bad_state_at_first_sight() {
        let counts = [
            (Word::Recovery, vec![0.0, 0.0, 4.0, 4.0, 0.0], 2),
            (Word::Recovery, vec![1.0, 1.0], 1),
            (Word::Pending, vec![1.0, 1.0, 0.0], 2),
            (Word::Failed, vec![0.0, 1.0, 1.0], 1),
            (Word::Uncorrected, vec![7.0, 7.0, 9.0, 0.0, 1.0], 2),
        ];
        for (word, values, count) in counts {
            let mut keeper = Keeper::default();
            say(&mut keeper, word, &values);
            let events = told(&mut keeper);
            assert_eq!(events.len(), count, "{word:?} {values:?}: {events:#?}");
        }
    }

    #[test]
    fn the_drivers_verdict_opens_an_incident_and_its_end_clears_it() {
        let mut keeper = Keeper::default();
        say(&mut keeper, Word::Recovery, &[0.0, 4.0]);
        let incident = &keeper.all()[0];
        assert_eq!((incident.verdict.action, incident.cleared.is_some()), (Action::DrainReset, false));
        say(&mut keeper, Word::Recovery, &[4.0, 4.0, 4.0, 0.0]);
        assert!(keeper.all()[0].cleared.is_some());
    }

    #[test]
    fn after_a_restart_what_was_told_is_known() {
        let mut keeper = Keeper::default();
        say(&mut keeper, Word::Failed, &[0.0, 1.0]);
        say(&mut keeper, Word::Pending, &[1.0]);
        keeper.settle(1_800_000_020_000_000_000);
        let mut events = keeper.take_waiting();
        events.sort_by_key(|event| event.time_ns);
        let mut again = Keeper::default();
        again.replay(&events, 1_800_000_030_000_000_000);
        say(&mut again, Word::Failed, &[1.0]);
        say(&mut again, Word::Pending, &[1.0]);
        again.settle(1_800_000_030_000_000_000);
        assert_eq!(again.take_waiting(), []);
        assert_eq!((again.all().len(), again.all()[0].verdict.action), (1, Action::Contact));
        assert_eq!(again.id_of(&again.all()[0]), keeper.id_of(&keeper.all()[0]));
    }

    #[test]
    fn errors_that_were_counted_are_evidence_and_open_nothing() {
        let mut keeper = Keeper::default();
        say(&mut keeper, Word::Uncorrected, &[0.0, 3.0]);
        assert_eq!((keeper.all().len(), told(&mut keeper).len()), (0, 1));
    }
}
