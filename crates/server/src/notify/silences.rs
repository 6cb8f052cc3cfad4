//! Silences: which alerts nobody is told of, until when, and why.
//!
//! Each is a row of the store, durable before it counts, and part of a backup.

use std::sync::{Mutex, MutexGuard, PoisonError};

use promql::{MatchOp, Matcher};
use serde::{Deserialize, Serialize};
use store::{Batch, Store};
use utoipa::ToSchema;

use super::matchers::{self, AlertLabels};

/// What the keys of their rows begin with.
const ROWS: &[u8] = b"silence/";
/// Most silences that are kept, ended ones among them.
const SILENCES_MAX: usize = 10_000;
/// How long an ended one is kept.
const ENDED_KEPT_MS: i64 = 5 * 86_400_000;
/// Most conditions of one.
const MATCHERS_MAX: usize = 50;
/// Longest reason, bytes.
const COMMENT_BYTES_MAX: usize = 1_000;

/// A condition on a label.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Condition {
    /// The label.
    pub(crate) name: String,
    /// What it is held against.
    pub(crate) value: String,
    /// Whether that is a pattern for the whole value.
    #[serde(default)]
    pub(crate) is_regex: bool,
    /// False turns it round.
    #[serde(default = "yes")]
    pub(crate) is_equal: bool,
}

fn yes() -> bool {
    true
}

impl Condition {
    /// Reads one such as `severity="page"`.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let Matcher { name, op, value, .. } = matchers::parse(text)?;
        Ok(Self {
            name: name.to_string(),
            value: value.to_string(),
            is_regex: matches!(op, MatchOp::Matches | MatchOp::MatchesNot),
            is_equal: matches!(op, MatchOp::Equal | MatchOp::Matches),
        })
    }

    fn matcher(&self) -> Result<Matcher, String> {
        let op = match (self.is_regex, self.is_equal) {
            (false, true) => MatchOp::Equal,
            (false, false) => MatchOp::NotEqual,
            (true, true) => MatchOp::Matches,
            (true, false) => MatchOp::MatchesNot,
        };
        matchers::new(&self.name, op, &self.value)
    }
}

/// A silence. Times are milliseconds since the epoch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct Silence {
    /// By which it is ended.
    pub(crate) id: String,
    /// An alert that meets all of them is silenced.
    pub(crate) matchers: Vec<Condition>,
    /// From when on.
    pub(crate) starts_at: i64,
    /// Until when.
    pub(crate) ends_at: i64,
    /// Why.
    pub(crate) comment: String,
    /// Who says so.
    pub(crate) created_by: String,
    /// When it was said.
    pub(crate) created_at: i64,
}

/// What somebody asks for.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewSilence {
    /// An alert that meets all of them is silenced.
    matchers: Vec<Condition>,
    /// From when on, milliseconds since the epoch; now unless given.
    #[serde(default)]
    starts_at: Option<i64>,
    /// Until when, milliseconds since the epoch.
    ends_at: i64,
    /// Why.
    comment: String,
    /// Who says so.
    #[serde(default)]
    created_by: String,
}

impl Silence {
    /// Where it stands: `active`, `pending` or `expired`.
    pub(crate) fn state(&self, now_ms: i64) -> &'static str {
        match () {
            () if now_ms >= self.ends_at => "expired",
            () if now_ms < self.starts_at => "pending",
            () => "active",
        }
    }
}

/// One with its conditions ready.
#[derive(Debug)]
struct Held {
    silence: Silence,
    matchers: Vec<Matcher>,
}

impl Held {
    fn of(silence: Silence) -> Result<Self, String> {
        let matchers = silence.matchers.iter().map(Condition::matcher).collect::<Result<_, _>>()?;
        Ok(Self { silence, matchers })
    }
}

/// Why a silence can't be had.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum SilenceError {
    /// What was asked for makes no sense.
    Wrong(String),
    /// It can't be kept.
    Unkept(String),
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Silences {
    held: Mutex<Vec<Held>>,
}

impl Silences {
    /// Those that the store has.
    pub(crate) fn open(store: &Store) -> Self {
        let rows = store.state(ROWS).unwrap_or_else(|error| {
            tracing::error!(%error, "silences can't be read: none is in force");
            Vec::new()
        });
        let read = |(key, bytes): (Vec<u8>, Vec<u8>)| {
            let silence = serde_json::from_slice(&bytes).map_err(|error| error.to_string());
            let held = silence.and_then(Held::of);
            held.inspect_err(|error| {
                let id = String::from_utf8_lossy(&key);
                tracing::error!(error, silence = %id, "a silence can't be read: it is not in force");
            })
            .ok()
        };
        Self { held: Mutex::new(rows.into_iter().filter_map(read).collect()) }
    }

    fn held(&self) -> MutexGuard<'_, Vec<Held>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// All of them, the one that ends last first.
    pub(crate) fn all(&self) -> Vec<Silence> {
        let mut all: Vec<Silence> = self.held().iter().map(|held| held.silence.clone()).collect();
        all.sort_by(|a, b| (b.ends_at, &a.id).cmp(&(a.ends_at, &b.id)));
        all
    }

    /// The silences that are in force for an alert at `now_ms`.
    pub(crate) fn of(&self, labels: &AlertLabels, now_ms: i64) -> Vec<Silence> {
        let held = self.held();
        let in_force = held.iter().filter(|held| held.silence.state(now_ms) == "active");
        in_force
            .filter(|held| matchers::fit(&held.matchers, labels))
            .map(|held| held.silence.clone())
            .collect()
    }

    /// Adds one; it is durable when this returns.
    pub(crate) fn add(&self, store: &Store, new: NewSilence, now_ms: i64) -> Result<Silence, SilenceError> {
        let mut random = [0; 8];
        getrandom::fill(&mut random).map_err(|error| SilenceError::Unkept(error.to_string()))?;
        let silence = Silence {
            id: format!("{:016x}", u64::from_be_bytes(random)),
            matchers: new.matchers,
            starts_at: new.starts_at.unwrap_or(now_ms),
            ends_at: new.ends_at,
            comment: plain(&new.comment),
            created_by: plain(&new.created_by).chars().take(64).collect(),
            created_at: now_ms,
        };
        let new = checked(silence, now_ms).map_err(SilenceError::Wrong)?;
        let added = new.silence.clone();
        let mut held = self.held();
        let is_old = |silence: &Silence| now_ms - silence.ends_at >= ENDED_KEPT_MS;
        let old = held.iter().filter(|held| is_old(&held.silence)).map(|held| (&held.silence, true));
        if held.len() >= SILENCES_MAX + old.clone().count() {
            return Err(SilenceError::Wrong(format!("there are {SILENCES_MAX} silences already: end some")));
        }
        keep(store, old.chain([(&added, false)]))?;
        held.retain(|held| !is_old(&held.silence));
        held.push(new);
        Ok(added)
    }

    /// Ends one now; false when none of this id is in force or to come.
    pub(crate) fn end(&self, store: &Store, id: &str, now_ms: i64) -> Result<bool, SilenceError> {
        let mut held = self.held();
        let Some(at) = held.iter().position(|held| held.silence.id == id && now_ms < held.silence.ends_at)
        else {
            return Ok(false);
        };
        let before = &held[at].silence;
        let ended = Silence { ends_at: now_ms, starts_at: before.starts_at.min(now_ms), ..before.clone() };
        keep(store, [(&ended, false)].into_iter())?;
        held[at].silence = ended;
        Ok(true)
    }
}

/// Writes rows, or takes them away where that is said.
fn keep<'s>(store: &Store, silences: impl Iterator<Item = (&'s Silence, bool)>) -> Result<(), SilenceError> {
    let unkept = |error: &dyn std::fmt::Display| SilenceError::Unkept(error.to_string());
    let mut state = Vec::new();
    for (silence, is_gone) in silences {
        let bytes = serde_json::to_vec(silence).map_err(|error| unkept(&error))?;
        let key = [ROWS, silence.id.as_bytes()].concat();
        state.push((key, (!is_gone).then_some(bytes)));
    }
    store.append(Batch { state, ..Batch::default() }).map_err(|error| unkept(&error))?;
    Ok(())
}

fn plain(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).collect::<String>().trim().to_owned()
}

fn checked(silence: Silence, now_ms: i64) -> Result<Held, String> {
    if silence.comment.is_empty() || silence.comment.len() > COMMENT_BYTES_MAX {
        return Err(format!("`comment` is the reason, of 1 to {COMMENT_BYTES_MAX} bytes: say why"));
    }
    if silence.ends_at <= now_ms || silence.ends_at <= silence.starts_at {
        return Err("`ends_at` is the end, later than now and than `starts_at`".to_owned());
    }
    if silence.matchers.is_empty() || silence.matchers.len() > MATCHERS_MAX {
        return Err(format!("`matchers` are 1 to {MATCHERS_MAX} conditions on labels"));
    }
    let held = Held::of(silence)?;
    if held.matchers.iter().all(|matcher| matcher.fits("")) {
        return Err(
            "every alert would be silenced: one of `matchers` must ask for a label that an alert has"
                .to_owned(),
        );
    }
    Ok(held)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn new(name: &str, value: &str, ends_at: i64) -> NewSilence {
        serde_json::from_value(serde_json::json!({
            "matchers": [{"name": name, "value": value, "is_regex": true}],
            "ends_at": ends_at, "comment": "image\nrollout", "created_by": "ann",
        }))
        .unwrap()
    }

    fn labels(value: &str) -> AlertLabels {
        [("host".to_owned(), value.to_owned())].into()
    }

    fn store() -> (tempfile::TempDir, Store) {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path(), store::Options::default()).unwrap();
        (dir, store)
    }

    #[test]
    fn a_silence_holds_for_its_time_and_outlives_the_process() {
        let (_dir, store) = store();
        let silences = Silences::open(&store);
        let added = silences.add(&store, new("host", "a.*", 2_000), 1_000).unwrap();
        assert_eq!((added.comment.as_str(), added.starts_at), ("imagerollout", 1_000));
        for silences in [silences, Silences::open(&store)] {
            let held = |value: &str, now_ms| silences.of(&labels(value), now_ms).len();
            assert_eq!((held("a1", 1_000), held("a1", 1_999)), (1, 1));
            assert_eq!((held("a1", 2_000), held("a1", 999), held("b", 1_500)), (0, 0, 0));
        }
        let silences = Silences::open(&store);
        assert_eq!(silences.end(&store, &added.id, 1_500), Ok(true));
        assert_eq!(silences.end(&store, &added.id, 1_600), Ok(false));
        assert!(Silences::open(&store).of(&labels("a1"), 1_600).is_empty());
        // Those that ended long ago go when others come.
        silences.add(&store, new("host", "b", 1_500 + 2 * ENDED_KEPT_MS), 1_500 + ENDED_KEPT_MS).unwrap();
        assert_eq!(Silences::open(&store).all().len(), 1);
    }

    #[test]
    fn a_silence_needs_a_reason_an_end_and_something_that_it_asks_for() {
        let (_dir, store) = store();
        let silences = Silences::open(&store);
        let reason = |new: NewSilence| match silences.add(&store, new, 1_000) {
            Err(SilenceError::Wrong(reason)) => reason,
            other => panic!("{other:?}"),
        };
        assert!(reason(new("host", "a", 1_000)).contains("`ends_at`"));
        assert!(reason(new("host", ".*", 2_000)).contains("every alert"));
        assert!(reason(new("ho st", "a", 2_000)).contains("label's name"));
        assert!(reason(new("host", "(", 2_000)).contains("pattern"));
        assert!(reason(NewSilence { comment: " \n".to_owned(), ..new("host", "a", 2_000) }).contains("why"));
        assert!(reason(NewSilence { matchers: Vec::new(), ..new("host", "a", 2_000) }).contains("1 to 50"));
        assert!(silences.all().is_empty());
    }
}
