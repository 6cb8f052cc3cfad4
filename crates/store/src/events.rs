//! Events: few, each a row of the catalogue, known by host and key. Memory holds their keys only.

use std::collections::{BTreeSet, HashSet};
use std::ops::ControlFlow;

use model::{Event, EventAsk, Severity};
use sha2::{Digest, Sha256};

use crate::batch::AppendError;
use crate::catalogue::{self, Change};
use crate::codec::{Reader, put_bytes, put_i64, put_u64};
use crate::read::ReadError;
use crate::store::Inner;

/// Most events that are kept; the oldest go first.
pub const EVENTS_MAX: usize = 500_000;
/// Most bytes of an event: labels, text and body together.
pub const EVENT_BYTES_MAX: usize = 64 << 10;

const VERSION: u8 = 1;

/// Time, then identity: the key of a row, in order of time.
pub(crate) type EventKey = [u8; 24];
type Identity = [u8; 16];

/// Which events are kept.
#[derive(Debug, Default)]
pub(crate) struct Events {
    by_time: BTreeSet<EventKey>,
    known: HashSet<Identity>,
}

/// What a commit adds and removes.
#[derive(Debug, Default)]
pub(crate) struct EventRows {
    added: Vec<(EventKey, Event)>,
    new: HashSet<Identity>,
    removed: Vec<EventKey>,
}

impl EventRows {
    pub(crate) fn encode(&self) -> Vec<(EventKey, Option<Vec<u8>>)> {
        let added = self.added.iter().map(|(key, event)| (*key, Some(encode(event))));
        self.removed.iter().map(|key| (*key, None)).chain(added).collect()
    }

    /// Takes an event that is not among `kept` nor here; `false` when it is.
    pub(crate) fn add(&mut self, kept: &Events, event: Event) -> bool {
        let key = key_of(&event);
        let identity = identity_in(&key);
        if kept.known.contains(&identity) || !self.new.insert(identity) {
            return false;
        }
        self.added.push((key, event));
        true
    }

    /// Lets the oldest of all go, the new ones among them.
    pub(crate) fn bound(&mut self, kept: &Events, most: usize) {
        let mut beyond = (kept.by_time.len() + self.added.len()).saturating_sub(most);
        if beyond == 0 {
            return;
        }
        self.added.sort_by_key(|(key, _)| *key);
        let mut old = kept.by_time.iter().peekable();
        let mut gone = 0;
        while beyond > 0 {
            let new = self.added.get(gone).map(|(key, _)| key);
            match (old.peek(), new) {
                (Some(kept), new) if new.is_none_or(|new| *kept < new) => {
                    self.removed.push(**kept);
                    old.next();
                }
                _ => gone += 1,
            }
            beyond -= 1;
        }
        self.added.drain(..gone);
    }
}

impl Events {
    pub(crate) fn apply(&mut self, rows: EventRows) {
        self.forget(&rows.removed);
        for (key, _) in rows.added {
            self.insert(key);
        }
    }

    /// Takes up the key of a row.
    pub(crate) fn insert(&mut self, key: EventKey) {
        self.by_time.insert(key);
        self.known.insert(identity_in(&key));
    }

    pub(crate) fn len(&self) -> usize {
        self.by_time.len()
    }

    fn forget(&mut self, keys: &[EventKey]) {
        for key in keys {
            self.by_time.remove(key);
            self.known.remove(&identity_in(key));
        }
    }

    fn before(&self, time_ns: i64) -> Vec<EventKey> {
        self.by_time.range(..bound_at(time_ns, 0)).copied().collect()
    }
}

impl Inner {
    /// Drops events that are too old.
    pub(crate) fn expire_events(&self, now_ns: i64) -> Result<(), AppendError> {
        let before_ns = now_ns.saturating_sub(self.options.event_retention_ns);
        let is_due = |key: &EventKey| *key < bound_at(before_ns, 0);
        if !self.read_state().events.by_time.first().is_some_and(is_due) {
            return Ok(());
        }
        let mut writer = self.lock_writer();
        self.make_ready(&mut writer)?;
        let old = self.read_state().events.before(before_ns);
        let rows = old.iter().map(|key| (*key, None)).collect();
        let (change, counters) = (Change { events: rows, ..Change::default() }, writer.counters);
        self.commit(&mut writer, &change, counters, |state| state.events.forget(&old))
    }

    /// See [`crate::Store::events`].
    pub(crate) fn events(
        &self,
        ask: &EventAsk,
        visit: &mut dyn FnMut(Event) -> ControlFlow<()>,
    ) -> Result<(), ReadError> {
        let failed = |reason: String| ReadError { what: "events".to_owned(), reason };
        if ask.time_ns.is_empty() || self.read_state().events.by_time.is_empty() {
            return Ok(());
        }
        let snapshot = {
            let mut writer = self.lock_writer();
            self.make_ready(&mut writer).map_err(|error| failed(error.to_string()))?;
            writer.snapshot().map_err(|error| failed(error.to_string()))?
        };
        let range = bound_at(*ask.time_ns.start(), 0)..=bound_at(*ask.time_ns.end(), 0xff);
        let mut damage = Vec::new();
        let read = catalogue::events(&snapshot, range, &mut |key, row| {
            let Some(event) = row.and_then(decode) else {
                damage.push(format!("the catalogue's row of an event is damaged: key {key:02x?}"));
                return ControlFlow::Continue(());
            };
            if fits(ask, &event) { visit(event) } else { ControlFlow::Continue(()) }
        });
        for why in damage {
            self.report_damage(why);
        }
        read.map_err(|error| failed(error.to_string()))
    }
}

/// About how many bytes an event takes.
pub(crate) fn bytes_of(event: &Event) -> usize {
    let labels: usize = event.labels.iter().map(|(name, value)| name.len() + value.len() + 4).sum();
    labels + event.text.len() + event.body.len() + event.key.len() + event.kind.len()
}

fn fits(ask: &EventAsk, event: &Event) -> bool {
    let is = |name: &str, wanted: Option<&str>| wanted.is_none_or(|wanted| event.label(name) == Some(wanted));
    let run = ask.run.map(|run| run.to_string());
    event.severity >= ask.severity_min
        && ask.kinds.as_ref().is_none_or(|kinds| kinds.contains(&event.kind))
        && is("host", ask.host.as_deref())
        && is("uuid", ask.uuid.as_deref())
        && is("run_id", run.as_deref())
}

fn key_of(event: &Event) -> EventKey {
    let host = event.label("host").unwrap_or_default();
    let mut hash = Sha256::new();
    hash.update((host.len() as u64).to_le_bytes());
    hash.update(host);
    hash.update(&event.key);
    let hash = hash.finalize();
    let mut key = bound_at(event.time_ns, 0);
    key[8..].copy_from_slice(&hash[..16]);
    key
}

fn identity_in(key: &EventKey) -> Identity {
    let mut identity = Identity::default();
    identity.copy_from_slice(&key[8..]);
    identity
}

/// The key at an end of a time's rows; bytes compare as times do once the sign is turned.
fn bound_at(time_ns: i64, rest: u8) -> EventKey {
    let mut key = [rest; 24];
    key[..8].copy_from_slice(&((time_ns as u64) ^ (1 << 63)).to_be_bytes());
    key
}

fn encode(event: &Event) -> Vec<u8> {
    let mut out = vec![VERSION];
    put_i64(&mut out, event.time_ns);
    let severity = Severity::ALL.iter().position(|severity| *severity == event.severity);
    out.push(severity.unwrap_or_default() as u8);
    put_bytes(&mut out, event.kind.as_bytes());
    put_bytes(&mut out, event.key.as_bytes());
    put_u64(&mut out, event.labels.len() as u64);
    for (name, value) in &event.labels {
        put_bytes(&mut out, name.as_bytes());
        put_bytes(&mut out, value.as_bytes());
    }
    put_bytes(&mut out, event.text.as_bytes());
    put_bytes(&mut out, event.body.as_bytes());
    out
}

fn decode(row: &[u8]) -> Option<Event> {
    let mut reader = Reader::new(row);
    if reader.byte()? != VERSION {
        return None;
    }
    let time_ns = reader.i64()?;
    let severity = *Severity::ALL.get(usize::from(reader.byte()?))?;
    let (kind, key) = (reader.text()?, reader.text()?);
    let count = reader.count(2)?;
    let labels = (0..count).map(|_| Some((reader.text()?, reader.text()?))).collect::<Option<_>>()?;
    Some(Event { time_ns, kind, severity, key, labels, text: reader.text()?, body: reader.text()? })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn event(time_ns: i64, key: &str) -> Event {
        Event { time_ns, key: key.into(), ..Event::default() }
    }

    proptest! {
        #[test]
        fn rows_come_back(time_ns in any::<i64>(), severity in 0..3_usize, texts in prop::array::uniform4(".*"),
                          labels in prop::collection::vec((".*", ".*"), 0..5)) {
            let [kind, key, text, body] = texts;
            let severity = Severity::ALL[severity];
            let event = Event { time_ns, kind, severity, key, labels, text, body };
            let row = encode(&event);
            prop_assert_eq!(decode(&row), Some(event));
            prop_assert_eq!(decode(&row[..row.len() - 1]), None);
        }

        #[test]
        fn keys_are_in_order_of_time(a in any::<i64>(), b in any::<i64>()) {
            prop_assert_eq!(bound_at(a, 7).cmp(&bound_at(b, 7)), a.cmp(&b));
        }
    }

    #[test]
    fn host_and_key_do_not_run_into_one_another() {
        let of = |host: &str, key: &str| {
            let labels = vec![("host".to_owned(), host.to_owned())];
            identity_in(&key_of(&Event { labels, ..event(0, key) }))
        };
        assert_ne!(of("ab", "c"), of("a", "bc"));
        assert_eq!(of("ab", "c"), of("ab", "c"));
    }

    #[test]
    fn beyond_the_bound_the_oldest_go_new_or_not() {
        let mut kept = Events::default();
        for n in 0..100 {
            kept.insert(key_of(&event(n * 10, &n.to_string())));
        }
        let mut rows = EventRows::default();
        for (time_ns, key) in [(5, "x"), (10_000, "y"), (10_001, "z")] {
            assert!(rows.add(&kept, event(time_ns, key)));
        }
        assert!(!rows.add(&kept, event(9, "z")), "known by its key, whatever its time");
        rows.bound(&kept, 100);
        let left: Vec<&str> = rows.added.iter().map(|(_, event)| event.key.as_str()).collect();
        assert_eq!(left, ["y", "z"]);
        assert_eq!(rows.removed, [key_of(&event(0, "0")), key_of(&event(10, "1"))]);
        kept.apply(rows);
        assert_eq!(kept.len(), 100);
    }
}
