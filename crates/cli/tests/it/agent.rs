//! `truegauge agent`: a node with fake cards, reported to a real server and shown on `/metrics`.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;
use wire::push::{Node, PushRequest, Series};

use crate::process::{DEADLINE, Server, eventually, run, truegauge};

/// A card on which much works; `more` goes before its values.
fn card(index: u32, more: &str) -> String {
    format!(
        "[[gpu]]\nuuid = \"{}\"\nname = \"Fake H100\"\nbus_id = \"00000000:{:02X}:00.0\"\n\
         compute_capability = [9, 0]\n{more}\n\
         values = {{ utilization = 87, memory_total = 85899345920, memory_used = 21474836480, \
         memory_reserved = 629145600, temperature = 61, power_mw = 350500, limit_mw = 700000, \
         energy_mj = 123456789, sm_mhz = 1965, sm_max_mhz = 1980, memory_mhz = 2619, throttle_mask = 96, \
         field_74 = 1500000000, field_75 = 250000000, field_138 = 1000, field_139 = 2000, field_230 = 0, \
         rows_corrected = 2, rows_uncorrected = 1, rows_pending = 1, rows_failure = 0, \
         ecc_corrected_volatile = 3, ecc_uncorrected_volatile = 0, pcie_generation = 5, pcie_width = 16, \
         pcie_replays = 4, pcie_transmit_kb = 1000, pcie_receive_kb = 2500, \
         gpm_1 = 87500, gpm_2 = 81250, gpm_3 = 40000, gpm_5 = 52000, gpm_10 = 33000 }}\n",
        uuid(index),
        0x1b + index,
    )
}

fn uuid(index: u32) -> String {
    format!("GPU-{index:08}-aaaa-bbbb-cccc-000000000000")
}

pub(crate) fn scenario(cards: &[&str]) -> String {
    let cards: String = cards.iter().zip(0..).map(|(more, index)| card(index, more)).collect();
    format!("driver_version = \"580.95.05\"\n{cards}")
}

/// An agent's process, in a home of its own with a driver of its own.
pub(crate) struct Agent {
    pub(crate) home: PathBuf,
    pub(crate) url: String,
    child: Child,
    temp: Option<TempDir>,
}

/// A home with a driver that plays this.
fn home(scenario: &str) -> TempDir {
    let home = tempfile::tempdir().unwrap();
    fake_nvml::install(home.path(), scenario).unwrap();
    home
}

impl Agent {
    pub(crate) fn start(scenario: &str, args: &[&str]) -> Self {
        let temp = home(scenario);
        let mut agent = Self::start_in(temp.path(), args);
        agent.temp = Some(temp);
        agent
    }

    fn command(home: &Path, args: &[&str]) -> Command {
        let mut command = Self::command_without_root(home, args);
        // The machine of the test: nothing of the real one is a part of it.
        command.arg("--root").arg(home.join("root"));
        command
    }

    fn command_without_root(home: &Path, args: &[&str]) -> Command {
        let mut command = truegauge(home);
        let library = home.join("libnvidia-ml.so.1");
        command.args(["agent", "--json", "--listen", "127.0.0.1:0", "--interval", "100ms"]);
        if !args.contains(&"--kmsg") {
            command.args(["--kmsg", "none"]);
        }
        command.arg("--state-dir").arg(home.join("state")).arg("--gpu-library").arg(library).args(args);
        command
    }

    pub(crate) fn start_in(home: &Path, args: &[&str]) -> Self {
        let log = std::fs::OpenOptions::new().create(true).append(true).open(home.join("log")).unwrap();
        let mut child = Self::command(home, args)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .unwrap();
        let mut first = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut first).unwrap();
        let greeting: Value = serde_json::from_str(&first).unwrap_or_else(|error| {
            let _ = child.wait();
            panic!("{error} in {first:?}; log: {}", std::fs::read_to_string(home.join("log")).unwrap())
        });
        let url = greeting["metrics"].as_str().unwrap().trim_end_matches("/metrics").to_owned();
        Self { home: home.to_owned(), url, child, temp: None }
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    pub(crate) fn terminate(&mut self) -> i32 {
        self.signal(Signal::TERM);
        self.child.wait().unwrap().code().unwrap_or(-1)
    }

    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.home.join("log")).unwrap()
    }

    /// Status and body of a page.
    fn ask(&self, path: &str, authorization: &str) -> (u16, String) {
        let address = self.url.trim_start_matches("http://");
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(DEADLINE)).unwrap();
        let mut request = format!("GET {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n");
        if !authorization.is_empty() {
            let _ = write!(request, "authorization: {authorization}\r\n");
        }
        stream.write_all(format!("{request}\r\n").as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
    }

    /// The page, once it has a line that begins so.
    pub(crate) fn page_with(&self, line: &str) -> String {
        eventually(&format!("a line with {line} on the agent's page"), || {
            let (_, page) = self.ask("/metrics", "");
            page.lines().any(|found| found.starts_with(line)).then_some(page)
        })
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(crate) fn encoded(query: &str) -> String {
    query.bytes().fold(String::new(), |mut text, byte| {
        if byte.is_ascii_alphanumeric() || b"-_.".contains(&byte) {
            text.push(byte as char);
        } else {
            let _ = write!(text, "%{byte:02X}");
        }
        text
    })
}

pub(crate) fn result(server: &Server, query: &str) -> Vec<Value> {
    let answer = server.get(&format!("/api/v1/query?query={}", encoded(query)));
    answer["data"]["result"].as_array().unwrap().clone()
}

/// The one value of a query.
pub(crate) fn value(server: &Server, query: &str) -> Option<f64> {
    let result = result(server, query);
    assert!(result.len() < 2, "{query}: {result:?}");
    result.first().map(|row| row["value"][1].as_str().unwrap().parse().unwrap())
}

/// Every stored value of a series in the last hour, by time.
fn stored(server: &Server, selector: &str) -> Vec<f64> {
    let rows = result(server, &format!("{selector}[1h]"));
    let values = rows.first().map(|row| row["values"].as_array().unwrap().clone()).unwrap_or_default();
    values.iter().map(|pair| pair[1].as_str().unwrap().parse().unwrap()).collect()
}

fn events(server: &Server, kind: &str) -> Vec<Value> {
    server.get(&format!("/api/tg/v1/events?kind={kind}"))["events"].as_array().unwrap().clone()
}

/// What promtool has against a page of metrics, line by line.
fn findings(page: &str) -> Vec<String> {
    let child = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let Ok(mut child) = child else { panic!("`promtool` is missing: apt-get install prometheus") };
    child.stdin.take().unwrap().write_all(page.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    text.lines().map(str::to_owned).collect()
}

#[test]
fn a_card_is_reported_under_canonical_names_and_units() {
    let server = Server::start(&[]);
    let mut agent = Agent::start(&scenario(&["", ""]), &["--server", &server.url, "--host", "report-1"]);
    let of = format!("{{host=\"report-1\",uuid=\"{}\"}}", uuid(1));
    let power = eventually("power at the server", || value(&server, &format!("tg_gpu_power_watts{of}")));
    assert_eq!(power, 350.5);
    // Shares of the profiling counters take two looks.
    eventually("tensor activity", || value(&server, &format!("tg_gpu_tensor_active_ratio{of}")));
    let expected = [
        ("tg_gpu_busy_ratio", 0.87),
        ("tg_gpu_graphics_active_ratio", 0.875),
        ("tg_gpu_sm_active_ratio", 0.8125),
        ("tg_gpu_tensor_active_ratio", 0.52),
        ("tg_gpu_memory_used_bytes", 21_474_836_480.0),
        ("tg_gpu_power_limit_watts", 700.0),
        ("tg_gpu_sm_clock_hertz", 1.965e9),
        ("tg_gpu_sm_clock_max_hertz", 1.98e9),
        ("tg_gpu_temperature_celsius", 61.0),
        ("tg_gpu_row_remap_pending", 1.0),
        ("tg_gpu_recovery_action", 0.0),
    ];
    for (name, wanted) in expected {
        assert_eq!(value(&server, &format!("{name}{of}")), Some(wanted), "{name}");
    }
    let with = |name: &str, more: &str| value(&server, &format!("{name}{{uuid=\"{}\",{more}}}", uuid(0)));
    assert_eq!(with("tg_gpu_throttled_seconds_total", "reason=\"sw_power\""), Some(1.5));
    assert_eq!(with("tg_gpu_throttle_active", "reason=\"hw_thermal\""), Some(1.0));
    assert_eq!(with("tg_gpu_throttle_active", "reason=\"sw_power\""), Some(0.0));
    assert_eq!(with("tg_gpu_nvlink_bytes_total", "direction=\"receive\""), Some(2_048_000.0));
    let of_field = |field: &str| with("tg_gpu_unsupported_info", &format!("field=\"{field}\""));
    eventually("what the card does not have", || of_field("memory_temperature_celsius"));
    // The driver's plain call has no number for it, and profiling has.
    assert!(value(&server, &format!("tg_gpu_pcie_receive_bytes_per_second{of}")).is_some());
    assert_eq!(of_field("pcie_receive_bytes_per_second"), None);
    assert_eq!(value(&server, "tg_node_gpus{host=\"report-1\",source=\"driver\"}"), Some(2.0));
    let info = result(&server, &format!("tg_gpu_info{{uuid=\"{}\"}}", uuid(0)));
    let labels = info[0]["metric"].as_object().unwrap();
    assert_eq!(labels["pci_bus_id"], "0000:1b:00.0");
    assert_eq!(labels["driver"], "580.95.05");
    assert!(!labels.contains_key("job") && !labels.contains_key("instance"), "{labels:?}");
    assert_eq!(events(&server, "node").iter().filter(|e| e["body"]["what"] == "agent_start").count(), 1);

    // The end of an agent is the end of its series: a value that nobody renews is none.
    assert_eq!(agent.terminate(), 0, "{}", agent.log());
    assert_eq!(value(&server, &format!("tg_gpu_power_watts{of}")), None);
    assert_eq!(result(&server, "{host=\"report-1\"}"), Vec::<Value>::new());
}

#[test]
fn the_page_is_clean_in_our_names_and_as_the_exporter_has_it_in_its() {
    let ours = Agent::start(&scenario(&["", ""]), &["--host", "page-1"]);
    let page = ours.page_with("tg_gpu_tensor_active_ratio{");
    assert_eq!(findings(&page), Vec::<String>::new());
    assert!(page.contains("truegauge_agent_looks_total{host=\"page-1\"}"), "{page}");

    let theirs = Agent::start(&scenario(&["", ""]), &["--host", "page-2", "--names", "dcgm"]);
    let page = theirs.page_with("DCGM_FI_PROF_PIPE_TENSOR_ACTIVE{");
    let labels = format!(
        "gpu=\"1\",UUID=\"{}\",pci_bus_id=\"00000000:1C:00.0\",device=\"nvidia1\",modelName=\"Fake H100\",\
         Hostname=\"page-2\",hostname=\"page-2\",DCGM_FI_DRIVER_VERSION=\"580.95.05\"",
        uuid(1)
    );
    for (name, wanted) in [
        ("DCGM_FI_DEV_SM_CLOCK", "1965"),
        ("DCGM_FI_DEV_MEM_CLOCK", "2619"),
        ("DCGM_FI_DEV_GPU_TEMP", "61"),
        ("DCGM_FI_DEV_POWER_USAGE", "350.5"),
        ("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", "123456789"),
        ("DCGM_FI_DEV_GPU_UTIL", "87"),
        ("DCGM_FI_DEV_FB_USED", "20480"),
        ("DCGM_FI_DEV_FB_RESERVED", "600"),
        ("DCGM_FI_DEV_PCIE_REPLAY_COUNTER", "4"),
        ("DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS", "1"),
        ("DCGM_FI_DEV_CLOCKS_EVENT_REASONS", "96"),
        ("DCGM_FI_DEV_THERMAL_VIOLATION", "250000000"),
        ("DCGM_FI_DEV_XID_ERRORS", "0"),
        ("DCGM_FI_PROF_GR_ENGINE_ACTIVE", "0.875"),
        ("DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", "0.52"),
        ("DCGM_FI_PROF_DRAM_ACTIVE", "0.33"),
        ("DCGM_FI_PROF_PCIE_TX_BYTES", "1000000"),
    ] {
        let line = format!("{name}{{{labels}}} {wanted}");
        assert!(page.lines().any(|found| found == line), "{line} is not in:\n{page}");
    }
    // promtool dislikes the exporter's own spelling, and nothing else.
    let of_kind = |page: &str| -> BTreeSet<String> {
        findings(page).iter().filter_map(|line| Some(line.split_once(' ')?.1.to_owned())).collect()
    };
    let on_ours = of_kind(&page);
    assert!(on_ours.iter().any(|finding| finding.contains("camelCase")), "{on_ours:?}");
    if let Ok(real) = std::fs::read_to_string(exposition("dcgm_exporter.prom")) {
        let on_theirs = of_kind(&real);
        assert!(on_ours.is_subset(&on_theirs), "{on_ours:?} beside {on_theirs:?}");
    }
}

#[test]
fn slices_of_a_board_have_their_own_memory_and_the_board_its_power() {
    let slice = |instance: u32, used: u64| {
        format!(
            "[[gpu.instances]]\nuuid = \"MIG-{instance}\"\ngpu_instance = {instance}\n\
             values = {{ memory_total = 4194304, memory_used = {used}, gpm_5 = 25000, gpm_1 = 50000 }}\n"
        )
    };
    let scenario = format!("{}{}{}", scenario(&["mig = true"]), slice(3, 1_048_576), slice(9, 2_097_152));
    let agent = Agent::start(&scenario, &["--host", "mig-1"]);
    let page = agent.page_with("tg_gpu_tensor_active_ratio{");
    let of = |name: &str| -> Vec<String> {
        let labels = format!("{name}{{host=\"mig-1\",gpu=\"0\",uuid=\"{}\"", uuid(0));
        page.lines().filter_map(|line| line.strip_prefix(&labels)).map(str::to_owned).collect()
    };
    assert_eq!(of("tg_gpu_power_watts"), ["} 350.5"]);
    assert_eq!(of("tg_gpu_memory_used_bytes"), [",gi=\"3\"} 1048576", ",gi=\"9\"} 2097152"]);
    assert_eq!(of("tg_gpu_tensor_active_ratio"), [",gi=\"3\"} 0.25", ",gi=\"9\"} 0.25"]);
    assert_eq!(findings(&page), Vec::<String>::new());

    let agent = Agent::start(&scenario, &["--host", "mig-2", "--names", "dcgm"]);
    let page = agent.page_with("DCGM_FI_PROF_PIPE_TENSOR_ACTIVE{");
    let count = |begin: &str| page.lines().filter(|line| line.starts_with(begin)).count();
    assert_eq!((count("DCGM_FI_DEV_POWER_USAGE{"), count("DCGM_FI_DEV_FB_USED{")), (1, 2));
    assert!(page.contains("GPU_I_ID=\"9\""), "{page}");
}

fn exposition(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data/expositions").join(name)
}

#[test]
fn every_query_of_the_public_dashboard_has_data() {
    let agent = Agent::start(&scenario(&["", ""]), &["--host", "dash-1", "--names", "dcgm"]);
    agent.page_with("DCGM_FI_PROF_PIPE_TENSOR_ACTIVE{");
    let page = format!("{}/metrics", agent.url);
    let server = Server::start(&["--scrape", &page, "--scrape-interval", "1s"]);
    // Grafana 12239 as it is published (by instance) and as the exporter's sources have it (by Hostname):
    // what it asks, with its variables filled in as Grafana does for "all".
    let all = ["instance=~\".*\"", "Hostname=~\"dash-1\"", "Hostname=~\".+\""];
    let asked = |all: &str| {
        let of = |metric: &str| format!("{metric}{{{all}, gpu=~\"0|1\"}}");
        let most = |metric: &str| format!("max({}) by (Hostname, gpu, GPU_I_ID, GPU_I_PROFILE)", of(metric));
        [
            of("DCGM_FI_DEV_FB_FREE"),
            of("DCGM_FI_DEV_GPU_TEMP"),
            format!("avg({})", of("DCGM_FI_DEV_GPU_TEMP")),
            of("DCGM_FI_DEV_POWER_USAGE"),
            format!("sum({})", of("DCGM_FI_DEV_POWER_USAGE")),
            format!("sum(max({}) by (gpu))", of("DCGM_FI_DEV_POWER_USAGE")),
            format!("{} * 1000000", of("DCGM_FI_DEV_SM_CLOCK")),
            of("DCGM_FI_DEV_GPU_UTIL"),
            most("DCGM_FI_PROF_GR_ENGINE_ACTIVE"),
            most("DCGM_FI_PROF_PIPE_TENSOR_ACTIVE"),
            of("DCGM_FI_DEV_FB_USED"),
            most("DCGM_FI_DEV_FB_USED"),
        ]
    };
    eventually("a scrape", || (!result(&server, "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE").is_empty()).then_some(()));
    for query in all.iter().flat_map(|all| asked(all)) {
        assert!(!result(&server, &query).is_empty(), "{query} has no data");
    }
    for label in ["instance", "Hostname", "gpu"] {
        let values = server.get(&format!("/api/v1/label/{label}/values?match[]=DCGM_FI_DEV_FB_FREE"));
        assert!(!values["data"].as_array().unwrap().is_empty(), "{label} has no values");
    }
}

/// Hands connections on to a server that may be away, under an address that stays.
pub(crate) struct Door {
    pub(crate) url: String,
    to: Arc<Mutex<Option<String>>>,
}

impl Door {
    pub(crate) fn open(server: &Server) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let to = Arc::new(Mutex::new(Some(server.address().to_owned())));
        let target = to.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let target = target.lock().unwrap().clone();
                if let (Ok(stream), Some(target)) = (stream, target) {
                    std::thread::spawn(move || hand_on(stream, &target));
                }
            }
        });
        Self { url, to }
    }

    pub(crate) fn lead_to(&self, server: Option<&Server>) {
        *self.to.lock().unwrap() = server.map(|server| server.address().to_owned());
    }
}

fn hand_on(from: TcpStream, to: &str) {
    let Ok(to) = TcpStream::connect(to) else { return };
    let (mut a, mut b) = (from.try_clone().unwrap(), to.try_clone().unwrap());
    let up = std::thread::spawn(move || {
        let _ = std::io::copy(&mut a, &mut b);
        let _ = b.shutdown(Shutdown::Both);
    });
    let (mut a, mut b) = (to, from);
    let _ = std::io::copy(&mut a, &mut b);
    let _ = b.shutdown(Shutdown::Both);
    let _ = up.join();
}

fn own(agent: &Agent, metric: &str) -> f64 {
    let page = agent.page_with(metric);
    let line = page.lines().find(|line| line.starts_with(metric)).unwrap().to_owned();
    line.rsplit(' ').next().unwrap().parse().unwrap()
}

#[test]
fn no_look_is_lost_or_doubled_by_crashes_of_agent_and_server() {
    let mut server = Server::start(&[]);
    let door = Door::open(&server);
    let home = home(&scenario(&[""]));
    let args = ["--server", &door.url, "--host", "crash-1"];
    let mut agent = Agent::start_in(home.path(), &args);
    let looks = "truegauge_agent_looks_total{";
    let after = |agent: &Agent, more: f64| {
        let before = own(agent, looks);
        eventually("more looks", || (own(agent, looks) >= before + more).then_some(()));
    };
    eventually("a first delivery", || {
        (own(&agent, "truegauge_agent_delivered_requests_total{") > 2.0).then_some(())
    });
    server.kill();
    door.lead_to(None);
    after(&agent, 5.0);
    let waiting = own(&agent, "truegauge_agent_spool_bytes{");
    assert!(waiting > 0.0, "what the server misses is on disk");
    let first = own(&agent, looks);
    agent.kill();

    // The next agent goes on while nobody answers, then the server is there again.
    let mut agent = Agent::start_in(home.path(), &args);
    after(&agent, 5.0);
    server.restart();
    door.lead_to(Some(&server));
    eventually("an empty spool", || {
        let counts = stored(&server, "truegauge_agent_looks_total{host=\"crash-1\"}");
        (counts.len() as f64 > first + 5.0).then_some(())
    });
    assert_eq!(agent.terminate(), 0, "{}", agent.log());

    let counts = stored(&server, "truegauge_agent_looks_total{host=\"crash-1\"}");
    let restart = 1 + counts.windows(2).position(|pair| pair[1] < pair[0]).expect("a second agent");
    let (one, two) = counts.split_at(restart);
    let in_turn = |counts: &[f64]| counts.iter().zip(1..).all(|(count, turn)| *count == f64::from(turn));
    assert!(in_turn(one) && one.len() as f64 >= first, "{first}: {one:?}");
    assert!(in_turn(two) && two.len() >= 5, "{two:?}");
    let starts = events(&server, "node");
    assert_eq!(starts.iter().filter(|e| e["body"]["what"] == "agent_start").count(), 2, "{starts:?}");
    // Nothing is left behind.
    let spools: Vec<_> = std::fs::read_dir(home.path().join("state/spool")).unwrap().collect();
    assert!(spools.is_empty(), "{spools:?}");
}

#[test]
fn a_spool_that_is_full_loses_what_it_counts() {
    let server = Server::start(&[]);
    let door = Door::open(&server);
    door.lead_to(None);
    let args =
        ["--server", &door.url, "--host", "full-1", "--spool-bytes-max", "16KiB", "--interval", "100ms"];
    let agent = Agent::command(home(&scenario(&[""])).path(), &args).args(["--host", "x"]).output().unwrap();
    assert_eq!(agent.status.code(), Some(2), "an argument given twice is told");

    let temp = home(&scenario(&[""]));
    let agent = Agent::start_in(temp.path(), &args[..6]);
    // Beyond the disk's share memory takes some; neither grows without end.
    eventually("a spool at its bound", || {
        (own(&agent, "truegauge_agent_spool_bytes{") > 4_096.0 && agent.log().contains("its bound is"))
            .then_some(())
    });
    let bytes = own(&agent, "truegauge_agent_spool_bytes{");
    assert!(bytes <= 16_384.0, "{bytes}");
    door.lead_to(Some(&server));
    eventually("what waited, delivered", || {
        (own(&agent, "truegauge_agent_spool_bytes{") < 4_096.0).then_some(())
    });
    let counts = stored(&server, "truegauge_agent_looks_total{host=\"full-1\"}");
    assert!(
        counts.windows(2).all(|pair| pair[1] == pair[0] + 1.0),
        "memory kept what the disk refused: {counts:?}"
    );
    assert_eq!(counts.first(), Some(&1.0));
}

#[test]
fn one_agent_reports_a_node() {
    let temp = home(&scenario(&[""]));
    let server = Server::start(&[]);
    let _first = Agent::start_in(temp.path(), &["--server", &server.url, "--host", "twice-1"]);
    let root = temp.path().join("root");
    let said = |args: &[&str], home: &Path| {
        let output = Agent::command_without_root(home, args).arg("--root").arg(&root).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    let same_state = said(&["--host", "other-1"], temp.path());
    assert!(
        same_state.contains("cannot use the state directory") && same_state.contains("--state-dir"),
        "{same_state}"
    );
    let other = home(&scenario(&[""]));
    let same_host = said(&["--host", "twice-1"], other.path());
    assert!(same_host.contains("another agent on this machine does"), "{same_host}");

    // One on another machine that has the same name: the server tells.
    eventually("the first agent's series", || {
        value(&server, "tg_node_gpus{host=\"twice-1\",source=\"driver\"}")
    });
    let sample = model::Sample { time_ns: 1_796_000_000_000_000_000, value: 7.0, step: None };
    let labels = [("host".to_owned(), "twice-1".to_owned()), ("source".to_owned(), "pci".to_owned())];
    let node = |agent: u8, leaves| Node {
        host: "twice-1".into(),
        agent_id: vec![agent; 16],
        pid: 4711,
        interval_ms: 100,
        leaves,
        ..Node::default()
    };
    let request = |sequence| PushRequest {
        client_id: vec![9; 16],
        sequence,
        node: Some(node(9, false)),
        series: vec![Series::new("tg_node_gpus", &labels, "", &[sample])],
        ..PushRequest::default()
    };
    for sequence in 1..3 {
        let answer = server.push(&request(sequence)).1.unwrap();
        assert_eq!(answer.stored, 0);
        assert_eq!(answer.refused[0].reason, "node_reported_elsewhere", "{answer:?}");
    }
    let told = events(&server, "node");
    let told: Vec<_> = told.iter().filter(|event| event["body"]["what"] == "two_agents").collect();
    assert_eq!(told.len(), 1, "{told:?}");
    assert_eq!(told[0]["severity"], "warning");
    assert_eq!(told[0]["body"]["pid"], 4711);
}

#[test]
fn a_card_that_falls_off_is_an_event_and_its_series_end() {
    let server = Server::start(&[]);
    let temp = home(&scenario(&["", ""]));
    let agent = Agent::start_in(temp.path(), &["--server", &server.url, "--host", "gone-1"]);
    let power = |index| value(&server, &format!("tg_gpu_power_watts{{uuid=\"{}\"}}", uuid(index)));
    eventually("both cards", || power(0).and(power(1)));
    fake_nvml::play(temp.path(), &scenario(&["", "gone = true"])).unwrap();
    let event = eventually("the event", || events(&server, "inventory").into_iter().next());
    assert_eq!(event["labels"]["uuid"], uuid(1));
    assert_eq!(
        (event["severity"].as_str(), event["body"]["what"].as_str()),
        (Some("critical"), Some("gone"))
    );
    eventually("the end of its series", || power(1).is_none().then_some(()));
    assert_eq!(power(0), Some(350.5));
    assert_eq!(value(&server, "tg_node_gpus{host=\"gone-1\",source=\"driver\"}"), Some(1.0));
    fake_nvml::play(temp.path(), &scenario(&["", ""])).unwrap();
    eventually("its return", || power(1));
    let what: Vec<_> = events(&server, "inventory").iter().map(|e| e["body"]["what"].clone()).collect();
    assert_eq!(what, ["back", "gone"]);

    // A reset needs a card that nobody has open: the agent lets go when it is told, and comes back.
    agent.signal(Signal::USR1);
    let closed = || fake_nvml::system_calls(temp.path(), "nvmlShutdown");
    let before = eventually("the driver let go", || (closed() > 0).then(closed));
    assert_eq!(before, 1);
    let (_, page) = agent.ask("/metrics", "");
    eventually("a page without cards", || {
        (!agent.ask("/metrics", "").1.contains("tg_gpu_power_watts{")).then_some(())
    });
    assert!(page.contains("truegauge_agent_looks_total{"), "the rest goes on");
    agent.signal(Signal::USR1);
    agent.page_with("tg_gpu_power_watts{");
}

#[test]
fn an_xid_of_the_kernels_log_is_an_event_a_count_and_the_exporters_gauge() {
    let server = Server::start(&[]);
    let temp = home(&scenario(&["", ""]));
    let log = temp.path().join("kern.log");
    std::fs::write(&log, "").unwrap();
    let log_name = log.to_str().unwrap();
    let args = ["--server", &server.url, "--host", "xid-1", "--kmsg", log_name, "--names", "dcgm"];
    let mut agent = Agent::start_in(temp.path(), &args);
    agent.page_with("DCGM_FI_DEV_XID_ERRORS{");
    let line = "NVRM: Xid (PCI:0000:1c:00): 79, pid=4242, name=python3, GPU has fallen off the bus.\n";
    let mut file = std::fs::OpenOptions::new().append(true).open(&log).unwrap();
    file.write_all(line.as_bytes()).unwrap();
    let event = eventually("the event", || events(&server, "xid").into_iter().next());
    assert_eq!(event["labels"]["uuid"], uuid(1));
    assert_eq!(event["body"]["xid"], 79);
    let counted = format!("tg_gpu_xid_events_total{{uuid=\"{}\",xid=\"79\"}}", uuid(1));
    assert_eq!(eventually("its count", || value(&server, &counted)), 1.0);
    let gauge = agent.page_with("DCGM_FI_DEV_XID_ERRORS{gpu=\"1\"");
    let last: Vec<&str> = gauge
        .lines()
        .filter(|line| line.starts_with("DCGM_FI_DEV_XID_ERRORS{"))
        .map(|line| line.rsplit(' ').next().unwrap())
        .collect();
    assert_eq!(last, ["0", "79"]);

    // A crash and a start neither repeat nor lose a line.
    agent.kill();
    file.write_all(line.replace("79", "94").as_bytes()).unwrap();
    let _agent = Agent::start_in(temp.path(), &args);
    eventually("the second event", || (events(&server, "xid").len() > 1).then_some(()));
    let xids: Vec<_> = events(&server, "xid").iter().map(|event| event["body"]["xid"].clone()).collect();
    assert_eq!(xids, [94, 79]);
}

#[test]
fn metrics_ask_for_the_token_and_open_addresses_want_one() {
    let agent = Agent::start(&scenario(&[""]), &["--host", "token-1", "--metrics-token", "secret"]);
    assert_eq!(agent.ask("/metrics", "").0, 401);
    assert_eq!(agent.ask("/metrics", "Bearer secrets").0, 401);
    assert_eq!(agent.ask("/metrics", "Bearer secret").0, 200);
    assert_eq!(agent.ask("/healthz", "").0, 200);
    assert_eq!(agent.ask("/nowhere", "").0, 404);
    let temp = tempfile::tempdir().unwrap();
    let state = temp.path().join("s");
    let (code, _, said) =
        run(temp.path(), &["agent", "--listen", "0.0.0.0:0", "--state-dir", state.to_str().unwrap()]);
    assert_eq!(code, 2);
    assert!(said.contains("not loopback") && said.contains("--metrics-token-file"), "{said}");
    let (code, _, said) =
        run(temp.path(), &["agent", "--server", "gopher://x", "--state-dir", state.to_str().unwrap()]);
    assert_eq!(code, 2);
    assert!(said.contains("gopher://x") && said.contains("http://host:9494"), "{said}");
}

#[test]
fn a_token_for_some_projects_may_not_report_a_node() {
    let server = Server::start(&["--token", "admin"]);
    let mut create = truegauge(&server.home);
    create.args(["token", "create", "--scope", "ingest", "--project", "p", "--url", &server.url]);
    let output = create.env("TRUEGAUGE_TOKEN", "admin").output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let token = String::from_utf8(output.stdout).unwrap();
    let agent = Agent::start(
        &scenario(&[""]),
        &["--host", "bounded-1", "--server", &server.url, "--token", token.trim()],
    );
    eventually("words on the refusal", || agent.log().contains("for all projects").then_some(()));
    let agent =
        Agent::start(&scenario(&[""]), &["--host", "bounded-2", "--server", &server.url, "--token", "admin"]);
    eventually("a delivery", || {
        (own(&agent, "truegauge_agent_delivered_requests_total{") > 0.0).then_some(())
    });
}
