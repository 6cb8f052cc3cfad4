//! The process's own memory and CPU time.

use crate::machine::{Machine, SECOND_NS, assert_near, causes, process_tick};

const RSS: &str = "system/process/rss_bytes";
const CPU: &str = "system/process/cpu_utilization";

/// A `/proc/<pid>/stat` with this name and these user and system ticks.
fn stat(name: &str, user: u64, system: u64) -> String {
    format!(
        "41 ({name}) R 1 41 41 0 -1 4194304 100 900 0 0 {user} {system} 700 800 20 0 3 0 500 99 250 184 1 1\n"
    )
}

#[test]
fn memory_is_there_at_once_and_cpu_from_the_second_tick() {
    let machine = Machine::bare();
    let mut sampler = machine.process();
    machine.write("proc/self/statm", "9000 2500 300 1 0 700 0\n");
    machine.write("proc/self/stat", stat("python", 100, 20));
    let tick = process_tick(&mut sampler, 0);
    assert_eq!(tick[RSS], 2500.0 * rustix::param::page_size() as f64);
    assert!(!tick.contains_key(CPU));
    let hz = rustix::param::clock_ticks_per_second();
    machine.write("proc/self/stat", stat("python", 100 + 2 * hz, 20 + hz));
    assert_near(process_tick(&mut sampler, 2 * SECOND_NS).get(CPU).copied(), 150.0);
}

#[test]
fn a_name_with_brackets_and_spaces_moves_no_field() {
    let machine = Machine::bare();
    let hz = rustix::param::clock_ticks_per_second();
    for name in ["a) R 1 2 3 4 5 6 7 8 9 (b", ") ) )", "", "\u{fffd} ((", "x) S 9 9 9 9 9 9 9 9 9 9 9 9 9 9"]
    {
        let mut sampler = machine.process();
        machine.write("proc/self/stat", stat(name, 5, 5));
        process_tick(&mut sampler, 0);
        machine.write("proc/self/stat", stat(name, 5 + hz, 5));
        assert_near(process_tick(&mut sampler, SECOND_NS).get(CPU).copied(), 100.0);
    }
}

#[test]
fn a_stat_file_cut_short_is_a_failure_and_memory_goes_on() {
    let machine = Machine::bare();
    let mut sampler = machine.process();
    machine.write("proc/self/statm", "9000 2500\n");
    machine.write("proc/self/stat", "41 (python) R 1 41");
    assert!(process_tick(&mut sampler, 0).contains_key(RSS));
    let failures = sampler.take_failures();
    assert_eq!(failures.len(), 1);
    assert_eq!(failures[0].metric.name, CPU);
    assert!(failures[0].cause.contains("proc/self/stat"), "{}", causes(&failures));
}
