//! Warnings: one a cause, through one hook.

use std::collections::HashSet;
use std::io::Write;
use std::sync::{Mutex, OnceLock};

use crate::shared::lock;

/// Something a person should know, said once a cause and run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Warning {
    /// Bounded word for the cause, such as `server_away`.
    pub cause: &'static str,
    /// What happened, what it means and what to do, in one line.
    pub message: String,
}

static HOOK: OnceLock<fn(Warning)> = OnceLock::new();

/// Says where warnings go; without it they are one line each on standard error.
///
/// The first hook stays for the life of the process, so that no lock has to be taken after a fork;
/// returns whether it was this one. The hook is called from any of the run's threads, holding none
/// of its locks.
pub fn set_warning_hook(hook: fn(Warning)) -> bool {
    HOOK.set(hook).is_ok()
}

/// Hands a warning to the hook.
pub(crate) fn emit(warning: Warning) {
    match HOOK.get() {
        Some(hook) => hook(warning),
        None => drop(writeln!(std::io::stderr(), "truegauge: {}", warning.message)),
    }
}

/// Which causes were warned of already.
#[derive(Debug, Default)]
pub(crate) struct Warned(Mutex<HashSet<String>>);

impl Warned {
    /// Emits unless `key` was warned of before.
    pub(crate) fn once(&self, key: &str, warning: Warning) {
        if lock(&self.0).insert(key.to_owned()) {
            emit(warning);
        }
    }
}
