//! Who asks, and what of it all that one may see and do.
//!
//! The guard finds out and puts a [`Caller`] among a request's extensions; a handler takes it as an
//! argument and hands it on to whatever looks something up. What a caller may not see is not there
//! for it: neither in lists nor in counts nor in the words of an error.

mod census;
mod door;
mod rules;
mod sessions;
mod tokens;
mod within;

use std::sync::Arc;
use std::time::Duration;

use axum::extract::FromRequestParts;
use axum::http::StatusCode;
use axum::http::request::Parts;
use model::{RunPath, RunRecord};
use promql::{MatchOp, Matcher, QueryError};
use store::{Bounds, Scope, Scopes};

use crate::app::{App, stopped};
use crate::error::ApiError;

pub(crate) use census::census;
pub(crate) use door::{Access, Certified, cookie, refusal};
pub(crate) use rules::needs;
pub(crate) use sessions::Holder;
pub(crate) use tokens::{Closed, looks_like, shown};
pub use tokens::{CreatedToken, NewToken, TokenBook, TokenError, TokenRow};
pub(crate) use within::Within;

/// By what somebody is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum How {
    /// Not at all.
    Nobody,
    /// This server asks nobody.
    Open,
    /// By the token of the server's settings.
    Server,
    /// By a token of the store.
    Token {
        /// Its id.
        id: [u8; 6],
        /// Its name; may be empty.
        name: String,
    },
    /// By the name in a client certificate.
    Certificate(String),
}

/// The one who asks. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Caller(Arc<Rights>);

#[derive(Debug, Clone)]
struct Rights {
    scopes: Scopes,
    bounds: Bounds,
    how: How,
    is_in_session: bool,
}

impl Caller {
    /// One with these rights.
    pub(crate) fn known(scopes: Scopes, bounds: Bounds, how: How) -> Self {
        Self(Arc::new(Rights { scopes, bounds, how, is_in_session: false }))
    }

    /// The same, by a browser's cookie.
    pub(crate) fn in_session(self) -> Self {
        Self(Arc::new(Rights { is_in_session: true, ..(*self.0).clone() }))
    }

    /// One who may do everything: the server itself, and everyone where no token is asked for.
    pub(crate) fn everything() -> Self {
        Self::known(std::iter::once(Scope::Admin).collect(), Bounds::default(), How::Open)
    }

    /// One who is not known: only what is open to all.
    pub(crate) fn nobody() -> Self {
        Self::known(Scopes::default(), Bounds::default(), How::Nobody)
    }

    /// By what it is known.
    pub(crate) fn how(&self) -> &How {
        &self.0.how
    }

    /// How logs and the audit name it.
    pub(crate) fn named(&self) -> String {
        match self.how() {
            How::Token { name, .. } if !name.is_empty() => format!("token {name}"),
            How::Token { id, .. } => format!("token {}", shown(*id)),
            How::Certificate(name) => format!("certificate {name}"),
            How::Server => "the server's token".to_owned(),
            How::Open | How::Nobody => "somebody".to_owned(),
        }
    }

    /// Whether by a browser's cookie.
    pub(crate) fn is_in_session(&self) -> bool {
        self.0.is_in_session
    }

    /// What it may do.
    pub(crate) fn scopes(&self) -> Scopes {
        self.0.scopes
    }

    /// Whether it has a scope; an admin has all.
    pub(crate) fn may(&self, scope: Scope) -> bool {
        self.0.scopes.has(scope) || self.0.scopes.has(Scope::Admin)
    }

    /// 403 that names the scope, unless it has one of `scopes`.
    pub(crate) fn check(&self, scopes: &[Scope]) -> Result<(), ApiError> {
        if scopes.iter().any(|scope| self.may(*scope)) {
            return Ok(());
        }
        let needed: Vec<String> = scopes.iter().map(|scope| format!("`{scope}`")).collect();
        let message = format!("this needs a token with the scope {}", needed.join(" or "));
        Err(ApiError::new(StatusCode::FORBIDDEN, message)
            .hint("`truegauge token create --scope ...` makes one, an admin's token lets you"))
    }

    /// Whether it sees a part only.
    pub(crate) fn is_bounded(&self) -> bool {
        !self.0.bounds.is_open()
    }

    /// 403 unless it sees everything: for what concerns all projects at once.
    pub(crate) fn check_unbounded(&self) -> Result<(), ApiError> {
        if !self.is_bounded() {
            return Ok(());
        }
        Err(ApiError::new(StatusCode::FORBIDDEN, "this concerns all projects, and the token is for some")
            .hint("use a token without `--org`, `--workspace` and `--project`"))
    }

    /// What it is confined to.
    pub(crate) fn bounds(&self) -> &Bounds {
        &self.0.bounds
    }

    /// Whether a run lies within its bounds.
    pub(crate) fn sees(&self, path: &RunPath) -> bool {
        self.0.bounds.iter().all(|(label, name)| {
            name == match label {
                "organization" => &path.organization,
                "workspace" => &path.workspace,
                _ => &path.project,
            }
        })
    }

    /// 403 unless a run lies within its bounds: for what is sent.
    pub(crate) fn check_path(&self, path: &RunPath) -> Result<(), ApiError> {
        if self.sees(path) {
            return Ok(());
        }
        let bounds: Vec<String> =
            self.0.bounds.iter().map(|(what, name)| format!("{what} `{name}`")).collect();
        let message = format!("this token may only send runs of the {}", bounds.join(", "));
        Err(ApiError::new(StatusCode::FORBIDDEN, message)
            .hint("send the run under these names, or use a token for its project"))
    }

    /// Keeps the runs that it sees.
    pub(crate) fn seen(&self, mut runs: Vec<Arc<RunRecord>>) -> Vec<Arc<RunRecord>> {
        if self.is_bounded() {
            runs.retain(|run| self.sees(&run.path));
        }
        runs
    }

    /// Whether a series, or an alert, whose labels the function knows lies within its bounds. Those of no
    /// project are seen by the unbounded only.
    pub(crate) fn sees_labels<'l>(&self, label: impl Fn(&str) -> Option<&'l str>) -> bool {
        self.0.bounds.iter().all(|(name, value)| label(name).unwrap_or_default() == value)
    }

    /// Conditions that its selectors must meet beside their own; none when it sees everything.
    pub(crate) fn matchers(&self) -> Vec<Matcher> {
        // A condition of equality has no pattern that could be wrong.
        self.0.bounds.iter().filter_map(|(l, v)| Matcher::new(l, MatchOp::Equal, v).ok()).collect()
    }

    /// The selectors of `match[]`, each within its bounds; where none are given, one for all it sees.
    pub(crate) fn confine(&self, mut selectors: Vec<Vec<Matcher>>) -> Vec<Vec<Matcher>> {
        if self.is_bounded() {
            if selectors.is_empty() {
                selectors.push(Vec::new());
            }
            for matchers in &mut selectors {
                matchers.extend(self.matchers());
            }
        }
        selectors
    }

    /// A query that another server is to answer, with every selector within its bounds.
    pub(crate) fn confined_text(&self, query: &str) -> Result<String, QueryError> {
        if !self.is_bounded() {
            return Ok(query.to_owned());
        }
        promql::restrict(query, &self.matchers())
    }
}

impl<S: Sync> FromRequestParts<S> for Caller {
    type Rejection = ApiError;

    /// What the guard found; without it nobody may do anything.
    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiError> {
        let found = parts.extensions.get::<Self>().cloned();
        found.ok_or_else(|| ApiError::internal("nobody looked at who asks"))
    }
}

/// How often it is written down when tokens were used.
const NOTE_EVERY: Duration = Duration::from_mins(1);

/// Starts writing down when tokens were used; ends when the server stops.
pub(crate) fn spawn(app: &App) {
    let app = Arc::clone(app);
    let mut stopping = app.stopping.clone();
    tokio::spawn(async move {
        loop {
            tokio::select! {
                () = tokio::time::sleep(NOTE_EVERY) => (),
                () = stopped(&mut stopping) => return,
            }
            let app = Arc::clone(&app);
            let _ = tokio::task::spawn_blocking(move || note_used(&app)).await;
        }
    });
}

/// Writes down when tokens were used.
pub(crate) fn note_used(app: &App) {
    if let Err(error) = app.access.tokens.note_used() {
        tracing::warn!(%error, "cannot note when tokens were used");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn caller(organization: Option<&str>, project: Option<&str>) -> Caller {
        let bounds = Bounds {
            organization: organization.map(str::to_owned),
            workspace: None,
            project: project.map(str::to_owned),
        };
        Caller::known(std::iter::once(Scope::Read).collect(), bounds, How::Open)
    }

    fn path(organization: &str, project: &str) -> RunPath {
        RunPath {
            organization: organization.into(),
            workspace: "w".into(),
            project: project.into(),
            run: "r".into(),
        }
    }

    #[test]
    fn an_admin_may_all_and_others_what_is_said() {
        let reader = caller(None, None);
        assert!(reader.check(&[Scope::Ingest, Scope::Read]).is_ok());
        let refusal = reader.check(&[Scope::Admin]).unwrap_err();
        assert!(refusal.message().contains("`admin`"), "{refusal:?}");
        assert!(Caller::everything().check(&[Scope::Agent]).is_ok());
        assert!(Caller::nobody().check(&Scope::ALL).is_err());
    }

    #[test]
    fn bounds_are_exact_and_leave_out_what_has_no_project() {
        let sees = |caller: &Caller, labels: &[(&'static str, &'static str)]| {
            caller.sees_labels(|name| labels.iter().find(|(n, _)| *n == name).map(|(_, value)| *value))
        };
        let one = caller(Some("acme"), Some("llm"));
        assert!(one.sees(&path("acme", "llm")));
        assert!(!one.sees(&path("acme", "llm2")) && !one.sees(&path("", "llm")));
        assert!(sees(&one, &[("organization", "acme"), ("project", "llm")]));
        assert!(!sees(&one, &[("project", "llm")]));
        let nameless = caller(Some(""), Some("llm"));
        assert!(sees(&nameless, &[("project", "llm")]) && !sees(&nameless, &[]));
        assert!(!nameless.sees(&path("acme", "llm")));
    }

    #[test]
    fn selectors_and_texts_are_confined() {
        let one = caller(Some("acme"), Some("l\"lm"));
        let confined = one.confine(Vec::new());
        assert_eq!(confined.len(), 1);
        assert_eq!(confined[0].len(), 2);
        assert_eq!(
            one.confined_text("up or vector(1)").unwrap(),
            r#"up{organization="acme",project="l\"lm"} or vector(1)"#
        );
        assert_eq!(caller(None, None).confined_text("up").unwrap(), "up");
    }
}
