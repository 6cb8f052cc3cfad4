//! Incidents: folded from events that nodes push, kept over restarts, told as events and series.

use model::{NANOS_PER_SECOND, Severity};
use serde_json::{Value, json};

use crate::fleet_peer::{Agent, Site, lately, with};

const CARD: &str = "GPU-8b1a2c3d-0f11-4d6a-8e22-77aa10ff3b21";
const PLACE: &str = "0000:43:00.0";

fn incidents(site: &Site, query: &str) -> Vec<Value> {
    site.get(&format!("/api/tg/v1/incidents?{query}"))["incidents"].as_array().unwrap().clone()
}

fn only(site: &Site) -> Value {
    let all = incidents(site, "state=all");
    assert_eq!(all.len(), 1, "{all:#?}");
    all[0].clone()
}

fn counts(incident: &Value) -> Vec<(String, u64)> {
    let codes = incident["codes"].as_array().unwrap().iter();
    codes.map(|code| (code["code"].as_str().unwrap().to_owned(), code["count"].as_u64().unwrap())).collect()
}

fn events(site: &Site, query: &str) -> Vec<Value> {
    site.get(&format!("/api/tg/v1/events?{query}"))["events"].as_array().unwrap().clone()
}

/// What was told of incidents, oldest first.
fn told(site: &Site) -> Vec<String> {
    let mut rows = events(site, "kind=incident");
    rows.sort_by_key(|row| row["time"].as_i64());
    rows.iter()
        .map(|row| {
            format!("{} {}", row["body"]["what"].as_str().unwrap(), row["body"]["action"].as_str().unwrap())
        })
        .collect()
}

/// A double-bit error as the kernel's log tells it, within a second.
fn double_bit(agent: &Agent, at: i64) -> Vec<model::Event> {
    let line = |n: i64, body: Value| agent.event(at + n * 100_000_000, "xid", PLACE, &body);
    let xid = |n: i64, xid: u32| line(n, json!({ "xid": xid, "pid": 771, "name": "torchrun", "count": 1 }));
    let card = with(agent.event(at, "inventory", PLACE, &json!({ "what": "named" })), "uuid", CARD);
    vec![xid(0, 48), xid(1, 63), xid(2, 63), xid(3, 63), xid(4, 94), xid(5, 45), card]
}

#[test]
fn a_double_bit_error_in_any_order_is_one_incident_that_a_restart_keeps() {
    let at = lately();
    for turn in [0, 3, 6] {
        let mut site = Site::new();
        let agent = Agent::of("node-031");
        let mut lines = double_bit(&agent, at);
        lines.rotate_left(turn);
        for line in &lines {
            agent.push(&site, Vec::new(), std::slice::from_ref(line));
        }
        let incident = only(&site);
        let want = [("Xid 45", 1), ("Xid 48", 1), ("Xid 63", 3), ("Xid 94", 1)];
        assert_eq!(counts(&incident), want.map(|(code, count)| (code.to_owned(), count)));
        assert_eq!(
            (&incident["action"], &incident["provenance"]),
            (&json!("drain_reset"), &json!("nvidia-catalog"))
        );
        assert_eq!((&incident["uuid"], &incident["pci_bus_id"]), (&json!(CARD), &json!(PLACE)));
        assert_eq!((&incident["remap_pending"], &incident["severity"]), (&json!(true), &json!("critical")));
        assert_eq!(incident["processes"], json!([{ "pid": 771, "name": "torchrun" }]));
        let symptoms: Vec<&Value> =
            incident["codes"].as_array().unwrap().iter().filter(|code| code["part"] == "symptom").collect();
        assert_eq!(symptoms.len(), 1);
        assert_eq!(symptoms[0]["number"], 45);
        // The agent begins anew and brings the same records.
        agent.push(&site, Vec::new(), &lines);
        assert_eq!(only(&site), incident);
        let series = site.query("tg_incident");
        assert_eq!(series.len(), 1, "{series:?}");
        assert_eq!((&series[0].0["action"], series[0].1), (&json!("drain_reset"), 1.0));
        let told_before = told(&site);
        site.restart();
        assert_eq!(only(&site), incident, "turn {turn}");
        agent.push(&site, Vec::new(), &lines);
        assert_eq!(only(&site), incident);
        assert_eq!(told(&site), told_before);
    }
}

fn off_the_bus(agent: &Agent, at: i64) -> [model::Event; 2] {
    [
        agent.event(at, "xid", PLACE, &json!({ "xid": 79, "pid": 4242, "name": "python3" })),
        agent.event(at + 1_000, "gpu_fault", PLACE, &json!({ "fault": "off_the_bus", "vendor": "nvidia" })),
    ]
}

fn verdict(agent: &Agent, at: i64, to: u32) -> model::Event {
    agent.event(at, "xid", PLACE, &json!({ "xid": 154, "recovery": { "from": 0, "to": to } }))
}

#[test]
fn the_drivers_verdict_wins_however_late_it_comes() {
    for late in [2, 30, 600] {
        let mut site = Site::new();
        let agent = Agent::of("node-1");
        let at = lately() - 700 * NANOS_PER_SECOND;
        agent.push(&site, Vec::new(), &off_the_bus(&agent, at));
        let before = only(&site);
        assert_eq!(
            (&before["action"], &before["provenance"]),
            (&json!("reboot_node"), &json!("nvidia-catalog"))
        );
        site.restart();
        agent.push(&site, Vec::new(), &[verdict(&agent, at + late * NANOS_PER_SECOND, 2)]);
        let incident = only(&site);
        assert_eq!(counts(&incident), [("Xid 79".to_owned(), 1)]);
        assert_eq!(
            (&incident["action"], &incident["provenance"]),
            (&json!("reboot_node"), &json!("driver-154"))
        );
        assert_eq!(incident["conflicts"], json!([]));
        assert_eq!((&incident["id"], incident["evidence"].as_array().unwrap().len()), (&before["id"], 3));
    }
}

#[test]
fn where_the_driver_asks_for_nothing_the_catalogue_counts_and_the_conflict_is_kept() {
    let site = Site::new();
    let agent = Agent::of("node-1");
    let at = lately();
    agent.push(&site, Vec::new(), &off_the_bus(&agent, at));
    agent.push(&site, Vec::new(), &[verdict(&agent, at + 2 * NANOS_PER_SECOND, 0)]);
    let incident = only(&site);
    assert_eq!(
        (&incident["action"], &incident["provenance"]),
        (&json!("reboot_node"), &json!("nvidia-catalog"))
    );
    assert_eq!(incident["conflicts"], json!(["the driver says `none`, the catalogue `reboot_node`"]));
    assert_eq!((&incident["confidence"], &incident["state"]), (&json!("medium"), &json!("open")));
}

#[test]
fn a_boot_ends_what_a_boot_makes_good_and_the_series_ends_with_it() {
    let mut site = Site::new();
    let agent = Agent::of("node-1");
    let at = lately();
    agent.push(&site, Vec::new(), &off_the_bus(&agent, at));
    assert_eq!(site.query("tg_incident{action=\"reboot_node\"}").len(), 1);
    let first = json!({ "what": "boot", "boot_id": "b" });
    agent.push(&site, Vec::new(), &[agent.event(at + NANOS_PER_SECOND, "node", "", &first)]);
    assert_eq!(only(&site)["state"], "open", "the first boot that is known may be no new one");
    let boot = json!({ "what": "boot", "boot_id": "c", "previous_boot_id": "b" });
    agent.push(&site, Vec::new(), &[agent.event(at + 5 * NANOS_PER_SECOND, "node", "", &boot)]);
    let cleared = only(&site);
    assert_eq!(
        (&cleared["state"], &cleared["cleared"]["time"]),
        (&json!("cleared"), &json!((at / 1_000_000) + 5_000))
    );
    assert_eq!(incidents(&site, "state=open"), Vec::<Value>::new());
    assert_eq!(site.query("tg_incident"), []);
    assert_eq!(told(&site), ["opened reboot_node", "cleared reboot_node"]);
    site.restart();
    assert_eq!(only(&site), cleared);
    assert_eq!(told(&site), ["opened reboot_node", "cleared reboot_node"]);
}

#[test]
fn what_a_process_wrote_is_shown_marked_and_changes_nothing() {
    let site = Site::new();
    let agent = Agent::of("node-1");
    let at = lately();
    let forged = with(agent.xid(at, PLACE, 79), "source", "userspace");
    agent.push(&site, Vec::new(), &[forged]);
    assert_eq!(incidents(&site, "state=all"), Vec::<Value>::new());
    assert_eq!(site.query("tg_incident"), []);
    assert_eq!(events(&site, "kind=xid")[0]["labels"]["source"], "userspace");
    agent.push(&site, Vec::new(), &[agent.xid(at + 1, PLACE, 31)]);
    let incident = only(&site);
    assert_eq!(
        (&incident["action"], incident["codes"].as_array().unwrap().len()),
        (&json!("restart_app"), 1)
    );
    let marked: Vec<&Value> =
        incident["evidence"].as_array().unwrap().iter().map(|line| &line["userspace"]).collect();
    assert_eq!(marked, [true, false]);
}

/// The kernel lines of the specification that need no other, each with what is to be made of it.
#[test]
fn lines_of_every_sort_come_to_what_the_catalogue_says() {
    let site = Site::new();
    let at = lately();
    let xid = |xid: u32, more: Value| {
        let mut body = json!({ "xid": xid, "count": 1 });
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        ("xid", body)
    };
    let link = json!({ "nvlink5": { "unit": "NETIR_LINK_EVT", "fatal": true, "link": 1, "words": [0x0214_25c6_u32, 0] } });
    let new_link = {
        let mut link = link.clone();
        link["driver"] = "580.10".into();
        link
    };
    let remap = json!({ "pid": 12, "name": "a, b: c", "nvlink5": { "unit": "RLW_REMAP", "fatal": false, "words": [4, 2] } });
    let nvlink4 = json!({ "nvlink4": { "link": 6, "registers": [0x10000, 0, 0, 0, 0, 0, 0] } });
    let table: Vec<(&str, Value, &str, &str)> = vec![
        ("08", xid(31, json!({ "gi": 5, "pid": 991, "name": "vllm" })).1, "restart_app", "high"),
        ("09", xid(13, json!({ "gi": 5, "ci": 0 })).1, "restart_app", "high"),
        ("10", xid(43, json!({})).1, "none", "high"),
        ("11", xid(79, json!({})).1, "reboot_node", "high"),
        ("12", xid(119, json!({ "pid": 36055 })).1, "reset_gpu", "high"),
        ("13", xid(149, link).1, "reset_gpu", "high"),
        ("13 by a newer driver", xid(149, new_link).1, "inspect", "low"),
        ("14", xid(145, remap).1, "restart_app", "high"),
        ("15", xid(95, json!({})).1, "reset_gpu", "high"),
        ("19", xid(74, nvlink4).1, "inspect", "high"),
        ("unknown", xid(9_999, json!({})).1, "inspect", "low"),
    ];
    for (at_line, (line, body, action, confidence)) in table.into_iter().enumerate() {
        let agent = Agent::of(&format!("node-{at_line}"));
        agent.push(&site, Vec::new(), &[agent.event(at, "xid", PLACE, &body)]);
        let found = &incidents(&site, &format!("host={}", agent.host))[0];
        assert_eq!(
            (&found["action"], &found["confidence"]),
            (&json!(action), &json!(confidence)),
            "line {line}"
        );
        if let Some(gi) = body["gi"].as_u64() {
            assert_eq!(found["slices"], json!([gi.to_string()]), "line {line}");
        }
    }
    let others = [
        ("16", "sxid", json!({ "sxid": 12028, "switch": 3, "fatal": false, "link": 32 }), "restart_vm"),
        ("17", "sxid", json!({ "sxid": 20034, "switch": 0, "fatal": true, "link": 30 }), "reset_gpu"),
        (
            "20",
            "gpu_fault",
            json!({ "fault": "ring_timeout", "ring": "sdma0", "vendor": "amd" }),
            "restart_app",
        ),
    ];
    for (line, kind, body, action) in others {
        let agent = Agent::of(&format!("other-{line}"));
        agent.push(&site, Vec::new(), &[agent.event(at, kind, "0000:c3:00.0", &body)]);
        let found = incidents(&site, &format!("host={}", agent.host));
        assert_eq!((found.len(), &found[0]["action"]), (1, &json!(action)), "line {line}");
    }
}

#[test]
fn a_reset_that_worked_ends_what_a_reset_makes_good() {
    let site = Site::new();
    let agent = Agent::of("node-1");
    let at = lately();
    let fault = |n: i64, name: &str| {
        agent.event(at + n, "gpu_fault", PLACE, &json!({ "fault": name, "vendor": "amd" }))
    };
    agent.push(&site, Vec::new(), &[fault(0, "uncorrectable"), fault(1, "detail"), fault(2, "reset_begins")]);
    assert_eq!(only(&site)["action"], "reset_gpu");
    agent.push(&site, Vec::new(), &[fault(3, "reset_succeeded")]);
    assert_eq!(only(&site)["state"], "cleared");
}

#[test]
fn the_drivers_library_speaks_when_its_word_changes() {
    let site = Site::new();
    let agent = Agent::of("node-1");
    let at = lately();
    let word = |n: i64, body: Value| {
        with(agent.event(at + n * NANOS_PER_SECOND, "recovery", PLACE, &body), "uuid", CARD)
    };
    agent.push(&site, Vec::new(), &[word(0, json!({ "to": 0 }))]);
    assert_eq!(incidents(&site, "state=all"), Vec::<Value>::new());
    agent.push(&site, Vec::new(), &[word(1, json!({ "from": 0, "to": 4, "words": "drain and reset" }))]);
    let incident = only(&site);
    assert_eq!(
        (&incident["action"], &incident["provenance"]),
        (&json!("drain_reset"), &json!("nvml-recovery"))
    );
    agent.push(&site, Vec::new(), &[word(2, json!({ "from": 4, "to": 0 }))]);
    assert_eq!(only(&site)["cleared"]["by"], "the driver asks for nothing more");
}

#[test]
fn quiet_ends_what_asks_for_a_restart_only() {
    let site = Site::new();
    let agent = Agent::of("node-1");
    let at = lately() - 1_000 * NANOS_PER_SECOND;
    agent.push(&site, Vec::new(), &[agent.xid(at, PLACE, 31)]);
    let incident = only(&site);
    assert_eq!((&incident["state"], &incident["cleared"]["by"]), (&json!("cleared"), &json!("quiet since")));
    assert_eq!(incident["cleared"]["time"], json!(at / 1_000_000 + 600_000));
}

#[test]
fn the_same_fault_on_three_hosts_has_one_cause() {
    let site = Site::new();
    let at = lately();
    for n in 0..4 {
        let agent = Agent::of(&format!("node-{n}"));
        let at = at + n * NANOS_PER_SECOND;
        agent.push(&site, Vec::new(), &[agent.xid(at, PLACE, 79)]);
    }
    let answer = site.get("/api/tg/v1/incidents");
    let common = &answer["common"][0];
    assert_eq!(common["hosts"].as_array().unwrap().len(), 4);
    assert!(
        common["sentence"].as_str().unwrap().starts_with("Xid 79 on 4 GPUs of 4 hosts within a minute:"),
        "{common}"
    );
    for incident in answer["incidents"].as_array().unwrap() {
        assert_eq!(incident["common"], common["id"]);
        assert!(common["incidents"].as_array().unwrap().contains(&incident["id"]));
    }
}

#[test]
fn hostile_names_and_bodies_stay_text() {
    let site = Site::new();
    let agent = Agent::of("node \"<b>\u{202e}&");
    let at = lately();
    let name = "a, b: c\"<script>alert(1)</script>\u{0}";
    let mut line =
        agent.event(at, "xid", PLACE, &json!({ "xid": 79, "pid": 4_294_967_295_u64, "name": name }));
    line.text = "NVRM: Xid <img src=x onerror=alert(1)>".into();
    let strange = [
        json!({ "xid": -1 }),
        json!({ "xid": 18_446_744_073_709_551_615_u64 }),
        json!({ "xid": "79" }),
        json!({ "xid": 79, "count": -5, "pid": "x", "nvlink5": [], "recovery": 7 }),
        json!({ "xid": 149, "nvlink5": { "words": "no" } }),
    ];
    let strange = strange.map(|body| agent.event(at + 1, "xid", "not a place", &body));
    agent.push(&site, Vec::new(), &[line.clone()]);
    agent.push(&site, Vec::new(), &strange);
    let all = incidents(&site, "state=all");
    let found = all.iter().find(|row| row["pci_bus_id"] == PLACE).unwrap();
    assert_eq!(found["processes"], json!([{ "pid": 4_294_967_295_u64, "name": name }]));
    assert_eq!(found["evidence"][0]["text"], line.text);
    assert_eq!((&found["host"], found["codes"].as_array().unwrap().len()), (&json!(agent.host), 1));
    // A node that says it is another is not believed.
    let other = with(Agent::of("victim").xid(at, PLACE, 79), "host", "victim");
    let answer = agent.push(&site, Vec::new(), &[other]);
    assert_eq!(answer.refused[0].reason, "other_host");
    assert_eq!(incidents(&site, "state=all&host=victim"), Vec::<Value>::new());
}

#[test]
fn events_are_paged_and_filtered_newest_first() {
    let site = Site::new();
    let agent = Agent::of("node-1");
    let at = lately();
    let mut all: Vec<model::Event> =
        (0..25).map(|n| agent.event(at + n / 5, "node", "", &json!({ "what": "log_gap", "n": n }))).collect();
    all[7].severity = Severity::Critical;
    agent.push(&site, Vec::new(), &all);
    let mut seen = Vec::new();
    let mut cursor = String::new();
    loop {
        let page = site.get(&format!("/api/tg/v1/events?kind=node&limit=7&cursor={cursor}"));
        let rows = page["events"].as_array().unwrap();
        assert!(rows.len() <= 7);
        seen.extend(rows.iter().map(|row| row["key"].as_str().unwrap().to_owned()));
        match page["next"].as_str() {
            Some(next) => next.clone_into(&mut cursor),
            None => break,
        }
    }
    let mut want: Vec<String> = all.iter().map(|event| event.key.clone()).collect();
    assert_eq!(seen.len(), 25);
    seen.sort();
    want.sort();
    assert_eq!(seen, want);
    assert_eq!(events(&site, "severity=critical").len(), 1);
    assert_eq!(events(&site, "host=other").len(), 0);
    let rows = events(&site, "limit=10000");
    assert!(rows.is_sorted_by(|a, b| a["time_ns"].as_str() >= b["time_ns"].as_str()));
    assert_eq!(events(&site, &format!("from={}", at / 1_000_000 + 1)).len(), 0);
}

#[test]
fn wrong_questions_are_told_what_is_possible() {
    let site = Site::new();
    for (path, words) in [
        ("/api/tg/v1/events?kind=xidd", "kinds are `alert`"),
        ("/api/tg/v1/events?severity=bad", "use `info`, `warning` or `critical`"),
        ("/api/tg/v1/events?limit=0", "1 to 10000 are possible"),
        ("/api/tg/v1/events?cursor=x", "`cursor` is not one"),
        ("/api/tg/v1/incidents?state=closed", "use `open` or `all`"),
    ] {
        let answer = crate::otlp_peer::send(site.address(), "GET", path, &[], b"");
        let text = String::from_utf8_lossy(&answer.body).into_owned();
        assert!(answer.status == 400 && text.contains(words), "{path}: {} {text}", answer.status);
    }
}

#[test]
fn what_only_people_can_judge_is_closed_by_people_for_good() {
    let mut site = Site::new();
    let agent = Agent::of("node-1");
    let at = lately();
    agent.push(&site, Vec::new(), &[agent.xid(at, PLACE, 9_999), agent.xid(at, "0000:44:00.0", 9_999)]);
    let open = incidents(&site, &format!("host={}", agent.host));
    let id = open.iter().find(|row| row["pci_bus_id"] == PLACE).unwrap()["id"].as_str().unwrap().to_owned();
    let close = |site: &Site, id: &str| {
        let body = json!({ "id": id, "by": "ada\u{7}" }).to_string();
        let json = [("content-type", "application/json")];
        crate::otlp_peer::send(site.address(), "POST", "/api/tg/v1/incidents/close", &json, body.as_bytes())
            .status
    };
    assert_eq!(close(&site, "no such"), 404);
    assert_eq!(close(&site, &id), 204);
    let check = |site: &Site| {
        let left = incidents(site, "state=open");
        assert_eq!((left.len(), &left[0]["pci_bus_id"]), (1, &json!("0000:44:00.0")));
        let all = incidents(site, "state=all");
        let closed = all.iter().find(|row| row["id"] == json!(id)).unwrap();
        assert_eq!(closed["cleared"]["by"], "closed by ada");
        assert_eq!(site.query("tg_incident").len(), 1);
    };
    check(&site);
    assert_eq!(close(&site, &id), 404);
    site.restart();
    check(&site);
    // An agent may not say so.
    let body = json!({ "what": "closed", "id": "x" });
    let answer = agent.push(&site, Vec::new(), &[agent.event(at, "incident", "0000:44:00.0", &body)]);
    assert_eq!(answer.refused[0].reason, "event");
    check(&site);
}

#[test]
fn a_node_whose_clock_is_ahead_has_incidents_that_can_end() {
    let site = Site::new();
    let agent = Agent::of("node-1");
    let far = 4_000_000_000 * NANOS_PER_SECOND;
    agent.push(&site, Vec::new(), &[agent.xid(far, PLACE, 79)]);
    let incident = only(&site);
    assert_eq!(incident["action"], "reboot_node");
    assert!(incident["first"].as_i64().unwrap() < far / 1_000_000);
    assert_eq!(events(&site, "kind=xid")[0]["labels"]["told_ns"], far.to_string());
    let boot = json!({ "what": "boot", "boot_id": "b", "previous_boot_id": "a" });
    agent.push(&site, Vec::new(), &[agent.event(far + 1, "node", "", &boot)]);
    assert_eq!(only(&site)["state"], "cleared");
}

#[test]
fn a_node_that_says_very_much_holds_nobody_up() {
    let site = Site::new();
    let (quiet, loud) = (Agent::of("node-1"), Agent::of("node-2"));
    let at = lately();
    quiet.push(&site, Vec::new(), &[quiet.xid(at, PLACE, 79)]);
    let card = |n: i64| loud.xid(at + n, &format!("0000:{:02x}:{:02x}.0", n / 32, n % 32), 79);
    let lines: Vec<model::Event> = (0..2_000).map(card).collect();
    loud.push(&site, Vec::new(), &lines);
    assert_eq!(incidents(&site, "host=node-1").len(), 1, "the other node's incident is kept");
    let answer = site.get("/api/tg/v1/incidents?host=node-2");
    assert!((64..1_000).contains(&answer["incidents"].as_array().unwrap().len()));
    assert!(answer["dropped"].as_u64().unwrap() > 1_000);
}
