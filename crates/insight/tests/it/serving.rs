//! What holds a served model back.

use insight::serving::{Kind, Serving, verdict};

fn kind(of: &Serving) -> Option<Kind> {
    verdict(of, "no card is known to serve it").map(|verdict| verdict.kind)
}

#[test]
fn busy_alone_says_nothing_and_what_limits_is_told_with_its_numbers() {
    let decode = Serving {
        running_max: Some(40.0),
        running: Some(31.0),
        waiting: Some(0.0),
        kv_usage_max: Some(0.87),
        cards: Some(1),
        busy: Some(1.0),
        tensor: Some(0.0238),
        dram: Some(0.871),
        power: Some(0.589),
        ..Serving::default()
    };
    let told = verdict(&decode, "").unwrap();
    assert_eq!(told.kind, Kind::MemoryBound);
    assert_eq!(
        told.sentence,
        "Busy 100 % of the time, but tensor cores worked 2 % and memory 87 % of it, power at 59 % of the limit: \
         memory bandwidth limits, a larger batch would cost little."
    );
    assert_eq!(kind(&Serving { tensor: Some(0.7), dram: Some(0.65), ..decode }), Some(Kind::ComputeBound));
    assert_eq!(kind(&Serving { tensor: Some(0.2), dram: Some(0.3), ..decode }), Some(Kind::Unknown));
    let unjoined = Serving { tensor: None, dram: None, ..decode };
    let told = verdict(&unjoined, "no card is known to serve it").unwrap();
    assert_eq!(told.kind, Kind::Unknown);
    assert!(told.sentence.ends_with("can't be told: no card is known to serve it."), "{}", told.sentence);
}

#[test]
fn a_full_cache_counts_only_when_somebody_waits_for_it() {
    let full = Serving {
        running_max: Some(96.0),
        running: Some(96.0),
        waiting: Some(7.0),
        kv_usage_max: Some(0.9713),
        ..Serving::default()
    };
    let told = verdict(&full, "").unwrap();
    assert_eq!(told.kind, Kind::KvFull);
    assert!(
        told.sentence.starts_with("The KV cache is 97 % full and 7 requests wait for room"),
        "{}",
        told.sentence
    );
    assert_eq!(kind(&Serving { waiting: Some(0.0), ..full }), Some(Kind::Unknown));
    let evicting = Serving { waiting: Some(0.0), preemptions_per_second: Some(0.5), ..full };
    assert_eq!(kind(&evicting), Some(Kind::KvFull));
    assert_eq!(kind(&Serving { kv_usage_max: Some(0.4), ..full }), Some(Kind::Queueing));
}

#[test]
fn nothing_asked_is_idle_and_nothing_known_is_no_verdict() {
    let idle =
        Serving { running_max: Some(0.0), running: Some(0.0), waiting: Some(0.0), ..Serving::default() };
    assert_eq!(kind(&idle), Some(Kind::Idle));
    assert_eq!(kind(&Serving { running_max: Some(2.0), ..idle }), Some(Kind::Unknown));
    assert_eq!(kind(&Serving::default()), None);
    assert_eq!(kind(&Serving { busy: Some(1.0), ..Serving::default() }), None, "busy is never judged by");
}

#[test]
fn large_numbers_have_commas() {
    let full = Serving {
        running: Some(1.0),
        waiting: Some(1_234_567.0),
        kv_usage_max: Some(0.97),
        preemptions_per_second: Some(1_000.5),
        ..Serving::default()
    };
    let told = verdict(&full, "").unwrap().sentence;
    assert!(
        told.contains("1,234,567 requests wait for room in it, 1,000.50 a second are put back"),
        "{told}"
    );
    let queue = Serving { waiting: Some(999.0), kv_usage_max: None, ..full };
    assert!(verdict(&queue, "").unwrap().sentence.starts_with("999 requests wait:"));
}
