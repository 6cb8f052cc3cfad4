//! The GPUs of this machine, through NVIDIA's driver library.
//!
//! The library is loaded at run time, so that one build works with every driver and with none. Each
//! device has a thread that asks the driver: a device that blocks costs its own series and nothing else.

mod absence;
mod code;
mod descs;
mod device;
mod ffi;
mod reading;
mod sampler;
mod throttle;
mod worker;

pub use absence::GpuAbsence;
pub use descs::{
    GPU_DESCS, GPU_ECC_ERRORS, GPU_ENERGY, GPU_GRAPHICS_CLOCK, GPU_MEMORY_CLOCK, GPU_MEMORY_FREE,
    GPU_MEMORY_RESERVED, GPU_MEMORY_TOTAL, GPU_MEMORY_USED, GPU_MEMORY_UTILIZATION, GPU_PCIE_GENERATION,
    GPU_PCIE_RECEIVE, GPU_PCIE_REPLAYS, GPU_PCIE_TRANSMIT, GPU_PCIE_WIDTH, GPU_POWER, GPU_POWER_LIMIT,
    GPU_POWER_LIMIT_RATIO, GPU_ROW_REMAP_FAILED, GPU_ROW_REMAP_PENDING, GPU_ROW_REMAPS, GPU_SM_CLOCK,
    GPU_TEMPERATURE, GPU_THROTTLED, GPU_UTILIZATION,
};
pub use device::{GpuDevice, GpuMemoryAccount, MigInstance};
pub use reading::GpuValue;
pub use sampler::{GpuFailure, GpuOptions, GpuSampler, GpuSink};
pub use throttle::throttle_reasons;
