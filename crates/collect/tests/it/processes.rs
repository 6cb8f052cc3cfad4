//! The table of all processes.

use collect::{Host, ProcessRow, ProcessTable};

use crate::machine::{Machine, SECOND_NS};

/// Writes a process: its name, its CPU time in seconds, and when it started.
fn write(machine: &Machine, pid: u32, name: &str, used: f64, start: u64) {
    let ticks = (used * rustix::param::clock_ticks_per_second() as f64) as u64;
    let text = format!(
        "{pid} ({name}) S 1 1 1 0 -1 0 0 0 0 0 {ticks} 0 0 0 20 0 1 0 {start} 99 3 18446744073709551615\n"
    );
    machine.write(format!("proc/{pid}/stat"), text);
}

fn row(rows: &[ProcessRow], pid: u32) -> ProcessRow {
    rows.iter().find(|row| row.pid == pid).unwrap().clone()
}

#[test]
fn each_process_has_what_it_used_since_the_last_tick() {
    let machine = Machine::bare();
    machine.write("proc/version", "not a process\n");
    write(&machine, 7, "a) (b", 5.0, 100);
    write(&machine, 8, "other", 1.0, 100);
    let mut table = ProcessTable::new(&machine.host());
    let first = table.sample(0);
    assert_eq!((first.len(), row(&first, 7).cpu_percent), (2, None));
    assert_eq!((row(&first, 7).name.as_str(), row(&first, 7).parent), ("a) (b", 1));
    assert_eq!(row(&first, 7).rss_bytes, 3 * rustix::param::page_size() as u64);
    write(&machine, 7, "a) (b", 6.0, 100);
    // Another process under an ID that was used before.
    write(&machine, 8, "new", 9.0, 200);
    let second = table.sample(2 * SECOND_NS);
    assert_eq!(row(&second, 7).cpu_percent, Some(50.0));
    assert_eq!(row(&second, 8).cpu_percent, None);
}

#[test]
fn what_is_no_process_or_has_gone_is_left_out() {
    let machine = Machine::bare();
    write(&machine, 7, "whole", 1.0, 1);
    machine.write("proc/8/stat", b"8 (torn".as_slice());
    machine.write("proc/9/stat", b"\xff\x00".as_slice());
    machine.write("proc/10/cmdline", "no stat\n");
    machine.write("proc/99999999999999/stat", "too large\n");
    let mut table = ProcessTable::new(&machine.host());
    assert_eq!(table.sample(0).iter().map(|row| row.pid).collect::<Vec<_>>(), [7]);
    machine.remove("proc");
    assert_eq!(table.sample(1), []);
}

#[test]
fn the_real_machine_has_this_process() {
    let mut table = ProcessTable::new(&Host::real());
    table.sample(0);
    let rows = table.sample(SECOND_NS);
    assert!(row(&rows, std::process::id()).rss_bytes > 0);
}
