//! A node's kernel log, followed: which events come of which lines.

use std::{
    collections::BTreeMap,
    fs,
    io::Write,
    path::{Path, PathBuf},
    time::Duration,
};

use agent::{KernelLog, LogInput, LogOptions, Reading, SharedCards, SharedHeard, Snapshot, Source, Tick};
use collect::Host;
use model::{Event, Severity};
use serde_json::{Value, json};

/// 2026-11-30 12:00:00 UTC.
pub(crate) const NOW_NS: i64 = 1_796_040_000_000_000_000;
const BOOT: &str = "11111111-2222-3333-4444-555555555555";

/// Twenty lines in the ways in which they are met.
pub(crate) const LINES: &str = "\
[ 8123.100001] NVRM: Xid (PCI:0000:9a:00): 79, pid=4242, name=python3, GPU has fallen off the bus.
[ 8123.100002] NVRM: GPU 0000:9a:00.0: GPU has fallen off the bus.
4,1301,8123100003,-;NVRM: Xid (PCI:0000:9a:00): 154, pid=4242, name=python3, GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)
Nov 03 02:14:09 node-031 kernel: NVRM: Xid (PCI:0000:43:00): 48, pid=771, name=torchrun, An uncorrectable double bit error (DBE) has been detected on GPU in the framebuffer at partition 3, subpartition 1.
Nov 03 02:14:09 node-031 kernel: NVRM: Xid (PCI:0000:43:00): 63, pid=771, name=torchrun, Row Remapper: New row (0x00000000000fc2a1) marked for remapping, reset gpu to activate.
Nov 03 02:14:09 node-031 kernel: NVRM: Xid (PCI:0000:43:00): 94, pid=771, name=torchrun, Contained: CE User Channel (0x9). RST: No, D-RST: No
[Mon Nov  3 02:14:10 2026] NVRM: Xid (PCI:0000:43:00): 45, pid=771, name=torchrun, Ch 00000009, caused by previous Xid 94
NVRM: Xid (PCI:0000:3b:00 GPU-I:05): 31, pid=991, name=vllm, Ch 00000007, intr 00000000. MMU Fault: ENGINE GRAPHICS GPCCLIENT_T1_6 faulted @ 0x7f5a_e7504000. Fault is of type FAULT_PDE ACCESS_TYPE_VIRT_READ
NVRM: Xid (PCI:0000:3b:00 GPU-I:05 GPU-CI:00): 13, pid=991, name=vllm, Graphics SM Warp Exception on (GPC 1, TPC 3, SM 0): Out Of Range Address
<4>[99.000010] NVRM: Xid (0000:03:00): 43, Ch 00000018
NVRM: Xid (PCI:0000:2a:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.
NVRM: Xid (PCI:0000:1b:00): 119, pid=36055, name=node_agent, Timeout after 6s of waiting for RPC response from GPU0 GSP! Expected function 76 (GSP_RM_CONTROL) (0x90cc0301 0xc).
NVRM: Xid (PCI:0009:01:00): 149, NETIR_LINK_EVT Fatal XC0 i0 Link 01 (0x021425c6 0x00000000 0x00000000 0x00000000 0x00000000 0x00000000 0x00000000)
NVRM: Xid (PCI:0009:01:00): 145, pid=12, name=a, b: c, RLW_REMAP Nonfatal XC1 i2 Link 07 (0x00000004 0x00000002 0x0 0x0 0x0 0x0 0x0)
NVRM: Xid (PCI:0000:c3:00): 95, pid=5120, name=python, Uncontained: LTC TAG (0x2,0x1). RST: Yes, D-RST: No
nvidia-nvswitch3: SXid (PCI:0000:05:00.0): 12028, Non-fatal, Link 32 egress non-posted PRIV error (First)
nvidia-nvswitch0: SXid (PCI:0000:03:00.0): 20034, Fatal, Link 30 LTSSM Fault Up
NVRM: GPU at PCI:0000:43:00: GPU-8b1a2c3d-0f11-4d6a-8e22-77aa10ff3b21
NVRM: Xid (PCI:0000:43:00): 74, pid=771, name=torchrun, NVLink: fatal error detected on link 6(0x10000, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0)
amdgpu 0000:c3:00.0: amdgpu: ring sdma0 timeout, signaled seq=1142, emitted seq=1144
";

/// A machine with a log file, and what an agent keeps of it.
pub(crate) struct Node {
    pub(crate) folder: tempfile::TempDir,
    looks: u32,
}

impl Node {
    pub(crate) fn new() -> Self {
        let node = Self { folder: tempfile::tempdir().unwrap(), looks: 0 };
        fs::create_dir(node.path("state")).unwrap();
        node.boots(BOOT);
        fs::write(node.path("proc/uptime"), "10000.00 1.00\n").unwrap();
        node
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The machine has this boot id from now on.
    pub(crate) fn boots(&self, boot_id: &str) {
        let folder = self.path("proc/sys/kernel/random");
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("boot_id"), format!("{boot_id}\n")).unwrap();
    }

    /// Writes to the end of a file.
    pub(crate) fn write(&self, name: &str, text: impl AsRef<[u8]>) {
        let mut options = fs::OpenOptions::new();
        let mut file = options.create(true).append(true).open(self.path(name)).unwrap();
        file.write_all(text.as_ref()).unwrap();
    }

    pub(crate) fn log(&self) -> KernelLog {
        self.log_from(LogInput::File(self.path("kern.log")))
    }

    pub(crate) fn log_from(&self, input: LogInput) -> KernelLog {
        let machine = Host::at(self.folder.path());
        let options = LogOptions { input, state: Some(self.path("state")), machine };
        KernelLog::new(options, SharedCards::default(), SharedHeard::default())
    }

    /// Takes a look whose events are not kept.
    pub(crate) fn look(&mut self, log: &mut KernelLog) -> Snapshot {
        self.looks += 1;
        let mut snapshot = Snapshot::default();
        let elapsed = Duration::from_secs(10) * self.looks;
        let time_ns = NOW_NS + i64::from(self.looks) * 10_000_000_000;
        log.read(&Tick { time_ns, elapsed, host: "node-031" }, &mut snapshot);
        snapshot
    }

    /// Takes a look, keeps it, and gives its events but for the boot's.
    pub(crate) fn events(&mut self, log: &mut KernelLog) -> Vec<Event> {
        let mut events = self.look(log).events;
        log.kept();
        events.retain(|event| body(event)["what"] != "boot");
        events
    }
}

pub(crate) fn body(event: &Event) -> Value {
    serde_json::from_str(&event.body).unwrap()
}

fn counts(snapshot: &Snapshot) -> BTreeMap<String, f64> {
    let name = |reading: &Reading| format!("{} {:?}", reading.desc.name, reading.labels);
    let of_cards = snapshot.readings.iter().filter(|reading| !reading.labels.is_empty());
    of_cards.map(|reading| (name(reading), reading.value)).collect()
}

/// A line with an Xid of one card.
pub(crate) fn xid(code: u32, message: &str) -> String {
    format!("NVRM: Xid (PCI:0000:43:00): {code}, pid=771, name=torchrun, {message}\n")
}

pub(crate) fn codes(events: &[Event]) -> Vec<u64> {
    events.iter().filter_map(|event| body(event)["xid"].as_u64()).collect()
}

/// What the body says beside what every line's says.
fn said(event: &Event) -> Value {
    let mut said = body(event);
    let fields = said.as_object_mut().unwrap();
    for field in
        ["line", "count", "dated", "boot_id", "sequence", "monotonic_us", "priority", "facility", "message"]
    {
        fields.remove(field);
    }
    said
}

/// Kind, severity, place and fields of an event.
pub(crate) type Want = (&'static str, &'static str, &'static str, Value);

fn torchrun(xid: u32) -> Value {
    json!({ "xid": xid, "pid": 771, "name": "torchrun" })
}

fn with(mut value: Value, field: &str, more: Value) -> Value {
    value[field] = more;
    value
}

pub(crate) fn wanted_of_cards() -> [Want; 9] {
    let cause = with(with(torchrun(45), "channel", json!(9)), "previous", json!(94));
    [
        ("xid", "critical", "0000:9a:00.0", json!({ "xid": 79, "pid": 4242, "name": "python3" })),
        ("gpu_fault", "critical", "0000:9a:00.0", json!({ "fault": "off_the_bus", "vendor": "nvidia" })),
        (
            "xid",
            "critical",
            "0000:9a:00.0",
            json!({ "xid": 154, "pid": 4242, "name": "python3", "recovery": { "from": 0, "to": 2 } }),
        ),
        ("xid", "critical", "0000:43:00.0", torchrun(48)),
        ("xid", "info", "0000:43:00.0", torchrun(63)),
        ("xid", "warning", "0000:43:00.0", torchrun(94)),
        ("xid", "info", "0000:43:00.0", cause),
        (
            "xid",
            "warning",
            "0000:3b:00.0",
            json!({ "xid": 31, "pid": 991, "name": "vllm", "gi": 5, "channel": 7 }),
        ),
        (
            "xid",
            "warning",
            "0000:3b:00.0",
            json!({ "xid": 13, "pid": 991, "name": "vllm", "gi": 5, "ci": 0 }),
        ),
    ]
}

pub(crate) fn wanted_of_the_rest() -> [Want; 11] {
    let link = json!({
        "unit": "NETIR_LINK_EVT", "fatal": true, "containment": 0, "instance": 0, "link": 1,
        "words": [0x0214_25c6, 0, 0, 0, 0, 0, 0],
    });
    let remap = json!({
        "unit": "RLW_REMAP", "fatal": false, "containment": 1, "instance": 2, "link": 7,
        "words": [4, 2, 0, 0, 0, 0, 0],
    });
    let nvlink4 = json!({ "link": 6, "registers": [0x1_0000, 0, 0, 0, 0, 0, 0] });
    [
        ("xid", "info", "0000:03:00.0", json!({ "xid": 43, "channel": 0x18 })),
        ("xid", "critical", "0000:2a:00.0", json!({ "xid": 79 })),
        ("xid", "critical", "0000:1b:00.0", json!({ "xid": 119, "pid": 36055, "name": "node_agent" })),
        ("xid", "critical", "0009:01:00.0", json!({ "xid": 149, "nvlink5": link })),
        (
            "xid",
            "warning",
            "0009:01:00.0",
            json!({ "xid": 145, "pid": 12, "name": "a, b: c", "nvlink5": remap }),
        ),
        ("xid", "critical", "0000:c3:00.0", json!({ "xid": 95, "pid": 5120, "name": "python" })),
        (
            "sxid",
            "warning",
            "0000:05:00.0",
            json!({ "sxid": 12028, "switch": 3, "fatal": false, "link": 32 }),
        ),
        (
            "sxid",
            "critical",
            "0000:03:00.0",
            json!({ "sxid": 20034, "switch": 0, "fatal": true, "link": 30 }),
        ),
        ("inventory", "info", "0000:43:00.0", json!({ "what": "named" })),
        ("xid", "warning", "0000:43:00.0", with(torchrun(74), "nvlink4", nvlink4)),
        (
            "gpu_fault",
            "warning",
            "0000:c3:00.0",
            json!({ "fault": "ring_timeout", "vendor": "amd", "ring": "sdma0" }),
        ),
    ]
}

#[test]
fn twenty_lines_of_a_file_are_twenty_events() {
    let mut node = Node::new();
    node.write("kern.log", LINES);
    let mut log = node.log();
    let events = node.events(&mut log);
    let want: Vec<Want> = wanted_of_cards().into_iter().chain(wanted_of_the_rest()).collect();
    assert_eq!(events.len(), want.len());
    for (number, (event, (kind, severity, place, fields))) in events.iter().zip(want).enumerate() {
        let got =
            (event.kind.as_str(), event.severity.name(), event.label("pci_bus_id").unwrap(), said(event));
        assert_eq!(got, (kind, severity, place, fields), "line {}", number + 1);
        assert_eq!(event.label("host"), Some("node-031"));
        let line = LINES.lines().nth(number).unwrap();
        assert!(line.ends_with(&event.text) && body(event)["line"] == event.text, "{line}");
    }
    let mut keys: Vec<&str> = events.iter().map(|event| event.key.as_str()).collect();
    keys.sort_unstable();
    keys.dedup();
    assert_eq!(keys.len(), events.len(), "each has a key of its own");
}

#[test]
fn times_are_those_of_the_lines() {
    let mut node = Node::new();
    node.write("kern.log", LINES);
    let mut log = node.log();
    let events = node.events(&mut log);
    let looked_ns = NOW_NS + 10_000_000_000;
    let booted_ns = looked_ns - 10_000_000_000_000;
    assert_eq!(events[0].time_ns, booted_ns + 8_123_100_001_000);
    assert_eq!(events[2].time_ns, booted_ns + 8_123_100_003_000);
    assert_eq!(body(&events[2])["sequence"], 1301);
    assert_eq!((events[7].time_ns, &body(&events[7])["dated"]), (looked_ns, &json!(false)));
    // November the third, wherever the machine is.
    let days = (looked_ns - events[3].time_ns) / 86_400_000_000_000;
    assert!((26..=28).contains(&days) && body(&events[3])["dated"] == true, "{days}");
    // A line of a boot that is longer than this one is of another.
    node.write("kern.log", "[ 99999.000001] NVRM: Xid (PCI:0000:9a:00): 31, pid=1, name=a, Ch 1\n");
    let event = &node.events(&mut log)[0];
    assert_eq!((event.time_ns, &body(event)["dated"]), (booted_ns + 9_000_000_000, &json!(false)));
    // Where it has a date too, that is its time.
    node.write("kern.log", "Nov 03 02:14:09 node-031 kernel: [99999.000002] NVRM: Xid (PCI:0000:9a:00): 31, pid=1, name=a, Ch 1\n");
    let event = &node.events(&mut log)[0];
    let days = (looked_ns - event.time_ns) / 86_400_000_000_000;
    assert!((26..=28).contains(&days) && body(event)["dated"] == true, "{days}");
}

#[test]
fn a_card_that_was_named_is_known_by_its_id() {
    let mut node = Node::new();
    node.write("kern.log", xid(48, "A"));
    let mut log = node.log();
    assert_eq!(node.events(&mut log)[0].label("uuid"), None);
    node.write("kern.log", "NVRM: GPU at PCI:0000:43:00: GPU-8b1a2c3d\n");
    node.events(&mut log);
    drop(log);
    let mut log = node.log();
    node.write("kern.log", xid(63, "B"));
    assert_eq!(node.events(&mut log)[0].label("uuid"), Some("GPU-8b1a2c3d"));
}

#[test]
fn an_sxid_and_the_line_behind_it_are_one_event() {
    let mut node = Node::new();
    node.write(
        "kern.log",
        "nvidia-nvswitch0: SXid (PCI:0000:03:00.0): 20034, Fatal, Link 30 LTSSM Fault Up\n\
         nvidia-nvswitch0: SXid (PCI:0000:03:00.0): 20034, Severity 1 Engine instance 30 Sub-engine instance 00\n\
         nvidia-nvswitch0: SXid (PCI:0000:03:00.0): 20034, Data {0x50610002, 0x10100030}\n",
    );
    let mut log = node.log();
    let events = node.events(&mut log);
    assert_eq!(events.len(), 1);
    assert_eq!(body(&events[0])["data"], json!([0x5061_0002, 0x1010_0030]));
}

#[test]
fn a_burst_is_told_with_its_count() {
    let mut node = Node::new();
    let mut text: String = (0..11_760).map(|channel| xid(45, &format!("Ch {channel:08x}"))).collect();
    text.push_str(&xid(79, "GPU has fallen off the bus."));
    node.write("kern.log", "NVRM: GPU at PCI:0000:43:00: GPU-8b1a2c3d\n");
    node.write("kern.log", text);
    let mut log = node.log();
    let events = node.events(&mut log);
    let of_45: Vec<&Event> = events.iter().filter(|event| body(event)["xid"] == 45).collect();
    assert_eq!(of_45.len(), 6);
    let counts: Vec<u64> = of_45.iter().map(|event| body(event)["count"].as_u64().unwrap()).collect();
    assert_eq!((&counts[..5], counts[5]), (&[1; 5][..], 11_755));
    let burst = of_45[5];
    assert!(body(burst)["burst"] == true && burst.key.ends_with(":burst"), "{}", burst.key);
    assert_eq!(
        codes(&events).iter().filter(|code| **code == 79).count(),
        1,
        "another number has its own room"
    );
    // A minute later it is told as it comes again.
    for _ in 0..6 {
        node.events(&mut log);
    }
    node.write("kern.log", xid(45, "Ch 1"));
    let events = node.events(&mut log);
    assert_eq!((events.len(), &body(&events[0])["count"]), (1, &json!(1)));
}

#[test]
fn none_of_a_burst_of_hours_is_lost() {
    let mut node = Node::new();
    // Ten a minute over an hour, read in one look.
    let line = |at: u32| format!("[{at:>5}.000001] {}", xid(45, &format!("Ch {at:08x}")));
    node.write("kern.log", (0..600).map(|at| line(1000 + at * 6)).collect::<String>());
    let mut log = node.log();
    let events = node.events(&mut log);
    let counts: Vec<u64> = events.iter().map(|event| body(event)["count"].as_u64().unwrap()).collect();
    assert_eq!((events.len(), counts.iter().sum::<u64>()), (301, 600));
    assert!(body(events.last().unwrap())["burst"] == true);
}

#[test]
fn more_sorts_than_are_counted_apart_are_counted_together() {
    let mut node = Node::new();
    let line = |code: u32| xid(code, "hostile");
    node.write("kern.log", (1000..6000).chain(1000..6000).map(line).collect::<String>());
    let mut log = node.log();
    let events = node.events(&mut log);
    let count: u64 = events.iter().map(|event| body(event)["count"].as_u64().unwrap()).sum();
    assert_eq!(count, 10_000);
    let flood = events.last().unwrap();
    assert_eq!((flood.kind.as_str(), &body(flood)["what"]), ("node", &json!("log_flood")));
}

#[test]
fn every_xid_of_a_card_is_counted_over_restarts() {
    let folder = tempfile::tempdir().unwrap();
    let scenario =
        "driver_version = \"570.86.15\"\n[[gpu]]\nuuid = \"GPU-5\"\nbus_id = \"00000000:43:00.0\"\n";
    let library = fake_nvml::install(folder.path(), scenario).unwrap();
    let options = collect::gpu::GpuOptions { library: Some(library), ..Default::default() };
    let sampler = collect::gpu::GpuSampler::open(&options).unwrap();
    let cards = SharedCards::default();
    let card = agent::Card { device: sampler.devices()[0].clone(), processes: Ok(Vec::new()), answers: true };
    cards.lock().all.push(card);
    cards.lock().driver = sampler.driver_version().map(str::to_owned);

    let mut node = Node::new();
    let follow = |node: &Node| {
        let machine = Host::at(node.folder.path());
        let input = LogInput::File(node.path("kern.log"));
        let options = LogOptions { input, state: Some(node.path("state")), machine };
        KernelLog::new(options, cards.clone(), SharedHeard::default())
    };
    let mut log = follow(&node);
    node.write("kern.log", (0..20).map(|_| xid(45, "Ch 1")).collect::<String>() + &xid(48, "A"));
    let snapshot = node.look(&mut log);
    log.kept();
    let of_48 = snapshot.events.iter().find(|event| body(event)["xid"] == 48).unwrap();
    assert_eq!((of_48.label("uuid"), of_48.label("gpu")), (Some("GPU-5"), Some("0")));
    assert_eq!(body(of_48)["driver"], "570.86.15");
    let name = |xid: &str| {
        format!("tg_gpu_xid_events_total [(\"gpu\", \"0\"), (\"uuid\", \"GPU-5\"), (\"xid\", \"{xid}\")]")
    };
    assert_eq!(counts(&snapshot), BTreeMap::from([(name("45"), 20.0), (name("48"), 1.0)]));
    drop(log);
    let mut log = follow(&node);
    node.write("kern.log", xid(45, "Ch 2"));
    assert_eq!(counts(&node.look(&mut log))[&name("45")], 21.0);
}

#[test]
fn what_processes_write_is_marked_and_leaves_the_kernel_its_room() {
    let mut node = Node::new();
    // Facility 1 is user space.
    let forged =
        |sequence: u32| format!("12,{sequence},{sequence},-;{}", xid(79, "GPU has fallen off the bus."));
    node.write("kern.log", (0..1000).map(forged).collect::<String>());
    node.write(
        "kern.log",
        "4,2000,2000,-;NVRM: Xid (PCI:0000:43:00): 79, pid=7, name=real, GPU has fallen\n",
    );
    node.write("kern.log", "12,2001,2001,-;NVRM: GPU at PCI:0000:43:00: GPU-forged\n");
    node.write("kern.log", "4,2002,2002,-;NVRM: Xid (PCI:0000:43:00): 48, pid=7, name=real, A\n");
    let mut log = node.log();
    let snapshot = node.look(&mut log);
    let of = |source: &str| {
        let events = snapshot.events.iter().filter(move |event| event.label("source") == Some(source));
        events.filter(|event| event.kind != "node").cloned().collect::<Vec<_>>()
    };
    let forged = of("userspace");
    assert_eq!(forged.len(), 7, "five, a burst and a name");
    assert!(forged.iter().all(|event| event.severity == Severity::Info));
    let real = of("kernel");
    assert_eq!(codes(&real), [79, 48]);
    assert_eq!(body(&real[0])["name"], "real");
    assert!(real.iter().all(|event| event.label("uuid").is_none()), "nobody else says which card is where");
}

#[test]
fn hostile_lines_are_events_or_nothing() {
    let mut node = Node::new();
    let mut text = Vec::new();
    text.extend(xid(13, "Graphics SM Warp Exception").replace("torchrun", "\"a\", b: 'c'").into_bytes());
    text.extend(b"NVRM: Xid (PCI:0000:43:00): 31, pid=9, name=\xff\xfe\x00, MMU Fault\n");
    text.extend(b"NVRM: Xid (PCI:0000:43:00): 32, pid=9, name=x, ");
    text.extend(vec![b'y'; 3 << 20]);
    text.extend(b"\n\n\n\x00\x01\x02\n{\"json\": \"\\\"\"}\n");
    text.extend(b"NVRM: Xid (PCI:0000:43:00): 99999999999999999999, pid=9\n");
    text.extend(b"NVRM: Xid (PCI:zz:43:00): 79\n");
    text.extend(xid(48, "An end").into_bytes());
    node.write("kern.log", text);
    let mut log = node.log();
    let events = node.events(&mut log);
    assert_eq!(codes(&events), [13, 31, 32, 48]);
    assert_eq!(body(&events[0])["name"], "\"a\", b: 'c'");
    assert!(body(&events[2])["cut"] == true && events[2].text.len() <= 2048);
    assert!(events.iter().all(|event| event.body.len() < 8192));
}

#[test]
fn a_log_that_cannot_be_read_is_said_once_and_tried_again() {
    let mut node = Node::new();
    let mut log = node.log();
    let events = node.events(&mut log);
    assert_eq!(events.len(), 1);
    assert_eq!((events[0].kind.as_str(), &body(&events[0])["what"]), ("node", &json!("log_unreadable")));
    assert!(events[0].text.contains("kern.log"), "{}", events[0].text);
    let readable = |snapshot: &Snapshot| {
        let found = snapshot.readings.iter().find(|reading| reading.desc == &agent::own::LOG_READABLE);
        found.map(|reading| reading.value)
    };
    let snapshot = node.look(&mut log);
    assert_eq!((snapshot.events.len(), readable(&snapshot)), (0, Some(0.0)));
    node.write("kern.log", xid(48, "A"));
    let snapshot = node.look(&mut log);
    assert_eq!((codes(&snapshot.events), readable(&snapshot)), (vec![48], Some(1.0)));
    // A folder or a pipe is no log.
    let mut log = node.log_from(LogInput::File(node.path("state")));
    assert!(node.events(&mut log)[0].text.contains("it is no file"));
    assert_eq!(readable(&node.look(&mut node.log_from(LogInput::None))), None);
}

#[test]
fn a_setting_says_what_is_read() {
    let of = |setting: &str| LogInput::of(setting.as_ref());
    assert_eq!((of(""), of("/dev/kmsg")), (LogInput::Kernel, LogInput::Kernel));
    assert_eq!(of("none"), LogInput::None);
    assert_eq!(of("journald"), LogInput::Journal("journalctl".into()));
    assert_eq!(of("/var/log/kern.log"), LogInput::File(Path::new("/var/log/kern.log").into()));
}
