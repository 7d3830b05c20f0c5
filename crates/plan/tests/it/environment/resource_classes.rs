//! Resources, nodes and priority under one name.

use bk_api::config::ResourceClasses;
use bk_plan::pod::PodSettings;
use rstest::rstest;
use serde_json::{Value, json};

use super::{container, json_of, try_spec};
use crate::fixtures::pod_settings;

fn with_classes(default: Option<&str>) -> PodSettings {
    let classes: ResourceClasses = serde_saphyr::from_str(
        "
small: { resources: { requests: { cpu: 100m } } }
large:
  resources: { requests: { cpu: 8, memory: 32Gi }, limits: { memory: 32Gi } }
  podResources: { limits: { cpu: 10 } }
  nodeSelector: { pool: large }
  tolerations: [{ key: large, operator: Exists }]
  priorityClassName: urgent
  affinity:
    nodeAffinity:
      requiredDuringSchedulingIgnoredDuringExecution:
        nodeSelectorTerms: [{ matchExpressions: [{ key: a, operator: Exists }] }, { matchExpressions: [{ key: b, operator: Exists }] }]
    podAntiAffinity:
      preferredDuringSchedulingIgnoredDuringExecution:
      - { weight: 1, podAffinityTerm: { topologyKey: kubernetes.io/hostname, labelSelector: { matchLabels: { a: b } } } }
",
    )
    .expect("the fixture is a map of classes");
    let mut settings = pod_settings();
    settings.resource_classes = classes;
    settings.config.default_resource_class = default.map(str::to_owned);
    settings
}

const UUID: &str = "jobUUID: 0198f0a0-0000-7000-8000-000000000001";

#[test]
fn a_resource_class_is_resources_nodes_and_priority() {
    let job = "{ command: make, resourceClass: large }";
    let spec = try_spec(job, "{}", &with_classes(None)).unwrap();
    let part = json!({
        "container-0": json_of(&container(&spec, "container-0").resources),
        "pod": json_of(&spec.resources),
        "nodeSelector": json_of(&spec.node_selector),
        "tolerations": json_of(&spec.tolerations.iter().flatten().next()),
        "priorityClassName": spec.priority_class_name,
        "affinity": json_of(&spec.affinity),
    });
    insta::assert_yaml_snapshot!(part);
}

/// The field goes before the rule, and the rule before the default.
#[rstest]
#[case::nobody("{ command: make }", None, None)]
#[case::the_default("{ command: make }", Some("small"), Some("100m"))]
#[case::the_rule(&format!("{{ command: make, buildkite: {{ {UUID}, agentQueryRules: [a=b, resource_class=large] }} }}"), Some("small"), Some("8"))]
#[case::the_field(&format!("{{ command: make, resourceClass: small, buildkite: {{ {UUID}, agentQueryRules: [resource_class=large] }} }}"), None, Some("100m"))]
fn a_class_is_chosen_by(#[case] job: &str, #[case] default: Option<&str>, #[case] cpu: Option<&str>) {
    let spec = try_spec(job, "{}", &with_classes(default)).unwrap();
    let resources = json_of(&container(&spec, "container-0").resources);
    assert_eq!(resources["requests"]["cpu"].as_str(), cpu);
}

/// A class that was chosen goes before the container's own words, one by default behind them; the job's `resources` go before both.
#[rstest]
#[case::chosen("resourceClass: large", None, json!({ "requests": { "cpu": "8", "memory": "32Gi" }, "limits": { "memory": "32Gi" } }))]
#[case::by_default("", Some("large"), json!({ "requests": { "cpu": "3", "memory": "32Gi" }, "limits": { "memory": "32Gi" } }))]
#[case::chosen_and_own(
    "resourceClass: large, resources: { requests: { cpu: 5 } }",
    None,
    json!({ "requests": { "cpu": "5", "memory": "32Gi" }, "limits": { "memory": "32Gi" } })
)]
fn resources_of_a_class_and_of_a_container(
    #[case] fields: &str,
    #[case] default: Option<&str>,
    #[case] expected: Value,
) {
    let fields = if fields.is_empty() { String::new() } else { format!("{fields},") };
    let job = format!(
        "{{ command: make, {fields} kubernetes: {{ podSpec: {{ containers: [{{ resources: {{ requests: {{ cpu: 3 }} }} }}, {{}}] }} }} }}"
    );
    let spec = try_spec(&job, "{}", &with_classes(default)).unwrap();
    assert_eq!(json_of(&container(&spec, "container-0").resources), expected);
    let second = json_of(&container(&spec, "container-1").resources);
    assert_eq!(second["requests"]["cpu"], "8", "every container that runs a command has them");
}

#[rstest]
#[case::of_the_job(
    "{ command: make, resourceClass: huge }",
    None,
    "spec.resourceClass: there is no resource class `huge`; known are large, small"
)]
#[case::of_a_rule(
    &format!("{{ command: make, buildkite: {{ {UUID}, agentQueryRules: [a=b, resource_class=huge] }} }}"),
    None,
    "spec.buildkite.agentQueryRules[1]: there is no resource class `huge`; known are large, small"
)]
#[case::by_default(
    "{ command: make }",
    Some("huge"),
    "pod_config.defaultResourceClass: there is no resource class `huge`; known are large, small"
)]
fn a_class_that_nobody_knows_is_refused(
    #[case] job: &str,
    #[case] default: Option<&str>,
    #[case] expected: &str,
) {
    assert_eq!(try_spec(job, "{}", &with_classes(default)).unwrap_err().to_string(), expected);
}

#[test]
fn without_classes_there_is_none_to_choose() {
    let refused = try_spec("{ command: make, resourceClass: a }", "{}", &pod_settings()).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "spec.resourceClass: there is no resource class `a`: none are configured"
    );
}
