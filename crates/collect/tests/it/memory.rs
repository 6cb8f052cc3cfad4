//! Memory: which level binds, and what counts as used.

use crate::machine::{GIB, Machine, SECOND_NS, assert_near, node_tick, node_values};

/// A level of the unified hierarchy with this limit, usage and inactive file pages.
fn level(machine: &Machine, path: &str, limit: &str, usage: u64, inactive: u64) {
    let folder = format!("sys/fs/cgroup/{path}");
    machine.write_all(
        &folder,
        &[
            ("memory.max", limit),
            ("memory.current", &format!("{usage}\n")),
            ("memory.stat", &format!("anon 5\nfile 7\ninactive_anon 3\ninactive_file {inactive}\nslab 1\n")),
        ],
    );
}

fn memory(machine: &Machine) -> (Option<f64>, Option<f64>) {
    let (_, used, utilization) = node_values(&node_tick(&mut machine.node(), 0));
    (used, utilization)
}

#[test]
fn usage_and_limit_come_from_the_level_with_the_tightest_limit() {
    // W1, a pod with 14 of 16 GiB used, 3 GiB of them by this container.
    let mut machine = Machine::new();
    machine.mount_unified();
    machine.cgroup("0::/pod/c1\n");
    level(&machine, "pod", "17179869184\n", 15 * GIB, GIB);
    level(&machine, "pod/c1", "max\n", 3 * GIB, 0);
    assert_eq!(memory(&machine), (Some((14 * GIB) as f64), Some(87.5)));
}

#[test]
fn a_limit_below_the_tightest_does_not_bind() {
    let mut machine = Machine::new();
    machine.mount_unified();
    machine.cgroup("0::/pod/c1\n");
    level(&machine, "pod", &format!("{}", 16 * GIB), 8 * GIB, 0);
    level(&machine, "pod/c1", &format!("{}", 4 * GIB), GIB, 0);
    assert_eq!(memory(&machine), (Some(GIB as f64), Some(25.0)));
}

#[test]
fn of_two_equal_limits_the_outermost_binds() {
    let mut machine = Machine::new();
    machine.mount_unified();
    machine.cgroup("0::/pod/c1\n");
    level(&machine, "pod", &format!("{}", 16 * GIB), 8 * GIB, 0);
    level(&machine, "pod/c1", &format!("{}", 16 * GIB), GIB, 0);
    assert_eq!(memory(&machine), (Some((8 * GIB) as f64), Some(50.0)));
}

#[test]
fn a_job_of_eight_tasks_counts_all_of_them() {
    // W1, the layout of a Slurm job: eight tasks of 15 GiB in a job of 128 GiB, on a 256 GiB node.
    let mut machine = Machine::new();
    machine.write("proc/meminfo", "MemTotal: 268435456 kB\nMemAvailable: 134217728 kB\n");
    machine.mount_unified();
    let job = "system.slice/slurmstepd.scope/job_7";
    machine.cgroup(format!("0::/{job}/step_0/user/task_3\n"));
    level(&machine, job, &format!("{}", 128 * GIB), 120 * GIB, 0);
    level(&machine, &format!("{job}/step_0"), "max", 120 * GIB, 0);
    level(&machine, &format!("{job}/step_0/user"), "max", 120 * GIB, 0);
    for task in 0..8 {
        level(&machine, &format!("{job}/step_0/user/task_{task}"), "max", 15 * GIB, 0);
    }
    assert_eq!(memory(&machine), (Some((120 * GIB) as f64), Some(93.75)));
}

#[test]
fn a_limit_above_the_hosts_memory_is_the_hosts_memory() {
    // W8: 512 GiB allowed on a host of 64.
    let mut machine = Machine::new();
    machine.mount_unified();
    machine.cgroup("0::/pod\n");
    level(&machine, "pod", &format!("{}", 512 * GIB), 32 * GIB, 0);
    assert_eq!(memory(&machine), (Some((32 * GIB) as f64), Some(50.0)));
}

#[test]
fn a_folder_without_meminfo_is_not_cut_by_the_machine_it_lies_on() {
    let mut machine = Machine::bare();
    machine.mount_unified();
    machine.cgroup("0::/pod\n");
    level(&machine, "pod", &format!("{}", 1u64 << 50), 1 << 49, 0);
    assert_eq!(memory(&machine), (Some((1u64 << 49) as f64), Some(50.0)));
}

#[test]
fn without_a_limit_memory_is_the_hosts() {
    // W4: the session's own usage is not what the host has left.
    let mut machine = Machine::new();
    machine.mount_unified();
    machine.cgroup("0::/user.slice/session\n");
    level(&machine, "user.slice", "max", 2 * GIB, 0);
    level(&machine, "user.slice/session", "max", GIB, 0);
    assert_eq!(memory(&machine), (Some((32 * GIB) as f64), Some(50.0)));
}

#[test]
fn a_binding_level_without_a_usage_file_takes_the_innermost_usage() {
    let mut machine = Machine::new();
    machine.mount_unified();
    machine.cgroup("0::/pod/c1\n");
    machine.write("sys/fs/cgroup/pod/memory.max", format!("{}", 16 * GIB));
    level(&machine, "pod/c1", "max", 4 * GIB, 0);
    assert_eq!(memory(&machine), (Some((4 * GIB) as f64), Some(25.0)));
}

#[test]
fn inactive_file_pages_beyond_the_usage_leave_nothing_used() {
    let mut machine = Machine::new();
    machine.mount_unified();
    machine.cgroup("0::/pod\n");
    level(&machine, "pod", &format!("{GIB}"), 5, 7);
    assert_eq!(memory(&machine), (Some(0.0), Some(0.0)));
}

#[test]
fn a_missing_stat_file_takes_nothing_off() {
    let mut machine = Machine::new();
    machine.mount_unified();
    machine.cgroup("0::/pod\n");
    level(&machine, "pod", &format!("{GIB}"), GIB / 4, 7);
    machine.remove("sys/fs/cgroup/pod/memory.stat");
    assert_eq!(memory(&machine), (Some((GIB / 4) as f64), Some(25.0)));
}

#[test]
fn a_limit_of_zero_has_no_utilization() {
    let mut machine = Machine::new();
    machine.mount_unified();
    machine.cgroup("0::/pod\n");
    level(&machine, "pod", "0\n", 4096, 0);
    assert_eq!(memory(&machine), (Some(4096.0), None));
}

#[test]
fn a_limit_that_cannot_be_understood_limits_nothing() {
    for garbage in [&b"garbage\n"[..], b"", b"-1", b"\xff\xfe\x00", b"99999999999999999999999", b"1 2"] {
        let mut machine = Machine::new();
        machine.mount_unified();
        machine.cgroup("0::/pod/c1\n");
        level(&machine, "pod", &format!("{}", 16 * GIB), 4 * GIB, 0);
        level(&machine, "pod/c1", "max", GIB, 0);
        machine.write("sys/fs/cgroup/pod/c1/memory.max", garbage);
        assert_eq!(memory(&machine), (Some((4 * GIB) as f64), Some(25.0)), "{garbage:?}");
    }
}

#[test]
fn limits_are_read_again_at_every_tick() {
    let mut machine = Machine::new();
    machine.mount_unified();
    machine.cgroup("0::/pod/c1\n");
    level(&machine, "pod", "max", 8 * GIB, 0);
    level(&machine, "pod/c1", "max", 2 * GIB, 0);
    let mut sampler = machine.node();
    let mut utilization = |at: u64| node_values(&node_tick(&mut sampler, at * SECOND_NS)).2;
    assert_eq!(utilization(0), Some(50.0), "the host's, 32 of 64 GiB");
    machine.write("sys/fs/cgroup/pod/memory.max", format!("{}", 16 * GIB));
    assert_eq!(utilization(1), Some(50.0), "8 of 16 GiB");
    machine.write("sys/fs/cgroup/pod/c1/memory.max", format!("{}", 8 * GIB));
    assert_eq!(utilization(2), Some(25.0), "2 of 8 GiB");
    machine.write("sys/fs/cgroup/pod/memory.max", format!("{}", 8 * GIB));
    assert_eq!(utilization(3), Some(100.0), "8 of 8 GiB");
    machine.remove("sys/fs/cgroup/pod/memory.max");
    assert_eq!(utilization(4), Some(25.0), "2 of 8 GiB");
}

#[test]
fn values_above_four_gibibytes_are_exact() {
    let mut machine = Machine::new();
    machine.mount_unified();
    machine.cgroup("0::/pod\n");
    let odd = 17_179_869_183 - 4095;
    level(&machine, "pod", "17179869184\n", odd, 0);
    let (used, utilization) = memory(&machine);
    assert_eq!(used, Some(odd as f64));
    assert_near(utilization, odd as f64 / 17_179_869_184.0 * 100.0);
}

#[test]
fn a_machine_that_tells_nothing_has_no_memory_series() {
    let machine = Machine::bare();
    let mut sampler = machine.node();
    let tick = node_tick(&mut sampler, 0);
    assert_eq!(node_values(&tick), (None, None, None));
    assert!(tick.contains_key("system/disk/total_bytes"), "the rest of the tick goes on");
    assert!(sampler.take_failures().is_empty(), "what is not there is no failure");
}
