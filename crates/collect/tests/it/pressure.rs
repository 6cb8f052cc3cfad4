//! Pressure stall information.

use collect::NodeSampler;

use crate::machine::{GIB, Machine, SECOND_NS, Tick, causes, node_tick};

fn extras(sampler: &mut NodeSampler, at_ns: u64) -> Tick {
    let mut tick = Tick::new();
    sampler.sample_extras(at_ns, &mut |desc, value| assert!(tick.insert(desc.name, value).is_none()));
    tick
}

fn pressure(machine: &Machine, path: &str, total_us: u64) {
    machine.write(
        path,
        format!(
            "some avg10=9.99 avg60=1.00 avg300=0.00 total={total_us}\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=7\n"
        ),
    );
}

#[test]
fn the_share_of_time_somebody_waited_is_emitted_from_the_second_tick() {
    let machine = Machine::new();
    let mut sampler = machine.node();
    for (at, cpu, memory, io) in [(0, 1_000_000, 5, 9), (10, 3_500_000, 5, 10_000_009)] {
        pressure(&machine, "proc/pressure/cpu", cpu);
        pressure(&machine, "proc/pressure/memory", memory);
        pressure(&machine, "proc/pressure/io", io);
        node_tick(&mut sampler, at * SECOND_NS);
        let tick = extras(&mut sampler, at * SECOND_NS);
        if at == 0 {
            assert!(tick.is_empty());
        } else {
            assert_eq!(tick["system/pressure/cpu_waiting_ratio"], 0.25);
            assert_eq!(tick["system/pressure/memory_waiting_ratio"], 0.0);
            assert_eq!(tick["system/pressure/io_waiting_ratio"], 1.0);
        }
    }
}

#[test]
fn pressure_is_read_at_the_level_that_binds() {
    let mut machine = Machine::new();
    machine.mount_unified();
    machine.cgroup("0::/pod/c1\n");
    let pod = "sys/fs/cgroup/pod";
    machine.write_all(
        pod,
        &[
            ("memory.max", &format!("{}", 2 * GIB)),
            ("memory.current", "1"),
            ("cpu.max", "100000 100000"),
            ("cpu.stat", "usage_usec 1"),
        ],
    );
    machine.write("sys/fs/cgroup/pod/c1/memory.max", "max");
    let mut sampler = machine.node();
    let mut tick = Tick::new();
    for at in 0..2u64 {
        for resource in ["cpu", "memory", "io"] {
            pressure(&machine, &format!("proc/pressure/{resource}"), 0);
            pressure(&machine, &format!("{pod}/c1/{resource}.pressure"), 900_000 * at);
            pressure(&machine, &format!("{pod}/{resource}.pressure"), 500_000 * at);
        }
        node_tick(&mut sampler, at * SECOND_NS);
        tick = extras(&mut sampler, at * SECOND_NS);
    }
    assert_eq!(tick.values().copied().collect::<Vec<_>>(), [0.5, 0.5, 0.5]);
    // Without files at the level the host's are read, which is another source: no jump between them.
    for resource in ["cpu", "memory", "io"] {
        machine.remove(&format!("{pod}/{resource}.pressure"));
    }
    node_tick(&mut sampler, 2 * SECOND_NS);
    assert!(extras(&mut sampler, 2 * SECOND_NS).is_empty());
}

#[test]
fn a_pressure_file_that_tells_nothing_is_a_failure() {
    let machine = Machine::new();
    machine.write("proc/pressure/cpu", "nothing\n");
    let mut sampler = machine.node();
    assert!(extras(&mut sampler, 0).is_empty());
    let failures = sampler.take_failures();
    assert_eq!(failures.len(), 1);
    assert_eq!(failures[0].metric.name, "system/pressure/cpu_waiting_ratio");
    assert!(failures[0].cause.contains("proc/pressure/cpu"), "{}", causes(&failures));
}
