//! The mapping as recording rules, by Debian's Prometheus and by this server's PromQL, against what the server makes
//! where series come in.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use semconv::vocabulary::{Vocabulary, rules};
use serde_json::Value;

use crate::otlp_points::escape;
use crate::pages::{Pages, Scraping, eventually, sample};

/// Files of the specification's samples.
const SAMPLES: [&str; 12] = [
    "vllm_current.prom",
    "vllm_v0.6.prom",
    "vllm_v0.9.2_transition.prom",
    "sglang.prom",
    "tgi.prom",
    "triton_trtllm.prom",
    "trtllm_serve.prom",
    "dynamo_frontend.prom",
    "llamacpp.prom",
    "dcgm_exporter.prom",
    "dcgm_exporter_mig.prom",
    "amd.prom",
];

/// A page of ours with what rules and ingest could do differently: two names of one fact, ranks, blanks, slices.
const OWN: &str = r#"
vllm:kv_cache_usage_perc{engine="0",model_name="own"} 0.25
vllm:gpu_cache_usage_perc{engine="0",model_name="own"} 0.5
vllm:time_to_first_token_seconds_bucket{engine="0",model_name="own",le="0.5"} 3
vllm:time_to_first_token_seconds_bucket{engine="0",model_name="own",le="+Inf"} 4
vllm:time_to_first_token_seconds_sum{engine="0",model_name="own"} 1.5
vllm:time_to_first_token_seconds_count{engine="0",model_name="own"} 4
vllm:request_success_total{engine="0",model_name="own",finished_reason="stop"} 4
sglang:num_running_reqs{model_name="s",tp_rank="0"} 3
sglang:num_running_reqs{model_name="s",tp_rank="1"} 5
sglang:generation_tokens_total{model_name="s"} 77
DCGM_FI_DEV_POWER_USAGE{gpu="4",UUID="GPU-own",pci_bus_id="0000ABCD:E1:00.0",modelName="NVIDIA L4",Hostname="h",GPU_I_ID="1"} 61
DCGM_FI_DEV_POWER_USAGE{gpu="4",UUID="GPU-own",pci_bus_id="0000ABCD:E1:00.0",modelName="NVIDIA L4",Hostname="h",GPU_I_ID="2"} 61
DCGM_FI_DEV_FB_USED{gpu="4",UUID="GPU-own",Hostname="h",GPU_I_ID="1"} 512
DCGM_FI_DEV_FB_USED{gpu="4",UUID="GPU-own",Hostname="h",GPU_I_ID="2"} 1024
DCGM_FI_DEV_MEMORY_TEMP{gpu="4",UUID="GPU-own",Hostname="h"} 9223372036854775794
DCGM_FI_DEV_CLOCKS_EVENT_REASONS{gpu="4",UUID="GPU-own",Hostname="h"} 36
"#;

/// Series that only the server makes.
const BEYOND_RULES: [&str; 2] = ["tg_gpu_unsupported_info", "tg_gpu_owner_info"];

struct Prometheus {
    child: Child,
    port: u16,
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ended = self.child.kill();
        let _ended = self.child.wait();
    }
}

impl Prometheus {
    fn start(folder: &Path, scraped: &str, rule_files: &str) -> Self {
        let config = folder.join("p.yml");
        let text = format!(
            "global: {{scrape_interval: 1s, evaluation_interval: 1s}}\nrule_files: [{rule_files}]\n{scraped}"
        );
        fs::write(&config, text).unwrap();
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let child = Command::new("prometheus")
            .arg(format!("--config.file={}", config.display()))
            .arg(format!("--storage.tsdb.path={}", folder.join("tsdb").display()))
            .arg(format!("--web.listen-address=127.0.0.1:{port}"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(fs::File::create(folder.join("prometheus.log")).unwrap())
            .spawn();
        assert!(child.is_ok(), "`prometheus` is missing: apt-get install prometheus");
        Self { child: child.unwrap(), port }
    }

    fn all(&self) -> BTreeMap<String, f64> {
        let query = escape("{__name__=~\"tg_.*\"}");
        let url = format!("http://127.0.0.1:{}/api/v1/query?query={query}", self.port);
        let Ok(mut answer) = ureq::get(&url).call() else { return BTreeMap::new() };
        let answer: Value = serde_json::from_str(&answer.body_mut().read_to_string().unwrap()).unwrap();
        let row = |row: &Value| (row["metric"].to_string(), number(&row["value"][1]));
        answer["data"]["result"].as_array().unwrap().iter().map(row).collect()
    }
}

fn number(value: &Value) -> f64 {
    value.as_str().unwrap().replace("Inf", "inf").parse().unwrap()
}

/// What the rules of every source come to by the server's own PromQL.
fn by_rules(server: &Scraping, vocabulary: &Vocabulary) -> BTreeMap<String, f64> {
    let mut found = BTreeMap::new();
    for rule in vocabulary.sources().iter().flat_map(rules::rules) {
        for (mut labels, value) in server.query(&rule.expr) {
            let set = labels.as_object_mut().unwrap();
            set.insert("__name__".to_owned(), Value::from(rule.record.as_str()));
            for (name, value) in &rule.labels {
                set.insert(name.clone(), Value::from(value.as_str()));
            }
            found.insert(labels.to_string(), value);
        }
    }
    found
}

/// What of two sets is not the same.
fn apart(made: &BTreeMap<String, f64>, ruled: &BTreeMap<String, f64>) -> Vec<String> {
    // Rows of slices were read a moment apart: the meter takes the first of a page, the rule the largest.
    let tolerance = |key: &str| if key.contains("tg_gpu_energy_joules_total") { 1e-6 } else { 1e-12 };
    let same = |key: &str, a: f64, b: f64| a == b || (a - b).abs() <= a.abs() * tolerance(key);
    let keys: BTreeSet<&String> = made.keys().chain(ruled.keys()).collect();
    keys.into_iter()
        .filter(|key| !matches!((made.get(*key), ruled.get(*key)), (Some(a), Some(b)) if same(key, *a, *b)))
        .map(|key| format!("{key}: made {:?}, by rules {:?}", made.get(key), ruled.get(key)))
        .collect()
}

#[test]
fn rules_and_ingest_make_the_same_of_every_page() {
    let pages = Pages::start();
    pages.set("own", OWN);
    let samples: Vec<&str> = SAMPLES.into_iter().filter(|name| sample(name).is_some()).collect();
    for name in &samples {
        pages.set(name, sample(name).unwrap());
    }
    let mut scraped = String::from("scrape_configs:\n");
    for name in samples.iter().copied().chain(["own"]) {
        let host = pages.url("").trim_start_matches("http://").trim_end_matches('/').to_owned();
        let target = format!("static_configs: [{{targets: [\"{host}\"]}}]");
        let _infallible = writeln!(
            scraped,
            "- {{job_name: {name}, scrape_interval: 1s, scrape_timeout: 1s, metrics_path: /{name}, {target}}}"
        );
    }
    let folder = tempfile::tempdir().unwrap();
    let vocabulary = Vocabulary::embedded();
    let files: Vec<String> = rules::files(&vocabulary)
        .into_iter()
        .map(|(name, text)| {
            let path = folder.path().join(name);
            fs::write(&path, text).unwrap();
            path.display().to_string()
        })
        .collect();
    let config = folder.path().join("scrape.yml");
    fs::write(&config, &scraped).unwrap();
    let prometheus = Prometheus::start(folder.path(), &scraped, &files.join(", "));
    let server = Scraping::with_config(move |settings| settings.scrape_config = Some(config.clone()));
    let made = || -> BTreeMap<String, f64> {
        let all = server.all("tg_.*").into_iter();
        all.filter(|(labels, _)| !BEYOND_RULES.iter().any(|name| labels.contains(name))).collect()
    };
    eventually("every page is scraped", || {
        let up = server.value("sum(up)");
        (up == Some(samples.len() as f64 + 1.0) && !made().is_empty()).then_some(())
    });
    let made = made();
    assert!(made.len() > 15, "{made:?}");
    assert_eq!(
        apart(&made, &by_rules(&server, &vocabulary)),
        Vec::<String>::new(),
        "by this server's PromQL"
    );
    let until = Instant::now() + Duration::from_mins(1);
    loop {
        let apart = apart(&made, &prometheus.all());
        if apart.is_empty() {
            return;
        }
        assert!(Instant::now() < until, "by Prometheus, {}: {apart:#?}", apart.len());
        std::thread::sleep(Duration::from_millis(200));
    }
}
