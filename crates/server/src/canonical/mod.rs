//! Series under canonical names, made beside the originals as they come in.

use store::{Batch, Receipt, Store};

/// Whose samples a batch holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Origin {
    /// A node's agent: its series have canonical names already.
    Agent,
    /// Anybody else: the names are the sender's.
    Elsewhere,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Canon;

impl Canon {
    /// Adds what the samples of a batch are under canonical names, and what is to be remembered of them, to
    /// the same batch. Doing it again with the same samples comes to the same.
    #[expect(clippy::unused_self, clippy::needless_pass_by_ref_mut, reason = "nothing is made yet")]
    pub(crate) fn apply(&self, _store: &Store, _origin: Origin, _batch: &mut Batch) {}

    /// Learns what became of a batch.
    #[expect(clippy::unused_self, reason = "nothing is made yet")]
    pub(crate) fn settled(&self, _receipt: &Receipt) {}
}
