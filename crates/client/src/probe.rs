//! The first question to the server: is it there, and does it know the run?

use std::collections::HashMap;
use std::time::Duration;

use model::RunId;
use serde_json::Value;

use crate::config::{Config, ResumeStrategy};
use crate::run::StartError;
use crate::series::Meta;
use crate::transport::{Away, Transport};

/// Longest wait at the start for a server on this machine, and for any other.
const LOOPBACK_TIMEOUT: Duration = Duration::from_millis(500);
const REMOTE_TIMEOUT: Duration = Duration::from_secs(1);

/// What the server said at the start.
#[derive(Debug, Default)]
pub(crate) struct Probe {
    /// Why it can't be had, if so.
    pub(crate) away: Option<Away>,
    /// Whether it knows the run.
    pub(crate) exists: bool,
    pub(crate) last_steps: LastSteps,
}

/// Last steps of a run's series before this process, by [`Meta::key`].
#[derive(Debug, Default)]
pub(crate) struct LastSteps(HashMap<String, i64>);

impl LastSteps {
    pub(crate) fn get(&self, key: &str) -> Option<i64> {
        self.0.get(key).copied()
    }

    /// The highest last step of this host's `system/` series.
    #[cfg(any(tg_linux, test))]
    pub(crate) fn of_system(&self, host: &str) -> Option<i64> {
        let wanted = ["host", host];
        let is_mine = |key: &str| {
            let parts: Vec<&str> = key.split('\0').collect();
            key.starts_with("system/") && parts.windows(2).any(|pair| pair == wanted)
        };
        self.0.iter().filter(|(key, _)| is_mine(key)).map(|(_, step)| *step).max()
    }

    fn from_list(list: &Value) -> Self {
        let metrics = list["metrics"].as_array().map(Vec::as_slice).unwrap_or_default();
        Self(metrics.iter().filter_map(entry).collect())
    }
}

/// One series of the list.
fn entry(metric: &Value) -> Option<(String, i64)> {
    let step = metric["last_step"].as_i64()?;
    let labels: Vec<(&str, &str)> = metric["labels"]
        .as_object()?
        .iter()
        .filter(|(key, _)| !matches!(key.as_str(), "display" | "scale"))
        .filter_map(|(key, value)| Some((key.as_str(), value.as_str()?)))
        .collect();
    let scale = metric["scale"].as_str().unwrap_or_default();
    Some((Meta::new(metric["display"].as_str()?, &labels, scale).key(), step))
}

/// Asks; never takes longer than a second or so.
pub(crate) fn probe(
    transport: &Transport,
    run_id: RunId,
    config: &Config,
    token: &str,
) -> Result<Probe, StartError> {
    let most = if transport.is_loopback() { LOOPBACK_TIMEOUT } else { REMOTE_TIMEOUT };
    let timeout = most.min(config.init_timeout).max(Duration::from_millis(1));
    if config.resume == ResumeStrategy::Never
        && let Ok((200, run)) = transport.ask(&format!("runs/{run_id}"), timeout)
    {
        let theirs = run["attempts_list"]
            .as_array()
            .and_then(|attempts| attempts.last())
            .and_then(|attempt| attempt["job_token"].as_str())
            .unwrap_or_default();
        if token.is_empty() || theirs != token {
            return Err(StartError::RunExists { run_id, job_token: theirs.to_owned() });
        }
    }
    Ok(match transport.ask(&format!("runs/{run_id}/metrics"), timeout) {
        Ok((200, list)) => Probe { away: None, exists: true, last_steps: LastSteps::from_list(&list) },
        Ok((_, answer)) if answer["error"].is_object() => Probe::default(),
        Ok((status, _)) => Probe { away: Some(Away::foreign(status)), ..Probe::default() },
        Err(away) => Probe { away: Some(away), ..Probe::default() },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_steps_are_found_by_what_was_logged() {
        let list = serde_json::json!({"metrics": [
            {"name": "loss", "display": "loss", "labels": {"split": "val", "rank": "1"}, "scale": "ML_STEP", "last_step": 41},
            {"name": "a_b", "display": "a b", "labels": {"display": "a b", "scale": "EPISODE"}, "scale": "EPISODE", "last_step": 3},
            {"name": "none", "display": "none", "labels": {}, "scale": "ML_STEP", "last_step": null},
            {"name": "system_x", "display": "system/x", "labels": {"host": "h"}, "scale": "", "last_step": 9},
        ]});
        let steps = LastSteps::from_list(&list);
        let get = |name: &str, labels: &[(&str, &str)], scale: &str| {
            steps.get(&Meta::new(name, labels, scale).key())
        };
        assert_eq!(get("loss", &[("rank", "1"), ("split", "val")], ""), Some(41));
        assert_eq!(get("a b", &[], "EPISODE"), Some(3));
        assert_eq!(get("none", &[], ""), None);
        assert_eq!((steps.of_system("h"), steps.of_system("g")), (Some(9), None));
        assert!(LastSteps::from_list(&Value::Null).0.is_empty());
    }
}
