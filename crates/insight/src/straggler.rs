//! Which rank of a training holds up the others.
//!
//! Ranks meet at every collective operation, so all steps are equally long and the rank that waits least is
//! the one that the others wait for. Compared is what a rank is busy itself, its step without its waits,
//! over windows of twenty steps and with its peers only: ranks of the same pipeline stage and role. Only
//! durations are compared, so clocks of hosts may be apart. See `docs/concepts/stragglers.md`.

mod accuse;
mod cards;
mod detector;
mod groups;
mod hold;
mod job;
mod lates;
mod ring;
mod verdict;
mod window;
pub(crate) mod words;

pub use detector::{Detector, Suspect, Watched, Window};
pub use job::Baseline;
pub use verdict::{Action, Cause, Class, Evidence, Level, Verdict};

/// Where the lines are drawn.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Settings {
    /// Steps at the start of an attempt that are not looked at.
    pub warm_up_steps: u32,
    /// Share of the ranks that a step needs to be looked at.
    pub reporting_ratio: f64,
    /// A rank's own time over that of its peers from which it is warned of.
    pub warn_ratio: f64,
    /// The same from which somebody is to be woken.
    pub page_ratio: f64,
    /// How far out a rank has to be, in standard deviations of its peers.
    pub z: f64,
    /// Jobs of fewer ranks only warn.
    pub page_ranks_min: usize,
    /// Share of a step below which nothing is said of the job as a whole.
    pub change_ratio: f64,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            warm_up_steps: 20,
            reporting_ratio: 0.9,
            warn_ratio: 1.05,
            page_ratio: 1.10,
            z: 6.0,
            page_ranks_min: 8,
            change_ratio: 0.05,
        }
    }
}

/// What is known of a rank before it does anything.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RankFacts {
    /// The rank.
    pub rank: u32,
    /// Its host; empty if it is not known.
    pub host: String,
    /// Index of its GPU on the host; empty if it is not known.
    pub gpu: String,
    /// The GPU's UUID; empty if it is not known.
    pub uuid: String,
    /// What it does, where ranks of a job do different things; empty otherwise. Compared are equal roles only.
    pub role: String,
    /// Pipeline stage. Compared are ranks of one stage only.
    pub stage: Option<u32>,
    /// Places in the other groups.
    pub tensor: Option<u32>,
    /// Place in the data-parallel group.
    pub data: Option<u32>,
    /// Place in the expert-parallel group.
    pub expert: Option<u32>,
    /// Place in the context-parallel group.
    pub context: Option<u32>,
}

/// The ranks of an attempt. A rank's place here is its place in every [`StepTimes`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Ranks(pub Vec<RankFacts>);

/// What each rank did in one step, in seconds, by the ranks' places in [`Ranks`]. A rank that is not there,
/// or did not say, has NaN; so has every rank of a slice that is too short.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StepTimes<'a> {
    /// Its number. A number below the one before means that the job was taken back to a checkpoint.
    pub step: i64,
    /// When it was done, nanoseconds, by one clock for all steps. Verdicts repeat it, nothing is made of it.
    pub time_ns: i64,
    /// The step without the time in `wait`; the whole step for a rank whose waits are not known.
    pub own: &'a [f32],
    /// How long the rank was held up in collective operations.
    pub wait: &'a [f32],
    /// The part of `own` in which it waited for its data.
    pub data: &'a [f32],
    /// The part of `own` that went into checkpoints and evaluation. Steps in which it matters are left out.
    pub checkpoint: &'a [f32],
}

/// What a rank's GPU does, as it was read at one time. What is not known is NaN.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct GpuFacts {
    /// Clock of the SMs.
    pub clock_hertz: f64,
    /// Power.
    pub power_watts: f64,
    /// The limit that is kept.
    pub power_limit_watts: f64,
    /// Temperature.
    pub temperature_celsius: f64,
    /// Time since the driver started in which heat held the clock down, hardware or software.
    pub thermal_seconds: f64,
    /// The same for power: cap and brake.
    pub power_seconds: f64,
    /// Lanes of the PCIe link.
    pub pcie_width: f64,
    /// Generation of the PCIe link.
    pub pcie_generation: f64,
    /// Faults of its memory so far: rows remapped, errors not corrected, Xid 63, 92 and 94.
    pub memory_faults: f64,
}

impl Default for GpuFacts {
    fn default() -> Self {
        Self {
            clock_hertz: f64::NAN,
            power_watts: f64::NAN,
            power_limit_watts: f64::NAN,
            temperature_celsius: f64::NAN,
            thermal_seconds: f64::NAN,
            power_seconds: f64::NAN,
            pcie_width: f64::NAN,
            pcie_generation: f64::NAN,
            memory_faults: f64::NAN,
        }
    }
}
