//! The text format.

use std::fmt::Write;
use std::ops::ControlFlow;

use model::MetricKind;
use proptest::prelude::*;
use wire::exposition::{parse, write_help, write_sample, write_type};
use wire::page::{Entry, Fault, Found, PageLimits};

use crate::page::{Row, sample, text, text_bytes};

#[test]
fn a_page_reads_as_prometheus_reads_it() {
    let page = concat!(
        "# HELP requests_total All of them, \\\\ and\\nmore \"quoted\".\n",
        "# TYPE requests_total counter\n",
        "requests_total{code=\"200\",path=\"/a\\\"b\\\\c\\nd\"} 1027 1395066363000\n",
        "\n",
        "  requests_total { code = \"400\" , } 3\t-1395066363000 \n",
        "# a comment, # HELP\n",
        "#HELP is one too\n",
        "# HELP\n",
        "up 1\n",
        "empty{} 0.5e-3\n",
        "x:rate{le=\"+Inf\"} +Inf\n",
        "x:rate{le=\"0\"} -inf\n",
        "nothing NaN\n",
        "{\"gpu.power\",host=\"a\",\"la.bel\"=\"ü\"} 5\n",
        "{host=\"a\",\"gpu.power\"} 6",
    );
    let want = vec![
        Row::Help("requests_total".into(), "All of them, \\ and\nmore \"quoted\".".into()),
        Row::Kind("requests_total".into(), MetricKind::Counter),
        sample(
            "requests_total",
            &[("code", "200"), ("path", "/a\"b\\c\nd")],
            1027.0,
            Some(1_395_066_363_000),
        ),
        sample("requests_total", &[("code", "400")], 3.0, Some(-1_395_066_363_000)),
        sample("up", &[], 1.0, None),
        sample("empty", &[], 0.5e-3, None),
        sample("x:rate", &[("le", "+Inf")], f64::INFINITY, None),
        sample("x:rate", &[("le", "0")], f64::NEG_INFINITY, None),
        sample("nothing", &[], f64::NAN, None),
        sample("gpu.power", &[("host", "a"), ("la.bel", "ü")], 5.0, None),
        sample("gpu.power", &[("host", "a")], 6.0, None),
    ];
    assert_eq!(text(page).unwrap(), want);
}

#[test]
fn a_sample_carries_its_series_as_spelled() {
    let mut spelled = Vec::new();
    let page = b"a 1\na{b=\"c\"} 2\n  a {b=\"c\"} 3\n{\"a.b\"} 4\n";
    parse(page, PageLimits::default(), |entry| {
        if let Entry::Sample(sample) = entry {
            spelled.push(sample.series);
        }
        ControlFlow::Continue(())
    })
    .unwrap();
    assert_eq!(spelled, ["a", "a{b=\"c\"}", "a {b=\"c\"}", "{\"a.b\"}"]);
}

#[test]
fn errors_point_at_the_place() {
    let check = |page: &str, want: &str| {
        assert_eq!(text(page).unwrap_err().to_string(), want, "{page:?}");
    };
    check("a 1\nb{c=\"d\" 2\n", "line 2, column 9: `,` or `}` is wanted, \"2\" found");
    check("ü", "line 1, column 1: a metric name is wanted, \"ü\" found");
    check("a{b=\"ü\",c=1} 2", "line 1, column 11: a quoted label value is wanted, \"1} 2\" found");
    check("a{b=\"c\n\"} 1", "line 1, column 7: a closing quote is wanted, the end of the line found");
    check("a{b=\"c\\", "line 1, column 8: a closing quote is wanted, the end of the page found");
    check("a\n", "line 1, column 2: a value is wanted, the end of the line found");
    check("a one", "line 1, column 3: a value is wanted, \"one\" found");
    check("a 1_0", "line 1, column 3: a value is wanted, \"1_0\" found");
    check("a 0x1p4", "line 1, column 3: a value is wanted, \"0x1p4\" found");
    check("a 1e999", "line 1, column 3: a value is wanted, \"1e999\" found");
    check("a -NaN", "line 1, column 3: a value is wanted, \"-NaN\" found");
    check(
        "a 1 2.5\n",
        "line 1, column 5: a timestamp in milliseconds or the end of the line is wanted, \"2.5\" found",
    );
    check("a 1 2 3\n", "line 1, column 7: the end of the line is wanted, \"3\" found");
    check("a 1\r\n", "line 1, column 3: a value is wanted, \"1\\r\" found");
    check("{a=\"b\"} 1", "line 1, column 1: a series without a metric name");
    check("{\"a\",\"b\"} 1", "line 1, column 6: a series with two metric names");
    check("a{b=\"1\",b=\"2\"} 1", "line 1, column 9: the label `b` comes twice");
    check("a{__name__=\"b\"} 1", "line 1, column 3: a label name that can't be used");
    check("a{b:c=\"1\"} 1", "line 1, column 4: `=` is wanted, \":c=\\\"1\\\"} 1\" found");
    check(
        "# TYPE a speed\n",
        "line 1, column 10: a type (counter, gauge, histogram, summary or untyped) is wanted, \"speed\" found",
    );
    check("# TYPE 1a gauge\n", "line 1, column 8: a metric name is wanted, \"1a gauge\" found");
    check("<html>\n", "line 1, column 1: a metric name is wanted, \"<html>\" found");
    let not_text = text_bytes(b"a 1\nb{c=\"\xff\"} 1\n", PageLimits::default()).unwrap_err();
    assert_eq!((not_text.line, not_text.column, not_text.what), (2, 6, Fault::Utf8));
}

#[test]
fn bounds_hold_and_say_which() {
    let limits = PageLimits { line_bytes: 100, labels: 3, text_bytes: 10, samples: 2 };
    let what = |page: &str| text_bytes(page.as_bytes(), limits).unwrap_err().to_string();
    assert_eq!(
        what("a{a=\"\",b=\"\",c=\"\",d=\"\"} 1"),
        "line 1, column 18: labels of a series over the limit of 3"
    );
    assert_eq!(
        what("a{b=\"01234567890\"} 1"),
        "line 1, column 6: bytes in a name or a label over the limit of 10"
    );
    assert_eq!(what("a2345678901 1"), "line 1, column 1: bytes in a name or a label over the limit of 10");
    assert_eq!(what("a 1\na 2\na 3"), "line 3, column 1: samples of a page over the limit of 2");
    assert_eq!(
        what(&format!("a 1\n# {}", "x".repeat(200))),
        "line 2, column 2: bytes in a line over the limit of 100"
    );
    assert_eq!(
        what(&format!("a{} 1", " ".repeat(200))),
        "line 1, column 1: bytes in a line over the limit of 100"
    );
}

#[test]
fn a_line_without_end_and_a_million_labels_are_refused_by_default() {
    let line = "a".repeat(10 << 20);
    assert!(text(&line).unwrap_err().to_string().ends_with("over the limit of 65536"));
    let help = format!("# HELP a {line}");
    assert!(text(&help).unwrap_err().to_string().ends_with("bytes in a line over the limit of 1048576"));
    let mut labels = String::from("a{");
    for number in 0..1_000_000 {
        write!(labels, "l{number}=\"\",").unwrap();
    }
    labels.push_str("} 1");
    let error = text(&labels).unwrap_err();
    assert!(error.column < 2_000, "it stops where the limit is passed: {error}");
    assert!(error.to_string().ends_with("labels of a series over the limit of 128"), "{error}");
}

#[test]
fn a_page_cut_anywhere_is_no_panic_and_a_sink_may_stop_early() {
    let page = "# HELP a b\n# TYPE a gauge\na{b=\"c\\\"ü\"} 1 2\n{\"x.y\",\"a b\"=\"c\"} NaN\n";
    for end in 0..page.len() {
        let _ = text_bytes(&page.as_bytes()[..end], PageLimits::default());
    }
    let mut seen = 0;
    parse(b"a 1\nb 2\n<html>", PageLimits::default(), |_| {
        seen += 1;
        if seen == 2 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })
    .unwrap();
    assert_eq!(seen, 2);
}

/// Any text, with the characters that need care more often than chance has them.
fn any_text() -> impl Strategy<Value = String> {
    let odd = prop::sample::select(vec!['"', '\\', '\n', '{', '}', ',', '=', ' ', '#', 'é', 'n']);
    prop::collection::vec(prop_oneof![odd, any::<char>()], 0..12).prop_map(|c| c.into_iter().collect())
}

fn any_name() -> impl Strategy<Value = String> {
    prop_oneof!["[a-zA-Z_][a-zA-Z0-9_]{0,8}", any_text().prop_filter("a name", |n| !n.is_empty())]
        .prop_filter("not the name's label", |n| n != "__name__")
}

proptest! {
    #[test]
    fn what_is_written_reads_back(
        name in any_name(),
        labels in prop::collection::btree_map(any_name(), any_text(), 0..5),
        value: f64,
        time_ms: Option<i64>,
        help in any_text(),
    ) {
        let mut page = String::new();
        write_help(&mut page, &name, &help);
        write_type(&mut page, &name, MetricKind::Gauge);
        write_sample(&mut page, &name, labels.iter().map(|(n, v)| (n.as_str(), v.as_str())), value, time_ms);
        let value = if value.is_nan() { f64::NAN } else { value };
        let pairs: Vec<(&str, &str)> = labels.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect();
        let want = vec![
            // Blanks before the text separate it from the name.
            Row::Help(name.clone(), help.trim_start_matches([' ', '\t']).to_owned()),
            Row::Kind(name.clone(), MetricKind::Gauge),
            sample(&name, &pairs, value, time_ms),
        ];
        prop_assert_eq!(text(&page).unwrap(), want, "{}", page);
    }

    #[test]
    fn rubbish_is_an_error_not_a_panic(page: Vec<u8>, likely in "([a-z_#{}\"=\\\\, \n0-9.+é]|# TYPE |# HELP ){0,60}") {
        let _ = text_bytes(&page, PageLimits::default());
        let _ = text(&likely);
    }
}

/// Captured pages of real exporters, where the checkout has them beside it.
#[test]
fn pages_of_real_exporters_read_whole() {
    let Some(folder) = std::env::var_os("TRUEGAUGE_EXPOSITIONS") else { return };
    let mut pages = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|e| e != "prom") {
            continue;
        }
        let page = std::fs::read_to_string(&path).unwrap();
        let rows = text(&page).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let lines = page.lines().filter(|l| !l.is_empty() && !l.starts_with('#')).count();
        let samples = rows.iter().filter(|r| matches!(r, Row::Sample { .. })).count();
        assert_eq!(samples, lines, "{}", path.display());
        pages += 1;
    }
    assert!(pages > 0);
}

#[test]
fn found_text_is_cut_short() {
    let mut page = String::new();
    write!(page, "a {}", "9x".repeat(1000)).unwrap();
    let Fault::Syntax { found: Found::Text(found), .. } = text(&page).unwrap_err().what else {
        panic!("another fault")
    };
    assert_eq!(found.len(), 24);
}
