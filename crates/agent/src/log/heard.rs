//! What the kernel's log has told lately, for those who hear the same from elsewhere.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use collect::kernel_log::Bdf;

/// Most Xids that are remembered.
const XIDS_MAX: usize = 4096;

/// What the log told lately.
#[derive(Debug, Default)]
pub(crate) struct Heard {
    /// Whether the log is read at all.
    pub(crate) is_read: bool,
    xids: VecDeque<(Bdf, u32, i64)>,
    /// Xids that somebody else heard and the log did not tell.
    pub(crate) elsewhere: Vec<(Bdf, u32)>,
}

impl Heard {
    pub(crate) fn note(&mut self, xids: impl IntoIterator<Item = (Bdf, u32, i64)>) {
        self.xids.extend(xids);
        let beyond = self.xids.len().saturating_sub(XIDS_MAX);
        self.xids.drain(..beyond);
    }

    /// Takes out the report of an Xid of this card within so many nanoseconds of a time, where there is one:
    /// each stands for one that somebody else heard. Without a number any Xid is it.
    pub(crate) fn take(&mut self, gpu: Bdf, xid: Option<u32>, at_ns: i64, within_ns: u64) -> bool {
        let place = |bdf: &Bdf| (bdf.domain, bdf.bus, bdf.device);
        let is_it = |(told, code, at): &(Bdf, u32, i64)| {
            place(told) == place(&gpu)
                && xid.is_none_or(|xid| *code == xid)
                && at.abs_diff(at_ns) <= within_ns
        };
        let found = self.xids.iter().position(is_it);
        found.is_some_and(|at| self.xids.remove(at).is_some())
    }

    /// An Xid that the log did not tell is counted with those that it tells.
    pub(crate) fn count_elsewhere(&mut self, gpu: Bdf, xid: u32) {
        if self.elsewhere.len() < XIDS_MAX {
            self.elsewhere.push((gpu, xid));
        }
    }
}

/// The same, shared by the parts of an agent that hear of faults.
#[derive(Debug, Clone, Default)]
pub struct SharedHeard(Arc<Mutex<Heard>>);

impl SharedHeard {
    pub(crate) fn lock(&self) -> MutexGuard<'_, Heard> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
