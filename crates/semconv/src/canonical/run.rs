//! What the server states of runs.

use super::metrics;

const RUN: &[&str] = &["organization", "workspace", "project", "run", "run_id"];
const STATE: &[&str] = &["organization", "workspace", "project", "run", "run_id", "state"];
const PARAMETERS: &[&str] = &["organization", "workspace", "project", "run", "run_id", "kind"];
const GPUS_OF: &[&str] = &["organization", "workspace", "project", "run", "run_id", "gpu_model", "dtype"];

metrics! {
    /// Statements of runs.
    RUNS;
    RUN_STATE: gauge, "tg_run_state", None, STATE, A, "1 in the state that a run is in.";
    RUN_LAST_HEARTBEAT_TIMESTAMP_SECONDS: gauge, "tg_run_last_heartbeat_timestamp_seconds", Seconds, RUN, A,
        "When a process of the run was heard last, since the epoch.";
    RUN_LAST_POINT_TIMESTAMP_SECONDS: gauge, "tg_run_last_point_timestamp_seconds", Seconds, RUN, A,
        "The latest time of a point of the run, since the epoch.";
    RUN_SILENT_AFTER_SECONDS: gauge, "tg_run_silent_after_seconds", Seconds, RUN, A,
        "After how long a silence a run is taken for gone that is known by what it exports only.";
    RUN_GPUS: gauge, "tg_run_gpus", None, GPUS_OF, A,
        "How many cards a run has, with their model and the format of its computation.";
    RUN_MODEL_PARAMETERS: gauge, "tg_run_model_parameters", None, PARAMETERS, A,
        "Parameters of a run's model; `kind` is `total` or `active`.";
    RUN_FLOPS_PER_TOKEN: gauge, "tg_run_flops_per_token", None, RUN, B,
        "Floating-point operations of training a run's model by one token.",
        "Reckoned from the model's shape, not measured.";
    RUN_RECOMPUTE_FACTOR: gauge, "tg_run_recompute_factor", None, RUN, B,
        "Floating-point operations that the hardware does over those that the model needs.",
        "As the trainer says: 1 where nothing is computed again, 4/3 where all activations are.";
}
