//! Models of GPUs, as far as a simulation needs them.

/// A model of GPU.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Profile {
    /// As scenarios write it.
    pub key: &'static str,
    /// As the driver names it.
    pub name: &'static str,
    /// Memory, bytes.
    pub memory_bytes: u64,
    /// Power limit, watts.
    pub power_limit_watts: f64,
    /// Power without work, watts.
    pub idle_watts: f64,
    /// Highest clock of the SMs, MHz.
    pub clock_max_mhz: f64,
    /// Clock of the memory, MHz.
    pub memory_clock_mhz: f64,
    /// NVLinks.
    pub links: u32,
    /// CUDA compute capability.
    pub capability: [i32; 2],
    /// Bytes a second that its memory can move.
    pub memory_bytes_per_second: f64,
}

/// Every model.
pub const PROFILES: [Profile; 4] = [
    Profile {
        key: "h100-sxm",
        name: "NVIDIA H100 80GB HBM3",
        memory_bytes: 80 << 30,
        power_limit_watts: 700.0,
        idle_watts: 72.0,
        clock_max_mhz: 1980.0,
        memory_clock_mhz: 2619.0,
        links: 18,
        capability: [9, 0],
        memory_bytes_per_second: 3.35e12,
    },
    Profile {
        key: "h200-sxm",
        name: "NVIDIA H200",
        memory_bytes: 141 << 30,
        power_limit_watts: 700.0,
        idle_watts: 76.0,
        clock_max_mhz: 1980.0,
        memory_clock_mhz: 3201.0,
        links: 18,
        capability: [9, 0],
        memory_bytes_per_second: 4.8e12,
    },
    Profile {
        key: "a100-sxm-80",
        name: "NVIDIA A100-SXM4-80GB",
        memory_bytes: 80 << 30,
        power_limit_watts: 400.0,
        idle_watts: 58.0,
        clock_max_mhz: 1410.0,
        memory_clock_mhz: 1593.0,
        links: 12,
        capability: [8, 0],
        memory_bytes_per_second: 2.039e12,
    },
    Profile {
        key: "l40s",
        name: "NVIDIA L40S",
        memory_bytes: 48 << 30,
        power_limit_watts: 350.0,
        idle_watts: 34.0,
        clock_max_mhz: 2520.0,
        memory_clock_mhz: 9001.0,
        links: 0,
        capability: [8, 9],
        memory_bytes_per_second: 0.864e12,
    },
];
