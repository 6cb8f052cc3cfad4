//! What autocapture would find here: the driver, whose the devices are, and what a run would lack.

use std::fmt::Write as _;

use client::Config;
use insight::missing::{Row, foresee};
use model::{CaptureDevice, CaptureReport, CaptureState, DeviceRole, DriverState, NodeRole};
use serde_json::{Value, json};

use super::{Check, Verdict, fail, ok, warn};

/// What was found out, for the list and for `--json`.
pub(super) struct Found {
    report: CaptureReport,
    rows: Vec<Row>,
}

/// Looks as a run that starts here and now would, with this environment.
pub(super) fn look() -> Found {
    let mut config = Config::from_env();
    // What becomes of a run that is under way is not this one's business.
    config.path = model::RunPath { project: "doctor".into(), run: "doctor".into(), ..Default::default() };
    let report = client::preview(&config);
    let rows = foresee(&report, &collect::PROMISED, &collect::all_descs()).rows;
    Found { report, rows }
}

impl Found {
    pub(super) fn checks(&self) -> Vec<Check> {
        let mut checks = vec![self.state()];
        if self.report.state == CaptureState::Sampling {
            checks.extend(self.driver());
            checks.extend(devices(&self.report));
        }
        checks.extend(self.rows.iter().map(missing));
        checks
    }

    /// Report and rows as the server's API writes them.
    pub(super) fn json(self) -> Value {
        let report: Value = serde_json::from_str(&wire::capture::to_json(&self.report)).unwrap_or_default();
        json!({"report": report, "missing": server::missing_json(self.rows)})
    }

    fn state(&self) -> Check {
        let report = &self.report;
        if report.state != CaptureState::Sampling {
            // The row that says what is missing says why, too.
            return warn("capture", "a run here would capture nothing", "see what is missing, below");
        }
        let rank = report.rank.map_or_else(|| "no rank".to_owned(), |rank| format!("rank {rank}"));
        let local = report.local_rank.map_or_else(String::new, |rank| format!(", local rank {rank}"));
        let node = match &report.node {
            NodeRole::Reports => "would report the node".to_owned(),
            NodeRole::Other(owner) => {
                format!("would leave the node to process {} on {}", owner.pid, owner.host)
            }
            NodeRole::Unknown => "would not report the node".to_owned(),
        };
        let evidence = format!(
            "on, every {} s; {rank}{local}, {node}; locks: {}",
            report.interval_seconds,
            report.arbitration.as_str()
        );
        if report.arbitration == model::Arbitration::Unavailable {
            let fix = "let this user write to `/dev/shm` or the folder for temporary files: without locks \
                       a crashed process has no successor";
            return warn("capture", evidence, fix);
        }
        ok("capture", evidence)
    }

    /// What the driver answers; one that is not there has a row of its own.
    fn driver(&self) -> Option<Check> {
        let DriverState::Loaded(version) = &self.report.driver else { return None };
        let count = self.report.devices.len();
        let (version, order) = (version.as_str(), &self.report.cuda_device_order);
        let order = if order.is_empty() { String::new() } else { format!("; order: {order}") };
        Some(ok("gpu.driver", format!("driver {version}, {count} GPUs{order}")))
    }
}

/// Whose the devices would be, one line for each role.
fn devices(report: &CaptureReport) -> Option<Check> {
    if report.devices.is_empty() {
        return None;
    }
    let of = |is: &dyn Fn(&CaptureDevice) -> bool| -> Vec<String> {
        report.devices.iter().filter(|device| is(device)).map(|device| device.gpu.to_string()).collect()
    };
    let own = of(&|device| device.role == DeviceRole::Owned);
    let rest = of(&|device| device.role == DeviceRole::Waiting);
    let mut evidence = if own.is_empty() {
        "this process would report no GPU".to_owned()
    } else {
        format!("this process would report GPU {}", own.join(", "))
    };
    if !rest.is_empty() {
        let _ = write!(evidence, ", and {} where no other rank does within 45 s", rest.join(", "));
    }
    if !report.ownership.is_empty() {
        let _ = write!(evidence, "; {}", report.ownership);
    }
    Some(ok("gpu.owner", evidence))
}

/// A row of what a run would lack. One that is as it should be is no finding.
fn missing(row: &Row) -> Check {
    let mut fix = row.hint.clone().unwrap_or_default();
    if let Some(command) = row.command.as_ref().filter(|command| *command != "truegauge doctor") {
        fix = if fix.is_empty() { format!("`{command}`") } else { format!("{fix} `{command}`") };
    }
    if row.is_alarm {
        return fail("capture.missing", row.text.clone(), fix);
    }
    Check { fix, verdict: Verdict::Ok, ..ok("capture.missing", row.text.clone()) }
}
