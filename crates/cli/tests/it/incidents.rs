//! From lines of a kernel's log to incidents, with real processes: an agent follows the log, a server folds what
//! it tells.

use std::fs;
use std::io::Write;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::process::Command;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::agent::{Agent, Door, result, value};
use crate::process::{Server, eventually};

const BOOT: &str = "5f0c7a11-9b1e-4c55-8a56-6d1f6f0e2b01";
const NEXT_BOOT: &str = "5f0c7a11-9b1e-4c55-8a56-6d1f6f0e2b02";
/// The card that the log itself names.
const NAMED: &str = "GPU-3d9e6b52-71c4-4f0a-b6f8-0c25a9d1e774";
/// The card that the driver has.
const DRIVEN: &str = "GPU-00000000-dddd-eeee-ffff-000000000000";

const DOUBLE_BIT: &str = "An uncorrectable double bit error (DBE) has been detected on GPU in the framebuffer at partition 1, subpartition 0.";
const ROW_REMAP: &str =
    "Row Remapper: New row (0x000000000001a7e0) marked for remapping, reset gpu to activate.";
const CONTAINED: &str = "Contained: SM (0x2). RST: No, D-RST: No";
const REMOVED: &str = "Ch 0000001c, caused by previous Xid 94";
const LINK_ERROR: &str = "NVLink: fatal error detected on link 2(0x10000, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0)";

/// A machine with a log file, a boot, a driver and what its agent keeps.
struct Machine {
    home: TempDir,
    host: &'static str,
}

impl Machine {
    /// The driver has one card, at `b7:00.0` of this PCI domain, and tells its version where one is given.
    fn new(host: &'static str, domain: u16, driver: &str) -> Self {
        let machine = Self { home: tempfile::tempdir().unwrap(), host };
        let version =
            if driver.is_empty() { String::new() } else { format!("driver_version = \"{driver}\"\n") };
        let card = format!(
            "[[gpu]]\nuuid = \"{DRIVEN}\"\nname = \"Fake H100\"\nbus_id = \"{domain:08X}:B7:00.0\"\n\
             values = {{ power_mw = 350500 }}\n"
        );
        fake_nvml::install(machine.home.path(), &format!("{version}{card}")).unwrap();
        fs::create_dir_all(machine.path("root/proc/sys/kernel/random")).unwrap();
        symlink("/proc/uptime", machine.path("root/proc/uptime")).unwrap();
        machine.boots(BOOT);
        machine.write("");
        machine
    }

    fn path(&self, name: &str) -> PathBuf {
        self.home.path().join(name)
    }

    fn boots(&self, boot_id: &str) {
        fs::write(self.path("root/proc/sys/kernel/random/boot_id"), format!("{boot_id}\n")).unwrap();
    }

    /// The log goes on under the name that its writer knows.
    fn write(&self, lines: &str) {
        self.write_to("kern.log", lines);
    }

    fn write_to(&self, name: &str, lines: &str) {
        let mut file = fs::OpenOptions::new().create(true).append(true).open(self.path(name)).unwrap();
        file.write_all(lines.as_bytes()).unwrap();
    }

    /// Rotates as those do whose writers open the log anew.
    fn rename_log(&self, to: &str) {
        fs::rename(self.path("kern.log"), self.path(to)).unwrap();
    }

    /// Rotates as those do whose writers keep the log open.
    fn copy_and_truncate(&self, to: &str) {
        fs::copy(self.path("kern.log"), self.path(to)).unwrap();
        fs::OpenOptions::new().write(true).truncate(true).open(self.path("kern.log")).unwrap();
    }

    fn agent(&self, server_url: &str) -> Agent {
        let log = self.path("kern.log");
        let args = ["--server", server_url, "--host", self.host, "--kmsg", log.to_str().unwrap()];
        Agent::start_in(self.home.path(), &args)
    }
}

/// Microseconds since this machine was booted.
fn up_us() -> u64 {
    let text = fs::read_to_string("/proc/uptime").unwrap();
    let seconds: f64 = text.split(' ').next().unwrap().parse().unwrap();
    (seconds * 1e6) as u64
}

/// A time of the last minutes, so many seconds behind a first one, as the kernel prints it.
fn record(sequence: u64, seconds: u64, text: &str) -> String {
    let first_us = up_us().saturating_sub(200_000_000);
    format!("4,{sequence},{},-;{text}\n", first_us + seconds * 1_000_000)
}

/// Now by this machine's calendar.
fn calendar(format: &str) -> String {
    let told = Command::new("date").arg(format!("+{format}")).env("LC_ALL", "C").output().unwrap();
    String::from_utf8(told.stdout).unwrap().trim().to_owned()
}

/// A line's number, its text, its event's kind, severity and place, and what its body says.
type Told = (u32, String, &'static str, &'static str, String, Value);

/// Lines in the twenty ways in which the kernel's log speaks of cards, on cards of this PCI domain.
fn lines(domain: u16) -> Vec<Told> {
    let d = &format!("{domain:04x}");
    let mut lines = [off_the_bus(d), memory(d), slices(d), links(d), switches_and_others(d)].concat();
    lines.sort_by_key(|line| line.0);
    lines
}

fn off_the_bus(d: &str) -> Vec<Told> {
    let us = up_us();
    let stamp = format!("[{:>5}.{:06}]", us / 1_000_000, us % 1_000_000);
    let at = |bus: &str| format!("{d}:{bus}:00.0");
    let job = |xid: u32| json!({ "xid": xid, "pid": 6011, "name": "trainer" });
    let mut verdict = job(154);
    verdict["recovery"] = json!({ "from": 0, "to": 2 });
    let implied = json!({ "fault": "off_the_bus", "vendor": "nvidia" });
    vec![
        (
            1,
            format!(
                "{stamp} NVRM: Xid (PCI:{d}:b7:00): 79, pid=6011, name=trainer, GPU has fallen off the bus."
            ),
            "xid",
            "critical",
            at("b7"),
            job(79),
        ),
        (
            2,
            format!("{stamp} NVRM: GPU {d}:b7:00.0: GPU has fallen off the bus."),
            "gpu_fault",
            "critical",
            at("b7"),
            implied,
        ),
        (
            3,
            format!(
                "4,2210,{us},-;NVRM: Xid (PCI:{d}:b7:00): 154, pid=6011, name=trainer, GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)"
            ),
            "xid",
            "critical",
            at("b7"),
            verdict,
        ),
        (
            10,
            format!("<4>{stamp} NVRM: Xid ({d}:07:00): 43, Ch 00000021"),
            "xid",
            "info",
            at("07"),
            json!({ "xid": 43, "channel": 0x21 }),
        ),
        (
            11,
            format!(
                "NVRM: Xid (PCI:{d}:2f:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
            ),
            "xid",
            "critical",
            at("2f"),
            json!({ "xid": 79 }),
        ),
    ]
}

fn memory(d: &str) -> Vec<Told> {
    let (day, date) = (calendar("%b %d %H:%M:%S"), calendar("%a %b %e %H:%M:%S %Y"));
    let at = || format!("{d}:4e:00.0");
    let job = |xid: u32| json!({ "xid": xid, "pid": 8812, "name": "finetune" });
    let mut symptom = job(45);
    (symptom["channel"], symptom["previous"]) = (json!(0x1c), json!(94));
    let line = |xid: u32, text: &str| {
        format!("{day} gpu-7 kernel: NVRM: Xid (PCI:{d}:4e:00): {xid}, pid=8812, name=finetune, {text}")
    };
    vec![
        (4, line(48, DOUBLE_BIT), "xid", "critical", at(), job(48)),
        (5, line(63, ROW_REMAP), "xid", "info", at(), job(63)),
        (6, line(94, CONTAINED), "xid", "warning", at(), job(94)),
        (
            7,
            format!("[{date}] NVRM: Xid (PCI:{d}:4e:00): 45, pid=8812, name=finetune, {REMOVED}"),
            "xid",
            "info",
            at(),
            symptom,
        ),
        (
            15,
            format!(
                "NVRM: Xid (PCI:{d}:c7:00): 95, pid=904, name=bench, Uncontained: FBHUB (0x1,0x4). RST: Yes, D-RST: No"
            ),
            "xid",
            "critical",
            format!("{d}:c7:00.0"),
            json!({ "xid": 95, "pid": 904, "name": "bench" }),
        ),
        (
            18,
            format!("NVRM: GPU at PCI:{d}:4e:00: {NAMED}"),
            "inventory",
            "info",
            at(),
            json!({ "what": "named" }),
        ),
    ]
}

fn slices(d: &str) -> Vec<Told> {
    let fault = json!({ "xid": 31, "pid": 2207, "name": "sglang", "gi": 3, "channel": 2 });
    let warp = json!({ "xid": 13, "pid": 2207, "name": "sglang", "gi": 3, "ci": 1 });
    let place = format!("{d}:5d:00.0");
    vec![
        (
            8,
            format!(
                "NVRM: Xid (PCI:{d}:5d:00 GPU-I:03): 31, pid=2207, name=sglang, Ch 00000002, intr 10000000. MMU Fault: ENGINE GRAPHICS GPCCLIENT_T1_2 faulted @ 0x7e10_c0000000. Fault is of type FAULT_PTE ACCESS_TYPE_VIRT_WRITE"
            ),
            "xid",
            "warning",
            place.clone(),
            fault,
        ),
        (
            9,
            format!(
                "NVRM: Xid (PCI:{d}:5d:00 GPU-I:03 GPU-CI:01): 13, pid=2207, name=sglang, Graphics SM Warp Exception on (GPC 0, TPC 1, SM 1): Misaligned Address"
            ),
            "xid",
            "warning",
            place,
            warp,
        ),
    ]
}

fn links(d: &str) -> Vec<Told> {
    let down = json!({ "xid": 149, "nvlink5": {
        "unit": "NETIR_LINK_EVT", "fatal": true, "containment": 0, "instance": 0, "link": 4,
        "words": [0x0214_25c6, 0, 0, 0, 0, 0, 0] } });
    let remap = json!({ "xid": 145, "pid": 77, "name": "x, y: z", "nvlink5": {
        "unit": "RLW_REMAP", "fatal": false, "containment": 1, "instance": 1, "link": 9,
        "words": [4, 2, 0, 0, 0, 0, 0] } });
    let registers = json!({ "xid": 74, "pid": 515, "name": "pretrain",
        "nvlink4": { "link": 2, "registers": [0x1_0000, 0, 0, 0, 0, 0, 0] } });
    let at = |bus: &str| format!("{d}:{bus}:00.0");
    vec![
        (
            13,
            format!(
                "NVRM: Xid (PCI:{d}:01:00): 149, NETIR_LINK_EVT Fatal XC0 i0 Link 04 (0x021425c6 0x00000000 0x00000000 0x00000000 0x00000000 0x00000000 0x00000000)"
            ),
            "xid",
            "critical",
            at("01"),
            down,
        ),
        (
            14,
            format!(
                "NVRM: Xid (PCI:{d}:02:00): 145, pid=77, name=x, y: z, RLW_REMAP Nonfatal XC1 i1 Link 09 (0x00000004 0x00000002 0x0 0x0 0x0 0x0 0x0)"
            ),
            "xid",
            "warning",
            at("02"),
            remap,
        ),
        (
            19,
            format!("NVRM: Xid (PCI:{d}:6c:00): 74, pid=515, name=pretrain, {LINK_ERROR}"),
            "xid",
            "warning",
            at("6c"),
            registers,
        ),
    ]
}

fn switches_and_others(d: &str) -> Vec<Told> {
    let at = |bus: &str| format!("{d}:{bus}:00.0");
    vec![
        (
            12,
            format!(
                "NVRM: Xid (PCI:{d}:1d:00): 119, pid=50122, name=monitor, Timeout after 45s of waiting for RPC response from GPU3 GSP! Expected function 10 (FREE) (0xa55a0020 0x0)."
            ),
            "xid",
            "critical",
            at("1d"),
            json!({ "xid": 119, "pid": 50122, "name": "monitor" }),
        ),
        (
            16,
            format!(
                "nvidia-nvswitch2: SXid (PCI:{d}:0a:00.0): 12028, Non-fatal, Link 17 egress non-posted PRIV error (First)"
            ),
            "sxid",
            "warning",
            at("0a"),
            json!({ "sxid": 12028, "switch": 2, "fatal": false, "link": 17 }),
        ),
        (
            17,
            format!("nvidia-nvswitch1: SXid (PCI:{d}:0b:00.0): 20034, Fatal, Link 51 LTSSM Fault Up"),
            "sxid",
            "critical",
            at("0b"),
            json!({ "sxid": 20034, "switch": 1, "fatal": true, "link": 51 }),
        ),
        (
            20,
            format!("amdgpu {d}:e3:00.0: amdgpu: ring comp_1.0.0 timeout, signaled seq=88, emitted seq=90"),
            "gpu_fault",
            "warning",
            at("e3"),
            json!({ "fault": "ring_timeout", "vendor": "amd", "ring": "comp_1.0.0" }),
        ),
    ]
}

fn text(lines: &[Told]) -> String {
    lines.iter().flat_map(|(_, line, ..)| [line.as_str(), "\n"]).collect()
}

/// Events of a host that come of lines, oldest first.
fn told(server: &Server, host: &str) -> Vec<Value> {
    let answer = server.get(&format!("/api/tg/v1/events?host={host}&limit=10000"));
    let mut events = answer["events"].as_array().unwrap().clone();
    events.retain(|event| event["body"]["line"].is_string());
    events.reverse();
    events
}

fn told_once(server: &Server, host: &str, count: usize) -> Vec<Value> {
    let what = format!("{count} lines of {host}");
    eventually(&what, || Some(told(server, host)).filter(|events| events.len() >= count))
}

/// Incidents of a host by their place.
fn incidents(server: &Server, host: &str) -> Vec<Value> {
    let answer = server.get(&format!("/api/tg/v1/incidents?state=all&host={host}"));
    let mut incidents = answer["incidents"].as_array().unwrap().clone();
    incidents.sort_by_key(|incident| incident["pci_bus_id"].as_str().map(str::to_owned));
    incidents
}

/// The only incident of a host, once it is as wanted.
fn incident(server: &Server, host: &str, what: &str, is_it: impl Fn(&Value) -> bool) -> Value {
    let found = eventually(what, || incidents(server, host).into_iter().find(|found| is_it(found)));
    let all = incidents(server, host);
    assert_eq!(all.len(), 1, "{all:#?}");
    found
}

fn codes(incident: &Value) -> Vec<String> {
    let codes = incident["codes"].as_array().unwrap().iter();
    codes
        .map(|code| {
            format!("{} {} {}", code["code"].as_str().unwrap(), code["count"], code["part"].as_str().unwrap())
        })
        .collect()
}

/// Place on the bus without its domain, action, who says so, how sure, faults.
type Want = (&'static str, &'static str, &'static str, &'static str, &'static [&'static str]);

/// What the twenty lines come to.
const INCIDENTS: [Want; 13] = [
    ("01:00.0", "reset_gpu", "nvidia-catalog", "high", &["Xid 149 1 cause"]),
    ("02:00.0", "restart_app", "nvidia-catalog", "high", &["Xid 145 1 cause"]),
    ("07:00.0", "none", "nvidia-catalog", "high", &["Xid 43 1 symptom"]),
    ("0a:00.0", "restart_vm", "nvidia-catalog", "high", &["SXid 12028 1 cause"]),
    ("0b:00.0", "reset_gpu", "nvidia-catalog", "high", &["SXid 20034 1 cause"]),
    ("1d:00.0", "reset_gpu", "nvidia-catalog", "high", &["Xid 119 1 cause"]),
    ("2f:00.0", "reboot_node", "nvidia-catalog", "high", &["Xid 79 1 cause"]),
    (
        "4e:00.0",
        "drain_reset",
        "nvidia-catalog",
        "high",
        &["Xid 45 1 symptom", "Xid 48 1 cause", "Xid 63 1 cause", "Xid 94 1 cause"],
    ),
    ("5d:00.0", "restart_app", "nvidia-catalog", "high", &["Xid 13 1 cause", "Xid 31 1 cause"]),
    ("6c:00.0", "inspect", "nvidia-catalog", "high", &["Xid 74 1 cause"]),
    ("b7:00.0", "reboot_node", "driver-154", "high", &["Xid 79 1 cause"]),
    ("c7:00.0", "reset_gpu", "nvidia-catalog", "high", &["Xid 95 1 cause"]),
    ("e3:00.0", "restart_app", "local-policy", "high", &["ring_timeout 1 cause"]),
];

#[test]
fn twenty_lines_are_the_events_and_the_incidents_of_the_table() {
    let server = Server::start(&[]);
    let machine = Machine::new("lines-1", 0, "");
    let _agent = machine.agent(&server.url);
    let lines = lines(0);
    machine.write(&text(&lines));
    let events = told_once(&server, "lines-1", lines.len());
    assert_eq!(events.len(), lines.len());
    for (number, line, kind, severity, place, fields) in &lines {
        let event = events.iter().find(|event| line.ends_with(event["text"].as_str().unwrap()));
        let event = event.unwrap_or_else(|| panic!("line {number} is no event"));
        let got =
            (&event["kind"], &event["severity"], &event["labels"]["pci_bus_id"], &event["labels"]["host"]);
        assert_eq!(got, (&json!(kind), &json!(severity), &json!(place), &json!("lines-1")), "line {number}");
        let body = event["body"].as_object().unwrap();
        let of_lines = [
            "line",
            "count",
            "dated",
            "boot_id",
            "sequence",
            "monotonic_us",
            "priority",
            "facility",
            "message",
        ];
        let said: serde_json::Map<String, Value> = body
            .iter()
            .filter(|(name, _)| !of_lines.contains(&name.as_str()))
            .map(|(n, v)| (n.clone(), v.clone()))
            .collect();
        assert_eq!(json!(said), *fields, "line {number}");
        let uuid = match place.as_str() {
            "0000:b7:00.0" => json!(DRIVEN),
            "0000:4e:00.0" => event["labels"]["uuid"].clone(),
            _ => Value::Null,
        };
        assert_eq!(event["labels"]["uuid"], uuid, "line {number}");
    }
    // Each line but the one that names a card is a part of an incident.
    let evidence = |all: &[Value]| -> usize {
        all.iter().map(|incident| incident["evidence"].as_array().unwrap().len()).sum()
    };
    let found = eventually("incidents", || {
        Some(incidents(&server, "lines-1")).filter(|all| evidence(all) >= lines.len() - 1)
    });
    let got: Vec<_> = found
        .iter()
        .map(|incident| {
            let text = |name: &str| incident[name].as_str().unwrap().to_owned();
            (text("pci_bus_id"), text("action"), text("provenance"), text("confidence"), codes(incident))
        })
        .collect();
    let want: Vec<_> = INCIDENTS
        .iter()
        .map(|(place, action, provenance, confidence, codes)| {
            let codes = codes.iter().map(|code| (*code).to_owned()).collect();
            (
                format!("0000:{place}"),
                (*action).to_owned(),
                (*provenance).to_owned(),
                (*confidence).to_owned(),
                codes,
            )
        })
        .collect();
    assert_eq!(got, want);
    let of = |place: &str| {
        found.iter().find(|incident| incident["pci_bus_id"] == format!("0000:{place}:00.0")).unwrap()
    };
    assert_eq!((&of("4e")["uuid"], &of("4e")["remap_pending"]), (&json!(NAMED), &json!(true)));
    assert_eq!(of("4e")["processes"], json!([{ "pid": 8812, "name": "finetune" }]));
    assert_eq!(of("5d")["slices"], json!(["3"]));
    assert_eq!(of("02")["processes"], json!([{ "pid": 77, "name": "x, y: z" }]));
    assert_eq!(of("2f")["processes"], json!([]));
    assert_eq!((&of("b7")["gpu"], of("b7")["evidence"].as_array().unwrap().len()), (&json!("0"), 3));
    for xid in [79, 154] {
        let count = format!("tg_gpu_xid_events_total{{host=\"lines-1\",uuid=\"{DRIVEN}\",xid=\"{xid}\"}}");
        assert_eq!(eventually(&count, || value(&server, &count)), 1.0);
    }
}

#[test]
fn registers_of_links_are_read_as_the_driver_of_the_card_writes_them() {
    let server = Server::start(&[]);
    let table = [
        ("links-550", "550.127.05", [("reset_gpu", "high"), ("inspect", "low")]),
        ("links-580", "580.95.05", [("inspect", "low"), ("restart_app", "high")]),
    ];
    for (host, driver, wanted) in table {
        let machine = Machine::new(host, 0, driver);
        let _agent = machine.agent(&server.url);
        // Without the driver's version in hand a line would be read otherwise.
        eventually("the driver's version", || {
            (!result(&server, &format!("tg_gpu_info{{host=\"{host}\",driver=\"{driver}\"}}")).is_empty())
                .then_some(())
        });
        let links = links("0000");
        machine.write(&text(&links[..2]));
        let found = eventually(host, || Some(incidents(&server, host)).filter(|all| all.len() == 2));
        let got: Vec<_> = found
            .iter()
            .map(|one| (one["action"].as_str().unwrap(), one["confidence"].as_str().unwrap()))
            .collect();
        assert_eq!(got, wanted, "{driver}");
    }
}

#[test]
fn a_double_bit_error_in_any_order_and_read_twice_is_one_incident() {
    let server = Server::start(&[]);
    let nvrm = |code: u32, text: &str| {
        format!("NVRM: Xid (PCI:0000:4e:00): {code}, pid=8812, name=finetune, {text}")
    };
    let remap = nvrm(63, ROW_REMAP);
    let lines = [
        nvrm(48, DOUBLE_BIT),
        remap.clone(),
        remap.clone(),
        remap,
        nvrm(94, CONTAINED),
        nvrm(45, REMOVED),
        format!("NVRM: GPU at PCI:0000:4e:00: {NAMED}"),
    ];
    for (host, turn) in [("order-0", 0), ("order-3", 3), ("order-6", 6)] {
        let machine = Machine::new(host, 0, "");
        let mut agent = machine.agent(&server.url);
        let numbered = lines.iter().zip(900_u64..);
        let mut records: Vec<String> = numbered.map(|(text, sequence)| record(sequence, 0, text)).collect();
        records.rotate_left(turn);
        machine.write(&records.concat());
        let events = told_once(&server, host, lines.len());
        let found = incident(&server, host, "the incident", |found| {
            found["uuid"] == NAMED && found["evidence"].as_array().unwrap().len() == lines.len() - 1
        });
        assert_eq!(codes(&found), ["Xid 45 1 symptom", "Xid 48 1 cause", "Xid 63 3 cause", "Xid 94 1 cause"]);
        assert_eq!((&found["action"], &found["remap_pending"]), (&json!("drain_reset"), &json!(true)));
        assert_eq!(found["processes"], json!([{ "pid": 8812, "name": "finetune" }]));

        // An agent that goes on, and one that has lost its place and reads all of it once more.
        assert_eq!(agent.terminate(), 0, "{}", agent.log());
        for (more, loses_place) in [(1, false), (2, true)] {
            if loses_place {
                fs::remove_file(machine.path("state/kernel-log.json")).unwrap();
            }
            let marker = format!("NVRM: Xid (PCI:0000:{more:02x}:00): 43, Ch 00000001");
            machine.write(&record(950 + more, 0, &marker));
            let mut agent = machine.agent(&server.url);
            let is_marker = |event: &Value| event["text"] == marker;
            eventually("the line behind them", || told(&server, host).into_iter().find(is_marker));
            assert_eq!(agent.terminate(), 0, "{}", agent.log());
            let mut now = told(&server, host);
            now.retain(|event| event["labels"]["pci_bus_id"] == "0000:4e:00.0");
            assert_eq!(now, events, "{host}");
            let of_card = incidents(&server, host).into_iter().find(|found| found["uuid"] == NAMED);
            assert_eq!(of_card, Some(found.clone()), "{host}");
        }
    }
}

#[test]
fn the_drivers_verdict_wins_whenever_it_comes_and_its_none_is_a_conflict() {
    let server = Server::start(&[]);
    let off = "NVRM: Xid (PCI:0000:b7:00): 79, pid=6011, name=trainer, GPU has fallen off the bus.";
    let implied = "NVRM: GPU 0000:b7:00.0: GPU has fallen off the bus.";
    let verdict = |to: &str| {
        format!(
            "NVRM: Xid (PCI:0000:b7:00): 154, pid=6011, name=trainer, GPU recovery action changed from 0x0 (None) to {to}"
        )
    };
    for (host, late, to) in [
        ("verdict-2", 2, "0x2 (Node Reboot Required)"),
        ("verdict-30", 30, "0x2 (Node Reboot Required)"),
        ("verdict-none", 2, "0x0 (None)"),
    ] {
        let machine = Machine::new(host, 0, "");
        let _agent = machine.agent(&server.url);
        machine.write(&[record(1, 0, off), record(2, 0, implied)].concat());
        let evidence = |found: &Value| found["evidence"].as_array().unwrap().len();
        let before = incident(&server, host, "the catalogue's word", |found| evidence(found) == 2);
        let word = |found: &Value| (found["action"].clone(), found["provenance"].clone());
        assert_eq!(word(&before), (json!("reboot_node"), json!("nvidia-catalog")), "{host}");
        machine.write(&record(3, late, &verdict(to)));
        let found = incident(&server, host, "the driver's word", |found| evidence(found) == 3);
        assert_eq!(
            (&found["id"], codes(&found)),
            (&before["id"], vec!["Xid 79 1 cause".to_owned()]),
            "{host}"
        );
        let span = found["last"].as_i64().unwrap() - found["first"].as_i64().unwrap();
        assert!((span - late as i64 * 1_000).abs() < 5_000, "{host}: {span} ms, by the lines' own times");
        if host == "verdict-none" {
            assert_eq!(word(&found), word(&before));
            assert_eq!(found["conflicts"], json!(["the driver says `none`, the catalogue `reboot_node`"]));
        } else {
            assert_eq!(word(&found), (json!("reboot_node"), json!("driver-154")), "{host}");
            assert_eq!(found["conflicts"], json!([]));
        }
        let open = format!("tg_incident{{host=\"{host}\"}}");
        let series = eventually(&open, || Some(result(&server, &open)).filter(|rows| !rows.is_empty()));
        assert_eq!((series.len(), &series[0]["metric"]["action"]), (1, &json!("reboot_node")));
    }
}

#[test]
fn what_a_process_wrote_runs_no_command_and_the_same_words_of_the_kernel_do() {
    let folder = tempfile::tempdir().unwrap();
    let actions: Vec<String> = ["reset_gpu", "drain_reset", "reboot_node", "restart_app", "contact", "inspect"]
        .iter()
        .map(|on| {
            format!("[[actions]]\nname = \"{on}\"\non = \"{on}\"\nmode = \"auto\"\ncommands = [{{ kubectl = \"drain\" }}]\n")
        })
        .collect();
    let open = "[guards]\nconfidence_min = \"low\"\n";
    let config = crate::remediation::prepare(
        folder.path(),
        "real",
        "\"acts-*\"",
        &format!("{open}{}", actions.concat()),
    );
    let server = Server::start(&["--config", &config]);
    let machine = Machine::new("acts-1", 0, "");
    let _agent = machine.agent(&server.url);
    let fault =
        |place: &str| format!("NVRM: Xid ({place}): 79, pid=6011, name=trainer, GPU has fallen off the bus.");
    // Facility 1 is what the kernel writes before what a process put into its log.
    let forged = record(1, 0, &fault("PCI:0000:b6:00")).replacen("4,", "12,", 1);
    machine.write(&[forged, record(2, 1, &fault("PCI:0000:b7:00"))].concat());
    let ran = || fs::read_to_string(folder.path().join("ran")).unwrap();
    eventually("the kernel's own word is acted on", || ran().contains("kubectl drain acts-1").then_some(()));
    let events = told_once(&server, "acts-1", 2);
    let mut sources: Vec<&str> =
        events.iter().map(|event| event["labels"]["source"].as_str().unwrap()).collect();
    sources.sort_unstable();
    assert_eq!(sources, ["kernel", "userspace"]);
    let state = server.get("/api/tg/v1/remediation");
    let hosts = state["hosts"].as_array().unwrap();
    assert_eq!((hosts.len(), ran().lines().count(), &state["queue"]), (1, 1, &json!([])), "{state}");
    assert_eq!(incidents(&server, "acts-1").len(), 1);
}

#[test]
fn lines_that_a_process_writes_to_the_kernels_own_log_are_marked_and_change_nothing() {
    // A domain of its own tells these lines from those of others.
    let domain = 0x8000 | (std::process::id() % 0x8000) as u16;
    let lines = lines(domain);
    let can_read = fs::File::open("/dev/kmsg").is_ok();
    for (_, line, ..) in &lines {
        let start = ["NVRM:", "nvidia-nvswitch", "amdgpu"].iter().find_map(|name| line.find(name)).unwrap();
        // A device that is opened anew has its own allowance of lines.
        let device = fs::OpenOptions::new().write(true).open("/dev/kmsg");
        let written =
            device.and_then(|mut device| device.write_all(format!("<4>{}\n", &line[start..]).as_bytes()));
        if !can_read || written.is_err() {
            println!("not checked: this user may not read and write /dev/kmsg ({written:?})");
            return;
        }
    }
    let server = Server::start(&[]);
    let machine = Machine::new("kmsg-1", domain, "");
    let args = ["--server", &server.url, "--host", "kmsg-1", "--kmsg", "/dev/kmsg"];
    let agent = Agent::start_in(machine.home.path(), &args);
    let place = format!("{domain:04x}:");
    let ours =
        |event: &Value| event["labels"]["pci_bus_id"].as_str().is_some_and(|at| at.starts_with(&place));
    let events = eventually("the lines", || {
        let mut events = told(&server, "kmsg-1");
        events.retain(ours);
        (events.len() >= lines.len()).then_some(events)
    });
    assert_eq!(events.len(), lines.len());
    for (number, line, kind, ..) in &lines {
        let event = events.iter().find(|event| line.ends_with(event["text"].as_str().unwrap()));
        let event = event.unwrap_or_else(|| panic!("line {number} is no event"));
        let got = (&event["kind"], &event["labels"]["source"], &event["severity"]);
        assert_eq!(got, (&json!(kind), &json!("userspace"), &json!("info")), "line {number}");
        assert_ne!(event["body"]["facility"], 0, "line {number}");
    }
    // A look behind those lines.
    let looks = format!("truegauge_agent_log_readable{{host=\"{}\"}}", machine.host);
    eventually("looks", || value(&server, &looks).filter(|readable| *readable == 1.0));
    agent.page_with("tg_gpu_power_watts{");
    let counted = format!("tg_gpu_xid_events_total{{uuid=\"{DRIVEN}\"}}");
    assert_eq!(result(&server, &counted), Vec::<Value>::new(), "not counted as the kernel's");
    let acted_on: Vec<Value> = incidents(&server, "kmsg-1")
        .into_iter()
        .filter(|found| {
            found["pci_bus_id"].as_str().is_some_and(|at| at.starts_with(&place))
                || found["uuid"] == NAMED
                || found["uuid"] == DRIVEN
        })
        .collect();
    assert_eq!(acted_on, Vec::<Value>::new());
}

/// The `n`th line: a fault of a card of its own.
fn numbered(n: u32) -> String {
    format!(
        "{} gpu-7 kernel: NVRM: Xid (PCI:0000:{n:02x}:00): 31, pid={n}, name=step-{n}, Ch {n:08x}\n",
        calendar("%b %d %H:%M:%S")
    )
}

/// Each line so far is one event and one incident.
fn all_once(server: &Server, host: &str, count: usize) {
    let events = told_once(server, host, count);
    let mut pids: Vec<u64> = events.iter().map(|event| event["body"]["pid"].as_u64().unwrap()).collect();
    pids.sort_unstable();
    assert_eq!(pids, (1..=count as u64).collect::<Vec<_>>());
    let found = eventually("incidents", || Some(incidents(server, host)).filter(|all| all.len() >= count));
    let counts: Vec<Vec<String>> = found.iter().map(codes).collect();
    assert_eq!(counts, vec![["Xid 31 1 cause"]; count]);
}

#[test]
fn rotations_and_crashes_lose_no_line_and_tell_none_twice() {
    let host = "rotate-1";
    let mut server = Server::start(&[]);
    let door = Door::open(&server);
    let machine = Machine::new(host, 0, "");
    let mut agent = machine.agent(&door.url);
    machine.write(&numbered(1));
    all_once(&server, host, 1);

    // Renamed while it is read; the writer goes on in the old one for a while.
    machine.write(&numbered(2));
    machine.rename_log("kern.log.1");
    machine.write(&numbered(3));
    machine.write_to("kern.log.1", &numbered(4));
    all_once(&server, host, 4);

    // Renamed while nobody reads.
    agent.kill();
    machine.write(&numbered(5));
    machine.rename_log("kern.log.2");
    machine.write(&numbered(6));
    let mut agent = machine.agent(&door.url);
    all_once(&server, host, 6);

    // Copied and truncated while it is read, and while nobody reads.
    machine.write(&numbered(7));
    machine.copy_and_truncate("kern.log.3");
    machine.write(&numbered(8));
    all_once(&server, host, 8);
    agent.kill();
    machine.write(&numbered(9));
    machine.copy_and_truncate("kern.log.4");
    machine.write(&numbered(10));
    let mut agent = machine.agent(&door.url);
    all_once(&server, host, 10);

    // The server is killed, then the agent, which may have told and may have read the line.
    server.kill();
    door.lead_to(None);
    machine.write(&numbered(11));
    agent.kill();
    let mut agent = machine.agent(&door.url);
    machine.write(&numbered(12));
    agent.page_with("truegauge_agent_spool_bytes{");
    server.restart();
    door.lead_to(Some(&server));
    all_once(&server, host, 12);
    let before = incidents(&server, host);

    // A server that is killed with all of it keeps all of it.
    server.kill();
    server.restart();
    door.lead_to(Some(&server));
    machine.write(&numbered(13));
    all_once(&server, host, 13);
    assert_eq!(incidents(&server, host)[..12], before);
    assert_eq!(agent.terminate(), 0, "{}", agent.log());
    all_once(&server, host, 13);
}

#[test]
fn a_boot_ends_what_a_boot_makes_good_and_tells_no_line_again() {
    let host = "boot-1";
    let server = Server::start(&[]);
    let machine = Machine::new(host, 0, "");
    let mut agent = machine.agent(&server.url);
    let xid = |bus: &str, code: u32, text: &str| {
        format!("NVRM: Xid (PCI:0000:{bus}:00): {code}, pid=1, name=job, {text}")
    };
    let link = xid("6c", 74, LINK_ERROR);
    machine.write(
        &[
            record(7001, 0, &xid("b7", 79, "GPU has fallen off the bus.")),
            record(7002, 1, &xid("4e", 48, DOUBLE_BIT)),
            record(7003, 1, &xid("4e", 63, ROW_REMAP)),
            record(7004, 2, &link),
        ]
        .concat(),
    );
    told_once(&server, host, 4);
    let state = |bus: &str| {
        let all = incidents(&server, host);
        let of = all.iter().find(|found| found["pci_bus_id"] == format!("0000:{bus}:00.0"));
        of.map_or_else(String::new, |found| {
            format!("{} {}", found["action"].as_str().unwrap(), found["state"].as_str().unwrap())
        })
    };
    let states = |buses: &[&str]| buses.iter().map(|bus| state(bus)).collect::<Vec<_>>();
    let cards = ["b7", "4e", "6c"];
    let opened = ["reboot_node open", "drain_reset open", "inspect open"];
    eventually("three incidents", || (states(&cards) == opened).then_some(()));

    // The machine goes down with its agent; these lines it has written before and nobody has read.
    agent.kill();
    let before_ms = incidents(&server, host)[0]["last"].as_i64().unwrap();
    machine.write(&record(7005, 3, &xid("2f", 79, "GPU has fallen off the bus.")));
    let stamp = calendar("%b %d %H:%M:%S");
    let up = up_us() / 1_000_000;
    machine.write(&format!(
        "{stamp} gpu-7 kernel: [{up}.000001] {}\n",
        xid("1d", 79, "GPU has fallen off the bus.")
    ));
    machine.boots(NEXT_BOOT);
    fs::remove_file(machine.path("root/proc/uptime")).unwrap();
    fs::write(machine.path("root/proc/uptime"), "0.05 0.01\n").unwrap();
    machine.write(&format!("4,12,20000,-;{}\n", xid("c7", 31, "Ch 00000001")));
    let mut agent = machine.agent(&server.url);
    let events = told_once(&server, host, 7);
    let boots =
        server.get(&format!("/api/tg/v1/events?host={host}&kind=node"))["events"].as_array().unwrap().clone();
    let boots: Vec<&Value> = boots.iter().filter(|event| event["body"]["what"] == "boot").collect();
    assert_eq!(boots.len(), 2);
    let plain = |id: &str| id.replace('-', "");
    assert_eq!(
        (&boots[0]["body"]["boot_id"], &boots[0]["body"]["previous_boot_id"]),
        (&json!(plain(NEXT_BOOT)), &json!(plain(BOOT)))
    );
    let boot_ms = boots[0]["time"].as_i64().unwrap();
    assert!(boot_ms > before_ms);
    eventually("the end of what a boot ends", || (state("b7") == "reboot_node cleared").then_some(()));
    assert_eq!(states(&cards), ["reboot_node cleared", "drain_reset cleared", "inspect open"]);
    assert_eq!(
        states(&["2f", "1d"]),
        ["reboot_node cleared", "reboot_node cleared"],
        "written before the boot"
    );
    assert_eq!(state("c7"), "restart_app open", "written since the boot");
    let open = result(&server, &format!("tg_incident{{host=\"{host}\",action=\"reboot_node\"}}"));
    assert_eq!(open, Vec::<Value>::new());

    // Another start in the same boot tells neither a line nor the boot again.
    agent.kill();
    machine.write(&format!("4,13,30000,-;{}\n", xid("c8", 31, "Ch 00000001")));
    let _agent = machine.agent(&server.url);
    let after = told_once(&server, host, 8);
    assert_eq!((events.len(), after.len()), (7, 8));
    assert_eq!(states(&cards), ["reboot_node cleared", "drain_reset cleared", "inspect open"]);
    let again =
        server.get(&format!("/api/tg/v1/events?host={host}&kind=node"))["events"].as_array().unwrap().clone();
    assert_eq!(again.iter().filter(|event| event["body"]["what"] == "boot").count(), 2);
}
