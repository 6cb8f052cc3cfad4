//! The interfaces of a machine: those of hardware and those that bond them.

use std::collections::BTreeMap;

use super::{MachineSink, MachineValue, mounts::first_of, sampler::Tick};
use crate::{host::Host, parse, pseudo_file::PseudoFile};

/// Most interfaces that are told.
const DEVICES_MAX: usize = 128;

#[derive(Debug)]
pub(super) struct Network {
    tables: [PseudoFile; 2],
    /// Whether a name is that of hardware or a bond, as far as it was looked up.
    known: BTreeMap<String, bool>,
}

impl Network {
    pub(super) fn new(host: &Host) -> Self {
        let tables = ["/proc/1/net/dev", "/proc/net/dev"].map(|path| host.file(path));
        Self { tables, known: BTreeMap::new() }
    }

    pub(super) fn sample(&mut self, tick: &mut Tick<'_>, sink: &mut MachineSink<'_>) {
        let Some(text) = first_of(&mut self.tables, tick) else { return };
        let rows: Vec<parse::Interface<'_>> = parse::net_dev(&text).collect();
        for row in &rows {
            self.known.entry(row.name.to_owned()).or_insert_with(|| {
                let has =
                    |what| tick.host.path(format!("/sys/class/net/{}/{what}", row.name).as_bytes()).exists();
                !row.name.contains('/') && (has("device") || has("bonding"))
            });
        }
        // A container that has only a virtual interface still has that one.
        let is_virtual = !rows.iter().any(|row| self.known[row.name]);
        let told = rows.iter().filter(|row| self.known[row.name] || is_virtual && row.name != "lo");
        for row in told.take(DEVICES_MAX) {
            tell(row, sink);
        }
        if self.known.len() > 16 * DEVICES_MAX {
            // Those of containers come and go.
            self.known.clear();
        }
    }
}

fn tell(row: &parse::Interface<'_>, sink: &mut MachineSink<'_>) {
    let device = row.name;
    sink(MachineValue::Network { device, received: row.received[0], transmitted: row.transmitted[0] });
    let errors = [
        ("receive_errors", row.received[2]),
        ("receive_dropped", row.received[3]),
        ("transmit_errors", row.transmitted[2]),
        ("transmit_dropped", row.transmitted[3]),
    ];
    for (kind, count) in errors {
        sink(MachineValue::NetworkErrors { device, kind, count });
    }
}
