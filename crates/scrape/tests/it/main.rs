//! The scraper through its public face, against small HTTP servers on loopback.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "the lints' exemption covers test functions, not their helpers"
)]

mod config;
mod discovery;
mod hostile;
mod pages;
mod prometheus;
mod relabel;
mod support;
