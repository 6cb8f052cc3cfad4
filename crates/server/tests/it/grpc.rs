//! Speaks gRPC by hand, so that a test can send what no client would.

use std::convert::Infallible;
use std::net::SocketAddr;

use bytes::Bytes;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::client::conn::http2::SendRequest;
use hyper::{HeaderMap, Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::Message;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_stream::wrappers::ReceiverStream;
use wire::metrana::SERVICE;

/// gRPC's numbers for how a call ended.
pub(crate) const INVALID_ARGUMENT: u32 = 3;
pub(crate) const NOT_FOUND: u32 = 5;
pub(crate) const PERMISSION_DENIED: u32 = 7;
pub(crate) const UNIMPLEMENTED: u32 = 12;
pub(crate) const UNAVAILABLE: u32 = 14;
pub(crate) const UNAUTHENTICATED: u32 = 16;

type Frames = Result<Frame<Bytes>, Infallible>;
type Body = StreamBody<ReceiverStream<Frames>>;

/// A connection.
pub(crate) struct Peer {
    send: SendRequest<Body>,
    address: SocketAddr,
    /// Sent with every call.
    pub(crate) headers: Vec<(&'static str, String)>,
}

/// A call under way.
pub(crate) struct Call {
    frames: Option<mpsc::Sender<Frames>>,
    /// The head comes when the service has what it wants to begin with.
    answer: JoinHandle<Response<Incoming>>,
    begun: Option<(HeaderMap, Incoming)>,
    unread: Vec<u8>,
}

/// How a call ended: gRPC's number, and the words.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct End {
    pub(crate) code: u32,
    pub(crate) words: String,
}

impl Peer {
    /// Connects; `window` bytes of answers are taken before the caller reads any.
    pub(crate) async fn connect(address: SocketAddr, window: u32) -> Self {
        let stream = tokio::net::TcpStream::connect(address).await.unwrap();
        let (send, connection) = hyper::client::conn::http2::Builder::new(TokioExecutor::new())
            .initial_stream_window_size(window)
            .handshake(TokioIo::new(stream))
            .await
            .unwrap();
        tokio::spawn(connection);
        Self { send, address, headers: Vec::new() }
    }

    /// Starts a call of the service.
    pub(crate) async fn call(&mut self, name: &str) -> Call {
        let (frames, body) = mpsc::channel(1);
        let mut request = Request::post(format!("http://{}/{SERVICE}/{name}", self.address))
            .header("content-type", "application/grpc")
            .header("te", "trailers");
        for (name, value) in &self.headers {
            request = request.header(*name, value);
        }
        let request = request.body(StreamBody::new(ReceiverStream::new(body))).unwrap();
        self.send.ready().await.unwrap();
        let sent = self.send.send_request(request);
        let answer = tokio::spawn(async { sent.await.unwrap() });
        Call { frames: Some(frames), answer, begun: None, unread: Vec::new() }
    }

    /// Sends one message and reads the answer to its end.
    pub(crate) async fn ask(&mut self, name: &str, message: &impl Message) -> (Vec<Vec<u8>>, End) {
        let mut call = self.call(name).await;
        call.send(message).await;
        call.finish();
        call.rest().await
    }
}

impl Call {
    /// Sends a message.
    pub(crate) async fn send(&self, message: &impl Message) {
        self.send_packed(&message.encode_to_vec(), false).await;
    }

    /// Sends a message's bytes, said to be packed or not.
    pub(crate) async fn send_packed(&self, bytes: &[u8], is_packed: bool) {
        let head = [&[u8::from(is_packed)][..], &(bytes.len() as u32).to_be_bytes()].concat();
        self.send_raw(&[&head, bytes].concat()).await;
    }

    /// Sends bytes; nobody may want them any more.
    pub(crate) async fn send_raw(&self, bytes: &[u8]) {
        if let Some(frames) = &self.frames {
            let _ = frames.send(Ok(Frame::data(Bytes::copy_from_slice(bytes)))).await;
        }
    }

    /// Sends no more.
    pub(crate) fn finish(&mut self) {
        self.frames = None;
    }

    /// The next message of the answer, or how it ended.
    pub(crate) async fn next(&mut self) -> Result<Vec<u8>, End> {
        if self.begun.is_none() {
            let (head, body) = (&mut self.answer).await.unwrap().into_parts();
            self.begun = Some((head.headers, body));
        }
        let Some((head, body)) = &mut self.begun else { unreachable!() };
        loop {
            if let Some(([_, length @ ..], rest)) = self.unread.split_first_chunk::<5>() {
                let length = u32::from_be_bytes(*length) as usize;
                if rest.len() >= length {
                    let message = rest[..length].to_vec();
                    self.unread.drain(..5 + length);
                    return Ok(message);
                }
            }
            match body.frame().await {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => self.unread.extend_from_slice(&data),
                    Err(frame) => return Err(End::of(frame.trailers_ref().unwrap_or(head))),
                },
                Some(Err(error)) => panic!("the connection broke: {error}"),
                None => return Err(End::of(head)),
            }
        }
    }

    /// All that is left of the answer.
    pub(crate) async fn rest(mut self) -> (Vec<Vec<u8>>, End) {
        let mut messages = Vec::new();
        loop {
            match self.next().await {
                Ok(message) => messages.push(message),
                Err(end) => return (messages, end),
            }
        }
    }
}

impl End {
    fn of(headers: &HeaderMap) -> Self {
        let text = |name: &str| headers.get(name).map(|value| value.to_str().unwrap().to_owned());
        let code = text("grpc-status").unwrap_or_else(|| panic!("no status: {headers:?}")).parse().unwrap();
        let words = text("grpc-message").unwrap_or_default().replace("%20", " ").replace("%60", "`");
        Self { code, words }
    }
}
