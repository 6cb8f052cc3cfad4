//! OpenMetrics.

use std::fmt::Write;

use model::MetricKind;
use proptest::prelude::*;
use wire::exposition::{write_number, write_sample};

use crate::page::{Row, openmetrics, sample};

#[test]
fn a_page_reads_with_seconds_units_and_exemplars() {
    let page = concat!(
        "# TYPE acme_http_seconds histogram\n",
        "# UNIT acme_http_seconds seconds\n",
        "# HELP acme_http_seconds Latency \\\"in\\\" seconds\\n.\n",
        "acme_http_seconds_bucket{le=\"0.1\"} 8.0\n",
        "acme_http_seconds_bucket{le=\"1.0\"} 10 1520879607.789 # {trace_id=\"a b\"} 0.067 1520879607\n",
        "acme_http_seconds_bucket{le=\"+Inf\"} 17.0 # {} 9.8\n",
        "acme_http_seconds_created 1520430000.123\n",
        "# TYPE foo info\n",
        "foo_info{a=\"1\"} 1\n",
        "{\"gpu.power\",host=\"a\"} 5 -0.0015\n",
        "# EOF\n",
    );
    let mut rows = openmetrics(page).unwrap();
    let exemplars: Vec<String> = rows
        .iter_mut()
        .filter_map(|row| match row {
            Row::Sample { exemplar, .. } => Some(std::mem::take(exemplar)),
            _ => None,
        })
        .filter(|e| !e.is_empty())
        .collect();
    assert_eq!(exemplars.len(), 2);
    assert!(exemplars[0].contains("a b") && exemplars[0].contains("1520879607000"), "{exemplars:?}");
    assert!(exemplars[1].contains("value: 9.8, time_ms: None"), "{exemplars:?}");
    let bucket = "acme_http_seconds_bucket";
    let want = vec![
        Row::Kind("acme_http_seconds".into(), MetricKind::Histogram),
        Row::Unit("acme_http_seconds".into(), "seconds".into()),
        Row::Help("acme_http_seconds".into(), "Latency \"in\" seconds\n.".into()),
        sample(bucket, &[("le", "0.1")], 8.0, None),
        sample(bucket, &[("le", "1.0")], 10.0, Some(1_520_879_607_789)),
        sample(bucket, &[("le", "+Inf")], 17.0, None),
        sample("acme_http_seconds_created", &[], 1_520_430_000.123, None),
        Row::Kind("foo".into(), MetricKind::Info),
        sample("foo_info", &[("a", "1")], 1.0, None),
        sample("gpu.power", &[("host", "a")], 5.0, Some(-2)),
    ];
    assert_eq!(rows, want);
}

#[test]
fn an_exemplar_that_is_too_long_is_left_out_and_its_sample_kept() {
    let page = format!("a_total 1 # {{trace_id=\"{}\"}} 1\n# EOF\n", "é".repeat(121));
    assert_eq!(openmetrics(&page).unwrap(), [sample("a_total", &[], 1.0, None)]);
    let page = format!("a_total 1 # {{trace_id=\"{}\"}} 1\n# EOF\n", "é".repeat(120));
    assert_ne!(openmetrics(&page).unwrap(), [sample("a_total", &[], 1.0, None)]);
}

#[test]
fn what_the_specification_forbids_is_refused_at_its_place() {
    let check = |page: &str, want: &str| {
        assert_eq!(openmetrics(page).unwrap_err().to_string(), want, "{page:?}");
    };
    let no_line = "a sample, a `#` line or `# EOF` is wanted";
    check("a 1\n", &format!("line 2, column 1: {no_line}, the end of the page found"));
    check("a 1", "line 1, column 4: the end of the line is wanted, the end of the page found");
    check("a 1\n\n# EOF\n", &format!("line 2, column 1: {no_line}, the end of the line found"));
    check("# EOF\na 1\n", "line 2, column 1: nothing behind `# EOF` is wanted, \"a 1\" found");
    check(
        "# a comment\n# EOF\n",
        "line 1, column 1: `# HELP`, `# TYPE`, `# UNIT` or `# EOF` is wanted, \"# a comment\" found",
    );
    check("a{b=\"c\"}1\n# EOF\n", "line 1, column 9: a space is wanted, \"1\" found");
    check("a  1\n# EOF\n", "line 1, column 3: a value is wanted, \" 1\" found");
    check("a 1 \n# EOF\n", "line 1, column 5: a timestamp in seconds is wanted, the end of the line found");
    check("a 1 NaN\n# EOF\n", "line 1, column 4: a finite timestamp in seconds is wanted, \" NaN\" found");
    check("a 1 # 1\n# EOF\n", "line 1, column 7: `{` of an exemplar is wanted, \"1\" found");
    check("a 1 # {\"x\"} 1\n# EOF\n", "line 1, column 11: `=` is wanted, \"} 1\" found");
    check("a 1 # {x=\"y\"}\n# EOF\n", "line 1, column 14: a space is wanted, the end of the line found");
    check("# TYPE a untyped\n# EOF\n", "line 1, column 10: an OpenMetrics type is wanted, \"untyped\" found");
    check(
        "# UNIT a_bytes seconds\n# EOF\n",
        "line 1, column 8: the unit `seconds` is not the end of the metric's name",
    );
    check(
        "# UNIT abytes bytes\n# EOF\n",
        "line 1, column 8: the unit `bytes` is not the end of the metric's name",
    );
}

proptest! {
    #[test]
    fn what_is_written_reads_back(
        labels in prop::collection::btree_map("[a-z]{1,4}", "[\"\\\\\n a-z]{0,6}", 0..4),
        value: f64,
        time_ms in prop::option::of(-4_000_000_000_000i64..4_000_000_000_000),
    ) {
        let mut page = String::new();
        let pairs: Vec<(&str, &str)> = labels.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect();
        write_sample(&mut page, "a_total", pairs.iter().copied(), value, None);
        if let Some(time_ms) = time_ms {
            page.pop();
            page.push(' ');
            write_number(&mut page, time_ms as f64 / 1000.0);
            page.push('\n');
        }
        writeln!(page, "# EOF").unwrap();
        let value = if value.is_nan() { f64::NAN } else { value };
        prop_assert_eq!(openmetrics(&page).unwrap(), vec![sample("a_total", &pairs, value, time_ms)], "{}", page);
    }

    #[test]
    fn rubbish_is_an_error_not_a_panic(likely in "([a-z_#{}\"=\\\\, \n0-9.+é]|# TYPE |# UNIT |# EOF| # \\{){0,60}") {
        let _ = openmetrics(&likely);
    }
}
