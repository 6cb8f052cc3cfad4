//! Remediation with a real server and stand-ins of the programs that it runs: what ran is what they wrote down.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use model::{Event, Sample, Severity, stale_marker};
use serde_json::{Value, json};
use tempfile::TempDir;
use wire::push::{Node, PushRequest, Series, Session};

use crate::process::{Server, eventually, id, request, run};

const PLACE: &str = "0000:43:00.0";
pub(crate) const BOOT: &str = "0123456789abcdef0123456789abcdef";

/// A series of a machine: its name, its labels, its value.
pub(crate) type OfMachine<'a> = (&'a str, &'a [(&'a str, &'a str)], f64);

static SENT: AtomicU64 = AtomicU64::new(1);

pub(crate) fn now_ns() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as i64
}

/// A folder with stand-ins that write down how they were called, a policy, and a server.
pub(crate) struct Site {
    pub(crate) folder: TempDir,
    pub(crate) server: Server,
}

impl Site {
    /// `actions` is the policy's rules; the server does them for real, or rehearses.
    pub(crate) fn new(mode: &str, hosts: &str, actions: &str) -> Self {
        Self::in_folder(tempfile::tempdir().unwrap(), mode, hosts, actions)
    }

    pub(crate) fn in_folder(folder: TempDir, mode: &str, hosts: &str, actions: &str) -> Self {
        let config = prepare(folder.path(), mode, hosts, actions);
        let server = Server::start(&["--config", &config]);
        Self { folder, server }
    }

    /// Another mode, read on SIGHUP.
    fn turn(&self, mode: &str) {
        let at = |name: &str| self.folder.path().join(name).display().to_string();
        fs::write(at("truegauge.toml"), settings(&at("policy.toml"), mode)).unwrap();
        let pid = rustix::process::Pid::from_child(&self.server.child);
        rustix::process::kill_process(pid, rustix::process::Signal::HUP).unwrap();
        eventually("the mode is read", || (self.state()["mode"] == mode).then_some(()));
    }

    /// Series of a machine as of now.
    pub(crate) fn tells(&self, host: &str, series: &[OfMachine<'_>]) {
        let one = |(name, labels, value): &OfMachine<'_>| {
            let sample = Sample { time_ns: now_ns(), value: *value, step: None };
            let labels: Vec<(String, String)> =
                labels.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
            Series::new(name, &labels, "", &[sample])
        };
        let request = of_node(host, series.iter().map(one).collect(), &[]);
        assert_eq!(self.server.push(&request).0, 200, "{host}");
    }

    /// What ran, in order.
    pub(crate) fn ran(&self) -> Vec<String> {
        fs::read_to_string(self.folder.path().join("ran")).unwrap().lines().map(str::to_owned).collect()
    }

    pub(crate) fn resets(&self) -> Vec<String> {
        self.ran().into_iter().filter(|line| line.starts_with("reset-gpu")).collect()
    }

    pub(crate) fn hold(&self, is_held: bool) {
        let path = self.folder.path().join("hold");
        if is_held { fs::write(path, "").unwrap() } else { fs::remove_file(path).unwrap() }
    }

    pub(crate) fn push(&self, host: &str, events: &[Event]) {
        self.push_with(host, None, events);
    }

    /// A look of an agent, which tells all that there is: whose card it is not told of has no owner any more.
    pub(crate) fn push_with(&self, host: &str, run_id: Option<&str>, events: &[Event]) {
        let sample = Sample { time_ns: now_ns(), value: 1.0, step: None };
        let one = |name: &str, labels: &[(&str, &str)]| {
            let labels: Vec<(String, String)> =
                labels.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
            Series::new(name, &labels, "", &[sample])
        };
        let mut series = vec![one("tg_node_info", &[("host", host), ("boot_id", BOOT)])];
        let uuid = format!("GPU-{host}");
        series.extend(run_id.map(|run_id| {
            let labels = [("host", host), ("gpu", "1"), ("uuid", &uuid), ("run_id", run_id)];
            one("tg_gpu_owner_info", &labels)
        }));
        let request = of_node(host, series, events);
        assert_eq!(self.server.push(&request).0, 200, "{host}");
    }

    /// A memory error that asks for a reset.
    pub(crate) fn fails(&self, host: &str) {
        self.push(host, &[fault(host, "kernel")]);
    }

    pub(crate) fn state(&self) -> Value {
        self.server.get("/api/tg/v1/remediation")
    }

    pub(crate) fn rows(&self, list: &str, fits: impl Fn(&Value) -> bool) -> Vec<Value> {
        self.state()[list].as_array().unwrap().iter().filter(|row| fits(row)).cloned().collect()
    }

    /// Waits until a machine is in a state.
    pub(crate) fn becomes(&self, host: &str, state: &str) -> Value {
        eventually(&format!("{host} becomes {state}"), || {
            self.rows("hosts", |row| row["host"] == host && row["state"] == state).pop()
        })
    }

    /// Waits until so much waits.
    pub(crate) fn queued(&self, count: usize) -> Vec<Value> {
        eventually(&format!("{count} wait"), || {
            let queue = self.rows("queue", |_| true);
            (queue.len() == count).then_some(queue)
        })
    }

    pub(crate) fn post(&self, path: &str, body: &Value) -> (u16, Value) {
        let answer = self.server.post_json(&format!("/api/tg/v1/remediation/{path}"), body);
        let is_empty = answer.body.is_empty();
        (answer.status, if is_empty { Value::Null } else { answer.json() })
    }

    pub(crate) fn audit(&self, host: &str) -> Vec<String> {
        let rows = self.server.get(&format!("/api/tg/v1/remediation/audit?host={host}"));
        let mut rows: Vec<Value> = rows["audit"].as_array().unwrap().clone();
        rows.reverse();
        let text = |row: &Value, name: &str| row[name].as_str().unwrap().to_owned();
        let line = |row: &Value| {
            let dry = if row["dry_run"] == true { "dry " } else { "" };
            format!(
                "{dry}{}>{} {}: {}",
                text(row, "from"),
                text(row, "to"),
                text(row, "actor"),
                text(row, "text")
            )
        };
        rows.iter().map(line).collect()
    }
}

/// Writes stand-ins, a policy and the settings of a server; gives the path of these. The reset of a machine whose name
/// begins with `exit` or `hang` does that.
pub(crate) fn prepare(folder: &Path, mode: &str, hosts: &str, actions: &str) -> String {
    let at = |name: &str| folder.join(name).display().to_string();
    let log = at("ran");
    fs::write(&log, "").unwrap();
    let held = |file: &str| format!("while [ -e '{}' ]; do sleep 0.05; done", at(file));
    // A reset takes as long as there is a file `hold`; a setting of the server that reached a program would show.
    let reset = format!(
        "case \"$1\" in exit*) echo 'no such card' >&2; exit 3;; hang*) sleep 600 & sleep 600;; esac\n{}",
        held("hold")
    );
    let probe = format!(
        "{}\n[ -e '{}/broken' ] && echo 'no token came' && exit 4\necho \"matmul $(cat '{}' || echo 100)\"",
        held("hold-probe"),
        folder.display(),
        at("speed")
    );
    for (name, then) in [("scontrol", ""), ("kubectl", ""), ("reset-gpu", &reset), ("probe", &probe)] {
        let text = format!("#!/bin/sh\necho \"{name} $*$TRUEGAUGE_SPOOL_DIR\" >> '{log}'\n{then}\n");
        fs::write(at(name), text).unwrap();
        fs::set_permissions(at(name), fs::Permissions::from_mode(0o755)).unwrap();
    }
    let programs: Vec<String> = ["scontrol", "kubectl", "reset-gpu", "probe", "gone"]
        .iter()
        .map(|name| format!("{name} = \"{}\"\n", at(name)))
        .collect();
    let policy = format!(
        "name = \"test\"\nrevision = 7\n[[pools]]\nname = \"train\"\nhosts = [{hosts}]\n[programs]\n{}{actions}",
        programs.concat()
    );
    fs::write(at("policy.toml"), policy).unwrap();
    fs::write(at("truegauge.toml"), settings(&at("policy.toml"), mode)).unwrap();
    at("truegauge.toml")
}

pub(crate) fn of_node(host: &str, series: Vec<Series>, events: &[Event]) -> PushRequest {
    let id = host.bytes().fold(7_u64, |sum, byte| sum.wrapping_mul(31).wrapping_add(u64::from(byte)));
    let agent_id = [id.to_le_bytes(), id.to_le_bytes()].concat();
    PushRequest {
        client_id: agent_id.clone(),
        sequence: SENT.fetch_add(1, Ordering::Relaxed),
        node: Some(Node {
            host: host.to_owned(),
            boot_id: BOOT.into(),
            agent_version: "0.1.0".into(),
            pid: 1,
            interval_ms: 10_000,
            agent_id,
            ..Node::default()
        }),
        series,
        events: events.iter().map(Into::into).collect(),
        ..PushRequest::default()
    }
}

fn settings(policy: &str, mode: &str) -> String {
    format!("[remediation]\npolicy_file = \"{policy}\"\nmode = \"{mode}\"\ninterval = \"100ms\"\n")
}

pub(crate) fn fault(host: &str, source: &str) -> Event {
    let labels = [
        ("host", host),
        ("source", source),
        ("pci_bus_id", PLACE),
        ("uuid", &format!("GPU-{host}")),
        ("gpu", "1"),
    ];
    let body = json!({ "xid": 95, "count": 1 }).to_string();
    Event {
        time_ns: now_ns() - 20_000_000_000,
        kind: "xid".into(),
        severity: Severity::Critical,
        key: format!("boot:{}", SENT.fetch_add(1, Ordering::Relaxed)),
        labels: labels.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec(),
        text: "NVRM: Xid (PCI:0000:43:00): 95".into(),
        body,
    }
}

/// Takes out, resets, looks and brings back.
pub(crate) fn reset(mode: &str) -> String {
    format!(
        "[[actions]]\nname = \"reset\"\non = \"reset_gpu\"\nmode = \"{mode}\"\ncommands = [\n  {{ scontrol = \"drain\" }},\n  \
         {{ exec = \"reset-gpu\", args = [\"{{host}}\", \"{{gpu}}\"], does = \"reset\" }},\n]\n\
         validate = {{ quiet = \"1s\", limit = \"20s\" }}\nafter = [{{ scontrol = \"resume\" }}]\n"
    )
}

#[test]
fn a_storm_is_bounded_and_a_kill_in_its_middle_runs_nothing_twice() {
    let mut site = Site::new("real", "\"host-*\"", &reset("auto"));
    for n in 0..40 {
        site.push(&format!("host-{n}"), &[]);
    }
    site.hold(true);
    for host in ["host-0", "host-1"] {
        site.fails(host);
    }
    eventually("both cards are being reset", || (site.resets().len() == 2).then_some(()));
    for n in 2..12 {
        site.fails(&format!("host-{n}"));
    }
    site.queued(10);
    let pool = site.state()["pools"][0].clone();
    assert_eq!(
        (&pool["nodes"], &pool["in_remediation"], &pool["budget"]),
        (&json!(40), &json!(2), &json!(2))
    );
    assert_eq!(pool["breaker"], "open");
    // The resets are under way when the server goes down; what it started goes on.
    site.server.kill();
    site.hold(false);
    site.server.restart();
    for host in ["host-0", "host-1"] {
        site.becomes(host, "validating");
        site.push(host, &[]);
        site.becomes(host, "healthy");
    }
    let mut ran = site.ran();
    ran.sort();
    let want = |n: u64| {
        [
            format!("reset-gpu host-{n} 1"),
            format!("scontrol update nodename=host-{n} state=drain reason=tg-{}", n + 1),
            format!("scontrol update nodename=host-{n} state=resume"),
        ]
    };
    let mut all = [want(0), want(1)].concat();
    all.sort();
    // Which of the two came first is not said.
    let plain = |lines: Vec<String>| -> Vec<String> {
        let mut lines: Vec<String> =
            lines.into_iter().map(|line| line.split(" reason=").next().unwrap().to_owned()).collect();
        lines.sort();
        lines
    };
    assert_eq!(plain(ran), plain(all));
    let audit = site.audit("host-0");
    assert!(
        audit.iter().any(|line| line.contains("is not run again, what came of it is checked")),
        "{audit:#?}"
    );
    // Those of the storm wait for a person, and one who agrees gets one of them.
    let queue = site.queued(10);
    let (id, host) = (queue[0]["id"].as_str().unwrap(), queue[0]["host"].as_str().unwrap());
    assert_eq!(
        site.post(&format!("{id}/approve"), &json!({ "dry_run": false, "confirm": "host-99" })).0,
        400
    );
    assert_eq!(site.resets().len(), 2);
    let (code, _, said) = site.server.cli(&["remediation", "approve", id, "--real", host]);
    assert_eq!(code, 0, "{said}");
    site.becomes(host, "validating");
    assert_eq!(site.resets().len(), 3);
    assert_eq!(site.post(&format!("{id}/approve"), &json!({ "dry_run": false, "confirm": host })).0, 409);
    let states = site.server.get("/api/v1/query?query=tg_remediation");
    assert!(states["data"]["result"].as_array().unwrap().len() >= 10, "{states}");
}

#[test]
fn a_rehearsal_shows_the_lines_and_runs_nothing() {
    let site = Site::new("dry_run", "\"*\"", &reset("approve"));
    site.fails("host-3");
    let plan = site.queued(1).remove(0);
    let lines: Vec<&str> = plan["commands"]
        .as_array()
        .unwrap()
        .iter()
        .map(|command| command["text"].as_str().unwrap())
        .collect();
    assert_eq!(
        lines,
        [
            "scontrol update nodename=host-3 state=drain reason=tg-1",
            "exec reset-gpu host-3 1",
            "validate",
            "scontrol update nodename=host-3 state=resume"
        ]
    );
    assert!(plan["key"].as_str().unwrap().starts_with(&format!("{BOOT}/GPU-host-3/")), "{plan}");
    // For real is refused, whoever asks.
    let (status, refusal) = site.post("tg-1/approve", &json!({ "dry_run": false, "confirm": "host-3" }));
    assert_eq!(status, 409, "{refusal}");
    assert!(refusal["error"]["hint"].as_str().unwrap().contains("mode = \"real\""), "{refusal}");
    assert_eq!(site.post("tg-1/approve", &json!({})).0, 204);
    let (code, shown, _) = site.server.cli(&["remediation", "show", "tg-1"]);
    assert!(code == 0 && shown.contains("exec reset-gpu host-3 1"), "{shown}");
    assert_eq!(site.server.cli(&["remediation", "reject", "tg-1", "--reason", "no"]).0, 0);
    let audit = site.audit("host-3");
    assert!(audit[0].starts_with("dry healthy>suspect policy: Xid 95"), "{audit:#?}");
    assert_eq!(
        audit[2..],
        ["dry suspect>suspect somebody: would run 4 commands", "dry suspect>suspect somebody: rejected: no"]
    );
    let rows = site.server.get("/api/tg/v1/remediation/audit?host=host-3");
    let deeds: Vec<&str> =
        rows["audit"].as_array().unwrap().iter().map(|row| row["what"].as_str().unwrap()).collect();
    assert_eq!(deeds, ["decided", "rehearsed", "decided", "observed"], "the latest first");
    assert!(site.ran().is_empty());
    // What a process wrote of itself, and what is called like an option, lead to nothing.
    site.push("host-4", &[fault("host-4", "userspace")]);
    site.fails("-n");
    site.fails("$(reboot)");
    for host in ["-n", "$(reboot)"] {
        let row = site.becomes(host, "needs_human");
        assert!(row["reason"].as_str().unwrap().contains("may not stand in a command"), "{row}");
    }
    assert!(site.rows("hosts", |row| row["host"] == "host-4").is_empty());
    assert!(site.ran().is_empty());
    // The same of the past, by another policy.
    let answer = site.server.cli(&["remediation", "replay", "--json"]);
    let answer: Value = serde_json::from_str(&answer.1).unwrap();
    assert_eq!(answer["outcomes"], json!({ "failed": 2, "queued": 1 }));
}

#[test]
fn a_hook_that_hangs_is_given_up_and_a_person_brings_the_machine_back() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/deregister", listener.local_addr().unwrap());
    let (send, heard) = std::sync::mpsc::channel();
    // The first caller is kept waiting until it goes, the next is answered.
    let waits = std::thread::spawn(move || {
        for turn in 0..2 {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = vec![0_u8; 64 << 10];
            let mut length = stream.read(&mut request).unwrap();
            if turn == 0 {
                while stream.read(&mut request[length..]).is_ok_and(|more| more > 0) {}
                continue;
            }
            while !request[..length].ends_with(b"}") {
                length += stream.read(&mut request[length..]).unwrap();
            }
            send.send(String::from_utf8_lossy(&request[..length]).into_owned()).unwrap();
            stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\nok").unwrap();
        }
    });
    let actions = format!(
        "[[actions]]\nname = \"out\"\non = \"reset_gpu\"\nmode = \"approve\"\ncommands = [\n  {{ webhook = \"{url}\", limit = \"1s\" }},\n  \
         {{ kubectl = \"cordon\" }},\n]\n"
    );
    let site = Site::new("real", "\"serve-*\"", &actions);
    let yes = |host: &str| json!({ "dry_run": false, "confirm": host });
    site.fails("serve-1");
    site.queued(1);
    assert_eq!(site.post("tg-1/approve", &yes("serve-1")).0, 204);
    site.becomes("serve-1", "needs_human");
    assert!(site.audit("serve-1").last().unwrap().contains("failed after"));
    assert!(site.ran().is_empty());
    assert_eq!(site.post("serve-1/state", &json!({ "state": "well" })).0, 400);
    assert_eq!(
        site.post("serve-1/state", &json!({ "state": "healthy", "reason": "it was the hook" })).0,
        204
    );
    site.becomes("serve-1", "healthy");
    assert!(site.server.get("/api/tg/v1/incidents")["incidents"].as_array().unwrap().is_empty());
    site.fails("serve-2");
    let id = site.queued(1)[0]["id"].as_str().unwrap().to_owned();
    assert_eq!(site.post(&format!("{id}/approve"), &yes("serve-2")).0, 204);
    let told = heard.recv().unwrap();
    waits.join().unwrap();
    let told: Value = serde_json::from_str(told.split("\r\n\r\n").nth(1).unwrap()).unwrap();
    assert_eq!(
        (&told["host"], &told["id"], &told["verdict"]),
        (&json!("serve-2"), &json!(id), &json!("reset_gpu"))
    );
    // Taken out, and nothing says how it comes back: a person does.
    site.becomes("serve-2", "needs_human");
    assert_eq!(site.ran(), ["kubectl cordon serve-2"]);
}

#[test]
fn a_policy_that_contradicts_itself_is_not_started_with() {
    let folder = tempfile::tempdir().unwrap();
    let policy = folder.path().join("policy.toml");
    let twice = "name = \"x\"\nrevision = 1\n[[pools]]\nname = \"p\"\nhosts = [\"*\"]\n\
        [[actions]]\nname = \"one\"\non = \"reset_gpu\"\n[[actions]]\nname = \"two\"\non = \"reset_gpu\"\n";
    fs::write(&policy, twice).unwrap();
    let file = policy.to_str().unwrap();
    let check = |path: &str| run(folder.path(), &["remediation", "check", path]);
    let (code, said, _) = check(file);
    assert_eq!(code, 1);
    assert!(said.contains("`one` and `two` both say what is done on `reset_gpu`"), "{said}");
    let data = folder.path().join("data");
    let up = [
        "up",
        "--listen",
        "127.0.0.1:0",
        "--data-dir",
        data.to_str().unwrap(),
        "--remediation-policy-file",
        file,
    ];
    let (code, _, said) = run(folder.path(), &up);
    assert_eq!(code, 2);
    assert!(said.contains("`one` and `two`") && said.contains("truegauge remediation check"), "{said}");
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/remediation");
    for name in ["slurm.toml", "kubernetes.toml"] {
        assert_eq!(check(examples.join(name).to_str().unwrap()).0, 0, "{name}");
    }
    // Without a policy there is an answer, and it says how to start.
    let server = Server::start(&[]);
    let answer = server.get("/api/tg/v1/remediation");
    assert_eq!((&answer["mode"], &answer["policy"]), (&json!("off"), &Value::Null));
    assert!(answer["reason"].as_str().unwrap().contains("policy_file"), "{answer}");
    assert_eq!(server.cli(&["remediation", "ls"]).0, 0);
}

#[test]
fn what_somebody_proposes_waits_for_somebody() {
    let actions =
        "[[actions]]\nname = \"empty\"\non = \"straggler\"\ncommands = [{ kubectl = \"cordon\" }]\n";
    let site = Site::new("real", "\"host-*\"", &format!("{}{actions}", reset("auto")));
    site.push("host-1", &[]);
    site.push("printer", &[]);
    let propose = |body: Value| site.post("propose", &body);
    let says = |(status, answer): (u16, Value)| {
        let error = &answer["error"];
        (
            status,
            format!("{} {}", error["message"].as_str().unwrap(), error["hint"].as_str().unwrap_or_default()),
        )
    };
    assert_eq!(says(propose(json!({}))).0, 400);
    let (status, text) = says(propose(json!({ "host": "host-1", "on": "drain_rest" })));
    assert!(status == 400 && text.contains("drain_reset"), "{text}");
    let (status, text) = says(propose(json!({ "host": "printer" })));
    assert!(status == 409 && text.contains("no pool"), "{text}");
    assert_eq!(says(propose(json!({ "host": "host-2" }))).0, 404);
    assert_eq!(says(propose(json!({ "host": "host-1", "uuid": "GPU-of-nobody" }))).0, 404);
    assert_eq!(says(propose(json!({ "host": "host-1", "incident": "in-1" }))).0, 404);
    let (status, text) = says(propose(json!({ "host": "host-1", "on": "reboot_node" })));
    assert!(status == 409 && text.contains("`reset` on `reset_gpu`, `empty` on `straggler`"), "{text}");
    let (code, said, error) =
        site.server.cli(&["remediation", "propose", "host-1", "--reason", "the fan is loud", "--json"]);
    assert_eq!(code, 0, "{error}");
    let plan: Value = serde_json::from_str(&said).unwrap();
    assert_eq!(
        (&plan["id"], &plan["status"], &plan["asked_by"]),
        (&json!("tg-1"), &json!("queued"), &json!("somebody"))
    );
    assert_eq!(plan["commands"][0]["text"], "kubectl cordon host-1");
    let again = propose(json!({ "host": "host-1", "reason": "so it is" }));
    assert_eq!((again.0, &again.1["id"]), (200, &json!("tg-1")));
    let audit = site.audit("host-1");
    assert_eq!(
        audit,
        [
            "healthy>suspect somebody: Proposed by hand",
            "suspect>suspect somebody: proposed: the fan is loud",
            "suspect>suspect somebody: proposed as well: so it is"
        ]
    );
    assert_eq!(site.post("tg-1/approve", &json!({ "dry_run": false, "confirm": "host-1" })).0, 204);
    let row = site.becomes("host-1", "needs_human");
    assert_eq!(site.ran(), ["kubectl cordon host-1"]);
    assert_eq!(row["dry_run"], false);
    assert_eq!(says(propose(json!({ "host": "host-1" }))).0, 409);
}

#[test]
fn the_brake_stops_a_plan_between_two_commands() {
    let actions = "[[actions]]\nname = \"out\"\non = \"reset_gpu\"\nmode = \"auto\"\ncommands = [\n  \
         { exec = \"reset-gpu\", args = [\"{host}\"] },\n  { kubectl = \"cordon\" },\n]\n";
    let site = Site::new("real", "\"host-*\"", actions);
    site.hold(true);
    site.fails("host-1");
    eventually("the first command runs", || (site.resets().len() == 1).then_some(()));
    site.turn("dry_run");
    site.hold(false);
    eventually("it has ended", || {
        site.audit("host-1").iter().any(|line| line.contains("done in")).then_some(())
    });
    let plan = site.rows("executing", |_| true).remove(0);
    assert_eq!((&plan["step"], site.ran().len()), (&json!(2), 1), "{plan}");
    site.turn("real");
    site.becomes("host-1", "needs_human");
    assert_eq!(site.ran(), ["reset-gpu host-1", "kubectl cordon host-1"]);
}

#[test]
fn requests_under_way_are_waited_for() {
    let actions = "[[actions]]\nname = \"out\"\non = \"reset_gpu\"\nmode = \"auto\"\ncommands = [\n  \
         { wait_idle = true, limit = \"60s\" },\n  { kubectl = \"cordon\" },\n]\n";
    let site = Site::new("real", "\"host-*\"", actions);
    let engine = |running: f64| {
        let labels = [("host", "host-1"), ("engine", "vllm"), ("model", "acme/chat")];
        site.tells("host-1", &[("tg_engine_requests_running", &labels, running)]);
    };
    engine(3.0);
    site.fails("host-1");
    eventually("requests are waited for", || {
        site.audit("host-1").iter().any(|line| line.contains("runs: wait until host-1 is idle")).then_some(())
    });
    assert!(site.ran().is_empty());
    engine(0.0);
    site.becomes("host-1", "needs_human");
    assert_eq!(site.ran(), ["kubectl cordon host-1"]);
    assert!(site.audit("host-1").iter().any(|line| line.contains("no request is under way")));
}

#[test]
fn a_server_that_stops_has_not_waited_and_an_engine_that_falls_silent_is_not_idle() {
    let actions = |limit: &str| {
        format!(
            "[[actions]]\nname = \"out\"\non = \"reset_gpu\"\nmode = \"auto\"\ncommands = [\n  \
             {{ wait_idle = true, limit = \"{limit}\" }},\n  {{ kubectl = \"cordon\" }},\n]\n"
        )
    };
    let labels = [("host", "host-1"), ("engine", "vllm"), ("model", "acme/chat")];
    let engine =
        |site: &Site, running: f64| site.tells("host-1", &[("tg_engine_requests_running", &labels, running)]);
    let says =
        |site: &Site, words: &str| site.audit("host-1").iter().filter(|line| line.contains(words)).count();
    let mut site = Site::new("real", "\"host-*\"", &actions("60s"));
    engine(&site, 3.0);
    site.fails("host-1");
    let begins = ": runs: wait until host-1 is idle";
    eventually("requests are waited for", || (says(&site, begins) == 1).then_some(()));
    assert_eq!(site.server.terminate(), 0);
    site.server.restart();
    eventually("they are waited for again", || (says(&site, begins) == 2).then_some(()));
    assert!(site.ran().is_empty());
    engine(&site, 0.0);
    site.becomes("host-1", "needs_human");
    assert_eq!(site.ran(), ["kubectl cordon host-1"]);

    let site = Site::new("real", "\"host-*\"", &actions("1s"));
    engine(&site, 3.0);
    engine(&site, stale_marker());
    site.fails("host-1");
    site.becomes("host-1", "needs_human");
    assert_eq!(says(&site, "no engine there tells of its requests any more, and it goes on"), 1);
}

#[test]
fn a_job_that_is_not_heard_lives_as_long_as_its_machines_agent_says_that_it_has_a_card() {
    let actions = "[[actions]]\nname = \"out\"\non = \"reset_gpu\"\nmode = \"approve\"\n\
         commands = [{ kubectl = \"cordon\" }]\n";
    let site = Site::new("real", "\"host-*\"", actions);
    // Its clock is ten minutes behind, or nothing came of it for that long.
    let time_ms = now_ns() / 1_000_000 - 600_000;
    let mut sent = request("job", 1, 1, Vec::new());
    sent.session = Some(Session { time_ms, event: 1, host: "host-1".into(), pid: 7, ..Session::default() });
    assert_eq!(site.server.push(&sent).0, 200);
    let run_id = id("job");
    assert_eq!(site.server.get(&format!("/api/tg/v1/runs/{run_id}"))["state"], "stale");
    site.push_with("host-1", Some(&run_id), &[fault("host-1", "kernel")]);
    let plan = site.queued(1).remove(0);
    assert_eq!((&plan["affects"][0]["run_id"], &plan["affects"][0]["dead"]), (&json!(run_id), &json!(false)));
    // It says that it has ended.
    let mut end = request("job", 1, 2, Vec::new());
    end.session = Some(Session { time_ms, event: 3, host: "host-1".into(), pid: 7, ..Session::default() });
    assert_eq!(site.server.push(&end).0, 200);
    eventually("it is dead", || (site.queued(1)[0]["affects"][0]["dead"] == true).then_some(()));
}

/// A job that writes down that it was told by a signal, and its process.
struct Told(std::process::Child);

impl Told {
    fn start(folder: &Path, run_id: &str) -> Self {
        let at = |name: &str| folder.join(format!("{run_id}.{name}")).display().to_string();
        let (pid, told) = (at("pid"), at("told"));
        // Its number is there once it listens.
        let text = format!(
            "trap 'echo saved > {told}; exit 0' USR1\necho $$ > {pid}.next\nmv {pid}.next {pid}\nwhile :; do sleep 0.05; done"
        );
        let child = std::process::Command::new("sh").args(["-c", &text]).spawn().unwrap();
        eventually("the job runs", || Path::new(&pid).exists().then_some(()));
        Self(child)
    }
}

impl Drop for Told {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_job_is_told_by_signal_by_file_and_by_url_though_only_its_card_is_known() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/restart", listener.local_addr().unwrap());
    let (send, heard) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut request = Vec::new();
        let mut part = [0_u8; 4096];
        while !request.ends_with(b"}") {
            let count = stream.read(&mut part).unwrap();
            request.extend_from_slice(&part[..count]);
        }
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\nok").unwrap();
        send.send(String::from_utf8(request).unwrap()).unwrap();
    });
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).display().to_string();
    let actions = format!(
        "[hooks]\ncheckpoint-now = {{ signal = \"USR1\", pid_file = \"{}\" }}\ncheckpoint-note = {{ file = \"{}\" }}\n\
         restart = {{ url = \"{url}\" }}\n[[actions]]\nname = \"out\"\non = \"reset_gpu\"\nmode = \"auto\"\ncommands = [\n  \
         {{ hook = \"checkpoint-now\" }},\n  {{ hook = \"checkpoint-note\" }},\n  {{ wait_idle = true, limit = \"60s\" }},\n  \
         {{ kubectl = \"cordon\" }},\n  {{ hook = \"restart\" }},\n]\n",
        at("{run_id}.pid"),
        at("{run_id}.note"),
    );
    // No process of it ever sent anything: an agent saw its lock.
    let run_id = crate::process::id("of-another-server");
    let mut job = Told::start(folder.path(), &run_id);
    let (told, note) = (at(&format!("{run_id}.told")), at(&format!("{run_id}.note")));
    let site = Site::in_folder(folder, "real", "\"host-*\"", &actions);
    site.push_with("host-1", Some(&run_id), &[fault("host-1", "kernel")]);
    site.becomes("host-1", "needs_human");
    let audit = site.audit("host-1");
    assert!(job.0.wait().unwrap().success());
    assert_eq!(fs::read_to_string(told).unwrap(), "saved\n", "{audit:#?}");
    let asked = heard.recv().unwrap();
    let posted: Value = serde_json::from_str(asked.split("\r\n\r\n").nth(1).unwrap()).unwrap();
    let written: Value = serde_json::from_str(&fs::read_to_string(note).unwrap()).unwrap();
    for body in [&posted, &written] {
        assert_eq!((&body["host"], &body["run_id"]), (&json!("host-1"), &json!(run_id)), "{body}");
    }
    for line in ["done in", "USR1 to process", "checkpoint-note", "restart"] {
        assert!(audit.iter().any(|said| said.contains(line)), "{line}: {audit:#?}");
    }
    assert_eq!(site.ran(), ["kubectl cordon host-1"]);
}

#[test]
fn a_job_that_came_while_a_plan_waited_is_told_and_one_that_went_is_not() {
    let folder = tempfile::tempdir().unwrap();
    let actions = format!(
        "[hooks]\ncheckpoint-now = {{ signal = \"USR1\", pid_file = \"{}\" }}\n[[actions]]\nname = \"out\"\non = \"reset_gpu\"\n\
         mode = \"approve\"\ncommands = [\n  {{ hook = \"checkpoint-now\" }},\n  {{ kubectl = \"cordon\" }},\n]\n",
        folder.path().join("{run_id}.pid").display(),
    );
    let ids = ["one", "two"].map(crate::process::id);
    let mut job = Told::start(folder.path(), &ids[1]);
    let told = folder.path().join(format!("{}.told", ids[1]));
    let site = Site::in_folder(folder, "real", "\"host-*\"", &actions);
    site.fails("host-1");
    let plan = site.queued(1).remove(0);
    assert_eq!(plan["commands"].as_array().unwrap().len(), 1, "nobody has the card: {plan}");
    for id in &ids {
        site.push_with("host-1", Some(id), &[]);
        eventually("the plan is for the run that is there", || {
            let first = site.queued(1)[0]["commands"][0]["text"].clone();
            (first == format!("hook checkpoint-now run={id}")).then_some(())
        });
    }
    assert_eq!(site.post("tg-1/approve", &json!({ "dry_run": false, "confirm": "host-1" })).0, 204);
    site.becomes("host-1", "needs_human");
    assert!(job.0.wait().unwrap().success());
    assert_eq!(fs::read_to_string(told).unwrap(), "saved\n");
    assert_eq!(site.ran(), ["kubectl cordon host-1"], "{:#?}", site.audit("host-1"));
}

#[test]
fn what_nobody_agrees_to_in_time_is_over() {
    let rule = reset("approve");
    let site = Site::new("real", "\"host-*\"", &format!("[guards]\napproval_expires = \"1s\"\n{rule}"));
    site.fails("host-1");
    eventually("it expires", || {
        site.audit("host-1").iter().any(|line| line.contains("expired: nobody agreed in time")).then_some(())
    });
    let (status, answer) = site.post("tg-1/approve", &json!({ "dry_run": false, "confirm": "host-1" }));
    assert_eq!(status, 409, "{answer}");
    assert!(site.rows("queue", |_| true).is_empty() && site.ran().is_empty());
}
