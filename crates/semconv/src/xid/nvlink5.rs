//! Xid 144 to 150: what an `NVLink` of Blackwell says in its registers.
//!
//! The first word names the unit, in bits that moved with branch 575 of the driver, so its version is
//! needed. Without it both readings are tried, and one counts only when it alone fits the unit that the
//! message names.

use model::Action;

/// How the first word is laid out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Layout {
    /// Drivers before branch 575.
    V1,
    /// From branch 575 on.
    V2,
}

impl Layout {
    /// That of a branch of the driver.
    pub fn of_branch(branch: u32) -> Self {
        if branch < 575 { Self::V1 } else { Self::V2 }
    }

    /// The part of the first word that names a unit.
    pub fn key(self, word: u32) -> u32 {
        match self {
            Self::V1 => word & 0x3ff,
            Self::V2 => word & 0x7f,
        }
    }
}

/// What a status means for what is to be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Decision {
    /// Nothing.
    Nothing,
    /// What the driver's verdict says; without one the application is started again.
    Evaluate,
    /// The GPU is reset.
    Reset,
    /// The table has no such row or status.
    Unknown,
}

impl Decision {
    /// The action where no verdict of the driver is there.
    pub fn action(self) -> Action {
        match self {
            Self::Nothing => Action::None,
            Self::Evaluate => Action::RestartApp,
            Self::Reset => Action::ResetGpu,
            Self::Unknown => Action::Inspect,
        }
    }
}

/// Where to look beside.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Look {
    /// At the signal of the link.
    Signal,
    /// At the device on the other end.
    Peer,
    /// At the cables.
    Cables,
}

/// A unit of the link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Unit {
    /// The Xid that reports it.
    pub xid: u32,
    /// What its name has in messages, without underlines; any of them.
    pub names: &'static [&'static str],
    /// Its keys in [`Layout::V1`].
    pub v1: &'static [u32],
    /// Its keys in [`Layout::V2`].
    pub v2: &'static [u32],
}

impl Unit {
    fn is_named(&self, name: &str) -> bool {
        let name: String = name.chars().filter(|c| *c != '_').collect::<String>().to_ascii_uppercase();
        self.names.iter().any(|known| name.contains(known))
    }

    fn has_key(&self, layout: Layout, word: u32) -> bool {
        let keys = match layout {
            Layout::V1 => self.v1,
            Layout::V2 => self.v2,
        };
        keys.contains(&layout.key(word))
    }
}

/// A unit and what its statuses mean.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Nvlink5 {
    /// The unit.
    pub unit: Unit,
    /// Statuses that want a reset.
    pub reset: &'static [u32],
    /// Statuses whose verdict the driver gives.
    pub evaluate: &'static [u32],
    /// Statuses to leave alone.
    pub nothing: &'static [u32],
    /// What any other status means.
    pub otherwise: Decision,
    /// The status does not count, but the reason in the first word: all reset but [`Nvlink5::nothing`].
    pub by_reason: bool,
    /// An error that the message calls fatal wants a reset, whatever its status.
    pub fatal_resets: bool,
    /// Where to look beside.
    pub look: Option<Look>,
}

/// A status that every unit may leave alone.
const LAST: u32 = 0x8000_0000;

const fn row(xid: u32, names: &'static [&'static str], v1: &'static [u32], v2: &'static [u32]) -> Nvlink5 {
    Nvlink5 {
        unit: Unit { xid, names, v1, v2 },
        reset: &[],
        evaluate: &[],
        nothing: &[],
        otherwise: Decision::Unknown,
        by_reason: false,
        fatal_resets: false,
        look: None,
    }
}

impl Nvlink5 {
    const fn status(
        mut self,
        reset: &'static [u32],
        evaluate: &'static [u32],
        nothing: &'static [u32],
    ) -> Self {
        self.reset = reset;
        self.evaluate = evaluate;
        self.nothing = nothing;
        self
    }

    const fn always(mut self, decision: Decision) -> Self {
        self.otherwise = decision;
        self
    }

    const fn reasons(mut self, nothing: &'static [u32]) -> Self {
        self.by_reason = true;
        self.nothing = nothing;
        self.otherwise = Decision::Reset;
        self
    }

    const fn fatal_resets(mut self) -> Self {
        self.fatal_resets = true;
        self
    }

    const fn look(mut self, look: Look) -> Self {
        self.look = Some(look);
        self
    }

    fn decide(&self, report: &Report<'_>, reason: u32) -> Decision {
        let code = if self.by_reason { reason } else { report.status };
        if self.reset.contains(&code) || (self.fatal_resets && report.is_fatal == Some(true)) {
            Decision::Reset
        } else if self.evaluate.contains(&code) {
            Decision::Evaluate
        } else if self.nothing.contains(&code) || (!self.by_reason && code == LAST) {
            Decision::Nothing
        } else {
            self.otherwise
        }
    }
}

/// Every unit.
pub const NVLINK5: [Nvlink5; 17] = [
    row(144, &["SAWMVB"], &[0x021], &[0x01]).status(&[0x2, 0x10], &[], &[0x1, 0x4, 0x8, 0x20]),
    row(145, &["RLWCTRL"], &[0x062], &[0x03]),
    row(145, &["REMAP"], &[0x082], &[0x04]).status(
        &[0x40, 0x80],
        &[0x1, 0x2, 0x4, 0x8, 0x10, 0x20],
        &[0x100, 0x200],
    ),
    row(145, &["RSPCOL"], &[0x0a2], &[0x05]).status(&[0x2], &[], &[0x1]),
    row(145, &["RXPIPE"], &[0x0c2], &[0x06]).status(&[], &[], &[0x1, 0x2, 0x4, 0x8]).fatal_resets(),
    row(145, &["SRCTRACK"], &[0x0e2], &[0x07]).status(&[0x1, 0x10, 0x20], &[0x4, 0x8], &[0x2]),
    row(145, &["TAGSTATE"], &[0x102], &[0x08]).status(&[0x2, 0x2_0000, 0x10_0000], &[], &[0x1, 0x1_0000]),
    row(146, &["TLWCTRL"], &[0x123], &[0x09]).status(&[0x4], &[], &[0x1, 0x2]),
    row(146, &["TLWRX"], &[0x143], &[0x0a, 0x0b]).status(&[0x4], &[], &[0x1, 0x2]),
    row(146, &["TLWTX"], &[0x163], &[0x0c, 0x0d]).status(&[0x4], &[], &[0x1, 0x2]),
    row(147, &["TREX"], &[0x184], &[0x0e]).always(Decision::Nothing),
    row(148, &["NVLPW"], &[0x005], &[0x0f]).always(Decision::Nothing),
    row(149, &["NETIRINT"], &[0x006], &[0x18]).always(Decision::Reset),
    row(149, &["LINKEVT", "LINKEVENT", "LINKDOWN"], &[0x1c6], &[0x11]).reasons(&[0x26, 0x28]),
    row(149, &["BER"], &[0x226], &[0x13]).status(&[], &[], &[0x0, 0x1, 0x2, 0x3]).look(Look::Cables),
    row(149, &["MFDE"], &[0x246], &[0x14]).status(&[0x1, 0x4, 0x5, 0x7], &[], &[0x3]),
    row(150, &["MSE"], &[], &[]).always(Decision::Reset),
];

/// Reasons of a link that went down for which the table says where to look.
fn look_of_reason(reason: u32) -> Option<Look> {
    match reason {
        0x2 | 0x4 | 0xa => Some(Look::Signal),
        0x15 | 0x20..=0x25 => Some(Look::Peer),
        0x2a | 0x2b => Some(Look::Cables),
        _ => None,
    }
}

/// What a message of Xid 144 to 150 holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Report<'a> {
    /// Which of them.
    pub xid: u32,
    /// The unit that it names.
    pub unit: Option<&'a str>,
    /// Whether it says `Fatal`.
    pub is_fatal: Option<bool>,
    /// The first word in brackets.
    pub word: u32,
    /// The second.
    pub status: u32,
}

/// What the tables make of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Decoded {
    /// The row that fits.
    pub row: Option<&'static Nvlink5>,
    /// How the first word was read; nothing when both readings do, or none.
    pub layout: Option<Layout>,
    /// Why a link went down.
    pub reason: Option<u32>,
    /// What it means for what is to be done.
    pub decision: Decision,
    /// Where to look beside.
    pub look: Option<Look>,
}

const UNDECODED: Decoded =
    Decoded { row: None, layout: None, reason: None, decision: Decision::Unknown, look: None };

/// Decodes a message; `driver_branch` is the driver's, where it is known.
pub fn decode(report: &Report<'_>, driver_branch: Option<u32>) -> Decoded {
    let fits = |layout: Layout| {
        let row = NVLINK5.iter().find(|row| {
            let named = report.unit.is_none_or(|name| row.unit.is_named(name));
            row.unit.xid == report.xid && named && row.unit.has_key(layout, report.word)
        })?;
        Some((row, Some(layout)))
    };
    // Xid 150 has no key: its unit is told by the name alone.
    let by_name = || {
        let name = report.unit?;
        let mut rows = NVLINK5.iter().filter(|row| row.unit.xid == report.xid && row.unit.v1.is_empty());
        rows.find(|row| row.unit.is_named(name)).map(|row| (row, None))
    };
    let found = match driver_branch {
        Some(branch) => fits(Layout::of_branch(branch)),
        None => match (fits(Layout::V1), fits(Layout::V2)) {
            (Some(one), None) | (None, Some(one)) if report.unit.is_some() => Some(one),
            _ => None,
        },
    };
    let Some((row, layout)) = found.or_else(by_name) else { return UNDECODED };
    let reason = (report.word >> 20) & 0x3f;
    Decoded {
        row: Some(row),
        layout,
        reason: row.by_reason.then_some(reason),
        decision: row.decide(report, reason),
        look: row.look.or_else(|| row.by_reason.then(|| look_of_reason(reason)).flatten()),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LINK: Report<'static> =
        Report { xid: 149, unit: Some("NETIR_LINK_EVT"), is_fatal: Some(true), word: 0x0214_25c6, status: 0 };

    #[test]
    fn a_word_of_an_older_driver_names_the_unit_in_other_bits() {
        let old = decode(&LINK, Some(570));
        assert_eq!((old.decision, old.reason, old.look), (Decision::Reset, Some(0x21), Some(Look::Peer)));
        let new = decode(&LINK, Some(575));
        assert_eq!((new.decision, new.row), (Decision::Unknown, None));
        let unknown = decode(&LINK, None);
        assert_eq!((unknown.decision, unknown.layout), (Decision::Reset, Some(Layout::V1)));
        let nameless = decode(&Report { unit: None, ..LINK }, None);
        assert_eq!(nameless.decision, Decision::Unknown, "nothing tells which reading is right");
    }

    #[test]
    fn a_link_that_was_taken_down_on_purpose_is_left_alone() {
        let down = decode(&Report { word: 0x0260_0011, ..LINK }, Some(575));
        assert_eq!((down.decision, down.reason), (Decision::Nothing, Some(0x26)));
    }

    #[test]
    fn statuses_are_those_of_the_table() {
        let check = |xid: u32, unit: &str, word: u32, status: u32, want: Decision| {
            let report = Report { xid, unit: Some(unit), is_fatal: Some(false), word, status };
            assert_eq!(decode(&report, Some(580)).decision, want, "{unit} {status:#x}");
        };
        check(145, "RLW_REMAP", 0x4, 0x2, Decision::Evaluate);
        check(145, "RLW_REMAP", 0x4, 0x40, Decision::Reset);
        check(145, "RLW_REMAP", 0x4, 0x100, Decision::Nothing);
        check(145, "RLW_REMAP", 0x4, 0x8000_0000, Decision::Nothing);
        check(145, "RLW_REMAP", 0x4, 0x400, Decision::Unknown);
        check(145, "RLW_SRC_TRACK", 0x7, 0x1, Decision::Reset);
        check(145, "RLW_SRC_TRACK", 0x7, 0x2, Decision::Nothing);
        check(146, "TLW_RX_PIPE1", 0xb, 0x4, Decision::Reset);
        check(147, "TREX", 0xe, 0x4, Decision::Nothing);
        check(149, "NETIR_INT", 0x18, 0x4, Decision::Reset);
        check(149, "NETIR_BER_EVENT", 0x13, 0x1, Decision::Nothing);
        check(149, "NETIR_MFDE_EVENT", 0x14, 0x5, Decision::Reset);
        check(150, "MSE_WATCHDOG", 0x0, 0x0, Decision::Reset);
        check(145, "RLW_REMAP", 0x7, 0x2, Decision::Unknown);
        assert_eq!(Decision::Evaluate.action(), Action::RestartApp);
        assert_eq!(Decision::Unknown.action(), Action::Inspect);
    }

    #[test]
    fn an_error_that_was_made_fatal_resets() {
        let report =
            Report { xid: 145, unit: Some("RLW_RXPIPE"), is_fatal: Some(false), word: 0x6, status: 0x1 };
        assert_eq!(decode(&report, Some(580)).decision, Decision::Nothing);
        assert_eq!(decode(&Report { is_fatal: Some(true), ..report }, Some(580)).decision, Decision::Reset);
    }

    #[test]
    fn keys_are_those_of_both_layouts_and_stand_once() {
        for layout in [Layout::V1, Layout::V2] {
            for row in &NVLINK5 {
                let keys = if layout == Layout::V1 { row.unit.v1 } else { row.unit.v2 };
                for key in keys {
                    assert_eq!(layout.key(*key), *key, "{:?}", row.unit.names);
                    let same = NVLINK5.iter().filter(|other| other.unit.has_key(layout, *key)).count();
                    assert_eq!(same, 1, "{key:#x}");
                }
            }
        }
    }

    proptest! {
        #[test]
        fn any_word_is_answered(xid in 140u32..155, unit in prop::option::of("[A-Z_0-9]{0,20}"), word: u32, status: u32, branch in prop::option::of(500u32..600)) {
            let report = Report { xid, unit: unit.as_deref(), is_fatal: None, word, status };
            let decoded = decode(&report, branch);
            prop_assert!(decoded.row.is_some() || decoded.decision == Decision::Unknown);
        }
    }
}
