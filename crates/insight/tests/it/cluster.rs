//! Steps of a made-up job of 64 ranks, as a straggler detector gets them.

use insight::straggler::{Detector, GpuFacts, RankFacts, Ranks, Settings, StepTimes};

/// What goes wrong with a job of 64 ranks on eight hosts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scene {
    /// Nothing.
    Healthy,
    /// Rank 17 is a quarter slower, its card hot.
    Hot,
    /// The exchange takes three times as long.
    SlowExchange,
    /// Rank 5 waits for its data.
    SlowLoader,
    /// The last stage has an eighth more to do.
    HeavyStage,
    /// Another rank is slow in each step.
    Turns,
    /// All ranks of host 3 are slow.
    SlowHost,
    /// Rank 9 is three per cent slower.
    Slight,
}

pub(crate) const RANKS: usize = 64;

/// Noise of a rank in a step, at most a hundredth either way.
pub(crate) fn jitter(rank: i64, step: i64) -> f64 {
    (((7919 * rank + 104_729 * step + 31 * rank * step) % 2003) as f64 / 2003.0 - 0.5) * 0.02
}

/// What each rank is busy itself in a step, and the part of it that waits for data.
pub(crate) fn own(scene: Scene, rank: i64, step: i64) -> (f64, f64) {
    let own = 1.0 + jitter(rank, step);
    let slow = match scene {
        Scene::Hot if rank == 17 => 1.25,
        Scene::HeavyStage if rank >= 48 => 1.12,
        Scene::Turns if rank == (13 * step) % 64 => 1.2,
        Scene::SlowHost if (24..32).contains(&rank) => 1.08,
        Scene::Slight if rank == 9 => 1.03,
        _ => 1.0,
    };
    let late = if scene == Scene::SlowLoader && rank == 5 { 0.15 } else { 0.0 };
    (own * slow + late, 0.02 + late)
}

pub(crate) fn exchange(scene: Scene) -> f64 {
    if scene == Scene::SlowExchange { 0.45 } else { 0.15 }
}

/// Eight ranks a host; with `stages` also four stages of sixteen.
pub(crate) fn ranks(with_stages: bool) -> Ranks {
    let one = |rank: u32| RankFacts {
        rank,
        host: format!("host-{}", rank / 8),
        gpu: (rank % 8).to_string(),
        uuid: format!("GPU-{rank:08x}"),
        stage: with_stages.then_some(rank / 16),
        ..RankFacts::default()
    };
    Ranks((0..RANKS as u32).map(one).collect())
}

pub(crate) fn detector(with_stages: bool) -> Detector {
    Detector::new(ranks(with_stages), Settings::default())
}

/// One step of a number of ranks, from what each is busy and the time of the exchange.
#[derive(Debug, Clone, Default)]
pub(crate) struct Step {
    pub(crate) own: Vec<f32>,
    pub(crate) wait: Vec<f32>,
    pub(crate) data: Vec<f32>,
    pub(crate) checkpoint: Vec<f32>,
}

impl Step {
    pub(crate) fn of(own: &[f64], exchange: f64) -> Self {
        let last = own.iter().copied().fold(0.0, f64::max);
        Self {
            own: own.iter().map(|own| *own as f32).collect(),
            wait: own.iter().map(|own| (last - own + exchange) as f32).collect(),
            ..Self::default()
        }
    }

    pub(crate) fn scene(scene: Scene, step: i64) -> Self {
        let busy: Vec<(f64, f64)> = (0..RANKS as i64).map(|rank| own(scene, rank, step)).collect();
        let own: Vec<f64> = busy.iter().map(|busy| busy.0).collect();
        let data = busy.iter().map(|busy| busy.1 as f32).collect();
        Self { data, ..Self::of(&own, exchange(scene)) }
    }

    pub(crate) fn feed(&self, detector: &mut Detector, step: i64) -> bool {
        detector.take(&StepTimes {
            step,
            time_ns: step * 1_000_000_000,
            own: &self.own,
            wait: &self.wait,
            data: &self.data,
            checkpoint: &self.checkpoint,
        })
    }
}

/// Plays a scene, and tells every ten steps what the cards do.
pub(crate) fn play(detector: &mut Detector, scene: Scene, steps: std::ops::Range<i64>) {
    for step in steps {
        if step % 10 == 0 {
            tell_cards(detector, scene, step);
        }
        Step::scene(scene, step).feed(detector, step);
    }
}

pub(crate) fn tell_cards(detector: &mut Detector, scene: Scene, step: i64) {
    for rank in 0..RANKS {
        let is_hot = scene == Scene::Hot && rank == 17;
        let idles = scene == Scene::SlowLoader && rank == 5;
        let facts = GpuFacts {
            clock_hertz: if is_hot { 1_584e6 } else { 1_980e6 },
            power_watts: if idles { 480.0 } else { 600.0 },
            power_limit_watts: 700.0,
            temperature_celsius: if is_hot { 91.0 } else { 62.0 },
            thermal_seconds: if is_hot { step as f64 * 0.9 } else { 0.0 },
            power_seconds: 0.0,
            pcie_width: 16.0,
            pcie_generation: 5.0,
            memory_faults: 0.0,
        };
        detector.gpu(rank, step * 1_000_000_000, &facts);
    }
}
