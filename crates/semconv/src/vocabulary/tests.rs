use std::collections::BTreeSet;

use model::Labels;
use proptest::prelude::*;

use super::*;

fn labels(text: &str) -> Labels {
    let (name, rest) = text.split_once('{').unwrap_or((text, "}"));
    let pairs = rest.trim_end_matches('}').split(',').filter(|pair| !pair.is_empty()).map(|pair| {
        let (name, value) = pair.split_once('=').unwrap();
        (name.to_owned(), value.trim_matches('"').to_owned())
    });
    Labels::from_pairs(std::iter::once(("__name__".to_owned(), name.to_owned())).chain(pairs))
}

/// What one original comes to: canonical series and values, in the order of the rows.
fn mapped(vocabulary: &Vocabulary, series: &str, value: f64) -> Vec<String> {
    let original = labels(series);
    let mut found = Vec::new();
    for &hit in vocabulary.lookup(original.metric()) {
        let (source, row) = vocabulary.get(hit).unwrap();
        let Some(canonical) = source.map(row, hit.part, &original) else { continue };
        found.push(match row.value(source, value) {
            Value::Number(value) => format!("{canonical} {value}"),
            Value::Blank => format!("{canonical} blank"),
        });
    }
    found
}

#[test]
fn every_file_is_read() {
    for (name, text) in FILES {
        let read = Vocabulary::default().with(name, text).unwrap();
        let source = read.source(name).unwrap_or_else(|| panic!("{name} names its source otherwise"));
        assert!(
            source.url.starts_with("https://") && !source.read.is_empty(),
            "{name} says where it is from"
        );
        assert!(source.rows.len() > 5, "{name}");
    }
    assert_eq!(Vocabulary::embedded().sources().len(), FILES.len());
}

#[test]
fn rows_say_what_they_must() {
    for source in Vocabulary::embedded().sources() {
        for row in &source.rows {
            let name = format!("{}: {}", source.name, row.from[0]);
            assert!(row.to.is_some() || !row.note.is_empty(), "{name}: not canonical, and no word on why");
            assert!(row.on || !row.switch.is_empty(), "{name}: off, and no word on how to switch it on");
            assert!(row.scale > 0.0, "{name}");
            let of = if source.of == Of::Engine { "tg_engine_" } else { "tg_gpu_" };
            assert!(row.to.is_none_or(|to| to.name.starts_with(of)), "{name}");
        }
        let is_marked = |row: &Row| row.from.iter().any(|name| source.owns(name));
        assert!(source.rows.iter().any(is_marked), "{}: no row has a mark", source.name);
        let given: BTreeSet<&str> = source.by_canonical().into_keys().collect();
        for absent in &source.absent {
            assert!(!given.contains(absent.to.name), "{} has {}", source.name, absent.to.name);
        }
    }
}

#[test]
fn labels_of_a_row_are_those_of_its_metric() {
    for source in Vocabulary::embedded().sources().iter().filter(|source| source.of == Of::Gpu) {
        for row in &source.rows {
            let Some(to) = row.to else { continue };
            let set = row.set.iter().map(|(label, _)| label.as_str());
            let has: BTreeSet<&str> = set.chain(row.rename.iter().map(|rename| rename.to.as_str())).collect();
            let known: BTreeSet<&str> = to.labels.iter().copied().chain(["gi", "link"]).collect();
            assert!(has.is_subset(&known), "{} {}: {has:?}", source.name, row.from[0]);
            let missing: Vec<&str> = to
                .labels
                .iter()
                .filter(|label| !has.contains(*label) && !["host", "gpu", "uuid"].contains(label))
                .copied()
                .collect();
            assert!(missing.is_empty(), "{} {}: lacks {missing:?}", source.name, row.from[0]);
        }
    }
}

#[test]
fn engines_keep_their_target_and_say_model_and_rank() {
    let v = Vocabulary::embedded();
    assert_eq!(
        mapped(
            &v,
            r#"vllm:num_requests_waiting{engine="1",instance="a:8000",job="chat",model_name="m"}"#,
            7.0
        ),
        [r#"tg_engine_requests_waiting{dp_rank="1",engine="vllm",instance="a:8000",job="chat",model="m"} 7"#]
    );
    assert_eq!(
        mapped(
            &v,
            r#"sglang:num_running_reqs{engine_type="unified",model_name="m",tp_rank="3",dp_rank="1"}"#,
            4.0
        ),
        [r#"tg_engine_requests_running{dp_rank="1",engine="sglang",model="m"} 4"#]
    );
    assert_eq!(
        mapped(&v, r#"sglang:num_running_reqs{model_name="m",priority="2"}"#, 4.0),
        Vec::<String>::new(),
        "all of them are told without a priority"
    );
    assert_eq!(
        mapped(&v, r#"vllm:num_requests_waiting_by_reason{reason="capacity"}"#, 6.0),
        Vec::<String>::new()
    );
}

#[test]
fn a_histogram_comes_over_in_its_three_parts_and_nothing_else() {
    let v = Vocabulary::embedded();
    let old = "vllm:time_per_output_token_seconds";
    assert_eq!(
        mapped(&v, &format!("{old}_bucket{{le=\"0.1\"}}"), 3.0),
        [r#"tg_engine_itl_seconds_bucket{engine="vllm",le="0.1"} 3"#],
        "named after TPOT, but it is inter-token latency"
    );
    assert_eq!(mapped(&v, &format!("{old}_sum"), 1.5), [r#"tg_engine_itl_seconds_sum{engine="vllm"} 1.5"#]);
    assert_eq!(mapped(&v, &format!("{old}_count"), 9.0), [r#"tg_engine_itl_seconds_count{engine="vllm"} 9"#]);
    assert!(v.lookup(&format!("{old}_created")).is_empty());
    assert!(v.lookup(old).is_empty());
    assert!(v.lookup("tgi_request_skipped_tokens_sum").is_empty(), "a summary");
}

const BOARD: &str = r#"gpu="1",UUID="GPU-8b",pci_bus_id="00000000:C3:00.0",modelName="NVIDIA H100 80GB HBM3",pod="p",instance="10.0.0.7:9400""#;

#[test]
fn both_spellings_of_a_field_come_to_one_series_in_base_units() {
    let v = Vocabulary::embedded();
    let check = |names: [&str; 2], value: f64, want: &str| {
        for name in names {
            for host in [r#"hostname="n1""#, r#"Hostname="n1""#] {
                let got = mapped(&v, &format!("{name}{{{BOARD},{host}}}"), value);
                assert!(got.iter().any(|line| line == want), "{name}: {got:?}");
            }
        }
    };
    check(
        ["DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_GPU_UTIL_RATIO"],
        64.0,
        r#"tg_gpu_busy_ratio{gpu="1",host="n1",uuid="GPU-8b"} 0.64"#,
    );
    check(
        ["DCGM_FI_DEV_POWER_USAGE", "DCGM_FI_DEV_BOARD_POWER_WATTS"],
        489.9,
        r#"tg_gpu_power_watts{gpu="1",host="n1",uuid="GPU-8b"} 489.9"#,
    );
    check(
        ["DCGM_FI_DEV_POWER_USAGE", "DCGM_FI_DEV_BOARD_POWER_WATTS"],
        489.9,
        r#"tg_gpu_info{gpu="1",gpu_model="NVIDIA H100 80GB HBM3",host="n1",mig="false",pci_bus_id="0000:c3:00.0",uuid="GPU-8b",vendor="nvidia"} 1"#,
    );
    check(
        ["DCGM_FI_DEV_SM_CLOCK"; 2],
        1410.0,
        r#"tg_gpu_sm_clock_hertz{gpu="1",host="n1",uuid="GPU-8b"} 1410000000"#,
    );
    check(
        ["DCGM_FI_DEV_FB_USED"; 2],
        2.0,
        r#"tg_gpu_memory_used_bytes{gpu="1",host="n1",uuid="GPU-8b"} 2097152"#,
    );
}

#[test]
fn the_host_is_the_targets_where_the_exporter_names_none() {
    let v = Vocabulary::embedded();
    let got = mapped(&v, &format!("DCGM_FI_DEV_GPU_TEMP{{{BOARD}}}"), 87.0);
    assert_eq!(got, [r#"tg_gpu_temperature_celsius{gpu="1",host="10.0.0.7",uuid="GPU-8b"} 87"#]);
    assert_eq!(host_of("[::1]:9400"), "[::1]");
    assert_eq!(host_of("node-1"), "node-1");
}

#[test]
fn slices_keep_their_activity_and_give_the_boards_power_once() {
    let v = Vocabulary::embedded();
    let of = |name: &str| mapped(&v, &format!(r#"{name}{{{BOARD},hostname="n",GPU_I_ID="3"}}"#), 0.5);
    assert_eq!(
        of("DCGM_FI_PROF_PIPE_TENSOR_ACTIVE"),
        [r#"tg_gpu_tensor_active_ratio{gi="3",gpu="1",host="n",uuid="GPU-8b"} 0.5"#]
    );
    let power = of("DCGM_FI_DEV_POWER_USAGE");
    assert!(
        power.contains(&r#"tg_gpu_power_watts{gpu="1",host="n",uuid="GPU-8b"} 0.5"#.to_owned()),
        "{power:?}"
    );
    assert!(power.iter().any(|line| line.contains(r#"mig="true""#)), "{power:?}");
}

#[test]
fn blanks_are_no_numbers() {
    let v = Vocabulary::embedded();
    let of = |name: &str, value: f64| {
        let got = mapped(&v, &format!(r#"{name}{{{BOARD},hostname="n"}}"#), value);
        got.iter().all(|line| line.ends_with(" blank")) && !got.is_empty()
    };
    for blank in ["9223372036854775794", "9223372036854775792", "140737488355330", "2147483634"] {
        assert!(of("DCGM_FI_DEV_MEMORY_TEMP", blank.parse().unwrap()), "{blank}");
    }
    assert!(!of("DCGM_FI_DEV_MEMORY_TEMP", 61.0));
    assert!(!of("DCGM_FI_DEV_FB_USED", 2_147_483_634.0), "bytes may well come by this number");
    assert!(of("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", 9_223_372_036_854_775_794.0));
}

#[test]
fn a_mask_becomes_reasons_and_the_last_xid_nothing() {
    let v = Vocabulary::embedded();
    let of = |name: &str, value: f64| mapped(&v, &format!(r#"{name}{{{BOARD},hostname="n"}}"#), value);
    let held: Vec<String> = of("DCGM_FI_DEV_CLOCKS_EVENT_REASONS", 96.0)
        .into_iter()
        .filter(|line| line.ends_with(" 1"))
        .map(|line| line.split("reason=").nth(1).unwrap().split(',').next().unwrap().to_owned())
        .collect();
    assert_eq!(held, ["\"sw_thermal\"", "\"hw_thermal\""]);
    assert_eq!(of("DCGM_FI_DEV_XID_ERRORS", 31.0), Vec::<String>::new());
    assert_eq!(of("DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL", 918.0), Vec::<String>::new());
    for (bit, reason) in crate::canonical::THROTTLE_BITS {
        let rows = &v.source("dcgm").unwrap().rows;
        let row = rows.iter().find(|row| row.transform == Transform::Bit(bit)).unwrap();
        assert_eq!(row.set, [("reason".to_owned(), reason.to_owned())]);
    }
}

#[test]
fn only_the_first_partition_of_an_amd_card_has_power() {
    let v = Vocabulary::embedded();
    let of = |name: &str, partition: &str, value: f64| {
        mapped(
            &v,
            &format!(
                r#"{name}{{gpu_id="1",gpu_partition_id="{partition}",serial_number="69",hostname="m",gpu_compute_partition_type="cpx"}}"#
            ),
            value,
        )
    };
    assert_eq!(of("gpu_package_power", "1", 0.0).iter().filter(|line| line.contains("watts")).count(), 0);
    assert_eq!(
        of("gpu_package_power", "0", 402.0)[1..],
        [r#"tg_gpu_power_watts{gpu="1",host="m",uuid="69"} 402"#]
    );
    assert_eq!(
        of("gpu_used_vram", "1", 1.0),
        [r#"tg_gpu_memory_used_bytes{gi="1",gpu="1",host="m",uuid="69"} 1048576"#]
    );
    assert_eq!(of("pcie_speed", "0", 16.0), [r#"tg_gpu_pcie_link_generation{gpu="1",host="m",uuid="69"} 4"#]);
    assert_eq!(mapped(&v, r#"gpu_clock{clock_type="system"}"#, 1.0), Vec::<String>::new(), "somebody else's");
}

#[test]
fn pages_are_known_by_their_names() {
    let v = Vocabulary::embedded();
    let of = |names: &[&str]| -> Vec<String> {
        v.detect(names.iter().copied()).into_iter().map(|source| source.name.clone()).collect()
    };
    assert_eq!(of(&["up", "vllm:num_requests_running"]), ["vllm"]);
    assert_eq!(of(&["num_requests_running"]), Vec::<String>::new());
    assert_eq!(of(&["num_requests_running", "num_requests_waiting", "gpu_cache_usage_perc"]), ["nim"]);
    assert_eq!(of(&["dynamo_frontend_queued_requests", "DCGM_FI_DEV_SM_CLOCK"]), ["dynamo", "dcgm"]);
}

#[test]
fn drift_tells_what_is_known_unknown_and_missing() {
    let v = Vocabulary::embedded();
    let page = [
        "vllm:kv_cache_usage_perc",
        "vllm:gpu_cache_usage_perc",
        "vllm:num_requests_running",
        "vllm:num_requests_running_created",
        "vllm:generation_tokens_total",
        "vllm:generation_tokens_created",
        "vllm:brand_new_seconds_bucket",
        "vllm:brand_new_seconds_sum",
        "vllm:brand_new_seconds_count",
        "vllm:brand_new_seconds_created",
        "process_cpu_seconds_total",
    ];
    let drift = drift(v.source("vllm").unwrap(), page);
    let matched: Vec<&str> = drift.matched.iter().map(|matched| matched.source).collect();
    assert_eq!(
        matched,
        [
            "vllm:num_requests_running",
            "vllm:kv_cache_usage_perc",
            "vllm:gpu_cache_usage_perc",
            "vllm:generation_tokens_total"
        ]
    );
    assert_eq!(drift.unknown, ["vllm:brand_new_seconds"]);
    assert_eq!(drift.version, "0.9.2 or newer, before 0.12");
    let spec =
        drift.missing.iter().find(|m| m.canonical.name == "tg_engine_spec_draft_tokens_total").unwrap();
    assert!(spec.text.contains("speculative configuration"), "{}", spec.text);
    assert!(!drift.missing.iter().any(|missing| missing.canonical.name == "tg_engine_kv_usage_ratio"));

    let llamacpp = super::drift(v.source("llamacpp").unwrap(), ["llamacpp:requests_processing"]);
    let ttft = llamacpp.missing.iter().find(|m| m.canonical.name == "tg_engine_ttft_seconds").unwrap();
    assert!(ttft.expected.is_empty() && ttft.text.contains("observes no"), "{}", ttft.text);
}

#[test]
fn a_users_file_adds_sources_and_replaces_rows() {
    let own = r#"
[source]
name = "vllm"

[[row]]
from = "vllm:num_requests_waiting"
to = "tg_engine_requests_running"
kind = "gauge"
scale = 2
"#;
    let v = Vocabulary::embedded().with("own.toml", own).unwrap();
    assert_eq!(
        mapped(&v, "vllm:num_requests_waiting", 3.0),
        [r#"tg_engine_requests_running{engine="vllm"} 6"#]
    );
    assert_eq!(mapped(&v, "vllm:num_requests_running", 3.0).len(), 1, "the other rows stay");
    let new = "[source]\nname = \"mine\"\nmarks = \"mine_*\"\n[[row]]\nfrom = \"mine_queue\"\nto = \"tg_engine_requests_waiting\"\nkind = \"gauge\"\n";
    let v = v.with("mine.toml", new).unwrap();
    assert_eq!(mapped(&v, "mine_queue", 3.0), [r#"tg_engine_requests_waiting{engine="mine"} 3"#]);
}

#[test]
fn mistakes_are_told_with_file_row_and_the_nearest_key() {
    let error = |rows: &str| {
        let text = format!("[source]\nname = \"mine\"\nmarks = \"mine_*\"\n{rows}");
        Vocabulary::embedded().with("mine.toml", &text).unwrap_err().to_string()
    };
    assert_eq!(
        error("[[row]]\nfrom = \"a\"\nkind = \"gauge\"\nscal = 2\n"),
        "cannot use the vocabulary `mine.toml`, [[row]] 1 (`a`): it has a key `scal`; the nearest that it may have is `scale`"
    );
    assert_eq!(
        error("[[row]]\nfrom = \"a\"\nkind = \"gauge\"\nto = \"tg_engine_requests_waitin\"\n"),
        "cannot use the vocabulary `mine.toml`, [[row]] 1 (`a`): it leads to `tg_engine_requests_waitin`, which is no canonical metric; the nearest is `tg_engine_requests_waiting`"
    );
    assert_eq!(
        error("[[row]]\nfrom = \"a\"\nkind = \"gauges\"\n"),
        "cannot use the vocabulary `mine.toml`, [[row]] 1 (`a`): it has the kind `gauges`; it may be gauge, counter, histogram, summary, info"
    );
    assert!(error("[[row]\n").starts_with("cannot read the vocabulary `mine.toml`, line 4: "));
    let histogram = error("[[row]]\nfrom = \"a\"\nkind = \"gauge\"\nto = \"tg_engine_ttft_seconds\"\n");
    assert!(histogram.contains("histogram"), "{histogram}");
}

#[test]
fn the_rules_of_the_repository_are_those_of_the_vocabulary() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../rules");
    for (name, text) in rules::files(&Vocabulary::embedded()) {
        let kept = std::fs::read_to_string(folder.join(&name)).unwrap_or_default();
        assert!(
            kept == text,
            "rules/{name} is out of date: write it anew with `truegauge rules export rules --mapping --force`"
        );
    }
}

#[test]
fn a_users_source_gets_a_file_of_rules_of_its_own() {
    let new = "[source]\nname = \"mine\"\nmarks = \"mine_*\"\ndrop = \"shard\"\n[[row]]\nfrom = [\"mine_queue\", \"mine_waiting\"]\nto = \"tg_engine_requests_waiting\"\nkind = \"gauge\"\nscale = 2\n";
    let files = rules::files(&Vocabulary::embedded().with("mine.toml", new).unwrap());
    let (name, text) = files.last().unwrap();
    assert_eq!(name, "mapping-mine.yml");
    let rule = "      - record: tg_engine_requests_waiting\n        expr: |\n          max without (shard) ({__name__=~\"mine_queue|mine_waiting\"}) * 2\n        labels: {engine: \"mine\"}\n";
    assert!(text.ends_with(rule), "{text}");
}

proptest! {
    #[test]
    fn any_text_is_a_vocabulary_or_a_word_on_why_not(text in ".{0,200}") {
        let _answer = Vocabulary::default().with("any.toml", &text);
    }

    /// A file with a line that is gone or twice is read or refused, and never maps to what is not canonical.
    #[test]
    fn a_damaged_file_never_maps_astray(file in 0..FILES.len(), at in 0_usize..400, twice: bool) {
        let (name, text) = FILES[file];
        let mut lines: Vec<&str> = text.lines().collect();
        let at = at % lines.len();
        if twice { lines.insert(at, lines[at]); } else { lines.remove(at); }
        if let Ok(read) = Vocabulary::default().with(name, &lines.join("\n")) {
            for row in read.sources().iter().flat_map(|source| &source.rows) {
                prop_assert!(row.scale > 0.0 && row.per > 0.0 && !row.from.is_empty());
                prop_assert!(row.to.is_none_or(|to| (to.kind == MetricKind::Histogram) == row.is_histogram()));
            }
        }
    }
}
