//! The same configuration, the same targets: Debian's Prometheus as the oracle.
//!
//! Without its program on this machine there is nothing to compare with, and the test says nothing.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};

use serde_json::Value;

use crate::support::{Target, ok, samples, start, wait};

/// A running Prometheus, ended with the test.
struct Prometheus {
    child: Child,
    address: String,
    _folder: tempfile::TempDir,
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

impl Prometheus {
    fn start(config: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("p.yml");
        std::fs::write(&file, config).unwrap();
        let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
        let child = Command::new("prometheus")
            .arg(format!("--config.file={}", file.display()))
            .arg(format!("--storage.tsdb.path={}", folder.path().join("data").display()))
            .arg(format!("--web.listen-address={address}"))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        assert!(child.is_ok(), "`prometheus` is missing: apt-get install prometheus");
        Self { child: child.unwrap(), address, _folder: folder }
    }

    /// The `data` of an answer; none while the server is not ready.
    fn ask(&self, path: &str) -> Option<Value> {
        let mut stream = TcpStream::connect(&self.address).ok()?;
        write!(stream, "GET {path} HTTP/1.0\r\n\r\n").ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        let (_, body) = answer.split_once("\r\n\r\n")?;
        Some(serde_json::from_str::<Value>(body).ok()?["data"].take())
    }
}

/// Labels as one sorted text.
fn text<'l>(pairs: impl Iterator<Item = (&'l str, &'l str)>) -> String {
    let mut pairs: Vec<String> = pairs.map(|(name, value)| format!("{name}={value}")).collect();
    pairs.sort();
    pairs.join(",")
}

fn of_json(labels: &Value) -> String {
    text(labels.as_object().unwrap().iter().map(|(name, value)| (name.as_str(), value.as_str().unwrap())))
}

const CONFIG: &str = r"
global: {scrape_interval: 1s, scrape_timeout: 900ms}
scrape_configs:
- job_name: labels
  metrics_path: /all
  params: {q: [one, two], r: [three]}
  static_configs:
  - targets: ['ADDRESS', 'gone:1']
    labels: {rack: r1, __meta_zone: Z9, __meta_host_name: h, mixed: 'FoÖ', tmp_a: x, tmp_b: y}
  relabel_configs:
  - {source_labels: [__address__], regex: 'gone:.*', action: drop}
  - {source_labels: [rack, __meta_zone], separator: '-', target_label: place}
  - {source_labels: [place], regex: 'r(\d)-(.*)', target_label: swapped, replacement: '${2}/$1/$1x'}
  - {source_labels: [place], regex: 'r1', target_label: never, replacement: set}
  - {regex: '__meta_(.+)', action: labelmap}
  - {regex: 'tmp_.*', action: labeldrop}
  - {source_labels: [__address__, rack], modulus: 17, target_label: shard, action: hashmod}
  - {source_labels: [mixed], target_label: upper, action: uppercase}
  - {source_labels: [mixed], target_label: lower, action: lowercase}
  - {source_labels: [__param_q], target_label: q}
  - {target_label: fixed, replacement: value}
  - {source_labels: [missing], target_label: fixed, regex: 'x|()', replacement: '$1'}
  - {source_labels: [zone], target_label: zone, action: keepequal}
- job_name: kept
  metrics_path: /all
  honor_labels: true
  static_configs:
  - targets: ['ADDRESS']
    labels: {x: target}
  relabel_configs:
  - {regex: 'x|__.*|job', action: labelkeep}
  - {source_labels: [x], regex: 'tar.*', action: keep}
- job_name: metrics
  metrics_path: /all
  static_configs: [{targets: ['ADDRESS'], labels: {x: target}}]
  metric_relabel_configs:
  - {source_labels: [__name__], regex: 'drop_.*', action: drop}
  - {source_labels: [__name__, x], regex: 'a;(.*)', target_label: __name__, replacement: 'renamed'}
  - {regex: 'y', action: labeldrop}
- job_name: limited
  metrics_path: /all
  sample_limit: 2
  static_configs: [{targets: ['ADDRESS']}]
- job_name: short
  metrics_path: /all
  label_value_length_limit: 3
  static_configs: [{targets: ['ADDRESS']}]
- job_name: times
  metrics_path: /times
  honor_timestamps: false
  static_configs: [{targets: ['ADDRESS']}]
- job_name: broken
  metrics_path: /broken
  static_configs: [{targets: ['ADDRESS']}]
- job_name: missing
  metrics_path: /missing
  static_configs: [{targets: ['ADDRESS']}]
- job_name: moved
  metrics_path: /moved
  static_configs: [{targets: ['ADDRESS']}]
- job_name: own
  static_configs: [{targets: ['ADDRESS'], labels: {__metrics_path__: all, job: renamed, instance: me}}]
";

fn target() -> Target {
    Target::new(|request, stream| match request.path.split('?').next().unwrap() {
        "/all" => {
            let page =
                "a{x=\"page\",y=\"1\"} 1\nb{job=\"own\",instance=\"\",exported_job=\"p\"} 2\ndrop_me 3\n";
            ok(stream, "text/plain; version=0.0.4", page.as_bytes());
        }
        "/times" => ok(stream, "text/plain", b"a 1 1000\n"),
        "/broken" => ok(stream, "text/plain", b"a 1\nb\n"),
        "/moved" => {
            crate::support::head(
                stream,
                "302 Found",
                "location: /all\r\ncontent-length: 0\r\nconnection: close\r\n",
            );
        }
        _ => crate::support::head(stream, "404 Not Found", "content-length: 0\r\nconnection: close\r\n"),
    })
}

#[test]
fn targets_and_series_are_those_of_prometheus() {
    let target = target();
    let config = CONFIG.replace("ADDRESS", &target.address);
    let oracle = Prometheus::start(&config);
    let (scraper, landed) = start(&config);

    let theirs = wait("answer of prometheus", || {
        let data = oracle.ask("/api/v1/targets")?;
        let active = data["activeTargets"].as_array()?;
        (active.len() == 10 && active.iter().all(|t| t["health"] != "unknown")).then_some(data)
    });
    let ours = wait("scrape of every target", || {
        let targets = scraper.targets();
        targets.active.iter().all(|t| t.health != scrape::Health::Unknown).then_some(targets)
    });
    // This version shows labels that rules have made meanwhile as discovered ones.
    let facts = |labels: String, discovered: String, url: &str, health: &str| {
        let discovered = if labels.contains("job=labels") { String::new() } else { discovered };
        format!("{labels}\n  {discovered}\n  {url}\n  {health}")
    };
    let mut want: Vec<String> = theirs["activeTargets"]
        .as_array()
        .unwrap()
        .iter()
        .map(|t| {
            let (url, health) = (t["scrapeUrl"].as_str().unwrap(), t["health"].as_str().unwrap());
            facts(of_json(&t["labels"]), of_json(&t["discoveredLabels"]), url, health)
        })
        .collect();
    let mut got: Vec<String> = ours
        .active
        .iter()
        .map(|t| facts(text(t.labels.iter()), text(t.discovered.iter()), &t.url, t.health.as_str()))
        .collect();
    want.sort();
    got.sort();
    assert_eq!(got.join("\n"), want.join("\n"));
    let dropped = theirs["droppedTargets"].as_array().unwrap();
    assert_eq!(dropped.len(), 1);
    assert_eq!(text(ours.dropped[0].discovered.iter()), of_json(&dropped[0]["discoveredLabels"]));

    let series = wait("series of prometheus", || {
        let data = oracle.ask("/api/v1/query?query=%7B__name__%3D~%22.%2B%22%7D")?;
        let result = data["result"].as_array()?.clone();
        let ups = result.iter().filter(|s| s["metric"]["__name__"] == "up").count();
        (ups == 10).then_some(result)
    });
    let counts = "scrape_samples_scraped|scrape_samples_post_metric_relabeling";
    let is_compared = |name: &str| !name.starts_with("scrape_") || counts.split('|').any(|c| c == name);
    let want: BTreeSet<String> = series
        .iter()
        .filter(|s| is_compared(s["metric"]["__name__"].as_str().unwrap()))
        .map(|s| format!("{} {}", of_json(&s["metric"]), s["value"][1].as_str().unwrap()))
        .collect();
    // A page that is refused in the middle counts differently; see docs/guides/scraping.md.
    let is_partial = |line: &&String| {
        let jobs = ["job=limited", "job=broken", "job=short"];
        line.contains("scrape_samples") && jobs.iter().any(|job| line.contains(job))
    };
    let got: BTreeSet<String> = landed
        .all()
        .iter()
        .flat_map(|batch| batch.samples.clone())
        .filter(|s| is_compared(s.labels.metric()) && !model::is_stale_marker(s.sample.value))
        .map(|s| format!("{} {}", text(s.labels.iter()), s.sample.value))
        .collect();
    let difference: Vec<&String> = want.symmetric_difference(&got).filter(|line| !is_partial(line)).collect();
    assert!(difference.is_empty(), "{difference:#?}");
    assert!(want.len() > 40, "{}", want.len());
    assert!(landed.all().iter().map(samples).all(|s| !s.is_empty()));
}
