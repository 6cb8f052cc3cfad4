//! The cards: every number that the driver gives, under canonical names.

use std::collections::{HashMap, HashSet};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use collect::gpu::{
    self as nvml, GpuAbsence, GpuDevice, GpuEvents, GpuFailure, GpuOptions, GpuSampler, GpuValue,
};
use model::{Desc, Event, NANOS_PER_SECOND, Severity};
use semconv::canonical;

use crate::cards::{Card, Cards, SharedCards};
use crate::own;
use crate::tick::{Reading, Snapshot, Source, Tick};

/// How long the first look waits for the driver; later ones take it up when it is there.
const FIRST_WAIT: Duration = Duration::from_secs(2);
/// Between two attempts to start a driver that is not there.
const AGAIN: Duration = Duration::from_mins(1);

/// Name of the part in the agent's own telemetry.
pub(crate) const NAME: &str = "gpu";

/// What the driver calls a metric, what it is called everywhere, and what it is multiplied by.
const NAMES: &[(&Desc, &Desc, f64)] = &[
    (&nvml::GPU_UTILIZATION, &canonical::GPU_BUSY_RATIO, 0.01),
    (&nvml::GPU_MEMORY_USED, &canonical::GPU_MEMORY_USED_BYTES, 1.0),
    (&nvml::GPU_MEMORY_FREE, &canonical::GPU_MEMORY_FREE_BYTES, 1.0),
    (&nvml::GPU_MEMORY_RESERVED, &canonical::GPU_MEMORY_RESERVED_BYTES, 1.0),
    (&nvml::GPU_MEMORY_TOTAL, &canonical::GPU_MEMORY_TOTAL_BYTES, 1.0),
    (&nvml::GPU_TEMPERATURE, &canonical::GPU_TEMPERATURE_CELSIUS, 1.0),
    (&nvml::GPU_MEMORY_TEMPERATURE, &canonical::GPU_MEMORY_TEMPERATURE_CELSIUS, 1.0),
    (&nvml::GPU_TEMPERATURE_MARGIN, &canonical::GPU_TEMPERATURE_MARGIN_CELSIUS, 1.0),
    (&nvml::GPU_POWER, &canonical::GPU_POWER_WATTS, 1.0),
    (&nvml::GPU_POWER_LIMIT, &canonical::GPU_POWER_LIMIT_WATTS, 1.0),
    (&nvml::GPU_ENERGY, &canonical::GPU_ENERGY_JOULES_TOTAL, 1.0),
    (&nvml::GPU_SM_CLOCK, &canonical::GPU_SM_CLOCK_HERTZ, 1e6),
    (&nvml::GPU_SM_CLOCK_MAX, &canonical::GPU_SM_CLOCK_MAX_HERTZ, 1e6),
    (&nvml::GPU_MEMORY_CLOCK, &canonical::GPU_MEMORY_CLOCK_HERTZ, 1e6),
    (&nvml::GPU_THROTTLED, &canonical::GPU_THROTTLED_SECONDS_TOTAL, 1.0),
    (&nvml::GPU_RECOVERY_ACTION, &canonical::GPU_RECOVERY_ACTION, 1.0),
    (&nvml::GPU_GRAPHICS_ACTIVE, &canonical::GPU_GRAPHICS_ACTIVE_RATIO, 1.0),
    (&nvml::GPU_SM_ACTIVE, &canonical::GPU_SM_ACTIVE_RATIO, 1.0),
    (&nvml::GPU_SM_OCCUPANCY, &canonical::GPU_SM_OCCUPANCY_RATIO, 1.0),
    (&nvml::GPU_TENSOR_ACTIVE, &canonical::GPU_TENSOR_ACTIVE_RATIO, 1.0),
    (&nvml::GPU_DRAM_ACTIVE, &canonical::GPU_DRAM_ACTIVE_RATIO, 1.0),
    (&nvml::GPU_FP64_ACTIVE, &canonical::GPU_FP64_ACTIVE_RATIO, 1.0),
    (&nvml::GPU_FP32_ACTIVE, &canonical::GPU_FP32_ACTIVE_RATIO, 1.0),
    (&nvml::GPU_FP16_ACTIVE, &canonical::GPU_FP16_ACTIVE_RATIO, 1.0),
    (&nvml::GPU_PCIE_GENERATION, &canonical::GPU_PCIE_LINK_GENERATION, 1.0),
    (&nvml::GPU_PCIE_GENERATION_MAX, &canonical::GPU_PCIE_LINK_GENERATION_MAX, 1.0),
    (&nvml::GPU_PCIE_WIDTH, &canonical::GPU_PCIE_LINK_WIDTH, 1.0),
    (&nvml::GPU_PCIE_WIDTH_MAX, &canonical::GPU_PCIE_LINK_WIDTH_MAX, 1.0),
    (&nvml::GPU_PCIE_RECEIVE, &canonical::GPU_PCIE_RECEIVE_BYTES_PER_SECOND, 1.0),
    (&nvml::GPU_PCIE_TRANSMIT, &canonical::GPU_PCIE_TRANSMIT_BYTES_PER_SECOND, 1.0),
    (&nvml::GPU_PCIE_REPLAYS, &canonical::GPU_PCIE_REPLAYS_TOTAL, 1.0),
    (&nvml::GPU_NVLINK_BYTES, &canonical::GPU_NVLINK_BYTES_TOTAL, 1.0),
    (&nvml::GPU_NVLINK_ERRORS, &canonical::GPU_NVLINK_ERRORS_TOTAL, 1.0),
    (&nvml::GPU_NVLINK_ACTIVE, &canonical::GPU_NVLINK_ACTIVE_LINKS, 1.0),
    (&nvml::GPU_ECC_ERRORS, &canonical::GPU_ECC_ERRORS_TOTAL, 1.0),
    (&nvml::GPU_ROW_REMAPS, &canonical::GPU_ROW_REMAPS_TOTAL, 1.0),
    (&nvml::GPU_ROW_REMAP_PENDING, &canonical::GPU_ROW_REMAP_PENDING, 1.0),
    (&nvml::GPU_ROW_REMAP_FAILED, &canonical::GPU_ROW_REMAP_FAILED, 1.0),
];

fn canonical_of(metric: &Desc) -> Option<(&'static Desc, f64)> {
    NAMES.iter().find(|(ours, ..)| ours.name == metric.name).map(|(_, name, scale)| (*name, *scale))
}

/// The driver, on its way.
enum Driver {
    Starting(Receiver<Result<GpuSampler, GpuAbsence>>),
    Here(Box<GpuSampler>),
    /// Since when, by the agent's own clock.
    Absent(Duration),
    /// It was let go of, and is taken up with the next look.
    LetGo,
}

/// See the module.
pub struct GpuSource {
    options: GpuOptions,
    driver: Driver,
    cards: SharedCards,
    boot_id: String,
    /// Canonical names by the driver's, found once.
    names: HashMap<&'static str, (&'static Desc, f64)>,
    /// What a card has given a value for, by UUID.
    given: HashMap<String, HashSet<&'static str>>,
    /// Cards that were seen, by UUID: whether they answered at the last look.
    seen: HashMap<String, bool>,
    has_looked: bool,
    failures: HashMap<&'static str, u64>,
    absence_said: Option<String>,
}

impl GpuSource {
    /// Begins to start the driver; what it tells by itself is laid down in `events`.
    pub fn new(
        library: Option<std::path::PathBuf>,
        boot_id: &str,
        cards: SharedCards,
        events: GpuEvents,
    ) -> Self {
        let events = Some(events);
        let options = GpuOptions { library, partitioned: true, events, ..GpuOptions::default() };
        Self {
            driver: start(&options),
            options,
            cards,
            boot_id: boot_id.to_owned(),
            names: HashMap::new(),
            given: HashMap::new(),
            seen: HashMap::new(),
            has_looked: false,
            failures: HashMap::new(),
            absence_said: None,
        }
    }

    /// Takes up a driver that has started, starts one that is due; whether it can be asked.
    fn follow(&mut self, now: Duration) -> bool {
        let is_due = match &self.driver {
            Driver::Absent(since) => now.saturating_sub(*since) >= AGAIN,
            Driver::LetGo => true,
            Driver::Starting(_) | Driver::Here(_) => false,
        };
        if is_due {
            self.driver = start(&self.options);
        }
        let Driver::Starting(answer) = &self.driver else { return matches!(self.driver, Driver::Here(_)) };
        let wait = if self.has_looked { Duration::ZERO } else { FIRST_WAIT };
        match answer.recv_timeout(wait) {
            Ok(Ok(sampler)) => {
                self.driver = Driver::Here(Box::new(sampler));
                self.absence_said = None;
                return true;
            }
            Ok(Err(absence)) => {
                let words = absence.to_string();
                if self.absence_said.as_ref() != Some(&words) {
                    tracing::warn!(hint = absence.hint(), "no cards of NVIDIA: {words}");
                    self.absence_said = Some(words);
                }
                self.driver = Driver::Absent(now);
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => self.driver = Driver::Absent(now),
        }
        false
    }

    fn look(&mut self, tick: &Tick<'_>, out: &mut Snapshot) {
        let Driver::Here(sampler) = &mut self.driver else { return };
        let indices: Vec<u32> = sampler.devices().iter().map(|device| device.index).collect();
        let mut values: Vec<(u32, GpuValue)> = Vec::with_capacity(indices.len() * 64);
        sampler.sample(&indices, &mut |gpu, value| values.push((gpu, *value)));
        let failures = sampler.take_failures();
        let devices = sampler.devices().to_vec();
        let driver = sampler.driver_version().map(str::to_owned);
        let lost =
            |gpu: u32| failures.iter().any(|failure| failure.gpu == gpu && failure.reason == "gpu_lost");
        let mut all = Vec::with_capacity(devices.len());
        for device in devices {
            let answers = values.iter().any(|(gpu, _)| *gpu == device.index) && !lost(device.index);
            let processes = if answers {
                sampler.processes(device.index)
            } else {
                Err(format!("GPU {} does not answer", device.index))
            };
            all.push(Card { device, processes, answers });
        }
        for card in all.iter().filter(|card| card.answers) {
            self.tell(card, driver.as_deref(), &values, out);
        }
        count(&canonical::NODE_GPUS, "driver", all.iter().filter(|card| card.answers).count(), out);
        self.follow_inventory(tick, &all, &failures, out);
        self.note(&failures);
        *self.cards.lock() = Cards { driver, is_absent: false, all };
    }

    /// What one card told.
    fn tell(&mut self, card: &Card, driver: Option<&str>, values: &[(u32, GpuValue)], out: &mut Snapshot) {
        let Driver::Here(sampler) = &self.driver else { return };
        let device = &card.device;
        out.readings.push(info(device, driver));
        let given = self.given.entry(device.uuid.clone()).or_default();
        for (_, value) in values.iter().filter(|(gpu, _)| *gpu == device.index) {
            let found = self.names.get(value.metric.name).copied().or_else(|| canonical_of(value.metric));
            let Some((desc, scale)) = found else { continue };
            self.names.insert(value.metric.name, (desc, scale));
            let mut labels = labels(device);
            if let Some(instance) = value.instance {
                labels.push(("gi", instance.to_string()));
            }
            labels.extend(value.labels.iter().map(|(name, value)| (*name, (*value).to_owned())));
            out.readings.push(Reading { desc, labels, value: value.value * scale });
            given.insert(desc.name);
        }
        if let Some(mask) = sampler.throttle_mask(device.index) {
            for (bit, reason) in canonical::THROTTLE_BITS {
                let mut labels = labels(device);
                labels.push(("reason", reason.to_owned()));
                let value = f64::from(u8::from(mask & bit != 0));
                out.readings.push(Reading { desc: &canonical::GPU_THROTTLE_ACTIVE, labels, value });
            }
        }
        // Profiling, which gives some of what the driver's plain calls don't, takes two looks.
        let is_known = self.seen.contains_key(&device.uuid);
        for metric in sampler.unsupported(device.index).into_iter().filter(|_| is_known) {
            let Some((desc, _)) = canonical_of(metric) else { continue };
            if given.contains(desc.name) {
                continue;
            }
            let mut labels = labels(device);
            labels.push(("field", desc.name.trim_start_matches("tg_gpu_").to_owned()));
            out.readings.push(Reading { desc: &canonical::GPU_UNSUPPORTED_INFO, labels, value: 1.0 });
        }
    }

    /// Cards that came and went since the look before.
    fn follow_inventory(
        &mut self,
        tick: &Tick<'_>,
        all: &[Card],
        failures: &[GpuFailure],
        out: &mut Snapshot,
    ) {
        for card in all {
            let before = self.seen.insert(card.device.uuid.clone(), card.answers);
            let what = match (before, card.answers) {
                (Some(false), true) => "back",
                (None, true) if self.has_looked => "new",
                (Some(true), false) => "gone",
                _ => continue,
            };
            let of_card = failures.iter().rfind(|failure| failure.gpu == card.device.index);
            let cause = of_card.map_or("it does not answer", |failure| failure.cause.as_str());
            out.events.push(inventory(tick, &self.boot_id, &card.device, (what, cause)));
        }
        // A driver that was started anew may number fewer cards.
        let listed = |uuid: &String| all.iter().any(|card| card.device.uuid == *uuid);
        let missing: Vec<String> = self
            .seen
            .iter()
            .filter(|(uuid, answers)| **answers && !listed(uuid))
            .map(|(u, _)| u.clone())
            .collect();
        for uuid in missing {
            self.seen.insert(uuid.clone(), false);
            let known = self.cards.lock().all.iter().find(|card| card.device.uuid == uuid).cloned();
            if let Some(card) = known {
                let cause = "the driver does not list it any more";
                out.events.push(inventory(tick, &self.boot_id, &card.device, ("gone", cause)));
            }
        }
    }

    fn note(&mut self, failures: &[GpuFailure]) {
        for failure in failures {
            *self.failures.entry(failure.reason).or_default() += 1;
            if failure.dropped {
                tracing::warn!("{}", failure.cause);
            }
        }
    }
}

fn start(options: &GpuOptions) -> Driver {
    let (tell, answer) = channel();
    let options = options.clone();
    let begun = thread::Builder::new().name("tg-gpu-open".to_owned()).spawn(move || {
        // Nobody waits any more: the driver is let go again.
        let _ = tell.send(GpuSampler::open(&options));
    });
    match begun {
        Ok(_) => Driver::Starting(answer),
        Err(_) => Driver::Absent(Duration::ZERO),
    }
}

fn labels(device: &GpuDevice) -> Vec<(&'static str, String)> {
    vec![("gpu", device.index.to_string()), ("uuid", device.uuid.clone())]
}

fn info(device: &GpuDevice, driver: Option<&str>) -> Reading {
    let mut labels = labels(device);
    labels.push(("vendor", "nvidia".to_owned()));
    labels.push(("gpu_model", device.name.clone()));
    labels.push(("driver", driver.unwrap_or_default().to_owned()));
    labels.push(("pci_bus_id", device.pci_bus_id.clone()));
    labels.push(("mig", device.mig.to_string()));
    Reading { desc: &canonical::GPU_INFO, labels, value: 1.0 }
}

fn count(desc: &'static Desc, source: &str, value: usize, out: &mut Snapshot) {
    out.readings.push(Reading { desc, labels: vec![("source", source.to_owned())], value: value as f64 });
}

fn inventory(tick: &Tick<'_>, boot_id: &str, device: &GpuDevice, (what, cause): (&str, &str)) -> Event {
    let name = format!("GPU {} ({}, {}, {})", device.index, device.name, device.uuid, device.pci_bus_id);
    let text = match what {
        "gone" => format!("{name} is gone: {cause}"),
        "back" => format!("{name} answers again"),
        _ => format!("{name} is new"),
    };
    let body = serde_json::json!({ "what": what, "cause": if what == "gone" { cause } else { "" } });
    Event {
        time_ns: tick.time_ns,
        kind: "inventory".to_owned(),
        severity: if what == "gone" { Severity::Critical } else { Severity::Info },
        key: format!("inventory:{boot_id}:{}:{what}:{}", device.uuid, tick.time_ns / NANOS_PER_SECOND),
        labels: vec![
            ("host".to_owned(), tick.host.to_owned()),
            ("gpu".to_owned(), device.index.to_string()),
            ("uuid".to_owned(), device.uuid.clone()),
            ("pci_bus_id".to_owned(), device.pci_bus_id.clone()),
            ("source".to_owned(), "inventory".to_owned()),
        ],
        text,
        body: body.to_string(),
    }
}

impl Source for GpuSource {
    fn name(&self) -> &'static str {
        NAME
    }

    fn read(&mut self, tick: &Tick<'_>, out: &mut Snapshot) {
        if self.follow(tick.elapsed) {
            self.look(tick, out);
        } else if matches!(self.driver, Driver::Absent(_)) {
            *self.cards.lock() = Cards { is_absent: true, ..Cards::default() };
        }
        self.has_looked = true;
        for (reason, times) in &self.failures {
            let labels = vec![("reason", (*reason).to_owned())];
            out.readings.push(Reading { desc: &own::GPU_FAILURES, labels, value: *times as f64 });
        }
    }

    fn release(&mut self) {
        self.driver = Driver::LetGo;
        self.cards.lock().all.clear();
    }

    fn holds_devices(&self) -> bool {
        true
    }
}
