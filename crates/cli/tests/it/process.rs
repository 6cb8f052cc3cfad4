//! Starts programs, sends to them, asks them.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use model::{RunPath, Sample};
use prost::Message;
use serde_json::Value;
use tempfile::TempDir;
use wire::push::{PushRequest, PushResponse, Run, Series, Session};

/// How long anything may take before a test gives up on it.
pub(crate) const DEADLINE: Duration = Duration::from_mins(1);

/// 2023-11-14, on the second.
pub(crate) const T0: i64 = 1_700_000_000_000_000_000;

/// Waits until `ready` gives something.
pub(crate) fn eventually<T>(what: &str, mut ready: impl FnMut() -> Option<T>) -> T {
    let until = Instant::now() + DEADLINE;
    loop {
        if let Some(found) = ready() {
            return found;
        }
        assert!(Instant::now() < until, "waited {DEADLINE:?} in vain: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The program with an environment of its own: a home in `home`, no settings of the caller's.
pub(crate) fn truegauge(home: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_truegauge"));
    for (name, _) in std::env::vars() {
        if name.starts_with("TRUEGAUGE_") || name.starts_with("METRANA_") || name.starts_with("XDG_") {
            command.env_remove(name);
        }
    }
    command.env("HOME", home).env("TRUEGAUGE_SPOOL_DIR", home.join("spool"));
    // A test sees what it sends and nothing else; those that want more ask for it.
    command.env("TRUEGAUGE_OWN_METRICS", "false").env("TRUEGAUGE_STARTER_RULES", "false");
    // Servers of tests that run beside each other have ports of their own.
    command.env("TRUEGAUGE_OTLP_GRPC_LISTEN", "127.0.0.1:0").env("TRUEGAUGE_OTLP_HTTP_LISTEN", "127.0.0.1:0");
    command
}

/// Runs the program to its end; exit code, stdout, stderr.
pub(crate) fn run(home: &Path, args: &[&str]) -> (i32, String, String) {
    words(&truegauge(home).args(args).stdin(Stdio::null()).output().unwrap())
}

fn words(output: &Output) -> (i32, String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code().unwrap_or(-1), text(&output.stdout), text(&output.stderr))
}

/// A server process.
pub(crate) struct Server {
    pub(crate) home: PathBuf,
    pub(crate) url: String,
    pub(crate) child: Child,
    args: Vec<String>,
    temp: Option<TempDir>,
}

/// An answer: status, headers in lower case, body.
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|e| panic!("{e}: {}", String::from_utf8_lossy(&self.body)))
    }

    /// The error's code, having checked that the body has the shape of one.
    pub(crate) fn error_code(&self) -> String {
        let error = &self.json()["error"];
        for part in ["code", "message", "hint", "request_id"] {
            assert!(error[part].is_string(), "`{part}` is missing: {error}");
        }
        assert!(self.head.contains("x-request-id: "), "{}", self.head);
        error["code"].as_str().unwrap().to_owned()
    }
}

impl Server {
    /// Starts one in a new home.
    pub(crate) fn start(args: &[&str]) -> Self {
        let temp = tempfile::tempdir().unwrap();
        let mut server = Self::start_in(temp.path(), args);
        server.temp = Some(temp);
        server
    }

    /// Starts one in `home`, on a free port.
    pub(crate) fn start_in(home: &Path, args: &[&str]) -> Self {
        let mut command = truegauge(home);
        command.arg("up");
        Self::spawn(command, home, args)
    }

    /// Starts `command`, which ends in `truegauge up`, and reads its address from its first line.
    pub(crate) fn spawn(mut command: Command, home: &Path, args: &[&str]) -> Self {
        let args: Vec<String> = args.iter().map(|arg| (*arg).to_owned()).collect();
        let log = fs::OpenOptions::new().create(true).append(true).open(home.join("log")).unwrap();
        let mut child = command
            .args(["--data-dir", home.join("data").to_str().unwrap()])
            .args(["--listen", "127.0.0.1:0"])
            .args(&args)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .unwrap();
        let mut first = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut first).unwrap();
        let Some(url) = first.trim().rsplit(' ').next().filter(|url| url.starts_with("http")) else {
            let _ = child.wait();
            panic!("no address in {first:?}; log: {}", fs::read_to_string(home.join("log")).unwrap());
        };
        Self { home: home.to_owned(), url: url.to_owned(), child, args, temp: None }
    }

    /// One that was started by other hands.
    pub(crate) fn attached(url: &str, child: Child, home: &Path) -> Self {
        Self { home: home.to_owned(), url: url.to_owned(), child, args: Vec::new(), temp: None }
    }

    /// Ends it as a crash does.
    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Starts it again in the same home, on a new port.
    pub(crate) fn restart(&mut self) {
        let args: Vec<&str> = self.args.iter().map(String::as_str).collect();
        let mut next = Self::start_in(&self.home, &args);
        std::mem::swap(&mut self.url, &mut next.url);
        std::mem::swap(&mut self.child, &mut next.child);
        // What is dropped now is the process that was killed before.
    }

    /// Asks it to stop; its exit code.
    pub(crate) fn terminate(&mut self) -> i32 {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        self.child.wait().unwrap().code().unwrap_or(-1)
    }

    pub(crate) fn address(&self) -> &str {
        self.url.trim_start_matches("http://").trim_start_matches("https://")
    }

    /// Sends bytes as they are and reads the answer to its end.
    pub(crate) fn raw(&self, request: &[u8]) -> Answer {
        let mut stream = TcpStream::connect(self.address()).unwrap();
        stream.set_read_timeout(Some(DEADLINE)).unwrap();
        stream.write_all(request).unwrap();
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).unwrap();
        let split = bytes.windows(4).position(|w| w == b"\r\n\r\n").expect("an HTTP answer");
        let head = String::from_utf8_lossy(&bytes[..split]).to_ascii_lowercase();
        let body = bytes[split + 4..].to_vec();
        let body = if head.contains("transfer-encoding: chunked") { dechunk(&body) } else { body };
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        Answer { status, head, body }
    }

    /// Sends a request with headers of its own.
    pub(crate) fn ask(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Answer {
        let mut head = format!("{method} {path} HTTP/1.1\r\nconnection: close\r\n");
        if !headers.iter().any(|(name, _)| *name == "host") {
            head.extend(["host: ", self.address(), "\r\n"]);
        }
        if !body.is_empty() || matches!(method, "POST" | "PATCH") {
            head.extend([format!("content-length: {}\r\n", body.len())]);
        }
        for (name, value) in headers {
            head.extend([name, ": ", value, "\r\n"]);
        }
        self.raw(&[head.as_bytes(), b"\r\n", body].concat())
    }

    pub(crate) fn get(&self, path: &str) -> Value {
        let answer = self.ask("GET", path, &[], b"");
        assert_eq!(answer.status, 200, "{path}: {}", String::from_utf8_lossy(&answer.body));
        answer.json()
    }

    pub(crate) fn post_json(&self, path: &str, body: &Value) -> Answer {
        self.ask("POST", path, &[("content-type", "application/json")], body.to_string().as_bytes())
    }

    /// Pushes a request; the answer's status, and the answer when it is 200.
    pub(crate) fn push(&self, request: &PushRequest) -> (u16, Option<PushResponse>) {
        let answer = self.push_bytes(&wire::push::encode(request).unwrap(), &[("content-encoding", "zstd")]);
        let response = (answer.status == 200).then(|| PushResponse::decode(answer.body.as_slice()).unwrap());
        (answer.status, response)
    }

    pub(crate) fn push_bytes(&self, body: &[u8], headers: &[(&str, &str)]) -> Answer {
        let headers = [headers, &[("content-type", wire::push::CONTENT_TYPE)]].concat();
        self.ask("POST", "/api/tg/v1/push", &headers, body)
    }

    /// A number from `/metrics`, 0 when the series is not there.
    pub(crate) fn metric(&self, series: &str) -> f64 {
        let page = String::from_utf8(self.ask("GET", "/metrics", &[], b"").body).unwrap();
        let line = page.lines().find_map(|line| line.strip_prefix(series).map(str::to_owned));
        line.map_or(0.0, |value| value.trim().parse().unwrap())
    }

    /// Highest resident memory so far, KiB.
    pub(crate) fn memory_peak_kib(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find(|line| line.starts_with("VmHWM")).unwrap().to_owned();
        line.split_ascii_whitespace().nth(1).unwrap().parse().unwrap()
    }

    /// Runs the command line against this server.
    pub(crate) fn cli(&self, args: &[&str]) -> (i32, String, String) {
        let mut command = truegauge(&self.home);
        words(&command.args(args).env("TRUEGAUGE_URL", &self.url).stdin(Stdio::null()).output().unwrap())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn dechunk(mut body: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    while let Some(end) = body.windows(2).position(|w| w == b"\r\n") {
        let length = usize::from_str_radix(std::str::from_utf8(&body[..end]).unwrap().trim(), 16).unwrap();
        if length == 0 {
            break;
        }
        out.extend(&body[end + 2..end + 2 + length]);
        body = &body[end + 4 + length..];
    }
    out
}

/// The run `name` of project `p`.
pub(crate) fn path(name: &str) -> RunPath {
    RunPath { project: "p".into(), run: name.into(), ..RunPath::default() }
}

/// The id of [`path`].
pub(crate) fn id(name: &str) -> String {
    path(name).id().to_string()
}

/// A request of writer `writer` about the run `name`.
pub(crate) fn request(name: &str, writer: u8, sequence: u64, series: Vec<Series>) -> PushRequest {
    PushRequest {
        client_id: vec![writer; 16],
        sequence,
        run: Some(Run::from(&path(name))),
        series,
        ..PushRequest::default()
    }
}

/// A session's word at `seconds` behind [`T0`]: 1 opens, 2 heartbeat, 3 finished, 4 failed.
pub(crate) fn session(seconds: i64, event: u32) -> Session {
    Session {
        time_ms: T0 / 1_000_000 + seconds * 1_000,
        event,
        host: "node-1".into(),
        pid: 7,
        ..Session::default()
    }
}

/// A series without labels: one value a second from [`T0`], steps from 0.
pub(crate) fn series(name: &str, values: &[f64]) -> Series {
    let samples: Vec<Sample> = values
        .iter()
        .enumerate()
        .map(|(at, value)| Sample {
            time_ns: T0 + at as i64 * 1_000_000_000,
            value: *value,
            step: Some(at as i64),
        })
        .collect();
    Series::new(name, &[], "", &samples)
}

/// Every exported point of a metric as `(step, value)`.
pub(crate) fn exported(server: &Server, run: &str, metric: &str) -> Vec<(i64, f64)> {
    let answer = server.ask("GET", &format!("/api/tg/v1/runs/{}/export?metric={metric}", id(run)), &[], b"");
    assert_eq!(answer.status, 200);
    let text = String::from_utf8(answer.body).unwrap();
    text.lines()
        .skip(1)
        .map(|line| {
            let cells: Vec<&str> = line.rsplit(',').collect();
            (cells[2].parse().unwrap(), cells[0].parse().unwrap())
        })
        .collect()
}

/// Serves every connection in a thread of its own, for as long as `serve` has an answer for it.
pub(crate) fn each_connection(
    listener: TcpListener,
    serve: impl Fn(&TcpStream) -> Option<()> + Send + Sync + 'static,
) {
    let serve = Arc::new(serve);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(stream) = stream else { return };
            let serve = Arc::clone(&serve);
            std::thread::spawn(move || while serve(&stream).is_some() {});
        }
    });
}
