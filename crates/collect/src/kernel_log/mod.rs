//! The kernel's log: lines to records, records to events of GPUs and their switches.
//!
//! Pure but for [`Reader`]: bytes come in, and nothing fails. A record is read from `/dev/kmsg`, from
//! journald's export format, or from a line of text as dmesg and syslog write it ([`Feed`]); an
//! [`Interpreter`] tells what it says about a card ([`Event`]). Who wrote a record is told by its facility:
//! the kernel takes lines from user space too, and marks them, so [`Origin::Userspace`] is never acted on.
//!
//! A record of `/dev/kmsg` is known by the boot, its sequence number and its time ([`Record::key`]), so that
//! one that is read again is seen to be the same; [`Position`] tells it before anything is kept.

mod amd;
mod bursts;
mod event;
mod feed;
mod journal;
mod kmsg;
mod nvidia;
mod nvswitch;
mod pci;
mod position;
mod reader;
mod text;
mod time;

pub use amd::{AmdFault, AmdLine};
pub use bursts::{Burst, Bursts};
pub use event::{Event, Interpreter};
pub use feed::{Feed, Format};
pub use nvidia::{Nvlink4Line, Nvlink5Line, XidLine};
pub use nvswitch::{SxidDetail, SxidLine};
pub use pci::Bdf;
pub use position::{Position, Taken};
pub use reader::Reader;
pub use time::{Civil, Clock};

/// Most bytes of a line that are looked at; the kernel's own records are shorter.
pub const LINE_BYTES_MAX: usize = 16 * 1024;

/// Who wrote a record.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum Origin {
    /// The kernel, as its facility says.
    Kernel,
    /// A process, through `/dev/kmsg` or syslog.
    Userspace,
    /// The text does not tell.
    #[default]
    Unknown,
}

impl Origin {
    fn of_facility(facility: u32) -> Self {
        if facility == 0 { Self::Kernel } else { Self::Userspace }
    }
}

/// A record of the kernel's log.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Record {
    /// Who wrote it.
    pub origin: Origin,
    /// Its priority: 0 is an emergency, 7 is for debugging.
    pub priority: Option<u32>,
    /// Its facility: 0 is the kernel.
    pub facility: Option<u32>,
    /// Its number since boot.
    pub sequence: Option<u64>,
    /// When it was written, microseconds since boot.
    pub monotonic_us: Option<u64>,
    /// When it was written, nanoseconds since 1970.
    pub unix_ns: Option<i64>,
    /// When it was written, by a calendar.
    pub civil: Option<Civil>,
    /// The boot it is of, 32 hex digits.
    pub boot_id: Option<String>,
    /// The host it is of.
    pub host: Option<String>,
    /// Where it stands in the journal: what a reader goes on behind.
    pub cursor: Option<String>,
    /// Named fields beside the text, such as the kernel's `DEVICE`.
    pub fields: Vec<(String, String)>,
    /// It is a part of a line.
    pub is_fragment: bool,
    /// More stood there than is kept.
    pub is_cut: bool,
    /// The text.
    pub text: String,
}

impl Record {
    /// What a record is known by, so that reading it again gives no second event: boot, sequence and time,
    /// or, where no sequence is told, boot, time and text. Nothing where that would not tell two apart.
    /// `boot_id` is that of the machine, for sources that do not say it.
    pub fn key(&self, boot_id: Option<&str>) -> Option<String> {
        let boot = self.boot_id.clone().or_else(|| boot_id.map(plain_boot_id))?;
        let time = self.monotonic_us?;
        Some(match self.sequence {
            Some(sequence) => format!("{boot}:{sequence}:{time}"),
            None => format!("{boot}:{time}:{:016x}", digest(self.text.as_bytes())),
        })
    }

    /// When it was written, nanoseconds since 1970.
    pub fn at_ns(&self, clock: &Clock) -> Option<i64> {
        let since_boot =
            || clock.boot_ns?.checked_add(i64::try_from(self.monotonic_us?.checked_mul(1000)?).ok()?);
        self.unix_ns.or_else(since_boot).or_else(|| self.civil.as_ref()?.unix_ns(clock))
    }
}

/// A boot id as journald writes it: the kernel's has dashes.
pub fn plain_boot_id(boot_id: &str) -> String {
    boot_id.trim().chars().filter(|c| *c != '-').collect::<String>().to_ascii_lowercase()
}

/// FNV-1a: the same in every build, since keys are kept.
fn digest(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

/// A number in decimal at the start of a text, and what follows.
fn leading_number(text: &str) -> Option<(u64, &str)> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    Some((text[..end].parse().ok()?, &text[end..]))
}

/// A number in hexadecimal at the start of a text, with or without `0x`, and what follows.
fn leading_hex(text: &str) -> Option<(u64, &str)> {
    let digits = text.strip_prefix("0x").unwrap_or(text);
    let end = digits.find(|c: char| !c.is_ascii_hexdigit()).unwrap_or(digits.len());
    Some((u64::from_str_radix(&digits[..end], 16).ok()?, &digits[end..]))
}
