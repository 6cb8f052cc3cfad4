//! What is said of the process: attributes of the resource.

use model::AttributeValue;

use super::reader::{Reader, pairs};
use super::settings::SettingsError;

/// What the resource is made of beside the environment.
pub(crate) struct Facts<'a> {
    pub(crate) service_name: &'a str,
    pub(crate) run_id: &'a str,
    pub(crate) user_id: &'a str,
    pub(crate) incarnation: Option<String>,
    pub(crate) truegauge_run: Option<String>,
    pub(crate) rank: u32,
    pub(crate) world_size: u32,
    pub(crate) local_rank: Option<u32>,
    /// What the caller says.
    pub(crate) given: &'a [(String, AttributeValue)],
}

/// Attributes of Slurm's and the variables they are from.
const SLURM: [(&str, &str); 7] = [
    ("slurm.job.id", "SLURM_JOB_ID"),
    ("slurm.job.name", "SLURM_JOB_NAME"),
    ("slurm.nodelist", "SLURM_JOB_NODELIST"),
    ("slurm.nnodes", "SLURM_NNODES"),
    ("slurm.ntasks", "SLURM_NTASKS"),
    ("slurm.partition", "SLURM_JOB_PARTITION"),
    ("slurm.cluster.name", "SLURM_CLUSTER_NAME"),
];
/// Attributes of Kubernetes' and the variables that pods are usually given for them.
const KUBERNETES: [(&str, &str); 6] = [
    ("k8s.namespace.name", "K8S_NAMESPACE"),
    ("k8s.pod.name", "K8S_POD_NAME"),
    ("k8s.pod.uid", "K8S_POD_UID"),
    ("k8s.node.name", "K8S_NODE_NAME"),
    ("k8s.container.name", "K8S_CONTAINER_NAME"),
    ("k8s.job.name", "K8S_JOB_NAME"),
];
const KUBERNETES_SECRETS: &str = "/var/run/secrets/kubernetes.io";
/// Where the GPU driver lists its cards.
const GPUS: &str = "/proc/driver/nvidia/gpus";

/// Attributes, the later of two with one key counting.
#[derive(Default)]
struct Set(Vec<(String, AttributeValue)>);

impl Set {
    fn put(&mut self, key: &str, value: AttributeValue) {
        match self.0.iter_mut().find(|(k, _)| k == key) {
            Some((_, old)) => *old = value,
            None => self.0.push((key.to_owned(), value)),
        }
    }

    fn text(&mut self, key: &str, value: impl Into<String>) {
        self.put(key, AttributeValue::Text(value.into()));
    }

    fn int(&mut self, key: &str, value: i64) {
        self.put(key, AttributeValue::Int(value));
    }
}

/// Every attribute, each once: those of `OTEL_RESOURCE_ATTRIBUTES`, then what is found here, then what
/// the caller says, then what identifies the process.
pub(crate) fn attributes(
    facts: &Facts<'_>,
    reader: &mut Reader<'_>,
) -> Result<Vec<(String, AttributeValue)>, SettingsError> {
    let mut set = Set::default();
    let (from_environment, odd) = pairs(&reader.text("OTEL_RESOURCE_ATTRIBUTES").unwrap_or_default());
    if odd > 0 {
        reader.fault(format!(
            "OTEL_RESOURCE_ATTRIBUTES has {odd} parts that are not `key=value`: they are left out"
        ))?;
    }
    for (key, value) in from_environment {
        set.text(&key, value);
    }
    set.text("telemetry.sdk.name", "truegauge");
    set.text("telemetry.sdk.language", "rust");
    set.text("telemetry.sdk.version", env!("CARGO_PKG_VERSION"));
    detect(&mut set, reader);
    for (key, value) in facts.given {
        if !key.is_empty() && *value != AttributeValue::Null {
            set.put(key, value.clone());
        }
    }
    identify(&mut set, facts);
    Ok(set.0)
}

fn identify(set: &mut Set, facts: &Facts<'_>) {
    set.text("service.name", facts.service_name);
    set.text("nemo.run.id", facts.run_id);
    if !facts.user_id.is_empty() {
        set.text("nemo.user.id", facts.user_id);
    }
    if let Some(incarnation) = &facts.incarnation {
        set.text("nv.dl.run.uuid", incarnation.clone());
    }
    if let Some(run) = &facts.truegauge_run {
        set.text("truegauge.run_id", run.clone());
    }
    set.int("dl.rank", i64::from(facts.rank));
    set.int("dl.world_size", i64::from(facts.world_size));
    if let Some(local_rank) = facts.local_rank {
        set.int("dl.local_rank", i64::from(local_rank));
    }
    let is_given = facts.given.iter().any(|(key, _)| key == "service.instance.id");
    if !is_given {
        set.text("service.instance.id", format!("{}-rank{}", facts.run_id, facts.rank));
    }
}

/// What the machine, the job and the pod say.
fn detect(set: &mut Set, reader: &Reader<'_>) {
    let host = collect::hostname();
    if !host.is_empty() {
        set.text("host.name", host);
    }
    set.int("process.pid", i64::from(std::process::id()));
    if let Some(gpus) = gpu_count(reader) {
        set.int("host.gpu.count", gpus);
    }
    if let Some(stage) = reader.text("DEPLOYMENT_ENV").or_else(|| reader.text("ENVIRONMENT")) {
        set.text("deployment.environment", stage);
    }
    for (key, variable) in [("wandb.entity", "WANDB_ENTITY"), ("wandb.project", "WANDB_PROJECT")] {
        if let Some(text) = reader.text(variable) {
            set.text(key, text);
        }
    }
    if reader.text("SLURM_JOB_ID").is_some() {
        put_all(set, reader, &SLURM);
    }
    let is_pod =
        reader.text("KUBERNETES_SERVICE_HOST").is_some() || std::path::Path::new(KUBERNETES_SECRETS).is_dir();
    if is_pod {
        if let Some(pod) = reader.text("HOSTNAME") {
            set.text("k8s.pod.name", pod);
        }
        put_all(set, reader, &KUBERNETES);
    }
}

fn put_all(set: &mut Set, reader: &Reader<'_>, table: &[(&str, &str)]) {
    for (key, variable) in table {
        if let Some(text) = reader.text(variable) {
            set.text(key, text);
        }
    }
}

/// The GPUs that this process may use: those of the variable, where it is set, else all of the driver's.
fn gpu_count(reader: &Reader<'_>) -> Option<i64> {
    let count = match (reader.lookup)("CUDA_VISIBLE_DEVICES") {
        Some(listed) => {
            // What stands behind a number that is no device is not visible either.
            let listed = listed.split(',').map(str::trim).filter(|item| !item.is_empty());
            listed.take_while(|item| !item.starts_with('-')).count()
        }
        None => std::fs::read_dir(GPUS).ok()?.count(),
    };
    i64::try_from(count).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resource(
        variables: &[(&str, &str)],
        given: &[(String, AttributeValue)],
    ) -> Vec<(String, AttributeValue)> {
        let lookup =
            |name: &str| variables.iter().find(|(n, _)| *n == name).map(|(_, value)| (*value).to_owned());
        let facts = Facts {
            service_name: "s",
            run_id: "r",
            user_id: "",
            incarnation: None,
            truegauge_run: Some("00".into()),
            rank: 7,
            world_size: 8,
            local_rank: None,
            given,
        };
        attributes(&facts, &mut Reader::new(&lookup, false)).unwrap()
    }

    fn get(of: &[(String, AttributeValue)], key: &str) -> Option<AttributeValue> {
        let mut found = of.iter().filter(|(k, _)| k == key).map(|(_, value)| value.clone());
        let first = found.next();
        assert_eq!(found.next(), None, "{key} comes twice");
        first
    }

    fn text(of: &str) -> Option<AttributeValue> {
        (!of.is_empty()).then(|| AttributeValue::Text(of.to_owned()))
    }

    #[test]
    fn process_is_identified() {
        let got = resource(&[("OTEL_RESOURCE_ATTRIBUTES", "service.name=x,dl.rank=3,team=a%20b")], &[]);
        assert_eq!(get(&got, "service.name"), text("s"));
        assert_eq!(get(&got, "dl.rank"), Some(AttributeValue::Int(7)));
        assert_eq!(get(&got, "dl.world_size"), Some(AttributeValue::Int(8)));
        assert_eq!(get(&got, "service.instance.id"), text("r-rank7"));
        assert_eq!(get(&got, "truegauge.run_id"), text("00"));
        assert_eq!(get(&got, "team"), text("a b"));
        assert_eq!((get(&got, "slurm.job.id"), get(&got, "dl.local_rank")), (None, None));
    }

    #[test]
    fn caller_goes_before_what_is_found() {
        let given = [
            ("host.name".to_owned(), AttributeValue::Text("mine".into())),
            ("service.instance.id".to_owned(), AttributeValue::Text("i".into())),
            ("nothing".to_owned(), AttributeValue::Null),
        ];
        let got = resource(&[], &given);
        assert_eq!((get(&got, "host.name"), get(&got, "service.instance.id")), (text("mine"), text("i")));
        assert_eq!(get(&got, "nothing"), None);
    }

    #[test]
    fn slurm_and_kubernetes_are_found() {
        let got = resource(
            &[
                ("SLURM_JOB_ID", "9"),
                ("SLURM_NNODES", "2"),
                ("KUBERNETES_SERVICE_HOST", "10.0.0.1"),
                ("HOSTNAME", "pod-1"),
                ("K8S_NAMESPACE", "ml"),
            ],
            &[],
        );
        assert_eq!((get(&got, "slurm.job.id"), get(&got, "slurm.nnodes")), (text("9"), text("2")));
        assert_eq!((get(&got, "k8s.pod.name"), get(&got, "k8s.namespace.name")), (text("pod-1"), text("ml")));
        assert_eq!(get(&resource(&[("SLURM_NNODES", "2")], &[]), "slurm.nnodes"), None);
    }

    #[test]
    fn gpus_are_those_of_the_variable_where_it_is_set() {
        let count = |listed| get(&resource(&[("CUDA_VISIBLE_DEVICES", listed)], &[]), "host.gpu.count");
        assert_eq!(count("0,3, GPU-5"), Some(AttributeValue::Int(3)));
        assert_eq!(count(""), Some(AttributeValue::Int(0)));
        assert_eq!(count("0,-1,2"), Some(AttributeValue::Int(1)));
    }
}
