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
}

impl Played {
    /// Plays a scenario of the examples, with a server of its own.
    pub(crate) fn start(scenario: &str, speed: &str) -> Self {
        let home = tempfile::tempdir().unwrap();
        let driver = fake_nvml::install(home.path(), "").unwrap();
        let mut child = truegauge(home.path())
            .args(["simulate", &file(scenario), "--json", "--interval", "1s", "--speed", speed])
            .args(["--driver", driver.to_str().unwrap()])
            .args(["--dir", home.path().join("play").to_str().unwrap()])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(std::fs::File::create(home.path().join("log")).unwrap())
            .spawn()
            .unwrap();
        let mut told = String::new();
        for line in BufReader::new(child.stdout.take().unwrap()).lines() {
            told.push_str(&line.unwrap());
            if serde_json::from_str::<Value>(&told).is_ok() {
                break;
            }
        }
        let told: Value = serde_json::from_str(&told)
            .unwrap_or_else(|_| panic!("{}", std::fs::read_to_string(home.path().join("log")).unwrap()));
        let server = Server::attached(told["server"].as_str().unwrap(), child, home.path());
        Self { server, home }
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
