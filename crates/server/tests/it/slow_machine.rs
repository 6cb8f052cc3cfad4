//! From a slow rank to the command that takes its machine out, by the name that the machine's agent gives it.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use insight::remediation::Ceiling;
use serde_json::{Value, json};
use wire::push::{Attribute, PushRequest};

use crate::fleet_peer::{Agent, Site};
use crate::otlp_peer::post;
use crate::verdicts::{Job, Work, deliver, jitter, now_ns, of_class};

/// Waits for something that the API answers.
fn eventually<T>(what: &str, mut is_it: impl FnMut() -> Option<T>) -> T {
    for _ in 0..600 {
        if let Some(found) = is_it() {
            return found;
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    panic!("{what}: not within a minute");
}

/// A site whose policy takes machines of slow ranks out; what ran is written to `ran`.
fn taking_out(folder: &Path) -> Site {
    let (program, log) = (folder.join("scontrol"), folder.join("ran"));
    fs::write(&log, "").unwrap();
    fs::write(&program, format!("#!/bin/sh\necho \"scontrol $*\" >> '{}'\n", log.display())).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let policy = folder.join("policy.toml");
    let text = format!(
        "name = \"test\"\nrevision = 1\n[[pools]]\nname = \"train\"\nhosts = [\"train-*\"]\n[programs]\nscontrol = \"{}\"\n\
         [[actions]]\nname = \"slow-rank\"\non = \"straggler\"\nmode = \"approve\"\ncommands = [{{ scontrol = \"drain\" }}]\n",
        program.display()
    );
    fs::write(&policy, text).unwrap();
    Site::with(|config| {
        config.remediation.policy_file = Some(policy);
        config.remediation.mode = Ceiling::Real;
        config.remediation.interval = Duration::from_millis(100);
    })
}

/// An agent tells a card, and whose it is where that is known. It calls the machine `train-1` and counts its GPUs from 0.
fn tells(site: &Site, owner: Option<&str>) {
    let agent = Agent::of("train-1");
    let labels = [("gpu", "2"), ("uuid", "GPU-five"), ("gpu_model", "h100-sxm")];
    let boot = [("boot_id", "0123456789abcdef0123456789abcdef")];
    let now = [(now_ns(), 1.0)];
    let mut series =
        vec![agent.series("tg_node_info", &boot, &now), agent.series("tg_gpu_info", &labels, &now)];
    if let Some(owner) = owner {
        let owned = [("gpu", "2"), ("uuid", "GPU-five"), ("run_id", owner)];
        series.push(agent.series("tg_gpu_owner_info", &owned, &now));
    }
    agent.push(site, series, &[]);
}

/// A job whose rank 5 is slow, and says that it has that card; its process sees a pod with one GPU. Gives the verdict.
fn is_slow(site: &Site, job: &mut Job, own: Vec<wire::push::Series>) -> Value {
    let told = [("gpu_uuid", "GPU-five"), ("gpu", "0"), ("host", "pod-5")].map(|(what, value)| Attribute {
        key: format!("parallel/5/{what}"),
        if_absent: false,
        value: Some(wire::push::Value::Text(value.to_owned())),
    });
    let first = PushRequest { attributes: told.to_vec(), ..job.request(0, now_ns(), 1, own) };
    deliver(site, &first);
    let slow = |rank: u32, step: i64| {
        Work::of(jitter(rank, step) * if rank == 5 && step >= 100 { 1.25 } else { 1.0 })
    };
    job.all(site, 0..180, &slow);
    let health = job.health_when(site, &|health| health["state"] == "page");
    of_class(&health, "straggler").clone()
}

fn says(site: &Site, path: &str, body: &Value) -> (u16, Value) {
    let path = format!("/api/tg/v1/remediation/{path}");
    let answer = post(site.address(), &path, "application/json", body.to_string().as_bytes());
    (answer.status, serde_json::from_slice(&answer.body).unwrap_or(Value::Null))
}

#[test]
fn a_machine_that_only_a_run_names_is_taken_out_by_nobody_who_does_not_know_that() {
    let folder = tempfile::tempdir().unwrap();
    let site = taking_out(folder.path());
    // Somebody else has the card, and the run says in a series of its own that it does.
    tells(&site, Some("0123456789abcdef"));
    let mut job = Job::of("elsewhere", 16);
    let labels = [("host", "train-1"), ("gpu", "2"), ("uuid", "GPU-five")]
        .map(|(name, value)| (name.to_owned(), value.to_owned()));
    let sample = model::Sample { time_ns: now_ns(), value: 1.0, step: None };
    let forged = wire::push::Series::new("tg_gpu_owner_info", &labels, "", &[sample]);
    let row = is_slow(&site, &mut job, vec![forged]);
    assert_eq!(row["host"], "train-1");
    let proposal = json!({ "host": "train-1", "uuid": "GPU-five", "verdict": row["id"] });
    let (status, plan) = says(&site, "propose", &proposal);
    assert_eq!(status, 200, "{plan}");
    let why = plan["unconfirmed"].as_str().unwrap();
    assert!(why.starts_with("Only the run says that it is on train-1"), "{why}");
    let guard = plan["guards"].as_array().unwrap().iter().find(|guard| guard["name"] == "presence").unwrap();
    assert_eq!((&guard["ok"], &guard["text"]), (&json!(false), &plan["unconfirmed"]));
    let all = site.get("/api/tg/v1/remediation");
    assert_eq!(all["hosts"], json!([]), "a run's word moves no machine");
    let approve = format!("{}/approve", plan["id"].as_str().unwrap());
    let (status, refusal) = says(&site, &approve, &json!({ "dry_run": false, "confirm": "train-1" }));
    assert_eq!(status, 400, "{refusal}");
    assert!(refusal["error"]["hint"].as_str().unwrap().contains("`train-1 unconfirmed`"), "{refusal}");
    assert_eq!(fs::read_to_string(folder.path().join("ran")).unwrap(), "");
    assert_eq!(says(&site, &approve, &json!({ "dry_run": false, "confirm": plan["confirm"] })).0, 204);
    eventually("it runs", || {
        let ran = fs::read_to_string(folder.path().join("ran")).unwrap();
        ran.contains("nodename=train-1 state=drain").then_some(())
    });
}

#[test]
fn a_slow_rank_in_a_container_has_its_machine_taken_out_by_the_agents_name() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("ran");
    let site = taking_out(folder.path());
    let mut job = Job::of("pods", 16);
    tells(&site, Some(&job.id()));
    let row = is_slow(&site, &mut job, Vec::new());
    assert_eq!(
        (&row["host"], &row["gpu"], &row["uuid"]),
        (&json!("train-1"), &json!("2"), &json!("GPU-five")),
        "{row:#}"
    );
    assert!(row["sentence"].as_str().unwrap().starts_with("train-1, GPU 2"), "{row:#}");
    let series = eventually("the series", || site.query("tg_straggler").pop());
    assert_eq!(series.0["host"], "train-1");
    // Why it is slow nobody knows, so that nothing is recommended; somebody proposes it.
    let proposal =
        json!({ "host": "train-1", "uuid": "GPU-five", "verdict": row["id"], "reason": "seen twice" });
    let proposal = proposal.to_string();
    let path = "/api/tg/v1/remediation/propose";
    let answer = post(site.address(), path, "application/json", proposal.as_bytes());
    assert_eq!(answer.status, 200, "{}", String::from_utf8_lossy(&answer.body));
    let plan = eventually("the plan", || site.get("/api/tg/v1/remediation")["queue"].get(0).cloned());
    assert_eq!((&plan["host"], &plan["verdict"]), (&json!("train-1"), &json!("straggler")));
    assert_eq!((&plan["unconfirmed"], &plan["confirm"]), (&Value::Null, &json!("train-1")));
    assert!((plan["gain_ratio"].as_f64().unwrap() - 0.17).abs() < 0.02, "{plan:#}");
    assert_eq!(plan["affects"][0]["run"], "pods");
    let brief = site.get("/api/tg/v1/remediation?brief=true");
    assert_eq!((&brief["waiting"], &brief["queue"], &brief["mode"]), (&json!(1), &json!([]), &json!("real")));
    // Nothing runs until somebody agrees, and then exactly that.
    assert_eq!(fs::read_to_string(&log).unwrap(), "");
    let id = plan["id"].as_str().unwrap();
    let yes = json!({ "dry_run": false, "confirm": "train-1" }).to_string();
    let path = format!("/api/tg/v1/remediation/{id}/approve");
    assert_eq!(post(site.address(), &path, "application/json", yes.as_bytes()).status, 204);
    let ended = eventually("the machine is out", || {
        let rows = site.get("/api/tg/v1/remediation");
        let rows = rows["hosts"].as_array().unwrap().clone();
        rows.into_iter().find(|row| row["state"] == "needs_human")
    });
    assert_eq!(ended["host"], "train-1");
    let ran = fs::read_to_string(&log).unwrap();
    assert_eq!(ran, format!("scontrol update nodename=train-1 state=drain reason={id}\n"));
    let audit = site.get("/api/tg/v1/remediation/audit?host=train-1");
    let done: Vec<&Value> =
        audit["audit"].as_array().unwrap().iter().filter(|row| row["what"] == "done").collect();
    assert!(done.iter().any(|row| !row["commands"].as_array().unwrap().is_empty()), "{audit:#}");
}
