//! A cluster behind TLS that asks for a certificate and a password.

use std::fs;

use serde_json::json;

use crate::access_tls::Authority;
use crate::far_cluster::{ANY_TIME, Cluster, drained, now_ms, write};
use crate::process::{Server, eventually, run};

/// `s3cret` by bcrypt.
const HASH: &str = "$2b$04$RwjUfUk.JA3nGVWl6YN3l.u5ePbF3eJkOQYY8jbm9X09Gjp3API4q";

#[test]
fn certificates_and_a_password_open_the_cluster_and_wrong_ones_are_told_of() {
    let dir = tempfile::tempdir().unwrap();
    let authority = Authority::new(dir.path(), "ca");
    authority.sign("cluster", &["127.0.0.1"]);
    authority.sign("client", &["truegauge"]);
    let mut cluster = Cluster::prepared(ANY_TIME);
    cluster.set_web(&format!(
        "tls_server_config: {{cert_file: {}, key_file: {}, client_auth_type: RequireAndVerifyClientCert, client_ca_file: {}}}\nbasic_auth_users: {{writer: {HASH}}}\n",
        authority.path("cluster.pem"),
        authority.path("cluster.key"),
        authority.path("ca.pem")
    ));
    cluster.again();
    let password = dir.path().join("password");
    fs::write(&password, "s3cret\n").unwrap();
    let mut settings = cluster.settings();
    settings.extend(["--storage-username".to_owned(), "writer".to_owned()]);
    settings.extend(["--storage-password-file".to_owned(), password.display().to_string()]);
    let files = [
        ("--storage-ca-file", "ca.pem"),
        ("--storage-cert-file", "client.pem"),
        ("--storage-key-file", "client.key"),
    ];
    let without_certificate = settings.clone();
    settings.extend(files.iter().flat_map(|(flag, file)| [(*flag).to_owned(), authority.path(file)]));
    let settings: Vec<&str> = settings.iter().map(String::as_str).collect();
    let server = Server::start(&settings);
    let send = |server: &Server, name: &str| {
        assert_eq!(write(server, &[("__name__", name)], &[(now_ms(), 1.0)]), 204);
    };
    send(&server, "first");
    drained(&server);
    assert_eq!(server.get("/api/v1/series?match[]=first")["data"], json!([{"__name__": "first"}]));
    // A password is changed without a restart; samples wait meanwhile.
    fs::write(&password, "wrong").unwrap();
    send(&server, "second");
    let words = eventually("the refusal is told of", || {
        Some(server.get("/api/tg/v1/storage")["far"]["failing"]["words"].as_str()?.to_owned())
    });
    assert!(words.starts_with("it refuses our credentials: 401"), "{words}");
    fs::write(&password, "s3cret").unwrap();
    drained(&server);
    assert_eq!(server.get("/api/v1/series?match[]=second")["data"], json!([{"__name__": "second"}]));
    assert_eq!(server.get("/api/tg/v1/storage")["far"]["refused"]["entries"], 0);
    // Without the authority's certificate nothing is sent there.
    let without_certificate: Vec<&str> = without_certificate.iter().map(String::as_str).collect();
    let stranger = Server::start(&without_certificate);
    send(&stranger, "third");
    let words = eventually("the wrong certificate is told of", || {
        Some(stranger.get("/api/tg/v1/storage")["far"]["failing"]["words"].as_str()?.to_owned())
    });
    assert!(words.starts_with("TLS failed: invalid peer certificate"), "{words}");
}

#[test]
fn settings_that_can_not_work_are_refused_at_the_start() {
    let dir = tempfile::tempdir().unwrap();
    let start = |settings: &[&str]| {
        let fixed = ["up", "--listen", "127.0.0.1:0", "--storage-kind", "prometheus"];
        let (code, _, err) = run(dir.path(), &[&fixed, settings].concat());
        assert_eq!(code, 2, "{settings:?}: {err}");
        assert!(!err.contains("s3cret"), "{err}");
        err
    };
    let urls = ["--storage-write-url", "http://127.0.0.1:1/w", "--storage-query-url", "http://127.0.0.1:1"];
    let check = |settings: &[&str], want: &str| {
        let err = start(settings);
        assert!(err.contains(want), "{settings:?}: {err}");
    };
    check(&[], "`storage_write_url` is not usable: it is not set");
    check(&["--storage-write-url", "http://u:s3cret@a/w"], "credentials belong into `storage_username`");
    check(&[&urls[..], &["--storage-ca-file", "/nowhere.pem"]].concat(), "cannot read `/nowhere.pem`");
    check(&[&urls[..], &["--storage-cert-file", "/nowhere.pem"]].concat(), "go together");
    check(
        &[&urls[..], &["--storage-password-file", "/nowhere", "--storage-username", "u"]].concat(),
        "cannot read `/nowhere`",
    );
    check(
        &[&urls[..], &["--storage-bearer-token", "s3cret", "--storage-username", "u"]].concat(),
        "exclude each other",
    );
}
