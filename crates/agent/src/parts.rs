//! The parts that an agent looks at, in order: the cards first, since others go by them.

use std::ffi::OsStr;
use std::path::Path;

use collect::Host;

use crate::cards::SharedCards;
use crate::config::Config;
use crate::gpu::GpuSource;
use crate::log::{KernelLog, LogInput, LogOptions, SharedHeard};
use crate::owners::{Owners, OwnersOptions};
use crate::tick::Source;

/// Where the kernel has its log.
const KMSG: &str = "/dev/kmsg";

/// All of them.
pub(crate) fn all(config: &Config, state_dir: &Path, boot_id: &str) -> Vec<Box<dyn Source>> {
    let cards = SharedCards::default();
    let gpu = GpuSource::new(config.gpu_library.clone(), boot_id, cards.clone());
    let input = if config.kmsg == KMSG { LogInput::Kernel } else { LogInput::of(OsStr::new(&config.kmsg)) };
    let log = LogOptions { input, state: Some(state_dir.to_owned()), machine: Host::at(&config.root) };
    let log = KernelLog::new(log, cards.clone(), SharedHeard::default());
    let mut parts: Vec<Box<dyn Source>> = vec![Box::new(gpu), Box::new(log)];
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
