//! GPUs and drivers that are missing, refuse, lie, block and disappear.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use collect::gpu::{GpuAbsence, GpuOptions, GpuSampler};

use crate::gpu_machine::{GpuMachine, GpuTick, WHOLE, gpu_tick, gpus, until};

const TEMPERATURE: &str = "system/gpu/temperature_celsius";
const POWER: &str = "system/gpu/power_watts";

fn absence(library: &Path) -> GpuAbsence {
    let options = GpuOptions { library: Some(library.to_owned()), ..GpuOptions::default() };
    GpuSampler::open(&options).err().expect("nothing to open")
}

fn has(tick: &GpuTick, gpu: u32, name: &str) -> bool {
    tick.get(&gpu).is_some_and(|values| values.contains_key(name))
}

#[test]
fn a_library_that_is_not_there_is_named_with_a_way_out() {
    let missing = PathBuf::from("/nowhere/libnvidia-ml.so.1");
    let found = absence(&missing);
    assert_eq!(found, GpuAbsence::NoLibrary { tried: vec![missing] });
    assert!(found.to_string().contains("`/nowhere/libnvidia-ml.so.1`"), "{found}");
    assert!(found.hint().contains("--gpus all"));
    assert_eq!(found.reason(), "no_library");
}

#[test]
fn a_file_that_is_no_library_is_not_loadable() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("libnvidia-ml.so.1");
    std::fs::write(&file, "not a library").unwrap();
    let found = absence(&file);
    let GpuAbsence::NotLoadable { library, cause } = &found else { panic!("{found}") };
    assert!(*library == file && cause.contains("libnvidia-ml.so.1"), "the loader's own words: {cause}");
}

#[test]
fn a_pipe_in_the_place_of_the_library_is_not_waited_for() {
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("libnvidia-ml.so.1");
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, rustix::fs::Mode::RUSR, 0)
        .unwrap();
    let found = absence(&pipe);
    let GpuAbsence::NotLoadable { library, cause } = &found else { panic!("{found}") };
    assert!(*library == pipe && cause.contains("no file"), "{cause}");
}

#[test]
fn a_driver_that_counts_nonsense_costs_a_bounded_number_of_threads() {
    let machine = GpuMachine::new(&gpus(&["mig = true"; 300]));
    let sampler = machine.open();
    assert_eq!(sampler.devices().len(), 256);
    assert!(machine.calls("nvmlDeviceGetHandleByIndex_v2", 255) > 0);
    assert_eq!(machine.calls("nvmlDeviceGetHandleByIndex_v2", 256), 0);
}

#[test]
fn another_library_of_that_name_lacks_the_functions() {
    let found = absence(Path::new("libm.so.6"));
    let GpuAbsence::LacksFunctions { missing, .. } = &found else { panic!("{found}") };
    assert!(missing.contains(&"nvmlInit_v2"), "{found}");
}

#[test]
fn a_driver_that_does_not_start_says_why() {
    for (answer, wanted) in [
        ("driver_not_loaded", GpuAbsence::DriverNotLoaded),
        ("version_mismatch", GpuAbsence::VersionMismatch),
        ("no_permission", GpuAbsence::NotPermitted),
        ("odd", GpuAbsence::Refused { call: "nvmlInit_v2", cause: "unknown error (NVML 999)".into() }),
    ] {
        let machine = GpuMachine::new(&format!("errors = {{ nvmlInit_v2 = \"{answer}\" }}"));
        let found = GpuSampler::open(&machine.options()).err().expect("it does not start");
        let word = if answer == "odd" { "refused" } else { wanted.reason() };
        assert_eq!(found.reason(), word);
        assert_eq!(found, wanted);
    }
}

#[test]
fn a_driver_that_blocks_at_its_start_is_given_up() {
    let machine = GpuMachine::new("blocked = [\"nvmlInit_v2\"]");
    let waited = Duration::from_millis(20);
    let found = GpuSampler::open(&GpuOptions { start_deadline: waited, ..machine.options() }).err();
    assert_eq!(found, Some(GpuAbsence::NoAnswer { waited }));
    machine.play("");
}

#[test]
fn a_driver_without_devices_is_no_error() {
    let machine = GpuMachine::new("driver_version = \"570\"");
    let mut sampler = machine.open();
    assert!(sampler.devices().is_empty());
    assert!(gpu_tick(&mut sampler, &[0]).is_empty());
}

#[test]
fn what_is_not_supported_is_asked_once() {
    let machine = GpuMachine::new(&gpus(&["values = { temperature = 30 }", WHOLE]));
    let mut sampler = machine.open();
    for _ in 0..20 {
        let tick = gpu_tick(&mut sampler, &[0, 1]);
        assert!(!has(&tick, 0, POWER) && has(&tick, 0, TEMPERATURE) && has(&tick, 1, POWER));
    }
    assert_eq!(machine.calls("nvmlDeviceGetPowerUsage", 0), 1);
    assert_eq!(machine.calls("nvmlDeviceGetPowerUsage", 1), 20);
    assert!(sampler.unsupported(0).iter().any(|metric| metric.name == POWER));
    assert!(!sampler.unsupported(0).iter().any(|metric| metric.name == TEMPERATURE));
    assert_eq!(sampler.take_failures(), [], "absent is no failure");
}

#[test]
fn five_failures_in_a_row_then_back_off() {
    let lost = "values = { temperature = 30, power_mw = 1000 }
errors = { nvmlDeviceGetTemperature = \"gpu_is_lost\" }";
    let machine = GpuMachine::new(&gpus(&[lost]));
    let mut sampler = machine.open();
    for _ in 0..100 {
        let tick = gpu_tick(&mut sampler, &[0]);
        assert!(has(&tick, 0, POWER) && !has(&tick, 0, TEMPERATURE));
    }
    let calls = machine.calls("nvmlDeviceGetTemperature", 0);
    assert!((6..=5 + 100 / 10).contains(&calls), "{calls}");
    let failures = sampler.take_failures();
    assert_eq!(
        failures.iter().map(|failure| failure.dropped).collect::<Vec<_>>(),
        [false, false, false, false, true]
    );
    assert_eq!(
        failures[0].cause,
        "cannot read `nvmlDeviceGetTemperature` of GPU 0: answered GPU is lost (NVML 15)"
    );
    assert_eq!((failures[0].gpu, failures[0].metric.name), (0, TEMPERATURE));
}

#[test]
fn one_success_in_five_keeps_a_value_alive() {
    let words: Vec<&str> = (0..20).flat_map(|_| ["\"timeout\""; 4].into_iter().chain(["0"])).collect();
    let flaky = format!(
        "values = {{ sm_mhz = 1965, temperature = 30 }}
errors = {{ nvmlDeviceGetTemperature = [{}] }}",
        words.join(", ")
    );
    let machine = GpuMachine::new(&gpus(&[&flaky]));
    let mut sampler = machine.open();
    let points = (0..100).filter(|_| has(&gpu_tick(&mut sampler, &[0]), 0, TEMPERATURE)).count();
    assert_eq!(points, 20);
    assert!(sampler.take_failures().iter().all(|failure| !failure.dropped));
}

#[test]
fn numbers_that_are_no_measurements_are_never_points() {
    let garbage = "[gpu.values]
utilization = 4294967295
temperature = -1
power_mw = -1
energy_mj = -1
sm_mhz = -1
memory_total = 100
memory_used = 200
field_74 = -1
field_75 = 5000000000
ecc_corrected_volatile = -1
rows_corrected = 1
rows_uncorrected = -1
";
    let machine = GpuMachine::new(&gpus(&[garbage]));
    let mut sampler = machine.open();
    let tick = gpu_tick(&mut sampler, &[0]);
    let names: Vec<&String> = tick[&0].keys().collect();
    assert_eq!(names, ["system/gpu/throttled_seconds_total{reason=thermal}"]);
    let failures = sampler.take_failures();
    assert_eq!(failures.len(), 8, "{failures:?}");
    assert!(failures.iter().all(|failure| failure.cause.contains("found ")), "{failures:?}");
}

#[test]
fn a_card_without_memory_has_no_share_of_it() {
    let machine = GpuMachine::new(&gpus(&["values = { memory_total = 0, memory_used = 0 }"]));
    let tick = gpu_tick(&mut machine.open(), &[0]);
    assert!(has(&tick, 0, "system/gpu/memory_used_bytes"));
    assert!(!has(&tick, 0, "system/gpu/memory_utilization"));
}

#[test]
fn a_device_that_blocks_costs_its_own_series_and_comes_back() {
    let sick = "blocked = [\"nvmlDeviceGetPowerUsage\"]
values = { temperature = 30, power_mw = 1000, sm_mhz = 1 }";
    let well = "values = { temperature = 30, power_mw = 1000, sm_mhz = 1 }";
    let machine = GpuMachine::new(&gpus(&[well, sick, well]));
    let mut sampler = machine.open_impatient(Duration::from_secs(1));
    let tick = gpu_tick(&mut sampler, &[0, 1, 2]);
    assert!(has(&tick, 0, POWER) && has(&tick, 2, POWER));
    assert!(has(&tick, 1, TEMPERATURE), "what it told before it blocked counts");
    assert!(!has(&tick, 1, POWER) && !has(&tick, 1, "system/gpu/sm_clock_mhz"));
    let failures = sampler.take_failures();
    assert_eq!(failures.len(), 1, "{failures:?}");
    assert_eq!((failures[0].gpu, failures[0].metric.name), (1, POWER));
    assert!(failures[0].cause.contains("`nvmlDeviceGetPowerUsage` of GPU 1: no answer in 1 s"));

    for _ in 0..3 {
        let tick = gpu_tick(&mut sampler, &[0, 1, 2]);
        assert!(has(&tick, 0, POWER) && has(&tick, 2, POWER) && !tick.contains_key(&1));
    }
    assert_eq!(sampler.take_failures(), [], "said once");
    assert_eq!(machine.calls("nvmlDeviceGetPowerUsage", 1), 1, "and not asked again meanwhile");

    machine.play(&gpus(&[well, well, well]));
    let back = until(|| {
        let tick = gpu_tick(&mut sampler, &[1, 2]);
        has(&tick, 1, POWER) && has(&tick, 1, "system/gpu/sm_clock_mhz")
    });
    assert!(back, "its driver answers again");
}

#[test]
fn a_device_that_falls_off_the_bus_leaves_the_others_alone() {
    let machine = GpuMachine::new(&gpus(&[WHOLE, WHOLE]));
    let mut sampler = machine.open();
    assert_eq!(gpu_tick(&mut sampler, &[0, 1]).len(), 2);
    machine.play(&gpus(&[&format!("gone = true\n{WHOLE}"), WHOLE]));
    let tick = gpu_tick(&mut sampler, &[0, 1]);
    assert!(!tick.contains_key(&0) && tick[&1].len() > 20);
    let failures = sampler.take_failures();
    let [failure] = &failures[..] else { panic!("one word for the whole device: {failures:?}") };
    assert_eq!((failure.gpu, failure.reason, failure.dropped), (0, "gpu_lost", false));
    assert_eq!(failure.cause, "cannot read GPU 0: every call answered GPU is lost (NVML 15)");
    machine.play(&gpus(&[WHOLE, WHOLE]));
    assert_eq!(gpu_tick(&mut sampler, &[0, 1]).len(), 2, "and is back with the next tick");
}

#[test]
fn a_device_that_cannot_be_named_leaves_a_gap() {
    let nameless = "errors = { nvmlDeviceGetUUID = \"unknown\" }\nvalues = { temperature = 30 }";
    let machine = GpuMachine::new(&gpus(&[WHOLE, nameless, WHOLE]));
    let mut sampler = machine.open();
    assert_eq!(sampler.devices().iter().map(|device| device.index).collect::<Vec<_>>(), [0, 2]);
    let [(1, cause)] = sampler.unreadable() else { panic!("{:?}", sampler.unreadable()) };
    assert!(cause.contains("cannot identify GPU 1: `nvmlDeviceGetUUID`"), "{cause}");
    assert_eq!(gpu_tick(&mut sampler, &[0, 1, 2]).into_keys().collect::<Vec<_>>(), [0, 2]);
}

#[test]
fn a_device_that_blocks_while_it_is_named_leaves_a_gap() {
    let stuck = "blocked = [\"nvmlDeviceGetName\"]";
    let machine = GpuMachine::new(&gpus(&[WHOLE, stuck]));
    let options = GpuOptions { start_deadline: Duration::from_millis(1500), ..machine.options() };
    let mut sampler = GpuSampler::open(&options).unwrap();
    assert_eq!(sampler.devices().len(), 1);
    assert!(sampler.unreadable()[0].1.contains("no answer in 1.5 s"));
    let generation = sampler.generation();
    machine.play(&gpus(&[WHOLE, WHOLE]));
    assert!(until(|| gpu_tick(&mut sampler, &[0, 1]).len() == 2), "which it fills when it answers");
    assert!(sampler.unreadable().is_empty() && sampler.generation() > generation);
}

#[test]
fn the_driver_is_shut_down_when_the_last_thread_is_done() {
    let machine = GpuMachine::new(&gpus(&[WHOLE]));
    drop(machine.open());
    assert!(until(|| machine.system_calls("nvmlShutdown") == 1));
    assert_eq!(machine.open().devices().len(), 1, "and can be started again");
}
