//! How the far storage fares: for the API, `/metrics` and `doctor`.

use std::fmt::Write as _;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;

use serde::Serialize;
use utoipa::ToSchema;

use super::refused::Refusal;
use super::{Far, refused};
use crate::clock::now_ms;
use crate::metrics::head;

/// Entries of the list of refused samples in one answer, newest first.
const ENTRIES_SHOWN: usize = 100;

/// How the far storage fares.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct FarStatus {
    /// Where samples are written.
    write_url: String,
    /// Where queries go.
    query_url: String,
    tenant: String,
    queue: QueueStatus,
    /// Samples that the far storage has taken since the start.
    sent_samples: u64,
    /// When it took some last.
    sent_ms: Option<i64>,
    /// Since when nothing gets through, and why; null while all is well.
    failing: Option<FailingStatus>,
    /// Samples that are kept here and not sent, since the start.
    left_out: Vec<LeftOut>,
    refused: RefusedStatus,
}

/// What waits.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct QueueStatus {
    bytes: u64,
    bytes_max: u64,
    /// Samples of this start that wait.
    samples: u64,
    /// Age of the oldest sample that waits.
    lag_seconds: f64,
    /// Stretches that can't be read.
    damaged: u64,
}

/// Why nothing gets through.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct FailingStatus {
    since_ms: i64,
    words: String,
}

/// Samples that are not sent for one reason.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct LeftOut {
    reason: &'static str,
    samples: u64,
    example: String,
}

/// What the far storage refused.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct RefusedStatus {
    /// Samples refused since the start.
    samples: u64,
    /// Requests set aside, each with samples of one reason.
    entries: u64,
    bytes: u64,
    bytes_max: u64,
    /// Samples that went because too many were set aside.
    discarded_samples: u64,
    /// The newest entries.
    list: Vec<Refusal>,
}

impl Far {
    /// For the API.
    pub(crate) fn status(&self) -> FarStatus {
        let (mut list, bytes) = self.refused.list();
        let entries = list.len() as u64;
        list.reverse();
        list.truncate(ENTRIES_SHOWN);
        let failing = self.failing.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let left_out = self.counts.left_out.lock().unwrap_or_else(PoisonError::into_inner);
        let left_out = left_out.iter().map(|(reason, (samples, example))| LeftOut {
            reason,
            samples: *samples,
            example: example.clone(),
        });
        FarStatus {
            write_url: self.write.to_string(),
            query_url: self.query.to_string(),
            tenant: self.config.tenant.clone(),
            queue: QueueStatus {
                bytes: self.queue.bytes.load(Ordering::Relaxed),
                bytes_max: self.config.queue_bytes_max,
                samples: self.counts.waiting.load(Ordering::Relaxed),
                lag_seconds: self.lag_seconds(),
                damaged: self.counts.damaged.load(Ordering::Relaxed),
            },
            sent_samples: self.counts.sent.load(Ordering::Relaxed),
            sent_ms: Some(self.counts.sent_ms.load(Ordering::Relaxed)).filter(|ms| *ms > 0),
            failing: failing.map(|f| FailingStatus { since_ms: f.since_ms, words: f.words }),
            left_out: left_out.collect(),
            refused: RefusedStatus {
                samples: self.counts.refused.load(Ordering::Relaxed),
                entries,
                bytes,
                bytes_max: refused::BYTES_MAX,
                discarded_samples: self.refused.discarded_samples(),
                list,
            },
        }
    }

    fn lag_seconds(&self) -> f64 {
        let oldest = self.queue.shards.iter().map(|shard| shard.oldest_ms.load(Ordering::Relaxed));
        let oldest = oldest.filter(|ms| *ms > 0).min();
        oldest.map_or(0.0, |oldest| (now_ms() - oldest).max(0) as f64 / 1e3)
    }

    /// For `/metrics`.
    pub(crate) fn page(&self, page: &mut String) {
        let status = self.status();
        self.counts.requests.write(page);
        self.counts.queries.write(page);
        head(
            page,
            "truegauge_far_samples_total",
            "counter",
            "Samples toward the far storage: sent, refused by it, or left out with a reason.",
        );
        let mut sample = |outcome: &str, reason: &str, count: u64| {
            let _ = writeln!(
                page,
                "truegauge_far_samples_total{{outcome=\"{outcome}\",reason=\"{reason}\"}} {count}"
            );
        };
        sample("sent", "", status.sent_samples);
        sample("refused", "", status.refused.samples);
        for left_out in &status.left_out {
            sample("left_out", left_out.reason, left_out.samples);
        }
        let mut put = |name: &str, value: f64, help: &str| {
            head(page, name, "gauge", help);
            let _ = writeln!(page, "{name} {value}");
        };
        put("truegauge_far_queue_bytes", status.queue.bytes as f64, "Bytes that wait for the far storage.");
        put(
            "truegauge_far_queue_bytes_max",
            status.queue.bytes_max as f64,
            "Bytes that may wait; beyond it new samples are refused.",
        );
        put(
            "truegauge_far_queue_samples",
            status.queue.samples as f64,
            "Samples of this start that wait for the far storage.",
        );
        put(
            "truegauge_far_lag_seconds",
            status.queue.lag_seconds,
            "Age of the oldest sample that waits for the far storage.",
        );
        put(
            "truegauge_far_failing",
            f64::from(u8::from(status.failing.is_some())),
            "1 while the far storage takes nothing.",
        );
        put(
            "truegauge_far_refused_entries",
            status.refused.entries as f64,
            "Requests that the far storage refused and that are set aside.",
        );
        put(
            "truegauge_far_damaged_places",
            status.queue.damaged as f64,
            "Places of the queue that can't be read.",
        );
    }
}
