//! The made-up cluster, asked from outside.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a helper that can't go on fails its test")]

use std::path::Path;
use std::sync::Arc;

use simulate::{Engine, Job, Node, Scenario, Step};

const TWO: &str = r#"
name = "two hosts"
seed = 7
[[nodes]]
host = "node-#"
count = 2
gpus = 2
[[jobs]]
name = "pretrain"
hosts = ["node-0..node-1"]
"#;

fn scenario(more: &str) -> Arc<Scenario> {
    Arc::new(Scenario::read(&format!("{TWO}{more}")).unwrap())
}

fn refused(more: &str) -> String {
    Scenario::read(&format!("{TWO}{more}")).unwrap_err().to_string()
}

#[test]
fn what_a_scenario_names_has_to_be_there() {
    let away = refused("[[faults]]\nat = 1.0\nkind = \"throttle\"\nhost = \"node-9\"\n");
    assert!(away.contains("there is no host `node-9`") && away.contains("node-0, node-1"), "{away}");
    let kind = refused("[[faults]]\nat = 1.0\nkind = \"meteor\"\nhost = \"node-1\"\n");
    assert!(kind.contains("meteor") && kind.contains("throttle"), "{kind}");
    let key = refused("[[jobs]]\nname = \"x\"\nhosts = []\ncompte = 1.0\n");
    assert!(key.contains("compte") && key.contains("compute"), "{key}");
    let back = refused("[[jobs]]\nname = \"x\"\nhosts = [\"node-1..node-0\"]\n");
    assert!(back.contains("ends before it begins"), "{back}");
    let gpu = refused(
        "[[engines]]\nname = \"e\"\nengine = \"vllm\"\nmodel = \"m\"\nhosts = [\"node-0\"]\ngpus = [2]\nrequests_per_second = 1.0\n",
    );
    assert!(gpu.contains("uses GPU 2 of `node-0`, which has 2"), "{gpu}");
}

#[test]
fn all_wait_for_a_throttled_card_and_it_waits_least() {
    let scenario =
        scenario("[[faults]]\nat = 10.0\nkind = \"throttle\"\nhost = \"node-1\"\ngpu = 0\nclock = 0.8\n");
    let mut job = Job::new(scenario, 0).unwrap();
    assert_eq!(job.ranks().len(), 4);
    let mut before = 0;
    let mut after = 0;
    while let Some(step) = job.next_until(60.0) {
        let slowest = step.own.iter().copied().fold(0.0, f64::max);
        assert!((step.length - slowest - 0.15).abs() < 1e-12);
        if step.start < 10.0 {
            before += 1;
            assert!(step.length < 1.17, "{step:?}");
            continue;
        }
        after += 1;
        assert!((step.own[2] / step.own[0] - 1.25).abs() < 0.03, "{step:?}");
        assert!(step.wait(2) < step.wait(0) && (step.wait(2) - 0.15).abs() < 1e-12, "{step:?}");
    }
    assert!(before > 5 && after > 20, "{before} {after}");
}

/// Steps of a job of 64 ranks in four stages with one fault, without noise.
fn played(fault: &str) -> Vec<Step> {
    let text = format!(
        "name = \"eight hosts\"\n[[nodes]]\nhost = \"node-#\"\ncount = 8\ngpus = 8\n[[jobs]]\nname = \"pretrain\"\n\
         hosts = [\"node-0..node-7\"]\nstages = 4\njitter = 0.0\n[[faults]]\nat = 0.0\n{fault}"
    );
    let mut job = Job::new(Arc::new(Scenario::read(&text).unwrap()), 0).unwrap();
    std::iter::from_fn(|| job.next_until(100.0)).collect()
}

/// Ranks that need longer than the usual second, and how much.
fn slow(step: &Step) -> Vec<(usize, f64)> {
    let ranks = step.own.iter().copied().enumerate();
    ranks
        .filter(|(_, own)| (own - 1.0).abs() > 1e-9)
        .map(|(rank, own)| (rank, (own * 1e6).round() / 1e6))
        .collect()
}

#[test]
fn a_card_or_a_host_is_slow_for_no_reason() {
    for step in played("kind = \"slow\"\nhost = \"node-1\"\ngpu = 1\nrate = 1.03\n") {
        assert_eq!(slow(&step), [(9, 1.03)]);
    }
    for step in played("kind = \"slow\"\nhost = \"node-3\"\nrate = 1.08\n") {
        assert_eq!(slow(&step), (24..32).map(|rank| (rank, 1.08)).collect::<Vec<_>>());
    }
}

#[test]
fn a_job_has_a_slow_exchange_a_heavy_stage_or_ranks_that_take_turns() {
    let steps = played("kind = \"slow_exchange\"\njob = \"pretrain\"\n");
    assert!(steps.iter().all(|step| slow(step).is_empty() && (step.communication - 0.45).abs() < 1e-12));
    for step in played("kind = \"heavy_stage\"\njob = \"pretrain\"\nstage = 3\n") {
        assert_eq!(slow(&step), (48..64).map(|rank| (rank, 1.12)).collect::<Vec<_>>());
    }
    let late: Vec<_> = played("kind = \"turns\"\njob = \"pretrain\"\n").iter().map(slow).collect();
    let turns: Vec<_> = (0..late.len()).map(|step| vec![(13 * step % 64, 1.2)]).collect();
    assert_eq!(late, turns);
}

#[test]
fn a_fault_of_a_job_names_one_that_is_there() {
    let fault = |more: &str| refused(&format!("[[faults]]\nat = 1.0\n{more}"));
    let none = fault("kind = \"turns\"\n");
    assert!(none.contains("the fault at 1 s names no `job`"), "{none}");
    let away = fault("kind = \"slow_exchange\"\njob = \"finetune\"\n");
    assert!(away.contains("is of the job `finetune`; there are pretrain"), "{away}");
    let stage = fault("kind = \"heavy_stage\"\njob = \"pretrain\"\nstage = 1\n");
    assert!(stage.contains("is of stage 1 of `pretrain`, which has 1"), "{stage}");
    let rate = fault("kind = \"turns\"\njob = \"pretrain\"\nrate = -1.0\n");
    assert!(rate.contains("`rate` of `turns at 1 s` is -1"), "{rate}");
}

#[test]
fn a_job_waits_for_a_node_that_boots_and_for_ever_for_one_that_hangs() {
    let boot = scenario("[[faults]]\nat = 10.0\nlasts = 20.0\nkind = \"reboot\"\nhost = \"node-1\"\n");
    let mut job = Job::new(boot, 0).unwrap();
    let starts: Vec<f64> = std::iter::from_fn(|| job.next_until(60.0)).map(|step| step.start).collect();
    assert!(starts.iter().all(|start| *start < 10.0 || *start >= 30.0), "{starts:?}");
    assert!(starts.contains(&30.0), "{starts:?}");
    let hang = scenario("[[faults]]\nat = 10.0\nkind = \"hang\"\nhost = \"node-1\"\ngpu = 1\n");
    let mut job = Job::new(hang, 0).unwrap();
    while job.next_until(1e6).is_some() {}
    assert!(job.next_until(2e6).is_none());
}

const ENGINE: &str = r#"
[[engines]]
name = "chat"
engine = "vllm"
model = "acme/chat-8b"
hosts = ["node-0"]
gpus = [0]
requests_per_second = 6.0
kv_tokens = 30000.0
"#;

fn value(page: &str, name: &str) -> f64 {
    let row = page.lines().find(|line| line.starts_with(name)).unwrap_or_else(|| panic!("no {name}"));
    row.rsplit(' ').next().unwrap().parse().unwrap()
}

#[test]
fn an_engine_counts_on_until_it_starts_anew() {
    let restart =
        scenario(&format!("{ENGINE}[[faults]]\nat = 60.0\nkind = \"engine_restart\"\nengine = \"chat\"\n"));
    let mut engine = Engine::new(restart, "chat").unwrap();
    let mut tokens = Vec::new();
    for second in [20.0, 40.0, 59.0, 61.0, 80.0] {
        engine.advance(second);
        tokens.push(value(&engine.page(0.0), "vllm:generation_tokens_total"));
    }
    assert!(tokens[0] > 0.0 && tokens[1] > tokens[0] && tokens[2] > tokens[1], "{tokens:?}");
    assert!(tokens[3] < tokens[2] / 10.0 && tokens[4] > tokens[3], "{tokens:?}");
    assert_eq!(value(&engine.page(1000.0), "vllm:generation_tokens_created"), 1060.0);
}

#[test]
fn too_many_requests_fill_the_cache_and_wait() {
    let queue = scenario(&format!(
        "{ENGINE}[[faults]]\nat = 60.0\nkind = \"queue\"\nengine = \"chat\"\nrate = 10.0\n"
    ));
    let mut engine = Engine::new(queue, "chat").unwrap();
    engine.advance(60.0);
    assert!(engine.waiting() < 5 && engine.kv_usage() < 0.8, "{} {}", engine.waiting(), engine.kv_usage());
    engine.advance(120.0);
    assert!(engine.waiting() > 50 && engine.kv_usage() > 0.9, "{} {}", engine.waiting(), engine.kv_usage());
    let page = engine.page(0.0);
    let by_reason = value(&page, "vllm:num_requests_waiting_by_reason{engine=\"0\"");
    assert_eq!(by_reason, value(&page, "vllm:num_requests_waiting{"));
    let infinite = value(&page, "vllm:time_to_first_token_seconds_bucket{le=\"+Inf\"");
    assert_eq!(infinite, value(&page, "vllm:time_to_first_token_seconds_count"));
}

#[test]
fn a_driver_tells_what_the_cards_do() {
    let fault = "[[faults]]\nat = 30.0\nkind = \"fall_off\"\nhost = \"node-0\"\ngpu = 1\n\
                 [[faults]]\nat = 5.0\nkind = \"throttle\"\nhost = \"node-0\"\ngpu = 0\nclock = 0.8\n";
    let mut node = Node::new(&scenario(fault), "node-0").unwrap();
    node.advance(29.0);
    let told: fake_nvml::Scenario = read(&node.driver_scenario(&|gpu| vec![100 + gpu]));
    assert_eq!(told.gpu.len(), 2);
    assert_eq!(told.gpu[0].processes[0].pid, 100);
    let mhz = |gpu: &fake_nvml::Gpu| gpu.values["sm_mhz"].at(0, 0.0).unwrap() as f64;
    assert!((mhz(&told.gpu[0]) / mhz(&told.gpu[1]) - 0.8).abs() < 0.03);
    let throttled = told.gpu[0].values["field_270"].at(0, 0.0).unwrap();
    assert!((throttled as f64 / 1e9 - 24.0).abs() < 0.3, "{throttled}");
    let watts = node.cards()[1].energy_joules / 29.0;
    assert!((300.0..700.0).contains(&watts), "{watts}");
    node.advance(31.0);
    let told: fake_nvml::Scenario = read(&node.driver_scenario(&|_| Vec::new()));
    assert_eq!((told.gpu[0].gone, told.gpu[1].gone), (false, true), "the card keeps its place in the list");
    assert_eq!(told.gpu[1].uuid, node.cards()[1].uuid);
    let lines: Vec<String> = node.take_lines().into_iter().map(|line| line.text).collect();
    assert!(lines[0].starts_with("NVRM: GPU at PCI:0000:18:00: GPU-"), "{lines:?}");
    assert!(lines.iter().any(|line| line.contains("): 79, ")), "{lines:?}");
}

fn read<T: serde::de::DeserializeOwned>(text: &str) -> T {
    toml::from_str(text).unwrap()
}

#[test]
fn two_processes_that_play_a_node_agree() {
    let fault = "[[faults]]\nat = 5.0\nlasts = 3.0\nkind = \"reboot\"\nhost = \"node-0\"\n";
    let mut one = Node::new(&scenario(fault), "node-0").unwrap();
    let mut other = Node::new(&scenario(fault), "node-0").unwrap();
    one.advance(20.0);
    for tenth in 1..=200 {
        other.advance(f64::from(tenth) / 10.0);
    }
    assert_eq!(one.cards(), other.cards());
    assert_eq!((one.boots(), other.boots()), (2, 2));
    assert!((one.booted().unwrap() - 8.0).abs() < 0.11, "{:?}", one.booted());
    assert_eq!(one.take_lines(), other.take_lines());
}

#[test]
fn a_restart_brings_back_what_fell_off_the_bus() {
    let faults = "[[faults]]\nat = 5.0\nkind = \"fall_off\"\nhost = \"node-0\"\ngpu = 1\n\
                  [[faults]]\nat = 20.0\nlasts = 10.0\nkind = \"reboot\"\nhost = \"node-0\"\n";
    let scenario = scenario(faults);
    let mut node = Node::new(&scenario, "node-0").unwrap();
    node.advance(10.0);
    assert!(!node.cards()[1].is_present);
    node.advance(31.0);
    assert!(node.cards()[1].is_present);
    let mut job = Job::new(scenario, 0).unwrap();
    while job.next_until(29.0).is_some() {}
    let next = job.next_until(40.0).unwrap();
    assert!((30.0..31.0).contains(&next.start), "the job goes on with the node: {}", next.start);
}

#[test]
fn the_scenarios_that_come_along_can_be_played() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/scenarios");
    let mut names: Vec<String> = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let scenario = Scenario::read(&std::fs::read_to_string(&path).unwrap());
        let scenario = Arc::new(scenario.unwrap_or_else(|error| panic!("{}: {error}", path.display())));
        let (host, _) = scenario.hosts().next().unwrap();
        Node::new(&scenario, &host).unwrap().advance(1.0);
        names.push(path.file_stem().unwrap().to_str().unwrap().to_owned());
    }
    for name in ["fleet", "seed", "small", "stragglers"] {
        assert!(names.iter().any(|one| one == name), "{name} of {names:?}");
    }
}

#[test]
fn jobs_of_the_examples_compute_what_their_cards_can() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/scenarios");
    let mut jobs = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let text = std::fs::read_to_string(entry.unwrap().path()).unwrap();
        let scenario = Arc::new(Scenario::read(&text).unwrap());
        for index in 0..scenario.jobs.len() {
            let mut job = Job::new(scenario.clone(), index).unwrap();
            let group = job.group().clone();
            let step = job.next_until(60.0).unwrap();
            let profile = scenario.profile(&job.ranks()[0].0).unwrap();
            assert_eq!((profile.key, &*group.dtype), ("h100-sxm", "bf16"), "the peak below is theirs");
            let flops = 6.0 * group.parameters.unwrap() * group.tokens / step.length;
            let mfu = flops / (989e12 * job.ranks().len() as f64);
            assert!((0.25..0.5).contains(&mfu), "`{}` of `{}`: {mfu}", group.name, scenario.name);
            jobs += 1;
        }
    }
    assert!(jobs > 4, "{jobs}");
}
