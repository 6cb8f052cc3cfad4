//! The kernel's texts, as bytes. Every function is pure, takes anything and never fails loudly.

use crate::quota::Slice;

/// The whole text as one number in decimal; spaces and line ends around it do not count.
pub(crate) fn number(text: &[u8]) -> Option<u64> {
    let digits = text.trim_ascii();
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0u64, |value, byte| {
        let digit = byte.is_ascii_digit().then(|| u64::from(byte - b'0'))?;
        value.checked_mul(10)?.checked_add(digit)
    })
}

/// The words of a text.
fn words(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty())
}

/// The value behind `key` in lines of `key value`.
pub(crate) fn field(text: &[u8], key: &[u8]) -> Option<u64> {
    text.split(|byte| *byte == b'\n').find_map(|line| {
        let rest = line.strip_prefix(key)?;
        rest.first()?.is_ascii_whitespace().then(|| number(rest))?
    })
}

/// The value of `key` in `/proc/meminfo`, in bytes.
pub(crate) fn meminfo(text: &[u8], key: &[u8]) -> Option<u64> {
    text.split(|byte| *byte == b'\n').find_map(|line| {
        let rest = line.strip_prefix(key)?.strip_prefix(b":")?;
        words(rest).next().and_then(number)?.checked_mul(1024)
    })
}

/// A memory limit of version 2: `max` is none.
pub(crate) fn memory_max(text: &[u8]) -> Option<u64> {
    number(text)
}

/// A memory limit of version 1: a value from 2^62 up stands for none.
pub(crate) fn limit_in_bytes(text: &[u8]) -> Option<u64> {
    number(text).filter(|limit| *limit < 1 << 62)
}

/// A quota of version 2 (`quota period`); nothing for `max`.
pub(crate) fn cpu_max(text: &[u8]) -> Option<Slice> {
    let mut words = words(text);
    let quota = number(words.next()?)?;
    let period = words.next().map_or(Some(100_000), number)?;
    Slice::new(quota, period)
}

/// How many CPUs a list such as `0-3,8` names; nothing for an empty or malformed one.
pub(crate) fn cpu_list(text: &[u8]) -> Option<u64> {
    let text = text.trim_ascii();
    if text.is_empty() {
        return None;
    }
    text.split(|byte| *byte == b',').try_fold(0u64, |count, range| {
        let mut ends = range.splitn(2, |byte| *byte == b'-');
        let first = number(ends.next()?)?;
        let last = ends.next().map_or(Some(first), number)?;
        count.checked_add(last.checked_sub(first)?.checked_add(1)?)
    })
}

/// Busy kernel ticks of the line `cpu` in `/proc/stat`: the first eight columns without idle and iowait.
///
/// Steal counts as busy; the guest columns behind are inside user and nice already.
pub(crate) fn stat_busy_ticks(text: &[u8]) -> Option<u64> {
    let line = text.split(|byte| *byte == b'\n').find_map(|line| line.strip_prefix(b"cpu "))?;
    let mut busy = 0u64;
    let mut columns = 0;
    for (index, word) in words(line).take(8).enumerate() {
        let ticks = number(word)?;
        columns += 1;
        if index != 3 && index != 4 {
            busy = busy.checked_add(ticks)?;
        }
    }
    (columns >= 5).then_some(busy)
}

/// How many lines `cpu<n>` a `/proc/stat` has.
pub(crate) fn stat_cpus(text: &[u8]) -> Option<u64> {
    let is_cpu =
        |line: &&[u8]| line.strip_prefix(b"cpu").and_then(<[u8]>::first).is_some_and(u8::is_ascii_digit);
    let count = text.split(|byte| *byte == b'\n').filter(is_cpu).count();
    (count > 0).then_some(count as u64)
}

/// The first eight columns of the line `cpu` in `/proc/stat`, in kernel ticks; what old kernels lack is left out.
pub(crate) fn stat_ticks(text: &[u8]) -> impl Iterator<Item = u64> {
    let line = text.split(|byte| *byte == b'\n').find_map(|line| line.strip_prefix(b"cpu "));
    words(line.unwrap_or_default()).take(8).map_while(number)
}

/// The load of the last minute in `/proc/loadavg`.
pub(crate) fn load(text: &[u8]) -> Option<f64> {
    let load: f64 = std::str::from_utf8(words(text).next()?).ok()?.parse().ok()?;
    (load.is_finite() && load >= 0.0).then_some(load)
}

/// One row of `/proc/diskstats`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct DiskStats<'a> {
    pub(crate) name: &'a str,
    pub(crate) sectors_read: u64,
    pub(crate) sectors_written: u64,
    /// With at least one request under way.
    pub(crate) busy_ms: u64,
}

/// The rows of a `/proc/diskstats`; malformed ones are passed over.
pub(crate) fn disk_stats(text: &[u8]) -> impl Iterator<Item = DiskStats<'_>> {
    text.split(|byte| *byte == b'\n').filter_map(|line| {
        let mut columns = words(line).skip(2);
        let name = std::str::from_utf8(columns.next()?).ok()?;
        let numbers: Vec<u64> = columns.map_while(number).take(11).collect();
        let at = |column: usize| numbers.get(column).copied();
        Some(DiskStats { name, sectors_read: at(2)?, sectors_written: at(6)?, busy_ms: at(9)? })
    })
}

/// One row of `/proc/net/dev`: bytes, packets, errors, dropped, either way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Interface<'a> {
    pub(crate) name: &'a str,
    pub(crate) received: [u64; 4],
    pub(crate) transmitted: [u64; 4],
}

/// The rows of a `/proc/net/dev`; malformed ones are passed over, and so is its head.
pub(crate) fn net_dev(text: &[u8]) -> impl Iterator<Item = Interface<'_>> {
    text.split(|byte| *byte == b'\n').filter_map(|line| {
        // A name may have a colon, that of an alias; what follows it has none.
        let colon = line.iter().rposition(|byte| *byte == b':')?;
        let name = std::str::from_utf8(line[..colon].trim_ascii()).ok().filter(|name| !name.is_empty())?;
        let numbers: Vec<u64> = words(&line[colon + 1..]).map_while(number).take(16).collect();
        let four = |at: usize| numbers.get(at..at + 4)?.try_into().ok();
        Some(Interface { name, received: four(0)?, transmitted: four(8)? })
    })
}

/// One row of a mount table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Mount<'a> {
    /// Major and minor number of what is mounted.
    pub(crate) device: &'a [u8],
    /// Where it is mounted.
    pub(crate) point: Vec<u8>,
    /// Its kind, such as `ext4`.
    pub(crate) kind: &'a [u8],
}

/// The rows of a `/proc/<pid>/mountinfo`; malformed ones are passed over.
pub(crate) fn mounts(text: &[u8]) -> impl Iterator<Item = Mount<'_>> {
    text.split(|byte| *byte == b'\n').filter_map(|line| {
        let mut fields = line.split(|byte| *byte == b' ');
        let device = fields.nth(2)?;
        let point = fields.nth(1)?;
        fields.by_ref().find(|field| *field == b"-")?;
        Some(Mount { device, point: unescape(point), kind: fields.next()? })
    })
}

/// The `some` total of a pressure file, in microseconds.
pub(crate) fn pressure_some_us(text: &[u8]) -> Option<u64> {
    let line = text.split(|byte| *byte == b'\n').find_map(|line| line.strip_prefix(b"some "))?;
    words(line).find_map(|word| number(word.strip_prefix(b"total=")?))
}

/// What `/proc/<pid>/stat` says about a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ProcessStat {
    pub(crate) pid: u64,
    pub(crate) parent: u64,
    /// User and system time of its own threads, in kernel ticks.
    pub(crate) own_ticks: u64,
    /// The same of the children it has waited for, and of theirs.
    pub(crate) waited_ticks: u64,
    /// When it started, in kernel ticks since boot.
    pub(crate) start_ticks: u64,
    pub(crate) rss_pages: u64,
}

/// Reads `/proc/<pid>/stat`. The name in brackets may hold anything, so fields count from the last `)`.
pub(crate) fn process_stat(text: &[u8]) -> Option<ProcessStat> {
    let close = text.iter().rposition(|byte| *byte == b')')?;
    let pid = number(text.split(|byte| *byte == b'(').next()?)?;
    let mut fields = [0u64; 22];
    let mut seen = 0;
    // The first word behind the bracket is field 3, the state; numbers start at field 4.
    for (slot, word) in fields.iter_mut().zip(words(&text[close + 1..])) {
        *slot = number(word.strip_prefix(b"-").unwrap_or(word)).unwrap_or(0);
        seen += 1;
    }
    let at = |field: usize| fields[field - 3];
    (seen == fields.len()).then(|| ProcessStat {
        pid,
        parent: at(4),
        own_ticks: at(14).saturating_add(at(15)),
        waited_ticks: at(16).saturating_add(at(17)),
        start_ticks: at(22),
        rss_pages: at(24),
    })
}

/// Resident pages of `/proc/self/statm`: its second number.
pub(crate) fn statm_resident_pages(text: &[u8]) -> Option<u64> {
    words(text).nth(1).and_then(number)
}

/// The value of `/proc/uptime` in nanoseconds.
pub(crate) fn uptime_ns(text: &[u8]) -> Option<u64> {
    let mut parts = words(text).next()?.splitn(2, |byte| *byte == b'.');
    let seconds = number(parts.next()?)?;
    let fraction = parts.next().unwrap_or(b"");
    let nanoseconds = fraction.iter().chain([b'0'; 9].iter()).take(9).copied().collect::<Vec<u8>>();
    seconds.checked_mul(1_000_000_000)?.checked_add(number(&nanoseconds)?)
}

/// One cgroup filesystem in `/proc/self/mountinfo`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CgroupMount {
    /// True for the unified hierarchy.
    pub(crate) unified: bool,
    /// Which cgroup lies at the mount point.
    pub(crate) root: Vec<u8>,
    /// Where it is mounted.
    pub(crate) point: Vec<u8>,
    /// The options of the superblock: on version 1 the controllers are among them.
    pub(crate) options: Vec<Vec<u8>>,
}

/// The cgroup filesystems of a `/proc/self/mountinfo`, in its order.
pub(crate) fn mountinfo(text: &[u8]) -> Vec<CgroupMount> {
    text.split(|byte| *byte == b'\n').filter_map(mount_line).collect()
}

fn mount_line(line: &[u8]) -> Option<CgroupMount> {
    let mut fields = line.split(|byte| *byte == b' ');
    let root = fields.nth(3)?;
    let point = fields.next()?;
    // Any number of optional fields stands before a single dash.
    fields.by_ref().find(|field| *field == b"-")?;
    let unified = match fields.next()? {
        b"cgroup" => false,
        b"cgroup2" => true,
        _ => return None,
    };
    let options = fields.nth(1)?.split(|byte| *byte == b',').map(<[u8]>::to_vec).collect();
    Some(CgroupMount { unified, root: unescape(root), point: unescape(point), options })
}

/// Undoes the octal escapes of mountinfo (`\040` is a space).
fn unescape(text: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((byte, tail)) = rest.split_first() {
        let octal = (*byte == b'\\').then(|| tail.get(..3)).flatten();
        let value = octal.and_then(|digits| {
            digits.iter().try_fold(0u32, |value, digit| {
                (b'0'..=b'7').contains(digit).then(|| value * 8 + u32::from(digit - b'0'))
            })
        });
        if let Some(value) = value.and_then(|value| u8::try_from(value).ok()) {
            plain.push(value);
            rest = &tail[3..];
        } else {
            plain.push(*byte);
            rest = tail;
        }
    }
    plain
}

/// One line of `/proc/self/cgroup`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Membership {
    /// Controllers of a version 1 hierarchy; empty for the unified one.
    pub(crate) controllers: Vec<Vec<u8>>,
    /// The process's cgroup in it.
    pub(crate) path: Vec<u8>,
}

/// The lines of a `/proc/self/cgroup`; malformed ones are passed over.
pub(crate) fn memberships(text: &[u8]) -> Vec<Membership> {
    text.split(|byte| *byte == b'\n').filter_map(membership_line).collect()
}

fn membership_line(line: &[u8]) -> Option<Membership> {
    let mut parts = line.splitn(3, |byte| *byte == b':');
    number(parts.next()?)?;
    let controllers = parts.next()?;
    let path = parts.next().filter(|path| path.first() == Some(&b'/'))?;
    let controllers = controllers.split(|byte| *byte == b',').filter(|name| !name.is_empty());
    Some(Membership { controllers: controllers.map(<[u8]>::to_vec).collect(), path: path.to_vec() })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_number_is_the_whole_text() {
        for (text, want) in [
            (&b"5\n"[..], Some(5)),
            (b" 18446744073709551615 ", Some(u64::MAX)),
            (b"18446744073709551616", None),
            (b"", None),
            (b"\n", None),
            (b"-1", None),
            (b"+1", None),
            (b"5 6", None),
            (b"0x5", None),
            (b"5\xff", None),
        ] {
            assert_eq!(number(text), want, "{:?}", String::from_utf8_lossy(text));
        }
    }

    #[test]
    fn a_field_is_found_by_its_whole_name() {
        let text = b"inactive_file_x 1\nxinactive_file 2\ninactive_file 3\ninactive_file 4\nempty\nbad x\n";
        assert_eq!(field(text, b"inactive_file"), Some(3));
        assert_eq!(field(text, b"empty"), None);
        assert_eq!(field(text, b"bad"), None);
        assert_eq!(field(text, b"none"), None);
    }

    #[test]
    fn limits_of_version_1_from_two_to_the_62_are_none() {
        for (text, want) in [
            (&b"9223372036854771712\n"[..], None),
            (b"9223372036854710272\n", None),
            (b"4611686018427387904", None),
            (b"4611686018427387903", Some((1 << 62) - 1)),
            (b"-1", None),
        ] {
            assert_eq!(limit_in_bytes(text), want, "{:?}", String::from_utf8_lossy(text));
        }
    }

    #[test]
    fn a_cpu_list_counts_its_cpus() {
        for (text, want) in [
            (&b"0-1\n"[..], Some(2)),
            (b"0", Some(1)),
            (b"0-3,8,10-11", Some(7)),
            (b"", None),
            (b"3-1", None),
            (b"0-", None),
            (b",", None),
            (b"0-18446744073709551615", None),
            (b"0-1,0-18446744073709551614", None),
        ] {
            assert_eq!(cpu_list(text), want, "{:?}", String::from_utf8_lossy(text));
        }
    }

    #[test]
    fn a_quota_is_a_number_of_cpus() {
        for (text, want) in [
            (&b"200000 100000\n"[..], Some(2.0)),
            (b"50000 100000", Some(0.5)),
            (b"50000", Some(0.5)),
            (b"max 100000", None),
            (b"max", None),
            (b"100000 0", None),
            (b"", None),
        ] {
            assert_eq!(cpu_max(text).map(Slice::cpus), want, "{:?}", String::from_utf8_lossy(text));
        }
    }

    #[test]
    fn an_uptime_is_read_to_the_hundredth() {
        assert_eq!(uptime_ns(b"1000.25 3.00\n"), Some(1_000_250_000_000));
        assert_eq!(uptime_ns(b"7"), Some(7_000_000_000));
        assert_eq!(uptime_ns(b"7.x"), None);
        assert_eq!(uptime_ns(b""), None);
    }

    #[test]
    fn only_cgroup_filesystems_of_a_mount_table_are_kept() {
        let text = b"22 27 0:21 / /proc rw,relatime - proc proc rw\n\
            35 31 0:32 / /sys/fs/cgroup/memory rw shared:9 master:1 propagate_from:2 - cgroup cgroup rw,memory\n\
            41 31 0:38 /a\\040b /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n\
            43 31 0:38 /x /y rw - cgroup2\n\
            44 31 0:38 /x /y rw shared:1\n";
        let mounts = mountinfo(text);
        assert_eq!(mounts.len(), 2);
        assert_eq!((mounts[0].unified, &mounts[0].point[..]), (false, &b"/sys/fs/cgroup/memory"[..]));
        assert!(mounts[0].options.contains(&b"memory".to_vec()));
        assert_eq!((mounts[1].unified, &mounts[1].root[..]), (true, &b"/a b"[..]));
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn no_parser_panics(text in prop::collection::vec(any::<u8>(), 0..300), key in prop::collection::vec(any::<u8>(), 0..4)) {
            number(&text);
            field(&text, &key);
            meminfo(&text, &key);
            memory_max(&text);
            limit_in_bytes(&text);
            cpu_max(&text);
            cpu_list(&text);
            stat_busy_ticks(&text);
            stat_cpus(&text);
            pressure_some_us(&text);
            process_stat(&text);
            statm_resident_pages(&text);
            uptime_ns(&text);
            mountinfo(&text);
            mounts(&text).count();
            net_dev(&text).count();
            disk_stats(&text).count();
            stat_ticks(&text).count();
            load(&text);
            memberships(&text);
        }

        #[test]
        fn escapes_of_a_mount_table_are_undone(plain in prop::collection::vec(any::<u8>(), 0..60)) {
            let escaped: Vec<u8> = plain
                .iter()
                .flat_map(|byte| match byte {
                    b' ' | b'\t' | b'\n' | b'\\' => format!("\\{byte:03o}").into_bytes(),
                    byte => vec![*byte],
                })
                .collect();
            prop_assert_eq!(unescape(&escaped), plain);
        }
    }
}
