//! What every run on Linux is promised, and so what is missed where it is not there.

use model::Desc;

use crate::gpu::{
    GPU_MEMORY_USED, GPU_MEMORY_UTILIZATION, GPU_POWER, GPU_SM_CLOCK, GPU_TEMPERATURE, GPU_UTILIZATION,
};
use crate::{
    CPU_UTILIZATION, DISK_FREE, DISK_TOTAL, DISK_UTILIZATION, MEMORY_USED, MEMORY_UTILIZATION, PROCESS_CPU,
    PROCESS_RSS,
};

/// The metrics that every run should have, GPUs given; all others are extras.
pub const PROMISED: [Desc; 14] = [
    GPU_UTILIZATION,
    GPU_MEMORY_USED,
    GPU_MEMORY_UTILIZATION,
    GPU_TEMPERATURE,
    GPU_POWER,
    GPU_SM_CLOCK,
    CPU_UTILIZATION,
    MEMORY_USED,
    MEMORY_UTILIZATION,
    DISK_TOTAL,
    DISK_FREE,
    DISK_UTILIZATION,
    PROCESS_RSS,
    PROCESS_CPU,
];
