//! The parts that an agent looks at, in order: the cards first, since others go by them.

use std::ffi::OsStr;
use std::path::Path;

use collect::{Host, gpu::GpuEvents};

use crate::cards::SharedCards;
use crate::config::Config;
use crate::driver_events::DriverEvents;
use crate::gpu::GpuSource;
use crate::log::{KernelLog, LogInput, LogOptions, SharedHeard};
use crate::machine::Machine;
use crate::owners::{Owners, OwnersOptions};
use crate::tick::Source;

/// All of them.
pub(crate) fn all(config: &Config, state_dir: &Path, boot_id: &str) -> Vec<Box<dyn Source>> {
    let cards = SharedCards::default();
    let (told, heard) = (GpuEvents::default(), SharedHeard::default());
    let gpu = GpuSource::new(config.gpu_library.clone(), boot_id, cards.clone(), told.clone());
    let input = LogInput::of(OsStr::new(&config.kmsg));
    let log = LogOptions { input, state: Some(state_dir.to_owned()), machine: Host::at(&config.root) };
    let log = KernelLog::new(log, cards.clone(), heard.clone());
    // Behind the log, which says more of what both tell.
    let driver = DriverEvents::new(told, heard, Some(state_dir.to_owned()));
    let machine = Machine::new(Host::at(&config.root), cards.clone());
    let mut parts: Vec<Box<dyn Source>> =
        vec![Box::new(gpu), Box::new(log), Box::new(driver), Box::new(machine)];
    let mut owners = OwnersOptions::at(&config.root);
    if let Some(socket) = &config.kubelet_socket {
        owners.kubelet.clone_from(socket);
    }
    match Owners::start(owners, cards) {
        Ok(owners) => parts.push(Box::new(owners)),
        Err(error) => tracing::warn!("nobody looks for who owns a card: cannot start a thread: {error}"),
    }
    parts
}
