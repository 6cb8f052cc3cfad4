//! Who reports what on a machine: one lock for each GPU and one for the node, in a folder that the
//! processes of a run share.
//!
//! A lock is held by a process, not by a descriptor: the kernel lets go of it when the process ends,
//! however it ends and whatever children it leaves behind, and a forked child has none of them.
//! Everything may be asked again at every tick: a lock that is held stays held and is looked after.

use model::{Arbitration, CaptureOwner, RunPath};

/// Who asks.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Me {
    /// Host name, as in the label `host`.
    pub host: String,
    /// Rank in the job.
    pub rank: Option<u32>,
    /// Rank on this node.
    pub local_rank: Option<u32>,
    /// What the launcher calls the job.
    pub job_token: String,
}

/// An answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Claim {
    /// It is this process's.
    Held {
        /// The last step that an earlier owner wrote, when it was claimed just now.
        last_step: Option<i64>,
    },
    /// Another process has it.
    Taken(CaptureOwner),
    /// It could not be asked for; why. Ask again at the next tick.
    Failed(String),
}

/// The claims of one process on one run's machine.
#[derive(Debug)]
pub struct Claims {
    mode: Arbitration,
    domain: String,
}

impl Claims {
    /// Finds the folder that the run's processes share. Without one, nobody can be asked: then every
    /// device is granted, and the node to the local rank 0 or to a process that knows none.
    pub fn open(_path: &RunPath, _me: &Me) -> Self {
        Self { mode: Arbitration::Unavailable, domain: String::new() }
    }

    /// How processes agree. With [`Arbitration::Unavailable`] only take what is your own.
    pub fn mode(&self) -> Arbitration {
        self.mode
    }

    /// Which folder holds the locks: equal for two processes exactly when each sees the other's; empty
    /// where there is none.
    pub fn domain(&self) -> &str {
        &self.domain
    }

    /// Why places were passed over, one sentence each.
    pub fn passed_over(&self) -> &[String] {
        &[]
    }

    /// Asks for a device, or looks after it when it is held: a lock that was lost is asked for anew.
    pub fn try_device(&mut self, _uuid: &str) -> Claim {
        Claim::Held { last_step: None }
    }

    /// The same for the node's own series.
    pub fn try_node(&mut self) -> Claim {
        Claim::Held { last_step: None }
    }

    /// Who has a device, as far as it left its name; `None` when nobody has it or this process does.
    pub fn holder(&self, _uuid: &str) -> Option<CaptureOwner> {
        None
    }

    /// The same for the node.
    pub fn node_holder(&self) -> Option<CaptureOwner> {
        None
    }

    /// Writes into every held lock how far its series are, for whoever comes after this process.
    pub fn note(&mut self, _last_step: i64, _time_ns: i64) {}

    /// Lets go of one device.
    pub fn release_device(&mut self, _uuid: &str) {}

    /// Lets go of everything; dropping does the same.
    pub fn release(self) {}

    /// In a forked child: closes what was inherited. The parent's locks stay the parent's.
    pub fn abandon(self) {}
}
