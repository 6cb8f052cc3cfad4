//! A kubelet's pod-resources service on a Unix socket, as tests want it to behave.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::Message;
use prost::bytes::{Buf, BufMut, Bytes};
use tokio::net::UnixListener;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::{Request, Response, Status};

/// How the service answers.
#[derive(Clone)]
pub(crate) enum Answers {
    /// With these messages, whatever is in them: that of `List`, and that of `GetAllocatableResources`.
    With(Vec<u8>, Option<Vec<u8>>),
    /// With this code.
    Refused(tonic::Code),
    /// Never.
    Never,
}

/// `ListPodResourcesResponse`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Pods {
    #[prost(message, repeated, tag = "1")]
    pub(crate) pods: Vec<Pod>,
}

/// `PodResources`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Pod {
    #[prost(string, tag = "1")]
    pub(crate) name: String,
    #[prost(string, tag = "2")]
    pub(crate) namespace: String,
    #[prost(message, repeated, tag = "3")]
    pub(crate) containers: Vec<Container>,
}

/// `ContainerResources`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Container {
    #[prost(string, tag = "1")]
    pub(crate) name: String,
    #[prost(message, repeated, tag = "2")]
    pub(crate) devices: Vec<Devices>,
    #[prost(int64, repeated, tag = "3")]
    pub(crate) cpu_ids: Vec<i64>,
    #[prost(message, repeated, tag = "5")]
    pub(crate) dynamic: Vec<Dynamic>,
}

/// `ContainerDevices`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Devices {
    #[prost(string, tag = "1")]
    pub(crate) resource: String,
    #[prost(string, repeated, tag = "2")]
    pub(crate) ids: Vec<String>,
}

/// `DynamicResource`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Dynamic {
    #[prost(string, tag = "2")]
    pub(crate) claim: String,
    #[prost(message, repeated, tag = "4")]
    pub(crate) resources: Vec<Claimed>,
}

/// `ClaimResource`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Claimed {
    #[prost(string, tag = "2")]
    pub(crate) driver: String,
    #[prost(string, tag = "3")]
    pub(crate) pool: String,
    #[prost(string, tag = "4")]
    pub(crate) device: String,
}

/// `AllocatableResourcesResponse`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Allocatable {
    #[prost(message, repeated, tag = "1")]
    pub(crate) devices: Vec<Devices>,
}

/// A pod with one container `main` that has these devices.
pub(crate) fn pod(namespace: &str, name: &str, resource: &str, ids: &[&str]) -> Pod {
    let devices = vec![devices(resource, ids)];
    let container = Container { name: "main".into(), devices, cpu_ids: vec![0, 1], ..Container::default() };
    Pod { name: name.into(), namespace: namespace.into(), containers: vec![container] }
}

pub(crate) fn devices(resource: &str, ids: &[&str]) -> Devices {
    Devices { resource: resource.into(), ids: ids.iter().map(ToString::to_string).collect() }
}

pub(crate) fn pods(pods: &[Pod]) -> Answers {
    Answers::With(Pods { pods: pods.to_vec() }.encode_to_vec(), None)
}

/// A service, up until it is dropped.
pub(crate) struct Kubelet {
    answers: Arc<Mutex<Answers>>,
    calls: Arc<AtomicUsize>,
    runtime: Option<tokio::runtime::Runtime>,
}

impl Kubelet {
    pub(crate) fn at(socket: &Path, answers: Answers) -> Self {
        std::fs::create_dir_all(socket.parent().unwrap()).unwrap();
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let answers = Arc::new(Mutex::new(answers));
        let calls = Arc::new(AtomicUsize::new(0));
        let listener = {
            let _inside = runtime.enter();
            UnixListener::bind(socket).unwrap()
        };
        runtime.spawn(serve(listener, Arc::clone(&answers), Arc::clone(&calls)));
        Self { answers, calls, runtime: Some(runtime) }
    }

    pub(crate) fn answer(&self, answers: Answers) {
        *self.answers.lock().unwrap() = answers;
    }

    /// How often `List` was called.
    pub(crate) fn calls(&self) -> usize {
        self.calls.load(Ordering::SeqCst)
    }
}

impl Drop for Kubelet {
    fn drop(&mut self) {
        self.runtime.take().unwrap().shutdown_background();
    }
}

async fn serve(listener: UnixListener, answers: Arc<Mutex<Answers>>, calls: Arc<AtomicUsize>) {
    while let Ok((stream, _)) = listener.accept().await {
        let (answers, calls) = (Arc::clone(&answers), Arc::clone(&calls));
        let service = service_fn(move |request: hyper::Request<hyper::body::Incoming>| {
            let is_list = request.uri().path() == "/v1.PodResourcesLister/List";
            calls.fetch_add(usize::from(is_list), Ordering::SeqCst);
            let answers = answers.lock().unwrap().clone();
            async move {
                if matches!(answers, Answers::Never) {
                    std::future::pending::<()>().await;
                }
                let mut calls = tonic::server::Grpc::new(Raw);
                Ok::<_, Infallible>(calls.unary(Lister { answers, is_list }, request).await)
            }
        });
        let connection = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
        tokio::spawn(connection.serve_connection(TokioIo::new(stream), service));
    }
}

struct Lister {
    answers: Answers,
    is_list: bool,
}

impl tonic::server::UnaryService<Bytes> for Lister {
    type Response = Vec<u8>;
    type Future = Ready<Result<Response<Vec<u8>>, Status>>;

    fn call(&mut self, _: Request<Bytes>) -> Self::Future {
        ready(match &self.answers {
            Answers::With(list, _) if self.is_list => Ok(Response::new(list.clone())),
            Answers::With(_, Some(allocatable)) => Ok(Response::new(allocatable.clone())),
            Answers::With(..) => Err(Status::unimplemented("unknown method")),
            Answers::Refused(code) => Err(Status::new(*code, "not now")),
            Answers::Never => unreachable!("it never gets here"),
        })
    }
}

/// Messages as they are.
#[derive(Clone, Copy)]
struct Raw;

impl Codec for Raw {
    type Encode = Vec<u8>;
    type Decode = Bytes;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        Self
    }

    fn decoder(&mut self) -> Self {
        Self
    }
}

impl Encoder for Raw {
    type Item = Vec<u8>;
    type Error = Status;

    fn encode(&mut self, item: Vec<u8>, into: &mut EncodeBuf<'_>) -> Result<(), Status> {
        into.put_slice(&item);
        Ok(())
    }
}

impl Decoder for Raw {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, from: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        Ok(Some(from.copy_to_bytes(from.remaining())))
    }
}
