//! A run, made up step by step: its processes, what they report, and which series have points.

use insight::missing::{Evidence, Explanation, Seen, explain};
use model::{
    CaptureDevice, CaptureOwner, CaptureReport, Desc, DeviceRole, DriverState, NANOS_PER_SECOND, NodeRole,
    RunChange, RunPath, RunRecord, SessionEnd, SessionEvent, SessionFacts, Unit,
};

/// When every run of these tests begins.
pub(crate) const T0: i64 = 1_800_000_000 * NANOS_PER_SECOND;

const HOST: &[&str] = &["host"];
const GPU: &[&str] = &["host", "gpu"];
const PROCESS: &[&str] = &["host", "pid"];

/// The series that every run should have.
pub(crate) const EXPECTED: [Desc; 14] = [
    Desc::gauge("system/gpu/utilization", Unit::Percent, GPU, ""),
    Desc::gauge("system/gpu/memory_used_bytes", Unit::Bytes, GPU, ""),
    Desc::gauge("system/gpu/memory_utilization", Unit::Percent, GPU, ""),
    Desc::gauge("system/gpu/temperature_celsius", Unit::Celsius, GPU, ""),
    Desc::gauge("system/gpu/power_watts", Unit::Watts, GPU, ""),
    Desc::gauge("system/gpu/sm_clock_mhz", Unit::Megahertz, GPU, ""),
    Desc::gauge("system/cpu/utilization", Unit::Percent, HOST, ""),
    Desc::gauge("system/memory/used_bytes", Unit::Bytes, HOST, ""),
    Desc::gauge("system/memory/utilization", Unit::Percent, HOST, ""),
    Desc::gauge("system/disk/total_bytes", Unit::Bytes, HOST, ""),
    Desc::gauge("system/disk/free_bytes", Unit::Bytes, HOST, ""),
    Desc::gauge("system/disk/utilization", Unit::Percent, HOST, ""),
    Desc::gauge("system/process/rss_bytes", Unit::Bytes, PROCESS, ""),
    Desc::gauge("system/process/cpu_utilization", Unit::Percent, PROCESS, ""),
];

/// The time `seconds` into the run.
pub(crate) fn at(seconds: i64) -> i64 {
    T0 + seconds * NANOS_PER_SECOND
}

/// A process by name.
pub(crate) fn owner(host: &str, pid: u32, rank: impl Into<Option<u32>>) -> CaptureOwner {
    CaptureOwner { host: host.into(), pid, rank: rank.into() }
}

/// A device with a role.
pub(crate) fn device(gpu: u32, role: DeviceRole) -> CaptureDevice {
    CaptureDevice {
        gpu,
        uuid: format!("GPU-{gpu:08}"),
        model: "NVIDIA H100 80GB HBM3".into(),
        pci_bus_id: String::new(),
        compute_capability: "9.0".into(),
        memory_account: String::new(),
        role,
        unsupported: Vec::new(),
    }
}

/// What a process that samples reports: rank `rank`, process `100 + rank`, from the run's first second.
pub(crate) fn report(host: &str, rank: u32) -> CaptureReport {
    CaptureReport {
        host: host.into(),
        boot_id: format!("boot of {host}"),
        pid: 100 + rank,
        rank: Some(rank),
        time_ns: at(1),
        started_ns: at(0),
        interval_seconds: 30.0,
        arbitration: model::Arbitration::Shm,
        node: if rank == 0 { NodeRole::Reports } else { NodeRole::Other(owner(host, 100, 0)) },
        driver: DriverState::Loaded("570.124.06".into()),
        ..CaptureReport::default()
    }
}

/// A series with a point every 30 s.
struct Series {
    metric: &'static str,
    host: String,
    gpu: Option<u32>,
    pid: Option<u32>,
    from_ns: i64,
    to_ns: i64,
}

impl Series {
    fn seen(&self) -> Seen<'_> {
        Seen {
            metric: self.metric,
            host: &self.host,
            gpu: self.gpu,
            pid: self.pid,
            first_ns: self.from_ns,
            last_ns: self.to_ns,
            points: ((self.to_ns - self.from_ns) / (30 * NANOS_PER_SECOND) + 1) as u64,
        }
    }
}

/// See the module.
pub(crate) struct Scene {
    pub(crate) run: RunRecord,
    pub(crate) reports: Vec<CaptureReport>,
    pub(crate) refused: Vec<(&'static str, u64)>,
    series: Vec<Series>,
    now_ns: i64,
}

impl Scene {
    /// A run asked about `seconds` after its begin.
    pub(crate) fn at(seconds: i64) -> Self {
        let path = RunPath { project: "p".into(), run: "r".into(), ..RunPath::default() };
        Self {
            run: RunRecord::new(path, T0),
            reports: Vec::new(),
            refused: Vec::new(),
            series: Vec::new(),
            now_ns: at(seconds),
        }
    }

    /// A process that opened its session at `from` and spoke last at `to`, in seconds.
    pub(crate) fn session(&mut self, host: &str, rank: u32, (from, to): (i64, i64)) -> &mut Self {
        self.session_of((host, 100 + rank, Some(rank)), (from, to), None, "0.1.0")
    }

    /// The same, by its facts, and how it ended.
    pub(crate) fn session_of(
        &mut self,
        (host, pid, rank): (&str, u32, Option<u32>),
        (from, to): (i64, i64),
        end: Option<SessionEnd>,
        version: &str,
    ) -> &mut Self {
        let writer = (self.run.sessions.len() as u128 + 1).to_be_bytes();
        for (seconds, end) in [(from, None), (to, end)] {
            let event = SessionEvent {
                time_ns: at(seconds),
                opens: seconds == from,
                end,
                reason: String::new(),
                facts: SessionFacts {
                    host: host.into(),
                    pid,
                    rank,
                    client_version: version.into(),
                    ..SessionFacts::default()
                },
            };
            let change = RunChange { session: Some((writer, event)), ..RunChange::default() };
            self.run.apply(&change, at(seconds));
        }
        self
    }

    pub(crate) fn report(&mut self, report: CaptureReport) -> &mut Self {
        self.reports.push(report);
        self
    }

    /// Series whose names begin so have points from `from` to `to`, in seconds.
    pub(crate) fn points(
        &mut self,
        prefix: &str,
        (host, gpu, pid): (&str, Option<u32>, Option<u32>),
        (from, to): (i64, i64),
    ) -> &mut Self {
        for desc in EXPECTED.iter().filter(|desc| desc.name.starts_with(prefix)) {
            let (metric, host) = (desc.name, host.to_owned());
            self.series.push(Series { metric, host, gpu, pid, from_ns: at(from), to_ns: at(to) });
        }
        self
    }

    /// All that the reporter of a node sends of it.
    pub(crate) fn node(&mut self, host: &str, span: (i64, i64)) -> &mut Self {
        for prefix in ["system/cpu", "system/memory", "system/disk"] {
            self.points(prefix, (host, None, None), span);
        }
        self
    }

    /// All that a rank sends of itself.
    pub(crate) fn process(&mut self, host: &str, rank: u32, span: (i64, i64)) -> &mut Self {
        self.points("system/process", (host, None, Some(100 + rank)), span)
    }

    /// All six of a GPU.
    pub(crate) fn gpu(&mut self, host: &str, gpu: u32, span: (i64, i64)) -> &mut Self {
        self.points("system/gpu", (host, Some(gpu), None), span)
    }

    /// Leaves a series out again.
    pub(crate) fn without(&mut self, metric: &str, gpu: Option<u32>) -> &mut Self {
        self.series.retain(|series| series.metric != metric || series.gpu != gpu);
        self
    }

    pub(crate) fn explain(&self) -> Explanation {
        let series: Vec<Seen<'_>> = self.series.iter().map(Series::seen).collect();
        explain(&Evidence {
            expected: &EXPECTED,
            catalog: &[],
            run: &self.run,
            reports: &self.reports,
            series: &series,
            refused: &self.refused,
            now_ns: self.now_ns,
        })
    }
}
