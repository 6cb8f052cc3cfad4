//! Who reports what on a machine: one lock for each GPU and one for the node, in a folder that the
//! processes of a run share.
//!
//! A lock belongs to a process, not to a descriptor: the kernel lets go of it when the process ends,
//! however it ends and whatever children it leaves behind, and a forked child has none of them
//! (`docs/decisions/0008-process-locks.md`). Everything may be asked again at every tick: a lock that
//! is held stays held and is looked after. A forked child may let go of what it inherited in any way,
//! the parent keeps its locks.

#![cfg(tg_linux)]

mod folder;
mod here;
mod lock;
mod present;
mod record;
mod tidy;

use std::path::{Path, PathBuf};

use model::{Arbitration, CaptureOwner, RunPath};

use self::{folder::Folder, lock::Lock};

pub use present::{Present, present, present_in};

/// Name of the node's lock.
const NODE: &str = "node.lock";

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
    me: Me,
    passed_over: Vec<String>,
    folder: Option<Folder>,
    held: Vec<Lock>,
}

impl Claims {
    /// Finds the folder that the run's processes share. Without one, nobody can be asked: then every
    /// device is granted, and the node to the local rank 0 or to a process that knows none.
    pub fn open(path: &RunPath, me: &Me, temporary: &Path) -> Self {
        let places =
            [(Arbitration::Shm, PathBuf::from("/dev/shm")), (Arbitration::Tmp, temporary.to_owned())];
        Self::open_in(&places, path, me)
    }

    /// [`Claims::open`], in the first of these places that can be used.
    #[doc(hidden)]
    pub fn open_in(places: &[(Arbitration, PathBuf)], path: &RunPath, me: &Me) -> Self {
        let (folder, passed_over) = Folder::find(places, &folder::key(path, &collect::boot_id()));
        if let Some(folder) = &folder {
            tidy::tidy(folder);
        }
        Self { me: me.clone(), passed_over, folder, held: Vec::new() }
    }

    /// Why places were passed over, one sentence each.
    pub fn passed_over(&self) -> &[String] {
        &self.passed_over
    }

    /// Asks for a device, or looks after it when it is held: a lock that was lost is asked for anew.
    pub fn try_device(&mut self, uuid: &str) -> Claim {
        self.claim(&folder::device_file(uuid))
    }

    /// The same for the node's own series.
    pub fn try_node(&mut self) -> Claim {
        if self.folder.is_some() {
            return self.claim(NODE);
        }
        match self.me.local_rank {
            None | Some(0) => Claim::Held { last_step: None },
            Some(_) => Claim::Taken(CaptureOwner { host: self.me.host.clone(), ..CaptureOwner::default() }),
        }
    }

    /// Lets go of everything in good order. Dropping lets go as well, and looks like a death to others.
    pub fn release(mut self) {
        self.held.drain(..).for_each(Lock::release);
    }

    /// In a forked child: closes what was inherited. The parent's locks stay the parent's.
    pub fn abandon(self) {}

    /// How processes agree. With [`Arbitration::Unavailable`] only take what is your own.
    pub fn mode(&self) -> Arbitration {
        self.folder.as_ref().map_or(Arbitration::Unavailable, Folder::place)
    }

    /// Which folder holds the locks: equal for two processes exactly when each sees the other's; empty
    /// where there is none.
    pub fn domain(&self) -> &str {
        self.folder.as_ref().map_or("", Folder::domain)
    }

    /// Who has a device, as far as it left its name; `None` when nobody has it or this process does.
    pub fn holder(&self, uuid: &str) -> Option<CaptureOwner> {
        lock::holder(self.folder.as_ref()?, &folder::device_file(uuid), &self.me)
    }

    /// The same for the node.
    pub fn node_holder(&self) -> Option<CaptureOwner> {
        lock::holder(self.folder.as_ref()?, NODE, &self.me)
    }

    /// When whoever had a device last noted a step, if it ended without letting go and nobody has it
    /// since: nanoseconds since the epoch, 0 for never.
    pub fn left_behind_ns(&self, uuid: &str) -> Option<i64> {
        lock::left_behind_ns(self.folder.as_ref()?, &folder::device_file(uuid))
    }

    /// Writes into every held lock how far its series are, for whoever comes after this process.
    pub fn note(&mut self, last_step: i64, time_ns: i64) {
        for lock in &mut self.held {
            lock.note(&self.me, last_step, time_ns);
        }
    }

    /// Lets go of one device.
    pub fn release_device(&mut self, uuid: &str) {
        let file = folder::device_file(uuid);
        if let Some(at) = self.held.iter().position(|lock| lock.file() == file) {
            self.held.swap_remove(at).release();
        }
    }

    fn claim(&mut self, file: &str) -> Claim {
        let Some(folder) = &mut self.folder else { return Claim::Held { last_step: None } };
        if let Some(at) = self.held.iter().position(|lock| lock.file() == file) {
            if self.held[at].is_still_held() {
                return Claim::Held { last_step: None };
            }
            self.held.swap_remove(at);
        }
        match lock::acquire(folder, file, &self.me) {
            Ok(lock::Asked::Ours(lock)) => {
                let last_step = lock.last_step();
                self.held.push(lock);
                Claim::Held { last_step }
            }
            Ok(lock::Asked::Taken(owner)) => Claim::Taken(owner),
            Err(cause) => Claim::Failed(cause),
        }
    }
}
