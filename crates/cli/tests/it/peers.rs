//! Debian's Prometheus beside the agent: it scrapes a node in both namings, answers a public dashboard and
//! evaluates the rules of this repository.

use std::path::Path;
use std::process::Stdio;

use serde_json::Value;

use crate::agent::{Agent, encoded, scenario};
use crate::far_cluster::{Cluster, now_ms};
use crate::process::{Server, eventually, truegauge};

/// A job that scrapes this agent each second, with labels of the target's own.
fn job(name: &str, agent: &Agent, labels: &str, more: &str) -> String {
    let target = agent.url.trim_start_matches("http://");
    format!(
        "- job_name: {name}\n  scrape_interval: 1s\n  scrape_timeout: 1s\n{more}  static_configs:\n  \
         - targets: [\"{target}\"]\n    labels: {{{labels}}}\n"
    )
}

/// A Prometheus that scrapes these jobs.
fn prometheus(jobs: &str, rules: &str) -> Cluster {
    let mut cluster = Cluster::prepared("0s");
    cluster.set_config(&format!(
        "global: {{evaluation_interval: 1s}}\nrule_files: [{rules}]\nscrape_configs:\n{jobs}"
    ));
    cluster.again();
    cluster
}

fn rows(cluster: &Cluster, query: &str) -> Vec<Value> {
    cluster.query(query, now_ms() as f64 / 1e3)
}

/// What the panels of Grafana's dashboard 12239 ask, in its newer form by `Hostname` and its older one by
/// `instance`: each with how many rows eight cards give.
fn dashboard(host: &str) -> Vec<(String, usize)> {
    let eight = "gpu=~\"(0|1|2|3|4|5|6|7)\"";
    let (by_name, by_target) =
        (format!("Hostname=~\"({host})\", {eight}"), format!("instance=~\".+\", {eight}"));
    let most = |name: &str, by: &str| format!("max({name}{{{by_name}}}) by ({by})");
    let slices = "Hostname, gpu, GPU_I_ID, GPU_I_PROFILE";
    let mut asked = vec![
        (most("DCGM_FI_DEV_GPU_TEMP", "Hostname, gpu, uuid"), 8),
        (format!("avg(DCGM_FI_DEV_GPU_TEMP{{{by_name}}})"), 1),
        (most("DCGM_FI_DEV_POWER_USAGE", "Hostname, gpu, uuid"), 8),
        (format!("sum({})", most("DCGM_FI_DEV_POWER_USAGE", "gpu")), 1),
        (format!("max(DCGM_FI_DEV_SM_CLOCK{{{by_name}}} * 1000000) by (Hostname, UUID, gpu)"), 8),
        (most("DCGM_FI_PROF_GR_ENGINE_ACTIVE", slices), 8),
        (most("DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", slices), 8),
        (most("DCGM_FI_DEV_FB_USED", slices), 8),
        (format!("avg(DCGM_FI_DEV_GPU_TEMP{{{by_target}}})"), 1),
        (format!("sum(DCGM_FI_DEV_POWER_USAGE{{{by_target}}})"), 1),
        (format!("DCGM_FI_DEV_SM_CLOCK{{{by_target}}} * 1000000"), 8),
    ];
    let of_target =
        ["GPU_TEMP", "POWER_USAGE", "GPU_UTIL", "FB_USED"].map(|field| format!("DCGM_FI_DEV_{field}"));
    let plain = of_target.into_iter().chain(["DCGM_FI_PROF_PIPE_TENSOR_ACTIVE".to_owned()]);
    asked.extend(plain.map(|name| (format!("{name}{{{by_target}}}"), 8)));
    asked
}

#[test]
fn prometheus_answers_the_public_dashboard_from_a_node_of_eight_cards() {
    let agent = Agent::start(&scenario(&[""; 8]), &["--host", "dash-8", "--names", "dcgm"]);
    agent.page_with("DCGM_FI_PROF_PIPE_TENSOR_ACTIVE{");
    let prometheus = prometheus(&job("dcgm", &agent, "", ""), "");
    // A card's profiling takes two looks, and a scrape may come between them or, on a busy machine, too late.
    for (query, wanted) in dashboard("dash-8") {
        eventually(&format!("{wanted} rows of {query}"), || {
            (rows(&prometheus, &query).len() == wanted).then_some(())
        });
    }
    for (label, wanted) in [("Hostname", 1), ("instance", 1), ("gpu", 8)] {
        let matched = encoded("DCGM_FI_DEV_FB_FREE");
        let answer = prometheus.ask(&format!("/api/v1/label/{label}/values?match[]={matched}"));
        assert_eq!(answer["data"].as_array().map(Vec::len), Some(wanted), "{label}: {answer}");
    }
    let total = eventually("the power of all cards", || {
        rows(&prometheus, "sum(DCGM_FI_DEV_POWER_USAGE)").into_iter().next()
    });
    assert_eq!(total["value"][1], "2804");
}

#[test]
fn a_target_with_labels_of_cards_wants_its_pages_labels_honoured_and_doctor_says_so() {
    let agent = Agent::start(&scenario(&["", ""]), &["--host", "page-host"]);
    agent.page_with("tg_gpu_power_watts{");
    let honoured = "  honor_labels: true\n";
    let jobs = job("plain", &agent, "host: target", "") + &job("honoured", &agent, "host: target", honoured);
    let prometheus = prometheus(&jobs, "");
    let names = |job: &str| -> Vec<(String, Option<String>)> {
        let label = |row: &Value, name: &str| row["metric"][name].as_str().map(str::to_owned);
        let rows = rows(&prometheus, &format!("tg_gpu_power_watts{{job=\"{job}\",gpu=\"0\"}}"));
        rows.iter().map(|row| (label(row, "host").unwrap(), label(row, "exported_host"))).collect()
    };
    eventually("both jobs are scraped", || {
        (!names("plain").is_empty() && !names("honoured").is_empty()).then_some(())
    });
    assert_eq!(names("plain"), [("target".to_owned(), Some("page-host".to_owned()))]);
    assert_eq!(names("honoured"), [("page-host".to_owned(), None)]);

    for (more, is_moved) in [("", true), (honoured, false)] {
        let config = agent.home.join("scrape.yml");
        std::fs::write(&config, format!("scrape_configs:\n{}", job("cards", &agent, "host: target", more)))
            .unwrap();
        let server = Server::start(&["--scrape-config", config.to_str().unwrap()]);
        eventually("a scrape", || {
            let answer = server.get("/api/v1/query?query=tg_gpu_power_watts");
            (!answer["data"]["result"].as_array().unwrap().is_empty()).then_some(())
        });
        let told = doctor(&server);
        let checks = told["checks"].as_array().unwrap();
        let found = checks.iter().find(|check| check["id"] == "gpu.labels");
        assert_eq!(found.is_some(), is_moved, "{told:#}");
        if let Some(check) = found {
            assert!(check["evidence"].as_str().unwrap().contains("`exported_host`"), "{check}");
            assert!(check["fix"].as_str().unwrap().contains("honor_labels: true"), "{check}");
        }
    }
}

/// What doctor says of a server.
fn doctor(server: &Server) -> Value {
    let mut command = truegauge(&server.home);
    let asked =
        command.args(["doctor", "--json", "--url", &server.url]).stdin(Stdio::null()).output().unwrap();
    serde_json::from_slice(&asked.stdout).unwrap()
}

#[test]
fn prometheus_evaluates_all_rules_together() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../rules").canonicalize().unwrap();
    let agent = Agent::start(&scenario(&["", ""]), &["--host", "rules-1", "--names", "dcgm"]);
    agent.page_with("DCGM_FI_DEV_POWER_USAGE{");
    let rules = format!("\"{}/*.yml\"", folder.display());
    let prometheus = prometheus(&job("dcgm", &agent, "", ""), &rules);
    let files = std::fs::read_dir(&folder).unwrap().flatten();
    let files = files.filter(|file| file.path().extension().is_some_and(|end| end == "yml")).count();
    let groups = || prometheus.ask("/api/v1/rules")["data"]["groups"].as_array().cloned().unwrap_or_default();
    let rules =
        || groups().iter().flat_map(|group| group["rules"].as_array().unwrap().clone()).collect::<Vec<_>>();
    // By the mapping's rules an exporter's page has our names.
    let power = eventually("a card under the canonical name", || {
        let rows = rows(&prometheus, "tg_gpu_power_watts");
        (rows.len() == 2).then(|| rows[0]["metric"].clone())
    });
    assert_eq!(power["host"], "rules-1");
    let failed: Vec<Value> = rules().into_iter().filter(|rule| rule["health"] == "err").collect();
    assert_eq!(failed, Vec::<Value>::new());
    let loaded: std::collections::BTreeSet<String> =
        groups().iter().map(|group| group["file"].to_string()).collect();
    assert_eq!(loaded.len(), files);
}
