//! The machine under the agent, under canonical names.

use std::{collections::BTreeMap, fs, time::Duration};

use agent::{Machine, SharedCards, Snapshot, Source, Tick};
use collect::Host;

use crate::log::NOW_NS;

fn look(machine: &mut Machine, seconds: u64) -> BTreeMap<String, f64> {
    let mut snapshot = Snapshot::default();
    let tick = Tick { time_ns: NOW_NS, elapsed: Duration::from_secs(seconds), host: "node-031" };
    machine.read(&tick, &mut snapshot);
    let name = |reading: &agent::Reading| {
        for (label, _) in &reading.labels {
            assert!(reading.desc.labels.contains(label), "{} has no label {label}", reading.desc.name);
        }
        let labels: Vec<String> =
            reading.labels.iter().map(|(name, value)| format!("{name}={value}")).collect();
        format!("{}{{{}}}", reading.desc.name, labels.join(","))
    };
    let found: BTreeMap<String, f64> =
        snapshot.readings.iter().map(|reading| (name(reading), reading.value)).collect();
    assert_eq!(found.len(), snapshot.readings.len(), "every series once");
    found
}

#[test]
fn everything_has_its_canonical_name() {
    let folder = tempfile::tempdir().unwrap();
    let write = |path: &str, text: &str| {
        let path = folder.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    write("proc/stat", "cpu  100 0 0 400 0 0 0 0\ncpu0 1 1 1 1 1\n");
    write("proc/meminfo", "MemTotal: 1000 kB\nMemAvailable: 400 kB\n");
    write("proc/loadavg", "1.5 1 1 1/1 1\n");
    write("proc/pressure/io", "some avg10=0.00 avg60=0.00 avg300=0.00 total=1000000\n");
    write("proc/diskstats", "259 0 nvme0n1 1 1 2 1 1 1 4 1 0 500 1\n");
    write("sys/block/nvme0n1/device/model", "x");
    write("proc/net/dev", "eth0: 10 1 0 0 0 0 0 0 20 2 0 0 0 0 0 0\n");
    write("sys/class/net/eth0/device/vendor", "x");
    write("proc/self/mountinfo", "22 1 259:2 / / rw - ext4 /dev/nvme0n1p2 rw\n");
    write("sys/class/infiniband/mlx5_0/ports/1/state", "4: ACTIVE\n");
    write("sys/class/infiniband/mlx5_0/ports/1/counters/port_rcv_data", "100\n");
    write("sys/class/infiniband/mlx5_0/ports/1/counters/port_xmit_data", "200\n");
    write("sys/class/infiniband/mlx5_0/ports/1/counters/link_downed", "3\n");
    write("sys/bus/pci/devices/0000:1b:00.0/vendor", "0x10de\n");
    write("sys/bus/pci/devices/0000:1b:00.0/class", "0x030200\n");
    write("sys/fs/cgroup/cgroup.controllers", "cpu memory\n");
    let job = "sys/fs/cgroup/system.slice/slurmstepd.scope/job_7";
    write(&format!("{job}/cpu.stat"), "usage_usec 1500000\n");
    write(&format!("{job}/memory.current"), "1000\n");
    write(&format!("{job}/memory.max"), "2000\n");

    write("proc/sys/kernel/random/boot_id", "0b00aa00-0000-4000-8000-000000000001\n");
    write("proc/sys/kernel/osrelease", "6.1.0-9\n");

    let cards = SharedCards::default();
    let mut machine = Machine::new(Host::at(folder.path()), cards.clone());
    let mut found = look(&mut machine, 10);
    let free = found.remove("tg_node_disk_free_bytes{mountpoint=/}").unwrap();
    let total = found.remove("tg_node_disk_total_bytes{mountpoint=/}").unwrap();
    assert!(free <= total && total > 0.0);
    let facts = format!(
        "tg_node_info{{boot_id=0b00aa00-0000-4000-8000-000000000001,agent_version={},kernel=6.1.0-9}}",
        env!("CARGO_PKG_VERSION")
    );
    let want = [
        ("tg_node_cpu_seconds_total{mode=user}", 1.0),
        ("tg_node_cpu_seconds_total{mode=idle}", 4.0),
        ("tg_node_cpus{}", 1.0),
        ("tg_node_load{}", 1.5),
        ("tg_node_memory_used_bytes{}", 614_400.0),
        ("tg_node_memory_total_bytes{}", 1_024_000.0),
        ("tg_node_disk_read_bytes_total{device=nvme0n1}", 1024.0),
        ("tg_node_disk_written_bytes_total{device=nvme0n1}", 2048.0),
        ("tg_node_disk_io_seconds_total{device=nvme0n1}", 0.5),
        ("tg_node_network_receive_bytes_total{device=eth0}", 10.0),
        ("tg_node_network_transmit_bytes_total{device=eth0}", 20.0),
        ("tg_node_network_errors_total{device=eth0,kind=receive_errors}", 0.0),
        ("tg_node_rdma_link_active{device=mlx5_0,port=1}", 1.0),
        ("tg_node_rdma_receive_bytes_total{device=mlx5_0,port=1}", 400.0),
        ("tg_node_rdma_transmit_bytes_total{device=mlx5_0,port=1}", 800.0),
        ("tg_node_rdma_errors_total{device=mlx5_0,port=1,kind=link_downed}", 3.0),
        (facts.as_str(), 1.0),
        ("tg_node_gpus{source=pci}", 1.0),
        ("tg_job_cpu_seconds_total{job_id=7}", 1.5),
        ("tg_job_memory_used_bytes{job_id=7}", 1000.0),
        ("tg_job_memory_limit_bytes{job_id=7}", 2000.0),
    ];
    for (name, value) in want {
        assert_eq!(found.get(name), Some(&value), "{name}");
    }
    // The other six modes of the cores and three kinds of errors of the interface.
    assert_eq!(found.len(), want.len() + 6 + 3, "{found:?}");

    // A ratio is known from the second look on.
    write("proc/pressure/io", "some avg10=0.00 avg60=0.00 avg300=0.00 total=3500000\n");
    assert_eq!(look(&mut machine, 20)["tg_node_pressure_waiting_ratio{resource=io}"], 0.25);

    // A driver that is not there shows none of NVIDIA's cards, and says nothing of others'.
    cards.lock().is_absent = true;
    assert_eq!(look(&mut machine, 30)["tg_node_gpus{source=driver}"], 0.0);
    write("sys/bus/pci/devices/0000:1b:00.0/vendor", "0x1002\n");
    let mut other = Machine::new(Host::at(folder.path()), cards);
    let found = look(&mut other, 40);
    assert_eq!(found["tg_node_gpus{source=pci}"], 1.0);
    assert_eq!(found.get("tg_node_gpus{source=driver}"), None);
}
