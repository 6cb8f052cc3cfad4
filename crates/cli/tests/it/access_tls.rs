//! TLS: served, read again when the files change, clients known by their certificates.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use serde_json::Value;
use ureq::tls::{Certificate, ClientCert, PrivateKey, RootCerts, TlsConfig};

use crate::process::{Server, eventually, truegauge};

/// An authority that signs what a test needs.
pub(crate) struct Authority {
    dir: PathBuf,
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

impl Authority {
    pub(crate) fn new(dir: &Path, name: &str) -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(rcgen::DnType::CommonName, name);
        let pem = params.self_signed(&key).unwrap().pem();
        fs::write(dir.join(format!("{name}.pem")), &pem).unwrap();
        Self { dir: dir.to_owned(), issuer: Issuer::new(params, key), pem }
    }

    /// Writes `FILE.pem` and `FILE.key` for somebody with these names.
    pub(crate) fn sign(&self, file: &str, names: &[&str]) {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let key = KeyPair::generate().unwrap();
        let certificate = CertificateParams::new(names).unwrap().signed_by(&key, &self.issuer).unwrap();
        // Put in place at once, as a tool that renews certificates does.
        for (ending, text) in [("key", key.serialize_pem()), ("pem", certificate.pem())] {
            let place = self.dir.join(format!("{file}.{ending}"));
            fs::write(place.with_extension("new"), text).unwrap();
            fs::rename(place.with_extension("new"), place).unwrap();
        }
    }

    pub(crate) fn path(&self, file: &str) -> String {
        self.dir.join(file).to_str().unwrap().to_owned()
    }
}

/// Asks over TLS; status and body, or why there was no answer.
fn ask(
    url: &str,
    authority: &Authority,
    client: Option<&str>,
    token: &str,
) -> Result<(u16, Vec<u8>), String> {
    let roots = [Certificate::from_pem(authority.pem.as_bytes()).unwrap()];
    let client = client.map(|file| {
        let read = |ending: &str| fs::read(authority.path(&format!("{file}.{ending}"))).unwrap();
        let chain = [Certificate::from_pem(&read("pem")).unwrap()];
        ClientCert::new_with_certs(&chain, PrivateKey::from_pem(&read("key")).unwrap())
    });
    let tls = TlsConfig::builder().root_certs(RootCerts::new_with_certs(&roots)).client_cert(client).build();
    let agent: ureq::Agent = ureq::Agent::config_builder()
        .http_status_as_error(false)
        .proxy(None)
        .timeout_global(Some(crate::process::DEADLINE))
        .tls_config(tls)
        .build()
        .into();
    let mut request = agent.get(url);
    if !token.is_empty() {
        request = request.header("authorization", format!("Bearer {token}"));
    }
    let mut answer = request.call().map_err(|error| error.to_string())?;
    let body = answer.body_mut().read_to_vec().map_err(|error| error.to_string())?;
    Ok((answer.status().as_u16(), body))
}

fn serve(authority: &Authority, more: &[&str]) -> Server {
    let (cert, key) = (authority.path("server.pem"), authority.path("server.key"));
    Server::start(&[&["--tls-cert", &cert, "--tls-key", &key], more].concat())
}

#[test]
fn a_server_speaks_tls_and_tells_who_does_not() {
    let dir = tempfile::tempdir().unwrap();
    let authority = Authority::new(dir.path(), "ca");
    authority.sign("server", &["127.0.0.1", "localhost"]);
    let server = serve(&authority, &["--token", "secret"]);
    assert!(server.url.starts_with("https://127.0.0.1:"), "{}", server.url);
    let runs = format!("{}/api/tg/v1/runs", server.url);
    assert_eq!(ask(&runs, &authority, None, "secret").unwrap().0, 200);
    assert_eq!(ask(&runs, &authority, None, "").unwrap().0, 401);
    let stranger = Authority::new(&dir.path().join("."), "stranger");
    assert!(ask(&runs, &stranger, None, "secret").unwrap_err().contains("certificate"), "not believed");

    let plain = server.ask("GET", "/api/tg/v1/runs", &[], b"");
    assert_eq!(plain.status, 400);
    assert!(plain.json()["error"]["hint"].as_str().unwrap().contains("https://"), "{}", plain.json());
    assert_eq!(ask(&runs, &authority, None, "secret").unwrap().0, 200, "and the next one is served");

    let cli = |ca: &str| {
        truegauge(&server.home)
            .args(["runs", "ls", "--json", "--url", &server.url, "--token", "secret"])
            .env("TRUEGAUGE_CA_FILE", ca)
            .stdin(Stdio::null())
            .output()
            .unwrap()
    };
    let listed = cli(&authority.path("ca.pem"));
    assert!(listed.status.success(), "{}", String::from_utf8_lossy(&listed.stderr));
    assert_eq!(serde_json::from_slice::<Value>(&listed.stdout).unwrap()["total"], 0);
    assert_eq!(cli(&authority.path("stranger.pem")).status.code(), Some(2));
    let missing = cli("/nowhere.pem");
    assert!(String::from_utf8_lossy(&missing.stderr).contains("cannot use `/nowhere.pem`"));
}

#[test]
fn cookies_of_a_tls_server_are_secure() {
    let dir = tempfile::tempdir().unwrap();
    let authority = Authority::new(dir.path(), "ca");
    authority.sign("server", &["127.0.0.1"]);
    let server = serve(&authority, &["--token", "secret"]);
    let roots = [Certificate::from_pem(authority.pem.as_bytes()).unwrap()];
    let tls = TlsConfig::builder().root_certs(RootCerts::new_with_certs(&roots)).build();
    let agent: ureq::Agent = ureq::Agent::config_builder().proxy(None).tls_config(tls).build().into();
    let answer =
        agent.post(format!("{}/api/tg/v1/login", server.url)).send("{\"token\":\"secret\"}").unwrap();
    let cookie = answer.headers()["set-cookie"].to_str().unwrap();
    assert!(cookie.contains("; Secure") && cookie.contains("SameSite=Strict"), "{cookie}");
}

#[test]
fn changed_files_are_read_and_bad_ones_leave_the_old_in_place() {
    let dir = tempfile::tempdir().unwrap();
    let old = Authority::new(dir.path(), "ca");
    let new = Authority::new(dir.path(), "next");
    old.sign("server", &["127.0.0.1"]);
    let server = serve(&old, &[]);
    let ready = format!("{}/readyz", server.url);
    assert_eq!(ask(&ready, &old, None, "").unwrap().0, 200);
    assert!(ask(&ready, &new, None, "").is_err());

    fs::write(old.path("server.pem"), "not a certificate").unwrap();
    let reloads = |outcome: &str| {
        let by = if ask(&ready, &old, None, "").is_ok() { &old } else { &new };
        let url = format!("{}/metrics", server.url);
        let page = String::from_utf8(ask(&url, by, None, "").unwrap().1).unwrap();
        let name = format!("truegauge_tls_reloads_total{{outcome=\"{outcome}\"}}");
        page.lines().any(|line| line.starts_with(&name)).then_some(())
    };
    eventually("the bad file is refused", || reloads("refused"));
    assert_eq!(ask(&ready, &old, None, "").unwrap().0, 200, "the old one is still shown");
    let log = fs::read_to_string(server.home.join("log")).unwrap();
    assert!(log.contains("server.pem") && log.contains("the old ones stay"), "{log}");

    new.sign("server", &["127.0.0.1"]);
    eventually("the new certificate is shown", || ask(&ready, &new, None, "").ok());
    assert!(ask(&ready, &old, None, "").is_err());
    reloads("read").unwrap();
}

#[test]
fn a_client_is_known_by_the_name_in_its_certificate() {
    let dir = tempfile::tempdir().unwrap();
    let authority = Authority::new(dir.path(), "ca");
    authority.sign("server", &["127.0.0.1"]);
    authority.sign("grafana", &["grafana"]);
    authority.sign("node", &["n1.nodes.example.org"]);
    authority.sign("other", &["other.example.org"]);
    let ca = authority.path("ca.pem");
    let clients = ["--tls-client", "grafana=read", "--tls-client", "*.nodes.example.org=agent"];
    let server = serve(&authority, &[&["--tls-client-ca", &ca][..], &clients].concat());
    let url = |path: &str| format!("{}{path}", server.url);
    let status = |path: &str, client: Option<&str>| ask(&url(path), &authority, client, "").unwrap().0;
    assert_eq!(status("/api/tg/v1/runs", Some("grafana")), 200);
    assert_eq!(status("/api/tg/v1/tokens", Some("grafana")), 403);
    assert_eq!(status("/api/tg/v1/runs", Some("node")), 403, "an agent does not read");
    assert_eq!(status("/api/tg/v1/runs", Some("other")), 401, "signed, and known to nobody");
    assert_eq!(status("/api/tg/v1/runs", None), 401);
    assert_eq!(status("/readyz", None), 200);
    let body = ask(&url("/api/tg/v1/session"), &authority, Some("node"), "").unwrap().1;
    let who: Value = serde_json::from_slice(&body).unwrap();
    assert_eq!(
        (&who["caller"]["name"], &who["caller"]["how"]),
        (&"n1.nodes.example.org".into(), &"certificate".into())
    );

    // A certificate of another authority with a known name is worth nothing.
    let stranger_dir = tempfile::tempdir().unwrap();
    let stranger = Authority::new(stranger_dir.path(), "stranger");
    stranger.sign("grafana", &["grafana"]);
    for ending in ["pem", "key"] {
        fs::copy(stranger.path(&format!("grafana.{ending}")), authority.path(&format!("forged.{ending}")))
            .unwrap();
    }
    assert!(ask(&url("/readyz"), &authority, Some("forged"), "").is_err());

    let out = truegauge(&server.home)
        .args(["query", "vector(1)", "--json", "--url", &server.url])
        .env("TRUEGAUGE_CA_FILE", &ca)
        .env("TRUEGAUGE_CERT_FILE", authority.path("grafana.pem"))
        .env("TRUEGAUGE_KEY_FILE", authority.path("grafana.key"))
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
}

#[test]
fn settings_that_do_not_go_together_are_said_at_the_start() {
    let dir = tempfile::tempdir().unwrap();
    let authority = Authority::new(dir.path(), "ca");
    authority.sign("server", &["127.0.0.1"]);
    authority.sign("other", &["127.0.0.1"]);
    let data = dir.path().join("data");
    let up = |args: &[&str]| {
        let base = ["up", "--listen", "127.0.0.1:0", "--data-dir", data.to_str().unwrap()];
        crate::process::run(dir.path(), &[&base[..], args].concat())
    };
    let (cert, key) = (authority.path("server.pem"), authority.path("server.key"));
    for (args, want) in [
        (&["--tls-cert", cert.as_str()][..], "`tls_cert` is set and `tls_key` is not"),
        (&["--tls-key", &key], "`tls_key` is set and `tls_cert` is not"),
        (
            &["--tls-cert", &cert, "--tls-key", &key, "--tls-client", "a=read"],
            "`tls_clients` is set and `tls_client_ca` is not",
        ),
        (&["--tls-cert", &cert, "--tls-key", &authority.path("other.key")], "does not go with its key"),
        (&["--tls-cert", &key, "--tls-key", &key], "no certificate is in it"),
        (&["--tls-cert", "/nowhere.pem", "--tls-key", &key], "/nowhere.pem"),
        (&["--tls-client", "a=root"], "wanted a name and what it may do"),
    ] {
        let (code, _, words) = up(args);
        assert!(code == 2 && words.contains(want), "{args:?}: {words}");
    }
}
