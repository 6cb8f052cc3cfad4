//! Access tokens: made, listed, revoked, recognised.
//!
//! A token is `tg_`, twelve digits that it is known by, `_`, and 256 random bits. Only the SHA-256 of
//! the whole is kept, so whoever reads the store can't use what is in it.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard};

use model::{NANOS_PER_SECOND, nearest};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use store::{AppendError, Bounds, Scope, Scopes, Store, TOKEN_NAME_BYTES_MAX, TokenRecord};
use utoipa::ToSchema;

use crate::clock::{now_ns, to_ms};

/// What every token starts with, for those who search for leaked ones.
const PREFIX: &str = "tg_";
/// Hex digits of the random part.
const SECRET_DIGITS: usize = 64;
/// Most tokens, those that are revoked included.
const TOKENS_MAX: usize = 10_000;
/// Longest life that can be asked for: 100 years.
const LIFE_SECONDS_MAX: u64 = 100 * 366 * 86_400;
/// How long a revoked token stays in the list.
const REVOKED_KEPT_NS: i64 = 30 * 86_400 * NANOS_PER_SECOND;
/// Longest name of an organization, workspace or project, bytes.
const BOUND_BYTES_MAX: usize = 256;

/// What a new token is to be.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewToken {
    /// Whose it is or what for; may be empty.
    #[serde(default)]
    pub name: String,
    /// `ingest`, `read`, `agent`, `admin`; at least one.
    pub scopes: Vec<String>,
    /// Confines it to an organization.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub organization: Option<String>,
    /// Confines it to a workspace of the organization, the nameless one unless that is given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace: Option<String>,
    /// Confines it to a project of the organization, the nameless one unless that is given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project: Option<String>,
    /// After how many seconds it is refused; never when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_seconds: Option<u64>,
}

/// A token in a list: all but the secret.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct TokenRow {
    /// What it is revoked by; the token starts with it.
    pub id: String,
    /// Whose it is or what for.
    pub name: String,
    /// What it may do.
    pub scopes: Vec<&'static str>,
    /// The organization that it is confined to.
    pub organization: Option<String>,
    /// The workspace that it is confined to.
    pub workspace: Option<String>,
    /// The project that it is confined to.
    pub project: Option<String>,
    /// `live`, `expired` or `revoked`.
    pub state: &'static str,
    /// When it was made.
    pub created_ms: i64,
    /// From when on it is refused.
    pub expires_ms: Option<i64>,
    /// When it was taken back.
    pub revoked_ms: Option<i64>,
    /// When it was last used, to about a minute.
    pub used_ms: Option<i64>,
}

/// A new token, shown this once.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct CreatedToken {
    /// The token itself.
    pub token: String,
    /// What it is.
    #[serde(flatten)]
    pub row: TokenRow,
}

/// Why nothing was changed.
#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    /// What was asked for can't be.
    #[error("{message}")]
    Unusable {
        /// What was found.
        message: String,
        /// What is wanted.
        hint: String,
    },
    /// Nobody could get in any more.
    #[error("{message}")]
    Lockout {
        /// Why.
        message: String,
        /// The next step.
        hint: String,
    },
    /// There is no such token.
    #[error("there is no token `{0}`")]
    Missing(String),
    /// The store refuses.
    #[error(transparent)]
    Store(#[from] AppendError),
    /// The system has no random numbers.
    #[error("the system gives no random numbers: {0}")]
    Random(String),
}

impl TokenError {
    /// The next step.
    pub fn hint(&self) -> &str {
        match self {
            Self::Unusable { hint, .. } | Self::Lockout { hint, .. } => hint,
            Self::Missing(_) => "`truegauge token list` shows the ids of all",
            Self::Store(_) => "the server's log and `truegauge doctor` say more",
            Self::Random(_) => "the system's random device is missing or not ready",
        }
    }
}

/// Why a token opens nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Closed {
    /// There is none.
    Missing,
    /// Nobody knows it.
    Unknown,
    /// Its time is over.
    Expired,
    /// It was taken back.
    Revoked,
}

impl Closed {
    /// The word for the counter.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Missing => "missing",
            Self::Unknown => "unknown",
            Self::Expired => "expired",
            Self::Revoked => "revoked",
        }
    }
}

#[derive(Debug)]
struct Entry {
    record: TokenRecord,
    /// When it was last used, nanoseconds; 0 for never.
    used_ns: AtomicI64,
}

impl Entry {
    fn of(record: TokenRecord) -> Arc<Self> {
        let used_ns = AtomicI64::new(record.used_ns.unwrap_or(0));
        Arc::new(Self { record, used_ns })
    }

    fn state(&self, now_ns: i64) -> Result<(), Closed> {
        if self.record.revoked_ns.is_some() {
            Err(Closed::Revoked)
        } else if self.record.expires_ns.is_some_and(|expires_ns| expires_ns <= now_ns) {
            Err(Closed::Expired)
        } else {
            Ok(())
        }
    }

    fn row(&self, now_ns: i64) -> TokenRow {
        let record = &self.record;
        let used_ns = self.used_ns.load(Ordering::Relaxed);
        TokenRow {
            id: shown(record.id),
            name: record.name.clone(),
            scopes: record.scopes.iter().map(Scope::as_str).collect(),
            organization: record.bounds.organization.clone(),
            workspace: record.bounds.workspace.clone(),
            project: record.bounds.project.clone(),
            state: self.state(now_ns).err().map_or("live", Closed::as_str),
            created_ms: to_ms(record.created_ns),
            expires_ms: record.expires_ns.map(to_ms),
            revoked_ms: record.revoked_ns.map(to_ms),
            used_ms: (used_ns > 0).then(|| to_ms(used_ns)),
        }
    }
}

/// Every token of a store.
#[derive(Debug)]
pub struct TokenBook {
    store: Store,
    entries: RwLock<Entries>,
    /// Held by whoever changes a token, so that no change undoes another.
    changing: Mutex<()>,
}

type Entries = BTreeMap<[u8; 6], Arc<Entry>>;

impl TokenBook {
    /// Those in the directory of a server that does not run.
    pub fn open(data_dir: &Path) -> Result<Self, store::OpenError> {
        Ok(Self::of(Store::open(data_dir, store::Options::default())?))
    }

    /// Those of an open store.
    pub(crate) fn of(store: Store) -> Self {
        let entries = store.tokens().into_iter().map(|token| (token.id, Entry::of((*token).clone())));
        let entries = RwLock::new(entries.collect());
        Self { store, entries, changing: Mutex::default() }
    }

    fn entries(&self) -> RwLockReadGuard<'_, Entries> {
        self.entries.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self) -> MutexGuard<'_, ()> {
        self.changing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn show(&self, entry: Arc<Entry>) {
        let id = entry.record.id;
        self.entries.write().unwrap_or_else(PoisonError::into_inner).insert(id, entry);
    }

    /// Whether there is any that is not revoked. One that expired counts: a server does not open
    /// itself because time goes by.
    pub(crate) fn is_kept(&self) -> bool {
        self.entries().values().any(|entry| entry.record.revoked_ns.is_none())
    }

    /// Every token, oldest first.
    pub fn list(&self) -> Vec<TokenRow> {
        let now_ns = now_ns();
        let mut rows: Vec<TokenRow> = self.entries().values().map(|entry| entry.row(now_ns)).collect();
        rows.sort_by(|a, b| (a.created_ms, &a.id).cmp(&(b.created_ms, &b.id)));
        rows
    }

    /// Makes a token; it is durable when this returns.
    pub fn create(&self, new: &NewToken) -> Result<CreatedToken, TokenError> {
        let (scopes, bounds) = (scopes(&new.scopes)?, bounds(new)?);
        check_name("name", &new.name, TOKEN_NAME_BYTES_MAX)?;
        let now_ns = now_ns();
        let expires_ns = new
            .expires_seconds
            .map(|seconds| now_ns.saturating_add(seconds.min(LIFE_SECONDS_MAX) as i64 * NANOS_PER_SECOND));
        let _changing = self.change();
        self.forget_old(now_ns)?;
        if self.entries().len() >= TOKENS_MAX {
            return Err(TokenError::Unusable {
                message: format!("there are {TOKENS_MAX} tokens already"),
                hint: "revoke some: they leave the list after 30 days".into(),
            });
        }
        let id: [u8; 6] = random()?;
        let secret: [u8; SECRET_DIGITS / 2] = random()?;
        let token = format!("{}_{}", shown(id), hex(&secret));
        let record = TokenRecord {
            id,
            hash: digest(&token),
            name: new.name.clone(),
            scopes,
            bounds,
            created_ns: now_ns,
            expires_ns,
            revoked_ns: None,
            used_ns: None,
        };
        self.store.put_tokens(std::slice::from_ref(&record))?;
        let entry = Entry::of(record);
        let row = entry.row(now_ns);
        self.show(entry);
        tracing::info!(id = row.id, name = row.name, "a token was made");
        Ok(CreatedToken { token, row })
    }

    /// Takes a token back: it opens nothing from now on. One that is revoked already stays so.
    pub fn revoke(&self, id: &str) -> Result<TokenRow, TokenError> {
        let missing = || TokenError::Missing(id.chars().take(40).collect());
        let (found, now_ns) = (parse_id(id).ok_or_else(missing)?, now_ns());
        let _changing = self.change();
        let entry = self.entries().get(&found).cloned().ok_or_else(missing)?;
        if entry.record.revoked_ns.is_some() {
            return Ok(entry.row(now_ns));
        }
        let mut record = entry.record.clone();
        record.revoked_ns = Some(now_ns);
        record.used_ns = Some(entry.used_ns.load(Ordering::Relaxed)).filter(|used_ns| *used_ns > 0);
        self.store.put_tokens(std::slice::from_ref(&record))?;
        let entry = Entry::of(record);
        let row = entry.row(now_ns);
        self.show(entry);
        tracing::info!(id = row.id, name = row.name, "a token was revoked");
        Ok(row)
    }

    /// Whether an unbounded admin's token is left beside `id` that is neither revoked nor expired.
    pub(crate) fn has_other_admin(&self, id: &str) -> bool {
        let (without, now_ns) = (parse_id(id), now_ns());
        self.entries().values().any(|entry| {
            Some(entry.record.id) != without
                && entry.state(now_ns).is_ok()
                && entry.record.scopes.has(Scope::Admin)
                && entry.record.bounds.is_open()
        })
    }

    /// Whether other tokens than `id` are there that are not revoked.
    pub(crate) fn has_other(&self, id: &str) -> bool {
        let without = parse_id(id);
        self.entries()
            .values()
            .any(|entry| Some(entry.record.id) != without && entry.record.revoked_ns.is_none())
    }

    /// The token that `given` is, and what it may do.
    pub(crate) fn check(&self, given: &str, now_ns: i64) -> Result<Known, Closed> {
        let id = given.strip_prefix(PREFIX).and_then(|rest| rest.split_once('_'));
        let id = id.and_then(|(id, _)| parse_id(id)).ok_or(Closed::Unknown)?;
        // One that is not there is compared as well, so that time does not tell which ids are.
        let (entry, given) = (self.entries().get(&id).cloned(), digest(given));
        let is_it = equal(&given, &entry.as_ref().map_or([0; 32], |entry| entry.record.hash));
        match entry {
            Some(entry) if is_it => known(&entry, now_ns),
            _ => Err(Closed::Unknown),
        }
    }

    /// What a token may do now that was recognised before.
    pub(crate) fn again(&self, id: [u8; 6], now_ns: i64) -> Result<Known, Closed> {
        let entry = self.entries().get(&id).cloned();
        entry.map_or(Err(Closed::Unknown), |entry| known(&entry, now_ns))
    }

    /// Writes down which tokens were used since it was last done.
    pub(crate) fn note_used(&self) -> Result<(), AppendError> {
        let _changing = self.change();
        let mut used = Vec::new();
        for entry in self.store.tokens() {
            let used_ns = self.entries().get(&entry.id).map_or(0, |e| e.used_ns.load(Ordering::Relaxed));
            if used_ns > entry.used_ns.unwrap_or(0) {
                used.push(TokenRecord { used_ns: Some(used_ns), ..(*entry).clone() });
            }
        }
        if used.is_empty() { Ok(()) } else { self.store.put_tokens(&used) }
    }

    /// Drops what was revoked long ago.
    fn forget_old(&self, now_ns: i64) -> Result<(), AppendError> {
        let is_old = |entry: &Entry| {
            entry.record.revoked_ns.is_some_and(|revoked_ns| revoked_ns < now_ns - REVOKED_KEPT_NS)
        };
        let old: Vec<[u8; 6]> =
            self.entries().values().filter(|entry| is_old(entry)).map(|entry| entry.record.id).collect();
        for id in old {
            self.store.forget_token(id)?;
            self.entries.write().unwrap_or_else(PoisonError::into_inner).remove(&id);
        }
        Ok(())
    }
}

fn known(entry: &Entry, now_ns: i64) -> Result<Known, Closed> {
    entry.state(now_ns)?;
    entry.used_ns.fetch_max(now_ns, Ordering::Relaxed);
    let TokenRecord { id, name, scopes, bounds, .. } = &entry.record;
    Ok(Known { id: *id, name: name.clone(), scopes: *scopes, bounds: bounds.clone() })
}

/// A token that was recognised.
#[derive(Debug, Clone)]
pub(crate) struct Known {
    pub(crate) id: [u8; 6],
    pub(crate) name: String,
    pub(crate) scopes: Scopes,
    pub(crate) bounds: Bounds,
}

/// A token's id as people see it.
pub(crate) fn shown(id: [u8; 6]) -> String {
    format!("{PREFIX}{}", hex(&id))
}

/// Reads an id, with or without its prefix.
fn parse_id(text: &str) -> Option<[u8; 6]> {
    let digits = text.strip_prefix(PREFIX).unwrap_or(text);
    let is_hex =
        digits.len() == 12 && digits.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
    let number = is_hex.then(|| u64::from_str_radix(digits, 16).ok()).flatten()?;
    let [_, _, id @ ..] = number.to_be_bytes();
    Some(id)
}

/// Whether a text has the form of a token.
pub(crate) fn looks_like(text: &str) -> bool {
    let parts = text.strip_prefix(PREFIX).and_then(|rest| rest.split_once('_'));
    parts.is_some_and(|(id, secret)| {
        parse_id(id).is_some()
            && secret.len() == SECRET_DIGITS
            && secret.bytes().all(|b| b.is_ascii_hexdigit())
    })
}

/// SHA-256.
pub(crate) fn digest(text: &str) -> [u8; 32] {
    Sha256::digest(text.as_bytes()).into()
}

/// Compares without telling by its duration where the first difference is.
pub(crate) fn equal(a: &[u8; 32], b: &[u8; 32]) -> bool {
    let difference = a.iter().zip(b).fold(0, |seen, (a, b)| std::hint::black_box(seen | (a ^ b)));
    difference == 0
}

/// Bytes that nobody can guess.
pub(crate) fn random<const N: usize>() -> Result<[u8; N], TokenError> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).map_err(|error| TokenError::Random(error.to_string()))?;
    Ok(bytes)
}

/// Lower-case hex digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;

    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn scopes(words: &[String]) -> Result<Scopes, TokenError> {
    let known = || Scope::ALL.map(Scope::as_str);
    let hint = format!("the scopes are {}", known().map(|word| format!("`{word}`")).join(", "));
    let parse = |word: &String| {
        Scope::parse(word).ok_or_else(|| TokenError::Unusable {
            message: format!("`{}` is not a scope", word.chars().take(40).collect::<String>()),
            hint: match nearest(word, known()) {
                Some(near) => format!("did you mean `{near}`? {hint}"),
                None => hint.clone(),
            },
        })
    };
    let scopes: Scopes = words.iter().map(parse).collect::<Result<Vec<_>, _>>()?.into_iter().collect();
    if scopes.is_empty() {
        return Err(TokenError::Unusable { message: "a token needs at least one scope".into(), hint });
    }
    Ok(scopes)
}

fn bounds(new: &NewToken) -> Result<Bounds, TokenError> {
    let NewToken { organization, workspace, project, .. } = new;
    let names = [("organization", organization), ("workspace", workspace), ("project", project)];
    for (what, name) in names {
        check_name(what, name.as_deref().unwrap_or_default(), BOUND_BYTES_MAX)?;
    }
    let is_part = workspace.is_some() || project.is_some();
    if names.iter().any(|(_, name)| name.is_some())
        && names.iter().all(|(_, name)| name.as_deref().unwrap_or_default().is_empty())
    {
        return Err(TokenError::Unusable {
            message: "the names that the token is confined to are all empty".into(),
            hint: "name an organization, a workspace or a project, or leave all out".into(),
        });
    }
    Ok(Bounds {
        organization: organization.clone().or_else(|| is_part.then(String::new)),
        workspace: workspace.clone(),
        project: project.clone(),
    })
}

fn check_name(what: &str, name: &str, bytes_max: usize) -> Result<(), TokenError> {
    let unusable = |message: String| TokenError::Unusable {
        message,
        hint: format!("it has at most {bytes_max} bytes, without control characters"),
    };
    if name.len() > bytes_max {
        return Err(unusable(format!("the {what} has {} bytes", name.len())));
    }
    if name.chars().any(char::is_control) {
        return Err(unusable(format!("the {what} holds a control character")));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn new(scopes: &[&str]) -> NewToken {
        NewToken { scopes: scopes.iter().map(|word| (*word).to_owned()).collect(), ..NewToken::default() }
    }

    #[test]
    fn a_token_opens_until_it_is_revoked_and_its_secret_is_nowhere() {
        let dir = tempfile::tempdir().unwrap();
        let book = TokenBook::open(dir.path()).unwrap();
        assert!(!book.is_kept());
        let made = book.create(&new(&["read"])).unwrap();
        assert!(looks_like(&made.token) && made.token.starts_with(&made.row.id) && book.is_kept());
        let known = book.check(&made.token, 1).unwrap();
        assert!(known.scopes.has(Scope::Read) && !known.scopes.has(Scope::Ingest));
        let mut wrong = made.token.clone();
        let last = if wrong.ends_with('0') { "1" } else { "0" };
        wrong.replace_range(wrong.len() - 1.., last);
        for other in [wrong.as_str(), "", "tg_", &made.row.id, &format!("{}x", made.token)] {
            assert_eq!(book.check(other, 1).unwrap_err(), Closed::Unknown, "{other}");
        }
        book.note_used().unwrap();
        drop(book);
        let book = TokenBook::open(dir.path()).unwrap();
        assert!(book.list()[0].used_ms.is_some());
        book.check(&made.token, 1).unwrap();
        assert_eq!(book.revoke(&made.row.id).unwrap().state, "revoked");
        assert_eq!(book.check(&made.token, 1).unwrap_err(), Closed::Revoked);
        assert!(!book.is_kept());
        drop(book);
        let secret = made.token.rsplit('_').next().unwrap().as_bytes().to_vec();
        let bytes = std::fs::read(dir.path().join("catalogue.redb")).unwrap();
        assert!(!bytes.windows(secret.len()).any(|part| part == secret));
    }

    #[test]
    fn one_that_expired_opens_nothing_and_still_guards() {
        let dir = tempfile::tempdir().unwrap();
        let book = TokenBook::open(dir.path()).unwrap();
        let made = book.create(&NewToken { expires_seconds: Some(10), ..new(&["admin"]) }).unwrap();
        assert!(book.check(&made.token, now_ns()).is_ok());
        assert_eq!(book.check(&made.token, now_ns() + 11 * NANOS_PER_SECOND).unwrap_err(), Closed::Expired);
        assert!(book.is_kept());
    }

    #[test]
    fn what_can_not_be_is_said_with_what_is_wanted() {
        let dir = tempfile::tempdir().unwrap();
        let book = TokenBook::open(dir.path()).unwrap();
        let check = |new: NewToken, want: &str| {
            let error = book.create(&new).unwrap_err();
            assert!(format!("{error}: {}", error.hint()).contains(want), "{error}: {}", error.hint());
        };
        check(new(&[]), "at least one scope: the scopes are `ingest`");
        check(new(&["rread"]), "did you mean `read`?");
        check(NewToken { project: Some(String::new()), ..new(&["read"]) }, "all empty");
        check(NewToken { name: "a\nb".into(), ..new(&["read"]) }, "control character");
        check(NewToken { project: Some("x".repeat(257)), ..new(&["read"]) }, "257 bytes");
        assert!(matches!(book.revoke("tg_000000000000"), Err(TokenError::Missing(_))));
        assert!(matches!(book.revoke("nonsense"), Err(TokenError::Missing(_))));
        let made = book.create(&NewToken { project: Some("llm".into()), ..new(&["read"]) }).unwrap();
        assert_eq!(made.row.organization.as_deref(), Some(""), "a project alone is of no organization");
    }
}
