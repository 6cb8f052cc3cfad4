//! What an environment comes to: the cases that nemo-lens was asked, with ours beside it.

use client::training::{ExemplarFilter, Exporter, Given, RunIdSource, Settings, Temporality};
use model::AttributeValue;

fn resolve(given: &Given, variables: &[(&str, &str)]) -> Settings {
    let lookup =
        |name: &str| variables.iter().find(|(n, _)| *n == name).map(|(_, value)| (*value).to_owned());
    Settings::resolve(given, &lookup).unwrap()
}

/// Rank 7 of 8, as the reference was asked.
fn of(variables: &[(&str, &str)]) -> Settings {
    resolve(&Given { rank: Some(7), world_size: Some(8), ..Given::default() }, variables)
}

const ON: (&str, &str) = ("MEGATRON_OTEL_ENABLED", "1");

#[test]
fn environments_come_to_what_the_reference_makes_of_them() {
    // Export, and warnings; the run's id is given where it would be made up with a warning.
    let check = |variables: &[(&str, &str)], rank: u32, exports: bool, warnings: usize| {
        let variables = [variables, &[("NEMO_LENS_RUN_ID", "r")]].concat();
        let given = Given { rank: Some(rank), world_size: Some(8), ..Given::default() };
        let got = resolve(&given, &variables);
        assert_eq!(
            (got.exports, got.warnings.len()),
            (exports, warnings),
            "{variables:?} {:?}",
            got.warnings
        );
        let strict = Given { strict: true, ..given };
        let lookup = |name: &str| variables.iter().find(|(n, _)| *n == name).map(|(_, v)| (*v).to_owned());
        assert_eq!(Settings::resolve(&strict, &lookup).is_err(), warnings > 0, "strict, {variables:?}");
    };
    check(&[], 7, false, 0);
    check(&[ON], 7, true, 0);
    check(&[("NEMO_LENS_ENABLED", "yes")], 7, true, 0);
    check(&[("MEGATRON_OTEL_ENABLED", "0"), ("NEMO_LENS_ENABLED", "1")], 7, false, 0);
    check(&[("MEGATRON_OTEL_ENABLED", "  "), ("NEMO_LENS_ENABLED", "1")], 7, true, 0);
    check(&[("MEGATRON_OTEL_ENABLED", "TRUE")], 7, true, 0);
    // The reference raises from here on where a warning is counted.
    check(&[("MEGATRON_OTEL_ENABLED", "enabled")], 7, false, 1);
    check(&[ON], 0, false, 0);
    check(&[ON, ("MEGATRON_OTEL_EXPORT_RANK", "-2")], 7, true, 0);
    check(&[ON, ("MEGATRON_OTEL_EXPORT_RANK", "0")], 0, true, 0);
    check(&[ON, ("MEGATRON_OTEL_EXPORT_RANK", "x")], 7, true, 1);
    // The reference says nothing, and nobody exports.
    check(&[ON, ("MEGATRON_OTEL_EXPORT_RANK", "8")], 7, false, 1);
    // The reference knows the other name only.
    check(&[ON, ("MEGATRON_OTEL_RANK_STRATEGY", "all_ranks")], 0, true, 0);
    check(&[ON, ("MEGATRON_OTEL_EXPORT_STRATEGY", "all_ranks")], 0, true, 0);
    check(&[ON, ("MEGATRON_OTEL_EXPORT_STRATEGY", "nope")], 7, true, 1);
    check(&[("MEGATRON_OTEL_EXPORT_STRATEGY", "nope")], 7, false, 1);
    let first = ("MEGATRON_OTEL_EXPORT_STRATEGY", "first_rank_per_node");
    check(&[ON, first], 3, true, 0);
    check(&[ON, first, ("LOCAL_RANK", "3")], 3, false, 0);
    check(&[ON, first, ("LOCAL_RANK", "0")], 3, true, 0);
    check(&[ON, first, ("LOCAL_RANK", "x")], 3, true, 1);
    let sampled = ("MEGATRON_OTEL_EXPORT_STRATEGY", "sampled");
    check(&[ON, sampled, ("MEGATRON_OTEL_EXPORT_SAMPLE_RATE", "0.5")], 0, false, 0);
    check(&[ON, sampled, ("MEGATRON_OTEL_EXPORT_SAMPLE_RATE", "0.5")], 3, true, 0);
    check(&[("MEGATRON_OTEL_EXPORT_SAMPLE_RATE", "1.5")], 7, false, 1);
    check(&[ON, ("MEGATRON_OTEL_EXPORTER", "stdout")], 7, true, 1);
    check(&[ON, ("OTEL_SDK_DISABLED", "true")], 7, false, 0);
    check(&[ON, ("MEGATRON_OTEL_SPAN_GROUPS", "default,nope")], 7, true, 1);
    check(&[ON, ("MEGATRON_OTEL_SPAN_GROUPS", "nope")], 0, false, 0);
    let off = [("MEGATRON_OTEL_TRACES_ENABLED", "0"), ("MEGATRON_OTEL_METRICS_ENABLED", "no")];
    check(&[ON, off[0], off[1]], 7, false, 0);
}

#[test]
fn one_in_ten_of_64_ranks_are_these() {
    let variables = [
        ON,
        ("NEMO_LENS_RUN_ID", "r"),
        ("NEMO_LENS_EXPORT_STRATEGY", "sampled"),
        ("NEMO_LENS_EXPORT_SAMPLE_RATE", "0.1"),
    ];
    let exports = |rank: &u32| {
        resolve(&Given { rank: Some(*rank), world_size: Some(64), ..Given::default() }, &variables).exports
    };
    assert_eq!((0..64).filter(exports).collect::<Vec<_>>(), [3, 5, 6, 31, 55]);
}

#[test]
fn groups_are_those_of_exporting_ranks() {
    let groups = |variables: &[(&str, &str)]| of(variables).span_groups;
    assert_eq!(groups(&[ON]), ["checkpoint", "evaluate", "first_iteration", "inference", "job"]);
    assert_eq!(groups(&[ON, ("MEGATRON_OTEL_SPAN_GROUPS", "Step, JOB,nope")]), ["job", "step"]);
    assert!(groups(&[ON, ("MEGATRON_OTEL_SPAN_GROUPS", "per_step")]).contains(&"optimizer".to_owned()));
    assert_eq!(groups(&[]), [""; 0]);
    assert_eq!(groups(&[ON, ("MEGATRON_OTEL_TRACES_ENABLED", "0")]), [""; 0]);
    // Rank 7 has the bucket 5555.
    let rate = |rate| {
        [ON, ("MEGATRON_OTEL_SAMPLING_STRATEGY", "rank_aware"), ("NEMO_LENS_EXPORT_SAMPLE_RATE", rate)]
    };
    assert_eq!(groups(&rate("0.5")), [""; 0]);
    assert!(!groups(&rate("0.6")).is_empty());
}

#[test]
fn run_ids_are_shared_where_anything_is() {
    let check = |variables: &[(&str, &str)], id: &str, source| {
        let got = of(variables);
        assert_eq!((got.run_id.as_str(), got.run_id_source), (id, source), "{variables:?}");
        assert_eq!(got.instance_id, format!("{id}-rank7"));
        assert!(got.warnings.is_empty());
    };
    let slurm = ("SLURM_JOB_ID", "99");
    check(&[ON, ("NEMO_LENS_RUN_ID", "r1"), slurm], "r1", RunIdSource::Explicit);
    let both = [ON, ("NEMO_LENS_RUN_ID", "r1"), ("MEGATRON_OTEL_RUN_ID", "r0")];
    check(&both, "r0", RunIdSource::Explicit);
    check(&[ON, ("NEMO_LENS_RUN_ID", " "), slurm], "99", RunIdSource::Slurm);
    let made_up = of(&[ON]);
    assert_eq!((made_up.run_id_source, made_up.warnings.len()), (RunIdSource::Random, 1));
    assert!(of(&[]).warnings.is_empty(), "nobody is warned of what is off");
    let alone = resolve(&Given::default(), &[ON]);
    assert_eq!((alone.exports, alone.warnings.len()), (true, 0), "one process is its own run");
}

#[test]
fn the_caller_goes_before_the_environment() {
    let variables = [
        ("MEGATRON_OTEL_ENABLED", "0"),
        ("MEGATRON_OTEL_EXPORT_STRATEGY", "single_rank"),
        ("MEGATRON_OTEL_EXPORTER", "otlp"),
        ("MEGATRON_OTEL_RUN_ID", "env"),
        ("OTEL_SERVICE_NAME", "env"),
        ("RANK", "5"),
        ("WORLD_SIZE", "6"),
        ("OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE", "Delta"),
        ("OTEL_METRICS_EXEMPLAR_FILTER", "always_off"),
    ];
    let plain = resolve(&Given::default(), &variables);
    assert_eq!((plain.rank, plain.world_size, plain.exports), (5, 6, false));
    assert_eq!((plain.temporality, plain.exemplars), (Temporality::Delta, ExemplarFilter::AlwaysOff));
    let given = Given {
        enabled: Some(true),
        rank: Some(0),
        strategy: Some("all_ranks".into()),
        exporter: Some("console".into()),
        run_id: Some("mine".into()),
        service_name: Some("llm".into()),
        attributes: vec![("dl.tensor_parallel.size".into(), AttributeValue::Int(4))],
        ..Given::default()
    };
    let got = resolve(&given, &variables);
    assert_eq!((got.rank, got.world_size, got.exports), (0, 6, true));
    assert_eq!((got.exporter, got.run_id.as_str()), (Exporter::Console, "mine"));
    let value = |key: &str| got.resource.iter().find(|(k, _)| k == key).map(|(_, v)| v.clone());
    assert_eq!(value("service.name"), Some(AttributeValue::Text("llm".into())));
    assert_eq!(value("dl.tensor_parallel.size"), Some(AttributeValue::Int(4)));
    assert_eq!(value("dl.rank"), Some(AttributeValue::Int(0)));
}

#[test]
fn messages_name_variable_value_and_choices() {
    let said = |variables: &[(&str, &str)]| {
        of(variables).warnings.first().map(|warning| warning.message.clone()).unwrap_or_default()
    };
    assert_eq!(
        said(&[("NEMO_LENS_ENABLED", "maybe")]),
        "NEMO_LENS_ENABLED is \"maybe\", which is not 1, true, yes, on, 0, false, no or off: the default is used"
    );
    assert_eq!(
        said(&[("MEGATRON_OTEL_RANK_STRATEGY", "nope")]),
        "MEGATRON_OTEL_RANK_STRATEGY is \"nope\", and there is no such strategy: known are all_ranks, \
         first_rank_per_node, sampled, single_rank; `single_rank` is used"
    );
    let secret = said(&[("OTEL_EXPORTER_OTLP_ENDPOINT", "ftp://user:secret@h")]);
    assert!(secret.contains("ftp://h") && !secret.contains("secret"), "{secret}");
}
