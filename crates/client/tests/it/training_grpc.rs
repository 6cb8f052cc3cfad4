//! Training telemetry over gRPC.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::prelude::BASE64_STANDARD_NO_PAD;
use client::training::Training;
use rcgen::{CertifiedKey, generate_simple_self_signed};
use semconv::instruments::MEGATRON;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::pki_types::PrivateKeyDer;
use tokio_rustls::rustls::{ServerConfig, crypto};
use wire::otlp::answer::{self, Encoding, Signal};
use wire::otlp::{Outcome, Refusal};

use crate::grpc_receiver::{GrpcReceiver, Manner};
use crate::receiver::{gauge, metrics_of};
use crate::support::{LONG, until};
use crate::training::{NOW, eight, sent, settings, shut};

const GRPC: (&str, &str) = ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc");

fn training(receiver: &GrpcReceiver, more: &[(&str, &str)]) -> Training {
    let url = format!("http://{}", receiver.address);
    Training::setup(settings(&url, &[more, &[GRPC]].concat()), None)
}

fn losses(receiver: &GrpcReceiver) -> Vec<f64> {
    let metrics: Vec<_> = receiver.seen().metrics.iter().flat_map(metrics_of).collect();
    metrics.iter().filter(|m| m.name == MEGATRON[1].name).map(|m| gauge(m)[0].0).collect()
}

#[test]
fn all_signals_arrive_over_kept_connections() {
    let receiver = GrpcReceiver::start(None);
    let training = training(&receiver, &[("OTEL_EXPORTER_OTLP_HEADERS", "x-tenant=a")]);
    let [_, loss, ..] = eight(&training);
    for n in 0..3_i32 {
        training.record(&[(loss, f64::from(n))], NOW);
        training.start("s", "n", None, &[]).end(None);
        sent(&training);
    }
    assert_eq!(losses(&receiver), [0.0, 1.0, 2.0]);
    let seen = receiver.seen();
    assert_eq!((seen.traces.len(), seen.connections), (3, 2), "one connection a signal");
    assert_eq!(seen.headers["x-tenant"], "a");
}

#[test]
fn large_and_packed_messages_arrive() {
    let receiver = GrpcReceiver::start(None);
    for more in [&[][..], &[("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip")]] {
        let training = training(&receiver, more);
        // More than the windows of HTTP/2 hold at once.
        let text = "x".repeat(2_000);
        let attributes = [("text.of", model::AttributeValue::Text(text))];
        for _ in 0..400 {
            training.start("s", "n", None, &attributes).end(None);
        }
        sent(&training);
        assert_eq!(shut(&training).lost_spans, 0);
    }
    let seen = receiver.seen();
    let resources = seen.traces.iter().flat_map(|request| &request.resource_spans);
    assert_eq!(resources.flat_map(|r| &r.scope_spans).map(|scope| scope.spans.len()).sum::<usize>(), 800);
}

#[test]
fn connection_that_was_closed_meanwhile_is_made_anew() {
    let receiver = GrpcReceiver::start(None);
    receiver.set(Manner::TakeAndClose);
    let training = training(&receiver, &[]);
    let [_, loss, ..] = eight(&training);
    for n in 0..5_i32 {
        training.record(&[(loss, f64::from(n))], NOW);
        sent(&training);
    }
    assert_eq!(losses(&receiver), [0.0, 1.0, 2.0, 3.0, 4.0]);
    assert_eq!(training.totals().lost_points, 0);
}

#[test]
fn codes_decide_whether_it_comes_again() {
    let receiver = GrpcReceiver::start(None);
    let training = training(&receiver, &[]);
    let [_, loss, ..] = eight(&training);
    let record = |value: f64, manner| {
        receiver.set(manner);
        training.record(&[(loss, value)], NOW);
        assert!(!training.force_flush(LONG, &mut || false));
    };
    let in_a_second = BASE64_STANDARD_NO_PAD.encode(answer::retry_info(1));
    record(0.0, Manner::Code(3, vec![("grpc-message", "no%20way".into())]));
    record(1.0, Manner::Code(8, Vec::new()));
    assert_eq!(training.totals().lost_points, 4, "refused for good");
    record(2.0, Manner::Code(14, vec![("google.rpc.retryinfo-bin", in_a_second)]));
    receiver.set(Manner::Take);
    // Nobody asks for it: it comes by itself, when the backend said.
    until("it came again", || training.totals().sent_points == 2);
    assert_eq!(losses(&receiver), [2.0]);
}

#[test]
fn partial_success_is_counted() {
    let receiver = GrpcReceiver::start(None);
    let mut outcome = Outcome::default();
    outcome.refuse("megatron.training.loss", 1, Refusal::new("limit", "too many"));
    receiver.set(Manner::TakeAndSay(answer::response(Signal::Metrics, &outcome, Encoding::Protobuf)));
    let training = training(&receiver, &[]);
    let [_, loss, ..] = eight(&training);
    training.record(&[(loss, 1.0)], NOW);
    assert!(!training.force_flush(LONG, &mut || false));
    assert_eq!((training.totals().lost_points, training.totals().sent_points), (1, 1));
}

#[test]
fn shutdown_is_bounded_whatever_the_port_does() {
    let hanging = GrpcReceiver::start(None);
    hanging.set(Manner::Hang);
    let refusing = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    for address in [refusing, silent.local_addr().unwrap(), hanging.address] {
        let training = Training::setup(settings(&format!("http://{address}"), &[GRPC]), None);
        let [_, loss, ..] = eight(&training);
        training.record(&[(loss, 1.0)], NOW);
        training.start("s", "n", None, &[]).end(None);
        let shutdown = training.shutdown(Duration::from_millis(500), &mut || false);
        assert!(shutdown.is_first && shutdown.took < LONG, "{address} {shutdown:?}");
        assert_eq!((shutdown.lost_points, shutdown.lost_spans), (2, 1));
    }
}

#[test]
fn tls_is_spoken_with_those_that_are_believed() {
    let CertifiedKey { cert, signing_key } =
        generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let key = PrivateKeyDer::try_from(signing_key.serialize_der()).unwrap();
    let mut config = ServerConfig::builder_with_provider(Arc::new(crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![cert.der().clone()], key)
        .unwrap();
    config.alpn_protocols = vec![b"h2".to_vec()];
    let receiver = GrpcReceiver::start(Some(TlsAcceptor::from(Arc::new(config))));
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("ca.pem");
    std::fs::write(&file, cert.pem()).unwrap();
    let url = format!("https://localhost:{}", receiver.address.port());
    let believing = [GRPC, ("OTEL_EXPORTER_OTLP_CERTIFICATE", file.to_str().unwrap())];
    for (variables, arrives) in [(&believing[..], true), (&[GRPC], false)] {
        let training = Training::setup(settings(&url, variables), None);
        let [_, loss, ..] = eight(&training);
        training.record(&[(loss, 1.0)], NOW);
        assert_eq!(training.force_flush(LONG, &mut || false), arrives);
        training.shutdown(Duration::from_millis(100), &mut || false);
    }
    assert_eq!(losses(&receiver), [1.0]);
}
