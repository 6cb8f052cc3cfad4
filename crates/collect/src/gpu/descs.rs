//! Every metric of a GPU: name, unit, help and caveat, written once.

use model::{Desc, Unit};

const GPU: &[&str] = &["host", "gpu"];

const fn gauge(name: &'static str, unit: Unit, help: &'static str) -> Desc {
    Desc::gauge(name, unit, GPU, help)
}

/// Share of time in which any kernel was resident.
pub const GPU_UTILIZATION: Desc = gauge(
    "system/gpu/utilization",
    Unit::Percent,
    "Share of the driver's last sample period in which at least one kernel ran on the GPU.",
)
.caveat("One small kernel is enough for 100: it says that the GPU was in use, not how much of it.");

/// Memory in use.
pub const GPU_MEMORY_USED: Desc = gauge(
    "system/gpu/memory_used_bytes",
    Unit::Bytes,
    "Memory of the GPU that is allocated, what the driver reserves for itself left out.",
)
.caveat(
    "Frameworks allocate ahead of need, so full is not short. A driver without the second version of the \
     memory structure counts its own reserve too, some hundreds of megabytes.",
);

/// Memory in use as a share of the card's.
pub const GPU_MEMORY_UTILIZATION: Desc = gauge(
    "system/gpu/memory_utilization",
    Unit::Percent,
    "Allocated memory of the GPU as a share of all it has.",
)
.caveat("How full the memory is, not how busy; `nvidia-smi`'s memory utilisation is the latter.");

/// Core temperature.
pub const GPU_TEMPERATURE: Desc =
    gauge("system/gpu/temperature_celsius", Unit::Celsius, "Temperature of the GPU's core.")
        .caveat("Limits differ between models; throttled time says whether it was too hot.");

/// Board power.
pub const GPU_POWER: Desc = gauge("system/gpu/power_watts", Unit::Watts, "Power drawn by the whole board.")
    .caveat(
        "The mean of one second on most cards, a moment on others: integrate the energy counter instead.",
    );

/// SM clock.
pub const GPU_SM_CLOCK: Desc =
    gauge("system/gpu/sm_clock_mhz", Unit::Megahertz, "Clock of the streaming multiprocessors.")
        .caveat("Low at idle by design: compare under load.");

/// Graphics clock.
pub const GPU_GRAPHICS_CLOCK: Desc =
    gauge("system/gpu/graphics_clock_mhz", Unit::Megahertz, "Clock of the graphics domain.")
        .caveat("Low at idle by design: compare under load.");

/// Memory clock.
pub const GPU_MEMORY_CLOCK: Desc =
    gauge("system/gpu/memory_clock_mhz", Unit::Megahertz, "Clock of the GPU's memory.");

/// Memory nobody has.
pub const GPU_MEMORY_FREE: Desc =
    gauge("system/gpu/memory_free_bytes", Unit::Bytes, "Memory of the GPU that can still be allocated.");

/// Memory the driver keeps.
pub const GPU_MEMORY_RESERVED: Desc = gauge(
    "system/gpu/memory_reserved_bytes",
    Unit::Bytes,
    "Memory of the GPU that the driver and its firmware keep for themselves.",
);

/// All memory.
pub const GPU_MEMORY_TOTAL: Desc =
    gauge("system/gpu/memory_total_bytes", Unit::Bytes, "Memory of the GPU in all.");

/// The limit in force.
pub const GPU_POWER_LIMIT: Desc = gauge(
    "system/gpu/power_limit_watts",
    Unit::Watts,
    "The power limit in force: the lowest of those that were set for the board.",
);

/// Power as a share of the limit.
pub const GPU_POWER_LIMIT_RATIO: Desc = gauge(
    "system/gpu/power_limit_ratio",
    Unit::Ratio,
    "Power drawn by the board as a share of the limit in force.",
)
.caveat("Near 1 under full load is what the card is made for.");

/// Energy.
pub const GPU_ENERGY: Desc = Desc::counter(
    "system/gpu/energy_joules_total",
    Unit::Joules,
    GPU,
    "Energy used by the whole board since the driver was loaded.",
)
.caveat("Starts again at 0 when the driver is loaded anew.");

/// Time held back, by reason.
pub const GPU_THROTTLED: Desc = Desc::counter(
    "system/gpu/throttled_seconds_total",
    Unit::Seconds,
    &["host", "gpu", "reason"],
    "Time in which clocks were held back for this reason, counted by the driver.",
)
.caveat("Some time at the power limit is normal under full load.");

/// The highest SM clock.
pub const GPU_SM_CLOCK_MAX: Desc = gauge(
    "system/gpu/sm_clock_max_mhz",
    Unit::Megahertz,
    "The highest clock that the streaming multiprocessors of this model reach.",
)
.caveat("Power, heat or a lock of the clocks may keep it out of reach.");

/// Memory temperature.
pub const GPU_MEMORY_TEMPERATURE: Desc =
    gauge("system/gpu/memory_temperature_celsius", Unit::Celsius, "Temperature of the GPU's memory.")
        .caveat("Limits differ between models; cards without high-bandwidth memory rarely have the sensor.");

/// Room to the slowdown.
pub const GPU_TEMPERATURE_MARGIN: Desc = gauge(
    "system/gpu/temperature_margin_celsius",
    Unit::Celsius,
    "How many degrees the GPU is below the nearest temperature at which it slows down.",
)
.caveat("0 and below: it is slowing down.");

/// What the driver wants done.
pub const GPU_RECOVERY_ACTION: Desc = gauge(
    "system/gpu/recovery_action",
    Unit::None,
    "What the driver says the GPU needs: 0 nothing, 1 a reset, 2 a restart of the node, 3 its peers drained, \
     4 drained and reset, 5 its IMEX domain recovered, 6 a bus reset, 7 a restart of the system.",
);

/// Graphics and compute engine.
pub const GPU_GRAPHICS_ACTIVE: Desc = gauge(
    "system/gpu/graphics_active_ratio",
    Unit::Ratio,
    "Share of the time since the last tick in which the graphics or compute engine was active.",
)
.caveat("Any work at all counts, as in the utilization. Hopper and newer.");

/// SM activity.
pub const GPU_SM_ACTIVE: Desc = gauge(
    "system/gpu/sm_active_ratio",
    Unit::Ratio,
    "Share of the time since the last tick in which a multiprocessor had work, averaged over all of them.",
)
.caveat("A multiprocessor that waits for memory is active too. Hopper and newer.");

/// SM occupancy.
pub const GPU_SM_OCCUPANCY: Desc = gauge(
    "system/gpu/sm_occupancy_ratio",
    Unit::Ratio,
    "Warps resident on the multiprocessors as a share of what fits, averaged since the last tick.",
)
.caveat("More is not always faster: good kernels often run at a low occupancy. Hopper and newer.");

/// Tensor cores.
pub const GPU_TENSOR_ACTIVE: Desc = gauge(
    "system/gpu/tensor_active_ratio",
    Unit::Ratio,
    "Share of the time since the last tick in which the tensor cores worked.",
)
.caveat("Close to the achieved share of peak FLOPS, if clocks are not held back. Hopper and newer.");

/// Memory traffic.
pub const GPU_DRAM_ACTIVE: Desc = gauge(
    "system/gpu/dram_active_ratio",
    Unit::Ratio,
    "Traffic of the GPU's memory since the last tick as a share of what it can carry.",
)
.caveat("Ends near 0.9 in practice. Hopper and newer.");

/// FP64 pipe.
pub const GPU_FP64_ACTIVE: Desc = gauge(
    "system/gpu/fp64_active_ratio",
    Unit::Ratio,
    "Share of the time since the last tick in which 64-bit floating point was computed outside tensor cores.",
)
.caveat("Tensor cores are not in it. Hopper and newer.");

/// FP32 pipe.
pub const GPU_FP32_ACTIVE: Desc = gauge(
    "system/gpu/fp32_active_ratio",
    Unit::Ratio,
    "Share of the time since the last tick in which 32-bit floating point was computed outside tensor cores.",
)
.caveat("Tensor cores are not in it. Hopper and newer.");

/// FP16 pipe.
pub const GPU_FP16_ACTIVE: Desc = gauge(
    "system/gpu/fp16_active_ratio",
    Unit::Ratio,
    "Share of the time since the last tick in which 16-bit floating point was computed outside tensor cores.",
)
.caveat("Tensor cores are not in it. Hopper and newer.");

/// PCIe generation.
pub const GPU_PCIE_GENERATION: Desc =
    gauge("system/gpu/pcie_link_generation", Unit::None, "Generation at which the PCIe link runs now.")
        .caveat("Drops at idle to save power: judge it under load only.");

/// PCIe lanes.
pub const GPU_PCIE_WIDTH: Desc =
    gauge("system/gpu/pcie_link_width", Unit::None, "Lanes with which the PCIe link runs now.");

/// The best PCIe generation.
pub const GPU_PCIE_GENERATION_MAX: Desc = gauge(
    "system/gpu/pcie_link_generation_max",
    Unit::None,
    "The best generation that card and slot can run the PCIe link at together.",
);

/// Most PCIe lanes.
pub const GPU_PCIE_WIDTH_MAX: Desc = gauge(
    "system/gpu/pcie_link_width_max",
    Unit::None,
    "The most lanes that card and slot can run the PCIe link with together.",
);

/// Bytes in.
pub const GPU_PCIE_RECEIVE: Desc = gauge(
    "system/gpu/pcie_receive_bytes_per_second",
    Unit::Bytes,
    "Bytes that the GPU received over PCIe in a second.",
)
.caveat(
    "The mean since the last tick where the card can be profiled (Hopper and newer); elsewhere, and at the \
     first tick, what the driver sees in 20 ms, a glimpse.",
);

/// Bytes out.
pub const GPU_PCIE_TRANSMIT: Desc = gauge(
    "system/gpu/pcie_transmit_bytes_per_second",
    Unit::Bytes,
    "Bytes that the GPU sent over PCIe in a second.",
)
.caveat(
    "The mean since the last tick where the card can be profiled (Hopper and newer); elsewhere, and at the \
     first tick, what the driver sees in 20 ms, a glimpse.",
);

/// PCIe replays.
pub const GPU_PCIE_REPLAYS: Desc = Desc::counter(
    "system/gpu/pcie_replays_total",
    Unit::None,
    GPU,
    "Packets that had to be sent over PCIe again.",
);

/// NVLink traffic.
pub const GPU_NVLINK_BYTES: Desc = Desc::counter(
    "system/gpu/nvlink_bytes_total",
    Unit::Bytes,
    &["host", "gpu", "direction"],
    "Bytes of data sent and received over all NVLinks of the GPU, counted by the driver.",
)
.caveat(
    "The protocol's own bytes are left out; where a driver tells bytes for each link only, it is their sum.",
);

/// NVLink errors.
pub const GPU_NVLINK_ERRORS: Desc = Desc::counter(
    "system/gpu/nvlink_errors_total",
    Unit::None,
    &["host", "gpu", "kind", "link"],
    "Errors on one NVLink of the GPU, by kind, counted by the driver.",
)
.caveat(
    "A link has a series of a kind from its first such error on. The links are visited in turn, three at a \
     tick, so a new error may show some ticks late.",
);

/// NVLinks that are up.
pub const GPU_NVLINK_ACTIVE: Desc =
    gauge("system/gpu/nvlink_active_links", Unit::None, "How many NVLinks of the GPU are up.")
        .caveat("The links are visited in turn, three at a tick.");

/// ECC errors.
pub const GPU_ECC_ERRORS: Desc = Desc::counter(
    "system/gpu/ecc_errors_total",
    Unit::None,
    &["host", "gpu", "kind", "scope"],
    "Memory errors that ECC found: volatile ones since the driver was loaded, aggregate ones for life.",
)
.caveat("Corrected errors are noise until their rate is extreme.");

/// Remapped rows.
pub const GPU_ROW_REMAPS: Desc = Desc::counter(
    "system/gpu/row_remaps_total",
    Unit::None,
    &["host", "gpu", "kind"],
    "Rows of memory that were replaced by spare ones, by the kind of error that caused it.",
);

/// A remap that waits.
pub const GPU_ROW_REMAP_PENDING: Desc = gauge(
    "system/gpu/row_remap_pending",
    Unit::None,
    "1 when a row waits to be replaced at the next reset; the GPU can be used until then.",
);

/// A remap that failed.
pub const GPU_ROW_REMAP_FAILED: Desc = gauge(
    "system/gpu/row_remap_failed",
    Unit::None,
    "1 when a row could not be replaced: the card is to be exchanged.",
);

/// Every metric of a GPU.
pub const GPU_DESCS: &[Desc] = &[
    GPU_UTILIZATION,
    GPU_MEMORY_USED,
    GPU_MEMORY_UTILIZATION,
    GPU_TEMPERATURE,
    GPU_POWER,
    GPU_SM_CLOCK,
    GPU_GRAPHICS_CLOCK,
    GPU_MEMORY_CLOCK,
    GPU_MEMORY_FREE,
    GPU_MEMORY_RESERVED,
    GPU_MEMORY_TOTAL,
    GPU_POWER_LIMIT,
    GPU_POWER_LIMIT_RATIO,
    GPU_ENERGY,
    GPU_THROTTLED,
    GPU_SM_CLOCK_MAX,
    GPU_MEMORY_TEMPERATURE,
    GPU_TEMPERATURE_MARGIN,
    GPU_RECOVERY_ACTION,
    GPU_SM_ACTIVE,
    GPU_SM_OCCUPANCY,
    GPU_TENSOR_ACTIVE,
    GPU_DRAM_ACTIVE,
    GPU_FP64_ACTIVE,
    GPU_FP32_ACTIVE,
    GPU_FP16_ACTIVE,
    GPU_GRAPHICS_ACTIVE,
    GPU_PCIE_GENERATION,
    GPU_PCIE_WIDTH,
    GPU_PCIE_GENERATION_MAX,
    GPU_PCIE_WIDTH_MAX,
    GPU_PCIE_RECEIVE,
    GPU_PCIE_TRANSMIT,
    GPU_PCIE_REPLAYS,
    GPU_NVLINK_BYTES,
    GPU_NVLINK_ERRORS,
    GPU_NVLINK_ACTIVE,
    GPU_ECC_ERRORS,
    GPU_ROW_REMAPS,
    GPU_ROW_REMAP_PENDING,
    GPU_ROW_REMAP_FAILED,
];
