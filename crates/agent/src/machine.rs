//! The machine under the agent: CPU, memory, disks, network, RDMA, jobs and the GPUs on its bus.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use collect::{
    Host,
    machine::{JobValue, MachineSampler, MachineValue, RdmaValue},
};
use model::Desc;
use semconv::canonical as tg;

use crate::{Reading, SharedCards, Snapshot, Source, Tick};

/// Causes that are remembered, so that each is said once.
const CAUSES_MAX: usize = 256;

/// Looks at the machine.
#[derive(Debug)]
pub struct Machine {
    sampler: MachineSampler,
    /// By resource: the time that was waited, seconds, and when that was read.
    waited: BTreeMap<&'static str, (f64, Duration)>,
    said: BTreeSet<String>,
    /// The labels of what never changes.
    facts: Vec<(&'static str, String)>,
    cards: SharedCards,
}

impl Machine {
    /// Looks at this machine, the real one or a folder that stands for one.
    pub fn new(host: Host, cards: SharedCards) -> Self {
        let facts = vec![
            ("boot_id", host.boot_id()),
            ("agent_version", env!("CARGO_PKG_VERSION").to_owned()),
            ("kernel", host.kernel()),
        ];
        let sampler = MachineSampler::new(host);
        Self { sampler, waited: BTreeMap::new(), said: BTreeSet::new(), facts, cards }
    }
}

impl Source for Machine {
    fn name(&self) -> &'static str {
        "machine"
    }

    fn read(&mut self, tick: &Tick<'_>, out: &mut Snapshot) {
        let Self { sampler, waited, said, facts, cards } = self;
        out.readings.push(Reading { desc: &tg::NODE_INFO, labels: facts.clone(), value: 1.0 });
        let has_driver = !cards.lock().is_absent;
        sampler.sample(&mut |value| {
            if let MachineValue::Waiting { resource, seconds } = value {
                let before = waited.insert(resource, (seconds, tick.elapsed));
                out.readings
                    .extend(before.and_then(|before| waiting(resource, before, (seconds, tick.elapsed))));
            } else {
                // Without a driver nobody shows the cards that are there; cards of others have other drivers.
                if let MachineValue::PciGpus { nvidia: 1.., .. } = value
                    && !has_driver
                {
                    let labels = vec![("source", "driver".to_owned())];
                    out.readings.push(Reading { desc: &tg::NODE_GPUS, labels, value: 0.0 });
                }
                readings(value, &mut |desc, labels, value| {
                    out.readings.push(Reading { desc, labels, value });
                });
            }
        });
        for cause in sampler.take_problems() {
            if said.len() < CAUSES_MAX && !said.contains(&cause) {
                tracing::warn!(cause, "a part of the machine cannot be read");
                said.insert(cause);
            }
        }
    }
}

/// The share of the time since the look before in which some task waited.
fn waiting(resource: &str, before: (f64, Duration), now: (f64, Duration)) -> Option<Reading> {
    let elapsed = now.1.checked_sub(before.1)?.as_secs_f64();
    let waited = now.0 - before.0;
    let is_measured = elapsed > 0.0 && waited >= 0.0;
    let labels = vec![("resource", resource.to_owned())];
    is_measured.then(|| Reading {
        desc: &tg::NODE_PRESSURE_WAITING_RATIO,
        labels,
        value: (waited / elapsed).min(1.0),
    })
}

type Put<'a> = dyn FnMut(&'static Desc, Vec<(&'static str, String)>, f64) + 'a;

fn readings(value: MachineValue<'_>, put: &mut Put<'_>) {
    match value {
        MachineValue::CpuSeconds { mode, seconds } => {
            put(&tg::NODE_CPU_SECONDS_TOTAL, vec![("mode", mode.to_owned())], seconds);
        }
        MachineValue::Cpus(count) => put(&tg::NODE_CPUS, Vec::new(), count as f64),
        MachineValue::Load(load) => put(&tg::NODE_LOAD, Vec::new(), load),
        MachineValue::Waiting { .. } => {}
        MachineValue::Memory { used, total } => {
            put(&tg::NODE_MEMORY_USED_BYTES, Vec::new(), used as f64);
            put(&tg::NODE_MEMORY_TOTAL_BYTES, Vec::new(), total as f64);
        }
        MachineValue::FileSystem { mountpoint, free, total } => {
            let labels = vec![("mountpoint", mountpoint.to_owned())];
            put(&tg::NODE_DISK_FREE_BYTES, labels.clone(), free as f64);
            put(&tg::NODE_DISK_TOTAL_BYTES, labels, total as f64);
        }
        MachineValue::Disk { device, read, written, busy_seconds } => {
            let labels = vec![("device", device.to_owned())];
            put(&tg::NODE_DISK_READ_BYTES_TOTAL, labels.clone(), read as f64);
            put(&tg::NODE_DISK_WRITTEN_BYTES_TOTAL, labels.clone(), written as f64);
            put(&tg::NODE_DISK_IO_SECONDS_TOTAL, labels, busy_seconds);
        }
        MachineValue::Network { device, received, transmitted } => {
            let labels = vec![("device", device.to_owned())];
            put(&tg::NODE_NETWORK_RECEIVE_BYTES_TOTAL, labels.clone(), received as f64);
            put(&tg::NODE_NETWORK_TRANSMIT_BYTES_TOTAL, labels, transmitted as f64);
        }
        MachineValue::NetworkErrors { device, kind, count } => {
            let labels = vec![("device", device.to_owned()), ("kind", kind.to_owned())];
            put(&tg::NODE_NETWORK_ERRORS_TOTAL, labels, count as f64);
        }
        MachineValue::Rdma { device, port, what } => rdma(device, port, what, put),
        MachineValue::Job { job_id, what } => job(job_id, what, put),
        MachineValue::PciGpus { count, .. } => {
            put(&tg::NODE_GPUS, vec![("source", "pci".to_owned())], count as f64);
        }
    }
}

fn rdma(device: &str, port: &str, what: RdmaValue, put: &mut Put<'_>) {
    let mut labels = vec![("device", device.to_owned()), ("port", port.to_owned())];
    let (desc, value): (&'static Desc, f64) = match what {
        RdmaValue::Received(bytes) => (&tg::NODE_RDMA_RECEIVE_BYTES_TOTAL, bytes as f64),
        RdmaValue::Transmitted(bytes) => (&tg::NODE_RDMA_TRANSMIT_BYTES_TOTAL, bytes as f64),
        RdmaValue::Active(is_active) => (&tg::NODE_RDMA_LINK_ACTIVE, f64::from(u8::from(is_active))),
        RdmaValue::Errors(kind, count) => {
            labels.push(("kind", kind.to_owned()));
            (&tg::NODE_RDMA_ERRORS_TOTAL, count as f64)
        }
    };
    put(desc, labels, value);
}

fn job(job_id: &str, what: JobValue, put: &mut Put<'_>) {
    let (desc, value): (&'static Desc, f64) = match what {
        JobValue::CpuSeconds(seconds) => (&tg::JOB_CPU_SECONDS_TOTAL, seconds),
        JobValue::MemoryUsed(bytes) => (&tg::JOB_MEMORY_USED_BYTES, bytes as f64),
        JobValue::MemoryLimit(bytes) => (&tg::JOB_MEMORY_LIMIT_BYTES, bytes as f64),
    };
    put(desc, vec![("job_id", job_id.to_owned())], value);
}
