//! Drivers that go and come back, devices that are others afterwards, and what no driver should say.

use std::time::Duration;

use collect::gpu::{GpuAbsence, GpuOptions, GpuSampler};
use proptest::prelude::*;

use crate::gpu_machine::{GpuMachine, GpuTick, WHOLE, gpu_tick, gpu_tick_with, gpus, until};

const TEMPERATURE: &str = "system/gpu/temperature_celsius";

fn device(uuid: &str, degrees: u32) -> String {
    format!("[[gpu]]\nuuid = \"{uuid}\"\nname = \"Fake\"\nvalues = {{ temperature = {degrees} }}\n")
}

fn temperature(tick: &GpuTick, gpu: u32) -> Option<f64> {
    tick.get(&gpu)?.get(TEMPERATURE).copied()
}

fn uuids(sampler: &GpuSampler) -> Vec<(u32, &str)> {
    sampler.devices().iter().map(|device| (device.index, &*device.uuid)).collect()
}

#[test]
fn a_driver_that_is_unloaded_and_loaded_again_is_followed_with_other_indices() {
    let machine = GpuMachine::new(&(device("GPU-a", 30) + &device("GPU-b", 40)));
    let mut sampler = machine.open();
    assert_eq!(gpu_tick(&mut sampler, &[0, 1]).len(), 2);
    let generation = sampler.generation();

    machine.play("load = 2\nerrors = { nvmlInit_v2 = \"driver_not_loaded\" }");
    let gone = until(|| {
        assert!(gpu_tick(&mut sampler, &[0, 1]).is_empty());
        sampler.absence() == Some(&GpuAbsence::DriverNotLoaded)
    });
    assert!(gone, "it is said why there is none");
    assert_eq!(uuids(&sampler), [(0, "GPU-a"), (1, "GPU-b")], "and they are what they were meanwhile");
    assert_eq!(sampler.generation(), generation);
    let failures = sampler.take_failures();
    assert!(failures.iter().all(|failure| failure.reason == "gpu_lost"), "{failures:?}");

    machine.play(&format!("load = 3\n{}{}", device("GPU-b", 41), device("GPU-c", 50)));
    assert!(until(|| {
        gpu_tick(&mut sampler, &[0, 1]);
        sampler.generation() > generation
    }));
    assert_eq!(uuids(&sampler), [(0, "GPU-b"), (1, "GPU-c")]);
    assert_eq!(sampler.absence(), None);
    let tick = gpu_tick(&mut sampler, &[0, 1]);
    assert_eq!((temperature(&tick, 0), temperature(&tick, 1)), (Some(41.0), Some(50.0)));
    assert_eq!(
        machine.system_calls("nvmlShutdown"),
        1,
        "the library is shut down before it is started again, so that it starts anew"
    );
}

#[test]
fn a_reload_that_changes_nothing_is_no_other_generation() {
    let machine = GpuMachine::new(&device("GPU-a", 30));
    let mut sampler = machine.open();
    gpu_tick(&mut sampler, &[0]);
    let generation = sampler.generation();
    machine.play(&format!("load = 2\n{}", device("GPU-a", 35)));
    let tick = gpu_tick_with(&mut sampler, &[0], |tick| temperature(tick, 0).is_some());
    assert_eq!((temperature(&tick, 0), sampler.generation()), (Some(35.0), generation));
}

#[test]
fn a_driver_that_blocks_while_it_restarts_holds_no_tick() {
    let machine = GpuMachine::new(&device("GPU-a", 30));
    let mut sampler =
        GpuSampler::open(&GpuOptions { start_deadline: Duration::from_millis(300), ..machine.options() })
            .unwrap();
    let back = device("GPU-a", 31);
    machine.play(&format!("load = 2\nblocked = [\"nvmlInit_v2\"]\n{back}"));
    let said = until(|| {
        gpu_tick(&mut sampler, &[0]);
        sampler.absence().is_some()
    });
    assert!(said && matches!(sampler.absence(), Some(GpuAbsence::NoAnswer { .. })));
    machine.play(&format!("load = 2\n{back}"));
    gpu_tick_with(&mut sampler, &[0], |tick| temperature(tick, 0) == Some(31.0));
}

#[test]
fn a_device_that_could_not_be_named_is_tried_again() {
    let nameless = "errors = { nvmlDeviceGetUUID = \"unknown\" }\nvalues = { temperature = 30 }";
    let machine = GpuMachine::new(&gpus(&[WHOLE, nameless]));
    let mut sampler = machine.open();
    let generation = sampler.generation();
    for _ in 0..100 {
        assert_eq!(gpu_tick(&mut sampler, &[0, 1]).into_keys().collect::<Vec<_>>(), [0]);
    }
    let tries = machine.calls("nvmlDeviceGetUUID", 1);
    assert!((3..20).contains(&tries), "with back-off: {tries} times in 100 ticks");
    assert_eq!((sampler.unreadable().len(), sampler.generation()), (1, generation));

    machine.play(&gpus(&[WHOLE, "values = { temperature = 30 }"]));
    gpu_tick_with(&mut sampler, &[0, 1], |tick| temperature(tick, 1).is_some());
    assert!(sampler.unreadable().is_empty() && sampler.generation() > generation);
    assert_eq!(sampler.devices().len(), 2);
}

#[test]
fn a_device_that_is_gone_costs_one_call_now_and_then_and_comes_back() {
    let machine = GpuMachine::new(&gpus(&[WHOLE, WHOLE]));
    let mut sampler = machine.open();
    gpu_tick(&mut sampler, &[0, 1]);
    machine.play(&gpus(&[&format!("gone = true\n{WHOLE}"), WHOLE]));
    gpu_tick(&mut sampler, &[0, 1]);
    let before = machine.calls("nvmlDeviceGetTemperature", 0);
    (0..100).for_each(|_| drop(gpu_tick(&mut sampler, &[0, 1])));
    assert_eq!(machine.calls("nvmlDeviceGetTemperature", 0), before, "nothing is asked of it");
    let looks = machine.calls("nvmlDeviceGetHandleByIndex_v2", 0);
    assert!((6..16).contains(&looks), "it is looked for with back-off: {looks}");
    let dropped: Vec<bool> = sampler.take_failures().iter().map(|failure| failure.dropped).collect();
    assert_eq!(dropped, [false, false, false, false, true]);
    machine.play(&gpus(&[WHOLE, WHOLE]));
    let tick = gpu_tick_with(&mut sampler, &[0, 1], |tick| temperature(tick, 0).is_some());
    assert!(tick[&0].len() > 20, "and then all of it at once");
}

#[test]
fn another_device_in_the_place_of_a_lost_one_is_another_generation() {
    let machine = GpuMachine::new(&(device("GPU-a", 30) + &device("GPU-b", 40)));
    let mut sampler = machine.open();
    gpu_tick(&mut sampler, &[0, 1]);
    let generation = sampler.generation();
    machine.play(&(device("GPU-a", 30).replace("name", "gone = true\nname") + &device("GPU-b", 40)));
    assert_eq!(temperature(&gpu_tick(&mut sampler, &[0, 1]), 0), None);
    machine.play(&(device("GPU-x", 30) + &device("GPU-b", 40)));
    assert!(until(|| {
        gpu_tick(&mut sampler, &[0, 1]);
        sampler.generation() > generation
    }));
    assert_eq!(uuids(&sampler), [(0, "GPU-x"), (1, "GPU-b")]);
}

#[test]
fn a_library_without_what_nothing_works_without_names_it() {
    let machine = GpuMachine::without(&["nvmlInit_v2", "nvmlDeviceGetUUID"], &gpus(&[WHOLE]));
    let Err(found) = GpuSampler::open(&machine.options()) else { panic!("it cannot be used") };
    assert_eq!(found.reason(), "lacks_functions");
    assert!(found.to_string().ends_with("it lacks `nvmlInit_v2`, `nvmlDeviceGetUUID`"), "{found}");
}

#[test]
fn texts_that_are_none_are_met() {
    let bytes = |function: &str, bytes: Vec<u8>| format!("texts = {{ {function} = {bytes:?} }}");
    let devices = [
        bytes("nvmlDeviceGetUUID", b"GPU-\xff\xfe\x80".to_vec()),
        bytes("nvmlDeviceGetUUID", vec![b'A'; 500]),
        bytes("nvmlDeviceGetUUID", Vec::new()),
        bytes("nvmlDeviceGetUUID", b"GPU-../../etc".to_vec()),
        bytes("nvmlDeviceGetName", b"H100\x1b[31m\xff\n".to_vec()),
        bytes("nvmlDeviceGetName", vec![0xff; 500]),
    ];
    let machine = GpuMachine::new(&gpus(&devices.each_ref().map(String::as_str)));
    let sampler = machine.open();
    let unreadable: Vec<u32> = sampler.unreadable().iter().map(|(index, _)| *index).collect();
    assert_eq!(unreadable, [0, 1, 2, 3], "what locks and the server know it by must be a UUID");
    for (_, cause) in sampler.unreadable() {
        assert!(cause.ends_with("which is no UUID") && cause.len() < 200, "{cause}");
    }
    for device in sampler.devices() {
        assert!(device.name.chars().all(|c| !c.is_control()) && device.name.len() < 500, "{}", device.name);
    }
}

/// The names of all values of a whole device.
fn names() -> Vec<&'static str> {
    let values = WHOLE.split_once("[gpu.values]\n").unwrap().1;
    values.lines().map(|line| line.split(' ').next().unwrap()).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(40) })]

    #[test]
    fn any_numbers_of_a_driver_give_values_in_their_range_or_none(
        changes in prop::collection::vec((prop::sample::select(names()), any::<i64>()), 1..12),
    ) {
        let mut lines: std::collections::BTreeMap<&str, String> = WHOLE
            .split_once("[gpu.values]\n").unwrap().1.lines().map(|line| (line.split(' ').next().unwrap(), line.to_owned())).collect();
        for (name, number) in changes {
            lines.insert(name, format!("{name} = {number}"));
        }
        let values = lines.into_values().collect::<Vec<_>>().join("\n");
        let machine = GpuMachine::new(&gpus(&[&format!("links = 18\n[gpu.values]\n{values}\n")]));
        for (name, value) in gpu_tick(&mut machine.open(), &[0]).into_values().flatten() {
            assert!(value.is_finite(), "{name} is {value}");
            assert!(value >= 0.0 || name == "system/gpu/temperature_margin_celsius", "{name} is {value}");
            // The share of the power limit is above 1 when a limit was just lowered.
            assert!(!name.ends_with("active_ratio") || value <= 1.0, "{name} is {value}");
            assert!(!name.ends_with("utilization") || value <= 100.0, "{name} is {value}");
        }
    }
}
