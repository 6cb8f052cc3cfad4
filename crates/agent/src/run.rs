//! The agent: a look at the node at every interval, shown to whoever asks and sent to the server.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use model::{Event, NANOS_PER_MILLI, Sample, Severity, stale_marker};
use wire::push::{Node, PushRequest, Series};

use crate::config::{Config, ConfigError};
use crate::http::{self, Pages};
use crate::outbox::{Kept, Outbox};
use crate::own;
use crate::push::{Delivery, ServerError, Transport, points};
use crate::shown::Shown;
use crate::state::{State, StateError, random, to_hex};
use crate::tick::{Reading, Snapshot, Source, Tick};

/// Events that wait for a disk that takes none.
const EVENTS_MAX: usize = 10_000;
/// How long the end of an agent may take for the server's sake.
const CLOSE_WITHIN: Duration = Duration::from_secs(5);

/// Why an agent can't start.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    /// Its settings.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// Its state directory, or another agent.
    #[error(transparent)]
    State(#[from] StateError),
    /// Its server.
    #[error(transparent)]
    Server(#[from] ServerError),
    /// `/metrics` would be open to anyone.
    #[error("will not serve `/metrics` on {listen} without a token: that address is not loopback")]
    Open {
        /// The address.
        listen: SocketAddr,
    },
    /// The address is taken, or not this machine's.
    #[error("cannot listen on {listen}: {source}")]
    Listen {
        /// The address.
        listen: SocketAddr,
        /// What the system said.
        source: io::Error,
    },
    /// No thread.
    #[error("cannot start a thread: {0}")]
    Thread(io::Error),
}

impl AgentError {
    /// The next step.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Config(error) => error.hint(),
            Self::State(error) => error.hint(),
            Self::Server(_) => {
                "`--server http://host:9494` names a server; without it there is `/metrics` only"
            }
            Self::Open { .. } => {
                "set `--metrics-token-file`, listen on 127.0.0.1, or take the risk with `--insecure-no-auth`"
            }
            Self::Listen { .. } => "name another address with `--listen`, or stop what has it",
            Self::Thread(_) => "raise the limit on threads (`ulimit -u`, `pids.max`)",
        }
    }
}

/// What the loop is told from outside.
#[derive(Debug, Default)]
struct Orders {
    is_ending: Mutex<bool>,
    wake: Condvar,
    /// Devices are to be let go of.
    is_hands_off: AtomicBool,
}

/// An agent at work.
pub struct Running {
    /// Where `/metrics` is.
    pub addr: SocketAddr,
    listener: std::net::TcpListener,
    pages: Arc<Pages>,
    orders: Arc<Orders>,
    outbox: Option<Arc<Outbox>>,
    looker: JoinHandle<()>,
    delivery: Option<JoinHandle<()>>,
}

/// Starts an agent of this machine.
pub fn start(config: Config) -> Result<Running, AgentError> {
    start_with(config, crate::parts::all)
}

/// Starts an agent that looks at these parts in the place of the machine's own. They are made from its
/// settings, its state directory and the id of the boot.
pub fn start_with(
    config: Config,
    parts: impl FnOnce(&Config, &Path, &str) -> Vec<Box<dyn Source>>,
) -> Result<Running, AgentError> {
    let listen = config.listen;
    if !listen.ip().is_loopback() && config.metrics_token.is_empty() && !config.insecure_no_auth {
        return Err(AgentError::Open { listen });
    }
    let transport = if config.server.is_empty() { None } else { Some(Transport::new(&config)?) };
    // A machine that is seen at another place in the file system is another one.
    let machine = if config.root == Path::new("/") {
        config.host.clone()
    } else {
        format!("{}@{}", config.host, config.root.display())
    };
    let state = State::open(&config.state_dir, &machine)?;
    let failed = |source| AgentError::Listen { listen, source };
    let listener = std::net::TcpListener::bind(listen).map_err(failed)?;
    listener.set_nonblocking(true).map_err(failed)?;
    let addr = listener.local_addr().map_err(failed)?;
    let shown = Arc::new(Shown::new(&config.host, config.names, config.interval));
    let spools = config.state_dir.join("spool");
    let client_id = random();
    let outbox = transport.is_some().then(|| {
        let name = format!("{:013}-{}", now_ns() / NANOS_PER_MILLI, to_hex(&client_id[..4]));
        Arc::new(Outbox::new(&spools.join(name), config.spool_bytes_max))
    });
    let orders = Arc::new(Orders::default());
    let token = config.metrics_token.clone();
    let boot_id = collect::Host::at(&config.root).boot_id();
    let parts = parts(&config, &state.dir, &boot_id);
    let about = (client_id, boot_id);
    let looker = Looker::new(config, state, about, parts, (shown.clone(), outbox.clone()));
    let delivery = match (transport, outbox.clone()) {
        (Some(transport), Some(outbox)) => {
            let delivery = Delivery::new(transport, outbox);
            Some(spawn("tg-push", move || delivery.run(&spools))?)
        }
        _ => None,
    };
    let told = orders.clone();
    let looker = spawn("tg-look", move || looker.run(&told))?;
    Ok(Running { addr, listener, pages: Arc::new(Pages { shown, token }), orders, outbox, looker, delivery })
}

fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>, AgentError> {
    thread::Builder::new().name(name.to_owned()).spawn(work).map_err(AgentError::Thread)
}

impl Running {
    /// Answers `/metrics` until SIGTERM or SIGINT comes, then ends in order: what waits may still go out for
    /// some seconds and stays on disk otherwise. SIGUSR1 lets go of all devices, and takes them up again.
    pub fn wait(self) -> io::Result<()> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let listener = self.listener.try_clone()?;
        let ended = runtime.block_on(async {
            let listener = tokio::net::TcpListener::from_std(listener)?;
            let server = tokio::spawn(http::serve(listener, self.pages.clone()));
            let ended = signals(&self.orders).await;
            server.abort();
            ended
        });
        // Whoever asks from here on is refused, not left waiting.
        drop(runtime);
        self.end();
        ended
    }

    /// Ends in order, as [`wait`](Self::wait) does; for one of many agents in a process, whose `/metrics`
    /// nobody answers.
    pub fn end(self) {
        drop(self.listener);
        *self.orders.is_ending.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.orders.wake.notify_all();
        // A panic of a thread was said where it happened.
        let _ = self.looker.join();
        if let Some(outbox) = &self.outbox {
            outbox.close(CLOSE_WITHIN);
        }
        if let Some(delivery) = self.delivery {
            let end = Instant::now() + CLOSE_WITHIN + Duration::from_secs(1);
            while !delivery.is_finished() && Instant::now() < end {
                thread::sleep(Duration::from_millis(5));
            }
        }
    }
}

#[cfg(unix)]
async fn signals(orders: &Orders) -> io::Result<()> {
    use tokio::signal::unix::{SignalKind, signal};

    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut user = signal(SignalKind::user_defined1())?;
    loop {
        tokio::select! {
            _ = terminate.recv() => return Ok(()),
            _ = interrupt.recv() => return Ok(()),
            _ = user.recv() => {
                let is_hands_off = !orders.is_hands_off.fetch_xor(true, Ordering::Relaxed);
                tracing::info!(is_hands_off, "told to let go of devices, or to take them up again");
                orders.wake.notify_all();
            }
        }
    }
}

#[cfg(not(unix))]
async fn signals(_orders: &Orders) -> io::Result<()> {
    tokio::signal::ctrl_c().await
}

/// Takes the looks.
struct Looker {
    config: Config,
    state: State,
    boot_id: String,
    client_id: [u8; 16],
    sequence: u64,
    shown: Arc<Shown>,
    outbox: Option<Arc<Outbox>>,
    parts: Vec<Part>,
    begun: Instant,
    looks: u64,
    skipped: u64,
    dropped_events: u64,
    /// Events that are not on disk yet.
    events: Vec<Event>,
    /// The series of the last look that were sent, by name and labels.
    series: HashMap<String, Sent>,
    /// Ends of series that are not on disk yet.
    ends: Vec<Series>,
    is_hands_off: bool,
}

/// Name and labels of a series that was sent.
type Sent = (&'static str, Vec<(&'static str, String)>);

struct Part {
    source: Box<dyn Source>,
    seconds: f64,
    panics: u64,
}

fn now_ns() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let now = i64::try_from(since.as_nanos()).unwrap_or(i64::MAX);
    now - now.rem_euclid(NANOS_PER_MILLI)
}

impl Looker {
    fn new(
        config: Config,
        state: State,
        (client_id, boot_id): ([u8; 16], String),
        parts: Vec<Box<dyn Source>>,
        (shown, outbox): (Arc<Shown>, Option<Arc<Outbox>>),
    ) -> Self {
        let part = |source| Part { source, seconds: 0.0, panics: 0 };
        let parts = parts.into_iter().map(part).collect();
        Self {
            config,
            state,
            boot_id,
            client_id,
            sequence: 0,
            shown,
            outbox,
            parts,
            begun: Instant::now(),
            looks: 0,
            skipped: 0,
            dropped_events: 0,
            events: Vec::new(),
            series: HashMap::new(),
            ends: Vec::new(),
            is_hands_off: false,
        }
    }

    fn run(mut self, orders: &Orders) {
        self.greet();
        let mut next = Instant::now();
        loop {
            self.follow(orders);
            self.look();
            next += self.config.interval;
            let now = Instant::now();
            while next <= now {
                next += self.config.interval;
                self.skipped += 1;
            }
            if wait(orders, next, self.is_hands_off) {
                break;
            }
        }
        self.end();
    }

    /// Lets go of devices, or takes them up again, as it is told.
    fn follow(&mut self, orders: &Orders) {
        let wanted = orders.is_hands_off.load(Ordering::Relaxed);
        if wanted && !self.is_hands_off {
            for part in self.parts.iter_mut().filter(|part| part.source.holds_devices()) {
                part.source.release();
            }
        }
        self.is_hands_off = wanted;
    }

    fn greet(&mut self) {
        let body = serde_json::json!({
            "what": "agent_start", "boot_id": self.boot_id, "pid": std::process::id(),
            "agent_version": env!("CARGO_PKG_VERSION"),
        });
        let host = self.config.host.clone();
        self.events.push(Event {
            time_ns: now_ns(),
            kind: "node".to_owned(),
            severity: Severity::Info,
            key: format!("agent:{}", to_hex(&self.client_id)),
            labels: vec![("host".to_owned(), host.clone()), ("source".to_owned(), "agent".to_owned())],
            text: format!("the agent of {host} starts, version {}", env!("CARGO_PKG_VERSION")),
            body: body.to_string(),
        });
    }

    fn look(&mut self) {
        let host = self.config.host.clone();
        let tick = Tick { time_ns: now_ns(), elapsed: self.begun.elapsed(), host: &host };
        let mut seen = Snapshot::default();
        for part in &mut self.parts {
            if self.is_hands_off && part.source.holds_devices() {
                continue;
            }
            let begun = Instant::now();
            // One part that fails by a fault of ours takes no other along.
            if catch_unwind(AssertUnwindSafe(|| part.source.read(&tick, &mut seen))).is_err() {
                part.panics += 1;
                tracing::error!(
                    part = part.source.name(),
                    "a part of the agent failed by a fault of its own"
                );
            }
            part.seconds += begun.elapsed().as_secs_f64();
        }
        self.looks += 1;
        self.tell_of_itself(&mut seen);
        let mut seen = unique(seen);
        let xids = seen.events.iter().filter_map(xid).collect();
        self.take_events(&mut seen.events);
        let is_kept = self.send(tick.time_ns, &seen.readings, false);
        self.shown.put(seen.readings, xids);
        if is_kept {
            for part in &mut self.parts {
                part.source.kept();
            }
        }
    }

    /// A part tells an event again until it is kept.
    fn take_events(&mut self, seen: &mut Vec<Event>) {
        let known: std::collections::HashSet<String> =
            self.events.iter().map(|event| event.key.clone()).collect();
        self.events.extend(seen.drain(..).filter(|event| !known.contains(&event.key)));
    }

    /// Hands a look over to the outbox; whether it is on disk, or nobody wants it there.
    fn send(&mut self, time_ns: i64, readings: &[Reading], leaves: bool) -> bool {
        self.follow_series(time_ns, readings);
        let Some(outbox) = self.outbox.clone() else {
            self.events.clear();
            self.ends.clear();
            return true;
        };
        self.sequence += 1;
        let request = self.request(time_ns, readings, leaves);
        let Ok(bytes) = wire::push::encode(&request) else { return false };
        let kept = outbox.put(bytes, points(&request)) == Kept::Disk;
        if kept {
            self.events.clear();
            self.ends.clear();
        } else if self.events.len() > EVENTS_MAX {
            let over = self.events.len() - EVENTS_MAX;
            self.events.drain(..over);
            self.dropped_events += over as u64;
        }
        kept
    }

    /// Ends the series that the look before had and this one has not.
    fn follow_series(&mut self, time_ns: i64, readings: &[Reading]) {
        let mut now = HashMap::with_capacity(readings.len());
        for reading in readings {
            now.insert(key(reading), (reading.desc.name, reading.labels.clone()));
        }
        let host = &self.config.host;
        for (key, (name, labels)) in self.series.drain() {
            if !now.contains_key(&key) {
                let end = [Sample { time_ns, value: stale_marker(), step: None }];
                self.ends.push(Series::new(name, &all_labels(host, &labels), "", &end));
            }
        }
        self.series = now;
    }

    fn request(&self, time_ns: i64, readings: &[Reading], leaves: bool) -> PushRequest {
        let host = &self.config.host;
        let series = readings.iter().map(|reading| {
            let sample = [Sample { time_ns, value: reading.value, step: None }];
            Series::new(reading.desc.name, &all_labels(host, &reading.labels), "", &sample)
        });
        PushRequest {
            client_id: self.client_id.to_vec(),
            sequence: self.sequence,
            series: series.chain(self.ends.iter().cloned()).collect(),
            node: Some(Node {
                host: host.clone(),
                boot_id: self.boot_id.clone(),
                agent_version: env!("CARGO_PKG_VERSION").to_owned(),
                pid: std::process::id(),
                interval_ms: self.config.interval.as_millis() as u64,
                agent_id: self.state.agent_id.to_vec(),
                time_ms: time_ns / NANOS_PER_MILLI,
                leaves,
            }),
            events: self.events.iter().map(Into::into).collect(),
            ..PushRequest::default()
        }
    }

    fn tell_of_itself(&self, seen: &mut Snapshot) {
        let mut tell = |desc, labels: Vec<(&'static str, String)>, value: f64| {
            seen.readings.push(Reading { desc, labels, value });
        };
        tell(&own::INFO, vec![("version", env!("CARGO_PKG_VERSION").to_owned())], 1.0);
        tell(&own::INTERVAL, Vec::new(), self.config.interval.as_secs_f64());
        tell(&own::LOOKS, Vec::new(), self.looks as f64);
        tell(&own::SKIPPED, Vec::new(), self.skipped as f64);
        for part in &self.parts {
            let name = || vec![("source", part.source.name().to_owned())];
            tell(&own::SECONDS, name(), part.seconds);
            if part.panics > 0 {
                tell(&own::PANICS, name(), part.panics as f64);
            }
        }
        if let Some((cpu, memory)) = own::usage() {
            tell(&own::CPU, Vec::new(), cpu);
            tell(&own::MEMORY, Vec::new(), memory);
        }
        tell(&own::DROPPED_EVENTS, Vec::new(), self.dropped_events as f64);
        let Some(outbox) = &self.outbox else { return };
        let counts = outbox.counts();
        tell(&own::SPOOL, Vec::new(), outbox.spool_bytes() as f64);
        tell(&own::DELIVERED, Vec::new(), counts.delivered as f64);
        tell(&own::FAILED, Vec::new(), counts.failed as f64);
        let dropped = [
            ("spool_full", counts.spool_full),
            ("spool_unavailable", counts.spool_unavailable),
            ("spool_damage", counts.spool_damage),
            ("refused_batch", counts.refused_batch),
            ("refused", counts.refused),
        ];
        for (reason, count) in dropped {
            tell(&own::DROPPED, vec![("reason", reason.to_owned())], count as f64);
        }
    }

    /// The last word: every series ends where nobody looks any more.
    fn end(mut self) {
        for part in &mut self.parts {
            part.source.release();
        }
        self.send(now_ns(), &[], true);
    }
}

/// Waits until the next look is due or devices are wanted differently; whether the agent ends.
fn wait(orders: &Orders, until: Instant, is_hands_off: bool) -> bool {
    let mut is_ending = orders.is_ending.lock().unwrap_or_else(PoisonError::into_inner);
    loop {
        let left = until.saturating_duration_since(Instant::now());
        if *is_ending || left.is_zero() || orders.is_hands_off.load(Ordering::Relaxed) != is_hands_off {
            return *is_ending;
        }
        is_ending = orders.wake.wait_timeout(is_ending, left).unwrap_or_else(PoisonError::into_inner).0;
    }
}

fn key(reading: &Reading) -> String {
    let mut key = reading.desc.name.to_owned();
    for (name, value) in &reading.labels {
        key.push('\u{1}');
        key.push_str(name);
        key.push('\u{2}');
        key.push_str(value);
    }
    key
}

/// Keeps numbers only, and the first of two readings of one series.
fn unique(mut seen: Snapshot) -> Snapshot {
    let mut known = std::collections::HashSet::with_capacity(seen.readings.len());
    seen.readings.retain(|reading| reading.value.is_finite() && known.insert(key(reading)));
    seen
}

fn all_labels(host: &str, labels: &[(&'static str, String)]) -> Vec<(String, String)> {
    let others = labels.iter().filter(|(_, value)| !value.is_empty());
    std::iter::once(("host".to_owned(), host.to_owned()))
        .chain(others.map(|(name, value)| ((*name).to_owned(), value.clone())))
        .collect()
}

/// The card and the number of an Xid that the kernel or the driver told.
fn xid(event: &Event) -> Option<(String, u64)> {
    if event.kind != "xid" || event.label("source") == Some("userspace") {
        return None;
    }
    let body: BTreeMap<String, serde_json::Value> = serde_json::from_str(&event.body).ok()?;
    Some((event.label("uuid")?.to_owned(), body.get("xid")?.as_u64()?))
}

/// Where an agent keeps what waits, for whoever looks at it from outside.
pub fn spool_dir(state_dir: &Path) -> PathBuf {
    state_dir.join("spool")
}
