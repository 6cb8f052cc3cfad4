//! What keeps numbers of cards away: a second holder of the profiling counters, fields that a scraped
//! exporter does not send, and labels that made way for those of a target.

use std::thread;
use std::time::Duration;

use collect::gpu::{GpuOptions, GpuSampler};
use serde_json::Value;

use super::{Check, ok, warn};
use crate::http::Server;

/// Between two samples of profiling counters, which the driver refreshes ten times a second.
const APART: Duration = Duration::from_millis(150);
/// Longest wait for a driver that starts.
const START_DEADLINE: Duration = Duration::from_secs(5);
/// Fields that are named in one line.
const NAMED_MAX: usize = 12;
/// What an exporter gives by profiling whatever its list of fields is.
const PROFILED: [&str; 2] = ["tg_gpu_tensor_active_ratio", "tg_gpu_dram_active_ratio"];
const GUIDE: &str = "docs/guides/dcgm-exporter.md";

/// Labels by which cards and their owners are found, where a scrape has put others in their place.
const MOVED: [&str; 10] = [
    "exported_UUID",
    "exported_Hostname",
    "exported_hostname",
    "exported_uuid",
    "exported_host",
    "exported_gpu",
    "exported_gi",
    "exported_namespace",
    "exported_pod",
    "exported_container",
];
/// Labels of all series of cards, under an exporter's names or ours.
const LABELS_OF_CARDS: &str =
    "/api/v1/labels?match[]=%7B__name__%3D~%22(DCGM_FI_%7Ctg_gpu_%7Cgpu_).%2B%22%7D";

/// Whether the driver gives this machine's profiling counters to one more program.
pub(super) fn profiling() -> Option<Check> {
    let options = GpuOptions { start_deadline: START_DEADLINE, partitioned: true, ..GpuOptions::default() };
    let mut sampler = GpuSampler::open(&options).ok()?;
    let cards: Vec<u32> = sampler.devices().iter().map(|device| device.index).collect();
    let wanted = collect::gpu::GPU_SM_ACTIVE.name;
    let mut has = Vec::new();
    for _ in 0..2 {
        sampler.sample(&cards, &mut |gpu, value| {
            if value.metric.name == wanted {
                has.push(gpu);
            }
        });
        thread::sleep(APART);
    }
    let failures = sampler.take_failures();
    if let Some(failure) = failures.iter().find(|failure| failure.metric.name == wanted) {
        let fix = format!(
            "stop what holds the profiling counters (dcgm-exporter with `DCGM_FI_PROF_*`, Nsight), or take \
             the numbers from there: {GUIDE}"
        );
        return Some(warn("gpu.profiling", failure.cause.clone(), fix));
    }
    (!has.is_empty()).then(|| {
        has.dedup();
        ok("gpu.profiling", format!("profiling counters are free on {} of {} GPUs", has.len(), cards.len()))
    })
}

/// What the server's scraped dcgm-exporters leave out.
pub(super) fn exporters(server: &Server, timeout: Duration) -> Vec<Check> {
    // A server that is older, or keeps it from this token, says nothing of its targets.
    let Ok(answer) = server.ask("GET", "/api/tg/v1/engines/vocabulary", timeout) else { return Vec::new() };
    let targets = answer["targets"].as_array().cloned().unwrap_or_default();
    targets.iter().filter(|target| target["engine"] == "dcgm").map(exporter).collect()
}

/// Labels of cards that made way for a target's: whoever asks by them finds the exporter's pod, not the job's.
pub(super) fn moved_labels(server: &Server, timeout: Duration) -> Option<Check> {
    moved(&server.ask("GET", LABELS_OF_CARDS, timeout).ok()?)
}

fn moved(answer: &Value) -> Option<Check> {
    let has = |name: &&&str| answer["data"].as_array().is_some_and(|all| all.iter().any(|of| of == **name));
    let named: Vec<String> = MOVED.iter().filter(has).map(|name| format!("`{name}`")).collect();
    if named.is_empty() {
        return None;
    }
    let evidence =
        format!("series of cards have {}: labels of the page made way for a target's", named.join(", "));
    let fix = format!("scrape those targets with `honor_labels: true`: {GUIDE}");
    Some(warn("gpu.labels", evidence, fix))
}

fn exporter(target: &Value) -> Check {
    const ID: &str = "dcgm-exporter";
    let instance = target["instance"].as_str().unwrap_or("an exporter");
    let missing: Vec<&str> = target["missing"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|row| row["canonical"].as_str())
        .collect();
    if missing.is_empty() {
        return ok(ID, format!("{instance} sends every field that is worth it"));
    }
    let short = |name: &&str| name.trim_start_matches("tg_gpu_").to_owned();
    let mut named: Vec<String> = missing.iter().take(NAMED_MAX).map(short).collect();
    if missing.len() > NAMED_MAX {
        named.push(format!("{} more", missing.len() - NAMED_MAX));
    }
    let evidence = format!("{instance} does not send {}", named.join(", "));
    if PROFILED.iter().all(|name| missing.contains(name)) {
        let fix = format!(
            "it has no profiling at all: another program holds the counters, or its profiling module is not \
             loaded; then give it `deploy/dcgm-counters.csv`: {GUIDE}"
        );
        return warn(ID, evidence, fix);
    }
    warn(ID, evidence, format!("give it `deploy/dcgm-counters.csv` (`-f`): {GUIDE}"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::doctor::Verdict;

    fn of(missing: &[&str]) -> Check {
        let rows: Vec<Value> = missing.iter().map(|name| json!({"canonical": name})).collect();
        exporter(&json!({"instance": "node-1:9400", "engine": "dcgm", "missing": rows}))
    }

    #[test]
    fn labels_that_made_way_are_named_and_others_are_not() {
        assert!(moved(&json!({"data": ["pod", "uuid", "exported_job"]})).is_none());
        let check = moved(&json!({"data": ["exported_pod", "exported_namespace", "pod"]})).unwrap();
        assert!(check.evidence.contains("`exported_namespace`, `exported_pod`"), "{}", check.evidence);
        assert!(check.fix.contains("honor_labels: true"), "{}", check.fix);
    }

    #[test]
    fn fields_that_are_off_are_named_and_lost_profiling_is_told_apart() {
        assert_eq!(of(&[]).verdict, Verdict::Ok);
        let some = of(&["tg_gpu_row_remap_pending", "tg_gpu_sm_active_ratio"]);
        assert_eq!(some.verdict, Verdict::Warn);
        assert_eq!(some.evidence, "node-1:9400 does not send row_remap_pending, sm_active_ratio");
        assert!(some.fix.contains("dcgm-counters.csv"), "{}", some.fix);
        let none = of(&["tg_gpu_tensor_active_ratio", "tg_gpu_dram_active_ratio"]);
        assert!(none.fix.contains("another program holds the counters"), "{}", none.fix);
        let many: Vec<String> = (0..20).map(|n| format!("tg_gpu_{n}")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        assert!(of(&many).evidence.ends_with("11, 8 more"), "{}", of(&many).evidence);
    }
}
