//! Prints what this machine's numbers are measured against, and every series over some seconds.
//!
//! `cargo run -p collect --example one_tick -- [seconds]`

use std::{
    io::Write,
    time::{Duration, Instant},
};

use collect::{Host, NodeSampler, ProcessSampler, facts, hostname, platform};

fn main() -> std::io::Result<()> {
    let seconds = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(1);
    let mut out = std::io::stdout().lock();
    writeln!(out, "{} on {}", hostname(), platform())?;
    let facts = facts(&Host::real());
    writeln!(out, "cgroups {}", facts.mode.as_str())?;
    if let Some(memory) = &facts.memory {
        writeln!(out, "memory at {}, of {} B", memory.path, memory.ceiling_bytes)?;
    }
    if let Some(cpu) = &facts.cpu {
        writeln!(out, "cpu from {}, of {} ({})", cpu.path, cpu.capacity_cpus, cpu.source.as_str())?;
    }
    let (mut node, mut process) = (NodeSampler::new(Host::real()), ProcessSampler::new(Host::real()));
    let clock = Instant::now();
    let mut lines = Vec::new();
    for _ in 0..2 {
        lines.clear();
        let at_ns = clock.elapsed().as_nanos() as u64;
        let mut sink = |desc: &'static model::Desc, value: f64| {
            lines.push(format!("{:40} {value:18.3} {}", desc.name, desc.unit.symbol()));
        };
        node.sample(at_ns, &mut sink);
        node.sample_extras(at_ns, &mut sink);
        process.sample(at_ns, &mut sink);
        process.sample_extras(at_ns, &mut sink);
        if at_ns < 1_000_000_000 * seconds {
            std::thread::sleep(Duration::from_secs(seconds));
        }
    }
    for failure in node.take_failures().into_iter().chain(process.take_failures()) {
        lines.push(failure.cause);
    }
    writeln!(out, "{}", lines.join("\n"))
}
