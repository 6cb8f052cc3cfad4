//! Profiling, NVLinks, throttle reasons and processes, as drivers and devices of several ages have them.

use std::time::Duration;

use collect::gpu::{GpuOptions, GpuProcess, GpuSampler};

use crate::{
    gpu_machine::{GpuMachine, GpuTick, WHOLE, gpu_tick, gpu_tick_with, gpus, until},
    machine::assert_near,
};

const SM_ACTIVE: &str = "system/gpu/sm_active_ratio";
const TENSOR_ACTIVE: &str = "system/gpu/tensor_active_ratio";
const RECEIVE: &str = "system/gpu/pcie_receive_bytes_per_second";

fn value(tick: &GpuTick, name: &str) -> Option<f64> {
    tick.get(&0)?.get(name).copied()
}

fn lacks(sampler: &GpuSampler, name: &str) -> bool {
    sampler.unsupported(0).iter().any(|metric| metric.name == name)
}

#[test]
fn reasons_whose_numbers_moved_are_asked_by_the_version_of_the_driver() {
    let device = "[gpu.values]
field_74 = 1000000000
field_251 = 2000000000
field_252 = 3000000000
field_253 = 4000000000
field_269 = 5000000000
field_270 = 6000000000
field_271 = 7000000000
";
    let none = [None; 3];
    let (first, second) = ([Some(2.0), Some(3.0), Some(4.0)], [Some(5.0), Some(6.0), Some(7.0)]);
    for (version, wanted) in [
        ("535.161.07", none),
        ("570.172.08", none),
        ("575.51.03", first),
        ("575.64", first),
        ("580.65.06", first),
        ("580.76.05", none),
        ("580.82.07", second),
        ("595.45", second),
        ("1000", none),
        ("580.x", none),
    ] {
        let scenario = gpus(&[device]).replace("580.95.05", version);
        let machine = GpuMachine::new(&scenario);
        let tick = gpu_tick(&mut machine.open(), &[0]);
        let of =
            |reason: &str| value(&tick, &format!("system/gpu/throttled_seconds_total{{reason={reason}}}"));
        assert_eq!(["sw_thermal", "hw_thermal", "hw_power_brake"].map(of), wanted, "{version}");
        assert_eq!(of("sw_power"), Some(1.0), "{version}");
    }
}

#[test]
fn a_driver_that_does_not_know_a_field_is_asked_for_the_others() {
    let device = "[gpu.values]\nfield_74 = 5000000000\nfield_75 = \"invalid_argument\"\nfield_82 = 70\n";
    let machine = GpuMachine::new(&gpus(&[device]));
    let mut sampler = machine.open();
    for _ in 0..3 {
        let tick = gpu_tick(&mut sampler, &[0]);
        assert_eq!(value(&tick, "system/gpu/throttled_seconds_total{reason=sw_power}"), Some(5.0));
        assert_eq!(value(&tick, "system/gpu/memory_temperature_celsius"), Some(70.0));
    }
    assert_eq!(sampler.take_failures(), []);
    assert!(
        lacks(&sampler, "system/gpu/recovery_action") && lacks(&sampler, "system/gpu/nvlink_bytes_total")
    );
}

#[test]
fn fields_are_asked_in_one_call_and_what_never_changes_once() {
    let machine = GpuMachine::new(&gpus(&[WHOLE]));
    let mut sampler = machine.open();
    (0..10).for_each(|_| drop(gpu_tick(&mut sampler, &[0])));
    assert_eq!(machine.calls("nvmlDeviceGetFieldValues", 0), 10);
    assert_eq!(machine.calls("nvmlDeviceGetMaxPcieLinkWidth", 0), 1);
}

#[test]
fn profiling_spans_the_time_between_two_ticks() {
    let device = "values = { gpm_2 = { start = 0, per_second = 25000.0 }, gpm_5 = 10000 }";
    let machine = GpuMachine::new(&gpus(&[device]));
    let mut sampler = machine.open();
    assert_eq!(value(&gpu_tick(&mut sampler, &[0]), SM_ACTIVE), None, "nothing to compare with yet");
    for _ in 0..3 {
        let tick = gpu_tick_with(&mut sampler, &[0], |tick| value(tick, SM_ACTIVE).is_some());
        let ratio = value(&tick, SM_ACTIVE).unwrap();
        assert!((ratio - 0.25).abs() < 1e-3, "counted by the same clock as the interval: {ratio}");
        assert_near(value(&tick, TENSOR_ACTIVE), 0.1);
    }
    assert_eq!(machine.calls("nvmlGpmSampleGet", 0), 4, "one sample a tick, each used twice");
    assert_eq!(machine.calls("nvmlGpmMetricsGet", 0), 3);
    assert_eq!(machine.system_calls("nvmlGpmSampleAlloc"), 2);
    drop(sampler);
    assert!(until(|| machine.system_calls("nvmlGpmSampleFree") == 2), "what was allocated is freed");
}

#[test]
fn profiling_tells_pcie_too_and_spares_the_driver_its_measurement() {
    let device = "[gpu.values]
gpm_2 = 0
gpm_20 = 3000
gpm_21 = 5000
pcie_transmit_kb = 1
pcie_receive_kb = 1
";
    let machine = GpuMachine::new(&gpus(&[device]));
    let mut sampler = machine.open();
    assert_eq!(value(&gpu_tick(&mut sampler, &[0]), RECEIVE), Some(1000.0), "at first what 20 ms show");
    let tick = gpu_tick_with(&mut sampler, &[0], |tick| value(tick, SM_ACTIVE).is_some());
    assert_eq!(value(&tick, RECEIVE), Some(5.0 * 1_048_576.0));
    assert_eq!(value(&tick, "system/gpu/pcie_transmit_bytes_per_second"), Some(3.0 * 1_048_576.0));
}

#[test]
fn a_device_that_cannot_be_profiled_lacks_every_ratio() {
    let machine = GpuMachine::new(&gpus(&["values = { temperature = 30 }"]));
    let mut sampler = machine.open();
    gpu_tick(&mut sampler, &[0]);
    for part in ["sm_active", "sm_occupancy", "tensor_active", "dram_active", "fp64_active", "fp16_active"] {
        assert!(lacks(&sampler, &format!("system/gpu/{part}_ratio")), "{part}");
    }
    assert!(!lacks(&sampler, "system/gpu/temperature_celsius"));
    assert_eq!(sampler.take_failures(), []);
}

#[test]
fn profiling_that_is_kept_to_administrators_is_a_failure_with_that_reason() {
    let device = format!("{WHOLE}[gpu.errors]\nnvmlGpmSampleGet = \"no_permission\"\n");
    let machine = GpuMachine::new(&gpus(&[&device]));
    let mut sampler = machine.open();
    let tick = gpu_tick(&mut sampler, &[0]);
    assert_eq!(value(&tick, RECEIVE), Some(2.5e6), "the other way to know it");
    let failures = sampler.take_failures();
    let [failure] = &failures[..] else { panic!("{failures:?}") };
    assert_eq!((failure.reason, failure.metric.name), ("no_permission", SM_ACTIVE));
    assert!(failure.cause.contains("no permission (NVML 4)"), "{}", failure.cause);
    assert!(!lacks(&sampler, SM_ACTIVE), "it has it");
}

#[test]
fn one_senseless_profiling_number_costs_only_itself() {
    let device = "values = { gpm_2 = -1, gpm_3 = 250000, gpm_5 = 50000, gpm_10 = \"not_supported\" }";
    let machine = GpuMachine::new(&gpus(&[device]));
    let mut sampler = machine.open();
    gpu_tick(&mut sampler, &[0]);
    let tick = gpu_tick_with(&mut sampler, &[0], |tick| value(tick, TENSOR_ACTIVE).is_some());
    assert_eq!(value(&tick, TENSOR_ACTIVE), Some(0.5));
    assert_eq!((value(&tick, SM_ACTIVE), value(&tick, "system/gpu/sm_occupancy_ratio")), (None, None));
    assert!(lacks(&sampler, "system/gpu/dram_active_ratio") && !lacks(&sampler, TENSOR_ACTIVE));
    let failures = sampler.take_failures();
    assert!(failures.iter().all(|failure| failure.reason == "unreadable"), "{failures:?}");
    assert!(!failures.is_empty());
}

#[test]
fn links_are_visited_in_turn_and_their_errors_kept() {
    let errors = |link: usize| format!("system/gpu/nvlink_errors_total{{kind=recovery,link={link}}}");
    let device = |more: &str| format!("links = 18\n[gpu.values]\ntemperature = 30\n{more}\n");
    let machine = GpuMachine::new(&gpus(&[&device("nvlink_errors_2_1 = 7")]));
    let mut sampler = machine.open();
    let tick = gpu_tick(&mut sampler, &[0]);
    assert_eq!(value(&tick, &errors(2)), Some(7.0), "the first tick visits all");
    assert_eq!(value(&tick, &errors(3)), None, "no error, no series");
    assert_eq!(value(&tick, "system/gpu/nvlink_active_links"), Some(18.0));

    machine.play(&gpus(&[&device("nvlink_errors_2_1 = 9\nnvlink_errors_17_1 = 1\nnvlink_state_5 = 0")]));
    let before = machine.calls("nvmlDeviceGetNvLinkState", 0);
    let ticks: Vec<GpuTick> = (0..6).map(|_| gpu_tick(&mut sampler, &[0])).collect();
    assert_eq!(machine.calls("nvmlDeviceGetNvLinkState", 0) - before, 18, "six ticks visit each link once");
    assert!(ticks.iter().all(|tick| value(tick, &errors(2)).is_some()), "known ones are told every tick");
    let last = ticks.last().unwrap();
    assert_eq!((value(last, &errors(2)), value(last, &errors(17))), (Some(9.0), Some(1.0)));
    assert_eq!(value(last, "system/gpu/nvlink_active_links"), Some(17.0));
    assert_eq!(sampler.take_failures(), []);
}

#[test]
fn a_device_without_links_is_asked_once() {
    let machine = GpuMachine::new(&gpus(&["values = { temperature = 30 }"]));
    let mut sampler = machine.open();
    (0..5).for_each(|_| drop(gpu_tick(&mut sampler, &[0])));
    assert_eq!(machine.calls("nvmlDeviceGetNvLinkState", 0), 1);
    for name in ["nvlink_active_links", "nvlink_errors_total", "nvlink_bytes_total"] {
        assert!(lacks(&sampler, &format!("system/gpu/{name}")), "{name}");
    }
}

#[test]
fn links_of_newer_devices_count_by_fields() {
    let device = "compute_capability = [10, 0]
links = 2
[gpu.values]
field_202_0 = 1000
field_204_0 = 2000
field_202_1 = 30
field_204_1 = 40
field_206 = 0
field_208_0 = 0
field_208_1 = 6
field_214_1 = 2
";
    let machine = GpuMachine::new(&gpus(&[device]));
    let mut sampler = machine.open();
    let check = |tick: &GpuTick, sent: f64| {
        assert_eq!(value(tick, "system/gpu/nvlink_bytes_total{direction=transmit}"), Some(sent));
        assert_eq!(value(tick, "system/gpu/nvlink_bytes_total{direction=receive}"), Some(2040.0));
        assert_eq!(value(tick, "system/gpu/nvlink_errors_total{kind=receive,link=1}"), Some(6.0));
        assert_eq!(value(tick, "system/gpu/nvlink_errors_total{kind=recovery_failed,link=1}"), Some(2.0));
    };
    check(&gpu_tick(&mut sampler, &[0]), 1030.0);
    // A link that goes down has carried what it has carried.
    let down = device.replace("field_202_0 = 1000", "field_202_0 = 1500") + "nvlink_state_1 = 0\n";
    machine.play(&gpus(&[&down]));
    check(&gpu_tick(&mut sampler, &[0]), 1530.0);
    assert_eq!(machine.calls("nvmlDeviceGetNvLinkErrorCounter", 0), 0);
    assert_eq!(sampler.take_failures(), []);
}

#[test]
fn the_processes_of_a_device_are_listed_with_their_memory() {
    let machine = GpuMachine::new(&gpus(&[WHOLE]));
    let mut sampler = machine.open();
    let process =
        |pid, memory_bytes, computes| GpuProcess { pid, memory_bytes, computes, gpu_instance: None };
    let wanted =
        [process(4711, Some(21_474_836_480), true), process(4712, None, true), process(99, Some(1), false)];
    assert_eq!(sampler.processes(0).unwrap(), wanted);
    gpu_tick(&mut sampler, &[0]);
    assert_eq!(sampler.processes(0).unwrap(), wanted, "between ticks too");
    assert_eq!(
        sampler.processes(7),
        Err("cannot list the processes of GPU 7: the driver has no device of this index".into())
    );
}

#[test]
fn the_processes_of_a_partitioned_device_say_their_instance() {
    let mig = "mig = true
instances = [{ uuid = \"MIG-a\", gpu_instance = 1 }, { uuid = \"MIG-b\", gpu_instance = 2 }]
processes = [{ pid = 5, gpu_instance = 2 }, { pid = 6, gpu_instance = 1 }, { pid = 5, gpu_instance = 1 }]";
    let machine = GpuMachine::new(&gpus(&[mig]));
    let found = machine.open().processes(0).unwrap();
    let places: Vec<_> = found.iter().map(|process| (process.pid, process.gpu_instance)).collect();
    assert_eq!(places, [(5, Some(2)), (6, Some(1)), (5, Some(1))]);
}

#[test]
fn many_processes_and_none_are_listed_too() {
    let many: Vec<String> = (1..=300).map(|pid| format!("{{ pid = {pid}, memory = {pid} }}")).collect();
    let machine = GpuMachine::new(&gpus(&[&format!("processes = [{}]", many.join(", ")), ""]));
    let mut sampler = machine.open();
    let found = sampler.processes(0).unwrap();
    assert_eq!((found.len(), found[299].memory_bytes), (300, Some(300)));
    assert_eq!(sampler.processes(1), Ok(Vec::new()));
}

#[test]
fn processes_that_cannot_be_had_say_why() {
    let old = "errors = { nvmlDeviceGetComputeRunningProcesses_v3 = \"not_supported\" }";
    let stuck = "blocked = [\"nvmlDeviceGetComputeRunningProcesses_v3\"]\nvalues = { temperature = 30 }";
    let machine = GpuMachine::new(&gpus(&[old, stuck]));
    let mut sampler = machine.open_impatient(Duration::from_millis(50));
    let cause = sampler.processes(0).unwrap_err();
    assert!(
        cause.ends_with("`nvmlDeviceGetComputeRunningProcesses_v3` answered not supported (NVML 3)"),
        "{cause}"
    );
    assert_eq!(sampler.processes(1).unwrap_err(), "cannot list the processes of GPU 1: no answer in 0.05 s");
    assert_eq!(
        sampler.processes(1).unwrap_err(),
        "cannot list the processes of GPU 1: it has not answered an earlier question yet"
    );
    machine.play(&gpus(&["", "values = { temperature = 30 }"]));
    assert!(until(|| sampler.processes(1).is_ok()), "and is asked again when it answers");
    assert!(gpu_tick(&mut sampler, &[1]).contains_key(&1));
}

#[test]
fn a_newer_driver_tells_the_temperature_by_another_structure() {
    let machine =
        GpuMachine::without(&["nvmlDeviceGetTemperature"], &gpus(&["values = { temperature = 44 }"]));
    let mut sampler = machine.open();
    assert_eq!(value(&gpu_tick(&mut sampler, &[0]), "system/gpu/temperature_celsius"), Some(44.0));
    assert_eq!(machine.calls("nvmlDeviceGetTemperatureV", 0), 1);
}

#[test]
fn an_old_driver_without_the_newer_functions_gives_the_rest() {
    let missing = [
        "nvmlDeviceGetMemoryInfo_v2",
        "nvmlDeviceGetMarginTemperature",
        "nvmlDeviceGetFieldValues",
        "nvmlDeviceGetCurrentClocksEventReasons",
        "nvmlDeviceGetRemappedRows",
        "nvmlGpmQueryDeviceSupport",
        "nvmlDeviceGetArchitecture",
        "nvmlDeviceGetMigMode",
        "nvmlDeviceGetComputeRunningProcesses_v3",
    ];
    let machine = GpuMachine::without(&missing, &gpus(&[WHOLE]));
    let mut sampler = machine.open();
    let tick = gpu_tick(&mut sampler, &[0]);
    assert_eq!(value(&tick, "system/gpu/power_watts"), Some(350.5));
    assert_eq!(value(&tick, "system/gpu/memory_used_bytes"), Some(21_474_836_480.0 + 629_145_600.0));
    for name in ["throttled_seconds_total", "row_remap_pending", "sm_active_ratio", "recovery_action"] {
        assert!(lacks(&sampler, &format!("system/gpu/{name}")), "{name}");
    }
    assert_eq!(sampler.take_failures(), []);
    assert!(sampler.processes(0).unwrap_err().contains("function not found"));
}

#[test]
fn a_card_that_does_not_tell_its_power_lacks_the_share_of_its_limit_too() {
    for (known, also) in [("limit_mw = 700000", "power_watts"), ("power_mw = 350000", "power_limit_watts")] {
        let machine = GpuMachine::new(&gpus(&[&format!("[gpu.values]\n{known}\n")]));
        let mut sampler = machine.open();
        let tick = gpu_tick(&mut sampler, &[0]);
        for name in [also, "power_limit_ratio"].map(|name| format!("system/gpu/{name}")) {
            assert!(value(&tick, &name).is_none() && lacks(&sampler, &name), "{known}: {name}");
        }
    }
}

#[test]
fn memory_and_profiling_of_a_partitioned_board_are_its_slices() {
    let whole = WHOLE.replace("mig = false", "mig = true");
    let (head, values) = whole.split_once("[gpu.values]").unwrap();
    let slice = |instance: u32, used: u64, tensor: u32| {
        format!(
            "[[gpu.instances]]\nuuid = \"MIG-{instance}\"\ngpu_instance = {instance}\n\
             values = {{ memory_total = 1000, memory_used = {used}, memory_reserved = 10, gpm_5 = {tensor}, gpm_20 = 5 }}\n"
        )
    };
    let scenario = format!("{head}[gpu.values]{values}\n{}{}", slice(3, 100, 25_000), slice(9, 700, 75_000));
    let machine = GpuMachine::new(&gpus(&[&scenario]));
    let options = GpuOptions { partitioned: true, ..machine.options() };
    let mut sampler = GpuSampler::open(&options).unwrap();
    let mut seen: Vec<(Option<u32>, &str, f64)> = Vec::new();
    let until = std::time::Instant::now() + std::time::Duration::from_mins(1);
    // Profiling takes two looks that lie apart, of each slice by itself.
    while seen.iter().filter(|(_, name, _)| *name == "system/gpu/tensor_active_ratio").count() < 2 {
        assert!(std::time::Instant::now() < until, "{seen:?}");
        seen.clear();
        sampler.sample(&[0], &mut |_, value| seen.push((value.instance, value.metric.name, value.value)));
    }
    let of = |name: &str| -> Vec<(Option<u32>, f64)> {
        seen.iter().filter(|(_, known, _)| *known == name).map(|(of, _, value)| (*of, *value)).collect()
    };
    assert_eq!(of("system/gpu/memory_used_bytes"), [(Some(3), 100.0), (Some(9), 700.0)]);
    assert_eq!(of("system/gpu/memory_free_bytes"), [(Some(3), 890.0), (Some(9), 290.0)]);
    assert_eq!(of("system/gpu/tensor_active_ratio"), [(Some(3), 0.25), (Some(9), 0.75)]);
    assert_eq!(of("system/gpu/power_watts"), [(None, 350.5)]);
    assert_eq!(of("system/gpu/pcie_transmit_bytes_per_second"), [(None, 1_000_000.0)]);

    // A run's sampler has no business with a board that it shares.
    let mut sampler = GpuSampler::open(&machine.options()).unwrap();
    let mut count = 0;
    sampler.sample(&[0], &mut |_, _| count += 1);
    assert_eq!(count, 0);
}
