//! Lines of NVIDIA's driver.

use super::{Bdf, leading_hex, leading_number};

/// Names of processes have at most this many characters in the kernel.
const NAME_CHARS_MAX: usize = 15;
/// What a message starts with. A process may have a comma in its name, so its end is where one of these
/// follows.
const STARTS: [&str; 33] = [
    "GPU ",
    "An uncorrectable",
    "A ",
    "Row Remapper",
    "Contained:",
    "Uncontained:",
    "Ch ",
    "Channel ",
    "channel ",
    "MMU Fault",
    "Graphics ",
    "Timeout ",
    "NVLink",
    "Dynamic Page",
    "Double Bit",
    "Page Retirement",
    "PMU ",
    "GSP ",
    "LTC ",
    "FBHUB",
    "Reset ",
    "Compute ",
    "Engine ",
    "C2C ",
    "DRAM ",
    "SRAM ",
    "SBE ",
    "DBE ",
    "CE ",
    "CCMDs",
    "Resetting ",
    "Preemptive ",
    "Illegal ",
];

/// An Xid. What the line does not tell is absent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct XidLine {
    /// Where the card is.
    pub gpu: Option<Bdf>,
    /// GPU instance of MIG.
    pub gi: Option<u32>,
    /// Compute instance of MIG.
    pub ci: Option<u32>,
    /// The number.
    pub code: u32,
    /// The process.
    pub pid: Option<u32>,
    /// Its name; nothing where the line leaves open where it ends, and then it stands in the message.
    pub name: Option<String>,
    /// The channel.
    pub channel: Option<u32>,
    /// The Xid that this one follows.
    pub previous: Option<u32>,
    /// Recovery action before and after, of an Xid 154.
    pub recovery: Option<(u32, u32)>,
    /// Link and registers of an Xid 74.
    pub nvlink4: Option<Nvlink4Line>,
    /// Unit, link and registers of an Xid 144 to 150.
    pub nvlink5: Option<Nvlink5Line>,
    /// The message behind the process.
    pub message: String,
}

/// What an Xid 74 tells.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Nvlink4Line {
    /// The link.
    pub link: u32,
    /// Its registers, at most seven.
    pub registers: Vec<u32>,
}

/// What an Xid 144 to 150 tells.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Nvlink5Line {
    /// The unit.
    pub unit: String,
    /// Whether it is fatal.
    pub is_fatal: bool,
    /// Cross containment: the number behind `XC`.
    pub containment: Option<u32>,
    /// Instance: the number behind `i`.
    pub instance: Option<u32>,
    /// The link.
    pub link: Option<u32>,
    /// The words in brackets, at most seven: the unit's, the status, then data.
    pub words: Vec<u32>,
}

impl XidLine {
    /// Reads what follows `NVRM: Xid (`.
    pub(super) fn read(text: &str) -> Option<Self> {
        let (place, rest) = text.split_once("):")?;
        let mut line = Self::default();
        for (at, word) in place.split_ascii_whitespace().enumerate() {
            if at == 0 {
                line.gpu = Some(Bdf::read(word)?);
            } else if let Some(id) = word.strip_prefix("GPU-I:") {
                line.gi = id.parse().ok();
            } else if let Some(id) = word.strip_prefix("GPU-CI:") {
                line.ci = id.parse().ok();
            }
        }
        line.gpu?;
        let (code, rest) = leading_number(rest.trim_start())?;
        line.code = u32::try_from(code).ok()?;
        line.process(rest.strip_prefix(',').unwrap_or(rest).trim_start());
        line.details();
        Some(line)
    }

    /// Reads `pid=P, name=NAME, ` and keeps what follows.
    fn process(&mut self, text: &str) {
        let Some(rest) = text.strip_prefix("pid=") else {
            text.clone_into(&mut self.message);
            return;
        };
        let (pid, rest) = match rest.strip_prefix('\'') {
            Some(quoted) => quoted.split_once('\'').unwrap_or((quoted, "")),
            None => rest.split_at(rest.find(", ").unwrap_or(rest.len())),
        };
        self.pid = pid.parse().ok();
        let rest = rest.strip_prefix(", ").unwrap_or(rest);
        let Some(tail) = rest.strip_prefix("name=") else {
            rest.clone_into(&mut self.message);
            return;
        };
        match end_of_name(tail) {
            Some((name, message)) => {
                let is_known = !["<unknown>", "'<unknown>'", ""].contains(&name);
                self.name = is_known.then(|| name.to_owned());
                message.clone_into(&mut self.message);
            }
            None => tail.clone_into(&mut self.message),
        }
    }

    fn details(&mut self) {
        let message = self.message.as_str();
        let after = |mark: &str| message.split_once(mark).map(|(_, rest)| rest);
        let channel = ["Ch ", "Channel ", "channel "].iter().find_map(|mark| message.strip_prefix(mark));
        self.channel = channel.and_then(leading_hex).and_then(|(value, _)| u32::try_from(value).ok());
        self.previous =
            after("previous Xid ").and_then(leading_number).and_then(|(code, _)| u32::try_from(code).ok());
        if self.code == 154 {
            self.recovery = after("changed from ").and_then(recovery);
        }
        self.nvlink4 = (self.code == 74).then(|| after("link ").and_then(nvlink4)).flatten();
        self.nvlink5 = (144..=150).contains(&self.code).then(|| nvlink5(message)).flatten();
    }
}

/// Where a name ends and its message begins. Of several commas that a known start follows, the last that
/// leaves a name short enough for the kernel; without such a start the only comma. Otherwise it is open.
fn end_of_name(tail: &str) -> Option<(&str, &str)> {
    let parts = |at: usize| (&tail[..at], &tail[at + 2..]);
    let commas = || tail.match_indices(", ").map(|(at, _)| at);
    let is_start = |at: &usize| {
        let rest = &tail[at + 2..];
        STARTS.iter().any(|start| rest.starts_with(start)) || is_unit(rest)
    };
    let is_short = |at: &usize| tail[..*at].chars().count() <= NAME_CHARS_MAX;
    let known = commas().filter(is_start).filter(is_short).last().or_else(|| commas().find(is_start));
    if let Some(at) = known {
        return Some(parts(at));
    }
    let mut all = commas();
    match (all.next(), all.next()) {
        (None, _) => Some((tail, "")),
        (Some(at), None) => Some(parts(at)),
        _ => None,
    }
}

/// Whether a message of `NVLink` 5 starts here: `UNIT Fatal XC0 ...`.
fn is_unit(text: &str) -> bool {
    let mut words = text.split(' ');
    let is_name = words.next().is_some_and(|w| {
        !w.is_empty() && w.bytes().all(|b| b.is_ascii_uppercase() || b.is_ascii_digit() || b == b'_')
    });
    is_name && words.next().is_some_and(|word| ["Fatal", "Nonfatal", "Non-fatal"].contains(&word))
}

/// Reads `0x0 (None) to 0x2 (Node Reboot Required)`.
fn recovery(text: &str) -> Option<(u32, u32)> {
    let (before, rest) = leading_hex(text)?;
    let (_, rest) = rest.split_once(" to ")?;
    let (after, _) = leading_hex(rest)?;
    Some((u32::try_from(before).ok()?, u32::try_from(after).ok()?))
}

/// Reads `6(0x10000, 0x0, ...)`.
fn nvlink4(text: &str) -> Option<Nvlink4Line> {
    let (link, rest) = leading_number(text)?;
    let words = rest.trim_start().strip_prefix('(')?;
    Some(Nvlink4Line { link: u32::try_from(link).ok()?, registers: words_in_brackets(words) })
}

/// Reads `UNIT Fatal XC0 i0 Link 01 (0x... ...)`.
fn nvlink5(message: &str) -> Option<Nvlink5Line> {
    if !is_unit(message) {
        return None;
    }
    let (head, words) = message.split_once('(').unwrap_or((message, ""));
    let mut line = Nvlink5Line { words: words_in_brackets(words), ..Nvlink5Line::default() };
    let mut parts = head.split_ascii_whitespace();
    parts.next()?.clone_into(&mut line.unit);
    line.is_fatal = parts.next()? == "Fatal";
    while let Some(part) = parts.next() {
        if part == "Link" {
            line.link = parts.next().and_then(|link| link.parse().ok());
        } else if let Some(number) = part.strip_prefix("XC") {
            line.containment = number.parse().ok();
        } else if let Some(number) = part.strip_prefix('i') {
            line.instance = number.parse().ok();
        }
    }
    Some(line)
}

fn words_in_brackets(text: &str) -> Vec<u32> {
    let inside = text.split(')').next().unwrap_or_default();
    let words = inside.split([' ', ',']).filter(|word| !word.is_empty());
    words.map_while(|word| u32::try_from(leading_hex(word)?.0).ok()).take(7).collect()
}
