//! How many GPUs stand on the bus, whatever any driver says.

use std::{collections::BTreeMap, path::Path};

use super::{MachineSink, MachineValue, rdma::names, sampler::Tick};

/// Makers of cards, with the classes that theirs are of: displays, 3D controllers, and with AMD what else
/// computes.
const CARDS: [(&str, &[&str]); 2] =
    [("0x10de", &["0x0300", "0x0302"]), ("0x1002", &["0x0300", "0x0302", "0x0380", "0x1200"])];

#[derive(Debug, Default)]
pub(super) struct PciGpus {
    /// Whether what stands at a place is a card, as far as it was looked up.
    known: BTreeMap<String, bool>,
}

impl PciGpus {
    pub(super) fn sample(&mut self, tick: &mut Tick<'_>, sink: &mut MachineSink<'_>) {
        let root = tick.host.path(b"/sys/bus/pci/devices");
        if !root.is_dir() {
            return;
        }
        let there = names(&root);
        self.known.retain(|place, _| there.binary_search(place).is_ok());
        let mut count = 0;
        for place in there {
            let folder = root.join(&place);
            count += u64::from(*self.known.entry(place).or_insert_with(|| is_card(&folder)));
        }
        sink(MachineValue::PciGpus(count));
    }
}

fn is_card(folder: &Path) -> bool {
    let read = |name| std::fs::read_to_string(folder.join(name)).unwrap_or_default();
    let (vendor, class) = (read("vendor"), read("class"));
    let classes = CARDS.iter().find(|(maker, _)| *maker == vendor.trim()).map(|(_, classes)| *classes);
    // A part that is lent to a machine inside this one is no card of its own.
    classes.is_some_and(|classes| classes.iter().any(|known| class.trim().starts_with(known)))
        && !folder.join("physfn").exists()
}
