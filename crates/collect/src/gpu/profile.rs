//! Profiling counters (NVML's GPM): what the parts of the GPU did between two ticks. Hopper and newer.

use std::time::{Duration, Instant};

use model::Desc;

use super::{
    descs::{
        GPU_DRAM_ACTIVE, GPU_FP16_ACTIVE, GPU_FP32_ACTIVE, GPU_FP64_ACTIVE, GPU_GRAPHICS_ACTIVE,
        GPU_PCIE_RECEIVE, GPU_PCIE_TRANSMIT, GPU_SM_ACTIVE, GPU_SM_OCCUPANCY, GPU_TENSOR_ACTIVE,
    },
    ffi::Profile,
    reading::{Device, Trouble, senseless},
};

/// NVML's numbers of what is asked, and the metrics they become: percent first, then MiB a second.
pub(super) const IDS: [u32; 10] = [2, 3, 5, 10, 11, 12, 13, 1, 20, 21];
pub(super) const METRICS: [&Desc; 10] = [
    &GPU_SM_ACTIVE,
    &GPU_SM_OCCUPANCY,
    &GPU_TENSOR_ACTIVE,
    &GPU_DRAM_ACTIVE,
    &GPU_FP64_ACTIVE,
    &GPU_FP32_ACTIVE,
    &GPU_FP16_ACTIVE,
    &GPU_GRAPHICS_ACTIVE,
    &GPU_PCIE_TRANSMIT,
    &GPU_PCIE_RECEIVE,
];
/// The metrics that come from here only.
pub(super) const RATIOS: &[&Desc] = METRICS.split_at(8).0;

/// The driver refreshes the counters that often, so what lies closer together says nothing.
pub(super) const APART_MIN: Duration = Duration::from_millis(100);
/// Rounding of the driver's own above a hundred percent.
pub(super) const PERCENT_MAX: f64 = 101.0;

/// The profiling of one device from tick to tick.
#[derive(Default)]
pub(super) struct Profiling<'a> {
    profile: Option<Profile<'a>>,
    /// When the last sample was taken; `None` before the first one and after a failure.
    sampled: Option<Instant>,
}

/// Takes a sample and emits what lies between it and the one of the tick before.
pub(super) fn profile(device: &mut Device<'_>) -> Result<(), Trouble> {
    if device.is_partitioned {
        // Each slice has its own.
        device.is_by_heart = true;
        return Ok(());
    }
    let (library, handle) = (device.library, device.handle);
    let profiling = &mut device.profiling;
    let profile = match &mut profiling.profile {
        Some(profile) => profile,
        none => none.insert(Profile::new(library, handle, &IDS)?),
    };
    let now = Instant::now();
    let before = profiling.sampled;
    if before.is_some_and(|before| now - before < APART_MIN) {
        device.is_by_heart = true;
        return Ok(());
    }
    profiling.sampled = None;
    profile.sample(handle)?;
    profiling.sampled = Some(now);
    if before.is_none() {
        return Ok(());
    }
    let mut odd = None;
    for (number, metric) in profile.between()?.zip(METRICS) {
        match number {
            Ok(rate) if is_pcie(metric) && rate.is_finite() && rate >= 0.0 => {
                device.values.put(metric, rate * f64::from(1 << 20));
                device.has_pcie_rates = true;
            }
            Ok(percent) if (0.0..=PERCENT_MAX).contains(&percent) => {
                device.values.put(metric, (percent / 100.0).min(1.0));
            }
            Ok(found) => odd = Some(senseless(found)),
            // The rates of PCIe are told by another call too.
            Err(code) if code.is_unsupported() && is_pcie(metric) => {}
            Err(code) if code.is_unsupported() => device.values.lacks(metric),
            Err(code) => odd = Some(code.into()),
        }
    }
    // The others of this call are values all the same.
    odd.map_or(Ok(()), |trouble| Err(trouble.beside_values()))
}

pub(super) fn is_pcie(metric: &Desc) -> bool {
    metric.name == GPU_PCIE_TRANSMIT.name || metric.name == GPU_PCIE_RECEIVE.name
}
