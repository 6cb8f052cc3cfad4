//! Parsing, errors, answers and their JSON.

use model::Labels;
use promql::{Cancel, Data, Limits, Memory, MemorySource, Options, Query, QueryError, ValueType, json};

fn source() -> MemorySource {
    let mut source = MemorySource::new();
    for step in 0..100_i64 {
        for gpu in ["0", "1"] {
            let labels = Labels::from_pairs([("__name__", "power"), ("gpu", gpu)]);
            source.push(labels, step * 10_000_000_000, step as f64 + 0.5);
        }
    }
    source
}

fn json_of(query: &str, time_ms: i64) -> String {
    let query = Query::parse(query).unwrap();
    json::write_answer(&query.instant(&source(), time_ms, &Options::default()).unwrap()).unwrap().text
}

#[test]
fn answers_are_written_as_prometheus_writes_them() {
    assert_eq!(
        json_of("power", 12_345),
        r#"{"status":"success","data":{"resultType":"vector","result":[{"metric":{"__name__":"power","gpu":"0"},"value":[12.345,"1.5"]},{"metric":{"__name__":"power","gpu":"1"},"value":[12.345,"1.5"]}]}}"#
    );
    assert_eq!(
        json_of("1e21 * 10", 1000),
        r#"{"status":"success","data":{"resultType":"scalar","result":[1,"1e+22"]}}"#
    );
    assert_eq!(
        json_of("\"a\\\"\\u0001é\"", -1500),
        r#"{"status":"success","data":{"resultType":"string","result":[-1.500,"a\"\u0001é"]}}"#
    );
    assert_eq!(
        json_of("power{gpu=\"0\"}[20s]", 20_000),
        r#"{"status":"success","data":{"resultType":"matrix","result":[{"metric":{"__name__":"power","gpu":"0"},"values":[[10,"1.5"],[20,"2.5"]]}]}}"#
    );
    assert_eq!(
        json_of("rate(power{gpu=\"0\"}[25s])", 20_000),
        r#"{"status":"success","data":{"resultType":"vector","result":[{"metric":{"gpu":"0"},"value":[20,"0.1"]}]},"infos":["PromQL info: metric might not be a counter, name does not end in _total/_sum/_count/_bucket: \"power\" (1:6)"]}"#
    );
    assert_eq!(json_of("nothing", 0), r#"{"status":"success","data":{"resultType":"vector","result":[]}}"#);
}

#[test]
fn ranges_answer_matrices_also_for_scalars() {
    let query = Query::parse("1 + time()").unwrap();
    assert_eq!(query.value_type(), ValueType::Scalar);
    let answer = query.range(&source(), (0, 2_000, 1_000), &Options::default()).unwrap();
    let Data::Matrix(runs) = &answer.data else { panic!("no matrix") };
    assert_eq!(runs[0].points().collect::<Vec<_>>(), [(0, 1.0), (1000, 2.0), (2000, 3.0)]);
}

#[test]
fn errors_name_the_place() {
    for (query, message) in [
        ("sum(", "1:5: parse error: unexpected end of input, expected an expression"),
        ("foo{a=\"b\"", "1:10: parse error: unexpected end of input inside brackets, expected `}`"),
        ("foo +\n  )", "2:3: parse error: unexpected `)` where an expression should start"),
        ("foo[5x]", "1:5: parse error: `5x` is no duration"),
        ("foo $ bar", "1:5: parse error: unexpected character: '$'"),
        ("rate(foo", "1:9: parse error: unexpected end of input in the arguments of rate, expected `)`"),
        ("\"open", "1:1: parse error: unterminated quoted string: add \""),
        ("foo{a=~\"(\"}", "1:"),
        ("", "1:1: parse error: no expression found in input"),
        ("nosuch(foo)", "1:1: parse error: unknown function with name 'nosuch'"),
        (
            "foo offset 1e308",
            "1:12: parse error: `1e308` is no duration up to 292 years: write one such as `5m`",
        ),
        ("foo[5m:9999999999h]", "1:8: parse error: `9999999999h` is no duration"),
        ("foo[5m", "1:7: parse error: missing `]` after the range"),
    ] {
        let error = Query::parse(query).unwrap_err();
        assert!(error.to_string().starts_with(message), "{query}: {error}");
        assert_eq!(error.kind(), "bad_data");
    }
}

#[test]
fn what_is_left_out_says_so() {
    for (query, message) in [
        (
            "1 + histogram_count(foo)",
            "1:5: not supported: the function `histogram_count`: it works on native histograms only, use the `_count` series",
        ),
        (
            "start_timestamp(foo)",
            "1:1: not supported: the function `start_timestamp`: samples carry no start time here, use `foo_created`",
        ),
        (
            "rate(foo[5m] smoothed)",
            "1:14: not supported: the experimental modifier `smoothed`: leave it out, `rate` and `increase` extrapolate",
        ),
        ("rate(foo[5m * 2])", "1:13: not supported: experimental duration expressions"),
        (
            "foo >/ 5",
            "1:5: not supported: the operator `>/`: it trims native histograms only, select classic buckets by `le`",
        ),
        ("foo offset step()", "1:12: not supported: experimental duration expressions"),
    ] {
        let error = Query::parse(query).unwrap_err();
        assert!(error.to_string().starts_with(message), "{query}: {error}");
        assert!(matches!(error, QueryError::Unsupported { .. }), "{query}");
    }
}

#[test]
fn limits_have_names() {
    let options = |limits| Options { limits, ..Options::default() };
    let ask = |text: &str, limits| {
        Query::parse(text).unwrap().range(&source(), (0, 900_000, 1_000), &options(limits)).unwrap_err()
    };
    let few = Limits { samples_max: 1000, ..Limits::default() };
    assert!(ask("power", few.clone()).to_string().contains("`samples_max`"));
    assert!(ask("sum_over_time(vector(1)[1000d:1s])", few).to_string().contains("`samples_max`"));
    let one = Limits { series_max: 1, ..Limits::default() };
    assert!(ask("power", one).to_string().contains("matches 2 series, at most 1"));
    let small = Limits { memory_max_bytes: 5000, ..Limits::default() };
    assert!(ask("power", small).to_string().contains("`memory_max_bytes`"));
    let instant = Limits { time_max: std::time::Duration::ZERO, ..Limits::default() };
    assert_eq!(ask("power", instant).kind(), "timeout");
}

#[test]
fn memory_is_shared_with_others_and_held_until_the_answer_and_its_text_are_gone() {
    let memory = Memory::new(70_000);
    let options = Options { memory: memory.clone(), ..Options::default() };
    let ask = || Query::parse("power").unwrap().range(&source(), (0, 900_000, 1_000), &options);
    let first = ask().unwrap();
    let alone = memory.taken();
    assert!(alone >= 2 * 901 * 8, "{alone}");
    let written = json::write_answer(&first).unwrap();
    assert!(memory.taken() >= alone + written.text.len() as u64, "{}", memory.taken());
    let refused = ask().unwrap_err();
    assert_eq!(refused.kind(), "unavailable");
    assert!(refused.to_string().contains("`memory_max_bytes`"), "{refused}");
    drop(first);
    assert!(memory.taken() >= written.text.len() as u64, "{}", memory.taken());
    drop(written);
    assert_eq!(memory.taken(), 0);
    assert!(ask().is_ok());
    assert_eq!(memory.taken(), 0);
}

#[test]
fn the_text_of_an_answer_counts_and_its_writing_stops_with_the_query() {
    let cancel = Cancel::new();
    let limits = Limits { memory_max_bytes: 40_000, ..Limits::default() };
    let options = Options { cancel: cancel.clone(), limits, ..Options::default() };
    let answer = Query::parse("power").unwrap().range(&source(), (0, 900_000, 1_000), &options).unwrap();
    let refused = json::write_answer(&answer).unwrap_err();
    assert!(matches!(refused, QueryError::TooMuchMemory { limit: 40_000, .. }), "{refused}");
    cancel.cancel();
    assert_eq!(json::write_answer(&answer).unwrap_err(), QueryError::Canceled);
}

#[test]
fn patterns_of_one_query_are_bounded() {
    let query = |patterns: usize| {
        let one = |at: usize| format!("l{at}=~\"a.*\"");
        format!("{{{}}}", (0..patterns).map(one).collect::<Vec<_>>().join(","))
    };
    assert!(Query::parse(&query(100)).is_ok());
    let refused = Query::parse(&query(101)).unwrap_err().to_string();
    assert!(refused.contains("more than 100 patterns"), "{refused}");
    let text = format!("label_replace(a, \"b\", \"{}\", \"c\", \"d\")", "=~".repeat(200));
    assert!(Query::parse(&text).is_ok());
}

#[test]
fn a_cancelled_query_stops() {
    let cancel = Cancel::new();
    cancel.cancel();
    let options = Options { cancel, ..Options::default() };
    let error = Query::parse("power").unwrap().instant(&source(), 0, &options).unwrap_err();
    assert_eq!(error, QueryError::Canceled);
}

#[test]
fn times_beyond_the_calendar_are_refused() {
    let query = Query::parse("power").unwrap();
    let error = query.instant(&source(), i64::MAX, &Options::default()).unwrap_err();
    assert!(error.to_string().contains("out of range"));
    assert_eq!(query.range(&source(), (10, 5, 1), &Options::default()).unwrap_err().kind(), "execution");
    assert_eq!(query.range(&source(), (0, 5, 0), &Options::default()).unwrap_err().kind(), "execution");
    let matrix = Query::parse("power[5m]").unwrap();
    assert_eq!(matrix.range(&source(), (0, 5, 1), &Options::default()).unwrap_err().kind(), "bad_data");
}

#[test]
fn selectors_of_a_query_are_listed() {
    let query = Query::parse("sum(a{x=\"1\"}) / rate(b[5m]) + topk(scalar(c), d[1m:] @ 5)");
    let query =
        query.or_else(|_| Query::parse("sum(a{x=\"1\"}) / rate(b[5m]) + topk(scalar(c), d)")).unwrap();
    let mut names: Vec<String> = query
        .selectors()
        .iter()
        .filter_map(|matchers| matchers.iter().find(|matcher| &*matcher.name == "__name__"))
        .map(|matcher| matcher.value.to_string())
        .collect();
    names.sort();
    assert_eq!(names, ["a", "b", "c", "d"]);
}

#[test]
fn any_of_several_matchers_may_fit() {
    let query = Query::parse("power{gpu=\"0\" or gpu=\"1\"}").unwrap();
    assert_eq!(query.instant(&source(), 0, &Options::default()).unwrap().data.len(), 2);
}

#[test]
fn function_names_serve_completion() {
    let names: Vec<&str> = promql::function_names().collect();
    assert!(names.is_sorted());
    assert!(names.contains(&"rate") && names.contains(&"histogram_quantile"));
    for help in promql::function_help() {
        assert!(help.help.ends_with('.'), "{}", help.name);
        let example = |argument: &str| match argument.rsplit(' ').next() {
            Some("instant-vector") => "x",
            Some("range-vector") => "x[5m]",
            Some("string") => "\"x\"",
            Some("label-selector") => "{x=~\".*\"}",
            _ => "0.5",
        };
        let arguments =
            help.arguments.split(", ").filter(|argument| !argument.is_empty() && *argument != "...");
        let query = format!("{}({})", help.name, arguments.map(example).collect::<Vec<_>>().join(", "));
        assert!(Query::parse(&query).is_ok(), "{query}");
    }
}

#[test]
fn selectors_are_read_as_match_takes_them() {
    let any_of = promql::parse_selector("up{job=~\"a|b\",x!=\"\"}").unwrap();
    let texts: Vec<String> = any_of[0].iter().map(ToString::to_string).collect();
    assert_eq!(texts, ["__name__=\"up\"", "job=~\"a|b\"", "x!=\"\""]);
    for text in ["up[5m]", "rate(up[5m])", "up offset 5m", "{}", "1", "up @ 5"] {
        assert_eq!(promql::parse_selector(text).unwrap_err().kind(), "bad_data", "{text}");
    }
}

#[test]
fn metrics_are_renamed_in_a_forwarded_query() {
    let other = |name: &str| match name {
        "a" => vec!["b".to_owned()],
        "c.d" => vec!["c_d".to_owned()],
        "e" => vec!["e.f".to_owned()],
        "g" => vec!["g".to_owned(), "g.h".to_owned()],
        _ => Vec::new(),
    };
    for (text, wanted) in [
        ("sum by (x) (rate(a[5m] offset 1m)) / a", "sum by (x) (rate(b[5m] offset 1m)) / b"),
        ("{__name__=\"c.d\", x=\"a\"}", "{__name__=\"c_d\",x=\"a\"}"),
        ("{__name__=~\"a|c.d\"}", "{__name__=~\"a|c.d\"}"),
        ("e{x=\"1\"}", "{__name__=\"e.f\",x=\"1\"}"),
        ("g{x=\"1\"}", "{__name__=~\"g|g\\\\.h\",x=\"1\"}"),
        ("{__name__=\"g\"} + 1", "{__name__=~\"g|g\\\\.h\"} + 1"),
        (
            "topk(scalar(a), max_over_time((-a)[1h:1m] @ end()))",
            "topk(scalar(b), max_over_time((-b)[1h:1m] @ end()))",
        ),
    ] {
        assert_eq!(promql::rename_metrics(text, &other).unwrap(), wanted);
    }
    assert!(promql::rename_metrics("sum(", &other).is_err());
}

#[test]
fn a_formatted_query_is_the_same_query() {
    for text in [
        "sum by (job) (rate(a_total{x=~\"1|2\"}[5m] offset -1m)) / on (job) group_left (y) b > bool 2 ^ -3",
        "histogram_quantile(0.9, sum without (host) (rate(x_bucket[1h:30s] @ end())))",
        "-a unless (b or c and d) == 1.5e3",
        "label_replace(a, \"x\", \"$1\\n\", \"y\", \"(.*)\\\\d\")",
    ] {
        let once = promql::format_query(text).unwrap();
        assert_eq!(promql::format_query(&once).unwrap(), once);
        let same = |name: &str| vec![name.to_owned()];
        assert_eq!(promql::rename_metrics(&once, &same), promql::rename_metrics(text, &same));
    }
}

#[test]
fn threads_do_not_change_an_answer() {
    let mut source = MemorySource::new();
    for series in 0..300_i64 {
        let labels = Labels::from_pairs([
            ("__name__", "x_total".to_owned()),
            ("a", (series % 7).to_string()),
            ("b", series.to_string()),
            ("le", (series % 5).to_string()),
        ]);
        for step in 0..50_i64 {
            source.push(labels.clone(), step * 15_000_000_000, (step * series) as f64);
        }
    }
    for text in [
        "x_total",
        "rate(x_total[2m])",
        "sum by (a) (rate(x_total[2m]))",
        "quantile_over_time(0.3, x_total[5m])",
        "histogram_quantile(0.5, x_total)",
        "max_over_time(rate(x_total[1m])[5m:30s])",
    ] {
        let ask = |threads| {
            let limits = Limits { threads, ..Limits::default() };
            let options = Options { limits, ..Options::default() };
            let answer = Query::parse(text).unwrap().range(&source, (0, 700_000, 20_000), &options).unwrap();
            json::write_answer(&answer).unwrap().text
        };
        assert_eq!(ask(1), ask(8), "{text}");
    }
}

#[test]
fn many_remarks_are_counted() {
    let mut source = MemorySource::new();
    for metric in 0..1500_i64 {
        let labels = Labels::from_pairs([("__name__", format!("m{metric:04}"))]);
        source.push(labels.clone(), 0, 1.0);
        source.push(labels, 10_000_000_000, 2.0);
    }
    let query = Query::parse("sum(rate({__name__=~\"m.*\"}[1m]))").unwrap();
    let answer = query.instant(&source, 10_000, &Options::default()).unwrap();
    assert_eq!(answer.infos.len(), 11);
    assert!(answer.infos[0].ends_with("\"m0000\" (1:10)"), "{}", answer.infos[0]);
    assert_eq!(answer.infos[10], "1490 more info annotations omitted");
}
