//! Rules, alerts and whom they are told to, as Prometheus' API shows them; and reading them anew.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError};

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use promql::Matcher;
use serde_json::{Value, json};

use super::asked::Asked;
use super::{Failure, success};
use crate::access::Caller;
use crate::app::{App, blocking};
use crate::guard::AsItIs;
use crate::reload::reload;

fn answer(data: &Value) -> Response {
    success(&data.to_string(), &[])
}

fn groups(app: &App) -> Vec<Value> {
    let shown = app.ruler().as_ref().map(|ruler| Arc::clone(&ruler.shown));
    shown.map(|shown| shown.lock().unwrap_or_else(PoisonError::into_inner).clone()).unwrap_or_default()
}

/// What a caller wants to see of the rules.
struct Wanted<'a> {
    kind: Option<&'static str>,
    names: Vec<&'a str>,
    groups: Vec<&'a str>,
    files: Vec<&'a str>,
    selectors: Vec<Vec<Matcher>>,
    without_alerts: bool,
}

impl<'a> Wanted<'a> {
    fn of(asked: &'a Asked) -> Result<Self, Failure> {
        let kind = match asked.get("type").to_ascii_lowercase().as_str() {
            "" => None,
            "alert" => Some("alerting"),
            "record" => Some("recording"),
            _ => {
                let found = asked.get("type");
                return Err(Failure::parameter("type", format_args!("not supported value {found:?}")));
            }
        };
        let without_alerts = match asked.get("exclude_alerts") {
            "" | "false" | "0" | "f" | "F" | "FALSE" | "False" => false,
            "true" | "1" | "t" | "T" | "TRUE" | "True" => true,
            found => {
                return Err(Failure::parameter(
                    "exclude_alerts",
                    format_args!("found {found:?}, `true` or `false` is wanted"),
                ));
            }
        };
        Ok(Self {
            kind,
            names: asked.all("rule_name[]"),
            groups: asked.all("rule_group[]"),
            files: asked.all("file[]"),
            selectors: asked.selectors(false)?,
            without_alerts,
        })
    }

    fn keeps_group(&self, group: &Value) -> bool {
        let is_one = |wanted: &[&str], found: &Value| {
            wanted.is_empty() || found.as_str().is_some_and(|found| wanted.contains(&found))
        };
        is_one(&self.groups, &group["name"]) && is_one(&self.files, &group["file"])
    }

    fn keeps_rule(&self, rule: &Value) -> bool {
        let fits =
            |matcher: &Matcher| matcher.fits(rule["labels"][&*matcher.name].as_str().unwrap_or_default());
        self.kind.is_none_or(|kind| rule["type"] == kind)
            && (self.names.is_empty() || rule["name"].as_str().is_some_and(|name| self.names.contains(&name)))
            && (self.selectors.is_empty() || self.selectors.iter().any(|selector| selector.iter().all(fits)))
    }

    /// Keeps what is wanted; a group without such rules is left out where rules were asked for.
    fn apply(&self, groups: &mut Vec<Value>) {
        groups.retain(|group| self.keeps_group(group));
        let is_picky = self.kind.is_some() || !self.names.is_empty() || !self.selectors.is_empty();
        groups.retain_mut(|group| {
            let Some(rules) = group["rules"].as_array_mut() else { return false };
            rules.retain(|rule| self.keeps_rule(rule));
            if self.without_alerts {
                for rule in rules.iter_mut().filter(|rule| rule["type"] == "alerting") {
                    rule["alerts"] = json!([]);
                }
            }
            !is_picky || !rules.is_empty()
        });
    }
}

/// Groups of rules, by file and name where they are asked for page by page.
pub(super) async fn rules(State(app): State<App>, asked: Asked) -> Result<Response, Failure> {
    let wanted = Wanted::of(&asked)?;
    // How rules are written may name anything: those who see a part have their alerts.
    let mut groups = if asked.caller().is_bounded() { Vec::new() } else { groups(&app) };
    wanted.apply(&mut groups);
    let limit = asked.limit("group_limit")?;
    let token = asked.get("group_next_token");
    if limit == usize::MAX {
        if !token.is_empty() {
            return Err(Failure::parameter(
                "group_limit",
                "group_limit needs to be present in order to paginate over the groups",
            ));
        }
        return Ok(answer(&json!({"groups": groups})));
    }
    groups.sort_by_cached_key(token_of);
    if !token.is_empty() {
        let Some(first) = groups.iter().position(|group| token_of(group) == token) else {
            return Err(Failure::parameter(
                "group_next_token",
                "no such group any more: the rules have changed, start anew",
            ));
        };
        groups.drain(..first);
    }
    let mut data = json!({});
    if let Some(next) = groups.get(limit) {
        data["groupNextToken"] = json!(token_of(next));
    }
    groups.truncate(limit);
    data["groups"] = json!(groups);
    Ok(answer(&data))
}

/// By which the next page begins.
fn token_of(group: &Value) -> String {
    let part = |of: &Value| of.as_str().unwrap_or_default().to_owned();
    form_urlencoded::Serializer::new(String::new())
        .append_pair(&part(&group["file"]), &part(&group["name"]))
        .finish()
}

/// Alerts that are pending or fire.
pub(super) async fn alerts(State(app): State<App>, caller: Caller) -> Response {
    let groups = groups(&app);
    let rules = groups.iter().flat_map(|group| group["rules"].as_array().into_iter().flatten());
    let alerts = rules.flat_map(|rule| rule["alerts"].as_array().into_iter().flatten());
    let seen = |alert: &&Value| caller.sees_labels(|label| alert["labels"][label].as_str());
    let alerts: Vec<&Value> = alerts.filter(seen).collect();
    answer(&json!({"alerts": alerts}))
}

/// Where alerts go.
pub(super) async fn alertmanagers(State(app): State<App>, caller: Caller) -> Response {
    let urls = if caller.is_bounded() { Vec::new() } else { app.notifier().shown_urls() };
    let active: Vec<BTreeMap<&str, String>> =
        urls.into_iter().map(|url| BTreeMap::from([("url", url)])).collect();
    answer(&json!({"activeAlertmanagers": active, "droppedAlertmanagers": []}))
}

/// Reads settings, targets and rules anew; answers once they are in force.
pub(super) async fn reload_now(State(app): State<App>) -> Response {
    let done = blocking(move || Ok(reload(&app).map_err(|error| error.to_string()))).await;
    let failed = match done {
        Ok(Ok(())) => return StatusCode::OK.into_response(),
        Ok(Err(error)) => error,
        Err(error) => error.message().to_owned(),
    };
    let message = format!("failed to reload config: {failed}");
    let mut response = (StatusCode::INTERNAL_SERVER_ERROR, format!("{message}\n")).into_response();
    response.extensions_mut().insert(AsItIs { message });
    response
}
