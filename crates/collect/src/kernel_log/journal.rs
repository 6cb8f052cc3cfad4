//! journald's export format: lines `KEY=value`, or `KEY`, a size in eight bytes and that many bytes; an
//! empty line ends an entry.

use super::{LINE_BYTES_MAX, Origin, Record, plain_boot_id};

/// Sizes from here on are no sizes.
const FIELD_BYTES_MAX: u64 = 1 << 30;

#[derive(Debug, Default)]
enum State {
    #[default]
    Line,
    Size {
        key: Vec<u8>,
    },
    Data {
        key: Vec<u8>,
        left: u64,
    },
    /// The line end behind data.
    End,
}

/// Reads entries from pieces of bytes.
#[derive(Debug, Default)]
pub(super) struct Journal {
    state: State,
    kept: Vec<u8>,
    is_cut: bool,
    entry: Entry,
}

#[derive(Debug, Default)]
struct Entry {
    record: Record,
    has_text: bool,
    is_of_kernel: Option<bool>,
    arrived_us: Option<u64>,
}

impl Journal {
    pub(super) fn take(&mut self, mut bytes: &[u8], sink: &mut dyn FnMut(Record)) {
        while !bytes.is_empty() {
            bytes = match std::mem::take(&mut self.state) {
                State::Line => self.line(bytes, sink),
                State::Size { key } => self.size(key, bytes),
                State::Data { key, left } => self.data(key, left, bytes),
                State::End => bytes.strip_prefix(b"\n").unwrap_or(bytes),
            };
        }
    }

    /// Gives the entry that no empty line has ended yet.
    pub(super) fn finish(&mut self, sink: &mut dyn FnMut(Record)) {
        if matches!(self.state, State::Line) && !self.kept.is_empty() {
            self.line_ends(sink);
        }
        self.entry_ends(sink);
        *self = Self::default();
    }

    fn keep(&mut self, bytes: &[u8]) {
        let room = LINE_BYTES_MAX.saturating_sub(self.kept.len());
        self.is_cut |= bytes.len() > room;
        self.kept.extend_from_slice(&bytes[..bytes.len().min(room)]);
    }

    fn line<'a>(&mut self, bytes: &'a [u8], sink: &mut dyn FnMut(Record)) -> &'a [u8] {
        let Some(end) = bytes.iter().position(|byte| *byte == b'\n') else {
            self.keep(bytes);
            return &[];
        };
        self.keep(&bytes[..end]);
        self.line_ends(sink);
        &bytes[end + 1..]
    }

    fn line_ends(&mut self, sink: &mut dyn FnMut(Record)) {
        let line = std::mem::take(&mut self.kept);
        let is_cut = std::mem::take(&mut self.is_cut);
        if line.is_empty() {
            self.entry_ends(sink);
        } else if let Some(at) = line.iter().position(|byte| *byte == b'=') {
            self.entry.field(&line[..at], &line[at + 1..], is_cut);
        } else if line.len() < 128 {
            self.state = State::Size { key: line };
        }
    }

    fn size<'a>(&mut self, key: Vec<u8>, bytes: &'a [u8]) -> &'a [u8] {
        let wanted = 8 - self.kept.len().min(8);
        let (part, rest) = bytes.split_at(wanted.min(bytes.len()));
        self.kept.extend_from_slice(part);
        let Some(size) = self.kept.first_chunk::<8>().copied() else {
            self.state = State::Size { key };
            return rest;
        };
        self.kept.clear();
        let left = u64::from_le_bytes(size);
        // A size that cannot be is text that was no key: the next line is read as one.
        self.state = if left > FIELD_BYTES_MAX { State::Line } else { State::Data { key, left } };
        self.data_if_empty(rest)
    }

    fn data_if_empty<'a>(&mut self, rest: &'a [u8]) -> &'a [u8] {
        match std::mem::take(&mut self.state) {
            State::Data { key, left: 0 } => self.data(key, 0, rest),
            state => {
                self.state = state;
                rest
            }
        }
    }

    fn data<'a>(&mut self, key: Vec<u8>, left: u64, bytes: &'a [u8]) -> &'a [u8] {
        let here = usize::try_from(left).unwrap_or(usize::MAX).min(bytes.len());
        self.keep(&bytes[..here]);
        let left = left - here as u64;
        if left > 0 {
            self.state = State::Data { key, left };
        } else {
            let data = std::mem::take(&mut self.kept);
            let is_cut = std::mem::take(&mut self.is_cut);
            self.entry.field(&key, &data, is_cut);
            self.state = State::End;
        }
        &bytes[here..]
    }

    fn entry_ends(&mut self, sink: &mut dyn FnMut(Record)) {
        let entry = std::mem::take(&mut self.entry);
        if let Some(record) = entry.record() {
            sink(record);
        }
    }
}

impl Entry {
    fn field(&mut self, key: &[u8], value: &[u8], is_cut: bool) {
        let text = String::from_utf8_lossy(value);
        let number = || text.trim().parse::<u64>().ok();
        let record = &mut self.record;
        match key {
            b"MESSAGE" => {
                record.text = text.into_owned();
                record.is_cut = is_cut;
                self.has_text = true;
            }
            b"PRIORITY" => record.priority = number().and_then(|value| u32::try_from(value).ok()),
            b"SYSLOG_FACILITY" => record.facility = number().and_then(|value| u32::try_from(value).ok()),
            b"_TRANSPORT" => self.is_of_kernel = Some(text == "kernel"),
            b"_BOOT_ID" => record.boot_id = Some(plain_boot_id(&text)),
            b"__CURSOR" => record.cursor = Some(text.into_owned()).filter(|_| !is_cut),
            b"_HOSTNAME" => record.host = Some(text.into_owned()),
            b"_SOURCE_MONOTONIC_TIMESTAMP" => record.monotonic_us = number(),
            b"__MONOTONIC_TIMESTAMP" => self.arrived_us = number(),
            b"__REALTIME_TIMESTAMP" => {
                record.unix_ns = number().and_then(|us| i64::try_from(us).ok()?.checked_mul(1000));
            }
            b"_KERNEL_DEVICE" => record.fields.push(("DEVICE".to_owned(), text.into_owned())),
            b"_KERNEL_SUBSYSTEM" => record.fields.push(("SUBSYSTEM".to_owned(), text.into_owned())),
            _ => {}
        }
        record.fields.truncate(16);
    }

    fn record(self) -> Option<Record> {
        let mut record = self.record;
        record.monotonic_us = record.monotonic_us.or(self.arrived_us);
        // Only the transport is set by journald itself; a process can claim any facility.
        record.origin = match (self.is_of_kernel, record.facility) {
            (Some(false), _) => Origin::Userspace,
            (Some(true), facility) => Origin::of_facility(facility.unwrap_or(0)),
            (None, _) => Origin::Unknown,
        };
        self.has_text.then_some(record)
    }
}
