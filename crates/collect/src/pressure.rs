//! Pressure stall information: the share of the time in which somebody waited.
//!
//! Source: `cpu.pressure`, `memory.pressure`, `io.pressure` of the level the other node series are
//! measured at when it lies in the unified hierarchy, otherwise `/proc/pressure/` (kernel:
//! `accounting/psi`). Without `CONFIG_PSI` neither is there and the series are absent.

use std::path::Path;

use model::Desc;

use crate::{
    Failure, PRESSURE_CPU, PRESSURE_IO, PRESSURE_MEMORY, Sink,
    failure::Health,
    host::Host,
    parse,
    pseudo_file::{Buffer, PseudoFile, ReadError},
    rate::Rate,
};

/// One resource's pressure.
#[derive(Debug)]
struct Resource {
    metric: &'static Desc,
    name: &'static str,
    host: PseudoFile,
    level: Option<PseudoFile>,
    rate: Rate,
    health: Health,
}

/// Pressure on CPU, memory and I/O.
#[derive(Debug)]
pub(crate) struct Pressure {
    resources: [Resource; 3],
}

impl Pressure {
    pub(crate) fn new(host: &Host) -> Self {
        let resource = |metric, name: &'static str| Resource {
            metric,
            name,
            host: host.file(&format!("/proc/pressure/{name}")),
            level: None,
            rate: Rate::default(),
            health: Health::default(),
        };
        Self {
            resources: [
                resource(&PRESSURE_CPU, "cpu"),
                resource(&PRESSURE_MEMORY, "memory"),
                resource(&PRESSURE_IO, "io"),
            ],
        }
    }

    /// Takes the directories that CPU, and memory and I/O, are measured at; `None` is the host.
    pub(crate) fn measure_at(&mut self, cpu: Option<&Path>, memory: Option<&Path>) {
        for (resource, directory) in self.resources.iter_mut().zip([cpu, memory, memory]) {
            let path = directory.map(|directory| directory.join(format!("{}.pressure", resource.name)));
            if resource.level.as_ref().map(|file| &**file.path()) != path.as_deref() {
                resource.level = path.map(PseudoFile::new);
            }
        }
    }

    /// Emits each ratio that two ticks in a row could read.
    pub(crate) fn sample(
        &mut self,
        at_ns: u64,
        buffer: &mut Buffer,
        failures: &mut Vec<Failure>,
        sink: &mut Sink<'_>,
    ) {
        for resource in &mut self.resources {
            if !resource.health.is_due() {
                continue;
            }
            let outcome = resource.ratio(at_ns, buffer);
            if let Some(Some(ratio)) = resource.health.note(resource.metric, outcome, failures) {
                sink(resource.metric, ratio);
            }
        }
    }
}

impl Resource {
    fn ratio(&mut self, at_ns: u64, buffer: &mut Buffer) -> Result<Option<f64>, String> {
        for file in self.level.iter_mut().chain([&mut self.host]) {
            let text = match file.read(buffer) {
                Ok(text) => text,
                Err(ReadError::Absent) => continue,
                Err(ReadError::Failed(cause)) => return Err(cause),
            };
            let total = parse::pressure_some_us(text).and_then(|total| total.checked_mul(1000));
            let total = total.ok_or_else(|| file.malformed("a line `some … total=<µs>`"))?;
            let advance = self.rate.advance(file.path(), total, at_ns);
            // The kernel adds up in steps of its own, so a short interval can come out above 1.
            return Ok(advance.map(|step| (step.value as f64 / step.elapsed_ns as f64).min(1.0)));
        }
        Ok(None)
    }
}
