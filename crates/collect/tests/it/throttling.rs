//! How long CPU quotas held a process back: made-up hierarchies of every kind, and a real quota.

use std::{
    fs,
    path::PathBuf,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use collect::{Host, ProcessSampler};

use crate::machine::{Machine, SECOND_NS, Tick, causes};

const NAME: &str = "system/process/cpu_throttled_seconds_total";

fn extras(sampler: &mut ProcessSampler, at_ns: u64) -> Tick {
    let mut tick = Tick::new();
    sampler.sample_extras(at_ns, &mut |desc, value| assert!(tick.insert(desc.name, value).is_none()));
    tick
}

/// The total at each of the ticks that `turn` prepares.
fn totals(machine: &Machine, ticks: u64, turn: impl Fn(u64)) -> Vec<Option<f64>> {
    let mut sampler = machine.process();
    let tick = |at| {
        turn(at);
        extras(&mut sampler, at * SECOND_NS).get(NAME).copied()
    };
    (0..ticks).map(tick).collect()
}

fn v2(machine: &Machine, folder: &str, quota: &str, (periods, us): (u64, u64)) {
    machine.write(format!("{folder}/cpu.max"), quota);
    let stat = format!("usage_usec 9\nnr_periods 99\nnr_throttled {periods}\nthrottled_usec {us}\n");
    machine.write(format!("{folder}/cpu.stat"), stat);
}

fn v1(machine: &Machine, folder: &str, quota: &str, (periods, ns): (u64, u64)) {
    machine.write(format!("{folder}/cpu.cfs_quota_us"), quota);
    machine.write(format!("{folder}/cpu.cfs_period_us"), "100000\n");
    let stat = format!("nr_periods 99\nnr_throttled {periods}\nthrottled_time {ns}\n");
    machine.write(format!("{folder}/cpu.stat"), stat);
}

#[test]
fn the_total_begins_with_the_sampler_and_grows_by_what_the_kernel_adds() {
    let mut machine = Machine::new();
    machine.mount_unified();
    machine.cgroup("0::/pod\n");
    let total = totals(&machine, 3, |at| {
        v2(&machine, "sys/fs/cgroup/pod", "20000 100000", (500 + 10 * at, 7_000_000 + 400_000 * at));
    });
    assert_eq!(total, [Some(0.0), Some(0.4), Some(0.8)]);
}

#[test]
fn the_level_that_holds_back_the_longest_counts_whichever_has_the_tighter_quota() {
    let mut machine = Machine::new();
    machine.mount_unified();
    machine.cgroup("0::/slice/pod/c1\n");
    let total = totals(&machine, 3, |at| {
        // Many such pods share the slice, so that it is the wider quota that binds in the second half.
        let (of_pod, of_slice) = if at == 2 { (300_000, 1_100_000) } else { (300_000 * at, 100_000 * at) };
        v2(&machine, "sys/fs/cgroup/slice/pod/c1", "max 100000", (0, 0));
        v2(&machine, "sys/fs/cgroup/slice/pod", "100000 100000", (100 * at, of_pod));
        v2(&machine, "sys/fs/cgroup/slice", "400000 100000", (100 * at, of_slice));
    });
    assert_eq!(total, [Some(0.0), Some(0.3), Some(1.3)]);
}

#[test]
fn time_of_many_cpus_is_no_more_than_the_periods_that_it_lies_in() {
    let mut machine = Machine::new();
    machine.mount_unified();
    machine.cgroup("0::/pod\n");
    // Sixteen CPUs' queues stood still for 40 ms of each of five periods.
    let total = totals(&machine, 2, |at| {
        v2(&machine, "sys/fs/cgroup/pod", "400000 100000", (5 * at, 16 * 5 * 40_000 * at));
    });
    assert_eq!(total, [Some(0.0), Some(0.5)]);
}

#[test]
fn version_1_and_hybrid_hosts_are_read_where_the_controller_is() {
    for unified in [false, true] {
        let mut machine = Machine::new();
        machine.mount("cgroup", "/", "/sys/fs/cgroup/cpu,cpuacct", "cpu,cpuacct");
        if unified {
            machine.mount("cgroup2", "/", "/sys/fs/cgroup/unified", "");
        }
        machine.cgroup("4:cpu,cpuacct:/job/rank-3\n0::/job/rank-3\n");
        let folder = "sys/fs/cgroup/cpu,cpuacct/job/rank-3";
        let total = totals(&machine, 2, |at| {
            v1(&machine, folder, "20000\n", (10 * at, 750_000_000 * at));
            v1(&machine, "sys/fs/cgroup/cpu,cpuacct/job", "-1\n", (0, 0));
            if unified {
                // Without the controller a level of the unified hierarchy tells of usage alone.
                machine.write("sys/fs/cgroup/unified/job/rank-3/cpu.stat", "usage_usec 1\n");
            }
        });
        assert_eq!(total, [Some(0.0), Some(0.75)], "unified: {unified}");
    }
}

#[test]
fn without_a_quota_there_is_no_series_and_a_lifted_one_keeps_its_total() {
    let mut machine = Machine::new();
    machine.mount_unified();
    machine.cgroup("0::/pod\n");
    let total = totals(&machine, 5, |at| {
        let quota = if at == 0 || at == 3 { "max 100000" } else { "50000 100000" };
        v2(&machine, "sys/fs/cgroup/pod", quota, (10 * at, 500_000 * at));
    });
    assert_eq!(total, [None, Some(0.0), Some(0.5), Some(0.5), Some(0.5)]);
    assert_eq!(totals(&Machine::new(), 2, |_| ()), [None, None]);
}

#[test]
fn another_cgroup_under_the_same_name_or_another_name_begins_anew() {
    let mut machine = Machine::new();
    machine.mount_unified();
    let total = totals(&machine, 4, |at| {
        let pod = if at < 2 { "a" } else { "b" };
        machine.cgroup(format!("0::/{pod}\n"));
        let folder = format!("sys/fs/cgroup/{pod}");
        let told = [(90, 9_000_000), (95, 9_250_000), (40, 4_000_000), (3, 200_000)];
        v2(&machine, &folder, "50000 100000", told[at as usize]);
    });
    assert_eq!(total, [Some(0.0), Some(0.25), Some(0.25), Some(0.25)]);
}

#[test]
fn another_process_is_looked_at_in_its_own_cgroup() {
    let mut machine = Machine::new();
    machine.mount_unified();
    machine.cgroup("0::/launcher\n");
    machine.write("proc/77/cgroup", "0::/pod\n");
    let mut sampler = ProcessSampler::of(machine.host(), 77);
    for at in 0..2 {
        v2(&machine, "sys/fs/cgroup/pod", "50000 100000", (10 * at, 125_000 * at));
        let tick = extras(&mut sampler, at * SECOND_NS);
        assert_eq!(tick.get(NAME), Some(&(0.125 * at as f64)));
    }
}

#[test]
fn a_stat_that_does_not_tell_is_a_failure() {
    let mut machine = Machine::new();
    machine.mount_unified();
    machine.cgroup("0::/pod\n");
    machine.write("sys/fs/cgroup/pod/cpu.max", "50000 100000");
    machine.write("sys/fs/cgroup/pod/cpu.stat", "usage_usec 1\n");
    let mut sampler = machine.process();
    assert_eq!(extras(&mut sampler, 0).get(NAME), None);
    let failures = sampler.take_failures();
    let of_quota: Vec<_> = failures.into_iter().filter(|failure| failure.metric.name == NAME).collect();
    assert_eq!(of_quota.len(), 1);
    assert!(causes(&of_quota).contains("throttled_usec"), "{}", causes(&of_quota));
}

/// A process that is always busy.
struct Busy(Child);

impl Busy {
    fn new() -> Self {
        let child = Command::new("sh").args(["-c", "while :; do :; done"]).stdin(Stdio::null()).spawn();
        Self(child.unwrap())
    }
}

/// A cgroup with a quota of a fifth of a CPU that holds a process; gone at the end, after the process.
struct Real {
    folder: PathBuf,
    busy: Busy,
}

impl Real {
    /// `None` where this process may not make one.
    fn new() -> Option<Self> {
        let name = format!("truegauge-test-{}", std::process::id());
        for (base, files) in [
            ("/sys/fs/cgroup", &[("cpu.max", "20000 100000")][..]),
            ("/sys/fs/cgroup/cpu", &[("cpu.cfs_period_us", "100000"), ("cpu.cfs_quota_us", "20000")]),
        ] {
            let folder = PathBuf::from(base).join(&name);
            if fs::create_dir(&folder).is_err() {
                continue;
            }
            let is_set = files
                .iter()
                .all(|(file, text)| folder.join(file).exists() && fs::write(folder.join(file), text).is_ok());
            let busy = Busy::new();
            let is_in = is_set && fs::write(folder.join("cgroup.procs"), busy.0.id().to_string()).is_ok();
            let real = Self { folder, busy };
            if is_in {
                return Some(real);
            }
        }
        None
    }
}

impl Drop for Real {
    fn drop(&mut self) {
        self.busy.0.kill().unwrap();
        self.busy.0.wait().unwrap();
        // The kernel lets go of a process a moment after its end.
        let until = Instant::now() + Duration::from_secs(5);
        while fs::remove_dir(&self.folder).is_err() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

#[test]
fn a_real_quota_of_a_fifth_holds_a_busy_process_back() {
    let Some(real) = Real::new() else {
        println!("no cgroup with a quota can be made here");
        return;
    };
    let mut sampler = ProcessSampler::of(Host::real(), real.busy.0.id());
    let begun = Instant::now();
    let mut total = || {
        let at_ns = begun.elapsed().as_nanos() as u64;
        (extras(&mut sampler, at_ns)[NAME], at_ns as f64 / 1e9)
    };
    let first = total();
    assert_eq!(first.0, 0.0);
    let (held, at) = loop {
        std::thread::sleep(Duration::from_millis(50));
        let now = total();
        if now.0 > 1.0 || now.1 > 60.0 {
            break now;
        }
    };
    println!("held back for {held:.2} s of {:.2} s", at - first.1);
    assert!(held > 1.0, "{held} s of {at} s");
    assert!(held <= at - first.1 + 0.2, "a period more than went by: {held} s of {at} s");
}
