//! Which run a process belongs to, where nobody needs to be asked.

use model::RunId;
use sha2::{Digest, Sha256};

use super::context::hex;
use super::reader::Reader;
use crate::launch::Launch;

/// Where a run's id is from.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum RunIdSource {
    /// The caller or a switch said it.
    Explicit,
    /// Slurm's job.
    Slurm,
    /// torchrun's run.
    TorchElastic,
    /// The job of another launcher.
    Launcher,
    /// The run that this process logs to.
    Run,
    /// Where the ranks meet, and when their launcher started.
    Rendezvous,
    /// Nothing told: a number of this process's own.
    #[default]
    Random,
}

/// The run's id and where it is from. All but the last kind are the same on all ranks.
pub(crate) fn run_id(
    explicit: Option<String>,
    run: Option<RunId>,
    launch: &Launch,
    reader: &Reader<'_>,
) -> (String, RunIdSource) {
    let found = explicit
        .filter(|id| !id.trim().is_empty())
        .map(|id| (id.trim().to_owned(), RunIdSource::Explicit))
        .or_else(|| Some((reader.text("SLURM_JOB_ID")?, RunIdSource::Slurm)))
        .or_else(|| {
            // torchrun writes `none` when it was given no id.
            let id = reader.text("TORCHELASTIC_RUN_ID").filter(|id| id != "none")?;
            Some((id, RunIdSource::TorchElastic))
        })
        .or_else(|| Some((run?.to_string(), RunIdSource::Run)))
        .or_else(|| {
            let token = Some(launch.job_token.clone()).filter(|token| !token.is_empty())?;
            Some((token, RunIdSource::Launcher))
        })
        .or_else(|| Some((digest(&[&meeting(reader)?], 6), RunIdSource::Rendezvous)));
    found.unwrap_or_else(|| (random(6), RunIdSource::Random))
}

/// What tells this start of the run from the one before: the same on all ranks of a start. None where
/// several ranks have nothing in common that a restart changes.
pub(crate) fn incarnation(run_id: &str, launch: &Launch, reader: &Reader<'_>) -> Option<String> {
    let start = launcher_start(reader);
    if launch.job_token.is_empty() && start.is_none() {
        return (!launch.is_distributed()).then(|| uuid(&random(16)));
    }
    let count = launch.restart_count.to_string();
    let parts = [run_id, &launch.job_token, &count, &start.unwrap_or_default()];
    Some(uuid(&digest(&parts, 16)))
}

/// Where the ranks meet, with the start of their launcher where they share one.
fn meeting(reader: &Reader<'_>) -> Option<String> {
    let address = reader.text("MASTER_ADDR")?;
    let port = reader.text("MASTER_PORT").unwrap_or_default();
    Some(format!("{address}:{port} {}", launcher_start(reader).unwrap_or_default()))
}

/// When the launcher of this process started, where all ranks are on one node and so share it: its
/// process, the tick of its start and the boot that ticks count from.
fn launcher_start(reader: &Reader<'_>) -> Option<String> {
    let number = |name: &str| reader.text(name)?.parse::<u32>().ok();
    let is_one_node = number("LOCAL_WORLD_SIZE")? == number("WORLD_SIZE")?;
    if !is_one_node {
        return None;
    }
    let parent = rustix::process::getppid()?.as_raw_nonzero();
    let stat = std::fs::read_to_string(format!("/proc/{parent}/stat")).ok()?;
    // The name in parentheses may hold anything; the start is the 22nd field, the 20th behind it.
    let start = stat.rsplit_once(')')?.1.split_whitespace().nth(19)?.to_owned();
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    Some(format!("{parent} {start} {}", boot.trim()))
}

/// The first bytes of a hash, in hex.
fn digest(parts: &[&str], bytes: usize) -> String {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update(part.as_bytes());
        hash.update([0]);
    }
    hex(hash.finalize().get(..bytes).unwrap_or_default())
}

/// Random bytes of the system's, in hex. Never those of a generator that a training seeds.
fn random(bytes: usize) -> String {
    let mut drawn = vec![0; bytes];
    if getrandom::fill(&mut drawn).is_err() {
        // Without random bytes the process and the time still tell processes apart.
        let now = crate::clock::now_ns().to_string();
        return digest(&[&std::process::id().to_string(), &now], bytes);
    }
    hex(&drawn)
}

/// 32 hex digits as a UUID is written.
fn uuid(digits: &str) -> String {
    let part = |from: usize, to: usize| digits.get(from..to).unwrap_or_default();
    format!("{}-{}-{}-{}-{}", part(0, 8), part(8, 12), part(12, 16), part(16, 20), part(20, 32))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(variables: &[(&str, &str)], explicit: Option<&str>, run: Option<RunId>) -> (String, RunIdSource) {
        let lookup =
            |name: &str| variables.iter().find(|(n, _)| *n == name).map(|(_, value)| (*value).to_owned());
        let launch = Launch::from_variables(&lookup);
        run_id(explicit.map(str::to_owned), run, &launch, &Reader::new(&lookup, false))
    }

    #[test]
    fn ids_come_from_what_ranks_share() {
        use RunIdSource::{Explicit, Launcher, Rendezvous, Run, Slurm, TorchElastic};
        let run = model::RunPath::default().id();
        let check = |variables: &[(&str, &str)], explicit, run, id: &str, source| {
            assert_eq!(of(variables, explicit, run), (id.to_owned(), source), "{variables:?}");
        };
        let slurm = ("SLURM_JOB_ID", "99");
        let torch = ("TORCHELASTIC_RUN_ID", "abc");
        check(&[slurm, torch], Some("r1"), Some(run), "r1", Explicit);
        check(&[slurm, torch], Some("  "), Some(run), "99", Slurm);
        check(&[torch], None, Some(run), "abc", TorchElastic);
        check(&[("TORCHELASTIC_RUN_ID", "none")], None, Some(run), &run.to_string(), Run);
        check(&[("PBS_JOBID", "12.host")], None, None, "12.host", Launcher);
        let meet = [("MASTER_ADDR", "10.0.0.1"), ("MASTER_PORT", "29500")];
        let (id, source) = of(&meet, None, None);
        assert_eq!((id.len(), source), (12, Rendezvous));
        assert_eq!(of(&meet, None, None).0, id, "another rank");
        assert_ne!(of(&[meet[0], ("MASTER_PORT", "29501")], None, None).0, id);
    }

    #[test]
    fn launcher_of_one_node_tells_runs_apart() {
        let meet = [
            ("MASTER_ADDR", "127.0.0.1"),
            ("MASTER_PORT", "29500"),
            ("WORLD_SIZE", "4"),
            ("LOCAL_WORLD_SIZE", "4"),
        ];
        let with = of(&meet, None, None).0;
        assert_eq!(of(&meet, None, None).0, with);
        if cfg!(tg_linux) {
            assert_ne!(of(&meet[..2], None, None).0, with, "the launcher's start is part of it");
        }
    }

    #[test]
    fn nothing_to_go_by_is_a_number_of_its_own() {
        let (one, source) = of(&[], None, None);
        assert_eq!((one.len(), source), (12, RunIdSource::Random));
        assert_ne!(of(&[], None, None).0, one);
    }

    #[test]
    fn restart_is_another_incarnation_of_one_run() {
        let check = |variables: &[(&str, &str)]| {
            let lookup =
                |name: &str| variables.iter().find(|(n, _)| *n == name).map(|(_, v)| (*v).to_owned());
            let launch = Launch::from_variables(&lookup);
            incarnation("r", &launch, &Reader::new(&lookup, false))
        };
        let job = ("SLURM_JOB_ID", "99");
        let (first, again) = (check(&[job]), check(&[job, ("SLURM_RESTART_COUNT", "1")]));
        assert_eq!(first.as_deref().map(str::len), Some(36));
        assert_eq!(check(&[job]), first, "another rank");
        assert_ne!(again, first);
        assert_eq!(check(&[("WORLD_SIZE", "8")]), None, "ranks that share nothing");
        assert_ne!(check(&[]), check(&[]), "a process of its own");
    }
}
