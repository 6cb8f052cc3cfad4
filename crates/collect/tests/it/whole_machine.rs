//! All of a machine, from folders that stand for one.

use std::{collections::BTreeMap, os::unix::fs::symlink};

use collect::machine::{JobValue, MachineSampler, MachineValue, RdmaValue};

use crate::machine::{Machine, assert_near};

/// What a look gives, by a name made of what it is of.
fn look(sampler: &mut MachineSampler) -> BTreeMap<String, f64> {
    let mut found = BTreeMap::new();
    sampler
        .sample(&mut |value| named(value, &mut |name, value| assert!(found.insert(name, value).is_none())));
    assert_eq!(sampler.take_problems(), Vec::<String>::new());
    found
}

fn named(value: MachineValue<'_>, put: &mut dyn FnMut(String, f64)) {
    match value {
        MachineValue::CpuSeconds { mode, seconds } => put(format!("cpu {mode}"), seconds),
        MachineValue::Cpus(count) => put("cpus".to_owned(), count as f64),
        MachineValue::Load(load) => put("load".to_owned(), load),
        MachineValue::Waiting { resource, seconds } => put(format!("waiting {resource}"), seconds),
        MachineValue::Memory { used, total } => {
            put("memory used".to_owned(), used as f64);
            put("memory total".to_owned(), total as f64);
        }
        MachineValue::FileSystem { mountpoint, free, total } => {
            assert!(free <= total);
            put(format!("file system {mountpoint}"), total as f64);
        }
        MachineValue::Disk { device, read, written, busy_seconds } => {
            put(format!("disk {device} read"), read as f64);
            put(format!("disk {device} written"), written as f64);
            put(format!("disk {device} busy"), busy_seconds);
        }
        MachineValue::Network { device, received, transmitted } => {
            put(format!("net {device} received"), received as f64);
            put(format!("net {device} transmitted"), transmitted as f64);
        }
        MachineValue::NetworkErrors { device, kind, count } => {
            put(format!("net {device} {kind}"), count as f64);
        }
        MachineValue::Rdma { device, port, what } => {
            let (name, value) = match what {
                RdmaValue::Received(bytes) => ("received", bytes),
                RdmaValue::Transmitted(bytes) => ("transmitted", bytes),
                RdmaValue::Errors(kind, count) => (kind, count),
                RdmaValue::Active(is_active) => ("active", u64::from(is_active)),
            };
            put(format!("rdma {device} {port} {name}"), value as f64);
        }
        MachineValue::Job { job_id, what } => match what {
            JobValue::CpuSeconds(seconds) => put(format!("job {job_id} cpu"), seconds),
            JobValue::MemoryUsed(bytes) => put(format!("job {job_id} used"), bytes as f64),
            JobValue::MemoryLimit(bytes) => put(format!("job {job_id} limit"), bytes as f64),
        },
        MachineValue::PciGpus { count, nvidia } => {
            put("gpus".to_owned(), count as f64);
            put("gpus nvidia".to_owned(), nvidia as f64);
        }
    }
}

fn of(found: &BTreeMap<String, f64>, what: &str) -> BTreeMap<String, f64> {
    let prefix = format!("{what} ");
    found.iter().filter_map(|(name, value)| Some((name.strip_prefix(&prefix)?.to_owned(), *value))).collect()
}

fn wanted<const N: usize>(values: [(&str, f64); N]) -> BTreeMap<String, f64> {
    values.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

#[test]
fn cores_memory_load_and_pressure_are_read() {
    let machine = Machine::bare();
    machine.write("proc/stat", "cpu  100 200 300 4000 50 6 7 8 90 10\ncpu0 1 2 3 4 5 6 7 8 0 0\ncpu1 1 2 3 4 5 6 7 8 0 0\nintr 5 6\n");
    machine.write("proc/meminfo", "MemTotal: 1000 kB\nMemFree: 1 kB\nMemAvailable: 400 kB\n");
    machine.write("proc/loadavg", "12.50 8.00 4.00 3/400 999\n");
    machine.write(
        "proc/pressure/memory",
        "some avg10=1.00 avg60=0.00 avg300=0.00 total=2500000\nfull total=1\n",
    );
    let mut sampler = MachineSampler::new(machine.host());
    let found = look(&mut sampler);
    let ticks = |mode: &str| found[&format!("cpu {mode}")];
    // Ticks are hundredths of a second on every Linux that is met.
    for (mode, seconds) in
        [("user", 1.0), ("nice", 2.0), ("system", 3.0), ("idle", 40.0), ("iowait", 0.5), ("steal", 0.08)]
    {
        assert_near(Some(ticks(mode)), seconds);
    }
    assert_eq!((found["cpus"], found["load"], found["waiting memory"]), (2.0, 12.5, 2.5));
    assert_eq!((found["memory used"], found["memory total"]), (600.0 * 1024.0, 1000.0 * 1024.0));
    assert!(!found.contains_key("waiting cpu") && !found.contains_key("gpus"), "absent is not zero");
}

#[test]
fn an_empty_machine_has_nothing() {
    assert_eq!(look(&mut MachineSampler::new(Machine::bare().host())), BTreeMap::new());
}

#[test]
fn disks_are_told_once_and_not_by_their_parts() {
    let machine = Machine::bare();
    machine.write(
        "proc/diskstats",
        " 259 0 nvme0n1 100 1 2000 30 400 5 6000 70 0 8000 9 0 0 0 0 0 0\n 259 1 nvme0n1p1 1 1 1 1 1 1 1 1 0 1 1\n 253 0 dm-0 1 1 1 1 1 1 1 1 0 1 1\n   7 0 loop0 1 1 1 1 1 1 1 1 0 1 1\nshort line\n",
    );
    machine.write("sys/block/nvme0n1/device/model", "x");
    machine.write("sys/block/dm-0/size", "1");
    let found = look(&mut MachineSampler::new(machine.host()));
    assert_eq!(
        found,
        wanted([
            ("disk nvme0n1 read", 1_024_000.0),
            ("disk nvme0n1 written", 3_072_000.0),
            ("disk nvme0n1 busy", 8.0)
        ])
    );
}

#[test]
fn file_systems_of_disks_are_told_once() {
    let machine = Machine::bare();
    for folder in ["data", "data/a b", "srv/data", "var/lib/kubelet/pods/x", "mnt/nfs"] {
        machine.write(format!("{folder}/file"), "x");
    }
    let table = "22 1 259:2 / / rw shared:1 - ext4 /dev/nvme0n1p2 rw\n\
        23 22 0:21 / /proc rw - proc proc rw\n\
        24 22 259:3 / /srv/data rw - xfs /dev/nvme1n1 rw\n\
        25 22 259:3 / /data rw - xfs /dev/nvme1n1 rw\n\
        26 22 259:4 / /data/a\\040b rw - ext4 /dev/nvme2n1 rw\n\
        27 22 259:5 / /var/lib/kubelet/pods/x rw - ext4 /dev/rbd0 rw\n\
        28 22 0:50 / /mnt/nfs rw - nfs4 server:/x rw\n\
        29 22 259:6 / /gone rw - xfs /dev/nvme3n1 rw\n";
    machine.write("proc/self/mountinfo", table);
    let mut sampler = MachineSampler::new(machine.host());
    let names = |found: &BTreeMap<String, f64>| found.keys().cloned().collect::<Vec<_>>();
    let found = look(&mut sampler);
    assert_eq!(names(&found), ["file system /", "file system /data", "file system /data/a b"]);
    assert!(found.values().all(|bytes| *bytes > 0.0));
    // Process 1 is asked first: a container that has the host's `/proc` has its mounts there.
    machine.write("proc/1/mountinfo", "22 1 259:2 / /data rw - ext4 /dev/nvme0n1p2 rw\n");
    assert_eq!(names(&look(&mut sampler)), ["file system /data"]);
}

const NET: &str = "Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed
    lo: 9 9 9 9 9 9 9 9 9 9 9 9 9 9 9 9
  eth0: 1000 10 1 2 0 0 0 0 2000 20 3 4 0 0 0 0
 bond0:5000 10 0 0 0 0 0 0 6000 20 0 0 0 0 0 0
veth12: 7 7 7 7 7 7 7 7 7 7 7 7 7 7 7 7
";

#[test]
fn interfaces_of_hardware_and_bonds_are_told() {
    let machine = Machine::bare();
    machine.write("proc/net/dev", NET);
    machine.write("sys/class/net/eth0/device/vendor", "x");
    machine.write("sys/class/net/bond0/bonding/mode", "x");
    let found = look(&mut MachineSampler::new(machine.host()));
    let net = of(&found, "net");
    assert_eq!(net.len(), 12);
    assert_eq!((net["eth0 received"], net["eth0 transmitted"]), (1000.0, 2000.0));
    assert_eq!((net["eth0 receive_errors"], net["eth0 receive_dropped"]), (1.0, 2.0));
    assert_eq!((net["eth0 transmit_errors"], net["eth0 transmit_dropped"]), (3.0, 4.0));
    assert_eq!(net["bond0 received"], 5000.0);
}

#[test]
fn a_container_with_a_virtual_interface_has_that_one() {
    let machine = Machine::bare();
    machine.write("proc/net/dev", NET.replace(" bond0", " tun0x"));
    let net = of(&look(&mut MachineSampler::new(machine.host())), "net");
    assert!(net.contains_key("eth0 received") && !net.contains_key("lo received"));
}

#[test]
fn a_port_counts_its_data_in_words_of_four_bytes() {
    let machine = Machine::bare();
    let port = "sys/class/infiniband/mlx5_0/ports/1";
    machine.write(format!("{port}/state"), "4: ACTIVE\n");
    machine.write(format!("{port}/counters/port_rcv_data"), "1000\n");
    machine.write(format!("{port}/counters/port_xmit_data"), "18446744073709551615\n");
    machine.write(format!("{port}/counters/symbol_error"), "7\n");
    machine.write(format!("{port}/counters/link_downed"), "N/A (no PMA)\n");
    machine.write(format!("{port}/hw_counters/local_ack_timeout_err"), "3\n");
    // An adapter that counts bytes itself.
    let other = "sys/class/infiniband/rdmap0/ports/1";
    machine.write(format!("{other}/state"), "1: DOWN\n");
    machine.write(format!("{other}/hw_counters/rx_bytes"), "500\n");
    let mut sampler = MachineSampler::new(machine.host());
    let found = of(&look(&mut sampler), "rdma");
    let want = wanted([
        ("mlx5_0 1 active", 1.0),
        ("mlx5_0 1 received", 4000.0),
        ("mlx5_0 1 transmitted", u64::MAX as f64),
        ("mlx5_0 1 symbol_error", 7.0),
        ("mlx5_0 1 local_ack_timeout_err", 3.0),
        ("rdmap0 1 active", 0.0),
        ("rdmap0 1 received", 500.0),
    ]);
    assert_eq!(found, want);
    // It is pulled out, and found when it is there again.
    machine.remove(other);
    assert!(!look(&mut sampler).contains_key("rdma rdmap0 1 active"));
    machine.write(format!("{other}/state"), "4: ACTIVE\n");
    let is_back = (0..60).any(|_| look(&mut sampler).contains_key("rdma rdmap0 1 active"));
    assert!(is_back);
}

#[test]
fn jobs_of_the_unified_hierarchy_are_told() {
    let machine = Machine::bare();
    machine.write("sys/fs/cgroup/cgroup.controllers", "cpu memory\n");
    let slurm = "sys/fs/cgroup/system.slice/node7_slurmstepd.scope/job_4711";
    machine.write(format!("{slurm}/cpu.stat"), "usage_usec 2500000\nuser_usec 1\n");
    machine.write(format!("{slurm}/memory.current"), "1048576\n");
    machine.write(format!("{slurm}/memory.max"), "max\n");
    machine.write(format!("{slurm}/step_0/memory.current"), "5\n");
    let pod = "sys/fs/cgroup/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod8f3c1a2b_1111_2222.slice";
    machine.write(format!("{pod}/memory.current"), "2097152\n");
    machine.write(format!("{pod}/memory.max"), "4194304\n");
    machine.write("sys/fs/cgroup/kubepods.slice/kubepods-burstable.slice/memory.current", "9\n");
    machine.write("sys/fs/cgroup/user.slice/job_1/memory.current", "9\n");
    machine.write("sys/fs/cgroup/system.slice/node7_slurmstepd.scope/job_x/memory.current", "9\n");
    let mut sampler = MachineSampler::new(machine.host());
    let want = wanted([
        ("4711 cpu", 2.5),
        ("4711 used", 1_048_576.0),
        ("pod-8f3c1a2b-1111-2222 used", 2_097_152.0),
        ("pod-8f3c1a2b-1111-2222 limit", 4_194_304.0),
    ]);
    assert_eq!(of(&look(&mut sampler), "job"), want);
    machine.remove(slurm);
    assert!(of(&look(&mut sampler), "job").keys().all(|name| name.starts_with("pod-")));
}

#[test]
fn jobs_of_version_1_are_told_beside_a_unified_hierarchy() {
    let machine = Machine::bare();
    machine.write("sys/fs/cgroup/unified/cgroup.controllers", "\n");
    let memory = "sys/fs/cgroup/memory/slurm/uid_1000/job_12";
    machine.write(format!("{memory}/memory.usage_in_bytes"), "1000\n");
    machine.write(format!("{memory}/memory.limit_in_bytes"), "9223372036854771712\n");
    machine.write("sys/fs/cgroup/cpu,cpuacct/slurm/uid_1000/job_12/cpuacct.usage", "1500000000\n");
    let pod = "sys/fs/cgroup/memory/kubepods/besteffort/pod8f3c1a2b-1111-2222";
    machine.write(format!("{pod}/memory.limit_in_bytes"), "2000\n");
    let found = look(&mut MachineSampler::new(machine.host()));
    let want = wanted([("12 cpu", 1.5), ("12 used", 1000.0), ("pod-8f3c1a2b-1111-2222 limit", 2000.0)]);
    assert_eq!(of(&found, "job"), want);
}

#[test]
fn cards_on_the_bus_are_counted_whatever_the_driver_says() {
    let machine = Machine::bare();
    let card = |place: &str, vendor: &str, class: &str| {
        machine.write(format!("sys/bus/pci/devices/{place}/vendor"), format!("{vendor}\n"));
        machine.write(format!("sys/bus/pci/devices/{place}/class"), format!("{class}\n"));
    };
    card("0000:1b:00.0", "0x10de", "0x030200");
    card("0000:1c:00.0", "0x10de", "0x030000");
    card("0000:1c:00.1", "0x10de", "0x040300");
    card("0000:03:00.0", "0x10de", "0x068000");
    card("0000:c3:00.0", "0x1002", "0x120000");
    card("0000:01:00.0", "0x1a03", "0x030000");
    card("0000:1b:00.4", "0x10de", "0x030200");
    symlink("../0000:1b:00.0", machine.path("sys/bus/pci/devices/0000:1b:00.4/physfn")).unwrap();
    let mut sampler = MachineSampler::new(machine.host());
    // What is lent to a virtual machine, audio, a switch and the picture of the board do not count.
    machine.write("sys/bus/pci/devices/0000:1b:00.0/x", "");
    assert_eq!(look(&mut sampler)["gpus"], 3.0);
    machine.remove("sys/bus/pci/devices/0000:1c:00.0");
    assert_eq!(look(&mut sampler)["gpus"], 2.0);
}

#[test]
fn this_machine_is_read() {
    let mut sampler = MachineSampler::new(collect::Host::real());
    let mut found = BTreeMap::new();
    sampler
        .sample(&mut |value| named(value, &mut |name, value| assert!(found.insert(name, value).is_none())));
    assert!(found["cpus"] >= 1.0 && found["cpu user"] > 0.0 && found["memory total"] > found["memory used"]);
    assert!(found.values().all(|value| value.is_finite() && *value >= 0.0));
}
