//! What a run would lack, told before there is one.

use model::{CaptureReport, CaptureState, Desc, DeviceRole, NodeRole, RunPath, RunRecord};

use super::facts::Kind;
use super::{Evidence, Explanation, Seen, explain};

/// Says what a run would lack whose only process reports this: as if all that it can read had points.
pub fn foresee(report: &CaptureReport, expected: &[Desc], catalog: &[Desc]) -> Explanation {
    let report = CaptureReport { started_ns: report.time_ns, ..report.clone() };
    let run = RunRecord::new(RunPath::default(), report.time_ns);
    let mut series = Vec::new();
    if report.state == CaptureState::Sampling {
        for desc in expected {
            series_of(desc, &report, &mut series);
        }
    }
    explain(&Evidence {
        expected,
        catalog,
        run: &run,
        reports: std::slice::from_ref(&report),
        series: &series,
        refused: &[],
        now_ns: report.time_ns,
    })
}

/// The series of a metric that the process would have.
fn series_of<'a>(desc: &Desc, report: &'a CaptureReport, series: &mut Vec<Seen<'a>>) {
    let fails = |gpu: Option<u32>| {
        report.failures.iter().any(|failure| failure.metric == desc.name && failure.gpu == gpu)
    };
    let seen = |gpu: Option<u32>, pid: Option<u32>| Seen {
        metric: desc.name,
        host: &report.host,
        gpu,
        pid,
        first_ns: report.time_ns,
        last_ns: report.time_ns,
        points: 2,
    };
    match Kind::of(desc) {
        Kind::Node if report.node == NodeRole::Reports && !fails(None) => series.push(seen(None, None)),
        Kind::Process if !fails(None) => series.push(seen(None, Some(report.pid))),
        Kind::Gpu => {
            let owned = report.devices.iter().filter(|device| device.role == DeviceRole::Owned);
            let has = |name: &String| name == desc.name;
            let able = owned.filter(|device| !device.unsupported.iter().any(has) && !fails(Some(device.gpu)));
            series.extend(able.map(|device| seen(Some(device.gpu), None)));
        }
        Kind::Node | Kind::Process => (),
    }
}
