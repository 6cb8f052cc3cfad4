//! What is known of an engine that serves a model.

use super::metrics;

/// Labels of every series of an engine, beside its target's.
pub const ENGINE_LABELS: &[&str] = &["engine", "model", "dp_rank"];
const REASON: &[&str] = &["engine", "model", "dp_rank", "reason"];

metrics! {
    /// Metrics of engines.
    ENGINES;
    ENGINE_TTFT_SECONDS: histogram, "tg_engine_ttft_seconds", Seconds, ENGINE_LABELS, B,
        "Time from a request's arrival to its first token.",
        "Measured in the engine: what comes before it is not in it. Nothing is told apart below the first \
         bucket.";
    ENGINE_ITL_SECONDS: histogram, "tg_engine_itl_seconds", Seconds, ENGINE_LABELS, B,
        "Time between two tokens, or two chunks of tokens, of one request.",
        "With speculative decoding one gap is of several tokens; SGLang divides a gap by its tokens, which \
         hides bursts.";
    ENGINE_TPOT_SECONDS: histogram, "tg_engine_tpot_seconds", Seconds, ENGINE_LABELS, B,
        "Time per output token of one request, the first left out.",
        "One mean a request: it hides stalls. vLLM counts 0 for requests of one token.";
    ENGINE_E2E_SECONDS: histogram, "tg_engine_e2e_seconds", Seconds, ENGINE_LABELS, B,
        "Time from a request's arrival to its last token.",
        "Grows with the length of the answer.";
    ENGINE_QUEUE_SECONDS: histogram, "tg_engine_queue_seconds", Seconds, ENGINE_LABELS, B,
        "Time that a request waited before the engine took it up.",
        "What lies below the engine's first bucket is not told apart.";
    ENGINE_REQUESTS_WAITING: gauge, "tg_engine_requests_waiting", None, ENGINE_LABELS, A,
        "Requests that wait to be taken up.";
    ENGINE_REQUESTS_RUNNING: gauge, "tg_engine_requests_running", None, ENGINE_LABELS, A,
        "Requests that are being worked on.";
    ENGINE_KV_USAGE_RATIO: gauge, "tg_engine_kv_usage_ratio", Ratio, ENGINE_LABELS, A,
        "Share of the KV cache that is in use.",
        "Full alone is no fault: judge it together with what waits. Average it over ranks, don't add it up.";
    ENGINE_PREEMPTIONS_TOTAL: counter, "tg_engine_preemptions_total", None, ENGINE_LABELS, A,
        "Requests that were put back because the KV cache was full.";
    ENGINE_PROMPT_TOKENS_TOTAL: counter, "tg_engine_prompt_tokens_total", None, ENGINE_LABELS, A,
        "Tokens of prompts, those found in a cache included.",
        "Some engines count them when the request ends.";
    ENGINE_PROMPT_COMPUTED_TOKENS_TOTAL: counter, "tg_engine_prompt_computed_tokens_total", None,
        ENGINE_LABELS, A, "Tokens of prompts that were computed, not found in a cache.";
    ENGINE_OUTPUT_TOKENS_TOTAL: counter, "tg_engine_output_tokens_total", None, ENGINE_LABELS, A,
        "Tokens that were generated.",
        "TGI counts them when the request ends, so that the rate comes in lumps.";
    ENGINE_CACHE_HIT_TOKENS_TOTAL: counter, "tg_engine_cache_hit_tokens_total", None, ENGINE_LABELS, A,
        "Tokens of prompts that were found in the prefix cache.";
    ENGINE_CACHE_QUERY_TOKENS_TOTAL: counter, "tg_engine_cache_query_tokens_total", None, ENGINE_LABELS, A,
        "Tokens of prompts that were looked up in the prefix cache.";
    ENGINE_SPEC_ACCEPTED_TOKENS_TOTAL: counter, "tg_engine_spec_accepted_tokens_total", None,
        ENGINE_LABELS, A, "Tokens of a draft model that were accepted.";
    ENGINE_SPEC_DRAFT_TOKENS_TOTAL: counter, "tg_engine_spec_draft_tokens_total", None, ENGINE_LABELS, A,
        "Tokens that a draft model proposed.";
    ENGINE_REQUESTS_FINISHED_TOTAL: counter, "tg_engine_requests_finished_total", None, REASON, A,
        "Requests that ended, by the reason.",
        "An engine that tells no reason has `reason=\"\"`; one that counts failures elsewhere has them there.";
    ENGINE_REQUESTS_REJECTED_TOTAL: counter, "tg_engine_requests_rejected_total", None, REASON, A,
        "Requests that were turned away, by the reason.";
    ENGINE_GPUS: gauge, "tg_engine_gpus", None, &["engine", "model", "gpu_model"], B,
        "How many cards serve the model.",
        "Found by the engine's pod, else by its process, else from the configuration.";
}
