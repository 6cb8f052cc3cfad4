//! The dashboards for Grafana: every query is a sound one of what trainers send, in the unit that its
//! panel writes, and a server that heard of training answers it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use promql_parser::parser::{Expr, token, value::ValueType};
use serde_json::{Value, json};

use crate::process::{DEADLINE, Server};
use crate::prometheus::escape;
use crate::simulate::Played;

/// A unit as a product of named units, and by how much it is larger than these.
#[derive(Debug, Clone, PartialEq)]
struct Dimension {
    scale: f64,
    of: BTreeMap<String, i32>,
}

impl Dimension {
    fn none() -> Self {
        Self { scale: 1.0, of: BTreeMap::new() }
    }

    /// Reads a unit as the product's tables write it.
    fn of(unit: &str) -> Self {
        let base = |scale: f64, name: &str| Self { scale, of: BTreeMap::from([(name.to_owned(), 1)]) };
        match unit {
            "" | "1" => Self::none(),
            "ms" => base(1e-3, "s"),
            "TFLOP/s" => base(1e12, "FLOP").times(&base(1.0, "s"), -1),
            "GiB" => base(1_073_741_824.0, "B"),
            other => match other.split_once('/') {
                Some((over, under)) => Self::of(over).times(&Self::of(under), -1),
                None => base(1.0, other),
            },
        }
    }

    fn times(mut self, other: &Self, power: i32) -> Self {
        self.scale *= other.scale.powi(power);
        for (name, of) in &other.of {
            *self.of.entry(name.clone()).or_default() += of * power;
        }
        self.of.retain(|_, power| *power != 0);
        self
    }
}

/// What Grafana calls it.
fn grafana_unit(unit: &str) -> Dimension {
    match unit {
        "none" | "percentunit" => Dimension::none(),
        "percent" => Dimension { scale: 0.01, ..Dimension::none() },
        "ms" | "s" => Dimension::of(unit),
        "gbytes" => Dimension::of("GiB"),
        "watt" => Dimension::of("W"),
        "celsius" => Dimension::of("°C"),
        "Bps" => Dimension::of("B/s"),
        "currencyUSD" => Dimension::of("USD"),
        "decgbytes" => Dimension { scale: 1e9, ..Dimension::of("B") },
        other => Dimension::of(other.strip_prefix("suffix: ").unwrap_or_else(|| panic!("{other}: no row"))),
    }
}

/// The unit of what an expression gives; `unit` tells that of a metric. An error is a mistake.
fn dimension(expr: &Expr, unit: &dyn Fn(&str) -> String) -> Result<Dimension, String> {
    let metric = |name: &Option<String>| {
        let name = name.as_deref().ok_or("a selector names no metric")?;
        let counts = name.ends_with("_count") || name.ends_with("_bucket");
        Ok(if counts { Dimension::none() } else { Dimension::of(&unit(name)) })
    };
    match expr {
        Expr::NumberLiteral(_) => Ok(Dimension::none()),
        Expr::Paren(inner) => dimension(&inner.expr, unit),
        Expr::VectorSelector(selector) => metric(&selector.name),
        Expr::MatrixSelector(selector) => metric(&selector.vs.name),
        Expr::Aggregate(aggregate) if aggregate.op.id() == token::T_COUNT => Ok(Dimension::none()),
        Expr::Aggregate(aggregate) => dimension(&aggregate.expr, unit),
        Expr::Call(call) => {
            let arguments = &call.args.args;
            match call.func.name {
                "rate" => Ok(dimension(&arguments[0], unit)?.times(&Dimension::of("s"), -1)),
                "increase" | "scalar" => dimension(&arguments[0], unit),
                "histogram_quantile" => bucket_unit(&arguments[1], unit),
                other => Err(format!("no row for the unit of {other}()")),
            }
        }
        Expr::Binary(binary) => {
            let (left, right) = (dimension(&binary.lhs, unit)?, dimension(&binary.rhs, unit)?);
            match binary.op.id() {
                token::T_MUL => Ok(scaled(left, &binary.rhs).times(&right, 1)),
                token::T_DIV => Ok(left.times(&right, -1)),
                token::T_ADD | token::T_SUB if left == right => Ok(left),
                _ => Err(format!("{left:?} {} {right:?}", binary.op)),
            }
        }
        other => Err(format!("no row for the unit of {other}")),
    }
}

/// A value that is multiplied by a number is in a unit that is as much smaller.
fn scaled(mut unit: Dimension, by: &Expr) -> Dimension {
    if let Expr::NumberLiteral(number) = by {
        unit.scale /= number.val;
    }
    unit
}

/// Quantiles are in the unit of what was observed, which the family of the buckets has.
fn bucket_unit(expr: &Expr, unit: &dyn Fn(&str) -> String) -> Result<Dimension, String> {
    match expr {
        Expr::Paren(inner) => bucket_unit(&inner.expr, unit),
        Expr::Aggregate(aggregate) => bucket_unit(&aggregate.expr, unit),
        Expr::Call(call) if call.func.name == "rate" => bucket_unit(&call.args.args[0], unit),
        Expr::MatrixSelector(selector) => match &selector.vs.name {
            Some(name) if name.ends_with("_bucket") => Ok(Dimension::of(&unit(name))),
            other => Err(format!("quantiles of {other:?}, which are no buckets")),
        },
        other => Err(format!("quantiles of {other}")),
    }
}

/// A query of a dashboard and the unit that its panel writes.
struct Shown {
    place: String,
    query: String,
    unit: String,
}

fn files() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../dashboards");
    let files: Vec<PathBuf> = std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().path()).collect();
    assert!(!files.is_empty());
    files
}

/// The queries of a dashboard, with values for its variables.
fn shown(file: &Path) -> Vec<Shown> {
    let dashboard: Value = serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
    let mut variables: BTreeMap<String, &str> = BTreeMap::from([("__rate_interval".to_owned(), "1m")]);
    for variable in dashboard["templating"]["list"].as_array().unwrap() {
        variables.insert(variable["name"].as_str().unwrap().to_owned(), ".*");
    }
    let mut found = Vec::new();
    for panel in dashboard["panels"].as_array().unwrap() {
        for target in panel["targets"].as_array().unwrap() {
            let mut query = target["expr"].as_str().unwrap().to_owned();
            for (name, value) in &variables {
                query = query.replace(&format!("${name}"), value);
            }
            assert!(!query.contains('$'), "{query}: a variable that the dashboard does not have");
            let place = format!("{}: {}", file.display(), panel["title"].as_str().unwrap());
            let unit = panel["fieldConfig"]["defaults"]["unit"].as_str().unwrap().to_owned();
            found.push(Shown { place, query, unit });
        }
    }
    found
}

/// Ten minutes of two runs, exported every 15 s, as OTLP in JSON.
fn training(now_ns: u64) -> Value {
    const STEP_NS: u64 = 15_000_000_000;
    let start_ns = now_ns - 40 * STEP_NS;
    let points = |value: &dyn Fn(u64) -> Value| -> Value {
        (1..=40)
            .map(|at| {
                let mut point = value(at);
                point["timeUnixNano"] = json!((start_ns + at * STEP_NS).to_string());
                point["startTimeUnixNano"] = json!(start_ns.to_string());
                point
            })
            .collect()
    };
    let gauge = |name: &str, value: f64| {
        let points = points(&|at| json!({"asDouble": value + at as f64 / 100.0}));
        json!({"name": format!("megatron.training.{name}"), "gauge": {"dataPoints": points}})
    };
    let skips = points(&|at| json!({"asInt": (at / 10).to_string()}));
    let times = points(&|at| {
        json!({"count": at.to_string(), "sum": 400.0 * at as f64, "bucketCounts": ["0", at.to_string(), "0"],
               "explicitBounds": [100.0, 10000.0]})
    });
    let metrics = json!([
        gauge("loss", 2.5), gauge("throughput_tflops", 400.0), gauge("tokens_per_sec", 120_000.0),
        gauge("grad_norm", 0.7), gauge("learning_rate", 3e-4), gauge("memory_allocated_gb", 61.5),
        {"name": "megatron.training.skipped_iters",
         "sum": {"aggregationTemporality": 2, "isMonotonic": true, "dataPoints": skips}},
        {"name": "megatron.training.step_duration_ms", "unit": "ms",
         "histogram": {"aggregationTemporality": 2, "dataPoints": times}},
    ]);
    let resource = |run: &str| {
        let text = |key: &str, value: &str| json!({"key": key, "value": {"stringValue": value}});
        json!({"attributes": [
            text("service.name", "megatron-lm"), text("service.instance.id", &format!("{run}-rank7")),
            text("nemo.run.id", run), text("nv.gpu.model", "NVIDIA H100 80GB HBM3"),
            text("megatron.precision", "bf16"), {"key": "dl.rank", "value": {"intValue": "7"}},
        ]})
    };
    let of_run = |run| json!({"resource": resource(run), "scopeMetrics": [{"metrics": metrics}]});
    json!({"resourceMetrics": [of_run("run-a"), of_run("run-b")]})
}

fn now_ns() -> u64 {
    u64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos()).unwrap()
}

/// What is wrong with a query: its words, its unit, or that nothing answers it.
fn fault(server: &Server, shown: &Shown) -> Result<(), String> {
    let Shown { place, query, unit } = shown;
    let explained = server.get(&format!("/api/tg/v1/explain?query={}", escape(query)));
    if explained["error"] != Value::Null || explained["advice"] != json!([]) {
        return Err(format!("{place}: {query}: {explained}"));
    }
    let metrics = explained["metrics"].as_array().unwrap();
    let missing = std::cell::RefCell::new(None);
    let of = |name: &str| {
        let Some(metric) = metrics.iter().find(|metric| metric["name"] == name) else {
            *missing.borrow_mut() = Some(name.to_owned());
            return String::new();
        };
        metric["unit"].as_str().unwrap_or_default().to_owned()
    };
    let parsed = promql_parser::parser::parse(query).unwrap();
    assert_eq!(parsed.value_type(), ValueType::Vector, "{place}");
    let given = dimension(&parsed, &of).map_err(|error| format!("{place}: {error}"))?;
    if let Some(name) = missing.into_inner() {
        return Err(format!("{place}: no series of {name}"));
    }
    let written = grafana_unit(unit);
    if given.of != written.of || (given.scale / written.scale - 1.0).abs() > 1e-9 {
        return Err(format!("{place}: {query} is in {given:?}, not in {unit}"));
    }
    let (from, to) = (now_ns() / 1_000_000_000 - 300, now_ns() / 1_000_000_000 + 1);
    let asked = format!("/api/v1/query_range?query={}&start={from}&end={to}&step=1", escape(query));
    let answer = server.get(&asked);
    match answer["data"]["result"].as_array() {
        Some(rows) if !rows.is_empty() => Ok(()),
        _ => Err(format!("{place}: {query} shows nothing: {answer}")),
    }
}

/// Every query of a dashboard is sound and answered, at the latest when the server has heard it all.
fn check(server: &Server, name: &str, panels: usize) {
    let file = files().into_iter().find(|file| file.file_name().is_some_and(|found| found == name)).unwrap();
    let all = shown(&file);
    let titles: BTreeSet<&str> = all.iter().map(|shown| shown.place.as_str()).collect();
    assert!(titles.len() >= panels, "{titles:?}");
    for shown in &all {
        let until = std::time::Instant::now() + DEADLINE;
        while let Err(found) = fault(server, shown) {
            assert!(std::time::Instant::now() < until, "{found}");
            std::thread::sleep(std::time::Duration::from_millis(100));
        }
    }
}

#[test]
fn every_query_about_training_is_sound_and_is_answered() {
    let server = Server::start(&[
        "--own-metrics=true",
        "--own-metrics-interval",
        "200ms",
        "--starter-rules=true",
        "--rule-interval",
        "200ms",
    ]);
    let taken = server.post_json("/v1/metrics", &training(now_ns()));
    assert_eq!((taken.status, taken.json()), (200, json!({})));
    check(&server, "training.json", 12);
}

#[test]
fn every_query_about_the_fleet_and_its_engines_is_sound_and_is_answered() {
    let played = Played::start("small.toml", "4");
    check(&played.server, "fleet.json", 19);
    check(&played.server, "inference.json", 14);
    assert_eq!(files().len(), 5, "a dashboard that no test asks");
}

/// Verdicts as series, as a server writes them that has watched runs for a while.
fn verdicts(now_ns: u64) -> Value {
    let gauge = |name: &str, labels: &[(&str, &str)], value: f64| {
        let attribute = |(key, value): &(&str, &str)| json!({"key": key, "value": {"stringValue": value}});
        let attributes: Vec<Value> = labels.iter().map(attribute).collect();
        let point = json!({"asDouble": value, "timeUnixNano": now_ns.to_string(), "attributes": attributes});
        json!({"name": name, "gauge": {"dataPoints": [point]}})
    };
    let rank = [("rank", "17"), ("host", "n3"), ("gpu", "1"), ("cause", "thermal"), ("level", "page")];
    let metrics = json!([
        gauge("tg_straggler", &rank, 0.171),
        gauge("tg_run_hang", &[("rank", "42")], 1.0),
        gauge("tg_remediation", &[("host", "n7"), ("state", "draining")], 1.0),
    ]);
    let text = |key: &str, value: &str| json!({"key": key, "value": {"stringValue": value}});
    let resource = json!({"attributes": [
        text("service.name", "megatron-lm"), text("service.instance.id", "run-a-rank17"), text("nemo.run.id", "run-a"),
    ]});
    json!({"resourceMetrics": [{"resource": resource, "scopeMetrics": [{"metrics": metrics}]}]})
}

#[test]
fn every_query_about_cost_and_health_is_sound_and_is_answered() {
    // Energy of cards is believed at the pace of clocks only.
    let played = Played::at_site("small.toml", "1");
    for sent in [training(now_ns()), verdicts(now_ns())] {
        let taken = played.server.post_json("/v1/metrics", &sent);
        assert_eq!((taken.status, taken.json()), (200, json!({})));
    }
    check(&played.server, "cost.json", 13);
    check(&played.server, "health.json", 11);
}

#[test]
fn a_query_in_another_unit_than_its_panel_is_found() {
    let unit = |name: &str| match name {
        "flops" => "TFLOP/s".to_owned(),
        "peak" => "FLOP/s".to_owned(),
        "seconds_total" => "s".to_owned(),
        _ => "ms".to_owned(),
    };
    let of = |query: &str| dimension(&promql_parser::parser::parse(query).unwrap(), &unit);
    assert_eq!(of("flops * 1e12 / scalar(max(peak))"), Ok(Dimension::none()));
    assert_ne!(of("flops / scalar(max(peak))"), Ok(Dimension::none()));
    assert_eq!(of("rate(time_sum[1m]) / rate(time_count[1m])").unwrap(), Dimension::of("ms"));
    assert_eq!(
        of("histogram_quantile(0.5, sum by (le) (rate(time_bucket[1m])))").unwrap(),
        Dimension::of("ms")
    );
    assert_eq!(of("rate(seconds_total[1m])"), Ok(Dimension::none()));
    assert!(of("flops + time").is_err());
    assert!(of("histogram_quantile(0.5, rate(time_sum[1m]))").is_err());
}
