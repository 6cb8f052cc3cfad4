//! The event stream.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;

use serde_json::Value;

use crate::process::{DEADLINE, Server, id, request, series, session};

/// An open stream.
struct Events(BufReader<TcpStream>);

#[derive(Debug)]
struct Event {
    name: String,
    cursor: u64,
    data: Value,
}

impl Events {
    fn open(server: &Server, topics: &str, seen: Option<u64>) -> Self {
        let mut stream = TcpStream::connect(server.address()).unwrap();
        stream.set_read_timeout(Some(DEADLINE)).unwrap();
        let seen = seen.map(|id| format!("last-event-id: {id}\r\n")).unwrap_or_default();
        let ask = format!("GET /api/tg/v1/stream?topics={topics} HTTP/1.1\r\nhost: localhost\r\n{seen}\r\n");
        stream.write_all(ask.as_bytes()).unwrap();
        Self(BufReader::new(stream))
    }

    /// The next event that is not a ping.
    fn next(&mut self) -> Event {
        loop {
            let event = self.any();
            if event.name != "ping" {
                return event;
            }
        }
    }

    fn any(&mut self) -> Event {
        let mut event = Event { name: String::new(), cursor: 0, data: Value::Null };
        loop {
            let mut line = String::new();
            assert!(self.0.read_line(&mut line).unwrap() > 0, "the stream ended");
            let line = line.trim_end();
            if let Some(name) = line.strip_prefix("event: ") {
                name.clone_into(&mut event.name);
            } else if let Some(cursor) = line.strip_prefix("id: ") {
                event.cursor = cursor.parse().unwrap();
            } else if let Some(data) = line.strip_prefix("data: ") {
                event.data = serde_json::from_str(data).unwrap();
            } else if line.is_empty() && !event.name.is_empty() {
                return event;
            }
        }
    }
}

#[test]
fn changes_come_with_a_cursor_that_resumes() {
    let server = Server::start(&[]);
    let mut events = Events::open(&server, &format!("runs,run:{}", id("a")), None);
    assert_eq!(events.any().name, "ping", "a stream starts with a sign of life");
    let mut sent = request("a", 1, 1, vec![series("loss", &[1.0, 2.0, 3.0])]);
    sent.session = Some(session(0, 1));
    assert_eq!(server.push(&sent).0, 200);
    let run = events.next();
    assert_eq!((run.name.as_str(), &run.data["run_id"]), ("run", &id("a").into()));
    assert_eq!((&run.data["points"], &run.data["last_step"]), (&3.into(), &2.into()));
    let runs = events.next();
    assert_eq!((runs.name.as_str(), &runs.data["run_ids"]), ("runs", &serde_json::json!([id("a")])));
    assert_eq!(run.cursor, runs.cursor);
    drop(events);
    assert_eq!(server.push(&request("b", 2, 1, vec![series("loss", &[1.0])])).0, 200);
    assert_eq!(server.push(&request("c", 3, 1, vec![series("loss", &[1.0])])).0, 200);
    let mut resumed = Events::open(&server, "runs", Some(runs.cursor));
    let mut missed = Vec::new();
    while missed.len() < 2 {
        let event = resumed.next();
        assert!(event.cursor > runs.cursor);
        missed.extend(event.data["run_ids"].as_array().unwrap().clone());
    }
    missed.sort_by_key(ToString::to_string);
    let mut want = vec![Value::from(id("b")), Value::from(id("c"))];
    want.sort_by_key(ToString::to_string);
    assert_eq!(missed, want, "what was missed comes once, and nothing else");
}

#[test]
fn a_cursor_of_an_earlier_life_is_told_everything() {
    let mut server = Server::start(&[]);
    assert_eq!(server.push(&request("a", 1, 1, vec![series("loss", &[1.0])])).0, 200);
    let cursor = Events::open(&server, "runs", None).any().cursor;
    server.kill();
    server.restart();
    let event = Events::open(&server, "runs", Some(cursor.saturating_sub(1_000_000))).next();
    assert_eq!(event.data["run_ids"], serde_json::json!([id("a")]));
}

#[test]
fn a_deleted_run_says_so_on_its_own_topic() {
    let server = Server::start(&[]);
    assert_eq!(server.push(&request("a", 1, 1, vec![series("loss", &[1.0])])).0, 200);
    let mut events = Events::open(&server, &format!("run:{}", id("a")), None);
    assert_eq!(server.ask("DELETE", &format!("/api/tg/v1/runs/{}", id("a")), &[], b"").status, 200);
    loop {
        let event = events.next();
        if event.data["state"] == "deleted" {
            break;
        }
    }
}
