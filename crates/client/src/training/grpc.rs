//! OTLP over gRPC: unary calls over HTTP/2, on a runtime of this thread's own.
//!
//! The runtime runs during a call only. A connection that went away in between shows at the next call,
//! which then makes a new one.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use bytes::Bytes;
use h2::client::SendRequest;
use h2::{Reason, RecvStream};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::runtime::Runtime;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore, crypto};
use ureq::http::{HeaderMap, Request, Uri};
use wire::otlp::reply;

use super::http::gzip;
use super::lane::{Signal, Verdict};
use super::reader::unescaped;
use super::settings::{Compression, Target};
use crate::trust::Trust;

/// Longest wait for a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// Most bytes of an answer that are read.
const ANSWER_BYTES_MAX: usize = 4 << 20;
/// What a backend says, cut to this many characters.
const SAID_MAX: usize = 300;
/// Metadata in base64 may go without padding.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &base64::alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// Sends to one endpoint.
pub(crate) struct Grpc {
    runtime: Runtime,
    target: Target,
    uri: Uri,
    host: String,
    port: u16,
    tls: Option<TlsConnector>,
    connection: Option<SendRequest<Bytes>>,
}

impl std::fmt::Debug for Grpc {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Grpc").field("host", &self.host).field("port", &self.port).finish_non_exhaustive()
    }
}

/// What came back.
#[derive(Debug, Default)]
struct Answer {
    status: u16,
    body: Vec<u8>,
    metadata: HeaderMap,
}

impl Grpc {
    pub(crate) fn new(target: &Target, signal: Signal) -> Result<Self, String> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .enable_time()
            .build()
            .map_err(|error| format!("could not start a runtime: {error}"))?;
        let endpoint: Uri = target.endpoint.parse().map_err(|_unparsable| "no URL".to_owned())?;
        let host = endpoint.host().unwrap_or_default().trim_matches(['[', ']']).to_owned();
        let is_tls = endpoint.scheme_str() == Some("https");
        let port = endpoint.port_u16().unwrap_or(if is_tls { 443 } else { 80 });
        let authority = endpoint.authority().map(ToString::to_string).unwrap_or_default();
        let scheme = if is_tls { "https" } else { "http" };
        let uri = format!("{scheme}://{authority}{}", method(signal));
        let uri = uri.parse().map_err(|_unparsable| "no URL".to_owned())?;
        let tls = if is_tls { Some(TlsConnector::from(Arc::new(tls(&target.trust)?))) } else { None };
        Ok(Self { runtime, target: target.clone(), uri, host, port, tls, connection: None })
    }

    /// Sends one request.
    pub(crate) fn send(&mut self, body: &[u8], timeout: Duration) -> Verdict {
        let message = frame(body, self.target.compression);
        let was_connected = self.connection.is_some();
        let mut answer = self.call(message.clone(), timeout);
        if answer.is_err() && was_connected {
            // The backend may have closed a connection that nobody watched: that is no failure of its.
            answer = self.call(message, timeout);
        }
        match answer {
            Ok(answer) => verdict(&answer),
            Err(why) => Verdict::Later { why, after: None, is_unreachable: true },
        }
    }

    /// One call over the connection that is there, or a new one.
    fn call(&mut self, message: Bytes, timeout: Duration) -> Result<Answer, String> {
        let request = request(&self.uri, &self.target, timeout)?;
        let connection = self.connection.take();
        let (host, port, tls) = (&self.host, self.port, self.tls.as_ref());
        let calling = async {
            let mut connection = if let Some(connection) = connection {
                connection
            } else {
                let connected = tokio::time::timeout(CONNECT_TIMEOUT, connect(host, port, tls)).await;
                connected.unwrap_or_else(|_elapsed| Err("no connection in 2 s".to_owned()))?
            };
            let answer = exchange(&mut connection, request, message).await?;
            Ok((connection, answer))
        };
        let bounded = async { tokio::time::timeout(timeout, calling).await };
        let outcome = self.runtime.block_on(bounded);
        let (connection, answer) =
            outcome.unwrap_or_else(|_elapsed| Err(format!("no answer in {timeout:.1?}")))?;
        self.connection = Some(connection);
        Ok(answer)
    }
}

fn method(signal: Signal) -> &'static str {
    match signal {
        Signal::Metrics => "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export",
        Signal::Spans => "/opentelemetry.proto.collector.trace.v1.TraceService/Export",
        Signal::Records => "/opentelemetry.proto.collector.logs.v1.LogsService/Export",
    }
}

/// A message with the five bytes that gRPC puts in front: whether it is packed, and its length.
fn frame(body: &[u8], compression: Compression) -> Bytes {
    let packed = (compression == Compression::Gzip).then(|| gzip(body));
    let content = packed.as_deref().unwrap_or(body);
    let mut out = Vec::with_capacity(content.len() + 5);
    out.push(u8::from(packed.is_some()));
    out.extend_from_slice(&u32::try_from(content.len()).unwrap_or(u32::MAX).to_be_bytes());
    out.extend_from_slice(content);
    out.into()
}

fn request(uri: &Uri, target: &Target, timeout: Duration) -> Result<Request<()>, String> {
    let mut request = Request::post(uri)
        .version(ureq::http::Version::HTTP_2)
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .header("grpc-timeout", format!("{}m", timeout.as_millis()))
        .header("user-agent", super::USER_AGENT);
    if target.compression == Compression::Gzip {
        request = request.header("grpc-encoding", "gzip");
    }
    for (name, value) in &target.headers {
        request = request.header(name, value);
    }
    request.body(()).map_err(|error| error.to_string())
}

/// Opens a connection and sets its driver going on this thread's runtime.
async fn connect(host: &str, port: u16, tls: Option<&TlsConnector>) -> Result<SendRequest<Bytes>, String> {
    let stream = TcpStream::connect((host, port)).await.map_err(|error| error.to_string())?;
    // A request is one write; waiting for more to send would only delay it.
    stream.set_nodelay(true).map_err(|error| error.to_string())?;
    let Some(tls) = tls else { return drive(stream).await };
    let name = ServerName::try_from(host.to_owned()).map_err(|error| error.to_string())?;
    let stream = tls.connect(name, stream).await.map_err(|error| error.to_string())?;
    drive(stream).await
}

async fn drive<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
    stream: S,
) -> Result<SendRequest<Bytes>, String> {
    let (sending, connection) = h2::client::handshake(stream).await.map_err(|e| said(&e))?;
    tokio::spawn(async move {
        // How it ended shows in the calls.
        drop(connection.await);
    });
    Ok(sending)
}

async fn exchange(
    connection: &mut SendRequest<Bytes>,
    request: Request<()>,
    message: Bytes,
) -> Result<Answer, String> {
    // The driver first hears what happened while nobody called.
    tokio::task::yield_now().await;
    let mut ready = connection.clone().ready().await.map_err(|e| said(&e))?;
    let (answer, mut body) = ready.send_request(request, false).map_err(|e| said(&e))?;
    body.send_data(message, true).map_err(|e| said(&e))?;
    let (head, stream) = answer.await.map_err(|e| said(&e))?.into_parts();
    read(head.status.as_u16(), head.headers, stream).await
}

async fn read(status: u16, metadata: HeaderMap, mut stream: RecvStream) -> Result<Answer, String> {
    let mut answer = Answer { status, metadata, body: Vec::new() };
    while let Some(part) = stream.data().await {
        let part = match part {
            Ok(part) => part,
            // A backend that has answered may drop the rest of what it was sent.
            Err(error) if error.reason() == Some(Reason::NO_ERROR) => break,
            Err(error) => return Err(said(&error)),
        };
        drop(stream.flow_control().release_capacity(part.len()));
        if answer.body.len() + part.len() > ANSWER_BYTES_MAX {
            return Err("the answer is longer than 4 MiB".to_owned());
        }
        answer.body.extend_from_slice(&part);
    }
    if let Some(trailers) = stream.trailers().await.map_err(|e| said(&e))? {
        answer.metadata.extend(trailers);
    }
    Ok(answer)
}

/// An error in its own words, and its cause's.
fn said(error: &h2::Error) -> String {
    match error.get_io() {
        Some(cause) => cause.to_string(),
        None => error.to_string(),
    }
}

/// What an answer means.
fn verdict(answer: &Answer) -> Verdict {
    let header = |name: &str| answer.metadata.get(name).and_then(|value| value.to_str().ok());
    let binary = |name: &str| BASE64.decode(header(name)?).ok();
    let Some(code) = header("grpc-status").and_then(|code| code.parse::<u32>().ok()) else {
        let why = format!("status {}, which is no answer of gRPC", answer.status);
        return match answer.status {
            429 | 502..=504 => Verdict::Later { why, after: None, is_unreachable: false },
            _ => Verdict::Never(why),
        };
    };
    if code == 0 {
        let message = answer.body.get(5..).filter(|_| answer.body.first() == Some(&0)).unwrap_or_default();
        let partial = reply::partial(message);
        return Verdict::Taken { rejected: partial.rejected, message: partial.message };
    }
    let own = binary("google.rpc.retryinfo-bin").and_then(|info| reply::retry_info(&info));
    let details = binary("grpc-status-details-bin").map(|details| reply::status(&details));
    let after = own.or_else(|| details.and_then(|details| details.retry_after));
    let message: String =
        unescaped(header("grpc-message").unwrap_or_default()).chars().take(SAID_MAX).collect();
    let why = format!("code {code}: {message}");
    // Cancelled, deadline exceeded, aborted, out of range, unavailable, data loss.
    let may_come_again = matches!(code, 1 | 4 | 10 | 11 | 14 | 15);
    // Resource exhausted: only where it says when.
    if may_come_again || (code == 8 && after.is_some()) {
        return Verdict::Later { why, after, is_unreachable: false };
    }
    Verdict::Never(why)
}

/// Who is believed, and who we are, for connections of this thread's own.
fn tls(trust: &Trust) -> Result<ClientConfig, String> {
    // Both readers of these files say the same of what is wrong with them.
    trust.tls().map_err(|error| error.to_string())?;
    let certificates = |path: &std::path::Path| -> Result<Vec<CertificateDer<'static>>, String> {
        let found = CertificateDer::pem_file_iter(path).map_err(|error| error.to_string())?;
        found.collect::<Result<_, _>>().map_err(|error| error.to_string())
    };
    let mut roots = RootCertStore::empty();
    match &trust.ca_file {
        Some(path) => _ = roots.add_parsable_certificates(certificates(path)?),
        None => roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned()),
    }
    let provider = Arc::new(crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let builder = builder.map_err(|error| error.to_string())?.with_root_certificates(roots);
    let config = match (&trust.cert_file, &trust.key_file) {
        (Some(cert), Some(key)) => {
            let key = PrivateKeyDer::from_pem_file(key).map_err(|error| error.to_string())?;
            builder.with_client_auth_cert(certificates(cert)?, key)
        }
        _ => Ok(builder.with_no_client_auth()),
    };
    let mut config = config.map_err(|error| error.to_string())?;
    config.alpn_protocols = vec![b"h2".to_vec()];
    Ok(config)
}

#[cfg(test)]
mod tests {
    use wire::otlp::answer;

    use super::*;

    fn answer(status: u16, pairs: &[(&'static str, &str)], body: &[u8]) -> Answer {
        let mut metadata = HeaderMap::new();
        for (name, value) in pairs {
            metadata.insert(*name, value.parse().unwrap());
        }
        Answer { status, metadata, body: body.to_vec() }
    }

    #[test]
    fn codes_say_what_to_do() {
        let later = |pairs: &[(&'static str, &str)]| match verdict(&answer(200, pairs, &[])) {
            Verdict::Later { after, .. } => Some(after),
            _ => None,
        };
        for code in ["1", "4", "10", "11", "14", "15"] {
            assert_eq!(later(&[("grpc-status", code)]), Some(None), "{code}");
        }
        for code in ["2", "3", "5", "7", "8", "12", "13", "16"] {
            assert_eq!(later(&[("grpc-status", code)]), None, "{code}");
        }
        let info = BASE64.encode(answer::retry_info(3));
        let plain = info.trim_end_matches('=');
        let three = Some(Some(Duration::from_secs(3)));
        assert_eq!(later(&[("grpc-status", "8"), ("google.rpc.retryinfo-bin", plain)]), three);
        let status = answer::status(14, "busy", Some(3), answer::Encoding::Protobuf);
        let details = BASE64.encode(status);
        assert_eq!(later(&[("grpc-status", "14"), ("grpc-status-details-bin", &details)]), three);
    }

    #[test]
    fn what_is_no_answer_of_grpc_is_said_so() {
        let of = |status| verdict(&answer(status, &[], b"<html>"));
        assert!(matches!(of(503), Verdict::Later { .. }));
        assert!(matches!(of(404), Verdict::Never(why) if why.contains("404")));
        let said = verdict(&answer(200, &[("grpc-status", "3"), ("grpc-message", "no%20way")], &[]));
        assert_eq!(said, Verdict::Never("code 3: no way".into()));
    }

    #[test]
    fn frames_have_flag_and_length() {
        assert_eq!(&frame(b"abc", Compression::None)[..], b"\0\0\0\0\x03abc");
        let packed = frame(b"abc", Compression::Gzip);
        assert_eq!((packed[0], packed.len()), (1, 5 + packed[4] as usize));
    }
}
