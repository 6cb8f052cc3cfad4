//! Expressions that nobody sane writes: they end in an error or an answer, never in a panic.

use model::Labels;
use promql::{Limits, MemorySource, Options, Query};
use proptest::prelude::*;

fn source() -> MemorySource {
    let mut source = MemorySource::new();
    for (step, value) in [1.0, f64::NAN, 1e308, -1e308, f64::INFINITY, 0.0, -0.0, 5e-324].iter().enumerate() {
        source.push(Labels::from_pairs([("__name__", "m"), ("a", "1")]), step as i64 * 1_000_000_000, *value);
        source.push(Labels::from_pairs([("__name__", "m"), ("a", "2")]), step as i64 * 1_000_000_000, -value);
    }
    source
}

fn options() -> Options {
    let limits = Limits { samples_max: 100_000, ..Limits::default() };
    Options { limits, ..Options::default() }
}

/// Parses and asks; only the absence of a panic counts.
fn ask(text: &str) {
    if let Ok(query) = Query::parse(text) {
        let _ = query.instant(&source(), 7_000, &options());
        let _ = query.range(&source(), (0, 8_000, 1_000), &options());
        let _ = query.instant(&source(), -9_000_000_000_000, &options());
    }
}

#[test]
fn deep_nesting_is_refused_or_answered() {
    for depth in [10, 59, 60, 350, 1_000, 100_000] {
        ask(&format!("{}1{}", "(".repeat(depth), ")".repeat(depth)));
        ask(&format!("{}m{}", "sum(".repeat(depth), ")".repeat(depth)));
        ask(&format!("{}m{}", "abs(".repeat(depth), ")".repeat(depth)));
        ask(&"(".repeat(depth));
        ask(&format!("{}1", "-".repeat(depth)));
        ask(&format!("{}m", "-".repeat(depth)));
        ask(&format!("1{}", "+1".repeat(depth)));
        ask(&format!("m{}", " or m".repeat(depth)));
        ask(&format!("1{}", "^1".repeat(depth)));
        ask(&format!("m{}", "[1s:1s]".repeat(depth)));
    }
    let answer = Query::parse(&format!("1{}", "+1".repeat(1000))).unwrap();
    assert!(answer.instant(&source(), 0, &options()).is_ok());
}

#[test]
fn absurd_numbers_are_survived() {
    for query in [
        "topk(1e308, m)",
        "topk(-1e308, m)",
        "bottomk(NaN, m)",
        "limitk(9223372036854775807, m)",
        "limit_ratio(1e308, m)",
        "quantile(-Inf, m)",
        "m[9999999y]",
        "rate(m[292y]) offset 292y",
        "m offset -292y",
        "m @ 1e300",
        "m @ -9e15",
        "m @ 9223372036854775",
        "sum_over_time(m[100y:1ms])",
        "sum_over_time(m[1ms:100y])",
        "count_values(\"x\", m)",
        "predict_linear(m[1h], 1e308)",
        "histogram_quantile(0.5, m)",
        "year(m) + day_of_year(m) + days_in_month(vector(1e300)) + month(vector(-1e300))",
        "round(m, 0)",
        "clamp(m, NaN, NaN)",
        "label_replace(m, \"x\", \"$99999999999\", \"a\", \"(.*)\")",
        "label_replace(m, \"x\", \"${\", \"a\", \"(((((((((.*)))))))))\")",
        "m{a=~\"(x{1000}){1000}\"}",
        "m{a=~\"((((((((((a{10}){10}){10}){10}){10}){10}))))\"}",
        "m / 0 % 0 ^ NaN atan2 Inf",
        "double_exponential_smoothing(m[1h], 0, 2)",
        "sort_by_label(m)",
        "label_join(m, \"x\", \"y\")",
        "absent(m{a=\"\"})",
        "vector(m)",
        "histogram_quantiles(m, \"q\")",
        "m{} or {}",
        "{__name__=~\".*\"}",
        "1 + \"a\"",
        "-\"a\"",
        "m[1s] + 1",
        "sum(m[1s])",
        "(m)[1s]",
        "rate(1)",
        "scalar(\"x\")",
        "time()[5m:1m]",
        "avg_over_time(time()[5s:1s])",
    ] {
        ask(query);
    }
}

#[test]
fn a_long_window_ends_at_the_time_limit() {
    let mut source = MemorySource::new();
    let labels = Labels::from_pairs([("__name__", "long")]);
    for at in 0..200_000_i64 {
        source.push(labels.clone(), at * 1_000_000, (at * 7919 % 1000) as f64);
    }
    let limits = Limits { time_max: std::time::Duration::from_millis(300), ..Limits::default() };
    let options = Options { limits, ..Options::default() };
    let begun = std::time::Instant::now();
    for function in
        ["quantile_over_time(0.5, long[1d])", "stddev_over_time(long[1d])", "mad_over_time(long[1d])"]
    {
        let query = Query::parse(function).unwrap();
        let answer = query.range(&source, (200_000, 1_000_000, 100), &options);
        assert_eq!(answer.unwrap_err().kind(), "timeout", "{function}");
    }
    assert!(begun.elapsed() < std::time::Duration::from_mins(1));
    let query = Query::parse("quantile_over_time(0.5, long[1d])").unwrap();
    assert!(query.instant(&source, 200_000, &Options::default()).is_ok());
}

/// A rule file whose annotation is `text`.
fn rule_file(text: &str) -> String {
    let text = serde_json::to_string(text).unwrap();
    format!("groups: [{{name: g, rules: [{{alert: A, expr: m, annotations: {{t: {text}}}}}]}}]")
}

fn expand(text: &str) {
    if let Ok(file) = promql::rules::parse(&rule_file(text)) {
        let mut group = promql::rules::Group::new(&file.groups[0], 60_000).unwrap();
        let moment = (7_000, promql::rules::Moment::Now);
        group.evaluate(0, &source(), moment, &promql::rules::Setting::default());
    }
}

proptest! {
    #[test]
    fn any_template_is_expanded_or_refused(text in ".{0,40}") {
        expand(&text);
        expand(&format!("{{{{ {text} }}}}"));
    }

    #[test]
    fn any_row_of_template_words_is_expanded_or_refused(
        words in prop::collection::vec(
            prop::sample::select(vec![
                "{{", "}}", "-", "if", "else", "end", "range", "with", "define", "template", "$labels", "$value",
                ".", ".Labels", ".a", "|", "(", ")", ":=", "=", "$x", ",", "\"m\"", "query", "first", "value",
                "printf", "\"%s %d %f\"", "1", "2.5", "nil", "true", "humanize", "index", "len", "eq", "args",
                "/*", "*/", "é", "`",
            ]),
            0..15,
        )
    ) {
        expand(&words.join(" "));
        expand(&format!("{{{{ {} }}}}", words.join(" ")));
    }

    #[test]
    fn any_rule_file_is_read_or_refused(text in "[ a-z:\\-\n{}\\[\\]'\"|>&*!%#0-9]{0,120}") {
        promql::rules::check(&text);
        let _ = promql::rules::test(&text, &|_| Ok(Vec::new()));
    }

    #[test]
    fn any_series_text_is_read_or_refused(text in ".{0,60}", values in "[0-9x+_ .\\-staleNIf{}]{0,60}") {
        let _ = promql::notation::parse_labels(&text);
        let _ = promql::notation::parse_values(&text);
        let _ = promql::notation::parse_values(&values);
        let _ = promql::notation::parse_duration_ms(&values);
    }

    #[test]
    fn any_text_is_parsed_or_refused(text in ".{0,60}") {
        ask(&text);
    }

    #[test]
    fn any_row_of_tokens_is_parsed_or_refused(
        words in prop::collection::vec(
            prop::sample::select(vec![
                "m", "sum", "rate", "(", ")", "[", "]", "{", "}", "5m", "1", "-", "+", "*", "/", "^", "%", "==",
                "by", "on", "ignoring", "group_left", "bool", "offset", "@", "start", "end", "\"a\"", "a", "=",
                "=~", "!=", ",", ":", "or", "and", "unless", "NaN", "Inf", "topk", "quantile", "1e308",
                "label_replace", "time", "vector", "scalar", "#", "\n", "'", "`", ">/", "smoothed", "fill",
            ]),
            0..25,
        )
    ) {
        ask(&words.join(" "));
        ask(&words.concat());
    }
}
