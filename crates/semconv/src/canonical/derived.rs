//! What recording rules reckon: names, units and how each misleads. How each is reckoned stands in `rules/`, and
//! nowhere else. A name with `:coverage` behind it is the share of the window that samples tell of.

use super::metrics;

const CARD: &[&str] = &["host", "gpu", "uuid"];
const MODEL: &[&str] = &["model"];
const PRICED: &[&str] = &["model", "revision"];
const RUN: &[&str] = &["organization", "workspace", "project", "run", "run_id"];

metrics! {
    /// Series of recording rules.
    DERIVED;
    DERIVED_GPU_POWER_WATTS: gauge, "gpu:power_watts", Watts, CARD, B,
        "Board power of a card, each card once: by its agent's counters, else by a run's sampler.",
        "The whole board, memory included; not the machine around it.";
    DERIVED_GPU_THROTTLED_RATIO: gauge, "gpu:throttled_ratio", Ratio, &["host", "gpu", "uuid", "reason"], B,
        "Share of the time in which a reason held a card's clocks back.",
        "Reasons overlap: never add them up.";
    DERIVED_POD_POWER_WATTS: gauge, "pod:power_watts", Watts, &["namespace", "pod"], B,
        "Board power of the cards that a pod has to itself.", "Cards that pods share are in none of them.";
    DERIVED_ENGINE_MODEL_INFO: gauge, "engine:model_info", None, &["unit", "model"], B,
        "The pods (`namespace/pod`) and machines in which a model is served.";
    DERIVED_ENGINE_UNKNOWN_INFO: gauge, "engine:unknown_info", None, &["unit", "model"], B,
        "Pods and machines of which it can't be said which cards serve the model.",
        "No card is known there, or several models share them; the model has no power and no cost then.";
    DERIVED_GPU_UNIT_INFO: gauge, "gpu:unit_info", None, &["host", "gpu", "uuid", "gpu_model", "unit"], B,
        "The pod or machine that has a card to itself.";
    DERIVED_GPU_MODEL_INFO: gauge, "gpu:model_info", None,
        &["host", "gpu", "uuid", "gpu_model", "unit", "model"], B,
        "The model that a card serves.", "Absent for all cards of a model where one of them is not known.";
    DERIVED_MODEL_GPUS: gauge, "model:gpus", None, &["model", "gpu_model"], B,
        "Cards that serve a model.", "By pod, else by machine, else as the settings say.";
    DERIVED_MODEL_OUTPUT_TOKENS_PER_SECOND: gauge, "model:output_tokens_per_second", None, MODEL, A,
        "Tokens that a model generates per second, over all replicas that are heard.",
        "The interval in which an engine starts anew is missing from it: look at its coverage.";
    DERIVED_MODEL_OCCUPANCY_RATIO: gauge, "model:occupancy_ratio", Ratio, MODEL, B,
        "Share of the time in which a replica had something to do.",
        "One request at a time counts as much as a full batch.";
    DERIVED_MODEL_OBJECTIVE_RATIO: gauge, "model:objective_ratio", Ratio, &["model", "kind"], B,
        "Share of requests, or of gaps between tokens, that kept to an objective.",
        "Absent where the objective is no bound of the engine's buckets.";
    DERIVED_MODEL_GOODPUT_RATIO_LOWER: gauge, "model:goodput_ratio_lower", Ratio, MODEL, B,
        "Least share of requests that met every objective.",
        "From histograms there is an interval only; requests' own spans tell it exactly.";
    DERIVED_MODEL_GOODPUT_RATIO_UPPER: gauge, "model:goodput_ratio_upper", Ratio, MODEL, B,
        "Greatest share of requests that met every objective.",
        "From histograms there is an interval only; requests' own spans tell it exactly.";
    DERIVED_MODEL_ITL_SECONDS_P99: gauge, "model:itl_seconds_p99", Seconds, MODEL, B,
        "99th percentile of the time between two tokens.", "At most the last bound of the engine's buckets.";
    DERIVED_MODEL_TTFT_SECONDS_P95: gauge, "model:ttft_seconds_p95", Seconds, MODEL, B,
        "95th percentile of the time to the first token.", "At most the last bound of the engine's buckets.";
    DERIVED_MODEL_REPLICAS: gauge, "model:replicas", None, MODEL, A, "Replicas that serve a model.";
    DERIVED_MODEL_WAITING_PER_REPLICA: gauge, "model:requests_waiting_per_replica", None, MODEL, A,
        "Requests that wait, by replica: what an autoscaler adds replicas by.";
    DERIVED_MODEL_GOOD_PER_REPLICA: gauge, "model:good_requests_per_second_per_replica", None, MODEL, B,
        "Requests per second and replica that met every objective, at least.";
    DERIVED_MODEL_POWER_WATTS: gauge, "model:power_watts", Watts, MODEL, B,
        "Board power of all cards that serve a model.", "Absent where one card doesn't report.";
    DERIVED_MODEL_SITE_POWER_WATTS: gauge, "model:site_power_watts", Watts, MODEL, C,
        "The same with machines and building around the cards.",
        "By the two factors of the settings, which are means of a site.";
    DERIVED_MODEL_TOKENS_PER_JOULE: gauge, "model:tokens_per_joule", None, MODEL, B,
        "Tokens generated per joule of board power.", "Idle time is in it; prompts' tokens are not.";
    DERIVED_MODEL_USD_PER_HOUR: gauge, "model:usd_per_hour", Dollars, PRICED, B,
        "What an hour of the cards costs that serve a model.", "Prices as the settings have them.";
    DERIVED_MODEL_USD_PER_MTOK: gauge, "model:usd_per_mtok", Dollars, PRICED, B,
        "Cost of a million generated tokens, idle time included.", "Cards only, at the prices of the settings.";
    DERIVED_MODEL_USD_PER_MTOK_BUSY: gauge, "model:usd_per_mtok_busy", Dollars, PRICED, B,
        "Cost of a million generated tokens if replicas were never idle.",
        "What the hardware could do, not what is paid.";
    DERIVED_RUN_TOKENS_PER_SECOND: gauge, "run:tokens_per_second", None, RUN, A,
        "Tokens that a run trains on per second.", "Of the last step alone.";
    DERIVED_RUN_MFU_RATIO: gauge, "run:mfu_ratio", Ratio, RUN, B,
        "Share of the cards' dense peak that the model makes use of.",
        "By the model's formula and the data sheet; absent where it would be over 1, as what the run says of itself is wrong.";
    DERIVED_RUN_MFU_UNCHECKED: gauge, "run:mfu_unchecked", Ratio, RUN, C,
        "The same as it comes out of what the run says of itself.",
        "Over 1 where that is wrong; only to be alerted on.";
    DERIVED_RUN_HFU_RATIO: gauge, "run:hfu_ratio", Ratio, RUN, B,
        "Share of the cards' dense peak that is computed, recomputed activations included.",
        "Rising beside a level MFU it is no progress.";
    DERIVED_RUN_STEP_SECONDS_MEDIAN: gauge, "run:step_seconds_median", Seconds, RUN, A,
        "Median of the time of a step.";
    DERIVED_RUN_STEP_SPREAD_RATIO: gauge, "run:step_spread_ratio", Ratio, RUN, B,
        "How much longer the slowest rank takes for its own part of a step than the middle one.",
        "Without the time that ranks wait it shows nothing: all ranks of a step take equally long.";
}
