//! What queries probably get wrong, and what they are made into.

use promql::Query;

fn grows(metric: &str) -> Option<bool> {
    match metric {
        "unknown" => None,
        name => Some(name.ends_with("_total") || name.ends_with("_bucket")),
    }
}

/// The messages, each with the query that its fix makes.
fn advice(query: &str) -> Vec<(String, Option<String>)> {
    let query = Query::parse(query).unwrap();
    query.advise(&grows).into_iter().map(|a| (a.message, a.fix.map(|fix| fix.query))).collect()
}

#[test]
fn each_mistake_has_a_fix_that_is_a_query_without_it() {
    for (wrong, right) in [
        ("a_total", "rate(a_total[5m])"),
        ("sum by (x) (a_total{b=\"c\"})", "sum by (x) (rate(a_total{b=\"c\"}[5m]))"),
        ("topk(5, a_total offset 1h)", "topk(5, rate(a_total[5m] offset 1h))"),
        ("a_total @ start() offset 1h", "rate(a_total[5m] @ start() offset 1h)"),
        ("rate(gauge[5m])", "deriv(gauge[5m])"),
        ("sum(increase(gauge[5m]))", "sum(delta(gauge[5m]))"),
        ("deriv(a_total[5m])", "rate(a_total[5m])"),
        ("delta(a_total[5m]) > 0", "increase(a_total[5m]) > 0"),
        (
            "histogram_quantile(0.9, sum(rate(a_bucket[5m])))",
            "histogram_quantile(0.9, sum by (le) (rate(a_bucket[5m])))",
        ),
        (
            "histogram_quantile(0.9, sum by (job) (rate(a_bucket[5m])))",
            "histogram_quantile(0.9, sum by (le, job) (rate(a_bucket[5m])))",
        ),
        (
            "histogram_quantile(0.9, sum(rate(a_bucket[5m])) by (job))",
            "histogram_quantile(0.9, sum(rate(a_bucket[5m])) by (le, job))",
        ),
        ("histogram_quantile(0.9, a_bucket)", "histogram_quantile(0.9, rate(a_bucket[5m]))"),
        ("-(a_total)", "-(rate(a_total[5m]))"),
    ] {
        let found = advice(wrong);
        assert_eq!(found.len(), 1, "{wrong}: {found:?}");
        assert_eq!(found[0].1.as_deref(), Some(right), "{wrong}");
        assert_eq!(advice(right), [], "{right}");
    }
}

#[test]
fn texts_beside_ascii_do_not_shift_the_fix() {
    let found = advice("gauge{a=\"é\"} + a_total");
    assert_eq!(found[0].1.as_deref(), Some("gauge{a=\"é\"} + rate(a_total[5m])"));
}

#[test]
fn sums_of_counters_before_their_rate_and_lost_bounds_are_told_without_a_fix() {
    for wrong in [
        "rate(sum(a_total)[5m:1m])",
        "histogram_quantile(0.9, sum without (le) (rate(a_bucket[5m])))",
        "predict_linear(a_total[1h], 60)",
    ] {
        let found = advice(wrong);
        assert_eq!(found.len(), 1, "{wrong}: {found:?}");
        assert_eq!(found[0].1, None, "{wrong}");
    }
}

#[test]
fn sound_queries_are_left_alone() {
    for query in [
        "rate(a_total[5m])",
        "sum by (x) (rate(a_total[5m]))",
        "gauge",
        "deriv(gauge[5m])",
        "unknown",
        "rate(unknown[5m])",
        "count(a_total)",
        "absent(a_total)",
        "a_total > 0",
        "a_total - a_total offset 5m",
        "max_over_time(a_total[5m])",
        "changes(gauge[1h])",
        "gauge and a_total",
        "{__name__=~\"a_total|b\"}",
        "histogram_quantile(0.9, sum by (le) (rate(a_bucket[5m])))",
        "histogram_quantile(0.9, sum without (pod) (rate(a_bucket[5m])))",
        "label_replace(gauge, \"a\", \"b\", \"c\", \"d\")",
        "1",
    ] {
        assert_eq!(advice(query), [], "{query}");
    }
}
