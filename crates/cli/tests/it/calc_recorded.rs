//! `truegauge calc` beside what rules record of the same samples, under the names that they record: in this server
//! and in Debian's Prometheus, which evaluates the same files.

use std::collections::BTreeMap;
use std::path::Path;

use model::Sample;
use serde_json::Value;
use wire::push::{Attribute, PushRequest, Series};

use crate::far_cluster::{Cluster, now_ms, write as send};
use crate::process::{Server, eventually, id, request, session, truegauge};

/// From one scrape to the next, milliseconds.
const STEP_MS: i64 = 15_000;
/// How much later than the first replica the second is scraped, milliseconds.
const LATER_MS: i64 = 5_000;
/// Scrapes before now, of more than the window of rules.
const BEFORE: i64 = 30;
/// Scrapes after now: what is recorded while the test runs has samples.
const AFTER: i64 = 20;

/// What a driver calls the cards.
const CARD: &str = "NVIDIA H100 80GB HBM3";

/// What is asked of a calculator, and the names under which rules record the same.
const ECONOMICS: [(&str, &str); 6] = [
    ("watts", "model:power_watts"),
    ("tokens_per_second", "model:output_tokens_per_second"),
    ("tokens_per_joule", "model:tokens_per_joule"),
    ("usd_per_mtok", "model:usd_per_mtok"),
    ("usd_per_mtok_busy", "model:usd_per_mtok_busy"),
    ("occupancy_ratio", "model:occupancy_ratio"),
];
const COVERAGE: [(&str, &str); 2] = [
    ("coverage_ratio", "model:output_tokens_per_second:coverage"),
    ("energy_coverage_ratio", "model:power_watts:coverage"),
];
const GOODPUT: [(&str, &str); 2] = [
    ("goodput_ratio_lower", "model:goodput_ratio_lower"),
    ("goodput_ratio_upper", "model:goodput_ratio_upper"),
];

/// A counter of no pattern, so that no error hides.
struct Counter {
    seed: u64,
    value: f64,
}

impl Counter {
    fn from(seed: u64, value: f64) -> Self {
        Self { seed, value }
    }

    fn add(&mut self, least: f64, most: f64) -> f64 {
        self.seed = self.seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let share = (self.seed >> 11) as f64 / (1_u64 << 53) as f64;
        self.value += least + (most - least) * share;
        self.value
    }
}

/// Points at each scrape; none where `at` gives none.
fn points(base_ms: i64, mut at: impl FnMut(i64) -> Option<f64>) -> Vec<(i64, f64)> {
    (-BEFORE..AFTER).filter_map(|scrape| Some((base_ms + scrape * STEP_MS, at(scrape)?))).collect()
}

type Labels = Vec<(&'static str, &'static str)>;

/// A replica, and what happens to it.
#[derive(Clone, Copy)]
struct Replica {
    model: &'static str,
    pod: &'static str,
    base_ms: i64,
    /// A scrape at which it begins anew.
    restart: Option<i64>,
    /// Scrapes that never came.
    gap: Option<(i64, i64)>,
    seed: u64,
}

impl Replica {
    fn is_lost(&self, scrape: i64) -> bool {
        self.gap.is_some_and(|(from, to)| (from..to).contains(&scrape))
    }

    fn labels(&self, name: &'static str) -> Labels {
        vec![
            ("__name__", name),
            ("engine", "vllm"),
            ("model", self.model),
            ("namespace", "serving"),
            ("pod", self.pod),
            ("instance", self.pod),
            ("job", "engines"),
        ]
    }

    fn counter(&self, from: f64, least: f64, most: f64) -> Vec<(i64, f64)> {
        let mut counter = Counter::from(self.seed, from);
        points(self.base_ms, |scrape| {
            if self.restart == Some(scrape) {
                counter.value = 0.0;
            }
            let value = counter.add(least, most);
            (!self.is_lost(scrape)).then_some(value)
        })
    }

    fn series(&self) -> Vec<(Labels, Vec<(i64, f64)>)> {
        let mut all = vec![
            (self.labels("tg_engine_output_tokens_total"), self.counter(4.4e9, 30_000.0, 40_000.0)),
            (
                self.labels("tg_engine_requests_running"),
                points(self.base_ms, |scrape| (!self.is_lost(scrape)).then(|| f64::from(scrape % 3 != 0))),
            ),
        ];
        for (bucket, count, good) in [
            ("tg_engine_ttft_seconds_bucket", "tg_engine_ttft_seconds_count", 0.95),
            ("tg_engine_tpot_seconds_bucket", "tg_engine_tpot_seconds_count", 0.90),
        ] {
            let requests = self.counter(1e6, 100.0, 140.0);
            let good: Vec<_> = requests.iter().map(|(at, count)| (*at, (count * good).floor())).collect();
            for (le, counted) in [("0.05", &good), ("2", &good), ("+Inf", &requests)] {
                let mut labels = self.labels(bucket);
                labels.push(("le", le));
                all.push((labels, counted.clone()));
            }
            all.push((self.labels(count), requests));
        }
        all
    }

    /// A card that this replica has to itself.
    fn card(&self, host: &'static str, uuid: &'static str) -> Vec<(Labels, Vec<(i64, f64)>)> {
        let card = |name, more: &[(&'static str, &'static str)]| {
            [&[("__name__", name), ("host", host), ("gpu", "0"), ("uuid", uuid)], more].concat()
        };
        let one = points(self.base_ms, |_| Some(1.0));
        let mut joules = Counter::from(self.seed + 7, 9.1e9);
        vec![
            (card("tg_gpu_info", &[("vendor", "nvidia"), ("gpu_model", CARD)]), one.clone()),
            (card("tg_gpu_owner_info", &[("namespace", "serving"), ("pod", self.pod)]), one),
            (
                card("tg_gpu_energy_joules_total", &[]),
                points(self.base_ms, |scrape| {
                    let value = joules.add(8_400.0, 9_600.0);
                    (!self.is_lost(scrape)).then_some(value)
                }),
            ),
        ]
    }
}

/// Two replicas of a chat model, of which one begins anew and one is not heard for a while; a model whose one replica
/// begins anew; and one of which no card is known.
fn fleet() -> Vec<(Labels, Vec<(i64, f64)>)> {
    let base_ms = now_ms() / STEP_MS * STEP_MS;
    let first = Replica { model: "chat", pod: "chat-0", base_ms, restart: Some(-4), gap: None, seed: 1 };
    let second = Replica {
        pod: "chat-1",
        base_ms: base_ms + LATER_MS,
        restart: None,
        gap: Some((-8, -5)),
        seed: 2,
        ..first
    };
    let whole = Replica { model: "code", pod: "code-0", restart: Some(-6), seed: 3, ..first };
    let blind = Replica { model: "blind", pod: "blind-0", restart: None, seed: 4, ..first };
    let mut all: Vec<_> = [first, second, whole, blind].iter().flat_map(Replica::series).collect();
    all.extend(first.card("gpu-a", "GPU-a"));
    all.extend(second.card("gpu-b", "GPU-b"));
    all.extend(whole.card("gpu-c", "GPU-c"));
    all
}

/// A server at a site, whose rules are evaluated each second.
fn site(home: &Path) -> Server {
    let mut command = truegauge(home);
    command.arg("up").envs([
        ("TRUEGAUGE_SITE_PRICES", "h100-sxm=2.50"),
        ("TRUEGAUGE_SITE_PRICE_REVISION", "2026-11"),
        ("TRUEGAUGE_SITE_OBJECTIVES", "chat ttft=2 tpot=0.05,code ttft=2 tpot=0.05"),
        ("TRUEGAUGE_OWN_METRICS", "true"),
        ("TRUEGAUGE_STARTER_RULES", "true"),
        ("TRUEGAUGE_OWN_METRICS_INTERVAL", "1s"),
        ("TRUEGAUGE_RULE_INTERVAL", "1s"),
    ]);
    Server::spawn(command, home, &[])
}

/// Which samples there are at a time: those of the first replica, or of the second too.
fn phase(seconds: f64) -> (i64, bool) {
    let ms = (seconds * 1e3).round() as i64;
    (ms.div_euclid(STEP_MS), ms.rem_euclid(STEP_MS) >= LATER_MS)
}

/// What rules recorded of a model, and when. Rules read what others recorded an evaluation ago, so it is what was
/// recorded when no sample had come since the two evaluations before.
fn recorded(found: &[Value]) -> Option<(f64, f64)> {
    let [series] = found else { return None };
    let values: Vec<(f64, f64)> = series["values"]
        .as_array()?
        .iter()
        .filter_map(|point| Some((point[0].as_f64()?, point[1].as_str()?.parse().ok()?)))
        .collect();
    let settled = |three: &&[(f64, f64)]| phase(three[0].0) == phase(three[2].0);
    values.windows(3).rfind(settled).map(|three| three[2])
}

/// What `calc` says of a model at a time, by the samples of this server.
fn calc(server: &Server, url: &str, tool: &str, model: &str, time: f64) -> Value {
    let time = format!("{time:.3}");
    let typed = ["calc", tool, "--model", model, "--time", &time, "--window", "5m", "--json", "--url", url];
    let (code, out, err) = server.cli(&typed);
    assert_eq!(code, 0, "{err}");
    serde_json::from_str(&out).unwrap()
}

#[track_caller]
fn same(said: &Value, figure: &str, name: &str, want: f64) {
    let found = said["result"][figure].as_f64().unwrap_or_else(|| panic!("no `{figure}` in {said:#}"));
    assert!((found - want).abs() <= want.abs() * 1e-9, "{name} is {want}, and `calc` says {found}");
}

/// Compares each figure with what was recorded under its name, at the time at which it was.
fn compare(server: &Server, url: &str, model: &str, ask: &dyn Fn(&str) -> Vec<Value>) {
    let tools = [("economics", &ECONOMICS[..]), ("goodput", &GOODPUT[..])];
    for (tool, figures) in tools {
        for (figure, name) in figures {
            let what = format!("{name} of {model}");
            let (time, value) =
                eventually(&what, || recorded(&ask(&format!("{name}{{model=\"{model}\"}}[40s]"))));
            same(&calc(server, url, tool, model, time), figure, &what, value);
        }
    }
}

#[test]
fn calc_says_of_a_model_what_rules_have_recorded_of_it() {
    let home = tempfile::tempdir().unwrap();
    let server = site(home.path());
    for (labels, points) in fleet() {
        assert_eq!(send(&server, &labels, &points), 204, "{labels:?}");
    }
    let ask = |query: &str| {
        let answer = server.cli(&["query", query, "--json"]);
        let said: Value = serde_json::from_str(&answer.1).unwrap_or_default();
        said["result"].as_array().cloned().unwrap_or_default()
    };
    for model in ["chat", "code"] {
        compare(&server, &server.url, model, &ask);
    }
    for (figure, name) in COVERAGE {
        let at =
            |model: &str| eventually(name, || recorded(&ask(&format!("{name}{{model=\"{model}\"}}[40s]"))));
        let (time, value) = at("code");
        same(&calc(&server, &server.url, "economics", "code", time), figure, name, value);
        // A rule counts samples, so a gap costs it coverage; a counter goes on where nobody looks.
        let (time, value) = at("chat");
        let exact = calc(&server, &server.url, "economics", "chat", time)["result"][figure].as_f64().unwrap();
        assert!(exact > value + 0.05 && exact < 1.0, "{name}: {exact} beside {value}");
    }
    let (time, value) = eventually("tokens of a model without cards", || {
        recorded(&ask("model:output_tokens_per_second{model=\"blind\"}[40s]"))
    });
    let blind = calc(&server, &server.url, "economics", "blind", time);
    same(&blind, "tokens_per_second", "blind", value);
    for (figure, name) in [("watts", "model:power_watts"), ("usd_per_mtok", "model:usd_per_mtok")] {
        assert_eq!(blind["result"][figure], Value::Null);
        assert_eq!(ask(&format!("{name}{{model=\"blind\"}}")), Vec::<Value>::new());
    }
    // Idle hours are in a model's counters already.
    let (code, _, err) = server.cli(&["calc", "economics", "--model", "chat", "--rate-over", "busy"]);
    assert_eq!(code, 2, "{err}");
    assert!(err.contains("leave `--rate-over` away"), "{err}");
    let (code, _, err) = server.cli(&["calc", "economics", "--model", "chatt"]);
    assert_eq!(code, 2);
    assert!(err.contains("knows nothing of a model `chatt`") && err.contains("blind, chat, code"), "{err}");
}

#[test]
fn calc_says_of_a_model_what_prometheus_has_recorded_of_it_by_the_same_files() {
    let home = tempfile::tempdir().unwrap();
    let server = site(home.path());
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../rules").canonicalize().unwrap();
    let files = ["cost", "engine", "gpu"].map(|name| format!("\"{}/{name}.yml\"", folder.display()));
    let mut prometheus = Cluster::prepared("0s");
    prometheus
        .set_config(&format!("global: {{evaluation_interval: 1s}}\nrule_files: [{}]\n", files.join(", ")));
    prometheus.again();
    eventually("it is ready", || prometheus.ask("/api/v1/status/buildinfo")["status"].as_str().map(|_| ()));
    for (labels, points) in fleet() {
        assert_eq!(send(&server, &labels, &points), 204, "{labels:?}");
        assert_eq!(prometheus.write(&labels, &points), 204, "{labels:?}");
    }
    // What the site says comes from the server, as it would by remote write.
    let names = "{__name__=~\"tg_price_usd_per_gpu_hour|tg_slo_seconds|tg_site_scrape_interval_seconds\"}";
    let facts = eventually("what the site says", || {
        let said: Value =
            serde_json::from_str(&server.cli(&["query", names, "--json"]).1).unwrap_or_default();
        let found = said["result"].as_array().cloned()?;
        let is_priced = found.iter().any(|fact| fact["metric"]["gpu_model"] == CARD);
        is_priced.then_some(found)
    });
    let base_ms = now_ms() / STEP_MS * STEP_MS;
    for fact in facts {
        let labels: BTreeMap<String, String> = serde_json::from_value(fact["metric"].clone()).unwrap();
        let labels: Vec<(&str, &str)> =
            labels.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        let value: f64 = fact["value"][1].as_str().unwrap().parse().unwrap();
        assert_eq!(prometheus.write(&labels, &points(base_ms, |_| Some(value))), 204, "{labels:?}");
    }
    let ask = |query: &str| prometheus.query(query, now_ms() as f64 / 1e3);
    for model in ["chat", "code"] {
        compare(&server, &prometheus.url, model, &ask);
    }
}

/// A rank's steps: tokens and seconds of each, one a second up to now.
fn steps(rank: &str, steps: &[(f64, Option<f64>)]) -> Vec<Series> {
    let end_ns = now_ms() * 1_000_000;
    let sample = |at: usize, value| Sample {
        time_ns: end_ns - (steps.len() - 1 - at) as i64 * 1_000_000_000,
        value,
        step: Some(at as i64),
    };
    let seconds: Vec<_> = steps.iter().enumerate().map(|(at, (seconds, _))| sample(at, *seconds)).collect();
    let tokens: Vec<_> =
        steps.iter().enumerate().filter_map(|(at, (_, tokens))| Some(sample(at, (*tokens)?))).collect();
    let labels = [("rank".to_owned(), rank.to_owned())];
    let mut series = vec![Series::new("train/step_seconds", &labels, "", &seconds)];
    if !tokens.is_empty() {
        series.push(Series::new("train/step_tokens", &labels, "", &tokens));
    }
    series
}

#[test]
fn calc_says_of_a_run_what_rules_have_recorded_of_it() {
    let home = tempfile::tempdir().unwrap();
    let server = site(home.path());
    let mut series = steps("0", &[(2.0, Some(1_000.0)), (1.25, Some(1_003.0)), (1.7, Some(999.0))]);
    // A rank that has lost a step, and one of which nobody knows its tokens.
    series.extend(steps("1", &[(1.9, Some(1_000.0)), (1.3, None), (1.9, Some(1_011.0))]));
    series.extend(steps("2", &[(1.9, None), (1.3, None), (1.9, None)]));
    let text = |value: &str| model::AttributeValue::Text(value.to_owned());
    let mut opened = session(0, 1);
    (opened.time_ms, opened.rank, opened.world_size) = (now_ms() - 5_000, Some(0), Some(4));
    let sent = PushRequest {
        session: Some(opened),
        attributes: vec![
            Attribute::new("model/parameters", &model::AttributeValue::Float(8.03e9), false),
            Attribute::new("model/dtype", &text("bf16"), false),
            Attribute::new("otel/gpu_model", &text(CARD), false),
        ],
        ..request("r", 1, 1, series)
    };
    assert_eq!(server.push(&sent).0, 200);
    let run = id("r");
    let names = [("tokens_per_second", "run:tokens_per_second"), ("mfu_ratio", "run:mfu_ratio")];
    for (figure, name) in names {
        let (time, value) = eventually(name, || {
            let query = format!("{name}{{run_id=\"{run}\"}}[40s]");
            let said: Value =
                serde_json::from_str(&server.cli(&["query", &query, "--json"]).1).unwrap_or_default();
            let values = said["result"][0]["values"].as_array()?.clone();
            let last = values.last().filter(|_| values.len() > 2)?;
            Some((last[0].as_f64()?, last[1].as_str()?.parse::<f64>().ok()?))
        });
        // A rule tells of the last step of each rank, a run of its last minutes where nobody says otherwise.
        let last = format!(
            "tokens_per_second=sum(train_step_tokens{{run_id=\"{run}\"}} / train_step_seconds{{run_id=\"{run}\"}})"
        );
        let time = format!("{time:.3}");
        let typed = ["calc", "mfu", "--run", &run, "--time", &time, "--query", &last, "--json"];
        let (code, out, err) = server.cli(&typed);
        assert_eq!(code, 0, "{err}");
        same(&serde_json::from_str(&out).unwrap(), figure, name, value);
    }
}
