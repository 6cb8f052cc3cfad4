//! What the driver tells by itself, beside what the kernel's log tells of the same.

use std::{
    fmt::Write,
    time::{Duration, Instant},
};

use agent::{
    DriverEvents, KernelLog, LogInput, LogOptions, SharedCards, SharedHeard, Snapshot, Source, Tick,
};
use collect::{
    Host,
    gpu::{GpuEvents, GpuOptions, GpuSampler},
};
use model::Event;
use serde_json::{Value, json};

use crate::log::{NOW_NS, Node, body, codes, xid};

/// A driver with two cards, and what listens to it.
struct Driver {
    folder: tempfile::TempDir,
    sampler: GpuSampler,
    events: GpuEvents,
    told: String,
    recovery: u32,
}

impl Driver {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let library = fake_nvml::install(folder.path(), &scenario(0, "")).unwrap();
        let events = GpuEvents::default();
        let options =
            GpuOptions { library: Some(library), events: Some(events.clone()), ..GpuOptions::default() };
        let sampler = GpuSampler::open(&options).unwrap();
        let driver = Self { folder, sampler, events, told: String::new(), recovery: 0 };
        driver.await_calls("nvmlEventSetWait_v2", 1);
        driver
    }

    fn await_calls(&self, function: &str, count: usize) {
        let end = Instant::now() + Duration::from_mins(1);
        while fake_nvml::system_calls(self.folder.path(), function) < count && Instant::now() < end {
            std::thread::yield_now();
        }
    }

    /// The driver tells an event of a card; it is heard when this returns.
    fn tells(&mut self, gpu: u32, kind: u32, data: u32) {
        let calls = fake_nvml::system_calls(self.folder.path(), "nvmlEventSetWait_v2");
        write!(self.told, "[[event]]\ngpu = {gpu}\nkind = {kind}\ndata = {data}\n").unwrap();
        self.play();
        // The wait that follows the one that was told.
        self.await_calls("nvmlEventSetWait_v2", calls + 1);
    }

    fn asks_for(&mut self, action: u32) {
        self.recovery = action;
        self.play();
        self.sampler.sample(&[0, 1], &mut |_, _| {});
    }

    fn play(&self) {
        fake_nvml::play(self.folder.path(), &scenario(self.recovery, &self.told)).unwrap();
    }
}

fn scenario(recovery: u32, told: &str) -> String {
    format!(
        "driver_version = \"570.86.15\"\n\
         [[gpu]]\nuuid = \"GPU-0\"\nbus_id = \"00000000:43:00.0\"\nvalues = {{ field_230 = {recovery} }}\n\
         [[gpu]]\nuuid = \"GPU-1\"\nbus_id = \"00000000:9A:00.0\"\nvalues = {{ field_230 = 0 }}\n{told}"
    )
}

fn look(source: &mut dyn Source, time_ns: i64) -> Snapshot {
    let mut snapshot = Snapshot::default();
    source.read(&Tick { time_ns, elapsed: Duration::ZERO, host: "node-031" }, &mut snapshot);
    snapshot
}

fn fields(event: &Event) -> (&str, &str, Value) {
    (&event.kind, event.severity.name(), body(event))
}

#[test]
fn without_a_log_every_word_of_the_driver_is_an_event() {
    let mut driver = Driver::new();
    let mut told = DriverEvents::new(driver.events.clone(), SharedHeard::default(), None);
    driver.tells(0, 8, 79);
    driver.tells(1, 2, 0);
    driver.tells(1, 0x4000, 0);
    let mut events = Vec::new();
    let end = Instant::now() + Duration::from_mins(1);
    while events.len() < 3 && Instant::now() < end {
        events.extend(look(&mut told, NOW_NS).events);
    }
    // The Xid waited for its turn.
    events.sort_by(|one, other| one.kind.cmp(&other.kind));
    assert_eq!(fields(&events[0]), ("ecc", "critical", json!({ "what": "double_bit" })));
    let unavailable = json!({ "fault": "unavailable", "vendor": "nvidia" });
    assert_eq!(fields(&events[1]), ("gpu_fault", "critical", unavailable));
    assert_eq!(fields(&events[2]), ("xid", "critical", json!({ "xid": 79, "count": 1 })));
    let label = |name| events[2].label(name);
    assert_eq!((label("source"), label("uuid"), label("gpu")), (Some("driver"), Some("GPU-0"), Some("0")));
    assert_eq!(label("pci_bus_id"), Some("0000:43:00.0"));
    assert!(events[2].text.contains("Xid 79") && events[2].time_ns <= NOW_NS, "{}", events[2].text);
    let mut keys: Vec<&str> = events.iter().map(|event| &*event.key).collect();
    keys.dedup();
    assert_eq!(keys.len(), 3);
}

#[test]
fn an_xid_that_the_log_tells_too_is_told_once() {
    let mut driver = Driver::new();
    let mut node = Node::new();
    let heard = SharedHeard::default();
    let cards = SharedCards::default();
    let card = |gpu: usize| agent::Card {
        device: driver.sampler.devices()[gpu].clone(),
        processes: Ok(Vec::new()),
        answers: true,
    };
    cards.lock().all = vec![card(0), card(1)];
    let options = LogOptions {
        input: LogInput::File(node.path("kern.log")),
        state: Some(node.path("state")),
        machine: Host::at(node.folder.path()),
    };
    let mut log = KernelLog::new(options, cards, heard.clone());
    let mut told = DriverEvents::new(driver.events.clone(), heard, None);
    node.write("kern.log", xid(48, "An uncorrectable double bit error"));
    driver.tells(0, 8, 48);
    driver.tells(1, 8, 48);
    assert_eq!(codes(&node.events(&mut log)), [48]);
    // One was logged, the other may still be.
    let now_ns = NOW_NS + 10_000_000_000;
    assert_eq!(look(&mut told, now_ns).events, []);
    assert_eq!(look(&mut told, now_ns + 3_000_000_000).events, []);
    let events = look(&mut told, now_ns + 10_000_000_000).events;
    assert_eq!((codes(&events), events[0].label("uuid")), (vec![48], Some("GPU-1")));
    assert!(events[0].time_ns <= now_ns, "when it was heard");
    // What the log did not tell is counted with what it did.
    let readings = node.look(&mut log).readings;
    let of_1 = readings.iter().find(|reading| reading.labels.contains(&("uuid", "GPU-1".to_owned())));
    assert_eq!(of_1.map(|reading| reading.value), Some(1.0));
}

#[test]
fn another_recovery_action_is_an_event_also_over_a_restart() {
    let mut driver = Driver::new();
    let state = tempfile::tempdir().unwrap();
    let start = |events: &GpuEvents| {
        DriverEvents::new(events.clone(), SharedHeard::default(), Some(state.path().to_owned()))
    };
    let mut told = start(&driver.events);
    driver.asks_for(0);
    assert_eq!(look(&mut told, NOW_NS).events, [], "nothing is asked for, as always");
    driver.asks_for(2);
    let events = look(&mut told, NOW_NS).events;
    told.kept();
    let want = json!({ "from": 0, "to": 2, "words": "Node Reboot" });
    assert_eq!(fields(&events[0]), ("recovery", "critical", want));
    assert_eq!((events[0].label("source"), events[0].label("uuid")), (Some("driver"), Some("GPU-0")));
    // A restart hears the same action for the first time.
    let (sampler, folder) = (&mut driver.sampler, driver.folder.path());
    let options = GpuOptions {
        library: Some(folder.join("libnvidia-ml.so.1")),
        events: Some(GpuEvents::default()),
        ..GpuOptions::default()
    };
    *sampler = GpuSampler::open(&options).unwrap();
    driver.events = options.events.unwrap();
    let mut told = start(&driver.events);
    driver.asks_for(2);
    assert_eq!(look(&mut told, NOW_NS).events, []);
    driver.asks_for(0);
    let events = look(&mut told, NOW_NS).events;
    assert_eq!(fields(&events[0]), ("recovery", "info", json!({ "from": 2, "to": 0, "words": "None" })));
}

#[test]
fn a_first_look_at_a_card_that_needs_a_reset_tells_it() {
    let mut driver = Driver::new();
    let mut told = DriverEvents::new(driver.events.clone(), SharedHeard::default(), None);
    driver.asks_for(4);
    let events = look(&mut told, NOW_NS).events;
    assert_eq!(body(&events[0]), json!({ "to": 4, "words": "Drain and Reset" }));
}
