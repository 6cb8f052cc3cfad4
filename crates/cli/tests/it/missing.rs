//! Why charts are missing, asked of a server; and cards that two processes send without sharing a lock.

use std::process::{Child, Command, Stdio};
use std::time::{SystemTime, UNIX_EPOCH};

use model::{
    Arbitration, AttributeValue, CaptureDevice, CaptureFailure, CaptureReport, CaptureState, DeviceRole,
    DriverState, NodeRole, Sample,
};
use serde_json::{Value, json};
use wire::push::{Attribute, PushRequest, PushResponse, Series, Session};

use crate::process::{Server, eventually, id, request, truegauge};

const SECOND: i64 = 1_000_000_000;

fn now_ns() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as i64
}

/// A process of a run that speaks by hand.
struct Process {
    run: &'static str,
    writer: u8,
    sequence: u64,
    report: CaptureReport,
    start_ns: i64,
}

impl Process {
    /// One of a host that began `ago` seconds ago and has a card of its own, GPU 0.
    fn new(run: &'static str, writer: u8, host: &str, ago: i64) -> Self {
        let start_ns = now_ns() - ago * SECOND;
        let report = CaptureReport {
            host: host.into(),
            boot_id: "boot-1".into(),
            pid: 100 + u32::from(writer),
            time_ns: start_ns,
            started_ns: start_ns,
            interval_seconds: 10.0,
            arbitration: Arbitration::Shm,
            lock_domain: format!("folder of {host}"),
            node: NodeRole::Reports,
            driver: DriverState::Loaded("570.1".into()),
            devices: vec![device(0, DeviceRole::Owned)],
            ..CaptureReport::default()
        };
        Self { run, writer, sequence: 0, report, start_ns }
    }

    fn next(&mut self, series: Vec<Series>) -> PushRequest {
        self.sequence += 1;
        request(self.run, self.writer, self.sequence, series)
    }

    /// A session's word at `seconds` behind the start: 1 opens, 2 lives, 3 finished.
    fn word(&self, seconds: i64, event: u32) -> Session {
        Session {
            time_ms: (self.start_ns + seconds * SECOND) / 1_000_000,
            event,
            host: self.report.host.clone(),
            pid: self.report.pid,
            client_version: "0.1.0".into(),
            ..Session::default()
        }
    }

    /// Opens the session, lives until `until`, and sends the report.
    fn opens(&mut self, server: &Server, until: i64) {
        for (seconds, event) in [(0, 1), (until, 2)] {
            let mut said = self.next(Vec::new());
            said.session = Some(self.word(seconds, event));
            said.attributes = vec![attribute(&self.report)];
            assert_eq!(server.push(&said).0, 200);
        }
    }

    /// Points every 10 s from `from` to `to`.
    fn points(&self, name: &str, labels: &[(&str, &str)], (from, to): (i64, i64)) -> Series {
        let labels: Vec<(String, String)> =
            labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        let times = (from..=to).step_by(10);
        let samples: Vec<Sample> = times
            .map(|at| Sample { time_ns: self.start_ns + at * SECOND, value: 1.0, step: Some(at / 10) })
            .collect();
        Series::new(name, &labels, "", &samples)
    }

    /// All of the host and the process, from `from` to `to`.
    fn host_points(&self, span: (i64, i64)) -> Vec<Series> {
        let (host, pid) = (self.report.host.as_str(), self.report.pid.to_string());
        let (node, own) = ([("host", host)], [("host", host), ("pid", pid.as_str())]);
        collect::PROMISED
            .iter()
            .filter(|desc| !desc.labels.contains(&"gpu"))
            .map(|desc| {
                let labels: &[_] = if desc.labels.contains(&"pid") { &own } else { &node };
                self.points(desc.name, labels, span)
            })
            .collect()
    }

    /// The six of a card.
    fn gpu_points(&self, gpu: &str, span: (i64, i64)) -> Vec<Series> {
        let labels = [("host", self.report.host.as_str()), ("gpu", gpu)];
        collect::PROMISED
            .iter()
            .filter(|desc| desc.labels.contains(&"gpu"))
            .map(|desc| self.points(desc.name, &labels, span))
            .collect()
    }

    /// Sends points; the answer.
    fn sends(&mut self, server: &Server, series: Vec<Series>) -> PushResponse {
        let sent = self.next(series);
        let (status, answer) = server.push(&sent);
        assert_eq!(status, 200);
        answer.unwrap()
    }
}

fn device(gpu: u32, role: DeviceRole) -> CaptureDevice {
    CaptureDevice {
        gpu,
        uuid: format!("GPU-{gpu}"),
        model: "NVIDIA H100".into(),
        pci_bus_id: String::new(),
        compute_capability: String::new(),
        memory_account: String::new(),
        role,
        unsupported: Vec::new(),
    }
}

fn attribute(report: &CaptureReport) -> Attribute {
    Attribute::new(&report.attribute(), &AttributeValue::Text(wire::capture::to_json(report)), false)
}

fn missing(server: &Server, run: &str) -> Value {
    server.get(&format!("/api/tg/v1/runs/{}/missing", id(run)))
}

/// Reasons with whether each alarms.
fn reasons(answer: &Value) -> Vec<(String, bool)> {
    let rows = answer["missing"].as_array().unwrap();
    rows.iter().map(|r| (r["reason"].as_str().unwrap().to_owned(), r["alarm"].as_bool().unwrap())).collect()
}

#[test]
fn a_run_that_lacks_nothing_says_so_and_shows_what_capture_found() {
    let server = Server::start(&[]);
    let mut process = Process::new("r", 1, "node-1", 60);
    process.opens(&server, 59);
    process.sends(&server, process.host_points((0, 50)));
    process.sends(&server, process.gpu_points("0", (0, 50)));
    let answer = missing(&server, "r");
    assert_eq!(
        (&answer["run_id"], &answer["expected"], &answer["present"]),
        (&json!(id("r")), &json!(14), &json!(14))
    );
    assert_eq!(
        (&answer["missing"], &answer["alarms"], &answer["cut"]),
        (&json!([]), &json!(0), &json!(false))
    );
    let report = &answer["capture"][0];
    assert_eq!((&report["host"], &report["pid"]), (&json!("node-1"), &json!(101)));
    assert_eq!(report["updated"], process.report.time_ns / 1_000_000);
    assert_eq!(report["devices"][0]["role"], "owned");
    let brief = server.get(&format!("/api/tg/v1/runs/{}/missing?capture=false", id("r")));
    assert_eq!((&brief["present"], &brief["capture"]), (&json!(14), &Value::Null));
    let wrong = server.ask("GET", &format!("/api/tg/v1/runs/{}/missing?capture=some", id("r")), &[], b"");
    assert_eq!((wrong.status, wrong.error_code().as_str()), (400, "bad_request"));
    let nobody = server.ask("GET", "/api/tg/v1/runs/0123456789abcdef/missing", &[], b"");
    assert_eq!(nobody.error_code(), "not_found");
}

/// What a run with four of eight GPUs, one of them partitioned, one without power, is told.
#[test]
fn what_is_missing_is_told_with_reason_place_and_next_step() {
    let server = Server::start(&[]);
    let mut process = Process::new("r", 1, "node-1", 60);
    process.report.devices = (0..8)
        .map(|gpu| match gpu {
            0 | 1 | 3 => device(gpu, DeviceRole::Owned),
            2 => device(gpu, DeviceRole::Mig),
            _ => device(gpu, DeviceRole::NotVisible),
        })
        .collect();
    process.report.devices[1].unsupported = vec!["system/gpu/power_watts".into()];
    let cause = "cannot read `/sys/fs/cgroup/memory.current`: Permission denied (os error 13)";
    process.report.failures = vec![CaptureFailure {
        metric: "system/memory/used_bytes".into(),
        gpu: None,
        reason: "unreadable".into(),
        cause: cause.into(),
        backing_off: true,
    }];
    process.opens(&server, 59);
    let mut sent = process.host_points((0, 50));
    sent.retain(|series| !series.name.starts_with("system/memory"));
    for gpu in ["0", "1", "3"] {
        sent.extend(process.gpu_points(gpu, (0, 50)));
    }
    sent.retain(|series| series.name != "system/gpu/power_watts" || series.labels[1].value != "1");
    process.sends(&server, sent);
    let answer = missing(&server, "r");
    assert_eq!((&answer["present"], &answer["alarms"]), (&json!(12), &json!(1)));
    let told = [("backing_off", true), ("not_allocated", false), ("mig", false), ("unsupported", false)];
    assert_eq!(reasons(&answer), told.map(|(reason, alarm)| (reason.to_owned(), alarm)), "{answer}");
    let row = &answer["missing"][0];
    assert!(row["text"].as_str().unwrap().contains(cause), "{row}");
    assert_eq!(
        row["metrics"][0],
        json!({"name": "system_memory_used_bytes", "display": "system/memory/used_bytes", "unit": "B"})
    );
    assert_eq!(row["command"], "truegauge doctor");
    let row = &answer["missing"][1];
    assert!(row["text"].as_str().unwrap().starts_with("4 of the 8 GPUs of a node were given"), "{row}");
    assert_eq!(row["places"][0], json!({"host": "node-1", "gpu": "4", "pid": null, "rank": null}));
    assert_eq!(
        answer["missing"][3]["places"],
        json!([{"host": "node-1", "gpu": "1", "pid": "101", "rank": null}])
    );
}

#[test]
fn states_of_capture_and_of_processes_are_reasons() {
    let server = Server::start(&[]);
    let absent = |reason: &str| DriverState::Absent {
        reason: reason.into(),
        text: "cannot start it".into(),
        hint: "look at it".into(),
    };
    let states: [(&'static str, CaptureState, DriverState, &str); 7] = [
        ("off", CaptureState::Off, DriverState::Unknown, "off"),
        ("mac", CaptureState::NotLinux, DriverState::Unknown, "not_linux"),
        ("no-thread", CaptureState::NotStarted("no thread".into()), DriverState::Unknown, "not_started"),
        (
            "ended",
            CaptureState::Ended { failed_ticks: 5, cause: "no luck".into() },
            DriverState::Loaded(String::new()),
            "sampler_ended",
        ),
        ("no-library", CaptureState::Sampling, absent("no_library"), "no_library"),
        ("not-permitted", CaptureState::Sampling, absent("not_permitted"), "not_permitted"),
        ("no-devices", CaptureState::Sampling, DriverState::Loaded("570".into()), "no_devices"),
    ];
    for (writer, (run, state, driver, want)) in (1..).zip(states) {
        let mut process = Process::new(run, writer, "node-1", 600);
        (process.report.state, process.report.driver) = (state, driver);
        process.report.devices.clear();
        process.opens(&server, 599);
        let answer = missing(&server, run);
        let found = reasons(&answer);
        assert!(found.iter().any(|(reason, _)| reason == want), "{run}: {answer}");
    }
    // Killed: its last word is long ago, that of its sibling is not.
    let mut killed = Process::new("killed", 20, "node-1", 600);
    killed.opens(&server, 300);
    killed.sends(&server, killed.host_points((0, 300)));
    let mut lives = Process::new("killed", 21, "node-1", 600);
    lives.report.devices = vec![device(
        0,
        DeviceRole::Other(model::CaptureOwner { host: "node-1".into(), pid: 120, rank: None }),
    )];
    lives.opens(&server, 599);
    let answer = missing(&server, "killed");
    let row = &answer["missing"]
        .as_array()
        .unwrap()
        .iter()
        .find(|row| row["places"][0]["pid"] == "120" && row["places"][0]["gpu"].is_null())
        .unwrap();
    assert_eq!((&row["reason"], &row["alarm"]), (&json!("process_ended"), &json!(true)), "{answer}");
    assert_eq!(row["since"], (killed.start_ns + 300 * SECOND) / 1_000_000);
    // Nobody reports: an old client, and a run that came without any session.
    let mut old = Process::new("old", 30, "node-1", 600);
    let mut said = old.next(Vec::new());
    said.session = Some(old.word(0, 1));
    assert_eq!(server.push(&said).0, 200);
    let mut said = old.next(Vec::new());
    said.session = Some(old.word(599, 2));
    assert_eq!(server.push(&said).0, 200);
    assert_eq!(reasons(&missing(&server, "old")), [("no_report".to_owned(), true)]);
    let mut bare = Process::new("bare", 31, "node-1", 600);
    let loss = bare.points("loss", &[], (0, 10));
    bare.sends(&server, vec![loss]);
    assert_eq!(reasons(&missing(&server, "bare")), [("no_report".to_owned(), false)]);
}

#[test]
fn hostile_reports_cost_little_and_break_nothing() {
    let server = Server::start(&[]);
    let mut process = Process::new("r", 1, "node-1", 60);
    process.opens(&server, 59);
    let name = "<script>alert(1)</script>\u{202e}\u{7}";
    let mut evil = CaptureReport { host: name.into(), pid: 7, ..process.report.clone() };
    evil.devices = vec![device(u32::MAX, DeviceRole::Unreadable(format!("{name}\n{}", "x".repeat(5_000))))];
    let text = |text: String| AttributeValue::Text(text);
    let many = |count: usize| {
        let devices: Vec<Value> = (0..count).map(|gpu| json!({"gpu": gpu, "role": "owned"})).collect();
        json!({"host": "h", "pid": 9, "devices": devices}).to_string()
    };
    let nested = format!("{}{}", "[".repeat(30_000), "]".repeat(30_000));
    let key = |name: &str| format!("capture/{name}");
    let attributes = [
        (key("node-1/pid-5"), text("no JSON at all".into())),
        (key("node-1/pid-6"), AttributeValue::Int(6)),
        (key("x/pid-8"), text(nested)),
        (key("h/pid-9"), text(many(1_500))),
        // Another's report under this one's name is nobody's.
        (key("node-1/pid-101x"), text(wire::capture::to_json(&process.report))),
        (key(""), text("{}".into())),
    ];
    let mut said = process.next(Vec::new());
    said.attributes = attributes.iter().map(|(key, value)| Attribute::new(key, value, false)).collect();
    assert_eq!(server.push(&said).0, 200);
    // A control character in a key is refused at the door, and a report as large as that too.
    let mut said = process.next(Vec::new());
    said.attributes = vec![attribute(&evil), Attribute::new(&key("h/pid-10"), &text(many(100_000)), false)];
    let (status, answer) = server.push(&said);
    assert_eq!((status, answer.unwrap().refused[0].count), (200, 2));
    let plain = CaptureReport { host: "<script>alert(1)</script>".into(), ..evil };
    let mut said = process.next(Vec::new());
    said.attributes = vec![attribute(&plain)];
    assert_eq!(server.push(&said).0, 200);
    let answer = missing(&server, "r");
    let hosts: Vec<&str> =
        answer["capture"].as_array().unwrap().iter().map(|report| report["host"].as_str().unwrap()).collect();
    assert_eq!(
        hosts,
        ["<script>alert(1)</script>", "h", "node-1"],
        "one report a process, under its own name"
    );
    let rows = answer["missing"].as_array().unwrap();
    let row = rows.iter().find(|row| row["reason"] == "unreadable_device").unwrap();
    let said = row["text"].as_str().unwrap();
    assert!(said.chars().count() < 600 && !said.contains(['\n', '\u{7}']), "{said}");
    assert_eq!(row["places"][0]["gpu"], u32::MAX.to_string());
}

/// 128 hosts of 8 GPUs, each with a rank of its own and all that it says.
#[test]
fn a_run_of_a_thousand_gpus_is_explained_in_a_few_rows() {
    let server = Server::start(&[]);
    let mut sequence = 0;
    for host in 0..128_u32 {
        let name = format!("node-{host:03}");
        let mut said = request("big", 1, 0, Vec::new());
        for local in 0..8_u32 {
            let mut process = Process::new("big", 1, &name, 60);
            process.report.pid = 1_000 + local;
            process.report.rank = Some(host * 8 + local);
            process.report.node = if local == 0 { NodeRole::Reports } else { NodeRole::Unknown };
            process.report.devices = (0..8)
                .map(|gpu| {
                    let owner = model::CaptureOwner {
                        host: name.clone(),
                        pid: 1_000 + gpu,
                        rank: Some(host * 8 + gpu),
                    };
                    device(gpu, if gpu == local { DeviceRole::Owned } else { DeviceRole::Other(owner) })
                })
                .collect();
            for device in &mut process.report.devices {
                device.unsupported = vec!["system/gpu/power_watts".into()];
            }
            said.attributes.push(attribute(&process.report));
            let mut sent = process.gpu_points(&local.to_string(), (0, 50));
            sent.retain(|series| series.name != "system/gpu/power_watts");
            said.series.extend(sent);
            let mut own = process.host_points((0, 50));
            own.retain(|series| local == 0 || series.labels.len() == 2);
            said.series.extend(own);
        }
        sequence += 1;
        said.sequence = sequence;
        assert_eq!(server.push(&said).0, 200);
    }
    let answer = missing(&server, "big");
    let rows = answer["missing"].as_array().unwrap();
    assert_eq!(reasons(&answer), [("unsupported".to_owned(), false)], "{:.500}", answer["missing"]);
    assert_eq!(rows[0]["places"].as_array().unwrap().len(), 1_024);
    assert!(rows[0]["text"].as_str().unwrap().starts_with("GPUs 0-7 of 128 hosts (NVIDIA H100) do not have"));
    let brief = server.get(&format!("/api/tg/v1/runs/{}/missing?capture=false", id("big")));
    assert_eq!((&brief["missing"], &brief["capture"]), (&answer["missing"], &Value::Null));
}

/// A pod of a machine: its host name and the folder of its locks are its own, boot id and card are not.
fn pods(server: &Server) -> (Process, Process) {
    let mut first = Process::new("r", 1, "pod-a", 600);
    let mut second = Process::new("r", 2, "pod-b", 600);
    first.opens(server, 300);
    second.opens(server, 300);
    (first, second)
}

fn refused(answer: &PushResponse) -> u64 {
    let count = answer.refused.iter().find(|count| count.reason == "gpu_reported_elsewhere");
    count.map_or(0, |count| count.count)
}

fn points(server: &Server, host: &str) -> u64 {
    let metrics = server.get(&format!("/api/tg/v1/runs/{}/metrics", id("r")));
    let series = metrics["metrics"].as_array().unwrap().clone();
    let of = |one: &&Value| one["display"] == "system/gpu/utilization" && one["labels"]["host"] == host;
    series.iter().find(of).map_or(0, |one| one["points"].as_u64().unwrap())
}

#[test]
fn a_card_that_two_pods_share_is_reported_once_and_by_the_next_when_the_first_ends() {
    let mut server = Server::start(&[]);
    let (mut first, mut second) = pods(&server);
    assert_eq!(refused(&first.sends(&server, first.gpu_points("0", (0, 100)))), 0);
    let answer = second.sends(&server, second.gpu_points("0", (50, 100)));
    assert_eq!((refused(&answer), answer.stored), (36, 0), "{answer:?}");
    let elsewhere = &answer.elsewhere[..];
    assert_eq!(elsewhere.len(), 1);
    assert_eq!((elsewhere[0].gpu, elsewhere[0].host.as_str(), elsewhere[0].pid), (0, "pod-a", 101));
    assert_eq!(answer.refused_series.len(), 6);
    // It says so, and what else the second sends is taken.
    let row = missing(&server, "r")["missing"]
        .as_array()
        .unwrap()
        .iter()
        .find(|row| row["reason"] == "reported_elsewhere")
        .cloned()
        .unwrap();
    assert_eq!((&row["alarm"], &row["places"][0]["host"]), (&json!(false), &json!("pod-b")));
    assert!(row["text"].as_str().unwrap().contains("process 101 on `pod-a`"), "{row}");
    assert_eq!(second.sends(&server, second.host_points((50, 100))).refused, []);
    let run = server.get(&format!("/api/tg/v1/runs/{}", id("r")));
    assert_eq!(run["refused"]["gpu_reported_elsewhere"], 36);
    // A server that starts again knows who has the card.
    server.kill();
    server.restart();
    assert_eq!(refused(&second.sends(&server, second.gpu_points("0", (110, 120)))), 12);
    assert_eq!(refused(&first.sends(&server, first.gpu_points("0", (110, 120)))), 0);
    // The first is killed: for a minute it may be late, then the second has the card.
    assert_eq!(refused(&second.sends(&server, second.gpu_points("0", (150, 170)))), 18);
    assert_eq!(refused(&second.sends(&server, second.gpu_points("0", (190, 300)))), 0);
    // What the first left in a spool is taken as far as it was its own.
    assert_eq!(refused(&first.sends(&server, first.gpu_points("0", (130, 180)))), 0);
    assert_eq!(refused(&first.sends(&server, first.gpu_points("0", (200, 220)))), 18);
    assert_eq!((points(&server, "pod-a"), points(&server, "pod-b")), (19, 12));
    // The second ends in order, and the first may have the card at once.
    let mut end = second.next(Vec::new());
    end.session = Some(second.word(301, 3));
    assert_eq!(server.push(&end).0, 200);
    assert_eq!(refused(&first.sends(&server, first.gpu_points("0", (310, 320)))), 0);
}

#[test]
fn processes_that_share_locks_or_no_machine_are_never_refused() {
    let server = Server::start(&[]);
    let (mut first, mut second) = pods(&server);
    // The same folder of locks: the lock decides, and passes on within seconds.
    second.report.lock_domain = first.report.lock_domain.clone();
    second.opens(&server, 300);
    first.sends(&server, first.gpu_points("0", (0, 100)));
    assert_eq!(refused(&second.sends(&server, second.gpu_points("0", (110, 200)))), 0);
    // Another machine may have a card of the same UUID: cloned images do.
    let mut third = Process::new("r", 3, "pod-c", 600);
    third.report.boot_id = "boot-2".into();
    third.opens(&server, 300);
    assert_eq!(refused(&third.sends(&server, third.gpu_points("0", (0, 100)))), 0);
    // Another run is another matter, and so is one that left no report.
    let mut other = Process::new("other", 4, "pod-d", 600);
    other.opens(&server, 300);
    assert_eq!(refused(&other.sends(&server, other.gpu_points("0", (0, 100)))), 0);
    let mut silent = Process::new("r", 5, "pod-e", 600);
    assert_eq!(refused(&silent.sends(&server, silent.gpu_points("0", (0, 100)))), 0);
}

#[test]
fn a_spool_is_judged_by_the_times_of_its_points() {
    let server = Server::start(&[]);
    let (mut first, second) = pods(&server);
    first.sends(&server, first.gpu_points("0", (300, 500)));
    // Written while the server was away: for the first of it nobody else had the card.
    let mut late = Process { sequence: 2, ..second };
    let dir = server.home.join("spool").join("late");
    std::fs::create_dir_all(server.home.join("spool")).unwrap();
    let mut spool =
        spool::Writer::create(&dir, br#"{"version": 1, "target": null}"#, spool::Options::default()).unwrap();
    for span in [(0, 200), (400, 450)] {
        let series = late.gpu_points("0", span);
        spool.append(&wire::push::encode(&late.next(series)).unwrap()).unwrap();
    }
    spool.sync().unwrap();
    drop(spool);
    eventually("the spool is taken in", || (!dir.exists()).then_some(()));
    assert_eq!((points(&server, "pod-a"), points(&server, "pod-b")), (21, 21));
    assert_eq!(
        server.metric("truegauge_ingest_rejected_total{door=\"spool\",reason=\"gpu_reported_elsewhere\"}"),
        36.0
    );
}

#[test]
fn two_machines_by_one_name_are_warned_of() {
    let server = Server::start(&[]);
    for (writer, boot) in [(1, "boot-1"), (2, "boot-2")] {
        let mut process = Process::new("r", writer, "trainer", 60);
        process.report.boot_id = boot.into();
        process.opens(&server, 59);
        process.sends(&server, process.host_points((0, 50)));
        process.sends(&server, process.gpu_points("0", (0, 50)));
    }
    let answer = missing(&server, "r");
    assert_eq!(reasons(&answer), [("host_name_shared".to_owned(), true)], "{answer}");
    assert_eq!(
        answer["missing"][0]["places"],
        json!([{"host": "trainer", "gpu": null, "pid": null, "rank": null}])
    );
}

/// `truegauge run -- sleep` in namespaces of its own, as a pod is: a host name and a `/dev/shm` of its own,
/// the machine's boot id, and the one card of the driver in `home`.
struct Pod(Child);

impl Pod {
    fn start(server: &Server, name: &str) -> Self {
        let inside = format!("mount -t tmpfs none /dev/shm && hostname {name} && exec \"$0\" \"$@\"");
        let program = truegauge(&server.home);
        let mut command = Command::new("unshare");
        for (variable, value) in program.get_envs() {
            match value {
                Some(value) => command.env(variable, value),
                None => command.env_remove(variable),
            };
        }
        command
            .args(["--mount", "--uts", "sh", "-c", &inside])
            .arg(program.get_program())
            .args(["run", "--project", "p", "--run", "r", "--interval", "1", "--", "sleep", "600"])
            .env("TRUEGAUGE_URL", &server.url)
            .env("LD_LIBRARY_PATH", &server.home)
            .stdin(Stdio::null());
        Self(command.spawn().unwrap())
    }
}

impl Drop for Pod {
    fn drop(&mut self) {
        let pid = rustix::process::Pid::from_child(&self.0);
        // Asked to end it takes its command along.
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        let _ = self.0.wait();
    }
}

#[test]
fn two_real_pods_of_one_machine_report_their_card_once() {
    let server = Server::start(&[]);
    let scenario = "driver_version = \"570\"\n[[gpu]]\nuuid = \"GPU-1\"\nname = \"Fake H100\"\nmig = false\n\
                    values = { utilization = 11, utilization_memory = 1, temperature = 40 }\n";
    fake_nvml::install(&server.home, scenario).unwrap();
    let has = |host: &str| {
        eventually("points of a pod's card", || {
            let answer = server.ask("GET", &format!("/api/tg/v1/runs/{}/metrics", id("r")), &[], b"");
            (answer.status == 200 && points(&server, host) > 0).then_some(())
        });
    };
    let _first = Pod::start(&server, "pod-a");
    has("pod-a");
    let _second = Pod::start(&server, "pod-b");
    let row = eventually("the second pod says that it leaves the card alone", || {
        let answer = missing(&server, "r");
        let reports = answer["capture"].as_array().unwrap();
        let second = reports.iter().find(|report| report["host"] == "pod-b")?;
        (second["devices"][0]["role"] == "reported_elsewhere").then_some(())?;
        let rows = answer["missing"].as_array().unwrap();
        rows.iter().find(|row| row["reason"] == "reported_elsewhere").cloned()
    });
    assert!(row["text"].as_str().unwrap().starts_with("GPU 0 of `pod-b` is charted already by"), "{row}");
    let before = points(&server, "pod-a");
    eventually("the first pod goes on", || (points(&server, "pod-a") > before + 1).then_some(()));
    assert_eq!(points(&server, "pod-b"), 0);
}
