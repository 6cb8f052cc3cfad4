//! What the sampler's thread shares with the face of the run and with the delivery thread.

use std::sync::Mutex;

use model::{AttributeValue, CaptureReport};
use wire::push::{Elsewhere, PushRequest, PushResponse};

use crate::ownership::Frameworks;
use crate::shared::{Shared, lock};

/// The reason for points of a device that another process of the run reports: nothing is lost, and
/// the answer says it of the device.
pub(crate) const REPORTED_ELSEWHERE: &str = "gpu_reported_elsewhere";
/// Most refused series that wait for the sampler to hear of them.
const REFUSALS_MAX: usize = 2_000;
/// Longest report, bytes: a server takes 64 KiB as an attribute.
const REPORT_BYTES_MAX: usize = 60 << 10;
/// Prefix of the sampler's series.
pub(crate) const PREFIX: &str = "system/";

/// A series of the sampler's that the server did not take points of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) name: String,
    pub(crate) labels: Vec<(String, String)>,
    pub(crate) reason: String,
}

/// What came up since the sampler asked last.
#[derive(Debug, Default)]
pub(crate) struct News {
    pub(crate) refusals: Vec<Refusal>,
    pub(crate) elsewhere: Vec<Elsewhere>,
    pub(crate) frameworks: Option<Frameworks>,
}

/// Behind one lock that is taken once a tick, and on the rare events above.
#[derive(Debug, Default)]
pub(crate) struct Capture(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    report: Option<CaptureReport>,
    news: News,
}

impl Capture {
    /// What the sampler found so far.
    pub(crate) fn report(&self) -> Option<CaptureReport> {
        lock(&self.0).report.clone()
    }

    #[cfg(any(tg_linux, test))]
    pub(crate) fn take_news(&self) -> News {
        std::mem::take(&mut lock(&self.0).news)
    }

    pub(crate) fn set_frameworks(&self, frameworks: Frameworks) {
        lock(&self.0).news.frameworks = Some(frameworks);
    }

    /// Files what an answer says of the sampler's series in the request it answers.
    pub(crate) fn hear(&self, bytes: &[u8], answer: &PushResponse) {
        if answer.refused_series.is_empty() && answer.elsewhere.is_empty() {
            return;
        }
        let refusals = wire::push::decode(bytes).map(|request| refusals(&request, answer));
        let mut state = lock(&self.0);
        let news = &mut state.news;
        news.elsewhere.extend(answer.elsewhere.iter().cloned());
        news.elsewhere.truncate(REFUSALS_MAX);
        news.refusals.extend(refusals.unwrap_or_default());
        news.refusals.truncate(REFUSALS_MAX);
    }
}

/// The sampler's series among those that were refused.
fn refusals(request: &PushRequest, answer: &PushResponse) -> Vec<Refusal> {
    let named = answer.refused_series.iter();
    named
        .filter_map(|refused| Some((request.series.get(refused.index as usize)?, &refused.reason)))
        .filter(|(series, reason)| series.name.starts_with(PREFIX) && *reason != REPORTED_ELSEWHERE)
        .map(|(series, reason)| Refusal {
            name: series.name.clone(),
            labels: series.labels.iter().map(|l| (l.key.clone(), l.value.clone())).collect(),
            reason: reason.clone(),
        })
        .collect()
}

/// The report as text that a server takes as an attribute, shortened where it has too much to say.
fn bounded(report: &mut CaptureReport) -> String {
    let mut text = wire::capture::to_json(report);
    while text.len() > REPORT_BYTES_MAX && !report.failures.is_empty() {
        report.failures.truncate(report.failures.len() / 2);
        text = wire::capture::to_json(report);
    }
    while text.len() > REPORT_BYTES_MAX && !report.devices.is_empty() {
        report.devices.truncate(report.devices.len() / 2);
        text = wire::capture::to_json(report);
    }
    text
}

impl Shared {
    /// Keeps a report, and sends it when it says something new.
    pub(crate) fn report_capture(&self, mut report: CaptureReport) {
        let key = report.attribute();
        let text = bounded(&mut report);
        {
            let mut state = lock(&self.capture.0);
            let says_the_same =
                |old: &CaptureReport| CaptureReport { time_ns: report.time_ns, ..old.clone() } == report;
            if state.report.as_ref().is_some_and(says_the_same) {
                return;
            }
            state.report = Some(report);
        }
        self.say(|pending| pending.attributes.push((key, AttributeValue::Text(text), false)));
    }
}

#[cfg(test)]
mod tests {
    use wire::push::{RefusedSeries, Series};

    use super::*;

    #[test]
    fn report_of_a_machine_with_much_to_say_fits_an_attribute() {
        let failure = model::CaptureFailure {
            metric: "system/gpu/power_watts".into(),
            gpu: Some(1),
            reason: "unreadable".into(),
            cause: "x".repeat(1_000),
            backing_off: true,
        };
        let mut report = CaptureReport { failures: vec![failure; 200], ..CaptureReport::default() };
        let text = bounded(&mut report);
        assert!(text.len() <= REPORT_BYTES_MAX && report.failures.len() == 50, "{}", text.len());
        assert_eq!(wire::capture::parse(&text).as_ref(), Some(&report));
    }

    #[test]
    fn only_the_samplers_own_series_are_heard_of() {
        let series = |name: &str| Series { name: name.into(), ..Series::default() };
        let request = PushRequest {
            client_id: vec![1; 16],
            sequence: 1,
            run: Some(wire::push::Run { run: "r".into(), ..wire::push::Run::default() }),
            series: vec![series("loss"), series("system/cpu/utilization")],
            ..PushRequest::default()
        };
        let refused = |index| RefusedSeries { index, reason: "series_limit".into(), count: 1 };
        let answer = PushResponse {
            refused_series: vec![refused(0), refused(1), refused(7)],
            ..PushResponse::default()
        };
        let capture = Capture::default();
        capture.hear(&wire::push::encode(&request).unwrap(), &answer);
        let names: Vec<String> = capture.take_news().refusals.into_iter().map(|r| r.name).collect();
        assert_eq!(names, ["system/cpu/utilization"]);
        assert!(capture.take_news().refusals.is_empty(), "each is told once");
        capture.hear(b"no request", &answer);
        assert!(capture.take_news().refusals.is_empty());
    }
}
