//! An append-only, checksummed queue of records on disk. Layer 1; knows nothing of what it carries.
//!
//! A spool is a directory: an opaque `header`, numbered segments of records, a `cursor` up to which
//! records were consumed, and a `lock` that its live writer holds. What was appended survives the
//! death of the process at once, and of the machine after [`Writer::sync`]. Byte by byte in
//! `docs/format/spool.md`.
//!
//! - [`Writer`] makes one, appends at the back and drains from the front.
//! - [`try_own`] takes over one whose writer is gone; [`Reader`] then reads it.
//! - [`list`] finds them.
//!
//! Damaged bytes never end a reading: what is whole before and behind them is handed out, and each
//! damaged stretch is reported as a [`Damage`] with its place.

mod cursor;
mod error;
mod lock;
mod reader;
mod record;
mod segment;
mod writer;

pub use error::{AppendError, CreateError, ReadError};
pub use lock::{Lock, list, try_own};
pub use reader::{Damage, Position, Reader, Record, Why};
pub use record::RECORD_BYTES_MAX;
pub use writer::{Options, Writer};

/// File that holds the opaque header.
const HEADER_FILE: &str = "header";
/// File that the live writer holds locked.
const LOCK_FILE: &str = "lock";
/// File that remembers what was consumed.
const CURSOR_FILE: &str = "cursor";
