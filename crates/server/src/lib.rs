//! The truegauge server: takes points in, answers for runs, shows the UI.
//!
//! Layer 2; knows nothing of collecting. [`start`] gives a [`Running`] server, in this process:
//!
//! ```no_run
//! let config = server::Config { listen: "127.0.0.1:0".parse()?, ..server::Config::default() };
//! let running = server::start(config)?;
//! println!("{}", running.url);
//! running.stop();
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod about;
mod access;
mod adapters;
mod adopt;
mod api;
mod app;
mod backup_place;
mod board;
pub mod calc;
mod canonical;
mod claims;
mod clock;
mod compare;
mod complete;
pub mod config;
mod duration;
mod engines;
mod error;
mod export;
mod far;
mod files;
mod filter;
mod fleet;
mod grid;
mod grpc;
mod guard;
mod ingest;
mod intake;
mod known;
mod linger;
mod live;
mod m4;
mod metrana;
mod metrics;
mod node;
mod notify;
pub mod offline;
mod otlp;
mod own;
mod owners;
mod peak;
mod points;
mod query;
mod reload;
mod remediation;
mod ruling;
mod scraping;
mod serve;
mod smooth;
mod source;
mod starters;
mod tls;
mod ui;
mod unpack;
mod upkeep;
mod verdicts;

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use store::Store;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;

pub use access::{CreatedToken, NewToken, TokenBook, TokenError, TokenRow};
pub use canonical::CanonError;
pub use config::Config;
pub use export::{Ask, Format, Unusable, parquet_points};
pub use far::{FarError, Finding, check_storage};
pub use notify::NotifyError;
pub use reload::Reread;
pub use remediation::PolicyError;
pub use ruling::RulesError;
pub use scraping::ScrapingError;
pub use starters::rules as starter_rules;
pub use tls::TlsError;

/// The OpenAPI description of the HTTP API, as JSON.
pub fn openapi() -> String {
    api::openapi_json()
}

/// The receivers of a file, each with its kind, or what is wrong with it.
pub fn check_receivers(path: &std::path::Path) -> Result<Vec<String>, NotifyError> {
    let config = config::AlertingConfig { receivers_file: Some(path.to_owned()), ..Default::default() };
    notify::Notifier::plan(&config).map(|plan| plan.shown())
}

/// A condition on an alert's labels, such as `severity="page"`, as `POST /api/tg/v1/silences` takes it.
pub fn alert_condition(text: &str) -> Result<serde_json::Value, String> {
    let condition = notify::Condition::parse(text)?;
    serde_json::to_value(condition).map_err(|error| error.to_string())
}

/// What is missing, and why, as `GET /api/tg/v1/runs/{run_id}/missing` writes it.
pub fn missing_json(rows: Vec<insight::missing::Row>) -> serde_json::Value {
    api::missing::rows_json(rows)
}

/// A path of the API and who may ask it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Route {
    /// Method, or `*` where several are taken.
    pub method: &'static str,
    /// Path, with `{names}`.
    pub path: &'static str,
    /// One of these is needed, by name; none where it is open to all.
    pub scopes: Vec<&'static str>,
    /// Whether one who sees a part may ask, and gets that part.
    pub bounded: bool,
}

/// Every path of the API, ours and Prometheus', with who may ask it.
pub fn routes() -> Vec<Route> {
    api::routes()
}

/// Checks the text of a policy of remediation: its name, revision and numbers of pools and actions, or all that
/// is wrong with it.
pub fn check_policy(text: &str) -> Result<(String, u64, usize, usize), Vec<String>> {
    let policy = remediation::parse(text)?;
    Ok((policy.name, policy.revision, policy.pools.len(), policy.rules.len()))
}

/// The word in `known` that was probably meant by `word`.
pub fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    model::nearest(word, known)
}

/// Why a server does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The address is open to others and no token guards it.
    #[error(
        "refusing to listen on `{address}` without a token: everyone who reaches it could read and delete"
    )]
    Open {
        /// The address.
        address: SocketAddr,
    },
    /// TLS can't be had.
    #[error("cannot serve TLS: {0}")]
    Tls(#[from] TlsError),
    /// The address can't be had.
    #[error("cannot listen on `{address}`: {source}")]
    Bind {
        /// The address.
        address: SocketAddr,
        /// What the system said.
        source: std::io::Error,
    },
    /// The store can't be opened.
    #[error(transparent)]
    Store(#[from] store::OpenError),
    /// The targets to scrape can't be used.
    #[error("cannot scrape: {0}")]
    Scraping(#[from] ScrapingError),
    /// The far storage can't be used.
    #[error(transparent)]
    Far(#[from] FarError),
    /// The rules can't be used.
    #[error(transparent)]
    Rules(#[from] RulesError),
    /// Whom alerts are told to can't be used.
    #[error(transparent)]
    Notify(#[from] NotifyError),
    /// The policy of remediation can't be used.
    #[error(transparent)]
    Policy(#[from] PolicyError),
    /// Names can't be made canonical.
    #[error(transparent)]
    Canon(#[from] CanonError),
    /// Spans would go round in a circle.
    #[error("cannot hand spans on to `{url}`: that is this server")]
    Circle {
        /// Where they were to go.
        url: String,
    },
    /// No threads to be had.
    #[error("cannot start the server's threads: {0}")]
    Threads(#[source] std::io::Error),
}

impl StartError {
    /// The next step.
    pub fn hint(&self) -> String {
        match self {
            Self::Open { .. } => "make a token with `truegauge token create --scope admin --data-dir DIR`, set `TRUEGAUGE_TOKEN` or `--token-file`, listen on 127.0.0.1, or take the risk with `--insecure-no-auth`".into(),
            Self::Tls(_) => "docs/guides/access.md shows what TLS needs".into(),
            Self::Bind { address, .. } => {
                format!("another program may have port {}: choose one with `--listen`, or 0 for any free one", address.port())
            }
            Self::Store(store::OpenError::Locked { .. }) => "one directory has one server: send to the one that runs, its log says where it listens".into(),
            Self::Store(_) => "check that the directory exists, is yours and its disk is not full".into(),
            Self::Scraping(_) => "docs/guides/scraping.md shows how targets are written".into(),
            Self::Far(_) => "docs/guides/far-storage.md shows what `[storage]` needs".into(),
            Self::Notify(_) => "docs/guides/alerting.md shows how Alertmanagers and receivers are written".into(),
            Self::Rules(_) => "`truegauge rules check FILE` says all that is wrong with a file".into(),
            Self::Policy(_) => "`truegauge remediation check FILE` says all that is wrong with a policy; docs/guides/remediation.md shows how one is written".into(),
            Self::Canon(_) => "docs/guides/engines.md shows how a vocabulary is written".into(),
            Self::Circle { .. } => "set `otlp_forward_traces_url` to the other backend's address, or leave it out".into(),
            Self::Threads(_) => "raise the limit on processes (`ulimit -u`)".into(),
        }
    }
}

/// A server that serves. Dropping it stops it.
#[derive(Debug)]
pub struct Running {
    /// Where it listens.
    pub addr: SocketAddr,
    /// Where gRPC is served, if its port was free.
    pub grpc_addr: Option<SocketAddr>,
    /// Where OTLP is served over HTTP beside the main port, if its port was free.
    pub otlp_http_addr: Option<SocketAddr>,
    /// The UI's address.
    pub url: String,
    stop: watch::Sender<bool>,
    runtime: Option<tokio::runtime::Runtime>,
    serving: Option<tokio::task::JoinHandle<()>>,
    app: app::App,
}

/// How the wait for a server ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// After a signal, everything finished.
    Stopped,
    /// A second signal came before everything was finished.
    Forced,
}

/// Opens the store, listens, and serves on threads of its own.
pub fn start(config: Config) -> Result<Running, StartError> {
    let open = open_address(&config);
    if let Some(address) = open.filter(|_| !config.data_dir.join("catalogue.redb").exists()) {
        return Err(StartError::Open { address });
    }
    let tls = tls::Tls::of(&config.tls)?;
    let targets = scraping::targets(&config)?;
    let groups = ruling::groups(&config)?;
    let policy = remediation::load(&config.remediation)?;
    let told = notify::Notifier::plan(&config.alerting)?;
    let address = config.listen;
    let main = bind(address).map_err(|source| StartError::Bind { address, source })?;
    let store = Store::open(&config.data_dir, store_options(&config))?;
    let canon = canonical::Canon::open(&config.vocabulary_files, &store)?;
    let access = access::Access::new(&config, &store);
    if let Some(address) = open.filter(|_| !access.is_guarded()) {
        return Err(StartError::Open { address });
    }
    let grpc = bind_beside(config.otlp_grpc_listen, "gRPC", "--otlp-grpc-listen");
    let otlp_http = bind_beside(config.otlp_http_listen, "OTLP over HTTP", "--otlp-http-listen");
    let (addr, grpc_addr) = (main.1, grpc.as_ref().map(|(_, addr)| *addr));
    let otlp_http_addr = otlp_http.as_ref().map(|(_, addr)| *addr);
    otlp::forward::check(&config.otlp, &[Some(addr), otlp_http_addr])?;
    let sockets = Sockets { main, grpc, otlp_http };
    let runtime = runtime().map_err(StartError::Threads)?;
    let (stop, stopping) = watch::channel(false);
    let far = far::Far::start(&config, &store, runtime.handle())?;
    let streams = otlp::Streams::restore(&store);
    let fleet = fleet::Fleet::restore(&store);
    let remedy = remediation::Remedy::restore(&store, policy);
    let verdicts = verdicts::Verdicts::restore(&store);
    let engine_watch = engines::Watch::restore(&store).map_err(canonical::CanonError::from)?;
    let url = url_of(addr, tls.is_some());
    let (book, notifier) = tell(&config, &store, &url, told).map_err(StartError::Threads)?;
    let app = Arc::new(app::Shared {
        store,
        far,
        access,
        metrics: metrics::Metrics::new(clock::now_ms()),
        board: board::Board::default(),
        claims: claims::Claims::default(),
        owners: owners::Owners::default(),
        nodes: node::Nodes::default(),
        fleet,
        remedy,
        verdicts,
        live: live::Live::new(clock::now_ms()),
        stopping,
        turns: app::Turns::new(&config),
        known: known::Known::default(),
        canon,
        engine_watch,
        adapters: adapters::Adapters::default(),
        sources: otlp::Sources::default(),
        streams,
        scraper: std::sync::Mutex::default(),
        ruler: std::sync::Mutex::default(),
        notifier: std::sync::Mutex::new(notifier),
        book,
        forward: otlp::forward::Forward::of(&config.otlp),
        doors: app::Doors { grpc: grpc_addr, otlp_http: otlp_http_addr },
        reloads: reload::Reloads::new(clock::now_ms()),
        site: own::Facts::new(&config.site),
        url,
        config: Config { listen: addr, ..config },
    });
    let serving = serve_all(&runtime, sockets, tls.as_ref(), &app)?;
    scraping::start(&app, targets)?;
    ruling::start(&app, groups)?;
    otlp::forward::start(&app).map_err(StartError::Threads)?;
    tracing::info!(address = %addr, data_dir = %app.config.data_dir.display(), "listening");
    Ok(Running {
        addr,
        grpc_addr,
        otlp_http_addr,
        url: url_of(addr, tls.is_some()),
        stop,
        runtime: Some(runtime),
        serving: Some(serving),
        app,
    })
}

fn store_options(config: &Config) -> store::Options {
    store::Options {
        seal_points: config.seal_points,
        seal_age_ns: config.seal_age.as_nanos().try_into().unwrap_or(i64::MAX),
        ..config.retention.options(config.reserve_bytes)
    }
}

/// Starts telling of alerts, beginning with what was due when the server stopped.
fn tell(
    config: &Config,
    store: &Store,
    url: &str,
    told: notify::Plan,
) -> std::io::Result<(Arc<notify::Book>, notify::Notifier)> {
    let book = Arc::new(notify::Book::open(&config.data_dir, store));
    let place = notify::Place {
        data_dir: &config.data_dir,
        book: &book,
        url: ruling::outside_url(url, &config.alerting),
        queue_max: config.alerting.queue_max,
    };
    let notifier = notify::Notifier::start(told, place, notify::Notifier::default())?;
    Ok((book, notifier))
}

/// Threads for everything that is asked of a server.
fn runtime() -> std::io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(std::thread::available_parallelism().map_or(2, usize::from).clamp(2, 8))
        .max_blocking_threads(64)
        .thread_name("truegauge")
        .thread_keep_alive(Duration::from_secs(10))
        .enable_all()
        .build()
}

/// An address that others reach, unless it is fine that they need no token.
fn open_address(config: &Config) -> Option<SocketAddr> {
    let is_guarded = !config.token.is_empty() || config.insecure_no_auth;
    let addresses = [config.listen, config.otlp_grpc_listen, config.otlp_http_listen];
    addresses.into_iter().find(|address| !address.ip().is_loopback() && !is_guarded)
}

/// A socket and where it listens.
type Bound = (TcpListener, SocketAddr);

fn bind(address: SocketAddr) -> std::io::Result<Bound> {
    let listener = TcpListener::bind(address)?;
    listener.set_nonblocking(true)?;
    let addr = listener.local_addr()?;
    Ok((listener, addr))
}

/// The doors beside the main one are opened when they are free: a collector of OpenTelemetry may have
/// their ports.
fn bind_beside(address: SocketAddr, what: &str, flag: &str) -> Option<Bound> {
    let failed = |error: std::io::Error| {
        tracing::warn!(%address, %error, "{what} is not served: choose another address with `{flag}`");
    };
    bind(address).map_err(failed).ok()
}

/// Where connections come in.
struct Sockets {
    main: Bound,
    grpc: Option<Bound>,
    otlp_http: Option<Bound>,
}

/// Starts everything that goes on in the background, and serves.
fn serve_all(
    runtime: &tokio::runtime::Runtime,
    sockets: Sockets,
    tls: Option<&tls::Tls>,
    app: &app::App,
) -> Result<tokio::task::JoinHandle<()>, StartError> {
    let _inside = runtime.enter();
    let door = |(listener, address): Bound, speaks, connections_max| {
        let listener = tokio::net::TcpListener::from_std(listener);
        let listener = listener.map_err(|source| StartError::Bind { address, source })?;
        Ok::<_, StartError>(serve::Door { listener, tls: tls.cloned(), speaks, connections_max })
    };
    let Sockets { main, grpc, otlp_http } = sockets;
    let main = door(main, tls::Speaks::Http1, serve::CONNECTIONS_MAX)?;
    let grpc = grpc.map(|bound| door(bound, tls::Speaks::Http2, serve::RANKS_CONNECTIONS_MAX)).transpose()?;
    let otlp_http =
        otlp_http.map(|bound| door(bound, tls::Speaks::Http1, serve::RANKS_CONNECTIONS_MAX)).transpose()?;
    upkeep::spawn(app);
    access::spawn(app);
    if let Some(tls) = tls {
        tls::watch(app, tls);
    }
    adopt::spawn(app);
    live::spawn(app);
    own::spawn(app);
    fleet::spawn(app);
    remediation::spawn(app);
    verdicts::spawn(app);
    let serve = |door, router| serve::serve(door, router, Arc::clone(app), app.stopping.clone());
    let mut doors = tokio::task::JoinSet::new();
    doors.spawn(serve(main, api::router(app)));
    if let Some(door) = grpc {
        doors.spawn(serve(door, grpc::router(app)));
    }
    if let Some(door) = otlp_http {
        doors.spawn(serve(door, otlp::http::router(app)));
    }
    Ok(runtime.spawn(async move { while doors.join_next().await.is_some() {} }))
}

/// An address that a browser on this machine can open.
fn url_of(addr: SocketAddr, is_tls: bool) -> String {
    let scheme = if is_tls { "https" } else { "http" };
    if addr.ip().is_unspecified() {
        format!("{scheme}://127.0.0.1:{}", addr.port())
    } else {
        format!("{scheme}://{addr}")
    }
}

impl Running {
    /// Whether callers have to show who they are.
    pub fn is_guarded(&self) -> bool {
        self.app.access.is_guarded()
    }

    /// An address that logs one browser in as an admin, once, for ten minutes; `None` where nobody is
    /// asked.
    pub fn login_url(&self) -> Option<String> {
        if !self.is_guarded() {
            return None;
        }
        let (path, _) = self.app.access.link(access::Holder::Server).ok()?;
        Some(format!("{}{path}", self.url))
    }

    /// Serves until SIGTERM or Ctrl-C, then finishes what is open; a second signal stops at once.
    /// `announce` is called once signals are heeded: whoever reads its words may send one.
    pub fn wait(mut self, announce: impl FnOnce(&Self)) -> Ended {
        let Some(runtime) = self.runtime.take() else { return Ended::Stopped };
        let mut signals = {
            let _inside = runtime.enter();
            Signals::new(&self.app)
        };
        announce(&self);
        let ended = runtime.block_on(async {
            signals.next().await;
            tracing::info!("stopping: finishing open requests, a second signal stops at once");
            let _ = self.stop.send(true);
            tokio::select! {
                () = finished(self.serving.take()) => Ended::Stopped,
                () = signals.next() => Ended::Forced,
            }
        });
        close(runtime, &self.app, ended);
        ended
    }

    /// Stops it: finishes open requests within seconds, seals the store, frees the directory.
    pub fn stop(mut self) {
        self.stop_now();
    }

    fn stop_now(&mut self) {
        let Some(runtime) = self.runtime.take() else { return };
        let _ = self.stop.send(true);
        runtime.block_on(finished(self.serving.take()));
        close(runtime, &self.app, Ended::Stopped);
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop_now();
    }
}

async fn finished(serving: Option<tokio::task::JoinHandle<()>>) {
    if let Some(serving) = serving {
        let _ = serving.await;
    }
}

fn close(runtime: tokio::runtime::Runtime, app: &app::App, ended: Ended) {
    if ended == Ended::Stopped {
        scraping::stop(app);
        ruling::stop(app);
        std::mem::take(&mut *app.notifier()).stop();
        if let Some(far) = &app.far {
            far.stop();
        }
        if let Some(forward) = &app.forward {
            forward.stop();
        }
        runtime.shutdown_timeout(Duration::from_secs(1));
        access::note_used(app);
        app.store.close();
    } else {
        runtime.shutdown_background();
    }
    tracing::info!(forced = ended == Ended::Forced, "stopped");
}

/// What a process is told by signals; heeded from the moment this is made. A hangup reads the settings
/// anew, SIGTERM and Ctrl-C stop.
struct Signals {
    /// None where they can't be had.
    stop: Option<(Signal, Signal)>,
    hangup: Option<Signal>,
    has_terminal: bool,
    app: app::App,
}

impl Signals {
    fn new(app: &app::App) -> Self {
        let heed = |kind| signal(kind).ok();
        Self {
            stop: heed(SignalKind::terminate()).zip(heed(SignalKind::interrupt())),
            hangup: heed(SignalKind::hangup()),
            has_terminal: has_terminal(),
            app: Arc::clone(app),
        }
    }

    /// Returns when the process is to stop.
    async fn next(&mut self) {
        let Some((terminate, interrupt)) = &mut self.stop else { return std::future::pending().await };
        loop {
            let hangup = async {
                match &mut self.hangup {
                    Some(hangup) => hangup.recv().await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                _ = terminate.recv() => return,
                _ = interrupt.recv() => return,
                // The terminal that it was started from has closed.
                _ = hangup => if self.has_terminal && !has_terminal() { return },
            }
            let app = Arc::clone(&self.app);
            // What is wrong has been logged there.
            tokio::task::spawn_blocking(move || drop(reload::reload(&app)));
        }
    }
}

/// Whether the process is run from a terminal that is still open.
fn has_terminal() -> bool {
    std::fs::File::open("/dev/tty").is_ok()
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};

    use super::*;

    fn config(dir: &std::path::Path) -> Config {
        Config {
            data_dir: dir.join("data"),
            spool_dir: dir.join("spool"),
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            ..Config::default()
        }
    }

    #[test]
    fn a_server_in_this_process_serves_and_frees_its_directory_when_stopped() {
        let dir = tempfile::tempdir().unwrap();
        for _ in 0..2 {
            let running = start(config(dir.path())).unwrap();
            let mut stream = std::net::TcpStream::connect(running.addr).unwrap();
            stream
                .write_all(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
                .unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).unwrap();
            assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
            assert!(matches!(
                start(config(dir.path())),
                Err(StartError::Store(store::OpenError::Locked { .. }))
            ));
            running.stop();
        }
    }

    #[test]
    fn no_setting_is_shown_that_is_secret() {
        let variable = |name: &str| (name == "TRUEGAUGE_TOKEN").then(|| "s3cret".to_owned());
        let config = Config::resolve(Config::default(), &config::Given::new(), &variable, None).unwrap();
        assert!(!config.token.is_empty());
        assert!(!format!("{config:?}").contains("s3cret"));
    }
}
