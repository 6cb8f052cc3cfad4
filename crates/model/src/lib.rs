//! What truegauge talks about: series, samples, runs and the names and limits they obey.
//!
//! Layer 0. Pure data: no I/O, no clock, no serialisation, no async. Everything above agrees on
//! these types; the bytes they travel in belong to `wire`, the bytes they rest in to `store`.

mod action;
mod attribute;
mod capture;
mod desc;
mod event;
mod kind;
mod labels;
mod limits;
mod name;
mod nearest;
mod record;
mod rollup;
mod run;
mod sample;
mod telemetry;

pub use action::Action;
pub use attribute::AttributeValue;
pub use capture::{
    Arbitration, CAPTURE_PREFIX, CaptureDevice, CaptureFailure, CaptureLimits, CaptureOwner, CaptureReport,
    CaptureState, DeviceRole, DriverState, NodeRole,
};
pub use desc::{Desc, Trust, Unit};
pub use event::{EVENT_KINDS, Event, EventAsk, Severity};
pub use kind::MetricKind;
pub use labels::{Labels, LabelsBuilder};
pub use limits::{
    FLEET_SERIES_MAX, LABELS_PER_SERIES_MAX, LOGGED_LABEL_BYTES_MAX, NAME_BYTES_MAX, REFUSED_LABELS,
    RESERVED_LABELS, SERIES_PER_PROJECT_MAX, SERIES_PER_RUN_METRIC_MAX,
};
pub use name::{NameError, check_display_name, check_logged_label, needs_display, prometheus_name};
pub use nearest::nearest;
pub use record::{
    Attempt, RunChange, RunRecord, RunState, Session, SessionEnd, SessionEvent, SessionFacts, TagChange,
    WriterId,
};
pub use rollup::{RolledUp, RollupAsk, RollupBucket, RollupParts};
pub use run::{
    DEFAULT_SCALE, RunId, RunPath, SESSION_HEARTBEAT_SECONDS, STALE_AFTER_SECONDS, SeriesIdentity,
    series_identity,
};
pub use sample::{NANOS_PER_MILLI, NANOS_PER_SECOND, STALE_NAN_BITS, Sample, is_stale_marker, stale_marker};
pub use telemetry::{Exemplar, LogRecord, RecordAsk, Span, SpanAsk, SpanEvent, SpanId, SpanLink, TraceId};
