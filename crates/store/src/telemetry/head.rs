//! Blocks in memory: what was acknowledged and is in no file yet.

use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

use foldhash::HashMap;
use model::RunId;

use super::block::{Block, Summary};

/// A block that is in the log.
#[derive(Debug)]
pub(crate) struct HeadBlock {
    /// The number of its row; later ones have greater numbers.
    pub(crate) number: u64,
    pub(crate) summary: Summary,
    pub(crate) bytes: Arc<[u8]>,
}

/// Which spans blocks in memory hold, so that an earlier one of the same key is not shown.
#[derive(Debug, Default)]
struct Keys {
    /// By key, the first block that has it.
    first: HashMap<u64, u64>,
    /// Later blocks that have it too; few, if nobody sends anything twice.
    again: HashMap<u64, Vec<u64>>,
}

/// Blocks that become files together.
#[derive(Debug, Default)]
pub(crate) struct Generation {
    pub(crate) blocks: Vec<Arc<HeadBlock>>,
    keys: Arc<RwLock<Keys>>,
    pub(crate) rows: u64,
    pub(crate) bytes: u64,
}

impl Generation {
    pub(crate) fn push(&mut self, number: u64, block: Block) {
        let Block { summary, bytes, keys } = block;
        let mut known = self.keys.write().unwrap_or_else(PoisonError::into_inner);
        known.first.reserve(keys.len());
        for key in keys {
            let first = *known.first.entry(key).or_insert(number);
            if first != number {
                known.again.entry(key).or_default().push(number);
            }
        }
        drop(known);
        self.rows += u64::from(summary.count);
        self.bytes += bytes.len() as u64;
        self.blocks.push(Arc::new(HeadBlock { number, summary, bytes }));
    }

    /// Forgets the blocks of runs that are no more; returns their numbers.
    pub(crate) fn forget_runs(&mut self, is_gone: impl Fn(RunId) -> bool) {
        self.blocks.retain(|block| !block.summary.run.is_some_and(&is_gone));
        self.rows = self.blocks.iter().map(|block| u64::from(block.summary.count)).sum();
        self.bytes = self.blocks.iter().map(|block| block.bytes.len() as u64).sum();
    }

    /// The keys as of now, for reading them later.
    pub(super) fn known(&self) -> KnownKeys {
        KnownKeys { keys: self.keys.clone(), until: self.blocks.last().map_or(0, |block| block.number) }
    }
}

/// The keys of a generation up to a block.
#[derive(Debug, Clone)]
pub(super) struct KnownKeys {
    keys: Arc<RwLock<Keys>>,
    until: u64,
}

impl KnownKeys {
    pub(super) fn read(&self) -> ReadKeys<'_> {
        ReadKeys { keys: self.keys.read().unwrap_or_else(PoisonError::into_inner), until: self.until }
    }
}

/// The same, held still.
pub(super) struct ReadKeys<'k> {
    keys: RwLockReadGuard<'k, Keys>,
    until: u64,
}

impl ReadKeys<'_> {
    /// Whether a block after number `after` has the key.
    pub(super) fn has_later(&self, key: u64, after: u64) -> bool {
        let later = |number: &u64| after < *number && *number <= self.until;
        let Some(first) = self.keys.first.get(&key) else { return false };
        later(first) || self.keys.again.get(&key).is_some_and(|numbers| numbers.iter().any(later))
    }
}
