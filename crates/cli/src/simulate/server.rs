//! What a server needs to scrape the engines of a scenario, and a server of the scenario's own.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use simulate::Vocabulary;

use super::Play;
use super::kubelet::NAMESPACE;
use super::parts::{Part, free_port};
use super::stage::{Served, Wanted};
use crate::output::Failure;

/// How long a server may take to start.
const START_TIME_MAX: Duration = Duration::from_secs(30);

/// Writes the configuration with which a server scrapes the engines: a job for each group, and for each
/// replica the labels that discovery in Kubernetes would give. JSON is YAML.
pub(super) fn write_scrape_config(
    play: &Play,
    wanted: &Wanted,
    engines: &[Served],
) -> Result<PathBuf, Failure> {
    let path = wanted.dir.join("scrape.yml");
    let jobs: Vec<Value> = play
        .scenario
        .engines
        .iter()
        .map(|group| {
            let of_group = engines.iter().filter(|served| served.group == group.name);
            let targets: Vec<Value> = of_group.map(|served| target(served, group)).collect();
            let name = group.name.trim_end_matches(['#', '-']);
            json!({"job_name": name, "static_configs": targets})
        })
        .collect();
    let interval = format!("{}ms", wanted.interval.as_millis());
    let config = json!({"global": {"scrape_interval": interval}, "scrape_configs": jobs});
    std::fs::write(&path, format!("{config:#}\n"))
        .map_err(|error| Failure::new(format!("cannot write `{}`: {error}", path.display())))?;
    Ok(path)
}

fn target(served: &Served, group: &simulate::EngineGroup) -> Value {
    let mut labels = json!({"namespace": NAMESPACE, "pod": served.name});
    // Its page does not say which model it serves.
    if group.engine == Vocabulary::Llamacpp {
        labels["model"] = json!(group.model);
    }
    json!({"targets": [format!("127.0.0.1:{}", served.port)], "labels": labels})
}

/// Starts a server for the scenario alone and waits until it answers.
pub(super) fn start(play: &mut Play, wanted: &Wanted, scrape: &Path) -> Result<Part, Failure> {
    let port = free_port()?;
    let url = format!("http://127.0.0.1:{port}");
    let args: Vec<String> = [
        "up",
        "--data-dir",
        &wanted.dir.join("data").display().to_string(),
        "--listen",
        &format!("127.0.0.1:{port}"),
        "--otlp-grpc-listen",
        "127.0.0.1:0",
        "--otlp-http-listen",
        "127.0.0.1:0",
        "--scrape-config",
        &scrape.display().to_string(),
    ]
    .map(str::to_owned)
    .to_vec();
    let mut part = Part::start("server", &wanted.dir, &args, &[])?;
    let end = Instant::now() + START_TIME_MAX;
    while ureq::get(format!("{url}/readyz")).call().is_err() {
        if let Some(said) = part.ended() {
            return Err(Failure::new(format!("cannot start a server: {said}")));
        }
        if Instant::now() > end {
            return Err(Failure::new(format!("the server at {url} does not answer")));
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    play.server = Some(url);
    Ok(part)
}
