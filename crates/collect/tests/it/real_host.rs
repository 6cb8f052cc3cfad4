//! The machine the tests run on, held against its own files, read here by hand.

use std::{
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::{Child, Command},
    time::{Duration, Instant},
};

use collect::{Host, NodeSampler, ProcessSampler};

use crate::machine::{GIB, causes, node_tick, process_tick};

fn number(path: &Path) -> Option<u64> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

fn field(path: &Path, key: &str) -> Option<u64> {
    let text = fs::read_to_string(path).ok()?;
    let line = text.lines().find(|line| line.split_whitespace().next() == Some(key))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

/// Where a controller is mounted, by the options of the superblock; the unified hierarchy for `""`.
fn mount_point(controller: &str) -> Option<PathBuf> {
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let wanted = if controller.is_empty() { "cgroup2" } else { "cgroup" };
    let mut points = table.lines().filter_map(|line| {
        let (left, right) = line.split_once(" - ")?;
        let mut right = right.split(' ');
        let named =
            controller.is_empty() || line.rsplit(' ').next()?.split(',').any(|name| name == controller);
        (right.next()? == wanted && named).then(|| PathBuf::from(left.split(' ').nth(4).unwrap()))
    });
    points.next_back()
}

/// A cgroup of this test's own with half a CPU and 1 GiB, and a process in it that burns CPU.
struct Cage {
    folders: Vec<PathBuf>,
    child: Option<Child>,
    usage: PathBuf,
    memory: PathBuf,
    unified: bool,
}

impl Cage {
    /// `None` where this process may not make one, or the machine has no such controllers.
    fn new() -> Option<Self> {
        let name = format!("truegauge-test-{}", std::process::id());
        let v1 =
            ["memory", "cpu", "cpuacct"].map(|controller| mount_point(controller).map(|at| at.join(&name)));
        let mut cage = if let [Some(memory), Some(cpu), Some(cpuacct)] = v1 {
            let usage = cpuacct.join("cpuacct.usage");
            Self { folders: vec![memory.clone(), cpu, cpuacct], child: None, usage, memory, unified: false }
        } else {
            let folder = mount_point("")?.join(&name);
            let usage = folder.join("cpu.stat");
            Self { folders: vec![folder.clone()], child: None, usage, memory: folder, unified: true }
        };
        cage.fill().then_some(cage)
    }

    fn fill(&mut self) -> bool {
        let files: &[(usize, &str, &str)] = if self.unified {
            &[(0, "memory.max", "1073741824"), (0, "cpu.max", "50000 100000")]
        } else {
            &[
                (0, "memory.limit_in_bytes", "1073741824"),
                (1, "cpu.cfs_period_us", "100000"),
                (1, "cpu.cfs_quota_us", "50000"),
            ]
        };
        for folder in &self.folders {
            if fs::create_dir(folder).is_err() && !folder.is_dir() {
                return false;
            }
        }
        if files.iter().any(|(index, name, text)| fs::write(self.folders[*index].join(name), text).is_err()) {
            return false;
        }
        // It holds 16 MiB and computes for ever.
        let script = "x=$(head -c 16777216 /dev/zero | tr '\\0' x); while :; do :; done";
        let child = Command::new("sh").args(["-c", script]).spawn().unwrap();
        let pid = child.id().to_string();
        self.child = Some(child);
        self.folders.iter().all(|folder| fs::write(folder.join("cgroup.procs"), &pid).is_ok())
    }

    fn used_ns(&self) -> u64 {
        if self.unified {
            field(&self.usage, "usage_usec").unwrap() * 1000
        } else {
            number(&self.usage).unwrap()
        }
    }

    fn used_bytes(&self) -> u64 {
        let (usage, key) = if self.unified {
            ("memory.current", "inactive_file")
        } else {
            ("memory.usage_in_bytes", "total_inactive_file")
        };
        let inactive = field(&self.memory.join("memory.stat"), key).unwrap();
        number(&self.memory.join(usage)).unwrap().saturating_sub(inactive)
    }
}

impl Drop for Cage {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            let _ = child.kill();
            let _ = child.wait();
        }
        let deadline = Instant::now() + Duration::from_secs(10);
        for folder in &self.folders {
            // The kernel needs a moment until the cgroup of a process that ended is empty.
            while folder.is_dir() && fs::remove_dir(folder).is_err() && Instant::now() < deadline {
                std::thread::yield_now();
            }
        }
    }
}

/// The real machine as the process `pid` sees it.
fn seen_by(pid: u32) -> (tempfile::TempDir, Host) {
    let folder = tempfile::TempDir::new().unwrap();
    fs::create_dir(folder.path().join("proc")).unwrap();
    symlink("/sys", folder.path().join("sys")).unwrap();
    symlink(format!("/proc/{pid}"), folder.path().join("proc/self")).unwrap();
    for name in ["meminfo", "stat"] {
        symlink(format!("/proc/{name}"), folder.path().join("proc").join(name)).unwrap();
    }
    let host = Host::at(folder.path());
    (folder, host)
}

/// Holds the sampler of a process in a real cgroup against the files of that cgroup.
fn check_cage(cage: &Cage) {
    let (_folder, host) = seen_by(cage.child.as_ref().unwrap().id());
    let facts = collect::facts(&host);
    assert_eq!(facts.memory.unwrap().limit_bytes, Some(GIB));
    assert_eq!(facts.cpu.unwrap().capacity_cpus, 0.5);
    let mut sampler = NodeSampler::new(host);
    let clock = Instant::now();
    let now = || clock.elapsed().as_nanos() as u64;
    // A tick reads its counter somewhere between the two readings around it.
    let around = |sampler: &mut NodeSampler| {
        let (before, at) = (cage.used_ns(), now());
        let tick = node_tick(sampler, at);
        (before, cage.used_ns(), at, tick)
    };
    let first = around(&mut sampler);
    let deadline = Instant::now() + Duration::from_secs(50);
    while cage.used_ns() < first.1 + 500_000_000 {
        assert!(Instant::now() < deadline, "the process in the cgroup did not get half a second of CPU");
        std::thread::yield_now();
    }
    let memory_before = cage.used_bytes();
    let second = around(&mut sampler);
    let memory_after = cage.used_bytes();
    let share = |used: u64| used as f64 / (second.2 - first.2) as f64 / 0.5 * 100.0;
    let cpu = second.3["system/cpu/utilization"];
    let (low, high) = (share(second.0 - first.1), share(second.1 - first.0));
    println!("cpu {cpu:.3} %, by hand {low:.3} to {high:.3} %");
    assert!(low <= cpu && cpu <= high, "{cpu} is not between {low} and {high}");
    let used = second.3["system/memory/used_bytes"];
    println!("memory {used} B, by hand {memory_before} to {memory_after} B");
    let (low, high) = (memory_before.min(memory_after) as f64, memory_before.max(memory_after) as f64);
    assert!(low * 0.99 <= used && used <= high * 1.01, "{used} is not between {low} and {high}");
    assert_eq!(second.3["system/memory/utilization"], used / GIB as f64 * 100.0);
    assert_eq!(causes(&sampler.take_failures()), "");
}

/// Holds the sampler of this process against the host's own files: needs no rights.
fn check_own() {
    let facts = collect::facts(&Host::real());
    let memory = facts.memory.expect("a Linux host tells its memory");
    let meminfo = Path::new("/proc/meminfo");
    let total = field(meminfo, "MemTotal:").unwrap() * 1024;
    assert!(memory.ceiling_bytes > 0 && memory.ceiling_bytes <= total);
    let mut sampler = NodeSampler::new(Host::real());
    let by_hand = || {
        if memory.limit_bytes.is_none() {
            return total - field(meminfo, "MemAvailable:").unwrap() * 1024;
        }
        let folder = Path::new(&memory.path);
        let v2 = folder.join("memory.current");
        let (usage, key) = if v2.exists() {
            (v2, "inactive_file")
        } else {
            (folder.join("memory.usage_in_bytes"), "total_inactive_file")
        };
        number(&usage).unwrap().saturating_sub(field(&folder.join("memory.stat"), key).unwrap())
    };
    let before = by_hand();
    let tick = node_tick(&mut sampler, 1);
    let after = by_hand();
    let used = tick["system/memory/used_bytes"];
    // Others allocate meanwhile; an eighth of the machine in a millisecond would be too much.
    let slack = total as f64 / 8.0;
    assert!(before.min(after) as f64 - slack <= used && used <= before.max(after) as f64 + slack);
    let cpu = facts.cpu.expect("a Linux host tells its CPU time");
    assert!(cpu.capacity_cpus > 0.0 && Path::new(&cpu.path).is_file(), "{cpu:?}");
    assert_eq!(causes(&sampler.take_failures()), "");
}

#[test]
fn a_process_in_a_real_cgroup_reads_as_the_cgroups_own_files() {
    check_own();
    match Cage::new() {
        Some(cage) => check_cage(&cage),
        // Said, not hidden: without the right to make a cgroup only the line above was checked.
        None => println!("no cgroup could be made here: checked this process's own numbers only"),
    }
}

#[test]
fn the_real_process_reads_as_its_own_files() {
    let ticks = || {
        let text = fs::read_to_string("/proc/self/stat").unwrap();
        let fields: Vec<&str> = text.rsplit_once(')').unwrap().1.split_whitespace().collect();
        fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
    };
    let mut sampler = ProcessSampler::new(Host::real());
    let first = (ticks(), process_tick(&mut sampler, 0), ticks());
    assert!(first.1["system/process/rss_bytes"] > 0.0);
    let deadline = Instant::now() + Duration::from_secs(50);
    while ticks() < first.2 + 5 {
        assert!(Instant::now() < deadline, "this process got no CPU");
    }
    let second = (ticks(), process_tick(&mut sampler, 1_000_000_000), ticks());
    let hz = rustix::param::clock_ticks_per_second() as f64;
    let share = |ticks: u64| ticks as f64 / hz * 100.0;
    let cpu = second.1["system/process/cpu_utilization"];
    assert!(share(second.0 - first.2) <= cpu && cpu <= share(second.2 - first.0), "{cpu}");
    assert_eq!(causes(&sampler.take_failures()), "");
}

#[test]
fn the_machine_has_a_name_and_a_thread_has_a_cost() {
    const { assert!(collect::SUPPORTED) };
    let name = fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    assert_eq!(collect::hostname(), name.trim_end());
    assert!(collect::platform().starts_with("Linux "), "{}", collect::platform());
    let before = collect::thread_cpu_seconds().unwrap();
    let deadline = Instant::now() + Duration::from_secs(50);
    while collect::thread_cpu_seconds().unwrap() <= before {
        assert!(Instant::now() < deadline, "this thread got no CPU");
    }
}
