//! What a GPU's driver reports as Xid and an `NVSwitch`'s as SXid: number, name, what is to be done, and
//! whether it is a cause or comes with one.
//!
//! Actions are those of the maker's catalogue, in the words of [`model::Action`]: the catalogue's "ignore"
//! is none, "check mechanicals" inspect, "contact support" contact. Open tools differ from each other and
//! from it, so each row says where it is from. A number that no row has is inspected, never ignored.
//!
//! The driver's own verdict is worth more than a row: Xid 154 carries it, as one of [`RECOVERY`]. Where a
//! row's [`Xid::verdict_since`] says so, it follows within seconds.

mod nvlink4;
mod nvlink5;
mod rows;
mod switch;

use model::Action;

pub use crate::peaks::Source;
pub use nvlink4::{LINK_BITS, LinkBit, LinkFault, link_faults};
pub use nvlink5::{Decision, Decoded, Layout, Look, NVLINK5, Nvlink5, Report, Unit, decode};
pub use rows::{UNKNOWN, XIDS};
pub use switch::{SWITCH_UNKNOWN, SXIDS, Severity, Sxid, sxid};

/// When the catalogue was read.
pub const AS_OF: &str = "2026-11";

pub(crate) const CATALOGUE: Source = Source {
    title: "NVIDIA Xid catalogue",
    url: "https://docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html",
};
pub(crate) const DRIVER: Source = Source {
    title: "NVIDIA open GPU kernel modules, nverror.h",
    url: "https://github.com/NVIDIA/open-gpu-kernel-modules/blob/main/src/common/sdk/nvidia/inc/nverror.h",
};
pub(crate) const NVML: Source = Source {
    title: "NVML reference, GPU recovery action",
    url: "https://docs.nvidia.com/deploy/nvml-api/group__nvmlDeviceQueries.html",
};
pub(crate) const FABRIC: Source = Source {
    title: "NVIDIA Fabric Manager user guide, appendix D",
    url: "https://docs.nvidia.com/datacenter/tesla/pdf/fabric-manager-user-guide.pdf",
};

/// What part a report plays in an incident.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Role {
    /// Something failed.
    Cause,
    /// It comes with something that failed, and is not acted on.
    Symptom,
    /// More about another report.
    Detail,
    /// The driver says what is to be done.
    Verdict,
}

impl Role {
    /// As tables write it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Cause => "cause",
            Self::Symptom => "symptom",
            Self::Detail => "detail",
            Self::Verdict => "verdict",
        }
    }
}

/// What a report is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Class {
    /// The application, most likely.
    App,
    /// To know, not to act on.
    Info,
    /// The GPU's state, which a reset clears.
    Reset,
    /// Memory that can no longer be replaced by spare rows.
    Retire,
    /// Power, seating, cables.
    Hardware,
    /// `NVLink` or its switches.
    Fabric,
    /// The node.
    Node,
    /// The virtual machine.
    Vm,
    /// How the system is set up.
    Config,
    /// What only the maker can tell.
    Support,
    /// Not known.
    Unknown,
}

impl Class {
    /// As labels write it.
    pub fn name(self) -> &'static str {
        match self {
            Self::App => "app",
            Self::Info => "info",
            Self::Reset => "reset",
            Self::Retire => "retire",
            Self::Hardware => "hardware",
            Self::Fabric => "fabric",
            Self::Node => "node",
            Self::Vm => "vm",
            Self::Config => "config",
            Self::Support => "support",
            Self::Unknown => "unknown",
        }
    }
}

/// One or more numbers of the catalogue with the same meaning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Xid {
    /// The numbers.
    pub codes: &'static [u32],
    /// What happened.
    pub name: &'static str,
    /// What it is about.
    pub class: Class,
    /// Its part in an incident.
    pub role: Role,
    /// What is to be done at once.
    pub action: Action,
    /// What is to be done when that did not help.
    pub then: Option<Action>,
    /// What is to be done when it comes back on the same GPU under other processes.
    pub repeated: Option<Action>,
    /// Together with one of these numbers on the same GPU the action is another.
    pub together: Option<(&'static [u32], Action)>,
    /// From this branch of the driver on, Xid 154 tells the driver's verdict right after it.
    pub verdict_since: Option<u32>,
    /// Rows of a GPU's memory wait for the next reset to be replaced.
    pub remap_pending: bool,
    /// The message holds registers that say more: [`decode`] or [`link_faults`].
    pub registers: bool,
    /// What to know beside; empty when nothing.
    pub note: &'static str,
    /// Where the row is from.
    pub source: Source,
}

impl Xid {
    /// Whether the driver's verdict is to be waited for; a driver that is not known may tell it.
    pub fn awaits_verdict(&self, driver_branch: Option<u32>) -> bool {
        self.verdict_since.is_some_and(|since| driver_branch.is_none_or(|branch| branch >= since))
    }
}

/// The row of a number, or [`UNKNOWN`].
pub fn xid(code: u32) -> &'static Xid {
    XIDS.iter().find(|row| row.codes.contains(&code)).unwrap_or(&UNKNOWN)
}

/// What a driver says is needed to make a GPU whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Recovery {
    /// The number in Xid 154 and in NVML.
    pub value: u32,
    /// In the driver's words.
    pub name: &'static str,
    /// In ours.
    pub action: Action,
    /// What to know beside; empty when nothing.
    pub note: &'static str,
    /// Where the row is from.
    pub source: Source,
}

const fn recovery(value: u32, name: &'static str, action: Action, note: &'static str) -> Recovery {
    Recovery { value, name, action, note, source: NVML }
}

/// The verdicts of drivers, by number.
pub const RECOVERY: [Recovery; 8] = [
    recovery(0, "None", Action::None, ""),
    recovery(1, "GPU Reset", Action::ResetGpu, ""),
    recovery(2, "Node Reboot", Action::RebootNode, ""),
    recovery(3, "Drain P2P", Action::RestartApp, "processes that use peer-to-peer transfers have to end"),
    recovery(4, "Drain and Reset", Action::DrainReset, "the GPU works on, with less than it should have"),
    recovery(
        5,
        "IMEX domain",
        Action::Inspect,
        "the domain of nodes that share memory has to be set up anew",
    ),
    recovery(6, "Bus Reset", Action::ResetGpu, "of the bus that the GPU is on"),
    recovery(7, "System Reboot", Action::RebootNode, ""),
];

/// The verdict of a number; one that no row has is for somebody to look at.
pub fn recovery_action(value: u32) -> Action {
    RECOVERY.iter().find(|row| row.value == value).map_or(Action::Inspect, |row| row.action)
}

/// The branch of a driver's version: 570 of `570.86.15`.
pub fn driver_branch(version: &str) -> Option<u32> {
    version.trim().split('.').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn a_number_stands_in_one_row() {
        let codes: Vec<u32> = XIDS.iter().flat_map(|row| row.codes.iter().copied()).collect();
        assert_eq!(codes.iter().collect::<BTreeSet<_>>().len(), codes.len());
        for row in &XIDS {
            assert!(!row.codes.is_empty() && !row.name.is_empty());
            assert!(row.source.url.starts_with("https://") && !row.source.title.is_empty());
            assert!(row.then.is_none_or(|then| then > row.action), "{:?}", row.codes);
            assert!(row.repeated.is_none_or(|then| then > row.action), "{:?}", row.codes);
        }
        assert!((173..=176).all(|code| xid(code).class == Class::Unknown), "newer than the catalogue");
    }

    #[test]
    fn actions_are_those_of_the_catalogue() {
        let check = |codes: &[u32], want: Action| {
            for code in codes {
                assert_eq!(xid(*code).action, want, "Xid {code}");
            }
        };
        check(
            &[43, 63, 37, 38, 44, 66, 67, 92, 93, 106, 107, 121, 137, 141, 152, 153, 160, 161],
            Action::None,
        );
        check(
            &[8, 11, 25, 32, 69, 80, 13, 31, 39, 72, 77, 85, 126, 135, 60, 68, 96, 105, 139, 94],
            Action::RestartApp,
        );
        check(&[46, 48, 62, 64, 95, 109, 110, 119, 120, 136, 140, 143, 155, 156, 158], Action::ResetGpu);
        check(&[151], Action::RestartVm);
        check(&[79], Action::RebootNode);
        check(&[54, 162, 165, 166, 167, 168, 169, 170, 173, 176, 9_999], Action::Inspect);
        check(&[61, 122, 125, 142], Action::Contact);
    }

    #[test]
    fn a_double_bit_error_with_a_remap_wants_the_node_drained() {
        let row = xid(48);
        assert_eq!(row.together, Some((&[63, 64][..], Action::DrainReset)));
        assert!(xid(63).remap_pending && !xid(64).remap_pending);
    }

    #[test]
    fn cleaning_up_is_a_symptom_and_154_a_verdict() {
        assert_eq!(xid(45).role, Role::Symptom);
        assert_eq!(xid(43).role, Role::Symptom);
        assert_eq!(xid(154).role, Role::Verdict);
        assert_eq!((xid(171).role, xid(172).role), (Role::Detail, Role::Detail));
        assert_eq!(xid(79).role, Role::Cause);
    }

    #[test]
    fn the_verdict_is_waited_for_where_the_driver_tells_it() {
        for code in [48, 62, 63, 64, 74, 79, 94, 95, 110, 120, 136, 144, 150, 155, 156] {
            assert_eq!(xid(code).verdict_since, Some(565), "Xid {code}");
        }
        assert_eq!(xid(109).verdict_since, Some(570));
        for code in [143, 160, 161] {
            assert_eq!(xid(code).verdict_since, Some(575), "Xid {code}");
        }
        assert!(xid(31).verdict_since.is_none() && xid(119).verdict_since.is_none());
        assert!(xid(109).awaits_verdict(Some(570)) && xid(109).awaits_verdict(None));
        assert!(!xid(109).awaits_verdict(Some(565)) && !xid(31).awaits_verdict(None));
    }

    #[test]
    fn verdicts_are_in_our_words() {
        assert!(RECOVERY.iter().enumerate().all(|(at, row)| row.value as usize == at));
        assert_eq!(recovery_action(0), Action::None);
        assert_eq!(recovery_action(2), Action::RebootNode);
        assert_eq!(recovery_action(4), Action::DrainReset);
        assert_eq!(recovery_action(8), Action::Inspect, "newer than the table");
    }

    #[test]
    fn a_branch_is_the_first_number_of_a_version() {
        assert_eq!(driver_branch("570.86.15"), Some(570));
        assert_eq!(driver_branch("595"), Some(595));
        assert_eq!(driver_branch("unknown"), None);
    }
}
