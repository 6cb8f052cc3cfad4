//! The switches of a trainer's export: their names, defaults and choices.

/// Prefix of the switches, tried first.
pub const PREFIX: &str = "MEGATRON_OTEL_";
/// Prefix that is tried where a switch under [`PREFIX`] is unset or blank.
pub const PREFIX_FALLBACK: &str = "NEMO_LENS_";

/// A switch: an environment variable behind one of the prefixes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Switch {
    /// Its names without prefix, that of the guide first where code and guide differ.
    pub keys: &'static [&'static str],
    /// What holds when it is not set.
    pub default: &'static str,
    /// What it does.
    pub help: &'static str,
}

const fn switch(keys: &'static [&'static str], default: &'static str, help: &'static str) -> Switch {
    Switch { keys, default, help }
}

/// Every switch.
pub const SWITCHES: [Switch; 13] = [
    switch(&["ENABLED"], "0", "Whether anything is exported: 1, true, yes, on or 0, false, no, off."),
    switch(&["RANK_STRATEGY", "EXPORT_STRATEGY"], "single_rank", "Which ranks export."),
    switch(&["EXPORT_RANK"], "-1", "The rank that `single_rank` means; below 0 the last."),
    switch(&["EXPORT_SAMPLE_RATE"], "1.0", "The share of ranks that `sampled` means, 0 to 1."),
    switch(&["SAMPLER_ENABLED"], "0", "Whether spans come from sampled ranks only."),
    switch(&["SAMPLING_STRATEGY"], "", "The same in the guide's words: `rank_aware` or nothing."),
    switch(&["TRACES_ENABLED"], "1", "Whether spans are exported."),
    switch(&["METRICS_ENABLED"], "1", "Whether metrics are exported."),
    switch(&["LOGS_ENABLED"], "0", "Whether log records are exported."),
    switch(&["SPAN_GROUPS"], "default", "Groups of spans and presets, separated by commas."),
    switch(&["EXPORTER"], "otlp", "`otlp` or `console`."),
    switch(&["RUN_ID"], "", "The run's id; else `SLURM_JOB_ID`, else one that is made up."),
    switch(&["USER_ID"], "", "Who owns the run."),
];

/// Variables of OpenTelemetry's own that count too, without a prefix. Where one has a name for each
/// signal, as `OTEL_EXPORTER_OTLP_TRACES_ENDPOINT`, that goes first.
pub const VARIABLES: [Switch; 22] = [
    switch(&["OTEL_SDK_DISABLED"], "false", "`true` exports nothing, whatever else is set."),
    switch(&["OTEL_SERVICE_NAME"], "training", "`service.name`."),
    switch(&["OTEL_RESOURCE_ATTRIBUTES"], "", "More attributes of the resource, as `key=value,key=value`."),
    switch(
        &["OTEL_EXPORTER_OTLP_ENDPOINT"],
        "http://localhost:4317, with HTTP http://localhost:4318",
        "Where data go; with HTTP `/v1/metrics` and its kin are added. The name for a signal is taken as it is.",
    ),
    switch(&["OTEL_EXPORTER_OTLP_PROTOCOL"], "grpc", "`grpc` or `http/protobuf`."),
    switch(&["OTEL_EXPORTER_OTLP_HEADERS"], "", "Headers that go along, as `key=value,key=value`."),
    switch(
        &["OTEL_EXPORTER_OTLP_TIMEOUT"],
        "10",
        "Bound of one request: below 1000 in seconds, as Python's clients read it, else in milliseconds.",
    ),
    switch(&["OTEL_EXPORTER_OTLP_COMPRESSION"], "none", "`gzip` or `none`."),
    switch(
        &["OTEL_EXPORTER_OTLP_CERTIFICATE"],
        "",
        "PEM file of the authorities that servers are believed by.",
    ),
    switch(&["OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE"], "", "PEM file of the client's certificate."),
    switch(&["OTEL_EXPORTER_OTLP_CLIENT_KEY"], "", "PEM file of that certificate's private key."),
    switch(
        &["OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE"],
        "cumulative",
        "`cumulative`, `delta` or `lowmemory`.",
    ),
    switch(&["OTEL_METRIC_EXPORT_INTERVAL"], "10000", "Milliseconds between two exports of metrics."),
    switch(&["OTEL_METRICS_EXEMPLAR_FILTER"], "trace_based", "`trace_based`, `always_on` or `always_off`."),
    switch(
        &["OTEL_TRACES_SAMPLER"],
        "parentbased_always_on",
        "Which traces are recorded, by OpenTelemetry's names.",
    ),
    switch(&["OTEL_TRACES_SAMPLER_ARG"], "1.0", "The share that a sampler by ratio keeps."),
    switch(&["OTEL_BSP_SCHEDULE_DELAY"], "5000", "Milliseconds that a span waits at most."),
    switch(&["OTEL_BSP_MAX_QUEUE_SIZE"], "2048", "Spans, and log records, that memory holds."),
    switch(&["DEPLOYMENT_ENV"], "", "`deployment.environment`; else `ENVIRONMENT`."),
    switch(&["ENVIRONMENT"], "", "`deployment.environment` where `DEPLOYMENT_ENV` is unset."),
    switch(&["WANDB_ENTITY"], "", "`wandb.entity`."),
    switch(&["WANDB_PROJECT"], "", "`wandb.project`."),
];

/// Which ranks export.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RankStrategy {
    /// As the switch names it.
    pub name: &'static str,
    /// Which ranks it means.
    pub help: &'static str,
}

/// The strategies that need no registration, the default first.
pub const RANK_STRATEGIES: [RankStrategy; 4] = [
    RankStrategy { name: "single_rank", help: "`EXPORT_RANK`, by default the last rank, which has the loss" },
    RankStrategy { name: "all_ranks", help: "every rank" },
    RankStrategy {
        name: "first_rank_per_node",
        help: "ranks whose `LOCAL_RANK` is 0; without that variable every rank",
    },
    RankStrategy {
        name: "sampled",
        help: "ranks whose MD5 of the decimal rank, modulo 10,000, is below 10,000 times `EXPORT_SAMPLE_RATE`",
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_strategy_is_one_of_them() {
        let switch = SWITCHES.iter().find(|switch| switch.keys.contains(&"EXPORT_STRATEGY")).unwrap();
        assert_eq!(switch.default, RANK_STRATEGIES[0].name);
        assert_eq!(switch.keys[0], "RANK_STRATEGY", "the guide's name goes first");
    }

    #[test]
    fn a_name_is_one_switch() {
        let mut names = std::collections::BTreeSet::new();
        for name in SWITCHES.iter().chain(&VARIABLES).flat_map(|switch| switch.keys) {
            assert!(names.insert(name), "{name} comes twice");
        }
    }
}
