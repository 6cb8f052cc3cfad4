//! Streams of bytes, cut into records.

use super::{LINE_BYTES_MAX, Record, journal::Journal};

/// How a stream is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Format {
    /// Records of `/dev/kmsg` one after another, with their lines of fields.
    Kmsg,
    /// journald's export format.
    Journal,
    /// Lines of dmesg, syslog or a file; those of `/dev/kmsg` among them are known by their header.
    Text,
}

/// Cuts a stream into records, however it comes in pieces. It keeps at most one line or entry.
#[derive(Debug)]
pub struct Feed {
    format: Format,
    line: Vec<u8>,
    is_cut: bool,
    waiting: Option<Record>,
    journal: Journal,
}

impl Feed {
    /// At the start of a stream.
    pub fn new(format: Format) -> Self {
        Self { format, line: Vec::new(), is_cut: false, waiting: None, journal: Journal::default() }
    }

    /// Takes the next piece and gives the records that it ends.
    pub fn take(&mut self, bytes: &[u8], sink: &mut dyn FnMut(Record)) {
        if self.format == Format::Journal {
            return self.journal.take(bytes, sink);
        }
        let mut rest = bytes;
        while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
            self.keep(&rest[..end]);
            self.line_ends(sink);
            rest = &rest[end + 1..];
        }
        self.keep(rest);
    }

    /// Ends the stream: gives what nothing has ended yet.
    pub fn finish(&mut self, sink: &mut dyn FnMut(Record)) {
        if self.format == Format::Journal {
            return self.journal.finish(sink);
        }
        if !self.line.is_empty() {
            self.line_ends(sink);
        }
        self.waiting.take().into_iter().for_each(sink);
    }

    fn keep(&mut self, bytes: &[u8]) {
        let room = LINE_BYTES_MAX.saturating_sub(self.line.len());
        self.is_cut |= bytes.len() > room;
        self.line.extend_from_slice(&bytes[..bytes.len().min(room)]);
    }

    fn line_ends(&mut self, sink: &mut dyn FnMut(Record)) {
        let is_cut = std::mem::take(&mut self.is_cut);
        let line = std::mem::take(&mut self.line);
        if self.format == Format::Text {
            let mut record = Record::of_line(&line);
            record.is_cut |= is_cut;
            if !record.text.is_empty() {
                sink(record);
            }
        } else if let Some(field) = line.strip_prefix(b" ") {
            if let Some(record) = &mut self.waiting {
                record.add_field(field);
            }
        } else {
            self.waiting.take().into_iter().for_each(&mut *sink);
            self.waiting = Record::of_kmsg(&line);
            if let Some(record) = &mut self.waiting {
                record.is_cut |= is_cut;
            }
        }
        // The room of a line is used again.
        self.line = line;
        self.line.clear();
    }
}
