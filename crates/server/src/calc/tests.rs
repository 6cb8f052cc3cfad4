use std::fmt::Write as _;
use std::path::PathBuf;

use serde_json::{Value, json};

use super::{Answer, CalcError, TOOLS, answer, columns_of, tool};

fn ask(name: &str, body: &Value) -> Result<Answer, CalcError> {
    answer(tool(name).unwrap(), body)
}

fn answered(name: &str, body: Value) -> Answer {
    ask(name, &body).unwrap_or_else(|error| panic!("{name} {body}: {error}"))
}

#[track_caller]
fn is(answer: &Answer, name: &str, want: f64, within: f64) {
    let found = answer.figure(name).unwrap_or_else(|| panic!("no `{name}` in {:#}", answer.json()));
    assert!((found - want).abs() <= want.abs() * within, "{name}: {found} is not {want}");
}

#[track_caller]
fn lacks(answer: &Answer, name: &str, words: &str) {
    assert_eq!(answer.result.get(name), Some(&Value::Null), "{name}: {:#}", answer.json());
    let reason = answer.absent.iter().find(|absent| absent.name == name).map(|absent| absent.reason.as_str());
    assert!(reason.is_some_and(|reason| reason.contains(words)), "{name}: {reason:?}");
}

/// A file of the known inputs that come with the project's specification, where they are there.
fn golden(name: &str) -> Option<String> {
    let folder = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/data/golden"));
    std::fs::read_to_string(folder.join(name)).ok()
}

fn read(name: &str, text: &str) -> Value {
    let file = tool(name).unwrap().inputs.iter().find(|input| input.is_file).unwrap();
    let super::Kind::Table(columns) = file.kind else { panic!("{name} reads no file") };
    json!({ file.name: columns_of(text, columns).unwrap() })
}

/// A GPU at 600 W, an engine of 2,400 tokens/s that restarts at sample 20 of 41, every 15 s.
fn restarted() -> String {
    let mut text = String::from("t,energy_mj,tokens\n");
    let mut tokens = 4.4e9;
    for at in 0..41_u32 {
        tokens = if at == 20 { 0.0 } else { tokens };
        let _infallible = writeln!(text, "{},{},{tokens}", at * 15, 9.1e12 + f64::from(at) * 9e6);
        tokens += 36_000.0;
    }
    text
}

#[test]
fn a_restart_lowers_coverage_and_does_not_count_backwards() {
    let mut body = read("economics", &restarted());
    body["price"] = json!(2.5);
    let said = answered("economics", body);
    // Of 40 intervals one is lost: what came between the last sample and the restart is not known.
    is(&said, "tokens_per_second", 2_400.0 * 39.0 / 40.0, 1e-12);
    is(&said, "coverage_ratio", 0.975, 1e-12);
    is(&said, "tokens_per_second_corrected", 2_400.0, 1e-12);
    is(&said, "watts", 600.0, 1e-12);
    is(&said, "energy_coverage_ratio", 1.0, 1e-12);
    is(&said, "resets", 1.0, 0.0);
    is(&said, "tokens_per_joule", 3.9, 1e-12);
    is(&said, "usd_per_mtok", 2.5 / (2_340.0 * 3_600.0) * 1e6, 1e-12);
    is(&said, "usd_per_mtok_corrected", 2.5 / (2_400.0 * 3_600.0) * 1e6, 1e-12);
    assert!(said.figure("naive_tokens_per_second").unwrap() < -7e6);
    lacks(&said, "facility_tokens_per_joule", "--pue");
    lacks(&said, "occupancy_ratio", "--occupancy");
}

#[test]
fn the_known_stream_comes_to_its_known_figures() {
    let Some(text) = golden("economics.csv") else { return };
    let mut body = read("economics", &text);
    body["price"] = json!(2.5);
    let plain = answered("economics", body.clone());
    for (name, want) in [
        ("watts", 597.282_048_199_869_8),
        ("tokens_per_second", 2_426.100_571_009_45),
        ("naive_tokens_per_second", -7_332_069.089_738_101),
        ("tokens_per_joule", 4.061_901_037_075_199),
        ("usd_per_mtok", 0.286_238_935_328_019_25),
        ("coverage_ratio", 0.975),
    ] {
        is(&plain, name, want, 1e-9);
    }
    let printed = plain.text.clone();
    for words in [
        "   597.3 W",
        "  2426.1",
        "-7,332,069.1",
        "    4.06",
        "$2.50/GPU-hour: $0.29",
        "60 %",
        "$0.48",
        "30 %",
        "$0.95",
    ] {
        assert!(printed.contains(words), "{words:?} is not in\n{printed}");
    }
    is(&plain, "tokens_per_second_corrected", 2_488.308, 1e-6);
    is(&plain, "tokens_per_joule_corrected", 4.1661, 2e-5);
    is(&plain, "usd_per_mtok_corrected", 0.2791, 2e-4);
    is(&plain, "joules_per_token", 0.246_19, 1e-5);
    is(&plain, "kwh_per_mtok", 0.068_386, 1e-5);
    body["occupancy"] = json!([0.6, 0.3]);
    body["pue"] = json!(1.3);
    body["server_overhead"] = json!(1.4);
    let shared = answered("economics", body.clone());
    is(&shared, "usd_per_mtok", 0.477_064_892_213_365_45, 1e-9);
    is(&shared, "usd_per_mtok_busy", 0.286_238_935_328_019_25, 1e-9);
    is(&shared, "facility_tokens_per_joule", 2.2318, 1e-5);
    let costs: Vec<f64> = shared.rows.iter().map(|row| row["usd_per_mtok"].as_f64().unwrap()).collect();
    for (found, want) in
        costs.iter().zip([0.286_238_935_328_019_25, 0.477_064_892_213_365_45, 0.954_129_784_426_730_9])
    {
        assert!((found - want).abs() < want * 1e-9, "{costs:?}");
    }
    body["server_overhead"] = Value::Null;
    body["energy_price"] = json!(0.12);
    is(&answered("economics", body), "energy_usd_per_mtok", 0.010_67, 5e-4);
}

#[test]
fn a_share_of_busy_hours_is_applied_once() {
    let rate = json!({"tokens_per_second": 1_455.660_342_605_67, "rate_over": "allocated", "price": 2.5});
    let whole = answered("economics", rate.clone());
    is(&whole, "usd_per_mtok", 0.477_064_892_213_365_45, 1e-9);
    lacks(&whole, "usd_per_mtok_busy", "not known");
    let mut known = rate;
    known["occupancy"] = json!(0.6);
    let known = answered("economics", known);
    is(&known, "usd_per_mtok", 0.477_064_892_213_365_45, 1e-9);
    is(&known, "usd_per_mtok_busy", 0.286_238_935_328_019_25, 1e-9);

    let rows = "t,tokens,running\n0,0,1\n10,1000,0\n20,1000,3\n30,2000,1\n";
    let mut measured = read("economics", rows);
    measured["price"] = json!(3.6);
    let said = answered("economics", measured.clone());
    is(&said, "occupancy_ratio", 2.0 / 3.0, 1e-12);
    is(&said, "usd_per_mtok", 15.0, 1e-12);
    is(&said, "usd_per_mtok_busy", 10.0, 1e-12);
    let mut busy = measured.clone();
    busy["rate_over"] = json!("busy");
    assert_eq!(ask("economics", &busy).unwrap_err().field.as_deref(), Some("rate_over"));
    measured["occupancy"] = json!(0.5);
    assert_eq!(ask("economics", &measured).unwrap_err().field.as_deref(), Some("occupancy"));
}

/// Raw samples every 15 s of one counter, in the middle of a window of 600 s or at its end.
fn counter(from: u32, to: u32, per_second: f64) -> Value {
    let times: Vec<u32> = (from..=to).step_by(15).collect();
    let values: Vec<f64> = times.iter().map(|time| f64::from(time - from) * per_second).collect();
    json!({"t": times, "value": values, "from": 0, "to": 600})
}

#[test]
fn replicas_that_follow_one_another_are_not_counted_twice() {
    let said = answered("economics", json!({"tokens": [counter(0, 300, 100.0), counter(300, 600, 100.0)]}));
    is(&said, "tokens_per_second", 100.0, 0.03);
    is(&said, "tokens_per_second_corrected", 100.0, 0.03);
    let together = answered("economics", json!({"tokens": [counter(0, 600, 100.0), counter(0, 600, 50.0)]}));
    is(&together, "tokens_per_second_corrected", 150.0, 1e-9);
    let late = answered("economics", json!({"tokens": [counter(300, 600, 100.0)]}));
    is(&late, "tokens_per_second", 50.0, 0.03);
    is(&late, "tokens_per_second_corrected", 100.0, 1e-9);
}

#[test]
fn energy_that_no_board_can_burn_is_not_zero_watts() {
    let node = counter(0, 600, 5_600.0);
    let said = answered("economics", json!({"energy": [node], "tokens_per_second": 1_000}));
    lacks(&said, "watts", "--power-limit");
    lacks(&said, "tokens_per_joule", "--power-limit");
    let known = answered("economics", json!({"energy": [counter(0, 600, 5_600.0)], "power_limit": 5_600}));
    is(&known, "watts", 5_600.0, 1e-9);
}

#[test]
fn a_fleet_sized_for_a_peak_of_three_uses_a_third() {
    let bare = answered("economics", json!({"peak_to_average": 3}));
    is(&bare, "average_over_peak_ratio", 1.0 / 3.0, 1e-12);
    lacks(&bare, "usd_per_mtok", "--price");
    lacks(&bare, "tokens_per_second", "tokens");
    let said = answered(
        "economics",
        json!({"peak_to_average": 3, "tokens_per_second": 3_000, "price": 2.7, "occupancy": 0.5}),
    );
    is(&said, "batch_tokens_per_second", 2_000.0, 1e-12);
    is(&said, "usd_per_mtok_at_average", 0.75, 1e-12);
    is(&said, "usd_per_mtok_with_batch", 0.25, 1e-12);
    assert!(said.warnings[0].contains("33.3 %"), "{:?}", said.warnings);
    let fleet = answered("capacity", json!({"peak_to_average": 3}));
    is(&fleet, "average_over_peak_ratio", 1.0 / 3.0, 1e-12);
    lacks(&fleet, "gpus_for_peak", "--per-gpu");
    let fleet = answered(
        "capacity",
        json!({"peak": 9_000, "average": 3_000, "per_gpu": 1_000, "headroom": 0.1, "price": 2}),
    );
    is(&fleet, "gpus_for_peak", 10.0, 0.0);
    is(&fleet, "idle_usd_per_day", 320.0, 1e-12);
    let over_time = answered("capacity", read("capacity", "t,load\n0,10\n90,100\n100,0\n"));
    is(&over_time, "average", 19.0, 1e-12);
}

fn decoder(more: &Value) -> Value {
    let mut body = json!({"params": 8.03e9, "bytes_per_param": 2, "layers": 32, "kv_heads": 8, "head_dim": 128,
        "context": 2_048, "gpu": "h100-sxm"});
    for (name, value) in more.as_object().unwrap() {
        body[name] = value.clone();
    }
    body
}

#[test]
fn a_roofline_has_the_known_steps_and_says_what_fits() {
    let said = answered("roofline", decoder(&json!({})));
    let want = "  batch   step ms   tokens/s   'GPU util'   tensor busy   memory busy
      1      4.87        205        100 %         0.3 %       100.0 %
      8      5.44      1,472        100 %         2.4 %       100.0 %
     32      7.36      4,349        100 %         7.1 %       100.0 %
     64      9.92      6,450        100 %        10.5 %       100.0 %
    128     15.05      8,505        100 %        13.8 %       100.0 %
  KV cache per token: 128 KiB; at batch 128 the KV reads are 34 GB per step vs 16 GB of weights
";
    assert!(said.text.starts_with(want), "{}", said.text);
    is(&said, "kv_bytes_per_token", 131_072.0, 0.0);
    is(&said, "ridge_flops_per_byte", 295.2, 1e-4);
    is(&said, "floor_seconds", 4.79e-3, 1e-3);
    assert_eq!(said.rows[4]["bound_by"], "memory");
    for (memory, most) in [
        (json!({}), 59.0),
        (json!({"memory_bytes": 80.0 * 1_073_741_824.0}), 65.0),
        (json!({"memory_share": 0.9}), 52.0),
    ] {
        let mut more = memory;
        more["context"] = json!(8_192);
        more["batch"] = json!([32, 60]);
        let said = answered("roofline", decoder(&more));
        is(&said, "batch_max", most, 0.0);
        assert_eq!(said.rows[1]["fits"], json!(most >= 60.0));
        let tokens = said.rows[0]["tokens_per_second"].as_f64().unwrap();
        assert!((tokens - 2_126.0).abs() < 0.5, "{tokens}");
    }
    let measured = answered("roofline", decoder(&json!({"batch": [1], "step_seconds": 0.01})));
    is(&measured, "mbu_ratio", 0.487_42, 1e-4);
    let faster = ask("roofline", &decoder(&json!({"batch": [1], "step_seconds": 0.001}))).unwrap_err();
    assert!(faster.is_impossible && faster.to_string().contains("487"), "{faster}");
}

#[test]
fn a_stream_with_a_stall_shows_it_in_its_gaps() {
    let mut text = String::new();
    let mut time = 0.42;
    for at in 0..300 {
        let _infallible = writeln!(text, "{time}");
        time += 0.025 + if at == 150 { 2.0 } else { 0.0 };
    }
    for text in [text].into_iter().chain(golden("stream.txt")) {
        let said = answered("stream", read("stream", &text));
        is(&said, "ttft_seconds", 0.42, 1e-12);
        is(&said, "tpot_seconds", 0.031_688_963_210_702_49, 1e-9);
        is(&said, "itl_seconds_p50", 0.025, 1e-9);
        is(&said, "itl_seconds_p99", 0.025, 1e-9);
        is(&said, "itl_seconds_max", 2.025, 1e-9);
        is(&said, "e2e_seconds", 9.895, 1e-9);
        is(&said, "gaps", 299.0, 0.0);
        is(&said, "stalls", 1.0, 0.0);
        assert!(
            said.text.starts_with("  TTFT 420 ms   TPOT 31.7 ms   ITL p50 25 ms   ITL max 2025 ms\n"),
            "{}",
            said.text
        );
    }
    let mut body = json!({"times": [0.5, 1.0]});
    body["itl"] = json!(0.2);
    assert_eq!(answered("stream", body).result["is_good"], json!(false));
    lacks(&answered("stream", json!({"times": [0.5]})), "tpot_seconds", "one token");
}

fn cluster(more: &Value) -> Value {
    let mut body =
        json!({"params": 70e9, "gpus": 1_024, "tokens_per_second": 782_446.915_414_626_1, "peak": 989e12});
    for (name, value) in more.as_object().unwrap() {
        body[name] = value.clone();
    }
    body
}

#[test]
fn utilization_names_how_it_counts_and_what_it_divides_by() {
    let said = answered("mfu", cluster(&json!({})));
    is(&said, "mfu_ratio", 0.324_494_936_957_472_6, 1e-9);
    is(&said, "hfu_full_recompute_ratio", 0.4327, 1e-4);
    assert_eq!(said.result["flops_model"], "6N");
    let driver = cluster(&json!({"peak": null, "gpu": "NVIDIA H100 80GB HBM3"}));
    is(&answered("mfu", driver), "mfu_ratio", 0.324_494_936_957_472_6, 1e-9);
    let sizes = json!({"layers": 80, "heads": 64, "head_dim": 128, "seq_len": 4_096});
    let said = answered("mfu", cluster(&sizes));
    is(&said, "mfu_ratio", 0.3494, 2e-4);
    assert_eq!(said.result["flops_model"], "6N+attn");
    let mut causal = sizes;
    causal["flops_model"] = json!("6N+attn_causal");
    is(&answered("mfu", cluster(&causal)), "mfu_ratio", 0.3369, 2e-4);
    is(&answered("mfu", cluster(&json!({"achievable": 794.5e12}))), "mfu_of_achievable_ratio", 0.4039, 2e-4);
    let known = answered("mfu", cluster(&json!({"peak": null, "gpu": "h100-sxm"})));
    is(&known, "mfu_of_achievable_ratio", 0.4039, 2e-4);
    let eighth = answered("mfu", cluster(&json!({"peak": null, "gpu": "h100-sxm", "dtype": "fp8"})));
    lacks(&eighth, "mfu_of_achievable_ratio", "--achievable");
    let capped = answered("mfu", cluster(&json!({"clock_ratio": 0.5})));
    is(&capped, "mfu_of_capped_ratio", 0.324_494_936_957_472_6 * 2.0, 1e-9);
    is(&answered("mfu", cluster(&json!({"recompute": "full"}))), "hfu_ratio", 0.4327, 1e-4);
    lacks(&answered("mfu", cluster(&json!({"recompute": "selective"}))), "hfu_ratio", "attention");
    let inference = answered("mfu", cluster(&json!({"flops_model": "2N"})));
    is(&inference, "mfu_ratio", 0.324_494_936_957_472_6 / 3.0, 1e-9);
    lacks(&inference, "hfu_full_recompute_ratio", "inference");
}

#[test]
fn more_than_hardware_can_do_is_no_figure() {
    let fast = json!({"params": 70e9, "gpus": 1_024, "tokens_per_second": 2e6, "peak": 989e12});
    lacks(&answered("mfu", fast.clone()), "hfu_full_recompute_ratio", "not all is computed again");
    let mut full = fast.clone();
    full["recompute"] = json!("full");
    let error = ask("mfu", &full).unwrap_err();
    assert!(error.is_impossible && error.to_string().contains("110.59"), "{error}");
    assert_eq!(error.field.as_deref(), Some("recompute"));
    let error = ask("mfu", &cluster(&json!({"clock_ratio": 0.3}))).unwrap_err();
    assert!(error.is_impossible && error.field.as_deref() == Some("clock_ratio"), "{error}");
}

#[test]
fn a_peak_of_sparse_matrices_is_told_from_the_dense_one() {
    for more in [json!({"peak": 1_979e12, "gpu": "h100-sxm"}), json!({"peak": 1_979e12})] {
        let said = answered("mfu", cluster(&more));
        let warning = said.warnings.iter().find(|warning| warning.contains("sparse"));
        assert!(warning.is_some_and(|warning| warning.contains("989 TFLOP/s")), "{:?}", said.warnings);
    }
    for more in
        [json!({}), json!({"peak": 989.4e12}), json!({"peak": 312e12, "gpu": "a100-sxm-80", "gpus": 4_096})]
    {
        let said = answered("mfu", cluster(&more));
        assert!(said.warnings.is_empty(), "{:?}", said.warnings);
    }
}

#[test]
fn a_slow_gpu_is_seen_beside_the_healthy_step() {
    let said = answered(
        "mfu",
        json!({"params": 70e9, "gpus": 1_024, "peak": 989e12, "tokens_per_step": 4 * 1_024 * 1_024,
            "step_seconds": [5.360_496_561_957_865, 6.340_929_828_753_699_5, 5.4359]}),
    );
    let want = "  step  5.36 s     782,447 tokens/s   MFU 32.4 %\n  step  6.34 s     661,465 tokens/s   MFU 27.4 %\n";
    assert!(said.text.starts_with(want), "{}", said.text);
    is(&said, "tokens_per_second", 782_446.915_414_626_1, 1e-9);
    let mfu = |at: usize| said.rows[at]["mfu_ratio"].as_f64().unwrap();
    assert!((mfu(1) - 0.274_321_596_502_378_14).abs() < 1e-10, "{}", mfu(1));
    assert!((mfu(2) - 0.319_99).abs() < 1e-5, "a GPU at 95 % of its clock: {}", mfu(2));
    let loss = said.rows[2]["loss_ratio"].as_f64().unwrap();
    assert!((loss - 0.014).abs() < 5e-4, "{loss}");
}

#[test]
fn what_is_not_known_is_absent_with_its_reason_and_what_can_not_be_is_an_error() {
    let unknown = answered("mfu", cluster(&json!({"peak": null, "gpu": "NVIDIA X900"})));
    lacks(&unknown, "mfu_ratio", "NVIDIA X900");
    is(&unknown, "flops_per_second_per_gpu", 320.925e12, 1e-5);
    let wrong = ask("mfu", &cluster(&json!({"peak": 312e12}))).unwrap_err();
    assert!(wrong.is_impossible && wrong.to_string().contains("102.86 %"), "{wrong}");
    assert_eq!(wrong.field.as_deref(), Some("peak"));
    let steps = json!({"tokens_per_second": null, "tokens_per_step": 4e6, "step_seconds": [5, 0.5]});
    assert!(ask("mfu", &cluster(&steps)).unwrap_err().is_impossible, "the second step is too fast");
    let mixture =
        json!({"params": 671e9, "moe": true, "tokens_per_second": 2e6, "gpus": 2_048, "gpu": "h100-sxm"});
    lacks(&answered("mfu", mixture.clone()), "mfu_ratio", "--active-params");
    let mut active = mixture.clone();
    active["active_params"] = json!(37e9);
    is(&answered("mfu", active), "mfu_ratio", 0.2192, 2e-4);
    let mut dense = mixture;
    dense["moe"] = json!(false);
    assert!(ask("mfu", &dense).unwrap_err().to_string().contains("397.5"));
    lacks(&answered("mfu", cluster(&json!({"peak": null}))), "mfu_ratio", "--gpu");
    lacks(
        &answered("mfu", cluster(&json!({"peak": null, "gpu": "h100-sxm", "dtype": "fp4"}))),
        "mfu_ratio",
        "fp4",
    );
}

#[test]
fn goodput_is_exact_of_requests_and_bounded_of_histograms() {
    let requests = "start,end,ttft,tpot\n0,5,1,0.05\n1,6,3,0.05\n2,8,1,0.07\n3,10,1,\n";
    let mut body = read("goodput", requests);
    body["ttft"] = json!(2);
    body["tpot"] = json!(0.06);
    let said = answered("goodput", body.clone());
    is(&said, "goodput_ratio", 0.5, 0.0);
    is(&said, "goodput_requests_per_second", 0.2, 1e-12);
    body["itl"] = json!(0.2);
    assert!(ask("goodput", &body).unwrap_err().to_string().contains("itl_max"));

    let shares = answered("goodput", json!({"ttft_ratio": 0.95, "tpot_ratio": 0.9}));
    is(&shares, "goodput_ratio_lower", 0.85, 1e-12);
    is(&shares, "goodput_ratio_upper", 0.90, 1e-12);
    lacks(&shares, "goodput_ratio", "same ones");

    let ttft = json!({"le": [1, 2, "+Inf"], "count": [80, 95, 100]});
    let tpot = json!([{"le": 0.05, "count": 90}, {"le": "+Inf", "count": 100}]);
    let body = json!({"ttft_histogram": ttft, "ttft": 2, "tpot_histogram": tpot, "tpot": 0.05});
    let said = answered("goodput", body.clone());
    is(&said, "goodput_ratio_lower", 0.85, 1e-12);
    is(&said, "goodput_ratio_upper", 0.90, 1e-12);
    assert!(said.warnings.is_empty(), "{:?}", said.warnings);
    // One of the two is asked for and nobody says how many meet it: the other alone is no goodput.
    let mut half = body.clone();
    half["tpot_histogram"] = Value::Null;
    let said = answered("goodput", half);
    for name in ["goodput_ratio", "goodput_ratio_lower", "goodput_ratio_upper"] {
        lacks(&said, name, "--tpot-histogram");
    }
    let mut between = body;
    between["ttft"] = json!(1.5);
    let said = answered("goodput", between);
    is(&said, "goodput_ratio_lower", 0.70, 1e-12);
    assert!(said.warnings[0].contains("no bucket bound"), "{:?}", said.warnings);
    let gaps = json!({"itl_histogram": {"le": [0.2, "+Inf"], "count": [997, 1000]}, "itl": 0.2, "request_count": 10});
    let said = answered("goodput", gaps);
    is(&said, "goodput_ratio_lower", 0.7, 1e-9);
    is(&said, "goodput_ratio_upper", 0.9, 1e-12);
    is(
        &answered("goodput", json!({"productive_seconds": 90, "wall_seconds": 100})),
        "goodput_ratio",
        0.9,
        1e-12,
    );
}

#[test]
fn interruptions_have_their_known_figures() {
    let day = answered(
        "ettr",
        json!({"interruptions": 3, "lost_seconds": 900, "detect_seconds": 420, "load_seconds": 180}),
    );
    is(&day, "ettr_ratio", 0.9479, 1e-4);
    let large = answered(
        "ettr",
        json!({"interruptions": 419, "days": 54, "gpus": 16_384,
        "checkpoint_seconds": 30, "restart_seconds": 600}),
    );
    is(&large, "mtbi_seconds", 3.093 * 3_600.0, 2e-4);
    is(&large, "gpu_hours_per_interruption", 50_677.0, 1e-5);
    is(&large, "interruptions_per_1000_node_days", 3.79, 2e-3);
    is(&large, "young_interval_seconds", 817.4, 1e-4);
    let planned: Vec<f64> =
        large.rows.iter().map(|row| row["ettr_planned_ratio"].as_f64().unwrap()).collect();
    for (found, want) in planned.iter().zip([0.8727, 0.8997, 0.9158]) {
        assert!((found - want).abs() < 1e-4, "{planned:?}");
    }
    let none = answered("ettr", json!({"interruptions": 0, "lost_seconds": 900}));
    is(&none, "ettr_ratio", 1.0, 0.0);
    lacks(&none, "mtbi_seconds", "no interruption");
    let hopeless = json!({"mtbi_seconds": 100, "checkpoint_seconds": 60, "restart_seconds": 600});
    lacks(&answered("ettr", hopeless), "ettr_planned_ratio", "gets anywhere");
}

/// Checks that an input is refused by its name.
#[track_caller]
fn refuses(name: &str, body: Value, field: &str, words: &str) {
    let error = ask(name, &body).err().unwrap_or_else(|| panic!("{name} {body} was answered"));
    assert_eq!(error.field.as_deref(), Some(field), "{name} {body}: {error}");
    assert!(error.to_string().contains(words), "{name} {body}: {error}");
}

#[test]
fn bad_input_is_named_by_its_field() {
    refuses("economics", json!({"price": -1}), "price", "0 or more");
    refuses("economics", json!({"price": "cheap"}), "price", "no number");
    refuses("economics", json!({"price": 1e40}), "price", "at most 1e30");
    refuses("economics", json!({"occupancy": 0}), "occupancy", "above 0");
    refuses("economics", json!({"occupancy": []}), "occupancy", "list");
    refuses("economics", json!({"pue": 0.9}), "pue", "1 or more");
    refuses("economics", json!({"prise": 2}), "prise", "not known");
    refuses("economics", json!({"samples": {"t": [0, 15], "tokens": [0, "NaN"]}}), "samples", "row 2");
    refuses("economics", json!({"samples": {"t": [0, 15, 10], "tokens": [0, 1, 2]}}), "samples", "sample 3");
    refuses(
        "economics",
        json!({"samples": {"t": [0], "tokens": [0]}}),
        "samples",
        "a rate takes two samples",
    );
    refuses(
        "economics",
        json!({"samples": {"t": [1.7e12, 1.8e12], "tokens": [0, 1]}}),
        "samples",
        "no time in seconds",
    );
    refuses(
        "economics",
        json!({"tokens": [{"t": [1, 2], "value": [0, 1], "from": 1.5, "to": 3}]}),
        "tokens",
        "within its window",
    );
    refuses(
        "economics",
        json!({"tokens": [{"t": [1, 2], "value": [0, 1], "from": 1.5}]}),
        "tokens",
        "both of them",
    );
    refuses("economics", json!({"samples": []}), "samples", "0 rows");
    refuses("economics", json!({"samples": {"t": [0, 15], "tokens": [5, -1]}}), "samples", "0 or more");
    refuses("economics", json!({"samples": {"t": [0, 15]}}), "samples", "neither energy nor tokens");
    refuses("economics", json!({"rate_over": "sometimes"}), "rate_over", "busy, allocated");
    refuses("economics", json!({"tokens": [{"t": [0, 1], "value": [0]}]}), "tokens", "as many");
}

#[test]
fn bad_models_and_requests_are_named_by_their_fields() {
    refuses("roofline", decoder(&json!({"gpu": "frobnicator"})), "gpu", "frobnicator");
    refuses("roofline", decoder(&json!({"gpu": "frobnicator", "peak": 1e15})), "gpu", "frobnicator");
    refuses("roofline", decoder(&json!({"gpu": null, "peak": 1e15})), "bandwidth", "missing");
    refuses("roofline", decoder(&json!({"batch": [0]})), "batch", "1 or more");
    refuses("roofline", decoder(&json!({"layers": null})), "layers", "missing");
    refuses("roofline", decoder(&json!({"active_params": 1e12})), "active_params", "more than");
    refuses("mfu", cluster(&json!({"gpus": 0})), "gpus", "above 0");
    refuses("mfu", cluster(&json!({"dtype": "int3"})), "dtype", "no number format");
    refuses("mfu", cluster(&json!({"layers": 80})), "hidden_size", "missing");
    refuses("mfu", cluster(&json!({"flops_model": "6N+attn"})), "flops_model", "attention");
    refuses("mfu", json!({"gpus": 1}), "params", "`params` (or `active_params`) and `tokens_per_second` (or");
    refuses("stream", json!({"times": [0.3, 0.2]}), "times", "token 2");
    refuses("stream", json!({"times": [-1]}), "times", "before the request");
    refuses("stream", json!({}), "times", "missing");
    refuses("goodput", json!({}), "requests", "missing");
    refuses(
        "goodput",
        json!({"ttft_histogram": {"le": [1], "count": [1]}, "ttft": 1}),
        "ttft_histogram",
        "+Inf",
    );
    refuses(
        "economics",
        json!({"samples": {"t": [0, 1], "tokens": [1, 2], "energy_mj": [1, 2], "energy_joules": [1, 2]}}),
        "samples",
        "only one",
    );
    for (requests, words) in [
        (json!({"ttft": [1, 1], "start": [0, 10], "end": [1, 5]}), "request 2 ends at 5 s"),
        (json!({"ttft": [-1]}), "request 1 has -1 s"),
    ] {
        refuses("goodput", json!({"requests": requests, "ttft": 2}), "requests", words);
    }
    refuses(
        "goodput",
        json!({"productive_seconds": 2, "wall_seconds": 1}),
        "productive_seconds",
        "productive",
    );
    refuses("ettr", json!({}), "interruptions", "`interruptions` (or `mtbi_seconds`) is missing");
    refuses("economics", json!({"price": 2}), "samples", "can stand for it) is missing");
    refuses(
        "roofline",
        json!({"params": 8e9}),
        "layers",
        "`layers`, `kv_heads`, `head_dim`, `context` and `gpu`",
    );
    refuses("mfu", json!({"params": 8e9, "gpus": 1, "tokens_per_step": 5}), "step_seconds", "is missing");
    refuses("capacity", json!({"peak": 1, "average": 2}), "average", "more than");
    refuses("capacity", json!({}), "peak", "missing");
    assert!(ask("mfu", &json!([])).unwrap_err().to_string().contains("no JSON object"));
}

#[test]
fn files_are_read_with_and_without_heads() {
    let columns = |text: &str| {
        let file = tool("economics").unwrap().inputs[0];
        let super::Kind::Table(columns) = file.kind else { panic!() };
        columns_of(text, columns)
    };
    let named = columns("T,note,tokens\r\n0,started,5\r\n\r\n15,NaN,6\r\n");
    let named = named.unwrap();
    assert_eq!((&named["t"], &named["tokens"]), (&json!([0.0, 15.0]), &json!([5.0, 6.0])));
    let bare = columns("0,1,5\n15,2,6\n").unwrap();
    assert_eq!((&bare["energy_mj"], &bare["tokens"]), (&json!([1.0, 2.0]), &json!([5.0, 6.0])));
    assert_eq!(columns("[{\"t\": 0}]").unwrap(), json!([{"t": 0}]));
    for (text, words) in [
        ("", "empty"),
        ("tokens\n5\n", "no column `t`"),
        ("t,tokens\n0,x\n", "line 2 has `x`"),
        ("t,tokens,T\n0,1,2\n", "the column `t` twice"),
        ("t,tokens\n0,NaN\n", "line 2 has `NaN`"),
        ("t,tokens\n0,1,2\n", "line 2 has 3 cells"),
        ("{", "no JSON"),
    ] {
        let error = columns(text).unwrap_err().to_string();
        assert!(error.contains(words), "{text:?}: {error}");
    }
}

#[test]
fn every_answer_says_how_it_was_reckoned_and_how_to_ask_again() {
    for (name, body) in [
        ("economics", json!({"tokens_per_second": 1, "price": 1})),
        ("roofline", decoder(&json!({}))),
        ("stream", json!({"times": [1, 2]})),
        ("mfu", cluster(&json!({}))),
        ("goodput", json!({"ttft_ratio": 1})),
        ("ettr", json!({"mtbi_seconds": 1})),
        ("capacity", json!({"peak_to_average": 3})),
    ] {
        let said = answered(name, body);
        assert!(!said.formula.is_empty() && !said.assumptions.is_empty(), "{name}");
        assert!(said.command.starts_with(&format!("truegauge calc {name} ")), "{}", said.command);
        assert!(!said.text.is_empty(), "{name}");
        let keys: Vec<&str> = said.columns.iter().map(|column| column.key).collect();
        for row in &said.rows {
            assert!(row.keys().all(|key| keys.contains(&key.as_str())), "{name}: {row:?}");
        }
        assert!(said.explanation().iter().any(|line| line.contains('=') || line.contains('/')), "{name}");
    }
    assert_eq!(TOOLS.len(), 7);
    assert!(tool("nonsense").is_none());
}
