//! What is done with telemetry that comes in by OTLP.

use super::{Field, Shape, field};

/// What is done with telemetry.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OtlpConfig {
    /// Projects whose texts of prompts and completions are kept: organization, workspace and project.
    pub keep_text: Vec<(String, String, String)>,
}

/// The rows of the table.
pub(super) const FIELDS: [Field; 1] = [field(
    "otlp_keep_text",
    "otlp-keep-text",
    Shape::List,
    "",
    "Project whose texts of prompts and completions are kept, redacted, for admins to read, as \
     `ORGANIZATION/WORKSPACE/PROJECT`; a part may be empty. Those of others are dropped as they come in",
    |c, v| {
        c.otlp.keep_text = v.iter().map(|text| project(text)).collect::<Result<_, _>>()?;
        Ok(())
    },
)];

fn project(text: &str) -> Result<(String, String, String), String> {
    match text.split('/').collect::<Vec<_>>()[..] {
        [organization, workspace, project] if !project.is_empty() => {
            Ok((organization.to_owned(), workspace.to_owned(), project.to_owned()))
        }
        _ => Err(format!(
            "`{text}` is not ORGANIZATION/WORKSPACE/PROJECT, such as `acme/research/llm` or `//llm`"
        )),
    }
}
