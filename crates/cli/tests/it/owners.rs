//! Who owns a card, with real processes: an agent and runs on the same fake driver, the runs on the machine
//! itself and in namespaces of their own as pods are.

use std::fmt::Write as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use serde_json::Value;

use crate::process::{Server, eventually, id, truegauge};

const CARD: &str = "GPU-00000000-aaaa-bbbb-cccc-000000000000";

/// A card with an energy counter, and these processes on it.
fn scenario(pids: &[u32]) -> String {
    let processes: Vec<String> = pids.iter().map(|pid| format!("{{ pid = {pid} }}")).collect();
    format!(
        "driver_version = \"580.95.05\"\n[[gpu]]\nuuid = \"{CARD}\"\nname = \"Fake H100\"\nmig = false\n\
         bus_id = \"00000000:1B:00.0\"\nprocesses = [{}]\nvalues = {{ utilization = 87, utilization_memory = 1, \
         power_mw = 350500, field_74 = 1500000000, energy_mj = {{ start = 1000, per_second = 350500 }} }}\n",
        processes.join(", ")
    )
}

/// A process that is asked to end with the test.
struct Process(Child);

impl Process {
    fn start(mut command: Command) -> Self {
        Self(command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap())
    }

    fn end(&mut self) {
        let _ = rustix::process::kill_process(
            rustix::process::Pid::from_child(&self.0),
            rustix::process::Signal::TERM,
        );
        let _ = self.0.wait();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.end();
    }
}

/// An agent of the real machine, its cards and its name aside.
fn agent(server: &Server, host: &str) -> Process {
    let mut command = truegauge(&server.home);
    command
        .args(["agent", "--listen", "127.0.0.1:0", "--interval", "200ms", "--kmsg", "none"])
        .args(["--server", &server.url, "--host", host])
        .arg("--state-dir")
        .arg(server.home.join("agent"))
        .arg("--gpu-library")
        .arg(server.home.join("libnvidia-ml.so.1"));
    Process::start(command)
}

/// `truegauge run -- sleep`, its sampler on the fake driver, on a host of this name; a pod has a `/dev/shm` of
/// its own.
fn run(server: &Server, host: &str, is_pod: bool) -> Process {
    let program = truegauge(&server.home);
    let shm = if is_pod { "mount -t tmpfs none /dev/shm && " } else { "" };
    let inside = format!("{shm}hostname {host} && exec \"$0\" \"$@\"");
    let mut command = Command::new("unshare");
    command.args(["--mount", "--uts", "sh", "-c", &inside]).arg(program.get_program());
    for (variable, value) in program.get_envs() {
        match value {
            Some(value) => command.env(variable, value),
            None => command.env_remove(variable),
        };
    }
    command
        .args(["run", "--project", "p", "--run", "r", "--interval", "1", "--", "sleep", "600"])
        .env("TRUEGAUGE_URL", &server.url)
        .env("LD_LIBRARY_PATH", &server.home);
    Process::start(command)
}

fn result(server: &Server, query: &str) -> Vec<Value> {
    let encoded = query.bytes().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "%{byte:02X}");
        text
    });
    let answer = server.get(&format!("/api/v1/query?query={encoded}"));
    answer["data"]["result"].as_array().unwrap().clone()
}

/// The only row of a query, once there is one that fits.
fn only(server: &Server, query: &str, fits: impl Fn(&Value) -> bool) -> Value {
    eventually(query, || {
        let rows = result(server, query);
        (rows.len() == 1 && fits(&rows[0]["metric"])).then(|| rows[0].clone())
    })
}

/// What a rule that comes with the program says.
fn rule(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../rules/gpu.yml");
    let text = std::fs::read_to_string(path).unwrap();
    let rest = text.split(&format!("- record: {name}\n")).nth(1).unwrap();
    let lines = rest.lines().skip(1).take_while(|line| line.starts_with("          "));
    lines.collect::<Vec<_>>().join("\n")
}

const JOINED: &str = "tg_gpu_power_watts * on (host, gpu, uuid) group_left (run_id) tg_gpu_owner_info{shared=\"\", run_id!=\"\"}";

/// Both the agent's counters and those of the run are there, and the rules have the card once.
fn counted_once(server: &Server) {
    for metric in ["tg_gpu_energy_joules_total", "system_gpu_energy_joules_total"] {
        eventually(metric, || (result(server, &format!("rate({metric}[5m])")).len() == 1).then_some(()));
    }
    for name in ["gpu:power_watts", "gpu:throttled_ratio"] {
        let rows = result(server, &rule(name));
        assert_eq!(rows.len(), 1, "{name}: {rows:?}");
        assert_eq!(rows[0]["metric"]["uuid"], CARD, "{name}: the agent's");
    }
}

#[test]
fn an_agent_finds_the_run_of_a_card_by_its_lock_and_counts_the_card_once() {
    let server = Server::start(&[]);
    fake_nvml::install(&server.home, &scenario(&[])).unwrap();
    let mut job = run(&server, "owners-1", false);
    fake_nvml::play(&server.home, &scenario(&[job.0.id()])).unwrap();
    let _agent = agent(&server, "owners-1");
    let joined = only(&server, JOINED, |labels| labels["run_id"] == *id("r"));
    assert_eq!((joined["metric"]["uuid"].as_str(), joined["value"][1].as_str()), (Some(CARD), Some("350.5")));
    counted_once(&server);
    assert_eq!(result(&server, "tg_gpu_sampler_info"), Vec::<Value>::new());
    job.end();
    eventually("the end of the owner", || result(&server, "tg_gpu_owner_info").is_empty().then_some(()));
}

#[test]
fn a_run_in_a_pod_is_known_by_its_own_word_and_its_card_counts_once() {
    let server = Server::start(&[]);
    fake_nvml::install(&server.home, &scenario(&[])).unwrap();
    let _agent = agent(&server, "owners-2");
    let mut job = run(&server, "pod-a", true);
    only(&server, JOINED, |labels| labels["run_id"] == *id("r"));
    let named = only(&server, "tg_gpu_sampler_info", |_| true);
    assert_eq!((&named["metric"]["host"], &named["metric"]["uuid"]), (&"pod-a".into(), &CARD.into()));
    counted_once(&server);
    job.end();
    eventually("the end of the owner", || result(&server, "tg_gpu_owner_info").is_empty().then_some(()));
}
