//! What is known of a card.

use super::{GPU_LABELS, metrics};

const INFO: &[&str] = &["host", "gpu", "uuid", "vendor", "gpu_model", "driver", "pci_bus_id", "mig"];
const OWNER: &[&str] =
    &["host", "gpu", "uuid", "run_id", "job_id", "namespace", "pod", "container", "shared", "confidence"];
const REASON: &[&str] = &["host", "gpu", "uuid", "reason"];
const DIRECTION: &[&str] = &["host", "gpu", "uuid", "direction"];
const LINK: &[&str] = &["host", "gpu", "uuid", "kind", "link"];
const KIND: &[&str] = &["host", "gpu", "uuid", "kind"];
const SCOPE: &[&str] = &["host", "gpu", "uuid", "kind", "scope"];
const XID: &[&str] = &["host", "gpu", "uuid", "xid"];
const FIELD: &[&str] = &["host", "gpu", "uuid", "field"];

metrics! {
    /// Metrics of cards. Where a card is cut into slices, those that are told of a slice carry `gi`.
    GPUS;
    GPU_INFO: gauge, "tg_gpu_info", None, INFO, A,
        "Facts of a card as labels; `mig` says whether it is cut into slices.";
    GPU_OWNER_INFO: gauge, "tg_gpu_owner_info", None, OWNER, B,
        "Who has a card: a run, a job, a pod.",
        "`shared` is the number of those who share it and absent where one has it alone; `confidence` says \
         how sure the owner is.";
    GPU_SAMPLER_INFO: gauge, "tg_gpu_sampler_info", None, &["host", "gpu", "uuid", "node", "run_id"], A,
        "A card of `node` by the host name and index under which a run's sampler reports it.",
        "Only where they are others than the agent's, as in a pod: rules tell by it that both report one card.";
    GPU_BUSY_RATIO: gauge, "tg_gpu_busy_ratio", Ratio, GPU_LABELS, D,
        "Share of the time in which at least one kernel was resident.",
        "One small kernel is enough for 1: it says that the card was in use, not how much of it.";
    GPU_GRAPHICS_ACTIVE_RATIO: gauge, "tg_gpu_graphics_active_ratio", Ratio, GPU_LABELS, C,
        "Share of the time in which the graphics or compute engine was active.",
        "Like the busy ratio, but told of each slice: any work at all counts.";
    GPU_SM_ACTIVE_RATIO: gauge, "tg_gpu_sm_active_ratio", Ratio, GPU_LABELS, B,
        "Share of the time in which a multiprocessor had work, averaged over all of them.",
        "A multiprocessor that waits for memory is active too.";
    GPU_SM_OCCUPANCY_RATIO: gauge, "tg_gpu_sm_occupancy_ratio", Ratio, GPU_LABELS, B,
        "Warps resident on the multiprocessors as a share of what fits.",
        "More is not always faster: good kernels often run at a low occupancy.";
    GPU_TENSOR_ACTIVE_RATIO: gauge, "tg_gpu_tensor_active_ratio", Ratio, GPU_LABELS, A,
        "Share of the time in which the tensor cores worked.",
        "Close to the achieved share of peak FLOPS, if clocks are not held back.";
    GPU_DRAM_ACTIVE_RATIO: gauge, "tg_gpu_dram_active_ratio", Ratio, GPU_LABELS, A,
        "Share of the time in which the memory moved data.",
        "Ends near 0.9 in practice. AMD's source is the activity of the memory controller, which says less.";
    GPU_FP64_ACTIVE_RATIO: gauge, "tg_gpu_fp64_active_ratio", Ratio, GPU_LABELS, B,
        "Share of the time in which 64-bit floating point was computed outside tensor cores.",
        "Tensor cores are not in it.";
    GPU_FP32_ACTIVE_RATIO: gauge, "tg_gpu_fp32_active_ratio", Ratio, GPU_LABELS, B,
        "Share of the time in which 32-bit floating point was computed outside tensor cores.",
        "Tensor cores are not in it.";
    GPU_FP16_ACTIVE_RATIO: gauge, "tg_gpu_fp16_active_ratio", Ratio, GPU_LABELS, B,
        "Share of the time in which 16-bit floating point was computed outside tensor cores.",
        "Tensor cores are not in it.";
    GPU_MEMORY_USED_BYTES: gauge, "tg_gpu_memory_used_bytes", Bytes, GPU_LABELS, D,
        "Memory of the card that is allocated.",
        "Frameworks and engines allocate ahead of need, so full is not short: an engine's KV cache use says \
         more.";
    GPU_MEMORY_FREE_BYTES: gauge, "tg_gpu_memory_free_bytes", Bytes, GPU_LABELS, A,
        "Memory of the card that can still be allocated.";
    GPU_MEMORY_RESERVED_BYTES: gauge, "tg_gpu_memory_reserved_bytes", Bytes, GPU_LABELS, A,
        "Memory of the card that the driver and its firmware keep for themselves.";
    GPU_MEMORY_TOTAL_BYTES: gauge, "tg_gpu_memory_total_bytes", Bytes, GPU_LABELS, A,
        "Memory of the card in all.";
    GPU_POWER_WATTS: gauge, "tg_gpu_power_watts", Watts, GPU_LABELS, B,
        "Power drawn by the whole board.",
        "The mean of one second on most cards, a moment on others: the energy counter misses no burst.";
    GPU_POWER_LIMIT_WATTS: gauge, "tg_gpu_power_limit_watts", Watts, GPU_LABELS, A,
        "The power limit in force: the lowest of those that were set for the board.",
        "A source that has only the limit asked for gives that.";
    GPU_ENERGY_JOULES_TOTAL: counter, "tg_gpu_energy_joules_total", Joules, GPU_LABELS, A,
        "Energy used by the whole board; it never falls.",
        "Jumps of the driver's own counter are taken out and counted beside it; its start is that of the \
         source.";
    GPU_SM_CLOCK_HERTZ: gauge, "tg_gpu_sm_clock_hertz", Hertz, GPU_LABELS, A,
        "Clock of the multiprocessors.",
        "Low at idle by design: compare with peers under load.";
    GPU_SM_CLOCK_MAX_HERTZ: gauge, "tg_gpu_sm_clock_max_hertz", Hertz, GPU_LABELS, A,
        "The highest clock that the multiprocessors of this model reach.",
        "Power, heat or a lock of the clocks may keep it out of reach.";
    GPU_MEMORY_CLOCK_HERTZ: gauge, "tg_gpu_memory_clock_hertz", Hertz, GPU_LABELS, A,
        "Clock of the card's memory.";
    GPU_THROTTLED_SECONDS_TOTAL: counter, "tg_gpu_throttled_seconds_total", Seconds, REASON, A,
        "Time in which clocks were held back for this reason, counted by the driver.",
        "Some time at the power limit is normal under full load.";
    GPU_THROTTLED_RATIO: gauge, "tg_gpu_throttled_ratio", Ratio, REASON, B,
        "Share of the source's last window in which clocks were held back for this reason.",
        "For cards that count no time: a window of the source's own choice, so what falls between two reads \
         is lost.";
    GPU_THROTTLE_ACTIVE: gauge, "tg_gpu_throttle_active", None, REASON, B,
        "1 while clocks are held back for this reason, else 0.",
        "A moment of the driver's mask: throttled seconds say for how long. `sw_power` alone is normal under \
         full load.";
    GPU_TEMPERATURE_CELSIUS: gauge, "tg_gpu_temperature_celsius", Celsius, GPU_LABELS, A,
        "Temperature of the card's core.",
        "Limits differ between models: the margin and throttled time say whether it is too hot.";
    GPU_MEMORY_TEMPERATURE_CELSIUS: gauge, "tg_gpu_memory_temperature_celsius", Celsius, GPU_LABELS, A,
        "Temperature of the card's memory.",
        "Limits differ between models; cards without high-bandwidth memory rarely have the sensor.";
    GPU_TEMPERATURE_MARGIN_CELSIUS: gauge, "tg_gpu_temperature_margin_celsius", Celsius, GPU_LABELS, A,
        "How many degrees the card is below the nearest temperature at which it slows down.",
        "0 and below: it is slowing down.";
    GPU_PCIE_LINK_GENERATION: gauge, "tg_gpu_pcie_link_generation", None, GPU_LABELS, B,
        "Generation at which the PCIe link runs now.",
        "Drops at idle to save power: judge it under load only.";
    GPU_PCIE_LINK_GENERATION_MAX: gauge, "tg_gpu_pcie_link_generation_max", None, GPU_LABELS, A,
        "The best generation that card and slot can run the PCIe link at together.";
    GPU_PCIE_LINK_WIDTH: gauge, "tg_gpu_pcie_link_width", None, GPU_LABELS, B,
        "Lanes with which the PCIe link runs now.",
        "Some cards give up lanes at idle too: judge it under load.";
    GPU_PCIE_LINK_WIDTH_MAX: gauge, "tg_gpu_pcie_link_width_max", None, GPU_LABELS, A,
        "The most lanes that card and slot can run the PCIe link with together.";
    GPU_PCIE_RECEIVE_BYTES_PER_SECOND: gauge, "tg_gpu_pcie_receive_bytes_per_second", BytesPerSecond,
        GPU_LABELS, B,
        "Bytes that the card received over PCIe in a second.",
        "Already a rate: `rate()` over it means nothing. Some sources see 20 ms only.";
    GPU_PCIE_TRANSMIT_BYTES_PER_SECOND: gauge, "tg_gpu_pcie_transmit_bytes_per_second", BytesPerSecond,
        GPU_LABELS, B,
        "Bytes that the card sent over PCIe in a second.",
        "Already a rate: `rate()` over it means nothing. Some sources see 20 ms only.";
    GPU_PCIE_REPLAYS_TOTAL: counter, "tg_gpu_pcie_replays_total", None, GPU_LABELS, A,
        "Packets that had to be sent over PCIe again.";
    GPU_NVLINK_BYTES_TOTAL: counter, "tg_gpu_nvlink_bytes_total", Bytes, DIRECTION, B,
        "Bytes sent and received over all links to other cards (NVLink, xGMI).",
        "A source that doesn't tell directions apart has `direction=\"both\"`: add `receive` and `transmit` \
         up, never all three.";
    GPU_NVLINK_ERRORS_TOTAL: counter, "tg_gpu_nvlink_errors_total", None, LINK, A,
        "Errors on the links to other cards, by kind.",
        "`link` is `all` where the source has the sum only.";
    GPU_NVLINK_ACTIVE_LINKS: gauge, "tg_gpu_nvlink_active_links", None, GPU_LABELS, A,
        "How many links to other cards are up.";
    GPU_ECC_ERRORS_TOTAL: counter, "tg_gpu_ecc_errors_total", None, SCOPE, A,
        "Memory errors that ECC found: volatile ones since the driver was loaded, aggregate ones for life.",
        "Corrected errors are noise until their rate is extreme.";
    GPU_RETIRED_PAGES: gauge, "tg_gpu_retired_pages", None, KIND, A,
        "Pages of memory that were taken out of use, by the kind of error that caused it.",
        "Older NVIDIA cards and AMD's; newer NVIDIA cards remap rows.";
    GPU_ROW_REMAPS_TOTAL: counter, "tg_gpu_row_remaps_total", None, KIND, A,
        "Rows of memory that were replaced by spare ones, by the kind of error that caused it.";
    GPU_ROW_REMAP_PENDING: gauge, "tg_gpu_row_remap_pending", None, GPU_LABELS, A,
        "1 when a row waits to be replaced at the next reset; the card can be used until then.";
    GPU_ROW_REMAP_FAILED: gauge, "tg_gpu_row_remap_failed", None, GPU_LABELS, A,
        "1 when a row could not be replaced: the card is to be exchanged.";
    GPU_RECOVERY_ACTION: gauge, "tg_gpu_recovery_action", None, GPU_LABELS, A,
        "What the driver says the card needs: 0 nothing, 1 a reset, 2 a restart of the node, 3 its peers \
         drained, 4 drained and reset, 5 its IMEX domain recovered, 6 a bus reset, 7 a restart of the system.";
    GPU_HEALTHY: gauge, "tg_gpu_healthy", None, GPU_LABELS, C,
        "1 while the source calls the card healthy, else 0.",
        "The source's own verdict, without its reasons.";
    GPU_XID_EVENTS_TOTAL: counter, "tg_gpu_xid_events_total", None, XID, A,
        "Xid events of the card that the kernel's log told.",
        "Only the agent counts them: an exporter's gauge of the last Xid shows no repeat and no end.";
    GPU_UNSUPPORTED_INFO: gauge, "tg_gpu_unsupported_info", None, FIELD, A,
        "A field that the card or its driver has no value for.";
}
