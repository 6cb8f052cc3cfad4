//! Groups of rules as Prometheus' API writes them.

use std::collections::BTreeMap;

use model::Labels;
use promql::rules::{Alert, AlertState, RuleKind, RuleText};
use serde_json::{Value, json};

use super::{Fared, Ruled};
use crate::clock::rfc3339;

/// A group as Prometheus' API writes it.
pub(super) fn show(ruled: &Ruled) -> Value {
    let rules = ruled.group.rules().zip(&ruled.fared).enumerate();
    let rules: Vec<Value> = rules
        .map(|(index, (text, fared))| {
            let alerts: Vec<&Alert> =
                ruled.group.alerts(index).filter(|alert| alert.state != AlertState::Inactive).collect();
            show_rule(text, fared, &alerts)
        })
        .collect();
    json!({
        "name": ruled.group.name,
        "file": ruled.file,
        "rules": rules,
        "interval": ruled.group.interval_ms as f64 / 1e3,
        "limit": ruled.limit,
        "evaluationTime": ruled.took.as_secs_f64(),
        "lastEvaluation": time(ruled.last_ms),
    })
}

fn show_rule(text: &RuleText, fared: &Fared, alerts: &[&Alert]) -> Value {
    let health = match (&fared.error, fared.at_ms) {
        (Some(_), _) => "err",
        (None, Some(_)) => "ok",
        (None, None) => "unknown",
    };
    let mut rule = json!({
        "name": text.name,
        "query": text.expr,
        "labels": text.labels,
        "health": health,
        "evaluationTime": fared.took.as_secs_f64(),
        "lastEvaluation": time(fared.at_ms),
        "type": "recording",
    });
    if let Some(error) = &fared.error {
        rule["lastError"] = json!(error);
    }
    if let RuleKind::Alerting { for_ms, keep_firing_ms, annotations } = &text.kind {
        let states = [AlertState::Firing, AlertState::Pending];
        let state = states.into_iter().find(|state| alerts.iter().any(|alert| alert.state == *state));
        rule["type"] = json!("alerting");
        rule["state"] = json!(state.unwrap_or(AlertState::Inactive).as_str());
        rule["duration"] = json!(*for_ms as f64 / 1e3);
        rule["keepFiringFor"] = json!(*keep_firing_ms as f64 / 1e3);
        rule["annotations"] = json!(annotations);
        rule["alerts"] = alerts.iter().map(|alert| show_alert(alert)).collect();
    }
    rule
}

fn show_alert(alert: &Alert) -> Value {
    let object = |labels: &Labels| {
        labels.iter().map(|(k, v)| (k.to_owned(), v.to_owned())).collect::<BTreeMap<_, _>>()
    };
    let mut shown = json!({
        "labels": object(&alert.labels),
        "annotations": alert.annotations,
        "state": alert.state.as_str(),
        "activeAt": rfc3339(alert.active_at_ms),
        "value": exponential(alert.value),
    });
    if let Some(since) = alert.keep_firing_since_ms {
        shown["keepFiringSince"] = json!(rfc3339(since));
    }
    shown
}

fn time(time_ms: Option<i64>) -> String {
    time_ms.map_or_else(|| "0001-01-01T00:00:00Z".to_owned(), rfc3339)
}

/// A number as Prometheus writes an alert's: `1e+00`.
fn exponential(value: f64) -> String {
    if value.is_nan() {
        return "NaN".to_owned();
    }
    if value.is_infinite() {
        return if value > 0.0 { "+Inf" } else { "-Inf" }.to_owned();
    }
    let text = format!("{value:e}");
    let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let (sign, exponent) = exponent.strip_prefix('-').map_or(('+', exponent), |rest| ('-', rest));
    format!("{digits}e{sign}{exponent:0>2}")
}

#[cfg(test)]
mod tests {
    use super::exponential;

    #[test]
    fn values_of_alerts_have_an_exponent_of_two_digits() {
        let shown = [1.0, 0.0, 1234.5, -0.001, 1e200, f64::INFINITY].map(exponential);
        assert_eq!(shown, ["1e+00", "0e+00", "1.2345e+03", "-1e-03", "1e+200", "+Inf"]);
    }
}
