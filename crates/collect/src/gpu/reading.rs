//! The readings of a device: what is asked in a tick, and how the answer becomes values.

use model::Desc;

use super::{
    code::Code,
    descs::{
        GPU_ECC_ERRORS, GPU_ENERGY, GPU_GRAPHICS_CLOCK, GPU_MEMORY_CLOCK, GPU_MEMORY_FREE,
        GPU_MEMORY_RESERVED, GPU_MEMORY_TOTAL, GPU_MEMORY_USED, GPU_MEMORY_UTILIZATION, GPU_PCIE_GENERATION,
        GPU_PCIE_RECEIVE, GPU_PCIE_REPLAYS, GPU_PCIE_TRANSMIT, GPU_PCIE_WIDTH, GPU_POWER, GPU_POWER_LIMIT,
        GPU_POWER_LIMIT_RATIO, GPU_ROW_REMAP_FAILED, GPU_ROW_REMAP_PENDING, GPU_ROW_REMAPS, GPU_SM_CLOCK,
        GPU_TEMPERATURE, GPU_THROTTLED, GPU_UTILIZATION,
    },
    ffi::{Handle, Library},
    throttle::{Labels, TIMES},
};

/// One value of a tick.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct GpuValue {
    /// The metric.
    pub metric: &'static Desc,
    /// Its labels beside `host` and `gpu`: name and value.
    pub labels: &'static [(&'static str, &'static str)],
    /// The value, in the metric's unit.
    pub value: f64,
}

/// Why a reading gave no values.
pub(super) enum Trouble {
    Refused(Code),
    /// It answered with something that is no measurement.
    Senseless(String),
}

impl From<Code> for Trouble {
    fn from(code: Code) -> Self {
        Self::Refused(code)
    }
}

/// The device that is asked.
pub(super) struct Asked<'a> {
    pub(super) library: &'a Library,
    pub(super) handle: Handle,
    /// Whether the driver has the memory structure that keeps its own reserve apart.
    pub(super) has_memory_v2: bool,
}

/// What a tick has so far, and what a reading adds.
#[derive(Default)]
pub(super) struct Values {
    pub(super) values: Vec<GpuValue>,
    pub(super) throttle_mask: Option<u64>,
}

impl Values {
    fn put(&mut self, metric: &'static Desc, value: f64) {
        self.put_with(metric, &[], value);
    }

    fn put_with(&mut self, metric: &'static Desc, labels: Labels, value: f64) {
        self.values.push(GpuValue { metric, labels, value });
    }
}

/// One call to the driver.
pub(super) struct Reading {
    pub(super) call: &'static str,
    /// The metric it is for; the first one where it feeds several.
    pub(super) metric: &'static Desc,
    pub(super) read: fn(&Asked<'_>, &mut Values) -> Result<(), Trouble>,
}

/// Everything that is asked in a tick, in this order. The PCIe throughput comes last: the driver
/// measures for 20 ms while it is asked.
pub(super) const READINGS: &[Reading] = &[
    Reading { call: "nvmlDeviceGetUtilizationRates", metric: &GPU_UTILIZATION, read: utilization },
    Reading { call: "nvmlDeviceGetMemoryInfo", metric: &GPU_MEMORY_USED, read: memory },
    Reading { call: "nvmlDeviceGetTemperature", metric: &GPU_TEMPERATURE, read: temperature },
    Reading { call: "nvmlDeviceGetPowerUsage", metric: &GPU_POWER, read: power },
    Reading { call: "nvmlDeviceGetClockInfo", metric: &GPU_SM_CLOCK, read: sm_clock },
    Reading { call: "nvmlDeviceGetClockInfo", metric: &GPU_GRAPHICS_CLOCK, read: graphics_clock },
    Reading { call: "nvmlDeviceGetClockInfo", metric: &GPU_MEMORY_CLOCK, read: memory_clock },
    Reading { call: "nvmlDeviceGetEnforcedPowerLimit", metric: &GPU_POWER_LIMIT, read: power_limit },
    Reading { call: "nvmlDeviceGetTotalEnergyConsumption", metric: &GPU_ENERGY, read: energy },
    Reading { call: "nvmlDeviceGetFieldValues", metric: &GPU_THROTTLED, read: throttled },
    Reading { call: "nvmlDeviceGetCurrentClocksEventReasons", metric: &GPU_THROTTLED, read: throttle_mask },
    Reading { call: "nvmlDeviceGetTotalEccErrors", metric: &GPU_ECC_ERRORS, read: ecc::<0, 0> },
    Reading { call: "nvmlDeviceGetTotalEccErrors", metric: &GPU_ECC_ERRORS, read: ecc::<1, 0> },
    Reading { call: "nvmlDeviceGetTotalEccErrors", metric: &GPU_ECC_ERRORS, read: ecc::<0, 1> },
    Reading { call: "nvmlDeviceGetTotalEccErrors", metric: &GPU_ECC_ERRORS, read: ecc::<1, 1> },
    Reading { call: "nvmlDeviceGetRemappedRows", metric: &GPU_ROW_REMAPS, read: remapped_rows },
    Reading {
        call: "nvmlDeviceGetCurrPcieLinkGeneration",
        metric: &GPU_PCIE_GENERATION,
        read: pcie_generation,
    },
    Reading { call: "nvmlDeviceGetCurrPcieLinkWidth", metric: &GPU_PCIE_WIDTH, read: pcie_width },
    Reading { call: "nvmlDeviceGetPcieReplayCounter", metric: &GPU_PCIE_REPLAYS, read: pcie_replays },
    Reading { call: "nvmlDeviceGetPcieThroughput", metric: &GPU_PCIE_TRANSMIT, read: pcie_transmit },
    Reading { call: "nvmlDeviceGetPcieThroughput", metric: &GPU_PCIE_RECEIVE, read: pcie_receive },
];

/// A number that the driver can mean: all ones is how drivers write "I do not know".
fn sensible(number: u32) -> Result<f64, Trouble> {
    if number == u32::MAX { Err(senseless(number)) } else { Ok(f64::from(number)) }
}

fn sensible_wide(number: u64) -> Result<f64, Trouble> {
    if number == u64::MAX { Err(senseless(number)) } else { Ok(number as f64) }
}

fn senseless(found: impl std::fmt::Display) -> Trouble {
    Trouble::Senseless(format!("found {found}, which is no measurement"))
}

fn utilization(asked: &Asked<'_>, out: &mut Values) -> Result<(), Trouble> {
    let percent = asked.library.utilization(asked.handle)?.gpu;
    if percent > 100 {
        return Err(senseless(percent));
    }
    out.put(&GPU_UTILIZATION, f64::from(percent));
    Ok(())
}

fn memory(asked: &Asked<'_>, out: &mut Values) -> Result<(), Trouble> {
    let (total, used, free, reserved) = if asked.has_memory_v2 {
        let memory = asked.library.memory_v2(asked.handle)?;
        (memory.total, memory.used, memory.free, Some(memory.reserved))
    } else {
        let memory = asked.library.memory(asked.handle)?;
        (memory.total, memory.used, memory.free, None)
    };
    if used > total || free > total {
        return Err(Trouble::Senseless(format!("found {used} B used and {free} B free of {total} B")));
    }
    out.put(&GPU_MEMORY_USED, used as f64);
    if total > 0 {
        out.put(&GPU_MEMORY_UTILIZATION, used as f64 / total as f64 * 100.0);
    }
    out.put(&GPU_MEMORY_FREE, free as f64);
    out.put(&GPU_MEMORY_TOTAL, total as f64);
    if let Some(reserved) = reserved {
        out.put(&GPU_MEMORY_RESERVED, reserved as f64);
    }
    Ok(())
}

fn temperature(asked: &Asked<'_>, out: &mut Values) -> Result<(), Trouble> {
    out.put(&GPU_TEMPERATURE, sensible(asked.library.temperature(asked.handle)?)?);
    Ok(())
}

fn power(asked: &Asked<'_>, out: &mut Values) -> Result<(), Trouble> {
    out.put(&GPU_POWER, sensible(asked.library.power_mw(asked.handle)?)? / 1000.0);
    Ok(())
}

fn power_limit(asked: &Asked<'_>, out: &mut Values) -> Result<(), Trouble> {
    let limit = sensible(asked.library.power_limit_mw(asked.handle)?)? / 1000.0;
    out.put(&GPU_POWER_LIMIT, limit);
    let power = out.values.iter().find(|value| value.metric.name == GPU_POWER.name).map(|power| power.value);
    if let Some(power) = power.filter(|_| limit > 0.0) {
        out.put(&GPU_POWER_LIMIT_RATIO, power / limit);
    }
    Ok(())
}

fn energy(asked: &Asked<'_>, out: &mut Values) -> Result<(), Trouble> {
    out.put(&GPU_ENERGY, sensible_wide(asked.library.energy_mj(asked.handle)?)? / 1000.0);
    Ok(())
}

fn sm_clock(asked: &Asked<'_>, out: &mut Values) -> Result<(), Trouble> {
    out.put(&GPU_SM_CLOCK, sensible(asked.library.clock_mhz(asked.handle, 1)?)?);
    Ok(())
}

fn graphics_clock(asked: &Asked<'_>, out: &mut Values) -> Result<(), Trouble> {
    out.put(&GPU_GRAPHICS_CLOCK, sensible(asked.library.clock_mhz(asked.handle, 0)?)?);
    Ok(())
}

fn memory_clock(asked: &Asked<'_>, out: &mut Values) -> Result<(), Trouble> {
    out.put(&GPU_MEMORY_CLOCK, sensible(asked.library.clock_mhz(asked.handle, 2)?)?);
    Ok(())
}

/// Each field that answers; the first refusal when none does.
fn throttled(asked: &Asked<'_>, out: &mut Values) -> Result<(), Trouble> {
    let times = asked.library.fields(asked.handle, TIMES.map(|(field, _)| field))?;
    let mut refused = None;
    let before = out.values.len();
    for ((_, labels), time) in TIMES.iter().zip(times) {
        match time {
            Ok(u64::MAX) => {}
            Ok(ns) => out.put_with(&GPU_THROTTLED, labels, ns as f64 / 1e9),
            Err(code) => refused = refused.or(Some(code)),
        }
    }
    match refused {
        Some(code) if out.values.len() == before => Err(code.into()),
        _ => Ok(()),
    }
}

fn throttle_mask(asked: &Asked<'_>, out: &mut Values) -> Result<(), Trouble> {
    out.throttle_mask = Some(asked.library.throttle_mask(asked.handle)?);
    Ok(())
}

fn ecc<const KIND: u32, const SCOPE: u32>(asked: &Asked<'_>, out: &mut Values) -> Result<(), Trouble> {
    let labels: Labels = match (KIND, SCOPE) {
        (0, 0) => &[("kind", "corrected"), ("scope", "volatile")],
        (0, _) => &[("kind", "corrected"), ("scope", "aggregate")],
        (_, 0) => &[("kind", "uncorrected"), ("scope", "volatile")],
        _ => &[("kind", "uncorrected"), ("scope", "aggregate")],
    };
    let errors = sensible_wide(asked.library.ecc_errors(asked.handle, KIND, SCOPE)?)?;
    out.put_with(&GPU_ECC_ERRORS, labels, errors);
    Ok(())
}

fn remapped_rows(asked: &Asked<'_>, out: &mut Values) -> Result<(), Trouble> {
    let rows = asked.library.remapped_rows(asked.handle)?;
    out.put_with(&GPU_ROW_REMAPS, &[("kind", "corrected")], sensible(rows.corrected)?);
    out.put_with(&GPU_ROW_REMAPS, &[("kind", "uncorrected")], sensible(rows.uncorrected)?);
    out.put(&GPU_ROW_REMAP_PENDING, f64::from(u8::from(rows.pending != 0)));
    out.put(&GPU_ROW_REMAP_FAILED, f64::from(u8::from(rows.failed != 0)));
    Ok(())
}

fn pcie_generation(asked: &Asked<'_>, out: &mut Values) -> Result<(), Trouble> {
    out.put(&GPU_PCIE_GENERATION, sensible(asked.library.pcie_generation(asked.handle)?)?);
    Ok(())
}

fn pcie_width(asked: &Asked<'_>, out: &mut Values) -> Result<(), Trouble> {
    out.put(&GPU_PCIE_WIDTH, sensible(asked.library.pcie_width(asked.handle)?)?);
    Ok(())
}

fn pcie_replays(asked: &Asked<'_>, out: &mut Values) -> Result<(), Trouble> {
    out.put(&GPU_PCIE_REPLAYS, sensible(asked.library.pcie_replays(asked.handle)?)?);
    Ok(())
}

fn pcie_transmit(asked: &Asked<'_>, out: &mut Values) -> Result<(), Trouble> {
    out.put(&GPU_PCIE_TRANSMIT, sensible(asked.library.pcie_throughput_kb(asked.handle, 0)?)? * 1000.0);
    Ok(())
}

fn pcie_receive(asked: &Asked<'_>, out: &mut Values) -> Result<(), Trouble> {
    out.put(&GPU_PCIE_RECEIVE, sensible(asked.library.pcie_throughput_kb(asked.handle, 1)?)? * 1000.0);
    Ok(())
}
