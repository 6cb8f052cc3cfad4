//! The root filesystem, held against `df`.

use std::process::Command;

use collect::{DiskBlocks, Host, NodeSampler};

use crate::machine::{Machine, Tick, assert_near, node_tick};

fn disk(tick: &Tick) -> (Option<f64>, Option<f64>, Option<f64>) {
    let value = |name| tick.get(name).copied();
    (value("system/disk/total_bytes"), value("system/disk/free_bytes"), value("system/disk/utilization"))
}

fn disk_of(blocks: DiskBlocks) -> (Option<f64>, Option<f64>, Option<f64>) {
    let machine = Machine::bare();
    disk(&node_tick(&mut NodeSampler::new(machine.host().with_disk(blocks)), 0))
}

#[test]
fn reserved_blocks_are_neither_free_nor_used() {
    // T3, the shape of a filesystem with many reserved blocks, in blocks of 4 KiB.
    let (total, available, used) = (66_053_021, 19_505_284, 4_316_188);
    let blocks = DiskBlocks { block_bytes: 4096, total, free: total - used, available };
    let (total_bytes, free_bytes, utilization) = disk_of(blocks);
    assert_eq!(total_bytes, Some(270_553_174_016.0), "exact: single precision would be 4,096 off");
    assert_eq!(free_bytes, Some(79_893_643_264.0));
    let wanted = 4_316_188.0 / (4_316_188.0 + 19_505_284.0) * 100.0;
    assert_near(utilization, wanted);
    let naive = [1.0 - available as f64 / total as f64, used as f64 / total as f64];
    assert!(naive.iter().all(|ratio| (ratio * 100.0 - wanted).abs() > 1.0), "the naive forms differ");
}

#[test]
fn a_full_filesystem_is_at_one_hundred_and_an_empty_one_at_zero() {
    let full = DiskBlocks { block_bytes: 512, total: 100, free: 5, available: 0 };
    assert_eq!(disk_of(full), (Some(51_200.0), Some(0.0), Some(100.0)));
    let empty = DiskBlocks { block_bytes: 512, total: 100, free: 100, available: 95 };
    assert_eq!(disk_of(empty), (Some(51_200.0), Some(48_640.0), Some(0.0)));
}

#[test]
fn a_filesystem_without_blocks_has_no_utilization() {
    let none = DiskBlocks { block_bytes: 4096, total: 0, free: 0, available: 0 };
    assert_eq!(disk_of(none), (Some(0.0), Some(0.0), None));
}

#[test]
fn block_counts_that_contradict_each_other_stay_numbers() {
    let odd = DiskBlocks { block_bytes: u64::MAX, total: 1, free: u64::MAX, available: u64::MAX };
    let (total, free, utilization) = disk_of(odd);
    assert!([total, free, utilization].iter().all(|value| value.unwrap().is_finite()));
}

/// Size, available bytes and the printed percentage of `/`, as `df` says.
fn df() -> (f64, f64, f64) {
    let output = Command::new("df").args(["-P", "-k", "/"]).env("LC_ALL", "C").output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let fields: Vec<&str> = text.lines().nth(1).unwrap().split_whitespace().collect();
    let number = |text: &str| text.trim_end_matches('%').parse::<f64>().unwrap();
    (number(fields[1]) * 1024.0, number(fields[3]) * 1024.0, number(fields[4]))
}

#[test]
fn the_real_root_filesystem_reads_as_df_prints_it() {
    let mut sampler = NodeSampler::new(Host::real());
    // Others write to the disk meanwhile: only a tick between two equal answers can be held to them.
    for _ in 0..1000 {
        let before = df();
        let (total, free, utilization) = disk(&node_tick(&mut sampler, 0));
        if before != df() {
            continue;
        }
        assert_eq!((total, free), (Some(before.0), Some(before.1)));
        assert_eq!(utilization.unwrap().ceil(), before.2);
        return;
    }
    panic!("`df /` never gave the same answer twice in a row");
}
