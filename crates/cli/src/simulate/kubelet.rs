//! The kubelet of a simulated node: its pod-resources service on a Unix socket, and the pods that it has.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use axum::http::{HeaderMap, HeaderValue, Request, Response};
use prost::Message;
use prost::bytes::Bytes;
use tokio::net::{UnixListener, UnixStream};

use crate::output::Failure;

/// Where all engines of a scenario are.
pub(super) const NAMESPACE: &str = "inference";
/// The longest path of a Unix socket, its end included.
const PATH_BYTES_MAX: usize = 108;
/// gRPC's code for a call that there is not.
const UNIMPLEMENTED: &str = "12";

/// A pod with one container, which has some cards for itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Pod {
    pub(super) name: String,
    container: &'static str,
    /// UUIDs of its cards.
    cards: Vec<String>,
}

impl Pod {
    pub(super) fn new(name: &str, cards: Vec<String>) -> Self {
        Self { name: name.to_owned(), container: "server", cards }
    }

    /// So many hexadecimal digits that are this pod's.
    fn digits(&self, count: usize) -> String {
        let seed = self.name.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
        });
        let words = (1_u64..).map(|word| format!("{:016x}", seed.wrapping_mul(2 * word + 1)));
        let mut digits: String = words.take(count.div_ceil(16)).collect();
        digits.truncate(count);
        digits
    }

    fn uid(&self) -> String {
        let all = self.digits(32);
        format!("{}-{}-{}-{}-{}", &all[..8], &all[8..12], &all[12..16], &all[16..20], &all[20..])
    }

    /// The folder of its logs.
    pub(super) fn folder(&self) -> String {
        format!("{NAMESPACE}_{}_{}", self.name, self.uid())
    }

    /// The control group of its container, as systemd and containerd make it.
    pub(super) fn cgroup(&self) -> String {
        let uid = self.uid().replace('-', "_");
        let id = self.digits(64);
        format!(
            "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{uid}.slice/cri-containerd-{id}.scope"
        )
    }
}

/// `ListPodResourcesResponse` of `v1.PodResourcesLister`, as far as it is filled here.
#[derive(Clone, PartialEq, Message)]
struct Listed {
    #[prost(message, repeated, tag = "1")]
    pods: Vec<ListedPod>,
}

/// `PodResources`.
#[derive(Clone, PartialEq, Eq, Message)]
struct ListedPod {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    namespace: String,
    #[prost(message, repeated, tag = "3")]
    containers: Vec<Container>,
}

/// `ContainerResources`.
#[derive(Clone, PartialEq, Eq, Message)]
struct Container {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(message, repeated, tag = "2")]
    devices: Vec<Devices>,
}

/// `ContainerDevices`.
#[derive(Clone, PartialEq, Eq, Message)]
struct Devices {
    #[prost(string, tag = "1")]
    resource: String,
    #[prost(string, repeated, tag = "2")]
    ids: Vec<String>,
}

/// `AllocatableResourcesResponse`.
#[derive(Clone, PartialEq, Message)]
struct Allocatable {
    #[prost(message, repeated, tag = "1")]
    devices: Vec<Devices>,
}

/// A kubelet before it listens.
#[derive(Debug)]
pub(super) struct Kubelet {
    pub(super) socket: PathBuf,
    pods: Vec<Pod>,
    /// UUIDs of all cards of the node.
    cards: Vec<String>,
}

/// What a kubelet answers, ready to be sent.
#[derive(Debug)]
struct Answers {
    list: Bytes,
    allocatable: Bytes,
}

impl Kubelet {
    pub(super) fn new(dir: &Path, pods: Vec<Pod>, cards: Vec<String>) -> Self {
        Self { socket: dir.join("kubelet.sock"), pods, cards }
    }

    fn answers(&self) -> Answers {
        let gpus = |ids: &[String]| Devices { resource: "nvidia.com/gpu".to_owned(), ids: ids.to_vec() };
        let pod = |pod: &Pod| {
            let container = Container { name: pod.container.to_owned(), devices: vec![gpus(&pod.cards)] };
            ListedPod { name: pod.name.clone(), namespace: NAMESPACE.to_owned(), containers: vec![container] }
        };
        let listed = Listed { pods: self.pods.iter().map(pod).collect() };
        let allocatable = Allocatable { devices: vec![gpus(&self.cards)] };
        Answers { list: framed(&listed.encode_to_vec()), allocatable: framed(&allocatable.encode_to_vec()) }
    }
}

/// A message with gRPC's five bytes in front: not packed, its length.
fn framed(message: &[u8]) -> Bytes {
    let length = u32::try_from(message.len()).unwrap_or(u32::MAX);
    [&[0][..], &length.to_be_bytes(), message].concat().into()
}

/// Serves all of them, on a thread of their own, until the process ends.
pub(super) fn serve(kubelets: Vec<Kubelet>) -> Result<(), Failure> {
    if kubelets.is_empty() {
        return Ok(());
    }
    let failed = |error: std::io::Error| Failure::new(format!("cannot start the kubelets: {error}"));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
    let listeners =
        kubelets.iter().map(|kubelet| listen(&runtime, kubelet)).collect::<Result<Vec<_>, _>>()?;
    let work = move || {
        runtime.block_on(async {
            let each = listeners.into_iter().map(|(listener, answers)| {
                tokio::spawn(async move {
                    let answers = std::sync::Arc::new(answers);
                    while let Ok((stream, _)) = listener.accept().await {
                        let answers = answers.clone();
                        tokio::spawn(async move { exchange(stream, &answers).await });
                    }
                })
            });
            for one in each.collect::<Vec<_>>() {
                let _ = one.await;
            }
        });
    };
    std::thread::Builder::new().name("kubelets".to_owned()).spawn(work).map(drop).map_err(failed)
}

fn listen(runtime: &tokio::runtime::Runtime, kubelet: &Kubelet) -> Result<(UnixListener, Answers), Failure> {
    let path = &kubelet.socket;
    let failed = |why: String| Failure::new(format!("cannot listen on `{}`: {why}", path.display()));
    if path.as_os_str().as_bytes().len() >= PATH_BYTES_MAX {
        let why = format!("a path of a socket has less than {PATH_BYTES_MAX} bytes");
        return Err(failed(why).hint("name a shorter folder with `--dir`"));
    }
    let _ = std::fs::remove_file(path);
    let _guard = runtime.enter();
    let listener = UnixListener::bind(path).map_err(|error| failed(error.to_string()))?;
    Ok((listener, kubelet.answers()))
}

/// Answers the calls of one connection. What goes wrong on it is the caller's to see.
async fn exchange(stream: UnixStream, answers: &Answers) {
    let Ok(mut connection) = h2::server::handshake(stream).await else { return };
    while let Some(Ok((request, respond))) = connection.accept().await {
        let _ = answer(&request, respond, answers);
    }
}

fn answer(
    request: &Request<h2::RecvStream>,
    mut respond: h2::server::SendResponse<Bytes>,
    answers: &Answers,
) -> Result<(), h2::Error> {
    let body = match request.uri().path() {
        "/v1.PodResourcesLister/List" => Some(answers.list.clone()),
        "/v1.PodResourcesLister/GetAllocatableResources" => Some(answers.allocatable.clone()),
        _ => None,
    };
    let mut head = Response::new(());
    head.headers_mut().insert("content-type", HeaderValue::from_static("application/grpc"));
    let Some(body) = body else {
        head.headers_mut().insert("grpc-status", HeaderValue::from_static(UNIMPLEMENTED));
        return respond.send_response(head, true).map(drop);
    };
    let mut stream = respond.send_response(head, false)?;
    stream.send_data(body, false)?;
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", HeaderValue::from_static("0"));
    stream.send_trailers(trailers)
}
