//! What the launcher says of this process: rank, world, job.

/// A process's place in its job, as launchers put it into the environment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Launch {
    /// Rank in the job.
    pub rank: Option<u32>,
    /// Rank on this node.
    pub local_rank: Option<u32>,
    /// Processes in the job.
    pub world_size: Option<u32>,
    /// What the launcher calls the job, empty when it does not say.
    pub job_token: String,
    /// How often the launcher restarted it.
    pub restart_count: u32,
    /// A run's name made of the job, empty when there is no job.
    pub run_name: String,
}

/// A variable of the environment, if it is set.
pub type Lookup<'a> = &'a dyn Fn(&str) -> Option<String>;

const RANK: &[&str] = &["RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK"];
const LOCAL_RANK: &[&str] = &["LOCAL_RANK", "SLURM_LOCALID", "OMPI_COMM_WORLD_LOCAL_RANK"];
const WORLD_SIZE: &[&str] = &["WORLD_SIZE", "SLURM_NTASKS", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE"];
const RESTART_COUNT: &[&str] = &["TORCHELASTIC_RESTART_COUNT", "SLURM_RESTART_COUNT"];
/// Variables that hold a job's token, and what a run's name is made of in front of it.
const JOB_TOKEN: &[(&str, &str)] = &[
    ("TRUEGAUGE_ORCHESTRATION_ID", ""),
    ("METRANA_ORCHESTRATION_ID", ""),
    ("TORCHELASTIC_RUN_ID", "torchrun-"),
    ("SLURM_JOB_ID", "slurm-"),
    ("RAY_JOB_ID", "ray-"),
];

/// The rank on this node and the variable that gave it.
pub(crate) fn local_rank(lookup: Lookup<'_>) -> Option<(u32, &'static str)> {
    LOCAL_RANK.iter().find_map(|name| Some((lookup(name)?.trim().parse().ok()?, *name)))
}

impl Launch {
    /// Reads this process's environment.
    pub fn detect() -> Self {
        Self::from_variables(&|name| std::env::var(name).ok())
    }

    /// Reads the variables that `lookup` knows. Values that are no whole number from 0 are passed
    /// over for the next variable.
    pub fn from_variables(lookup: Lookup<'_>) -> Self {
        let number = |names: &[&str]| {
            names.iter().filter_map(|name| lookup(name)).find_map(|value| value.trim().parse::<u32>().ok())
        };
        let (job_token, prefix) = JOB_TOKEN
            .iter()
            .filter_map(|(name, prefix)| Some((lookup(name)?.trim().to_owned(), *prefix)))
            .find(|(token, prefix)| is_token(token, prefix))
            .unwrap_or_default();
        let run_name = if job_token.is_empty() { String::new() } else { format!("{prefix}{job_token}") };
        Self {
            rank: number(RANK),
            local_rank: number(LOCAL_RANK),
            world_size: number(WORLD_SIZE),
            restart_count: number(RESTART_COUNT).unwrap_or_default(),
            job_token,
            run_name,
        }
    }

    /// Whether the job has more than one process, so that what a rank logs is the rank's own.
    pub(crate) fn is_distributed(&self) -> bool {
        self.world_size.is_some_and(|size| size > 1)
    }
}

/// Whether a value names a job: torchrun writes the literal `none` when it was given no id.
fn is_token(token: &str, prefix: &str) -> bool {
    let is_torchrun_default = prefix == "torchrun-" && token == "none";
    !token.is_empty() && !is_torchrun_default
}

#[cfg(test)]
mod tests {
    use super::*;

    fn launch(variables: &[(&str, &str)]) -> Launch {
        Launch::from_variables(&|name| {
            variables.iter().find(|(n, _)| *n == name).map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn bad_numbers_fall_through_to_the_next_launcher() {
        let got = launch(&[("RANK", "x"), ("SLURM_PROCID", "-1"), ("OMPI_COMM_WORLD_RANK", " 3 ")]);
        assert_eq!(got.rank, Some(3));
        assert_eq!(launch(&[]), Launch::default());
    }

    #[test]
    fn jobs_are_named_by_their_launcher() {
        let check = |variables: &[(&str, &str)], token: &str, run: &str| {
            let got = launch(variables);
            assert_eq!((got.job_token.as_str(), got.run_name.as_str()), (token, run));
        };
        check(&[("SLURM_JOB_ID", "77"), ("RAY_JOB_ID", "9")], "77", "slurm-77");
        check(&[("TORCHELASTIC_RUN_ID", "none")], "", "");
        check(&[("TORCHELASTIC_RUN_ID", "none"), ("SLURM_JOB_ID", "77")], "77", "slurm-77");
        check(&[("TORCHELASTIC_RUN_ID", "abc"), ("SLURM_JOB_ID", "77")], "abc", "torchrun-abc");
        check(&[("METRANA_ORCHESTRATION_ID", "mine"), ("SLURM_JOB_ID", "77")], "mine", "mine");
        check(&[("TRUEGAUGE_ORCHESTRATION_ID", "none")], "none", "none");
    }

    #[test]
    fn one_process_is_no_world() {
        assert!(!launch(&[("WORLD_SIZE", "1"), ("RANK", "0")]).is_distributed());
        assert!(launch(&[("SLURM_NTASKS", "8")]).is_distributed());
    }
}
