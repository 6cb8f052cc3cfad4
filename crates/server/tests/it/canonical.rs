//! Pages of engines and exporters, scraped: what they are under canonical names.

use std::fmt::Write as _;

use model::Sample;
use prost::Message;
use wire::push::{Node, PushRequest, Series};

use crate::pages::{Pages, Scraping, eventually, sample};

/// A card as dcgm-exporter names it, before and after DCGM 4.6.
fn dcgm(power: &str, host: &str, names: &[(&str, &str)]) -> String {
    let labels = format!(
        "gpu=\"3\",UUID=\"GPU-aa\",pci_bus_id=\"00000000:1B:00.0\",device=\"nvidia3\",modelName=\"NVIDIA H100 80GB HBM3\",{host}=\"n1\",DCGM_FI_DRIVER_VERSION=\"580.95.05\",pod=\"p\""
    );
    let rows = [("DCGM_FI_DEV_POWER_USAGE", power)].into_iter().chain(names.iter().copied());
    let rows: Vec<String> = rows.map(|(name, value)| format!("{name}{{{labels}}} {value}\n")).collect();
    rows.concat()
}

/// The values of the specification's samples: query and value.
const EXPECTED: &[(&str, &[(&str, f64)])] = &[
    (
        "vllm_current.prom",
        &[
            ("sum(tg_engine_requests_waiting)", 7.0),
            ("sum(tg_engine_requests_running)", 184.0),
            ("avg(tg_engine_kv_usage_ratio)", 0.80575),
            ("max(tg_engine_kv_usage_ratio)", 0.9713),
            ("tg_engine_cache_hit_tokens_total{dp_rank=\"0\"} / tg_engine_cache_query_tokens_total", 0.375),
            ("tg_engine_spec_accepted_tokens_total{dp_rank=\"0\"} / tg_engine_spec_draft_tokens_total", 0.65),
            ("histogram_quantile(0.95, tg_engine_ttft_seconds_bucket{dp_rank=\"0\"})", 6.818_182),
            ("histogram_quantile(0.95, sum by (le) (tg_engine_ttft_seconds_bucket))", 5.694_444),
            ("histogram_quantile(0.99, sum by (le) (tg_engine_itl_seconds_bucket))", 2.310_127),
            ("sum(tg_engine_itl_seconds_sum) / sum(tg_engine_itl_seconds_count)", 0.267_946),
            ("sum(tg_engine_tpot_seconds_sum) / sum(tg_engine_tpot_seconds_count)", 0.040_243),
        ],
    ),
    (
        "vllm_v0.6.prom",
        &[
            ("histogram_quantile(0.95, tg_engine_ttft_seconds_bucket)", 4.255_952),
            ("histogram_quantile(0.99, tg_engine_itl_seconds_bucket)", 0.379_899),
            ("sum(tg_engine_requests_finished_total)", 900.0),
            ("tg_engine_preemptions_total", 17.0),
            ("tg_engine_kv_usage_ratio", 0.873_412_5),
        ],
    ),
    (
        "vllm_v0.9.2_transition.prom",
        &[
            ("tg_engine_kv_usage_ratio", 0.41),
            ("sum(tg_engine_cache_query_tokens_total)", 90_000.0),
            ("sum(tg_engine_itl_seconds_count)", 500.0),
        ],
    ),
    (
        "sglang.prom",
        &[
            ("sum(tg_engine_requests_running)", 41.0),
            ("histogram_quantile(0.95, sum by (le) (tg_engine_ttft_seconds_bucket))", 9.444_444),
            ("histogram_quantile(0.99, sum by (le) (tg_engine_itl_seconds_bucket))", 1.795_918),
            ("sum(tg_engine_cache_hit_tokens_total) / sum(tg_engine_cache_query_tokens_total)", 0.419_987),
        ],
    ),
    (
        "tgi.prom",
        &[
            ("histogram_quantile(0.95, tg_engine_queue_seconds_bucket)", 2.303_213),
            ("tg_engine_tpot_seconds_sum / tg_engine_tpot_seconds_count", 0.034_390),
            ("tg_engine_output_tokens_total", 54_157.0),
        ],
    ),
    ("trtllm_serve.prom", &[("histogram_quantile(0.95, tg_engine_ttft_seconds_bucket)", 0.890_625)]),
    (
        "dynamo_frontend.prom",
        &[("histogram_quantile(0.95, sum by (le) (tg_engine_ttft_seconds_bucket))", 3.106_061)],
    ),
    ("llamacpp.prom", &[("count(tg_engine_output_tokens_total)", 1.0)]),
    (
        "dcgm_exporter.prom",
        &[
            ("count(tg_gpu_power_watts)", 3.0),
            ("tg_gpu_power_watts{gpu=\"1\"}", 489.902),
            ("count(tg_gpu_memory_temperature_celsius)", 2.0),
            ("tg_gpu_unsupported_info{field=\"memory_temperature_celsius\",gpu=\"2\"}", 1.0),
            ("tg_gpu_pcie_transmit_bytes_per_second{gpu=\"1\"}", 1_180_221_344.0),
            ("sum by (uuid) (tg_gpu_throttle_active{gpu=\"1\"})", 2.0),
            ("sum(tg_gpu_throttle_active{gpu=\"1\",reason=~\"(sw|hw)_thermal\"})", 2.0),
            ("tg_gpu_row_remap_pending{gpu=\"1\"}", 1.0),
            ("tg_gpu_power_limit_watts{gpu=\"0\"}", 700.0),
            ("tg_gpu_memory_used_bytes{gpu=\"0\"}", 78_875.0 * 1_048_576.0),
            ("tg_gpu_energy_joules_total{gpu=\"0\"}", 9_100_358_369.229),
            ("tg_gpu_sm_clock_hertz{gpu=\"0\"}", 1.98e9),
            ("tg_gpu_tensor_active_ratio{gpu=\"0\"}", 0.023_81),
        ],
    ),
    (
        "dcgm_exporter_mig.prom",
        &[
            ("count(tg_gpu_power_watts)", 1.0),
            ("sum(tg_gpu_power_watts)", 301.118),
            ("sum(tg_gpu_energy_joules_total)", 126_272_101.025),
            ("count(tg_gpu_info{mig=\"true\"})", 1.0),
        ],
    ),
    (
        "amd.prom",
        &[
            ("count(tg_gpu_power_watts)", 2.0),
            ("tg_gpu_power_watts{gpu=\"0\"}", 688.0),
            ("tg_gpu_energy_joules_total{gpu=\"0\"}", 72_687_570.869_8),
            ("tg_gpu_tensor_active_ratio{gpu=\"0\"}", 0.182),
            ("tg_gpu_pcie_replays_total{gpu=\"1\"}", 4_410.0),
        ],
    ),
];

#[test]
fn pages_of_every_source_have_the_values_that_are_known_of_them() {
    for (name, expected) in EXPECTED {
        let Some(page) = sample(name) else { continue };
        let pages = Pages::start();
        pages.set(name, page);
        let server = Scraping::of(&pages, &[name]);
        for (query, value) in *expected {
            server.becomes(query, *value);
        }
        assert_eq!(server.query("{__name__=~\"tg_.*_created\"}"), [], "{name}");
        assert_eq!(server.query("{__name__=~\"tg_gpu_xid.*\"}"), [], "{name}: a sticky gauge is no event");
        assert_eq!(server.query("{__name__=~\"tg_.*\",err_msg!=\"\"}"), [], "{name}");
        if *name == "llamacpp.prom" {
            assert_eq!(server.query("{__name__=~\"tg_engine_(ttft|itl|tpot|kv).*\"}"), [], "{name}");
        }
    }
}

#[test]
fn a_renamed_field_and_a_renamed_label_give_the_same_series() {
    let (pages, old, new) = (Pages::start(), "old", "new");
    let rows = [
        ("DCGM_FI_DEV_GPU_UTIL", "97"),
        ("DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", "0.25"),
        ("DCGM_FI_DEV_MEMORY_TEMP", "9223372036854775794"),
    ];
    pages.set(old, dcgm("412.5", "Hostname", &rows));
    let first = Scraping::of(&pages, &[old]);
    first.becomes("tg_gpu_tensor_active_ratio", 0.25);
    let renamed = dcgm("412.5", "hostname", &rows)
        .replace("GPU_UTIL", "GPU_UTIL_RATIO")
        .replace("PIPE_TENSOR_ACTIVE", "TENSOR_UTIL_RATIO")
        .replace("POWER_USAGE", "BOARD_POWER_WATTS");
    pages.set(new, renamed);
    let second = Scraping::of(&pages, &[new]);
    second.becomes("tg_gpu_tensor_active_ratio", 0.25);
    let (first, second) = (first.all("tg_.*"), second.all("tg_.*"));
    assert_eq!(first, second);
    let names: Vec<&String> = first.keys().collect();
    assert!(names.iter().any(|name| name.contains("tg_gpu_busy_ratio")), "{names:?}");
    assert!(names.iter().any(|name| name.contains("\"pci_bus_id\":\"0000:1b:00.0\"")), "{names:?}");
    assert!(
        names.iter().any(|name| name.contains("memory_temperature_celsius") && name.contains("unsupported"))
    );
    let is_owner = |name: &str| name.contains("tg_gpu_owner_info");
    assert!(names.iter().all(|name| is_owner(name) || !name.contains("\"pod\"")), "{names:?}");
    assert!(names.iter().all(|name| !name.contains("\"job\"")), "{names:?}");
}

#[test]
fn a_canonical_series_ends_with_its_original_and_another_name_goes_on() {
    let pages = Pages::start();
    let both = "vllm:kv_cache_usage_perc{model_name=\"m\",engine=\"0\"} 0.41\nvllm:gpu_cache_usage_perc{model_name=\"m\",engine=\"0\"} 0.42\n";
    pages.set("e", both);
    let server = Scraping::of(&pages, &["e"]);
    server.becomes("tg_engine_kv_usage_ratio{model=\"m\",dp_rank=\"0\",engine=\"vllm\"}", 0.41);
    assert_eq!(server.value("count(tg_engine_kv_usage_ratio)"), Some(1.0));
    pages.set("e", "vllm:gpu_cache_usage_perc{model_name=\"m\",engine=\"0\"} 0.43\n");
    server.becomes("tg_engine_kv_usage_ratio", 0.43);
    pages.set("e", both);
    server.becomes("tg_engine_kv_usage_ratio", 0.41);
    pages.set("e", "other 1\n");
    server.vanishes("tg_engine_kv_usage_ratio");
    pages.set("e", both);
    server.becomes("tg_engine_kv_usage_ratio", 0.41);
    pages.remove("e");
    server.vanishes("tg_engine_kv_usage_ratio");
    assert_eq!(
        server.value("count(count_over_time(vllm:gpu_cache_usage_perc[5m]))"),
        Some(1.0),
        "originals stay"
    );
}

#[test]
fn two_pages_of_one_card_make_one_series() {
    let pages = Pages::start();
    pages.set("a", dcgm("400", "hostname", &[]));
    let server = Scraping::of(&pages, &["a", "b"]);
    server.becomes("tg_gpu_power_watts", 400.0);
    pages.set("b", dcgm("500", "hostname", &[]));
    pages.settle("b");
    assert_eq!(server.value("tg_gpu_power_watts"), Some(400.0));
    let duplicates = "truegauge_canonical_dropped_total{reason=\"duplicate\"}";
    eventually("duplicates are counted", || server.text("/metrics").contains(duplicates).then_some(()));
    pages.remove("a");
    server.becomes("tg_gpu_power_watts", 500.0);
}

#[test]
fn a_card_that_two_pages_count_differently_is_there_once() {
    let pages = Pages::start();
    let card =
        |gpu: &str, power: &str| dcgm(power, "hostname", &[]).replace("gpu=\"3\"", &format!("gpu=\"{gpu}\""));
    pages.set("a", card("3", "400"));
    let server = Scraping::of(&pages, &["a", "b"]);
    server.becomes("tg_gpu_power_watts{gpu=\"3\"}", 400.0);
    // The other exporter was started after a card before this one had fallen off.
    pages.set("b", card("2", "500"));
    pages.settle("b");
    server.becomes("DCGM_FI_DEV_POWER_USAGE{gpu=\"2\"}", 500.0);
    assert_eq!(server.query("tg_gpu_power_watts{gpu!=\"3\"}"), []);
    assert_eq!(server.value("sum(tg_gpu_power_watts)"), Some(400.0));
    // The page whose name counts may change it.
    pages.set("a", card("1", "401"));
    server.becomes("tg_gpu_power_watts{gpu=\"1\"}", 401.0);
    server.becomes("sum(tg_gpu_power_watts)", 401.0);
    pages.remove("a");
    server.becomes("tg_gpu_power_watts{gpu=\"2\"}", 500.0);
    server.becomes("sum(tg_gpu_power_watts)", 500.0);
}

#[test]
fn what_names_no_card_or_no_number_gives_nothing() {
    let pages = Pages::start();
    let page = dcgm("400", "hostname", &[("DCGM_FI_DEV_GPU_TEMP", "+Inf"), ("DCGM_FI_DEV_SM_CLOCK", "-Inf")]);
    let nameless = page.replace("UUID", "uuid").replace("gpu=\"3\"", "gpu=\"4\"");
    pages.set("a", page + &nameless);
    let server = Scraping::of(&pages, &["a"]);
    server.becomes("sum(tg_gpu_power_watts)", 400.0);
    server.becomes("count(DCGM_FI_DEV_POWER_USAGE)", 2.0);
    assert_eq!(server.query("{__name__=~\"tg_gpu_.*(celsius|hertz)\"}"), []);
    assert_eq!(server.query("{__name__=~\"tg_gpu_.*\",uuid=\"\"}"), []);
}

#[test]
fn a_value_that_comes_back_ends_the_word_that_there_is_none() {
    let pages = Pages::start();
    pages.set("d", dcgm("9223372036854775794", "hostname", &[("DCGM_FI_DEV_MEMORY_TEMP", "NaN")]));
    let server = Scraping::of(&pages, &["d"]);
    server
        .becomes("tg_gpu_unsupported_info{field=\"power_watts\",uuid=\"GPU-aa\",gpu=\"3\",host=\"n1\"}", 1.0);
    assert_eq!(server.query("tg_gpu_power_watts"), []);
    assert_eq!(server.query("tg_gpu_memory_temperature_celsius"), [], "NaN is no number");
    pages.set("d", dcgm("77.5", "hostname", &[]));
    server.becomes("tg_gpu_power_watts", 77.5);
    server.vanishes("tg_gpu_unsupported_info{field=\"power_watts\"}");
}

#[test]
fn energy_never_falls_through_steps_back_restarts_and_new_beginnings() {
    let pages = Pages::start();
    // Its unit is a microjoule. One reading steps back by 213.5 J.
    let amd = |microjoules: f64| {
        let labels = "gpu_id=\"0\",serial_number=\"s1\",hostname=\"m1\",gpu_partition_id=\"0\",gpu_compute_partition_type=\"spx\"";
        format!("gpu_package_power{{{labels}}} 600\ngpu_energy_consumed{{{labels}}} {microjoules}\n")
    };
    pages.set("a", amd(72_688_712_869.8));
    let mut server = Scraping::of(&pages, &["a"]);
    let energy = "tg_gpu_energy_joules_total{uuid=\"s1\",host=\"m1\"}";
    server.becomes(energy, 72_688.712_869_8);
    pages.set("a", amd(72_475_240_402.3));
    let odd = "truegauge_canonical_energy_odd_total{uuid=\"s1\",kind=\"backward\"} 1";
    eventually("a step back is counted", || server.text("/metrics").contains(odd).then_some(()));
    server.becomes(energy, 72_688.712_869_8);
    server.becomes("gpu_energy_consumed", 72_475_240_402.3);
    server.restart();
    pages.settle("a");
    server.becomes("gpu_energy_consumed", 72_475_240_402.3);
    assert_eq!(server.value(energy), Some(72_688.712_869_8), "what it has been is kept");
    pages.set("a", amd(0.0));
    let odd = "truegauge_canonical_energy_odd_total{uuid=\"s1\",kind=\"reset\"} 1";
    eventually("a new beginning is counted", || server.text("/metrics").contains(odd).then_some(()));
    pages.set("a", amd(20_000_000.0));
    server.becomes(energy, 72_708.712_869_8);
    assert_eq!(server.value(&format!("resets({energy}[5m])")), Some(0.0));
}

#[test]
fn hostile_pages_leave_what_is_sound() {
    let pages = Pages::start();
    let mut wide = String::from("vllm:num_requests_running{model_name=\"m\"} 3\n");
    for n in 0..199_000 {
        let _infallible = writeln!(wide, "filler{{n=\"{n}\"}} 1");
    }
    pages.set("wide", wide);
    pages.set(
        "twice",
        "vllm:num_requests_waiting{model_name=\"m\"} 3\nvllm:num_requests_waiting{model_name=\"m\"} 4\n",
    );
    pages.set("utf8", b"vllm:num_preemptions_total{model_name=\"\xff\"} 3\n".to_vec());
    pages.set("half", "vllm:generation_tokens_total{model_name=\"m\"} 5\nvllm:prompt_tokens_total{model_na");
    pages.set("mixed", "vllm:prompt_tokens_total{Model_Name=\"x\",model_name=\"m\"} 8\n");
    let urls = ["wide", "twice", "utf8", "half", "mixed"].map(|path| pages.url(path));
    let server = Scraping::with_config(move |config| {
        config.scrape = urls.to_vec();
        // The widest page takes a second to send and to read where the machine is busy.
        config.scrape_interval = std::time::Duration::from_secs(3);
    });
    server.becomes("tg_engine_requests_running{model=\"m\"}", 3.0);
    server.becomes("tg_engine_requests_waiting{model=\"m\"}", 4.0);
    server.becomes("tg_engine_prompt_tokens_total{model=\"m\",Model_Name=\"x\"}", 8.0);
    pages.settle("utf8");
    pages.settle("half");
    assert_eq!(
        server.query("{__name__=~\"tg_engine_(preemptions|output_tokens)_total\"}"),
        [],
        "a page is taken whole"
    );
}

#[test]
fn a_label_that_never_repeats_is_refused_with_its_job_and_adapters_are_told_one_by_one() {
    let pages = Pages::start();
    let lists = |n: u32| {
        let list = |from: u32| (from..from + 3).map(|n| format!("a{n}")).collect::<Vec<_>>().join(",");
        format!(
            "vllm:lora_requests_info{{running_lora_adapters=\"{}\",waiting_lora_adapters=\"\",max_lora=\"4\"}} {n}\nvllm:num_requests_running{{model_name=\"m\",request_id=\"r{n}\"}} 1\nvllm:num_requests_waiting{{model_name=\"m\"}} {n}\n",
            list(n)
        )
    };
    pages.set("e", lists(1));
    let url = pages.url("e");
    let server = Scraping::with_config(move |config| {
        config.scrape = vec![url.clone()];
        config.own_metrics = true;
        config.own_metrics_interval = std::time::Duration::from_millis(50);
    });
    server.becomes("tg_engine_requests_waiting", 1.0);
    pages.set("e", lists(2));
    server.becomes("vllm:lora_requests_info{lora_adapter=\"a4\",state=\"running\"}", 2.0);
    assert_eq!(server.value("count(vllm:lora_requests_info)"), Some(4.0), "a1 to a4, not their combinations");
    assert_eq!(server.query("{__name__=~\".+\",running_lora_adapters!=\"\"}"), []);
    assert_eq!(server.query("{__name__=~\".+\",request_id!=\"\"}"), []);
    let refused = "truegauge_ingest_refused_labels_total{label=\"request_id\",door=\"scrape\",exported_job!=\"\",job=\"truegauge\"}";
    eventually("the label is told with its job", || server.value(&format!("{refused} > bool 0")));
}

/// What a node's agent pushes of the card `GPU-aa`: the value of each metric, `seconds` from now.
fn push(server: &Scraping, sequence: u64, host: &str, seconds: i64, values: &[(&str, f64)]) {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    let time_ns = i64::try_from(now.as_nanos()).unwrap() + seconds * 1_000_000_000;
    let labels = [("host", host), ("gpu", "3"), ("uuid", "GPU-aa")];
    let labels = labels.map(|(name, value)| (name.to_owned(), value.to_owned()));
    let series = |(name, value): &(&str, f64)| {
        Series::new(name, &labels, "", &[Sample { time_ns, value: *value, step: None }])
    };
    let node = Node { host: host.into(), interval_ms: 10_000, agent_id: vec![7; 16], ..Node::default() };
    let request = PushRequest {
        client_id: vec![9; 16],
        sequence,
        node: Some(node),
        series: values.iter().map(series).collect(),
        ..PushRequest::default()
    };
    let url = format!("{}/api/tg/v1/push", server.url());
    let answer = ureq::post(&url).content_type(wire::push::CONTENT_TYPE).send(request.encode_to_vec());
    assert_eq!(answer.unwrap().status(), 200);
}

#[test]
fn a_card_that_the_agent_reports_has_no_series_from_an_exporter() {
    let pages = Pages::start();
    pages.set("d", dcgm("400", "hostname", &[("DCGM_FI_DEV_GPU_TEMP", "60")]));
    let server = Scraping::of(&pages, &["d"]);
    server.becomes("tg_gpu_power_watts{host=\"n1\"}", 400.0);
    push(&server, 1, "n1.site", 0, &[("tg_gpu_power_watts", 555.0)]);
    server.becomes("sum(tg_gpu_power_watts)", 555.0);
    server.vanishes("tg_gpu_temperature_celsius");
    pages.set("d", dcgm("401", "hostname", &[]));
    pages.settle("d");
    server.becomes("DCGM_FI_DEV_POWER_USAGE", 401.0);
    assert_eq!(server.value("sum(tg_gpu_power_watts)"), Some(555.0));
    assert!(server.text("/metrics").contains("truegauge_canonical_dropped_total{reason=\"agent\"}"));
}

#[test]
fn an_agents_energy_counter_is_made_one_that_never_falls_through_a_restart() {
    let pages = Pages::start();
    let mut server = Scraping::of(&pages, &[]);
    let energy = "tg_gpu_energy_joules_total";
    push(&server, 1, "n1", -20, &[(energy, 1e9), ("tg_gpu_power_limit_watts", 700.0)]);
    push(&server, 2, "n1", -10, &[(energy, 1e9 - 200.0)]);
    server.becomes(energy, 1e9);
    server.restart();
    push(&server, 3, "n1", 0, &[(energy, 1e9 + 5_000.0)]);
    server.becomes(energy, 1e9 + 5_000.0);
    assert_eq!(server.value(&format!("resets({energy}[5m])")), Some(0.0));
    assert_eq!(server.value(&format!("count_over_time({energy}[5m])")), Some(3.0));
}

#[test]
fn a_reading_of_the_future_does_not_stop_a_cards_energy() {
    let pages = Pages::start();
    let server = Scraping::of(&pages, &[]);
    let energy = "tg_gpu_energy_joules_total";
    push(&server, 1, "n1", 1_000_000_000, &[(energy, 7e9), ("tg_gpu_power_watts", 300.0)]);
    push(&server, 2, "n1", -10, &[(energy, 1e9)]);
    push(&server, 3, "n1", 0, &[(energy, 1e9 + 500.0)]);
    server.becomes(energy, 1e9 + 500.0);
    assert!(server.text("/metrics").contains("truegauge_canonical_dropped_total{reason=\"ahead\"} 1"));
}
