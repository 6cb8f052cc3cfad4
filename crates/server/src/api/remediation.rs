//! Remediation: where it stands, what waits, and the hand on it.

use axum::Json;
use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::http::{StatusCode, Uri};
use insight::remediation::{Refusal, Trigger};
use serde::Deserialize;
use utoipa::ToSchema;

use super::{Params, shown};
use crate::access::Caller;
use crate::app::{App, blocking, read};
use crate::error::ApiError;
use crate::remediation::{
    self, AuditAnswer, Hand, NoPlan, NotDone, PlanRow, Proposal, RemediationAnswer, ReplayAnswer, ReplayAsk,
};

/// Lines of the audit in one answer, unless fewer are asked for.
const LIMIT: usize = 200;
const LIMIT_MAX: usize = 2_000;
/// Longest reason that is kept, characters.
const REASON_MAX: usize = 200;

/// Where remediation stands: mode, policy, machines, what waits and what is under way.
#[utoipa::path(get, operation_id = "showRemediation", path = "/api/tg/v1/remediation",
    params(("brief" = Option<bool>, Query, description = "`true`: mode, policy and how much waits, without any list")),
    responses((status = 200, body = RemediationAnswer), (status = 403, body = crate::error::ErrorBody)))]
pub(crate) async fn show(State(app): State<App>, uri: Uri) -> Result<Json<RemediationAnswer>, ApiError> {
    if Params::of(&uri)?.flag("brief")? {
        return read(&app, |shared| Ok(Json(remediation::brief(shared)))).await;
    }
    read(&app, |shared| remediation::show(shared).map(Json)).await
}

/// The audit, the latest first.
#[utoipa::path(get, operation_id = "listRemediationAudit", path = "/api/tg/v1/remediation/audit",
    params(
        ("host" = Option<String>, Query, description = "of this machine"),
        ("limit" = Option<usize>, Query, description = "200 unless given, at most 2000"),
        ("cursor" = Option<String>, Query, description = "`next` of the answer before"),
    ),
    responses((status = 200, body = AuditAnswer), (status = 400, body = crate::error::ErrorBody)))]
pub(crate) async fn audit(State(app): State<App>, uri: Uri) -> Result<Json<AuditAnswer>, ApiError> {
    let params = Params::of(&uri)?;
    let limit = params.number("limit")?.unwrap_or(LIMIT);
    if !(1..=LIMIT_MAX).contains(&limit) {
        return Err(ApiError::bad(format!("`limit` is {limit}, 1 to {LIMIT_MAX} are possible")));
    }
    let cursor = params.get("cursor").map(cursor).transpose()?.unwrap_or((i64::MAX, 0));
    let host = params.get("host").map(str::to_owned);
    read(&app, move |shared| remediation::audit(shared, host.as_deref(), limit, cursor).map(Json)).await
}

fn cursor(text: &str) -> Result<(i64, usize), ApiError> {
    let parts = text.split_once(':').and_then(|(time, at)| Some((time.parse().ok()?, at.parse().ok()?)));
    parts.ok_or_else(|| {
        ApiError::bad(format!("`cursor` is `{}`", shown(text))).hint("send `next` of the answer before")
    })
}

/// Whether something is to run, and that its machine is meant.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ApproveBody {
    /// Only write down what would run. True unless it is said to be false.
    #[serde(default = "yes")]
    dry_run: bool,
    /// What the action has as `confirm`, where something is to run: the machine's name, and ` unconfirmed` behind it
    /// where nobody but a run says that the run is there.
    #[serde(default)]
    confirm: String,
}

fn yes() -> bool {
    true
}

/// Agrees to what waits: its commands run, or it is written down which would.
#[utoipa::path(post, operation_id = "approveRemediation", path = "/api/tg/v1/remediation/{id}/approve",
    params(("id" = String, Path, description = "as it is listed, such as `tg-12`")), request_body = ApproveBody,
    responses(
        (status = 204), (status = 400, body = crate::error::ErrorBody), (status = 403, body = crate::error::ErrorBody),
        (status = 404, body = crate::error::ErrorBody), (status = 409, body = crate::error::ErrorBody)
    ))]
pub(crate) async fn approve(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<String>,
    body: Bytes,
) -> Result<StatusCode, ApiError> {
    let ApproveBody { dry_run, confirm } = super::json_body(&body)?;
    let id = plan_id(&id)?;
    let confirm = (!dry_run).then_some(confirm);
    blocking(move || done(&app, &Hand::Approve { id, confirm }, &caller, &id_name(id))).await
}

/// Why not.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct RejectBody {
    reason: String,
}

/// Says no to what waits.
#[utoipa::path(post, operation_id = "rejectRemediation", path = "/api/tg/v1/remediation/{id}/reject",
    params(("id" = String, Path, description = "as it is listed, such as `tg-12`")), request_body = RejectBody,
    responses(
        (status = 204), (status = 403, body = crate::error::ErrorBody),
        (status = 404, body = crate::error::ErrorBody), (status = 409, body = crate::error::ErrorBody)
    ))]
pub(crate) async fn reject(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<String>,
    body: Bytes,
) -> Result<StatusCode, ApiError> {
    let RejectBody { reason } = super::json_body(&body)?;
    let id = plan_id(&id)?;
    let reason = reason_of(&reason);
    blocking(move || done(&app, &Hand::Reject { id, reason }, &caller, &id_name(id))).await
}

/// Where a machine stands, as a person says.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct StateBody {
    /// `healthy`: that is all that a person can say.
    state: String,
    #[serde(default)]
    reason: String,
}

/// Says that a machine is well: what is open on it ends, and what waits for it is given up.
#[utoipa::path(post, operation_id = "setRemediationState", path = "/api/tg/v1/remediation/{id}/state",
    params(("id" = String, Path, description = "the machine")), request_body = StateBody,
    responses(
        (status = 204), (status = 400, body = crate::error::ErrorBody), (status = 403, body = crate::error::ErrorBody),
        (status = 404, body = crate::error::ErrorBody), (status = 409, body = crate::error::ErrorBody)
    ))]
pub(crate) async fn state(
    State(app): State<App>,
    caller: Caller,
    Path(host): Path<String>,
    body: Bytes,
) -> Result<StatusCode, ApiError> {
    let StateBody { state, reason } = super::json_body(&body)?;
    if state != "healthy" {
        return Err(
            ApiError::bad(format!("`state` is `{}`", shown(&state))).hint("only `healthy` can be said")
        );
    }
    let reason = reason_of(&reason);
    let name = shown(&host);
    blocking(move || done(&app, &Hand::Heal { host, reason }, &caller, &name)).await
}

/// Proposes the policy's action about a machine: it waits for somebody to agree, whatever its mode is. Where the same
/// waits already, that is the answer.
#[utoipa::path(post, operation_id = "proposeRemediation", path = "/api/tg/v1/remediation/propose",
    request_body = Proposal,
    responses(
        (status = 200, body = PlanRow), (status = 400, body = crate::error::ErrorBody), (status = 403, body = crate::error::ErrorBody),
        (status = 404, body = crate::error::ErrorBody), (status = 409, body = crate::error::ErrorBody)
    ))]
pub(crate) async fn propose(
    State(app): State<App>,
    caller: Caller,
    body: Bytes,
) -> Result<Json<PlanRow>, ApiError> {
    let mut proposal: Proposal = super::json_body(&body)?;
    if proposal.host.is_empty() {
        return Err(ApiError::bad("`host` is missing").hint("write the name of the machine that is meant"));
    }
    proposal.reason = reason_of(&proposal.reason);
    blocking(move || {
        let host = shown(&proposal.host);
        let made = remediation::propose(&app, &proposal, &caller.named());
        made.map(Json).map_err(|why| no_plan(why, &host))
    })
    .await
}

fn no_plan(why: NoPlan, host: &str) -> ApiError {
    match why {
        NoPlan::NotDone(why) => not_done(why, host),
        NoPlan::UnknownHost => {
            ApiError::missing(format!("nothing was heard of a machine `{host}` within a day"))
                .hint("a machine is called as its agent calls it: `truegauge fleet` lists them")
        }
        NoPlan::UnknownCause(what) => ApiError::missing(format!("there is no {} on {host}", shown(&what)))
            .hint("leave it out to propose the machine by your own word"),
        NoPlan::UnknownTrigger(on) => {
            let known: Vec<&str> = Trigger::all().map(Trigger::name).collect();
            ApiError::bad(format!("`on` is `{}`", shown(&on))).hint(format!("it can be {}", known.join(", ")))
        }
    }
}

/// Says what a policy would have done about incidents of the past. Nothing runs.
#[utoipa::path(post, operation_id = "replayRemediation", path = "/api/tg/v1/remediation/replay",
    request_body = ReplayAsk,
    responses((status = 200, body = ReplayAnswer), (status = 400, body = crate::error::ErrorBody)))]
pub(crate) async fn replay(State(app): State<App>, body: Bytes) -> Result<Json<ReplayAnswer>, ApiError> {
    let ask: ReplayAsk = super::json_body(&body)?;
    read(&app, move |shared| remediation::replay(shared, &ask).map(Json)).await
}

fn reason_of(text: &str) -> String {
    let text: String = text.chars().filter(|c| !c.is_control()).take(REASON_MAX).collect();
    if text.trim().is_empty() { "no reason was given".to_owned() } else { text.trim().to_owned() }
}

fn plan_id(text: &str) -> Result<u64, ApiError> {
    let number = text.strip_prefix("tg-").unwrap_or(text).parse();
    number.map_err(|_source: std::num::ParseIntError| refused(&shown(text), Refusal::Unknown))
}

fn id_name(id: u64) -> String {
    format!("tg-{id}")
}

fn done(app: &App, hand: &Hand, caller: &Caller, name: &str) -> Result<StatusCode, ApiError> {
    let done = remediation::by_hand(app, hand, &caller.named());
    done.map(|()| StatusCode::NO_CONTENT).map_err(|why| not_done(why, name))
}

fn not_done(why: NotDone, name: &str) -> ApiError {
    match why {
        NotDone::Off => ApiError::new(StatusCode::CONFLICT, "there is no policy in force")
            .hint("`GET /api/tg/v1/remediation` says how to start"),
        NotDone::NotStored => ApiError::unavailable("it can't be written down, so it is not done yet", 5)
            .hint("the server's log says why the store takes nothing"),
        NotDone::Refused(refusal) => refused(name, refusal),
        NotDone::Unconfirmed { found, wanted } => unconfirmed(&found, &wanted),
    }
}

fn unconfirmed(found: &str, wanted: &str) -> ApiError {
    let (host, is_word_of_run) = match wanted.split_once(' ') {
        Some((host, _)) => (host, true),
        None => (wanted, false),
    };
    let message = format!("`confirm` is `{}`, and this is about {}", shown(found), shown(host));
    ApiError::bad(message).hint(if is_word_of_run {
        format!("only a run says that it is on that machine: look at it, then write `{}`", shown(wanted))
    } else {
        "write the name of the machine that is taken out".to_owned()
    })
}

fn refused(name: &str, refusal: Refusal) -> ApiError {
    let conflict = |message: String| ApiError::new(StatusCode::CONFLICT, message);
    match refusal {
        Refusal::Unknown => ApiError::missing(format!("nothing waits as `{name}`"))
            .hint("`GET /api/tg/v1/remediation` lists what does"),
        Refusal::NotWaiting(status) => {
            conflict(format!("`{name}` does not wait any more: it is {}", status.name()))
        }
        Refusal::Guard(guard) => conflict(format!("`{name}` may not run: {}", guard.text)).hint(match guard
            .name
            .as_str()
        {
            "mode" => "set `[remediation] mode = \"real\"` where commands are to run, or ask for a dry run",
            "resets" => "look at the card: another reset will not help",
            _ => "wait until it holds, or change the policy",
        }),
        Refusal::Busy(id) => {
            conflict(format!("tg-{id} is under way on {name}")).hint("wait until its command has ended")
        }
        Refusal::Healthy => ApiError::missing(format!("nothing is known against {name}")),
        Refusal::NeedsHuman => conflict(format!("{name} waits for a person already"))
            .hint("look at it, then say that it is well: `truegauge remediation healthy HOST`"),
        Refusal::NoPool => {
            conflict(format!("no pool of the policy has {name}")).hint("add the machine to `hosts` of a pool")
        }
        Refusal::NoCommand(why) => conflict(format!("no command can be made for {name}: {why}"))
            .hint("name the card with `uuid` (`--uuid`), or the incident or verdict that it is about"),
        Refusal::NoRule { on, pool, known } => {
            let on = if on.is_empty() { "that takes a machine out".to_owned() } else { format!("on `{on}`") };
            let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
            conflict(format!("the policy has no action {on} in the pool `{pool}`"))
                .hint(format!("actions of that pool: {known}; `on` chooses one"))
        }
    }
}
