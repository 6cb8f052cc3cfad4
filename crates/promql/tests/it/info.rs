//! `info` as text: what it takes, what it costs, and what is offered inside its braces.

use model::Labels;
use promql::{
    Data, Limits, MatchOp, Matcher, MemorySource, Options, Query, QueryError, Wants, format_query, place_at,
    query_tree, rename_metrics, restrict,
};

#[test]
fn the_second_argument_is_braces_alone() {
    for (text, want) in [
        ("info(x, y)", "1:9: parse error: expected label selectors only, got vector selector instead"),
        (
            r#"info(x, y{a="b"})"#,
            "1:9: parse error: expected label selectors only, got vector selector instead",
        ),
        (r#"info(x, sum({a="b"}))"#, "1:1: parse error: expected label selectors only"),
        (
            "info(x, {} @ 5)",
            "1:9: parse error: expected label selectors only: `offset` and `@` of the first argument count here too",
        ),
        (r#"info(x, ({a="b"}))"#, "1:1: parse error: expected label selectors only"),
        (
            r#"info(x, {a="b"} offset 5m)"#,
            "1:9: parse error: expected label selectors only: `offset` and `@` of the first argument count here too",
        ),
        (r#"info(x, {a="b" or c="d"})"#, "1:9: parse error: expected label selectors only, without `or`"),
        ("info(x, 1)", "1:1: parse error: expected type vector in call to function 'info', got scalar"),
        ("info()", "1:1: parse error: expected at least 1 argument(s) in call to 'info', got 0"),
        (
            r#"info(x, {a="b"}, {c="d"})"#,
            "1:1: parse error: expected at most 2 argument(s) in call to 'info', got 3",
        ),
    ] {
        assert_eq!(Query::parse(text).unwrap_err().to_string(), want, "{text}");
    }
    // Elsewhere braces that fit everything stay refused.
    let error = Query::parse(r#"info({a=~".*"}, {a=~".*"})"#).unwrap_err().to_string();
    assert!(error.contains("at least one non-empty matcher"), "{error}");
}

#[test]
fn a_query_is_written_as_it_was_read() {
    for (text, want) in [
        ("info( x )", "info(x)"),
        ("info(x,{})", "info(x)"),
        (r#"sum(info(x,{a=~".*"})) + info(y, {b!="c",})"#, r#"sum(info(x, {a=~".*"})) + info(y, {b!="c"})"#),
        (r#"info(info(x, {a=~".*"}), {b=~".*"})"#, r#"info(info(x, {a=~".*"}), {b=~".*"})"#),
        (r#"info (x, {"a"=~".*"})"#, r#"info(x, {a=~".*"})"#),
    ] {
        assert_eq!(rename_metrics(text, &|_| Vec::new()).unwrap(), want, "{text}");
        assert_eq!(format_query(text).unwrap(), want, "{text}");
    }
    let tree = query_tree(r#"info(x, {a=~".*"})"#).unwrap();
    assert!(tree.contains(r#""name":"a""#) && !tree.contains(r#""type":"!=""#), "{tree}");
    let renamed = rename_metrics(r#"info(x, {__name__="host.info"})"#, &|name| {
        (name == "host.info").then(|| "host_info".to_owned()).into_iter().collect()
    });
    assert_eq!(renamed.unwrap(), r#"info(x, {__name__="host_info"})"#);
}

#[test]
fn a_confined_query_has_no_info() {
    let project = [Matcher::new("project", MatchOp::Equal, "mine").unwrap()];
    let error = restrict("sum(info(x))", &project).unwrap_err().to_string();
    assert!(error.starts_with("1:5: not supported: the function `info`"), "{error}");
    assert!(error.contains("group_left"), "{error}");
    assert_eq!(restrict("info(x)", &[]).unwrap(), "info(x)");
    assert!(restrict("info + info_total", &project).is_ok(), "a metric of that name is no call");
}

/// One series whose info series is another one at every step.
fn churn(steps: i64) -> MemorySource {
    let mut source = MemorySource::new();
    for step in 0..steps {
        let time_ns = step * 1_000_000_000;
        source.push(Labels::from_pairs([("__name__", "x"), ("instance", "a")]), time_ns, step as f64);
        let image = step.to_string();
        let labels = [("__name__", "target_info"), ("instance", "a"), ("image", &image)];
        source.push(Labels::from_pairs(labels), time_ns, 1.0);
    }
    source
}

#[test]
fn many_sets_of_labels_stay_within_the_limits() {
    let source = churn(400);
    let query = Query::parse("info(x)").unwrap();
    let ask =
        |limits: Limits| query.range(&source, (0, 399_000, 1000), &Options { limits, ..Options::default() });
    let answer = ask(Limits::default()).unwrap();
    let Data::Matrix(runs) = &answer.data else { panic!("no matrix") };
    // The latest info series counts, so each step has its own.
    assert_eq!(runs.len(), 400);
    assert!(runs.iter().all(|run| run.points().count() == 1));
    let samples = ask(Limits { samples_max: 100_000, ..Limits::default() }).unwrap_err();
    assert!(matches!(samples, QueryError::TooManySamples { .. }), "{samples}");
    let memory = ask(Limits { memory_max_bytes: 2_000_000, ..Limits::default() }).unwrap_err();
    assert!(matches!(memory, QueryError::TooMuchMemory { .. }), "{memory}");
}

#[test]
fn more_targets_than_a_pattern_holds_are_joined_too() {
    let mut source = MemorySource::new();
    for target in 0..3000 {
        let instance = format!("a-rather-long-host-name-{target:05}.example:9400");
        source.push(Labels::from_pairs([("__name__", "x"), ("instance", &instance)]), 0, 1.0);
        let rack = (target % 3).to_string();
        let labels = [("__name__", "target_info"), ("instance", &instance), ("rack", &rack)];
        source.push(Labels::from_pairs(labels), 0, 1.0);
    }
    let query = Query::parse("count by (rack) (info(x))").unwrap();
    let Data::Vector { samples, .. } = query.instant(&source, 0, &Options::default()).unwrap().data else {
        panic!("no vector")
    };
    assert_eq!(samples.iter().map(|sample| sample.1).collect::<Vec<_>>(), [1000.0; 3]);
}

#[test]
fn the_braces_offer_labels_of_info_series() {
    let of = |marked: &str| {
        let cursor = marked.find('§').unwrap();
        let of = match place_at(&marked.replacen('§', "", 1), cursor).wants {
            Wants::Label { of, .. } => of.into_iter().flatten().collect(),
            Wants::Value { of, .. } => of,
            other => panic!("{marked}: {other:?}"),
        };
        of.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
    };
    for (query, want) in [
        ("info(x, {§", r#"__name__="target_info""#),
        ("sum(info(rate(x{a=\"b\"}[5m]), {§}))", r#"__name__="target_info""#),
        (r#"info(x, {rack="§"#, r#"__name__="target_info""#),
        (r#"info(x, {__name__="build_info",§})"#, r#"__name__="build_info""#),
        (r#"info(x, {rack="§", __name__=~".+_info"})"#, r#"__name__=~".+_info""#),
        (r#"info({job="j",§"#, r#"job="j""#),
        (r#"max_of(x, {job="j",§"#, r#"job="j""#),
    ] {
        assert_eq!(of(query), want, "{query}");
    }
}
