use k8s_openapi::api::core::v1::Pod;
use rstest::rstest;
use serde_json::{Value, json};

use super::*;

fn node() -> Node {
    serde_json::from_value(json!({
        "metadata": {"name": "a", "labels": {"kubernetes.io/arch": "amd64", "cores": "16"}},
        "spec": {"taints": [
            {"key": "dedicated", "value": "ci", "effect": "NoSchedule"},
            {"key": "spot", "effect": "PreferNoSchedule"},
        ]},
        "status": {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "3"}},
    }))
    .unwrap()
}

fn pod(value: Value) -> PodSpec {
    serde_json::from_value(value).unwrap()
}

fn tolerant(mut more: Value) -> Value {
    more["tolerations"] = json!([{"key": "dedicated", "operator": "Equal", "value": "ci"}]);
    more["containers"] = more.get("containers").cloned().unwrap_or_else(|| json!([]));
    more
}

#[allow(clippy::needless_pass_by_value, reason = "cases are shorter so")]
fn affine(expression: Value) -> Value {
    let terms = json!([{"matchExpressions": [expression]}]);
    let required = json!({"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}});
    tolerant(json!({"affinity": {"nodeAffinity": required}}))
}

#[allow(clippy::needless_pass_by_value, reason = "cases are shorter so")]
fn asking(requests: Value) -> Value {
    tolerant(json!({"containers": [{"name": "c", "resources": {"requests": requests}}]}))
}

fn said(spec: Value, used: &Amounts) -> Vec<String> {
    obstacles(&pod(spec), &node(), used).iter().map(ToString::to_string).collect()
}

#[rstest]
#[case::tolerated(tolerant(json!({})), &[])]
#[case::not_tolerated(json!({"containers": []}), &["taint dedicated=ci:NoSchedule is not tolerated"])]
#[case::another_value(
    json!({"containers": [], "tolerations": [{"key": "dedicated", "value": "gpu"}]}),
    &["taint dedicated=ci:NoSchedule is not tolerated"]
)]
#[case::another_effect(
    json!({"containers": [], "tolerations": [{"key": "dedicated", "operator": "Exists", "effect": "NoExecute"}]}),
    &["taint dedicated=ci:NoSchedule is not tolerated"]
)]
#[case::everything(json!({"containers": [], "tolerations": [{"operator": "Exists"}]}), &[])]
#[case::by_name(tolerant(json!({"nodeName": "b"})), &["the pod is for node b alone"])]
#[case::selected(tolerant(json!({"nodeSelector": {"kubernetes.io/arch": "amd64"}})), &[])]
#[case::another_label(
    tolerant(json!({"nodeSelector": {"kubernetes.io/arch": "arm64", "gpu": "a100"}})),
    &["there is no label gpu=a100", "label kubernetes.io/arch is amd64, not arm64"]
)]
#[case::in_(affine(json!({"key": "kubernetes.io/arch", "operator": "In", "values": ["amd64"]})), &[])]
#[case::not_in(
    affine(json!({"key": "kubernetes.io/arch", "operator": "NotIn", "values": ["amd64"]})),
    &["affinity: kubernetes.io/arch has to be none of amd64, and is amd64"]
)]
#[case::not_in_without(affine(json!({"key": "gpu", "operator": "NotIn", "values": ["t4"]})), &[])]
#[case::exists(
    affine(json!({"key": "gpu", "operator": "Exists"})),
    &["affinity: gpu has to be there, and is not there"]
)]
#[case::does_not_exist(affine(json!({"key": "gpu", "operator": "DoesNotExist"})), &[])]
#[case::greater(affine(json!({"key": "cores", "operator": "Gt", "values": ["8"]})), &[])]
#[case::not_less(
    affine(json!({"key": "cores", "operator": "Lt", "values": ["8"]})),
    &["affinity: cores has to be less than 8, and is 16"]
)]
#[case::no_terms(
    tolerant(json!({"affinity": {"nodeAffinity":
        {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{}]}}}})),
    &["the pod's affinity fits no node"]
)]
#[case::any_term_will_do(
    tolerant(json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution":
        {"nodeSelectorTerms": [
            {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["b"]}]},
            {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["a"]}]},
        ]}}}})),
    &[]
)]
#[case::enough(asking(json!({"cpu": "4", "memory": "8Gi"})), &[])]
#[case::too_much(asking(json!({"cpu": "4001m"})), &["cpu: 4001m wanted, the node has 4"])]
#[case::nothing_of_it(asking(json!({"nvidia.com/gpu": "1"})), &["nvidia.com/gpu: 1 wanted, the node has 0"])]
#[case::nothing_wanted(asking(json!({"nvidia.com/gpu": "0"})), &[])]
fn an_empty_node(#[case] spec: Value, #[case] expected: &[&str]) {
    assert_eq!(said(spec, &Amounts::default()), expected);
}

#[test]
fn what_others_use_is_not_there() {
    let other = |phase: &str, cpu: &str| -> Pod {
        let spec =
            json!({"nodeName": "a", "containers": [{"name": "c", "resources": {"limits": {"cpu": cpu}}}]});
        serde_json::from_value(json!({"metadata": {}, "spec": spec, "status": {"phase": phase}})).unwrap()
    };
    let pods =
        [other("Running", "1500m"), other("Pending", "1"), other("Succeeded", "64"), other("Running", "1")];
    let used = Amounts::by_node(&pods).remove("a").unwrap();
    let found = obstacles(&pod(asking(json!({"cpu": "1"}))), &node(), &used);
    let said: Vec<_> = found.iter().map(ToString::to_string).collect();
    assert_eq!(said, ["cpu: 1 wanted, 500m of 4 left", "pods: 1 wanted, 0 of 3 left"]);
    assert!(found.iter().all(Obstacle::may_pass), "they pass when the others end");
}

#[test]
fn a_pod_asks_for_what_it_needs_at_its_most_demanding() {
    let container = |name: &str, cpu: &str| json!({"name": name, "resources": {"requests": {"cpu": cpu}}});
    let mut sidecar = container("db", "1");
    sidecar["restartPolicy"] = json!("Always");
    let of = |init: Value, own: &str, more: Value| {
        let mut spec = json!({"containers": [container("c", own)], "initContainers": init});
        for (key, value) in more.as_object().unwrap() {
            spec[key] = value.clone();
        }
        Amounts::shown("cpu", Amounts::of_pod(&pod(spec)).get("cpu"))
    };
    assert_eq!(of(json!([container("i", "3")]), "2", json!({})), "3");
    assert_eq!(of(json!([container("i", "3"), sidecar]), "2", json!({})), "3");
    assert_eq!(of(json!([sidecar, container("i", "3")]), "2", json!({})), "4");
    assert_eq!(of(json!([]), "2", json!({"overhead": {"cpu": "250m"}})), "2250m");
    assert_eq!(of(json!([]), "2", json!({"resources": {"requests": {"cpu": "5"}}})), "5");
}

#[test]
fn a_node_that_is_cordoned_or_unwell_may_be_so_for_now() {
    let mut node = node();
    let taint = |key: &str| json!({"key": key, "effect": "NoSchedule"});
    let spec = json!({"unschedulable": true, "taints": [taint(UNSCHEDULABLE), taint("node.kubernetes.io/not-ready")]});
    node.spec = Some(serde_json::from_value(spec).unwrap());
    let found = obstacles(&pod(json!({"containers": []})), &node, &Amounts::default());
    let said: Vec<_> = found.iter().map(ToString::to_string).collect();
    assert_eq!(
        said,
        ["the node is cordoned", "taint node.kubernetes.io/not-ready:NoSchedule is not tolerated"]
    );
    assert!(found.iter().all(Obstacle::may_pass));
}

#[test]
fn what_is_not_looked_at_is_named() {
    let spec = json!({
        "containers": [{"name": "c", "ports": [{"containerPort": 1, "hostPort": 1}]}],
        "affinity": {"podAntiAffinity": {}},
        "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "v"}}],
    });
    assert_eq!(unexamined(&pod(spec)), ["pod anti-affinity", "volumes", "host ports"]);
    assert!(unexamined(&pod(tolerant(json!({})))).is_empty());
}
