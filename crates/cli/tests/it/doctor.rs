//! What `truegauge doctor` says of a machine's GPUs before a run starts, through a driver that a
//! scenario plays.

use std::path::Path;
use std::process::Stdio;

use serde_json::Value;

use crate::process::truegauge;

/// All that the six series of a GPU are read from, with power or without.
fn values(has_power: bool) -> String {
    let power = if has_power { "power_mw = 250000, " } else { "" };
    format!(
        "values = {{ {power}utilization = 50, utilization_memory = 1, memory_total = 85899345920, memory_used = 1073741824, \
         memory_free = 84825604096, memory_reserved = 0, temperature = 41, sm_mhz = 1200 }}"
    )
}

/// Eight GPUs: the third is partitioned, the second tells of no power.
fn eight() -> String {
    let gpu = |index: usize| {
        let mig = if index == 2 { "mig = true" } else { "mig = false" };
        let lines = values(index != 1);
        format!(
            "[[gpu]]\nuuid = \"GPU-{index:08}\"\nname = \"Fake H100\"\nbus_id = \"00000000:{:02X}:00.0\"\n{mig}\n{lines}\n",
            0x1b + index
        )
    };
    let gpus: String = (0..8).map(gpu).collect();
    format!("driver_version = \"570.86.15\"\n{gpus}")
}

/// Asks it with this driver and these variables; its exit code and answer.
fn doctor(scenario: &str, variables: &[(&str, &str)]) -> (i32, Value) {
    let home = tempfile::tempdir().unwrap();
    fake_nvml::install(home.path(), scenario).unwrap();
    ask(home.path(), variables)
}

fn ask(home: &Path, variables: &[(&str, &str)]) -> (i32, Value) {
    let mut command = truegauge(home);
    for name in ["CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "LOCAL_RANK"] {
        command.env_remove(name);
    }
    let data = home.join("data");
    let asked = command
        .args(["doctor", "--json", "--data-dir", data.to_str().unwrap()])
        .env("LD_LIBRARY_PATH", home)
        .envs(variables.iter().copied())
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let answer = serde_json::from_slice(&asked.stdout);
    let answer = answer.unwrap_or_else(|e| panic!("{e}: {}", String::from_utf8_lossy(&asked.stderr)));
    (asked.status.code().unwrap(), answer)
}

/// Evidence of the checks by this name, with their status.
fn checks<'a>(answer: &'a Value, id: &str) -> Vec<(&'a str, &'a str)> {
    let all = answer["checks"].as_array().unwrap().iter();
    let text = |check: &'a Value, key: &str| check[key].as_str().unwrap();
    all.filter(|check| check["id"] == id)
        .map(|check| (text(check, "status"), text(check, "evidence")))
        .collect()
}

#[test]
fn it_tells_whose_the_gpus_would_be_and_what_a_run_would_lack() {
    let (code, answer) = doctor(&eight(), &[("CUDA_VISIBLE_DEVICES", "0,1,2,3")]);
    assert_eq!((code, &answer["ok"]), (0, &true.into()), "{answer}");
    assert_eq!(checks(&answer, "capture")[0].0, "ok");
    let driver = checks(&answer, "gpu.driver")[0].1;
    assert!(driver.starts_with("driver 570.86.15, 8 GPUs"), "{driver}");
    let owner = checks(&answer, "gpu.owner")[0].1;
    assert!(owner.starts_with("this process would report GPU 0, 1, 3"), "{owner}");
    let mut missing: Vec<&str> =
        checks(&answer, "capture.missing").into_iter().map(|(_, text)| text).collect();
    missing.sort_unstable();
    let wanted = ["4 of the 8 GPUs of a node were given", "GPU 1 of ", "GPU 2 of "];
    for wanted in wanted {
        assert!(missing.iter().any(|text| text.starts_with(wanted)), "{wanted}: {missing:#?}");
    }
    let power = missing.iter().find(|text| text.starts_with("GPU 1 of")).unwrap();
    assert!(power.contains("`system/gpu/power_watts`") || power.contains("metrics"), "{power}");
    assert_eq!(answer["capture"]["report"]["devices"].as_array().unwrap().len(), 8);
    assert_eq!(answer["capture"]["missing"].as_array().unwrap().len(), missing.len());
    // A rank owns one of them, and leaves the rest.
    let (_, answer) = doctor(&eight(), &[("LOCAL_RANK", "3"), ("RANK", "3"), ("WORLD_SIZE", "8")]);
    let owner = checks(&answer, "gpu.owner")[0].1;
    assert!(
        owner.starts_with("this process would report GPU 3, and 0, 1, 4, 5, 6, 7 where no other"),
        "{owner}"
    );
}

#[test]
fn a_driver_that_should_work_and_does_not_is_a_finding() {
    let (code, answer) = doctor("[errors]\nnvmlInit_v2 = \"no_permission\"", &[]);
    assert_eq!((code, &answer["ok"]), (1, &false.into()), "{answer}");
    let (status, evidence) = checks(&answer, "capture.missing")[0];
    assert_eq!(status, "fail");
    assert!(evidence.contains("this user may not open the device files"), "{evidence}");
    assert_eq!(answer["capture"]["missing"][0]["reason"], "not_permitted");
    // A machine without a driver is well.
    let home = tempfile::tempdir().unwrap();
    let (code, answer) = ask(home.path(), &[]);
    assert_eq!((code, &answer["capture"]["missing"][0]["reason"]), (0, &"no_library".into()), "{answer}");
    // Switched off is no fault either, and says by what.
    let (code, answer) = ask(home.path(), &[("TRUEGAUGE_CAPTURE_SYSTEM_METRICS", "false")]);
    assert_eq!(code, 0, "{answer}");
    assert_eq!(checks(&answer, "capture"), [("warn", "a run here would capture nothing")]);
    assert!(checks(&answer, "capture.missing")[0].1.contains("TRUEGAUGE_CAPTURE_SYSTEM_METRICS"));
}
