//! Remediation where things go wrong: commands that fail, machines that are not well after them, crashes, a full disk,
//! and words of those who may not say them.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpListener;

use serde_json::{Value, json};
use wire::push::{Series, Session};

use crate::durability::{as_seen, on_small_disk};
use crate::process::{Server, each_connection, eventually, id, request};
use crate::remediation::{Site, now_ns, of_node, prepare};

/// Budgets and breakers that keep nothing back.
const OPEN: &str = "[guards]\nbreaker_ratio = 1.0\nbudget_ratio = 1.0\nbudget_min = 9\ncooldown = \"0s\"\n";

/// An action for a pool of its own, of one machine at a time.
fn pool_of(name: &str, command: &str) -> String {
    format!(
        "[[pools]]\nname = \"{name}\"\nhosts = [\"{name}-*\"]\nguards = {{ breaker_ratio = 1.0 }}\n\
         [[actions]]\nname = \"out-{name}\"\non = \"reset_gpu\"\nmode = \"auto\"\npools = [\"{name}\"]\n\
         commands = [\n  {{ kubectl = \"drain\" }},\n  {command},\n]\nvalidate = {{ quiet = \"1s\", limit = \"20s\" }}\n\
         after = [{{ scontrol = \"resume\" }}]\n"
    )
}

#[test]
fn what_fails_is_not_tried_again_holds_its_budget_and_needs_a_human() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/out", listener.local_addr().unwrap());
    each_connection(listener, |mut stream| {
        let mut part = [0_u8; 4096];
        stream.read(&mut part).ok().filter(|count| *count > 0)?;
        stream.write_all(b"HTTP/1.1 500 No\r\ncontent-length: 6\r\nconnection: close\r\n\r\nbroken").ok()?;
        None
    });
    let reset =
        |limit: &str| format!("{{ exec = \"reset-gpu\", args = [\"{{host}}\"], does = \"reset\"{limit} }}");
    let cases = [
        ("exit", reset(""), "exit status: 3 no such card"),
        ("hang", reset(", limit = \"1s\""), "it did not end within 1 s and was killed"),
        ("gone", "{ exec = \"gone\", args = [\"{host}\"] }".to_owned(), "cannot start"),
        ("hook", format!("{{ webhook = \"{url}\" }}"), "it answered 500 broken"),
    ];
    let actions: Vec<String> = cases.iter().map(|(name, command, _)| pool_of(name, command)).collect();
    let site = Site::new("real", "\"host-*\"", &actions.concat());
    for (name, _, why) in &cases {
        let [first, second] = [1, 2].map(|n| format!("{name}-{n}"));
        site.fails(&first);
        let row = site.becomes(&first, "needs_human");
        assert!(row["reason"].as_str().unwrap().contains(why), "{why}: {row}");
        // The next of the pool waits, as the first is out; that it was looked at shows that the first was not tried again.
        site.fails(&second);
        let held = eventually("the budget holds it", || {
            site.rows("queue", |plan| plan["host"] == second.as_str()).pop()
        });
        let guard =
            held["guards"].as_array().unwrap().iter().find(|guard| guard["name"] == "budget").unwrap();
        assert_eq!((&guard["ok"], &guard["text"]), (&json!(false), &json!("Nodes in remediation 1 of 1")));
        let of_first: Vec<String> = site.ran().into_iter().filter(|line| line.contains(&first)).collect();
        let tries = of_first.iter().filter(|line| line.starts_with("reset-gpu")).count();
        assert_eq!(tries, usize::from(matches!(*name, "exit" | "hang")), "{of_first:?}");
        assert_eq!(of_first[0], format!("kubectl drain {first} --ignore-daemonsets"));
        assert!(
            of_first.iter().all(|line| !line.starts_with("scontrol")),
            "what comes after runs: {of_first:?}"
        );
        let audit = site.audit(&first);
        assert!(audit.last().unwrap().contains(">needs_human policy: failed after"), "{audit:#?}");
        assert_eq!(site.server.cli(&["remediation", "healthy", &first, "--reason", "looked at"]).0, 0);
        site.becomes(&second, "needs_human");
        // Three machines with the same fault at once would have one cause.
        assert_eq!(site.server.cli(&["remediation", "healthy", &second]).0, 0);
    }
    // That it is well again ends no cooldown: what comes next waits for that.
    let mut next = crate::remediation::fault("exit-1", "kernel");
    next.time_ns = now_ns();
    site.push("exit-1", &[next]);
    let waits = eventually("it cools down", || site.rows("queue", |plan| plan["host"] == "exit-1").pop());
    let cools = waits["guards"].as_array().unwrap().iter().find(|guard| guard["name"] == "cooldown").unwrap();
    assert!(cools["text"].as_str().unwrap().starts_with("Cools down for"), "{cools}");
    // What a program that was killed had started is gone, too.
    let left = fs::read_dir("/proc").unwrap().filter_map(|entry| {
        let path = entry.ok()?.path();
        let line = fs::read_to_string(path.join("cmdline")).ok()?;
        line.contains(&site.folder.path().join("reset-gpu").display().to_string()).then_some(line)
    });
    assert_eq!(left.collect::<Vec<String>>(), Vec::<String>::new());
}

/// Validates by a probe, and brings back.
fn probed() -> String {
    format!(
        "{OPEN}[[actions]]\nname = \"reset\"\non = \"reset_gpu\"\nmode = \"auto\"\ncommands = [\n  {{ kubectl = \"cordon\" }},\n  \
         {{ exec = \"reset-gpu\", args = [\"{{host}}\"], does = \"reset\" }},\n]\n\
         validate = {{ quiet = \"1s\", limit = \"20s\", probe = {{ exec = \"probe\", args = [\"{{host}}\"] }} }}\n\
         after = [{{ kubectl = \"uncordon\" }}]\n"
    )
}

fn of<'r>(ran: &'r [String], host: &str) -> Vec<&'r str> {
    ran.iter().filter(|line| line.ends_with(host)).map(String::as_str).collect()
}

#[test]
fn a_machine_comes_back_by_its_probe_and_a_kill_in_the_middle_of_it_runs_no_reset_again() {
    let mut site = Site::new("real", "\"host-*\"", &probed());
    let speed = site.folder.path().join("speed");
    let held = site.folder.path().join("hold-probe");
    fs::write(&speed, "100").unwrap();
    fs::write(&held, "").unwrap();
    site.fails("host-1");
    site.becomes("host-1", "validating");
    site.push("host-1", &[]);
    let is_probed = |site: &Site, host: &str| site.ran().iter().any(|line| *line == format!("probe {host}"));
    eventually("the probe runs", || is_probed(&site, "host-1").then_some(()));
    // On paper before it ran.
    assert!(site.audit("host-1").iter().any(|line| line.contains("runs: exec probe host-1")));
    site.server.kill();
    fs::remove_file(&held).unwrap();
    site.server.restart();
    site.push("host-1", &[]);
    site.becomes("host-1", "healthy");
    let lines = ["kubectl cordon", "reset-gpu", "probe", "probe", "kubectl uncordon"];
    assert_eq!(of(&site.ran(), "host-1"), lines.map(|line| format!("{line} host-1")));
    eventually("its incident is over", || {
        let open = site.server.get("/api/tg/v1/incidents");
        open["incidents"].as_array().unwrap().is_empty().then_some(())
    });
    let ends = |host: &str, state: &str| {
        site.fails(host);
        site.becomes(host, "validating");
        site.push(host, &[]);
        site.becomes(host, state)
    };
    ends("host-2", "healthy");
    ends("host-3", "healthy");
    // Three are known: slower than nine tenths of their median is not well, and it stays out.
    fs::write(&speed, "89").unwrap();
    let row = ends("host-4", "needs_human");
    assert_eq!(row["reason"], "the probe gave 89, below 90 % of the pool's median 100");
    fs::write(&speed, "91").unwrap();
    ends("host-5", "healthy");
    fs::write(site.folder.path().join("broken"), "").unwrap();
    let row = ends("host-6", "needs_human");
    assert_eq!(row["reason"], "the probe failed: exit status: 4 no token came");
    for host in ["host-4", "host-6"] {
        let lines = ["kubectl cordon", "reset-gpu", "probe"].map(|line| format!("{line} {host}"));
        assert_eq!(of(&site.ran(), host), lines);
    }
    // Three machines with the same fault at once would have one cause.
    for host in ["host-4", "host-6"] {
        assert_eq!(site.server.cli(&["remediation", "healthy", host]).0, 0);
    }
    // A fault of the card after its reset, before anybody could probe it.
    fs::remove_file(site.folder.path().join("broken")).unwrap();
    site.fails("host-7");
    site.becomes("host-7", "validating");
    let mut again = crate::remediation::fault("host-7", "kernel");
    again.time_ns = now_ns();
    site.push("host-7", &[again]);
    let row = site.becomes("host-7", "needs_human");
    assert!(row["reason"].as_str().unwrap().starts_with("not well after the action: a new fault"), "{row}");
    assert!(!is_probed(&site, "host-7"));
}

/// A run that lives, with its card on a machine.
fn lives(site: &Site, name: &str, host: &str) -> String {
    let begins =
        Session { time_ms: now_ns() / 1_000_000, event: 1, host: host.into(), pid: 7, ..Session::default() };
    let mut sent = request(name, 1, 1, Vec::new());
    sent.session = Some(begins);
    assert_eq!(site.server.push(&sent).0, 200);
    id(name)
}

#[test]
fn an_attempt_that_an_action_ended_is_marked_once_through_a_kill_in_the_middle() {
    let actions = "[[actions]]\nname = \"reset\"\non = \"reset_gpu\"\nmode = \"auto\"\ncommands = [\n  \
         { exec = \"reset-gpu\", args = [\"{host}\"], does = \"reset\" },\n]\nvalidate = { quiet = \"1s\", limit = \"20s\" }\n";
    let mut site = Site::new("real", "\"host-*\"", actions);
    let run_id = lives(&site, "job", "host-1");
    site.hold(true);
    site.push_with("host-1", Some(&run_id), &[crate::remediation::fault("host-1", "kernel")]);
    eventually("the reset runs", || (site.resets().len() == 1).then_some(()));
    let attempt =
        |site: &Site| site.server.get(&format!("/api/tg/v1/runs/{run_id}"))["attempts_list"][0].clone();
    assert_eq!(attempt(&site)["failed"], Value::Null, "{}", attempt(&site));
    site.server.kill();
    site.hold(false);
    site.server.restart();
    let why = eventually("the attempt is marked", || attempt(&site)["failed"].as_str().map(str::to_owned));
    assert!(why.starts_with("tg-1 took host-1 out: Xid 95"), "{why}");
    site.becomes("host-1", "validating");
    site.push_with("host-1", Some(&run_id), &[]);
    site.becomes("host-1", "healthy");
    let events = site.server.get(&format!("/api/tg/v1/events?run_id={run_id}&kind=run"));
    let marks =
        events["events"].as_array().unwrap().iter().filter(|event| event["body"]["what"] == "attempt_failed");
    assert_eq!((marks.count(), site.resets().len()), (1, 1), "{events}");
}

#[test]
fn on_a_full_disk_nothing_runs_that_is_not_written_down() {
    let actions = "[[actions]]\nname = \"out\"\non = \"reset_gpu\"\nmode = \"auto\"\ncommands = [\n  \
         { exec = \"reset-gpu\", args = [\"{host}\"] },\n  { kubectl = \"cordon\" },\n]\n";
    let (folder, home) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let config = prepare(folder.path(), "real", "\"host-*\"", actions);
    let Some(server) = on_small_disk(home.path(), "64MiB", &["--config", &config]) else {
        println!("not checked: nothing can be mounted here");
        return;
    };
    let site = Site { folder, server };
    site.hold(true);
    site.fails("host-1");
    eventually("the first command runs", || (site.resets().len() == 1).then_some(()));
    site.fails("host-2");
    let waits = site.queued(1)[0]["id"].as_str().unwrap().to_owned();
    let fill = as_seen(&site.server, home.path()).join("fill");
    let file = fs::File::create(&fill).unwrap();
    rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, 120 << 20).unwrap();
    let sent = || request("full", 9, now_ns() as u64, vec![Series::new("loss", &[], "", &[])]);
    eventually("the disk is full", || {
        let page = site.server.ask("GET", "/readyz", &[], b"");
        let _ = site.server.push(&sent());
        (page.status == 503).then_some(())
    });
    site.hold(false);
    let log = || fs::read_to_string(home.path().join("log")).unwrap();
    let refused = || log().matches("is not stored yet").count();
    eventually("it is tried again and again", || (refused() >= 5).then_some(()));
    assert_eq!(site.ran(), ["reset-gpu host-1"]);
    let (status, answer) = site.post(&format!("{waits}/reject"), &json!({ "reason": "no" }));
    assert_eq!(status, 503, "{answer}");
    drop(file);
    fs::remove_file(&fill).unwrap();
    site.becomes("host-1", "needs_human");
    assert_eq!(site.ran(), ["reset-gpu host-1", "kubectl cordon host-1"]);
    let audit = site.audit("host-1");
    let count = |text: &str| audit.iter().filter(|line| line.contains(text)).count();
    assert_eq!((count("runs: exec"), count("done in"), count("runs: kubectl")), (1, 2, 1), "{audit:#?}");
    // What could not be said was not said.
    assert_eq!(site.queued(1)[0]["status"], "queued");
    assert_eq!(site.post(&format!("{waits}/reject"), &json!({ "reason": "no" })).0, 204);
}

#[test]
fn what_a_run_says_of_a_machine_is_nothing_that_is_acted_on() {
    let actions = "[[actions]]\nname = \"boot\"\non = \"reboot_node\"\nmode = \"auto\"\ncommands = [{ kubectl = \"cordon\" }]\n\
         [[actions]]\nname = \"reset\"\non = \"reset_gpu\"\nmode = \"auto\"\ncommands = [{ kubectl = \"cordon\" }]\n";
    let site = Site::new("real", "\"*\"", actions);
    let labels = [("host", "host-1"), ("gpu", "1"), ("uuid", "GPU-host-1")]
        .map(|(name, value)| (name.to_owned(), value.to_owned()));
    let sample = |value| model::Sample { time_ns: now_ns(), value, step: None };
    let says = |name: &str, value| Series::new(name, &labels, "", &[sample(value)]);
    let forged = vec![says("tg_gpu_recovery_action", 2.0), says("tg_gpu_row_remap_pending", 1.0)];
    assert_eq!(site.server.push(&request("liar", 1, 1, forged)).0, 200);
    // The same by the machine's exporter, as a proof that it would be acted on.
    let told = [("host", "host-2"), ("gpu", "1"), ("uuid", "GPU-host-2")];
    site.tells("host-2", &[("tg_gpu_row_remap_pending", &told, 1.0)]);
    eventually("what the machine says is seen", || {
        let events = site.server.get("/api/tg/v1/events?kind=ecc");
        let events = events["events"].as_array().unwrap().clone();
        assert!(events.iter().all(|event| event["labels"]["host"] != "host-1"), "{events:?}");
        (!events.is_empty()).then_some(())
    });
    assert!(site.rows("hosts", |row| row["host"] == "host-1").is_empty());
    assert!(site.ran().iter().all(|line| !line.contains("host-1")));
}

#[test]
fn who_may_send_runs_may_not_speak_for_a_machine() {
    let server = Server::start(&["--token", "root"]);
    let token = |scope: &str| {
        let made = server.cli(&["token", "create", "--scope", scope, "--token", "root"]);
        assert_eq!(made.0, 0, "{}", made.2);
        format!("Bearer {}", made.1.trim())
    };
    let push = |token: &str, body: &wire::push::PushRequest| {
        let body = wire::push::encode(body).unwrap();
        server.push_bytes(&body, &[("content-encoding", "zstd"), ("authorization", token)])
    };
    let (ingest, agent) = (token("ingest"), token("agent"));
    let forged = of_node("host-1", Vec::new(), &[crate::remediation::fault("host-1", "kernel")]);
    let refused = push(&ingest, &forged);
    assert_eq!(refused.status, 403);
    assert!(refused.json()["error"]["message"].as_str().unwrap().contains("`agent`"), "{}", refused.json());
    assert_eq!(push(&ingest, &request("job", 1, 1, Vec::new())).status, 200);
    assert_eq!(push(&agent, &forged).status, 200);
}

#[test]
fn the_audit_is_read_in_pages_and_every_verb_says_how_it_is_used() {
    let site = Site::new("dry_run", "\"host-*\"", &crate::remediation::reset("approve"));
    for n in 1..=4 {
        site.fails(&format!("host-{n}"));
    }
    site.queued(4);
    let cli = |args: &[&str]| {
        let (code, said, error) = site.server.cli(&[&["remediation"], args].concat());
        assert_eq!(code, 0, "{args:?}: {said}{error}");
        (said, error)
    };
    let json = |args: &[&str]| -> Value { serde_json::from_str(&cli(args).0).unwrap() };
    let all = json(&["audit", "--json"]);
    assert_eq!((all["audit"].as_array().unwrap().len(), &all["next"]), (8, &Value::Null), "{all}");
    let mut pages: Vec<Value> = Vec::new();
    let mut cursor = Value::Null;
    loop {
        let at = cursor.as_str().map(|at| vec!["--cursor", at]).unwrap_or_default();
        let page = json(&[&["audit", "--json", "--limit", "3"], at.as_slice()].concat());
        pages.extend(page["audit"].as_array().unwrap().iter().cloned());
        if page["next"].is_null() {
            break;
        }
        cursor = page["next"].clone();
    }
    assert_eq!(Value::from(pages), all["audit"]);
    let (said, error) = cli(&["audit", "--host", "host-2", "--limit", "1"]);
    assert!(said.contains("host-2") && !said.contains("host-3") && said.lines().count() == 2, "{said}");
    assert!(error.contains("--cursor"), "{error}");
    assert!(cli(&["show", "tg-1"]).0.contains("no run that lives has the machine"));
    cli(&["approve", "tg-1"]);
    cli(&["reject", "tg-1", "--reason", "replaced"]);
    let first = &json(&["audit", "--json", "--limit", "1"])["audit"][0];
    assert_eq!((&first["text"], &first["id"]), (&json!("rejected: replaced"), &json!("tg-1")));
    let (code, _, why) = site.server.cli(&["remediation", "approve", "tg-2", "--real", "host-9"]);
    assert!(code != 0 && why.contains("this is about host-2"), "{why}");
    for verb in ["ls", "show", "audit", "propose", "approve", "reject", "healthy", "replay", "check"] {
        assert!(cli(&[verb, "--help"]).0.contains("Examples:"), "{verb}");
    }
}
