//! Lines of the kernel's log, from bytes to events.

use collect::kernel_log::{
    AmdFault, Bdf, Event, Feed, Format, Interpreter, LINE_BYTES_MAX, Nvlink4Line, Nvlink5Line, Origin,
    Record, SxidLine, XidLine,
};
use proptest::prelude::*;

/// Twenty lines in the ways in which they are met.
const LINES: [&str; 20] = [
    "[ 8123.100001] NVRM: Xid (PCI:0000:9a:00): 79, pid=4242, name=python3, GPU has fallen off the bus.",
    "[ 8123.100002] NVRM: GPU 0000:9a:00.0: GPU has fallen off the bus.",
    "4,1301,8123100003,-;NVRM: Xid (PCI:0000:9a:00): 154, pid=4242, name=python3, GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)",
    "Nov 03 02:14:09 node-031 kernel: NVRM: Xid (PCI:0000:43:00): 48, pid=771, name=torchrun, An uncorrectable double bit error (DBE) has been detected on GPU in the framebuffer at partition 3, subpartition 1.",
    "Nov 03 02:14:09 node-031 kernel: NVRM: Xid (PCI:0000:43:00): 63, pid=771, name=torchrun, Row Remapper: New row (0x00000000000fc2a1) marked for remapping, reset gpu to activate.",
    "Nov 03 02:14:09 node-031 kernel: NVRM: Xid (PCI:0000:43:00): 94, pid=771, name=torchrun, Contained: CE User Channel (0x9). RST: No, D-RST: No",
    "[Mon Nov  3 02:14:10 2026] NVRM: Xid (PCI:0000:43:00): 45, pid=771, name=torchrun, Ch 00000009, caused by previous Xid 94",
    "NVRM: Xid (PCI:0000:3b:00 GPU-I:05): 31, pid=991, name=vllm, Ch 00000007, intr 00000000. MMU Fault: ENGINE GRAPHICS GPCCLIENT_T1_6 faulted @ 0x7f5a_e7504000. Fault is of type FAULT_PDE ACCESS_TYPE_VIRT_READ",
    "NVRM: Xid (PCI:0000:3b:00 GPU-I:05 GPU-CI:00): 13, pid=991, name=vllm, Graphics SM Warp Exception on (GPC 1, TPC 3, SM 0): Out Of Range Address",
    "<4>[99.000010] NVRM: Xid (0000:03:00): 43, Ch 00000018",
    "NVRM: Xid (PCI:0000:2a:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.",
    "NVRM: Xid (PCI:0000:1b:00): 119, pid=36055, name=node_agent, Timeout after 6s of waiting for RPC response from GPU0 GSP! Expected function 76 (GSP_RM_CONTROL) (0x90cc0301 0xc).",
    "NVRM: Xid (PCI:0009:01:00): 149, NETIR_LINK_EVT Fatal XC0 i0 Link 01 (0x021425c6 0x00000000 0x00000000 0x00000000 0x00000000 0x00000000 0x00000000)",
    "NVRM: Xid (PCI:0009:01:00): 145, pid=12, name=a, b: c, RLW_REMAP Nonfatal XC1 i2 Link 07 (0x00000004 0x00000002 0x0 0x0 0x0 0x0 0x0)",
    "NVRM: Xid (PCI:0000:c3:00): 95, pid=5120, name=python, Uncontained: LTC TAG (0x2,0x1). RST: Yes, D-RST: No",
    "nvidia-nvswitch3: SXid (PCI:0000:05:00.0): 12028, Non-fatal, Link 32 egress non-posted PRIV error (First)",
    "nvidia-nvswitch0: SXid (PCI:0000:03:00.0): 20034, Fatal, Link 30 LTSSM Fault Up",
    "NVRM: GPU at PCI:0000:43:00: GPU-8b1a2c3d-0f11-4d6a-8e22-77aa10ff3b21",
    "NVRM: Xid (PCI:0000:43:00): 74, pid=771, name=torchrun, NVLink: fatal error detected on link 6(0x10000, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0)",
    "amdgpu 0000:c3:00.0: amdgpu: ring sdma0 timeout, signaled seq=1142, emitted seq=1144",
];

fn at(place: &str) -> Option<Bdf> {
    Bdf::read(place)
}

fn events(records: &[Record]) -> Vec<Event> {
    let mut interpreter = Interpreter::default();
    let mut events = Vec::new();
    for record in records {
        interpreter.take(record, &mut |event| events.push(event));
    }
    events
}

fn event(line: &str) -> Option<Event> {
    let mut events = events(&[Record::of_line(line.as_bytes())]);
    assert!(events.len() <= 1, "{line}");
    events.pop()
}

fn xid_of(line: &str) -> XidLine {
    let Some(Event::Xid(xid)) = event(line) else { unreachable!("no Xid: {line}") };
    xid
}

/// The fields of an Xid beside its message.
fn xid(place: &str, code: u32, process: Option<(u32, &str)>) -> XidLine {
    XidLine {
        gpu: at(place),
        code,
        pid: process.map(|(pid, _)| pid),
        name: process.map(|(_, name)| name.to_owned()),
        ..XidLine::default()
    }
}

#[test]
fn the_xids_of_twenty_lines_are_read_field_by_field() {
    let link = Nvlink5Line {
        unit: "NETIR_LINK_EVT".to_owned(),
        is_fatal: true,
        containment: Some(0),
        instance: Some(0),
        link: Some(1),
        words: vec![0x0214_25c6, 0, 0, 0, 0, 0, 0],
    };
    let remap = Nvlink5Line {
        unit: "RLW_REMAP".to_owned(),
        is_fatal: false,
        containment: Some(1),
        instance: Some(2),
        link: Some(7),
        words: vec![4, 2, 0, 0, 0, 0, 0],
    };
    let registers = Nvlink4Line { link: 6, registers: vec![0x1_0000, 0, 0, 0, 0, 0, 0] };
    let torchrun = Some((771, "torchrun"));
    let vllm = Some((991, "vllm"));
    let want = [
        (1, xid("0000:9a:00.0", 79, Some((4242, "python3")))),
        (3, XidLine { recovery: Some((0, 2)), ..xid("0000:9a:00.0", 154, Some((4242, "python3"))) }),
        (4, xid("0000:43:00.0", 48, torchrun)),
        (5, xid("0000:43:00.0", 63, torchrun)),
        (6, xid("0000:43:00.0", 94, torchrun)),
        (7, XidLine { channel: Some(9), previous: Some(94), ..xid("0000:43:00.0", 45, torchrun) }),
        (8, XidLine { gi: Some(5), channel: Some(7), ..xid("0000:3b:00.0", 31, vllm) }),
        (9, XidLine { gi: Some(5), ci: Some(0), ..xid("0000:3b:00.0", 13, vllm) }),
        (10, XidLine { channel: Some(0x18), ..xid("0000:03:00.0", 43, None) }),
        (11, xid("0000:2a:00.0", 79, None)),
        (12, xid("0000:1b:00.0", 119, Some((36_055, "node_agent")))),
        (13, XidLine { nvlink5: Some(link), ..xid("0009:01:00.0", 149, None) }),
        (14, XidLine { nvlink5: Some(remap), ..xid("0009:01:00.0", 145, Some((12, "a, b: c"))) }),
        (15, xid("0000:c3:00.0", 95, Some((5120, "python")))),
        (19, XidLine { nvlink4: Some(registers), ..xid("0000:43:00.0", 74, torchrun) }),
    ];
    for (number, want) in want {
        let got = xid_of(LINES[number - 1]);
        assert!(
            !got.message.is_empty() && LINES[number - 1].ends_with(&got.message),
            "{number}: {}",
            got.message
        );
        assert_eq!(XidLine { message: String::new(), ..got }, want, "line {number}");
    }
}

#[test]
fn the_other_lines_of_the_twenty_are_what_they_are() {
    assert_eq!(event(LINES[1]), Some(Event::OffTheBus { gpu: at("0000:9a:00.0") }));
    let switch = SxidLine {
        switch: 3,
        place: at("0000:05:00.0"),
        code: 12_028,
        is_fatal: Some(false),
        link: Some(32),
        message: "Non-fatal, Link 32 egress non-posted PRIV error (First)".to_owned(),
    };
    assert_eq!(event(LINES[15]), Some(Event::Sxid(switch)));
    let Some(Event::Sxid(fatal)) = event(LINES[16]) else { panic!() };
    assert_eq!((fatal.switch, fatal.code, fatal.is_fatal, fatal.link), (0, 20_034, Some(true), Some(30)));
    let card = Event::Card {
        gpu: at("0000:43:00").unwrap(),
        uuid: "GPU-8b1a2c3d-0f11-4d6a-8e22-77aa10ff3b21".to_owned(),
    };
    assert_eq!(event(LINES[17]), Some(card));
    let Some(Event::Amd(amd)) = event(LINES[19]) else { panic!() };
    assert_eq!(
        (amd.gpu.to_string(), amd.fault),
        ("0000:c3:00.0".to_owned(), AmdFault::RingTimeout { ring: "sdma0".to_owned() })
    );
}

#[test]
fn a_name_ends_where_a_known_message_begins() {
    let check = |tail: &str, name: Option<&str>, message: &str| {
        let got = xid_of(&format!("NVRM: Xid (PCI:0000:43:00): 31, pid=7, {tail}"));
        assert_eq!((got.pid, got.name.as_deref(), got.message.as_str()), (Some(7), name, message), "{tail}");
    };
    check("name=pt_main_thread, Ch 00000007, intr 1", Some("pt_main_thread"), "Ch 00000007, intr 1");
    check("name=\"a\", 'b', Ch 1", Some("\"a\", 'b'"), "Ch 1");
    check("name=a: b, GPU x, Ch 1", Some("a: b, GPU x"), "Ch 1");
    check("name=python3, nobody has seen this", Some("python3"), "nobody has seen this");
    check("name=python3", Some("python3"), "");
    check("name=a, b, nobody has seen this", None, "a, b, nobody has seen this");
    let got = xid_of("NVRM: Xid (PCI:0000:43:00): 43, pid=python3, channel 0x00000002");
    assert_eq!((got.pid, got.channel, got.code), (None, Some(2), 43));
    let got = xid_of("NVRM: Xid (PCI:0000:43:00): 63, pid=7, Row Remapper: New row");
    assert_eq!((got.pid, got.name, got.message.as_str()), (Some(7), None, "Row Remapper: New row"));
}

#[test]
fn a_card_that_is_gone_is_told_in_one_line_or_in_several() {
    let record = |text: &str, origin| Record { text: text.to_owned(), origin, ..Record::default() };
    let kernel = |text| record(text, Origin::Kernel);
    let gone = Event::OffTheBus { gpu: at("0000:9a:00.0") };
    let lines = [
        kernel("NVRM: The NVIDIA GPU 0000:9a:00.0"),
        kernel("NVRM: (PCI ID: 10de:2330) installed in this system has"),
        kernel("NVRM: fallen off the bus and is not responding to commands."),
    ];
    assert_eq!(events(&lines), std::slice::from_ref(&gone));
    let whole = kernel(
        "NVRM: The NVIDIA GPU 0000:9a:00.0\nNVRM: (PCI ID: 10de:2330)\nNVRM: installed in this system has\nNVRM: fallen off the bus and is not responding.",
    );
    assert_eq!(events(&[whole]), [gone]);
    let forged = [
        record("NVRM: The NVIDIA GPU 0000:01:00.0", Origin::Userspace),
        kernel("NVRM: fallen off the bus and is not responding to commands."),
    ];
    assert_eq!(events(&forged), [Event::OffTheBus { gpu: None }], "a process names no card for the kernel");
}

#[test]
fn the_second_line_of_an_sxid_is_no_event_of_its_own() {
    let lines = [
        "nvidia-nvswitch0: SXid (PCI:0000:05:00.0): 20034, Fatal, Link 62 LTSSM Fault Up (First)",
        "nvidia-nvswitch0: SXid (PCI:0000:05:00.0): 20034, Severity 1 Engine instance 62 Sub-engine instance 00",
        "nvidia-nvswitch0: SXid (PCI:0000:05:00.0): 20034, Data {0x10000000, 0x0000001f}",
    ];
    let told: Vec<Event> = lines.iter().filter_map(|line| event(line)).collect();
    assert!(matches!(&told[0], Event::Sxid(_)));
    assert!(matches!(&told[1], Event::SxidDetail(detail) if detail.code == 20_034));
    assert!(matches!(&told[2], Event::SxidDetail(detail) if detail.data == [0x1000_0000, 0x1f]));
}

#[test]
fn amd_says_what_happened_and_whether_a_reset_helped() {
    let check = |message: &str, want: Option<AmdFault>| {
        let got = match event(&format!("[ 1.5] amdgpu 0000:C3:00.0: amdgpu: {message}")) {
            Some(Event::Amd(line)) => Some(line.fault),
            None => None,
            other => panic!("{other:?}"),
        };
        assert_eq!(got, want, "{message}");
    };
    let errors = |count, is_corrected| AmdFault::Errors { block: "umc".to_owned(), count, is_corrected };
    check(
        "{12}uncorrectable hardware error(ERREVENT_ATHUB_INTERRUPT) detected!",
        Some(AmdFault::Uncorrectable),
    );
    check("{12}[Hardware Error]: Accelerator Check Architecture events logged", Some(AmdFault::Detail));
    check("aca entry[00].STATUS=0x8000", Some(AmdFault::Detail));
    check("GPU reset begin!", Some(AmdFault::ResetBegins));
    check("GPU reset succeeded, trying to resume", Some(AmdFault::ResetSucceeded));
    check("GPU reset(2) succeeded!", Some(AmdFault::ResetSucceeded));
    check("GPU reset(3) failed", Some(AmdFault::ResetFailed));
    check("2 correctable hardware errors detected in total in umc block", Some(errors(2, true)));
    check("{7}1 uncorrectable hardware errors detected in total in umc block", Some(errors(1, false)));
    check("RAS: optional ras ta ucode is not available", None);
}

#[test]
fn what_a_process_writes_is_read_and_marked() {
    let line =
        "12,1301,8123100003,-;NVRM: Xid (PCI:0000:9a:00): 79, pid=1, name=x, GPU has fallen off the bus.";
    let record = Record::of_kmsg(line.as_bytes()).unwrap();
    assert_eq!(record.origin, Origin::Userspace);
    assert!(matches!(&events(&[record])[..], [Event::Xid(xid)] if xid.code == 79));
    let quoting = "14,1302,8123100004,-;app: saw NVRM: Xid (PCI:0000:9a:00): 79, pid=1, name=x, GPU";
    assert_eq!(events(&[Record::of_kmsg(quoting.as_bytes()).unwrap()]), []);
    let kernel = "6,1302,8123100004,-;audit: comm=\"NVRM: Xid (PCI:0000:9a:00): 79\"";
    assert_eq!(events(&[Record::of_kmsg(kernel.as_bytes()).unwrap()]), [], "the kernel quotes a process");
}

#[test]
fn a_line_with_a_prefix_that_nobody_knows_is_still_read() {
    let got = xid_of("node-1 | 12:00 | NVRM: Xid (PCI:0000:9a:00): 79, GPU has fallen off the bus.");
    assert_eq!(got.code, 79);
}

fn feed(format: Format, bytes: &[u8], piece: usize) -> Vec<Record> {
    let mut feed = Feed::new(format);
    let mut records = Vec::new();
    for part in bytes.chunks(piece) {
        feed.take(part, &mut |record| records.push(record));
    }
    feed.finish(&mut |record| records.push(record));
    records
}

fn journal() -> Vec<u8> {
    let text = "NVRM: Xid (PCI:0000:9a:00): 79, GPU has fallen off the bus.\nmore";
    let head = "__CURSOR=s=1\n__REALTIME_TIMESTAMP=1793668450000001\n__MONOTONIC_TIMESTAMP=200\n\
        _BOOT_ID=0c7f4A00000000000000000000000001\n_TRANSPORT=kernel\nPRIORITY=4\nSYSLOG_FACILITY=0\n_HOSTNAME=node-1\n\
        _SOURCE_MONOTONIC_TIMESTAMP=100\nMESSAGE\n";
    let size = (text.len() as u64).to_le_bytes();
    let next = "\nMESSAGE=NVRM: Xid (PCI:0000:9a:00): 79, x\n_TRANSPORT=syslog\nSYSLOG_FACILITY=0\n";
    [head.as_bytes(), &size, text.as_bytes(), b"\n", next.as_bytes()].concat()
}

#[test]
fn an_entry_of_the_journal_is_a_record_whose_time_is_the_kernels() {
    for piece in [1, 7, 1_000] {
        let records = feed(Format::Journal, &journal(), piece);
        assert_eq!(records.len(), 2, "{piece}");
        let first = &records[0];
        assert_eq!((first.origin, first.priority, first.monotonic_us), (Origin::Kernel, Some(4), Some(100)));
        assert_eq!(first.unix_ns, Some(1_793_668_450_000_001_000));
        assert_eq!(first.host.as_deref(), Some("node-1"));
        assert!(first.text.ends_with("\nmore"));
        assert!(first.key(None).unwrap().starts_with("0c7f4a00000000000000000000000001:100:"));
        assert_eq!(records[1].origin, Origin::Userspace, "whatever facility it claims");
        assert_eq!(events(&records).len(), 2);
    }
}

#[test]
fn a_capture_of_kmsg_keeps_fields_with_their_record() {
    let bytes = b"6,1,10,-;a\n SUBSYSTEM=pci\n DEVICE=+pci:0000:9a:00.0\n4,2,11,-;b\n";
    for piece in [1, 5, 100] {
        let records = feed(Format::Kmsg, bytes, piece);
        assert_eq!(records.iter().map(|record| record.fields.len()).collect::<Vec<_>>(), [2, 0]);
        assert_eq!(records[1].key(Some("AB-c")).as_deref(), Some("abc:2:11"));
    }
}

#[test]
fn megabytes_cost_no_more_than_a_line() {
    let long = vec![b'x'; 3 << 20];
    let text = [&long, &b"\n"[..], LINES[0].as_bytes(), b"\n"].concat();
    let records = feed(Format::Text, &text, 4_096);
    assert!(records[0].is_cut && records[0].text.len() <= LINE_BYTES_MAX);
    assert_eq!(events(&records).len(), 1);
    let size = (long.len() as u64).to_le_bytes();
    let entry = [b"MESSAGE\n", &size[..], &long, b"\n\n", &journal()].concat();
    let records = feed(Format::Journal, &entry, 4_096);
    assert_eq!(records.len(), 3);
    assert!(records[0].is_cut && records[0].text.len() <= LINE_BYTES_MAX);
    let lie = [b"JUNK\n", &u64::MAX.to_le_bytes()[..], b"\n\n", &journal()].concat();
    assert_eq!(feed(Format::Journal, &lie, 4_096).len(), 2, "a size that cannot be swallows nothing");
    let name = "n".repeat(1 << 20);
    let got = xid_of(&format!("NVRM: Xid (PCI:0000:9a:00): 13, pid=1, name={name}, Graphics"));
    assert_eq!(got.code, 13);
}

#[test]
fn half_a_line_says_nothing_wrong() {
    for line in LINES {
        for end in 0..line.len() {
            let Some(Event::Xid(xid)) = event(&line[..end]) else { continue };
            assert!(line.contains(&format!("): {}", xid.code)), "{line}");
        }
    }
}

/// Where the log may be read; a machine that does not let us has nothing to show.
#[cfg(tg_linux)]
#[test]
fn the_log_of_this_machine_is_read_to_its_end() {
    use std::os::unix::fs::OpenOptionsExt;

    const NONBLOCKING: i32 = 0o4000;
    let Ok(file) = std::fs::OpenOptions::new().read(true).custom_flags(NONBLOCKING).open("/dev/kmsg") else {
        return;
    };
    let mut reader = collect::kernel_log::Reader::new(file);
    let mut records = Vec::new();
    while let Some(record) = reader.next_record().unwrap() {
        records.push(record);
    }
    assert!(records.windows(2).all(|pair| pair[0].sequence < pair[1].sequence));
    assert!(records.iter().any(|record| record.origin == Origin::Kernel));
    let keys: std::collections::BTreeSet<_> =
        records.iter().filter_map(|record| record.key(Some("b"))).collect();
    assert_eq!(keys.len(), records.len());
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_bytes_are_too_strange(bytes in prop::collection::vec(any::<u8>(), 0..400), piece in 1usize..50) {
        for format in [Format::Kmsg, Format::Journal, Format::Text] {
            let _events = events(&feed(format, &bytes, piece));
        }
    }

    #[test]
    fn no_line_that_is_nearly_right_is_too_strange(
        line in prop::sample::select(&LINES[..]), at in 0usize..200, with in ".{0,12}", gone in 0usize..20,
    ) {
        let chars: Vec<char> = line.chars().collect();
        let at = at.min(chars.len());
        let rest = (at + gone).min(chars.len());
        let text: String = chars[..at].iter().copied().chain(with.chars()).chain(chars[rest..].iter().copied()).collect();
        let _events = events(&[Record::of_line(text.as_bytes())]);
    }

    #[test]
    fn pieces_make_no_difference(bytes in prop::collection::vec(prop::sample::select(&b"MESSAGE=a\n;4,1,2,- \0\x01<>[]"[..]), 0..200), piece in 1usize..20) {
        for format in [Format::Kmsg, Format::Journal, Format::Text] {
            prop_assert_eq!(feed(format, &bytes, piece), feed(format, &bytes, usize::MAX));
        }
    }

    #[test]
    fn any_name_that_a_process_can_have_is_read(name in "[a-z:'\"=()<,] ?[ -~]{0,12}[a-z\"']") {
        let line = format!("NVRM: Xid (PCI:0000:43:00): 13, pid=7, name={name}, Graphics SM Warp Exception");
        let got = xid_of(&line);
        prop_assert_eq!(got.pid, Some(7));
        prop_assert_eq!(got.name, Some(name));
    }
}
