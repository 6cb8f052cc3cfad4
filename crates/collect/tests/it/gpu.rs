//! What is read from GPUs that work, and which there are.

use std::collections::{BTreeSet, HashSet};

use collect::gpu::{GPU_DESCS, GpuMemoryAccount, MigInstance, throttle_reasons};

use crate::{
    gpu_machine::{GpuMachine, WHOLE, gpu_tick, gpu_tick_with, gpus},
    machine::assert_near,
};

/// A metric that comes from profiling, so not at the first tick.
const PROFILED: &str = "system/gpu/sm_active_ratio";

#[test]
fn the_six_series_of_autocapture_are_exact() {
    let machine = GpuMachine::new(&gpus(&[WHOLE]));
    let tick = gpu_tick(&mut machine.open(), &[0]);
    let of = &tick[&0];
    assert_eq!(of["system/gpu/utilization"], 87.0);
    assert_eq!(of["system/gpu/memory_used_bytes"], 21_474_836_480.0);
    assert_eq!(of["system/gpu/memory_utilization"], 25.0);
    assert_eq!(of["system/gpu/temperature_celsius"], 61.0);
    assert_eq!(of["system/gpu/power_watts"], 350.5);
    assert_eq!(of["system/gpu/sm_clock_mhz"], 1965.0);
}

#[test]
fn everything_else_is_in_its_unit_and_under_its_labels() {
    let machine = GpuMachine::new(&gpus(&[WHOLE]));
    let mut sampler = machine.open();
    // The first tick has nothing to compare the profiling counters with.
    assert!(!gpu_tick(&mut sampler, &[0])[&0].contains_key(PROFILED));
    let tick = gpu_tick_with(&mut sampler, &[0], |tick| tick[&0].contains_key(PROFILED));
    let wanted = [
        ("system/gpu/graphics_clock_mhz", 1980.0),
        ("system/gpu/memory_clock_mhz", 2619.0),
        ("system/gpu/memory_free_bytes", 85_899_345_920.0 - 21_474_836_480.0 - 629_145_600.0),
        ("system/gpu/memory_reserved_bytes", 629_145_600.0),
        ("system/gpu/memory_total_bytes", 85_899_345_920.0),
        ("system/gpu/power_limit_watts", 701.0),
        ("system/gpu/power_limit_ratio", 0.5),
        ("system/gpu/energy_joules_total", 123_456.789),
        ("system/gpu/throttled_seconds_total{reason=sw_power}", 1.5),
        ("system/gpu/throttled_seconds_total{reason=thermal}", 0.0),
        ("system/gpu/throttled_seconds_total{reason=sw_thermal}", 0.25),
        ("system/gpu/throttled_seconds_total{reason=hw_thermal}", 0.0),
        ("system/gpu/throttled_seconds_total{reason=hw_power_brake}", 3.0),
        ("system/gpu/sm_clock_max_mhz", 1980.0),
        ("system/gpu/memory_temperature_celsius", 73.0),
        ("system/gpu/temperature_margin_celsius", 26.0),
        ("system/gpu/recovery_action", 2.0),
        ("system/gpu/sm_active_ratio", 0.8125),
        ("system/gpu/sm_occupancy_ratio", 0.4),
        ("system/gpu/tensor_active_ratio", 1.0),
        ("system/gpu/dram_active_ratio", 0.0),
        ("system/gpu/fp64_active_ratio", 0.01),
        ("system/gpu/fp32_active_ratio", 0.02),
        ("system/gpu/fp16_active_ratio", 0.03),
        ("system/gpu/graphics_active_ratio", 0.875),
        ("system/gpu/nvlink_bytes_total{direction=transmit}", 1_024_000.0),
        ("system/gpu/nvlink_bytes_total{direction=receive}", 2_048_000.0),
        ("system/gpu/nvlink_active_links", 17.0),
        ("system/gpu/nvlink_errors_total{kind=replay,link=3}", 5.0),
        ("system/gpu/nvlink_errors_total{kind=crc_data,link=16}", 1.0),
        ("system/gpu/pcie_link_generation_max", 5.0),
        ("system/gpu/pcie_link_width_max", 16.0),
        ("system/gpu/ecc_errors_total{kind=corrected,scope=volatile}", 3.0),
        ("system/gpu/ecc_errors_total{kind=uncorrected,scope=volatile}", 0.0),
        ("system/gpu/ecc_errors_total{kind=corrected,scope=aggregate}", 17.0),
        ("system/gpu/ecc_errors_total{kind=uncorrected,scope=aggregate}", 1.0),
        ("system/gpu/row_remaps_total{kind=corrected}", 2.0),
        ("system/gpu/row_remaps_total{kind=uncorrected}", 1.0),
        ("system/gpu/row_remap_pending", 1.0),
        ("system/gpu/row_remap_failed", 0.0),
        ("system/gpu/pcie_link_generation", 5.0),
        ("system/gpu/pcie_link_width", 16.0),
        ("system/gpu/pcie_replays_total", 4.0),
        ("system/gpu/pcie_transmit_bytes_per_second", 1e6),
        ("system/gpu/pcie_receive_bytes_per_second", 2.5e6),
    ];
    for (name, value) in wanted {
        assert_near(tick[&0].get(name).copied(), value);
    }
    assert_eq!(tick[&0].len(), wanted.len() + 6, "and the six: {:?}", tick[&0].keys());
    assert_eq!(sampler.take_failures(), []);
    assert!(sampler.unsupported(0).is_empty());
    assert_eq!(sampler.throttle_mask(0), Some(4));
}

#[test]
fn a_whole_device_has_every_described_metric() {
    let machine = GpuMachine::new(&gpus(&[WHOLE]));
    let tick = gpu_tick_with(&mut machine.open(), &[0], |tick| tick[&0].contains_key(PROFILED));
    let emitted: BTreeSet<String> =
        tick[&0].keys().map(|name| name.split('{').next().unwrap().to_owned()).collect();
    let described: BTreeSet<String> = GPU_DESCS.iter().map(|desc| desc.name.to_owned()).collect();
    assert_eq!(emitted, described);
}

#[test]
fn every_gpu_metric_is_described_once() {
    let names: HashSet<&str> = GPU_DESCS.iter().map(|desc| desc.name).collect();
    assert_eq!(names.len(), GPU_DESCS.len());
    for desc in GPU_DESCS {
        assert!(desc.name.starts_with("system/gpu/") && desc.labels.starts_with(&["host", "gpu"]));
        assert!(desc.help.ends_with('.'), "{}", desc.name);
        assert!(desc.caveat.is_empty() || desc.caveat.ends_with('.'), "{}", desc.name);
    }
}

#[test]
fn values_move_with_the_driver() {
    let device = "values = { temperature = [40, 55], energy_mj = { start = 1000, per_second = 5e9 } }";
    let machine = GpuMachine::new(&gpus(&[device]));
    let mut sampler = machine.open();
    let ticks: Vec<_> = (0..3).map(|_| gpu_tick(&mut sampler, &[0])).collect();
    let temperatures: Vec<f64> =
        ticks.iter().map(|tick| tick[&0]["system/gpu/temperature_celsius"]).collect();
    assert_eq!(temperatures, [40.0, 55.0, 55.0]);
    let energy: Vec<f64> = ticks.iter().map(|tick| tick[&0]["system/gpu/energy_joules_total"]).collect();
    assert!(energy[0] >= 1.0 && energy.is_sorted() && energy[0] < energy[2], "{energy:?}");
}

#[test]
fn only_the_devices_that_are_asked_for_are_sampled() {
    let machine = GpuMachine::new(&gpus(&["values = { temperature = 30 }"; 8]));
    let mut sampler = machine.open();
    assert_eq!(gpu_tick(&mut sampler, &[5, 2]).into_keys().collect::<Vec<_>>(), [2, 5]);
    assert_eq!(machine.calls("nvmlDeviceGetTemperature", 2), 1);
    assert_eq!(machine.calls("nvmlDeviceGetTemperature", 3), 0);
    assert_eq!(gpu_tick(&mut sampler, &[99]).len(), 0);
}

#[test]
fn devices_are_named_and_placed() {
    let machine = GpuMachine::new(&gpus(&[WHOLE, WHOLE]));
    let sampler = machine.open();
    assert_eq!(sampler.driver_version(), Some("580.95.05"));
    let [first, second] = sampler.devices() else { panic!("two devices: {:?}", sampler.devices()) };
    assert_eq!((first.index, &*first.uuid, &*first.name), (0, "GPU-00000000", "Fake H100"));
    assert_eq!((second.index, &*second.pci_bus_id), (1, "0000:1c:00.0"));
    assert_eq!(first.memory, GpuMemoryAccount::Allocated);
    assert_eq!((first.compute_capability, first.architecture), (Some((9, 0)), "Hopper"));
    assert_eq!(first.sm_clock_max_mhz, Some(1980));
    assert!(sampler.unreadable().is_empty());
}

#[test]
fn a_device_that_tells_little_is_still_a_device() {
    let machine = GpuMachine::new(&gpus(&["compute_capability = [-1, 7]", "values = { sm_max_mhz = -1 }"]));
    let sampler = machine.open();
    for device in sampler.devices() {
        assert_eq!(
            (device.compute_capability, device.architecture, device.sm_clock_max_mhz),
            (None, "", None)
        );
    }
}

#[test]
fn a_partitioned_device_is_listed_and_never_sampled() {
    let mig = "mig = true
instances = [{ uuid = \"MIG-a\", gpu_instance = 7 }, { uuid = \"MIG-b\", gpu_instance = 9 }]
values = { temperature = 30 }";
    let machine = GpuMachine::new(&gpus(&["values = { temperature = 30 }", mig]));
    let mut sampler = machine.open();
    let partitioned = &sampler.devices()[1];
    assert!(partitioned.mig && !sampler.devices()[0].mig);
    assert_eq!(
        partitioned.instances,
        [
            MigInstance { uuid: "MIG-a".into(), gpu_instance: Some(7) },
            MigInstance { uuid: "MIG-b".into(), gpu_instance: Some(9) },
        ]
    );
    assert_eq!(gpu_tick(&mut sampler, &[0, 1]).into_keys().collect::<Vec<_>>(), [0]);
    assert_eq!(machine.calls("nvmlDeviceGetTemperature", 1), 0);
}

#[test]
fn an_old_driver_counts_its_reserve_as_used_and_says_so() {
    let old = "errors = { nvmlDeviceGetMemoryInfo_v2 = \"function_not_found\" }
values = { memory_total = 1000, memory_used = 400, memory_reserved = 100 }";
    let machine = GpuMachine::new(&gpus(&[old]));
    let mut sampler = machine.open();
    assert_eq!(sampler.devices()[0].memory, GpuMemoryAccount::AllocatedAndReserved);
    let tick = gpu_tick(&mut sampler, &[0]);
    assert_eq!(tick[&0]["system/gpu/memory_used_bytes"], 500.0);
    assert_eq!(tick[&0]["system/gpu/memory_utilization"], 50.0);
    assert!(!tick[&0].contains_key("system/gpu/memory_reserved_bytes"));
    gpu_tick(&mut sampler, &[0]);
    assert_eq!(machine.calls("nvmlDeviceGetMemoryInfo_v2", 0), 1, "asked once, while it is identified");
}

#[test]
fn a_mask_of_reasons_reads_as_words() {
    let words = |mask| throttle_reasons(mask).collect::<Vec<_>>();
    assert_eq!(words(0), [""; 0]);
    assert_eq!(words(0x4 | 0x40), ["sw_power", "hw_thermal"]);
    assert_eq!(words(0x1 | 1 << 40 | 1 << 41), ["idle", "unknown"]);
}
