//! To whom a process belongs, as its control groups and its environment say.

/// What the control groups of a process say. Nothing of it is taken from a tree that users may shape.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Membership {
    /// The pod's UID, with dashes.
    pub(super) pod_uid: Option<String>,
    /// The container's id as its runtime has it.
    pub(super) container: Option<String>,
    /// The Slurm job.
    pub(super) job: Option<String>,
    /// Its step: a number, `batch`, `extern` or `interactive`.
    pub(super) step: Option<String>,
}

/// Longest number of a job.
const JOB_DIGITS_MAX: usize = 20;
/// Digits of a container's id that are enough to know it by, as runtimes print it.
const CONTAINER_DIGITS: usize = 12;

impl Membership {
    /// Reads a `/proc/<pid>/cgroup`, of version 1, 2 or both.
    pub(super) fn read(text: &[u8]) -> Self {
        let mut found = Self::default();
        for line in text.split(|byte| *byte == b'\n') {
            let Some(path) = line.splitn(3, |byte| *byte == b':').nth(2) else { continue };
            // A name that is no text is nobody's that we know of.
            let Ok(path) = std::str::from_utf8(path) else { continue };
            let of_path = Self::of_path(path);
            found.pod_uid = found.pod_uid.or(of_path.pod_uid);
            found.container = found.container.or(of_path.container);
            if found.job.is_none() {
                (found.job, found.step) = (of_path.job, of_path.step);
            }
        }
        found
    }

    fn of_path(path: &str) -> Self {
        let mut found = Self::default();
        let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty() && *part != "..").collect();
        // Below a user's own slice anybody may make folders of any name.
        if parts
            .iter()
            .any(|part| *part == "user.slice" || part.starts_with("user-") || part.starts_with("user@"))
        {
            return found;
        }
        let mut is_of_pods = false;
        let mut is_of_slurm = false;
        for part in parts {
            if found.job.is_some() {
                found.step = found.step.or_else(|| part.strip_prefix("step_").and_then(step));
            } else if let Some(job) = part.strip_prefix("job_").filter(|_| is_of_slurm) {
                found.job = number(job);
            }
            if is_of_pods && found.pod_uid.is_none() {
                found.pod_uid = pod_uid(part);
            } else {
                found.container = found.container.or_else(|| container(part));
            }
            is_of_pods |= part.starts_with("kubepods") || part.ends_with("-kubepods.slice");
            is_of_slurm |=
                part.ends_with("slurmstepd.scope") || part == "slurm" || part.starts_with("slurm_");
        }
        found
    }
}

/// A whole number, as it is written.
pub(super) fn number(text: &str) -> Option<String> {
    let is_number = (1..=JOB_DIGITS_MAX).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_digit());
    is_number.then(|| text.to_owned())
}

fn step(text: &str) -> Option<String> {
    match text {
        "batch" | "extern" | "interactive" => Some(text.to_owned()),
        _ => number(text),
    }
}

/// `pod<uid>` or `<parents>-pod<uid>.slice`, where systemd writes `_` for `-`.
fn pod_uid(part: &str) -> Option<String> {
    let name = part.strip_suffix(".slice").unwrap_or(part);
    let uid = name.strip_prefix("pod").or_else(|| name.rsplit_once("-pod").map(|(_, uid)| uid))?;
    let uid = uid.replace('_', "-").to_ascii_lowercase();
    let is_uid = (32..=36).contains(&uid.len()) && uid.bytes().all(|b| b.is_ascii_hexdigit() || b == b'-');
    is_uid.then_some(uid)
}

/// `<id>`, `<runtime>-<id>.scope`.
fn container(part: &str) -> Option<String> {
    let name = part.strip_suffix(".scope").unwrap_or(part);
    let id = name.rsplit(['-', ':']).next().unwrap_or(name);
    let is_id = id.len() == 64 && id.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_id.then(|| id[..CONTAINER_DIGITS].to_ascii_lowercase())
}

/// What the environment of a process says, as it was when it began: only worth what the process's user is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Environment {
    /// The Slurm job.
    pub(super) job: Option<String>,
    /// Its step.
    pub(super) step: Option<String>,
    /// The cards that Slurm gave to the job, by the numbers of their device files.
    pub(super) given: Vec<u32>,
    /// The run whose process started it.
    pub(super) run_id: Option<String>,
}

/// Most cards of a list that are read.
const GIVEN_MAX: usize = 256;

impl Environment {
    /// Reads a `/proc/<pid>/environ`.
    pub(super) fn read(bytes: &[u8]) -> Self {
        let mut found = Self::default();
        let pairs = bytes.split(|byte| *byte == 0).filter_map(|pair| std::str::from_utf8(pair).ok());
        for (name, value) in pairs.filter_map(|pair| pair.split_once('=')) {
            match name {
                "SLURM_JOB_ID" => found.job = number(value),
                "SLURM_STEP_ID" => found.step = step(value),
                "SLURM_JOB_GPUS" | "SLURM_STEP_GPUS" => found.given = numbers(value),
                "OTEL_RESOURCE_ATTRIBUTES" => found.run_id = run_of(value),
                _ => {}
            }
        }
        found
    }
}

/// `0,2,5-7`; nothing when a part of it is anything else.
fn numbers(list: &str) -> Vec<u32> {
    let mut found = Vec::new();
    for part in list.split(',').map(str::trim) {
        let (from, to) = part.split_once('-').unwrap_or((part, part));
        let (Ok(from), Ok(to)) = (from.parse::<u32>(), to.parse::<u32>()) else { return Vec::new() };
        found.extend((from..=to).take(GIVEN_MAX - found.len().min(GIVEN_MAX)));
    }
    found
}

fn run_of(attributes: &str) -> Option<String> {
    let mut pairs = attributes.split(',').filter_map(|pair| pair.split_once('='));
    let (_, id) = pairs.find(|(name, _)| name.trim() == "truegauge.run_id")?;
    model::RunId::parse(id.trim()).map(|id| id.to_string())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const UID: &str = "0d8e4f4c-7c1b-4d6e-9a55-3f1f7d6f2b10";
    const ID: &str = "c0ffee00c0ffee00c0ffee00c0ffee00c0ffee00c0ffee00c0ffee00c0ffee00";

    fn check(text: &str, pod: Option<&str>, container: Option<&str>, job: Option<(&str, Option<&str>)>) {
        let found = Membership::read(text.as_bytes());
        let wanted = Membership {
            pod_uid: pod.map(str::to_owned),
            container: container.map(str::to_owned),
            job: job.map(|(job, _)| job.to_owned()),
            step: job.and_then(|(_, step)| step.map(str::to_owned)),
        };
        assert_eq!(found, wanted, "{text}");
    }

    #[test]
    fn pods_are_known_under_every_runtime_and_driver() {
        let under = UID.replace('-', "_");
        let short = Some("c0ffee00c0ff");
        let paths = [
            format!(
                "0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{under}.slice/cri-containerd-{ID}.scope"
            ),
            format!("0::/kubepods.slice/kubepods-pod{under}.slice/crio-{ID}.scope/container"),
            format!("0::/../../kubepods-besteffort-pod{under}.slice/../kubepods/besteffort/pod{UID}/{ID}"),
            format!("11:memory:/kubepods/burstable/pod{UID}/{ID}\n0::/\n"),
            format!(
                "0::/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-pod{under}.slice/cri-containerd-{ID}.scope"
            ),
            format!("0::/system.slice/containerd.service/kubepods-burstable-x/kubepods/pod{UID}/{ID}"),
        ];
        for path in &paths {
            check(path, Some(UID), short, None);
        }
        let fixed = "d41d8cd98f00b204e9800998ecf8427e";
        check(&format!("0::/kubepods/burstable/pod{fixed}/{ID}"), Some(fixed), short, None);
    }

    #[test]
    fn jobs_of_slurm_are_known_in_both_versions() {
        check(
            "0::/system.slice/slurmstepd.scope/job_1392969/step_0/user/task_0\n",
            None,
            None,
            Some(("1392969", Some("0"))),
        );
        check(
            "0::/system.slice/node7_slurmstepd.scope/job_8/step_batch/user/task_special",
            None,
            None,
            Some(("8", Some("batch"))),
        );
        check(
            "10:devices:/slurm/uid_2101/job_28/step_interactive/task_0\n1:name=systemd:/system.slice/slurmd.service",
            None,
            None,
            Some(("28", Some("interactive"))),
        );
        // As Slurm 22.05 was seen to make them, among groups of others.
        let real = "9:name=systemd:/\n6:freezer:/slurm_vm/uid_0/job_3/step_0\n5:devices:/\n4:memory:/api/f00d\n0::/\n";
        check(real, None, None, Some(("3", Some("0"))));
        check("4:memory:/slurm_node7/uid_0/job_5", None, None, Some(("5", None)));
        check("0::/system.slice/slurmstepd.scope/system", None, None, None);
        check(&format!("0::/system.slice/docker-{ID}.scope"), None, Some("c0ffee00c0ff"), None);
        check(&format!("0::/machine.slice/libpod-{ID}.scope/container"), None, Some("c0ffee00c0ff"), None);
    }

    #[test]
    fn names_that_anybody_may_give_are_nobodys() {
        for path in [
            "0::/user.slice/user-1000.slice/user@1000.service/slurmstepd.scope/job_7/step_0",
            &format!("0::/user.slice/user-1000.slice/user@1000.service/kubepods/pod{UID}/{ID}"),
            "0::/system.slice/web.service/job_7/step_0",
            "0::/system.slice/slurmstepd.scope/job_7; rm -rf",
            "0::/system.slice/slurmstepd.scope/job_",
            "0::/system.slice/slurmstepd.scope/job_123456789012345678901",
            "0::/kubepods/podgpu/../../x",
            "0::/kubepods/pod\u{1b}[31m-hello-hello-hello-hello-hello-he",
            "nonsense",
            "",
        ] {
            check(path, None, None, None);
        }
        check("0::/system.slice/slurmstepd.scope/job_7/step_{evil=\"}", None, None, Some(("7", None)));
    }

    #[test]
    fn an_environment_says_job_cards_and_run() {
        let text = b"PATH=/bin\0SLURM_JOB_ID=42\0SLURM_STEP_ID=1\0SLURM_JOB_GPUS=0,2-4\0\
            OTEL_RESOURCE_ATTRIBUTES=service.name=x,truegauge.run_id=0123456789abcdef\0HALF";
        let found = Environment::read(text);
        assert_eq!((found.job.as_deref(), found.step.as_deref()), (Some("42"), Some("1")));
        assert_eq!(found.given, [0, 2, 3, 4]);
        assert_eq!(found.run_id.as_deref(), Some("0123456789abcdef"));
        let odd = Environment::read(
            b"SLURM_JOB_ID=4 2\0SLURM_JOB_GPUS=0,x\0OTEL_RESOURCE_ATTRIBUTES=truegauge.run_id=zz\0\xff=1\0",
        );
        assert_eq!(odd, Environment::default());
        assert!(Environment::read(b"SLURM_JOB_GPUS=0-4294967295,0-9\0").given.len() <= GIVEN_MAX);
    }

    proptest! {
        #[test]
        fn any_bytes_can_be_read(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
            Membership::read(&bytes);
            Environment::read(&bytes);
        }
    }
}
