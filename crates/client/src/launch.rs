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

/// In this order: torchrun and Ray Train, Slurm, Open MPI, MPICH and Intel MPI (Hydra), PMIx, MVAPICH 2
/// and 3, PALS, LSF's jsrun, Flux.
const RANK: &[&str] = &[
    "RANK",
    "SLURM_PROCID",
    "OMPI_COMM_WORLD_RANK",
    "PMI_RANK",
    "PMIX_RANK",
    "MV2_COMM_WORLD_RANK",
    "MVP_COMM_WORLD_RANK",
    "PALS_RANKID",
    "JSM_NAMESPACE_RANK",
    "FLUX_TASK_RANK",
];
/// The same launchers; `PMI_LOCAL_RANK` is Cray's.
const LOCAL_RANK: &[&str] = &[
    "LOCAL_RANK",
    "SLURM_LOCALID",
    "OMPI_COMM_WORLD_LOCAL_RANK",
    "MPI_LOCALRANKID",
    "MV2_COMM_WORLD_LOCAL_RANK",
    "MVP_COMM_WORLD_LOCAL_RANK",
    "PALS_LOCAL_RANKID",
    "PMI_LOCAL_RANK",
    "JSM_NAMESPACE_LOCAL_RANK",
    "FLUX_TASK_LOCAL_ID",
];
/// The same launchers; PALS gives `PMI_SIZE`.
const WORLD_SIZE: &[&str] = &[
    "WORLD_SIZE",
    "SLURM_NTASKS",
    "OMPI_COMM_WORLD_SIZE",
    "PMI_SIZE",
    "MV2_COMM_WORLD_SIZE",
    "MVP_COMM_WORLD_SIZE",
    "JSM_NAMESPACE_SIZE",
    "FLUX_JOB_SIZE",
];
const RESTART_COUNT: &[&str] = &["TORCHELASTIC_RESTART_COUNT", "SLURM_RESTART_COUNT"];
/// Variables that hold a job's token, and what a run's name is made of in front of it.
const JOB_TOKEN: &[(&str, &str)] = &[
    ("TRUEGAUGE_ORCHESTRATION_ID", ""),
    ("METRANA_ORCHESTRATION_ID", ""),
    ("TORCHELASTIC_RUN_ID", "torchrun-"),
    ("SLURM_JOB_ID", "slurm-"),
    ("RAY_JOB_ID", "ray-"),
    ("FLUX_JOB_ID", "flux-"),
    ("PALS_APID", "pals-"),
    ("LSB_JOBID", "lsf-"),
    ("PBS_JOBID", "pbs-"),
];

/// The rank on this node and the variable that gave it.
pub(crate) fn local_rank(lookup: Lookup<'_>) -> Option<(u32, &'static str)> {
    number(lookup, LOCAL_RANK)
}

/// The first variable that holds a whole number from 0.
fn number(lookup: Lookup<'_>, names: &[&'static str]) -> Option<(u32, &'static str)> {
    let read = |name: &&'static str| Some((lookup(name)?.trim().parse().ok()?, *name));
    let is_slurm = |name: &&&str| name.starts_with("SLURM_");
    if is_lone_slurm_task(lookup) {
        let others = names.iter().filter(|name| !is_slurm(name)).find_map(read);
        return others.or_else(|| names.iter().filter(is_slurm).find_map(read));
    }
    names.iter().find_map(read)
}

/// Whether Slurm's variables may be those of a batch script or an interactive shell. Either is a lone
/// task 0 by itself and hands that down to whatever another launcher starts in it: such a launcher is
/// believed before them. `srun` gives its tasks a step, and a step of several tasks is its own launch.
fn is_lone_slurm_task(lookup: Lookup<'_>) -> bool {
    let is_zero = |name| lookup(name).is_none_or(|value| value.trim() == "0");
    let is_step_of_several = lookup("SLURM_STEP_ID").is_some()
        && lookup("SLURM_STEP_NUM_TASKS").is_none_or(|tasks| tasks.trim() != "1");
    lookup("SLURM_JOB_ID").is_some()
        && !is_step_of_several
        && is_zero("SLURM_PROCID")
        && is_zero("SLURM_LOCALID")
}

impl Launch {
    /// Reads this process's environment.
    pub fn detect() -> Self {
        Self::from_variables(&|name| std::env::var(name).ok())
    }

    /// Reads the variables that `lookup` knows. Values that are no whole number from 0 are passed
    /// over for the next variable.
    pub fn from_variables(lookup: Lookup<'_>) -> Self {
        let number = |names: &[&'static str]| number(lookup, names).map(|(number, _)| number);
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
    fn every_launcher_gives_rank_local_rank_and_world() {
        let check = |variables: &[(&str, &str)]| {
            let got = launch(variables);
            assert_eq!(
                (got.rank, got.local_rank, got.world_size),
                (Some(5), Some(1), Some(8)),
                "{variables:?}"
            );
        };
        check(&[("RANK", "5"), ("LOCAL_RANK", "1"), ("WORLD_SIZE", "8")]);
        check(&[("SLURM_PROCID", "5"), ("SLURM_LOCALID", "1"), ("SLURM_NTASKS", "8")]);
        check(&[
            ("OMPI_COMM_WORLD_RANK", "5"),
            ("OMPI_COMM_WORLD_LOCAL_RANK", "1"),
            ("OMPI_COMM_WORLD_SIZE", "8"),
        ]);
        check(&[("PMI_RANK", "5"), ("MPI_LOCALRANKID", "1"), ("PMI_SIZE", "8")]);
        check(&[
            ("MV2_COMM_WORLD_RANK", "5"),
            ("MV2_COMM_WORLD_LOCAL_RANK", "1"),
            ("MV2_COMM_WORLD_SIZE", "8"),
        ]);
        check(&[
            ("MVP_COMM_WORLD_RANK", "5"),
            ("MVP_COMM_WORLD_LOCAL_RANK", "1"),
            ("MVP_COMM_WORLD_SIZE", "8"),
        ]);
        check(&[("PALS_RANKID", "5"), ("PALS_LOCAL_RANKID", "1"), ("PMI_SIZE", "8")]);
        check(&[("PMI_RANK", "5"), ("PMI_LOCAL_RANK", "1"), ("PMI_SIZE", "8")]);
        check(&[("JSM_NAMESPACE_RANK", "5"), ("JSM_NAMESPACE_LOCAL_RANK", "1"), ("JSM_NAMESPACE_SIZE", "8")]);
        check(&[("FLUX_TASK_RANK", "5"), ("FLUX_TASK_LOCAL_ID", "1"), ("FLUX_JOB_SIZE", "8")]);
    }

    #[test]
    fn local_rank_comes_from_the_first_launcher_that_gives_one() {
        let check = |variables: &[(&str, &str)], want: Option<u32>| {
            assert_eq!(launch(variables).local_rank, want, "{variables:?}");
        };
        check(&[("LOCAL_RANK", "x"), ("SLURM_LOCALID", "2"), ("OMPI_COMM_WORLD_LOCAL_RANK", "3")], Some(2));
        check(&[("LOCAL_RANK", "-1"), ("OMPI_COMM_WORLD_LOCAL_RANK", "3")], Some(3));
        check(&[("LOCAL_RANK", ""), ("MPI_LOCALRANKID", "4294967296")], None);
    }

    #[test]
    fn another_launcher_in_a_batch_script_or_shell_of_slurm_is_believed() {
        let batch =
            [("SLURM_JOB_ID", "7"), ("SLURM_PROCID", "0"), ("SLURM_LOCALID", "0"), ("SLURM_NTASKS", "8")];
        let mpi = [
            ("OMPI_COMM_WORLD_RANK", "3"),
            ("OMPI_COMM_WORLD_LOCAL_RANK", "3"),
            ("OMPI_COMM_WORLD_SIZE", "4"),
        ];
        let of = |got: &Launch| (got.rank, got.local_rank, got.world_size);
        let inside = launch(&[&batch[..], &mpi].concat());
        assert_eq!((of(&inside), &*inside.job_token), ((Some(3), Some(3), Some(4)), "7"));
        assert_eq!(of(&launch(&batch)), (Some(0), Some(0), Some(8)), "a script that starts nothing");
        let step = launch(&[&batch[..], &mpi, &[("SLURM_STEP_ID", "0")]].concat());
        assert_eq!(of(&step), (Some(0), Some(0), Some(8)), "a task of `srun`");
        let shell = [("SLURM_STEP_ID", "0"), ("SLURM_STEP_NUM_TASKS", "1")];
        let shell = launch(&[&batch[..], &mpi, &shell].concat());
        assert_eq!(of(&shell), of(&inside), "a shell by `srun --pty`");
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
        check(&[("PALS_APID", "aa-1"), ("PBS_JOBID", "12.host")], "aa-1", "pals-aa-1");
        check(&[("PBS_JOBID", "12.host")], "12.host", "pbs-12.host");
        check(&[("LSB_JOBID", "5")], "5", "lsf-5");
        check(&[("FLUX_JOB_ID", "f2"), ("PALS_APID", "9")], "f2", "flux-f2");
    }

    #[test]
    fn one_process_is_no_world() {
        assert!(!launch(&[("WORLD_SIZE", "1"), ("RANK", "0")]).is_distributed());
        assert!(launch(&[("SLURM_NTASKS", "8")]).is_distributed());
    }
}
