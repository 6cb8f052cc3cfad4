//! Keeps the store tidy: seals what is full, removes deleted runs once their undo is over.

use std::sync::Arc;
use std::time::Duration;

use model::NANOS_PER_SECOND;

use crate::app::{App, stopped};
use crate::clock::now_ns;

/// How long a deleted run can be brought back, seconds.
pub(crate) const UNDO_SECONDS: i64 = 30;
/// Time between two rounds.
const PERIOD: Duration = Duration::from_secs(1);

/// Starts the rounds; they end when the server stops.
pub(crate) fn spawn(app: &App) {
    let app = Arc::clone(app);
    let mut stopping = app.stopping.clone();
    tokio::spawn(async move {
        let mut failing = false;
        loop {
            tokio::select! {
                () = tokio::time::sleep(PERIOD) => (),
                () = stopped(&mut stopping) => return,
            }
            let app = Arc::clone(&app);
            let round = tokio::task::spawn_blocking(move || {
                let now_ns = now_ns();
                app.store.maintain(now_ns)?;
                app.store.purge_deleted(now_ns - UNDO_SECONDS * NANOS_PER_SECOND)
            });
            match round.await {
                Ok(Ok(purged)) => {
                    if purged > 0 {
                        tracing::info!(runs = purged, "removed deleted runs");
                    }
                    failing = false;
                }
                Ok(Err(error)) => {
                    if !failing {
                        tracing::warn!(%error, "cannot tidy the store, trying again each second");
                    }
                    failing = true;
                }
                Err(error) => tracing::error!(%error, "the store's upkeep ended early"),
            }
        }
    });
}
