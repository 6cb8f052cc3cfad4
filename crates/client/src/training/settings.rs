//! Settings: what the caller says, then the environment, then defaults.

use std::time::Duration;

use model::{AttributeValue, RunId};
use semconv::export::{PREFIX, RANK_STRATEGIES};
use semconv::spans::PRESETS;

use super::identity::{self, RunIdSource};
use super::reader::{Found, Reader, boolean, pairs};
use super::strategy::{self, Rank};
use super::{groups, resource, targets};
use crate::launch::{Launch, Lookup};
use crate::trust::Trust;
use crate::warning::Warning;

/// Time between two exports of metrics; the SDKs' own default is six times as long.
const EXPORT_INTERVAL: Duration = Duration::from_secs(10);
/// Longest time that a span or log record waits.
const BATCH_DELAY: Duration = Duration::from_secs(5);
/// Spans, and log records, that memory holds.
const QUEUE_CAPACITY: usize = 2_048;
/// `service.name` where nobody says one.
const SERVICE_NAME: &str = "training";

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
        let launch = Launch::from_variables(lookup);
        let mut reader = Reader::new(lookup, given.strict);
        let mut settings = Self { strict: given.strict, ..Self::default() };
        settings.place(given, &launch, &mut reader)?;
        settings.switches(given, &mut reader)?;
        settings.choice(given, &mut reader)?;
        settings.transport(&mut reader)?;
        settings.identity(given, &launch, &mut reader)?;
        settings.decide(given, &mut reader)?;
        settings.warnings = reader.warnings;
        Ok(settings)
    }

    /// Rank and world.
    fn place(
        &mut self,
        given: &Given,
        launch: &Launch,
        reader: &mut Reader<'_>,
    ) -> Result<(), SettingsError> {
        self.rank = given.rank.or(launch.rank).unwrap_or(0);
        self.world_size = given.world_size.or(launch.world_size).unwrap_or(1);
        // That variable alone, as the reference reads it: other launchers' don't count here.
        let local = reader.variable("LOCAL_RANK");
        let local = reader
            .read(local, None, |text| text.parse().map(Some).map_err(|_not_a_number| "a rank, from 0"))?;
        self.local_rank = given.local_rank.or(local);
        if self.rank >= self.world_size {
            let (rank, world) = (self.rank, self.world_size);
            reader.fault(format!(
                "rank {rank} is not in a world of {world}: `rank` and `world_size` go together"
            ))?;
        }
        Ok(())
    }

    /// What is on.
    fn switches(&mut self, given: &Given, reader: &mut Reader<'_>) -> Result<(), SettingsError> {
        let mut on = |key: &str, default: bool| {
            let found = reader.switch(key);
            reader.read(found, default, boolean)
        };
        let enabled = on("ENABLED", false)?;
        self.traces = on("TRACES_ENABLED", true)?;
        self.metrics = on("METRICS_ENABLED", true)?;
        self.logs = on("LOGS_ENABLED", false)?;
        self.sampler_enabled = on("SAMPLER_ENABLED", false)?;
        let guide = reader.switch("SAMPLING_STRATEGY");
        let guide = reader.read(guide, false, |text| {
            text.eq_ignore_ascii_case("rank_aware").then_some(true).ok_or("`rank_aware` or nothing")
        })?;
        self.sampler_enabled |= guide;
        self.enabled = given.enabled.unwrap_or(enabled);
        let name = |text: &str| match text.to_ascii_lowercase().as_str() {
            "otlp" => Ok(Exporter::Otlp),
            "console" => Ok(Exporter::Console),
            _ => Err("`otlp` or `console`"),
        };
        let found = found(given.exporter.as_deref(), "exporter").or_else(|| reader.switch("EXPORTER"));
        self.exporter = reader.read(found, Exporter::Otlp, name)?;
        Ok(())
    }

    /// Which ranks export.
    fn choice(&mut self, given: &Given, reader: &mut Reader<'_>) -> Result<(), SettingsError> {
        let default = RANK_STRATEGIES[0].name;
        let strategy =
            found(given.strategy.as_deref(), "strategy").or_else(|| reader.switch("RANK_STRATEGY"));
        self.strategy = match strategy {
            Some(found) if !strategy::is_known(&found.text) => {
                let known = strategy::known_strategies().join(", ");
                reader.fault(format!(
                    "{} is {:?}, and there is no such strategy: known are {known}; `{default}` is used",
                    found.name, found.text
                ))?;
                default.to_owned()
            }
            Some(found) => found.text,
            None => default.to_owned(),
        };
        let rank = reader.switch("EXPORT_RANK");
        let rank = reader
            .read(rank, -1, |text| text.parse().map_err(|_not_a_number| "a rank, or -1 for the last"))?;
        self.export_rank = given.export_rank.unwrap_or(rank);
        let rate = given.sample_rate.map(|rate| Found { name: "sample_rate".into(), text: rate.to_string() });
        let rate = rate.or_else(|| reader.switch("EXPORT_SAMPLE_RATE"));
        self.sample_rate = reader.read(rate, 1.0, |text| {
            let rate = text.parse::<f64>().ok().filter(|rate| (0.0..=1.0).contains(rate));
            rate.ok_or("a share from 0 to 1")
        })?;
        Ok(())
    }

    /// Who this is.
    fn identity(
        &mut self,
        given: &Given,
        launch: &Launch,
        reader: &mut Reader<'_>,
    ) -> Result<(), SettingsError> {
        let launch = Launch { world_size: Some(self.world_size), ..launch.clone() };
        let explicit = given.run_id.clone().filter(|id| !id.trim().is_empty());
        let explicit = explicit.or_else(|| reader.switch("RUN_ID").map(|found| found.text));
        (self.run_id, self.run_id_source) = identity::run_id(explicit, given.run, &launch, reader);
        let user_id = given.user_id.clone().or_else(|| reader.switch("USER_ID").map(|found| found.text));
        let (listed, _) = pairs(&reader.text("OTEL_RESOURCE_ATTRIBUTES").unwrap_or_default());
        let listed = |key: &str| listed.iter().find(|(k, _)| k == key).map(|(_, value)| value.clone());
        let named = given.service_name.clone().filter(|name| !name.trim().is_empty());
        let service_name = named
            .or_else(|| reader.text("OTEL_SERVICE_NAME"))
            .or_else(|| listed("service.name"))
            .unwrap_or_else(|| SERVICE_NAME.to_owned());
        let facts = resource::Facts {
            service_name: &service_name,
            run_id: &self.run_id,
            user_id: &user_id.unwrap_or_default(),
            incarnation: identity::incarnation(&self.run_id, &launch, reader),
            truegauge_run: given.run.map(|run| run.to_string()),
            rank: self.rank,
            world_size: self.world_size,
            local_rank: self.local_rank.or(launch.local_rank),
            given: &given.attributes,
        };
        self.resource = resource::attributes(&facts, reader)?;
        let instance = self.resource.iter().find(|(key, _)| key == "service.instance.id");
        if let Some((_, AttributeValue::Text(id))) = instance {
            self.instance_id.clone_from(id);
        }
        Ok(())
    }

    /// Whether this rank exports, and which spans.
    fn decide(&mut self, given: &Given, reader: &mut Reader<'_>) -> Result<(), SettingsError> {
        if self.strategy == "single_rank" && self.export_rank >= i64::from(self.world_size) {
            let (rank, world) = (self.export_rank, self.world_size);
            reader.fault(format!(
                "EXPORT_RANK is {rank} in a world of {world}, so that no rank exports: name one below {world}, or -1"
            ))?;
        }
        let is_disabled = reader.text("OTEL_SDK_DISABLED").is_some_and(|t| t.eq_ignore_ascii_case("true"));
        let has_signal = self.traces || self.metrics || self.logs;
        if !self.enabled || is_disabled || !has_signal {
            return Ok(());
        }
        self.exports = match strategy::decide(&self.strategy, &self.rank_facts()) {
            Ok(exports) => exports,
            Err(error) => {
                reader.fault(format!("{error}; this rank does not export"))?;
                false
            }
        };
        if !self.exports {
            return Ok(());
        }
        if self.run_id_source == RunIdSource::Random && self.world_size > 1 {
            reader.warn(format!(
                "nothing tells which run this is, so each rank makes up an id of its own (here {}): set \
                 {PREFIX}RUN_ID to the same text on all ranks",
                self.run_id
            ));
        }
        if self.records_spans() { self.groups(given, reader) } else { Ok(()) }
    }

    fn groups(&mut self, given: &Given, reader: &mut Reader<'_>) -> Result<(), SettingsError> {
        let found =
            found(given.span_groups.as_deref(), "span_groups").or_else(|| reader.switch("SPAN_GROUPS"));
        let found = found.unwrap_or_else(|| Found { name: String::new(), text: "default".into() });
        let (groups, unknown) = groups::resolve(&found.text);
        if !unknown.is_empty() {
            reader.fault(format!(
                "{} names {}, which is neither a group of spans nor a preset: presets are {}, groups {}",
                found.name,
                unknown.join(", "),
                PRESETS.join(", "),
                groups::known_groups().join(", ")
            ))?;
        }
        self.span_groups = groups;
        Ok(())
    }

    fn rank_facts(&self) -> Rank {
        Rank {
            rank: self.rank,
            world_size: self.world_size,
            local_rank: self.local_rank,
            export_rank: self.export_rank,
            sample_rate: self.sample_rate,
        }
    }

    /// Whether spans of this rank are recorded at all.
    pub(crate) fn records_spans(&self) -> bool {
        let is_wanted = !self.sampler_enabled || strategy::is_sampled(self.rank, self.sample_rate);
        self.exports && self.traces && is_wanted
    }

    /// How data travel.
    fn transport(&mut self, reader: &mut Reader<'_>) -> Result<(), SettingsError> {
        self.metrics_target = targets::read(targets::METRICS, reader)?;
        self.traces_target = targets::read(targets::TRACES, reader)?;
        self.logs_target = targets::read(targets::LOGS, reader)?;
        let millis = |text: &str| {
            let millis = text.parse::<u64>().ok().filter(|millis| (1..=86_400_000).contains(millis));
            millis.map(Duration::from_millis).ok_or("milliseconds, 1 to 86400000")
        };
        let found = reader.variable("OTEL_METRIC_EXPORT_INTERVAL");
        self.export_interval = reader.read(found, EXPORT_INTERVAL, millis)?;
        let found = reader.variable("OTEL_BSP_SCHEDULE_DELAY");
        self.batch_delay = reader.read(found, BATCH_DELAY, millis)?;
        let found = reader.variable("OTEL_BSP_MAX_QUEUE_SIZE");
        self.queue_capacity = reader.read(found, QUEUE_CAPACITY, |text| {
            text.parse().ok().filter(|n| (1..=1 << 20).contains(n)).ok_or("a number from 1 to 1048576")
        })?;
        let found = reader.variable("OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE");
        self.temporality =
            reader.read(found, Temporality::Cumulative, |text| match text.to_ascii_lowercase().as_str() {
                "cumulative" => Ok(Temporality::Cumulative),
                "delta" | "lowmemory" => Ok(Temporality::Delta),
                _ => Err("`cumulative`, `delta` or `lowmemory`"),
            })?;
        let found = reader.variable("OTEL_METRICS_EXEMPLAR_FILTER");
        self.exemplars = reader.read(found, ExemplarFilter::TraceBased, |text| {
            match text.to_ascii_lowercase().as_str() {
                "trace_based" => Ok(ExemplarFilter::TraceBased),
                "always_on" => Ok(ExemplarFilter::AlwaysOn),
                "always_off" => Ok(ExemplarFilter::AlwaysOff),
                _ => Err("`trace_based`, `always_on` or `always_off`"),
            }
        })?;
        self.sampler = sampler(reader)?;
        Ok(())
    }
}

/// What a caller said, as a variable would have been found.
fn found(given: Option<&str>, name: &str) -> Option<Found> {
    let text = given.map(str::trim).filter(|text| !text.is_empty())?;
    Some(Found { name: name.to_owned(), text: text.to_owned() })
}

fn sampler(reader: &mut Reader<'_>) -> Result<Sampler, SettingsError> {
    let found = reader.variable("OTEL_TRACES_SAMPLER_ARG");
    let ratio = reader.read(found, 1.0, |text| {
        text.parse().ok().filter(|ratio| (0.0..=1.0).contains(ratio)).ok_or("a share from 0 to 1")
    })?;
    let found = reader.variable("OTEL_TRACES_SAMPLER");
    reader.read(found, Sampler::default(), |text| {
        let name = text.to_ascii_lowercase();
        let own = name.strip_prefix("parentbased_").unwrap_or(&name);
        let ratio = match own {
            "always_on" => 1.0,
            "always_off" => 0.0,
            "traceidratio" => ratio,
            _ => return Err("a sampler such as `always_on` or `parentbased_traceidratio`"),
        };
        Ok(Sampler { ratio, follows_parent: own.len() != name.len() })
    })
}
