//! The endpoint at which agents in job pods register.

use bk_e2e::helm::{CHART, KUBE_VERSION};
use insta::assert_yaml_snapshot;
use rstest::rstest;
use serde_json::{Value, json};

use crate::{
    behaviour::{names, pod, render},
    helm, named, of_kind, only,
};

/// Of the broker's Service, Secrets and Roles.
const NAME: &str = "buildkite-operator-broker";
/// Of what is the cluster's.
const IN_CLUSTER: &str = "ci-buildkite-operator-broker";

/// The broker's flags.
fn flags(objects: &[Value]) -> Vec<String> {
    let args = pod(objects)["containers"][0]["args"].clone();
    let args: Vec<String> = serde_json::from_value(args).expect("arguments are texts");
    args.into_iter().filter(|arg| arg.starts_with("--broker-")).collect()
}

/// The value of one of them.
fn flag(objects: &[Value], name: &str) -> String {
    let prefix = format!("--{name}=");
    let flags = flags(objects);
    let value = flags.iter().find_map(|flag| flag.strip_prefix(&prefix));
    value.unwrap_or_else(|| panic!("no --{name} in {flags:?}")).to_owned()
}

/// Which resources the operator may use in the cluster.
fn in_cluster(objects: &[Value]) -> Vec<Value> {
    let roles = of_kind(objects, "ClusterRole");
    let allowed = roles.iter().flat_map(|role| role["rules"].as_array().expect("a role has rules"));
    allowed.map(|rule| rule["resources"][0].clone()).collect()
}

#[test]
fn agents_register_at_the_operator() {
    let objects = render("");
    let own = |kind: &str, name: &str| named(&objects, kind, name);
    assert_yaml_snapshot!(
        "broker",
        json!({
            "flags": flags(&objects),
            "ports": pod(&objects)["containers"][0]["ports"],
            "service": own("Service", NAME)["spec"],
            "own": own("Role", NAME)["rules"],
            "jobs": own("Role", &format!("{NAME}-jobs"))["rules"],
            "cluster": own("ClusterRole", IN_CLUSTER)["rules"],
        })
    );
}

/// Every replica answers, also those that stand by: there is nothing but the pods' own labels to choose by.
#[test]
fn every_replica_is_behind_the_service() {
    let objects = render("{replicas: 3, podLabels: {team: ci}}");
    let service = only(&objects, "Service");
    let deployment = only(&objects, "Deployment");
    assert_eq!(service["spec"]["selector"], deployment["spec"]["selector"]["matchLabels"]);
    let port = &service["spec"]["ports"][0];
    let ports = &pod(&objects)["containers"][0]["ports"];
    let target = ports.as_array().unwrap().iter().find(|of_pod| of_pod["name"] == port["targetPort"]);
    let listen = flag(&objects, "broker-listen");
    assert_eq!(listen, format!("[::]:{}", target.unwrap()["containerPort"]));
}

/// The operator fills them. Helm and kubectl leave alone what they have never set.
#[test]
fn secrets_of_the_broker_are_empty_and_allowed_by_name() {
    let objects = render("{fullnameOverride: bk}");
    let secrets = of_kind(&objects, "Secret");
    let made: Vec<_> = secrets.iter().map(|secret| secret["metadata"]["name"].clone()).collect();
    let rules = named(&objects, "Role", "bk-broker")["rules"].clone();
    let allowed = rules.as_array().unwrap().iter().flat_map(|rule| rule["resourceNames"].as_array().unwrap());
    assert_eq!(made, allowed.cloned().collect::<Vec<_>>());
    assert_eq!(made[0], flag(&objects, "broker-name"));
    assert_eq!(made.len(), 5);
    for secret in secrets {
        let keys: Vec<_> = secret.as_object().unwrap().keys().map(String::as_str).collect();
        assert_eq!(keys, ["apiVersion", "kind", "metadata"]);
    }
}

#[rstest]
#[case::as_it_is("", "https://buildkite-operator-broker.ci.svc:8444/v3", 8444)]
#[case::port("broker: {port: 443}", "https://buildkite-operator-broker.ci.svc:443/v3", 443)]
#[case::plain("broker: {tls: false}", "http://buildkite-operator-broker.ci.svc:8444/v3", 8444)]
#[case::kept_from_an_older_chart(
    "broker: {port: null, tls: null}",
    "https://buildkite-operator-broker.ci.svc:8444/v3",
    8444
)]
#[case::name("fullnameOverride: bk", "https://bk-broker.ci.svc:8444/v3", 8444)]
#[case::elsewhere("config: {job_namespace: jobs}", "https://buildkite-operator-broker.ci.svc:8444/v3", 8444)]
fn pods_reach_it_by_name(#[case] values: &str, #[case] url: &str, #[case] port: u16) {
    let objects = render(values);
    assert_eq!(flag(&objects, "broker-url"), url);
    let service = only(&objects, "Service");
    assert_eq!(service["spec"]["ports"][0]["port"], port);
    assert_eq!(service["metadata"]["namespace"], Value::Null, "it is in the release's namespace");
    let host = service["metadata"]["name"].as_str().unwrap();
    assert!(url.contains(&format!("//{host}.ci.svc:")), "{host}");
}

/// Values that `--reuse-values` keeps from a chart without a broker do not name it.
#[rstest]
#[case::switched_off("broker: {enabled: false, watchNodes: true, tokenReviews: true}")]
#[case::not_named("broker: null")]
fn nothing_is_left_of_a_broker_that_is_off(#[case] values: &str) {
    let objects = render(&format!("{{{values}, networkPolicy: {{enabled: true, jobs: {{enabled: true}}}}}}"));
    let text = serde_json::to_string(&objects).unwrap();
    assert!(!text.contains("broker"), "{:#?}", names(&objects));
    for kind in ["Service", "Secret", "ClusterRole", "ClusterRoleBinding"] {
        assert!(of_kind(&objects, kind).is_empty(), "{kind}");
    }
}

#[rstest]
#[case::as_it_is("", &["nodes", "tokenreviews"])]
#[case::nodes("{broker: {tokenReviews: false}, config: {pod_config: {registrationProof: address}}}", &["nodes"])]
#[case::token_reviews("broker: {watchNodes: false}", &["tokenreviews"])]
#[case::neither("{broker: {watchNodes: false, tokenReviews: false}, config: {pod_config: {registrationProof: address}}}", &[])]
fn what_is_the_clusters_is_asked_for(#[case] values: &str, #[case] resources: &[&str]) {
    let objects = render(values);
    assert_eq!(in_cluster(&objects), resources);
    let bindings = of_kind(&objects, "ClusterRoleBinding");
    assert_eq!(bindings.is_empty(), resources.is_empty());
    for binding in bindings {
        assert_eq!(binding["roleRef"]["name"], IN_CLUSTER);
        let account = json!([{ "kind": "ServiceAccount", "name": "buildkite-operator", "namespace": "ci" }]);
        assert_eq!(binding["subjects"], account);
    }
}

/// Webhooks see nodes, too, and have a role of their own for it.
#[test]
fn a_broker_and_webhooks_are_apart() {
    let address = "config: {pod_config: {registrationProof: address}}";
    let objects = render(&format!(
        "{{webhook: {{enabled: true}}, broker: {{watchNodes: false, tokenReviews: false}}, {address}}}"
    ));
    assert_eq!(only(&objects, "ClusterRole")["metadata"]["name"], "ci-buildkite-operator");
    let objects = render("webhook: {enabled: true}");
    let mut all = names(&objects);
    all.sort();
    let twice: Vec<_> = all.windows(2).filter(|pair| pair[0] == pair[1]).collect();
    assert!(twice.is_empty(), "{twice:?}");
}

/// What the configuration asks for is there, or missed at once.
#[rstest]
#[case::token_reviews(
    &["broker.tokenReviews=false"],
    Some("broker.tokenReviews is needed, unless config.pod_config.registrationProof is address")
)]
#[case::which_are_not_needed(
    &["config.pod_config.registrationProof=address", "broker.tokenReviews=false"],
    None
)]
#[case::of_which_there_are_none(
    &["config.pod_config.agentCredentials=secret", "broker.tokenReviews=false"],
    None
)]
#[case::by_somebody_else(
    &["broker.tokenReviews=false", "rbac.create=false"],
    None
)]
#[case::a_broker(
    &["config.pod_config.agentCredentials=broker", "broker.enabled=false"],
    Some("config.pod_config.agentCredentials: broker needs broker.enabled")
)]
#[case::nodes(
    &["config.pod_config.nodeLeaving=interrupt", "broker.watchNodes=false"],
    Some("config.pod_config.nodeLeaving: interrupt needs broker.enabled and broker.watchNodes")
)]
#[case::nodes_and_a_broker(
    &["config.pod_config.nodeLeaving=interrupt", "broker.enabled=false"],
    Some("config.pod_config.nodeLeaving: interrupt needs broker.enabled and broker.watchNodes")
)]
#[case::nodes_that_may_be_seen(&["config.pod_config.nodeLeaving=interrupt"], None)]
#[case::which_there_is(&["config.pod_config.agentCredentials=broker"], None)]
fn a_configuration_that_needs_more_is_refused(#[case] values: &[&str], #[case] expected: Option<&str>) {
    // This is about the templates; what the schema knows of the configuration comes from its types.
    let mut args =
        vec!["template", "buildkite-operator", CHART, KUBE_VERSION, "--skip-schema-validation", "--set"];
    let values = values.join(",");
    args.push(&values);
    let output = helm().run(&args).unwrap();
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.success(), expected.is_none(), "{complaint}");
    assert!(complaint.contains(expected.unwrap_or_default()), "{complaint}");
}

#[rstest]
#[case::here("", "ci")]
#[case::elsewhere(", config: {job_namespace: jobs}", "jobs")]
fn job_pods_may_connect_to_it(#[case] values: &str, #[case] namespace: &str) {
    let objects = render(&format!("{{networkPolicy: {{enabled: true, jobs: {{enabled: true}}}}{values}}}"));
    let operator = named(&objects, "NetworkPolicy", "buildkite-operator");
    let jobs = named(&objects, "NetworkPolicy", "buildkite-operator-jobs");
    let rules = operator["spec"]["ingress"].as_array().unwrap();
    let rule = rules.iter().find(|rule| rule["ports"] == json!([{ "port": "broker" }])).unwrap();
    let of_jobs = jobs["spec"]["podSelector"].clone();
    let there = json!({ "matchLabels": { "kubernetes.io/metadata.name": namespace } });
    assert_eq!(rule["from"], json!([{ "namespaceSelector": there, "podSelector": of_jobs }]));
    assert_eq!(jobs["spec"]["policyTypes"], json!(["Ingress"]), "job pods may connect to anything");
}
