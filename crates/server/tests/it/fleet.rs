//! The fleet's nodes and cards, as agents and exporters tell of them.

use model::{NANOS_PER_SECOND, Sample, stale_marker};
use serde_json::{Value, json};
use wire::push::Series;

use crate::fleet_peer::{Agent, Site, escaped, lately, with};

const SECOND: i64 = NANOS_PER_SECOND;
const RUN: &str = "00112233445566aa";

/// A card of a node.
#[derive(Clone, Copy)]
struct Card<'a> {
    gpu: &'a str,
    uuid: &'a str,
}

const CARDS: [Card<'static>; 4] = [
    Card { gpu: "0", uuid: "GPU-a" },
    Card { gpu: "1", uuid: "GPU-b" },
    Card { gpu: "2", uuid: "GPU-c" },
    Card { gpu: "3", uuid: "GPU-d" },
];

/// Ten minutes up to a time, a look each ten seconds.
fn looks(until: i64) -> Vec<i64> {
    (0..60).rev().map(|n| until - n * 10 * SECOND).collect()
}

/// A series of a card that is the same at every look.
fn steady(
    agent: &Agent,
    card: Card<'_>,
    name: &str,
    more: &[(&str, &str)],
    (until, value): (i64, f64),
) -> Series {
    let labels = [&[("gpu", card.gpu), ("uuid", card.uuid)], more].concat();
    let at: Vec<(i64, f64)> = looks(until).into_iter().map(|at| (at, value)).collect();
    agent.series(name, &labels, &at)
}

fn described(agent: &Agent, card: Card<'_>, until: i64) -> Series {
    let place = format!("0000:1{}:00.0", card.gpu);
    let facts = [
        ("vendor", "nvidia"),
        ("gpu_model", "NVIDIA H100 80GB HBM3"),
        ("driver", "580.10"),
        ("pci_bus_id", place.as_str()),
        ("mig", "false"),
    ];
    steady(agent, card, "tg_gpu_info", &facts, (until, 1.0))
}

fn gpus(site: &Site, query: &str) -> Value {
    site.get(&format!("/api/tg/v1/fleet/gpus?{query}"))
}

fn row<'v>(answer: &'v Value, uuid: &str) -> &'v Value {
    answer["gpus"].as_array().unwrap().iter().find(|row| row["uuid"] == uuid).unwrap()
}

fn range(until: i64) -> String {
    format!("from={}&to={}", (until - 600 * SECOND) / 1_000_000, until / 1_000_000)
}

/// Four cards of one run, of which one draws half of what the others do.
fn four_cards(site: &Site, until: i64) -> Agent {
    let agent = Agent::of("node-1");
    let mut series = Vec::new();
    for (card, watts) in CARDS.into_iter().zip([700.0, 690.0, 350.0, 680.0]) {
        series.push(described(&agent, card, until));
        series.push(steady(&agent, card, "tg_gpu_power_watts", &[], (until, watts)));
        series.push(steady(&agent, card, "tg_gpu_power_limit_watts", &[], (until, 700.0)));
        let clock = if watts < 400.0 { 1.2e9 } else { 1.5e9 };
        series.push(steady(&agent, card, "tg_gpu_sm_clock_hertz", &[], (until, clock)));
    }
    series.push(steady(
        &agent,
        CARDS[0],
        "tg_gpu_unsupported_info",
        &[("field", "dram_active_ratio")],
        (until, 1.0),
    ));
    for (source, count) in [("pci", 4.0), ("driver", 4.0), ("allocated", 4.0)] {
        let at: Vec<(i64, f64)> = looks(until).into_iter().map(|at| (at, count)).collect();
        series.push(agent.series("tg_node_gpus", &[("source", source)], &at));
    }
    agent.push(site, series, &[]);
    owned(site, &agent, &CARDS, (RUN, until - 100 * SECOND));
    owned(site, &agent, &CARDS, (RUN, until));
    agent
}

/// A look that tells of owners only.
fn owned(site: &Site, agent: &Agent, cards: &[Card<'_>], (run, at): (&str, i64)) {
    let row = |card: &Card<'_>| {
        let owner = [("run_id", run), ("job_id", "4711"), ("confidence", "certain")];
        let labels = [&[("gpu", card.gpu), ("uuid", card.uuid)], &owner[..]].concat();
        agent.series("tg_gpu_owner_info", &labels, &[(at, 1.0)])
    };
    agent.push(site, cards.iter().map(row).collect(), &[]);
}

#[test]
fn a_card_is_shown_with_its_value_over_time_its_peers_and_its_owner() {
    let site = Site::new();
    let until = lately();
    four_cards(&site, until);
    let answer = gpus(&site, &range(until));
    assert_eq!((&answer["signal"], answer["signals"].as_array().unwrap().len()), (&json!("power_ratio"), 8));
    assert_eq!(answer["gpus"].as_array().unwrap().len(), 4);
    let slow = row(&answer, "GPU-c");
    assert_eq!((&slow["value"], &slow["state"]), (&json!(0.5), &json!("ok")));
    assert_eq!(slow["peers"]["of"], "run");
    assert_eq!(slow["peers"]["count"], 4);
    assert_eq!(slow["peers"]["median"], json!(0.97857));
    assert_eq!(slow["peers"]["ratio"], json!(0.51095));
    assert_eq!((&slow["owner"]["run_id"], &slow["owner"]["job_id"]), (&json!(RUN), &json!("4711")));
    assert_eq!((&slow["owner"]["confidence"], &slow["owner"]["shared"]), (&json!("certain"), &json!(null)));
    assert_eq!((&slow["pci_bus_id"], &slow["driver"]), (&json!("0000:12:00.0"), &json!("580.10")));
    assert_eq!(slow["sources"], json!(["agent"]));
    let bins = slow["bins"].as_array().unwrap();
    assert_eq!(bins.len(), 36);
    assert!(bins.iter().all(|bin| *bin == json!(0.5)), "{bins:?}");
    assert!(answer["coverage"].as_f64().unwrap() > 0.99);
    let busy = answer["signals"].as_array().unwrap().iter().find(|signal| signal["key"] == "busy").unwrap();
    assert_eq!(
        (&busy["trust"], &answer["signals"].as_array().unwrap().last().unwrap()["key"]),
        (&json!("D"), &json!("busy"))
    );
    assert!(!busy["caveat"].as_str().unwrap().is_empty());
}

#[test]
fn clocks_are_those_of_peers_and_what_nobody_reports_is_not_zero() {
    let site = Site::new();
    let until = lately();
    four_cards(&site, until);
    let clocks = gpus(&site, &format!("signal=clock_vs_peers&uuid=GPU-c&{}", range(until)));
    assert_eq!(clocks["gpus"].as_array().unwrap().len(), 1);
    assert_eq!(row(&clocks, "GPU-c")["value"], json!(0.8));
    assert_eq!(row(&clocks, "GPU-c")["bins"][20], json!(0.8));
    let dram = gpus(&site, &format!("signal=dram&{}", range(until)));
    assert_eq!(dram["coverage"], json!(0.0));
    let (no_value, nobody) = (row(&dram, "GPU-a"), row(&dram, "GPU-b"));
    assert_eq!((&no_value["value"], &no_value["bins"][0]), (&json!(null), &json!(null)));
    assert_eq!(no_value["reason"], "the card or its driver has no value for it");
    assert_eq!(no_value["unsupported"], json!(["dram_active_ratio"]));
    assert_eq!(nobody["reason"], "nobody reports `tg_gpu_dram_active_ratio`");
    assert_eq!(nobody["peers"], json!(null));
}

#[test]
fn one_card_tells_all_that_is_known_of_it() {
    let site = Site::new();
    let until = lately();
    let before = Agent::of("node-1");
    for ago in [1_900, 1_800] {
        owned(&site, &before, &CARDS[2..3], ("ffeeddccbbaa9988", until - ago * SECOND));
    }
    let agent = four_cards(&site, until);
    let reasons = agent.series(
        "tg_gpu_throttle_active",
        &[("gpu", "2"), ("uuid", "GPU-c"), ("reason", "hw_thermal")],
        &[(until, 1.0)],
    );
    agent.push(&site, vec![reasons], &[]);
    let from = (until - 2_000 * SECOND) / 1_000_000;
    let answer = gpus(&site, &format!("uuid=GPU-c&from={from}&to={}", until / 1_000_000));
    let card = row(&answer, "GPU-c");
    let latest = &card["latest"]["tg_gpu_power_watts"];
    assert_eq!(*latest, json!({ "value": 350.0, "unit": "W", "time": until / 1_000_000 }));
    assert_eq!(card["latest"]["tg_gpu_throttle_active{reason=\"hw_thermal\"}"]["value"], json!(1.0));
    let owners = card["owners"].as_array().unwrap();
    assert_eq!(owners.len(), 2, "{owners:#?}");
    assert_eq!(owners[0]["owner"]["run_id"], "ffeeddccbbaa9988");
    assert_eq!(
        (&owners[0]["from"], &owners[0]["to"]),
        (&json!((until - 1_900 * SECOND) / 1_000_000), &json!((until - 1_800 * SECOND) / 1_000_000))
    );
    assert_eq!(owners[1]["owner"]["run_id"], RUN);
    assert_eq!(row(&gpus(&site, &range(until)), "GPU-c").get("latest"), None);
}

#[test]
fn a_card_that_is_gone_is_missing_and_so_is_one_that_only_pci_counts() {
    let site = Site::new();
    let until = lately();
    let agent = four_cards(&site, until - 120 * SECOND);
    // From then on three of the four answer, and PCI counts five.
    let mut series = Vec::new();
    for card in &CARDS[..3] {
        let at = [(until, 650.0)];
        series.push(agent.series("tg_gpu_power_watts", &[("gpu", card.gpu), ("uuid", card.uuid)], &at));
    }
    series.push(agent.series(
        "tg_gpu_power_watts",
        &[("gpu", "3"), ("uuid", "GPU-d")],
        &[(until - 110 * SECOND, stale_marker())],
    ));
    for (source, count) in [("pci", 5.0), ("driver", 3.0)] {
        series.push(agent.series("tg_node_gpus", &[("source", source)], &[(until, count)]));
    }
    let gone = agent.event(
        until - 110 * SECOND,
        "inventory",
        "0000:13:00.0",
        &json!({ "what": "gone", "cause": "GPU is lost" }),
    );
    agent.push(&site, series, &[with(gone, "uuid", "GPU-d")]);
    let answer = gpus(&site, &range(until));
    let card = row(&answer, "GPU-d");
    assert_eq!((&card["state"], &card["value"]), (&json!("missing"), &json!(null)));
    assert!(card["reason"].as_str().unwrap().starts_with("its node is there, the card was seen"), "{card}");
    assert_eq!(row(&answer, "GPU-a")["state"], "ok");
    let nodes = site.get("/api/tg/v1/fleet/nodes");
    let node = &nodes["nodes"][0];
    assert_eq!(
        (&node["host"], &node["state"], &node["agents"]),
        (&json!("node-1"), &json!("live"), &json!(1))
    );
    assert_eq!(node["gpus"], json!({ "pci": 5, "driver": 3, "allocated": 4 }));
    let missing = node["missing"].as_array().unwrap();
    assert_eq!(missing.len(), 2, "{missing:?}");
    assert_eq!((&missing[0]["uuid"], &missing[0]["pci_bus_id"]), (&json!("GPU-d"), &json!("0000:13:00.0")));
    assert_eq!(missing[1]["uuid"], json!(null));
    assert_eq!(
        nodes["totals"],
        json!({ "hosts": 1, "silent": 0, "pci": 5, "driver": 3, "allocated": 4, "missing": 2 })
    );
    assert_eq!(node["incidents"], 1);
    let incident = &site.get("/api/tg/v1/incidents")["incidents"][0];
    assert_eq!(
        (&incident["action"], &incident["provenance"]),
        (&json!("reboot_node"), &json!("local-policy"))
    );
    assert_eq!(card["incident"], incident["id"]);
    agent.push(
        &site,
        Vec::new(),
        &[with(agent.event(until, "inventory", "0000:13:00.0", &json!({ "what": "back" })), "uuid", "GPU-d")],
    );
    assert_eq!(site.get("/api/tg/v1/incidents")["incidents"], json!([]));
}

/// A series whose last word at this time is its end.
fn ended(agent: &Agent, card: Card<'_>, name: &str, at: i64) -> Series {
    agent.series(name, &[("gpu", card.gpu), ("uuid", card.uuid)], &[(at, stale_marker())])
}

#[test]
fn a_card_whose_series_all_ended_was_seen_until_then_and_a_silent_node_counts_it_no_more() {
    let site = Site::new();
    let until = lately();
    // An hour ago a card of four ended; half an hour ago the node fell silent.
    let (gone, quiet) = (until - 3_600 * SECOND, until - 1_800 * SECOND);
    let agent = Agent::of("node-1");
    let mut series: Vec<Series> = CARDS[..3]
        .iter()
        .map(|card| steady(&agent, *card, "tg_gpu_power_watts", &[], (quiet, 650.0)))
        .collect();
    series.push(steady(&agent, CARDS[3], "tg_gpu_power_watts", &[], (gone - 10 * SECOND, 650.0)));
    series.push(agent.series("tg_node_gpus", &[("source", "driver")], &[(quiet, 3.0)]));
    agent.push(&site, series, &[]);
    agent.push(&site, vec![ended(&agent, CARDS[3], "tg_gpu_power_watts", gone)], &[]);
    let answer = gpus(&site, &range(until));
    assert_eq!(row(&answer, "GPU-d")["last_seen"], json!(gone / 1_000_000));
    assert_eq!(row(&answer, "GPU-a")["last_seen"], json!(quiet / 1_000_000));
    let node = |site: &Site| site.get("/api/tg/v1/fleet/nodes")["nodes"][0].clone();
    let reason = row(&answer, "GPU-d")["reason"].as_str().unwrap().to_owned();
    let seconds: i64 = reason.split_whitespace().rev().nth(1).unwrap().parse().unwrap();
    assert!((3_600..4_000).contains(&seconds), "{reason}");
    assert_eq!(node(&site)["gpus"]["driver"], 3);
    // The agent's good-bye ends the counts too: what was there last is counted, without the card that was gone.
    let end = [(quiet + SECOND, stale_marker())];
    let mut ends = vec![agent.series("tg_node_gpus", &[("source", "driver")], &end)];
    ends.extend(CARDS[..3].iter().map(|card| ended(&agent, *card, "tg_gpu_power_watts", quiet + SECOND)));
    agent.push(&site, ends, &[]);
    assert_eq!(node(&site)["gpus"]["driver"], 3);
    let answer = gpus(&site, &range(until));
    assert_eq!(row(&answer, "GPU-a")["last_seen"], json!((quiet + SECOND) / 1_000_000));
}

#[test]
fn an_idle_card_is_not_compared_with_those_that_work() {
    let site = Site::new();
    let until = lately();
    let agent = Agent::of("node-1");
    let mut series = Vec::new();
    for (card, (clock, busy)) in
        CARDS.into_iter().zip([(1.5e9, 1.0), (1.5e9, 0.9), (1.2e9, 1.0), (3.45e8, 0.0)])
    {
        series.push(described(&agent, card, until));
        series.push(steady(&agent, card, "tg_gpu_sm_clock_hertz", &[], (until, clock)));
        series.push(steady(&agent, card, "tg_gpu_busy_ratio", &[], (until, busy)));
    }
    agent.push(&site, series, &[]);
    for agg in ["median", "worst"] {
        let answer = gpus(&site, &format!("signal=clock_vs_peers&agg={agg}&{}", range(until)));
        assert_eq!(row(&answer, "GPU-c")["value"], json!(0.8), "{agg}");
        let idle = row(&answer, "GPU-d");
        assert_eq!((&idle["value"], &idle["bins"][20]), (&json!(null), &json!(null)), "{agg}");
        assert!(idle["reason"].as_str().unwrap().starts_with("it is idle"), "{idle}");
    }
}

#[test]
fn a_card_with_an_incident_is_suspect_with_its_xids_on_the_time_axis() {
    let site = Site::new();
    let until = lately();
    let agent = four_cards(&site, until);
    let line = |n: i64, xid: u32| with(agent.xid(until - n * SECOND, "0000:11:00.0", xid), "uuid", "GPU-b");
    let forged = with(line(3, 79), "source", "userspace");
    agent.push(&site, Vec::new(), &[line(60, 13), line(30, 119), forged]);
    let answer = gpus(&site, &range(until));
    let card = row(&answer, "GPU-b");
    assert_eq!(card["state"], "suspect");
    let xids: Vec<(&Value, &Value)> =
        card["xids"].as_array().unwrap().iter().map(|row| (&row["xid"], &row["userspace"])).collect();
    assert_eq!(xids, [(&json!(13), &json!(false)), (&json!(119), &json!(false)), (&json!(79), &json!(true))]);
    // The owner's run came along with the events of its card, and not with what a process wrote.
    let events = site.get("/api/tg/v1/events?kind=xid&uuid=GPU-b");
    let runs: Vec<&Value> =
        events["events"].as_array().unwrap().iter().map(|row| &row["labels"]["run_id"]).collect();
    assert_eq!(runs, [&json!(null), &json!(RUN), &json!(RUN)]);
    let incident = &site.get("/api/tg/v1/incidents")["incidents"][0];
    assert_eq!(
        (&incident["runs"], &incident["jobs"]),
        (&json!([{ "run_id": RUN, "run": null }]), &json!(["4711"]))
    );
    assert!(
        incident["effect"].as_str().unwrap().contains("1 run, job 4711 had the GPU"),
        "{}",
        incident["effect"]
    );
    // The fault of one job's cards has the job as its common cause.
    let other = with(agent.xid(until - 20 * SECOND, "0000:12:00.0", 119), "uuid", "GPU-c");
    agent.push(&site, Vec::new(), &[other]);
    let common = &site.get("/api/tg/v1/incidents")["common"][0];
    assert!(common["sentence"].as_str().unwrap().contains("all of job 4711"), "{common}");
}

#[test]
fn an_incident_learns_later_which_run_had_its_card() {
    use crate::pages::eventually;

    let site = Site::new();
    let at = lately();
    let agent = Agent::of("node-1");
    let owner = |card: usize, labels: &[(&str, &str)], at: i64, value: f64| {
        let labels = [&[("gpu", CARDS[card].gpu), ("uuid", CARDS[card].uuid)], labels].concat();
        agent.series("tg_gpu_owner_info", &labels, &[(at, value)])
    };
    let job = [("job_id", "4711"), ("confidence", "likely")];
    let run = [("run_id", RUN), ("job_id", "4711"), ("confidence", "certain")];
    let other = [("run_id", RUN), ("job_id", "4712"), ("confidence", "certain")];
    // Of the first card the job is known at the time of the fault, and so it is of the second.
    agent.push(&site, vec![owner(0, &job, at - 5 * SECOND, 1.0), owner(1, &job, at - 5 * SECOND, 1.0)], &[]);
    let fault = |place: &str, uuid: &str| with(agent.xid(at, place, 119), "uuid", uuid);
    let faults =
        [fault("0000:10:00.0", "GPU-a"), fault("0000:11:00.0", "GPU-b"), fault("0000:12:00.0", "GPU-c")];
    agent.push(&site, Vec::new(), &faults);
    let of = |uuid: &str| site.get(&format!("/api/tg/v1/incidents?uuid={uuid}"))["incidents"][0].clone();
    assert_eq!((&of("GPU-a")["runs"], &of("GPU-a")["jobs"]), (&json!([]), &json!(["4711"])));
    // Then its run is; the second card goes to another job, and the third, which was free, gets work.
    let later = at + 5 * SECOND;
    agent.push(
        &site,
        vec![
            owner(0, &job, later, stale_marker()),
            owner(0, &run, later, 1.0),
            owner(1, &job, later, stale_marker()),
            owner(1, &other, later, 1.0),
            owner(2, &other, later, 1.0),
        ],
        &[],
    );
    let learnt = eventually("the run of the first card", || {
        let incident = of("GPU-a");
        (incident["runs"] != json!([])).then_some(incident)
    });
    assert_eq!(learnt["runs"][0]["run_id"], RUN);
    assert!(learnt["effect"].as_str().unwrap().contains("1 run, job 4711 had the GPU"), "{learnt}");
    for (uuid, jobs) in [("GPU-b", json!(["4711"])), ("GPU-c", json!([]))] {
        assert_eq!((&of(uuid)["runs"], &of(uuid)["jobs"]), (&json!([]), &jobs), "{uuid}");
    }
}

#[test]
fn slices_make_up_their_card_and_a_silent_node_has_no_values() {
    let site = Site::new();
    let until = lately();
    let agent = Agent::of("mig-1");
    let card = CARDS[0];
    let mut series = vec![steady(&agent, card, "tg_gpu_power_watts", &[], (until, 300.0))];
    for (gi, value) in [("1", 0.25), ("5", 0.75)] {
        series.push(steady(&agent, card, "tg_gpu_tensor_active_ratio", &[("gi", gi)], (until, value)));
    }
    agent.push(&site, series, &[]);
    let answer = gpus(&site, &format!("signal=tensor&{}", range(until)));
    let found = row(&answer, "GPU-a");
    assert_eq!(
        (&found["mig"], &found["slices"], &found["value"]),
        (&json!(true), &json!(["1", "5"]), &json!(0.75))
    );
    let quiet = Agent::of("quiet-1");
    let old = until - 3_600 * SECOND;
    quiet.push(&site, vec![steady(&quiet, CARDS[1], "tg_gpu_power_watts", &[], (old, 300.0))], &[]);
    let answer = gpus(&site, &range(until));
    let found = row(&answer, "GPU-b");
    assert_eq!((&found["state"], &found["value"]), (&json!("silent"), &json!(null)));
    assert!(found["reason"].as_str().unwrap().starts_with("its node has said nothing for"), "{found}");
}

#[test]
fn strange_names_of_cards_break_no_question() {
    let site = Site::new();
    let until = lately();
    let agent = Agent::of("h\"}) or vector(1) #\\");
    let card = Card { gpu: "0", uuid: "GPU-\"\\\n<i>\u{202e}" };
    agent.push(
        &site,
        vec![
            steady(&agent, card, "tg_gpu_power_watts", &[], (until, 300.0)),
            steady(&agent, card, "tg_gpu_power_limit_watts", &[], (until, 600.0)),
        ],
        &[],
    );
    let query = format!("host={}&uuid={}&{}", escaped(&agent.host), escaped(card.uuid), range(until));
    let answer = gpus(&site, &query);
    assert_eq!(answer["gpus"].as_array().unwrap().len(), 1);
    assert_eq!(
        (&answer["gpus"][0]["bins"][30], &answer["gpus"][0]["uuid"]),
        (&json!(0.5), &json!(card.uuid))
    );
}

#[test]
fn wrong_questions_are_told_what_is_possible() {
    let site = Site::new();
    for (query, words) in [
        ("signal=gpu_util", "signals are `power_ratio`, `tensor`"),
        ("agg=mean", "use `median` or `worst`"),
        ("bins=0", "1 to 400 are possible"),
        ("from=5&to=4", "1 s to 35 days lie between them"),
        ("run_id=x", "is not a run's id"),
    ] {
        let path = format!("/api/tg/v1/fleet/gpus?{query}");
        let answer = crate::otlp_peer::send(site.address(), "GET", &path, &[], b"");
        let text = String::from_utf8_lossy(&answer.body).into_owned();
        assert!(answer.status >= 400 && text.contains(words), "{query}: {} {text}", answer.status);
    }
    assert_eq!(gpus(&site, "")["gpus"], json!([]));
    assert_eq!(gpus(&site, "")["coverage"], json!(null));
    assert_eq!(site.get("/api/tg/v1/fleet/nodes")["nodes"], json!([]));
}

/// What a token that is confined to a project is told: what befell its own runs' cards.
#[test]
fn a_token_for_a_project_is_told_of_its_runs_only() {
    let mut site = Site::new();
    site.stop();
    let book = server::TokenBook::open(&site.data_dir()).unwrap();
    let token = |scope: &str, project: Option<&str>| {
        let new = server::NewToken {
            name: scope.into(),
            scopes: vec![scope.to_owned()],
            project: project.map(str::to_owned),
            ..server::NewToken::default()
        };
        book.create(&new).unwrap().token
    };
    let (admin, confined) = (token("admin", None), token("read", Some("llm")));
    drop(book);
    site.restart();
    let path = model::RunPath { project: "llm".into(), run: "mine".into(), ..model::RunPath::default() };
    let mut agent = Agent::of("node-1");
    agent.token = Some(admin.clone());
    let of_run = wire::push::PushRequest {
        client_id: vec![9; 16],
        sequence: 1,
        run: Some(wire::push::Run {
            project: "llm".into(),
            run: "mine".into(),
            ..wire::push::Run::default()
        }),
        series: vec![Series::new("loss", &[], "", &[Sample { time_ns: lately(), value: 1.0, step: None }])],
        ..wire::push::PushRequest::default()
    };
    agent.deliver(&site, &of_run);
    let at = lately();
    let mine =
        with(with(agent.xid(at, "0000:11:00.0", 119), "uuid", "GPU-b"), "run_id", &path.id().to_string());
    let others = with(agent.xid(at, "0000:12:00.0", 79), "uuid", "GPU-c");
    agent.push(&site, Vec::new(), &[mine, others]);
    let (status, all) = site.get_as(&admin, "/api/tg/v1/incidents");
    assert_eq!((status, all["incidents"].as_array().unwrap().len()), (200, 2));
    let (status, part) = site.get_as(&confined, "/api/tg/v1/incidents?state=all");
    let part = part["incidents"].as_array().unwrap();
    assert_eq!((status, part.len(), &part[0]["uuid"]), (200, 1, &json!("GPU-b")));
    let (_, events) = site.get_as(&confined, "/api/tg/v1/events?limit=1000");
    let events = events["events"].as_array().unwrap();
    assert!(
        !events.is_empty() && events.iter().all(|row| row["labels"]["run_id"] == path.id().to_string()),
        "{events:?}"
    );
    for path in
        ["/api/tg/v1/fleet/nodes", "/api/tg/v1/fleet/gpus", "/api/tg/v1/events?run_id=00112233445566aa"]
    {
        let (status, answer) = site.get_as(&confined, path);
        assert!([403, 404].contains(&status), "{path}: {status} {answer}");
    }
}

#[test]
fn a_stream_tells_which_hosts_changed_and_when_incidents_did() {
    use std::io::{BufRead, BufReader, Write};

    let site = Site::new();
    let mut stream = std::net::TcpStream::connect(site.address()).unwrap();
    stream.set_read_timeout(Some(std::time::Duration::from_secs(50))).unwrap();
    stream.write_all(b"GET /api/tg/v1/stream?topics=fleet HTTP/1.1\r\nhost: localhost\r\n\r\n").unwrap();
    let mut lines = BufReader::new(stream).lines().map(Result::unwrap);
    // The first sign of life comes when the stream follows.
    assert!(lines.any(|line| line.starts_with("event: ping")));
    let agent = Agent::of("node-1");
    let at = lately();
    let series = agent.series("tg_gpu_power_watts", &[("gpu", "0"), ("uuid", "GPU-a")], &[(at, 1.0)]);
    agent.push(&site, vec![series], &[agent.xid(at, "0000:11:00.0", 79)]);
    let (mut hosts, mut incidents) = (Vec::new(), false);
    while hosts.is_empty() || !incidents {
        let line = lines.find(|line| line.starts_with("data: {\"hosts\"")).unwrap();
        let data: Value = serde_json::from_str(&line["data: ".len()..]).unwrap();
        hosts.extend(data["hosts"].as_array().unwrap().clone());
        incidents |= data["incidents"].as_bool().unwrap();
        assert_eq!(data["all"], false);
    }
    assert!(hosts.iter().all(|host| host == "node-1"));
}

#[test]
fn a_fleet_of_a_thousand_cards_is_answered_whole() {
    let site = Site::new();
    let until = lately();
    for node in 0..128 {
        let agent = Agent::of(&format!("node-{node}"));
        let mut series = Vec::new();
        for gpu in 0..8 {
            let (gpu, uuid) = (gpu.to_string(), format!("GPU-{node}-{gpu}"));
            let card = Card { gpu: &gpu, uuid: &uuid };
            series.push(described(&agent, card, until));
            series.push(steady(&agent, card, "tg_gpu_power_watts", &[], (until, 600.0)));
            series.push(steady(&agent, card, "tg_gpu_power_limit_watts", &[], (until, 700.0)));
        }
        agent.push(&site, series, &[]);
    }
    let answer = gpus(&site, &range(until));
    assert_eq!(answer["gpus"].as_array().unwrap().len(), 1_024);
    assert!(answer["coverage"].as_f64().unwrap() > 0.99);
    assert!(answer["gpus"].as_array().unwrap().iter().all(|row| row["value"] == json!(0.85714)));
    let nodes = site.get("/api/tg/v1/fleet/nodes");
    assert_eq!(nodes["totals"]["driver"], 1_024);
}

#[test]
fn a_card_that_only_an_exporter_tells_of_is_there_with_what_is_not_known_null() {
    use crate::pages::{Pages, Scraping, eventually};

    let line = |metric: &str, gpu: u32, value: &str| {
        format!(
            "{metric}{{gpu=\"{gpu}\",UUID=\"GPU-x{gpu}\",pci_bus_id=\"00000000:{gpu}B:00.0\",device=\"nvidia{gpu}\",\
             modelName=\"NVIDIA H100 80GB HBM3\",hostname=\"dcgm-1\",DCGM_FI_DRIVER_VERSION=\"580.10\"}} {value}\n"
        )
    };
    let both = |gpu: u32| {
        line("DCGM_FI_DEV_POWER_USAGE", gpu, "350")
            + &line("DCGM_FI_DEV_ENFORCED_POWER_LIMIT", gpu, "700")
            + &line("DCGM_FI_DEV_MEMORY_TEMP", gpu, "9223372036854775794")
    };
    let pages = Pages::start();
    pages.set("dcgm", both(1) + &both(2));
    let scraping = Scraping::of(&pages, &["dcgm"]);
    let asked = |query: &str| scraping.get(&format!("/api/tg/v1/fleet/{query}"));
    let found = eventually("both cards have a value", || {
        let answer = asked("gpus");
        let rows = answer["gpus"].as_array().unwrap();
        (rows.len() == 2 && rows.iter().all(|row| row["value"] == json!(0.5))).then_some(answer.clone())
    });
    let card = row(&found, "GPU-x1");
    assert_eq!(
        (&card["host"], &card["pci_bus_id"], &card["driver"]),
        (&json!("dcgm-1"), &json!("0000:1b:00.0"), &json!("580.10"))
    );
    assert_eq!((&card["sources"], &card["state"]), (&json!(["dcgm"]), &json!("ok")));
    assert_eq!(card["unsupported"], json!(["memory_temperature_celsius"]));
    let node = &asked("nodes")["nodes"][0];
    assert_eq!(
        (&node["agents"], &node["gpus"]),
        (&json!(0), &json!({ "pci": null, "driver": 2, "allocated": null }))
    );
    assert_eq!(node["boot_id"], json!(null));
}
