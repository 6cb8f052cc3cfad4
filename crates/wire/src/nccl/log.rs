//! Lines of NCCL's watchdog, among whatever else a job writes.

use std::collections::VecDeque;

use super::{Finding, TEXT_BYTES_MAX, cut};

/// Longest line that is looked at, bytes; the rest of a longer one is passed over.
const LINE_BYTES_MAX: usize = 4 << 10;
/// Lines after which a finding without its group is told as it is: the line that names it follows at once.
const WAIT_LINES: usize = 64;
/// Most findings that wait so.
const WAITING_MAX: usize = 64;
/// Most findings of one stream; a watchdog repeats itself.
const FINDINGS_MAX: usize = 4_096;

/// What every line of interest has in it.
const MARK: &[u8] = b"work";
/// What the numbers of a group begin with; versions spell them differently.
const BEGUN: [&str; 2] = ["last enqueued NCCL work: ", "last enqueued work: "];
const COMPLETED: [&str; 2] = ["last completed NCCL work: ", "last completed work: "];
const AT_FAULT: [&str; 2] = ["at work sequence id: ", "Timeout at NCCL work: "];

/// Reads a stream of output in pieces.
#[derive(Debug, Default)]
pub struct LogReader {
    line: Vec<u8>,
    lines: usize,
    told: usize,
    /// Findings whose group a later line may name, and the number of the line that each was in.
    waiting: VecDeque<(usize, Finding)>,
}

impl LogReader {
    /// Takes the next bytes, and hands over what is found.
    pub fn push(&mut self, mut bytes: &[u8], each: &mut dyn FnMut(Finding)) {
        while let Some(end) = bytes.iter().position(|byte| *byte == b'\n') {
            self.keep(&bytes[..end]);
            self.end_line(each);
            bytes = &bytes[end + 1..];
        }
        self.keep(bytes);
    }

    /// Hands over what is left when the stream has ended.
    pub fn end(&mut self, each: &mut dyn FnMut(Finding)) {
        self.end_line(each);
        for (_, finding) in std::mem::take(&mut self.waiting) {
            self.tell(finding, each);
        }
    }

    fn keep(&mut self, bytes: &[u8]) {
        let room = LINE_BYTES_MAX.saturating_sub(self.line.len());
        self.line.extend_from_slice(&bytes[..bytes.len().min(room)]);
    }

    fn end_line(&mut self, each: &mut dyn FnMut(Finding)) {
        self.lines += 1;
        let late = self.lines.saturating_sub(WAIT_LINES);
        while self.waiting.front().is_some_and(|(line, _)| *line < late) {
            let Some((_, finding)) = self.waiting.pop_front() else { break };
            self.tell(finding, each);
        }
        let line = std::mem::take(&mut self.line);
        if self.told < FINDINGS_MAX && has_mark(&line) {
            self.read(&String::from_utf8_lossy(&line), each);
        }
        // Its memory serves the next one.
        self.line = line;
        self.line.clear();
    }

    fn read(&mut self, line: &str, each: &mut dyn FnMut(Finding)) {
        if let Some(finding) = status(line) {
            let whole = self.completed(finding);
            self.tell(whole, each);
        } else if let Some(finding) = timed_out(line) {
            if !finding.group.is_empty() || self.waiting.len() >= WAITING_MAX {
                self.tell(finding, each);
            } else if !self.waiting.iter().any(|(_, other)| is_same(other, &finding)) {
                self.waiting.push_back((self.lines, finding));
            }
        }
    }

    /// A finding of a group's numbers with what an earlier line told of the operation.
    fn completed(&mut self, finding: Finding) -> Finding {
        let is_of = |(_, one): &(usize, Finding)| {
            one.rank == finding.rank && one.sequence == finding.sequence && !finding.is_completed
        };
        let Some(at) = self.waiting.iter().position(is_of) else { return finding };
        let Some((_, operation)) = self.waiting.remove(at) else { return finding };
        Finding { group: finding.group, ..operation }
    }

    fn tell(&mut self, finding: Finding, each: &mut dyn FnMut(Finding)) {
        self.told += 1;
        if self.told <= FINDINGS_MAX {
            each(finding);
        }
    }
}

fn has_mark(line: &[u8]) -> bool {
    let is_at = |at: usize| line[at..].starts_with(MARK) || line[at..].starts_with(b"Work");
    (0..line.len()).filter(|at| matches!(line[*at], b'w' | b'W')).any(is_at)
}

fn is_same(one: &Finding, other: &Finding) -> bool {
    one.rank == other.rank && one.sequence == other.sequence && one.op == other.op
}

/// An operation that took too long: `... Watchdog caught collective operation timeout: WorkNCCL(SeqNum=1203,
/// OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600081 milliseconds ...`.
fn timed_out(line: &str) -> Option<Finding> {
    let (before, rest) = line.split_once("WorkNCCL(")?;
    if !before.contains("caught collective operation timeout") {
        return None;
    }
    let inside = rest.split_once(") ran for").map_or(rest, |(inside, _)| inside);
    let field = |name: &str| {
        let mut fields = inside.split(", ").filter_map(|field| field.split_once('='));
        fields.find(|(of, _)| *of == name).map(|(_, value)| value.trim_end_matches(')'))
    };
    let (from, to) = (field("NumelIn"), field("NumelOut"));
    Some(Finding {
        rank: rank(line),
        group: group(before),
        sequence: field("SeqNum")?.parse().ok()?,
        is_completed: false,
        op: cut(field("OpType").unwrap_or_default(), 40).to_owned(),
        sizes: from
            .zip(to)
            .map(|(from, to)| format!("{} to {}", cut(from, 40), cut(to, 40)))
            .unwrap_or_default(),
        timeout_ms: field("Timeout(ms)").and_then(|text| text.parse().ok()),
        text: message(line),
    })
}

/// A group's numbers: `[PG ID 0 PG GUID 0(default_pg) Rank 1] ... last enqueued work: 15, last completed work: 14`.
fn status(line: &str) -> Option<Finding> {
    let number = |names: [&str; 2]| {
        names.iter().find_map(|name| {
            // The first letter is a capital where a sentence begins with it.
            let at = line.find(&name[1..])? + name.len() - 1;
            let digits = line[at..].bytes().take_while(|byte| byte.is_ascii_digit() || *byte == b'-').count();
            line[at..at + digits].parse::<i64>().ok()
        })
    };
    let finding = Finding::of_numbers(number(AT_FAULT), number(BEGUN)?, number(COMPLETED)?)?;
    Some(Finding { rank: rank(line), group: group(line), text: message(line), ..finding })
}

/// The rank in the job, which `[rank3]:` says in front, else `[Rank 3]`; a group's own is another number.
fn rank(line: &str) -> Option<u32> {
    let after = |name: &str| {
        let (_, rest) = line.split_once(name)?;
        rest.split_once(']')?.0.parse().ok()
    };
    after("[rank").or_else(|| after("[Rank "))
}

/// `pg-0` of `[PG ID 0 PG GUID 0(default_pg) Rank 1]` and of `[PG 0 Rank 1]`.
fn group(line: &str) -> String {
    let inside =
        line.split_once("[PG ").and_then(|(_, rest)| rest.split_once(']')).map_or("", |(inside, _)| inside);
    let mut words = inside.split([' ', '(']).filter(|word| !matches!(*word, "ID" | "PG" | ""));
    words.next().map(|word| format!("pg-{}", cut(word, 40))).unwrap_or_default()
}

/// What the line says, without where it was written.
fn message(line: &str) -> String {
    let line = line
        .split_once("ProcessGroupNCCL.cpp:")
        .map_or(line, |(_, rest)| rest.split_once(']').map_or(rest, |(_, message)| message));
    let text: String = line.chars().filter(|c| !c.is_control()).collect();
    cut(text.trim(), TEXT_BYTES_MAX).to_owned()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(pieces: &[&[u8]]) -> Vec<Finding> {
        let (mut reader, mut found) = (LogReader::default(), Vec::new());
        for piece in pieces {
            reader.push(piece, &mut |finding| found.push(finding));
        }
        reader.end(&mut |finding| found.push(finding));
        found
    }

    /// Rank, group, sequence, completed, operation.
    fn short(found: &[Finding]) -> Vec<(Option<u32>, &str, i64, bool, &str)> {
        found.iter().map(|f| (f.rank, &*f.group, f.sequence, f.is_completed, &*f.op)).collect()
    }

    const TIMEOUT: &str = "[rank1]:[E1218 20:27:21.43 ProcessGroupNCCL.cpp:629] [Rank 1] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=7, OpType=ALLREDUCE, NumelIn=512, NumelOut=512, Timeout(ms)=600000) ran for 600088 milliseconds before timing out.\n";
    const STATUS: &str = "[rank1]:[E1218 20:27:21.48 ProcessGroupNCCL.cpp:2168] [PG ID 1 PG GUID 3(dp) Rank 0]  failure detected by watchdog at work sequence id: 7 PG status: last enqueued work: 547, last completed work: 6\n";

    #[test]
    fn two_lines_of_the_watchdog_are_one_finding() {
        let found = read(&[b"loss 0.5\n", TIMEOUT.as_bytes(), b"other work\n", STATUS.as_bytes(), b"end"]);
        assert_eq!(short(&found), [(Some(1), "pg-1", 7, false, "ALLREDUCE")]);
        assert_eq!((found[0].sizes.as_str(), found[0].timeout_ms), ("512 to 512", Some(600_000)));
        assert!(found[0].text.starts_with("[Rank 1] Watchdog caught"), "{}", found[0].text);
    }

    #[test]
    fn a_timeout_alone_is_told_at_the_end_or_when_nothing_follows() {
        assert_eq!(short(&read(&[TIMEOUT.as_bytes()])), [(Some(1), "", 7, false, "ALLREDUCE")]);
        let mut reader = LogReader::default();
        let mut found = 0;
        reader.push(TIMEOUT.as_bytes(), &mut |_| found += 1);
        assert_eq!(found, 0);
        reader.push("\n".repeat(WAIT_LINES + 1).as_bytes(), &mut |_| found += 1);
        assert_eq!(found, 1);
    }

    #[test]
    fn other_versions_write_other_lines() {
        let lines = "\
[rank2]:[E ProcessGroupNCCL.cpp:1537] [PG 0 Rank 2] Timeout at NCCL work: 1, last enqueued NCCL work: 1, last completed NCCL work: 76280750235782912.
[rank3]:[E1 ProcessGroupNCCL.cpp:1] [PG ID 0 PG GUID 0(default_pg) Rank 3] Received a dump signal due to a collective timeout from  rank 0 and we will try our best to dump the debug info. Last enqueued NCCL work: 14, last completed NCCL work: 14.This is most likely caused by
[rank4]:[E1 ProcessGroupNCCL.cpp:1] [PG ID 0 PG GUID 0(default_pg) Rank 4] Received a dump signal due to a collective timeout from  rank 0. Last enqueued NCCL work: 19, last completed NCCL work: 14.
[E ProcessGroupNCCL.cpp:474] [Rank 5] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=3, OpType=BROADCAST, Timeout(ms)=1800000) ran for 1800366 milliseconds before timing out.
[rank6]: [PG ID 0 PG GUID 0 Rank 6] Last enqueued NCCL work: -1, last completed NCCL work: -1.
";
        let wanted = [
            (Some(2), "pg-0", 1, false, ""),
            (Some(3), "pg-0", 14, true, ""),
            (Some(4), "pg-0", 15, false, ""),
            (Some(5), "", 3, false, "BROADCAST"),
        ];
        assert_eq!(short(&read(&[lines.as_bytes()])), wanted);
    }

    #[test]
    fn a_line_may_come_in_any_pieces_and_long_ones_are_bounded() {
        let whole = [TIMEOUT, STATUS].concat();
        for size in [1, 3, 100] {
            let pieces: Vec<&[u8]> = whole.as_bytes().chunks(size).collect();
            assert_eq!(read(&pieces).len(), 1, "{size}");
        }
        let long = vec![b'w'; 1 << 20];
        let mut reader = LogReader::default();
        reader.push(&long, &mut |_| panic!("nothing is there"));
        assert!(reader.line.capacity() < 4 * LINE_BYTES_MAX);
        assert_eq!(read(&[&long, b"\n", whole.as_bytes()]).len(), 1);
        assert!(read(&[TIMEOUT.repeat(10_000).as_bytes()]).len() < 200, "it repeats itself");
    }

    proptest! {
        #[test]
        fn nothing_that_a_job_writes_does_harm(bytes in proptest::collection::vec(any::<u8>(), 0..2_000), at in 0_usize..400) {
            let mut line = TIMEOUT.as_bytes().to_vec();
            line.splice(at.min(line.len()).., bytes.iter().copied());
            line.extend_from_slice(STATUS.as_bytes());
            for finding in read(&[&line]) {
                prop_assert!(finding.text.len() <= TEXT_BYTES_MAX && finding.group.len() < 50);
            }
        }
    }
}
