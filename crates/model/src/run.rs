//! Runs and the identity of their series.

use std::fmt;

use sha2::{Digest, Sha256};

use crate::{Labels, name};

/// The scale that a step is on unless a call names another.
pub const DEFAULT_SCALE: &str = "ML_STEP";
/// A session reports this often that it lives.
pub const SESSION_HEARTBEAT_SECONDS: u64 = 10;
/// A run without a heartbeat for this long is stale.
pub const STALE_AFTER_SECONDS: u64 = 60;

/// The four names that make a run. Organization and workspace may be empty.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RunPath {
    /// Who owns it.
    pub organization: String,
    /// The team's space.
    pub workspace: String,
    /// What the run belongs to.
    pub project: String,
    /// The run's own name.
    pub run: String,
}

impl RunPath {
    /// The run's id: every rank derives the same one without talking.
    pub fn id(&self) -> RunId {
        let mut hash = Sha256::new();
        for (at, part) in
            [&self.organization, &self.workspace, &self.project, &self.run].into_iter().enumerate()
        {
            if at > 0 {
                hash.update([0]);
            }
            hash.update(part.as_bytes());
        }
        let mut id = [0; 8];
        id.copy_from_slice(&hash.finalize()[..8]);
        RunId(id)
    }
}

impl fmt::Display for RunPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}/{}", self.organization, self.workspace, self.project, self.run)
    }
}

/// The first 8 bytes of SHA-256 over the run's four names joined by NUL, shown as 16 hex digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RunId(pub [u8; 8]);

impl RunId {
    /// Reads 16 hex digits.
    pub fn parse(text: &str) -> Option<Self> {
        (text.len() == 16 && text.bytes().all(|b| b.is_ascii_hexdigit()))
            .then(|| u64::from_str_radix(text, 16).ok())
            .flatten()
            .map(|n| Self(n.to_be_bytes()))
    }
}

impl fmt::Display for RunId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", u64::from_be_bytes(self.0))
    }
}

/// A run's series as the store knows it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct SeriesIdentity {
    /// All labels, the run's included.
    pub labels: Labels,
    /// The name as it was logged.
    pub display: String,
}

/// Names the series of `path` that was logged as `display` with `labels` on `scale`.
///
/// The scale is a label unless it is [`DEFAULT_SCALE`]; a name that PromQL can't spell keeps its
/// logged form in the label `display`.
pub fn series_identity(
    path: &RunPath,
    display: &str,
    scale: &str,
    labels: &[(String, String)],
) -> SeriesIdentity {
    let mut set = Labels::builder();
    for (key, value) in labels {
        set.set(key.as_str(), value.as_str());
    }
    set.metric(name::prometheus_name(display))
        .set("organization", path.organization.as_str())
        .set("workspace", path.workspace.as_str())
        .set("project", path.project.as_str())
        .set("run", path.run.as_str())
        .set("run_id", path.id().to_string());
    if !scale.is_empty() && scale != DEFAULT_SCALE {
        set.set("scale", scale);
    }
    if name::needs_display(display) {
        set.set("display", display);
    }
    SeriesIdentity { labels: set.build(), display: display.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path() -> RunPath {
        RunPath {
            organization: "acme".into(),
            workspace: "research".into(),
            project: "llm".into(),
            run: "bar".into(),
        }
    }

    #[test]
    fn id_is_the_hash_of_the_four_names() {
        // printf 'acme\0research\0llm\0bar' | sha256sum
        assert_eq!(path().id().to_string(), "79d229c9380dbce7");
        assert_eq!(RunId::parse(&path().id().to_string()), Some(path().id()));
        assert_eq!(RunId::parse("+123456789abcdef"), None);
    }

    #[test]
    fn neighbouring_names_do_not_run_together() {
        let a = RunPath { project: "ab".into(), run: "c".into(), ..RunPath::default() };
        let b = RunPath { project: "a".into(), run: "bc".into(), ..RunPath::default() };
        assert_ne!(a.id(), b.id());
    }

    #[test]
    fn series_carry_the_run_and_only_foreign_scales_and_names() {
        let plain = series_identity(&path(), "train/loss", DEFAULT_SCALE, &[("split".into(), "val".into())]);
        assert_eq!(
            plain.labels.to_string(),
            format!(
                r#"train_loss{{organization="acme",project="llm",run="bar",run_id="{}",split="val",workspace="research"}}"#,
                path().id()
            )
        );
        let odd = series_identity(&path(), "loss (val)", "EPISODE", &[]);
        assert_eq!(odd.labels.metric(), "loss__val_");
        assert_eq!(odd.labels.get("display"), Some("loss (val)"));
        assert_eq!(odd.labels.get("scale"), Some("EPISODE"));
    }
}
