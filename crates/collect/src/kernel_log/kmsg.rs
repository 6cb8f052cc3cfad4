//! Records of `/dev/kmsg`: `priority,sequence,microseconds,flags[,...];text`, then lines of fields.

use super::{LINE_BYTES_MAX, Origin, Record};

impl Record {
    /// Reads what one read of `/dev/kmsg` gives. Nothing when it has no header.
    pub fn of_kmsg(bytes: &[u8]) -> Option<Self> {
        let mut lines = bytes.split(|byte| *byte == b'\n');
        let mut record = header(lines.next()?)?;
        for line in lines.filter_map(|line| line.strip_prefix(b" ")) {
            record.add_field(line);
        }
        Some(record)
    }

    /// Adds a line `KEY=value` of fields; the kernel's own are few.
    pub(super) fn add_field(&mut self, line: &[u8]) {
        const FIELDS_MAX: usize = 16;
        let text = unescape(&line[..line.len().min(1024)]);
        if let Some((key, value)) = text.split_once('=')
            && self.fields.len() < FIELDS_MAX
        {
            self.fields.push((key.to_owned(), value.to_owned()));
        }
    }
}

/// Reads the line with the header.
pub(super) fn header(line: &[u8]) -> Option<Record> {
    let is_cut = line.len() > LINE_BYTES_MAX;
    let line = &line[..line.len().min(LINE_BYTES_MAX)];
    let end = line.iter().position(|byte| *byte == b';')?;
    let head = std::str::from_utf8(&line[..end]).ok()?;
    if !head.starts_with(|c: char| c.is_ascii_digit()) {
        return None;
    }
    let mut parts = head.split(',');
    let priority: u32 = parts.next()?.parse().ok()?;
    let sequence = parts.next()?.parse().ok()?;
    let monotonic_us = parts.next()?.parse().ok()?;
    let flags = parts.next()?;
    let facility = priority >> 3;
    Some(Record {
        origin: Origin::of_facility(facility),
        priority: Some(priority & 7),
        facility: Some(facility),
        sequence: Some(sequence),
        monotonic_us: Some(monotonic_us),
        is_fragment: flags.contains(['c', '+']),
        is_cut,
        text: unescape(&line[end + 1..]),
        ..Record::default()
    })
}

/// Undoes the kernel's `\x0a` and reads what is left as UTF-8 as far as it is.
fn unescape(bytes: &[u8]) -> String {
    let mut plain = Vec::with_capacity(bytes.len());
    let mut rest = bytes;
    while let Some((byte, tail)) = rest.split_first() {
        let code = tail.strip_prefix(b"x").and_then(|hex| hex.get(..2)).filter(|_| *byte == b'\\');
        let value = code.and_then(|hex| u8::from_str_radix(std::str::from_utf8(hex).ok()?, 16).ok());
        if let Some(value) = value {
            plain.push(value);
            rest = &tail[3..];
        } else {
            plain.push(*byte);
            rest = tail;
        }
    }
    String::from_utf8_lossy(&plain).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_has_its_header_its_text_and_its_fields() {
        let record =
            Record::of_kmsg(b"30,1301,8123100003,-,caller=T17;a \\x5c b\\x0ac\xff\n SUBSYSTEM=pci\n DEVICE=+pci:0000:9a:00.0\n").unwrap();
        assert_eq!((record.priority, record.facility, record.origin), (Some(6), Some(3), Origin::Userspace));
        assert_eq!((record.sequence, record.monotonic_us), (Some(1301), Some(8_123_100_003)));
        assert_eq!(record.text, "a \\ b\nc\u{fffd}");
        assert_eq!(record.fields[1], ("DEVICE".to_owned(), "+pci:0000:9a:00.0".to_owned()));
        assert!(!record.is_fragment && !record.is_cut);
        let record = Record::of_kmsg(b"4,1,2,c;").unwrap();
        assert_eq!((record.origin, record.is_fragment, record.text.as_str()), (Origin::Kernel, true, ""));
    }

    #[test]
    fn what_has_no_header_is_no_record() {
        for text in [
            &b""[..],
            b"x",
            b"4,1,2;x",
            b"4,1,x,-;x",
            b"-4,1,2,-;x",
            b"\xff,1,2,-;x",
            b"4,18446744073709551616,2,-;",
        ] {
            assert_eq!(Record::of_kmsg(text), None, "{}", String::from_utf8_lossy(text));
        }
    }

    #[test]
    fn a_megabyte_is_cut() {
        let long = [b"4,1,2,-;".to_vec(), vec![b'x'; 1 << 20]].concat();
        let record = Record::of_kmsg(&long).unwrap();
        assert!(record.is_cut && record.text.len() <= LINE_BYTES_MAX);
    }
}
