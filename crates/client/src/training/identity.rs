//! Which run a process belongs to, where nobody needs to be asked.

/// Where a run's id is from.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum RunIdSource {
    /// The caller or a switch said it.
    Explicit,
    /// Slurm's job.
    Slurm,
    /// torchrun's run.
    TorchElastic,
    /// The run that this process logs to.
    Run,
    /// Where the ranks meet, and when their launcher started.
    Rendezvous,
    /// Nothing told: a number of this process's own.
    #[default]
    Random,
}
