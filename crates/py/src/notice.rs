//! Warnings of the client, said in Python without ever raising and without ever waiting for the GIL.
//!
//! The client may warn from its own threads and while it holds a lock. So a warning is only put in
//! line there, and said by the next call that comes from Python.

use std::ffi::CString;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, TryLockError};

use pyo3::prelude::*;

use crate::errors::TruegaugeWarning;

/// Warnings that wait at most; there is one per cause, so more would be a flood.
const WAITING_MAX: usize = 64;

static WAITING: Mutex<Vec<String>> = Mutex::new(Vec::new());
static ANY: AtomicBool = AtomicBool::new(false);

/// The line, if it can be had soon. A thread that held it while this process was forked holds it for
/// ever, and then warnings are the lesser loss.
fn line() -> Option<MutexGuard<'static, Vec<String>>> {
    const TRIES_MAX: u32 = 1000;
    for _ in 0..TRIES_MAX {
        match WAITING.try_lock() {
            Ok(waiting) => return Some(waiting),
            Err(TryLockError::Poisoned(waiting)) => return Some(waiting.into_inner()),
            Err(TryLockError::WouldBlock) => std::thread::yield_now(),
        }
    }
    None
}

/// Puts a warning in line. Takes no GIL.
pub(crate) fn put(message: String) {
    let Some(mut waiting) = line() else { return };
    if waiting.len() < WAITING_MAX {
        waiting.push(message);
        ANY.store(true, Ordering::Release);
    }
}

/// Says what waits, as `TruegaugeWarning` at the caller's line.
#[inline]
pub(crate) fn say(py: Python<'_>) {
    if ANY.load(Ordering::Relaxed) {
        say_all(py);
    }
}

#[cold]
fn say_all(py: Python<'_>) {
    ANY.store(false, Ordering::Release);
    let waiting = line().map(|mut waiting| std::mem::take(&mut *waiting)).unwrap_or_default();
    for message in waiting {
        warn(py, &message);
    }
}

/// Warns now. Where warnings are errors, the message goes to the logger `truegauge` instead.
pub(crate) fn warn(py: Python<'_>, message: &str) {
    let Ok(text) = CString::new(message.replace('\0', "\u{fffd}")) else { return };
    let category = py.get_type::<TruegaugeWarning>();
    if PyErr::warn(py, category.as_any(), &text, level(py).unwrap_or(1)).is_err() {
        // Nothing is left to say it with.
        drop(log(py, "warning", message));
    }
}

/// How many frames up the first one outside this package is, for `stacklevel`.
fn level(py: Python<'_>) -> PyResult<i32> {
    let mut frame = py.import("sys")?.call_method0("_getframe")?;
    let mut level = 1;
    while !frame.is_none() {
        let module = frame.getattr("f_globals")?.get_item("__name__")?;
        let name: String = module.extract()?;
        if name != "truegauge" && !name.starts_with("truegauge.") {
            return Ok(level);
        }
        frame = frame.getattr("f_back")?;
        level += 1;
    }
    Ok(1)
}

/// Writes lines to the logger `truegauge`, for who debugs.
pub(crate) fn debug(py: Python<'_>, lines: &[String]) {
    for line in lines {
        drop(log(py, "debug", line));
    }
}

fn log(py: Python<'_>, level: &str, message: &str) -> PyResult<()> {
    let logger = py.import("logging")?.call_method1("getLogger", ("truegauge",))?;
    logger.call_method1(level, ("%s", message)).map(drop)
}

/// In a forked child: forgets what the parent had still to say.
pub(crate) fn forget() {
    if let Some(mut waiting) = line() {
        waiting.clear();
    }
    ANY.store(false, Ordering::Release);
}
