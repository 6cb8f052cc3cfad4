//! How well the straggler detector sees, and what it costs.
//!
//! `cargo run --release -p insight --example detector [alarms|few|delay|late|cost] [hours] [seeds]`
//!
//! `alarms` plays healthy days of 1,024 ranks with several kinds of noise and counts what is said, `few` the same
//! of 2 to 64 ranks. `delay` slows one rank down and counts the steps until it is named, `late` stops one in some
//! steps only. `cost` measures CPU time and memory. All of them
//! without a word; the last line is `RESULT {json}`.

#![expect(clippy::print_stdout, clippy::unwrap_used, reason = "a measurement that fails has nothing to tell")]

use std::collections::{BTreeMap, BTreeSet};

use insight::straggler::{Class, Detector, GpuFacts, Level, RankFacts, Ranks, Settings, StepTimes};

const RANKS: usize = 1_024;
const EXCHANGE: f64 = 0.15;

/// Numbers that look random.
struct Random(u64);

impl Random {
    fn word(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    }

    /// Above 0 and up to 1.
    fn even(&mut self) -> f64 {
        ((self.word() >> 11) + 1) as f64 / (1_u64 << 53) as f64
    }

    fn normal(&mut self) -> f64 {
        (-2.0 * self.even().ln()).sqrt() * (std::f64::consts::TAU * self.even()).cos()
    }
}

/// What a healthy rank needs for a step of 1 s.
#[derive(Clone, Copy)]
struct Noise {
    name: &'static str,
    draw: fn(&mut Random, usize) -> f64,
}

const NOISES: [Noise; 9] = [
    Noise { name: "even, within 1 %", draw: |random, _| 0.99 + 0.02 * random.even() },
    Noise { name: "normal, 1 %", draw: |random, _| 1.0 + 0.01 * random.normal() },
    Noise { name: "normal, 5 %", draw: |random, _| (1.0 + 0.05 * random.normal()).max(0.1) },
    Noise { name: "lognormal, sigma 0.1", draw: |random, _| (0.1 * random.normal()).exp() },
    Noise { name: "lognormal, sigma 0.5", draw: |random, _| (0.5 * random.normal()).exp() },
    Noise {
        name: "Pareto, alpha 1.5, a share of 1 %",
        draw: |random, _| 0.99 + 0.01 * random.even().powf(-1.0 / 1.5),
    },
    Noise { name: "normal, 1 %, ranks 1 % apart for good", draw: |random, rank| apart(random, rank) },
    Noise { name: "stalls of 50 % in a tenth of steps", draw: |random, _| stalls(random, 0.1) },
    Noise { name: "stalls of 50 % in a third of steps", draw: |random, _| stalls(random, 0.33) },
];

fn stalls(random: &mut Random, share: f64) -> f64 {
    let stall = if random.even() <= share { 0.5 } else { 0.0 };
    1.0 + 0.01 * random.normal() + stall
}

fn apart(random: &mut Random, rank: usize) -> f64 {
    1.0 + 0.01 * random.normal() + 0.01 * Random(rank as u64).normal()
}

fn ranks(n: usize) -> Ranks {
    let one = |rank: usize| RankFacts {
        rank: rank as u32,
        host: format!("host-{:04}", rank / 8),
        gpu: (rank % 8).to_string(),
        uuid: format!("GPU-{rank:08x}"),
        // Of few ranks all are peers.
        stage: (n >= RANKS).then_some((rank * 4 / n) as u32),
        ..RankFacts::default()
    };
    Ranks((0..n).map(one).collect())
}

/// One step of some ranks.
struct Step {
    own: Vec<f32>,
    wait: Vec<f32>,
    data: Vec<f32>,
}

impl Step {
    fn new(n: usize) -> Self {
        Self { own: vec![0.0; n], wait: vec![0.0; n], data: vec![0.02; n] }
    }

    /// Draws what each rank needs; the faults of `slow` come on top.
    fn draw(&mut self, noise: Noise, random: &mut Random, slow: Option<(usize, f64)>) {
        for (rank, own) in self.own.iter_mut().enumerate() {
            *own = (noise.draw)(random, rank) as f32;
        }
        if let Some((rank, times)) = slow {
            self.own[rank] *= times as f32;
        }
        let last = self.longest(None) as f32;
        for (wait, own) in self.wait.iter_mut().zip(&self.own) {
            *wait = last - own + EXCHANGE as f32;
        }
    }

    /// The longest own time, without one rank.
    fn longest(&self, without: Option<usize>) -> f64 {
        let ranks = self.own.iter().enumerate().filter(|(rank, _)| Some(*rank) != without);
        f64::from(ranks.map(|(_, own)| *own).fold(0.0, f32::max))
    }

    fn feed(&self, detector: &mut Detector, step: i64) -> bool {
        detector.take(&StepTimes {
            step,
            time_ns: step * 1_000_000_000,
            own: &self.own,
            wait: &self.wait,
            data: &self.data,
            checkpoint: &[],
        })
    }
}

/// Every verdict of a healthy time, by class and level; how many there were of each.
fn alarms(noise: Noise, hours: i64, n: usize) -> BTreeMap<(Level, Class), usize> {
    let mut detector = Detector::new(ranks(n), Settings::default());
    let mut random = Random(noise.name.len() as u64);
    let mut step = Step::new(n);
    let mut open: BTreeSet<(String, Level)> = BTreeSet::new();
    let mut counts = BTreeMap::new();
    for number in 0..hours * 3_600 {
        step.draw(noise, &mut random, None);
        if !step.feed(&mut detector, number) {
            continue;
        }
        let verdicts = detector.verdicts();
        for verdict in verdicts {
            if !open.contains(&(verdict.key(), verdict.level)) {
                *counts.entry((verdict.level, verdict.class)).or_default() += 1;
            }
        }
        open = verdicts.iter().map(|verdict| (verdict.key(), verdict.level)).collect();
    }
    counts
}

fn show_alarms(hours: i64, n: usize) -> String {
    println!("{hours} healthy hours of {n} ranks at a step a second");
    println!("{:<38} {:>6} {:>6} {:>6}  which", "noise of a rank's own time", "page", "warn", "info");
    let mut json = Vec::new();
    for noise in NOISES {
        let counts = alarms(noise, hours, n);
        let of = |level: Level| -> usize {
            counts.iter().filter(|((one, _), _)| *one == level).map(|(_, count)| count).sum()
        };
        let (page, warn, info) = (of(Level::Page), of(Level::Warn), of(Level::Info));
        let which: Vec<String> = counts
            .iter()
            .map(|((level, class), n)| format!("{n} {} {}", class.word(), level.word()))
            .collect();
        println!("{:<38} {page:>6} {warn:>6} {info:>6}  {}", noise.name, which.join(", "));
        json.push(format!(
            "{{\"noise\": \"{}\", \"page\": {page}, \"warn\": {warn}, \"info\": {info}}}",
            noise.name
        ));
    }
    let name = if n == RANKS { "alarms".to_owned() } else { format!("alarms_{n}") };
    format!("\"{name}\": [{}]", json.join(", "))
}

/// Steps after which a rank, slowed down from step 200 on, is named first, and first warned of; in how many of
/// the seeds within 300 steps, and whether anybody else was named.
fn show_delays(seeds: u64) -> String {
    println!("one of {RANKS} ranks is slow from a step on; {seeds} times each");
    println!(
        "{:<22} {:>5} {:>7} {:>7} {:>14} {:>7} {:>14} {:>8}",
        "noise", "slow", "costs", "named", "after, steps", "warned", "after, steps", "others"
    );
    let mut json = Vec::new();
    for noise in &NOISES[..4] {
        for slow in [0.03, 0.05, 0.10, 0.25] {
            let runs: Vec<Delay> = (0..seeds).map(|seed| delay(*noise, slow, seed)).collect();
            let (named, named_after) = summary(runs.iter().map(|run| run.named));
            let (warned, warned_after) = summary(runs.iter().map(|run| run.warned));
            let costs = runs.iter().map(|run| run.costs).sum::<f64>() / seeds as f64;
            let others: usize = runs.iter().map(|run| run.others).sum();
            println!(
                "{:<22} {:>4.0}% {:>6.1}% {:>6.0}% {named_after:>14} {:>6.0}% {warned_after:>14} {others:>8}",
                noise.name,
                slow * 100.0,
                costs * 100.0,
                named * 100.0,
                warned * 100.0
            );
            json.push(format!(
                "{{\"noise\": \"{}\", \"slow\": {slow}, \"named\": {named}, \"warned\": {warned}, \"others\": {others}}}",
                noise.name
            ));
        }
    }
    format!("\"delays\": [{}]", json.join(", "))
}

/// Steps after which a rank is named that is stopped for a while in one step of some, from step 200 on.
fn show_late(seeds: u64) -> String {
    println!(
        "one rank is late by a step's time in one step of some; normal noise of 1 %; {seeds} times each"
    );
    println!(
        "{:<8} {:>8} {:>8} {:>7} {:>18} {:>8}",
        "ranks", "one of", "costs", "named", "after, steps", "others"
    );
    let mut json = Vec::new();
    for n in [4, 64, RANKS] {
        for often in [2, 3, 5, 10, 20] {
            let runs: Vec<Delay> = (0..seeds).map(|seed| late(n, often, seed)).collect();
            let (named, after) = summary(runs.iter().map(|run| run.named));
            let costs = runs.iter().map(|run| run.costs).sum::<f64>() / seeds as f64;
            let others: usize = runs.iter().map(|run| run.others).sum();
            println!(
                "{n:<8} {often:>8} {:>7.1}% {:>6.0}% {after:>18} {others:>8}",
                costs * 100.0,
                named * 100.0
            );
            json.push(format!(
                "{{\"ranks\": {n}, \"one_of\": {often}, \"named\": {named}, \"others\": {others}}}"
            ));
        }
    }
    format!("\"late\": [{}]", json.join(", "))
}

fn late(n: usize, often: u64, seed: u64) -> Delay {
    let mut detector = Detector::new(ranks(n), Settings::default());
    let mut random = Random(seed.wrapping_mul(0x51_7c_c1));
    let mut step = Step::new(n);
    let rank = (random.word() % n as u64) as usize;
    let mut run = Delay { named: None, warned: None, others: 0, costs: 0.0 };
    let (mut length, mut without) = (0.0, 0.0);
    for number in 0..600 {
        let is_late = number >= 200 && random.word().is_multiple_of(often);
        step.draw(NOISES[1], &mut random, is_late.then_some((rank, 2.0)));
        if number >= 200 {
            length += step.longest(None) + EXCHANGE;
            without += step.longest(Some(rank)) + EXCHANGE;
            run.costs = 1.0 - without / length;
        }
        if !step.feed(&mut detector, number) {
            continue;
        }
        for verdict in detector.verdicts() {
            if verdict.ranks == [rank as u32] {
                run.named.get_or_insert(number - 199);
            } else {
                run.others += usize::from(!verdict.ranks.is_empty());
            }
        }
    }
    run
}

struct Delay {
    named: Option<i64>,
    warned: Option<i64>,
    others: usize,
    /// Share of a step that is won without the rank.
    costs: f64,
}

fn delay(noise: Noise, slow: f64, seed: u64) -> Delay {
    let mut detector = Detector::new(ranks(RANKS), Settings::default());
    let mut random = Random(seed.wrapping_mul(0x51_7c_c1));
    let mut step = Step::new(RANKS);
    let rank = (random.word() % RANKS as u64) as usize;
    let start = 200 + (seed % 5) as i64;
    let mut run = Delay { named: None, warned: None, others: 0, costs: 0.0 };
    let (mut length, mut without) = (0.0, 0.0);
    for number in 0..start + 300 {
        let fault = (number >= start).then_some((rank, 1.0 + slow));
        step.draw(noise, &mut random, fault);
        if fault.is_some() {
            length += step.longest(None) + EXCHANGE;
            without += step.longest(Some(rank)) + EXCHANGE;
            run.costs = 1.0 - without / length;
        }
        if !step.feed(&mut detector, number) || number < start {
            continue;
        }
        let after = number - start + 1;
        for verdict in detector.verdicts() {
            if verdict.ranks != [rank as u32] {
                run.others += usize::from(!verdict.ranks.is_empty());
                continue;
            }
            run.named.get_or_insert(after);
            if verdict.level >= Level::Warn {
                run.warned.get_or_insert(after);
            }
        }
        if run.warned.is_some() {
            break;
        }
    }
    run
}

/// Share of the runs with a number; its median and maximum.
fn summary(runs: impl Iterator<Item = Option<i64>>) -> (f64, String) {
    let all: Vec<Option<i64>> = runs.collect();
    let mut found: Vec<i64> = all.iter().flatten().copied().collect();
    found.sort_unstable();
    let share = found.len() as f64 / all.len() as f64;
    let text = match found.last() {
        Some(most) => format!("{} (most {most})", found[found.len() / 2]),
        None => "-".to_owned(),
    };
    (share, text)
}

/// Nanoseconds of CPU time of this thread.
fn cpu_ns() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    text.split_whitespace().next().unwrap().parse().unwrap()
}

fn show_costs() -> String {
    println!("a step a second, all ranks with waits, data and GPUs told every 15 steps");
    println!(
        "{:<8} {:>22} {:>14} {:>12} {:>16}",
        "ranks", "CPU of a step, us", "of one core", "memory, MiB", "bytes a rank"
    );
    let mut json = Vec::new();
    for n in [1_024, 16_384] {
        for slow in [None, Some((n / 3, 1.25))] {
            let (cpu_us, bytes) = cost(n, slow);
            let name = if slow.is_some() { format!("{n}, one slow") } else { n.to_string() };
            println!(
                "{name:<17} {cpu_us:>13.1} {:>13.4}% {:>12.2} {:>16}",
                cpu_us / 1e4,
                bytes as f64 / 1_048_576.0,
                bytes / n
            );
            json.push(format!(
                "{{\"ranks\": {n}, \"slow\": {}, \"cpu_us\": {cpu_us:.1}, \"bytes\": {bytes}}}",
                slow.is_some()
            ));
        }
    }
    format!("\"costs\": [{}]", json.join(", "))
}

fn cost(n: usize, slow: Option<(usize, f64)>) -> (f64, usize) {
    let mut random = Random(7);
    let steps: Vec<Step> = (0..64)
        .map(|_| {
            let mut step = Step::new(n);
            step.draw(NOISES[0], &mut random, slow);
            step
        })
        .collect();
    let mut detector = Detector::new(ranks(n), Settings::default());
    let facts =
        GpuFacts { clock_hertz: 1.98e9, power_watts: 600.0, thermal_seconds: 0.0, ..GpuFacts::default() };
    let turn = |detector: &mut Detector, number: i64| {
        if number % 15 == 0 {
            for place in 0..n {
                detector.gpu(place, number * 1_000_000_000, &facts);
            }
        }
        steps[number as usize % steps.len()].feed(detector, number);
    };
    for number in 0..200 {
        turn(&mut detector, number);
    }
    let (before, rounds) = (cpu_ns(), 600);
    for number in 200..200 + rounds {
        turn(&mut detector, number);
    }
    ((cpu_ns() - before) as f64 / 1e3 / rounds as f64, detector.bytes())
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let wanted = arguments.first().map(String::as_str);
    let number = |at: usize, usual: i64| arguments.get(at).map_or(usual, |text| text.parse().unwrap());
    let is_wanted = |part: &str| wanted.is_none_or(|one| one == part);
    let mut json = Vec::new();
    if is_wanted("alarms") {
        json.push(show_alarms(number(1, 24), RANKS));
    }
    if is_wanted("few") {
        json.extend([2, 4, 8, 64].map(|n| show_alarms(number(1, 24), n)));
    }
    if is_wanted("delay") {
        json.push(show_delays(number(2, 100) as u64));
    }
    if is_wanted("late") {
        json.push(show_late(number(2, 100) as u64));
    }
    if is_wanted("cost") {
        json.push(show_costs());
    }
    println!("RESULT {{{}}}", json.join(", "));
}
