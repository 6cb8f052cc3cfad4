//! What is known of engines, asked of a server that scrapes them.

use std::fmt::Write as _;

use serde_json::{Value, json};

use crate::pages::{Pages, Scraping, eventually};

/// A page of vLLM after so many requests: a tenth of them faster than 0.1 s, the rest faster than 0.25 s.
fn vllm(requests: u32, kv: f64, waiting: u32) -> String {
    let labels = "model_name=\"chat\",engine=\"0\"";
    let base = 1_000_000;
    let (fast, all) = (base + requests / 10, base + requests);
    let mut page = String::new();
    for (le, count) in [("0.1", fast), ("0.25", all), ("+Inf", all)] {
        let _ = writeln!(page, "vllm:time_to_first_token_seconds_bucket{{{labels},le=\"{le}\"}} {count}");
    }
    let _ = writeln!(page, "vllm:time_to_first_token_seconds_count{{{labels}}} {all}");
    let _ = writeln!(page, "vllm:generation_tokens_total{{{labels}}} {}", base + requests * 100);
    let _ = writeln!(page, "vllm:prefix_cache_queries_total{{{labels}}} {}", base + requests * 8);
    let _ = writeln!(page, "vllm:prefix_cache_hits_total{{{labels}}} {}", base + requests * 3);
    let _ = writeln!(page, "vllm:request_success_total{{{labels},finished_reason=\"stop\"}} {all}");
    let _ = writeln!(page, "vllm:num_requests_running{{{labels}}} 12");
    let _ = writeln!(page, "vllm:num_requests_waiting{{{labels}}} {waiting}");
    let _ = writeln!(page, "vllm:kv_cache_usage_perc{{{labels}}} {kv}");
    page.push_str("vllm:brand_new_metric 1\n");
    page
}

/// The page of a card whose memory works and whose tensor cores wait.
fn dcgm(pod: &str) -> String {
    let labels = format!(
        "gpu=\"0\",UUID=\"GPU-e\",pci_bus_id=\"00000000:1B:00.0\",modelName=\"NVIDIA H100 80GB HBM3\",hostname=\"n1\",namespace=\"serving\",pod=\"{pod}\""
    );
    [
        ("DCGM_FI_DEV_POWER_USAGE", "412"),
        ("DCGM_FI_DEV_GPU_UTIL", "100"),
        ("DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", "0.0238"),
        ("DCGM_FI_PROF_DRAM_ACTIVE", "0.871"),
    ]
    .map(|(name, value)| format!("{name}{{{labels}}} {value}\n"))
    .concat()
}

fn near(found: &Value, wanted: f64) -> bool {
    found["value"].as_f64().is_some_and(|found| (found - wanted).abs() < wanted * 1e-6)
}

#[test]
fn a_model_has_its_latencies_load_and_shares_and_a_reason_for_what_is_not_known() {
    let pages = Pages::start();
    pages.set("e", vllm(0, 0.4, 0));
    let server = Scraping::of(&pages, &["e"]);
    server.becomes("tg_engine_requests_running", 12.0);
    pages.set("e", vllm(1_000, 0.4, 2));
    server.becomes("tg_engine_requests_waiting", 2.0);
    let answer = eventually("the rates are there", || {
        let answer = server.get("/api/tg/v1/engines");
        near(&answer["models"][0]["values"]["ttft_p50"], 0.1 + 0.15 * 400.0 / 900.0).then_some(answer)
    });
    let model = &answer["models"][0];
    let values = &model["values"];
    assert_eq!((&model["model"], &model["engines"]), (&json!("chat"), &json!(["vllm"])));
    assert!(near(&values["ttft_p95"], 0.1 + 0.15 * 850.0 / 900.0), "{values}");
    assert!(near(&values["cache_hit_ratio"], 0.375), "{values}");
    assert_eq!(values["running"]["value"], 12.0);
    assert_eq!(values["kv_usage"]["value"], 0.4);
    assert!(values["output_tokens_per_second"]["value"].as_f64().unwrap() > 0.0);
    let coverage = values["output_tokens_per_second"]["coverage"].as_f64().unwrap();
    assert!(coverage > 0.0 && coverage < 0.5, "a few scrapes of five minutes: {coverage}");
    assert_eq!(values["itl_p99"]["value"], Value::Null);
    assert_eq!(values["itl_p99"]["reason"], "vllm sent no tg_engine_itl_seconds in this window");
    assert!(model["finished"]["stop"].as_f64().unwrap() > 0.0, "{model}");
    assert_eq!(model["targets"], json!({"up": 1, "total": 1}));
    assert_eq!(model["verdict"]["kind"], "queueing");
    assert_eq!(model["gpus"], Value::Null);
    assert!(
        model["gpus_reason"].as_str().unwrap().contains("no owner of a card on 127.0.0.1 is known"),
        "{model}"
    );
    let replica = &model["replicas"][0];
    assert_eq!((&replica["dp_rank"], &replica["up"]), (&json!("0"), &json!(true)));
    assert_eq!(answer["targets"][0]["engine"], "vllm");
    assert_eq!(server.get("/api/tg/v1/engines?model=other")["models"], json!([]));
    assert_eq!(server.get("/api/tg/v1/engines?from=5&to=4")["error"]["code"], "bad_request");
}

#[test]
fn a_share_of_which_one_half_never_comes_says_which() {
    let pages = Pages::start();
    let page = |requests| {
        let lines = vllm(requests, 0.4, 0);
        let kept = lines.lines().filter(|line| !line.starts_with("vllm:prefix_cache_hits_total"));
        kept.fold(String::new(), |page, line| page + line + "\n")
    };
    pages.set("e", page(0));
    let server = Scraping::of(&pages, &["e"]);
    server.becomes("tg_engine_requests_running", 12.0);
    pages.set("e", page(1_000));
    let answer = eventually("the rates are there", || {
        let answer = server.get("/api/tg/v1/engines");
        let rate = answer["models"][0]["values"]["output_tokens_per_second"]["value"].as_f64();
        rate.is_some_and(|rate| rate > 0.0).then_some(answer)
    });
    let wanted = json!({
        "value": null,
        "unit": "",
        "reason": "vllm sent no tg_engine_cache_hit_tokens_total in this window",
        "coverage": null,
    });
    assert_eq!(answer["models"][0]["values"]["cache_hit_ratio"], wanted);
    assert_eq!(answer["models"][0]["replicas"][0]["values"]["cache_hit_ratio"], wanted);
}

#[test]
fn an_engine_that_is_down_is_listed_as_down_and_a_restart_is_no_burst() {
    let pages = Pages::start();
    pages.set("e", vllm(1_000, 0.97, 7));
    let server = Scraping::of(&pages, &["e"]);
    server.becomes("tg_engine_requests_waiting", 7.0);
    assert_eq!(server.get("/api/tg/v1/engines")["models"][0]["verdict"]["kind"], "kv_full");
    pages.set("e", vllm(1_000, 0.97, 7).replace("100", "0"));
    pages.settle("e");
    pages.remove("e");
    let answer = eventually("it is down", || {
        let answer = server.get("/api/tg/v1/engines");
        (answer["targets"][0]["up"] == false).then_some(answer)
    });
    assert!(answer["targets"][0]["error"].as_str().unwrap().contains("404"), "{answer}");
    assert_eq!(answer["models"][0]["targets"], json!({"up": 0, "total": 1}));
    let rate = answer["models"][0]["values"]["output_tokens_per_second"]["value"].as_f64();
    assert!(rate.is_none_or(|rate| rate >= 0.0), "{answer}");
}

#[test]
fn a_busy_card_whose_memory_works_is_memory_bound_by_the_pod_that_has_it() {
    let pages = Pages::start();
    pages.set("e", vllm(0, 0.4, 0));
    pages.set("d", dcgm("chat-0"));
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("prometheus.yml");
    let target = |path: &str, labels: &str| {
        let url = pages.url(path);
        let host = url.trim_start_matches("http://").split('/').next().unwrap().to_owned();
        format!(
            "- job_name: {path}\n  scrape_interval: 100ms\n  scrape_timeout: 100ms\n  metrics_path: /{path}\n  static_configs: [{{targets: [\"{host}\"], labels: {{{labels}}}}}]\n  honor_labels: true\n"
        )
    };
    let scraped = format!(
        "scrape_configs:\n{}{}",
        target("e", "namespace: serving, pod: chat-0"),
        target("d", "site: a")
    );
    std::fs::write(&file, scraped).unwrap();
    let server = Scraping::with_config(move |config| config.scrape_config = Some(file.clone()));
    server.becomes(
        "tg_gpu_owner_info{pod=\"chat-0\",namespace=\"serving\",uuid=\"GPU-e\",confidence=\"likely\"}",
        1.0,
    );
    let model = eventually("the join holds", || {
        let answer = server.get("/api/tg/v1/engines");
        (answer["models"][0]["gpus"] == 1).then(|| answer["models"][0].clone())
    });
    assert_eq!(model["verdict"]["kind"], "memory_bound", "{model}");
    let sentence = model["verdict"]["sentence"].as_str().unwrap();
    assert!(
        sentence.starts_with("Busy 100 % of the time, but tensor cores worked 2 % and memory 87 % of it"),
        "{sentence}"
    );
    let numbers = model["verdict"]["numbers"].as_array().unwrap();
    assert!(numbers.iter().any(|one| one["name"] == "dram" && one["value"] == 0.871), "{numbers:?}");
}

#[test]
fn a_page_is_compared_with_what_is_known_of_its_engine() {
    let pages = Pages::start();
    pages.set("e", vllm(0, 0.4, 0));
    let server = Scraping::of(&pages, &["e"]);
    server.becomes("tg_engine_requests_running", 12.0);
    let answer = server.get("/api/tg/v1/engines/vocabulary");
    let target = &answer["targets"][0];
    assert_eq!((&target["engine"], &target["unknown"]), (&json!("vllm"), &json!(["vllm:brand_new_metric"])));
    let matched = target["matched"].as_array().unwrap();
    let is_kv = |row: &&Value| row["source"] == "vllm:kv_cache_usage_perc";
    assert_eq!(matched.iter().find(is_kv).unwrap()["canonical"], "tg_engine_kv_usage_ratio");
    let missing = target["missing"].as_array().unwrap();
    let itl = missing.iter().find(|row| row["canonical"] == "tg_engine_itl_seconds").unwrap();
    assert!(
        itl["expected"].as_array().unwrap().contains(&json!("vllm:inter_token_latency_seconds")),
        "{itl}"
    );
    assert!(!itl["text"].as_str().unwrap().is_empty());
    let instance = target["instance"].as_str().unwrap();
    let one = server.get(&format!("/api/tg/v1/engines/vocabulary?instance={instance}"));
    assert_eq!(one["targets"].as_array().unwrap().len(), 1);
    assert_eq!(server.get("/api/tg/v1/engines/vocabulary?instance=nobody:1")["targets"], json!([]));
}

#[test]
fn a_file_of_the_settings_adds_an_engine() {
    let pages = Pages::start();
    pages.set("e", "own_waiting{served=\"m\"} 3\nown_busy 1\n");
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("own.toml");
    let text = "[source]\nname = \"own\"\nof = \"engine\"\nmarks = [\"own_*\"]\nrename = [[\"served\", \"model\"]]\n\n[[row]]\nfrom = \"own_waiting\"\nto = \"tg_engine_requests_waiting\"\nkind = \"gauge\"\n";
    std::fs::write(&file, text).unwrap();
    let url = pages.url("e");
    let named = file.clone();
    let server = Scraping::with_config(move |config| {
        config.scrape = vec![url.clone()];
        config.vocabulary_files = vec![named.clone()];
    });
    server.becomes("tg_engine_requests_waiting{engine=\"own\",model=\"m\"}", 3.0);
    drop(server);
    std::fs::write(&file, text.replace("kind = ", "kindd = ")).unwrap();
    let place = tempfile::tempdir().unwrap();
    let mut config = crate::metrana::config(place.path());
    config.vocabulary_files = vec![file];
    let error = server::start(config).unwrap_err().to_string();
    assert!(error.contains("own.toml") && error.contains("`kindd`") && error.contains("`kind`"), "{error}");
}
