//! What the cards of ranks do, from the series of agents and of the runs' own samplers.

use std::collections::HashMap;

use insight::straggler::GpuFacts;
use model::{NANOS_PER_SECOND, RunId, is_stale_marker};
use semconv::canonical::{
    GPU_ECC_ERRORS_TOTAL, GPU_PCIE_LINK_GENERATION, GPU_PCIE_LINK_WIDTH, GPU_POWER_LIMIT_WATTS,
    GPU_POWER_WATTS, GPU_ROW_REMAPS_TOTAL, GPU_SM_CLOCK_HERTZ, GPU_TEMPERATURE_CELSIUS,
    GPU_THROTTLED_SECONDS_TOTAL,
};
use store::{Matcher, Store};

use super::places::Place;

/// How old a reading may be, nanoseconds.
const FRESH_NS: i64 = 60 * NANOS_PER_SECOND;

/// A fact of a card.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fact {
    Clock,
    Power,
    Limit,
    Temperature,
    Throttled,
    Width,
    Generation,
    Remaps,
    Ecc,
}

/// Each with its canonical series, that of samplers, and what the latter is multiplied by.
const FACTS: [(Fact, &str, &str, f64); 9] = [
    (Fact::Clock, GPU_SM_CLOCK_HERTZ.name, "system_gpu_sm_clock_mhz", 1e6),
    (Fact::Power, GPU_POWER_WATTS.name, "system_gpu_power_watts", 1.0),
    (Fact::Limit, GPU_POWER_LIMIT_WATTS.name, "system_gpu_power_limit_watts", 1.0),
    (Fact::Temperature, GPU_TEMPERATURE_CELSIUS.name, "system_gpu_temperature_celsius", 1.0),
    (Fact::Throttled, GPU_THROTTLED_SECONDS_TOTAL.name, "system_gpu_throttled_seconds_total", 1.0),
    (Fact::Width, GPU_PCIE_LINK_WIDTH.name, "system_gpu_pcie_link_width", 1.0),
    (Fact::Generation, GPU_PCIE_LINK_GENERATION.name, "system_gpu_pcie_link_generation", 1.0),
    (Fact::Remaps, GPU_ROW_REMAPS_TOTAL.name, "system_gpu_row_remaps_total", 1.0),
    (Fact::Ecc, GPU_ECC_ERRORS_TOTAL.name, "system_gpu_ecc_errors_total", 1.0),
];

/// Time in which CPU quotas held back a process, as samplers tell it.
const HELD_BACK: &str = "system_process_cpu_throttled_seconds_total";

/// A reading and when it was made, nanoseconds.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Reading {
    pub(super) facts: GpuFacts,
    pub(super) time_ns: i64,
}

/// Readings by what names a card.
pub(super) type Readings = HashMap<String, Reading>;

/// What agents tell, by UUID.
pub(super) fn of_agents(store: &Store, now_ns: i64) -> Readings {
    let mut readings = Readings::new();
    for (fact, metric, _, _) in FACTS {
        gather(store, &[Matcher::equal("__name__", metric)], now_ns, |labels, value, time_ns| {
            // Slices of a card have no clock or power of their own.
            if labels.get("gi").is_none()
                && let Some(uuid) = labels.get("uuid")
            {
                note(readings.entry(uuid.to_owned()).or_default(), (fact, labels), value, time_ns);
            }
        });
    }
    readings
}

/// What the samplers of a run tell, by host and index.
pub(super) fn of_run(store: &Store, run: RunId, now_ns: i64) -> Readings {
    let mut readings = Readings::new();
    let id = run.to_string();
    for (fact, _, metric, factor) in FACTS {
        let matchers = [Matcher::equal("__name__", metric), Matcher::equal("run_id", &id)];
        gather(store, &matchers, now_ns, |labels, value, time_ns| {
            if let (Some(host), Some(gpu)) = (labels.get("host"), labels.get("gpu")) {
                let reading = readings.entry(key(host, gpu)).or_default();
                note(reading, (fact, labels), value * factor, time_ns);
            }
        });
    }
    readings
}

/// By host and process ID, for how long so far quotas held it back, seconds, and when that was read, nanoseconds.
pub(super) type HeldBack = HashMap<(String, u32), (f64, i64)>;

/// What the samplers of a run tell of CPU quotas.
pub(super) fn held_back(store: &Store, run: RunId, now_ns: i64) -> HeldBack {
    let mut held = HeldBack::new();
    let id = run.to_string();
    let matchers = [Matcher::equal("__name__", HELD_BACK), Matcher::equal("run_id", &id)];
    gather(store, &matchers, now_ns, |labels, value, time_ns| {
        if let (Some(host), Some(pid)) =
            (labels.get("host"), labels.get("pid").and_then(|pid| pid.parse().ok()))
        {
            held.insert((host.to_owned(), pid), (value, time_ns));
        }
    });
    held
}

fn key(host: &str, gpu: &str) -> String {
    format!("{host}\0{gpu}")
}

/// The reading of a rank's card: its agent's, else the sampler's.
pub(super) fn find<'r>(place: &Place, agents: &'r Readings, run: &'r Readings) -> Option<&'r Reading> {
    let of_agent = agents.get(&place.uuid).filter(|_| !place.uuid.is_empty());
    let (host, gpu) = place.own.as_ref().map_or((&place.host, &place.gpu), |(host, gpu)| (host, gpu));
    of_agent.or_else(|| run.get(&key(host, gpu)).filter(|_| !gpu.is_empty()))
}

fn gather(
    store: &Store,
    matchers: &[Matcher<'_>],
    now_ns: i64,
    mut take: impl FnMut(&model::Labels, f64, i64),
) {
    let since_ns = now_ns.saturating_sub(FRESH_NS);
    for found in store.select(matchers, since_ns, i64::MAX) {
        let Some(info) = store.series(found.id) else { continue };
        if info.time_ns.1 >= since_ns && !is_stale_marker(info.last) && info.last.is_finite() {
            take(&found.labels, info.last, info.time_ns.1);
        }
    }
}

fn note(reading: &mut Reading, (fact, labels): (Fact, &model::Labels), value: f64, time_ns: i64) {
    reading.time_ns = reading.time_ns.max(time_ns);
    let facts = &mut reading.facts;
    let add = |sum: &mut f64| *sum = if sum.is_nan() { value } else { *sum + value };
    match fact {
        Fact::Clock => facts.clock_hertz = value,
        Fact::Power => facts.power_watts = value,
        Fact::Limit => facts.power_limit_watts = value,
        Fact::Temperature => facts.temperature_celsius = value,
        Fact::Width => facts.pcie_width = value,
        Fact::Generation => facts.pcie_generation = value,
        Fact::Throttled => match labels.get("reason") {
            Some("sw_thermal" | "hw_thermal") => add(&mut facts.thermal_seconds),
            Some("sw_power" | "hw_power_brake") => add(&mut facts.power_seconds),
            _ => {}
        },
        Fact::Remaps => add(&mut facts.memory_faults),
        Fact::Ecc if labels.get("kind") == Some("uncorrected") => add(&mut facts.memory_faults),
        Fact::Ecc => {}
    }
}
