//! Browsers that are logged in, and links that log one in.
//!
//! Kept in memory: after a restart one logs in again. Of a link and of a cookie only the SHA-256 is
//! kept.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use model::NANOS_PER_SECOND;

use super::tokens::{TokenError, digest, hex, random};

/// How long a link works.
pub(crate) const LINK_SECONDS: i64 = 600;
/// How long a session lasts, used or not.
pub(crate) const SESSION_SECONDS: i64 = 7 * 86_400;
/// How long a session lasts without being used.
const IDLE_SECONDS: i64 = 86_400;
/// Links that wait at once.
const LINKS_MAX: usize = 100;
/// Sessions at once; beyond it the one that was used longest ago ends.
const SESSIONS_MAX: usize = 1_000;

/// Whose rights a session has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Holder {
    /// Whoever started the server.
    Server,
    /// A token's, for as long as it is good.
    Token([u8; 6]),
}

#[derive(Debug)]
struct Link {
    holder: Holder,
    until_ns: i64,
}

#[derive(Debug)]
struct Session {
    holder: Holder,
    until_ns: i64,
    used_ns: i64,
}

type Digest = [u8; 32];

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Sessions(Mutex<Inside>);

#[derive(Debug, Default)]
struct Inside {
    links: HashMap<Digest, Link>,
    sessions: HashMap<Digest, Session>,
}

impl Sessions {
    fn inside(&self) -> MutexGuard<'_, Inside> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes a link's code, which works once.
    pub(crate) fn link(&self, holder: Holder, now_ns: i64) -> Result<String, TokenError> {
        let code = hex(&random::<32>()?);
        let mut inside = self.inside();
        inside.links.retain(|_, link| link.until_ns > now_ns);
        if inside.links.len() >= LINKS_MAX {
            return Err(TokenError::Unusable {
                message: format!("{LINKS_MAX} links are waiting to be opened"),
                hint: format!("each is good for {} minutes: use one, or wait", LINK_SECONDS / 60),
            });
        }
        let until_ns = now_ns.saturating_add(LINK_SECONDS * NANOS_PER_SECOND);
        inside.links.insert(digest(&code), Link { holder, until_ns });
        Ok(code)
    }

    /// Uses a link's code up.
    pub(crate) fn redeem(&self, code: &str, now_ns: i64) -> Option<Holder> {
        let link = self.inside().links.remove(&digest(code))?;
        (link.until_ns > now_ns).then_some(link.holder)
    }

    /// Opens a session; gives what the cookie holds.
    pub(crate) fn open(&self, holder: Holder, now_ns: i64) -> Result<String, TokenError> {
        let cookie = hex(&random::<32>()?);
        let mut inside = self.inside();
        inside.sessions.retain(|_, session| session.is_good(now_ns));
        if inside.sessions.len() >= SESSIONS_MAX {
            let oldest = inside.sessions.iter().min_by_key(|(_, session)| session.used_ns);
            if let Some(oldest) = oldest.map(|(key, _)| *key) {
                inside.sessions.remove(&oldest);
            }
        }
        let until_ns = now_ns.saturating_add(SESSION_SECONDS * NANOS_PER_SECOND);
        inside.sessions.insert(digest(&cookie), Session { holder, until_ns, used_ns: now_ns });
        Ok(cookie)
    }

    /// Whose a session is, if it is one.
    pub(crate) fn holder(&self, cookie: &str, now_ns: i64) -> Option<Holder> {
        let key = digest(cookie);
        let mut inside = self.inside();
        let session = inside.sessions.get_mut(&key)?;
        if !session.is_good(now_ns) {
            inside.sessions.remove(&key);
            return None;
        }
        session.used_ns = session.used_ns.max(now_ns);
        Some(session.holder)
    }

    /// Ends a session.
    pub(crate) fn close(&self, cookie: &str) {
        self.inside().sessions.remove(&digest(cookie));
    }
}

impl Session {
    fn is_good(&self, now_ns: i64) -> bool {
        now_ns < self.until_ns && now_ns < self.used_ns.saturating_add(IDLE_SECONDS * NANOS_PER_SECOND)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: i64 = NANOS_PER_SECOND;

    #[test]
    fn a_link_works_once_and_not_for_long() {
        let sessions = Sessions::default();
        let code = sessions.link(Holder::Server, 0).unwrap();
        assert_eq!(sessions.redeem(&code[1..], 1), None);
        assert_eq!(sessions.redeem(&code, 1), Some(Holder::Server));
        assert_eq!(sessions.redeem(&code, 1), None);
        let late = sessions.link(Holder::Server, 0).unwrap();
        assert_eq!(sessions.redeem(&late, LINK_SECONDS * SECOND), None);
        for _ in 0..LINKS_MAX {
            sessions.link(Holder::Server, 0).unwrap();
        }
        assert!(sessions.link(Holder::Server, 0).is_err());
        sessions.link(Holder::Server, LINK_SECONDS * SECOND).unwrap();
    }

    #[test]
    fn a_session_ends_unused_after_its_time_and_when_it_is_closed() {
        let sessions = Sessions::default();
        let holder = Holder::Token([1; 6]);
        let cookie = sessions.open(holder, 0).unwrap();
        let mut now_ns = 0;
        while now_ns < (SESSION_SECONDS - IDLE_SECONDS) * SECOND {
            assert_eq!(sessions.holder(&cookie, now_ns), Some(holder), "{now_ns}");
            now_ns += (IDLE_SECONDS - 1) * SECOND;
        }
        assert_eq!(sessions.holder(&cookie, SESSION_SECONDS * SECOND), None);
        let idle = sessions.open(holder, 0).unwrap();
        assert_eq!(sessions.holder(&idle, IDLE_SECONDS * SECOND), None);
        let closed = sessions.open(holder, 0).unwrap();
        sessions.close(&closed);
        assert_eq!(sessions.holder(&closed, 1), None);
    }

    #[test]
    fn the_session_that_was_used_longest_ago_makes_room() {
        let sessions = Sessions::default();
        let first = sessions.open(Holder::Server, 0).unwrap();
        let second = sessions.open(Holder::Server, 1).unwrap();
        for at in 2..SESSIONS_MAX as i64 {
            sessions.open(Holder::Server, at).unwrap();
        }
        assert!(sessions.holder(&first, 5_000).is_some());
        sessions.open(Holder::Server, 5_001).unwrap();
        assert!(sessions.holder(&second, 5_002).is_none() && sessions.holder(&first, 5_002).is_some());
    }
}
