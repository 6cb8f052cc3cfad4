//! What cannot be read: told once a cause, left alone after five, tried again later.

use crate::machine::{GIB, Machine, SECOND_NS, causes, node_tick, process_tick};

fn half_full_pod() -> Machine {
    let mut machine = Machine::new();
    machine.mount_unified();
    machine.cgroup("0::/pod\n");
    machine.write_all(
        "sys/fs/cgroup/pod",
        &[("memory.max", &format!("{}", 2 * GIB)), ("memory.current", &format!("{GIB}"))],
    );
    machine
}

#[test]
fn a_counter_that_fails_five_times_is_left_alone_and_comes_back() {
    let machine = half_full_pod();
    let mut sampler = machine.node();
    let mut seen = Vec::new();
    let mut dropped = Vec::new();
    for at in 0..40u64 {
        let text = if at < 20 { "garbage".to_owned() } else { format!("{GIB}") };
        machine.write("sys/fs/cgroup/pod/memory.current", text);
        let tick = node_tick(&mut sampler, at * SECOND_NS);
        assert!(tick.contains_key("system/disk/total_bytes"), "other series go on");
        if tick.contains_key("system/memory/used_bytes") {
            seen.push(at);
        }
        for failure in sampler.take_failures() {
            assert_eq!(failure.metric.name, "system/memory/used_bytes");
            assert!(
                failure.cause.contains("memory.current") && failure.cause.contains("number"),
                "{failure:?}"
            );
            dropped.push((at, failure.dropped));
        }
    }
    // Five failures, retries after 10 ticks (still garbage) and after 20 more.
    assert_eq!(dropped, [(0, false), (1, false), (2, false), (3, false), (4, true)]);
    assert_eq!(seen, (34..40).collect::<Vec<_>>());
}

#[test]
fn four_failures_and_a_success_start_the_count_again() {
    let machine = half_full_pod();
    let mut sampler = machine.node();
    let mut good = 0;
    for at in 0..50u64 {
        let text = if at % 5 == 4 { format!("{GIB}") } else { String::new() };
        machine.write("sys/fs/cgroup/pod/memory.current", text);
        good += usize::from(node_tick(&mut sampler, at).contains_key("system/memory/used_bytes"));
        assert!(sampler.take_failures().iter().all(|failure| !failure.dropped));
    }
    assert_eq!(good, 10);
}

#[test]
fn a_file_that_is_there_and_cannot_be_read_is_a_failure_with_its_path() {
    let machine = half_full_pod();
    machine.remove("sys/fs/cgroup/pod/memory.current");
    std::fs::create_dir(machine.path("sys/fs/cgroup/pod/memory.current")).unwrap();
    let mut sampler = machine.node();
    assert!(!node_tick(&mut sampler, 0).contains_key("system/memory/used_bytes"));
    let failures = sampler.take_failures();
    assert_eq!(failures.len(), 1);
    assert!(failures[0].cause.starts_with("cannot read `"), "{}", causes(&failures));
    assert!(failures[0].cause.contains("memory.current"), "{}", causes(&failures));
    assert!(collect::facts(&machine.host()).problems[0].contains("memory.current"));
}

#[test]
fn what_is_not_there_is_no_failure() {
    let machine = Machine::bare();
    let (mut node, mut process) = (machine.node(), machine.process());
    for at in 0..30u64 {
        let tick = node_tick(&mut node, at);
        assert_eq!(tick.len(), 3, "the disk series alone: {tick:?}");
        node.sample_extras(at, &mut |desc, _| panic!("{}", desc.name));
        assert!(process_tick(&mut process, at).is_empty());
        process.sample_extras(at, &mut |desc, _| panic!("{}", desc.name));
    }
    assert_eq!(causes(&node.take_failures()) + &causes(&process.take_failures()), "");
}

#[test]
fn a_level_that_vanishes_and_returns_is_followed() {
    let machine = half_full_pod();
    let mut sampler = machine.node();
    let mut used = |at: u64| node_tick(&mut sampler, at).get("system/memory/used_bytes").copied();
    assert_eq!(used(0), Some(GIB as f64));
    machine.remove("sys/fs/cgroup/pod");
    assert_eq!(used(1), Some((32 * GIB) as f64), "the host's");
    machine.write("sys/fs/cgroup/pod/memory.max", format!("{}", 2 * GIB));
    machine.write("sys/fs/cgroup/pod/memory.current", format!("{GIB}"));
    assert_eq!(used(2), Some(GIB as f64));
}
