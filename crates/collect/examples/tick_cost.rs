//! What one tick costs: CPU time back to back and paced, the eight host series and the extras apart.
//!
//! `cargo run --release -p collect --example tick_cost -- [ticks] [paced ticks] [pause in ms]`.
//! With `--ticks-only N` it takes N ticks of the eight host series after one to warm up and prints
//! nothing, so that system calls can be counted as the difference of two runs under `strace -c`.

use std::{
    io::Write,
    time::{Duration, Instant},
};

use collect::{Host, NodeSampler, ProcessSampler, Sink, thread_cpu_seconds};

struct Samplers {
    node: NodeSampler,
    process: ProcessSampler,
    clock: Instant,
}

impl Samplers {
    fn new() -> Self {
        let host = Host::real();
        Self {
            node: NodeSampler::new(host.clone()),
            process: ProcessSampler::new(host),
            clock: Instant::now(),
        }
    }

    fn tick(&mut self, sink: &mut Sink<'_>) {
        let at_ns = self.clock.elapsed().as_nanos() as u64;
        self.node.sample(at_ns, sink);
        self.process.sample(at_ns, sink);
    }

    fn node_extras(&mut self, sink: &mut Sink<'_>) {
        self.node.sample_extras(self.clock.elapsed().as_nanos() as u64, sink);
    }

    fn tree(&mut self, sink: &mut Sink<'_>) {
        self.process.sample_extras(self.clock.elapsed().as_nanos() as u64, sink);
    }
}

/// CPU time of one call, in microseconds; 0 where it is not known.
fn cost_us(call: impl FnOnce()) -> f64 {
    let now = || thread_cpu_seconds().unwrap_or(0.0);
    let before = now();
    call();
    (now() - before) * 1e6
}

fn summary(mut costs: Vec<f64>) -> String {
    costs.sort_by(f64::total_cmp);
    let at = |share: f64| costs.get((costs.len() as f64 * share) as usize).copied().unwrap_or(f64::NAN);
    let max = costs.last().copied().unwrap_or(f64::NAN);
    format!("min {:.1}  p50 {:.1}  p99 {:.1}  max {max:.1} us CPU", at(0.0), at(0.5), at(0.99))
}

fn main() -> std::io::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |index: usize, default: u64| {
        arguments.get(index).and_then(|text| text.parse().ok()).unwrap_or(default)
    };
    let mut samplers = Samplers::new();
    let mut values = 0u64;
    let mut sink = |_: &'static model::Desc, _: f64| values += 1;
    samplers.tick(&mut sink);
    if arguments.first().is_some_and(|first| first == "--ticks-only") {
        (0..number(1, 100)).for_each(|_| samplers.tick(&mut sink));
        return Ok(());
    }
    let (ticks, paced, pause) = (number(0, 2000), number(1, 40), Duration::from_millis(number(2, 500)));
    let mut out = std::io::stdout().lock();
    samplers.node_extras(&mut sink);
    samplers.tree(&mut sink);
    let costs = (0..ticks).map(|_| cost_us(|| samplers.tick(&mut sink))).collect();
    writeln!(out, "8 host series, back to back  {}", summary(costs))?;
    let costs = (0..ticks).map(|_| cost_us(|| samplers.node_extras(&mut sink))).collect();
    writeln!(out, "3 pressure,    back to back  {}", summary(costs))?;
    let costs = (0..ticks).map(|_| cost_us(|| samplers.tree(&mut sink))).collect();
    writeln!(out, "2 tree,        back to back  {}", summary(costs))?;
    let mut costs = [Vec::new(), Vec::new(), Vec::new()];
    for _ in 0..paced {
        std::thread::sleep(pause);
        costs[0].push(cost_us(|| samplers.tick(&mut sink)));
        costs[1].push(cost_us(|| samplers.node_extras(&mut sink)));
        costs[2].push(cost_us(|| samplers.tree(&mut sink)));
    }
    for (name, costs) in ["8 host series", "3 pressure,  ", "2 tree,      "].iter().zip(costs) {
        writeln!(out, "{name}, every {} ms  {}", pause.as_millis(), summary(costs))?;
    }
    writeln!(out, "{values} values, {:?}", collect::facts(&Host::real()))
}
