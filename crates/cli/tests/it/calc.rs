//! Figures reckoned on the command line.

use std::path::Path;

use serde_json::Value;

use crate::process::run;

/// Exit code, stdout and stderr of `truegauge calc mfu`.
fn mfu(arguments: &str) -> (i32, String, String) {
    let typed: Vec<&str> = ["calc", "mfu"].into_iter().chain(arguments.split_whitespace()).collect();
    run(Path::new("."), &typed)
}

#[test]
fn utilization_is_what_the_seed_says_for_its_cluster() {
    let cluster = "--params 70e9 --tokens-per-second 782446.9154146261 --gpus 1024 --json";
    for peak in ["--peak 989e12", "--gpu h100-sxm", "--gpu h100-sxm --dtype bf16"] {
        let (code, out, err) = mfu(&format!("{cluster} {peak}"));
        assert_eq!((code, err.as_str()), (0, ""), "{peak}");
        let said: Value = serde_json::from_str(&out).unwrap();
        let ratio = said["mfu_ratio"].as_f64().unwrap();
        assert!((ratio - 0.324_494_936_957_472_6).abs() < 1e-9, "{peak}: {ratio}");
    }
    let (code, out, _) =
        mfu("--params 70e9 --tokens-per-second 782446.9154146261 --gpus 1024 --gpu h100-sxm");
    assert_eq!(code, 0);
    assert!(out.starts_with("MFU        32.4 %\n"), "{out}");
}

#[test]
fn attention_counts_where_the_model_is_known() {
    let model = "--params 70e9 --tokens-per-second 1 --gpus 1 --peak 1e15 --json";
    let (_, out, _) = mfu(&format!("{model} --layers 80 --hidden-size 8192 --seq-len 4096"));
    let said: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(said["flops_per_token"].as_f64(), Some(420e9 + 12.0 * 80.0 * 8_192.0 * 4_096.0));
    let (code, _, err) = mfu(&format!("{model} --layers 80"));
    assert_eq!(code, 2, "{err}");
}

#[test]
fn what_can_not_be_is_told_so() {
    let check = |arguments: &str, code: i32, words: &str| {
        let (found, _, err) = mfu(arguments);
        assert_eq!(found, code, "{arguments}: {err}");
        assert!(err.contains(words), "{arguments}: {err}");
    };
    let model = "--params 70e9 --tokens-per-second 782446 --gpus 1024";
    check(&format!("{model} --peak 300e12"), 1, "more than the peak");
    check(&format!("{model} --gpu frobnicator"), 2, "--peak");
    check(&format!("{model} --gpu h100-sxm --dtype fp4"), 2, "no peak of `h100-sxm` is known for fp4");
    check(&format!("{model} --gpu h100-sxm --dtype int3"), 2, "no number format");
    check("--params 70e9 --tokens-per-second 1 --gpus 0 --peak 1e12", 2, "no utilization");
    check(model, 2, "--peak");
}
