//! A verdict as the API, events and restarts have it.

use std::collections::BTreeSet;

use insight::hang::HangVerdict;
use insight::straggler::{self, Class, Level, Verdict};
use model::{NANOS_PER_MILLI, RunId};
use semconv::canonical::{
    GPU_PCIE_LINK_GENERATION, GPU_PCIE_LINK_WIDTH, GPU_POWER_WATTS, GPU_ROW_REMAPS_TOTAL, GPU_SM_CLOCK_HERTZ,
    GPU_TEMPERATURE_CELSIUS, GPU_THROTTLED_SECONDS_TOTAL,
};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Most ranks that are listed of a verdict; of more, the first.
const RANKS_MAX: usize = 256;
/// Most of them that are told of one by one: an event has to hold it.
const CULPRITS_MAX: usize = 128;

/// Where a verdict began.
#[derive(Debug, Clone, Copy, Serialize, Deserialize, ToSchema)]
pub(crate) struct Onset {
    pub(crate) step: Option<i64>,
    /// Milliseconds since the epoch.
    pub(crate) time: Option<i64>,
}

/// In how many of the latest windows it was found.
#[derive(Debug, Clone, Copy, Serialize, Deserialize, ToSchema)]
pub(crate) struct Windows {
    pub(crate) held: u32,
    pub(crate) of: u32,
}

/// A number that speaks for it.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub(crate) struct EvidenceRow {
    /// The whole sentence.
    pub(crate) text: String,
    pub(crate) name: String,
    pub(crate) value: Option<f64>,
    /// The same of its peers, or of before.
    pub(crate) peers: Option<f64>,
    /// `seconds`, `ratio`, `hertz`, `watts`, `celsius` or empty.
    pub(crate) unit: String,
    /// PromQL that shows it over time.
    pub(crate) metric: Option<String>,
}

/// What happened near its beginning.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct NearRow {
    /// Milliseconds since the epoch.
    pub(crate) time: i64,
    pub(crate) kind: String,
    pub(crate) text: String,
}

/// What is recommended; nothing is done by it.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub(crate) struct ActionRow {
    /// `drain`, `check_host`, `check_links`, `rebalance`, `none`; of a hang also `reboot_node`,
    /// `restart_from_checkpoint` and the like, several with commas.
    pub(crate) word: String,
    pub(crate) sentence: String,
}

/// A rank that holds up the others, or is silent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub(crate) struct CulpritRow {
    pub(crate) rank: u32,
    pub(crate) host: Option<String>,
    pub(crate) last_step: Option<i64>,
    /// Milliseconds since the epoch.
    pub(crate) last_step_time: Option<i64>,
    /// The last collective that it entered.
    pub(crate) sequence: Option<i64>,
    /// The last one that it completed.
    pub(crate) completed: Option<i64>,
    /// In words.
    pub(crate) state: String,
}

/// A verdict on a run.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub(crate) struct VerdictRow {
    pub(crate) id: String,
    /// `straggler`, `consistently_last`, `node`, `stage_imbalance`, `rotating`, `communication`, `slowdown`, `hang`
    /// or `silent`.
    pub(crate) class: String,
    /// `page`, `warn` or `info`.
    pub(crate) level: String,
    /// A few words.
    pub(crate) claim: String,
    /// Where, why, what it costs, since when.
    pub(crate) sentence: String,
    pub(crate) ranks: Vec<u32>,
    pub(crate) host: Option<String>,
    pub(crate) gpu: Option<String>,
    pub(crate) uuid: Option<String>,
    pub(crate) stage: Option<u32>,
    /// Of a straggler `thermal`, `power_cap`, `clock`, `link`, `memory_health`, `host_data`, `unknown`; of a hang
    /// `hardware`, `process`, `network`, `program`, `unknown`.
    pub(crate) cause: Option<String>,
    /// Own time over that of the peers, or over what it was.
    pub(crate) rho: Option<f64>,
    pub(crate) z: Option<f64>,
    pub(crate) wait_seconds: Option<f64>,
    pub(crate) peers_wait_seconds: Option<f64>,
    /// Share of step time to be won.
    pub(crate) gain_ratio: Option<f64>,
    pub(crate) step_seconds: Option<f64>,
    pub(crate) counterfactual_seconds: Option<f64>,
    pub(crate) onset: Onset,
    /// When it was said first, milliseconds since the epoch.
    pub(crate) since: i64,
    /// When it held no longer; null while it does.
    pub(crate) cleared: Option<i64>,
    pub(crate) confidence: Option<f64>,
    pub(crate) windows: Option<Windows>,
    pub(crate) evidence: Vec<EvidenceRow>,
    pub(crate) events: Vec<NearRow>,
    pub(crate) action: ActionRow,
    pub(crate) culprits: Vec<CulpritRow>,
}

fn some(text: &str) -> Option<String> {
    (!text.is_empty()).then(|| text.to_owned())
}

fn number(value: f64) -> Option<f64> {
    value.is_finite().then_some(value)
}

fn ms(time_ns: i64) -> i64 {
    time_ns.div_euclid(NANOS_PER_MILLI)
}

impl VerdictRow {
    fn empty(class: &str, level: Level) -> Self {
        Self {
            id: String::new(),
            class: class.to_owned(),
            level: level.word().to_owned(),
            claim: String::new(),
            sentence: String::new(),
            ranks: Vec::new(),
            host: None,
            gpu: None,
            uuid: None,
            stage: None,
            cause: None,
            rho: None,
            z: None,
            wait_seconds: None,
            peers_wait_seconds: None,
            gain_ratio: None,
            step_seconds: None,
            counterfactual_seconds: None,
            onset: Onset { step: None, time: None },
            since: 0,
            cleared: None,
            confidence: None,
            windows: None,
            evidence: Vec::new(),
            events: Vec::new(),
            action: ActionRow { word: "none".to_owned(), sentence: String::new() },
            culprits: Vec::new(),
        }
    }

    /// What the detector says of the steps of a run.
    pub(super) fn of(verdict: &Verdict) -> Self {
        let has_cause = matches!(verdict.class, Class::Straggler | Class::Node | Class::ConsistentlyLast);
        Self {
            claim: verdict.claim(),
            sentence: verdict.sentence(),
            ranks: verdict.ranks.iter().copied().take(RANKS_MAX).collect(),
            host: some(&verdict.host),
            gpu: some(&verdict.gpu),
            uuid: some(&verdict.uuid),
            stage: verdict.stage,
            cause: has_cause.then(|| verdict.cause.word().to_owned()),
            rho: number(verdict.rho),
            z: number(verdict.z),
            wait_seconds: number(verdict.wait_seconds),
            peers_wait_seconds: number(verdict.peers_wait_seconds),
            gain_ratio: number(verdict.gain),
            step_seconds: number(verdict.step_seconds),
            counterfactual_seconds: number(verdict.counterfactual_seconds),
            onset: Onset { step: verdict.onset_step, time: verdict.onset_time_ns.map(ms) },
            confidence: number(verdict.confidence),
            windows: Some(Windows { held: verdict.held, of: verdict.of }),
            evidence: verdict.evidence.iter().map(evidence).collect(),
            action: ActionRow { word: verdict.action.word().to_owned(), sentence: verdict.advice.clone() },
            ..Self::empty(verdict.class.word(), verdict.level)
        }
    }

    /// What is said of a run that makes no progress.
    pub(super) fn of_hang(hang: &HangVerdict, step_seconds: Option<f64>) -> Self {
        let culprits: Vec<CulpritRow> = hang.culprits.iter().take(CULPRITS_MAX).map(culprit).collect();
        let claim = match culprits.as_slice() {
            [one] => format!("The run hangs at rank {}", one.rank),
            [] => "The run hangs".to_owned(),
            many => format!("The run hangs at {} ranks", many.len()),
        };
        let hosts: BTreeSet<&String> = culprits.iter().filter_map(|one| one.host.as_ref()).collect();
        let host = (hosts.len() == 1).then(|| hosts.first().map(|host| (*host).clone())).flatten();
        let last_step = culprits.iter().filter_map(|one| one.last_step).min();
        Self {
            claim,
            sentence: hang.text.clone(),
            ranks: culprits.iter().map(|one| one.rank).collect(),
            host,
            cause: Some(hang.cause.to_owned()),
            gain_ratio: Some(1.0),
            step_seconds,
            onset: Onset { step: last_step, time: Some(ms(hang.since_ns)) },
            confidence: number(hang.confidence),
            evidence: hang.evidence.iter().map(evidence).collect(),
            action: ActionRow { word: hang.actions.join(","), sentence: hang.advice.clone() },
            culprits,
            ..Self::empty("hang", if hang.is_idle { Level::Warn } else { Level::Page })
        }
    }

    /// What is said of ranks that tell nothing while others go on; `is_host_silent` says of a host whether all of its
    /// ranks are among them.
    pub(super) fn of_silent(culprits: Vec<CulpritRow>, is_host_silent: &dyn Fn(&str) -> bool) -> Self {
        let hosts: BTreeSet<&str> =
            culprits.iter().map(|one| one.host.as_deref().unwrap_or_default()).collect();
        let host =
            hosts.first().filter(|host| hosts.len() == 1 && !host.is_empty()).map(|host| (*host).to_owned());
        let claim = match (culprits.as_slice(), &host) {
            ([one], _) => format!("Rank {} is silent", one.rank),
            (many, Some(host)) if is_host_silent(host) => {
                format!("{host} is silent with {} ranks", many.len())
            }
            (many, _) => format!("{} ranks are silent", many.len()),
        };
        let since = culprits.iter().filter_map(|one| one.last_step_time).min();
        let step = culprits.iter().filter_map(|one| one.last_step).min();
        let sentence = match (culprits.as_slice(), step) {
            ([one], Some(step)) => format!("{}; its last step is {step}, and the others go on.", one.state),
            (_, Some(step)) => format!("Their first missing step is after {step}; the others go on."),
            _ => "They told no step, and the others go on.".to_owned(),
        };
        Self {
            claim,
            sentence,
            ranks: culprits.iter().map(|one| one.rank).take(RANKS_MAX).collect(),
            host,
            onset: Onset { step, time: since },
            action: ActionRow {
                word: "check_host".to_owned(),
                sentence: "See whether the process and its host still live.".to_owned(),
            },
            culprits: culprits.into_iter().take(CULPRITS_MAX).collect(),
            ..Self::empty("silent", Level::Warn)
        }
    }

    /// What tells it from the run's other verdicts, whatever its numbers.
    pub(super) fn key(&self) -> String {
        match self.class.as_str() {
            "straggler" | "consistently_last" => {
                let ranks: Vec<String> = self.ranks.iter().map(u32::to_string).collect();
                format!("{}:{}", self.class, ranks.join(","))
            }
            "node" => format!("node:{}", self.host.as_deref().unwrap_or_default()),
            "stage_imbalance" => format!("stage_imbalance:{}", self.stage.unwrap_or_default()),
            other => other.to_owned(),
        }
    }

    /// Adds to the numbers what shows them over time.
    pub(super) fn explain(&mut self, run: RunId) {
        let rank = match self.ranks.as_slice() {
            [one] => format!(",rank=\"{one}\""),
            _ => String::new(),
        };
        let uuid = self.uuid.clone();
        for row in &mut self.evidence {
            row.metric = metric(&row.name, &format!("run_id=\"{run}\"{rank}"), uuid.as_deref());
        }
    }

    /// How much it matters, greater is worse.
    pub(super) fn weight(&self) -> u8 {
        match self.level.as_str() {
            "page" => 2,
            "warn" => 1,
            _ => 0,
        }
    }

    /// Milliseconds of its beginning, as far as that is known.
    pub(super) fn began(&self) -> i64 {
        self.onset.time.unwrap_or(self.since)
    }
}

/// PromQL that shows a number over time, where a series does.
fn metric(name: &str, of_rank: &str, uuid: Option<&str>) -> Option<String> {
    let of_step = |part: &str| Some(format!("train_step_{part}seconds{{{of_rank}}}"));
    let of_card = |metric: &str| uuid.map(|uuid| format!("{metric}{{uuid=\"{uuid}\"}}"));
    let throttled = |reason: &str| {
        let metric = GPU_THROTTLED_SECONDS_TOTAL.name;
        uuid.map(|uuid| format!("rate({metric}{{uuid=\"{uuid}\",reason=~\"{reason}\"}}[2m])"))
    };
    match name {
        "step" | "stage" => of_step(""),
        "wait" | "communication" | "last" => of_step("wait_"),
        "data" => of_step("data_"),
        "own" => Some(format!("train_step_seconds{{{of_rank}}} - train_step_wait_seconds{{{of_rank}}}")),
        "clock" => of_card(GPU_SM_CLOCK_HERTZ.name),
        "power" => of_card(GPU_POWER_WATTS.name),
        "temperature" => of_card(GPU_TEMPERATURE_CELSIUS.name),
        "pcie_width" => of_card(GPU_PCIE_LINK_WIDTH.name),
        "pcie_generation" => of_card(GPU_PCIE_LINK_GENERATION.name),
        "memory_faults" => of_card(GPU_ROW_REMAPS_TOTAL.name),
        "thermal" => throttled("(sw|hw)_thermal"),
        "power_cap" => throttled("sw_power|hw_power_brake"),
        _ => None,
    }
}

fn culprit(of: &insight::hang::Culprit) -> CulpritRow {
    CulpritRow {
        rank: of.rank,
        host: some(&of.host),
        last_step: of.last_step,
        last_step_time: of.last_step_time_ns.map(ms),
        sequence: of.sequence,
        completed: of.completed,
        state: of.state.clone(),
    }
}

fn evidence(of: &straggler::Evidence) -> EvidenceRow {
    EvidenceRow {
        text: of.text.clone(),
        name: of.name.to_owned(),
        value: number(of.value),
        peers: number(of.peers),
        unit: of.unit.to_owned(),
        metric: None,
    }
}
