//! The series of a card under three namings, and how their values go on.

/// An exporter's name, the canonical one with what tells its series apart, the first value and how it goes on.
type Row = (&'static str, &'static str, &'static [(&'static str, &'static str)], f64, Step);

/// How a value goes on.
#[derive(Clone, Copy)]
enum Step {
    /// It stays.
    Same,
    /// It walks by as much at most.
    Walk(f64),
    /// It rises by as much at most.
    Rise(f64),
}

use Step::{Rise, Same, Walk};

const GIB: f64 = (1u64 << 30) as f64;

/// What an exporter with a long list of fields and an agent say of a card.
const ROWS: [Row; 40] = [
    ("DCGM_FI_DEV_POWER_USAGE", "tg_gpu_power_watts", &[], 600.0, Walk(20.0)),
    ("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", "tg_gpu_energy_joules_total", &[], 1e9, Rise(5_000.0)),
    ("DCGM_FI_DEV_POWER_MGMT_LIMIT", "tg_gpu_power_limit_watts", &[], 700.0, Same),
    ("DCGM_FI_DEV_GPU_TEMP", "tg_gpu_temperature_celsius", &[], 60.0, Walk(1.0)),
    ("DCGM_FI_DEV_MEMORY_TEMP", "tg_gpu_memory_temperature_celsius", &[], 70.0, Walk(1.0)),
    ("DCGM_FI_DEV_GPU_TEMP_LIMIT", "tg_gpu_temperature_margin_celsius", &[], 22.0, Walk(1.0)),
    ("DCGM_FI_DEV_SM_CLOCK", "tg_gpu_sm_clock_hertz", &[], 1_755.0, Walk(15.0)),
    ("DCGM_FI_DEV_MEM_CLOCK", "tg_gpu_memory_clock_hertz", &[], 2_619.0, Same),
    ("DCGM_FI_DEV_MAX_SM_CLOCK", "tg_gpu_sm_clock_max_hertz", &[], 1_980.0, Same),
    ("DCGM_FI_DEV_GPU_UTIL", "tg_gpu_busy_ratio", &[], 98.0, Walk(2.0)),
    ("DCGM_FI_DEV_FB_USED", "tg_gpu_memory_used_bytes", &[], 70.0 * GIB, Walk(1e6)),
    ("DCGM_FI_DEV_FB_FREE", "tg_gpu_memory_free_bytes", &[], 9.0 * GIB, Walk(1e6)),
    ("DCGM_FI_DEV_FB_RESERVED", "tg_gpu_memory_reserved_bytes", &[], 6e8, Same),
    ("DCGM_FI_DEV_FB_TOTAL", "tg_gpu_memory_total_bytes", &[], 80.0 * GIB, Same),
    ("DCGM_FI_PROF_GR_ENGINE_ACTIVE", "tg_gpu_graphics_active_ratio", &[], 0.97, Walk(0.01)),
    ("DCGM_FI_PROF_SM_ACTIVE", "tg_gpu_sm_active_ratio", &[], 0.8, Walk(0.02)),
    ("DCGM_FI_PROF_SM_OCCUPANCY", "tg_gpu_sm_occupancy_ratio", &[], 0.4, Walk(0.02)),
    ("DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", "tg_gpu_tensor_active_ratio", &[], 0.5, Walk(0.02)),
    ("DCGM_FI_PROF_DRAM_ACTIVE", "tg_gpu_dram_active_ratio", &[], 0.4, Walk(0.02)),
    ("DCGM_FI_PROF_NVLINK_RX_BYTES", "tg_gpu_nvlink_bytes_total", &[("direction", "rx")], 1e12, Rise(1e11)),
    ("DCGM_FI_PROF_NVLINK_TX_BYTES", "tg_gpu_nvlink_bytes_total", &[("direction", "tx")], 1e12, Rise(1e11)),
    ("DCGM_FI_PROF_PCIE_RX_BYTES", "tg_gpu_pcie_receive_bytes_per_second", &[], 1e9, Walk(1e8)),
    ("DCGM_FI_PROF_PCIE_TX_BYTES", "tg_gpu_pcie_transmit_bytes_per_second", &[], 1e9, Walk(1e8)),
    ("DCGM_FI_DEV_PCIE_REPLAY_COUNTER", "tg_gpu_pcie_replays_total", &[], 3.0, Same),
    ("DCGM_FI_DEV_PCIE_LINK_GEN", "tg_gpu_pcie_link_generation", &[], 5.0, Same),
    ("DCGM_FI_DEV_PCIE_LINK_WIDTH", "tg_gpu_pcie_link_width", &[], 16.0, Same),
    ("DCGM_FI_DEV_PCIE_MAX_LINK_GEN", "tg_gpu_pcie_link_generation_max", &[], 5.0, Same),
    ("DCGM_FI_DEV_PCIE_MAX_LINK_WIDTH", "tg_gpu_pcie_link_width_max", &[], 16.0, Same),
    ("DCGM_FI_DEV_POWER_VIOLATION", "tg_gpu_throttled_seconds_total", &[("reason", "power")], 0.0, Rise(1e9)),
    ("DCGM_FI_DEV_THERMAL_VIOLATION", "tg_gpu_throttled_seconds_total", &[("reason", "thermal")], 0.0, Same),
    ("DCGM_FI_DEV_ECC_SBE_VOL_TOTAL", "tg_gpu_ecc_errors_total", &[("type", "corrected")], 0.0, Same),
    ("DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", "tg_gpu_ecc_errors_total", &[("type", "uncorrected")], 0.0, Same),
    ("DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS", "tg_gpu_row_remaps_total", &[("type", "corrected")], 0.0, Same),
    (
        "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS",
        "tg_gpu_row_remaps_total",
        &[("type", "uncorrected")],
        0.0,
        Same,
    ),
    ("DCGM_FI_DEV_ROW_REMAP_FAILURE", "tg_gpu_row_remap_failed", &[], 0.0, Same),
    ("DCGM_FI_DEV_ROW_REMAP_PENDING", "tg_gpu_row_remap_pending", &[], 0.0, Same),
    (
        "DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL",
        "tg_gpu_nvlink_errors_total",
        &[("kind", "crc_flit")],
        0.0,
        Same,
    ),
    (
        "DCGM_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL",
        "tg_gpu_nvlink_errors_total",
        &[("kind", "replay")],
        0.0,
        Same,
    ),
    ("DCGM_FI_DEV_MEM_COPY_UTIL", "tg_gpu_nvlink_active_links", &[], 18.0, Same),
    ("DCGM_FI_DEV_XID_ERRORS", "tg_gpu_recovery_action", &[], 0.0, Same),
];

/// Most series that a card has here.
pub(crate) const SERIES_MAX: usize = ROWS.len();

/// Name of a node.
pub(crate) fn host(node: usize) -> String {
    format!("node-{node:04}")
}

fn uuid(node: usize, gpu: usize) -> String {
    format!("GPU-{:08x}-1c2d-4e5f-8a9b-{gpu:012x}", (node as u32).wrapping_mul(2_654_435_761))
}

/// Labels in the order of their names, as an exporter's come.
pub(crate) fn dcgm(node: usize, gpu: usize, at: usize) -> Vec<(&'static str, String)> {
    vec![
        ("DCGM_FI_DRIVER_VERSION", "570.86.15".to_owned()),
        ("Hostname", host(node)),
        ("UUID", uuid(node, gpu)),
        ("__name__", ROWS[at].0.to_owned()),
        ("device", format!("nvidia{gpu}")),
        ("gpu", gpu.to_string()),
        ("instance", format!("10.0.{}.{}:9400", node / 250, node % 250)),
        ("job", "dcgm".to_owned()),
        ("modelName", "NVIDIA H100 80GB HBM3".to_owned()),
        ("pci_bus_id", format!("00000000:{:02X}:00.0", 0x1b + gpu * 16)),
    ]
}

/// The same under a name that means nothing.
pub(crate) fn plain(node: usize, gpu: usize, at: usize) -> Vec<(&'static str, String)> {
    let mut labels = dcgm(node, gpu, at);
    labels[3].1.insert_str(0, "PLAIN_");
    labels
}

/// The canonical series.
pub(crate) fn canonical(node: usize, gpu: usize, at: usize) -> Vec<(&'static str, String)> {
    let mut labels = vec![
        ("__name__", ROWS[at].1.to_owned()),
        ("host", host(node)),
        ("gpu", gpu.to_string()),
        ("uuid", uuid(node, gpu)),
    ];
    labels.extend(ROWS[at].2.iter().map(|(name, value)| (*name, (*value).to_owned())));
    labels
}

/// The first value of a series.
pub(crate) fn first(at: usize) -> f64 {
    ROWS[at].3
}

/// The value after `value`; `part` is drawn from 0 to 1.
pub(crate) fn next(at: usize, value: f64, part: f64) -> f64 {
    match ROWS[at].4 {
        Same => value,
        Walk(by) => (value + (part - 0.5) * by).max(0.0),
        Rise(by) => value + (part * by).floor(),
    }
}
