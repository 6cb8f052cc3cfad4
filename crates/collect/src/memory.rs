//! Memory in use and its ceiling, both from the cgroup level with the tightest limit.
//!
//! Sources: `memory.max`, `memory.current`, `memory.stat` (version 2), `memory.limit_in_bytes`,
//! `memory.usage_in_bytes`, `memory.stat` (version 1), `/proc/meminfo`.

use std::path::PathBuf;

use crate::{
    cgroup::{Hierarchies, Level},
    host::Host,
    parse,
    pseudo_file::{Buffer, PseudoFile, ReadError},
};

/// Memory of the node as it is now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct MemoryReading {
    pub(crate) used_bytes: u64,
    pub(crate) ceiling_bytes: u64,
    /// Level whose limit binds, as an index from the innermost, and that limit; `None` for the host.
    pub(crate) binding: Option<(usize, u64)>,
}

/// The files memory is read from.
#[derive(Debug)]
pub(crate) struct Memory {
    levels: Vec<MemoryLevel>,
    meminfo: PseudoFile,
}

#[derive(Debug)]
struct MemoryLevel {
    level: Level,
    limit: PseudoFile,
    usage: PseudoFile,
    stat: PseudoFile,
}

impl Memory {
    pub(crate) fn new(host: &Host) -> Self {
        Self { levels: Vec::new(), meminfo: host.file("/proc/meminfo") }
    }

    /// Takes the levels of these hierarchies in place of the ones known.
    pub(crate) fn resolve(&mut self, host: &Host, hierarchies: &Hierarchies) {
        let chain = hierarchies.chain(host, b"memory");
        self.levels = chain.into_iter().map(MemoryLevel::new).collect();
    }

    pub(crate) fn levels(&self) -> usize {
        self.levels.len()
    }

    /// The level with this index, counted from the innermost.
    pub(crate) fn level(&self, index: usize) -> Option<&Level> {
        self.levels.get(index).map(|level| &level.level)
    }

    /// The level whose limit is the tightest, the outermost of equals, and that limit.
    fn binding(&mut self, buffer: &mut Buffer) -> Option<(usize, u64)> {
        let mut binding: Option<(usize, u64)> = None;
        for (index, level) in self.levels.iter_mut().enumerate() {
            // A level whose limit cannot be read or understood sets none.
            let Some(limit) = level.limit_bytes(buffer) else { continue };
            if binding.is_none_or(|(_, tightest)| limit <= tightest) {
                binding = Some((index, limit));
            }
        }
        binding
    }

    /// Reads memory; `Ok(None)` when neither a cgroup nor the host tells.
    pub(crate) fn read(&mut self, buffer: &mut Buffer) -> Result<Option<MemoryReading>, String> {
        let host = self.read_host(buffer);
        if let Some((index, limit)) = self.binding(buffer)
            && let Some(used_bytes) = self.used_bytes(index, buffer)?
        {
            let total = host.as_ref().ok().and_then(|(total, _)| *total);
            let ceiling_bytes = total.map_or(limit, |total| limit.min(total));
            return Ok(Some(MemoryReading { used_bytes, ceiling_bytes, binding: Some((index, limit)) }));
        }
        let (total, available) = host?;
        Ok(total.zip(available).map(|(total, available)| MemoryReading {
            used_bytes: total.saturating_sub(available),
            ceiling_bytes: total,
            binding: None,
        }))
    }

    /// Working set of the level, or of the innermost one that has a usage file when this has none.
    fn used_bytes(&mut self, index: usize, buffer: &mut Buffer) -> Result<Option<u64>, String> {
        if let Some(used) = self.levels[index].used_bytes(buffer)? {
            return Ok(Some(used));
        }
        for level in &mut self.levels {
            if let Some(used) = level.used_bytes(buffer)? {
                return Ok(Some(used));
            }
        }
        Ok(None)
    }

    /// MemTotal and MemAvailable of the host, in bytes, each where it is told.
    fn read_host(&mut self, buffer: &mut Buffer) -> Result<(Option<u64>, Option<u64>), String> {
        match self.meminfo.read(buffer) {
            Ok(text) => Ok((parse::meminfo(text, b"MemTotal"), parse::meminfo(text, b"MemAvailable"))),
            Err(ReadError::Absent) => Ok((None, None)),
            Err(ReadError::Failed(cause)) => Err(cause),
        }
    }
}

impl MemoryLevel {
    fn new(level: Level) -> Self {
        let file = |name: &str| PseudoFile::new(level.directory.join(name));
        let (limit, usage) = if level.unified {
            (file("memory.max"), file("memory.current"))
        } else {
            (file("memory.limit_in_bytes"), file("memory.usage_in_bytes"))
        };
        let stat = file("memory.stat");
        Self { level, limit, usage, stat }
    }

    fn limit_bytes(&mut self, buffer: &mut Buffer) -> Option<u64> {
        let parse = if self.level.unified { parse::memory_max } else { parse::limit_in_bytes };
        parse(self.limit.read(buffer).ok()?)
    }

    /// Usage without inactive file pages, floored at 0; `Ok(None)` when the level has no usage file.
    fn used_bytes(&mut self, buffer: &mut Buffer) -> Result<Option<u64>, String> {
        let usage = match self.usage.read(buffer) {
            Ok(text) => parse::number(text).ok_or_else(|| self.usage.malformed("a number of bytes"))?,
            Err(ReadError::Absent) => return Ok(None),
            Err(ReadError::Failed(cause)) => return Err(cause),
        };
        let key: &[u8] = if self.level.unified { b"inactive_file" } else { b"total_inactive_file" };
        let inactive = self.stat.read(buffer).ok().and_then(|text| parse::field(text, key));
        Ok(Some(usage.saturating_sub(inactive.unwrap_or(0))))
    }
}

/// Directory of a level, for people.
pub(crate) fn directory(level: Option<&Level>) -> PathBuf {
    level.map_or_else(|| PathBuf::from("/proc/meminfo"), |level| level.directory.clone())
}
