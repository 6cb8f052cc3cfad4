//! Spans of training, by name: which group of the trainer's sends them, and what share of a step they are.
//!
//! Two sets of names are about: those that Megatron-LM sends (2026-08) and those that its guide lists.

/// What the time of a span goes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Phase {
    /// Before the first iteration.
    Startup,
    /// A whole iteration or a stretch of them; what is in it is told by the spans within.
    Iteration,
    /// Forward and backward passes.
    ForwardBackward,
    /// The optimizer's step.
    Optimizer,
    /// Exchange between ranks.
    Communication,
    /// Getting the next batch. Megatron-LM sends no span of it; its own time within an iteration is
    /// what no other span takes.
    DataLoading,
    /// Writing or reading checkpoints.
    Checkpoint,
    /// Evaluation.
    Evaluation,
    /// Logging, garbage collection and other housekeeping.
    Housekeeping,
}

impl Phase {
    /// As series and charts name it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Startup => "startup",
            Self::Iteration => "iteration",
            Self::ForwardBackward => "forward_backward",
            Self::Optimizer => "optimizer",
            Self::Communication => "communication",
            Self::DataLoading => "data_loading",
            Self::Checkpoint => "checkpoint",
            Self::Evaluation => "evaluation",
            Self::Housekeeping => "housekeeping",
        }
    }

    /// Whether the model learns in it.
    pub fn is_productive(self) -> bool {
        matches!(self, Self::Iteration | Self::ForwardBackward | Self::Optimizer | Self::Communication)
    }
}

/// A group of spans that the trainer switches as one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Group {
    /// As `MEGATRON_OTEL_SPAN_GROUPS` names it.
    pub name: &'static str,
    /// Whether the preset `default` has it.
    pub in_default: bool,
    /// Whether the preset `per_step` has it.
    pub in_per_step: bool,
    /// Names of its spans, those of the guide among them.
    pub spans: &'static [(&'static str, Phase)],
}

/// Presets that stand for several groups; `all` and `profiling` stand for every one.
pub const PRESETS: [&str; 4] = ["default", "per_step", "profiling", "all"];

use Phase::{
    Checkpoint, Communication, DataLoading, Evaluation, ForwardBackward, Housekeeping, Iteration, Optimizer,
    Startup,
};

/// Every group.
pub const GROUPS: [Group; 16] = [
    group(
        "job",
        "dp",
        &[
            ("megatron.pretrain", Startup),
            ("megatron.train", Iteration),
            ("megatron.train.cuda_graph_capture", Startup),
            ("megatron.train.sniff_test", Startup),
            ("megatron.startup", Startup),
            ("megatron.startup.launch_script", Startup),
            ("megatron.startup.container_load", Startup),
            ("megatron.startup.imports", Startup),
            ("megatron.startup.arg_parse", Startup),
            ("megatron.startup.inprocess_setup", Startup),
            ("megatron.startup.in_job_setup", Startup),
            ("megatron.startup.initialize_megatron", Startup),
            ("megatron.startup.jit_fusion_options", Startup),
            ("megatron.startup.weight_hash_check", Startup),
            ("megatron.startup.sniff_test", Startup),
            ("pre_startup", Startup),
        ],
    ),
    group(
        "first_iteration",
        "dp",
        &[("megatron.train.first_iteration", Iteration), ("megatron.train.forward_pre_hook", Communication)],
    ),
    group(
        "checkpoint",
        "dp",
        &[
            ("megatron.save_checkpoint", Checkpoint),
            ("megatron.save_checkpoint.state_dict", Checkpoint),
            ("megatron.save_checkpoint.io_write", Checkpoint),
            ("megatron.checkpoint.exposed_save", Checkpoint),
            ("megatron.checkpoint.save", Checkpoint),
            ("megatron.checkpoint.save.state_dict", Checkpoint),
            ("megatron.checkpoint.save.io_write", Checkpoint),
            ("megatron.checkpoint.save.finalize", Checkpoint),
            ("megatron.checkpoint.reclaim_memory", Checkpoint),
            ("megatron.checkpoint.report_memory", Checkpoint),
            ("megatron.checkpoint.gc_collect", Checkpoint),
            ("megatron.checkpoint.ft_heartbeat", Checkpoint),
            ("megatron.checkpoint.exit_finalize", Checkpoint),
        ],
    ),
    group("evaluate", "dp", &[("megatron.evaluate", Evaluation), ("megatron.evaluate.step", Evaluation)]),
    group("inference", "dp", &[]),
    group("model_init", "p", &[("megatron.model_init", Startup), ("megatron.startup.model_init", Startup)]),
    group(
        "data_loading",
        "p",
        &[
            ("megatron.startup.dataloader", Startup),
            // No trainer sends it: it is for loops that record their own spans.
            ("megatron.train.iteration.data_loading", DataLoading),
        ],
    ),
    group(
        "load_checkpoint",
        "p",
        &[
            ("megatron.load_checkpoint", Checkpoint),
            ("megatron.load_checkpoint.io_read", Checkpoint),
            ("megatron.checkpoint.load", Checkpoint),
            ("megatron.checkpoint.load.io_read", Checkpoint),
        ],
    ),
    group(
        "step",
        "p",
        &[
            ("megatron.train_step", Iteration),
            ("megatron.train.iteration", Iteration),
            ("megatron.train.iteration_report", Housekeeping),
            ("megatron.train.params_norm", Housekeeping),
            ("megatron.train.log", Housekeeping),
            ("megatron.train.gc_collect", Housekeeping),
            ("megatron.checkpoint.timers_log", Housekeeping),
        ],
    ),
    group(
        "forward_backward",
        "p",
        &[
            ("megatron.forward_backward", ForwardBackward),
            ("megatron.train.iteration.forward_backward", ForwardBackward),
        ],
    ),
    group(
        "optimizer",
        "p",
        &[("megatron.optimizer_step", Optimizer), ("megatron.train.iteration.optimizer", Optimizer)],
    ),
    group(
        "communication",
        "p",
        &[
            ("megatron.p2p.send_forward", Communication),
            ("megatron.p2p.recv_forward", Communication),
            ("megatron.p2p.send_backward", Communication),
            ("megatron.p2p.recv_backward", Communication),
            ("megatron.grad_sync.start", Communication),
            ("megatron.grad_sync.finish", Communication),
            ("megatron.pp.recv_forward.linked", Communication),
        ],
    ),
    group(
        "microbatch",
        "",
        &[
            ("megatron.microbatch.forward", ForwardBackward),
            ("megatron.microbatch.backward", ForwardBackward),
        ],
    ),
    group(
        "layer",
        "",
        &[
            ("megatron.layer.forward", ForwardBackward),
            ("megatron.layer.self_attention", ForwardBackward),
            ("megatron.layer.mlp", ForwardBackward),
            ("megatron.layer.mamba", ForwardBackward),
        ],
    ),
    group(
        "activation_offload",
        "",
        &[("megatron.activation.offload", Communication), ("megatron.activation.reload", Communication)],
    ),
    // About 85 markers of a profiler, which are not listed here.
    group("trace_region", "", &[]),
];

/// `presets` has `d` for `default` and `p` for `per_step`.
const fn group(name: &'static str, presets: &'static str, spans: &'static [(&'static str, Phase)]) -> Group {
    let presets = presets.as_bytes();
    let in_default = !presets.is_empty() && presets[0] == b'd';
    Group { name, in_default, in_per_step: !presets.is_empty(), spans }
}

/// The group and phase of a span by its name.
pub fn span(name: &str) -> Option<(&'static Group, Phase)> {
    GROUPS.iter().find_map(|group| {
        let (_, phase) = group.spans.iter().find(|(known, _)| *known == name)?;
        Some((group, *phase))
    })
}

/// What has to be switched on for a trainer to send spans of a phase, as an export to copy; the least that does
/// it. None where no switch does.
pub fn switch_for(phase: Phase) -> Option<String> {
    if phase == DataLoading {
        return None;
    }
    let mut groups = GROUPS.iter().filter(|group| group.spans.iter().any(|(_, p)| *p == phase));
    let least = groups.clone().find(|group| group.in_default).or_else(|| groups.next())?;
    let value = if least.in_default {
        "default"
    } else if least.in_per_step {
        "per_step"
    } else {
        "all"
    };
    Some(format!("MEGATRON_OTEL_SPAN_GROUPS={value}"))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn spans_of_the_code_and_of_the_guide_are_known() {
        let check = |name: &str, group: &str, phase: Phase| {
            let found = span(name).map(|(of, phase)| (of.name, phase));
            assert_eq!(found, Some((group, phase)), "{name}");
        };
        check("megatron.train.iteration", "step", Iteration);
        check("megatron.train_step", "step", Iteration);
        check("megatron.train.iteration.forward_backward", "forward_backward", ForwardBackward);
        check("megatron.checkpoint.save", "checkpoint", Checkpoint);
        check("megatron.grad_sync.finish", "communication", Communication);
        assert_eq!(span("nccl"), None);
    }

    #[test]
    fn a_name_is_in_one_group_and_presets_nest() {
        let mut names = BTreeSet::new();
        for group in &GROUPS {
            assert!(!group.in_default || group.in_per_step, "{}", group.name);
            for (name, _) in group.spans {
                assert!(names.insert(*name), "{name} comes twice");
            }
        }
        let default: Vec<&str> = GROUPS.iter().filter(|g| g.in_default).map(|g| g.name).collect();
        assert_eq!(default, ["job", "first_iteration", "checkpoint", "evaluate", "inference"]);
    }

    #[test]
    fn an_empty_phase_names_the_least_switch() {
        let check = |phase, want: &str| {
            assert_eq!(switch_for(phase), Some(format!("MEGATRON_OTEL_SPAN_GROUPS={want}")), "{phase:?}");
        };
        check(Checkpoint, "default");
        check(ForwardBackward, "per_step");
        check(Optimizer, "per_step");
        assert_eq!(switch_for(DataLoading), None, "no trainer's span tells it");
    }
}
