//! Lines of AMD's driver.

use super::{Bdf, leading_number};

/// What AMD's driver reports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AmdFault {
    /// An uncorrectable error of the hardware.
    Uncorrectable,
    /// A line of the architecture's error log, which belongs to another report.
    Detail,
    /// Work on a ring did not end in time.
    RingTimeout {
        /// The ring.
        ring: String,
    },
    /// A reset has begun.
    ResetBegins,
    /// A reset has ended well.
    ResetSucceeded,
    /// A reset has failed.
    ResetFailed,
    /// How many errors a block of the card has seen in all.
    Errors {
        /// The block, such as `umc`.
        block: String,
        /// How many.
        count: u64,
        /// Whether they were corrected.
        is_corrected: bool,
    },
}

/// A line of AMD's driver.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AmdLine {
    /// Where the card is.
    pub gpu: Bdf,
    /// What it reports.
    pub fault: AmdFault,
    /// What it says.
    pub message: String,
}

/// Reads what follows `amdgpu `.
pub(super) fn read(text: &str) -> Option<AmdLine> {
    let (place, mut message) = text.split_once(": ")?;
    let gpu = Bdf::read(place)?;
    for mark in ["amdgpu: ", "[drm] ", "*ERROR* "] {
        message = message.strip_prefix(mark).unwrap_or(message);
    }
    // The number of the event, in braces.
    if let Some((number, rest)) = message.strip_prefix('{').and_then(|rest| rest.split_once('}'))
        && number.bytes().all(|b| b.is_ascii_digit())
    {
        message = rest.trim_start();
    }
    let fault = fault(message)?;
    Some(AmdLine { gpu, fault, message: message.to_owned() })
}

fn fault(message: &str) -> Option<AmdFault> {
    if message.starts_with("uncorrectable hardware error") {
        return Some(AmdFault::Uncorrectable);
    }
    if message.starts_with("[Hardware Error]:") || message.starts_with("aca entry[") {
        return Some(AmdFault::Detail);
    }
    if let Some((ring, _)) = message.strip_prefix("ring ").and_then(|rest| rest.split_once(" timeout")) {
        return Some(AmdFault::RingTimeout { ring: ring.to_owned() });
    }
    if let Some(rest) = message.strip_prefix("GPU reset") {
        return match rest {
            _ if rest.starts_with(" begin") => Some(AmdFault::ResetBegins),
            _ if rest.contains("succe") => Some(AmdFault::ResetSucceeded),
            _ if rest.contains("fail") => Some(AmdFault::ResetFailed),
            _ => None,
        };
    }
    errors(message)
}

/// Reads `2 correctable hardware errors detected in total in umc block`.
fn errors(message: &str) -> Option<AmdFault> {
    let (count, rest) = leading_number(message)?;
    let rest = rest.trim_start();
    let is_corrected = rest.starts_with("correctable ");
    if !is_corrected && !rest.starts_with("uncorrectable ") {
        return None;
    }
    let (_, rest) = rest.split_once("detected in total in ")?;
    let block = rest.split(' ').next()?.to_owned();
    Some(AmdFault::Errors { block, count, is_corrected })
}
