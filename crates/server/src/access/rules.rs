//! Which route asks for which scope.

use store::Scope;

/// What a route asks of who calls it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Needs {
    /// One of these; nothing is asked for where there is none.
    pub(crate) scopes: &'static [Scope],
    /// Whether a caller that sees a part may call it, because its answer keeps to that part.
    pub(crate) bounded: bool,
}

const fn needs_of(scopes: &'static [Scope], bounded: bool) -> Needs {
    Needs { scopes, bounded }
}

const OPEN: Needs = needs_of(&[], true);
const ANYBODY: Needs = needs_of(&Scope::ALL, true);
const READ: Needs = needs_of(&[Scope::Read], true);
const READ_ALL: Needs = needs_of(&[Scope::Read], false);
const SEND: Needs = needs_of(&[Scope::Ingest, Scope::Agent], true);
const CHANGE: Needs = needs_of(&[Scope::Ingest], true);
const ADMIN: Needs = needs_of(&[Scope::Admin], true);
const ADMIN_ALL: Needs = needs_of(&[Scope::Admin], false);

/// Method, path, and what is asked for. `*` is any method.
const RULES: &[(&str, &str, Needs)] = &[
    ("GET", "/healthz", OPEN),
    ("GET", "/readyz", OPEN),
    ("GET", "/metrics", READ_ALL),
    ("GET", "/api/openapi.json", ANYBODY),
    ("GET", "/api/tg/v1/session", OPEN),
    ("DELETE", "/api/tg/v1/session", OPEN),
    ("POST", "/api/tg/v1/login", OPEN),
    ("POST", "/api/tg/v1/login-links", ANYBODY),
    ("GET", "/api/tg/v1/tokens", ADMIN_ALL),
    ("POST", "/api/tg/v1/tokens", ADMIN_ALL),
    ("DELETE", "/api/tg/v1/tokens/{id}", ADMIN_ALL),
    ("POST", "/api/tg/v1/push", SEND),
    ("GET", "/api/tg/v1/runs", READ),
    ("GET", "/api/tg/v1/filter", READ),
    ("GET", "/api/tg/v1/runs/figures", READ),
    ("GET", "/api/tg/v1/runs/{run_id}", READ),
    ("PATCH", "/api/tg/v1/runs/{run_id}", CHANGE),
    ("DELETE", "/api/tg/v1/runs/{run_id}", ADMIN),
    ("POST", "/api/tg/v1/runs/{run_id}/restore", ADMIN),
    ("GET", "/api/tg/v1/runs/{run_id}/metrics", READ),
    ("GET", "/api/tg/v1/runs/{run_id}/missing", READ),
    ("GET", "/api/tg/v1/runs/{run_id}/points", READ),
    ("GET", "/api/tg/v1/runs/{run_id}/health", READ),
    ("GET", "/api/tg/v1/runs/{run_id}/timeline", READ),
    ("GET", "/api/tg/v1/runs/{run_id}/training", READ),
    ("GET", "/api/tg/v1/runs/{run_id}/export", READ),
    ("GET", "/api/tg/v1/export", READ),
    ("GET", "/api/tg/v1/compare", READ),
    ("GET", "/api/tg/v1/logs", READ),
    ("GET", "/api/tg/v1/events", READ),
    ("GET", "/api/tg/v1/fleet/nodes", READ_ALL),
    ("GET", "/api/tg/v1/fleet/gpus", READ_ALL),
    ("GET", "/api/tg/v1/incidents", READ),
    ("POST", "/api/tg/v1/incidents/close", ADMIN_ALL),
    ("GET", "/api/tg/v1/alerts/summary", READ),
    ("GET", "/api/tg/v1/alerts/history", READ),
    ("GET", "/api/tg/v1/silences", READ_ALL),
    ("POST", "/api/tg/v1/silences", ADMIN_ALL),
    ("DELETE", "/api/tg/v1/silences/{id}", ADMIN_ALL),
    ("GET", "/api/tg/v1/deliveries", READ_ALL),
    ("POST", "/api/tg/v1/rules/backtest", READ),
    ("POST", "/api/tg/v1/rules/check", READ),
    ("GET", "/api/tg/v1/rules/{name}", READ_ALL),
    ("GET", "/api/tg/v1/rules/files", READ_ALL),
    ("GET", "/api/tg/v1/rules/files/{name}", READ_ALL),
    ("PUT", "/api/tg/v1/rules/files/{name}", ADMIN_ALL),
    ("DELETE", "/api/tg/v1/rules/files/{name}", ADMIN_ALL),
    ("GET", "/api/tg/v1/remediation", READ_ALL),
    ("GET", "/api/tg/v1/remediation/audit", READ_ALL),
    ("POST", "/api/tg/v1/remediation/propose", ADMIN_ALL),
    ("POST", "/api/tg/v1/remediation/replay", READ_ALL),
    ("POST", "/api/tg/v1/remediation/{id}/approve", ADMIN_ALL),
    ("POST", "/api/tg/v1/remediation/{id}/reject", ADMIN_ALL),
    ("POST", "/api/tg/v1/remediation/{id}/state", ADMIN_ALL),
    ("POST", "/api/tg/v1/backup", ADMIN_ALL),
    ("POST", "/api/tg/v1/points", READ),
    ("GET", "/api/tg/v1/stream", READ),
    ("GET", "/api/tg/v1/calc", READ),
    ("POST", "/api/tg/v1/calc/{tool}", READ),
    ("GET", "/api/tg/v1/complete", READ),
    ("GET", "/api/tg/v1/explain", READ),
    ("GET", "/api/tg/v1/engines", READ),
    ("GET", "/api/tg/v1/engines/vocabulary", READ),
    ("GET", "/api/tg/v1/metrics", READ),
    ("GET", "/api/tg/v1/status", READ),
    ("GET", "/api/tg/v1/storage", READ_ALL),
    ("POST", "/api/tg/v1/storage/check", ADMIN_ALL),
    ("POST", "/api/tg/v1/storage/refused/retry", ADMIN_ALL),
    ("DELETE", "/api/tg/v1/storage/refused", ADMIN_ALL),
    ("POST", "/api/v1/write", SEND),
    ("*", "/v1/metrics", SEND),
    ("*", "/v1/traces", SEND),
    ("*", "/v1/logs", SEND),
    ("*", "/api/v1/query", READ),
    ("*", "/api/v1/query_range", READ),
    ("*", "/api/v1/query_exemplars", READ),
    ("*", "/api/v1/format_query", READ),
    ("*", "/api/v1/parse_query", READ),
    ("*", "/api/v1/series", READ),
    ("*", "/api/v1/labels", READ),
    ("GET", "/api/v1/label/{name}/values", READ),
    ("GET", "/api/v1/metadata", READ),
    ("GET", "/api/v1/rules", READ),
    ("GET", "/api/v1/alerts", READ),
    ("GET", "/api/v1/alertmanagers", READ),
    ("POST", "/-/reload", ADMIN_ALL),
    ("PUT", "/-/reload", ADMIN_ALL),
    ("GET", "/-/healthy", OPEN),
    ("GET", "/-/ready", OPEN),
    ("GET", "/docs/runbooks/{page}", OPEN),
    ("GET", "/api/v1/targets", READ),
    ("GET", "/api/v1/targets/metadata", READ),
    ("GET", "/api/v1/status/buildinfo", READ),
    ("GET", "/api/v1/status/runtimeinfo", READ),
    ("GET", "/api/v1/status/config", READ),
    ("GET", "/api/v1/status/flags", READ),
    ("GET", "/api/v1/status/tsdb", READ),
];

/// What a route asks for. One without a rule is for admins that see everything: a new route is
/// closed until somebody thought about it.
pub(crate) fn needs(method: &str, route: &str) -> Needs {
    rule(method, route).unwrap_or(ADMIN_ALL)
}

fn rule(method: &str, route: &str) -> Option<Needs> {
    let method = if method == "HEAD" { "GET" } else { method };
    let is_it = |of: &str, path: &str| path == route && (of == method || of == "*" || method == "*");
    RULES.iter().find(|(of, path, _)| is_it(of, path)).map(|(_, _, needs)| *needs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_route_has_a_rule_and_every_rule_a_route() {
        let routes = crate::api::routes();
        for route in &routes {
            assert!(rule(route.method, route.path).is_some(), "{} {} has no rule", route.method, route.path);
        }
        for (method, path, _) in RULES {
            let is_it = |route: &crate::Route| {
                route.path == *path && (route.method == *method || route.method == "*" || *method == "*")
            };
            assert!(routes.iter().any(is_it), "{method} {path} is no route");
        }
    }

    #[test]
    fn what_has_no_rule_is_for_admins_that_see_everything() {
        assert_eq!(needs("GET", "/api/tg/v1/new"), ADMIN_ALL);
        assert_eq!(needs("PUT", "/api/tg/v1/runs"), ADMIN_ALL);
        assert_eq!(needs("HEAD", "/api/tg/v1/runs"), READ);
    }
}
