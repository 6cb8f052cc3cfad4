//! How many GPUs stand on the bus, whatever any driver says.

use std::{collections::BTreeMap, path::Path};

use super::{MachineSink, MachineValue, rdma::names, sampler::Tick};

const NVIDIA: &str = "0x10de";
/// Makers of cards, with the classes that theirs are of: displays, 3D controllers, and with AMD what else
/// computes.
const CARDS: [(&str, &[&str]); 2] =
    [(NVIDIA, &["0x0300", "0x0302"]), ("0x1002", &["0x0300", "0x0302", "0x0380", "0x1200"])];

#[derive(Debug, Default)]
pub(super) struct PciGpus {
    /// Who made the card at a place, nothing where it is none, as far as it was looked up.
    known: BTreeMap<String, Option<&'static str>>,
}

impl PciGpus {
    pub(super) fn sample(&mut self, tick: &mut Tick<'_>, sink: &mut MachineSink<'_>) {
        let root = tick.host.path(b"/sys/bus/pci/devices");
        if !root.is_dir() {
            return;
        }
        let there = names(&root);
        self.known.retain(|place, _| there.binary_search(place).is_ok());
        let (mut count, mut nvidia) = (0, 0);
        for place in there {
            let folder = root.join(&place);
            let maker = *self.known.entry(place).or_insert_with(|| maker_of(&folder));
            count += u64::from(maker.is_some());
            nvidia += u64::from(maker == Some(NVIDIA));
        }
        sink(MachineValue::PciGpus { count, nvidia });
    }
}

/// Who made the card whose folder this is; nothing where it is none.
fn maker_of(folder: &Path) -> Option<&'static str> {
    let read = |name| std::fs::read_to_string(folder.join(name)).unwrap_or_default();
    let (vendor, class) = (read("vendor"), read("class"));
    let (maker, classes) = CARDS.iter().find(|(maker, _)| *maker == vendor.trim())?;
    // A part that is lent to a machine inside this one is no card of its own.
    let is_card = classes.iter().any(|known| class.trim().starts_with(known));
    (is_card && !folder.join("physfn").exists()).then_some(*maker)
}
