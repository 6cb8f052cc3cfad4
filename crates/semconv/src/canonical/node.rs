//! What is known of a machine and of the jobs on it.

use super::metrics;

const HOST: &[&str] = &["host"];
const JOB: &[&str] = &["host", "job_id"];

metrics! {
    /// Metrics of machines.
    NODES;
    NODE_INFO: gauge, "tg_node_info", None, &["host", "boot_id", "agent_version", "kernel"], A,
        "Facts of a machine as labels.";
    NODE_GPUS: gauge, "tg_node_gpus", None, &["host", "source"], A,
        "How many cards the machine has by PCI, by the driver, and how many are given to jobs.",
        "A card that falls off the bus has no value of its own any more: compare the sources.";
    NODE_CPU_SECONDS_TOTAL: counter, "tg_node_cpu_seconds_total", Seconds, &["host", "mode"], A,
        "Time of all cores, by what they did.";
    NODE_CPUS: gauge, "tg_node_cpus", None, HOST, A, "How many cores the machine has.";
    NODE_LOAD: gauge, "tg_node_load", None, HOST, C,
        "Tasks that ran or waited, averaged over a minute.",
        "Tasks that wait for disks count too: pressure says more.";
    NODE_PRESSURE_WAITING_RATIO: gauge, "tg_node_pressure_waiting_ratio", Ratio, &["host", "resource"], A,
        "Share of the time in which some task waited for this resource.";
    NODE_MEMORY_USED_BYTES: gauge, "tg_node_memory_used_bytes", Bytes, HOST, A,
        "Memory that could not be given out again at once.";
    NODE_MEMORY_TOTAL_BYTES: gauge, "tg_node_memory_total_bytes", Bytes, HOST, A,
        "Memory of the machine in all.";
    NODE_DISK_FREE_BYTES: gauge, "tg_node_disk_free_bytes", Bytes, &["host", "mountpoint"], A,
        "Room on a file system for those who are not root.";
    NODE_DISK_TOTAL_BYTES: gauge, "tg_node_disk_total_bytes", Bytes, &["host", "mountpoint"], A,
        "Size of a file system.";
    NODE_DISK_READ_BYTES_TOTAL: counter, "tg_node_disk_read_bytes_total", Bytes, &["host", "device"], A,
        "Bytes read from a disk.";
    NODE_DISK_WRITTEN_BYTES_TOTAL: counter, "tg_node_disk_written_bytes_total", Bytes,
        &["host", "device"], A, "Bytes written to a disk.";
    NODE_DISK_IO_SECONDS_TOTAL: counter, "tg_node_disk_io_seconds_total", Seconds, &["host", "device"], B,
        "Time in which a disk had at least one request.",
        "A disk that serves many requests at once is not full at one second a second.";
    NODE_NETWORK_RECEIVE_BYTES_TOTAL: counter, "tg_node_network_receive_bytes_total", Bytes,
        &["host", "device"], A, "Bytes that came in through an interface.";
    NODE_NETWORK_TRANSMIT_BYTES_TOTAL: counter, "tg_node_network_transmit_bytes_total", Bytes,
        &["host", "device"], A, "Bytes that went out through an interface.";
    NODE_NETWORK_ERRORS_TOTAL: counter, "tg_node_network_errors_total", None,
        &["host", "device", "kind"], A, "Packets that an interface lost or found damaged.";
    NODE_RDMA_RECEIVE_BYTES_TOTAL: counter, "tg_node_rdma_receive_bytes_total", Bytes,
        &["host", "device", "port"], A, "Bytes that came in through a port for RDMA.";
    NODE_RDMA_TRANSMIT_BYTES_TOTAL: counter, "tg_node_rdma_transmit_bytes_total", Bytes,
        &["host", "device", "port"], A, "Bytes that went out through a port for RDMA.";
    NODE_RDMA_ERRORS_TOTAL: counter, "tg_node_rdma_errors_total", None,
        &["host", "device", "port", "kind"], A, "Errors that a port for RDMA counted.";
    NODE_RDMA_LINK_ACTIVE: gauge, "tg_node_rdma_link_active", None, &["host", "device", "port"], A,
        "1 while a port for RDMA is up, else 0.";
    JOB_CPU_SECONDS_TOTAL: counter, "tg_job_cpu_seconds_total", Seconds, JOB, A,
        "Time that a job used on all cores of the machine.";
    JOB_MEMORY_USED_BYTES: gauge, "tg_job_memory_used_bytes", Bytes, JOB, B,
        "Memory that a job's cgroup holds on the machine.",
        "The page cache of the job counts too and is given back under pressure.";
    JOB_MEMORY_LIMIT_BYTES: gauge, "tg_job_memory_limit_bytes", Bytes, JOB, A,
        "Memory that a job's cgroup may hold on the machine.";
}
