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
