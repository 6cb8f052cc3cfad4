//! Instruments of training and inference that clients send through OpenTelemetry.
//!
//! Names, units and kinds are those on the wire, which differ from the published tables: only
//! `step_duration_ms` carries a unit there, and for that reason the names in Prometheus have no other
//! suffix. Read from Megatron-LM (2026-08), nemo-lens 0.1.0 and what they sent.

use model::MetricKind;

/// An instrument.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Instrument {
    /// The name on the wire.
    pub name: &'static str,
    /// The canonical name in Prometheus; histograms add `_bucket`, `_sum` and `_count`.
    pub canonical: &'static str,
    /// Its kind.
    pub kind: MetricKind,
    /// The unit on the wire; mostly none.
    pub unit: &'static str,
    /// The unit that its values have.
    pub unit_meant: &'static str,
    /// What it measures, one sentence.
    pub help: &'static str,
    /// How it misleads; empty when it does not.
    pub caveat: &'static str,
    /// What fills it beside the switch of the export itself; empty when nothing more is needed.
    pub filled_by: &'static str,
}

/// The eight instruments of Megatron-LM, in the order in which it records them.
pub const MEGATRON: [Instrument; 8] = [
    Instrument {
        name: "megatron.training.step_duration_ms",
        canonical: "megatron_training_step_duration_ms_milliseconds",
        kind: MetricKind::Histogram,
        unit: "ms",
        unit_meant: "ms",
        help: "Time of a training step, averaged over a log interval.",
        caveat: "One observation a log interval, not one a step: spread within an interval is not seen. \
                 With the clients' default bounds every step above 10 s lies in the last bucket.",
        filled_by: "",
    },
    Instrument {
        name: "megatron.training.loss",
        canonical: "megatron_training_loss",
        kind: MetricKind::Gauge,
        unit: "",
        unit_meant: "",
        help: "Loss of the last log interval.",
        caveat: "Only ranks of the last pipeline stage have it. Clients from 1.44 on leave out NaN and \
                 infinities and repeat the last finite loss, so that a diverged run looks flat.",
        filled_by: "an exporting rank of the last pipeline stage, as the last rank is",
    },
    Instrument {
        name: "megatron.training.throughput_tflops",
        canonical: "megatron_training_throughput_tflops",
        kind: MetricKind::Gauge,
        unit: "",
        unit_meant: "TFLOP/s",
        help: "Floating-point operations of the model per second and GPU.",
        caveat: "Reckoned from the model's formula, not measured.",
        filled_by: "`--log-throughput`",
    },
    Instrument {
        name: "megatron.training.grad_norm",
        canonical: "megatron_training_grad_norm",
        kind: MetricKind::Gauge,
        unit: "",
        unit_meant: "",
        help: "Global norm of the gradients.",
        caveat: "",
        filled_by: "a rank with trainable parameters",
    },
    Instrument {
        name: "megatron.training.skipped_iters",
        canonical: "megatron_training_skipped_iters_total",
        kind: MetricKind::Counter,
        unit: "",
        unit_meant: "",
        help: "Optimizer steps that were skipped because the loss was no finite number.",
        caveat: "The series begins with the first skip: until then no series means none.",
        filled_by: "the first skipped step",
    },
    Instrument {
        name: "megatron.training.learning_rate",
        canonical: "megatron_training_learning_rate",
        kind: MetricKind::Gauge,
        unit: "",
        unit_meant: "",
        help: "Learning rate.",
        caveat: "",
        filled_by: "a rank of the first or last pipeline stage where learning rates are decoupled",
    },
    Instrument {
        name: "megatron.training.tokens_per_sec",
        canonical: "megatron_training_tokens_per_sec",
        kind: MetricKind::Gauge,
        unit: "",
        unit_meant: "tokens/s",
        help: "Tokens of the global batch per second.",
        caveat: "Of all ranks together, whichever rank sends it: do not add it up over ranks.",
        filled_by: "",
    },
    Instrument {
        name: "megatron.training.memory_allocated_gb",
        canonical: "megatron_training_memory_allocated_gb",
        kind: MetricKind::Gauge,
        unit: "",
        unit_meant: "GiB",
        help: "Peak of the memory that PyTorch allocated on this rank's GPU since the start.",
        caveat: "A peak, not what is in use, and in GiB whatever the name says.",
        filled_by: "CUDA",
    },
];

/// The two of inference that `gen_ai` has a convention for and nemo-lens sends.
pub const INFERENCE: [Instrument; 2] = [
    Instrument {
        name: "gen_ai.server.request.duration",
        canonical: "gen_ai_server_request_duration_seconds",
        kind: MetricKind::Histogram,
        unit: "s",
        unit_meant: "s",
        help: "Time that a request took.",
        caveat: "With the clients' default bounds every request below 5 s lies in one bucket.",
        filled_by: "",
    },
    Instrument {
        name: "gen_ai.client.token.usage",
        canonical: "gen_ai_client_token_usage",
        kind: MetricKind::Histogram,
        unit: "{token}",
        unit_meant: "tokens",
        help: "Tokens of a request, by `gen_ai.token.type`.",
        caveat: "",
        filled_by: "",
    },
];

/// Bounds of a histogram when nobody says any, as OpenTelemetry's clients have them.
pub const DEFAULT_BOUNDS: [f64; 15] = [
    0.0, 5.0, 10.0, 25.0, 50.0, 75.0, 100.0, 250.0, 500.0, 750.0, 1_000.0, 2_500.0, 5_000.0, 7_500.0,
    10_000.0,
];

/// Bounds of our own client for times in milliseconds: those that everybody has, and up to an hour, so
/// that the quantiles of slow steps don't end at 10 s.
pub const STEP_BOUNDS: [f64; 25] = [
    0.0,
    5.0,
    10.0,
    25.0,
    50.0,
    75.0,
    100.0,
    250.0,
    500.0,
    750.0,
    1_000.0,
    2_500.0,
    5_000.0,
    7_500.0,
    10_000.0,
    15_000.0,
    20_000.0,
    30_000.0,
    45_000.0,
    60_000.0,
    120_000.0,
    300_000.0,
    600_000.0,
    1_800_000.0,
    3_600_000.0,
];

/// Looks an instrument up by the name on the wire or the canonical one.
pub fn instrument(name: &str) -> Option<&'static Instrument> {
    MEGATRON
        .iter()
        .chain(&INFERENCE)
        .find(|instrument| instrument.name == name || instrument.canonical == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instruments_are_found_under_both_names() {
        assert!(MEGATRON.iter().all(|row| row.name.starts_with("megatron.training.")));
        for row in MEGATRON.iter().chain(&INFERENCE) {
            assert_eq!(instrument(row.name), Some(row));
            assert_eq!(instrument(row.canonical), Some(row));
            assert!(row.canonical.starts_with(&row.name.replace('.', "_")), "{}", row.canonical);
            assert!(row.help.ends_with('.') && !row.help.contains('\n'), "{}", row.help);
        }
        assert_eq!(instrument("loss"), None);
    }

    #[test]
    fn bounds_of_steps_begin_with_those_of_everybody() {
        assert_eq!(STEP_BOUNDS[..DEFAULT_BOUNDS.len()], DEFAULT_BOUNDS);
        assert!(STEP_BOUNDS.is_sorted_by(|a, b| a < b));
    }

    #[test]
    fn only_one_carries_a_unit_on_the_wire() {
        let with: Vec<&str> =
            MEGATRON.iter().filter(|row| !row.unit.is_empty()).map(|row| row.name).collect();
        assert_eq!(with, ["megatron.training.step_duration_ms"]);
    }
}
