//! A look as dcgm-exporter would show it, so that dashboards made for that work unchanged.
//!
//! Its names, labels and units, its own among them: percent, MHz, MiB, mJ. What it repeats for every slice of
//! a partitioned board stands once here, with the board.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use model::Desc;
use semconv::canonical;

use crate::expose::{escape, head};
use crate::tick::Reading;

const MIB: f64 = 1.0 / 1_048_576.0;

/// A family of that exporter.
struct Family {
    name: &'static str,
    is_counter: bool,
    help: &'static str,
    from: &'static Desc,
    /// The label, with its value, that a reading must have; several are added up.
    only: Option<(&'static str, &'static str)>,
    scale: f64,
    /// Written without a fraction.
    is_whole: bool,
}

const fn gauge(name: &'static str, from: &'static Desc, scale: f64, help: &'static str) -> Family {
    Family { name, is_counter: false, help, from, only: None, scale, is_whole: false }
}

impl Family {
    const fn counter(mut self) -> Self {
        self.is_counter = true;
        self
    }

    const fn whole(mut self) -> Self {
        self.is_whole = true;
        self
    }

    const fn only(mut self, label: &'static str, value: &'static str) -> Self {
        self.only = Some((label, value));
        self
    }
}

const FAMILIES: &[Family] = &[
    gauge("DCGM_FI_DEV_SM_CLOCK", &canonical::GPU_SM_CLOCK_HERTZ, 1e-6, "Clock of the multiprocessors, MHz.")
        .whole(),
    gauge("DCGM_FI_DEV_MEM_CLOCK", &canonical::GPU_MEMORY_CLOCK_HERTZ, 1e-6, "Clock of the memory, MHz.")
        .whole(),
    gauge(
        "DCGM_FI_DEV_MEMORY_TEMP",
        &canonical::GPU_MEMORY_TEMPERATURE_CELSIUS,
        1.0,
        "Temperature of the memory, C.",
    ),
    gauge("DCGM_FI_DEV_GPU_TEMP", &canonical::GPU_TEMPERATURE_CELSIUS, 1.0, "Temperature of the card, C."),
    gauge("DCGM_FI_DEV_POWER_USAGE", &canonical::GPU_POWER_WATTS, 1.0, "Power drawn by the board, W."),
    gauge(
        "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION",
        &canonical::GPU_ENERGY_JOULES_TOTAL,
        1e3,
        "Energy used since the driver was loaded, mJ.",
    )
    .counter()
    .whole(),
    gauge(
        "DCGM_FI_DEV_PCIE_REPLAY_COUNTER",
        &canonical::GPU_PCIE_REPLAYS_TOTAL,
        1.0,
        "Packets sent again over PCIe.",
    )
    .counter(),
    gauge(
        "DCGM_FI_DEV_GPU_UTIL",
        &canonical::GPU_BUSY_RATIO,
        100.0,
        "Share of time in which any kernel ran, percent.",
    )
    .whole(),
    gauge("DCGM_FI_DEV_FB_FREE", &canonical::GPU_MEMORY_FREE_BYTES, MIB, "Memory that is free, MiB.").whole(),
    gauge("DCGM_FI_DEV_FB_USED", &canonical::GPU_MEMORY_USED_BYTES, MIB, "Memory that is allocated, MiB.")
        .whole(),
    gauge(
        "DCGM_FI_DEV_FB_RESERVED",
        &canonical::GPU_MEMORY_RESERVED_BYTES,
        MIB,
        "Memory that the driver keeps, MiB.",
    )
    .whole(),
    gauge(
        "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS",
        &canonical::GPU_ROW_REMAPS_TOTAL,
        1.0,
        "Rows replaced for uncorrectable errors.",
    )
    .counter()
    .only("kind", "uncorrected"),
    gauge(
        "DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS",
        &canonical::GPU_ROW_REMAPS_TOTAL,
        1.0,
        "Rows replaced for correctable errors.",
    )
    .counter()
    .only("kind", "corrected"),
    gauge(
        "DCGM_FI_DEV_ROW_REMAP_FAILURE",
        &canonical::GPU_ROW_REMAP_FAILED,
        1.0,
        "Whether a row could not be replaced.",
    ),
    gauge(
        "DCGM_FI_PROF_GR_ENGINE_ACTIVE",
        &canonical::GPU_GRAPHICS_ACTIVE_RATIO,
        1.0,
        "Graphics and compute engine at work, 0 to 1.",
    ),
    gauge(
        "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE",
        &canonical::GPU_TENSOR_ACTIVE_RATIO,
        1.0,
        "Tensor cores at work, 0 to 1.",
    ),
    gauge("DCGM_FI_PROF_DRAM_ACTIVE", &canonical::GPU_DRAM_ACTIVE_RATIO, 1.0, "Memory moving data, 0 to 1."),
    gauge(
        "DCGM_FI_PROF_PCIE_TX_BYTES",
        &canonical::GPU_PCIE_TRANSMIT_BYTES_PER_SECOND,
        1.0,
        "Bytes sent over PCIe in a second.",
    ),
    gauge(
        "DCGM_FI_PROF_PCIE_RX_BYTES",
        &canonical::GPU_PCIE_RECEIVE_BYTES_PER_SECOND,
        1.0,
        "Bytes received over PCIe in a second.",
    ),
    gauge(
        "DCGM_FI_PROF_SM_ACTIVE",
        &canonical::GPU_SM_ACTIVE_RATIO,
        1.0,
        "Multiprocessors with work, 0 to 1.",
    ),
    gauge(
        "DCGM_FI_PROF_SM_OCCUPANCY",
        &canonical::GPU_SM_OCCUPANCY_RATIO,
        1.0,
        "Resident warps of what fits, 0 to 1.",
    ),
    gauge(
        "DCGM_FI_DEV_ENFORCED_POWER_LIMIT",
        &canonical::GPU_POWER_LIMIT_WATTS,
        1.0,
        "Power limit in force, W.",
    ),
    gauge(
        "DCGM_FI_DEV_ROW_REMAP_PENDING",
        &canonical::GPU_ROW_REMAP_PENDING,
        1.0,
        "Whether a row waits for a reset.",
    ),
    gauge(
        "DCGM_FI_DEV_GPU_TEMP_LIMIT",
        &canonical::GPU_TEMPERATURE_MARGIN_CELSIUS,
        1.0,
        "Degrees until the card slows down, C.",
    ),
    gauge(
        "DCGM_FI_DEV_MAX_SM_CLOCK",
        &canonical::GPU_SM_CLOCK_MAX_HERTZ,
        1e-6,
        "Highest clock of the multiprocessors, MHz.",
    )
    .whole(),
    gauge("DCGM_FI_DEV_FB_TOTAL", &canonical::GPU_MEMORY_TOTAL_BYTES, MIB, "Memory in all, MiB.").whole(),
    gauge(
        "DCGM_FI_DEV_GET_GPU_RECOVERY_ACTION",
        &canonical::GPU_RECOVERY_ACTION,
        1.0,
        "What the driver says the card needs.",
    ),
    gauge(
        "DCGM_FI_DEV_PCIE_LINK_GEN",
        &canonical::GPU_PCIE_LINK_GENERATION,
        1.0,
        "Generation of the PCIe link.",
    ),
    gauge("DCGM_FI_DEV_PCIE_LINK_WIDTH", &canonical::GPU_PCIE_LINK_WIDTH, 1.0, "Lanes of the PCIe link."),
    gauge(
        "DCGM_FI_DEV_POWER_VIOLATION",
        &canonical::GPU_THROTTLED_SECONDS_TOTAL,
        1e9,
        "Time held back by power, ns.",
    )
    .counter()
    .whole()
    .only("reason", "sw_power"),
    gauge(
        "DCGM_FI_DEV_THERMAL_VIOLATION",
        &canonical::GPU_THROTTLED_SECONDS_TOTAL,
        1e9,
        "Time held back by heat, ns.",
    )
    .counter()
    .whole()
    .only("reason", "thermal"),
];

/// Counters of ECC, by the values of `kind` and `scope`.
const ECC: [(&str, &str, &str); 4] = [
    ("DCGM_FI_DEV_ECC_SBE_VOL_TOTAL", "corrected", "volatile"),
    ("DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", "uncorrected", "volatile"),
    ("DCGM_FI_DEV_ECC_SBE_AGG_TOTAL", "corrected", "aggregate"),
    ("DCGM_FI_DEV_ECC_DBE_AGG_TOTAL", "uncorrected", "aggregate"),
];

/// A card, and its labels as that exporter writes them.
struct Card<'a> {
    uuid: &'a str,
    /// From `gpu` to `modelName`.
    front: String,
    /// From the host on.
    back: String,
}

/// The page under the exporter's names. `xids` is the last Xid by UUID: the exporter has no other.
pub(crate) fn page(host: &str, readings: &[Reading], xids: &BTreeMap<String, u64>) -> String {
    let cards: Vec<Card<'_>> = readings
        .iter()
        .filter(|reading| reading.desc.name == canonical::GPU_INFO.name)
        .map(|info| card(host, info))
        .collect();
    let mut page = String::new();
    for family in FAMILIES {
        let rows = readings.iter().filter(|reading| {
            reading.desc.name == family.from.name
                && family.only.is_none_or(|(name, value)| label(reading, name) == value)
        });
        let rows: Vec<(&Reading, f64)> = rows.map(|reading| (reading, family.value(reading.value))).collect();
        write(&mut page, (family.name, family.is_counter, family.help), &cards, readings, &rows);
    }
    nvlink(&mut page, &cards, readings);
    reasons(&mut page, &cards, readings);
    for (name, kind, scope) in ECC {
        let rows: Vec<(&Reading, f64)> = readings
            .iter()
            .filter(|reading| reading.desc.name == canonical::GPU_ECC_ERRORS_TOTAL.name)
            .filter(|reading| label(reading, "kind") == kind && label(reading, "scope") == scope)
            .map(|reading| (reading, reading.value))
            .collect();
        write(&mut page, (name, true, "Memory errors that ECC found."), &cards, readings, &rows);
    }
    xid_errors(&mut page, &cards, readings, xids);
    page
}

impl Family {
    fn value(&self, value: f64) -> f64 {
        let scaled = value * self.scale;
        if self.is_whole { scaled.round() } else { scaled }
    }
}

fn label<'a>(reading: &'a Reading, name: &str) -> &'a str {
    reading.labels.iter().find(|(known, _)| *known == name).map_or("", |(_, value)| value)
}

fn put(text: &mut String, name: &str, value: &str) {
    if !text.is_empty() {
        text.push(',');
    }
    let _ = write!(text, "{name}=\"");
    escape(text, value);
    text.push('"');
}

fn card<'a>(host: &str, info: &'a Reading) -> Card<'a> {
    let (mut front, mut back) = (String::new(), String::new());
    put(&mut front, "gpu", label(info, "gpu"));
    put(&mut front, "UUID", label(info, "uuid"));
    put(&mut front, "pci_bus_id", &bus_id(label(info, "pci_bus_id")));
    put(&mut front, "device", &format!("nvidia{}", label(info, "gpu")));
    put(&mut front, "modelName", label(info, "gpu_model"));
    // The exporter changed the spelling in 2026: dashboards exist for either.
    put(&mut back, "Hostname", host);
    put(&mut back, "hostname", host);
    if !label(info, "driver").is_empty() {
        put(&mut back, "DCGM_FI_DRIVER_VERSION", label(info, "driver"));
    }
    Card { uuid: label(info, "uuid"), front, back }
}

/// `0000:1b:00.0` as `00000000:1B:00.0`.
fn bus_id(canonical: &str) -> String {
    match canonical.split_once(':') {
        Some((domain, rest)) => format!("{domain:0>8}:{}", rest.to_ascii_uppercase()),
        None => canonical.to_owned(),
    }
}

/// The pod of a card, or of its slice, as that exporter's last labels. Of several that share it the first is
/// shown, as the exporter does.
fn pod(readings: &[Reading], uuid: &str, gi: &str) -> String {
    let owner = readings.iter().find(|reading| {
        reading.desc.name == canonical::GPU_OWNER_INFO.name
            && label(reading, "uuid") == uuid
            && label(reading, "gi") == gi
            && !label(reading, "pod").is_empty()
    });
    let mut text = String::new();
    for name in ["container", "namespace", "pod"] {
        if let Some(owner) = owner {
            put(&mut text, name, label(owner, name));
        }
    }
    text
}

fn write(
    page: &mut String,
    (name, is_counter, help): (&str, bool, &str),
    cards: &[Card<'_>],
    readings: &[Reading],
    rows: &[(&Reading, f64)],
) {
    let mut is_headed = false;
    for (reading, value) in rows {
        let Some(card) = cards.iter().find(|card| card.uuid == label(reading, "uuid")) else { continue };
        if !is_headed {
            head(page, name, is_counter, help);
            is_headed = true;
        }
        let gi = label(reading, "gi");
        let mut labels = card.front.clone();
        if !gi.is_empty() {
            put(&mut labels, "GPU_I_PROFILE", "");
            put(&mut labels, "GPU_I_ID", gi);
        }
        let _ = write!(labels, ",{}", card.back);
        let pod = pod(readings, card.uuid, gi);
        if !pod.is_empty() {
            let _ = write!(labels, ",{pod}");
        }
        let _ = writeln!(page, "{name}{{{labels}}} {value}");
    }
}

/// Sent and received together.
fn nvlink(page: &mut String, cards: &[Card<'_>], readings: &[Reading]) {
    let mut rows: Vec<(&Reading, f64)> = Vec::new();
    for reading in readings.iter().filter(|r| r.desc.name == canonical::GPU_NVLINK_BYTES_TOTAL.name) {
        let of = |(known, _): &&mut (&Reading, f64)| label(known, "uuid") == label(reading, "uuid");
        match rows.iter_mut().find(of) {
            Some((_, sum)) => *sum += reading.value,
            None => rows.push((reading, reading.value)),
        }
    }
    let help = "Bytes over all NVLinks.";
    write(page, ("DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL", true, help), cards, readings, &rows);
}

/// The mask of reasons for which clocks are held back.
fn reasons(page: &mut String, cards: &[Card<'_>], readings: &[Reading]) {
    let mut rows: Vec<(&Reading, f64)> = Vec::new();
    for reading in readings.iter().filter(|r| r.desc.name == canonical::GPU_THROTTLE_ACTIVE.name) {
        let bit = canonical::THROTTLE_BITS.iter().find(|(_, reason)| *reason == label(reading, "reason"));
        let value = bit.map_or(0.0, |(bit, _)| *bit as f64 * reading.value);
        let of = |(known, _): &&mut (&Reading, f64)| label(known, "uuid") == label(reading, "uuid");
        match rows.iter_mut().find(of) {
            Some((_, sum)) => *sum += value,
            None => rows.push((reading, value)),
        }
    }
    let help = "Mask of reasons for which clocks are held back.";
    write(page, ("DCGM_FI_DEV_CLOCKS_EVENT_REASONS", false, help), cards, readings, &rows);
}

fn xid_errors(page: &mut String, cards: &[Card<'_>], readings: &[Reading], xids: &BTreeMap<String, u64>) {
    let infos = readings.iter().filter(|reading| reading.desc.name == canonical::GPU_INFO.name);
    let rows: Vec<(&Reading, f64)> =
        infos.map(|info| (info, xids.get(label(info, "uuid")).copied().unwrap_or(0) as f64)).collect();
    write(page, ("DCGM_FI_DEV_XID_ERRORS", false, "The last Xid that was seen."), cards, readings, &rows);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reading(desc: &'static Desc, labels: &[(&'static str, &str)], value: f64) -> Reading {
        let labels = labels.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
        Reading { desc, labels, value }
    }

    #[test]
    fn names_labels_and_units_are_the_exporters() {
        let gpu = [("gpu", "0"), ("uuid", "GPU-1")];
        let with = |more: &[(&'static str, &'static str)]| [&gpu[..], more].concat();
        let readings = [
            reading(
                &canonical::GPU_INFO,
                &with(&[("gpu_model", "H100"), ("driver", "580.95.05"), ("pci_bus_id", "0000:1b:00.0")]),
                1.0,
            ),
            reading(&canonical::GPU_SM_CLOCK_HERTZ, &gpu, 1.98e9),
            reading(&canonical::GPU_MEMORY_USED_BYTES, &with(&[("gi", "3")]), 3_145_728.0),
            reading(&canonical::GPU_ENERGY_JOULES_TOTAL, &gpu, 9_100_358_369.229),
            reading(&canonical::GPU_THROTTLE_ACTIVE, &with(&[("reason", "sw_thermal")]), 1.0),
            reading(&canonical::GPU_THROTTLE_ACTIVE, &with(&[("reason", "hw_thermal")]), 1.0),
            reading(&canonical::GPU_THROTTLE_ACTIVE, &with(&[("reason", "sw_power")]), 0.0),
            reading(
                &canonical::GPU_OWNER_INFO,
                &with(&[("namespace", "serving"), ("pod", "chat"), ("container", "vllm")]),
                1.0,
            ),
        ];
        let page = page("node-1", &readings, &BTreeMap::from([("GPU-1".to_owned(), 79)]));
        let front =
            "gpu=\"0\",UUID=\"GPU-1\",pci_bus_id=\"00000000:1B:00.0\",device=\"nvidia0\",modelName=\"H100\"";
        let back = "Hostname=\"node-1\",hostname=\"node-1\",DCGM_FI_DRIVER_VERSION=\"580.95.05\"";
        let pod = "container=\"vllm\",namespace=\"serving\",pod=\"chat\"";
        let rows: Vec<&str> = page.lines().filter(|line| !line.starts_with('#')).collect();
        assert_eq!(
            rows,
            [
                format!("DCGM_FI_DEV_SM_CLOCK{{{front},{back},{pod}}} 1980"),
                format!("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION{{{front},{back},{pod}}} 9100358369229"),
                format!("DCGM_FI_DEV_FB_USED{{{front},GPU_I_PROFILE=\"\",GPU_I_ID=\"3\",{back}}} 3"),
                format!("DCGM_FI_DEV_CLOCKS_EVENT_REASONS{{{front},{back},{pod}}} 96"),
                format!("DCGM_FI_DEV_XID_ERRORS{{{front},{back},{pod}}} 79"),
            ]
        );
    }
}
