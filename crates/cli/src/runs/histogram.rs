//! Histograms among a run's metrics: one row instead of one for each bucket, which tell nobody anything alone.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::significant;

const BUCKET: &str = "_bucket";
const BOUND: &str = "le";
/// Quantiles that are told.
const QUANTILES: [(&str, f64); 3] = [("p50", 0.5), ("p95", 0.95), ("p99", 0.99)];

/// What is the same of all series of one histogram: its name, its scale and its labels.
type Key = (String, String, String);

/// Series of one histogram.
#[derive(Default)]
struct Parts {
    /// Upper bounds, with how many lie below.
    buckets: Vec<(f64, f64)>,
    count: Option<Value>,
    sum: Option<Value>,
}

/// The metrics with each histogram as one, whose `last` is a text.
pub(super) fn folded(metrics: &[Value]) -> Vec<Value> {
    let mut parts: BTreeMap<Key, Parts> = BTreeMap::new();
    for metric in metrics {
        let (Some(key), Some(le)) = (key(metric, BUCKET), bound(metric)) else { continue };
        parts.entry(key).or_default().buckets.push((le, metric["last"].as_f64().unwrap_or(0.0)));
    }
    for metric in metrics {
        for (suffix, is_count) in [("_count", true), ("_sum", false)] {
            if let Some(found) = key(metric, suffix).and_then(|key| parts.get_mut(&key)) {
                let part = if is_count { &mut found.count } else { &mut found.sum };
                *part = Some(metric.clone());
            }
        }
    }
    // A histogram without its count stays as it is.
    parts.retain(|_, found| found.count.is_some());
    let mut rows = Vec::with_capacity(metrics.len());
    for metric in metrics {
        let of = |suffix: &str| key(metric, suffix).filter(|key| parts.contains_key(key));
        if let Some(key) = of("_count") {
            rows.extend(parts.get(&key).and_then(|found| row(&key, found)));
        } else if of("_sum").is_none() && of(BUCKET).is_none() {
            rows.push(metric.clone());
        }
    }
    rows
}

fn key(metric: &Value, suffix: &str) -> Option<Key> {
    let name = metric["display"].as_str()?.strip_suffix(suffix)?.to_owned();
    let labels = metric["labels"].as_object().cloned().unwrap_or_default();
    let labels: Map<String, Value> = labels.into_iter().filter(|(label, _)| label != BOUND).collect();
    Some((name, metric["scale"].to_string(), Value::Object(labels).to_string()))
}

fn bound(metric: &Value) -> Option<f64> {
    metric["labels"][BOUND].as_str()?.replace("Inf", "inf").parse().ok()
}

fn row((name, _, _): &Key, parts: &Parts) -> Option<Value> {
    let mut row = parts.count.clone()?;
    let count = row["last"].as_f64().unwrap_or(0.0);
    let mut words = vec![format!("{count} in all")];
    let sum = parts.sum.as_ref().and_then(|sum| sum["last"].as_f64());
    if let Some(sum) = sum.filter(|_| count > 0.0) {
        words.push(format!("mean {}", significant(&json!(sum / count))));
    }
    let mut buckets = parts.buckets.clone();
    buckets.sort_by(|a, b| a.0.total_cmp(&b.0));
    for (word, share) in QUANTILES {
        words.extend(quantile(&buckets, share).map(|found| format!("{word} {found}")));
    }
    row["display"] = Value::from(format!("{name} (histogram)"));
    row["last"] = Value::from(words.join(", "));
    row["unit"] = Value::Null;
    Some(row)
}

/// Between the bounds of the bucket that it lies in, in proportion; above the last bound nothing more is known.
fn quantile(buckets: &[(f64, f64)], share: f64) -> Option<String> {
    let total = buckets.last().filter(|(le, count)| le.is_infinite() && *count > 0.0)?.1;
    let rank = share * total;
    let at = buckets.iter().position(|(_, count)| *count >= rank)?;
    let (high, to) = buckets[at];
    let (low, from) = if at > 0 { buckets[at - 1] } else { (high.min(0.0), 0.0) };
    if high.is_infinite() {
        return Some(format!("over {}", significant(&json!(low))));
    }
    let part = if to > from { (rank - from) / (to - from) } else { 1.0 };
    Some(significant(&json!(low + (high - low) * part)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn metric(name: &str, labels: Value, last: f64) -> Value {
        json!({"display": name, "labels": labels, "scale": "ML_STEP", "points": 3, "last": last, "unit": "s"})
    }

    #[test]
    fn a_histogram_is_one_row_and_what_is_none_stays() {
        let mut metrics = vec![metric("loss", json!({}), 0.5), metric("errors_count", json!({}), 2.0)];
        for (rank, slower) in [("0", 1.0), ("1", 2.0)] {
            for (le, count) in [("+Inf", 100.0), ("1", 50.0), ("2", 98.0)] {
                metrics.push(metric("step_bucket", json!({"rank": rank, "le": le}), count));
            }
            metrics.push(metric("step_count", json!({"rank": rank}), 100.0));
            metrics.push(metric("step_sum", json!({"rank": rank}), 110.0 * slower));
        }
        metrics.push(metric("lone_bucket", json!({"le": "1"}), 4.0));
        let rows = folded(&metrics);
        let said: Vec<(&str, String)> =
            rows.iter().map(|row| (row["display"].as_str().unwrap(), row["last"].to_string())).collect();
        assert_eq!(
            said,
            [
                ("loss", "0.5".to_owned()),
                ("errors_count", "2.0".to_owned()),
                ("step (histogram)", "\"100 in all, mean 1.1, p50 1, p95 1.9375, p99 over 2\"".to_owned()),
                ("step (histogram)", "\"100 in all, mean 2.2, p50 1, p95 1.9375, p99 over 2\"".to_owned()),
                ("lone_bucket", "4.0".to_owned()),
            ]
        );
        assert_eq!(rows[2]["labels"], json!({"rank": "0"}));
    }

    #[test]
    fn a_histogram_that_counted_nothing_has_no_quantile() {
        assert_eq!(quantile(&[(1.0, 0.0), (f64::INFINITY, 0.0)], 0.5), None);
        assert_eq!(quantile(&[(1.0, 4.0)], 0.5), None, "how many there are is not known");
        assert_eq!(quantile(&[(-2.0, 4.0), (f64::INFINITY, 4.0)], 0.5).as_deref(), Some("-2"));
    }
}
