//! What is left where there is no Linux (or the build pretends so).

use std::path::Path;

use collect::{CgroupMode, Host, NodeSampler, ProcessSampler};

#[test]
fn samplers_yield_nothing_and_fail_at_nothing() {
    const { assert!(!collect::SUPPORTED) };
    let mut values = 0;
    for host in [Host::real(), Host::at(Path::new("/"))] {
        let mut node = NodeSampler::new(host.clone());
        let mut process = ProcessSampler::new(host);
        for at_ns in [0, 1_000_000_000] {
            node.sample(at_ns, &mut |_, _| values += 1);
            node.sample_extras(at_ns, &mut |_, _| values += 1);
            process.sample(at_ns, &mut |_, _| values += 1);
            process.sample_extras(at_ns, &mut |_, _| values += 1);
        }
        assert!(node.take_failures().is_empty() && process.take_failures().is_empty());
    }
    assert_eq!(values, 0);
}

#[test]
fn the_machine_still_has_a_name() {
    assert!(!collect::hostname().is_empty() && !collect::platform().is_empty());
    assert_eq!(collect::facts(&Host::real()).mode, CgroupMode::None);
    assert_eq!(collect::thread_cpu_seconds(), None);
}
