//! A made-up cluster, played by real processes, and what a server says of it.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::Stdio;

use serde_json::Value;
use tempfile::TempDir;

use crate::process::{Server, eventually, run, truegauge};

/// A scenario that is played; ended when it is dropped.
pub(crate) struct Played {
    pub(crate) server: Server,
    home: TempDir,
    /// What it said of itself.
    told: Value,
}

impl Played {
    /// Plays a scenario of the examples, with a server of its own.
    pub(crate) fn start(scenario: &str, speed: &str) -> Self {
        Self::of(&std::fs::read_to_string(file(scenario)).unwrap(), speed)
    }

    /// The same at a site that has prices and objectives.
    pub(crate) fn at_site(scenario: &str, speed: &str) -> Self {
        let facts = [
            ("TRUEGAUGE_SITE_PRICES", "h100-sxm=2.50"),
            ("TRUEGAUGE_SITE_PRICE_REVISION", "2026-11"),
            ("TRUEGAUGE_SITE_PUE", "1.3"),
            ("TRUEGAUGE_SITE_SERVER_OVERHEAD_FACTOR", "1.4"),
            ("TRUEGAUGE_SITE_OBJECTIVES", "acme/chat-8b ttft=1 tpot=0.05 itl=0.1 goodput=0.99"),
            ("TRUEGAUGE_OWN_METRICS", "true"),
            ("TRUEGAUGE_STARTER_RULES", "true"),
            ("TRUEGAUGE_OWN_METRICS_INTERVAL", "1s"),
            ("TRUEGAUGE_RULE_INTERVAL", "1s"),
        ];
        Self::with(&std::fs::read_to_string(file(scenario)).unwrap(), speed, &facts)
    }

    /// Plays this scenario, with a server of its own.
    fn of(scenario: &str, speed: &str) -> Self {
        Self::with(scenario, speed, &[])
    }

    fn with(scenario: &str, speed: &str, variables: &[(&str, &str)]) -> Self {
        let home = tempfile::tempdir().unwrap();
        let driver = fake_nvml::install(home.path(), "").unwrap();
        let file = home.path().join("scenario.toml");
        std::fs::write(&file, scenario).unwrap();
        let mut child = truegauge(home.path())
            .args(["simulate", file.to_str().unwrap(), "--json", "--interval", "1s", "--speed", speed])
            .args(["--driver", driver.to_str().unwrap()])
            .args(["--dir", home.path().join("play").to_str().unwrap()])
            .envs(variables.iter().copied())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(std::fs::File::create(home.path().join("log")).unwrap())
            .spawn()
            .unwrap();
        let mut text = String::new();
        for line in BufReader::new(child.stdout.take().unwrap()).lines() {
            text.push_str(&line.unwrap());
            if serde_json::from_str::<Value>(&text).is_ok() {
                break;
            }
        }
        let told: Value = serde_json::from_str(&text)
            .unwrap_or_else(|_| panic!("{}", std::fs::read_to_string(home.path().join("log")).unwrap()));
        let server = Server::attached(told["server"].as_str().unwrap(), child, home.path());
        Self { server, home, told }
    }

    /// What became of a card.
    fn incident(&self, host: &str, gpu: &str) -> Option<Value> {
        let answer = self.server.get("/api/tg/v1/incidents?state=all");
        let all = answer["incidents"].as_array()?.iter();
        let mut of_card = all.filter(|incident| incident["host"] == host && incident["gpu"] == gpu);
        let found = of_card.next().cloned();
        assert!(of_card.next().is_none(), "one incident of a cause: {answer}");
        found
    }
}

fn file(scenario: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/scenarios");
    folder.join(scenario).display().to_string()
}

/// Whether a process still has a file of the folder on its command line.
fn processes_of(folder: &Path) -> Vec<String> {
    let folder = folder.display().to_string();
    let of = |entry: std::fs::DirEntry| {
        let line = std::fs::read(entry.path().join("cmdline")).ok()?;
        let line = String::from_utf8_lossy(&line).replace('\0', " ");
        line.contains(&folder).then_some(line)
    };
    std::fs::read_dir("/proc").unwrap().filter_map(|entry| of(entry.unwrap())).collect()
}

#[test]
fn what_the_scenario_says_is_what_the_server_says() {
    let mut played = Played::start("small.toml", "4");
    let server = &played.server;

    let incident = eventually("the incident of the Xid", || {
        let answer = server.get("/api/tg/v1/incidents");
        let incidents = answer["incidents"].as_array()?.clone();
        incidents.into_iter().find(|incident| incident["codes"][0]["code"] == "Xid 94")
    });
    assert_eq!(incident["jobs"][0], "4711", "{incident}");
    assert_eq!((&incident["host"], &incident["gpu"]), (&"node-0".into(), &"1".into()), "{incident}");
    assert_eq!(incident["action"], "restart_app", "{incident}");
    assert_eq!(incident["processes"][0]["name"], "python3", "{incident}");

    let slow = eventually("the clock of the throttled card against its peers'", || {
        let answer = server.get("/api/tg/v1/fleet/gpus?signal=clock_vs_peers&host=node-1");
        let gpu = answer["gpus"].as_array()?.iter().find(|gpu| gpu["gpu"] == "0")?.clone();
        (gpu["value"].as_f64()? < 0.83 && gpu["owner"]["run"].is_string()).then_some(gpu)
    });
    assert!(slow["value"].as_f64().unwrap() > 0.77, "{slow}");
    assert_eq!(slow["owner"]["run"], "pretrain-small", "{slow}");
    assert_eq!(slow["owner"]["job_id"], "4711", "{slow}");

    let nodes = server.get("/api/tg/v1/fleet/nodes");
    assert_eq!(nodes["totals"]["hosts"], 3, "{nodes}");
    assert_eq!((&nodes["totals"]["pci"], &nodes["totals"]["driver"]), (&5.into(), &5.into()), "{nodes}");

    let waits = eventually("the wait of the rank on it, and of the others", || {
        let query = "/api/v1/query?query=avg+by+(rank)+(avg_over_time(train_step_wait_seconds[5s]))";
        let answer = server.get(query);
        let rows = answer["data"]["result"].as_array()?.clone();
        let wait = |rank: &str| -> Option<f64> {
            let row = rows.iter().find(|row| row["metric"]["rank"] == rank)?;
            row["value"][1].as_str()?.parse().ok()
        };
        let waits = (wait("2")?, wait("0")?);
        (waits.1 > 0.3).then_some(waits)
    });
    assert!(waits.0 < 0.2, "the slow rank waits least: {waits:?}");

    let losses = eventually("what the ranks send by OpenTelemetry", || {
        let answer = server.get("/api/v1/query?query=last_over_time(megatron_training_loss[1m])");
        let rows = answer["data"]["result"].as_array()?.clone();
        (rows.len() == 4).then_some(rows)
    });
    assert!(losses.iter().all(|row| row["metric"]["run"] == "pretrain-small"), "{losses:?}");

    eventually("requests that wait for the engine", || {
        let answer = server.get("/api/tg/v1/engines");
        let model =
            answer["models"].as_array()?.iter().find(|model| model["model"] == "acme/chat-8b")?.clone();
        (model["values"]["waiting"]["value"].as_f64()? > 20.0).then_some(())
    });

    assert_eq!(played.server.terminate(), 0);
    let left = processes_of(played.home.path());
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn plays_of_one_scenario_at_once_are_clusters_apart() {
    // Its ranks have processes and cards of the same names in both.
    let plays = [(); 2].map(|()| Played::start("small.toml", "4"));
    for played in &plays {
        let cards = eventually("every card of the job, as its ranks sample it", || {
            let query = "/api/v1/query?query=count+by+(host,gpu)+(system_gpu_power_watts)";
            let answer = played.server.get(query);
            let rows = answer["data"]["result"].as_array()?.iter();
            let mut cards: Vec<String> =
                rows.map(|row| format!("{} {}", row["metric"]["host"], row["metric"]["gpu"])).collect();
            cards.sort();
            (cards.len() == 4).then_some(cards)
        });
        let expected = ["node-0", "node-1"].map(|host| ["0", "1"].map(|gpu| format!("{host:?} {gpu:?}")));
        assert_eq!(cards, expected.concat());
        let owned = eventually("the run that has each card, as the agents tell", || {
            let answer = played.server.get("/api/tg/v1/fleet/gpus?signal=power_ratio&host=node-1");
            let owners: Vec<Value> =
                answer["gpus"].as_array()?.iter().map(|gpu| gpu["owner"].clone()).collect();
            owners.iter().all(|owner| owner["run"].is_string()).then_some(owners)
        });
        assert!(owned.iter().all(|owner| owner["shared"].is_null()), "nobody shares a card: {owned:?}");
    }
}

#[test]
fn a_job_says_what_a_trainer_says() {
    let played = Played::at_site("small.toml", "1");
    let ratio = eventually("what it makes of its cards, by the rules", || {
        let answer = played.server.get("/api/v1/query?query=run:mfu_ratio");
        answer["data"]["result"][0]["value"][1].as_str()?.parse::<f64>().ok()
    });
    assert!((0.25..0.5).contains(&ratio), "{ratio}");
    let runs = played.server.get("/api/tg/v1/runs");
    let run = runs["runs"][0]["run_id"].as_str().unwrap();
    // What is dear to reckon is kept for a while, so it is not asked for before it is there.
    eventually("spans of its steps", || {
        let told = played.server.get(&format!("/api/tg/v1/runs/{run}/timeline?part=breakdown"));
        told["goodput"]["ratio"].as_f64()
    });
    let figures = played.server.get(&format!("/api/tg/v1/runs/{run}/health"))["figures"].clone();
    let value = |name: &str| figures[name]["value"].as_f64().unwrap();
    assert!((0.25..0.5).contains(&value("mfu_ratio")), "{figures}");
    assert!(value("goodput_ratio") > 0.5 && value("goodput_ratio") <= 1.0, "{figures}");
    assert!(value("ettr_ratio") > 0.0 && value("tokens_per_second") > 0.0, "{figures}");
}

/// Three nodes without a job, and an engine on one of them.
const BAD_DAY: &str = r#"
name = "bad day"
[[nodes]]
host = "n#"
count = 3
gpus = 2
[[engines]]
name = "chat-#"
engine = "vllm"
model = "acme/chat"
hosts = ["n0"]
gpus = [0]
requests_per_second = 12.0
decode = 0.02

[[faults]]
at = 4.0
kind = "xid"
host = "n1"
gpu = 0
code = 48
text = "pid=771, name=torchrun, An uncorrectable double bit error (DBE) has been detected on GPU in the framebuffer at partition 3, subpartition 1."
[[faults]]
at = 4.2
kind = "row_remap"
host = "n1"
gpu = 0
[[faults]]
at = 4.3
kind = "xid"
host = "n1"
gpu = 0
code = 94
text = "pid=771, name=torchrun, Contained: CE User Channel (0x9). RST: No, D-RST: No"
[[faults]]
at = 4.4
kind = "xid"
host = "n1"
gpu = 0
code = 45
text = "pid=771, name=torchrun, Ch 00000009, caused by previous Xid 94"

[[faults]]
at = 5.0
kind = "fall_off"
host = "n2"
gpu = 1
[[faults]]
at = 6.0
kind = "xid"
host = "n2"
gpu = 1
code = 154
text = "pid=4242, name=python3, GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)"

[[faults]]
at = 7.0
kind = "xid"
host = "n0"
gpu = 0
code = 31
text = "pid=991, name=vllm, Ch 00000007, intr 00000000. MMU Fault: ENGINE GRAPHICS GPCCLIENT_T1_6 faulted @ 0x7f5a_e7504000. Fault is of type FAULT_PDE ACCESS_TYPE_VIRT_READ"
"#;

#[test]
fn the_incident_list_says_what_the_scenario_did() {
    let played = Played::of(BAD_DAY, "1");
    // Host, card, how many faults of the scenario, action, whose word that is, rows that wait for a reset.
    let expected = [
        ("n1", "0", 4, "drain_reset", "nvidia-catalog", true),
        ("n2", "1", 1, "reboot_node", "driver-154", false),
        ("n0", "0", 1, "restart_app", "nvidia-catalog", false),
    ];
    for (host, gpu, codes, action, provenance, is_pending) in expected {
        let incident = eventually("the incident", || {
            let incident = played.incident(host, gpu)?;
            let numbered = incident["codes"].as_array()?.iter().filter(|code| code["number"].is_u64());
            // Each line that comes may change what is said.
            let is_whole = numbered.count() == codes
                && (&incident["action"], &incident["provenance"]) == (&action.into(), &provenance.into());
            (is_whole && incident["remap_pending"] == is_pending).then_some(incident)
        });
        assert_eq!(incident["state"], "open", "{incident}");
    }

    let nodes = eventually("the card that fell off", || {
        let nodes = played.server.get("/api/tg/v1/fleet/nodes");
        (nodes["totals"]["missing"] == 1).then_some(nodes)
    });
    assert_eq!((&nodes["totals"]["pci"], &nodes["totals"]["driver"]), (&6.into(), &5.into()), "{nodes}");
    let all = played.server.get("/api/tg/v1/incidents?state=all");
    assert_eq!(all["incidents"].as_array().unwrap().len(), expected.len(), "{all}");

    let model = eventually("what limits the engine", || {
        let engines = played.server.get("/api/tg/v1/engines");
        let model = engines["models"].as_array()?.first()?.clone();
        (model["gpus"] == 1 && model["verdict"]["kind"] == "memory_bound").then_some(model)
    });
    assert_eq!((&model["model"], &model["engines"][0]), (&"acme/chat".into(), &"vllm".into()));
    let owner = eventually("the pod that has the engine's card", || {
        let answer = played.server.get("/api/tg/v1/fleet/gpus?signal=power_ratio&host=n0");
        let gpu = answer["gpus"].as_array()?.iter().find(|gpu| gpu["gpu"] == "0")?.clone();
        gpu["owner"]["pod"].is_string().then(|| gpu["owner"].clone())
    });
    assert_eq!((&owner["namespace"], &owner["pod"]), (&"inference".into(), &"chat-0".into()), "{owner}");
    assert_eq!(owner["confidence"], "certain", "the kubelet and the process agree: {owner}");
}

const BOOTED: &str = r#"
name = "booted"
[[nodes]]
host = "n#"
count = 2
gpus = 2
[[faults]]
at = 3.0
kind = "fall_off"
host = "n0"
gpu = 1
[[faults]]
at = 4.0
kind = "xid"
host = "n0"
gpu = 1
code = 154
text = "pid=4242, name=python3, GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)"
[[faults]]
at = 9.0
lasts = 2.0
kind = "reboot"
host = "n0"
[[faults]]
at = 3.0
lasts = 3.0
kind = "agent_killed"
host = "n1"
"#;

#[test]
fn a_node_that_was_booted_is_well_again() {
    let played = Played::of(BOOTED, "1");
    let incident = eventually("the end of the incident", || {
        played.incident("n0", "1").filter(|incident| incident["state"] == "cleared")
    });
    assert_eq!(incident["codes"][0]["code"], "Xid 79", "{incident}");
    eventually("all cards", || {
        let totals = played.server.get("/api/tg/v1/fleet/nodes")["totals"].clone();
        let counts = ["hosts", "silent", "pci", "driver", "missing"].map(|name| totals[name].as_u64());
        (counts == [Some(2), Some(0), Some(4), Some(4), Some(0)]).then_some(())
    });
    let starts = |host: &str| {
        let events = played.server.get(&format!("/api/tg/v1/events?kind=node&host={host}"));
        let of_start = |event: &&Value| event["body"]["what"] == "agent_start";
        events["events"].as_array().unwrap().iter().filter(of_start).count()
    };
    eventually("the agents that were started again", || {
        (starts("n0") == 2 && starts("n1") == 2).then_some(())
    });
}

/// More nodes than have a process each, and more ranks.
const CROWD: &str = r#"
name = "crowd"
[[nodes]]
host = "n##"
count = 66
gpus = 1
[[jobs]]
name = "wide"
hosts = ["n00..n65"]
parameters = 7e9
tokens = 660000.0
[[faults]]
at = 3.0
kind = "throttle"
host = "n07"
gpu = 0
clock = 0.8
[[faults]]
at = 4.0
kind = "xid"
host = "n09"
gpu = 0
code = 31
text = "pid=991, name=python3, Ch 00000007, intr 00000000. MMU Fault: ENGINE GRAPHICS GPCCLIENT_T1_6 faulted @ 0x7f5a_e7504000. Fault is of type FAULT_PDE ACCESS_TYPE_VIRT_READ"
[[faults]]
at = 8.0
lasts = 3.0
kind = "reboot"
host = "n11"
"#;

#[test]
fn more_nodes_than_processes_report_themselves_all_the_same() {
    let mut played = Played::of(CROWD, "1");
    assert_eq!((&played.told["nodes_multiplexed"], &played.told["ranks"]), (&true.into(), &66.into()));
    let mine = processes_of(played.home.path());
    assert!(mine.len() < 10, "one process for each role: {mine:#?}");
    let totals = eventually("all nodes", || {
        let totals = played.server.get("/api/tg/v1/fleet/nodes")["totals"].clone();
        (totals["driver"] == 66 && totals["allocated"] == 66).then_some(totals)
    });
    assert_eq!((&totals["hosts"], &totals["pci"]), (&66.into(), &66.into()), "{totals}");
    let slow = eventually("the clock of the throttled card against its peers'", || {
        let answer = played.server.get("/api/tg/v1/fleet/gpus?signal=clock_vs_peers&host=n07");
        let gpu = answer["gpus"].as_array()?.first()?.clone();
        (gpu["value"].as_f64()? < 0.83 && gpu["peers"]["of"] == "run").then_some(gpu)
    });
    assert_eq!(slow["owner"]["run"], "wide", "{slow}");
    let id = slow["owner"]["run_id"].as_str().unwrap();
    let mfu = eventually("what the job makes of its cards", || {
        let health = played.server.get(&format!("/api/tg/v1/runs/{id}/health"));
        health["figures"]["mfu_ratio"]["value"].as_f64()
    });
    assert!((0.2..0.5).contains(&mfu), "66 ranks of one process have 66 cards: {mfu}");
    let incident = eventually("the incident", || played.incident("n09", "0"));
    assert_eq!((&incident["action"], &incident["runs"][0]["run"]), (&"restart_app".into(), &"wide".into()));
    eventually("the second boot of the node that started anew", || {
        let events = played.server.get("/api/tg/v1/events?kind=node&host=n11");
        let of_boot = |event: &&Value| event["body"]["what"] == "boot";
        (events["events"].as_array()?.iter().filter(of_boot).count() == 2).then_some(())
    });
    assert_eq!(played.server.terminate(), 0);
    let left = processes_of(played.home.path());
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn no_part_outlives_a_simulation_that_is_killed() {
    let mut played = Played::start("small.toml", "1");
    // Itself, the server, four ranks, the engine and three agents.
    eventually("every part", || (processes_of(played.home.path()).len() >= 10).then_some(()));
    played.server.kill();
    let gone = || processes_of(played.home.path()).is_empty().then_some(());
    eventually("the end of every part", gone);
}

#[test]
fn a_scenario_that_can_not_be_played_says_why() {
    let home = tempfile::tempdir().unwrap();
    let bad = home.path().join("bad.toml");
    std::fs::write(&bad, "name = \"x\"\n[[nodes]]\nhost = \"a\"\ngpus = 1\nmodel = \"h1000\"\n").unwrap();
    let (code, _, said) = run(home.path(), &["simulate", bad.to_str().unwrap()]);
    assert_eq!(code, 2);
    assert!(said.contains("there is no model `h1000`") && said.contains("h100-sxm"), "{said}");

    let missing = home.path().join("none.so");
    let args = ["simulate", &file("small.toml"), "--driver", missing.to_str().unwrap()];
    let (code, _, said) = run(home.path(), &args);
    assert_eq!(code, 2);
    assert!(said.contains("there is no fake driver") && said.contains("--no-nodes"), "{said}");
}
