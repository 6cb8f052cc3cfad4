//! Exemplars at the doors: taken with their points, counted, kept nowhere.

use std::io::{Read, Write};
use std::net::TcpListener;

use serde_json::json;
use wire::remote_write::{Point, RequestWriter};

use crate::process::{Server, eventually};

const PAGE: &str = "# TYPE c counter\nc_total 3 # {trace_id=\"abc\"} 1 1700000000\n# EOF\n";

/// Serves one page of OpenMetrics for ever; its address.
fn target() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/metrics", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            let _ = stream.read(&mut [0; 4_096]);
            let _ = write!(
                stream,
                "HTTP/1.1 200 OK\r\ncontent-type: application/openmetrics-text; version=1.0.0\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{PAGE}",
                PAGE.len()
            );
        }
    });
    url
}

/// One series of remote write 1.0 with a sample and two exemplars, as a snappy block.
fn body() -> Vec<u8> {
    let mut writer = RequestWriter::new();
    writer.series([("__name__", "c_total")], &[Point { time_ms: 1_700_000_000_000, value: 1.0 }]);
    let plain = wire::remote_write::decompress(&writer.finish().unwrap()).unwrap();
    // The series is field 1 of the request; exemplars are its field 3: a label, a value, a time.
    let exemplar =
        [&[0x0a, 6, 0x0a, 1, b'a', 0x12, 1, b'b', 0x11][..], &1.0_f64.to_le_bytes(), &[0x18, 1]].concat();
    let mut series = plain[2..].to_vec();
    for _ in 0..2 {
        series.extend([0x1a, exemplar.len() as u8]);
        series.extend(&exemplar);
    }
    let mut request = vec![0x0a, series.len() as u8];
    request.extend(series);
    let mut block = vec![request.len() as u8];
    for piece in request.chunks(60) {
        block.push(((piece.len() - 1) << 2) as u8);
        block.extend_from_slice(piece);
    }
    block
}

#[test]
fn exemplars_are_counted_and_their_points_are_kept() {
    let server = Server::start(&["--scrape", &target(), "--scrape-interval", "200ms"]);
    let headers = [("content-type", wire::remote_write::CONTENT_TYPE), ("content-encoding", "snappy")];
    let answer = server.ask("POST", "/api/v1/write", &headers, &body());
    assert_eq!(answer.status, 204, "{}", String::from_utf8_lossy(&answer.body));
    let counted = |door: &str| server.metric(&format!("truegauge_ingest_exemplars_total{{door=\"{door}\"}}"));
    assert_eq!(counted("remote_write"), 2.0);
    eventually("the page is scraped", || (counted("scrape") >= 2.0).then_some(()));
    assert_eq!(server.get("/api/v1/query_exemplars?query=c_total&start=0&end=1800000000")["data"], json!([]));
    assert_eq!(
        server.get("/api/v1/query?query=c_total%7Bjob%3D%22scrape%22%7D")["data"]["result"][0]["value"][1],
        "3"
    );
}

#[test]
fn a_querys_tree_is_shown() {
    let server = Server::start(&[]);
    let answer = server.get("/api/v1/parse_query?query=sum(foo)%20by%20(a)");
    assert_eq!(
        (&answer["status"], &answer["data"]["type"]),
        (&json!("success"), &json!("aggregation")),
        "{answer}"
    );
    assert_eq!((&answer["data"]["op"], &answer["data"]["grouping"]), (&json!("sum"), &json!(["a"])));
    let wrong = server.ask("POST", "/api/v1/parse_query?query=sum(", &[], b"");
    assert_eq!((wrong.status, &wrong.json()["errorType"]), (400, &json!("bad_data")));
}
