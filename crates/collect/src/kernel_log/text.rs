//! Lines of text, as dmesg, syslog and people's files have them.

use super::{Civil, LINE_BYTES_MAX, Origin, Record, kmsg, leading_number};

const LEVELS: [&str; 8] = ["emerg", "alert", "crit", "err", "warn", "notice", "info", "debug"];
const FACILITIES: [&str; 12] =
    ["kern", "user", "mail", "daemon", "auth", "syslog", "lpr", "news", "uucp", "cron", "authpriv", "ftp"];

impl Record {
    /// Reads a line. What stands before the text may be a header of `/dev/kmsg`, a priority, a facility and
    /// a level, a time in any of dmesg's ways, syslog's time, host and name, in any order that these write.
    pub fn of_line(line: &[u8]) -> Self {
        let line = line.strip_suffix(b"\n").unwrap_or(line);
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if let Some(record) = kmsg::header(line) {
            return record;
        }
        let mut record = Self { is_cut: line.len() > LINE_BYTES_MAX, ..Self::default() };
        let text = String::from_utf8_lossy(&line[..line.len().min(LINE_BYTES_MAX)]);
        let mut rest = text.trim_start();
        // A line has a handful of prefixes at most.
        for _ in 0..6 {
            let Some(after) = record.prefix(rest) else { break };
            rest = after.trim_start_matches(' ');
        }
        rest.clone_into(&mut record.text);
        record
    }

    /// Takes one prefix off; gives what follows.
    fn prefix<'a>(&mut self, text: &'a str) -> Option<&'a str> {
        if let Some(rest) = text.strip_prefix('<') {
            return self.bracketed_priority(rest);
        }
        if let Some(rest) = text.strip_prefix('[') {
            let (inside, rest) = rest.split_once(']')?;
            return self.bracketed(inside.trim()).then_some(rest);
        }
        if self.facility.is_none()
            && let Some(rest) = self.decoded_level(text)
        {
            return Some(rest);
        }
        if self.civil.is_some() || self.monotonic_us.is_some() {
            return None;
        }
        if text.starts_with(|c: char| c.is_ascii_digit())
            && let Some((civil, rest)) = Civil::of_iso(text)
        {
            self.civil = Some(civil);
            return Some(self.sender(rest).unwrap_or(rest));
        }
        let (civil, rest) = Civil::of_syslog(text)?;
        self.civil = Some(civil);
        Some(self.sender(rest).unwrap_or(rest))
    }

    /// `4>`, with the facility above the three lowest bits.
    fn bracketed_priority<'a>(&mut self, text: &'a str) -> Option<&'a str> {
        let (value, rest) = leading_number(text)?;
        let rest = rest.strip_prefix('>')?;
        let value = u32::try_from(value).ok().filter(|_| self.priority.is_none())?;
        self.priority = Some(value & 7);
        // Syslog's text has a facility only behind its own headers; `<4>` alone is dmesg's, the kernel's.
        self.facility = Some(value >> 3);
        self.origin = Origin::of_facility(value >> 3);
        Some(rest)
    }

    /// What dmesg puts into square brackets: seconds since boot, a date, a step in time, a thread.
    fn bracketed(&mut self, inside: &str) -> bool {
        let is_number =
            |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit() || b == b'.');
        let is_caller = inside
            .strip_prefix(['T', 'C'])
            .is_some_and(|id| !id.is_empty() && id.bytes().all(|b| b.is_ascii_digit()));
        let head = inside.split('<').next().unwrap_or(inside).trim();
        if let Some(us) = monotonic_us(head) {
            self.monotonic_us = Some(us);
            return true;
        }
        if let Some(civil) = Civil::of_dmesg(inside) {
            self.civil = Some(civil);
            return true;
        }
        // `dmesg -e` leaves the date out where it has not changed, so its lines have no time of their own.
        let is_step = inside.strip_prefix('+').is_some_and(|step| is_number(step.trim()));
        let is_minute = Civil::of_syslog(&format!("{inside}:00 ")).is_some();
        is_caller || is_step || is_minute || head.is_empty() && inside.starts_with('<')
    }

    /// `kern  :warn  : `, as `dmesg -x` writes it.
    fn decoded_level<'a>(&mut self, text: &'a str) -> Option<&'a str> {
        let (facility, rest) = text.split_once(':')?;
        let (level, rest) = rest.split_once(':')?;
        let facility = FACILITIES.iter().position(|name| *name == facility.trim())? as u32;
        let level = LEVELS.iter().position(|name| *name == level.trim())? as u32;
        self.facility = Some(facility);
        self.priority = Some(level);
        self.origin = Origin::of_facility(facility);
        Some(rest)
    }

    /// `node-031 kernel: `; another name than the kernel's is a process.
    fn sender<'a>(&mut self, text: &'a str) -> Option<&'a str> {
        let (host, rest) = text.split_once(' ')?;
        let (name, rest) = rest.split_once(": ")?;
        let is_name = !name.is_empty() && !name.contains([' ', '(']) && !host.ends_with(':');
        if !is_name {
            return None;
        }
        self.host = Some(host.to_owned());
        if name != "kernel" {
            self.origin = Origin::Userspace;
        }
        Some(rest)
    }
}

/// `8123.100001` in microseconds; a number without a point is none.
fn monotonic_us(text: &str) -> Option<u64> {
    let (seconds, fraction) = text.split_once('.')?;
    // Rust's numbers may begin with a plus, the kernel's steps do.
    let digits = !fraction.is_empty() && seconds.bytes().chain(fraction.bytes()).all(|b| b.is_ascii_digit());
    let fraction: String = fraction.chars().chain("000000".chars()).take(6).collect();
    digits
        .then(|| seconds.parse::<u64>().ok()?.checked_mul(1_000_000)?.checked_add(fraction.parse().ok()?))?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_way_of_writing_a_line_gives_its_text() {
        let check = |line: &str, us: Option<u64>, has_date: bool, origin: Origin| {
            let record = Record::of_line(line.as_bytes());
            assert_eq!(record.text, "NVRM: x [1]: y", "{line}");
            assert_eq!((record.monotonic_us, record.civil.is_some()), (us, has_date), "{line}");
            assert_eq!(record.origin, origin, "{line}");
        };
        check("NVRM: x [1]: y", None, false, Origin::Unknown);
        check("[ 8123.100001] NVRM: x [1]: y\r\n", Some(8_123_100_001), false, Origin::Unknown);
        check("[    8.1] NVRM: x [1]: y", Some(8_100_000), false, Origin::Unknown);
        check("[ 8123.100001][ T1234] NVRM: x [1]: y", Some(8_123_100_001), false, Origin::Unknown);
        check("[ 8123.100001 <    0.000010>] NVRM: x [1]: y", Some(8_123_100_001), false, Origin::Unknown);
        check("[<    0.000010>] NVRM: x [1]: y", None, false, Origin::Unknown);
        check("<4>[99.000010] NVRM: x [1]: y", Some(99_000_010), false, Origin::Kernel);
        check("<12>[99.000010] NVRM: x [1]: y", Some(99_000_010), false, Origin::Userspace);
        check("kern  :warn  : [99.000010] NVRM: x [1]: y", Some(99_000_010), false, Origin::Kernel);
        check("user  :warn  : [99.000010] NVRM: x [1]: y", Some(99_000_010), false, Origin::Userspace);
        check("[Mon Nov  3 02:14:10 2026] NVRM: x [1]: y", None, true, Origin::Unknown);
        check("[Nov 3 02:14] NVRM: x [1]: y", None, false, Origin::Unknown);
        check("[  +0.000010] NVRM: x [1]: y", None, false, Origin::Unknown);
        check("2026-11-03T02:14:10,123456+00:00 NVRM: x [1]: y", None, true, Origin::Unknown);
        check("Nov 03 02:14:09 node-031 kernel: NVRM: x [1]: y", None, true, Origin::Unknown);
        check(
            "Nov  3 02:14:09 node-031 kernel: [ 99.000010] NVRM: x [1]: y",
            Some(99_000_010),
            true,
            Origin::Unknown,
        );
        check("2026-11-03T02:14:09+0000 node-031 kernel: NVRM: x [1]: y", None, true, Origin::Unknown);
        check("Nov  3 02:14:09 node-031 app[17]: NVRM: x [1]: y", None, true, Origin::Userspace);
        check("4,1301,8123100003,-;NVRM: x [1]: y", Some(8_123_100_003), false, Origin::Kernel);
    }

    #[test]
    fn the_host_of_a_line_of_syslog_is_kept() {
        let record = Record::of_line(b"Nov 03 02:14:09 node-031 kernel: NVRM: x");
        assert_eq!(record.host.as_deref(), Some("node-031"));
    }
}
