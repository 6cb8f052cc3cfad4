//! Events of engines in words.

use insight::serving::commas;
use model::{Event, NANOS_PER_MILLI, NANOS_PER_SECOND, Severity};
use serde_json::{Value, json};

use super::target::{Change, Evidence, Sign, Target, Turn};

/// Kind of the events.
pub(crate) const KIND: &str = "engine";
/// Restarts within an hour from which they are more than worth knowing.
const RESTARTS_WARNED: usize = 3;
/// Names that a sentence lists.
const NAMES_SHOWN: usize = 4;
/// Longest name within a sentence, characters.
const NAME_SHOWN_MAX: usize = 120;

fn shown(name: &str) -> String {
    let mut shown: String = name.chars().take(NAME_SHOWN_MAX).collect();
    if shown.len() < name.len() {
        shown.push('…');
    }
    shown
}

/// What a target is called.
fn called(target: &Target) -> String {
    format!("{} on {}", target.engine().unwrap_or("an engine"), shown(target.name.instance()))
}

fn event(
    target: &Target,
    what: &str,
    time_ns: i64,
    (severity, text): (Severity, String),
    body: Value,
) -> Event {
    let name = &target.name;
    let mut labels = vec![("source".to_owned(), KIND.to_owned())];
    labels.extend(target.engine().map(|engine| ("engine".to_owned(), engine.to_owned())));
    // A change of the model is of both.
    labels.extend(
        target.model().filter(|_| what != "model").map(|model| ("model".to_owned(), model.to_owned())),
    );
    labels.push(("job".to_owned(), name.job().to_owned()));
    labels.push(("instance".to_owned(), name.instance().to_owned()));
    labels.extend(target.places.clone());
    let mut of = String::new();
    for (label, value) in name.project() {
        labels.push((label.to_owned(), value.to_owned()));
        of = of + value + "/";
    }
    let mut body = body;
    body["what"] = what.into();
    Event {
        time_ns,
        kind: KIND.to_owned(),
        severity,
        key: format!("{what}:{of}{}/{}:{}", name.job(), name.instance(), time_ns / NANOS_PER_MILLI),
        labels,
        text,
        body: body.to_string(),
    }
}

/// It began anew.
pub(super) fn restart(target: &Target, signs: &[&Sign], within: usize) -> Event {
    let time_ns = signs.first().map_or(0, |sign| sign.time_ns);
    let start = signs.iter().find_map(|sign| match sign.evidence {
        Evidence::Start(before, now) => Some((before, now)),
        _ => None,
    });
    let mut falls: Vec<(&str, f64, f64)> = signs
        .iter()
        .filter_map(|sign| match &sign.evidence {
            Evidence::Fall(name, before, now) => Some((&**name, *before, *now)),
            _ => None,
        })
        .collect();
    falls.sort_by(|a, b| (b.1 - b.2).total_cmp(&(a.1 - a.2)).then(a.0.cmp(b.0)));
    let mut why: Vec<String> = Vec::new();
    why.extend(start.map(|(before, now)| {
        format!("its process began {} s after the one before", commas((now - before).round(), 0))
    }));
    why.extend(falls.first().map(|(name, before, now)| {
        let (count, one) = (falls.len(), falls.len() == 1);
        let counters =
            if one { "1 counter".to_owned() } else { format!("{} counters", commas(count as f64, 0)) };
        let (before, now) = (commas(*before, 0), commas(*now, 0));
        format!("{counters} fell, {} from {before} to {now}", shown(name))
    }));
    if why.is_empty() {
        why.push("its series were created anew".to_owned());
    }
    let is_often = within >= RESTARTS_WARNED;
    why.extend(is_often.then(|| format!("{within} restarts within an hour")));
    let text = format!("{} restarted: {}", called(target), why.join("; "));
    let severity = if is_often { Severity::Warning } else { Severity::Info };
    let fell: Vec<Value> = falls
        .iter()
        .take(NAMES_SHOWN)
        .map(|(name, b, n)| json!({ "name": name, "before": b, "now": n }))
        .collect();
    let body = json!({
        "counters_fell": falls.len(), "fell": fell, "restarts_within_an_hour": within,
        "started": start.map(|(_, now)| now), "started_before": start.map(|(before, _)| before),
    });
    event(target, "restart", time_ns, (severity, text), body)
}

/// It fell silent or answers again.
pub(super) fn turn(target: &Target, turn: &Turn) -> Event {
    match turn {
        Turn::Down { first_ns, error } => {
            let why = error.as_deref().unwrap_or("who scrapes it does not say why");
            let text = format!("{} is down, 2 scrapes in a row failed: {why}", called(target));
            event(target, "down", *first_ns, (Severity::Warning, text), json!({ "error": error }))
        }
        Turn::Back { time_ns, since_ns } => {
            let seconds = time_ns.saturating_sub(*since_ns) as f64 / NANOS_PER_SECOND as f64;
            let digits = usize::from(seconds < 10.0);
            let text = format!("{} answers again after {} s", called(target), commas(seconds, digits));
            let body = json!({ "seconds": seconds, "down_since_ns": since_ns.to_string() });
            event(target, "up", *time_ns, (Severity::Info, text), body)
        }
    }
}

/// It serves another model.
pub(super) fn model(target: &Target, change: &Change) -> Event {
    let text = format!("{} serves {} in place of {}", called(target), shown(&change.to), shown(&change.from));
    let body = json!({ "from": &*change.from, "to": &*change.to });
    event(target, "model", change.time_ns, (Severity::Info, text), body)
}

/// Its page is another engine's.
pub(super) fn engine(target: &Target, change: &Change) -> Event {
    let instance = shown(target.name.instance());
    let text = format!("The page of {instance} is of {} now, it was of {}", change.to, change.from);
    let body = json!({ "from": &*change.from, "to": &*change.to });
    event(target, "engine", change.time_ns, (Severity::Info, text), body)
}

/// Its page has other names.
pub(super) fn names(target: &Target, changes: &[&Change]) -> Event {
    let (time_ns, count) = (changes.first().map_or(0, |change| change.time_ns), changes.len());
    let one = |change: &&Change| format!("{} in place of {}", shown(&change.to), shown(&change.from));
    let mut listed: Vec<String> = changes.iter().take(NAMES_SHOWN).map(one).collect();
    if count > NAMES_SHOWN {
        listed.push(format!("and {} more", count - NAMES_SHOWN));
    }
    let text = format!("The page of {} renamed: {}", called(target), listed.join(", "));
    let renamed: Vec<Value> =
        changes.iter().map(|change| json!({ "from": &*change.from, "to": &*change.to })).collect();
    let mut event = event(target, "names", time_ns, (Severity::Info, text), json!({ "renamed": renamed }));
    // Names of one page may come in several writes.
    if let Some(first) = changes.first() {
        event.key = format!("{}:{}", event.key, first.to);
    }
    event
}

/// Says that no more is told of it for now.
pub(super) fn end(event: &mut Event) {
    event.text.push_str("; further events of it within the hour are not told");
}
