//! Tokens, login and logout.

use axum::Json;
use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use store::Scope;
use utoipa::ToSchema;

use crate::access::{Caller, CreatedToken, Holder, How, NewToken, TokenError, TokenRow, cookie, refusal};
use crate::app::{App, blocking};
use crate::clock::{now_ns, to_ms};
use crate::error::ApiError;

impl From<TokenError> for ApiError {
    fn from(error: TokenError) -> Self {
        let hint = error.hint().to_owned();
        match error {
            TokenError::Unusable { .. } => Self::bad(error.to_string()).hint(hint),
            TokenError::Lockout { .. } => Self::new(StatusCode::CONFLICT, error.to_string()).hint(hint),
            TokenError::Missing(_) => Self::missing(error.to_string()).hint(hint),
            TokenError::Store(error) => error.into(),
            TokenError::Random(_) => Self::internal(error.to_string()).hint(hint),
        }
    }
}

/// Every token, oldest first.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct TokensAnswer {
    tokens: Vec<TokenRow>,
}

/// Tokens, without their secrets.
#[utoipa::path(get, operation_id = "listTokens", path = "/api/tg/v1/tokens", responses(
    (status = 200, body = TokensAnswer), (status = 403, body = crate::error::ErrorBody)
))]
pub(crate) async fn list(State(app): State<App>) -> Json<TokensAnswer> {
    Json(TokensAnswer { tokens: app.access.tokens.list() })
}

/// Makes a token; the answer is the only place where it is shown.
#[utoipa::path(post, operation_id = "createToken", path = "/api/tg/v1/tokens", request_body = NewToken,
    responses(
        (status = 201, body = CreatedToken), (status = 400, body = crate::error::ErrorBody),
        (status = 403, body = crate::error::ErrorBody), (status = 409, body = crate::error::ErrorBody)
    ))]
pub(crate) async fn create(
    State(app): State<App>,
    body: Bytes,
) -> Result<(StatusCode, Json<CreatedToken>), ApiError> {
    let new: NewToken = super::json_body(&body)?;
    blocking(move || {
        let is_admin = new.scopes.iter().any(|scope| scope == Scope::Admin.as_str())
            && new.organization.is_none()
            && new.workspace.is_none()
            && new.project.is_none();
        if !is_admin && !app.access.is_guarded() {
            return Err(TokenError::Lockout {
                message: "with its first token this server asks everybody for one, and this one would not let you back in".into(),
                hint: "make a token with the scope `admin` first".into(),
            }
            .into());
        }
        Ok((StatusCode::CREATED, Json(app.access.tokens.create(&new)?)))
    })
    .await
}

/// Takes a token back at once, and ends the sessions that have its rights.
#[utoipa::path(delete, operation_id = "revokeToken", path = "/api/tg/v1/tokens/{id}",
    params(("id" = String, Path, description = "as the list shows it, `tg_` and 12 digits")),
    responses(
        (status = 200, body = TokenRow), (status = 403, body = crate::error::ErrorBody),
        (status = 404, body = crate::error::ErrorBody), (status = 409, body = crate::error::ErrorBody)
    ))]
pub(crate) async fn revoke(
    State(app): State<App>,
    Path(id): Path<String>,
) -> Result<Json<TokenRow>, ApiError> {
    blocking(move || {
        let tokens = &app.access.tokens;
        if !app.access.has_fixed() && !tokens.has_other_admin(&id) {
            let hint = "make another with `truegauge token create --scope admin` first";
            if tokens.has_other(&id) {
                return Err(TokenError::Lockout {
                    message: "it is the last admin's token, and others are left: nobody could take them back"
                        .into(),
                    hint: hint.into(),
                }
                .into());
            }
            if !app.config.listen.ip().is_loopback() {
                return Err(TokenError::Lockout {
                    message: "it is the last token of a server that others can reach".into(),
                    hint: hint.into(),
                }
                .into());
            }
        }
        Ok(Json(tokens.revoke(&id)?))
    })
    .await
}

/// Who one is.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct SessionAnswer {
    /// Whether this server asks who one is.
    guarded: bool,
    /// Who asks; null for one who did not show it.
    caller: Option<CallerRow>,
}

/// Somebody and what they may do.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct CallerRow {
    /// The token's name or id, the certificate's name, or `server` for who started it.
    name: String,
    /// `open`, `server`, `token` or `certificate`.
    how: &'static str,
    /// Whether by a browser's cookie.
    session: bool,
    scopes: Vec<&'static str>,
    organization: Option<String>,
    workspace: Option<String>,
    project: Option<String>,
}

fn row(caller: &Caller) -> Option<CallerRow> {
    let (how, name) = match caller.how() {
        How::Nobody => return None,
        How::Open => ("open", "anyone".to_owned()),
        How::Server => ("server", "server".to_owned()),
        How::Token { id, name } if name.is_empty() => ("token", crate::access::shown(*id)),
        How::Token { name, .. } => ("token", name.clone()),
        How::Certificate(name) => ("certificate", name.clone()),
    };
    let bounds = caller.bounds().clone();
    Some(CallerRow {
        name,
        how,
        session: caller.is_in_session(),
        scopes: caller.scopes().iter().map(Scope::as_str).collect(),
        organization: bounds.organization,
        workspace: bounds.workspace,
        project: bounds.project,
    })
}

/// Who the caller is, and whether it has to be anybody.
#[utoipa::path(get, operation_id = "showSession", path = "/api/tg/v1/session", responses((status = 200, body = SessionAnswer)))]
pub(crate) async fn session(State(app): State<App>, caller: Caller) -> Json<SessionAnswer> {
    Json(SessionAnswer { guarded: app.access.is_guarded(), caller: row(&caller) })
}

/// By what a browser logs in: one of the two.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct LoginBody {
    /// What stands behind the `#` of a link.
    #[serde(default)]
    code: Option<String>,
    /// A token.
    #[serde(default)]
    token: Option<String>,
}

/// Logs a browser in: the answer sets its cookie.
#[utoipa::path(post, operation_id = "login", path = "/api/tg/v1/login", request_body = LoginBody,
    responses(
        (status = 200, body = SessionAnswer), (status = 400, body = crate::error::ErrorBody),
        (status = 401, body = crate::error::ErrorBody)
    ))]
pub(crate) async fn login(
    State(app): State<App>,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Response, ApiError> {
    let body: LoginBody = super::json_body(&body)?;
    let now_ns = now_ns();
    let access = &app.access;
    let count = |outcome: &str| app.metrics.access.add(&["login", outcome], 1);
    let holder = match (&body.code, &body.token) {
        (Some(code), None) => access.sessions.redeem(code, now_ns).ok_or_else(|| {
            count("unknown");
            ApiError::new(StatusCode::UNAUTHORIZED, "this link was used already, or its time is over")
                .hint("`truegauge token login` makes another; each works once, for ten minutes")
        })?,
        (None, Some(token)) => {
            access.by_token(token.trim(), now_ns).map(|(_, holder)| holder).map_err(|closed| {
                count(closed.as_str());
                refusal(closed)
            })?
        }
        _ => return Err(ApiError::bad("either `code` or `token` is wanted")),
    };
    let caller = access.of_holder(holder, now_ns).map_err(|closed| {
        count(closed.as_str());
        refusal(closed)
    })?;
    let cookie = access.sessions.open(holder, now_ns)?;
    count("accepted");
    let answer = SessionAnswer { guarded: access.is_guarded(), caller: row(&caller.in_session()) };
    Ok(with_cookie(
        Json(answer).into_response(),
        &access.set_cookie(&cookie, app.config.listen.port(), &headers),
    ))
}

/// Logs the browser out.
#[utoipa::path(delete, operation_id = "logout", path = "/api/tg/v1/session", responses((status = 200, body = SessionAnswer)))]
pub(crate) async fn logout(State(app): State<App>, headers: HeaderMap) -> Response {
    let port = app.config.listen.port();
    if let Some(cookie) = cookie(&headers, port) {
        app.access.sessions.close(cookie);
    }
    let answer = SessionAnswer { guarded: app.access.is_guarded(), caller: None };
    with_cookie(Json(answer).into_response(), &app.access.set_cookie("", port, &headers))
}

fn with_cookie(mut response: Response, cookie: &str) -> Response {
    if let Ok(cookie) = HeaderValue::from_str(cookie) {
        response.headers_mut().insert(header::SET_COOKIE, cookie);
    }
    response
}

/// A link that logs a browser in.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct LinkAnswer {
    /// Path on this server, with the code behind a `#`, where no log sees it.
    path: String,
    /// Until then it works, once.
    until_ms: i64,
}

/// Makes a link that logs one browser in with the caller's rights.
#[utoipa::path(post, operation_id = "createLoginLink", path = "/api/tg/v1/login-links", responses(
    (status = 201, body = LinkAnswer), (status = 400, body = crate::error::ErrorBody)
))]
pub(crate) async fn link(
    State(app): State<App>,
    caller: Caller,
) -> Result<(StatusCode, Json<LinkAnswer>), ApiError> {
    let holder = match caller.how() {
        How::Server => Holder::Server,
        How::Token { id, .. } => Holder::Token(*id),
        How::Open => {
            return Err(ApiError::bad("this server asks nobody who they are")
                .hint("open its address in a browser; a first admin's token makes it ask"));
        }
        How::Certificate(_) | How::Nobody => {
            return Err(ApiError::bad("a link has the rights of a token, and none was sent")
                .hint("send the token whose rights the browser gets"));
        }
    };
    let (path, until_ns) = app.access.link(holder)?;
    Ok((StatusCode::CREATED, Json(LinkAnswer { path, until_ms: to_ms(until_ns) })))
}
