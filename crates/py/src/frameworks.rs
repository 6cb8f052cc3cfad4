//! Which devices JAX and Torch use, asked from inside `log()` until one has answered.
//!
//! Training code brings them up after the run has begun, and asking them from another thread is not
//! safe; `log()` runs in a thread of the program's own and holds the interpreter's lock anyway. Nothing
//! is imported or initialised here: a module is taken from `sys.modules` if it is there, and asked only
//! once it says that it has initialised its devices by itself.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use client::ownership::Frameworks;
use pyo3::exceptions::PyException;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyDict;

/// Between two questions.
const PAUSE: Duration = Duration::from_secs(1);
/// Calls of a busy loop that pass without a look at the clock.
const CALLS_BETWEEN_LOOKS: u32 = 16;
/// Devices that a process can have.
const DEVICES_MAX: usize = 1024;
/// The part of JAX that knows its devices.
const JAX: &str = "jax._src.xla_bridge";
/// The part of Torch that does.
const TORCH: &str = "torch.cuda";

/// Looked up once: an import where it is needed would let other threads run.
static MODULES: PyOnceLock<Py<PyDict>> = PyOnceLock::new();

/// Remembers where modules are found. A program that replaces that dictionary is not followed, nor is it
/// by Python itself.
pub(crate) fn prepare(py: Python<'_>) -> PyResult<()> {
    let modules = py.import("sys")?.getattr("modules")?.cast_into::<PyDict>()?;
    drop(MODULES.set(py, modules.unbind()));
    Ok(())
}

/// The question, and how far it got.
pub(crate) struct Question {
    /// Calls that pass before anything is looked at. The one thing that every call touches.
    calls_left: AtomicU32,
    /// Whether anybody still wants to know.
    is_open: AtomicBool,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    asked: Option<Instant>,
    known: Frameworks,
}

impl Question {
    pub(crate) fn new(is_open: bool) -> Self {
        Self { calls_left: AtomicU32::new(0), is_open: AtomicBool::new(is_open), state: Mutex::default() }
    }

    /// Whether it may be time to ask: a number counted down, since this is on the path of every call. A
    /// count that is lost between two threads costs nothing.
    #[inline]
    pub(crate) fn may_be_due(&self) -> bool {
        let left = self.calls_left.load(Ordering::Relaxed);
        self.calls_left.store(left.wrapping_sub(1), Ordering::Relaxed);
        left == 0
    }

    /// What frameworks say, when it is time to ask and the answer is new. The error is an interruption,
    /// such as Ctrl-C, and nothing else: whatever a framework raises is no answer.
    pub(crate) fn ask(&self, py: Python<'_>) -> PyResult<Option<Frameworks>> {
        if !self.is_open.load(Ordering::Relaxed) {
            self.calls_left.store(u32::MAX, Ordering::Relaxed);
            return Ok(None);
        }
        self.calls_left.store(0, Ordering::Relaxed);
        let now = Instant::now();
        let known = {
            // Busy: another thread asks. In a forked child it may stay so, and a child has no use for it.
            let Ok(mut state) = self.state.try_lock() else { return Ok(None) };
            let is_due = state.asked.is_none_or(|asked| now - asked >= PAUSE);
            if !is_due {
                self.calls_left.store(CALLS_BETWEEN_LOOKS - 1, Ordering::Relaxed);
                return Ok(None);
            }
            state.asked = Some(now);
            state.known.clone()
        };
        let Some(modules) = MODULES.get(py) else { return Ok(None) };
        let modules = modules.bind(py);
        let mut found = known.clone();
        // What has answered is not asked again: Torch's current device moves about from here on.
        if found.jax.is_none() {
            found.jax = answer(py, modules, JAX, jax)?;
        }
        if found.torch.is_none() {
            found.torch = answer(py, modules, TORCH, torch)?;
        }
        self.settle(&found, modules);
        if found == known {
            return Ok(None);
        }
        if let Ok(mut state) = self.state.try_lock() {
            found.clone_into(&mut state.known);
        }
        Ok(Some(found))
    }

    /// JAX has the last word where it has devices. Torch has it where there is no JAX, or one on a CPU.
    fn settle(&self, found: &Frameworks, modules: &Bound<'_, PyDict>) {
        let may_jax_answer = found.jax.is_none() && modules.contains(JAX).unwrap_or(true);
        let has_jax_devices = found.jax.as_ref().is_some_and(|devices| !devices.is_empty());
        if has_jax_devices || (found.torch.is_some() && !may_jax_answer) {
            self.is_open.store(false, Ordering::Relaxed);
        }
    }
}

/// Asks a module, if it is loaded.
fn answer<T>(
    py: Python<'_>,
    modules: &Bound<'_, PyDict>,
    name: &str,
    ask: impl FnOnce(&Bound<'_, PyAny>) -> PyResult<Option<T>>,
) -> PyResult<Option<T>> {
    let asked = match modules.get_item(name) {
        Ok(Some(module)) => ask(&module),
        Ok(None) => Ok(None),
        Err(error) => Err(error),
    };
    asked.or_else(|error| if error.is_instance_of::<PyException>(py) { Ok(None) } else { Err(error) })
}

/// CUDA's ordinals of the devices of a JAX that runs; empty when it runs on a CPU.
fn jax(bridge: &Bound<'_, PyAny>) -> PyResult<Option<Vec<u32>>> {
    if !has_backends(bridge)? {
        return Ok(None);
    }
    let mut ordinals = Vec::new();
    for device in bridge.call_method0("local_devices")?.try_iter()?.take(DEVICES_MAX) {
        let device = device?;
        let platform: String = device.getattr("platform")?.extract()?;
        if !matches!(&*platform, "cpu" | "tpu") {
            ordinals.push(device.getattr("local_hardware_id")?.extract()?);
        }
    }
    Ok(Some(ordinals))
}

/// Whether JAX has started its devices by itself.
///
/// Its own function for that waits for a thread that is starting them, which takes seconds. So its table
/// is looked at, when its lock is free: a lock that must not be held while JAX is called.
fn has_backends(bridge: &Bound<'_, PyAny>) -> PyResult<bool> {
    let (Some(guard), Some(table)) = (bridge.getattr_opt("_backend_lock")?, bridge.getattr_opt("_backends")?)
    else {
        return bridge.call_method0("backends_are_initialized")?.extract();
    };
    if !guard.call_method1("acquire", (false,))?.extract::<bool>()? {
        return Ok(false);
    }
    let is_filled = table.is_truthy();
    guard.call_method0("release")?;
    is_filled
}

/// CUDA's ordinal of the current device of a Torch that uses CUDA already.
fn torch(cuda: &Bound<'_, PyAny>) -> PyResult<Option<u32>> {
    if !cuda.call_method0("is_initialized")?.extract::<bool>()? {
        return Ok(None);
    }
    cuda.call_method0("current_device")?.extract().map(Some)
}
