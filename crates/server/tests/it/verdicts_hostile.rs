//! Verdicts on runs whose processes tell nonsense: nobody else's verdicts suffer, and nothing of others is told.

use model::{NANOS_PER_SECOND, Sample};
use wire::push::{Attribute, Series};

use crate::fleet_peer::Site;
use crate::verdicts::{Job, Work, deliver, jitter, now_ns, said};

/// Steps, numbers of ranks and times that no training has.
#[test]
fn a_run_that_tells_nonsense_spoils_no_other_runs_verdicts() {
    let site = Site::new();
    let mut odd = Job::of("odd", 4);
    let numbers = [i64::MIN, i64::MAX, i64::MIN + 1, 0, 1, i64::MAX - 1, -5, 2, 1, i64::MIN, 3];
    let values = [1e300, -1.0, f64::NAN, f64::INFINITY, 1e-300, -1e300, 1.0, f64::MAX, 0.0, 3e38, 1.0];
    let at_ns = now_ns() - 120 * NANOS_PER_SECOND;
    for rank in ["0", "1", "2147483648", "4294967295", "-1", "rank", "1e3", ""] {
        let label = [("rank".to_owned(), rank.to_owned())];
        let mut series = Vec::new();
        for name in ["step_seconds", "step_wait_seconds", "step_data_seconds", "step_tokens"] {
            for (n, (step, value)) in numbers.iter().zip(values).enumerate() {
                let time_ns = at_ns + n as i64 * NANOS_PER_SECOND;
                let sample = Sample { time_ns, value, step: Some(*step) };
                series.push(Series::new(&format!("train_{name}"), &label, "", &[sample]));
            }
        }
        for (n, value) in [-1e300, f64::MAX, -1.0, f64::MIN].into_iter().enumerate() {
            let sample = Sample { time_ns: at_ns + n as i64, value, step: None };
            for name in ["train_collective_sequence", "train_collective_completed", "train_step_phase"] {
                series.push(Series::new(name, &label, "", &[sample]));
            }
        }
        let request = odd.request(1, now_ns(), 1, series);
        deliver(&site, &request);
    }
    let mut request = odd.request(0, now_ns(), 2, Vec::new());
    for (key, number) in [
        ("parallel/0/tp", i64::MIN),
        ("parallel/-1/pp", 3),
        ("parallel/99999999999/pp", 3),
        ("parallel/0/gpu", i64::MAX),
        ("parallel//", 1),
        ("parallel/4294967295/dp", -1),
    ] {
        request.attributes.push(Attribute::new(key, &model::AttributeValue::Int(number), false));
    }
    deliver(&site, &request);
    // Every rank goes on for a while, so that the odd steps are looked at, and stops.
    odd.push(&site, 10..60, now_ns() - 70 * NANOS_PER_SECOND, &|_, _| true, &|rank, step| {
        Work::of(jitter(rank, step))
    });
    // One rank goes back to before anything.
    let back = Sample { time_ns: now_ns() - 65 * NANOS_PER_SECOND, value: 1.0, step: Some(i64::MIN) };
    let label = [("rank".to_owned(), "0".to_owned())];
    let request = odd.request(0, now_ns(), 2, vec![Series::new("train_step_seconds", &label, "", &[back])]);
    deliver(&site, &request);
    let mut job = Job::of("sane", 64);
    job.all(&site, 0..180, &|rank, step| {
        Work::of(jitter(rank, step) * if rank == 17 && step >= 100 { 1.25 } else { 1.0 })
    });
    let health = job.health_when(&site, &|health| health["state"] == "page");
    assert_eq!(said(&health)[0].0, "straggler");
    let health = odd.health_when(&site, &|health| health["state"] != "unknown");
    for (name, figure) in health["figures"].as_object().unwrap() {
        let value = &figure["value"];
        assert!(
            value.is_null() || value.as_f64().is_some_and(|value| (0.0..1e9).contains(&value)),
            "{name}: {figure}"
        );
    }
    assert_eq!(site.get("/api/tg/v1/runs")["runs"].as_array().unwrap().len(), 2);
}
