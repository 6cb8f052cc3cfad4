//! When a number changed.

use insight::change::{Change, Cusum, DEPLOY, Event, tell};

use crate::cluster::{RANKS, Scene, exchange, own};

fn length(scene: Scene, step: i64) -> f64 {
    let owns = (0..RANKS as i64).map(|rank| own(scene, rank, step).0);
    owns.fold(0.0, f64::max) + exchange(scene)
}

/// Steps 0 to 199, with something wrong from step 120 on.
fn found(scene: Scene) -> Option<Change> {
    let mut cusum = Cusum::new();
    let mut values =
        (0..200).map(|step| (step, length(if step < 120 { Scene::Healthy } else { scene }, step)));
    values.find_map(|(step, value)| cusum.push(step, step * 1_000_000_000, value))
}

#[test]
fn a_rise_is_found_at_the_step_at_which_it_begins() {
    for (scene, at) in [(Scene::Hot, 120), (Scene::SlowExchange, 120), (Scene::Slight, 123)] {
        let change = found(scene).expect("a change");
        assert_eq!((change.onset_step, change.found_step), (120, at), "{scene:?}");
        assert_eq!(change.onset_time_ns, 120_000_000_000);
        assert!((change.before - 1.1596).abs() < 1e-3);
    }
    assert_eq!(found(Scene::Healthy), None);
}

#[test]
fn a_single_long_step_is_no_change_where_it_is_clipped() {
    let mut cusum = Cusum::knowing(1.0, 0.01).clipped(4.0);
    for step in 0..100 {
        let value = if step == 50 { 30.0 } else { 1.0 };
        assert_eq!(cusum.push(step, 0, value), None, "step {step}");
    }
}

#[test]
fn a_change_is_over_when_the_number_is_what_it_was() {
    let mut cusum = Cusum::knowing(1.0, 0.01);
    let value = |step| if (50..70).contains(&step) { 1.2 } else { 1.0 };
    let changes: Vec<_> = (0..200).filter_map(|step| cusum.push(step, 0, value(step))).collect();
    assert_eq!(changes.iter().map(|change| change.onset_step).collect::<Vec<_>>(), [50]);
    assert_eq!(cusum.change(), None);
}

#[test]
fn what_is_not_a_number_is_not_added() {
    let mut cusum = Cusum::new();
    for step in 0..500 {
        let value = if step % 2 == 0 { 1.0 } else { [f64::NAN, f64::INFINITY][step as usize % 4 / 2] };
        assert_eq!(cusum.push(step, 0, value), None);
    }
    assert_eq!(cusum.usual(), Some((1.0, 0.005)));
}

#[test]
fn a_drop_of_mfu_is_told_with_what_happened_around_it() {
    let mut cusum = Cusum::new();
    let mfu = |step: i64| if step < 120 { 0.40 + 0.001 * (step % 3) as f64 } else { 0.34 };
    let change =
        (0..200).find_map(|step| cusum.push(step, step * 1_000_000_000, -mfu(step))).expect("a change");
    assert_eq!(change.onset_step, 120);
    let event = |seconds: i64, kind: &str, text: &str| Event {
        time_ns: seconds * 1_000_000_000,
        kind: kind.to_owned(),
        text: text.to_owned(),
    };
    let mut events = vec![
        event(117, "throttle", "GPU 1 of host-3 is throttled"),
        event(60, "clock", "clocks were set"),
        event(241, "xid", "Xid 94 on host-9"),
    ];
    let story = tell("MFU", &change, -0.34, &events);
    assert!(!story.is_deploy);
    assert_eq!(
        story.events.iter().map(|event| event.kind.as_str()).collect::<Vec<_>>(),
        ["throttle", "clock"]
    );
    assert_eq!(
        story.sentence,
        "MFU fell by 15.2 % at step 120 without a change of the job; nearest in time, 3 s before: GPU 1 of host-3 \
         is throttled."
    );
    events.push(event(119, DEPLOY, "the commit is another"));
    assert!(tell("MFU", &change, -0.34, &events).is_deploy);
    let alone = tell("MFU", &change, -0.34, &[]).sentence;
    assert!(alone.ends_with("nothing is known to have happened within two minutes of it."), "{alone}");
}
