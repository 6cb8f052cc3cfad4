//! Which locks this process holds already, in whichever run.
//!
//! The kernel does not keep a process from taking its own lock twice, and lets go of it as soon as any
//! descriptor of the file is closed. So nobody in this process opens a file that another one holds.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, TryLockError};

/// Device and inode of a file.
pub(super) type Identity = (u64, u64);

/// Tries to get at the list before it counts as out of reach.
const TRIES: u32 = 10_000;

/// Files, each with the process that holds it.
type List = Vec<(u32, Identity)>;

static HELD: Mutex<List> = Mutex::new(Vec::new());
/// The process that the list was begun in.
static HOME: AtomicU32 = AtomicU32::new(0);

/// Whether this process holds it.
pub(super) fn is_held(identity: Identity) -> Result<bool, String> {
    let me = std::process::id();
    Ok(list()?.is_some_and(|held| held.contains(&(me, identity))))
}

/// Enters a file; `false` when it is entered already.
pub(super) fn enter(identity: Identity) -> Result<bool, String> {
    let mine = (std::process::id(), identity);
    let Some(mut held) = list()? else { return Ok(true) };
    if held.contains(&mine) {
        return Ok(false);
    }
    held.push(mine);
    Ok(true)
}

/// Takes a file off the list.
pub(super) fn leave(identity: Identity) {
    let mine = (std::process::id(), identity);
    if let Ok(Some(mut held)) = list() {
        held.retain(|entry| *entry != mine);
    }
}

/// The list; `None` in a forked child where a thread of the parent was at it, which is not there to let
/// go of it.
fn list() -> Result<Option<MutexGuard<'static, List>>, String> {
    let me = std::process::id();
    let home = HOME.compare_exchange(0, me, Ordering::Relaxed, Ordering::Relaxed).unwrap_or_else(|home| home);
    for _ in 0..TRIES {
        match HELD.try_lock() {
            Ok(held) => return Ok(Some(held)),
            Err(TryLockError::Poisoned(held)) => return Ok(Some(held.into_inner())),
            Err(TryLockError::WouldBlock) => std::thread::yield_now(),
        }
    }
    if home == 0 || home == me {
        return Err("cannot look at this process's own locks: another thread is at them".to_owned());
    }
    Ok(None)
}
