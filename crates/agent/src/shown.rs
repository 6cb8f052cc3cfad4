//! The last look, for whoever asks.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::config::Names;
use crate::tick::Reading;
use crate::{dcgm, expose};

/// Intervals without a look after which something is wrong; and the least time.
const PATIENCE_INTERVALS: u32 = 5;
const PATIENCE: Duration = Duration::from_mins(1);

#[derive(Debug)]
struct Last {
    readings: Vec<Reading>,
    /// The last Xid by the card's UUID.
    xids: BTreeMap<String, u64>,
    looked: Instant,
    page: Option<String>,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Shown {
    host: String,
    names: Names,
    patience: Duration,
    last: Mutex<Last>,
}

impl Shown {
    pub(crate) fn new(host: &str, names: Names, interval: Duration) -> Self {
        let last = Last { readings: Vec::new(), xids: BTreeMap::new(), looked: Instant::now(), page: None };
        let patience = PATIENCE.max(interval * PATIENCE_INTERVALS);
        Self { host: host.to_owned(), names, patience, last: Mutex::new(last) }
    }

    fn lock(&self) -> MutexGuard<'_, Last> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a look in, with the Xids that it told by UUID.
    pub(crate) fn put(&self, readings: Vec<Reading>, xids: Vec<(String, u64)>) {
        let mut last = self.lock();
        last.readings = readings;
        last.xids.extend(xids);
        last.looked = Instant::now();
        last.page = None;
    }

    pub(crate) fn page(&self) -> String {
        let mut last = self.lock();
        // Numbers that nobody renews are not those of now.
        if last.looked.elapsed() > self.patience {
            return String::new();
        }
        if let Some(page) = &last.page {
            return page.clone();
        }
        let page = match self.names {
            Names::Tg => expose::page(&self.host, &last.readings),
            Names::Dcgm => dcgm::page(&self.host, &last.readings, &last.xids),
        };
        last.page = Some(page.clone());
        page
    }

    /// What is wrong, if anything is.
    pub(crate) fn trouble(&self) -> Option<String> {
        let silent = self.lock().looked.elapsed();
        (silent > self.patience).then(|| format!("the node was not looked at for {} s", silent.as_secs()))
    }
}
