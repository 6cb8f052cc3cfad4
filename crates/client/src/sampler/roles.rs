//! What this process reports: asked of the others through their locks, again at every tick.

use std::time::{Duration, Instant};

use collect::gpu::GpuSampler;
use model::{Arbitration, CaptureOwner, DeviceRole, NodeRole};

use crate::claims::{Claim, Claims};
use crate::clock::now_ns;
use crate::ownership::{Card, Frameworks, GpuEnvironment, Resolved, resolve};

/// How long a device is left alone that the server has from another process.
const ELSEWHERE: Duration = Duration::from_mins(1);
/// Ticks within which the server says so again, when it still has it from there.
const ANSWER_TICKS: u64 = 2;
/// Ticks between two looks at who has the devices that others report, once the roles are settled.
const LOOK_TICKS: u64 = 16;
/// Ticks at the start in which roles change, so that every one of them looks.
const UNSETTLED_TICKS: u64 = 4;

/// A device and what this process has to do with it.
#[derive(Debug)]
struct Device {
    card: Card,
    is_visible: bool,
    is_own: bool,
    is_held: bool,
    /// Who has it, when another process does.
    owner: Option<CaptureOwner>,
    /// Whether this process has seen another one have it.
    was_others: bool,
    /// Whether it is here because its owner died before the grace was over.
    is_inherited: bool,
    elsewhere: Option<Elsewhere>,
}

/// The server has a device from another process, which shares no lock with this one.
#[derive(Debug)]
struct Elsewhere {
    owner: CaptureOwner,
    /// When to try again.
    again_at: Instant,
    /// The tick of that try.
    tried: Option<u64>,
}

impl Elsewhere {
    fn new(owner: CaptureOwner, now: Instant) -> Self {
        Self { owner, again_at: now + ELSEWHERE, tried: None }
    }

    /// Whether to sample the device at this tick.
    fn is_due(&mut self, now: Instant, tick: u64) -> bool {
        if now >= self.again_at && self.tried.is_none() {
            self.tried = Some(tick);
        }
        self.tried.is_some()
    }

    /// Whether the server has not minded a try.
    fn is_over(&self, tick: u64) -> bool {
        self.tried.is_some_and(|tried| tick > tried + ANSWER_TICKS)
    }
}

/// The roles of this process.
pub(super) struct Roles {
    claims: Claims,
    environment: GpuEnvironment,
    frameworks: Frameworks,
    resolved: Resolved,
    devices: Vec<Device>,
    unreadable: Vec<(u32, String)>,
    reports_node: bool,
    node_owner: Option<CaptureOwner>,
    /// Why a lock could not be asked for, the last time.
    failure: Option<String>,
    ticks: u64,
    started_ns: i64,
    has_changed: bool,
}

impl Roles {
    pub(super) fn new(claims: Claims, environment: GpuEnvironment) -> Self {
        Self {
            claims,
            environment,
            frameworks: Frameworks::default(),
            resolved: Resolved::default(),
            devices: Vec::new(),
            unreadable: Vec::new(),
            reports_node: false,
            node_owner: None,
            failure: None,
            ticks: 0,
            started_ns: now_ns(),
            has_changed: false,
        }
    }

    /// Takes up the devices as the driver lists them now; a device keeps its role by its UUID.
    pub(super) fn set_devices(&mut self, sampler: &GpuSampler) {
        self.has_changed = true;
        sampler.unreadable().clone_into(&mut self.unreadable);
        let mut before = std::mem::take(&mut self.devices);
        self.devices = sampler
            .devices()
            .iter()
            .map(|device| {
                let card = Card {
                    index: device.index,
                    uuid: device.uuid.clone(),
                    model: device.name.clone(),
                    pci_bus_id: device.pci_bus_id.clone(),
                    compute_capability: device.compute_capability,
                    mig: device.mig,
                };
                let known = before.iter().position(|old| old.card.uuid == card.uuid);
                match known.map(|at| before.swap_remove(at)) {
                    Some(old) => Device { card, ..old },
                    None => Device {
                        card,
                        is_visible: false,
                        is_own: false,
                        is_held: false,
                        owner: None,
                        was_others: false,
                        is_inherited: false,
                        elsewhere: None,
                    },
                }
            })
            .collect();
        // What is gone from the list is somebody else's to find, if it comes back.
        for gone in before.iter().filter(|old| old.is_held) {
            self.claims.release_device(&gone.card.uuid);
        }
        self.resolve();
    }

    /// Takes up what a framework said, which may change what is this process's own.
    pub(super) fn set_frameworks(&mut self, frameworks: Frameworks) {
        self.frameworks = frameworks;
        self.has_changed = true;
        self.resolve();
    }

    fn resolve(&mut self) {
        let cards: Vec<Card> = self.devices.iter().map(|device| device.card.clone()).collect();
        self.resolved = resolve(&cards, &self.environment, &self.frameworks);
        for device in &mut self.devices {
            device.is_visible = self.resolved.visible.contains(&device.card.index);
            device.is_own = self.resolved.owned.contains(&device.card.index) && !device.card.mig;
        }
    }

    /// Asks for everything that this process should report; the highest step of what it gained, where
    /// an earlier owner left one.
    pub(super) fn advance(&mut self, is_grace_over: bool) -> Option<i64> {
        let before = self.held();
        let last_step = self.ask(is_grace_over);
        self.has_changed |= self.held() != before;
        if self.has_changed || self.ticks <= UNSETTLED_TICKS || self.ticks.is_multiple_of(LOOK_TICKS) {
            self.look();
        }
        last_step
    }

    /// How many devices are held, with the node.
    fn held(&self) -> (bool, usize) {
        (self.reports_node, self.devices.iter().filter(|device| device.is_held).count())
    }

    fn ask(&mut self, is_grace_over: bool) -> Option<i64> {
        self.ticks += 1;
        self.failure = None;
        let mut last_step = None;
        match self.claims.try_node() {
            Claim::Held { last_step: step } => {
                last_step = last_step.max(step);
                (self.reports_node, self.node_owner) = (true, None);
            }
            Claim::Taken(owner) => (self.reports_node, self.node_owner) = (false, Some(owner)),
            Claim::Failed(cause) => self.failure = Some(cause),
        }
        // Where nobody can be asked, only what is one's own is safe to take.
        let sweeps = self.reports_node && self.claims.mode() != Arbitration::Unavailable;
        for device in &mut self.devices {
            // The grace is for those who have yet to come: who has died will not be waited for.
            if sweeps && !is_grace_over && device.is_visible && !device.is_held {
                let left_ns = self.claims.left_behind_ns(&device.card.uuid);
                device.is_inherited = left_ns.is_some_and(|ns| device.was_others || ns > self.started_ns);
            }
            let is_free = is_grace_over || device.is_inherited;
            let wanted = device.is_own || (sweeps && is_free && device.is_visible && !device.card.mig);
            if !wanted {
                device.is_inherited = false;
                if std::mem::take(&mut device.is_held) {
                    self.claims.release_device(&device.card.uuid);
                }
                continue;
            }
            match self.claims.try_device(&device.card.uuid) {
                Claim::Held { last_step: step } => {
                    last_step = last_step.max(step);
                    (device.is_held, device.owner) = (true, None);
                }
                Claim::Taken(owner) => {
                    (device.is_held, device.is_inherited) = (false, false);
                    (device.owner, device.was_others) = (Some(owner), true);
                }
                Claim::Failed(cause) => self.failure = Some(cause),
            }
        }
        last_step
    }

    /// Looks who has what this process does not ask for.
    fn look(&mut self) {
        for device in &mut self.devices {
            let is_asked_for = device.is_held || device.is_own || device.card.mig;
            if !is_asked_for && device.is_visible {
                device.owner = self.claims.holder(&device.card.uuid);
                device.was_others |= device.owner.is_some();
            }
        }
    }

    /// Writes how far the series are, for whoever comes after this process.
    pub(super) fn note(&mut self, last_step: i64, time_ns: i64) {
        self.claims.note(last_step, time_ns);
    }

    /// The server has these devices from other processes.
    pub(super) fn hear_elsewhere(&mut self, heard: Vec<wire::push::Elsewhere>) {
        for one in heard {
            let owner = CaptureOwner { host: one.host, pid: one.pid, rank: one.rank };
            let device = self.devices.iter_mut().find(|device| device.card.index == one.gpu);
            if let Some(device) = device {
                device.elsewhere = Some(Elsewhere::new(owner, Instant::now()));
                self.has_changed = true;
            }
        }
    }

    /// The driver's indices of the devices to sample now.
    pub(super) fn sampled(&mut self, gpus: &mut Vec<u32>) {
        gpus.clear();
        let now = Instant::now();
        for device in self.devices.iter_mut().filter(|device| device.is_held) {
            if device.elsewhere.take_if(|elsewhere| elsewhere.is_over(self.ticks)).is_some() {
                self.has_changed = true;
            }
            if device.elsewhere.as_mut().is_none_or(|elsewhere| elsewhere.is_due(now, self.ticks)) {
                gpus.push(device.card.index);
            }
        }
    }

    /// Whether anything changed since the last call that a report would say.
    pub(super) fn take_change(&mut self) -> bool {
        std::mem::take(&mut self.has_changed)
    }

    pub(super) fn reports_node(&self) -> bool {
        self.reports_node
    }

    pub(super) fn mode(&self) -> Arbitration {
        self.claims.mode()
    }

    pub(super) fn lock_domain(&self) -> &str {
        self.claims.domain()
    }

    /// Why locks could not be had, if so: places that were passed over, and the last failure.
    pub(super) fn complaints(&self) -> impl Iterator<Item = &String> {
        let passed_over = if self.mode() == Arbitration::Shm { &[] } else { self.claims.passed_over() };
        passed_over.iter().chain(&self.failure)
    }

    pub(super) fn node(&self) -> NodeRole {
        match (&self.node_owner, self.reports_node) {
            (_, true) => NodeRole::Reports,
            (Some(owner), false) => NodeRole::Other(owner.clone()),
            (None, false) => NodeRole::Unknown,
        }
    }

    pub(super) fn resolved(&self) -> &Resolved {
        &self.resolved
    }

    pub(super) fn unreadable(&self) -> &[(u32, String)] {
        &self.unreadable
    }

    /// Every device with its role.
    pub(super) fn devices(&self) -> impl Iterator<Item = (&Card, DeviceRole)> {
        self.devices.iter().map(|device| (&device.card, device.role()))
    }

    /// Devices that this process can see and sample; all; partitioned ones.
    pub(super) fn counts(&self) -> [usize; 3] {
        let count = |keep: fn(&&Device) -> bool| self.devices.iter().filter(keep).count();
        [
            count(|d| d.is_visible && !d.card.mig),
            count(|_| true) + self.unreadable.len(),
            count(|d| d.card.mig),
        ]
    }

    /// Lets go of everything.
    pub(super) fn release(self) {
        self.claims.release();
    }
}

impl Device {
    fn role(&self) -> DeviceRole {
        match (&self.elsewhere, &self.owner) {
            _ if self.card.mig => DeviceRole::Mig,
            (Some(elsewhere), _) => DeviceRole::ReportedElsewhere(elsewhere.owner.clone()),
            _ if self.is_held => DeviceRole::Owned,
            _ if !self.is_visible => DeviceRole::NotVisible,
            (None, Some(owner)) => DeviceRole::Other(owner.clone()),
            (None, None) => DeviceRole::Waiting,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn device_of_another_pod_is_tried_once_a_minute_until_nobody_minds() {
        let start = Instant::now();
        let mut elsewhere = Elsewhere::new(CaptureOwner::default(), start);
        let at = |seconds: u64| start + Duration::from_secs(seconds);
        assert!(!elsewhere.is_due(at(1), 1) && !elsewhere.is_due(at(59), 2));
        assert!(elsewhere.is_due(at(61), 3), "tried");
        assert!(elsewhere.is_due(at(62), 4) && !elsewhere.is_over(5), "the answer is not here yet");
        assert!(elsewhere.is_over(6));
        let mut minded = Elsewhere::new(CaptureOwner::default(), at(61));
        assert!(!minded.is_due(at(90), 4), "said again: left alone for another minute");
    }
}
