//! The GPUs of this machine, through NVIDIA's driver library.
//!
//! The library is loaded at run time, so that one build works with every driver and with none. Each
//! device has a thread that asks the driver: a device that blocks costs its own series and nothing else.

mod absence;
mod asker;
mod code;
mod descs;
mod device;
mod endless;
mod events;
mod ffi;
mod nvlink;
mod processes;
mod profile;
mod reading;
mod sampler;
mod session;
mod slices;
mod throttle;
mod worker;

pub use absence::GpuAbsence;
pub use descs::{
    GPU_DESCS, GPU_DRAM_ACTIVE, GPU_ECC_ERRORS, GPU_ENERGY, GPU_FP16_ACTIVE, GPU_FP32_ACTIVE,
    GPU_FP64_ACTIVE, GPU_GRAPHICS_ACTIVE, GPU_GRAPHICS_CLOCK, GPU_MEMORY_CLOCK, GPU_MEMORY_FREE,
    GPU_MEMORY_RESERVED, GPU_MEMORY_TEMPERATURE, GPU_MEMORY_TOTAL, GPU_MEMORY_USED, GPU_MEMORY_UTILIZATION,
    GPU_NVLINK_ACTIVE, GPU_NVLINK_BYTES, GPU_NVLINK_ERRORS, GPU_PCIE_GENERATION, GPU_PCIE_GENERATION_MAX,
    GPU_PCIE_RECEIVE, GPU_PCIE_REPLAYS, GPU_PCIE_TRANSMIT, GPU_PCIE_WIDTH, GPU_PCIE_WIDTH_MAX, GPU_POWER,
    GPU_POWER_LIMIT, GPU_POWER_LIMIT_RATIO, GPU_RECOVERY_ACTION, GPU_ROW_REMAP_FAILED, GPU_ROW_REMAP_PENDING,
    GPU_ROW_REMAPS, GPU_SM_ACTIVE, GPU_SM_CLOCK, GPU_SM_CLOCK_MAX, GPU_SM_OCCUPANCY, GPU_TEMPERATURE,
    GPU_TEMPERATURE_MARGIN, GPU_TENSOR_ACTIVE, GPU_THROTTLED, GPU_UTILIZATION,
};
pub use device::{GpuDevice, GpuMemoryAccount, MigInstance};
pub use events::{GpuEvent, GpuEvents, GpuNews};
pub use processes::GpuProcess;
pub use reading::GpuValue;
pub use sampler::{GpuFailure, GpuOptions, GpuSampler, GpuSink};
pub use throttle::throttle_reasons;
