//! `truegauge top`: one look for people and for programs, and the live view on a terminal.

use std::path::Path;
use std::process::{Command, Stdio};

use rustix::process::{Signal, kill_process};
use serde_json::Value;

use crate::process::{Server, eventually, truegauge};
use crate::terminal::Terminal;

/// Two GPUs that work, one that is partitioned; the process `pid` has memory of the first two.
fn scenario(pid: u32) -> String {
    let gpu = |index: u32, mig: bool| {
        let used = format!("processes = [{{ pid = {pid}, memory = 1073741824 }}]");
        let processes = if mig { "" } else { &used };
        format!(
            "[[gpu]]\nuuid = \"GPU-{index:08}\"\nname = \"Fake H100\"\nbus_id = \"00000000:{:02X}:00.0\"\nmig = {mig}\n\
             {processes}\n\
             values = {{ utilization = 100, utilization_memory = 1, memory_total = 85899345920, memory_used = 42949672960, \
             memory_free = 42949672960, memory_reserved = 0, temperature = 61, power_mw = 350000, limit_mw = 700000, \
             sm_mhz = 1200, sm_max_mhz = 1980, throttle_mask = 64, gpm_2 = 41000, gpm_5 = 12000, gpm_10 = 33000 }}\n",
            0x1b + index
        )
    };
    format!("driver_version = \"570.86.15\"\n{}{}{}", gpu(0, false), gpu(1, false), gpu(2, true))
}

/// `truegauge top` on a machine whose driver plays a scenario, or that has none.
fn top(home: &Path, args: &[&str]) -> Command {
    let mut command = truegauge(home);
    command.arg("top").args(args).env("LD_LIBRARY_PATH", home).env("NO_COLOR", "1").stdin(Stdio::null());
    command
}

fn json(command: &mut Command) -> Value {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn one_look_gives_programs_base_units_and_ratios() {
    let home = tempfile::tempdir().unwrap();
    fake_nvml::install(home.path(), &scenario(std::process::id())).unwrap();
    let look = json(&mut top(home.path(), &["--json", "--sort", "gpu"]));
    let gpus = look["gpus"].as_array().unwrap();
    assert_eq!(gpus.len(), 3);
    let first = &gpus[0];
    assert_eq!((first["gpu"].as_u64(), first["uuid"].as_str()), (Some(0), Some("GPU-00000000")));
    assert_eq!((first["busy_ratio"].as_f64(), first["power_limit_ratio"].as_f64()), (Some(1.0), Some(0.5)));
    assert_eq!(
        (first["power_watts"].as_f64(), first["temperature_celsius"].as_f64()),
        (Some(350.0), Some(61.0))
    );
    assert_eq!(
        (first["sm_clock_hertz"].as_f64(), first["sm_clock_max_hertz"].as_f64()),
        (Some(1.2e9), Some(1.98e9))
    );
    assert_eq!(first["memory_used_bytes"].as_f64(), Some(42_949_672_960.0));
    assert_eq!(first["held_back_by"], serde_json::json!(["hw_thermal"]));
    assert!(first["busy_caveat"].as_str().is_some_and(|caveat| !caveat.is_empty()));
    assert_eq!((gpus[2]["mig"].as_bool(), gpus[2]["power_watts"].is_null()), (Some(true), true));
    let used = &look["processes"][0];
    assert_eq!(used["pid"].as_u64(), Some(u64::from(std::process::id())), "{used}");
    assert_eq!(
        (used["gpus"].to_string(), used["gpu_memory_bytes"].as_u64()),
        ("[0,1]".into(), Some(2 << 30))
    );
    assert!(look["cpu"]["busy_ratio"].as_f64().is_some_and(|ratio| (0.0..2.0).contains(&ratio)), "{look}");
    assert!(
        look["memory"]["ceiling_bytes"].as_f64().unwrap() > look["memory"]["used_bytes"].as_f64().unwrap()
    );
    assert_eq!(
        (look["driver"]["version"].as_str(), look["gpu_absence"].is_null()),
        (Some("570.86.15"), true)
    );
}

#[test]
fn profiling_counters_stand_beside_what_the_driver_calls_utilization() {
    let home = tempfile::tempdir().unwrap();
    fake_nvml::install(home.path(), &scenario(1)).unwrap();
    let look = json(&mut top(home.path(), &["--json"]));
    let first = &look["gpus"][0];
    let ratios =
        ["sm_active_ratio", "tensor_active_ratio", "dram_active_ratio"].map(|name| first[name].as_f64());
    assert_eq!(ratios, [Some(0.41), Some(0.12), Some(0.33)], "{first}");
}

#[test]
fn one_look_gives_people_a_table() {
    let home = tempfile::tempdir().unwrap();
    fake_nvml::install(home.path(), &scenario(1)).unwrap();
    let output = top(home.path(), &["--once"]).output().unwrap();
    let page = String::from_utf8(output.stdout).unwrap();
    for wanted in [
        "350/700",
        "1200/1980",
        "40.0/80.0",
        "hw_thermal",
        "partitioned (MIG), not sampled",
        "PID",
        "COMMAND",
    ] {
        assert!(page.contains(wanted), "{wanted}\n{page}");
    }
    assert!(page.contains("memory") && page.contains("limit"), "{page}");
}

#[test]
fn without_a_driver_it_says_why_there_are_no_gpus() {
    let home = tempfile::tempdir().unwrap();
    std::fs::write(home.path().join("libnvidia-ml.so.1"), "no library").unwrap();
    let look = json(&mut top(home.path(), &["--json"]));
    assert_eq!(look["gpu_absence"]["reason"], "not_loadable");
    assert_eq!((look["gpus"].as_array().map(Vec::len), look["driver"].is_null()), (Some(0), true));
    let output = top(home.path(), &["--once"]).output().unwrap();
    let page = String::from_utf8(output.stdout).unwrap();
    assert!(page.contains("GPUs: cannot load NVIDIA's driver library") && page.contains("hint: "), "{page}");
}

#[test]
fn a_process_is_shown_with_its_run_and_without_its_secrets() {
    let server = Server::start(&[]);
    let mut wrapper = truegauge(&server.home);
    wrapper.args([
        "run",
        "--project",
        "p",
        "--run",
        "shown",
        "--",
        "sh",
        "-c",
        "exec sleep 60",
        "--token=geheim",
    ]);
    let mut wrapper = wrapper
        .env("TRUEGAUGE_URL", &server.url)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let parent = u64::from(wrapper.id());
    let process = |look: &Value, key: &str| {
        look["processes"]
            .as_array()
            .unwrap()
            .iter()
            .find(|process| process[key].as_u64() == Some(parent))
            .cloned()
    };
    // A sleeping process is far down in the order of CPU.
    let found = eventually("the wrapper and its command are seen with their run", || {
        let look = json(&mut top(&server.home, &["--json", "--sort", "memory", "--interval", "0.2"]));
        let both = (process(&look, "pid")?, process(&look, "parent"));
        both.0["run"]["run_id"].is_string().then_some(both)
    });
    let _ = wrapper.kill();
    wrapper.wait().unwrap();
    assert_eq!(found.0["run"]["run"], "shown", "{found:?}");
    assert_eq!(found.0["run"]["run_id"].as_str(), Some(crate::process::id("shown").as_str()));
    assert!(found.0["command"].as_str().unwrap().contains("--token=***"), "{found:?}");
}

#[test]
fn on_a_terminal_it_draws_takes_keys_and_leaves_the_terminal_as_it_was() {
    let home = tempfile::tempdir().unwrap();
    fake_nvml::install(home.path(), &scenario(1)).unwrap();
    let mut terminal = Terminal::start(&top(home.path(), &["--interval", "0.2"]), 80, 24);
    let before = terminal.settings_before().clone();
    terminal.wait_for("truegauge");
    terminal.wait_for("pause");
    // The driver is asked meanwhile, and may answer later.
    terminal.wait_for("350/700");
    assert_ne!(terminal.settings().local_modes, before.local_modes, "keys come one by one");
    terminal.write(b"?");
    terminal.wait_for("┌");
    // Another size is cleared and drawn anew, whole. Keys that came at the same moment would be seen with
    // the next key only.
    terminal.resize(100, 30);
    terminal.wait_for("\u{1b}[2J");
    terminal.wait_for("multiprocessors");
    terminal.write(b"?m ");
    terminal.wait_for("paused");
    // In a pause too.
    terminal.resize(200, 60);
    terminal.wait_for("350/700");
    terminal.write(b" q");
    assert_eq!(terminal.end(), 0);
    assert_eq!(terminal.settings().local_modes, before.local_modes);
    // Out of the second screen, the cursor shown.
    terminal.wait_for("\u{1b}[?1049l");
    terminal.wait_for("\u{1b}[?25h");
}

#[test]
fn a_signal_ends_it_and_gives_the_terminal_back() {
    let home = tempfile::tempdir().unwrap();
    let mut terminal = Terminal::start(&top(home.path(), &[]), 40, 10);
    let before = terminal.settings_before().local_modes;
    terminal.wait_for("truegauge");
    kill_process(terminal.pid(), Signal::TERM).unwrap();
    assert_eq!(terminal.end(), 0);
    assert_eq!(terminal.settings().local_modes, before);
    terminal.wait_for("\u{1b}[?1049l");
}

#[test]
fn it_ends_with_its_terminal() {
    let home = tempfile::tempdir().unwrap();
    let mut terminal = Terminal::start(&top(home.path(), &[]), 40, 10);
    terminal.wait_for("truegauge");
    terminal.hang_up();
    assert_eq!(terminal.end(), 0);
}

#[test]
fn a_terminal_that_cannot_be_drawn_on_is_told_so() {
    let home = tempfile::tempdir().unwrap();
    let mut dumb = Terminal::start(top(home.path(), &[]).env("TERM", "dumb"), 80, 24);
    dumb.wait_for("`TERM` is `dumb`");
    assert_eq!(dumb.end(), 2);
    let mut endless = Terminal::start(&top(home.path(), &[]), u16::MAX, u16::MAX);
    endless.wait_for("65535 columns");
    assert_eq!(endless.end(), 2);
    let mut grows = Terminal::start(&top(home.path(), &[]), 80, 24);
    grows.wait_for("truegauge");
    grows.resize(u16::MAX, u16::MAX);
    grows.wait_for("65535 columns");
    assert_eq!(grows.end(), 2);
}

#[test]
fn without_a_terminal_it_says_what_to_do_instead() {
    let home = tempfile::tempdir().unwrap();
    let output = top(home.path(), &[]).output().unwrap();
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2));
    assert!(told.contains("this is no terminal") && told.contains("--once"), "{told}");
}
