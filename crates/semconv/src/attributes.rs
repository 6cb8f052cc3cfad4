//! Attributes of resources and spans, under their older and newer names.
//!
//! Until 2026-08 clients wrote `dl.*`, then `nv.dl.*`; one field of a run answers to both. Values that
//! came through the environment are text, also where a number is meant.

/// Where an attribute stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// On the resource: one value for a process.
    Resource,
    /// On spans: a value for each.
    Span,
}

/// What the values of an attribute are meant to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ValueKind {
    /// A whole number.
    Int,
    /// A number.
    Float,
    /// Text.
    Text,
    /// True or false.
    Bool,
}

/// A field under all names that it goes by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attribute {
    /// What a run view calls it.
    pub field: &'static str,
    /// Its names, the newest first.
    pub keys: &'static [&'static str],
    /// Where it stands.
    pub place: Place,
    /// What its values are.
    pub kind: ValueKind,
    /// What it says.
    pub help: &'static str,
    /// What makes a client send it; empty where it always does.
    pub set_by: &'static str,
}

const fn row(
    field: &'static str,
    keys: &'static [&'static str],
    kind: ValueKind,
    help: &'static str,
    set_by: &'static str,
) -> Attribute {
    Attribute { field, keys, place: Place::Resource, kind, help, set_by }
}

const fn span(
    field: &'static str,
    keys: &'static [&'static str],
    kind: ValueKind,
    help: &'static str,
) -> Attribute {
    Attribute { field, keys, place: Place::Span, kind, help, set_by: "a span group that has it" }
}

use ValueKind::{Bool, Float, Int, Text};

const TRAINER: &str = "Megatron-LM";
const NEWER: &str = "Megatron-LM with nemo-lens after 0.1.0";

/// Every known field.
pub const ATTRIBUTES: [Attribute; 48] = [
    row("run_id", &["nemo.run.id"], Text, "Run, the same on all ranks where it was given to them", ""),
    row("user", &["nemo.user.id"], Text, "Owner of the run", "`MEGATRON_OTEL_USER_ID`"),
    row("rank", &["nv.dl.rank", "dl.rank"], Int, "Rank of the process in the world", ""),
    row("world_size", &["nv.dl.world_size", "dl.world_size"], Int, "Number of ranks", ""),
    row("local_rank", &["nv.dl.local_rank", "dl.local_rank"], Int, "Rank within the node", TRAINER),
    row(
        "tp_size",
        &["nv.dl.topology.size.tp", "dl.tensor_parallel.size"],
        Int,
        "Tensor-parallel ranks",
        TRAINER,
    ),
    row("pp_size", &["nv.dl.topology.size.pp", "dl.pipeline_parallel.size"], Int, "Pipeline stages", TRAINER),
    row(
        "dp_size",
        &["nv.dl.topology.size.dp", "dl.data_parallel.size"],
        Int,
        "Data-parallel replicas",
        TRAINER,
    ),
    row(
        "global_batch_size",
        &["nv.dl.training.config.global_batch_size", "dl.batch_size"],
        Int,
        "Samples in a step of all ranks",
        TRAINER,
    ),
    row(
        "micro_batch_size",
        &["nv.dl.training.config.micro_batch_size", "megatron.micro_batch_size"],
        Int,
        "Samples in a microbatch",
        TRAINER,
    ),
    row(
        "sequence_length",
        &["nv.dl.training.config.sequence_length", "dl.sequence_length"],
        Int,
        "Tokens in a sample",
        TRAINER,
    ),
    row("optimizer", &["nv.dl.training.config.optimizer"], Text, "Optimizer", NEWER),
    row("recompute", &["nv.dl.training.config.recompute_granularity"], Text, "What is computed again", NEWER),
    row(
        "target_iterations",
        &["nv.dl.training.target.train_iters", "megatron.train_iters"],
        Int,
        "Iterations that the run is to make",
        TRAINER,
    ),
    row("target_samples", &["nv.dl.training.target.train_samples"], Int, "Samples that it is to see", NEWER),
    row("target_tokens", &["nv.dl.training.target.train_tokens"], Int, "Tokens that it is to see", NEWER),
    row("job", &["nv.dl.job.uuid", "nemo.lens.job_uuid"], Text, "Job, the same over restarts", TRAINER),
    row("incarnation", &["nv.dl.run.uuid", "nemo.lens.run_uuid"], Text, "Another at each restart", TRAINER),
    row("role", &["nv.dl.role"], Text, "trainer, ckpt_worker, launcher or generator", NEWER),
    row("provider", &["nv.dl.provider.name"], Text, "Framework that trains", NEWER),
    row("torch_version", &["nv.dl.software.torch"], Text, "Version of PyTorch", NEWER),
    row("cuda_version", &["nv.dl.software.cuda"], Text, "Version of CUDA", NEWER),
    row("nccl_version", &["nv.dl.software.nccl"], Text, "Version of NCCL", NEWER),
    row("image", &["nv.dl.launch.container.image"], Text, "Container image", NEWER),
    row("gpu_count", &["host.gpu.count"], Int, "GPUs that the process sees", ""),
    row("gpu_model", &["nv.gpu.model"], Text, "Model of its GPU", NEWER),
    row("gpu_uuid", &["nv.gpu.uuid"], Text, "UUID of its GPU", NEWER),
    row("gpu_index", &["nv.gpu.index"], Int, "Index of its GPU", NEWER),
    row("gpu_driver", &["nv.gpu.driver_version"], Text, "Version of the GPU driver", NEWER),
    row("layers", &["megatron.num_layers"], Int, "Layers of the model", TRAINER),
    row("hidden_size", &["megatron.hidden_size"], Int, "Width of the model", TRAINER),
    row("attention_heads", &["megatron.num_attention_heads"], Int, "Attention heads of a layer", TRAINER),
    row("precision", &["megatron.precision"], Text, "Number format of the computation", TRAINER),
    row("checkpoint_format", &["megatron.ckpt_format"], Text, "Format of checkpoints", TRAINER),
    row("slurm_job", &["slurm.job.id"], Text, "Job in Slurm", "a job of Slurm's"),
    row("slurm_cluster", &["slurm.cluster.name"], Text, "Cluster in Slurm", "a job of Slurm's"),
    row("pod", &["k8s.pod.name"], Text, "Pod in Kubernetes", "a pod with `K8S_POD_NAME` or `HOSTNAME`"),
    row("namespace", &["k8s.namespace.name"], Text, "Namespace in Kubernetes", "a pod with `K8S_NAMESPACE`"),
    row(
        "environment",
        &["deployment.environment"],
        Text,
        "Stage of deployment",
        "`DEPLOYMENT_ENV` or `ENVIRONMENT`",
    ),
    span("iteration", &["nv.dl.iteration", "megatron.iteration", "dl.iteration"], Int, "Training iteration"),
    span(
        "microbatch",
        &["dl.microbatch_id", "megatron.microbatch_id"],
        Int,
        "Microbatch within an iteration",
    ),
    span("dp_rank", &["dl.data_parallel.rank"], Int, "Data-parallel rank"),
    span("tp_rank", &["dl.tensor_parallel.rank"], Int, "Tensor-parallel rank"),
    span("pp_rank", &["dl.pipeline_parallel.rank"], Int, "Pipeline stage"),
    span("span_loss", &["dl.loss", "megatron.loss"], Float, "Loss of the iteration"),
    span("span_grad_norm", &["dl.grad_norm", "megatron.grad_norm"], Float, "Gradient norm of the iteration"),
    span("skipped", &["megatron.skipped"], Bool, "Whether the optimizer step was skipped"),
    span("goodput_boundary", &["is_goodput_span"], Bool, "Whether goodput is reckoned from the span"),
];

/// The field that a key is a name of.
pub fn field(key: &str) -> Option<&'static Attribute> {
    ATTRIBUTES.iter().find(|attribute| attribute.keys.contains(&key))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn old_and_new_names_are_one_field() {
        let check = |key: &str, want: &str| assert_eq!(field(key).map(|a| a.field), Some(want), "{key}");
        check("dl.rank", "rank");
        check("nv.dl.rank", "rank");
        check("dl.batch_size", "global_batch_size");
        check("nemo.lens.run_uuid", "incarnation");
        check("megatron.iteration", "iteration");
        assert_eq!(field("process.pid"), None);
    }

    #[test]
    fn a_key_names_one_field() {
        let (mut keys, mut fields) = (BTreeSet::new(), BTreeSet::new());
        for attribute in &ATTRIBUTES {
            assert!(fields.insert(attribute.field), "{} comes twice", attribute.field);
            for key in attribute.keys {
                assert!(keys.insert(*key), "{key} comes twice");
            }
        }
    }
}
