//! Asks the kubelet who was given which device: gRPC over its Unix socket.
//!
//! Every question has a connection of its own: they are seconds apart, and a kubelet that was started anew
//! has another socket. A runtime of this thread's own runs during a question only.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use bytes::Bytes;
use prost::Message;
use tokio::net::UnixStream;
use tokio::runtime::Runtime;
use ureq::http::{HeaderMap, Request, Version};

use super::allocation::{AllocatableResponse, Given, ListResponse, given, offered};

/// Longest wait for an answer.
const DEADLINE: Duration = Duration::from_secs(5);
/// Largest answer that is read, as the kubelet's own clients have it.
const ANSWER_BYTES_MAX: usize = 16 << 20;
/// Between two questions after failures, at most.
const GAP_MAX: Duration = Duration::from_mins(1);
/// How long an answer is believed while no other comes: a kubelet is started anew in less.
const BELIEVED: Duration = Duration::from_mins(2);
/// How often it is asked what it could give.
const OFFERED_EVERY: Duration = Duration::from_mins(1);
/// What it says of a failure, cut to this many characters.
const SAID_MAX: usize = 200;
/// gRPC's code for a call that the other side doesn't have.
const UNIMPLEMENTED: u32 = 12;

const LIST: &str = "/v1.PodResourcesLister/List";
const ALLOCATABLE: &str = "/v1.PodResourcesLister/GetAllocatableResources";

/// What is known from the kubelet.
#[derive(Debug)]
pub(super) struct Kubelet {
    socket: PathBuf,
    runtime: Option<Runtime>,
    /// Between two questions, and now, after failures.
    every: Duration,
    gap: Duration,
    asked: Option<Instant>,
    listed: Option<(Instant, Vec<Given>)>,
    offered: Option<(Instant, Vec<String>)>,
    /// Why it doesn't tell; none where there is no kubelet, or all is well.
    trouble: Option<String>,
}

/// Why a call gave nothing.
#[derive(Debug)]
enum Failed {
    /// The other side has no such call.
    Unimplemented,
    /// Anything else, in words.
    Because(String),
}

impl Kubelet {
    pub(super) fn new(socket: &Path, every: Duration) -> Self {
        let (gap, socket) = (every, socket.to_owned());
        Self { socket, runtime: None, every, gap, asked: None, listed: None, offered: None, trouble: None }
    }

    /// What it gave to whom, no older than it is believed; `None` where no kubelet tells.
    pub(super) fn given(&self) -> Option<&[Given]> {
        self.listed.as_ref().map(|(_, given)| given.as_slice())
    }

    /// The devices that it could give; `None` where it doesn't tell.
    pub(super) fn offered(&self) -> Option<&[String]> {
        self.listed.as_ref().and(self.offered.as_ref()).map(|(_, offered)| offered.as_slice())
    }

    /// Why it doesn't tell.
    pub(super) fn trouble(&self) -> Option<&str> {
        self.trouble.as_deref()
    }

    /// Asks when it is time to.
    pub(super) fn poll(&mut self, now: Instant) {
        if self.listed.as_ref().is_some_and(|(at, _)| now.duration_since(*at) > BELIEVED) {
            self.listed = None;
        }
        if self.asked.is_some_and(|asked| now.duration_since(asked) < self.gap) {
            return;
        }
        self.asked = Some(now);
        if !self.socket.exists() {
            // No kubelet, or one that is down: told only where it was there before.
            let gone = || format!("`{}` is gone", self.socket.display());
            self.trouble = self.listed.is_some().then(gone);
            return;
        }
        match self.list() {
            Ok((given, senseless)) => {
                self.gap = self.every;
                let odd = || format!("{senseless} entries of its answer name no pod, or are too many");
                self.trouble = (senseless > 0).then(odd);
                self.listed = Some((now, given));
                self.ask_offered(now);
            }
            Err(why) => {
                self.gap = (self.gap * 2).min(GAP_MAX).max(self.every);
                self.trouble = Some(why);
            }
        }
    }

    fn list(&mut self) -> Result<(Vec<Given>, usize), String> {
        match self.call(LIST) {
            Ok(body) => {
                let answer = ListResponse::decode(body.as_slice());
                answer
                    .map(|answer| given(&answer))
                    .map_err(|error| format!("its answer can't be read: {error}"))
            }
            Err(Failed::Because(why)) => Err(why),
            Err(Failed::Unimplemented) => Err("it has no `v1.PodResourcesLister`".to_owned()),
        }
    }

    fn ask_offered(&mut self, now: Instant) {
        if self.offered.as_ref().is_some_and(|(at, _)| now.duration_since(*at) < OFFERED_EVERY) {
            return;
        }
        let answer = self.call(ALLOCATABLE).ok().and_then(|body| AllocatableResponse::decode(&*body).ok());
        self.offered = Some((now, answer.map(|answer| offered(&answer)).unwrap_or_default()));
    }

    fn call(&mut self, method: &'static str) -> Result<Vec<u8>, Failed> {
        let runtime = match self.runtime.take() {
            Some(runtime) => runtime,
            None => tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .map_err(|error| Failed::Because(format!("no runtime could be started: {error}")))?,
        };
        let exchange = exchange(&self.socket, method);
        let outcome = runtime.block_on(async { tokio::time::timeout(DEADLINE, exchange).await });
        self.runtime = Some(runtime);
        let late = |_elapsed| Err(Failed::Because(format!("no answer in {} s", DEADLINE.as_secs())));
        outcome.unwrap_or_else(late)
    }
}

fn said(what: &str, error: impl std::fmt::Display) -> Failed {
    Failed::Because(format!("{what}: {error}"))
}

/// One call with an empty request; the message that is answered.
async fn exchange(socket: &Path, method: &str) -> Result<Vec<u8>, Failed> {
    let path = socket.display();
    let stream = UnixStream::connect(socket)
        .await
        .map_err(|error| said(&format!("no connection to `{path}`"), error))?;
    let (sender, connection) =
        h2::client::handshake(stream).await.map_err(|error| said("no HTTP/2", error))?;
    let driver = tokio::spawn(connection);
    let outcome = ask(sender, method).await;
    driver.abort();
    outcome
}

async fn ask(sender: h2::client::SendRequest<Bytes>, method: &str) -> Result<Vec<u8>, Failed> {
    let request = Request::post(format!("http://localhost{method}"))
        .version(Version::HTTP_2)
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .header("grpc-timeout", format!("{}m", DEADLINE.as_millis()))
        .body(())
        .map_err(|error| said("no request", error))?;
    let broken = |error: h2::Error| said("the exchange broke off", error);
    let mut sender = sender.ready().await.map_err(broken)?;
    let (answer, mut body) = sender.send_request(request, false).map_err(broken)?;
    // An empty message: not packed, no bytes.
    body.send_data(Bytes::from_static(&[0; 5]), true).map_err(broken)?;
    let (head, mut stream) = answer.await.map_err(broken)?.into_parts();
    let mut bytes = Vec::new();
    while let Some(part) = stream.data().await {
        let part = part.map_err(broken)?;
        drop(stream.flow_control().release_capacity(part.len()));
        if bytes.len() + part.len() > ANSWER_BYTES_MAX {
            return Err(Failed::Because(format!("its answer is over {} MiB", ANSWER_BYTES_MAX >> 20)));
        }
        bytes.extend_from_slice(&part);
    }
    let mut metadata = head.headers;
    metadata.extend(stream.trailers().await.map_err(broken)?.unwrap_or_default());
    if !head.status.is_success() {
        return Err(Failed::Because(format!("status {}, which is no answer of gRPC", head.status.as_u16())));
    }
    status(&metadata)?;
    message(&bytes).map(<[u8]>::to_vec)
}

/// Whether a call went well.
fn status(metadata: &HeaderMap) -> Result<(), Failed> {
    let text = |name: &str| metadata.get(name).and_then(|value| value.to_str().ok());
    match text("grpc-status").and_then(|code| code.parse::<u32>().ok()) {
        Some(0) => Ok(()),
        Some(UNIMPLEMENTED) => Err(Failed::Unimplemented),
        Some(code) => {
            let said: String = text("grpc-message").unwrap_or_default().chars().take(SAID_MAX).collect();
            Err(Failed::Because(format!("code {code}: {said}")))
        }
        None => Err(Failed::Because("its answer has no status of gRPC".to_owned())),
    }
}

/// The one message of an answer, without the five bytes in front.
fn message(bytes: &[u8]) -> Result<&[u8], Failed> {
    let unfit = || Failed::Because(format!("its answer of {} bytes is no whole message", bytes.len()));
    let (head, body) = bytes.split_first_chunk::<5>().ok_or_else(unfit)?;
    let [packed, length @ ..] = *head;
    let is_whole = packed == 0 && u32::from_be_bytes(length) as usize == body.len();
    is_whole.then_some(body).ok_or_else(unfit)
}
