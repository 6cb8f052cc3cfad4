//! The ports for RDMA: InfiniBand, RoCE and what else has them under `/sys/class/infiniband`.

use super::{MachineSink, MachineValue, RdmaValue, sampler::Tick};
use crate::pseudo_file::PseudoFile;

/// Bytes of a unit in which ports count their data, whatever the number of their lanes.
const DATA_BYTES: u64 = 4;
/// Ticks between two looks at which ports there are.
const LOOK_TICKS: u32 = 30;
/// Most ports that are read.
const PORTS_MAX: usize = 64;

/// Errors that the standard names, and those of the hardware that say that a fabric is not well.
const ERRORS: [&str; 12] = [
    "symbol_error",
    "link_error_recovery",
    "link_downed",
    "port_rcv_errors",
    "port_rcv_remote_physical_errors",
    "port_rcv_switch_relay_errors",
    "port_rcv_constraint_errors",
    "port_xmit_discards",
    "port_xmit_constraint_errors",
    "local_link_integrity_errors",
    "excessive_buffer_overrun_errors",
    "VL15_dropped",
];
const HARDWARE_ERRORS: [&str; 7] = [
    "out_of_sequence",
    "packet_seq_err",
    "local_ack_timeout_err",
    "rnr_nak_retry_err",
    "implied_nak_seq_err",
    "roce_adp_retrans",
    "rx_drops",
];

#[derive(Debug, Default)]
pub(super) struct Rdma {
    ports: Vec<Port>,
    wait: u32,
}

/// A counter of data, how many bytes it counts in, and which way they went.
type Data = (PseudoFile, u64, fn(u64) -> RdmaValue);

#[derive(Debug)]
struct Port {
    device: String,
    number: String,
    state: PseudoFile,
    data: [Data; 4],
    errors: Vec<(PseudoFile, &'static str)>,
}

impl Rdma {
    pub(super) fn sample(&mut self, tick: &mut Tick<'_>, sink: &mut MachineSink<'_>) {
        if self.wait == 0 {
            self.look(tick);
            self.wait = LOOK_TICKS;
        }
        self.wait -= 1;
        self.ports.retain_mut(|port| port.sample(tick, sink));
    }

    /// Finds out which ports there are; those that are known keep their files.
    fn look(&mut self, tick: &Tick<'_>) {
        let root = tick.host.path(b"/sys/class/infiniband");
        for device in names(&root) {
            for port in names(&root.join(&device).join("ports")) {
                let is_known = self.ports.iter().any(|known| known.device == device && known.number == port);
                if !is_known && self.ports.len() < PORTS_MAX {
                    self.ports.push(Port::new(&root.join(&device).join("ports").join(&port), &device, port));
                }
            }
        }
    }
}

/// What a folder holds, sorted; nothing when it is not there.
pub(super) fn names(folder: &std::path::Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.sort_unstable();
    names
}

impl Port {
    fn new(folder: &std::path::Path, device: &str, number: String) -> Self {
        let file = |name: &str| PseudoFile::new(folder.join(name));
        let standard = ERRORS.iter().map(|name| (format!("counters/{name}"), *name));
        let hardware = HARDWARE_ERRORS.iter().map(|name| (format!("hw_counters/{name}"), *name));
        let there = standard.chain(hardware).filter(|(path, _)| folder.join(path).exists());
        Self {
            device: device.to_owned(),
            number,
            state: file("state"),
            data: [
                (file("counters/port_rcv_data"), DATA_BYTES, RdmaValue::Received),
                (file("counters/port_xmit_data"), DATA_BYTES, RdmaValue::Transmitted),
                // Adapters that have no such counters count bytes themselves.
                (file("hw_counters/rx_bytes"), 1, RdmaValue::Received),
                (file("hw_counters/tx_bytes"), 1, RdmaValue::Transmitted),
            ],
            errors: there.map(|(path, name)| (file(&path), name)).collect(),
        }
    }

    /// Reads the port; whether it is there.
    fn sample(&mut self, tick: &mut Tick<'_>, sink: &mut MachineSink<'_>) -> bool {
        let Self { device, number: port, state, data, errors } = self;
        let mut tell = |what| sink(MachineValue::Rdma { device, port, what });
        let Some(state) = tick.text(state) else { return false };
        tell(RdmaValue::Active(state.starts_with(b"4:")));
        let mut is_told = false;
        for (at, (file, bytes, what)) in data.iter_mut().enumerate() {
            if at == 2 && is_told {
                break;
            }
            if let Some(count) = tick.number(file) {
                is_told = true;
                tell(what(count.saturating_mul(*bytes)));
            }
        }
        for (file, kind) in errors {
            if let Some(count) = tick.number(file) {
                tell(RdmaValue::Errors(kind, count));
            }
        }
        true
    }
}
