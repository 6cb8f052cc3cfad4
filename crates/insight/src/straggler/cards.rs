//! What the GPUs of slow ranks have that their peers' have not.

use super::ring::median;
use super::{Cause, Evidence, GpuFacts};

/// Samples that are kept of a GPU.
const SAMPLES: usize = 4;
/// Samples without which a clock says nothing.
const SAMPLES_MIN: usize = 3;
/// A clock below this share of the peers' is low.
const CLOCK_LOW: f64 = 0.95;
/// Power below this share of the peers' is low.
const POWER_LOW: f64 = 0.9;
/// Held back for more than this share of the time is much.
const HELD_BACK: f64 = 0.05;
/// How long a fault of memory is new, nanoseconds.
const FAULT_NEW_NS: i64 = 600_000_000_000;

/// The latest samples of one GPU.
#[derive(Debug, Clone, Default)]
pub(super) struct Card {
    samples: [Option<(i64, GpuFacts)>; SAMPLES],
    taken: usize,
    /// Faults at the first sample that told them, and when they last became more.
    faults: Option<f64>,
    fault_ns: Option<i64>,
    /// When it was last told how long a quota held the process back, nanoseconds, and that time, seconds.
    held: Option<(i64, f64)>,
    /// The share of the time between the last two of these.
    held_share: Option<f64>,
}

/// What a GPU did lately; NaN where it is not known.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Lately {
    pub(super) clock: f64,
    pub(super) power: f64,
    pub(super) limit: f64,
    pub(super) temperature: f64,
    pub(super) thermal: f64,
    pub(super) power_held: f64,
    pub(super) cpu_held: f64,
    pub(super) width: f64,
    pub(super) generation: f64,
    pub(super) has_new_faults: bool,
}

impl Card {
    pub(super) fn take(&mut self, time_ns: i64, facts: &GpuFacts) {
        let before = self.samples[(self.taken + SAMPLES - 1) % SAMPLES];
        if before.is_some_and(|(before_ns, _)| time_ns <= before_ns) {
            return;
        }
        if facts.memory_faults.is_finite() {
            if self.faults.is_some_and(|before| facts.memory_faults > before) {
                self.fault_ns = Some(time_ns);
            }
            self.faults = Some(facts.memory_faults);
        }
        self.samples[self.taken % SAMPLES] = Some((time_ns, *facts));
        // Kept small, so that it never overflows; only the place in the row and "enough" matter.
        self.taken = if self.taken + 1 >= 2 * SAMPLES { SAMPLES } else { self.taken + 1 };
    }

    /// Takes for how long so far a quota held the process back, seconds.
    pub(super) fn hold_back(&mut self, time_ns: i64, seconds: f64) {
        let before = self.held.filter(|(before_ns, _)| time_ns > *before_ns);
        if !seconds.is_finite() || (before.is_none() && self.held.is_some()) {
            return;
        }
        if let Some((before_ns, before)) = before {
            let share = (seconds - before) / (time_ns.saturating_sub(before_ns) as f64 / 1e9);
            // A counter that went back began anew. Samples are a little early or late: no share is above 1.
            self.held_share = (share >= 0.0).then_some(share.min(1.0));
        }
        self.held = Some((time_ns, seconds));
    }

    /// None before there are enough samples of the GPU or anything is known of the process.
    pub(super) fn lately(&self) -> Option<Lately> {
        let mut samples: Vec<(i64, GpuFacts)> = self.samples.iter().flatten().copied().collect();
        if samples.len() < SAMPLES_MIN {
            return self.held_share.map(Lately::of_process);
        }
        samples.sort_by_key(|(time_ns, _)| *time_ns);
        let (first, last) = (samples[0], samples[samples.len() - 1]);
        let seconds = last.0.saturating_sub(first.0) as f64 / 1e9;
        let middle = |of: fn(&GpuFacts) -> f64| {
            let mut values: Vec<f32> =
                samples.iter().map(|(_, facts)| of(facts) as f32).filter(|value| value.is_finite()).collect();
            f64::from(median(&mut values))
        };
        // A counter that went back began anew, so its share is not known.
        let share = |of: fn(&GpuFacts) -> f64| {
            let grown = of(&last.1) - of(&first.1);
            // Two reasons that hold at once are counted twice, and clocks of counters are not quite even.
            if grown >= 0.0 && seconds > 0.0 { (grown / seconds).min(1.0) } else { f64::NAN }
        };
        Some(Lately {
            clock: middle(|facts| facts.clock_hertz),
            power: middle(|facts| facts.power_watts),
            limit: middle(|facts| facts.power_limit_watts),
            temperature: middle(|facts| facts.temperature_celsius),
            thermal: share(|facts| facts.thermal_seconds),
            power_held: share(|facts| facts.power_seconds),
            cpu_held: self.held_share.unwrap_or(f64::NAN),
            width: middle(|facts| facts.pcie_width),
            generation: middle(|facts| facts.pcie_generation),
            has_new_faults: self.fault_ns.is_some_and(|fault| last.0.saturating_sub(fault) <= FAULT_NEW_NS),
        })
    }
}

impl Lately {
    /// Of a process whose GPU is not known.
    fn of_process(held_back: f64) -> Self {
        Self {
            clock: f64::NAN,
            power: f64::NAN,
            limit: f64::NAN,
            temperature: f64::NAN,
            thermal: f64::NAN,
            power_held: f64::NAN,
            cpu_held: held_back,
            width: f64::NAN,
            generation: f64::NAN,
            has_new_faults: false,
        }
    }
}

/// Medians of the peers.
pub(super) fn middle(peers: &[Lately]) -> Lately {
    let of = |get: fn(&Lately) -> f64| {
        let mut values: Vec<f32> =
            peers.iter().map(|card| get(card) as f32).filter(|value| value.is_finite()).collect();
        f64::from(median(&mut values))
    };
    Lately {
        clock: of(|card| card.clock),
        power: of(|card| card.power),
        limit: of(|card| card.limit),
        temperature: of(|card| card.temperature),
        thermal: of(|card| card.thermal),
        power_held: of(|card| card.power_held),
        cpu_held: of(|card| card.cpu_held),
        width: of(|card| card.width),
        generation: of(|card| card.generation),
        has_new_faults: false,
    }
}

/// Time for data of a rank and of its peers, and how much longer than they it was busy, seconds.
#[derive(Debug, Clone, Copy)]
pub(super) struct Busy {
    pub(super) data: f64,
    pub(super) peers_data: f64,
    pub(super) over: f64,
}

/// The first cause that fits, and what speaks for it.
pub(super) fn cause(card: Option<&Lately>, peers: Option<&Lately>, busy: Busy) -> (Cause, Vec<Evidence>) {
    let mut evidence = Vec::new();
    if let (Some(card), Some(peers)) = (card, peers) {
        describe(card, peers, &mut evidence);
    }
    let data_over = busy.data - busy.peers_data;
    let is_data = data_over.is_finite() && busy.over > 0.0 && data_over >= 0.5 * busy.over;
    let mut beside: Vec<Evidence> = quota(card, peers).into_iter().chain(data(busy)).collect();
    // What is the reason comes first.
    if is_data {
        beside.reverse();
    }
    evidence.extend(beside);
    let cause = match (card, peers) {
        (Some(card), Some(peers)) => of_card(card, peers).or_else(|| of_host(card, peers, busy, is_data)),
        (Some(card), None) => is_held_back(card.cpu_held, f64::NAN).then_some(Cause::HostData),
        _ => None,
    };
    (cause.or(is_data.then_some(Cause::HostData)).unwrap_or(Cause::Unknown), evidence)
}

fn quota(card: Option<&Lately>, peers: Option<&Lately>) -> Option<Evidence> {
    let held = card.map(|card| card.cpu_held).filter(|held| *held > HELD_BACK)?;
    let peers = peers.map_or(f64::NAN, |peers| peers.cpu_held);
    let text = format!("a CPU quota holds it back for {:.0} % of the time", held * 100.0);
    Some(Evidence { text, name: "cpu_throttled", value: held, peers, unit: "ratio" })
}

fn data(busy: Busy) -> Option<Evidence> {
    let text = format!("reads data for {:.3} s of a step, peers {:.3} s", busy.data, busy.peers_data);
    let (value, peers) = (busy.data, busy.peers_data);
    value.is_finite().then_some(Evidence { text, name: "data", value, peers, unit: "seconds" })
}

/// Causes that lie in the GPU itself.
pub(super) fn of_card(card: &Lately, peers: &Lately) -> Option<Cause> {
    if card.clock < CLOCK_LOW * peers.clock {
        if card.thermal > HELD_BACK {
            return Some(Cause::Thermal);
        }
        return Some(if card.power_held > HELD_BACK { Cause::PowerCap } else { Cause::Clock });
    }
    if card.width < peers.width || card.generation < peers.generation {
        return Some(Cause::Link);
    }
    card.has_new_faults.then_some(Cause::MemoryHealth)
}

fn of_host(card: &Lately, peers: &Lately, busy: Busy, is_data: bool) -> Option<Cause> {
    let idles = card.power < POWER_LOW * peers.power;
    // A loader that is not measured leaves the power as the only trace of it.
    let is_held = is_held_back(card.cpu_held, peers.cpu_held);
    (is_data || is_held || (idles && busy.data.is_nan())).then_some(Cause::HostData)
}

/// Whether a quota holds a process back that lets its peers go on; those of which nothing is known have none.
fn is_held_back(share: f64, peers: f64) -> bool {
    share > HELD_BACK && share > 2.0 * peers.max(0.0)
}

fn describe(card: &Lately, peers: &Lately, evidence: &mut Vec<Evidence>) {
    let mut put = |name: &'static str, value: f64, other: f64, unit: &'static str, text: String| {
        if value.is_finite() {
            evidence.push(Evidence { text, name, value, peers: other, unit });
        }
    };
    let percent = |value: f64| format!("{:.0} %", value * 100.0);
    let mega = |hertz: f64| hertz / 1e6;
    let clock = card.clock / peers.clock;
    if clock.is_finite() {
        let text = format!(
            "SM clock {} of peers: {:.0} MHz, peers {:.0} MHz",
            percent(clock),
            mega(card.clock),
            mega(peers.clock)
        );
        put("clock", card.clock, peers.clock, "hertz", text);
    }
    let text = format!("heat holds the clock down for {} of the time", percent(card.thermal));
    if card.thermal > HELD_BACK {
        put("thermal", card.thermal, peers.thermal, "ratio", text);
    }
    let text = format!("a power limit holds the clock down for {} of the time", percent(card.power_held));
    if card.power_held > HELD_BACK {
        put("power_cap", card.power_held, peers.power_held, "ratio", text);
    }
    let text = format!("power {:.0} W, peers {:.0} W", card.power, peers.power);
    put("power", card.power, peers.power, "watts", text);
    let text = format!("temperature {:.0} °C, peers {:.0} °C", card.temperature, peers.temperature);
    put("temperature", card.temperature, peers.temperature, "celsius", text);
    if card.limit < 0.99 * peers.limit {
        let text = format!("power limit {:.0} W, peers {:.0} W", card.limit, peers.limit);
        put("power_limit", card.limit, peers.limit, "watts", text);
    }
    if card.width < peers.width {
        let text = format!("PCIe link of {:.0} lanes, peers {:.0}", card.width, peers.width);
        put("pcie_width", card.width, peers.width, "", text);
    }
    if card.generation < peers.generation {
        let text = format!("PCIe generation {:.0}, peers {:.0}", card.generation, peers.generation);
        put("pcie_generation", card.generation, peers.generation, "", text);
    }
    if card.has_new_faults {
        put("memory_faults", 1.0, 0.0, "", "its memory had faults within the last ten minutes".to_owned());
    }
}
