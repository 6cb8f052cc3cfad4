//! What lies in `deploy/`: read by those who read it, as far as they are on this machine.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::process::run;

fn deploy(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy").join(name)
}

fn text(name: &str) -> String {
    std::fs::read_to_string(deploy(name)).unwrap()
}

/// Flags and variables that the agent knows.
fn help() -> String {
    let home = tempfile::tempdir().unwrap();
    let (code, help, _) = run(home.path(), &["agent", "--help"]);
    assert_eq!(code, 0);
    help
}

fn flags(of: &str) -> BTreeSet<String> {
    let words = of.split(|c: char| !(c.is_ascii_alphanumeric() || "-_".contains(c)));
    words
        .filter(|word| {
            word.strip_prefix("--").is_some_and(|flag| !flag.is_empty() && !flag.starts_with('-'))
                || word.starts_with("TRUEGAUGE_")
        })
        .map(str::to_owned)
        .collect()
}

#[test]
fn every_flag_and_variable_of_the_files_is_the_agents() {
    let known = flags(&help());
    for file in ["truegauge-agent.service", "daemonset.yaml"] {
        let text = text(file);
        let told: Vec<&str> = text.lines().filter(|line| !line.trim_start().starts_with('#')).collect();
        for flag in flags(&told.join("\n")) {
            assert!(known.contains(&flag), "{file}: the agent has no {flag}");
        }
    }
}

#[test]
fn systemd_accepts_the_unit() {
    let unit = text("truegauge-agent.service");
    for line in ["DynamicUser=yes", "AmbientCapabilities=CAP_SYSLOG", "CapabilityBoundingSet=CAP_SYSLOG"] {
        assert!(unit.lines().any(|found| found == line), "{line}");
    }
    // It wants the program where it will be installed; here it is elsewhere.
    let home = tempfile::tempdir().unwrap();
    let copy = home.path().join("truegauge-agent.service");
    let program = env!("CARGO_BIN_EXE_truegauge");
    std::fs::write(&copy, unit.replace("/usr/bin/truegauge", program)).unwrap();
    let Ok(output) = Command::new("systemd-analyze").arg("verify").arg(&copy).output() else {
        assert!(unit.contains("[Service]") && unit.contains("[Install]"));
        return;
    };
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && !said.contains("truegauge-agent"), "{said}");
}

#[test]
fn the_daemon_set_has_what_the_agent_needs() {
    let documents: Vec<serde_json::Value> =
        serde_saphyr::from_multiple(&text("daemonset.yaml")).expect("YAML");
    let kinds: Vec<_> = documents.iter().map(|document| document["kind"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["Namespace", "Secret", "DaemonSet"]);
    let spec = &documents[2]["spec"];
    assert_eq!(spec["selector"]["matchLabels"], spec["template"]["metadata"]["labels"]);
    let pod = &spec["template"]["spec"];
    assert_eq!((&pod["hostPID"], &pod["hostNetwork"]), (&true.into(), &true.into()));
    let container = &pod["containers"][0];
    let mounts = container["volumeMounts"].as_array().unwrap();
    let volumes = pod["volumes"].as_array().unwrap();
    let path = |mount: &str| {
        let mount = mounts.iter().find(|found| found["mountPath"] == mount).unwrap();
        let volume = volumes.iter().find(|volume| volume["name"] == mount["name"]).unwrap();
        (volume["hostPath"]["path"].as_str().unwrap().to_owned(), mount["readOnly"] == true)
    };
    assert_eq!(path("/host"), ("/".to_owned(), true));
    assert_eq!(path("/dev/kmsg"), ("/dev/kmsg".to_owned(), true));
    assert!(!path("/var/lib/truegauge-agent").1);
    let arguments = container["args"].as_array().unwrap();
    assert!(arguments.iter().any(|argument| argument == "--root=/host"), "{arguments:?}");
    assert!(arguments.iter().any(|argument| argument == "--state-dir=/var/lib/truegauge-agent"));
    assert_eq!(container["livenessProbe"]["httpGet"]["path"], "/healthz");
}

#[test]
fn the_container_file_starts_the_agent() {
    let lines = text("Containerfile");
    let of = |word: &str| lines.lines().filter(|line| line.starts_with(word)).collect::<Vec<_>>();
    assert_eq!(of("ENTRYPOINT"), ["ENTRYPOINT [\"/usr/bin/truegauge\"]"]);
    assert_eq!(of("CMD"), ["CMD [\"agent\"]"]);
    assert_eq!(of("COPY").len(), 1);
}

#[test]
fn counters_are_fields_that_the_vocabulary_knows_each_once() {
    let vocabulary = Path::new(env!("CARGO_MANIFEST_DIR")).join("../semconv/vocabularies/dcgm.toml");
    let vocabulary = std::fs::read_to_string(vocabulary).unwrap();
    let mut seen = BTreeSet::new();
    let file = text("dcgm-counters.csv");
    for line in file.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let cells: Vec<&str> = line.splitn(3, ',').map(str::trim).collect();
        let [name, kind, help] = cells[..] else { panic!("three columns are wanted: {line}") };
        assert!(["gauge", "counter", "label"].contains(&kind), "{line}");
        assert!(!help.is_empty() && !help.contains(','), "{line}");
        assert!(seen.insert(name), "{name} twice");
        assert!(vocabulary.contains(&format!("\"{name}\"")), "the vocabulary has no {name}");
    }
    // What the honest signals of a card need and the exporter leaves out by itself.
    for name in ["THERMAL_VIOLATION", "ENFORCED_POWER_LIMIT", "ROW_REMAP_PENDING", "ECC_DBE_VOL_TOTAL"] {
        assert!(seen.contains(&*format!("DCGM_FI_DEV_{name}")), "{name}");
    }
}
