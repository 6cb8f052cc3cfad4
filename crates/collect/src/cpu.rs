//! CPU time used and the CPUs it is a share of, both for one scope.
//!
//! The scope is the outermost cgroup level that attains the tightest cap, a level's cap being the
//! smaller of its quota and its CPU set. Without any cap it is the outermost level that has a counter,
//! and without such a level the host.
//!
//! Sources: `cpu.max`, `cpuset.cpus.effective`, `cpu.stat` (version 2), `cpu.cfs_quota_us`,
//! `cpu.cfs_period_us`, `cpuset.effective_cpus`, `cpuacct.usage` (version 1),
//! `/sys/devices/system/cpu/online`, `/proc/stat`.

use std::{path::Path, sync::Arc};

use crate::{
    cgroup::{self, Hierarchies, Level},
    facts::CpuBound,
    host::{Host, ticks_per_second},
    parse,
    pseudo_file::{Buffer, PseudoFile, ReadError},
    quota::Quota,
};

/// CPU time of the scope as it is now.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct CpuReading {
    /// CPU time used so far, in nanoseconds.
    pub(crate) used_ns: u64,
    /// The file it comes from.
    pub(crate) source: Arc<Path>,
    /// CPUs the scope may use.
    pub(crate) capacity_cpus: f64,
    pub(crate) bound: CpuBound,
    /// Directory of the scope when it lies in the unified hierarchy.
    pub(crate) unified: Option<Arc<Path>>,
}

/// The files CPU is read from.
#[derive(Debug)]
pub(crate) struct Cpu {
    /// From the innermost, that is the longest path, outwards.
    levels: Vec<CpuLevel>,
    online: PseudoFile,
    stat: PseudoFile,
    status: PseudoFile,
}

/// One cgroup, whichever hierarchies show it.
#[derive(Debug)]
struct CpuLevel {
    cgroup: Vec<u8>,
    quota: Option<Quota>,
    cpuset: Option<PseudoFile>,
    counter: Option<Counter>,
    /// What the quota and the CPU set of this level leave, read in this tick.
    cap: Option<Cap>,
}

#[derive(Debug)]
struct Counter {
    file: PseudoFile,
    unified: Option<Arc<Path>>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
struct Cap {
    cpus: f64,
    bound: CpuBound,
}

impl Cpu {
    pub(crate) fn new(host: &Host) -> Self {
        Self {
            levels: Vec::new(),
            online: host.file("/sys/devices/system/cpu/online"),
            stat: host.file("/proc/stat"),
            status: host.file("/proc/self/status"),
        }
    }

    /// Takes the levels of these hierarchies in place of the ones known.
    pub(crate) fn resolve(&mut self, host: &Host, hierarchies: &Hierarchies) {
        self.levels.clear();
        for level in hierarchies.chain(host, b"cpu") {
            let quota = Quota::of(&level);
            self.level(&level).quota = Some(quota);
        }
        for level in hierarchies.chain(host, b"cpuset") {
            let name = if level.unified { "cpuset.cpus.effective" } else { "cpuset.effective_cpus" };
            let file = PseudoFile::new(level.directory.join(name));
            self.level(&level).cpuset = Some(file);
        }
        for level in hierarchies.chain(host, b"cpuacct") {
            let counter = Counter::of(&level);
            self.level(&level).counter = Some(counter);
        }
        self.levels.sort_by_key(|level| std::cmp::Reverse(level.cgroup.len()));
    }

    /// The entry of this cgroup, made when there is none yet.
    fn level(&mut self, level: &Level) -> &mut CpuLevel {
        let found = self.levels.iter().position(|known| known.cgroup == level.cgroup);
        let index = found.unwrap_or_else(|| {
            self.levels.push(CpuLevel::new(level.cgroup.clone()));
            self.levels.len() - 1
        });
        &mut self.levels[index]
    }

    pub(crate) fn levels(&self) -> usize {
        self.levels.len()
    }

    /// Reads CPU time and capacity; `Ok(None)` when neither a cgroup nor the host tells.
    pub(crate) fn read(&mut self, buffer: &mut Buffer) -> Result<Option<CpuReading>, String> {
        let online = self.read_online(buffer);
        for level in &mut self.levels {
            level.read_cap(buffer, online);
        }
        if let Some(index) = self.binding()
            && let Some(reading) = self.read_inside(index, buffer)?
        {
            return Ok(Some(reading));
        }
        if let Some(reading) = self.read_outermost(online, buffer)? {
            return Ok(Some(reading));
        }
        self.read_host(online, buffer)
    }

    /// The outermost level that attains the tightest cap.
    fn binding(&self) -> Option<usize> {
        let mut binding: Option<(usize, f64)> = None;
        for (index, level) in self.levels.iter().enumerate() {
            let Some(cap) = level.cap else { continue };
            if binding.is_none_or(|(_, tightest)| cap.cpus <= tightest) {
                binding = Some((index, cap.cpus));
            }
        }
        binding.map(|(index, _)| index)
    }

    /// The counter of the binding level; where its hierarchy shows none, of the outermost level inside it.
    fn read_inside(&mut self, index: usize, buffer: &mut Buffer) -> Result<Option<CpuReading>, String> {
        let Some(cap) = self.levels[index].cap else { return Ok(None) };
        let binding = self.levels[index].cgroup.clone();
        for level in self.levels.iter_mut().rev().filter(|level| cgroup::holds(&binding, &level.cgroup)) {
            if let Some(reading) = level.read(cap, buffer)? {
                return Ok(Some(reading));
            }
        }
        Ok(None)
    }

    /// The outermost level that has a counter, against what bounds that level.
    fn read_outermost(
        &mut self,
        online: Option<u64>,
        buffer: &mut Buffer,
    ) -> Result<Option<CpuReading>, String> {
        let any_cpuset = self.levels.iter().any(|level| level.cap.is_some());
        for index in (0..self.levels.len()).rev() {
            let own = self.levels[index].cgroup.clone();
            let holders = self.levels.iter().filter(|level| cgroup::holds(&level.cgroup, &own));
            let tightest = holders.filter_map(|level| level.cap).min_by(|a, b| a.cpus.total_cmp(&b.cpus));
            if self.levels[index].counter.is_none() {
                continue;
            }
            let cap = tightest.or_else(|| {
                // No cgroup says which CPUs may be used: the affinity of the process is all there is.
                let affinity = if any_cpuset { None } else { self.read_affinity(buffer) };
                let affinity = affinity.map(|cpus| Cap { cpus: cpus as f64, bound: CpuBound::Affinity });
                let online = online.map(|cpus| Cap { cpus: cpus as f64, bound: CpuBound::Online });
                affinity.into_iter().chain(online).min_by(|a, b| a.cpus.total_cmp(&b.cpus))
            });
            let Some(cap) = cap else { continue };
            if let Some(reading) = self.levels[index].read(cap, buffer)? {
                return Ok(Some(reading));
            }
        }
        Ok(None)
    }

    /// `/proc/stat` against the CPUs that are online.
    fn read_host(&mut self, online: Option<u64>, buffer: &mut Buffer) -> Result<Option<CpuReading>, String> {
        let text = match self.stat.read(buffer) {
            Ok(text) => text,
            Err(ReadError::Absent) => return Ok(None),
            Err(ReadError::Failed(cause)) => return Err(cause),
        };
        let (Some(ticks), Some(cpus)) =
            (parse::stat_busy_ticks(text), online.or_else(|| parse::stat_cpus(text)))
        else {
            return Ok(None);
        };
        let used_ns = u128::from(ticks) * 1_000_000_000 / u128::from(ticks_per_second());
        Ok(Some(CpuReading {
            used_ns: used_ns as u64,
            source: Arc::clone(self.stat.path()),
            capacity_cpus: cpus as f64,
            bound: CpuBound::Online,
            unified: None,
        }))
    }

    /// How many CPUs are online; `None` when the machine does not tell.
    fn read_online(&mut self, buffer: &mut Buffer) -> Option<u64> {
        if let Ok(text) = self.online.read(buffer)
            && let Some(cpus) = parse::cpu_list(text)
        {
            return Some(cpus);
        }
        self.stat.read(buffer).ok().and_then(parse::stat_cpus)
    }

    /// How many CPUs the process's main thread may run on.
    fn read_affinity(&mut self, buffer: &mut Buffer) -> Option<u64> {
        let text = self.status.read(buffer).ok()?;
        text.split(|byte| *byte == b'\n')
            .find_map(|line| parse::cpu_list(line.strip_prefix(b"Cpus_allowed_list:")?))
    }
}

impl CpuLevel {
    fn new(cgroup: Vec<u8>) -> Self {
        Self { cgroup, quota: None, cpuset: None, counter: None, cap: None }
    }

    /// Reads what this level leaves: a file that cannot be read or understood bounds nothing.
    fn read_cap(&mut self, buffer: &mut Buffer, online: Option<u64>) {
        let quota = self.quota.as_mut().and_then(|quota| quota.slice(buffer));
        let quota = quota.map(|slice| Cap { cpus: slice.cpus(), bound: CpuBound::Quota });
        let cpuset = self.cpuset.as_mut().and_then(|file| parse::cpu_list(file.read(buffer).ok()?));
        let cpuset = cpuset.map(|cpus| Cap { cpus: cpus as f64, bound: CpuBound::Cpuset });
        let cap = cpuset.into_iter().chain(quota).min_by(|a, b| a.cpus.total_cmp(&b.cpus));
        let online = online.map(|cpus| Cap { cpus: cpus as f64, bound: CpuBound::Online });
        self.cap = cap.map(|cap| online.filter(|online| online.cpus < cap.cpus).unwrap_or(cap));
    }

    /// This level's counter against `cap`; `Ok(None)` when it has none.
    fn read(&mut self, cap: Cap, buffer: &mut Buffer) -> Result<Option<CpuReading>, String> {
        let Some(counter) = &mut self.counter else { return Ok(None) };
        let text = match counter.file.read(buffer) {
            Ok(text) => text,
            Err(ReadError::Absent) => return Ok(None),
            Err(ReadError::Failed(cause)) => return Err(cause),
        };
        let used_ns = match counter.unified {
            Some(_) => parse::field(text, b"usage_usec").and_then(|usec| usec.checked_mul(1000)),
            None => parse::number(text),
        };
        let wanted =
            if counter.unified.is_some() { "a line `usage_usec`" } else { "a number of nanoseconds" };
        let used_ns = used_ns.ok_or_else(|| counter.file.malformed(wanted))?;
        Ok(Some(CpuReading {
            used_ns,
            source: Arc::clone(counter.file.path()),
            capacity_cpus: cap.cpus,
            bound: cap.bound,
            unified: counter.unified.clone(),
        }))
    }
}

impl Counter {
    fn of(level: &Level) -> Self {
        let name = if level.unified { "cpu.stat" } else { "cpuacct.usage" };
        let file = PseudoFile::new(level.directory.join(name));
        Self { file, unified: level.unified.then(|| level.directory.as_path().into()) }
    }
}
