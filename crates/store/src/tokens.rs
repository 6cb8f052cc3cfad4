//! Access tokens: what each may do, where, and until when. The secret itself is never kept.

use std::fmt;

use crate::codec::{Reader, put_bytes, put_i64, put_optional};

/// Longest name of a token, bytes; it is cut there.
pub const TOKEN_NAME_BYTES_MAX: usize = 128;
const VERSION: u8 = 1;

/// A kind of thing that a token may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Scope {
    /// Send points and facts of runs.
    Ingest,
    /// Read.
    Read,
    /// What an agent on a node does: send and be told what to do.
    Agent,
    /// Everything.
    Admin,
}

impl Scope {
    /// All, in the order in which they are shown.
    pub const ALL: [Self; 4] = [Self::Ingest, Self::Read, Self::Agent, Self::Admin];

    /// The word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ingest => "ingest",
            Self::Read => "read",
            Self::Agent => "agent",
            Self::Admin => "admin",
        }
    }

    /// Reads [`Scope::as_str`].
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|scope| scope.as_str() == word)
    }

    fn bit(self) -> u8 {
        1 << self as u8
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Several scopes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Scopes(u8);

impl Scopes {
    /// Whether `scope` is among them.
    pub fn has(self, scope: Scope) -> bool {
        self.0 & scope.bit() != 0
    }

    /// Whether there is none.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Each of them.
    pub fn iter(self) -> impl Iterator<Item = Scope> {
        Scope::ALL.into_iter().filter(move |scope| self.has(*scope))
    }
}

impl FromIterator<Scope> for Scopes {
    fn from_iter<I: IntoIterator<Item = Scope>>(scopes: I) -> Self {
        Self(scopes.into_iter().fold(0, |bits, scope| bits | scope.bit()))
    }
}

/// What a token is confined to: runs and series whose names are these. An absent name is any.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Bounds {
    /// The organization; may be the empty one.
    pub organization: Option<String>,
    /// The workspace; may be the empty one.
    pub workspace: Option<String>,
    /// The project.
    pub project: Option<String>,
}

impl Bounds {
    /// The names that are given, by the label that carries each.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, &str)> {
        let names = [
            ("organization", &self.organization),
            ("workspace", &self.workspace),
            ("project", &self.project),
        ];
        names.into_iter().filter_map(|(label, name)| Some((label, name.as_deref()?)))
    }

    /// Whether everything lies within.
    pub fn is_open(&self) -> bool {
        self.iter().next().is_none()
    }
}

/// A token as it is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenRecord {
    /// What it is found by and called in lists.
    pub id: [u8; 6],
    /// SHA-256 of the whole token.
    pub hash: [u8; 32],
    /// Whose it is or what for; may be empty.
    pub name: String,
    /// What it may do.
    pub scopes: Scopes,
    /// Where.
    pub bounds: Bounds,
    /// When it was made, nanoseconds since the epoch.
    pub created_ns: i64,
    /// From when on it is refused.
    pub expires_ns: Option<i64>,
    /// When it was taken back.
    pub revoked_ns: Option<i64>,
    /// When it was last used, to about a minute.
    pub used_ns: Option<i64>,
}

impl TokenRecord {
    /// Its row, whose key is the id.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = vec![VERSION];
        out.extend_from_slice(&self.hash);
        put_bytes(&mut out, self.name.as_bytes());
        out.push(self.scopes.0);
        for name in [&self.bounds.organization, &self.bounds.workspace, &self.bounds.project] {
            out.push(u8::from(name.is_some()));
            put_bytes(&mut out, name.as_deref().unwrap_or_default().as_bytes());
        }
        put_i64(&mut out, self.created_ns);
        for time_ns in [self.expires_ns, self.revoked_ns, self.used_ns] {
            put_optional(&mut out, time_ns);
        }
        out
    }

    /// See [`TokenRecord::encode`].
    pub(crate) fn decode(id: [u8; 6], row: &[u8]) -> Option<Self> {
        let mut reader = Reader::new(row);
        if reader.byte()? != VERSION {
            return None;
        }
        let (hash, name, scopes) = (reader.array()?, reader.text()?, Scopes(reader.byte()?));
        let mut bound = || {
            let is_given = reader.byte()? == 1;
            let name = reader.text()?;
            Some(is_given.then_some(name))
        };
        let bounds = Bounds { organization: bound()?, workspace: bound()?, project: bound()? };
        let found = Self {
            id,
            hash,
            name,
            scopes,
            bounds,
            created_ns: reader.i64()?,
            expires_ns: reader.optional()?,
            revoked_ns: reader.optional()?,
            used_ns: reader.optional()?,
        };
        reader.is_empty().then_some(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_come_back_and_broken_ones_do_not() {
        let bounds =
            Bounds { organization: Some(String::new()), workspace: None, project: Some("llm".into()) };
        let token = TokenRecord {
            id: *b"abcdef",
            hash: [7; 32],
            name: "ci".into(),
            scopes: [Scope::Ingest, Scope::Read].into_iter().collect(),
            bounds,
            created_ns: -5,
            expires_ns: Some(9),
            revoked_ns: None,
            used_ns: Some(i64::MAX),
        };
        let row = token.encode();
        assert_eq!(TokenRecord::decode(token.id, &row), Some(token.clone()));
        for end in 0..row.len() {
            assert_eq!(TokenRecord::decode(token.id, &row[..end]), None, "{end}");
        }
        assert_eq!(token.scopes.iter().map(Scope::as_str).collect::<Vec<_>>(), ["ingest", "read"]);
        assert!(!token.bounds.is_open() && Bounds::default().is_open());
    }
}
