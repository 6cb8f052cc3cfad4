//! Texts of prompts and completions: kept only where a project asks for it.

use model::RunPath;

use crate::app::Shared;

/// Whether texts of prompts and completions of a run's project are kept.
pub(crate) fn keeps(_shared: &Shared, _path: &RunPath) -> bool {
    false
}
