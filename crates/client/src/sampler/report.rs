//! The report of autocapture, and the facts of the machine that a run keeps as attributes.

use collect::{CgroupFacts, Host};
use model::{
    Arbitration, AttributeValue, CaptureDevice, CaptureLimits, CaptureReport, CaptureState, DeviceRole,
};

use super::driver::Driver;
use super::roles::Roles;
use crate::clock::now_ns;
use crate::config::Config;
use crate::shared::Shared;

/// A report that says who speaks and in which state it is.
pub(super) fn blank(config: &Config, host: &str, state: CaptureState) -> CaptureReport {
    CaptureReport {
        host: host.to_owned(),
        boot_id: collect::boot_id(),
        pid: std::process::id(),
        rank: config.launch.rank,
        local_rank: config.launch.local_rank,
        time_ns: now_ns(),
        state,
        switched_off_by: config.capture_off_switch(),
        wraps_command: !config.samples_process,
        interval_seconds: super::interval(config).as_secs_f64(),
        ..CaptureReport::default()
    }
}

/// Puts in what is known of roles, driver and devices.
pub(super) fn describe(report: &mut CaptureReport, roles: &Roles, driver: &Driver) {
    report.arbitration = roles.mode();
    roles.lock_domain().clone_into(&mut report.lock_domain);
    report.node = roles.node();
    report.driver = driver.report();
    let resolved = roles.resolved();
    report.cuda_device_order.clone_from(&resolved.order);
    report.ownership = ownership(roles);
    report.devices = roles.devices().map(|(card, role)| device(card, role, driver)).collect();
    let unreadable = roles.unreadable().iter().map(|(gpu, cause)| CaptureDevice {
        gpu: *gpu,
        role: DeviceRole::Unreadable(cause.clone()),
        uuid: String::new(),
        model: String::new(),
        pci_bus_id: String::new(),
        compute_capability: String::new(),
        memory_account: String::new(),
        unsupported: Vec::new(),
    });
    report.devices.extend(unreadable);
    report.devices.sort_by_key(|device| device.gpu);
}

/// How ownership was settled, and what is wrong with the locks if something is.
fn ownership(roles: &Roles) -> String {
    let mut words = roles.resolved().source.clone();
    for complaint in roles.complaints() {
        if !words.is_empty() {
            words.push_str("; ");
        }
        words.push_str(complaint);
    }
    words
}

fn device(card: &crate::ownership::Card, role: DeviceRole, driver: &Driver) -> CaptureDevice {
    let sampler = driver.sampler();
    let known = sampler.and_then(|s| s.devices().iter().find(|device| device.index == card.index));
    let unsupported = sampler.map(|s| s.unsupported(card.index)).unwrap_or_default();
    CaptureDevice {
        gpu: card.index,
        uuid: card.uuid.clone(),
        model: card.model.clone(),
        pci_bus_id: card.pci_bus_id.clone(),
        compute_capability: card
            .compute_capability
            .map(|(major, minor)| format!("{major}.{minor}"))
            .unwrap_or_default(),
        memory_account: known.map(|device| device.memory.as_str().to_owned()).unwrap_or_default(),
        role,
        unsupported: unsupported.iter().map(|metric| metric.name.to_owned()).collect(),
    }
}

/// What the node's numbers are measured against.
pub(super) fn limits(found: &CgroupFacts) -> CaptureLimits {
    CaptureLimits {
        cgroup_mode: found.mode.as_str().to_owned(),
        memory_measured_at: found.memory.as_ref().map(|m| m.path.clone()).unwrap_or_default(),
        memory_ceiling_bytes: found.memory.as_ref().map(|m| m.ceiling_bytes),
        cpu_measured_at: found.cpu.as_ref().map(|c| c.path.clone()).unwrap_or_default(),
        cpu_capacity_cpus: found.cpu.as_ref().map(|c| c.capacity_cpus),
    }
}

/// Reads what the node's numbers are measured against.
pub(super) fn read_limits() -> CgroupFacts {
    collect::facts(&Host::real())
}

/// Facts of the node that a new run keeps.
pub(super) fn say_node_facts(shared: &Shared, mode: Arbitration, found: &CgroupFacts) {
    let text = |value: &str| AttributeValue::Text(value.to_owned());
    let mut facts = vec![
        ("system/platform", text(&collect::platform())),
        ("system/arbitration_mode", text(mode.as_str())),
        ("system/cgroup/mode", text(found.mode.as_str())),
    ];
    if let Some(memory) = &found.memory {
        facts.push(("system/memory/measured_at", text(&memory.path)));
        facts.push(("system/memory/ceiling_bytes", int(memory.ceiling_bytes)));
    }
    if let Some(cpu) = &found.cpu {
        facts.push(("system/cpu/measured_at", text(&cpu.path)));
        facts.push(("system/cpu/capacity_cpus", AttributeValue::Float(cpu.capacity_cpus)));
        facts.push(("system/cpu/bounded_by", text(cpu.source.as_str())));
    }
    say(shared, facts);
}

/// Facts of the GPUs that a new run keeps.
pub(super) fn say_gpu_facts(shared: &Shared, roles: &Roles, driver_version: Option<&str>) {
    let [visible, all, partitioned] = roles.counts().map(|count| int(count as u64));
    let mut facts = vec![
        ("system/gpu/visible_count", visible),
        ("system/gpu/host_device_count", all),
        ("system/gpu/mig_partitioned_count", partitioned),
    ];
    if let Some(version) = driver_version {
        facts.push(("system/gpu/driver_version", AttributeValue::Text(version.to_owned())));
    }
    say(shared, facts);
}

fn int(value: u64) -> AttributeValue {
    AttributeValue::Int(i64::try_from(value).unwrap_or(i64::MAX))
}

fn say(shared: &Shared, facts: Vec<(&str, AttributeValue)>) {
    shared.say(|pending| {
        pending.attributes.extend(facts.into_iter().map(|(key, value)| (key.to_owned(), value, true)));
    });
}
