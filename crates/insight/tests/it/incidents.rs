//! Reports of devices, folded into incidents.

use insight::incidents::{
    Action, Code, Common, Confidence, Conflict, Decided, Device, Incident, Incidents, Outcome, Part, Process,
    Provenance, Report, Rule, What, common_causes,
};
use proptest::prelude::*;

const SECOND: i64 = 1_000_000_000;
const START: i64 = 1_793_668_449 * SECOND;
const CARD: &str = "GPU-8b1a2c3d-0f11-4d6a-8e22-77aa10ff3b21";

/// A few rows of the catalogue.
fn rules(code: &Code) -> Option<Rule> {
    let rule = |action| Rule {
        action,
        then: None,
        repeated: None,
        together: None,
        part: Part::Cause,
        awaits_verdict: false,
        remap_pending: false,
        provenance: Provenance::Catalogue,
    };
    let Code::Xid(code) = code else { return None };
    Some(match code {
        31 => Rule { repeated: Some(Action::Inspect), ..rule(Action::RestartApp) },
        43 | 45 => Rule { part: Part::Symptom, ..rule(Action::None) },
        48 => Rule {
            together: Some((vec![Code::Xid(63), Code::Xid(64)], Action::DrainReset)),
            awaits_verdict: true,
            ..rule(Action::ResetGpu)
        },
        63 => Rule { remap_pending: true, ..rule(Action::None) },
        79 => Rule { awaits_verdict: true, then: Some(Action::Contact), ..rule(Action::RebootNode) },
        94 => Rule { awaits_verdict: true, ..rule(Action::RestartApp) },
        171 => Rule { part: Part::Detail, ..rule(Action::Inspect) },
        _ => return None,
    })
}

fn report(at_ns: i64, place: &str, what: What) -> Report {
    Report {
        at_ns,
        device: Device { host: "node-031".to_owned(), place: Some(place.to_owned()), uuid: None },
        key: None,
        is_userspace: false,
        what,
        count: 1,
        process: None,
        job: None,
        slice: None,
        text: "a line".to_owned(),
    }
}

fn xid(at_ns: i64, code: u32) -> Report {
    let what = What::Fault { code: Code::Xid(code), decided: None, is_implied: false };
    Report { text: format!("Xid {code}"), ..report(at_ns, "0000:43:00.0", what) }
}

fn verdict(at_ns: i64, action: Action) -> Report {
    report(at_ns, "0000:43:00.0", What::Verdict { action, provenance: Provenance::DriverXid })
}

fn fold(reports: impl IntoIterator<Item = Report>) -> Incidents {
    let mut incidents = Incidents::new();
    for report in reports {
        incidents.take(report, &rules);
    }
    incidents
}

fn only(incidents: &Incidents) -> &Incident {
    assert_eq!(incidents.all().len(), 1, "{:#?}", incidents.all());
    &incidents.all()[0]
}

fn counts(incident: &Incident) -> Vec<(String, u64)> {
    incident.codes.iter().map(|(code, seen)| (code.to_string(), seen.count)).collect()
}

/// A double-bit error as the kernel's log tells it, within a second.
fn double_bit() -> Vec<Report> {
    let process = Some(Process { pid: 771, name: Some("torchrun".to_owned()) });
    let codes = [48, 63, 63, 63, 94, 45];
    let mut reports: Vec<Report> = codes
        .iter()
        .enumerate()
        .map(|(at, code)| Report {
            key: Some(format!("boot:{at}")),
            process: process.clone(),
            ..xid(START + at as i64 * 100_000_000, *code)
        })
        .collect();
    let mut card = report(START, "0000:43:00.0", What::Card);
    card.device.uuid = Some(CARD.to_owned());
    card.key = Some("boot:18".to_owned());
    reports.push(card);
    reports
}

#[test]
fn a_double_bit_error_in_any_order_is_one_incident() {
    let reports = double_bit();
    // Every rotation, forwards and backwards.
    for turn in 0..reports.len() {
        for is_back in [false, true] {
            let mut order = reports.clone();
            order.rotate_left(turn);
            if is_back {
                order.reverse();
            }
            let mut incidents = fold(order.clone());
            let incident = only(&incidents).clone();
            assert_eq!(incident.device.uuid.as_deref(), Some(CARD));
            let want = [("Xid 45", 1), ("Xid 48", 1), ("Xid 63", 3), ("Xid 94", 1)];
            assert_eq!(counts(&incident), want.map(|(code, count)| (code.to_owned(), count)));
            assert_eq!(incident.verdict.action, Action::DrainReset);
            assert_eq!(incident.verdict.provenance, Provenance::Catalogue);
            assert_eq!(incident.verdict.code, Some(Code::Xid(48)));
            assert_eq!(incident.codes_of(Part::Symptom).collect::<Vec<_>>(), [&Code::Xid(45)]);
            assert!(incident.remap_pending);
            assert_eq!(incident.processes.iter().map(|process| process.pid).collect::<Vec<_>>(), [771]);
            assert!(incident.evidence.is_sorted_by_key(|line| line.at_ns));
            for again in order {
                assert_eq!(incidents.take(again, &rules), Outcome::Known);
            }
            assert_eq!(only(&incidents), &incident, "a second delivery adds nothing");
        }
    }
}

/// A card that falls off the bus: the number, and the line without one.
fn off_the_bus() -> [Report; 2] {
    let implied = What::Fault { code: Code::Xid(79), decided: None, is_implied: true };
    [xid(START, 79), report(START + 1_000, "0000:43:00.0", implied)]
}

#[test]
fn the_drivers_verdict_wins() {
    for late in [2 * SECOND, 30 * SECOND, 600 * SECOND] {
        let [number, line] = off_the_bus();
        for first in [[number.clone(), line.clone()], [line, number]] {
            let incidents = fold(first.into_iter().chain([verdict(START + late, Action::RebootNode)]));
            let incident = only(&incidents);
            assert_eq!(counts(incident), [("Xid 79".to_owned(), 1)]);
            let verdict = &incident.verdict;
            assert_eq!((verdict.action, verdict.provenance.name()), (Action::RebootNode, "driver-154"));
            assert_eq!((verdict.conflict, verdict.confidence), (None, Confidence::High));
            assert_eq!((verdict.then, verdict.waits_until_ns), (Some(Action::Contact), None));
            assert_eq!(incident.evidence.len(), 3);
        }
    }
}

#[test]
fn where_the_driver_asks_for_nothing_the_catalogue_speaks_and_the_conflict_is_kept() {
    let incidents = fold(off_the_bus().into_iter().chain([verdict(START + 2 * SECOND, Action::None)]));
    let verdict = &only(&incidents).verdict;
    assert_eq!((verdict.action, verdict.provenance.name()), (Action::RebootNode, "nvidia-catalog"));
    let conflict = Conflict { driver: Action::None, catalogue: Action::RebootNode };
    assert_eq!((verdict.conflict, verdict.confidence), (Some(conflict), Confidence::Medium));
    assert!(verdict.is_ready(START + 2 * SECOND), "the driver has spoken");
    let milder = fold([xid(START, 79), self::verdict(START, Action::ResetGpu)]);
    assert_eq!(only(&milder).verdict.action, Action::ResetGpu);
    assert!(only(&milder).verdict.conflict.is_some());
}

#[test]
fn the_driver_is_waited_for_five_seconds() {
    let incidents = fold([xid(START, 79)]);
    let verdict = &only(&incidents).verdict;
    assert!(!verdict.is_ready(START + 5 * SECOND - 1) && verdict.is_ready(START + 5 * SECOND));
    let incidents = fold([xid(START, 31)]);
    assert!(only(&incidents).verdict.is_ready(START));
}

#[test]
fn symptoms_ask_for_nothing() {
    let storm = (0..11_760).map(|at| Report { key: Some(at.to_string()), ..xid(START + at, 45) });
    let incidents = fold(storm);
    let incident = only(&incidents);
    assert!(!incident.is_actionable() && !incident.verdict.is_ready(i64::MAX));
    assert_eq!(counts(incident), [("Xid 45".to_owned(), 11_760)]);
    assert_eq!(incident.evidence.len() as u64 + incident.evidence_left_out, 11_760);
    assert!(incident.evidence.len() <= 64);
}

#[test]
fn a_detail_counts_only_when_its_cause_is_missing() {
    assert_eq!(only(&fold([xid(START, 171)])).verdict.action, Action::Inspect);
    assert_eq!(only(&fold([xid(START, 171), xid(START, 48)])).verdict.action, Action::ResetGpu);
}

#[test]
fn what_nobody_knows_is_inspected() {
    let incidents = fold([xid(START, 9_999)]);
    let verdict = &only(&incidents).verdict;
    assert_eq!((verdict.action, verdict.confidence), (Action::Inspect, Confidence::Low));
    assert_eq!(verdict.provenance, Provenance::Policy);
}

#[test]
fn what_a_process_wrote_changes_nothing() {
    let mut incidents = Incidents::new();
    let forged = Report { is_userspace: true, key: Some("boot:1".to_owned()), ..xid(START, 79) };
    assert_eq!(incidents.take(forged, &rules), Outcome::Userspace);
    let real = Report { key: Some("boot:1".to_owned()), ..xid(START, 79) };
    assert!(matches!(incidents.take(real, &rules), Outcome::Opened(_)), "a forged key takes no place");
}

#[test]
fn what_names_no_device_is_of_its_host() {
    let mut gone = xid(START, 79);
    gone.device.place = None;
    assert_eq!(counts(only(&fold([gone.clone(), gone]))), [("Xid 79".to_owned(), 2)]);
}

#[test]
fn decoded_registers_stand_for_the_number() {
    let decided = |action, confidence| What::Fault {
        code: Code::Xid(145),
        decided: Some(Decided { action, confidence }),
        is_implied: false,
    };
    let place = "0000:43:00.0";
    let with = |code: &Code| match code {
        Code::Xid(145) => {
            rules(&Code::Xid(79)).map(|rule| Rule { action: Action::Inspect, then: None, ..rule })
        }
        other => rules(other),
    };
    let mut incidents = Incidents::new();
    incidents.take(report(START, place, decided(Action::RestartApp, Confidence::High)), &with);
    assert_eq!(only(&incidents).verdict.action, Action::RestartApp);
    incidents.take(report(START + 1, place, decided(Action::ResetGpu, Confidence::High)), &with);
    incidents.take(report(START + 2, place, decided(Action::None, Confidence::High)), &with);
    let verdict = &only(&incidents).verdict;
    assert_eq!((verdict.action, verdict.confidence), (Action::ResetGpu, Confidence::High));
    incidents.take(report(START + 3, place, decided(Action::Inspect, Confidence::Low)), &with);
    let verdict = &only(&incidents).verdict;
    assert_eq!((verdict.action, verdict.confidence), (Action::Inspect, Confidence::Low));
}

#[test]
fn what_a_reset_makes_good_is_cleared_by_one() {
    let recovered = |at, action| report(at, "0000:43:00.0", What::Recovered(action));
    let mut incidents = fold(double_bit());
    incidents.take(recovered(START - 1, Action::RebootNode), &rules);
    assert!(only(&incidents).cleared.is_none(), "that was before");
    assert_eq!(
        incidents.take(recovered(START + 60 * SECOND, Action::DrainReset), &rules),
        Outcome::Cleared(1)
    );
    let incident = only(&incidents);
    assert_eq!(incident.cleared.as_ref().map(|cleared| cleared.at_ns), Some(START + 60 * SECOND));
    assert!(!incident.remap_pending);
    assert_eq!(incident.verdict.action, Action::DrainReset, "what was to be done stays told");
    incidents.take(xid(START + 61 * SECOND, 48), &rules);
    assert_eq!(incidents.all().len(), 2, "again is another one");
    assert_eq!(incidents.all()[1].came_back, 1);

    let mut incidents = fold([xid(START, 79)]);
    assert_eq!(incidents.take(recovered(START + 1, Action::ResetGpu), &rules), Outcome::Cleared(0));
    let mut boot = recovered(START + 2, Action::RebootNode);
    boot.device.place = None;
    assert_eq!(incidents.take(boot, &rules), Outcome::Cleared(1), "a boot is one of all devices");
}

#[test]
fn a_driver_that_asks_for_nothing_any_more_clears() {
    let asked = [
        xid(START, 79),
        verdict(START + SECOND, Action::RebootNode),
        verdict(START + 90 * SECOND, Action::None),
    ];
    let incidents = fold(asked);
    let incident = only(&incidents);
    assert!(incident.cleared.is_some());
    assert_eq!((incident.verdict.provenance, incident.verdict.conflict), (Provenance::DriverXid, None));
}

#[test]
fn a_fault_of_the_application_is_over_when_it_is_quiet() {
    let mut incidents = fold([xid(START, 31), xid(START + 300 * SECOND, 79)]);
    assert_eq!(incidents.all().len(), 2, "five minutes apart is another cause");
    assert_eq!(incidents.settle(START + 599 * SECOND), 0);
    assert_eq!(incidents.settle(START + 10_000 * SECOND), 1);
    assert_eq!(incidents.open().count(), 1, "a card that is gone stays gone");
    incidents.take(xid(START + 90_000 * SECOND, 79), &rules);
    assert_eq!(incidents.open().count(), 1, "and is not gone anew");
    incidents.settle(START + 200_000 * SECOND);
    assert_eq!(incidents.all().len(), 1, "what cannot come back is forgotten");
}

#[test]
fn a_fault_that_comes_back_under_other_processes_is_the_cards() {
    let run = |hour: i64, pid: u32| Report {
        process: Some(Process { pid, name: None }),
        ..xid(START + hour * 3_600 * SECOND, 31)
    };
    let actions = |pids: [u32; 3]| {
        let mut incidents = Incidents::new();
        for (hour, pid) in pids.into_iter().enumerate() {
            incidents.settle(START + hour as i64 * 3_600 * SECOND);
            incidents.take(run(hour as i64, pid), &rules);
        }
        incidents.all().iter().map(|incident| incident.verdict.action).collect::<Vec<_>>()
    };
    assert_eq!(actions([1, 2, 3]), [Action::RestartApp, Action::RestartApp, Action::Inspect]);
    assert_eq!(actions([1, 1, 1]), [Action::RestartApp; 3], "one process is the application");
}

#[test]
fn a_counter_is_evidence_and_opens_nothing() {
    let counter = || {
        let what = What::Counter { name: "tg_gpu_ecc_errors_total".to_owned(), before: 1.0, now: 2.0 };
        report(START + SECOND, "0000:43:00.0", what)
    };
    let mut incidents = Incidents::new();
    assert_eq!(incidents.take(counter(), &rules), Outcome::Nothing);
    incidents.take(xid(START, 48), &rules);
    assert!(matches!(incidents.take(counter(), &rules), Outcome::Changed(_)));
    assert_eq!(only(&incidents).evidence.len(), 2);
}

#[test]
fn a_device_under_two_names_is_one_when_they_are_joined() {
    let by_id = |at| {
        let mut report = verdict(at, Action::ResetGpu);
        report.device = Device { host: "node-031".to_owned(), place: None, uuid: Some(CARD.to_owned()) };
        report
    };
    let mut incidents = fold([xid(START, 48), by_id(START + 1)]);
    assert_eq!(incidents.all().len(), 2, "nothing tells yet");
    let mut card = report(START + 2, "0000:43:00.0", What::Card);
    card.device.uuid = Some(CARD.to_owned());
    incidents.take(card, &rules);
    let incident = only(&incidents);
    assert_eq!(
        (incident.verdict.action, incident.verdict.provenance),
        (Action::ResetGpu, Provenance::DriverXid)
    );
    assert_eq!(incident.device.place.as_deref(), Some("0000:43:00.0"));
    assert!(matches!(incidents.take(by_id(START + 3), &rules), Outcome::Changed(_)));
    let mut other = xid(START, 48);
    other.device.host = "node-032".to_owned();
    assert!(matches!(incidents.take(other, &rules), Outcome::Opened(_)), "places are a host's own");
}

#[test]
fn a_host_that_says_much_takes_no_other_host_its_incidents() {
    let mut other = xid(START, 79);
    other.device.host = "node-032".to_owned();
    let flood = (0..2_000).map(|n| report(START + n, &format!("0000:{n:x}:00.0"), xid(START, 48).what));
    let incidents = fold(std::iter::once(other).chain(flood));
    let (kept, flooded): (Vec<_>, Vec<_>) =
        incidents.open().partition(|incident| incident.device.host == "node-032");
    assert_eq!((kept.len(), incidents.dropped()), (1, 2_000 - flooded.len() as u64));
    assert!((64..1_000).contains(&flooded.len()), "{}", flooded.len());
    assert_eq!(flooded.last().map(|incident| incident.first_ns), Some(START + 1_999), "the latest stay");
}

fn elsewhere(host: u32, at_ns: i64, code: u32, job: Option<&str>) -> Report {
    let mut report = Report { job: job.map(str::to_owned), ..xid(at_ns, code) };
    report.device.host = format!("node-{host}");
    report
}

#[test]
fn the_same_fault_on_several_hosts_has_a_common_cause() {
    let all: Vec<Report> =
        (0..4).map(|host| elsewhere(host, START + i64::from(host) * 60 * SECOND, 79, None)).collect();
    let incidents = fold(all.clone());
    let groups = common_causes(incidents.open());
    let [Common { code, hosts, job, first_ns, last_ns, .. }] = &groups[..] else { panic!("{groups:?}") };
    assert_eq!((code, hosts.len(), job), (&Code::Xid(79), 4, &None));
    assert_eq!((*first_ns, *last_ns), (START, START + 180 * SECOND));
    assert_eq!(common_causes(fold(all[..2].to_vec()).open()), [], "two are an accident");
    let apart = (0..4).map(|host| elsewhere(host, START + i64::from(host) * 600 * SECOND, 79, None));
    assert_eq!(common_causes(fold(apart).open()), []);
}

#[test]
fn the_same_fault_on_the_devices_of_one_job_is_the_jobs() {
    let same = fold([elsewhere(1, START, 31, Some("17")), elsewhere(2, START + 1, 31, Some("17"))]);
    let groups = common_causes(same.open());
    assert_eq!(groups.iter().map(|group| group.job.as_deref()).collect::<Vec<_>>(), [Some("17")]);
    let two = fold([elsewhere(1, START, 31, Some("17")), elsewhere(2, START + 1, 31, Some("18"))]);
    assert_eq!(common_causes(two.open()), []);
}

fn any_report() -> impl Strategy<Value = Report> {
    let codes = prop::sample::select(&[31u32, 43, 45, 48, 63, 79, 94, 171, 999][..]);
    let action = prop::sample::select(&Action::ALL[..]);
    let what = (0u32..7, codes, action, any::<bool>()).prop_map(|(kind, code, action, is)| match kind {
        0..=2 => What::Fault { code: Code::Xid(code), decided: None, is_implied: is },
        3 => What::Verdict { action, provenance: Provenance::DriverLibrary },
        4 => What::RemapPending(is),
        5 => What::Recovered(action),
        _ => What::Card,
    });
    let device = (0u32..2, prop::option::of(0u32..3), prop::option::of(0u32..3));
    (what, device, any::<i64>(), 0i64..100, any::<bool>(), any::<u64>()).prop_map(
        |(what, names, at, near, is_far, count)| {
            let (host, place, uuid) = names;
            let mut report = report(if is_far { at } else { START + near * SECOND }, "", what);
            report.device = Device {
                host: host.to_string(),
                place: place.map(|place| place.to_string()),
                uuid: uuid.map(|uuid| uuid.to_string()),
            };
            report.count = count;
            report
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_reports_are_folded(reports in prop::collection::vec(any_report(), 0..40), now: i64) {
        let mut incidents = fold(reports);
        let _groups = common_causes(incidents.open());
        incidents.settle(now);
        for incident in incidents.all() {
            prop_assert!(incident.first_ns <= incident.last_ns);
            prop_assert!(incident.cleared.is_some() || incidents.open().any(|open| open.id == incident.id));
        }
    }

    #[test]
    fn the_order_of_reports_does_not_count(
        reports in prop::collection::vec((0i64..60, prop::sample::select(&[31u32, 43, 45, 48, 63, 79, 94, 171, 999][..])), 1..4),
        spoken in prop::option::of((0i64..60, prop::sample::select(&Action::ALL[1..]))),
    ) {
        let faults = reports.into_iter().map(|(at, code)| xid(START + at * SECOND, code));
        let said = spoken.map(|(at, action)| verdict(START + at * SECOND, action));
        let forwards: Vec<Report> = faults.chain(said).collect();
        let there = fold(forwards.clone());
        let back = fold(forwards.into_iter().rev());
        let (there, back) = (only(&there), only(&back));
        prop_assert_eq!(&there.verdict, &back.verdict);
        prop_assert_eq!(&there.codes, &back.codes);
        prop_assert_eq!(&there.evidence.len(), &back.evidence.len());
    }
}
