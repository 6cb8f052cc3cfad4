//! What was recorded becomes batches that wait to be sent.

use wire::otlp::write;

use super::console;
use super::lane::{Batch, Signal};
use super::live::{Core, Stage};
use super::settings::Exporter;
use crate::clock::now_ns;
use crate::shared::lock;

impl Core {
    /// Makes batches of what there is: of the values, and of spans and log records.
    pub(crate) fn collect(&self, metrics: bool, rest: bool) {
        // Batches stand in the order in which they were collected, whoever did it.
        let _turn = lock(&self.collecting);
        if metrics {
            self.push(Signal::Metrics, self.metrics());
        }
        if rest {
            while let Some(batch) = self.spans() {
                self.push(Signal::Spans, Some(batch));
            }
            self.push(Signal::Records, self.records());
        }
    }

    fn push(&self, signal: Signal, batch: Option<Batch>) {
        let Some(batch) = batch else { return };
        let mut queue = lock(&self.queue);
        let is_closed = queue.stage == Stage::Closed;
        if let Some(lane) = queue.lanes.iter_mut().find(|lane| lane.signal == signal) {
            lane.push(batch);
            if is_closed {
                lane.abandon();
            }
        }
    }

    fn is_console(&self) -> bool {
        self.settings.exporter == Exporter::Console
    }

    fn metrics(&self) -> Option<Batch> {
        let snapshot = lock(&self.meter).collect(now_ns());
        let items = snapshot.points();
        if items == 0 || !self.settings.metrics {
            return None;
        }
        let metrics = snapshot.metrics();
        let write = if self.is_console() { console::metrics } else { write::metrics };
        Some(Batch { body: write(&self.settings.resource, &metrics), items })
    }

    fn spans(&self) -> Option<Batch> {
        let spans = lock(&self.tracer).batch();
        let write = if self.is_console() { console::spans } else { write::spans };
        (!spans.is_empty())
            .then(|| Batch { items: spans.len() as u64, body: write(&self.settings.resource, &spans) })
    }

    fn records(&self) -> Option<Batch> {
        let records = self.waiting_records();
        let write = if self.is_console() { console::records } else { write::records };
        (!records.is_empty())
            .then(|| Batch { items: records.len() as u64, body: write(&self.settings.resource, &records) })
    }
}
