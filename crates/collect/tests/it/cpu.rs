//! CPU: which scope is measured, and against how many CPUs.

use std::fs;

use crate::machine::{Machine, SECOND_NS, assert_near, node_tick, node_values};

/// A level of the unified hierarchy: `cpu.max`, `cpuset.cpus.effective` (empty: no file) and CPU time.
fn level(machine: &Machine, path: &str, quota: &str, cpuset: &str, used_seconds: f64) {
    let folder = format!("sys/fs/cgroup/{path}");
    let usage = format!("usage_usec {}\nuser_usec 1\nsystem_usec 1\n", (used_seconds * 1e6) as u64);
    machine.write_all(&folder, &[("cpu.max", quota), ("cpu.stat", &usage)]);
    if !cpuset.is_empty() {
        machine.write(format!("{folder}/cpuset.cpus.effective"), cpuset);
    }
}

fn unified(path: &str) -> Machine {
    let mut machine = Machine::new();
    machine.mount_unified();
    machine.cgroup(format!("0::{path}\n"));
    machine
}

/// Utilisation between two ticks one second apart; `set` writes the counters after 0 and 1 seconds.
fn over_a_second(machine: &Machine, mut set: impl FnMut(&Machine, f64)) -> Option<f64> {
    let mut sampler = machine.node();
    set(machine, 0.0);
    assert_eq!(node_values(&node_tick(&mut sampler, 5 * SECOND_NS)).0, None, "one reading makes no rate");
    set(machine, 1.0);
    node_values(&node_tick(&mut sampler, 6 * SECOND_NS)).0
}

#[test]
fn an_inherited_quota_is_the_capacity() {
    // T1: 1.5 CPUs burned under a quota of 2 one level up, then 0.25 under half a CPU.
    let machine = unified("/pod/c1");
    let set = |quota: &'static str, rate: f64| {
        move |machine: &Machine, at: f64| {
            level(machine, "pod", quota, "", 10.0 + rate * at);
            level(machine, "pod/c1", "max 100000\n", "", 3.0 + rate * at);
        }
    };
    assert_near(over_a_second(&machine, set("200000 100000\n", 1.5)), 75.0);
    assert_near(over_a_second(&machine, set("50000 100000\n", 0.25)), 50.0);
}

#[test]
fn usage_comes_from_the_level_whose_quota_binds() {
    // W1, the layout of a Slurm job: 6.4 of 8 CPUs busy, 0.8 of them by this task.
    let job = "system.slice/slurmstepd.scope/job_7";
    let machine = unified(&format!("/{job}/step_0/user/task_0"));
    let busy = over_a_second(&machine, |machine, at| {
        level(machine, "", "", "0-63", 900.0 + 60.0 * at);
        level(machine, job, "max 100000", "8-15", 6.4 * at);
        level(machine, &format!("{job}/step_0"), "max 100000", "8-15", 6.4 * at);
        level(machine, &format!("{job}/step_0/user"), "max 100000", "8-15", 6.4 * at);
        level(machine, &format!("{job}/step_0/user/task_0"), "max 100000", "8-15", 0.8 * at);
    });
    assert_near(busy, 80.0);
}

#[test]
fn affinity_of_one_rank_does_not_shrink_the_job() {
    // W2: the rank is pinned to one CPU, the job may use two and does.
    let machine = unified("/job");
    machine.write("proc/self/status", "Name:\tpython\nCpus_allowed_list:\t0\n");
    let busy = over_a_second(&machine, |machine, at| level(machine, "job", "max 100000", "0-1", 2.0 * at));
    assert_near(busy, 100.0);
}

#[test]
fn affinity_is_the_capacity_only_where_no_cgroup_says_which_cpus() {
    let machine = unified("/job");
    machine.write("proc/self/status", "Name:\tpython\nCpus_allowed_list:\t0-3,8\n");
    let busy = over_a_second(&machine, |machine, at| level(machine, "job", "max 100000", "", 2.5 * at));
    assert_near(busy, 50.0);
}

#[test]
fn a_quota_above_the_usable_cpus_is_the_usable_cpus() {
    // W3: a quota of 16 CPUs with two usable ones, both saturated.
    let machine = unified("/job");
    let set = |cpuset: &'static str| {
        move |machine: &Machine, at: f64| level(machine, "job", "1600000 100000", cpuset, 2.0 * at)
    };
    assert_near(over_a_second(&machine, set("4,6")), 100.0);
    let small = unified("/job");
    small.write("sys/devices/system/cpu/online", "0-1\n");
    assert_near(over_a_second(&small, set("")), 100.0);
}

#[test]
fn without_a_bound_the_outermost_level_is_measured() {
    // W4: the session uses little of a busy host.
    let machine = unified("/user.slice/session");
    let busy = over_a_second(&machine, |machine, at| {
        level(machine, "", "", "0-63", 60.8 * at);
        level(machine, "user.slice", "max 100000", "0-63", 3.2 * at);
        level(machine, "user.slice/session", "max 100000", "0-63", 3.2 * at);
    });
    assert_near(busy, 95.0);
}

#[test]
fn a_root_without_a_counter_leaves_it_to_the_next_level() {
    let machine = unified("/pod/c1");
    let busy = over_a_second(&machine, |machine, at| {
        level(machine, "pod", "max 100000", "", 32.0 * at);
        level(machine, "pod/c1", "max 100000", "", at);
    });
    assert_near(busy, 50.0);
}

#[test]
fn without_cgroups_the_host_is_measured() {
    let machine = Machine::new();
    let ticks = rustix::param::clock_ticks_per_second();
    let busy = over_a_second(&machine, |machine, at| {
        // user nice system idle iowait irq softirq steal guest guest_nice
        let spent = (at * ticks as f64) as u64;
        let line =
            [4 * spent, spent, 2 * spent, 9999 + spent, 77 + spent, spent, spent, 7 * spent, 4 * spent];
        let columns: Vec<String> = line.iter().map(u64::to_string).collect();
        machine.write("proc/stat", format!("cpu  {} 0\ncpu0 1 2 3 4 5\nintr 5\n", columns.join(" ")));
    });
    assert_near(busy, 16.0 / 64.0 * 100.0);
}

#[test]
fn a_stat_line_of_too_few_columns_gives_no_series() {
    let machine = Machine::new();
    let busy = over_a_second(&machine, |machine, at| {
        machine.write("proc/stat", format!("cpu  {} 2 3 4\n", 100.0 * at));
    });
    assert_eq!(busy, None);
}

#[test]
fn a_counter_that_comes_from_elsewhere_starts_again() {
    // W5: one tick without the level's counter must not show a jump.
    let machine = unified("/pod/c1");
    let mut sampler = machine.node();
    let tick = |machine: &Machine, at: u64, pod: f64, c1: f64| {
        level(machine, "pod", "200000 100000", "", pod);
        level(machine, "pod/c1", "max 100000", "", c1);
        at * SECOND_NS
    };
    let at = |sampler: &mut _, now| node_values(&node_tick(sampler, now)).0;
    let now = tick(&machine, 0, 1000.0, 1.0);
    assert_eq!(at(&mut sampler, now), None);
    let now = tick(&machine, 1, 1001.0, 1.5);
    assert_near(at(&mut sampler, now), 50.0);
    let now = tick(&machine, 2, 1002.0, 2.0);
    machine.remove("sys/fs/cgroup/pod/cpu.stat");
    assert_eq!(at(&mut sampler, now), None, "the inner counter is another one");
    let now = tick(&machine, 3, 1003.0, 2.5);
    assert_eq!(at(&mut sampler, now), None, "and back");
    let now = tick(&machine, 4, 1004.0, 3.0);
    assert_near(at(&mut sampler, now), 50.0);
}

#[test]
fn a_counter_that_goes_back_and_a_clock_that_stands_give_no_value() {
    let machine = unified("/pod");
    let mut sampler = machine.node();
    let mut tick = |at_ns: u64, used: f64| {
        level(&machine, "pod", "200000 100000", "", used);
        node_values(&node_tick(&mut sampler, at_ns)).0
    };
    assert_eq!(tick(SECOND_NS, 50.0), None);
    assert_eq!(tick(2 * SECOND_NS, 3.0), None, "backwards");
    assert_near(tick(3 * SECOND_NS, 4.0), 50.0);
    assert_eq!(tick(3 * SECOND_NS, 5.0), None, "no time passed");
    assert_near(tick(4 * SECOND_NS, 6.0), 50.0);
    assert_eq!(tick(2 * SECOND_NS, 7.0), None, "a clock that went back");
    assert_near(tick(3 * SECOND_NS, 8.0), 50.0);
}

#[test]
fn a_quota_that_changes_counts_from_the_next_tick() {
    let machine = unified("/pod");
    let mut sampler = machine.node();
    let mut tick = |at: u64, quota: &str| {
        level(&machine, "pod", quota, "", at as f64);
        node_values(&node_tick(&mut sampler, at * SECOND_NS)).0
    };
    assert_eq!(tick(0, "200000 100000"), None);
    assert_near(tick(1, "200000 100000"), 50.0);
    assert_near(tick(2, "400000 100000"), 25.0);
    assert_near(tick(3, "100000 50000"), 50.0);
    assert_near(tick(4, "100000"), 100.0);
}

#[test]
fn quotas_and_cpu_sets_that_cannot_be_understood_bound_nothing() {
    for (quota, cpuset) in [
        ("garbage", "0-x"),
        ("", "7-3"),
        ("-1 100000", ","),
        ("100000 0", "0-18446744073709551615"),
        ("0 100000", "\u{fffd}"),
        ("max", "\n"),
    ] {
        let machine = unified("/pod");
        let busy = over_a_second(&machine, |machine, at| level(machine, "pod", quota, cpuset, 32.0 * at));
        assert_near(busy, 50.0);
    }
}

#[test]
fn a_version_1_job_with_a_quota_elsewhere_is_measured_inside_it() {
    // The quota hierarchy shows the job and its step, the accounting one the step only.
    let mut machine = Machine::new();
    machine.mount("cgroup", "/", "/sys/fs/cgroup/cpu", "cpu");
    machine.mount("cgroup", "/", "/sys/fs/cgroup/cpuacct", "cpuacct");
    machine.cgroup("2:cpuacct:/job/step\n1:cpu:/job\n");
    machine.write_all(
        "sys/fs/cgroup/cpu/job",
        &[("cpu.cfs_quota_us", "200000\n"), ("cpu.cfs_period_us", "100000\n")],
    );
    let busy = over_a_second(&machine, |machine, at| {
        machine.write("sys/fs/cgroup/cpuacct/cpuacct.usage", format!("{}", (50.0 * at * 1e9) as u64));
        machine.write("sys/fs/cgroup/cpuacct/job/step/cpuacct.usage", format!("{}", (at * 1e9) as u64));
    });
    assert_near(busy, 50.0);
}

#[test]
fn a_file_replaced_under_its_name_is_read_anew() {
    let machine = unified("/pod");
    let busy = over_a_second(&machine, |machine, at| {
        level(machine, "pod", "200000 100000", "", 0.0);
        machine.write("sys/fs/cgroup/pod/new", format!("usage_usec {}\n", (at * 1e6) as u64));
        fs::rename(machine.path("sys/fs/cgroup/pod/new"), machine.path("sys/fs/cgroup/pod/cpu.stat"))
            .unwrap();
    });
    assert_near(busy, 50.0);
}
