//! Finding the cgroups: mount tables and memberships of every shape.

use collect::{CgroupMode, CpuBound, facts};

use crate::machine::{GIB, Machine, SECOND_NS, assert_near, node_tick, node_values};

/// Memory files of version 1.
fn memory_v1(machine: &Machine, folder: &str, limit: i128, usage: u64, inactive: u64) {
    machine.write_all(
        folder,
        &[
            ("memory.limit_in_bytes", &format!("{limit}\n")),
            ("memory.usage_in_bytes", &format!("{usage}\n")),
            (
                "memory.stat",
                &format!("cache 1\ninactive_file 7\ntotal_cache 2\ntotal_inactive_file {inactive}\n"),
            ),
        ],
    );
}

/// Quota and CPU time of version 1, in one folder.
fn cpu_v1(machine: &Machine, folder: &str, quota: i64, used_seconds: f64) {
    machine.write_all(
        folder,
        &[
            ("cpu.cfs_quota_us", &format!("{quota}\n")),
            ("cpu.cfs_period_us", "100000\n"),
            ("cpuacct.usage", &format!("{}\n", (used_seconds * 1e9) as u64)),
        ],
    );
}

#[test]
fn version_1_co_mounts_in_sibling_trees() {
    // T2 (a), with the membership naming the controllers the other way round (W7).
    let mut machine = Machine::new();
    machine.mount("cgroup", "/", "/sys/fs/cgroup/cpu,cpuacct", "cpu,cpuacct");
    machine.mount("cgroup", "/", "/sys/fs/cgroup/memory", "memory");
    machine.mount("cgroup", "/", "/sys/fs/cgroup/systemd", "xattr,name=systemd");
    machine.cgroup("9:name=systemd:/x\n4:cpuacct,cpu:/slurm/job_1/step_0\n3:memory:/slurm/job_1/step_0\n");
    let memory = "sys/fs/cgroup/memory/slurm/job_1";
    memory_v1(&machine, memory, i128::from(16 * GIB), 11 * GIB, 3 * GIB);
    memory_v1(&machine, &format!("{memory}/step_0"), 9_223_372_036_854_771_712, GIB, 0);
    let mut sampler = machine.node();
    for at in 0..2u64 {
        let used = 7.0 + 1.5 * at as f64;
        cpu_v1(&machine, "sys/fs/cgroup/cpu,cpuacct/slurm/job_1", 200_000, used);
        cpu_v1(&machine, "sys/fs/cgroup/cpu,cpuacct/slurm/job_1/step_0", -1, used - 5.0);
        let (cpu, used, utilization) = node_values(&node_tick(&mut sampler, at * SECOND_NS));
        assert_eq!((used, utilization), (Some((8 * GIB) as f64), Some(50.0)));
        if at == 1 {
            assert_near(cpu, 75.0);
        }
    }
    assert_eq!(facts(&machine.host()).mode, CgroupMode::V1);
}

#[test]
fn a_bind_mounted_cgroup_lies_at_the_mount_point() {
    // T2 (b): `/docker/abc` is what the mount shows at its root, or is not there at all.
    for root in ["/docker/abc", "/"] {
        let mut machine = Machine::new();
        machine.mount("cgroup", root, "/sys/fs/cgroup/memory", "memory");
        machine.mount("cgroup", root, "/sys/fs/cgroup/cpu,cpuacct", "cpu,cpuacct");
        machine.cgroup("3:memory:/docker/abc\n2:cpu,cpuacct:/docker/abc\n");
        memory_v1(&machine, "sys/fs/cgroup/memory", i128::from(2 * GIB), GIB, 0);
        let mut sampler = machine.node();
        let mut last = (None, None, None);
        for at in 0..2u64 {
            cpu_v1(&machine, "sys/fs/cgroup/cpu,cpuacct", 50_000, 0.25 * at as f64);
            last = node_values(&node_tick(&mut sampler, at * SECOND_NS));
        }
        assert_near(last.0, 50.0);
        assert_eq!((last.1, last.2), (Some(GIB as f64), Some(50.0)));
    }
}

#[test]
fn memory_on_the_unified_mount_of_a_hybrid_host_is_found() {
    // T2 (c), W6.
    let mut machine = Machine::new();
    machine.mount("cgroup", "/", "/sys/fs/cgroup/cpu,cpuacct", "cpu,cpuacct");
    machine.mount("cgroup2", "/", "/sys/fs/cgroup/unified", "nsdelegate");
    machine.cgroup("2:cpu,cpuacct:/job\n1:name=systemd:/job\n0::/job\n");
    machine.write_all(
        "sys/fs/cgroup/unified/job",
        &[("memory.max", &format!("{}", 4 * GIB)), ("memory.current", &format!("{}", 3 * GIB))],
    );
    cpu_v1(&machine, "sys/fs/cgroup/cpu,cpuacct/job", 100_000, 0.0);
    let (_, used, utilization) = node_values(&node_tick(&mut machine.node(), 0));
    assert_eq!((used, utilization), (Some((3 * GIB) as f64), Some(75.0)));
    let facts = facts(&machine.host());
    assert_eq!(facts.mode, CgroupMode::Hybrid);
    assert_eq!(facts.cpu.unwrap().source, CpuBound::Quota);
    let memory = facts.memory.unwrap();
    assert!(memory.path.ends_with("sys/fs/cgroup/unified/job"), "{}", memory.path);
    assert_eq!((memory.limit_bytes, memory.ceiling_bytes, memory.levels), (Some(4 * GIB), 4 * GIB, 2));
}

/// One memory level with a limit of 2 GiB, half used, in this folder of the unified hierarchy.
fn half_full(machine: &Machine, folder: &str) {
    machine
        .write_all(folder, &[("memory.max", &format!("{}", 2 * GIB)), ("memory.current", &format!("{GIB}"))]);
}

fn memory_utilization(machine: &Machine) -> Option<f64> {
    node_values(&node_tick(&mut machine.node(), 0)).2
}

#[test]
fn a_private_cgroup_namespace_is_measured_at_the_mount_point() {
    let mut machine = Machine::new();
    machine.write("proc/meminfo", "MemTotal: 67108864 kB\nMemAvailable: 60000000 kB\n");
    machine.mount_unified();
    half_full(&machine, "sys/fs/cgroup");
    for membership in ["0::/\n", "0::/../other\n", "0::/..\n", "0::/gone (deleted)\n"] {
        machine.cgroup(membership);
        assert_eq!(memory_utilization(&machine), Some(50.0), "{membership}");
    }
}

#[test]
fn a_path_with_dots_never_leaves_the_mount() {
    let mut machine = Machine::new();
    machine.mount_unified();
    machine.write("sys/fs/cgroup/x", "");
    half_full(&machine, "sys/fs/outside");
    machine.cgroup("0::/../outside\n");
    assert_eq!(memory_utilization(&machine), Some(50.0), "the host's 32 of 64 GiB");
    assert_eq!(facts(&machine.host()).memory.unwrap().limit_bytes, None);
}

#[test]
fn of_several_mounts_the_one_that_shows_the_process_is_taken() {
    let mut machine = Machine::new();
    machine.mount("cgroup2", "/../..", "/host/cgroup", "nsdelegate");
    machine.mount("cgroup2", "/", "/sys/fs/cgroup", "nsdelegate");
    machine.mount("cgroup2", "/other", "/srv/other", "nsdelegate");
    machine.cgroup("0::/job\n");
    for folder in ["host/cgroup", "srv/other"] {
        machine.write(format!("{folder}/memory.max"), "1");
    }
    half_full(&machine, "sys/fs/cgroup/job");
    assert_eq!(memory_utilization(&machine), Some(50.0));
}

#[test]
fn a_cgroup_whose_name_begins_like_the_mounted_one_lies_elsewhere() {
    let mut machine = Machine::new();
    machine.mount("cgroup2", "/job", "/sys/fs/cgroup", "nsdelegate");
    machine.cgroup("0::/job2\n");
    half_full(&machine, "sys/fs/cgroup");
    machine.write("sys/fs/cgroup2/memory.max", "1");
    assert_eq!(memory_utilization(&machine), Some(50.0));
    let path = facts(&machine.host()).memory.unwrap().path;
    assert!(path.ends_with("sys/fs/cgroup"), "{path}");
}

#[test]
fn a_mount_that_lies_under_another_one_is_not_seen() {
    // The whole hierarchy is mounted, and over it the container's own cgroup, which holds one that
    // has the name of the container by chance.
    let mut machine = Machine::new();
    machine.mount("cgroup2", "/", "/sys/fs/cgroup", "nsdelegate");
    machine.mount("cgroup2", "/job", "/sys/fs/cgroup", "nsdelegate");
    machine.cgroup("0::/job\n");
    half_full(&machine, "sys/fs/cgroup");
    machine.write("sys/fs/cgroup/job/memory.max", "1");
    assert_eq!(memory_utilization(&machine), Some(50.0));
}

#[test]
fn an_unusual_mount_point_with_a_space_is_found() {
    let mut machine = Machine::new();
    machine.mount("cgroup2", "/", "/opt/c\\040groups\\134x", "nsdelegate");
    machine.cgroup("0::/job\n");
    half_full(&machine, "opt/c groups\\x/job");
    assert_eq!(memory_utilization(&machine), Some(50.0));
}

#[test]
fn names_that_are_not_utf8_are_names() {
    let mut machine = Machine::new();
    machine.mount("cgroup2", "/", b"/sys/fs/cg\xff", "nsdelegate");
    machine.cgroup(b"0::/j\xfe\x80b:1\n");
    machine.write(b"sys/fs/cg\xff/j\xfe\x80b:1/memory.max".as_slice(), format!("{}", 2 * GIB));
    machine.write(b"sys/fs/cg\xff/j\xfe\x80b:1/memory.current".as_slice(), format!("{GIB}"));
    let facts = facts(&machine.host());
    assert_eq!(memory_utilization(&machine), Some(50.0));
    assert!(facts.problems.is_empty() && facts.memory.unwrap().limit_bytes == Some(2 * GIB));
}

#[test]
fn malformed_membership_lines_are_passed_over() {
    let mut machine = Machine::new();
    machine.mount_unified();
    machine.cgroup(b"\n:::\nx::/job\n0\n0:\n0::job\n7:memory\n\xff\xfe\n0::/job\n");
    half_full(&machine, "sys/fs/cgroup/job");
    assert_eq!(memory_utilization(&machine), Some(50.0));
}

#[test]
fn a_mount_table_that_leads_nowhere_leaves_the_usual_places() {
    let mut machine = Machine::new();
    machine.mount("cgroup2", "/", "/gone", "nsdelegate");
    machine.write("sys/fs/cgroup/cgroup.controllers", "memory cpu\n");
    machine.cgroup("0::/job\n");
    half_full(&machine, "sys/fs/cgroup/job");
    assert_eq!(memory_utilization(&machine), Some(50.0));
    machine.remove("proc/self/mountinfo");
    assert_eq!(memory_utilization(&machine), Some(50.0));
    assert_eq!(facts(&machine.host()).mode, CgroupMode::V2);

    let machine = Machine::new();
    machine.cgroup("3:memory:/job\n");
    memory_v1(&machine, "sys/fs/cgroup/memory/job", i128::from(2 * GIB), GIB, 0);
    assert_eq!(memory_utilization(&machine), Some(50.0));
    assert_eq!(facts(&machine.host()).mode, CgroupMode::V1);
}

#[test]
fn a_process_that_is_moved_is_followed() {
    let mut machine = Machine::new();
    machine.mount_unified();
    half_full(&machine, "sys/fs/cgroup/a");
    machine.write("sys/fs/cgroup/a/cpu.max", "100000 100000");
    machine.write("sys/fs/cgroup/a/cpu.stat", "usage_usec 5000000");
    machine.write("sys/fs/cgroup/b/cpu.max", "100000 100000");
    machine.write("sys/fs/cgroup/b/cpu.stat", "usage_usec 99000000");
    machine.write("sys/fs/cgroup/b/memory.max", format!("{}", 4 * GIB));
    machine.write("sys/fs/cgroup/b/memory.current", format!("{GIB}"));
    let mut sampler = machine.node();
    machine.cgroup("0::/a\n");
    assert_eq!(node_values(&node_tick(&mut sampler, SECOND_NS)), (None, Some(GIB as f64), Some(50.0)));
    machine.cgroup("0::/b\n");
    assert_eq!(node_values(&node_tick(&mut sampler, 2 * SECOND_NS)), (None, Some(GIB as f64), Some(25.0)));
    machine.write("sys/fs/cgroup/b/cpu.stat", "usage_usec 99500000");
    assert_near(node_values(&node_tick(&mut sampler, 3 * SECOND_NS)).0, 50.0);
    // A membership that vanishes leaves the host.
    machine.remove("proc/self/cgroup");
    assert_eq!(node_values(&node_tick(&mut sampler, 4 * SECOND_NS)).2, Some(50.0));
    assert_eq!(facts(&machine.host()).memory.unwrap().limit_bytes, None);
}

#[test]
fn a_machine_without_cgroups_says_so() {
    let machine = Machine::new();
    let facts = facts(&machine.host());
    assert_eq!((facts.mode, facts.mode.as_str()), (CgroupMode::None, "none"));
    assert_eq!(facts.memory.unwrap().path, "/proc/meminfo");
}
