//! The root filesystem, as `df` counts it.

use crate::{DISK_FREE, DISK_TOTAL, DISK_UTILIZATION, Sink, host::DiskBlocks};

/// Emits size, free bytes and utilisation of these blocks; no utilisation of a filesystem without any.
pub(crate) fn emit(blocks: DiskBlocks, sink: &mut Sink<'_>) {
    let bytes = |count: u64| (u128::from(count) * u128::from(blocks.block_bytes)) as f64;
    sink(&DISK_TOTAL, bytes(blocks.total));
    sink(&DISK_FREE, bytes(blocks.available));
    let used = blocks.total.saturating_sub(blocks.free) as f64;
    let writable = used + blocks.available as f64;
    if writable > 0.0 {
        sink(&DISK_UTILIZATION, used / writable * 100.0);
    }
}
