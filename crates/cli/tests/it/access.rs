//! Who gets in: tokens, sessions, and what does not help to get in without them.

use std::fs;

use serde_json::{Value, json};

use crate::process::{Answer, Server, eventually, request, run, series};

const ROOT: &str = "root-secret";

fn bearer(token: &str) -> String {
    format!("Bearer {token}")
}

fn with(server: &Server, method: &str, path: &str, token: &str, body: &str) -> Answer {
    let bearer = bearer(token);
    let headers = [("authorization", bearer.as_str()), ("content-type", "application/json")];
    server.ask(method, path, &headers, body.as_bytes())
}

fn create(server: &Server, by: &str, new: &Value) -> Value {
    let made = with(server, "POST", "/api/tg/v1/tokens", by, &new.to_string());
    assert_eq!(made.status, 201, "{}", String::from_utf8_lossy(&made.body));
    made.json()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap()
}

/// A guarded server and what its command line answers.
fn guarded() -> Server {
    Server::start(&["--token", ROOT])
}

fn cli(server: &Server, args: &[&str]) -> (i32, String, String) {
    server.cli(&[args, &["--token", ROOT]].concat())
}

#[test]
fn a_token_opens_what_it_says_until_it_is_revoked_and_the_next_one_takes_over() {
    let server = guarded();
    let (code, token, words) =
        cli(&server, &["token", "create", "--scope", "read", "--name", "grafana", "--expires", "30d"]);
    assert_eq!(code, 0, "{words}");
    let token = token.trim();
    assert!(words.contains("read everywhere, until") && !words.contains(token), "{words}");
    assert_eq!(with(&server, "GET", "/api/tg/v1/runs", token, "").status, 200);
    let refused = with(&server, "POST", "/api/tg/v1/push", token, "x");
    assert_eq!((refused.status, refused.error_code().as_str()), (403, "forbidden"));
    assert!(text(&refused.json()["error"]["message"]).contains("`ingest` or `agent`"), "{}", refused.json());
    assert_eq!(with(&server, "GET", "/api/tg/v1/tokens", token, "").status, 403);

    let (_, listed, _) = cli(&server, &["token", "list", "--json"]);
    let listed: Value = serde_json::from_str(&listed).unwrap();
    let row = &listed["tokens"][0];
    assert_eq!(
        (&row["name"], &row["state"], &row["scopes"]),
        (&json!("grafana"), &json!("live"), &json!(["read"]))
    );
    assert!(row["used_ms"].is_i64() && token.starts_with(text(&row["id"])), "{row}");
    assert!(!listed.to_string().contains(&token[20..]), "the secret is shown once");

    let next = create(&server, ROOT, &json!({"scopes": ["read"]}));
    let (code, out, _) = cli(&server, &["token", "revoke", text(&row["id"])]);
    assert_eq!((code, out.trim()), (0, format!("revoked {}", text(&row["id"])).as_str()));
    let after = with(&server, "GET", "/api/tg/v1/runs", token, "");
    assert_eq!(
        (after.status, after.json()["error"]["message"].clone()),
        (401, json!("the token was revoked"))
    );
    assert_eq!(with(&server, "GET", "/api/tg/v1/runs", text(&next["token"]), "").status, 200);

    let page = String::from_utf8(with(&server, "GET", "/metrics", ROOT, "").body).unwrap();
    assert!(page.contains("truegauge_access_attempts_total{by=\"token\",outcome=\"revoked\"} 1"), "{page}");
}

#[test]
fn tokens_outlive_the_server_and_are_made_where_none_runs() {
    let home = tempfile::tempdir().unwrap();
    let data = home.path().join("data");
    let dir = data.to_str().unwrap();
    let (code, token, words) = run(home.path(), &["token", "create", "--scope", "admin", "--data-dir", dir]);
    assert_eq!(code, 0, "{words}");
    let mut server = Server::start_in(home.path(), &[]);
    assert_eq!(server.ask("GET", "/api/tg/v1/runs", &[], b"").status, 401, "a token in the store guards");
    let made = create(&server, token.trim(), &json!({"scopes": ["ingest"], "name": "ci"}));
    let (code, _, words) = run(home.path(), &["token", "list", "--data-dir", dir]);
    assert!(code == 2 && words.contains("leave `--data-dir` out"), "{words}");
    server.kill();
    server.restart();
    let pushed = with(&server, "POST", "/api/tg/v1/push", text(&made["token"]), "");
    assert_eq!(pushed.status, 415, "past the guard: {}", String::from_utf8_lossy(&pushed.body));
    server.kill();
    let (code, listed, _) = run(home.path(), &["token", "list", "--data-dir", dir]);
    assert!(code == 0 && listed.contains("ci"), "{listed}");
    let (code, _, _) = run(home.path(), &["token", "revoke", text(&made["id"]), "--data-dir", dir]);
    assert_eq!(code, 0);
    server.restart();
    assert_eq!(with(&server, "POST", "/api/tg/v1/push", text(&made["token"]), "").status, 401);
    let secret = token.trim().rsplit('_').next().unwrap().to_owned();
    let log = fs::read_to_string(home.path().join("log")).unwrap();
    assert!(!log.contains(&secret) && !log.contains(text(&made["token"])), "no token is logged");
}

#[test]
fn the_first_token_is_an_admins_and_the_last_one_stays() {
    let server = Server::start(&[]);
    assert_eq!(server.get("/api/tg/v1/session")["guarded"], false);
    let first = server.post_json("/api/tg/v1/tokens", &json!({"scopes": ["read"]}));
    assert_eq!(first.status, 409);
    assert!(text(&first.json()["error"]["hint"]).contains("scope `admin` first"));
    let admin = server.post_json("/api/tg/v1/tokens", &json!({"scopes": ["admin"]}));
    assert_eq!(admin.status, 201);
    let admin = admin.json();
    assert_eq!(server.ask("GET", "/api/tg/v1/runs", &[], b"").status, 401);
    let other = create(&server, text(&admin["token"]), &json!({"scopes": ["read"]}));
    let revoke = |id: &Value| {
        with(&server, "DELETE", &format!("/api/tg/v1/tokens/{}", text(id)), text(&admin["token"]), "").status
    };
    assert_eq!(revoke(&admin["id"]), 409);
    assert_eq!(revoke(&other["id"]), 200);
    assert_eq!(revoke(&json!("tg_000000000000")), 404);
    assert_eq!(revoke(&admin["id"]), 200);
    assert_eq!(server.ask("GET", "/api/tg/v1/runs", &[], b"").status, 200, "open again, on loopback");
}

#[test]
fn a_token_that_expired_says_so() {
    let server = guarded();
    let made = create(&server, ROOT, &json!({"scopes": ["read"], "expires_seconds": 1}));
    let said = eventually("the token expires", || {
        let answer = with(&server, "GET", "/api/tg/v1/runs", text(&made["token"]), "");
        (answer.status == 401).then(|| answer.json())
    });
    assert_eq!(said["error"]["message"], "the token has expired");
    let (_, listed, _) = cli(&server, &["token", "list"]);
    assert!(listed.contains("expired"), "{listed}");
}

#[test]
fn wrong_wishes_are_refused_with_what_is_possible() {
    let server = guarded();
    for (args, want) in [
        (&["token", "create", "--scope", "raed"][..], "did you mean `read`?"),
        (&["token", "create", "--scope", "read", "--expires", "soon"], "`90m`, `12h` or `30d`"),
        (&["token", "create", "--scope", "read", "--project", ""], "all empty"),
        (&["token", "revoke", "nothing"], "there is no token `nothing`"),
    ] {
        let (code, out, words) = cli(&server, args);
        assert!(code == 2 && out.is_empty() && words.contains(want), "{args:?}: {words}");
    }
    let (code, _, words) = server.cli(&["token", "list", "--token", "wrong"]);
    assert!(code == 2 && words.contains("TRUEGAUGE_TOKEN"), "{words}");
}

#[test]
fn headers_addresses_and_paths_are_no_way_round_a_token() {
    let server = guarded();
    let made = create(&server, ROOT, &json!({"scopes": ["read"]}));
    let token = text(&made["token"]);
    let (good, wrong) = (bearer(token), bearer("wrong"));
    for (headers, status) in [
        (&[("authorization", good.as_str()), ("authorization", wrong.as_str())][..], 400),
        (&[("authorization", good.as_str()), ("authorization", good.as_str())], 400),
        (&[("authorization", wrong.as_str())], 401),
        (&[("authorization", "Basic cm9vdC1zZWNyZXQ6")], 401),
        (&[("authorization", "Bearer")], 401),
        (&[("authorization", "Bearer ")], 401),
        (&[("authorization", token)], 401),
        (&[("x-forwarded-for", "127.0.0.1"), ("x-original-url", "/healthz")], 401),
        (&[("authorization", good.as_str()), ("origin", "http://evil.example")], 403),
        (&[("authorization", good.as_str()), ("host", "evil.example")], 403),
    ] {
        assert_eq!(server.ask("GET", "/api/tg/v1/runs", headers, b"").status, status, "{headers:?}");
    }
    let shouted = format!("BEARER   {token} ");
    assert_eq!(server.ask("GET", "/api/tg/v1/runs", &[("authorization", &shouted)], b"").status, 200);
    for path in
        [format!("/api/tg/v1/runs?token={token}"), format!("/api/tg/v1/runs?x={token}"), format!("/{token}")]
    {
        let answer = server.ask("GET", &path, &[("authorization", &good)], b"");
        assert_eq!(answer.status, 400, "{path}");
        assert!(text(&answer.json()["error"]["hint"]).contains("revoke"), "{}", answer.json());
    }
    // A metric that starts as a token does is none.
    assert_eq!(
        server
            .ask("GET", "/api/v1/query?query=tg_gpu_energy_joules_total", &[("authorization", &good)], b"")
            .status,
        200
    );
    assert_eq!(server.push(&request("r", 1, 1, vec![series("loss", &[1.0])])).0, 401);
    for path in [
        "/api/tg/v1/runs",
        "/api/tg/v1/runs/",
        "//api/tg/v1/runs",
        "/./api/tg/v1/runs",
        "/x/../api/tg/v1/runs",
        "/%61pi/tg/v1/runs",
        "/api/tg/v1/runs%2f",
        "/API/tg/v1/runs",
        "/api/tg/v1//runs",
        "/api;x/tg/v1/runs",
        "/metrics",
        "/metrics/",
        "//metrics",
        "/METRICS",
        "/api",
        "/api/v1/status/tsdb",
        "/healthz/../metrics",
    ] {
        for method in ["GET", "HEAD", "POST", "OPTIONS", "DELETE", "PUT", "TRACE"] {
            let answer = server.ask(method, path, &[], b"");
            let body = String::from_utf8_lossy(&answer.body).into_owned();
            assert!(
                !body.contains("\"runs\":[")
                    && !body.contains("truegauge_build_info")
                    && !body.contains("headStats"),
                "{method} {path}: {body}"
            );
        }
    }
    let absolute = format!(
        "GET http://{0}/api/tg/v1/runs HTTP/1.1\r\nhost: {0}\r\nconnection: close\r\n\r\n",
        server.address()
    );
    assert_eq!(server.raw(absolute.as_bytes()).status, 401);
    let log = fs::read_to_string(server.home.join("log")).unwrap();
    assert!(!log.contains(token) && !log.contains(ROOT), "{log}");
}

/// The value of the cookie that an answer sets, and its line.
fn cookie(answer: &Answer) -> (String, String) {
    let line = answer.head.lines().find_map(|line| line.strip_prefix("set-cookie: ")).unwrap().to_owned();
    (line.split(';').next().unwrap().to_owned(), line)
}

#[test]
fn a_browser_logs_in_by_a_link_that_works_once_and_out_again() {
    let server = guarded();
    let made = create(&server, ROOT, &json!({"scopes": ["read", "ingest"], "name": "ada", "project": "p"}));
    let (code, link, _) = server.cli(&["token", "login", "--token", text(&made["token"])]);
    let (address, code_in_link) = link.trim().split_once("/login#").unwrap();
    assert_eq!((code, address), (0, server.url.as_str()));
    let login = |code: &str| server.post_json("/api/tg/v1/login", &json!({"code": code}));
    let answer = login(code_in_link);
    let (cookie, line) = cookie(&answer);
    for part in ["httponly", "samesite=strict", "path=/", "max-age="] {
        assert!(line.contains(part), "{line}");
    }
    assert!(!line.contains("secure"), "{line}");
    assert_eq!(login(code_in_link).status, 401, "a link works once");
    assert_eq!(login("0").status, 401);

    let who = server.ask("GET", "/api/tg/v1/session", &[("cookie", &cookie)], b"").json();
    assert_eq!((&who["caller"]["name"], &who["caller"]["project"]), (&json!("ada"), &json!("p")));
    assert_eq!(who["caller"]["session"], true);
    let own = server.url.clone();
    let ask = |method: &str, path: &str, headers: &[(&str, &str)]| {
        server.ask(method, path, &[headers, &[("cookie", cookie.as_str())]].concat(), b"").status
    };
    assert_eq!(ask("GET", "/api/tg/v1/runs", &[]), 200);
    assert_eq!(ask("GET", "/api/tg/v1/runs", &[("origin", "http://evil.example")]), 403);
    assert_eq!(ask("GET", "/api/tg/v1/runs", &[("origin", "null")]), 403);
    // A change needs a page of this server; a missing run is as far as it gets.
    let change = "/api/tg/v1/runs/0000000000000000/restore";
    assert_eq!(ask("POST", change, &[]), 403);
    assert_eq!(ask("POST", change, &[("origin", &own.replace("127.0.0.1", "localhost"))]), 403);
    assert_eq!(ask("POST", change, &[("origin", &own), ("sec-fetch-site", "same-origin")]), 403, "scope");
    assert_eq!(ask("POST", "/api/tg/v1/points", &[("origin", &own)]), 400, "read: past the guard");
    // A wrong token beside a good cookie is a wrong token.
    assert_eq!(ask("GET", "/api/tg/v1/runs", &[("authorization", "Bearer wrong")]), 401);

    let out = server.ask("DELETE", "/api/tg/v1/session", &[("cookie", &cookie), ("origin", &own)], b"");
    assert!(out.head.contains("max-age=0"), "{}", out.head);
    assert_eq!(ask("GET", "/api/tg/v1/runs", &[]), 401, "the session is gone, not only the cookie");
}

#[test]
fn a_session_has_the_rights_of_its_token_and_ends_with_it() {
    let server = guarded();
    let made = create(&server, ROOT, &json!({"scopes": ["read"]}));
    let answer = server.post_json("/api/tg/v1/login", &json!({"token": made["token"]}));
    assert_eq!(answer.status, 200);
    let (cookie, _) = cookie(&answer);
    let ask = |path: &str| server.ask("GET", path, &[("cookie", &cookie)], b"").status;
    assert_eq!((ask("/api/tg/v1/runs"), ask("/api/tg/v1/tokens")), (200, 403));
    let twice = format!("{cookie}; {cookie}");
    assert_eq!(server.ask("GET", "/api/tg/v1/runs", &[("cookie", &twice)], b"").status, 401);
    let id = text(&made["id"]);
    assert_eq!(with(&server, "DELETE", &format!("/api/tg/v1/tokens/{id}"), ROOT, "").status, 200);
    assert_eq!(ask("/api/tg/v1/runs"), 401);
    assert_eq!(server.post_json("/api/tg/v1/login", &json!({"token": made["token"]})).status, 401);
    assert_eq!(server.post_json("/api/tg/v1/login", &json!({})).status, 400);
    let page = server.url.replace("http:", "https:");
    let by_proxy = server.ask(
        "POST",
        "/api/tg/v1/login",
        &[("origin", &page)],
        json!({"token": ROOT}).to_string().as_bytes(),
    );
    assert!(by_proxy.head.contains("; secure"), "{}", by_proxy.head);
    let foreign = server.ask(
        "POST",
        "/api/tg/v1/login",
        &[("origin", "http://evil.example")],
        json!({"token": ROOT}).to_string().as_bytes(),
    );
    assert_eq!(foreign.status, 403, "no page of another's logs a browser in");
}

#[test]
fn up_prints_a_link_that_logs_in_where_a_token_is_asked_for() {
    use std::io::{BufRead, BufReader};
    use std::process::Stdio;

    let home = tempfile::tempdir().unwrap();
    let mut child = crate::process::truegauge(home.path())
        .args(["up", "--listen", "127.0.0.1:0", "--token", ROOT])
        .args(["--data-dir", home.path().join("data").to_str().unwrap()])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut said = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    let line = said.find(|line| line.contains("/login#")).unwrap();
    let (url, code) = line.rsplit(' ').next().unwrap().split_once("/login#").unwrap();
    let server = Server::attached(url, child, home.path());
    let answer = server.post_json("/api/tg/v1/login", &json!({"code": code}));
    assert_eq!((answer.status, answer.json()["caller"]["scopes"].clone()), (200, json!(["admin"])));
}
