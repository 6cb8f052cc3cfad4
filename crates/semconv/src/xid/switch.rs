//! The SXids: what an `NVSwitch` up to Hopper reports.

use model::Action::{self, Inspect, None as Nothing, RebootNode, ResetGpu, RestartVm};

use super::{FABRIC, Source};

/// What the switch's driver calls an SXid, or the guide does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Severity {
    /// Corrected, or harmless to others.
    NonFatal,
    /// The link is lost; all GPUs and switches of the node are reset.
    Fatal,
    /// The whole fabric of the node is lost.
    AlwaysFatal,
    /// Listed apart, without a recovery.
    Notable,
    /// Not in the guide.
    Unknown,
}

/// An SXid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sxid {
    /// Its number.
    pub code: u32,
    /// What happened.
    pub name: &'static str,
    /// How bad the guide says it is.
    pub severity: Severity,
    /// What is to be done at once; a reset is one of all GPUs and switches of the node.
    pub action: Action,
    /// What to know beside; empty when nothing.
    pub note: &'static str,
    /// Where the row is from.
    pub source: Source,
}

const fn row(code: u32, name: &'static str, severity: Severity, action: Action, note: &'static str) -> Sxid {
    Sxid { code, name, severity, action, note, source: FABRIC }
}

/// What a number that no row has is taken for.
pub const SWITCH_UNKNOWN: Sxid = row(0, "not in the guide", Severity::Unknown, Inspect, "");

/// Every SXid of the guide, by number.
pub const SXIDS: [Sxid; 93] = [
    row(10_001, "host privilege error", Severity::Notable, Inspect, ""),
    row(10_002, "host privilege timeout", Severity::Notable, Inspect, ""),
    row(10_003, "host unhandled interrupt", Severity::Notable, Inspect, ""),
    row(10_004, "host thermal event begins", Severity::Notable, Inspect, "temperature"),
    row(10_005, "host thermal event ends", Severity::Notable, Nothing, "temperature"),
    row(11_001, "ingress invalid command", Severity::Fatal, ResetGpu, ""),
    row(11_004, "ingress invalid ACL", Severity::NonFatal, Inspect, "how the fabric is divided does not fit"),
    row(11_009, "ingress invalid VC set", Severity::Fatal, ResetGpu, ""),
    row(11_012, "single-bit error, corrected", Severity::NonFatal, Nothing, ""),
    row(11_013, "ingress header double-bit error", Severity::Fatal, ResetGpu, ""),
    row(11_018, "ingress RID double-bit error", Severity::Fatal, ResetGpu, ""),
    row(11_019, "ingress RLAN double-bit error", Severity::Fatal, ResetGpu, ""),
    row(11_020, "ingress control parity", Severity::Fatal, ResetGpu, ""),
    row(11_021, "single-bit error, corrected", Severity::NonFatal, Nothing, ""),
    row(11_022, "single-bit error, corrected", Severity::NonFatal, Nothing, ""),
    row(11_023, "single-bit error, corrected", Severity::NonFatal, Nothing, ""),
    row(12_001, "egress crossbar overflow", Severity::Fatal, ResetGpu, ""),
    row(12_002, "egress packet route", Severity::Fatal, ResetGpu, ""),
    row(12_020, "egress sequence id", Severity::AlwaysFatal, RebootNode, ""),
    row(12_021, "single-bit error, corrected", Severity::NonFatal, Nothing, ""),
    row(12_022, "egress input double-bit error", Severity::Fatal, ResetGpu, ""),
    row(12_023, "single-bit error, corrected", Severity::NonFatal, Nothing, ""),
    row(12_024, "egress output double-bit error", Severity::Fatal, ResetGpu, ""),
    row(12_025, "egress credit overflow", Severity::Fatal, ResetGpu, ""),
    row(12_026, "egress destination request id", Severity::Fatal, ResetGpu, ""),
    row(12_027, "egress destination response id", Severity::Fatal, ResetGpu, ""),
    row(
        12_028,
        "egress non-posted privilege error",
        Severity::NonFatal,
        RestartVm,
        "without a virtual machine: restart what uses the link",
    ),
    row(12_030, "egress control parity", Severity::Fatal, ResetGpu, ""),
    row(12_031, "egress credit parity", Severity::Fatal, ResetGpu, ""),
    row(12_032, "egress flit type mismatch", Severity::Fatal, ResetGpu, ""),
    row(14_017, "TS ATO timeout", Severity::Fatal, ResetGpu, ""),
    row(15_001, "route buffer over- or underflow", Severity::Fatal, ResetGpu, ""),
    row(15_006, "route transdone over- or underflow", Severity::Fatal, ResetGpu, ""),
    row(15_008, "single-bit error, corrected", Severity::NonFatal, Nothing, ""),
    row(15_009, "route GLT double-bit error", Severity::Fatal, ResetGpu, ""),
    row(15_010, "route parity", Severity::Fatal, ResetGpu, ""),
    row(15_011, "single-bit error, corrected", Severity::NonFatal, Nothing, ""),
    row(15_012, "route incoming double-bit error", Severity::Fatal, ResetGpu, ""),
    row(15_013, "route credit parity", Severity::Fatal, ResetGpu, ""),
    row(19_047, "NCISOC header double-bit error", Severity::Fatal, ResetGpu, ""),
    row(19_048, "NCISOC data double-bit error", Severity::Fatal, ResetGpu, ""),
    row(19_049, "single-bit error, corrected", Severity::NonFatal, Nothing, ""),
    row(19_054, "header RAM double-bit error", Severity::Fatal, ResetGpu, ""),
    row(19_055, "single-bit error, corrected", Severity::NonFatal, Nothing, ""),
    row(19_056, "DAT0 RAM double-bit error", Severity::Fatal, ResetGpu, ""),
    row(19_057, "single-bit error, corrected", Severity::NonFatal, Nothing, ""),
    row(19_058, "DAT1 RAM double-bit error", Severity::Fatal, ResetGpu, ""),
    row(19_059, "single-bit error, corrected", Severity::NonFatal, Nothing, ""),
    row(19_060, "CREQ RAM header double-bit error", Severity::Fatal, ResetGpu, ""),
    row(19_061, "CREQ RAM data double-bit error", Severity::Fatal, ResetGpu, ""),
    row(19_062, "single-bit error, corrected", Severity::NonFatal, Nothing, ""),
    row(19_063, "response RAM header double-bit error", Severity::Fatal, ResetGpu, ""),
    row(19_064, "response RAM data double-bit error", Severity::Fatal, ResetGpu, ""),
    row(19_065, "single-bit error, corrected", Severity::NonFatal, Nothing, ""),
    row(19_066, "COM RAM header double-bit error", Severity::Fatal, ResetGpu, ""),
    row(19_067, "COM RAM data double-bit error", Severity::Fatal, ResetGpu, ""),
    row(19_068, "single-bit error, corrected", Severity::NonFatal, Nothing, ""),
    row(19_069, "RSP1 RAM header double-bit error", Severity::Fatal, ResetGpu, ""),
    row(19_070, "RSP1 RAM data double-bit error", Severity::Fatal, ResetGpu, ""),
    row(19_071, "single-bit error, corrected", Severity::NonFatal, Nothing, ""),
    row(
        19_084,
        "AN1 heartbeat timeout",
        Severity::NonFatal,
        ResetGpu,
        "a fatal one comes with it; all GPUs and switches are reset",
    ),
    row(20_001, "transmit replay", Severity::NonFatal, Nothing, "costs throughput of the link"),
    row(20_009, "receive short error rate", Severity::Notable, Inspect, "signal of the link"),
    row(
        20_012,
        "broken or inconsistent connection",
        Severity::NonFatal,
        Inspect,
        "unless it was taken down on purpose: the connections",
    ),
    row(
        20_034,
        "LTSSM fault up",
        Severity::Fatal,
        ResetGpu,
        "the link has gone down, usually with other errors",
    ),
    row(22_003, "Minion halt", Severity::AlwaysFatal, RebootNode, ""),
    row(22_011, "Minion external error", Severity::AlwaysFatal, RebootNode, ""),
    row(22_012, "Minion link NA interrupt", Severity::Fatal, ResetGpu, ""),
    row(22_013, "Minion link DLREQ interrupt", Severity::NonFatal, Nothing, ""),
    row(23_001, "ingress SRC-VC buffer overflow", Severity::AlwaysFatal, RebootNode, ""),
    row(23_002, "ingress SRC-VC buffer underflow", Severity::AlwaysFatal, RebootNode, ""),
    row(23_003, "egress DST-VC credit overflow", Severity::AlwaysFatal, RebootNode, ""),
    row(23_004, "egress DST-VC credit underflow", Severity::AlwaysFatal, RebootNode, ""),
    row(23_005, "ingress packet burst", Severity::AlwaysFatal, RebootNode, ""),
    row(23_006, "ingress packet sticky", Severity::AlwaysFatal, RebootNode, ""),
    row(23_007, "possible bubbles at ingress", Severity::AlwaysFatal, RebootNode, ""),
    row(23_008, "ingress packet invalid destination", Severity::AlwaysFatal, RebootNode, ""),
    row(23_009, "ingress packet parity", Severity::AlwaysFatal, RebootNode, ""),
    row(23_010, "ingress SRC-VC buffer overflow", Severity::AlwaysFatal, RebootNode, ""),
    row(23_011, "ingress SRC-VC buffer underflow", Severity::AlwaysFatal, RebootNode, ""),
    row(23_012, "egress DST-VC credit overflow", Severity::AlwaysFatal, RebootNode, ""),
    row(23_013, "egress DST-VC credit underflow", Severity::AlwaysFatal, RebootNode, ""),
    row(23_014, "ingress packet burst", Severity::AlwaysFatal, RebootNode, ""),
    row(23_015, "ingress packet sticky", Severity::AlwaysFatal, RebootNode, ""),
    row(23_016, "possible bubbles at ingress", Severity::AlwaysFatal, RebootNode, ""),
    row(23_017, "ingress credit parity", Severity::AlwaysFatal, RebootNode, ""),
    row(24_001, "single-bit error, corrected", Severity::NonFatal, Nothing, ""),
    row(24_002, "single-bit error, corrected", Severity::NonFatal, Nothing, ""),
    row(24_003, "single-bit error, corrected", Severity::NonFatal, Nothing, ""),
    row(24_004, "source track TCEN0 store double-bit error", Severity::Fatal, ResetGpu, ""),
    row(24_005, "source track TCEN0 TD store double-bit error", Severity::Fatal, ResetGpu, ""),
    row(24_006, "source track TCEN1 store double-bit error", Severity::Fatal, ResetGpu, ""),
    row(24_007, "source track timeout", Severity::Fatal, ResetGpu, ""),
];

/// The row of a number, or [`SWITCH_UNKNOWN`].
pub fn sxid(code: u32) -> &'static Sxid {
    SXIDS.iter().find(|row| row.code == code).unwrap_or(&SWITCH_UNKNOWN)
}

impl Sxid {
    /// What is to be done when the message calls it fatal, or not: a fatal one is at least a reset of the
    /// fabric, and what is not known is looked at.
    pub fn action_when(&self, is_fatal: bool) -> Action {
        if is_fatal && self.action < ResetGpu { ResetGpu } else { self.action }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_sorted_and_stand_once() {
        assert!(SXIDS.windows(2).all(|pair| pair[0].code < pair[1].code));
        for row in &SXIDS {
            match row.severity {
                Severity::Fatal => assert_eq!(row.action, ResetGpu, "{}", row.code),
                Severity::AlwaysFatal => assert_eq!(row.action, RebootNode, "{}", row.code),
                _ => {}
            }
        }
    }

    #[test]
    fn the_message_can_make_it_worse_never_better() {
        assert_eq!(sxid(20_034).action_when(true), ResetGpu);
        assert_eq!(sxid(20_001).action_when(false), Nothing);
        assert_eq!(sxid(20_001).action_when(true), ResetGpu);
        assert_eq!(sxid(23_001).action_when(true), RebootNode);
        assert_eq!(sxid(1).action_when(false), Inspect);
        assert_eq!(sxid(12_028).severity, Severity::NonFatal);
    }
}
