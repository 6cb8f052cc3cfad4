//! The readings of a device: what is asked in a tick, and how the answer becomes values.

use model::Desc;

use super::{
    code::Code,
    descs::{
        GPU_ECC_ERRORS, GPU_ENERGY, GPU_GRAPHICS_CLOCK, GPU_MEMORY_CLOCK, GPU_MEMORY_FREE,
        GPU_MEMORY_RESERVED, GPU_MEMORY_TEMPERATURE, GPU_MEMORY_TOTAL, GPU_MEMORY_USED,
        GPU_MEMORY_UTILIZATION, GPU_NVLINK_ACTIVE, GPU_NVLINK_BYTES, GPU_NVLINK_ERRORS, GPU_PCIE_GENERATION,
        GPU_PCIE_GENERATION_MAX, GPU_PCIE_RECEIVE, GPU_PCIE_REPLAYS, GPU_PCIE_TRANSMIT, GPU_PCIE_WIDTH,
        GPU_PCIE_WIDTH_MAX, GPU_POWER, GPU_POWER_LIMIT, GPU_POWER_LIMIT_RATIO, GPU_RECOVERY_ACTION,
        GPU_ROW_REMAP_FAILED, GPU_ROW_REMAP_PENDING, GPU_ROW_REMAPS, GPU_SM_CLOCK, GPU_SM_CLOCK_MAX,
        GPU_TEMPERATURE, GPU_TEMPERATURE_MARGIN, GPU_THROTTLED, GPU_UTILIZATION,
    },
    device::{GpuDevice, GpuMemoryAccount},
    ffi::{FieldValue, Handle, Library},
    nvlink::{self, Links},
    profile::{self, Profiling},
    slices::{self, Slices},
    throttle::{self, Labels},
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
    /// The GPU instance that it is of; `None` for the whole device.
    pub instance: Option<u32>,
}

/// Why a reading gave no values.
pub(super) enum Trouble {
    Refused(Code),
    /// It answered with something that is no measurement.
    Senseless(String),
    /// One of several numbers was refused or senseless; the values of the others stand.
    Partly(Box<Trouble>),
}

impl Trouble {
    pub(super) fn beside_values(self) -> Self {
        Self::Partly(Box::new(self))
    }

    /// The driver's answer when it says that the device is gone.
    pub(super) fn lost(&self) -> Option<Code> {
        match self {
            Self::Refused(code) => code.is_lost().then_some(*code),
            Self::Senseless(_) => None,
            Self::Partly(trouble) => trouble.lost(),
        }
    }

    /// A word of a fixed set for it, and what was found.
    pub(super) fn explain(self) -> (&'static str, String) {
        match self {
            Self::Refused(Code::NO_PERMISSION) => (
                "no_permission",
                format!("answered {}: the driver keeps it to administrators here", Code::NO_PERMISSION),
            ),
            Self::Refused(code) if code.is_lost() => ("gpu_lost", format!("answered {code}")),
            Self::Refused(code) => ("unreadable", format!("answered {code}")),
            Self::Senseless(found) => ("unreadable", found),
            Self::Partly(trouble) => trouble.explain(),
        }
    }
}

impl From<Code> for Trouble {
    fn from(code: Code) -> Self {
        Self::Refused(code)
    }
}

/// The device that is asked, and what is kept of it between two ticks.
pub(super) struct Device<'a> {
    pub(super) library: &'a Library,
    pub(super) handle: Handle,
    pub(super) capability: Option<(u32, u32)>,
    pub(super) profiling: Profiling<'a>,
    pub(super) links: Links,
    /// Whether it is partitioned: then memory and profiling are told of its slices.
    pub(super) is_partitioned: bool,
    pub(super) slices: Slices<'a>,
    pub(super) values: Values,
    /// Whether this tick has the PCIe rates already, from profiling.
    pub(super) has_pcie_rates: bool,
    /// Whether the driver has the memory structure that keeps its own reserve apart.
    has_memory_v2: bool,
    driver: Option<(u32, u32)>,
    fields: Fields,
    power_watts: Option<f64>,
    /// Whether the reading that is under way gave what was known, without a call.
    pub(super) is_by_heart: bool,
    /// What never changes, once it was told: the highest SM clock, PCIe generation and width.
    fixed: [Option<f64>; 3],
}

/// What the readings of a tick gave, until it is passed on.
#[derive(Default)]
pub(super) struct Values {
    pub(super) given: Vec<GpuValue>,
    pub(super) throttle_mask: Option<u64>,
    /// Metrics of which a call told by itself that the device has them not.
    pub(super) lacking: Vec<&'static Desc>,
}

impl Values {
    pub(super) fn put(&mut self, metric: &'static Desc, value: f64) {
        self.put_with(metric, &[], value);
    }

    pub(super) fn put_with(&mut self, metric: &'static Desc, labels: Labels, value: f64) {
        self.given.push(GpuValue { metric, labels, value, instance: None });
    }

    pub(super) fn put_of(&mut self, instance: u32, metric: &'static Desc, value: f64) {
        self.given.push(GpuValue { metric, labels: &[], value, instance: Some(instance) });
    }

    pub(super) fn lacks(&mut self, metric: &'static Desc) {
        self.lacking.push(metric);
    }
}

/// Numbers that are asked by their id, all in one call a tick.
struct Fields {
    fields: Vec<FieldValue>,
    /// How this tick's call went; `None` before it.
    outcome: Option<Result<(), Code>>,
}

const MEMORY_TEMPERATURE: u32 = 82;
const RECOVERY_ACTION: u32 = 230;
/// The first driver that has the recovery action.
const RECOVERY_ACTION_SINCE: (u32, u32) = (570, 0);

impl<'a> Device<'a> {
    pub(super) fn new(
        library: &'a Library,
        handle: Handle,
        device: &GpuDevice,
        driver: Option<(u32, u32)>,
    ) -> Self {
        let has_recovery_action = driver.is_some_and(|version| version >= RECOVERY_ACTION_SINCE);
        let fields = throttle::times(driver)
            .map(|(field, _)| (field, 0))
            .chain([(MEMORY_TEMPERATURE, 0)])
            .chain(has_recovery_action.then_some((RECOVERY_ACTION, 0)))
            .chain(nvlink::fields())
            .map(|(field, scope)| FieldValue::new(field, scope))
            .collect();
        Self {
            library,
            handle,
            capability: device.compute_capability,
            profiling: Profiling::default(),
            links: Links::default(),
            is_partitioned: device.mig,
            slices: Slices::default(),
            values: Values::default(),
            has_pcie_rates: false,
            has_memory_v2: device.memory == GpuMemoryAccount::Allocated,
            driver,
            fields: Fields { fields, outcome: None },
            power_watts: None,
            is_by_heart: false,
            fixed: [None; 3],
        }
    }

    /// Forgets what was of the last tick.
    pub(super) fn begin(&mut self) {
        self.fields.outcome = None;
        self.power_watts = None;
        self.has_pcie_rates = false;
    }

    /// The number of a field; the first question of a tick asks for all of them. One that this device, or
    /// this driver, does not have is not asked again.
    pub(super) fn field(&mut self, field: u32, scope: u32) -> Result<u64, Code> {
        let Fields { fields, outcome } = &mut self.fields;
        let Some(at) = fields.iter().position(|known| known.is(field, scope)) else {
            return Err(Code::NOT_SUPPORTED);
        };
        let (library, handle) = (self.library, self.handle);
        (*outcome.get_or_insert_with(|| library.fields(handle, fields)))?;
        match fields[at].count() {
            // A driver that is older than the field calls its number an invalid argument.
            Err(code) if code.is_unsupported() || code == Code::INVALID_ARGUMENT => {
                fields.remove(at);
                Err(Code::NOT_SUPPORTED)
            }
            answer => answer,
        }
    }

    /// What never changes: asked until it is told.
    fn fixed(
        &mut self,
        which: usize,
        ask: impl FnOnce(&Library, Handle) -> Result<u32, Code>,
    ) -> Result<f64, Trouble> {
        match self.fixed[which] {
            Some(known) => {
                self.is_by_heart = true;
                Ok(known)
            }
            None => Ok(*self.fixed[which].insert(sensible(ask(self.library, self.handle)?)?)),
        }
    }
}

/// One question to the driver.
pub(super) struct Reading {
    pub(super) call: &'static str,
    /// The metrics that it feeds; failures name the first one.
    pub(super) metrics: &'static [&'static Desc],
    pub(super) read: fn(&mut Device<'_>) -> Result<(), Trouble>,
}

impl Reading {
    /// The metric that failures name; the mask, which feeds none, is a view of the time held back.
    pub(super) fn metric(&self) -> &'static Desc {
        self.metrics.first().copied().unwrap_or(&GPU_THROTTLED)
    }
}

const fn reading(
    call: &'static str,
    metrics: &'static [&'static Desc],
    read: fn(&mut Device<'_>) -> Result<(), Trouble>,
) -> Reading {
    Reading { call, metrics, read }
}

const MEMORY: &[&Desc] =
    &[&GPU_MEMORY_USED, &GPU_MEMORY_UTILIZATION, &GPU_MEMORY_FREE, &GPU_MEMORY_RESERVED, &GPU_MEMORY_TOTAL];
const ROWS: &[&Desc] = &[&GPU_ROW_REMAPS, &GPU_ROW_REMAP_PENDING, &GPU_ROW_REMAP_FAILED];
const FIELDS: &str = "nvmlDeviceGetFieldValues";
const CLOCK: &str = "nvmlDeviceGetClockInfo";
const ECC: &str = "nvmlDeviceGetTotalEccErrors";

/// Everything that is asked in a tick, in this order. The PCIe throughput comes last: the driver
/// measures for 20 ms while it is asked, and profiling may have told it before.
pub(super) const READINGS: &[Reading] = &[
    reading("nvmlDeviceGetUtilizationRates", &[&GPU_UTILIZATION], utilization),
    reading("nvmlDeviceGetMemoryInfo", MEMORY, memory),
    reading("nvmlDeviceGetTemperature", &[&GPU_TEMPERATURE], temperature),
    // The share of the limit takes both calls, so it is lacking where either is.
    reading("nvmlDeviceGetPowerUsage", &[&GPU_POWER, &GPU_POWER_LIMIT_RATIO], power),
    reading(CLOCK, &[&GPU_SM_CLOCK], sm_clock),
    reading("nvmlDeviceGetMaxClockInfo", &[&GPU_SM_CLOCK_MAX], sm_clock_max),
    reading(CLOCK, &[&GPU_GRAPHICS_CLOCK], graphics_clock),
    reading(CLOCK, &[&GPU_MEMORY_CLOCK], memory_clock),
    reading("nvmlDeviceGetEnforcedPowerLimit", &[&GPU_POWER_LIMIT, &GPU_POWER_LIMIT_RATIO], power_limit),
    reading("nvmlDeviceGetTotalEnergyConsumption", &[&GPU_ENERGY], energy),
    reading(FIELDS, &[&GPU_THROTTLED], throttled),
    reading(FIELDS, &[&GPU_MEMORY_TEMPERATURE], memory_temperature),
    reading(FIELDS, &[&GPU_RECOVERY_ACTION], recovery_action),
    reading("nvmlDeviceGetMarginTemperature", &[&GPU_TEMPERATURE_MARGIN], margin),
    reading("nvmlDeviceGetCurrentClocksEventReasons", &[], throttle_mask),
    reading(ECC, &[&GPU_ECC_ERRORS], ecc::<0, 0>),
    reading(ECC, &[&GPU_ECC_ERRORS], ecc::<1, 0>),
    reading(ECC, &[&GPU_ECC_ERRORS], ecc::<0, 1>),
    reading(ECC, &[&GPU_ECC_ERRORS], ecc::<1, 1>),
    reading("nvmlDeviceGetRemappedRows", ROWS, remapped_rows),
    reading("nvmlDeviceGetNvLinkState", &[&GPU_NVLINK_ACTIVE, &GPU_NVLINK_ERRORS], nvlink::links),
    reading(FIELDS, &[&GPU_NVLINK_BYTES], nvlink::bytes),
    reading("nvmlGpmMetricsGet", profile::RATIOS, profile::profile),
    reading("nvmlDeviceGetMigDeviceHandleByIndex", &[], slices::slices),
    reading("nvmlDeviceGetCurrPcieLinkGeneration", &[&GPU_PCIE_GENERATION], pcie_generation),
    reading("nvmlDeviceGetCurrPcieLinkWidth", &[&GPU_PCIE_WIDTH], pcie_width),
    reading("nvmlDeviceGetMaxPcieLinkGeneration", &[&GPU_PCIE_GENERATION_MAX], pcie_generation_max),
    reading("nvmlDeviceGetMaxPcieLinkWidth", &[&GPU_PCIE_WIDTH_MAX], pcie_width_max),
    reading("nvmlDeviceGetPcieReplayCounter", &[&GPU_PCIE_REPLAYS], pcie_replays),
    reading("nvmlDeviceGetPcieThroughput", &[&GPU_PCIE_TRANSMIT], pcie_transmit),
    reading("nvmlDeviceGetPcieThroughput", &[&GPU_PCIE_RECEIVE], pcie_receive),
];

/// A number that the driver can mean: all ones is how drivers write "I do not know".
fn sensible(number: u32) -> Result<f64, Trouble> {
    if number == u32::MAX { Err(senseless(number)) } else { Ok(f64::from(number)) }
}

pub(super) fn sensible_wide(number: u64) -> Result<f64, Trouble> {
    if number == u64::MAX { Err(senseless(number)) } else { Ok(number as f64) }
}

pub(super) fn senseless(found: impl std::fmt::Display) -> Trouble {
    Trouble::Senseless(format!("found {found}, which is no measurement"))
}

fn utilization(device: &mut Device<'_>) -> Result<(), Trouble> {
    let percent = device.library.utilization(device.handle)?.gpu;
    if percent > 100 {
        return Err(senseless(percent));
    }
    device.values.put(&GPU_UTILIZATION, f64::from(percent));
    Ok(())
}

fn memory(device: &mut Device<'_>) -> Result<(), Trouble> {
    if device.is_partitioned {
        // Each slice has its own.
        device.is_by_heart = true;
        return Ok(());
    }
    let (total, used, free, reserved) = if device.has_memory_v2 {
        let memory = device.library.memory_v2(device.handle)?;
        (memory.total, memory.used, memory.free, Some(memory.reserved))
    } else {
        let memory = device.library.memory(device.handle)?;
        (memory.total, memory.used, memory.free, None)
    };
    if used > total || free > total {
        return Err(Trouble::Senseless(format!("found {used} B used and {free} B free of {total} B")));
    }
    device.values.put(&GPU_MEMORY_USED, used as f64);
    if total > 0 {
        device.values.put(&GPU_MEMORY_UTILIZATION, used as f64 / total as f64 * 100.0);
    }
    device.values.put(&GPU_MEMORY_FREE, free as f64);
    device.values.put(&GPU_MEMORY_TOTAL, total as f64);
    if let Some(reserved) = reserved {
        device.values.put(&GPU_MEMORY_RESERVED, reserved as f64);
    }
    Ok(())
}

fn temperature(device: &mut Device<'_>) -> Result<(), Trouble> {
    let degrees = device.library.temperature(device.handle)?;
    device.values.put(&GPU_TEMPERATURE, celsius(degrees)?);
    Ok(())
}

fn memory_temperature(device: &mut Device<'_>) -> Result<(), Trouble> {
    let degrees = device.field(MEMORY_TEMPERATURE, 0)?;
    device.values.put(&GPU_MEMORY_TEMPERATURE, celsius(i64::try_from(degrees).unwrap_or(i64::MAX))?);
    Ok(())
}

/// A temperature that silicon can have.
fn celsius(degrees: i64) -> Result<f64, Trouble> {
    if (0..=250).contains(&degrees) { Ok(degrees as f64) } else { Err(senseless(degrees)) }
}

fn margin(device: &mut Device<'_>) -> Result<(), Trouble> {
    let degrees = device.library.margin(device.handle)?;
    if !(-250..=250).contains(&degrees) {
        return Err(senseless(degrees));
    }
    device.values.put(&GPU_TEMPERATURE_MARGIN, f64::from(degrees));
    Ok(())
}

fn recovery_action(device: &mut Device<'_>) -> Result<(), Trouble> {
    let action = device.field(RECOVERY_ACTION, 0)?;
    if action > u64::from(u8::MAX) {
        return Err(senseless(action));
    }
    device.values.put(&GPU_RECOVERY_ACTION, action as f64);
    Ok(())
}

fn power(device: &mut Device<'_>) -> Result<(), Trouble> {
    let watts = sensible(device.library.power_mw(device.handle)?)? / 1000.0;
    device.power_watts = Some(watts);
    device.values.put(&GPU_POWER, watts);
    Ok(())
}

fn power_limit(device: &mut Device<'_>) -> Result<(), Trouble> {
    let limit = sensible(device.library.power_limit_mw(device.handle)?)? / 1000.0;
    device.values.put(&GPU_POWER_LIMIT, limit);
    if let Some(power) = device.power_watts.filter(|_| limit > 0.0) {
        device.values.put(&GPU_POWER_LIMIT_RATIO, power / limit);
    }
    Ok(())
}

fn energy(device: &mut Device<'_>) -> Result<(), Trouble> {
    device.values.put(&GPU_ENERGY, sensible_wide(device.library.energy_mj(device.handle)?)? / 1000.0);
    Ok(())
}

fn sm_clock_max(device: &mut Device<'_>) -> Result<(), Trouble> {
    let clock = device.fixed(0, |library, handle| library.clock_max_mhz(handle, 1))?;
    device.values.put(&GPU_SM_CLOCK_MAX, clock);
    Ok(())
}

fn sm_clock(device: &mut Device<'_>) -> Result<(), Trouble> {
    device.values.put(&GPU_SM_CLOCK, sensible(device.library.clock_mhz(device.handle, 1)?)?);
    Ok(())
}

fn graphics_clock(device: &mut Device<'_>) -> Result<(), Trouble> {
    device.values.put(&GPU_GRAPHICS_CLOCK, sensible(device.library.clock_mhz(device.handle, 0)?)?);
    Ok(())
}

fn memory_clock(device: &mut Device<'_>) -> Result<(), Trouble> {
    device.values.put(&GPU_MEMORY_CLOCK, sensible(device.library.clock_mhz(device.handle, 2)?)?);
    Ok(())
}

/// Each field that answers; the first refusal when none does.
fn throttled(device: &mut Device<'_>) -> Result<(), Trouble> {
    let mut refused = None;
    let before = device.values.given.len();
    for (field, labels) in throttle::times(device.driver) {
        match device.field(field, 0) {
            Ok(u64::MAX) => {}
            Ok(ns) => device.values.put_with(&GPU_THROTTLED, labels, ns as f64 / 1e9),
            Err(code) => refused = refused.or(Some(code)),
        }
    }
    match refused {
        Some(code) if device.values.given.len() == before => Err(code.into()),
        _ => Ok(()),
    }
}

fn throttle_mask(device: &mut Device<'_>) -> Result<(), Trouble> {
    device.values.throttle_mask = Some(device.library.throttle_mask(device.handle)?);
    Ok(())
}

fn ecc<const KIND: u32, const SCOPE: u32>(device: &mut Device<'_>) -> Result<(), Trouble> {
    let labels: Labels = match (KIND, SCOPE) {
        (0, 0) => &[("kind", "corrected"), ("scope", "volatile")],
        (0, _) => &[("kind", "corrected"), ("scope", "aggregate")],
        (_, 0) => &[("kind", "uncorrected"), ("scope", "volatile")],
        _ => &[("kind", "uncorrected"), ("scope", "aggregate")],
    };
    let errors = sensible_wide(device.library.ecc_errors(device.handle, KIND, SCOPE)?)?;
    device.values.put_with(&GPU_ECC_ERRORS, labels, errors);
    Ok(())
}

fn remapped_rows(device: &mut Device<'_>) -> Result<(), Trouble> {
    let rows = device.library.remapped_rows(device.handle)?;
    device.values.put_with(&GPU_ROW_REMAPS, &[("kind", "corrected")], sensible(rows.corrected)?);
    device.values.put_with(&GPU_ROW_REMAPS, &[("kind", "uncorrected")], sensible(rows.uncorrected)?);
    device.values.put(&GPU_ROW_REMAP_PENDING, f64::from(u8::from(rows.pending != 0)));
    device.values.put(&GPU_ROW_REMAP_FAILED, f64::from(u8::from(rows.failed != 0)));
    Ok(())
}

fn pcie_generation(device: &mut Device<'_>) -> Result<(), Trouble> {
    device.values.put(&GPU_PCIE_GENERATION, sensible(device.library.pcie_generation(device.handle)?)?);
    Ok(())
}

fn pcie_width(device: &mut Device<'_>) -> Result<(), Trouble> {
    device.values.put(&GPU_PCIE_WIDTH, sensible(device.library.pcie_width(device.handle)?)?);
    Ok(())
}

fn pcie_generation_max(device: &mut Device<'_>) -> Result<(), Trouble> {
    let generation = device.fixed(1, Library::pcie_generation_max)?;
    device.values.put(&GPU_PCIE_GENERATION_MAX, generation);
    Ok(())
}

fn pcie_width_max(device: &mut Device<'_>) -> Result<(), Trouble> {
    let lanes = device.fixed(2, Library::pcie_width_max)?;
    device.values.put(&GPU_PCIE_WIDTH_MAX, lanes);
    Ok(())
}

fn pcie_replays(device: &mut Device<'_>) -> Result<(), Trouble> {
    device.values.put(&GPU_PCIE_REPLAYS, sensible(device.library.pcie_replays(device.handle)?)?);
    Ok(())
}

fn pcie_transmit(device: &mut Device<'_>) -> Result<(), Trouble> {
    pcie_throughput(device, 0, &GPU_PCIE_TRANSMIT)
}

fn pcie_receive(device: &mut Device<'_>) -> Result<(), Trouble> {
    pcie_throughput(device, 1, &GPU_PCIE_RECEIVE)
}

fn pcie_throughput(device: &mut Device<'_>, counter: u32, metric: &'static Desc) -> Result<(), Trouble> {
    if !device.has_pcie_rates {
        let kilobytes = sensible(device.library.pcie_throughput_kb(device.handle, counter)?)?;
        device.values.put(metric, kilobytes * 1000.0);
    }
    Ok(())
}
