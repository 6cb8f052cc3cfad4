//! Bounds that every door applies, each with its name (`docs/reference/limits.md`).

/// Longest metric name, in bytes.
pub const NAME_BYTES_MAX: usize = 256;
/// Longest label key or value of a logged point, in bytes.
pub const LOGGED_LABEL_BYTES_MAX: usize = 64;
/// Most labels of one series, the run's own included.
pub const LABELS_PER_SERIES_MAX: usize = 30;
/// Most series of one metric within one run.
pub const SERIES_PER_RUN_METRIC_MAX: usize = 20_000;
/// Most series of all runs of one project (organization, workspace and project).
pub const SERIES_PER_PROJECT_MAX: usize = 200_000;
/// Most series that belong to no run.
pub const FLEET_SERIES_MAX: usize = 1_000_000;
/// Label names that the run itself sets; a caller may not.
pub const RESERVED_LABELS: [&str; 6] = ["organization", "workspace", "project", "run", "run_id", "scale"];
/// Label names whose values never repeat. A point that carries one is refused and counted, since
/// each value would be a series of its own.
pub const REFUSED_LABELS: [&str; 7] =
    ["request_id", "conversation_id", "session_id", "user_id", "prompt", "trace_id", "iteration"];
