//! Figures reckoned on the command line and over HTTP: from flags, files, a server's samples and a run.

use std::io::Write;
use std::path::Path;
use std::process::Stdio;

use serde_json::{Value, json};
use wire::push::Attribute;
use wire::remote_write::{CONTENT_TYPE, Point, RequestWriter};

use crate::process::{Server, id, request, run, series, session, truegauge};

/// Times of samples, seconds.
const T0_SECONDS: i64 = 1_700_000_000;

/// Exit code, stdout and stderr of `truegauge calc`.
fn calc(arguments: &str) -> (i32, String, String) {
    let typed: Vec<&str> = std::iter::once("calc").chain(arguments.split_whitespace()).collect();
    run(Path::new("."), &typed)
}

fn figures(arguments: &str) -> Value {
    let (code, out, err) = calc(&format!("{arguments} --json"));
    assert_eq!(code, 0, "{arguments}: {err}");
    serde_json::from_str(&out).unwrap()
}

#[track_caller]
fn is(said: &Value, name: &str, want: f64) {
    let found = said["result"][name].as_f64().unwrap_or_else(|| panic!("no `{name}` in {said:#}"));
    assert!((found - want).abs() <= want.abs() * 1e-9, "{name}: {found} is not {want}");
}

#[test]
fn utilization_is_what_is_known_of_a_cluster() {
    let cluster = "mfu --params 70e9 --tokens-per-second 782446.9154146261 --gpus 1024";
    for peak in ["--peak 989e12", "--gpu h100-sxm", "--gpu h100-sxm --dtype bf16"] {
        is(&figures(&format!("{cluster} {peak}")), "mfu_ratio", 0.324_494_936_957_472_6);
    }
    let (code, out, err) = calc(&format!("{cluster} --gpu h100-sxm"));
    assert_eq!((code, err.as_str()), (0, ""));
    assert!(out.starts_with("    782,447 tokens/s   MFU 32.4 %\n"), "{out}");
    let model = "mfu --params 70e9 --tokens-per-second 1 --gpus 1 --peak 1e15";
    let said = figures(&format!("{model} --layers 80 --hidden-size 8192 --seq-len 4096"));
    is(&said, "flops_per_token", 420e9 + 12.0 * 80.0 * 8_192.0 * 4_096.0);
}

#[test]
fn an_explanation_has_the_formula_and_what_is_taken_for_granted() {
    let (code, out, err) =
        calc("mfu --params 70e9 --tokens-per-second 1e5 --gpus 1024 --gpu h100-sxm --explain");
    assert_eq!((code, err.as_str()), (0, ""));
    for words in ["6 × parameters", "dense, 989 TFLOP/s in bf16", "attention are left out", "PaLM"] {
        assert!(out.contains(words), "{words:?} is not in\n{out}");
    }
    let (_, out, _) = calc("roofline --help");
    assert!(out.contains("--kv-heads <N>") && out.contains("Examples:"), "{out}");
}

#[test]
fn a_file_is_read_by_name_or_from_stdin() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("samples.csv");
    let rows = "t,energy_mj,tokens\n0,0,1000\n10,6000000,25000\n20,12000000,4000\n30,18000000,28000\n";
    std::fs::write(&file, rows).unwrap();
    let said = figures(&format!("economics {} --price 2.5 --occupancy 0.6", file.display()));
    is(&said, "watts", 600.0);
    is(&said, "tokens_per_second", 52_000.0 / 30.0);
    is(&said, "coverage_ratio", 2.0 / 3.0);
    is(&said, "usd_per_mtok", 2.5 / (52_000.0 / 30.0 * 0.6 * 3_600.0) * 1e6);
    let mut child = truegauge(folder.path())
        .args(["calc", "stream", "-", "--json"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(b"0.42\n0.445\n2.47\n").unwrap();
    let out = child.wait_with_output().unwrap();
    let said: Value = serde_json::from_slice(&out.stdout).unwrap();
    is(&said, "ttft_seconds", 0.42);
    is(&said, "itl_seconds_max", 2.025);
    is(&said, "stalls", 1.0);
}

/// Draws own seconds of 1,024 ranks in 50 steps, of a healthy job and then of one whose rank 17 runs at 80 %.
const DRAWN: &str = "
import random
draws = random.Random(3)
for name, factor in (('healthy', 1.0), ('slow', 1 / 0.8)):
    with open(name + '.csv', 'w') as file:
        print('step,rank,seconds', file=file)
        for step in range(50):
            own = [draws.gauss(4.6, 0.05) for _ in range(1024)]
            own[17] *= factor
            for rank, seconds in enumerate(own):
                print(step, rank, repr(seconds), sep=',', file=file)
";

#[test]
fn a_step_is_as_long_as_its_slowest_rank() {
    let folder = tempfile::tempdir().unwrap();
    let drawn = std::process::Command::new("python3").args(["-c", DRAWN]).current_dir(folder.path()).status();
    assert!(drawn.unwrap().success());
    let job = "--collective-seconds 0.6 --tokens-per-step 4194304 --params 70e9 --gpus 1024 --peak 989e12";
    let file = |name: &str| format!("mfu {} {job}", folder.path().join(name).display());
    let healthy = figures(&file("healthy.csv"));
    is(&healthy, "step_seconds", 5.360_496_561_957_865);
    is(&healthy, "tokens_per_second", 782_446.915_414_626_1);
    is(&healthy, "mfu_ratio", 0.324_494_936_957_472_6);
    let slow = figures(&file("slow.csv"));
    is(&slow, "step_seconds", 6.340_929_828_753_699_5);
    is(&slow, "tokens_per_second", 661_465.134_179_601);
    is(&slow, "mfu_ratio", 0.274_321_596_502_378_14);
    is(&slow, "slowest_rank", 17.0);
    is(&slow, "slowest_rank_ratio", 1.0);
    let (_, out, _) = calc(&file("slow.csv"));
    assert!(out.starts_with("  step  6.34 s     661,465 tokens/s   MFU 27.4 %\n"), "{out}");
    assert!(
        out.contains("rank 17 was the slowest in 100 % of the steps; without it a step takes 5.3"),
        "{out}"
    );
    // The same question of a healthy job: what if it were slower?
    let asked = figures(&format!("{} --slow-rank 17 --slow-speed 0.8,0.95", file("healthy.csv")));
    let step = |at: usize| asked["rows"][at]["step_seconds"].as_f64().unwrap();
    assert!((step(0) - 5.36).abs() < 0.01 && (step(1) - 6.34).abs() < 0.03, "{asked:#}");
    assert!((step(2) - 5.43).abs() < 0.02, "{asked:#}");
    let (code, _, err) = calc(&format!("{} --slow-rank 4096 --slow-speed 0.8", file("healthy.csv")));
    assert_eq!(code, 2);
    assert!(err.contains("`ranks` has no such rank"), "{err}");
    // Without ranks there is nobody to ask about, and an answer that left the question out would read as one to it.
    let typed = "mfu --step-seconds 5.36 --tokens-per-step 4194304 --params 70e9 --gpus 1024 --peak 989e12";
    let (code, _, err) = calc(&format!("{typed} --slow-rank 17 --slow-speed 0.8"));
    assert_eq!(code, 2);
    assert!(err.contains("`slow_rank` is given, and no `ranks`"), "{err}");
    // Of ranks that are alike none is the slowest.
    std::fs::write(folder.path().join("alike.csv"), "step,rank,seconds\n1,0,4\n1,1,4\n2,0,4\n2,1,4\n")
        .unwrap();
    let alike = figures(&file("alike.csv"));
    assert!(alike["result"]["slowest_rank"].is_null(), "{alike:#}");
    assert!(alike["absent"].to_string().contains("slowest_rank"), "{alike:#}");
    let (_, out, err) = calc(&file("alike.csv"));
    assert!(!out.contains("was the slowest"), "{out}{err}");
}

#[test]
fn what_can_not_be_is_told_so() {
    let check = |arguments: &str, code: i32, words: &str| {
        let (found, out, err) = calc(arguments);
        assert_eq!(found, code, "{arguments}: {out}{err}");
        assert!(err.contains(words), "{arguments}: {err}");
    };
    let model = "mfu --params 70e9 --tokens-per-second 782446 --gpus 1024";
    check(&format!("{model} --peak 312e12"), 1, "102.86 %");
    check(&format!("{model} --gpu h100-sxm --dtype int3"), 2, "no number format");
    check(&format!("{model} --peak -1"), 2, "`peak` is -1, and has to be above 0");
    check("mfu --params 70e9 --tokens-per-second 1 --gpus 0 --peak 1e12", 2, "`gpus` is 0");
    check("economics --price -2.5", 2, "0 or more");
    check("economics missing.csv", 2, "cannot read `missing.csv`");
    check("stream", 2, "`times` is missing");
    check("economics", 2, "--tokens-per-second N");
    check("economics --price 2.5", 2, "`samples` (or what can stand for it) is missing");
    check("roofline", 2, "--kv-heads N         Heads that keys and values are kept for");
    check("roofline --params 8e9 --peak 1e15", 2, "or  --gpu NAME");
    for tool in ["economics", "roofline", "stream", "mfu", "goodput", "ettr", "capacity"] {
        check(tool, 2, &format!("for example\n  truegauge calc {tool} "));
    }
    check("nonsense", 2, "nonsense");
    check(&format!("{model} --peak 989T"), 2, "a number as `70e9`, without a unit");
    check("mfu --params 70 --tokens-per-second 1 --gpus 1 --peak 1e12", 0, "70 billion parameters are 70e9");
    check("mfu --query frobs=x", 2, "names no input");
    // What is not known is no error: its place is empty, and the reason is said.
    check(
        &format!("{model} --gpu frobnicator"),
        0,
        "mfu_ratio is not known: the peaks of the GPU `frobnicator`",
    );
    check(model, 0, "no peak was given");
    check("economics --peak-to-average 3", 0, "no price was given");
}

/// A GPU's joules and an engine's tokens, every 15 s for ten minutes; the engine restarts in the middle. The numbers are
/// of no pattern, so that no error hides.
fn samples() -> (Vec<Point>, Vec<Point>) {
    let mut seed = 7_u64;
    let mut next = |from: f64, to: f64| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        from + (to - from) * ((seed >> 11) as f64 / (1_u64 << 53) as f64)
    };
    let (mut joules, mut tokens) = (9.1e9, 4.4e9);
    let (mut energy, mut counted) = (Vec::new(), Vec::new());
    for at in 0..41 {
        tokens = if at == 20 { 0.0 } else { tokens };
        let time_ms = (T0_SECONDS + at * 15) * 1_000;
        energy.push(Point { time_ms, value: joules });
        counted.push(Point { time_ms, value: tokens });
        joules += next(560.0, 640.0) * 15.0;
        tokens += next(2_300.0, 2_700.0) * 15.0;
    }
    (energy, counted)
}

/// What a rule of this expression would record at the end of the samples.
fn recorded(server: &Server, expr: &str) -> f64 {
    let time = (T0_SECONDS + 600).to_string();
    let (code, out, err) = server.cli(&["query", expr, "--time", &time, "--json"]);
    assert_eq!(code, 0, "{expr}: {err}");
    let said: Value = serde_json::from_str(&out).unwrap();
    said["result"][0]["value"][1].as_str().unwrap_or_else(|| panic!("{expr}: {out}")).parse().unwrap()
}

#[test]
fn it_comes_to_the_same_as_rules_on_the_same_samples() {
    let server = Server::start(&[]);
    let (energy, tokens) = samples();
    let mut writer = RequestWriter::new();
    writer.series([("__name__", "tg_gpu_energy_joules_total"), ("gpu", "0")], &energy);
    writer.series([("__name__", "tg_engine_output_tokens_total"), ("model", "m")], &tokens);
    let headers = [("content-type", CONTENT_TYPE), ("content-encoding", "snappy")];
    assert_eq!(server.ask("POST", "/api/v1/write", &headers, &writer.finish().unwrap()).status, 204);

    let time = (T0_SECONDS + 600).to_string();
    let asked = |more: &[&str]| -> Value {
        let queries = [
            "--query",
            "energy=tg_gpu_energy_joules_total[601s]",
            "--query",
            "tokens=tg_engine_output_tokens_total[601s]",
            "--time",
            &time,
        ];
        let typed: Vec<&str> = ["calc", "economics", "--price", "2.5", "--json"]
            .iter()
            .chain(&queries)
            .chain(more)
            .copied()
            .collect();
        let (code, out, err) = server.cli(&typed);
        assert_eq!(code, 0, "{err}");
        serde_json::from_str(&out).unwrap()
    };
    let by_series = asked(&[]);
    // A range is open to its left: one second more takes the first sample in.
    let rate = |metric: &str| format!("sum(rate({metric}[601s]))");
    let (watts, output) = (rate("tg_gpu_energy_joules_total"), rate("tg_engine_output_tokens_total"));
    let metric = "tg_engine_output_tokens_total[601s]";
    // Of samples that were asked for, the window is known; of a file's rows it is from the first to the last.
    let coverage =
        |window: u32| format!("sum(count_over_time({metric}) - 1 - resets({metric})) * 15 / {window}");
    let rows: Vec<Value> = energy
        .iter()
        .zip(&tokens)
        .map(|(energy, tokens)| {
            json!({"t": energy.time_ms / 1_000, "energy_joules": energy.value, "tokens": tokens.value})
        })
        .collect();
    let answer = server.post_json("/api/tg/v1/calc/economics", &json!({"samples": rows, "price": 2.5}));
    assert_eq!(answer.status, 200);
    for (said, window) in [(by_series, 601), (answer.json(), 600)] {
        is(&said, "watts", recorded(&server, &watts));
        is(&said, "tokens_per_second", recorded(&server, &output));
        is(&said, "tokens_per_joule", recorded(&server, &format!("{output} / {watts}")));
        is(&said, "usd_per_mtok", recorded(&server, &format!("2.5 / (3600 * {output}) * 1e6")));
        is(&said, "coverage_ratio", recorded(&server, &coverage(window)));
        is(&said, "resets", 1.0);
    }
    is(&asked(&["--gpus", "2"]), "usd_per_mtok", recorded(&server, &format!("5 / (3600 * {output}) * 1e6")));
}

#[test]
fn histograms_and_rates_come_from_a_server() {
    let server = Server::start(&[]);
    let mut writer = RequestWriter::new();
    for (le, count) in [("0.5", 80.0), ("2", 95.0), ("+Inf", 100.0)] {
        let points = [(0, 0.0), (60, count)];
        let points = points.map(|(at, value)| Point { time_ms: (T0_SECONDS + at) * 1_000, value });
        writer.series([("__name__", "tg_engine_ttft_seconds_bucket"), ("le", le)], &points);
    }
    let headers = [("content-type", CONTENT_TYPE), ("content-encoding", "snappy")];
    assert_eq!(server.ask("POST", "/api/v1/write", &headers, &writer.finish().unwrap()).status, 204);
    let time = (T0_SECONDS + 60).to_string();
    let (code, out, err) = server.cli(&[
        "calc",
        "goodput",
        "--query",
        "ttft_histogram=sum by (le) (tg_engine_ttft_seconds_bucket)",
        "--query",
        "tpot_ratio=vector(0.9)",
        "--ttft",
        "2",
        "--time",
        &time,
        "--json",
    ]);
    assert_eq!(code, 0, "{err}");
    let said: Value = serde_json::from_str(&out).unwrap();
    is(&said, "goodput_ratio_lower", 0.85);
    is(&said, "goodput_ratio_upper", 0.90);
    let (code, _, err) = server.cli(&["calc", "economics", "--query", "tokens=nothing_there[5m]"]);
    assert_eq!(code, 2);
    assert!(err.contains("nothing was found"), "{err}");
}

#[test]
fn a_run_says_what_utilization_is_reckoned_from() {
    let server = Server::start(&[]);
    let steps = vec![
        series("train/step_seconds", &[2.0, 2.0, 4.0]),
        series("train/step_tokens", &[1e3, 1e3, 2e3]),
        series("system/gpu/energy_joules_total", &[5e6, 5e6 + 500.0, 5e6 + 1_000.0]),
    ];
    let mut sent = request("r", 1, 1, steps);
    let mut opened = session(0, 1);
    (opened.rank, opened.world_size) = (Some(0), Some(4));
    sent.session = Some(opened);
    sent.attributes = vec![Attribute::new("model/parameters", &model::AttributeValue::Float(8e9), false)];
    assert_eq!(server.push(&sent).0, 200);
    let mut end = request("r", 1, 2, Vec::new());
    end.session = Some(session(3, 3));
    assert_eq!(server.push(&end).0, 200);
    let (code, out, err) =
        server.cli(&["calc", "mfu", "--run", &id("r"), "--peak", "1e13", "--flops-model", "2N", "--json"]);
    assert_eq!(code, 0, "{err}");
    let said: Value = serde_json::from_str(&out).unwrap();
    is(&said, "tokens_per_second", 500.0);
    is(&said, "flops_per_second_per_gpu", 2.0 * 8e9 * 500.0 / 4.0);
    let (code, _, err) = server.cli(&["calc", "mfu", "--run", "0123456789abcdef", "--peak", "1e12"]);
    assert_eq!(code, 2, "{err}");
    // One of four GPUs tells its energy, and tokens are of all four.
    let economics = ["calc", "economics", "--run", &id("r"), "--price", "3.6", "--json"];
    let (code, out, err) = server.cli(&economics);
    assert_eq!(code, 0, "{err}");
    assert!(err.contains("of 4 GPUs of the run 1 have an energy counter"), "{err}");
    let said: Value = serde_json::from_str(&out).unwrap();
    is(&said, "usd_per_mtok", 8.0);
    assert_eq!(said["result"]["watts"], Value::Null);
    let (code, out, err) = server.cli(&[&economics[..], &["--gpus", "1"]].concat());
    assert_eq!(code, 0, "{err}");
    let said: Value = serde_json::from_str(&out).unwrap();
    is(&said, "watts", 500.0);
    is(&said, "tokens_per_joule", 1.0);
    is(&said, "usd_per_mtok", 2.0);
    let (code, _, err) = server.cli(&["calc", "goodput", "--run", &id("r")]);
    assert_eq!(code, 2, "{err}");
    assert!(err.contains("has no goodput"), "{err}");
    let (code, out, err) = server.cli(&["calc", "ettr", "--run", &id("r"), "--lost-seconds", "1", "--json"]);
    assert_eq!(code, 0, "{err}");
    let said: Value = serde_json::from_str(&out).unwrap();
    is(&said, "ettr_ratio", 1.0);
}

#[test]
fn over_http_a_wrong_input_is_named_and_what_is_not_known_has_its_reason() {
    let server = Server::start(&[]);
    let post = |tool: &str, body: Value| server.post_json(&format!("/api/tg/v1/calc/{tool}"), &body);
    let fleet = post("capacity", json!({"peak_to_average": 3}));
    assert_eq!(fleet.status, 200);
    let said = fleet.json();
    is(&said, "average_over_peak_ratio", 1.0 / 3.0);
    assert_eq!(said["command"], "truegauge calc capacity --peak-to-average 3");
    let absent =
        post("mfu", json!({"params": 70e9, "gpus": 8, "tokens_per_second": 1, "gpu": "NVIDIA X900"})).json();
    assert_eq!(absent["result"]["mfu_ratio"], Value::Null);
    assert!(absent["absent"][0]["reason"].as_str().unwrap().contains("X900"), "{absent:#}");
    for (tool, body, field) in [
        ("economics", json!({"price": -1}), "price"),
        ("economics", json!({"prize": 1}), "prize"),
        ("mfu", json!({"params": 70e9, "gpus": 1, "tokens_per_second": 1e6, "peak": 1e12}), "peak"),
        ("stream", json!({"times": [2, 1]}), "times"),
    ] {
        let wrong = post(tool, body);
        assert_eq!((wrong.status, wrong.error_code().as_str()), (400, "bad_request"), "{tool}");
        assert_eq!(wrong.json()["error"]["field"], field);
    }
    assert_eq!(post("frobnicate", json!({})).status, 404);
    assert_eq!(server.ask("POST", "/api/tg/v1/calc/mfu", &[], b"nonsense").status, 400);
}
