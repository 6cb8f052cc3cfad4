//! The list of metrics.

use std::collections::HashSet;

use collect::DESCS;

#[test]
fn every_metric_is_described_once() {
    let names: HashSet<&str> = DESCS.iter().map(|desc| desc.name).collect();
    assert_eq!(names.len(), DESCS.len());
    for desc in DESCS {
        assert!(desc.name.starts_with("system/") && desc.labels.contains(&"host"), "{}", desc.name);
        assert!(desc.help.ends_with('.') && !desc.help.is_empty(), "{}", desc.name);
        assert!(desc.caveat.is_empty() || desc.caveat.ends_with('.'), "{}", desc.name);
    }
}

#[test]
fn every_host_series_of_the_first_issue_is_listed() {
    for name in [
        "system/cpu/utilization",
        "system/memory/used_bytes",
        "system/memory/utilization",
        "system/disk/total_bytes",
        "system/disk/free_bytes",
        "system/disk/utilization",
        "system/process/rss_bytes",
        "system/process/cpu_utilization",
    ] {
        assert!(DESCS.iter().any(|desc| desc.name == name), "{name}");
    }
}

#[test]
fn one_list_has_everything() {
    let all = collect::all_descs();
    let names: HashSet<&str> = all.iter().map(|desc| desc.name).collect();
    assert_eq!(names.len(), all.len(), "each metric once");
    assert_eq!(all.len(), DESCS.len() + collect::gpu::GPU_DESCS.len());
}
