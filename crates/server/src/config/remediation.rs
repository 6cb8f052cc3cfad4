//! What is done about incidents.

use std::path::PathBuf;
use std::time::Duration;

use insight::remediation::Ceiling;

use super::{Field, Shape, duration, field, one};

/// What is done about incidents, and how far this server goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemediationConfig {
    /// The policy; without one nothing is decided.
    pub policy_file: Option<PathBuf>,
    /// How far this server goes, whatever the policy says.
    pub mode: Ceiling,
    /// Time between two looks.
    pub interval: Duration,
}

impl Default for RemediationConfig {
    fn default() -> Self {
        Self { policy_file: None, mode: Ceiling::DryRun, interval: Duration::from_secs(5) }
    }
}

/// Those settings.
pub(super) const FIELDS: [Field; 3] = [
    field(
        "remediation_policy_file",
        "remediation-policy-file",
        Shape::Path,
        "",
        "Policy of what is done about incidents, TOML; without one nothing is decided",
        |c, v| {
            c.remediation.policy_file = Some(PathBuf::from(one(v)?));
            Ok(())
        },
    ),
    field(
        "remediation_mode",
        "remediation-mode",
        Shape::Text,
        "dry_run",
        "How far this server goes whatever the policy says: `off`, `dry_run` writes down what would run, `real` runs it",
        |c, v| {
            let word = one(v)?;
            let known = [Ceiling::Off, Ceiling::DryRun, Ceiling::Real];
            c.remediation.mode = known
                .into_iter()
                .find(|mode| mode.name() == word)
                .ok_or_else(|| format!("found `{word}`, wanted `off`, `dry_run` or `real`"))?;
            Ok(())
        },
    ),
    field(
        "remediation_interval",
        "remediation-interval",
        Shape::Duration,
        "5s",
        "How often incidents and machines under way are looked at",
        |c, v| {
            c.remediation.interval = duration(one(v)?)?;
            Ok(())
        },
    ),
];
