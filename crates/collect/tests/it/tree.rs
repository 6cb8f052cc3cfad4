//! The process and its descendants, through every kind of coming and going.

use collect::ProcessSampler;

use crate::machine::{Machine, SECOND_NS, Tick, assert_near, causes};

const RSS: &str = "system/process_tree/rss_bytes";
const CPU: &str = "system/process_tree/cpu_utilization";
const OWN: u64 = 100;

/// One process: CPU times in seconds, start in seconds since boot, memory in pages.
#[derive(Clone, Copy)]
struct Process {
    pid: u64,
    parent: u64,
    used: f64,
    waited: f64,
    start: f64,
    pages: u64,
}

impl Process {
    fn new(pid: u64, parent: u64) -> Self {
        Self { pid, parent, used: 0.0, waited: 0.0, start: 1.0, pages: 10 }
    }
}

fn extras(sampler: &mut ProcessSampler, at_ns: u64) -> Tick {
    let mut tick = Tick::new();
    sampler.sample_extras(at_ns, &mut |desc, value| assert!(tick.insert(desc.name, value).is_none()));
    tick
}

/// A machine that has been up for 1,000 s at time 0, and a sampler of its process 100.
struct Scene {
    machine: Machine,
    sampler: ProcessSampler,
}

impl Scene {
    fn new() -> Self {
        let machine = Machine::bare();
        let sampler = machine.process();
        Self { machine, sampler }
    }

    /// Replaces all processes and takes a tick at `at` seconds.
    fn tick(&mut self, at: f64, processes: &[Process]) -> Tick {
        if self.machine.path("proc").exists() {
            self.machine.remove("proc");
        }
        self.machine.write("proc/uptime", format!("{:.2} 5.00\n", 1000.0 + at));
        self.machine.write("proc/version", "not a process\n");
        let hz = rustix::param::clock_ticks_per_second() as f64;
        for process in processes {
            let ticks = |seconds: f64| (seconds * hz) as u64;
            let text = format!(
                "{} (w) (x) S {} 1 1 0 -1 0 0 0 0 0 {} 0 {} 0 20 0 1 0 {} 99 {} 18446744073709551615\n",
                process.pid,
                process.parent,
                ticks(process.used),
                ticks(process.waited),
                ticks(process.start),
                process.pages
            );
            self.machine.write(format!("proc/{}/stat", process.pid), &text);
            if process.pid == OWN {
                self.machine.write("proc/self/stat", &text);
            }
        }
        extras(&mut self.sampler, (at * SECOND_NS as f64) as u64)
    }

    fn cpu(&mut self, at: f64, processes: &[Process]) -> Option<f64> {
        self.tick(at, processes).get(CPU).copied()
    }
}

#[test]
fn memory_and_cpu_of_all_descendants_are_added_up() {
    let mut scene = Scene::new();
    let processes = |used: f64| {
        [
            Process { used, ..Process::new(OWN, 1) },
            Process { used, pages: 20, ..Process::new(7, OWN) },
            Process { used, pages: 30, ..Process::new(300, 7) },
            Process { used: used * 9.0, pages: 5000, ..Process::new(1, 0) },
            Process { used: used * 9.0, pages: 5000, ..Process::new(200, 1) },
        ]
    };
    let first = scene.tick(0.0, &processes(5.0));
    assert_eq!(first[RSS], 60.0 * rustix::param::page_size() as f64);
    assert!(!first.contains_key(CPU));
    assert_near(scene.cpu(2.0, &processes(6.0)), 150.0);
}

#[test]
fn a_child_that_is_born_counts_from_its_birth() {
    let mut scene = Scene::new();
    let own = Process::new(OWN, 1);
    scene.tick(0.0, &[own]);
    let child = Process { used: 0.5, start: 1000.5, ..Process::new(101, OWN) };
    assert_near(scene.cpu(1.0, &[own, child]), 50.0);
}

#[test]
fn a_process_with_a_past_counts_from_when_it_is_first_seen() {
    let mut scene = Scene::new();
    let own = Process::new(OWN, 1);
    scene.tick(0.0, &[own]);
    let adopted = Process { used: 3600.0, start: 10.0, ..Process::new(101, OWN) };
    assert_near(scene.cpu(1.0, &[own, adopted]), 0.0);
    assert_near(scene.cpu(2.0, &[own, Process { used: 3601.0, ..adopted }]), 100.0);
}

#[test]
fn a_child_that_was_waited_for_brings_its_last_interval_only() {
    let mut scene = Scene::new();
    let own = Process::new(OWN, 1);
    let child = Process { used: 3600.0, ..Process::new(101, OWN) };
    scene.tick(0.0, &[own, child]);
    // It used another 0.25 s, ended, and its parent waited for it.
    assert_near(scene.cpu(1.0, &[Process { waited: 3600.25, ..own }]), 25.0);
    assert_near(scene.cpu(2.0, &[Process { waited: 3600.25, used: 1.0, ..own }]), 100.0);
}

#[test]
fn a_child_whose_time_arrives_one_tick_late_makes_no_jump() {
    let mut scene = Scene::new();
    let own = Process::new(OWN, 1);
    let child = Process { used: 3600.0, ..Process::new(101, OWN) };
    scene.tick(0.0, &[own, child]);
    assert_near(scene.cpu(1.0, &[Process { used: 0.5, ..own }]), 50.0);
    assert_near(scene.cpu(2.0, &[Process { used: 1.0, waited: 3600.25, ..own }]), 75.0);
}

#[test]
fn a_child_nobody_waits_for_takes_nothing_off() {
    let mut scene = Scene::new();
    let own = Process::new(OWN, 1);
    let child = Process { used: 3600.0, ..Process::new(101, OWN) };
    scene.tick(0.0, &[own, child]);
    assert_near(scene.cpu(1.0, &[Process { used: 0.5, ..own }]), 50.0);
    assert_near(scene.cpu(2.0, &[Process { used: 1.0, ..own }]), 50.0);
    // The time it used is not held against children that end later.
    assert_near(scene.cpu(3.0, &[Process { used: 1.0, waited: 0.75, ..own }]), 75.0);
}

#[test]
fn a_whole_branch_that_ends_is_found_in_the_surviving_ancestor() {
    let mut scene = Scene::new();
    let own = Process::new(OWN, 1);
    let child = Process { used: 100.0, waited: 50.0, ..Process::new(101, OWN) };
    let grandchild = Process { used: 200.0, ..Process::new(102, 101) };
    scene.tick(0.0, &[own, child, grandchild]);
    assert_near(scene.cpu(1.0, &[Process { waited: 350.5, ..own }]), 50.0);
}

#[test]
fn a_process_id_that_passes_to_another_child_is_another_process() {
    let mut scene = Scene::new();
    let own = Process::new(OWN, 1);
    let child = Process { used: 10.0, ..Process::new(101, OWN) };
    scene.tick(0.0, &[own, child]);
    let successor = Process { used: 0.5, start: 1000.25, ..Process::new(101, OWN) };
    assert_near(scene.cpu(1.0, &[Process { waited: 10.25, ..own }, successor]), 75.0);
}

#[test]
fn churn_is_never_negative_and_never_more_than_was_used() {
    // A new worker each tick, each uses 0.5 s in its life of one tick, and is waited for in the next.
    let mut scene = Scene::new();
    let mut own = Process::new(OWN, 1);
    scene.tick(0.0, &[own]);
    for at in 1..60u64 {
        let start = 1000.0 + at as f64 - 0.75;
        let worker = Process { used: 0.5, start, ..Process::new(1000 + at, OWN) };
        assert_near(scene.cpu(at as f64, &[own, worker]), 50.0);
        own.waited += 0.5;
    }
}

#[test]
fn an_outsider_whose_id_passes_to_a_child_is_found_in_time() {
    let mut scene = Scene::new();
    let own = Process::new(OWN, 1);
    let outsider = Process::new(101, 1);
    scene.tick(0.0, &[own, outsider]);
    let child = Process { start: 1000.5, ..Process::new(101, OWN) };
    let pages = |tick: &Tick| tick[RSS] / rustix::param::page_size() as f64;
    let found = (1..=20).find(|at| pages(&scene.tick(f64::from(*at), &[own, child])) == 20.0);
    assert!(found.is_some(), "a process ID that was an outsider's is read again within 20 ticks");
}

#[test]
fn a_circle_of_parents_ends() {
    let mut scene = Scene::new();
    let own = Process::new(OWN, 1);
    let tick = scene.tick(0.0, &[own, Process::new(5, 6), Process::new(6, 5), Process::new(8, 8)]);
    assert_eq!(tick[RSS], 10.0 * rustix::param::page_size() as f64);
}

#[test]
fn without_an_uptime_a_new_child_counts_from_when_it_is_first_seen() {
    let mut scene = Scene::new();
    let own = Process::new(OWN, 1);
    scene.tick(0.0, &[own]);
    scene.machine.remove("proc/uptime");
    extras(&mut scene.sampler, SECOND_NS);
    let child = Process { used: 0.5, start: 1001.5, ..Process::new(101, OWN) };
    assert_near(scene.cpu(2.0, &[own, child]), 0.0);
}

#[test]
fn a_tree_of_the_real_machine_holds_a_child() {
    let mut sampler = ProcessSampler::new(collect::Host::real());
    let alone = extras(&mut sampler, 1)[RSS];
    let mut child = std::process::Command::new("sleep").arg("600").spawn().unwrap();
    let statm = |pid: &str| {
        let text = std::fs::read_to_string(format!("/proc/{pid}/statm")).unwrap();
        text.split(' ').nth(1).unwrap().parse::<f64>().unwrap() * rustix::param::page_size() as f64
    };
    let tick = extras(&mut sampler, SECOND_NS);
    let (own, sleeper) = (statm("self"), statm(&child.id().to_string()));
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(alone > 0.0 && own > 0.0);
    assert!(sleeper == 0.0 || tick[RSS] > own / 2.0 + sleeper / 2.0, "{tick:?} {own} {sleeper}");
    assert!(tick[CPU] >= 0.0);
    assert_eq!(causes(&sampler.take_failures()), "");
}

#[test]
fn another_process_is_sampled_by_its_id() {
    let mut scene = Scene::new();
    let processes = |used: f64| {
        [
            Process::new(OWN, 1),
            Process { used, pages: 20, ..Process::new(7, OWN) },
            Process { used, pages: 30, ..Process::new(300, 7) },
        ]
    };
    scene.sampler = ProcessSampler::of(scene.machine.host(), 7);
    let first = scene.tick(0.0, &processes(5.0));
    assert_eq!(first[RSS], 50.0 * rustix::param::page_size() as f64, "the parent is none of its descendants");
    assert_near(scene.cpu(2.0, &processes(6.0)), 100.0);
}
