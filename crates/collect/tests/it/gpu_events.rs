//! What the driver tells by itself.

use std::time::{Duration, Instant};

use collect::gpu::{GpuEvent, GpuEvents, GpuNews, GpuOptions, GpuSampler};

use crate::gpu_machine::{GpuMachine, gpu_tick, gpus};

const XID: &str = "[[event]]\ngpu = 1\nkind = 8\ndata = 79\n";

fn open(machine: &GpuMachine) -> (GpuSampler, GpuEvents) {
    let events = GpuEvents::default();
    let options = GpuOptions { events: Some(events.clone()), ..machine.options() };
    let sampler = GpuSampler::open(&options).unwrap();
    // What is added after a set was made is told.
    let end = Instant::now() + Duration::from_mins(1);
    while machine.system_calls("nvmlEventSetWait_v2") == 0 && Instant::now() < end {
        std::thread::yield_now();
    }
    (sampler, events)
}

fn wait(events: &GpuEvents, count: usize) -> Vec<GpuEvent> {
    let end = Instant::now() + Duration::from_mins(1);
    let mut taken = Vec::new();
    while taken.len() < count && Instant::now() < end {
        taken.extend(events.take().0);
        std::thread::yield_now();
    }
    taken
}

#[test]
fn what_the_driver_tells_is_taken_once_with_its_device() {
    let scenario = gpus(&["", "", "values = { field_230 = 4 }"]);
    let machine = GpuMachine::new(&format!("{scenario}{XID}"));
    let (_sampler, events) = open(&machine);
    let more = "[[event]]\ngpu = 0\nkind = 8\ndata = 31\ninstances = [5, 0]\n\
        [[event]]\ngpu = 1\nkind = 4\n\
        [[event]]\ngpu = 1\nkind = 2\n\
        [[event]]\ngpu = 2\nkind = 32768\n\
        [[event]]\ngpu = 1\nkind = 16384\n";
    machine.play(&format!("{scenario}{XID}{more}"));
    let told = wait(&events, 4);
    let got: Vec<(u32, &str, GpuNews)> =
        told.iter().map(|event| (event.gpu, &*event.uuid, event.news)).collect();
    let xid = GpuNews::Xid { xid: 31, gpu_instance: Some(5), compute_instance: Some(0) };
    assert_eq!(
        got,
        [
            (0, "GPU-00000000", xid),
            (1, "GPU-00000001", GpuNews::Memory("double_bit")),
            (2, "GPU-00000002", GpuNews::Recovery(4)),
            (1, "GPU-00000001", GpuNews::Unavailable),
        ],
        "what was there before is old, and clocks are no news"
    );
    assert_eq!(told[0].pci_bus_id, "0000:1b:00.0");
    assert_eq!(events.take(), (Vec::new(), 0));
}

#[test]
fn another_recovery_action_is_told_however_it_is_seen() {
    let with = |action: u32| gpus(&[&format!("values = {{ field_230 = {action} }}")]);
    let machine = GpuMachine::new(&with(0));
    let (mut sampler, events) = open(&machine);
    gpu_tick(&mut sampler, &[0]);
    let news = |events: Vec<GpuEvent>| events.into_iter().map(|event| event.news).collect::<Vec<_>>();
    assert_eq!(news(events.take().0), [GpuNews::Recovery(0)], "the first one is told, whatever it is");
    gpu_tick(&mut sampler, &[0]);
    assert_eq!(news(events.take().0), []);
    machine.play(&format!("{}[[event]]\ngpu = 0\nkind = 32768\n", with(2)));
    assert_eq!(news(wait(&events, 1)), [GpuNews::Recovery(2)]);
    gpu_tick(&mut sampler, &[0]);
    assert_eq!(news(events.take().0), [], "told already");
}

#[test]
fn a_driver_without_events_is_sampled_all_the_same() {
    let functions = ["nvmlEventSetCreate", "nvmlDeviceGetSupportedEventTypes"];
    for function in functions {
        let machine = GpuMachine::without(&[function], &gpus(&["values = { temperature = 30 }"]));
        let events = GpuEvents::default();
        let options = GpuOptions { events: Some(events.clone()), ..machine.options() };
        let mut sampler = GpuSampler::open(&options).unwrap();
        assert_eq!(gpu_tick(&mut sampler, &[0])[&0]["system/gpu/temperature_celsius"], 30.0);
        assert_eq!(events.take().0, []);
    }
}

#[test]
fn a_wait_that_fails_is_tried_again_and_a_restart_waits_anew() {
    let lost = "errors = { nvmlEventSetWait_v2 = [\"gpu_is_lost\", 0] }\n";
    let plain = gpus(&["", ""]);
    let machine = GpuMachine::new(&format!("{lost}{plain}"));
    let (mut sampler, events) = open(&machine);
    machine.play(&format!("{lost}{plain}{XID}"));
    assert_eq!(wait(&events, 1).len(), 1);
    // The driver is loaded anew, and so is what waits for it.
    let reloaded = format!("load = 1\n{plain}{XID}");
    machine.play(&reloaded);
    let sets = machine.system_calls("nvmlEventSetCreate");
    let end = Instant::now() + Duration::from_mins(1);
    while machine.system_calls("nvmlEventSetCreate") == sets && Instant::now() < end {
        gpu_tick(&mut sampler, &[0, 1]);
        std::thread::yield_now();
    }
    let waits = machine.system_calls("nvmlEventSetWait_v2");
    while machine.system_calls("nvmlEventSetWait_v2") == waits && Instant::now() < end {
        std::thread::yield_now();
    }
    machine.play(&format!("{reloaded}[[event]]\ngpu = 0\nkind = 8\ndata = 48\n"));
    let told = wait(&events, 1);
    assert_eq!(
        (told[0].gpu, told[0].news),
        (0, GpuNews::Xid { xid: 48, gpu_instance: None, compute_instance: None })
    );
}
