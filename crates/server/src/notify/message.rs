//! What a receiver is sent of a group: the JSON of Alertmanager's webhooks, or a Slack-shaped message.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde_json::{Value, json};

use super::groups::{Parcel, common};
use super::receivers::{Kind, Receiver};
use super::waiting::Told;
use crate::clock::rfc3339;

/// Most alerts of one message; how many more there are is said.
const ALERTS_MAX: usize = 200;
/// Most bytes of a title and of a text.
const TITLE_BYTES_MAX: usize = 500;
const TEXT_BYTES_MAX: usize = 20_000;

/// The body for a receiver.
pub(super) fn body(receiver: &Receiver, parcel: &Parcel, url: &str, now_ms: i64) -> String {
    let mut data = data(receiver, parcel, url);
    match receiver.kind {
        Kind::Webhook => {
            let (title, text) = words(receiver, parcel, &data, (url, now_ms));
            (data["title"], data["text"]) = (json!(title), json!(text));
            data.to_string()
        }
        Kind::Slack => {
            slack(receiver, parcel, &words(receiver, parcel, &data, (url, now_ms)), url).to_string()
        }
    }
}

/// The group as Alertmanager's webhooks have it, in version 4.
fn data(receiver: &Receiver, parcel: &Parcel, url: &str) -> Value {
    let all = || parcel.firing.iter().chain(&parcel.resolved);
    let status = if parcel.firing.is_empty() { "resolved" } else { "firing" };
    let total = parcel.firing.len() + parcel.resolved.len();
    let alerts: Vec<Value> = all().take(ALERTS_MAX).map(|told| alert(told)).collect();
    json!({
        "version": "4",
        "groupKey": group_key(&parcel.key.0, &parcel.key.1),
        "truncatedAlerts": total - alerts.len(),
        "status": status,
        "receiver": receiver.name,
        "groupLabels": parcel.key.1,
        "commonLabels": common(all().map(|told| &told.labels)),
        "commonAnnotations": common(all().map(|told| &told.annotations)),
        "externalURL": url,
        "alerts": alerts,
    })
}

fn alert(told: &Told) -> Value {
    // One that fires has no end yet, which Alertmanager writes as the year 1.
    let end = if told.is_resolved { rfc3339(told.ends_at_ms) } else { "0001-01-01T00:00:00Z".to_owned() };
    json!({
        "status": if told.is_resolved { "resolved" } else { "firing" },
        "labels": told.labels,
        "annotations": told.annotations,
        "startsAt": rfc3339(told.starts_at_ms),
        "endsAt": end,
        "generatorURL": told.generator_url,
        "fingerprint": format!("{:016x}", told.fingerprint),
    })
}

/// By which a receiver knows that two messages are of one group.
pub(super) fn group_key(receiver: &str, labels: &BTreeMap<String, String>) -> String {
    let mut key = format!("{receiver}:{{");
    for (at, (name, value)) in labels.iter().enumerate() {
        // Writing to a String can't fail.
        _ = write!(key, "{}{name}={value:?}", if at == 0 { "" } else { ", " });
    }
    key.push('}');
    key
}

/// Title and text by the receiver's templates, over the group under the names that Alertmanager's
/// templates have. One that fails says so in the place of what it should have said.
fn words(receiver: &Receiver, parcel: &Parcel, data: &Value, (url, now_ms): (&str, i64)) -> (String, String) {
    let empty = Vec::new();
    let alerts = data["alerts"].as_array().unwrap_or(&empty);
    let scene = json!({
        "Status": data["status"], "Receiver": data["receiver"], "ExternalURL": url,
        "GroupLabels": data["groupLabels"], "CommonLabels": data["commonLabels"],
        "CommonAnnotations": data["commonAnnotations"], "Alerts": alerts.iter().map(both).collect::<Vec<_>>(),
        "TruncatedAlerts": data["truncatedAlerts"],
        "FiringCount": parcel.firing.len(), "ResolvedCount": parcel.resolved.len(),
    });
    let expand = |template: &promql::Message, bytes_max: usize| {
        let text = template.expand(&scene, url, now_ms);
        shorten(text.unwrap_or_else(|error| format!("<the template failed: {error}>")), bytes_max)
    };
    (expand(&receiver.title, TITLE_BYTES_MAX), expand(&receiver.text, TEXT_BYTES_MAX))
}

/// An alert under the names of its JSON and of Alertmanager's templates.
fn both(alert: &Value) -> Value {
    const NAMES: [(&str, &str); 7] = [
        ("Status", "status"),
        ("Labels", "labels"),
        ("Annotations", "annotations"),
        ("StartsAt", "startsAt"),
        ("EndsAt", "endsAt"),
        ("GeneratorURL", "generatorURL"),
        ("Fingerprint", "fingerprint"),
    ];
    let mut both = alert.clone();
    for (template, name) in NAMES {
        both[template] = alert[name].clone();
    }
    both
}

fn slack(receiver: &Receiver, parcel: &Parcel, (title, text): &(String, String), url: &str) -> Value {
    let color = if parcel.firing.is_empty() { "good" } else { "danger" };
    let link = format!("{url}/alerts");
    let mut attachment = json!({
        "color": color,
        "fallback": plain(title),
        "title": plain(title),
        "title_link": link,
        "text": plain(text),
        "mrkdwn_in": [],
        "footer": "truegauge",
    });
    if let Some(first) = parcel.firing.first().or(parcel.resolved.first()) {
        attachment["ts"] = json!(first.starts_at_ms.div_euclid(1_000));
        let runbook = first.annotations.get("runbook_url").filter(|url| url.starts_with("http"));
        let mut actions = vec![json!({"type": "button", "text": "Query", "url": first.generator_url})];
        actions.extend(runbook.map(|url| json!({"type": "button", "text": "Runbook", "url": url})));
        attachment["actions"] = json!(actions);
    }
    let mut body = json!({"attachments": [attachment]});
    if !receiver.channel.is_empty() {
        body["channel"] = json!(receiver.channel);
    }
    body
}

/// What a label says must not call a channel or hide a link: Slack's three characters as text.
fn plain(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

fn shorten(mut text: String, bytes_max: usize) -> String {
    if text.len() > bytes_max {
        let end = (0..=bytes_max).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
        text.truncate(end);
        text.push('…');
    }
    text.trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::notify::receivers::tests::receivers;

    fn told(name: &str, host: &str, is_resolved: bool) -> Arc<Told> {
        let labels: BTreeMap<String, String> =
            [("alertname", name), ("host", host)].map(|(n, v)| (n.to_owned(), v.to_owned())).into();
        let mut told = Told::test(labels, (1_000, 5_000), is_resolved);
        told.annotations = [("summary".to_owned(), format!("{host} is down"))].into();
        Arc::new(told)
    }

    fn parcel(firing: Vec<Arc<Told>>, resolved: Vec<Arc<Told>>) -> Parcel {
        let labels = [("alertname".to_owned(), "Down".to_owned())].into();
        Parcel { key: ("r".to_owned(), labels), firing, resolved, tries: 0 }
    }

    fn sent(kind: &str, more: &str, parcel: &Parcel) -> Value {
        let file =
            format!("[[receivers]]\nname = \"r\"\nkind = \"{kind}\"\nurl = \"http://127.0.0.1:1\"\n{more}");
        let receivers = receivers(&file);
        let text = body(&receivers.receivers[0], parcel, "https://gauge.example.org", 10_000);
        serde_json::from_str(&text).unwrap()
    }

    #[test]
    fn a_webhook_gets_what_alertmanagers_webhooks_get() {
        let parcel = parcel(vec![told("Down", "a", false)], vec![told("Down", "b", true)]);
        let sent = sent("webhook", "", &parcel);
        assert_eq!(
            (&sent["version"], &sent["status"], &sent["receiver"]),
            (&json!("4"), &json!("firing"), &json!("r"))
        );
        assert_eq!(sent["groupKey"], "r:{alertname=\"Down\"}");
        assert_eq!(sent["commonLabels"], json!({"alertname": "Down"}));
        assert_eq!(sent["truncatedAlerts"], 0);
        assert_eq!(sent["alerts"][0]["endsAt"], "0001-01-01T00:00:00Z");
        assert_eq!(sent["alerts"][1]["endsAt"], "1970-01-01T00:00:05.000Z");
        assert_eq!(sent["alerts"][1]["status"], "resolved");
        assert_eq!(sent["alerts"][0]["fingerprint"].as_str().unwrap().len(), 16);
        assert_eq!(sent["title"], "[FIRING:1] Down");
        assert_eq!(sent["text"], "a is down\nOver: b is down");
    }

    #[test]
    fn what_labels_hold_calls_nobody_and_runs_nothing() {
        let hostile = "<!channel> <http://x|y> {{ .Status }} & \u{7}";
        let parcel = parcel(vec![told("Down", hostile, false)], Vec::new());
        let sent = sent("slack", "channel = \"#ops\"\n", &parcel);
        let attachment = &sent["attachments"][0];
        let text = attachment["text"].as_str().unwrap();
        assert!(text.contains("&lt;!channel&gt;") && text.contains("{{ .Status }} &amp;"), "{text}");
        assert!(!text.contains('<'), "{text}");
        assert_eq!((&sent["channel"], &attachment["color"]), (&json!("#ops"), &json!("danger")));
        assert_eq!(attachment["title_link"], "https://gauge.example.org/alerts");
    }

    #[test]
    fn a_storm_is_one_message_that_says_how_many_more_there_are() {
        let storm: Vec<Arc<Told>> = (0..500).map(|at| told("Down", &format!("h{at}"), false)).collect();
        let sent = sent(
            "webhook",
            "text = \"{{ len .Alerts }} and {{ .TruncatedAlerts }}\"\n",
            &parcel(storm, Vec::new()),
        );
        assert_eq!((sent["alerts"].as_array().unwrap().len(), &sent["truncatedAlerts"]), (200, &json!(300)));
        assert_eq!(sent["text"], "200 and 300");
    }

    #[test]
    fn a_template_that_fails_says_so_and_one_that_prints_too_much_is_cut() {
        let parcel = parcel(vec![told("Down", "a", false)], Vec::new());
        let sent = sent(
            "webhook",
            "title = \"{{ query \\\"up\\\" }}\"\ntext = \"{{ printf \\\"%30000d\\\" 1 }}\"\n",
            &parcel,
        );
        assert!(sent["title"].as_str().unwrap().contains("can't ask"), "{}", sent["title"]);
        assert!(sent["text"].as_str().unwrap().len() <= TEXT_BYTES_MAX + 3);
    }
}
