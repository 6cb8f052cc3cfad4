//! Reports of autocapture as the text of a run attribute: one JSON object.
//!
//! A field that is missing or of another type reads as nothing, so that reports of newer and older
//! clients can be read.

use model::{
    Arbitration, CaptureDevice, CaptureFailure, CaptureLimits, CaptureOwner, CaptureReport, CaptureState,
    DeviceRole, DriverState, NodeRole,
};
use serde_json::{Map, Value, json};

/// Most devices and failures that are read of one report.
pub const ENTRIES_MAX: usize = 1_024;

/// The report as text.
pub fn to_json(report: &CaptureReport) -> String {
    let (state, failed_ticks, cause) = match &report.state {
        CaptureState::Sampling => ("sampling", 0, ""),
        CaptureState::Off => ("off", 0, ""),
        CaptureState::NotLinux => ("not_linux", 0, ""),
        CaptureState::NotStarted(cause) => ("not_started", 0, cause.as_str()),
        CaptureState::Ended { failed_ticks, cause } => ("ended", *failed_ticks, cause.as_str()),
    };
    let node = match &report.node {
        NodeRole::Reports => json!("reports"),
        NodeRole::Other(owner) => owner_json(owner),
        NodeRole::Unknown => Value::Null,
    };
    let driver = match &report.driver {
        DriverState::Unknown => Value::Null,
        DriverState::Loaded(version) => json!({"version": version}),
        DriverState::Absent { reason, text, hint } => {
            json!({"absent": reason, "text": text, "hint": hint})
        }
    };
    let limits = report.limits.as_ref().map(|limits| {
        json!({
            "cgroup_mode": limits.cgroup_mode,
            "memory_measured_at": limits.memory_measured_at,
            "memory_ceiling_bytes": limits.memory_ceiling_bytes,
            "cpu_measured_at": limits.cpu_measured_at,
            "cpu_capacity_cpus": limits.cpu_capacity_cpus,
        })
    });
    let failures: Vec<Value> = report
        .failures
        .iter()
        .map(|f| json!({"metric": f.metric, "gpu": f.gpu, "reason": f.reason, "cause": f.cause, "backing_off": f.backing_off}))
        .collect();
    json!({
        "host": report.host,
        "boot_id": report.boot_id,
        "pid": report.pid,
        "rank": report.rank,
        "local_rank": report.local_rank,
        "time_ns": report.time_ns,
        "started_ns": report.started_ns,
        "state": state,
        "switched_off_by": report.switched_off_by,
        "wraps_command": report.wraps_command,
        "failed_ticks": failed_ticks,
        "cause": cause,
        "interval_seconds": report.interval_seconds,
        "arbitration": report.arbitration.as_str(),
        "lock_domain": report.lock_domain,
        "node": node,
        "driver": driver,
        "cuda_device_order": report.cuda_device_order,
        "ownership": report.ownership,
        "devices": report.devices.iter().map(device_json).collect::<Vec<_>>(),
        "limits": limits,
        "failures": failures,
    })
    .to_string()
}

fn owner_json(owner: &CaptureOwner) -> Value {
    json!({"host": owner.host, "pid": owner.pid, "rank": owner.rank})
}

fn device_json(device: &CaptureDevice) -> Value {
    let (role, owner, cause) = match &device.role {
        DeviceRole::Owned => ("owned", None, ""),
        DeviceRole::Other(owner) => ("other", Some(owner), ""),
        DeviceRole::Waiting => ("waiting", None, ""),
        DeviceRole::NotVisible => ("not_visible", None, ""),
        DeviceRole::Mig => ("mig", None, ""),
        DeviceRole::Unreadable(cause) => ("unreadable", None, cause.as_str()),
        DeviceRole::ReportedElsewhere(owner) => ("reported_elsewhere", Some(owner), ""),
    };
    json!({
        "gpu": device.gpu,
        "uuid": device.uuid,
        "model": device.model,
        "pci_bus_id": device.pci_bus_id,
        "compute_capability": device.compute_capability,
        "memory_account": device.memory_account,
        "role": role,
        "owner": owner.map(owner_json),
        "cause": cause,
        "unsupported": device.unsupported,
    })
}

/// Reads a report; `None` when the text is no JSON object.
pub fn parse(text: &str) -> Option<CaptureReport> {
    let value: Value = serde_json::from_str(text).ok()?;
    let fields = value.as_object()?;
    let limits = fields.get("limits").and_then(Value::as_object).map(|limits| CaptureLimits {
        cgroup_mode: string(limits, "cgroup_mode"),
        memory_measured_at: string(limits, "memory_measured_at"),
        memory_ceiling_bytes: limits.get("memory_ceiling_bytes").and_then(Value::as_u64),
        cpu_measured_at: string(limits, "cpu_measured_at"),
        cpu_capacity_cpus: limits.get("cpu_capacity_cpus").and_then(Value::as_f64),
    });
    let entries = |key: &str| {
        let list = fields.get(key).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        list.iter().filter_map(Value::as_object).take(ENTRIES_MAX)
    };
    Some(CaptureReport {
        host: string(fields, "host"),
        boot_id: string(fields, "boot_id"),
        pid: small(fields, "pid").unwrap_or_default(),
        rank: small(fields, "rank"),
        local_rank: small(fields, "local_rank"),
        time_ns: fields.get("time_ns").and_then(Value::as_i64).unwrap_or_default(),
        started_ns: fields.get("started_ns").and_then(Value::as_i64).unwrap_or_default(),
        state: state(fields),
        switched_off_by: string(fields, "switched_off_by"),
        wraps_command: fields.get("wraps_command").and_then(Value::as_bool).unwrap_or_default(),
        interval_seconds: fields.get("interval_seconds").and_then(Value::as_f64).unwrap_or_default(),
        arbitration: arbitration(&string(fields, "arbitration")),
        lock_domain: string(fields, "lock_domain"),
        node: node(fields.get("node")),
        driver: driver(fields.get("driver")),
        cuda_device_order: string(fields, "cuda_device_order"),
        ownership: string(fields, "ownership"),
        devices: entries("devices").filter_map(device).collect(),
        limits,
        failures: entries("failures").map(failure).collect(),
    })
}

fn string(fields: &Map<String, Value>, key: &str) -> String {
    fields.get(key).and_then(Value::as_str).unwrap_or_default().to_owned()
}

fn small(fields: &Map<String, Value>, key: &str) -> Option<u32> {
    fields.get(key).and_then(Value::as_u64).and_then(|number| u32::try_from(number).ok())
}

fn state(fields: &Map<String, Value>) -> CaptureState {
    let cause = string(fields, "cause");
    match string(fields, "state").as_str() {
        "off" => CaptureState::Off,
        "not_linux" => CaptureState::NotLinux,
        "not_started" => CaptureState::NotStarted(cause),
        "ended" => {
            CaptureState::Ended { failed_ticks: small(fields, "failed_ticks").unwrap_or_default(), cause }
        }
        _ => CaptureState::Sampling,
    }
}

fn arbitration(word: &str) -> Arbitration {
    [Arbitration::Shm, Arbitration::Tmp, Arbitration::Unavailable]
        .into_iter()
        .find(|mode| mode.as_str() == word)
        .unwrap_or_default()
}

fn owner(value: Option<&Value>) -> Option<CaptureOwner> {
    let fields = value?.as_object()?;
    Some(CaptureOwner {
        host: string(fields, "host"),
        pid: small(fields, "pid").unwrap_or_default(),
        rank: small(fields, "rank"),
    })
}

fn node(value: Option<&Value>) -> NodeRole {
    match value {
        Some(Value::String(word)) if word == "reports" => NodeRole::Reports,
        _ => owner(value).map_or(NodeRole::Unknown, NodeRole::Other),
    }
}

fn driver(value: Option<&Value>) -> DriverState {
    let Some(fields) = value.and_then(Value::as_object) else { return DriverState::Unknown };
    match fields.get("absent").and_then(Value::as_str) {
        Some(reason) => DriverState::Absent {
            reason: reason.to_owned(),
            text: string(fields, "text"),
            hint: string(fields, "hint"),
        },
        None => DriverState::Loaded(string(fields, "version")),
    }
}

fn device(fields: &Map<String, Value>) -> Option<CaptureDevice> {
    let owner = owner(fields.get("owner")).unwrap_or_default();
    let role = match string(fields, "role").as_str() {
        "owned" => DeviceRole::Owned,
        "other" => DeviceRole::Other(owner),
        "waiting" => DeviceRole::Waiting,
        "mig" => DeviceRole::Mig,
        "unreadable" => DeviceRole::Unreadable(string(fields, "cause")),
        "reported_elsewhere" => DeviceRole::ReportedElsewhere(owner),
        _ => DeviceRole::NotVisible,
    };
    let unsupported = fields.get("unsupported").and_then(Value::as_array).map(Vec::as_slice);
    Some(CaptureDevice {
        gpu: small(fields, "gpu")?,
        uuid: string(fields, "uuid"),
        model: string(fields, "model"),
        pci_bus_id: string(fields, "pci_bus_id"),
        compute_capability: string(fields, "compute_capability"),
        memory_account: string(fields, "memory_account"),
        role,
        unsupported: unsupported
            .unwrap_or_default()
            .iter()
            .filter_map(|name| name.as_str().map(str::to_owned))
            .take(ENTRIES_MAX)
            .collect(),
    })
}

fn failure(fields: &Map<String, Value>) -> CaptureFailure {
    CaptureFailure {
        metric: string(fields, "metric"),
        gpu: small(fields, "gpu"),
        reason: string(fields, "reason"),
        cause: string(fields, "cause"),
        backing_off: fields.get("backing_off").and_then(Value::as_bool).unwrap_or_default(),
    }
}
