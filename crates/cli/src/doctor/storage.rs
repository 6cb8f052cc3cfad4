//! Whether the far storage takes what this server sends, and how late it may be.

use std::time::Duration;

use serde_json::Value;
use server::Finding;
use server::config::{Config, StorageKind};

use super::{Check, Verdict, fail, ok, warn};
use crate::http::Server;
use crate::table::bytes;

/// Longest wait for the server's own look at its far storage.
const CHECK_TIMEOUT: Duration = Duration::from_mins(1);
/// A sample that waits longer than this is told of.
const LAG_SECONDS: f64 = 60.0;

/// Looks from this machine, where the settings name a far storage.
pub(super) fn settings(config: &Config) -> Vec<Check> {
    match server::check_storage(config) {
        Ok(findings) => findings.into_iter().map(check).collect(),
        Err(error) => {
            vec![fail(
                "storage",
                error.to_string(),
                "docs/guides/far-storage.md shows what `[storage]` needs",
            )]
        }
    }
}

fn check(finding: Finding) -> Check {
    let verdict = match finding.status {
        "ok" => Verdict::Ok,
        "warn" => Verdict::Warn,
        _ => Verdict::Fail,
    };
    Check { id: finding.id, verdict, evidence: finding.evidence, fix: finding.fix }
}

/// Asks a server that runs how its far storage fares, and to look at it where the settings at hand
/// name none.
pub(super) fn running(server: &Server, config: &Config) -> Vec<Check> {
    let Ok(answer) = server.get("/api/tg/v1/storage") else { return Vec::new() };
    let far = &answer["far"];
    if far.is_null() {
        return Vec::new();
    }
    let mut checks = Vec::new();
    if config.storage.kind == StorageKind::Embedded {
        match server.ask("POST", "/api/tg/v1/storage/check", CHECK_TIMEOUT) {
            Ok(found) => checks.extend(found["checks"].as_array().into_iter().flatten().filter_map(told)),
            // A token that may read need not be one that may let the server write.
            Err(failure) => checks.push(warn(
                "storage",
                format!("the server does not look at its far storage: {}", failure.message()),
                "an admin's token lets it",
            )),
        }
    }
    checks.push(queue(far));
    checks.extend(left_out(far));
    checks.push(refused(&far["refused"]));
    checks
}

fn told(found: &Value) -> Option<Check> {
    const IDS: [&str; 4] = ["storage.write", "storage.query", "storage.window", "storage.clock"];
    let text = |name: &str| found[name].as_str().unwrap_or_default();
    let id = IDS.into_iter().find(|id| *id == text("id"))?;
    Some(match text("status") {
        "ok" => Check { fix: text("fix").to_owned(), ..ok(id, text("evidence")) },
        "warn" => warn(id, text("evidence"), text("fix")),
        _ => fail(id, text("evidence"), text("fix")),
    })
}

fn queue(far: &Value) -> Check {
    let queue = &far["queue"];
    let number = |name: &str| queue[name].as_u64().unwrap_or_default();
    let lag = queue["lag_seconds"].as_f64().unwrap_or_default();
    let waits = format!(
        "{} of {} wait for the far storage, the oldest since {lag:.0} s",
        bytes(number("bytes")),
        bytes(number("bytes_max"))
    );
    let fix = "samples wait on this server's disk and are refused once `storage_queue_bytes_max` is reached";
    match far["failing"]["words"].as_str() {
        Some(words) => fail("storage.queue", format!("{waits}; it takes nothing: {words}"), fix),
        None if lag > LAG_SECONDS => warn("storage.queue", waits, "more `storage_shards` send faster"),
        None => ok("storage.queue", waits),
    }
}

/// What is kept here and not sent on.
fn left_out(far: &Value) -> Vec<Check> {
    let rows = far["left_out"].as_array().into_iter().flatten();
    rows.map(|row| {
        let text = |name: &str| row[name].as_str().unwrap_or_default();
        let evidence = format!(
            "{} samples are kept here and not sent ({}): {}",
            row["samples"].as_u64().unwrap_or_default(),
            text("reason"),
            text("example")
        );
        warn("storage.left_out", evidence, "docs/guides/far-storage.md says which limits there are")
    })
    .collect()
}

fn refused(refused: &Value) -> Check {
    let number = |name: &str| refused[name].as_u64().unwrap_or_default();
    let entries = number("entries");
    let newest = &refused["list"][0];
    if entries == 0 {
        return ok("storage.refused", "the far storage refused nothing that was not sent again");
    }
    warn(
        "storage.refused",
        format!(
            "{entries} refused requests are set aside, the newest with {} samples such as {}: {}",
            newest["samples"].as_u64().unwrap_or_default(),
            newest["series"].as_str().unwrap_or_default(),
            newest["words"].as_str().unwrap_or_default()
        ),
        "mend the cause and `POST /api/tg/v1/storage/refused/retry`, or `DELETE /api/tg/v1/storage/refused`",
    )
}
