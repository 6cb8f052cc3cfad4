//! The file of receivers: who is told of which alerts, how they are grouped, and in which words.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use promql::{Matcher, Message};
use serde::Deserialize;

use super::NotifyError;
use super::matchers::{self, AlertLabels};
use super::post::{Outlet, Target};
use crate::config::{AlertingConfig, Secret};
use crate::{duration, files};

/// Alerts are grouped by these unless the file says otherwise.
const GROUP_BY: [&str; 3] = ["alertname", "run_id", "model"];
const GROUP_WAIT: Duration = Duration::from_secs(10);
const GROUP_INTERVAL: Duration = Duration::from_mins(1);
const REPEAT_INTERVAL: Duration = Duration::from_hours(4);
/// The shortest time between two looks at a group.
const INTERVAL_MIN: Duration = Duration::from_millis(100);
/// Most receivers and most routes of a file: each receiver has a thread.
const RECEIVERS_MAX: usize = 50;
const ROUTES_MAX: usize = 500;

const TITLE: &str = "[{{ .Status | toUpper }}{{ if eq .Status \"firing\" }}:{{ .FiringCount }}{{ end }}] {{ .CommonLabels.alertname }}{{ range $name, $value := .GroupLabels }}{{ if and (ne $name \"alertname\") $value }} {{ $value }}{{ end }}{{ end }}";
const TEXT: &str = "{{ range .Alerts }}{{ if eq .status \"resolved\" }}Over: {{ end }}{{ if .annotations.summary }}{{ .annotations.summary }}{{ else }}{{ .labels.alertname }}{{ end }}\n{{ end }}";

/// How a receiver is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The JSON that Alertmanager posts to webhooks.
    Webhook,
    /// A message as Slack's incoming webhooks take it.
    Slack,
}

impl Kind {
    /// As the file and the deliveries write it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Webhook => "webhook",
            Self::Slack => "slack",
        }
    }
}

/// One who is told.
#[derive(Debug)]
pub(crate) struct Receiver {
    pub(super) name: String,
    pub(super) kind: Kind,
    pub(super) outlet: Outlet,
    /// Whether it is told of ends too.
    pub(super) send_resolved: bool,
    /// Where a Slack-shaped message goes; empty leaves it to the address.
    pub(super) channel: String,
    pub(super) title: Message,
    pub(super) text: Message,
}

/// Times of a route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(clippy::struct_field_names, reason = "the unit belongs to each name")]
pub(super) struct Timing {
    /// How long a new group waits for more.
    pub(super) wait_ms: i64,
    /// How often a group is looked at.
    pub(super) interval_ms: i64,
    /// After how long a group that stays the same is told again.
    pub(super) repeat_ms: i64,
}

/// Which alerts go where, and what makes a group of them.
#[derive(Debug)]
pub(super) struct Route {
    matchers: Vec<Matcher>,
    pub(super) receiver: String,
    group_by: Vec<String>,
    pub(super) timing: Timing,
    goes_on: bool,
}

impl Route {
    /// The labels that make the group of an alert.
    pub(super) fn group_of(&self, labels: &AlertLabels) -> AlertLabels {
        if self.group_by.iter().any(|name| name == "...") {
            return labels.clone();
        }
        let of = |name: &String| Some((name.clone(), labels.get(name)?.clone()));
        self.group_by.iter().filter_map(of).collect()
    }
}

/// Alerts that others make superfluous.
#[derive(Debug)]
pub(super) struct Inhibition {
    source: Vec<Matcher>,
    target: Vec<Matcher>,
    equal: Vec<String>,
}

impl Inhibition {
    pub(super) fn is_source(&self, labels: &AlertLabels) -> bool {
        matchers::fit(&self.source, labels)
    }

    pub(super) fn is_target(&self, labels: &AlertLabels) -> bool {
        matchers::fit(&self.target, labels)
    }

    /// What source and target must have in common; none for an alert that has nothing of it.
    pub(super) fn cause_of<'l>(&self, labels: &'l AlertLabels) -> Option<Vec<&'l str>> {
        let values: Vec<&str> =
            self.equal.iter().map(|name| labels.get(name).map_or("", String::as_str)).collect();
        values.iter().any(|value| !value.is_empty()).then_some(values)
    }
}

/// What the file says.
#[derive(Debug, Default)]
#[expect(clippy::struct_field_names, reason = "a file of receivers has receivers")]
pub(crate) struct Receivers {
    /// The file, as it is written: it may have secrets in it.
    text: Secret,
    pub(super) receivers: Vec<Receiver>,
    /// Alertmanagers that it names beside those of the settings.
    pub(super) alertmanagers: Vec<Target>,
    pub(super) routes: Vec<Route>,
    pub(super) inhibitions: Vec<Inhibition>,
}

impl Receivers {
    /// Whether others say the same; addresses and words for access may come from other files.
    pub(super) fn are_like(&self, other: &Self) -> bool {
        let outlets = |of: &Self| of.receivers.iter().map(|one| one.outlet.clone()).collect::<Vec<_>>();
        self.text == other.text && outlets(self) == outlets(other)
    }

    /// The routes of an alert: the first that fits and those behind it while they say to go on; the last
    /// fits all.
    pub(super) fn routes_of<'r>(&'r self, labels: &AlertLabels) -> Vec<&'r Route> {
        let mut found = Vec::new();
        for route in self.routes.iter().filter(|route| matchers::fit(&route.matchers, labels)) {
            // The default comes last and is for what no other route has taken.
            if !route.matchers.is_empty() || found.is_empty() {
                found.push(route);
            }
            if !route.goes_on {
                break;
            }
        }
        found
    }

    pub(super) fn receiver(&self, name: &str) -> Option<&Receiver> {
        self.receivers.iter().find(|receiver| receiver.name == name)
    }
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
struct FileToml {
    #[serde(default)]
    route: RouteToml,
    #[serde(default)]
    routes: Vec<RouteToml>,
    #[serde(default)]
    inhibit: Vec<InhibitToml>,
    #[serde(default)]
    receivers: Vec<ReceiverToml>,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
struct RouteToml {
    #[serde(default, rename = "match")]
    matchers: Vec<toml::Spanned<String>>,
    receiver: Option<toml::Spanned<String>>,
    group_by: Option<Vec<String>>,
    group_wait: Option<toml::Spanned<String>>,
    group_interval: Option<toml::Spanned<String>>,
    repeat_interval: Option<toml::Spanned<String>>,
    #[serde(default, rename = "continue")]
    goes_on: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct InhibitToml {
    source: Vec<toml::Spanned<String>>,
    target: Vec<toml::Spanned<String>>,
    equal: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ReceiverToml {
    name: toml::Spanned<String>,
    kind: toml::Spanned<String>,
    url: Option<String>,
    url_file: Option<PathBuf>,
    url_env: Option<String>,
    bearer_token_file: Option<PathBuf>,
    bearer_token_env: Option<String>,
    #[serde(default)]
    headers: Vec<toml::Spanned<String>>,
    ca_file: Option<PathBuf>,
    timeout: Option<toml::Spanned<String>>,
    send_resolved: Option<bool>,
    channel: Option<String>,
    title: Option<toml::Spanned<String>>,
    text: Option<toml::Spanned<String>>,
}

/// Something wrong, and where in the text.
type Wrong = (Option<usize>, String);

/// Reads the file that the settings name, if they name one.
pub(crate) fn read(config: &AlertingConfig) -> Result<Receivers, NotifyError> {
    let Some(path) = &config.receivers_file else { return Ok(Receivers::default()) };
    let wrong = |line: usize, reason: String| NotifyError::Receivers { path: path.clone(), line, reason };
    let text = files::text(path, files::SMALL_BYTES_MAX).map_err(|error| wrong(0, error.to_string()))?;
    parse(&text, path, config).map_err(|(at, reason)| {
        let line = at.map_or(0, |at| text[..at.min(text.len())].matches('\n').count() + 1);
        wrong(line, reason)
    })
}

fn parse(text: &str, path: &Path, config: &AlertingConfig) -> Result<Receivers, Wrong> {
    let file: FileToml =
        toml::from_str(text).map_err(|error| (error.span().map(|span| span.start), told(&error)))?;
    let folder = path.parent().unwrap_or(Path::new("."));
    let mut found = Receivers { text: Secret::new(text), ..Receivers::default() };
    for receiver in &file.receivers {
        take(&mut found, receiver, folder, config)?;
    }
    if file.receivers.len() > RECEIVERS_MAX || file.routes.len() > ROUTES_MAX {
        return Err((
            None,
            format!("at most {RECEIVERS_MAX} receivers and {ROUTES_MAX} routes are possible"),
        ));
    }
    let first = found.receivers.first().map(|receiver| receiver.name.clone());
    let Some(first) = first else {
        let reason =
            "a route needs a receiver of the kind `webhook` or `slack`: add one under `[[receivers]]`";
        let is_bare = file.routes.is_empty() && file.route.receiver.is_none();
        return if is_bare { Ok(found) } else { Err((None, reason.to_owned())) };
    };
    let defaults = Route {
        matchers: Vec::new(),
        receiver: first,
        group_by: GROUP_BY.map(str::to_owned).to_vec(),
        timing: Timing {
            wait_ms: millis(GROUP_WAIT),
            interval_ms: millis(GROUP_INTERVAL),
            repeat_ms: millis(REPEAT_INTERVAL),
        },
        goes_on: false,
    };
    if let Some(matcher) = file.route.matchers.first() {
        let reason = "`[route]` is for all that no other route takes: write conditions under `[[routes]]`";
        return Err((Some(matcher.span().start), reason.to_owned()));
    }
    let last = route(&file.route, &defaults, &found)?;
    for one in &file.routes {
        if one.matchers.is_empty() {
            let at = one.receiver.as_ref().map(|name| name.span().start);
            return Err((at, "a route of `[[routes]]` needs `match`, its conditions".to_owned()));
        }
        let one = route(one, &last, &found)?;
        found.routes.push(one);
    }
    found.routes.push(last);
    for one in &file.inhibit {
        let (source, target) = (conditions(&one.source)?, conditions(&one.target)?);
        if source.is_empty() || target.is_empty() || one.equal.is_empty() {
            let reason = "`[[inhibit]]` needs conditions in `source` and `target`, and labels in `equal`";
            return Err((one.source.first().map(|text| text.span().start), reason.to_owned()));
        }
        found.inhibitions.push(Inhibition { source, target, equal: one.equal.clone() });
    }
    Ok(found)
}

/// What TOML says is wrong; an unknown key with the one that was probably meant.
fn told(error: &toml::de::Error) -> String {
    let message = error.message();
    let words: Vec<&str> = message.split('`').skip(1).step_by(2).collect();
    match words.split_first() {
        Some((word, known)) if message.starts_with("unknown field") => {
            let meant = model::nearest(word, known.iter().copied());
            let meant = meant.map_or(String::new(), |meant| format!("; `{meant}` was probably meant"));
            format!(
                "there is no key `{}`{meant}; keys here are `{}`",
                crate::api::shown(word),
                known.join("`, `")
            )
        }
        _ => message.lines().next().unwrap_or_default().to_owned(),
    }
}

fn conditions(texts: &[toml::Spanned<String>]) -> Result<Vec<Matcher>, Wrong> {
    let one = |text: &toml::Spanned<String>| {
        matchers::parse(text.get_ref()).map_err(|reason| (Some(text.span().start), reason))
    };
    texts.iter().map(one).collect()
}

fn route(text: &RouteToml, defaults: &Route, found: &Receivers) -> Result<Route, Wrong> {
    let receiver = match &text.receiver {
        Some(name) if found.receiver(name.get_ref()).is_none() => {
            let names: Vec<&str> = found.receivers.iter().map(|receiver| receiver.name.as_str()).collect();
            let reason = format!(
                "there is no webhook or Slack receiver `{}`; those are `{}`; an Alertmanager gets every alert",
                crate::api::shown(name.get_ref()),
                names.join("`, `")
            );
            return Err((Some(name.span().start), reason));
        }
        Some(name) => name.get_ref().clone(),
        None => defaults.receiver.clone(),
    };
    let time = |text: &Option<toml::Spanned<String>>, or: i64| match text {
        Some(text) => span_of(text).map(millis),
        None => Ok(or),
    };
    let (given, least) = (defaults.timing, millis(INTERVAL_MIN));
    Ok(Route {
        matchers: conditions(&text.matchers)?,
        receiver,
        group_by: text.group_by.clone().unwrap_or_else(|| defaults.group_by.clone()),
        timing: Timing {
            wait_ms: time(&text.group_wait, given.wait_ms)?,
            interval_ms: time(&text.group_interval, given.interval_ms)?.max(least),
            repeat_ms: time(&text.repeat_interval, given.repeat_ms)?.max(least),
        },
        goes_on: text.goes_on,
    })
}

fn span_of(text: &toml::Spanned<String>) -> Result<Duration, Wrong> {
    let reason = || format!("`{}` is no duration: write one such as `5m`", crate::api::shown(text.get_ref()));
    duration::parse(text.get_ref()).ok_or_else(|| (Some(text.span().start), reason()))
}

fn millis(span: Duration) -> i64 {
    i64::try_from(span.as_millis()).unwrap_or(i64::MAX)
}

fn take(
    found: &mut Receivers,
    text: &ReceiverToml,
    folder: &Path,
    config: &AlertingConfig,
) -> Result<(), Wrong> {
    let (name, at) = (text.name.get_ref(), Some(text.name.span().start));
    let known: BTreeSet<&str> = found.receivers.iter().map(|receiver| receiver.name.as_str()).collect();
    if name.trim().is_empty() || known.contains(name.as_str()) {
        return Err((at, format!("receiver `{}`: each needs a name of its own", crate::api::shown(name))));
    }
    let failed = |reason: String| (at, format!("receiver `{}`: {reason}", crate::api::shown(name)));
    let config = settings(text, folder, config)?;
    let url = secret((text.url.as_deref(), text.url_file.as_deref(), text.url_env.as_deref()), folder, "url");
    let url = url.and_then(|url| url.ok_or_else(|| "`url`, `url_file` or `url_env` is missing".to_owned()));
    let url = url.map_err(failed)?;
    let kind = match text.kind.get_ref().as_str() {
        "webhook" => Kind::Webhook,
        "slack" => Kind::Slack,
        "alertmanager" => {
            let words = [("title", text.title.is_some()), ("text", text.text.is_some())];
            let more = [("channel", text.channel.is_some()), ("send_resolved", text.send_resolved.is_some())];
            if let Some((key, _)) = words.into_iter().chain(more).find(|(_, given)| *given) {
                return Err(failed(format!("an Alertmanager is told all in its own way: leave `{key}` out")));
            }
            let target = Target::new(url.as_str(), &config).map_err(|error| failed(error.to_string()))?;
            found.alertmanagers.push(target);
            return Ok(());
        }
        other => {
            let reason = format!(
                "there is no kind `{}`; kinds are `webhook`, `slack` and `alertmanager`",
                crate::api::shown(other)
            );
            return Err((Some(text.kind.span().start), reason));
        }
    };
    // The address of a Slack-shaped receiver is its secret, as that of others may be.
    let outlet = Outlet::new(url.as_str(), &config).map_err(|error| failed(error.to_string()))?;
    let message = |text: &Option<toml::Spanned<String>>, or: &str| match text {
        Some(text) => Message::parse(text.get_ref())
            .map_err(|reason| (Some(text.span().start), format!("template: {reason}"))),
        None => Message::parse(or).map_err(|reason| (None, reason)),
    };
    found.receivers.push(Receiver {
        name: name.clone(),
        kind,
        outlet,
        send_resolved: text.send_resolved.unwrap_or(true),
        channel: text.channel.clone().unwrap_or_default(),
        title: message(&text.title, TITLE)?,
        text: message(&text.text, TEXT)?,
    });
    Ok(())
}

/// The settings of Alertmanagers with what this receiver says instead.
fn settings(text: &ReceiverToml, folder: &Path, of: &AlertingConfig) -> Result<AlertingConfig, Wrong> {
    let mut headers = Vec::new();
    for header in &text.headers {
        let read = crate::config::header(header.get_ref());
        headers.push(read.map_err(|reason| (Some(header.span().start), reason))?);
    }
    let token = (None, text.bearer_token_file.as_deref(), text.bearer_token_env.as_deref());
    let token =
        secret(token, folder, "bearer_token").map_err(|reason| (Some(text.name.span().start), reason))?;
    if let Some(token) = token {
        let header = crate::config::header(&format!("authorization: Bearer {}", token.as_str())).map_err(
            |_said_of_headers| (None, "the token has characters that no header may have".to_owned()),
        )?;
        headers.push(header);
    }
    Ok(AlertingConfig {
        headers,
        ca_file: text.ca_file.as_ref().map(|file| folder.join(file)).or_else(|| of.ca_file.clone()),
        time_max: text.timeout.as_ref().map_or(Ok(of.time_max), span_of)?.max(INTERVAL_MIN),
        ..AlertingConfig::default()
    })
}

/// A text that may be secret: as it is, from a file beside this one, or from the environment.
fn secret(
    (text, file, variable): (Option<&str>, Option<&Path>, Option<&str>),
    folder: &Path,
    what: &str,
) -> Result<Option<Secret>, String> {
    if [text.is_some(), file.is_some(), variable.is_some()].iter().filter(|given| **given).count() > 1 {
        return Err(format!("`{what}` is given more than once: keep one of its forms"));
    }
    if let Some(file) = file {
        let path = folder.join(file);
        let read = files::text(&path, files::SMALL_BYTES_MAX);
        let read = read.map_err(|error| format!("cannot read `{}`: {error}", path.display()))?;
        return Ok(Some(Secret::new(read.trim())));
    }
    if let Some(variable) = variable {
        let read = std::env::var(variable);
        let read =
            read.map_err(|_unset| format!("the variable `{}` is not set", crate::api::shown(variable)))?;
        return Ok(Some(Secret::new(read.trim())));
    }
    Ok(text.map(Secret::new))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Those of a file's text.
    pub(in crate::notify) fn receivers(text: &str) -> Receivers {
        parsed(text).unwrap()
    }

    fn parsed(text: &str) -> Result<Receivers, (usize, String)> {
        let path = Path::new("/nowhere/receivers.toml");
        parse(text, path, &AlertingConfig::default())
            .map_err(|(at, reason)| (at.map_or(0, |at| text[..at].matches('\n').count() + 1), reason))
    }

    const GOOD: &str = r#"
[route]
receiver = "ops"
group_wait = "2s"

[[routes]]
match = ['severity="page"']
receiver = "pager"
group_by = ["run_id"]
continue = true

[[routes]]
match = ['model=~"chat.*"']
receiver = "chat"
repeat_interval = "1h"

[[receivers]]
name = "ops"
kind = "webhook"
url = "http://user:s3cret@127.0.0.1:1/hook"

[[receivers]]
name = "pager"
kind = "webhook"
url = "https://pager.example.org/v2?key=s3cret"

[[receivers]]
name = "chat"
kind = "slack"
url = "https://hooks.example.org/services/s3cret"

[[receivers]]
name = "am"
kind = "alertmanager"
url = "http://am:9093"
"#;

    #[test]
    fn an_alert_goes_by_the_first_route_that_fits_and_on_where_it_says_so() {
        let found = parsed(GOOD).unwrap();
        let names = |pairs: &[(&str, &str)]| -> Vec<String> {
            let labels = pairs.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect();
            found.routes_of(&labels).iter().map(|route| route.receiver.clone()).collect()
        };
        assert_eq!(names(&[("severity", "page"), ("model", "chat-70b")]), ["pager", "chat"]);
        assert_eq!(names(&[("severity", "page")]), ["pager"]);
        assert_eq!(names(&[("severity", "ticket")]), ["ops"]);
        let timing = |at: usize| found.routes[at].timing;
        assert_eq!(
            (timing(1).wait_ms, timing(1).interval_ms, timing(1).repeat_ms),
            (2_000, 60_000, 3_600_000)
        );
        assert_eq!(timing(2).repeat_ms, 4 * 3_600_000);
        assert_eq!(found.alertmanagers.len(), 1);
    }

    #[test]
    fn no_secret_of_an_address_is_shown() {
        let found = parsed(GOOD).unwrap();
        assert!(!format!("{found:?}").contains("s3cret"), "{found:?}");
    }

    #[test]
    fn what_is_wrong_is_said_with_its_line() {
        let said = |from: &str, to: &str| parsed(&GOOD.replacen(from, to, 1)).unwrap_err();
        let (line, reason) = said("group_wait", "group_wiat");
        assert!(line == 4 && reason.contains("`group_wait` was probably meant"), "{line} {reason}");
        let (line, reason) = said("receiver = \"pager\"", "receiver = \"paper\"");
        assert!(line == 8 && reason.contains("`paper`") && reason.contains("`pager`"), "{line} {reason}");
        let (line, reason) = said("\"2s\"", "\"two\"");
        assert!(line == 4 && reason.contains("duration"), "{line} {reason}");
        let (line, reason) = said("severity=\"page\"", "severity");
        assert!(line == 7 && reason.contains("condition"), "{line} {reason}");
        let (line, reason) = said("kind = \"slack\"", "kind = \"slak\"");
        assert!(line > 20 && reason.contains("`slack`"), "{line} {reason}");
        let (_, reason) = said("url = \"http://user", "url = \"ftp://user");
        assert!(reason.contains("receiver `ops`") && !reason.contains("s3cret"), "{reason}");
        let (_, reason) = said("name = \"chat\"", "name = \"ops\"");
        assert!(reason.contains("name of its own"), "{reason}");
        let (_, reason) = parsed("[route]\nreceiver = \"x\"\n").unwrap_err();
        assert!(reason.contains("needs a receiver"), "{reason}");
        let (line, reason) = said("url = \"https://hooks", "title = \"{{ .Status\"\nurl = \"https://hooks");
        assert!(line > 20 && reason.contains("template"), "{line} {reason}");
        let (_, reason) = parsed(&format!("{GOOD}\ntitle = \"x\"\n")).unwrap_err();
        assert!(reason.contains("receiver `am`") && reason.contains("`title`"), "{reason}");
        assert!(parsed("").unwrap().receivers.is_empty());
    }

    #[test]
    fn secrets_come_from_files_and_the_environment_and_only_once() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("url"), "https://x.example.org/s3cret\n").unwrap();
        let text = "[[receivers]]\nname = \"a\"\nkind = \"slack\"\nurl_file = \"url\"\n";
        let read = |text: &str| parse(text, &dir.path().join("r.toml"), &AlertingConfig::default());
        assert_eq!(read(text).unwrap().receivers[0].outlet.shown(), "https://x.example.org");
        let (_, reason) = read(&format!("{text}url_env = \"NOBODY_SETS_THIS\"\n")).unwrap_err();
        assert!(reason.contains("more than once"), "{reason}");
        let (_, reason) =
            read(&text.replace("url_file = \"url\"", "url_env = \"NOBODY_SETS_THIS\"")).unwrap_err();
        assert!(reason.contains("`NOBODY_SETS_THIS` is not set"), "{reason}");
        let (_, reason) = read(&text.replace("\"url\"", "\"gone\"")).unwrap_err();
        assert!(reason.contains("gone"), "{reason}");
    }
}
