//! Samples the GPUs of this machine, each with a deadline of its own, through restarts of the driver.

use std::{
    path::PathBuf,
    sync::mpsc::{Receiver, TryRecvError},
    time::Duration,
};

use model::Desc;

use super::{
    absence::GpuAbsence,
    descs::GPU_RECOVERY_ACTION,
    device::GpuDevice,
    events::GpuEvents,
    processes::GpuProcess,
    reading::GpuValue,
    session::{Asked, Session},
};

/// Which library is loaded and how long a call may take.
#[derive(Debug, Clone)]
pub struct GpuOptions {
    /// The library; `None` looks in the usual places.
    pub library: Option<PathBuf>,
    /// How long the driver may take to start. A machine without persistence mode takes seconds.
    pub start_deadline: Duration,
    /// How long one call may take before its device is left alone until it has answered.
    pub call_deadline: Duration,
    /// Whether partitioned devices are sampled too: what is told of a whole board is nobody's own there, so
    /// that only who looks at the machine wants it.
    pub partitioned: bool,
    /// Where what the driver tells by itself is laid down; `None` asks for nothing. It costs a thread that
    /// waits.
    pub events: Option<GpuEvents>,
}

impl Default for GpuOptions {
    fn default() -> Self {
        Self {
            library: None,
            start_deadline: Duration::from_secs(30),
            call_deadline: Duration::from_secs(1),
            partitioned: false,
            events: None,
        }
    }
}

/// A value of a GPU that is there and could not be read in this tick.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GpuFailure {
    /// The driver's index of the device.
    pub gpu: u32,
    /// The metric left out; the first one where a call feeds several.
    pub metric: &'static Desc,
    /// The cause in one word of a fixed set: `unreadable`, `no_permission`, `no_answer`, or `gpu_lost`
    /// when it is the whole device that is gone.
    pub reason: &'static str,
    /// What could not be done, to what, and what was found: lower case, no full stop.
    pub cause: String,
    /// True on the failure after which it is asked with back-off only, as
    /// [`Failure::dropped`](crate::Failure::dropped) says.
    pub dropped: bool,
}

/// Where the values of one tick go: the driver's index of the device, and the value.
pub type GpuSink<'a> = dyn FnMut(u32, &GpuValue) + 'a;

/// Ticks between two attempts to start a driver that is gone: doubled from 1 up to this.
const RESTART_TICKS_MAX: u32 = 64;

/// Samples the devices of the driver; every call to it is made on a thread of the device's own.
///
/// When nothing that is asked is there any more (the driver was unloaded, the only device fell off the
/// bus), the library is shut down and started anew between the ticks, with back-off until it works.
/// Devices may then have other indices: see [`generation`](Self::generation).
///
/// Not to be used after a fork, which takes no threads along; dropping it in the child is harmless.
pub struct GpuSampler {
    options: GpuOptions,
    session: Option<Session>,
    /// Why the last attempt to restart gave no session.
    absence: Option<GpuAbsence>,
    starting: Option<Receiver<Result<Session, GpuAbsence>>>,
    restart_wait: u32,
    restart_left: u32,
    generation: u64,
    driver_version: Option<String>,
    devices: Vec<GpuDevice>,
    unreadable: Vec<(u32, String)>,
    failures: Vec<GpuFailure>,
}

impl GpuSampler {
    /// Loads the driver's library and finds out which devices there are.
    pub fn open(options: &GpuOptions) -> Result<Self, GpuAbsence> {
        let session = Session::open(options)?;
        let mut sampler = Self {
            options: options.clone(),
            session: None,
            absence: None,
            starting: None,
            restart_wait: 1,
            restart_left: 1,
            generation: 0,
            driver_version: None,
            devices: Vec::new(),
            unreadable: Vec::new(),
            failures: Vec::new(),
        };
        sampler.admit(Ok(session));
        Ok(sampler)
    }

    /// Version of the driver; `None` when it does not tell.
    pub fn driver_version(&self) -> Option<&str> {
        self.driver_version.as_deref()
    }

    /// The devices by driver index, partitioned ones included. One that could not be identified leaves a
    /// gap and is in [`unreadable`](Self::unreadable). While the driver is gone they are what they were.
    pub fn devices(&self) -> &[GpuDevice] {
        &self.devices
    }

    /// Devices that the driver counts and could not name: index and cause. They are tried again at later
    /// ticks, with back-off.
    pub fn unreadable(&self) -> &[(u32, String)] {
        &self.unreadable
    }

    /// Grows whenever [`devices`](Self::devices) or [`unreadable`](Self::unreadable) changed: what was
    /// found out by index, such as who owns which device, is to be found out again.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// Why the driver cannot be asked: what its last restart failed of. `None` when it was started.
    pub fn absence(&self) -> Option<&GpuAbsence> {
        self.absence.as_ref()
    }

    /// What the driver said of a device is not there, and will not be asked again. A metric of several
    /// calls is named when one of them is not there.
    pub fn unsupported(&self, gpu: u32) -> Vec<&'static Desc> {
        self.session.as_ref().map(|session| session.unsupported(gpu).to_vec()).unwrap_or_default()
    }

    /// The mask of reasons for which clocks of a device were held back at the last tick; for display, see
    /// [`throttle_reasons`](super::throttle_reasons).
    pub fn throttle_mask(&self, gpu: u32) -> Option<u64> {
        self.session.as_ref()?.throttle_mask(gpu)
    }

    /// What could not be read since the last call.
    pub fn take_failures(&mut self) -> Vec<GpuFailure> {
        std::mem::take(&mut self.failures)
    }

    /// Asks these devices, all at the same time, and emits what they answer, device by device.
    ///
    /// A device whose driver call does not return within the deadline gives what it had given until
    /// then, and nothing more until that call has returned; the others are not held up by it for longer
    /// than that one deadline. A partitioned or unknown device is passed over.
    pub fn sample(&mut self, gpus: &[u32], sink: &mut GpuSink<'_>) {
        self.listen();
        let deadline = self.options.call_deadline;
        let Some(session) = &mut self.session else { return self.restart() };
        let asked = Asked { gpus, partitioned: self.options.partitioned, deadline };
        let (events, devices) = (self.options.events.as_ref(), &self.devices);
        let mut heard = |gpu: u32, value: &GpuValue| {
            if let Some(events) = events
                && value.metric.name == GPU_RECOVERY_ACTION.name
                && let Some(device) = devices.iter().find(|device| device.index == gpu)
            {
                events.saw_recovery(device, value.value as u32);
            }
            sink(gpu, value);
        };
        let outcome = session.sample(&asked, &mut self.failures, &mut heard);
        if outcome.has_changed {
            self.list();
        }
        if outcome.is_lost {
            self.restart();
        } else {
            (self.restart_wait, self.restart_left) = (1, 1);
        }
    }

    /// The processes that have memory of a device, within the same deadline as a call of a tick; the
    /// cause in words when they cannot be had.
    pub fn processes(&mut self, gpu: u32) -> Result<Vec<GpuProcess>, String> {
        match &mut self.session {
            Some(session) => session.processes(gpu, self.options.call_deadline),
            None => Err(format!("cannot list the processes of GPU {gpu}: there is no driver to ask")),
        }
    }

    /// Counts a tick without a device and starts the driver anew when it is time to.
    fn restart(&mut self) {
        if self.starting.is_some() {
            return;
        }
        self.restart_left -= 1;
        if self.restart_left > 0 {
            return;
        }
        self.restart_wait = (self.restart_wait * 2).min(RESTART_TICKS_MAX);
        self.restart_left = self.restart_wait;
        match Session::reopen(self.session.take(), &self.options) {
            Ok(answer) => self.starting = Some(answer),
            Err(error) => self.absence = Some(GpuAbsence::NoThread { cause: error.to_string() }),
        }
    }

    /// Takes up a session that has been opened meanwhile.
    fn listen(&mut self) {
        let Some(starting) = &self.starting else { return };
        match starting.try_recv() {
            Ok(opened) => {
                self.starting = None;
                self.admit(opened);
            }
            Err(TryRecvError::Empty) => {}
            Err(TryRecvError::Disconnected) => self.starting = None,
        }
    }

    fn admit(&mut self, opened: Result<Session, GpuAbsence>) {
        match opened {
            Ok(session) => {
                self.absence = None;
                self.driver_version.clone_from(&session.driver_version);
                self.session = Some(session);
                self.list();
            }
            Err(absence) => self.absence = Some(absence),
        }
    }

    /// Lists the devices anew; another generation when they are others.
    fn list(&mut self) {
        let Some(session) = &self.session else { return };
        let devices: Vec<GpuDevice> = session.devices().cloned().collect();
        let unreadable: Vec<(u32, String)> =
            session.unreadable().map(|(index, cause)| (index, cause.clone())).collect();
        if devices != self.devices || unreadable != self.unreadable {
            (self.devices, self.unreadable) = (devices, unreadable);
            self.generation += 1;
        }
    }
}
