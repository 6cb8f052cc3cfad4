//! Inputs that a Prometheus server is asked for: this one, or any other.

use clap::{Arg, ArgAction, ArgMatches};
use serde_json::{Value, json};
use server::calc::{Kind, Tool};

use super::Body;
use crate::http::{Server, escape};
use crate::output::Failure;
use crate::query::{moment, now_seconds};

/// What rates are told over where nobody says it, as rules do.
const WINDOW_DEFAULT: &str = "5m";

/// `--window`, of calculators that ask a run or a model.
pub(super) fn window_flag() -> Arg {
    Arg::new("window").long("window").value_name("DURATION").default_value(WINDOW_DEFAULT).help(
        "How much of a run or a model before that time counts, such as `5m`: what rules record is over 5 minutes",
    )
}

/// The window, as PromQL has it.
pub(super) fn window(matches: &ArgMatches) -> Result<&str, Failure> {
    let window = matches.try_get_one::<String>("window").ok().flatten();
    let window = window.map_or(WINDOW_DEFAULT, |window| window.trim());
    match promql::notation::parse_duration_ms(window) {
        Some(1..) => Ok(window),
        _ => Err(Failure::new(format!("`--window` is `{window}`, which is no length of time"))
            .hint("write it as `5m`, `90s` or `1h30m`")),
    }
}

/// When to ask for, unix seconds: a time that is written otherwise is the server's to read.
pub(super) fn time(server: &Server, matches: &ArgMatches) -> Result<String, Failure> {
    let typed = matches.get_one::<String>("time").map_or("-0s", String::as_str);
    let time = moment(typed, now_seconds());
    if time.parse::<f64>().is_ok() {
        return Ok(time);
    }
    let found = number(&ask(server, "time()", &time)?).ok().and_then(|found| found.as_f64());
    found.map(|seconds| format!("{seconds:.3}")).ok_or_else(|| {
        Failure::new(format!("`--time` is `{typed}`, which is no time"))
            .hint("write unix seconds, RFC 3339, or `-10m` before now")
    })
}

/// `--query` and `--time`.
pub(super) fn flags() -> [Arg; 2] {
    [
        Arg::new("query")
            .long("query")
            .value_name("NAME=PROMQL")
            .action(ArgAction::Append)
            .help("Ask the server for an input, such as `tokens_per_second=sum(rate(x[5m]))`; counters with their raw samples, `tokens=x[601s]`, so that their resets are judged here"),
        Arg::new("time")
            .long("time")
            .value_name("TIME")
            .allow_hyphen_values(true)
            .help("When to ask for: unix seconds, RFC 3339, or `-10m` before now [default: now]"),
    ]
}

/// What the questions answer.
pub(super) fn fields(tool: &'static Tool, matches: &ArgMatches) -> Result<Body, Failure> {
    let mut body = Body::new();
    let queries: Vec<&String> = matches.get_many("query").into_iter().flatten().collect();
    if queries.is_empty() {
        return Ok(body);
    }
    let server = Server::of(matches);
    let time = time(&server, matches)?;
    for query in queries {
        let (name, promql) = query.split_once('=').unwrap_or_default();
        let name = name.trim().replace('-', "_");
        let input = tool.inputs.iter().find(|input| input.name == name).ok_or_else(|| {
            let names: Vec<&str> = tool.inputs.iter().map(|input| input.name).collect();
            Failure::new(format!("`--query {query}` names no input"))
                .hint(format!("write `NAME=PROMQL`; names are {}", names.join(", ")))
        })?;
        let found = ask(&server, promql, &time).map_err(|failure| {
            let is_told = failure.next_step().is_some();
            let hint =
                format!("`{name}` is asked for with `{promql}`; `truegauge query` shows what it answers");
            if is_told { failure } else { failure.hint(hint) }
        })?;
        let value = match input.kind {
            Kind::Series => series(&found, Asked::of(promql, &time)),
            Kind::Number(_) | Kind::Numbers(_) => number(&found),
            Kind::Table(_) => buckets(&found),
            Kind::Word(_) | Kind::Text | Kind::Switch => Err("it is no number".to_owned()),
        };
        let value = value.map_err(|why| {
            Failure::new(format!("`{promql}` gives no `{name}`: {why}"))
                .hint("`truegauge query` shows what it answers")
        })?;
        body.insert(name, value);
    }
    Ok(body)
}

/// The `data` of an answer at one time.
pub(super) fn ask(server: &Server, promql: &str, time: &str) -> Result<Value, Failure> {
    let path = format!("/api/v1/query?query={}&time={}", escape(promql.trim()), escape(time));
    let mut answer = server.get(&path)?;
    Ok(answer["data"].take())
}

/// Leaves out counters of a single sample, which give no rate.
pub(super) fn with_a_rate(data: &mut Value) {
    if let Some(found) = data["result"].as_array_mut() {
        found.retain(|one| one["values"].as_array().is_none_or(|samples| samples.len() > 1));
    }
}

fn results(data: &Value) -> &[Value] {
    data["result"].as_array().map_or(&[], Vec::as_slice)
}

/// The window that raw samples were asked for, seconds.
#[derive(Debug, Clone, Copy)]
pub(super) struct Asked {
    from: f64,
    to: f64,
}

impl Asked {
    /// Of a query that says it, at a time in unix seconds.
    pub(super) fn of(promql: &str, time: &str) -> Option<Self> {
        let to: f64 = time.parse().ok()?;
        let range = promql::raw_range(promql)?;
        Some(Self { from: to - range.as_secs_f64(), to })
    }
}

/// Raw samples of every series.
pub(super) fn series(data: &Value, asked: Option<Asked>) -> Result<Value, String> {
    if data["resultType"] != "matrix" {
        return Err("it has no raw samples: end it in a range, such as `[601s]`".to_owned());
    }
    let one = |series: &Value| -> Option<Value> {
        let points = series["values"].as_array()?;
        let times: Option<Vec<f64>> = points.iter().map(|point| point[0].as_f64()).collect();
        let values: Option<Vec<f64>> = points.iter().map(|point| parsed(&point[1])).collect();
        let mut counted = json!({ "t": times?, "value": values? });
        if let Some(Asked { from, to }) = asked {
            (counted["from"], counted["to"]) = (from.into(), to.into());
        }
        Some(counted)
    };
    let series: Option<Vec<Value>> = results(data).iter().map(one).collect();
    match series {
        Some(series) if !series.is_empty() => Ok(Value::from(series)),
        Some(_) => Err("nothing was found".to_owned()),
        None => Err("a sample is no number".to_owned()),
    }
}

/// The one number of an answer.
pub(super) fn number(data: &Value) -> Result<Value, String> {
    let of = |point: &Value| parsed(&point[1]).filter(|number| number.is_finite()).map(Value::from);
    if data["resultType"] == "scalar" {
        return of(&data["result"]).ok_or_else(|| "it is no finite number".to_owned());
    }
    match results(data) {
        [] => Err("nothing was found".to_owned()),
        [one] => of(&one["value"]).ok_or_else(|| "it is no finite number".to_owned()),
        many => Err(format!("{} series were found: aggregate them to one", many.len())),
    }
}

/// The buckets of one histogram, by their bounds.
pub(super) fn buckets(data: &Value) -> Result<Value, String> {
    let bucket = |series: &Value| {
        let le = series["metric"]["le"].as_str()?;
        Some((le.replace("Inf", "inf").parse::<f64>().ok()?, le.to_owned(), parsed(&series["value"][1])?))
    };
    let found: Option<Vec<_>> = results(data).iter().map(bucket).collect();
    let mut found =
        found.ok_or("its series have no label `le`: write `sum by (le) (increase(x_bucket[5m]))`")?;
    if found.is_empty() {
        return Err("nothing was found".to_owned());
    }
    found.sort_by(|a, b| a.0.total_cmp(&b.0));
    let bound = |(le, text, _): &(f64, String, f64)| {
        if le.is_finite() { Value::from(*le) } else { Value::from(text.as_str()) }
    };
    let bounds: Vec<Value> = found.iter().map(bound).collect();
    let counts: Vec<f64> = found.iter().map(|(_, _, count)| *count).collect();
    Ok(json!({ "le": bounds, "count": counts }))
}

fn parsed(value: &Value) -> Option<f64> {
    value.as_str()?.replace("Inf", "inf").parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_of_raw_samples_is_the_window_that_they_were_asked_for() {
        let of = |promql: &str| Asked::of(promql, "600").map(|asked| (asked.from, asked.to));
        assert_eq!(of("x[5m]"), Some((300.0, 600.0)));
        assert_eq!(of("(x{a=\"b\"}[601s])"), Some((-1.0, 600.0)));
        for other in ["x[5m] offset 1m", "x[5m] @ 9", "x[5m:15s]", "rate(x[5m])", "x", "x["] {
            assert_eq!(of(other), None, "{other}");
        }
        assert!(Asked::of("x[5m]", "2026-11-30T12:00:00Z").is_none(), "when that is, the server knows");
    }

    #[test]
    fn answers_of_prometheus_become_inputs() {
        let matrix =
            json!({"resultType": "matrix", "result": [{"metric": {}, "values": [[1.5, "2"], [3, "4.25"]]}]});
        assert_eq!(series(&matrix, None).unwrap(), json!([{"t": [1.5, 3.0], "value": [2.0, 4.25]}]));
        let of = |le: &str, count: &str| json!({"metric": {"le": le}, "value": [0, count]});
        let vector =
            json!({"resultType": "vector", "result": [of("+Inf", "9"), of("0.5", "3"), of("2", "7")]});
        assert_eq!(buckets(&vector).unwrap(), json!({"le": [0.5, 2.0, "+Inf"], "count": [3.0, 7.0, 9.0]}));
        let one = json!({"resultType": "vector", "result": [{"metric": {}, "value": [0, "5"]}]});
        assert_eq!(number(&one).unwrap(), json!(5.0));
        assert_eq!(number(&json!({"resultType": "scalar", "result": [0, "5"]})).unwrap(), json!(5.0));
        for (wrong, words) in [
            (number(&vector), "3 series"),
            (number(&json!({"resultType": "vector", "result": []})), "nothing"),
            (number(&json!({"resultType": "scalar", "result": [0, "NaN"]})), "no finite"),
            (series(&vector, None), "raw samples"),
            (buckets(&one), "`le`"),
        ] {
            let why = wrong.unwrap_err();
            assert!(why.contains(words), "{why}");
        }
    }
}
