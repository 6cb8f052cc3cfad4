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

/// The names of the models of an answer.
fn names(answer: &Value) -> Vec<&str> {
    answer["models"].as_array().unwrap().iter().map(|model| model["model"].as_str().unwrap()).collect()
}

#[test]
fn many_models_come_page_by_page_and_each_is_what_it_is_alone() {
    let pages = Pages::start();
    // Some of the names are like patterns, and each begins the next.
    let models = ["a", "a.", "a.b|c", "a\\\\b", "b<€>"];
    let page = |requests| {
        let of = |model: &&str| vllm(requests, 0.4, 3).replace("\"chat\"", &format!("\"{model}\""));
        models.iter().map(of).collect::<String>()
    };
    pages.set("e", page(0));
    let server = Scraping::of(&pages, &["e"]);
    server.becomes("count(tg_engine_requests_running)", 5.0);
    pages.set("e", page(1_000));
    let time = eventually("the rates are there", || {
        let answer = server.get("/api/tg/v1/engines");
        let all = answer["models"].as_array()?;
        let is_told = |model: &Value| model["values"]["ttft_p50"]["value"].is_f64();
        (all.len() == 5 && all.iter().all(is_told)).then(|| answer["to"].as_i64().unwrap())
    });
    let ask = |more: &str| server.get(&format!("/api/tg/v1/engines?to={time}&from={}{more}", time - 60_000));
    let whole = ask("");
    assert_eq!((names(&whole).len(), &whole["models_total"], &whole["next"]), (5, &json!(5), &Value::Null));
    let (mut together, mut after, mut asked) = (Vec::new(), String::new(), 0);
    loop {
        let page = ask(&format!("&limit=2{after}"));
        asked += 1;
        assert_eq!(page["models_total"], 5);
        together.extend(page["models"].as_array().unwrap().clone());
        let Some(next) = page["next"].as_str() else { break };
        assert_eq!(names(&page).last(), Some(&next));
        "&after=".clone_into(&mut after);
        for byte in next.bytes() {
            write!(after, "%{byte:02x}").unwrap();
        }
    }
    assert_eq!(asked, 3);
    assert_eq!(json!(together), whole["models"], "every figure is the same whatever else is on the page");
    assert_eq!(names(&ask("&after=c")), [""; 0]);
    for limit in ["0", "1001", "many"] {
        assert_eq!(ask(&format!("&limit={limit}"))["error"]["code"], "bad_request", "{limit}");
    }
}

#[test]
fn a_model_that_comes_between_two_pages_is_on_its_page_and_none_is_told_twice() {
    let pages = Pages::start();
    let page = |models: &[&str]| {
        let of = |model: &&str| vllm(0, 0.4, 3).replace("\"chat\"", &format!("\"{model}\""));
        models.iter().map(of).collect::<String>()
    };
    pages.set("e", page(&["b", "d", "f"]));
    let server = Scraping::of(&pages, &["e"]);
    server.becomes("count(tg_engine_requests_running)", 3.0);
    let first = server.get("/api/tg/v1/engines?limit=2");
    assert_eq!(
        (names(&first), &first["next"], &first["models_total"]),
        (vec!["b", "d"], &json!("d"), &json!(3))
    );
    pages.set("e", page(&["a", "b", "d", "e", "f"]));
    server.becomes("count(tg_engine_requests_running)", 5.0);
    let second = server.get("/api/tg/v1/engines?limit=2&after=d");
    assert_eq!((names(&second), &second["next"]), (vec!["e", "f"], &Value::Null));
    assert_eq!(second["models_total"], 5);
    let window = format!("from={}&to={}", second["from"], second["to"]);
    let whole = server.get(&format!("/api/tg/v1/engines?{window}"));
    assert_eq!(names(&whole), ["a", "b", "d", "e", "f"]);
    let slice = server.get(&format!("/api/tg/v1/engines?{window}&limit=2&after=b"));
    assert_eq!(slice["models"].as_array().unwrap()[..], whole["models"].as_array().unwrap()[2..4]);
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
            "- job_name: {path}\n  scrape_interval: 500ms\n  scrape_timeout: 500ms\n  metrics_path: /{path}\n  static_configs: [{{targets: [\"{host}\"], labels: {{{labels}}}}}]\n  honor_labels: true\n"
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
fn a_model_has_its_cost_and_what_it_keeps_of_its_objectives_or_why_not() {
    let pages = Pages::start();
    pages.set("e", vllm(0, 0.4, 0));
    pages.set("f", vllm(0, 0.4, 0).replace("chat", "free"));
    pages.set("d", dcgm("chat-0"));
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("prometheus.yml");
    let target = |path: &str, labels: &str| {
        let url = pages.url(path);
        let host = url.trim_start_matches("http://").split('/').next().unwrap().to_owned();
        format!(
            "- job_name: {path}\n  scrape_interval: 500ms\n  scrape_timeout: 500ms\n  metrics_path: /{path}\n  static_configs: [{{targets: [\"{host}\"], labels: {{{labels}}}}}]\n  honor_labels: true\n"
        )
    };
    let all =
        [target("e", "namespace: serving, pod: chat-0"), target("f", "site: a"), target("d", "site: a")];
    std::fs::write(&file, format!("scrape_configs:\n{}", all.concat())).unwrap();
    let server = Scraping::with_config(move |config| {
        let text = "[site]\nprices = ['h100-sxm=2.50']\nprice_revision = 'r1'\nobjectives = ['chat ttft=0.1 goodput=0.9']";
        *config = crate::site::settings(text, config.clone());
        config.scrape_config = Some(file.clone());
    });
    server.becomes("tg_engine_requests_running{model=\"chat\"}", 12.0);
    server.becomes("tg_slo_seconds", 0.1);
    pages.set("e", vllm(1_000, 0.4, 2));
    pages.set("f", vllm(1_000, 0.4, 2).replace("chat", "free"));
    let models = eventually("cost and goodput are there", || {
        let models = server.get("/api/tg/v1/engines")["models"].clone();
        let chat = &models[0]["values"];
        let known = |key: &str| chat[key]["value"].is_number();
        let all = [
            "usd_per_mtok",
            "tokens_per_joule",
            "power_watts",
            "output_tokens_per_second",
            "goodput_lower",
            "goodput_upper",
        ];
        all.into_iter().all(known).then_some(models)
    });
    let (chat, free) = (&models[0]["values"], &models[1]["values"]);
    let number = |key: &str| chat[key]["value"].as_f64().unwrap();
    let rate = number("output_tokens_per_second");
    let near = |found: f64, wanted: f64| (found - wanted).abs() < wanted * 1e-6;
    assert!(near(number("usd_per_mtok") * rate * 3_600.0 / 1e6, 2.5), "an hour of one card: {chat}");
    assert!(near(number("power_watts"), 412.0) && near(number("tokens_per_joule") * 412.0, rate), "{chat}");
    assert!(near(number("goodput_lower"), 0.1) && near(number("goodput_upper"), 0.1), "{chat}");
    assert!(chat["usd_per_mtok"]["coverage"].is_number(), "{chat}");
    assert_eq!(
        (&chat["usd_per_mtok"]["unit"], &chat["tokens_per_joule"]["unit"]),
        (&json!("USD"), &json!("1/J"))
    );
    let price = json!({"usd_per_gpu_hour": 2.5, "gpu_model": "NVIDIA H100 80GB HBM3", "revision": "r1"});
    assert_eq!(models[0]["price"], price);
    assert_eq!(models[0]["objectives"], json!({"ttft": 0.1, "tpot": null, "itl": null, "goodput": 0.9}));
    let reason = |key: &str| free[key]["reason"].as_str().unwrap().to_owned();
    assert!(reason("goodput_lower").contains("`[site] objectives`"), "{free}");
    assert!(reason("usd_per_mtok").starts_with("which cards of 127.0.0.1 serve it is not known"), "{free}");
    assert!(reason("tokens_per_joule").starts_with("which cards of 127.0.0.1 serve it"), "{free}");
    assert_eq!((&models[1]["price"], &models[1]["objectives"]), (&Value::Null, &Value::Null));
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
