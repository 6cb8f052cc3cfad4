//! Evaluates rules on schedule: what they record is stored, what they alert on is shown.
//!
//! One thread evaluates all groups, one after another. A group's state is kept beside the store, so
//! that a restart loses no pending alert and recording rules make up for what they missed.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use model::{Labels, NANOS_PER_MILLI, Sample};
use promql::rules::{
    Alert, AlertState, Group, GroupState, Moment, Outcome, RuleKind, RuleText, Setting, Write,
};
use promql::{Cancel, Options};
use serde_json::{Value, json};
use store::AppendError;

use crate::app::{App, Shared};
use crate::clock::{now_ms, rfc3339};
use crate::config::Config;
use crate::intake::Intake;
use crate::query::limits;
use crate::source::StoreSource;

/// Name of this door in the counters.
const DOOR: &str = "rules";
/// Where the groups' state is kept, in the data directory.
const STATE_FILE: &str = "rules.json";
/// Most evaluations that a group makes up for after a stop.
const MISSED_MAX: usize = 6_000;
/// How often it is looked whether a group is due.
const PERIOD: Duration = Duration::from_millis(200);
/// Largest rule file, bytes.
const FILE_BYTES_MAX: u64 = 64 << 20;

/// Why rules can't be evaluated.
#[derive(Debug, thiserror::Error)]
pub enum RulesError {
    /// The file can't be read.
    #[error("cannot read the rules `{path}`: {reason}")]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// Something in it is wrong.
    #[error("the rules `{path}` can't be used: {findings}")]
    Wrong {
        /// The file.
        path: PathBuf,
        /// Lines and what is wrong there.
        findings: String,
    },
    /// No thread to be had.
    #[error("cannot start the rules' thread: {0}")]
    Thread(#[source] std::io::Error),
}

/// A group and how its rules fared.
struct Ruled {
    file: PathBuf,
    group: Group,
    limit: usize,
    fared: Vec<Fared>,
    last_ms: Option<i64>,
    took: Duration,
}

/// How one rule fared last.
#[derive(Clone, Default)]
struct Fared {
    at_ms: Option<i64>,
    took: Duration,
    error: Option<String>,
}

/// Groups as Prometheus' API shows them.
pub(crate) type Shown = Arc<Mutex<Vec<Value>>>;

/// Evaluates until it is stopped.
pub(crate) struct Ruler {
    /// The groups.
    pub(crate) shown: Shown,
    cancel: Cancel,
    stopping: Arc<(Mutex<bool>, Condvar)>,
    thread: Option<JoinHandle<()>>,
}

impl std::fmt::Debug for Ruler {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ruler").finish_non_exhaustive()
    }
}

/// Groups of the settings' files.
pub(crate) struct Groups(Vec<Ruled>);

/// Reads the files of rules.
pub(crate) fn groups(config: &Config) -> Result<Groups, RulesError> {
    let interval_ms = i64::try_from(config.rule_interval.as_millis()).unwrap_or(i64::MAX);
    let mut groups = Vec::new();
    for path in config.rule_files.iter().map(PathBuf::from) {
        let unreadable = |reason: String| RulesError::Unreadable { path: path.clone(), reason };
        let bytes = std::fs::metadata(&path).map_err(|error| unreadable(error.to_string()))?.len();
        if bytes > FILE_BYTES_MAX {
            return Err(unreadable(format!("it has {bytes} bytes, at most {FILE_BYTES_MAX} are read")));
        }
        let text = std::fs::read_to_string(&path).map_err(|error| unreadable(error.to_string()))?;
        let wrong =
            |findings: Vec<String>| RulesError::Wrong { path: path.clone(), findings: findings.join("; ") };
        let file = promql::rules::parse(&text)
            .map_err(|findings| wrong(findings.iter().map(ToString::to_string).collect()))?;
        for group in &file.groups {
            let limit = group.limit;
            let group = Group::new(group, interval_ms).map_err(|error| wrong(vec![error.to_string()]))?;
            let fared = vec![Fared::default(); group.len()];
            groups.push(Ruled {
                file: path.clone(),
                group,
                limit,
                fared,
                last_ms: None,
                took: Duration::ZERO,
            });
        }
    }
    Ok(Groups(groups))
}

/// Starts evaluating, if there are rules.
pub(crate) fn start(app: &App, groups: Groups) -> Result<(), RulesError> {
    let Groups(mut groups) = groups;
    if groups.is_empty() {
        return Ok(());
    }
    restore(app, &mut groups);
    let shown: Shown = Arc::new(Mutex::new(groups.iter().map(show).collect()));
    let cancel = Cancel::new();
    let options = Options { limits: limits(&app.config), cancel: cancel.clone(), ..Options::default() };
    let work = Work {
        shared: Arc::downgrade(app),
        shown: Arc::clone(&shown),
        stopping: Arc::default(),
        setting: Setting { options, ..Setting::default() },
        groups,
    };
    let stopping = Arc::clone(&work.stopping);
    let thread = std::thread::Builder::new()
        .name("truegauge-rules".to_owned())
        .spawn(move || work.run())
        .map_err(RulesError::Thread)?;
    *app.ruler() = Some(Ruler { shown, cancel, stopping, thread: Some(thread) });
    Ok(())
}

/// Ends evaluating.
pub(crate) fn stop(app: &App) {
    let ruler = app.ruler().take();
    if let Some(mut ruler) = ruler {
        ruler.cancel.cancel();
        *ruler.stopping.0.lock().unwrap_or_else(PoisonError::into_inner) = true;
        ruler.stopping.1.notify_all();
        if ruler.thread.take().is_some_and(|thread| thread.join().is_err()) {
            tracing::error!("the rules' thread ended by a panic");
        }
    }
}

struct Work {
    shared: Weak<Shared>,
    shown: Shown,
    stopping: Arc<(Mutex<bool>, Condvar)>,
    setting: Setting,
    groups: Vec<Ruled>,
}

impl Work {
    fn run(mut self) {
        while !self.pause() {
            let Some(shared) = self.shared.upgrade() else { return };
            let mut changed = false;
            for at in 0..self.groups.len() {
                changed |= self.turn(&shared, at);
            }
            if changed {
                keep(&shared, &self.groups);
            }
        }
    }

    /// Waits; says whether all is over.
    fn pause(&self) -> bool {
        let (over, told) = &*self.stopping;
        let over = over.lock().unwrap_or_else(PoisonError::into_inner);
        let (over, _) =
            told.wait_timeout_while(over, PERIOD, |over| !*over).unwrap_or_else(PoisonError::into_inner);
        *over
    }

    /// Evaluates a group for every time at which it is due; says whether it was.
    fn turn(&mut self, shared: &Shared, at: usize) -> bool {
        let Some(ruled) = self.groups.get_mut(at) else { return false };
        let due = ruled.group.due(now_ms(), MISSED_MAX);
        for (number, time_ms) in due.iter().enumerate() {
            let moment = if number + 1 == due.len() { Moment::Now } else { Moment::Missed };
            let started = Instant::now();
            for index in 0..ruled.group.len() {
                ruled.rule(shared, index, (*time_ms, moment), &self.setting);
            }
            if self.setting.options.cancel.is_cancelled() {
                return number > 0;
            }
            ruled.group.done(*time_ms);
            (ruled.last_ms, ruled.took) = (Some(*time_ms), started.elapsed());
        }
        if !due.is_empty() {
            let value = show(ruled);
            let mut shown = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(place) = shown.get_mut(at) {
                *place = value;
            }
        }
        !due.is_empty()
    }
}

impl Ruled {
    fn rule(&mut self, shared: &Shared, index: usize, when: (i64, Moment), setting: &Setting) {
        let started = Instant::now();
        let Outcome { writes, error, .. } =
            self.group.evaluate(index, &StoreSource(&shared.store), when, setting);
        if error.is_some() && setting.options.cancel.is_cancelled() {
            return;
        }
        let stored = store(shared, &writes);
        let error = error.or_else(|| stored.err().map(|error| error.to_string()));
        let outcome = if error.is_some() { "failed" } else { "evaluated" };
        shared.metrics.rules.add(&[&self.group.name, outcome], 1);
        if let Some(fared) = self.fared.get_mut(index) {
            if let Some(error) = error.as_ref().filter(|error| fared.error.as_ref() != Some(*error)) {
                tracing::warn!(error, group = self.group.name, rule = index, "a rule failed");
            }
            *fared = Fared { at_ms: Some(when.0), took: started.elapsed(), error };
        }
    }
}

fn store(shared: &Shared, writes: &[Write]) -> Result<(), AppendError> {
    if writes.is_empty() {
        return Ok(());
    }
    let mut intake = Intake::own(DOOR);
    for write in writes {
        let time_ns = write.time_ms.saturating_mul(NANOS_PER_MILLI);
        intake.series(write.labels.iter(), vec![Sample { time_ns, value: write.value, step: None }]);
    }
    intake.store(shared).map(drop)
}

/// By what a group is found again.
fn key(ruled: &Ruled) -> String {
    format!("{}\n{}", ruled.file.display(), ruled.group.name)
}

fn restore(app: &App, groups: &mut [Ruled]) {
    let path = app.config.data_dir.join(STATE_FILE);
    let Ok(text) = std::fs::read(&path) else { return };
    match serde_json::from_slice::<BTreeMap<String, GroupState>>(&text) {
        Ok(mut states) => {
            for ruled in groups {
                if let Some(state) = states.remove(&key(ruled)) {
                    ruled.group.restore(state);
                }
            }
        }
        Err(error) => {
            tracing::warn!(%error, path = %path.display(), "the rules' state is damaged: they start anew");
        }
    }
}

/// Writes the state beside the old one and puts it in its place.
fn keep(shared: &Shared, groups: &[Ruled]) {
    let states: BTreeMap<String, GroupState> =
        groups.iter().map(|ruled| (key(ruled), ruled.group.state())).collect();
    let path = shared.config.data_dir.join(STATE_FILE);
    let next = path.with_extension("json.next");
    let kept = serde_json::to_vec(&states)
        .map_err(std::io::Error::from)
        .and_then(|text| std::fs::write(&next, text))
        .and_then(|()| std::fs::rename(&next, &path));
    if let Err(error) = kept {
        tracing::warn!(%error, path = %path.display(), "cannot keep the rules' state");
    }
}

/// A group as Prometheus' API writes it.
fn show(ruled: &Ruled) -> Value {
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
        "file": ruled.file.display().to_string(),
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
