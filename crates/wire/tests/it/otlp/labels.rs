//! Who sent it, as labels.

use opentelemetry_proto::tonic as proto;
use opentelemetry_proto::tonic::common::v1::{AnyValue, ArrayValue, any_value};
use opentelemetry_proto::tonic::metrics::v1::NumberDataPoint;
use prost::Message;
use wire::otlp::{LabelFault, Promotion};

use super::{at, gauge, map, number, pair, read_each, request, resource, text};

/// The labels of a point with these attributes, or the reason why it has none.
fn labels_of(attributes: Vec<opentelemetry_proto::tonic::common::v1::KeyValue>) -> Result<String, String> {
    let point = NumberDataPoint { attributes, ..number(0, at(1), 1.0) };
    let mut got = map(&request(vec![gauge("loss", vec![point])]), |p| {
        let of_resource = p.resource().unwrap().labels(&Promotion::default(), None).unwrap();
        of_resource
            .series(&p.metric.canonical, &p.attributes().unwrap(), 0)
            .map(|labels| labels.to_string())
            .map_err(|fault| match fault {
                LabelFault::Refused(refusal) => refusal.reason.to_owned(),
                LabelFault::Body(error) => error.to_string(),
            })
    });
    got.pop().unwrap()
}

const PROMOTED: &str = r#"dl_rank="7",instance="run-a-rank7",job="megatron-lm",nemo_run_id="run-a""#;
const SERVICE: &str = r#"service_instance_id="run-a-rank7",service_name="megatron-lm""#;

#[test]
fn series_carry_job_instance_and_what_is_promoted() {
    assert_eq!(labels_of(vec![]), Ok(format!("loss{{{PROMOTED},{SERVICE}}}")));
}

#[test]
fn attributes_of_any_type_become_labels() {
    use any_value::Value::{ArrayValue as List, BoolValue, DoubleValue, IntValue};
    let one = AnyValue { value: Some(IntValue(1)) };
    let p = AnyValue { value: Some(text("p")) };
    let got = labels_of(vec![
        pair("a_b", text("y")),
        pair("a.b", text("x")),
        pair("i", IntValue(3)),
        pair("t", BoolValue(true)),
        pair("d", DoubleValue(0.5)),
        pair("7up", text("z")),
        pair("__name__", text("evil")),
        pair("arr", List(ArrayValue { values: vec![one, p] })),
        pair("empty", text("")),
        pair("run_id", text("spoof")),
        pair("le", text("1")),
    ]);
    let want = format!(
        r#"loss{{a_b="x;y",arr="[1,\"p\"]",d="0.5",{},exported_le="1",exported_run_id="spoof",i="3",{},key_7up="z",{},{SERVICE},t="true"}}"#,
        r#"dl_rank="7""#, r#"instance="run-a-rank7",job="megatron-lm""#, r#"nemo_run_id="run-a""#,
    );
    assert_eq!(got, Ok(want));
}

#[test]
fn a_points_own_attribute_goes_before_its_resources() {
    let got = labels_of(vec![pair("dl.rank", text("3"))]).unwrap();
    assert!(got.contains(r#"dl_rank="3""#) && !got.contains(r#"dl_rank="7""#), "{got}");
}

#[test]
fn a_rank_of_either_name_is_found_by_one_label() {
    let ranks = |ranks: &[(&str, &str)]| {
        let mut body = request(vec![]);
        body.resource_metrics[0].resource = Some(proto::resource::v1::Resource {
            attributes: ranks.iter().map(|(key, value)| pair(key, text(value))).collect(),
            ..proto::resource::v1::Resource::default()
        });
        let (body, mut found) = (body.encode_to_vec(), Vec::new());
        wire::otlp::each_resource(&body, &mut |resource| {
            let labels = resource.labels(&Promotion::default(), None).unwrap();
            found.extend(labels.iter().map(|(name, value)| format!("{name}={value}")));
        })
        .unwrap();
        found.join(" ")
    };
    assert_eq!(ranks(&[("dl.rank", "7")]), "dl_rank=7");
    assert_eq!(ranks(&[("nv.dl.rank", "7")]), "nv_dl_rank=7 dl_rank=7");
    assert_eq!(ranks(&[("nv.dl.rank", "7"), ("dl.rank", "8")]), "dl_rank=8 nv_dl_rank=7");
}

#[test]
fn labels_that_never_repeat_refuse_their_point() {
    for key in ["iteration", "megatron.iteration", "request_id", "trace_id", "prompt"] {
        assert_eq!(labels_of(vec![pair(key, text("1"))]), Err("label_refused".into()), "{key}");
    }
    assert_eq!(labels_of(vec![pair("note", text(&"x".repeat(1 << 20)))]), Err("label_too_long".into()));
    let many = (0..10_000).map(|n| pair(&format!("k{n}"), text("v"))).collect();
    assert_eq!(labels_of(many), Err("label_count".into()));
    let few = (0..24).map(|n| pair(&format!("k{n}"), text("v"))).collect();
    assert_eq!(labels_of(few), Err("label_count".into()));
}

#[test]
fn a_run_is_found_in_its_resource() {
    let mut sent = request(vec![gauge("loss", vec![number(0, at(1), 1.0)])]);
    let attributes = &mut sent.resource_metrics[0].resource.as_mut().unwrap().attributes;
    attributes.push(pair("slurm.cluster.name", text("west")));
    attributes.push(pair("nv.dl.world_size", text("8")));
    attributes.push(pair("nv.dl.run.uuid", text("u-1")));
    attributes.push(pair("service.namespace", text("team")));
    read_each(&sent.encode_to_vec(), |point| {
        let resource = point.resource().unwrap();
        let run = resource.run().unwrap();
        assert_eq!(run.to_string(), "/west/megatron-lm/run-a");
        assert_eq!((resource.dl_number("rank"), resource.dl_number("world_size")), (Some(7), Some(8)));
        assert_eq!(resource.incarnation().as_deref(), Some("u-1"));
        assert_eq!(resource.run_id(), None);
        assert_eq!(resource.job().as_deref(), Some("team/megatron-lm"));
        let labels = resource.labels(&Promotion::default(), Some(&run)).unwrap();
        let series = labels.series("loss", &point.attributes().unwrap(), 0).unwrap();
        assert_eq!(series.get("run"), Some("run-a"));
        assert_eq!(series.get("run_id"), Some(&*run.id().to_string()));
        let (info, left_out) = resource.target_info(&labels).unwrap().unwrap();
        let want = r#"process_pid="25405",project="megatron-lm",run="run-a""#;
        assert!(info.to_string().starts_with("target_info{dl_rank=\"7\",instance="), "{info}");
        assert!(info.to_string().contains(want), "{info}");
        assert_eq!((info.get("slurm_cluster_name"), left_out), (Some("west"), 0));
    });
}

#[test]
fn promotion_is_the_users_choice_but_a_process_id_is_never_a_label() {
    let sent = request(vec![gauge("loss", vec![number(0, at(1), 1.0)])]);
    assert_eq!(resource().attributes.len(), 5);
    read_each(&sent.encode_to_vec(), |point| {
        let all = Promotion { all: true, ignored: vec!["dl.rank".into()], ..Promotion::default() };
        let labels = point.resource().unwrap().labels(&all, None).unwrap();
        let names: Vec<&str> = labels.iter().map(|(name, _)| name).collect();
        assert!(!names.contains(&"process_pid") && !names.contains(&"dl_rank"), "{names:?}");
        assert!(names.contains(&"nemo_run_id"), "{names:?}");
    });
}

#[test]
fn a_large_resource_fits_one_series() {
    let mut sent = request(vec![gauge("loss", vec![number(0, at(1), 1.0)])]);
    let attributes = &mut sent.resource_metrics[0].resource.as_mut().unwrap().attributes;
    attributes.extend((0..60).map(|n| pair(&format!("x{n}"), text("v"))));
    read_each(&sent.encode_to_vec(), |point| {
        let labels = point.resource().unwrap().labels(&Promotion::default(), None).unwrap();
        let (info, left_out) = point.resource().unwrap().target_info(&labels).unwrap().unwrap();
        assert_eq!(info.len(), model::LABELS_PER_SERIES_MAX);
        assert_eq!(left_out, 36);
    });
}
