//! Bytes to model and back. Layer 1; knows no sockets and no files.
//!
//! Today: the push protocol (`docs/format/push.md`). Exposition, remote write and OTLP join it here.

pub mod push;
