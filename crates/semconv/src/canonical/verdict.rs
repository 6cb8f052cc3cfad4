//! What the server concludes.

use super::metrics;

metrics! {
    /// Verdicts.
    VERDICTS;
    STRAGGLER: gauge, "tg_straggler", None,
        &["run_id", "rank", "host", "gpu", "cause", "level"], B,
        "Share of step time to be won if this rank were as fast as its peers.",
        "Compared inside a group of peers; groups of less than eight only warn.";
    RUN_HANG: gauge, "tg_run_hang", None, &["run_id", "rank"], B,
        "1 while a run makes no progress and this rank holds it up.",
        "The rank is the one that got least far.";
    RANK_SILENT_SECONDS: gauge, "tg_rank_silent_seconds", Seconds, &["run_id", "rank", "host"], B,
        "Time since a rank told its last step, while others of the run go on.",
        "There while the verdict holds only; a rank that never told a step is not silent.";
    RUN_STAGE_IMBALANCE: gauge, "tg_run_stage_imbalance", None, &["run_id", "stage"], B,
        "Own time of a pipeline stage over that of the others.", "A matter of layout, not of hardware.";
    RUN_SLOWDOWN: gauge, "tg_run_slowdown", None, &["run_id", "class", "level"], B,
        "1 while a run as a whole is slower than it was.", "No single rank is at fault.";
    RUN_ETTR_RATIO: gauge, "tg_run_ettr_ratio", Ratio, &["run_id"], B,
        "Share of a run's time that was spent on steps that counted.",
        "Time in queues before the first attempt is not in it.";
    INCIDENT: gauge, "tg_incident", None, &["id", "host", "gpu", "action"], B,
        "1 while an incident is open.",
        "Folded from events of one cause; its action follows the driver's verdict, then the catalogue.";
    REMEDIATION: gauge, "tg_remediation", None, &["host", "state"], A,
        "1 in the state that the remediation of a machine is in.";
}
