//! Finds out who asks: by token, by session, by client certificate.

use axum::http::{HeaderMap, Method, StatusCode, header};
use model::NANOS_PER_SECOND;
use store::{Bounds, Scope, Scopes, Store};

use super::sessions::{Holder, LINK_SECONDS, SESSION_SECONDS, Sessions};
use super::tokens::{Closed, Known, TokenBook, TokenError, digest, equal};
use super::{Caller, How};
use crate::clock::now_ns;
use crate::config::Config;
use crate::error::ApiError;

/// Longest credential that is looked at, bytes.
const CREDENTIAL_BYTES_MAX: usize = 4 << 10;

/// How an attempt to show who one is ended, for the counter: by what, and how.
pub(crate) type Attempt = (&'static str, &'static str);

/// Who a connection is by its certificate: its names, and what they may do.
#[derive(Debug, Clone)]
pub(crate) struct Certified {
    /// The name that the settings know.
    pub(crate) name: String,
    /// What it may do.
    pub(crate) scopes: Scopes,
}

/// Everything by which somebody may get in.
#[derive(Debug)]
pub(crate) struct Access {
    /// Tokens in the store.
    pub(crate) tokens: TokenBook,
    /// Browsers.
    pub(crate) sessions: Sessions,
    /// SHA-256 of the token of the settings.
    fixed: Option<[u8; 32]>,
    has_certificates: bool,
    is_secure: bool,
}

/// A refusal, for the counter and for the one who asked.
type Refused = (Attempt, ApiError);

impl Access {
    /// By these settings and what the store keeps.
    pub(crate) fn new(config: &Config, store: &Store) -> Self {
        Self {
            tokens: TokenBook::of(store.clone()),
            sessions: Sessions::default(),
            fixed: (!config.token.is_empty()).then(|| digest(config.token.as_str())),
            has_certificates: !config.tls.clients.is_empty(),
            is_secure: config.tls.cert.is_some(),
        }
    }

    /// Whether anybody has to show who they are.
    pub(crate) fn is_guarded(&self) -> bool {
        self.fixed.is_some() || self.has_certificates || self.tokens.is_kept()
    }

    /// Whether the settings have a token, which no list can lose.
    pub(crate) fn has_fixed(&self) -> bool {
        self.fixed.is_some()
    }

    /// Who asks; `None` when nothing says so.
    pub(crate) fn caller(
        &self,
        method: &Method,
        headers: &HeaderMap,
        port: u16,
        certified: Option<&Certified>,
    ) -> Result<Option<(Caller, Attempt)>, Refused> {
        if !self.is_guarded() {
            return Ok(Some((Caller::everything(), ("none", "accepted"))));
        }
        let now_ns = now_ns();
        if headers.contains_key(header::AUTHORIZATION) {
            let caller = self.by_header(headers, now_ns)?;
            return Ok(Some((caller, ("token", "accepted"))));
        }
        if let Some(cookie) = cookie(headers, port) {
            let known = self.by_cookie(cookie, now_ns);
            let Some(caller) = known else {
                return Ok(None);
            };
            if !method.is_safe() && !is_own_page(headers) {
                let error =
                    ApiError::new(StatusCode::FORBIDDEN, "a session changes things from its own page only")
                        .hint("send a token in `Authorization` instead of the cookie");
                return Err((("session", "cross_site"), error));
            }
            return Ok(Some((caller, ("session", "accepted"))));
        }
        Ok(certified.map(|of| {
            let how = How::Certificate(of.name.clone());
            (Caller::known(of.scopes, Bounds::default(), how), ("certificate", "accepted"))
        }))
    }

    fn by_header(&self, headers: &HeaderMap, now_ns: i64) -> Result<Caller, Refused> {
        let mut given = headers.get_all(header::AUTHORIZATION).iter();
        let (Some(first), None) = (given.next(), given.next()) else {
            let error = ApiError::bad("`Authorization` was sent more than once").hint("send one");
            return Err((("token", "malformed"), error));
        };
        let text = first.to_str().ok().filter(|text| text.len() <= CREDENTIAL_BYTES_MAX);
        let token = text.and_then(|text| text.split_once(' ')).and_then(|(scheme, token)| {
            let token = token.trim();
            (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then_some(token)
        });
        let Some(token) = token else {
            let error = ApiError::new(StatusCode::UNAUTHORIZED, "`Authorization` is not a bearer token")
                .hint("send `Authorization: Bearer <token>`");
            return Err((("token", "malformed"), error));
        };
        self.by_token(token, now_ns)
            .map(|(caller, _)| caller)
            .map_err(|closed| (("token", closed.as_str()), refusal(closed)))
    }

    /// What a token opens, and whose it is.
    pub(crate) fn by_token(&self, token: &str, now_ns: i64) -> Result<(Caller, Holder), Closed> {
        if self.fixed.is_some_and(|fixed| equal(&digest(token), &fixed)) {
            return Ok((server(), Holder::Server));
        }
        let known = self.tokens.check(token, now_ns)?;
        let holder = Holder::Token(known.id);
        Ok((of_token(known), holder))
    }

    fn by_cookie(&self, cookie: &str, now_ns: i64) -> Option<Caller> {
        let holder = self.sessions.holder(cookie, now_ns)?;
        self.of_holder(holder, now_ns).ok().map(Caller::in_session)
    }

    /// What somebody's rights are now.
    pub(crate) fn of_holder(&self, holder: Holder, now_ns: i64) -> Result<Caller, Closed> {
        match holder {
            Holder::Server => Ok(server()),
            Holder::Token(id) => self.tokens.again(id, now_ns).map(of_token),
        }
    }

    /// The path of a link that logs a browser in with the rights of `holder`.
    pub(crate) fn link(&self, holder: Holder) -> Result<(String, i64), TokenError> {
        let now_ns = now_ns();
        let code = self.sessions.link(holder, now_ns)?;
        Ok((format!("/login#{code}"), now_ns + LINK_SECONDS * NANOS_PER_SECOND))
    }

    /// The header that gives a browser its cookie; an empty one takes it away. A page that came by
    /// TLS, from here or through a proxy, gets one that goes by TLS only.
    pub(crate) fn set_cookie(&self, value: &str, port: u16, headers: &HeaderMap) -> String {
        let seconds = if value.is_empty() { 0 } else { SESSION_SECONDS };
        let by_proxy = headers.get(header::ORIGIN).is_some_and(|from| from.as_bytes().starts_with(b"https:"));
        let secure = if self.is_secure || by_proxy { "; Secure" } else { "" };
        let name = cookie_name(port);
        format!("{name}={value}; Path=/; Max-Age={seconds}; HttpOnly; SameSite=Strict{secure}")
    }
}

fn server() -> Caller {
    Caller::known(std::iter::once(Scope::Admin).collect(), Bounds::default(), How::Server)
}

fn of_token(Known { id, name, scopes, bounds }: Known) -> Caller {
    Caller::known(scopes, bounds, How::Token { id, name })
}

/// Why a token is refused, and what to do. That one expired or was revoked is told only to who has
/// the whole of it.
pub(crate) fn refusal(closed: Closed) -> ApiError {
    let (message, hint) = match closed {
        Closed::Missing => (
            "a token is needed, and none was sent",
            "send `Authorization: Bearer <token>`; clients read it from `TRUEGAUGE_TOKEN`, OpenTelemetry's take \
             `OTEL_EXPORTER_OTLP_HEADERS=authorization=Bearer%20<token>`",
        ),
        Closed::Unknown => (
            "that is no token of this server",
            "check that all of it was sent, clients read `TRUEGAUGE_TOKEN`; an admin makes another with `truegauge token create`",
        ),
        Closed::Expired => ("the token has expired", "an admin makes another with `truegauge token create`"),
        Closed::Revoked => ("the token was revoked", "an admin makes another with `truegauge token create`"),
    };
    ApiError::new(StatusCode::UNAUTHORIZED, message).hint(hint)
}

/// Cookies know no ports: two servers of one machine have two names.
fn cookie_name(port: u16) -> String {
    format!("truegauge_{port}")
}

/// The session's cookie, unless it was sent twice.
pub(crate) fn cookie(headers: &HeaderMap, port: u16) -> Option<&str> {
    let name = cookie_name(port);
    let lines = headers.get_all(header::COOKIE).iter().filter_map(|line| line.to_str().ok());
    let mut found = lines
        .flat_map(|line| line.split(';'))
        .filter_map(|pair| pair.trim().split_once('='))
        .filter(|(key, value)| *key == name && !value.is_empty())
        .map(|(_, value)| value);
    let first = found.next().filter(|value| value.len() <= CREDENTIAL_BYTES_MAX);
    first.filter(|_| found.next().is_none())
}

/// Whether a browser says that a page of this server asks. A foreign `Origin` was refused before.
fn is_own_page(headers: &HeaderMap) -> bool {
    headers.contains_key(header::ORIGIN)
        || headers.get("sec-fetch-site").is_some_and(|site| site.as_bytes() == b"same-origin")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cookie_is_this_servers_and_only_one() {
        let read = |lines: &[&'static str]| {
            let mut headers = HeaderMap::new();
            for line in lines {
                headers.append(header::COOKIE, line.parse().unwrap());
            }
            cookie(&headers, 9494).map(str::to_owned)
        };
        assert_eq!(read(&["a=b; truegauge_9494=x"]).as_deref(), Some("x"));
        assert_eq!(read(&["truegauge_9494=x", "c=d"]).as_deref(), Some("x"));
        for none in [&["truegauge_1=x"][..], &["truegauge_9494="], &[], &["truegauge_9494"]] {
            assert_eq!(read(none), None, "{none:?}");
        }
        assert_eq!(read(&["truegauge_9494=x; truegauge_9494=y"]), None);
        assert_eq!(read(&["truegauge_9494=x", "truegauge_9494=y"]), None);
    }
}
