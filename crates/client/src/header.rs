//! What a spool says of itself.

use std::path::{Path, PathBuf};

use model::{RunId, RunPath, WriterId};
use serde_json::{Value, json};

/// Header of a run's spool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpoolHeader {
    /// Where its writer was told to send; `None` when it was told nothing.
    pub target: Option<String>,
    /// The run.
    pub path: RunPath,
    /// Host of its writer.
    pub host: String,
    /// Process id of its writer.
    pub pid: u32,
    /// When it was made, milliseconds since the epoch.
    pub created_ms: i64,
}

impl SpoolHeader {
    /// The run's id.
    pub fn run_id(&self) -> RunId {
        self.path.id()
    }

    /// As JSON.
    pub fn to_bytes(&self) -> Vec<u8> {
        json!({
            "version": 1,
            "target": self.target,
            "organization": self.path.organization,
            "workspace": self.path.workspace,
            "project": self.path.project,
            "run": self.path.run,
            "run_id": self.run_id().to_string(),
            "host": self.host,
            "pid": self.pid,
            "created_ms": self.created_ms,
        })
        .to_string()
        .into_bytes()
    }

    /// Whether the header is one of a version that is not known here.
    pub fn is_newer(bytes: &[u8]) -> bool {
        serde_json::from_slice::<Value>(bytes).is_ok_and(|value| value["version"].as_u64() > Some(1))
    }

    /// Reads the JSON; `None` when it is none of a version that is known.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let value: Value = serde_json::from_slice(bytes).ok()?;
        let text = |key: &str| value[key].as_str().map(str::to_owned);
        (value["version"] == 1).then_some(())?;
        Some(Self {
            target: text("target"),
            path: RunPath {
                organization: text("organization")?,
                workspace: text("workspace")?,
                project: text("project")?,
                run: text("run")?,
            },
            host: text("host").unwrap_or_default(),
            pid: value["pid"].as_u64().and_then(|pid| u32::try_from(pid).ok()).unwrap_or_default(),
            created_ms: value["created_ms"].as_i64().unwrap_or_default(),
        })
    }
}

/// The folder of a writer's spool: `<run_id>-<first 8 hex digits of the writer>`.
pub(crate) fn spool_path(spool_dir: &Path, run_id: RunId, writer: &WriterId) -> PathBuf {
    let [a, b, c, d, ..] = writer;
    spool_dir.join(format!("{run_id}-{a:02x}{b:02x}{c:02x}{d:02x}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn header_survives_the_journey() {
        let header = SpoolHeader {
            target: None,
            path: RunPath { project: "\"p\"\n".into(), run: "r".into(), ..RunPath::default() },
            host: "h".into(),
            pid: 7,
            created_ms: 5,
        };
        assert_eq!(SpoolHeader::parse(&header.to_bytes()), Some(header));
        assert_eq!(SpoolHeader::parse(b"{\"version\":2}"), None);
        assert_eq!(SpoolHeader::parse(b"\xff"), None);
        assert!(SpoolHeader::is_newer(b"{\"version\":2}"));
        assert!(!SpoolHeader::is_newer(b"\xff") && !SpoolHeader::is_newer(b"{\"version\":1}"));
    }
}
