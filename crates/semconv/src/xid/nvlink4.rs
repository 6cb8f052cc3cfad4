//! Xid 74: what the registers of an `NVLink` before Blackwell say.

use model::Action;

/// What a bit stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LinkFault {
    /// Nothing to act on.
    Harmless,
    /// It comes with another error.
    Secondary,
    /// A memory or parity error in the link; more than two on one link are the hardware.
    Ecc,
    /// Connector or other hardware.
    Connector,
    /// A signal at its margin.
    Signal,
    /// Counts only when it comes again.
    IfRepeated,
    /// The fabric is to be reset.
    Fabric,
    /// A limit of corrected errors was reached.
    Threshold,
    /// Not in the table.
    Unknown,
}

impl LinkFault {
    /// What is to be done at once. The catalogue gives a kind only for memory errors of the link; the reset
    /// is ours.
    pub fn action(self) -> Action {
        match self {
            Self::Harmless | Self::Secondary | Self::IfRepeated | Self::Threshold => Action::None,
            Self::Ecc | Self::Fabric => Action::ResetGpu,
            Self::Connector | Self::Signal => Action::Inspect,
            Self::Unknown => Action::Contact,
        }
    }
}

/// Bits of a register that mean the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LinkBit {
    /// The register, as they stand in the message, from 1.
    pub register: usize,
    /// The bits.
    pub bits: &'static [u32],
    /// What they mean.
    pub fault: LinkFault,
}

const fn bits(register: usize, bits: &'static [u32], fault: LinkFault) -> LinkBit {
    LinkBit { register, bits, fault }
}

/// Every bit with a known meaning.
pub const LINK_BITS: [LinkBit; 11] = [
    bits(1, &[0, 23, 30], LinkFault::Harmless),
    bits(1, &[1, 20], LinkFault::Secondary),
    bits(1, &[4, 5], LinkFault::Ecc),
    bits(1, &[8, 9, 12, 16, 17, 24, 28], LinkFault::Connector),
    bits(1, &[21, 22], LinkFault::Signal),
    bits(1, &[27, 29], LinkFault::IfRepeated),
    bits(3, &[0, 1, 2, 6], LinkFault::Ecc),
    bits(3, &[16, 19], LinkFault::IfRepeated),
    bits(4, &[18], LinkFault::Fabric),
    bits(5, &[18, 19, 21, 22, 24, 25, 27, 28], LinkFault::Ecc),
    bits(5, &[20, 23, 26, 29], LinkFault::Threshold),
];

/// What the registers of an Xid 74 say, bit by bit: register from 1, bit, meaning.
pub fn link_faults(registers: &[u32]) -> Vec<(usize, u32, LinkFault)> {
    let mut faults = Vec::new();
    for (at, value) in registers.iter().enumerate().take(7) {
        for bit in (0..u32::BITS).filter(|bit| value & (1 << bit) != 0) {
            let row = LINK_BITS.iter().find(|row| row.register == at + 1 && row.bits.contains(&bit));
            faults.push((at + 1, bit, row.map_or(LinkFault::Unknown, |row| row.fault)));
        }
    }
    faults
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn registers_are_read_bit_by_bit() {
        assert_eq!(link_faults(&[0x1_0000, 0, 0, 0, 0, 0, 0]), [(1, 16, LinkFault::Connector)]);
        assert_eq!(
            link_faults(&[0x1, 0x1, 0x40, 0x4_0000, 0x10_0000]),
            [
                (1, 0, LinkFault::Harmless),
                (2, 0, LinkFault::Unknown),
                (3, 6, LinkFault::Ecc),
                (4, 18, LinkFault::Fabric),
                (5, 20, LinkFault::Threshold),
            ]
        );
        assert_eq!(link_faults(&[]), []);
        assert_eq!(link_faults(&[u32::MAX; 9]).len(), 7 * 32, "a message has seven");
        assert_eq!(LinkFault::Unknown.action(), Action::Contact);
        assert_eq!(LinkFault::Connector.action(), Action::Inspect);
    }
}
