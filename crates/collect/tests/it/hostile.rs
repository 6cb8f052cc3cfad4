//! Any bytes in any file: no panic, and no value that is not a number.

use proptest::prelude::*;

use crate::machine::Machine;

/// Files a machine is read from; the memberships and mounts of the machine below lead to them.
const FILES: &[&str] = &[
    "proc/self/cgroup",
    "proc/self/mountinfo",
    "proc/self/stat",
    "proc/self/statm",
    "proc/self/status",
    "proc/7/stat",
    "proc/meminfo",
    "proc/stat",
    "proc/uptime",
    "proc/pressure/cpu",
    "sys/devices/system/cpu/online",
    "sys/fs/cgroup/memory.max",
    "sys/fs/cgroup/memory.current",
    "sys/fs/cgroup/memory.stat",
    "sys/fs/cgroup/cpu.max",
    "sys/fs/cgroup/cpu.stat",
    "sys/fs/cgroup/cpu.pressure",
    "sys/fs/cgroup/cpuset.cpus.effective",
    "sys/fs/cgroup/cpuacct/cpuacct.usage",
];

/// Raw bytes, and texts near enough to the kernel's to get past the first look.
fn text() -> impl Strategy<Value = Vec<u8>> {
    let word = prop_oneof![
        any::<u64>().prop_map(|number| number.to_string()),
        prop::sample::select(vec![
            "max",
            "-1",
            "0",
            "cpu ",
            "cpu0",
            "usage_usec",
            "inactive_file",
            "some",
            "total=5",
            "0-3,7",
            "0::/",
            "MemTotal:",
            "MemAvailable:",
            "kB",
            "\n",
            "(x)",
            "S",
            "/",
            "-",
            "cgroup2",
            "memory",
            "3:memory:/..",
            "1844674407370955161500",
        ])
        .prop_map(str::to_owned),
    ];
    prop_oneof![
        prop::collection::vec(any::<u8>(), 0..200),
        prop::collection::vec(word, 0..40).prop_map(|words| words.join(" ").into_bytes()),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(100) })]

    #[test]
    fn any_bytes_in_any_file_give_numbers_or_nothing(
        changes in prop::collection::vec((prop::sample::select(FILES), text()), 1..12),
        times in prop::collection::vec(any::<u64>(), 1..4),
    ) {
        let mut machine = Machine::new();
        machine.mount_unified();
        machine.cgroup("0::/\n");
        let (mut node, mut process) = (machine.node(), machine.process());
        let mut check = |desc: &'static model::Desc, value: f64| {
            assert!(value.is_finite() && value >= 0.0, "{} is {value}", desc.name);
        };
        for (index, at_ns) in times.iter().enumerate() {
            for (path, text) in changes.iter().skip(index) {
                machine.write(path, text);
            }
            node.sample(*at_ns, &mut check);
            node.sample_extras(*at_ns, &mut check);
            process.sample(*at_ns, &mut check);
            process.sample_extras(*at_ns, &mut check);
        }
        collect::facts(&machine.host());
    }
}

/// Everything that the samplers read, in turn made something that no kernel would write.
#[test]
fn files_that_are_huge_binary_empty_folders_or_gone_cost_numbers_only() {
    let digits = vec![b'9'; 1 << 20];
    let lines = b"0::/\n".repeat(200_000);
    let zeros = vec![0; 1 << 16];
    let contents: [&[u8]; 5] = [&digits, &lines, &zeros, b"\xff\xfe\xfd", b""];
    for path in FILES {
        let mut machine = Machine::new();
        machine.mount_unified();
        machine.cgroup("0::/\n");
        let (mut node, mut process) = (machine.node(), machine.process());
        let mut at_ns = 0;
        let mut tick = || {
            at_ns += 1_000_000_000;
            let mut check = |desc: &'static model::Desc, value: f64| {
                assert!(value.is_finite() && value >= 0.0, "{} is {value} with a bad {path}", desc.name);
            };
            node.sample(at_ns, &mut check);
            node.sample_extras(at_ns, &mut check);
            process.sample(at_ns, &mut check);
            process.sample_extras(at_ns, &mut check);
        };
        tick();
        for content in contents {
            machine.write(path, content);
            tick();
        }
        std::fs::remove_file(machine.path(path)).unwrap();
        tick();
        std::fs::create_dir(machine.path(path)).unwrap();
        tick();
        std::fs::remove_dir(machine.path(path)).unwrap();
        std::os::unix::fs::symlink(machine.path(path), machine.path(path)).unwrap();
        tick();
    }
}

/// A file that another thread replaces while it is read, again and again.
#[test]
fn files_that_change_while_they_are_read_give_one_of_their_states() {
    let mut machine = Machine::new();
    machine.mount_unified();
    machine.cgroup("0::/\n");
    machine.write("sys/fs/cgroup/memory.max", "1073741824\n");
    let path = machine.path("sys/fs/cgroup/memory.current");
    let swap = machine.path("sys/fs/cgroup/memory.current.new");
    std::fs::write(&path, "1000\n").unwrap();
    let is_over = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let states = ["1000\n", "536870912\n", "", "garbage\n"];
            for state in states.iter().cycle().take(1_000_000) {
                if is_over.load(std::sync::atomic::Ordering::Relaxed) {
                    break;
                }
                std::fs::write(&swap, state).unwrap();
                std::fs::rename(&swap, &path).unwrap();
            }
        });
        let mut node = machine.node();
        for at_ns in 1..2000 {
            node.sample(at_ns, &mut |desc, value| {
                if desc.name == "system/memory/used_bytes" {
                    assert!([1000.0, 536_870_912.0, 34_359_738_368.0].contains(&value), "{value}");
                }
            });
        }
        is_over.store(true, std::sync::atomic::Ordering::Relaxed);
    });
}

#[test]
fn a_boot_id_is_a_uuid_or_nothing() {
    let machine = Machine::new();
    assert_eq!(machine.host().boot_id(), "", "there is no such file");
    let path = "proc/sys/kernel/random/boot_id";
    machine.write(path, "3f0c1de2-8a4b-4c52-9d3e-0123456789ab\n");
    assert_eq!(machine.host().boot_id(), "3f0c1de2-8a4b-4c52-9d3e-0123456789ab");
    let huge = vec![b'a'; 1 << 20];
    for bad in [&b""[..], b"\n", b"\xff\xfe\0", b"3f0c1de2", b"zzzzzzzz-8a4b-4c52-9d3e-0123456789ab", &huge] {
        machine.write(path, bad);
        assert_eq!(machine.host().boot_id(), "");
    }
    let real = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    assert_eq!(collect::boot_id(), real.trim());
}
