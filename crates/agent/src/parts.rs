//! The parts that an agent looks at, in order: the cards first, since others go by them.

use std::path::Path;

use crate::cards::SharedCards;
use crate::config::Config;
use crate::gpu::GpuSource;
use crate::tick::Source;

/// All of them.
pub(crate) fn all(config: &Config, _state_dir: &Path, boot_id: &str) -> Vec<Box<dyn Source>> {
    let cards = SharedCards::default();
    vec![Box::new(GpuSource::new(config.gpu_library.clone(), boot_id, cards))]
}
