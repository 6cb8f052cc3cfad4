//! Goes through everything that a run should have, and finds the reason for what is not there.

use std::collections::BTreeMap;

use model::{
    Arbitration, AttributeValue, CaptureDevice, CaptureOwner, CaptureState, DeviceRole, DriverState,
    NANOS_PER_SECOND, NodeRole,
};

use super::GRACE_SECONDS;
use super::cause::{Cause, Unread};
use super::facts::{Facts, Kind, Process, SILENT_NS, reaches, shared_names};
use super::findings::Findings;
use super::places::At;

/// How long the driver may take to start before its silence is a fault, nanoseconds.
const DRIVER_NS: i64 = 60 * NANOS_PER_SECOND;
/// Reasons for which the driver's library can't be used; a report's other words are `driver`.
const DRIVER_REASONS: [&str; 9] = [
    "no_library",
    "not_loadable",
    "lacks_functions",
    "driver_not_loaded",
    "version_mismatch",
    "not_permitted",
    "refused",
    "no_answer",
    "no_thread",
];

pub(super) fn judge<'a>(facts: &Facts<'a>, findings: &mut Findings<'a>) {
    for (host, machines) in shared_names(facts.evidence) {
        for metric in facts.expected(Kind::Node).chain(facts.expected(Kind::Gpu)) {
            findings.add(Cause::HostNameShared { machines }, metric, At::host(host), None);
        }
    }
    let has_devices = facts.evidence.reports.iter().any(|report| !report.devices.is_empty());
    for (host, processes) in &facts.hosts {
        for process in processes {
            judge_process(facts, process, findings);
        }
        if processes.iter().any(|process| process.report.is_some()) {
            judge_node(facts, host, processes, findings);
            judge_gpus(facts, (host, processes), has_devices, findings);
        }
    }
    if facts.evidence.reports.is_empty() {
        without_reports(facts, findings);
    }
}

/// A run of whose capture nobody tells: only what it has nowhere is missed.
fn without_reports<'a>(facts: &Facts<'a>, findings: &mut Findings<'a>) {
    let sessions = facts.hosts.values().flatten().find(|process| !process.is_replaced());
    let cause = match sessions {
        Some(process) => without_report(facts, process),
        None => Cause::NoSession { driver: driver_attribute(facts) },
    };
    let mut hosts: Vec<&str> = facts.hosts.keys().copied().collect();
    if hosts.is_empty() {
        hosts = facts.evidence.series.iter().map(|seen| seen.host).collect();
        hosts.sort_unstable();
        hosts.dedup();
    }
    for desc in facts.evidence.expected.iter().filter(|desc| !facts.is_anywhere(desc.name)) {
        if hosts.is_empty() {
            findings.add(cause.clone(), desc.name, At::host(""), None);
        }
        for host in &hosts {
            findings.add(cause.clone(), desc.name, At::host(host), None);
        }
    }
}

fn driver_attribute(facts: &Facts<'_>) -> String {
    match facts.evidence.run.attributes.get("system/gpu/driver_version") {
        Some(AttributeValue::Text(version)) => version.clone(),
        _ => String::new(),
    }
}

fn judge_process<'a>(facts: &Facts<'a>, process: &Process<'a>, findings: &mut Findings<'a>) {
    if process.is_replaced() {
        return;
    }
    let at = At { host: process.host, gpu: None, pid: Some(process.pid), rank: process.rank };
    let is_silent = process.is_silent(facts.end_ns);
    let has_series = || facts.expected(Kind::Process).any(|m| facts.seen(m, at.host, at.pid).is_some());
    // What a client that leaves no report does not send of a process may be none of its promises.
    if process.report.is_none() && !is_silent && facts.evidence.reports.is_empty() && !has_series() {
        return;
    }
    let wraps_command = process.report.is_some_and(|report| report.wraps_command);
    for metric in facts.expected(Kind::Process).filter(|_| is_silent || !wraps_command) {
        let seen = facts.seen(metric, process.host, Some(process.pid));
        if is_silent {
            let since_ns = process.session.map(|session| session.heartbeat_ns);
            findings.add(Cause::ProcessEnded, metric, at, since_ns);
            continue;
        }
        let until_ns = process.until_ns(facts.end_ns);
        if seen.is_some_and(|seen| reaches(seen, until_ns, process.interval_seconds())) {
            continue;
        }
        let cause = blame(facts, process, (metric, None), seen.is_some());
        findings.add(cause, metric, at, seen.map(|seen| seen.last_ns));
    }
    extra_failures(facts, process, findings);
}

/// Metrics beyond the expected ones are missed only where a report says that they can't be had.
fn extra_failures<'a>(facts: &Facts<'a>, process: &Process<'a>, findings: &mut Findings<'a>) {
    for failure in process.report.iter().flat_map(|report| &report.failures) {
        let is_expected = facts.evidence.expected.iter().any(|desc| desc.name == failure.metric);
        if is_expected || model::check_display_name(&failure.metric).is_err() {
            continue;
        }
        let cause = cause_of(failure);
        let at = At { host: process.host, gpu: failure.gpu, pid: Some(process.pid), rank: process.rank };
        findings.add(cause, &failure.metric, at, None);
    }
}

fn cause_of(failure: &model::CaptureFailure) -> Cause {
    let (cause, is_backing_off) = (failure.cause.clone(), failure.backing_off);
    let reason = match failure.reason.as_str() {
        "unreadable" | "" => Unread::Somehow,
        "no_permission" => Unread::NoPermission,
        "no_answer" => Unread::NoAnswer,
        "gpu_lost" => Unread::GpuLost,
        reason => return Cause::Refused { reason: reason.to_owned(), cause },
    };
    Cause::Unreadable { reason, cause, is_backing_off }
}

/// Whether a failure takes all of its device along, of which it names the first metric only.
fn is_of_whole_device(failure: &model::CaptureFailure) -> bool {
    failure.gpu.is_some() && matches!(failure.reason.as_str(), "no_answer" | "gpu_lost")
}

/// Why a process that should report something does not.
fn blame(facts: &Facts<'_>, process: &Process<'_>, of: (&str, Option<u32>), was_there: bool) -> Cause {
    let (metric, gpu) = of;
    let Some(report) = process.report else { return without_report(facts, process) };
    match &report.state {
        CaptureState::Off => return Cause::Off { by: report.switched_off_by.clone() },
        CaptureState::NotLinux => return Cause::NotLinux,
        CaptureState::NotStarted(cause) => return Cause::NotStarted { cause: cause.clone() },
        CaptureState::Ended { failed_ticks, cause } => {
            return Cause::SamplerEnded { failed_ticks: *failed_ticks, cause: cause.clone() };
        }
        CaptureState::Sampling => (),
    }
    let failures = || report.failures.iter().filter(|failure| failure.gpu == gpu);
    let exact = failures().find(|failure| failure.metric == metric);
    let near = |failure: &&model::CaptureFailure| one_source(&failure.metric, metric);
    let whole = || failures().find(|failure| is_of_whole_device(failure));
    if let Some(failure) = exact.or_else(|| failures().find(near)).or_else(whole) {
        return cause_of(failure);
    }
    if process.is_silent(facts.end_ns) {
        return Cause::ProcessEnded;
    }
    let samples = facts.samples(process);
    if !was_there && samples <= 1 {
        return young(facts, process, samples, gpu.is_some());
    }
    let limits = ["series_limit", "project_series_limit"];
    let refused = facts.evidence.refused.iter().find(|(reason, _)| !was_there && limits.contains(reason));
    refused.map_or(Cause::Unexplained, |(reason, count)| Cause::Refused {
        reason: (*reason).to_owned(),
        cause: format!("{count} points of this run were refused for it"),
    })
}

/// Why a process that sampled once at most lacks something.
fn young(facts: &Facts<'_>, process: &Process<'_>, samples: u64, is_gpu: bool) -> Cause {
    let interval_seconds = process.interval_seconds();
    let until_ns = process.until_ns(facts.end_ns);
    let is_over = process.has_ended() || until_ns < facts.evidence.now_ns;
    if samples == 1 && !is_gpu {
        return Cause::Interval { seconds: interval_seconds.ceil() as u32, is_over };
    }
    let age_ns = until_ns.saturating_sub(process.started_ns().unwrap_or(i64::MIN));
    let is_young = age_ns <= (2.0 * interval_seconds * NANOS_PER_SECOND as f64) as i64;
    match (is_young, is_over) {
        (true, false) => Cause::Starting,
        (true, true) => Cause::TooShort,
        (false, _) => Cause::Unexplained,
    }
}

/// Whether two metrics of capture come from one source, of which only the first is named on a failure.
fn one_source(named: &str, other: &str) -> bool {
    let (Some((folder, a)), Some((of, b))) = (named.rsplit_once('/'), other.rsplit_once('/')) else {
        return false;
    };
    let first = |word: &str| word.split('_').next().map(str::to_owned);
    folder == of
        && matches!(folder, "system/memory" | "system/disk" | "system/gpu")
        && (folder != "system/gpu" || first(a) == first(b))
}

fn without_report(facts: &Facts<'_>, process: &Process<'_>) -> Cause {
    if process.is_silent(facts.end_ns) {
        return Cause::ProcessEnded;
    }
    let until_ns = process.until_ns(facts.end_ns);
    let age_ns = until_ns.saturating_sub(process.started_ns().unwrap_or(i64::MIN));
    if age_ns < SILENT_NS && !process.has_ended() && until_ns >= facts.evidence.now_ns {
        return Cause::Starting;
    }
    let client = process.session.map_or("", |session| session.facts.client_version.as_str());
    Cause::NoReport { client: client.to_owned() }
}

fn judge_node<'a>(facts: &Facts<'a>, host: &'a str, processes: &[Process<'a>], findings: &mut Findings<'a>) {
    let asked = || processes.iter().filter(|process| !process.is_replaced());
    let until_ns = asked().map(|process| process.until_ns(facts.end_ns)).max().unwrap_or(facts.end_ns);
    let interval = asked().map(Process::interval_seconds).fold(0.0, f64::max);
    for metric in facts.expected(Kind::Node) {
        let seen = facts.seen(metric, host, None);
        if seen.is_some_and(|seen| reaches(seen, until_ns, interval)) {
            continue;
        }
        let cause = node_cause(facts, processes, metric, seen.is_some());
        findings.add(cause, metric, At::host(host), seen.map(|seen| seen.last_ns));
    }
}

fn node_cause(facts: &Facts<'_>, processes: &[Process<'_>], metric: &str, was_there: bool) -> Cause {
    let asked = || processes.iter().filter(|process| !process.is_replaced());
    let role = |process: &&Process<'_>| process.report.is_some_and(|report| report.node == NodeRole::Reports);
    let silent = |process: &&Process<'_>| process.is_silent(facts.end_ns);
    let reporter = asked().filter(role).find(|process| !silent(process)).or_else(|| asked().find(role));
    if let Some(process) = reporter {
        return blame(facts, process, (metric, None), was_there);
    }
    if let Some(cause) = not_sampling(processes) {
        return cause;
    }
    let reports = || asked().filter_map(|process| process.report);
    let owner = reports().find_map(|report| match &report.node {
        NodeRole::Other(owner) => Some(owner),
        _ => None,
    });
    if let Some(owner) = owner {
        match facts.process(&owner.host, owner.pid) {
            Some(process) if process.is_silent(facts.end_ns) => return Cause::ProcessEnded,
            Some(process) if process.report.is_none() => return without_report(facts, process),
            Some(_) => (),
            None => return Cause::Owned { owner: owner.clone(), is_known: false },
        }
    }
    if owner.is_none() && reports().all(|report| report.arbitration == Arbitration::Unavailable) {
        return Cause::NoLocks;
    }
    Cause::NodeUnclaimed { is_late: is_past_grace(facts, processes) }
}

/// Why none of these processes samples, if none does.
fn not_sampling(processes: &[Process<'_>]) -> Option<Cause> {
    let reports = || processes.iter().filter(|p| !p.is_replaced()).filter_map(|process| process.report);
    let is_sampling =
        |state: &CaptureState| matches!(state, CaptureState::Sampling | CaptureState::Ended { .. });
    if reports().any(|report| is_sampling(&report.state)) {
        return None;
    }
    reports().find_map(|report| match &report.state {
        CaptureState::Off => Some(Cause::Off { by: report.switched_off_by.clone() }),
        CaptureState::NotLinux => Some(Cause::NotLinux),
        CaptureState::NotStarted(cause) => Some(Cause::NotStarted { cause: cause.clone() }),
        CaptureState::Sampling | CaptureState::Ended { .. } => None,
    })
}

/// Whether the grace for slower ranks, and the tick that ends it, are over for all of these.
fn is_past_grace(facts: &Facts<'_>, processes: &[Process<'_>]) -> bool {
    let started_ns = processes.iter().filter_map(Process::started_ns).max().unwrap_or(i64::MIN);
    let interval = processes.iter().map(Process::interval_seconds).fold(0.0, f64::max);
    let grace_ns = GRACE_SECONDS * NANOS_PER_SECOND + (2.0 * interval * NANOS_PER_SECOND as f64) as i64;
    facts.end_ns.saturating_sub(started_ns) > grace_ns
}

/// A device as all processes of its host see it.
#[derive(Debug, Default)]
struct Device<'p, 'a> {
    views: Vec<(&'p Process<'a>, &'a CaptureDevice)>,
}

impl<'p, 'a> Device<'p, 'a> {
    fn view(&self, is: impl Fn(&DeviceRole) -> bool) -> Option<(&'p Process<'a>, &'a CaptureDevice)> {
        self.views.iter().find(|(_, device)| is(&device.role)).copied()
    }

    fn role<T>(&self, of: impl Fn(&'a DeviceRole) -> Option<T>) -> Option<T> {
        self.views.iter().find_map(|(_, device)| of(&device.role))
    }

    /// The process that reports it; one that lives, if there is one.
    fn owner(&self, end_ns: i64) -> Option<(&'p Process<'a>, &'a CaptureDevice)> {
        let owned = || self.views.iter().filter(|(_, device)| device.role == DeviceRole::Owned);
        owned().find(|(process, _)| !process.is_silent(end_ns)).or_else(|| owned().next()).copied()
    }
}

fn judge_gpus<'a>(
    facts: &Facts<'a>,
    (host, processes): (&'a str, &[Process<'a>]),
    has_devices: bool,
    findings: &mut Findings<'a>,
) {
    let mut devices: BTreeMap<u32, Device<'_, 'a>> = BTreeMap::new();
    for process in processes.iter().filter(|process| !process.is_replaced()) {
        for device in process.report.iter().flat_map(|report| &report.devices) {
            devices.entry(device.gpu).or_default().views.push((process, device));
        }
    }
    if devices.is_empty() {
        let cause = driver_cause(facts, processes, has_devices);
        for metric in facts.expected(Kind::Gpu) {
            findings.add(cause.clone(), metric, At::host(host), None);
        }
        return;
    }
    let total = devices.len();
    let is_given = |device: &&Device<'_, '_>| device.view(|role| *role != DeviceRole::NotVisible).is_some();
    let given = devices.values().filter(is_given).count();
    let mut reports = processes.iter().filter_map(|process| process.report);
    let found_by = match (reports.next(), reports.next()) {
        (Some(report), None) => report.ownership.clone(),
        _ => String::new(),
    };
    let not_allocated = Cause::NotAllocated { given, total, found_by };
    for (gpu, device) in &devices {
        let at = At { gpu: Some(*gpu), ..At::host(host) };
        let whole = if device.view(|role| *role == DeviceRole::Mig).is_some() {
            Some(&Cause::Mig)
        } else if is_given(&device) {
            None
        } else {
            Some(&not_allocated)
        };
        match whole {
            Some(cause) => facts.expected(Kind::Gpu).for_each(|m| findings.add(cause.clone(), m, at, None)),
            None => judge_device(facts, device, at, findings),
        }
    }
}

/// Why a host has no devices at all.
fn driver_cause(facts: &Facts<'_>, processes: &[Process<'_>], has_devices: bool) -> Cause {
    if let Some(cause) = not_sampling(processes) {
        return cause;
    }
    let drivers = || processes.iter().filter_map(|process| process.report).map(|report| &report.driver);
    let absent = drivers().find_map(|driver| match driver {
        DriverState::Absent { reason, text, hint } => Some((reason, text, hint)),
        _ => None,
    });
    if let Some((reason, text, hint)) = absent {
        let known = DRIVER_REASONS.iter().find(|known| *known == reason);
        return Cause::Driver {
            reason: known.copied().unwrap_or("driver"),
            text: text.clone(),
            hint: hint.clone(),
            // A machine without the library is most likely one without GPUs.
            is_alarm: has_devices || reason != "no_library",
        };
    }
    let version = drivers().find_map(|driver| match driver {
        DriverState::Loaded(version) => Some(version.clone()),
        _ => None,
    });
    if let Some(version) = version {
        return Cause::NoDevices { version };
    }
    let started_ns = processes.iter().filter_map(Process::started_ns).min().unwrap_or(i64::MIN);
    Cause::DriverSilent { is_late: facts.end_ns.saturating_sub(started_ns) > DRIVER_NS }
}

fn judge_device<'a>(facts: &Facts<'a>, device: &Device<'_, 'a>, at: At<'a>, findings: &mut Findings<'a>) {
    let owner = device.owner(facts.end_ns);
    let at = owner.map_or(at, |(process, _)| At { pid: Some(process.pid), rank: process.rank, ..at });
    let until_ns = device.views.iter().map(|(process, _)| process.until_ns(facts.end_ns)).max();
    let interval = device.views.iter().map(|(process, _)| process.interval_seconds()).fold(0.0, f64::max);
    for metric in facts.expected(Kind::Gpu) {
        let seen = facts.seen(metric, at.host, at.gpu);
        if seen.is_some_and(|seen| reaches(seen, until_ns.unwrap_or(facts.end_ns), interval)) {
            continue;
        }
        let cause = device_cause(facts, device, metric, seen.is_some());
        findings.add(cause, metric, at, seen.map(|seen| seen.last_ns));
    }
    let is_extra = |name: &&String| {
        !facts.evidence.expected.iter().any(|desc| desc.name == **name)
            && model::check_display_name(name).is_ok()
            && facts.seen(name, at.host, at.gpu).is_none()
    };
    if let Some((_, owned)) = owner {
        for metric in owned.unsupported.iter().filter(is_extra) {
            let cause = Cause::Unsupported { model: owned.model.clone(), is_extra: true };
            findings.add(cause, metric, at, None);
        }
    }
}

fn device_cause(facts: &Facts<'_>, device: &Device<'_, '_>, metric: &str, was_there: bool) -> Cause {
    let lacks = |device: &CaptureDevice| device.unsupported.iter().any(|name| name == metric);
    if let Some((process, owned)) = device.owner(facts.end_ns) {
        if lacks(owned) {
            return Cause::Unsupported { model: owned.model.clone(), is_extra: false };
        }
        return blame(facts, process, (metric, Some(owned.gpu)), was_there);
    }
    let elsewhere = device.role(|role| match role {
        DeviceRole::ReportedElsewhere(owner) => Some(owner.clone()),
        _ => None,
    });
    if let Some(owner) = elsewhere {
        return Cause::Elsewhere { owner };
    }
    let unreadable = device.role(|role| match role {
        DeviceRole::Unreadable(cause) => Some(cause.clone()),
        _ => None,
    });
    if let Some(cause) = unreadable {
        return Cause::UnreadableDevice { cause };
    }
    let owner = device.role(|role| match role {
        DeviceRole::Other(owner) => Some(owner),
        _ => None,
    });
    if let Some(owner) = owner {
        return held(facts, owner);
    }
    let waiting: Vec<Process<'_>> = device.views.iter().map(|(process, _)| **process).collect();
    if is_past_grace(facts, &waiting) { Cause::Unclaimed } else { Cause::Grace }
}

/// A device that others say another process holds.
fn held(facts: &Facts<'_>, owner: &CaptureOwner) -> Cause {
    match facts.process(&owner.host, owner.pid) {
        Some(process) if process.is_silent(facts.end_ns) => Cause::ProcessEnded,
        Some(process) => Cause::Owned {
            // The rank is in its session, also where a lock names the process only.
            owner: CaptureOwner { rank: owner.rank.or(process.rank), ..owner.clone() },
            is_known: true,
        },
        None => Cause::Owned { owner: owner.clone(), is_known: false },
    }
}
