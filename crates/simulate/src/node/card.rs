//! A card: what it does and what that does to it.

use crate::TICK_SECONDS;
use crate::engine::Engine;
use crate::noise::{noise, word};
use crate::profile::Profile;
use crate::scenario::{Fault, FaultKind};

/// How fast what a driver shows follows what happens, per tick: a mean of about a second.
const FOLLOW: f64 = 0.1;
/// How fast a card warms up or cools down, per tick.
const WARM: f64 = 0.004;

/// Places on the bus, as on boards with eight cards.
const PLACES: [&str; 16] =
    ["18", "2a", "3a", "5d", "9a", "ab", "ba", "db", "19", "2b", "3b", "5e", "9b", "ac", "bb", "dc"];

/// What a card does in a tick.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Work {
    busy: f64,
    sm: f64,
    occupancy: f64,
    tensor: f64,
    dram: f64,
    /// Share of the way from idle to the limit.
    power: f64,
    /// Share of the memory that is held.
    memory: f64,
    /// Bytes a second over all links, each way.
    links: f64,
}

impl Default for Work {
    fn default() -> Self {
        Self {
            busy: 0.0,
            sm: 0.0,
            occupancy: 0.0,
            tensor: 0.0,
            dram: 0.0,
            power: 0.0,
            memory: 0.006,
            links: 0.0,
        }
    }
}

impl Work {
    /// A rank that computes, or waits for others in a collective.
    pub(crate) fn training(is_computing: bool) -> Self {
        if is_computing {
            Self {
                busy: 1.0,
                sm: 0.91,
                occupancy: 0.38,
                tensor: 0.56,
                dram: 0.47,
                power: 0.93,
                memory: 0.87,
                links: 4e10,
            }
        } else {
            Self {
                busy: 1.0,
                sm: 0.96,
                occupancy: 0.05,
                tensor: 0.0,
                dram: 0.05,
                power: 0.36,
                memory: 0.87,
                links: 1.6e11,
            }
        }
    }

    /// A rank that waits in a collective for one that never comes.
    pub(crate) fn hanging() -> Self {
        Self { sm: 0.99, power: 0.27, links: 0.0, ..Self::training(false) }
    }

    /// A card of an engine: weights and KV cache are read in each step, and few requests leave little to
    /// compute.
    pub(crate) fn serving(engine: &Engine, profile: Profile) -> Self {
        let (prefill, decode) = engine.activity();
        let batch = engine.running() as f64;
        let is_busy = prefill + decode > 0.0;
        Self {
            busy: if is_busy { 1.0 } else { 0.0 },
            sm: 0.72 * decode + 0.94 * prefill,
            occupancy: 0.21 * decode + 0.33 * prefill,
            tensor: (0.58 * prefill + decode * (0.002 + 0.000_9 * batch)).min(0.7),
            dram: (0.81 * decode + 0.35 * prefill).min(0.92),
            power: (0.52 * decode + 0.000_5 * batch + 0.85 * prefill).min(1.0),
            memory: 0.91,
            links: profile.memory_bytes_per_second * 0.002 * decode,
        }
    }
}

/// A card and its counters.
#[derive(Debug, Clone, PartialEq)]
pub struct Card {
    /// Its model.
    pub profile: Profile,
    /// Its UUID.
    pub uuid: String,
    /// Its place on the bus, `dddd:bb:dd.f`.
    pub bus_id: String,
    /// Whether the driver has it.
    pub is_present: bool,
    /// Any kernel was resident, 0 to 1.
    pub busy: f64,
    /// Share of the SMs that had work.
    pub sm_active: f64,
    /// Warps of those that could be.
    pub occupancy: f64,
    /// Share of the time in which tensor cores computed.
    pub tensor: f64,
    /// Share of the time in which memory moved.
    pub dram: f64,
    /// Power, watts.
    pub power_watts: f64,
    /// Energy since the driver was loaded, joules.
    pub energy_joules: f64,
    /// Temperature of the chip, degrees Celsius.
    pub temperature: f64,
    /// Clock of the SMs, MHz.
    pub clock_mhz: f64,
    /// Memory that is held, bytes.
    pub memory_used_bytes: f64,
    /// Bytes sent over all links, and as many received.
    pub link_bytes: f64,
    /// Errors of links: link and count.
    pub link_errors: Vec<f64>,
    /// How long clocks were held back, seconds: for power, thermally by software, by hardware, by the brake.
    pub throttled: [f64; 4],
    /// The reasons that hold now, as the driver's mask.
    pub throttle_mask: u64,
    /// Errors of memory that were corrected since the driver was loaded.
    pub corrected: f64,
    /// Rows that were replaced.
    pub remapped: u64,
    /// Whether rows wait for a reset.
    pub remap_pending: bool,
    ambient: f64,
}

impl Card {
    pub(crate) fn new(seed: u64, host: &str, gpu: u32, profile: Profile) -> Self {
        let mut id = [0_u64; 2];
        for (at, half) in id.iter_mut().enumerate() {
            let unit = noise(seed, &[word(host), u64::from(gpu), at as u64, 77]);
            *half = ((unit + 1.0) * 9.2e18) as u64;
        }
        let hex = format!("{:016x}{:016x}", id[0], id[1]);
        let uuid =
            format!("GPU-{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..32]);
        let bus_id = format!("0000:{}:00.0", PLACES[gpu as usize % PLACES.len()]);
        let ambient = 29.0 + 3.0 * noise(seed, &[word(host), u64::from(gpu), 5]);
        Self {
            profile,
            uuid,
            bus_id,
            is_present: true,
            busy: 0.0,
            sm_active: 0.0,
            occupancy: 0.0,
            tensor: 0.0,
            dram: 0.0,
            power_watts: profile.idle_watts,
            energy_joules: 0.0,
            temperature: ambient,
            clock_mhz: 345.0,
            memory_used_bytes: 0.0,
            link_bytes: 0.0,
            link_errors: vec![0.0; profile.links as usize],
            throttled: [0.0; 4],
            throttle_mask: 1,
            corrected: 0.0,
            remapped: 0,
            remap_pending: false,
            ambient,
        }
    }

    /// Its driver is loaded anew.
    pub(crate) fn reboot(&mut self) {
        self.energy_joules = 0.0;
        self.link_bytes = 0.0;
        self.link_errors.fill(0.0);
        self.throttled = [0.0; 4];
        self.corrected = 0.0;
        self.remap_pending = false;
        self.is_present = true;
        self.temperature = self.ambient;
    }

    pub(crate) fn tick(&mut self, work: &Work, clock: f64, ripple: f64) {
        let profile = self.profile;
        let follow = |shown: &mut f64, now: f64| *shown += FOLLOW * (now - *shown);
        let held = 1.0 + 0.01 * ripple;
        follow(&mut self.busy, work.busy);
        follow(&mut self.sm_active, (work.sm * held).min(1.0));
        follow(&mut self.occupancy, work.occupancy * held);
        follow(&mut self.tensor, work.tensor * clock * held);
        follow(&mut self.dram, work.dram * clock.sqrt() * held);
        let is_working = work.busy > 0.0;
        let mhz = if is_working { profile.clock_max_mhz * 0.95 * clock * held } else { 345.0 };
        follow(&mut self.clock_mhz, mhz);
        let range = profile.power_limit_watts - profile.idle_watts;
        let watts = profile.idle_watts + range * work.power * clock * clock * held;
        follow(&mut self.power_watts, watts.min(profile.power_limit_watts));
        self.energy_joules += watts.min(profile.power_limit_watts) * TICK_SECONDS;
        let warm = self.ambient + 0.054 * self.power_watts * 700.0 / profile.power_limit_watts;
        let hot = if clock < 1.0 { 84.0 - 2.0 * ripple } else { warm };
        self.temperature += WARM * (hot - self.temperature);
        let held_bytes = profile.memory_bytes as f64 * work.memory;
        follow(&mut self.memory_used_bytes, held_bytes);
        if profile.links > 0 {
            self.link_bytes += work.links * TICK_SECONDS;
        }
        self.throttle_mask = u64::from(!is_working);
        if is_working && work.power > 0.9 && clock >= 1.0 {
            self.throttle_mask |= 0x4;
            self.throttled[0] += 0.02 * TICK_SECONDS;
        }
    }

    /// What a fault does in a tick.
    pub(crate) fn suffer(&mut self, fault: &Fault) {
        let rate = fault.rate.unwrap_or(1.0);
        match fault.kind {
            FaultKind::Throttle => {
                let (place, bit) = match fault.reason.as_deref() {
                    Some("sw_power") => (0, 0x4),
                    Some("sw_thermal") => (1, 0x20),
                    Some("hw_power_brake") => (3, 0x80),
                    _ => (2, 0x40),
                };
                self.throttled[place] += TICK_SECONDS;
                self.throttle_mask |= bit;
            }
            FaultKind::Ecc => self.corrected += rate * TICK_SECONDS,
            FaultKind::Nvlink => {
                let link = fault.code.unwrap_or_default() as usize;
                if let Some(errors) = self.link_errors.get_mut(link) {
                    *errors += rate * TICK_SECONDS;
                }
            }
            _ => {}
        }
    }
}
