//! The public face of `collect`, on folders that stand for machines and on the real one.
#![cfg_attr(
    tg_linux,
    expect(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::print_stdout,
        reason = "the lints know test functions, not what they call"
    )
)]

#[cfg(tg_linux)]
mod cpu;
#[cfg(tg_linux)]
mod disk;
#[cfg(tg_linux)]
mod failures;
#[cfg(tg_linux)]
mod gpu;
#[cfg(tg_linux)]
mod gpu_events;
#[cfg(tg_linux)]
mod gpu_families;
#[cfg(tg_linux)]
mod gpu_faults;
#[cfg(tg_linux)]
mod gpu_machine;
#[cfg(tg_linux)]
mod gpu_restart;
#[cfg(tg_linux)]
mod hierarchies;
#[cfg(tg_linux)]
mod hostile;
mod kernel_log;
#[cfg(tg_linux)]
mod machine;
#[cfg(tg_linux)]
mod memory;
mod metrics;
#[cfg(tg_linux)]
mod pressure;
#[cfg(tg_linux)]
mod process;
#[cfg(tg_linux)]
mod processes;
#[cfg(tg_linux)]
mod real_host;
#[cfg(tg_linux)]
mod throttling;
#[cfg(tg_linux)]
mod tree;
#[cfg(tg_linux)]
mod whole_machine;
