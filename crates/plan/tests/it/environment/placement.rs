//! Which nodes pods go to, and when they leave them.

use bk_api::config::Architecture;
use rstest::rstest;
use serde_json::{Value, json};

use super::{json_of, spec, try_spec};
use crate::fixtures::pod_settings;

/// Requirements hold together with whatever the author's terms say, and terms are alternatives.
#[rstest]
#[case::no_terms("{}", json!([[A_AND_B]]))]
#[case::one_term("{ nodeSelectorTerms: [{ matchExpressions: [{ key: x, operator: Exists }] }] }", json!([["x", A_AND_B]]))]
#[case::two_terms(
    "{ nodeSelectorTerms: [{ matchExpressions: [{ key: x, operator: Exists }] }, { matchExpressions: [{ key: z, operator: Exists }] }] }",
    json!([["x", A_AND_B], ["z", A_AND_B]])
)]
#[case::a_term_of_fields(
    "{ nodeSelectorTerms: [{ matchFields: [{ key: metadata.name, operator: In, values: [node-1] }] }] }",
    json!([[A_AND_B, "metadata.name"]])
)]
#[case::a_term_that_fits_nothing(
    "{ nodeSelectorTerms: [{}, { matchExpressions: [{ key: z, operator: Exists }] }] }",
    json!([[], ["z", A_AND_B]])
)]
fn requirements_beside_an_affinity(#[case] required: &str, #[case] expected: Value) {
    let affinity = if required == "{}" {
        String::new()
    } else {
        format!(
            "affinity: {{ nodeAffinity: {{ requiredDuringSchedulingIgnoredDuringExecution: {required} }} }}"
        )
    };
    let job = format!(
        "{{ command: make, nodeRequirements: [{{ key: a, operator: Exists }}, {{ key: b, operator: Exists }}], \
         kubernetes: {{ podSpec: {{ {affinity} }} }} }}"
    );
    let affinity = json_of(&spec(&job, "{}").affinity);
    let terms =
        affinity["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
            .as_array()
            .cloned()
            .unwrap_or_default();
    let keys =
        |list: &Value| list.as_array().into_iter().flatten().map(|r| r["key"].clone()).collect::<Vec<_>>();
    let shown: Vec<Value> = terms
        .iter()
        .map(|term| keys(&term["matchExpressions"]).into_iter().chain(keys(&term["matchFields"])).collect())
        .collect();
    let expected = expected.to_string().replace(&format!("\"{A_AND_B}\""), r#""a","b""#);
    assert_eq!(Value::Array(shown).to_string(), expected);
}

const A_AND_B: &str = "a and b";

#[test]
fn a_lost_node_is_left_as_soon_as_the_configuration_says() {
    let mut settings = pod_settings();
    settings.config.node_loss_seconds = 5;
    let spec = try_spec("{ command: make }", "{}", &settings).unwrap();
    let seconds: Vec<_> = spec.tolerations.iter().flatten().map(|own| own.toleration_seconds).collect();
    assert_eq!(seconds, [Some(5), Some(5)]);
}

/// Whoever tolerates everything stays, and is not told otherwise.
#[test]
fn who_tolerates_everything_stays_on_lost_nodes() {
    let spec = spec("{ command: make, tolerations: [{ operator: Exists }] }", "{}");
    assert_eq!(json_of(&spec.tolerations), json!([{ "operator": "Exists" }]));
}

/// Patches replace tolerations as a whole; a lost node is left all the same.
#[test]
fn a_patch_of_tolerations_keeps_nobody_on_a_lost_node() {
    let patch = "kubernetes: { podSpecPatch: { tolerations: [{ key: mine, operator: Exists }] } }";
    let spec = spec(&format!("{{ command: make, {patch} }}"), "{}");
    let keys: Vec<_> = spec.tolerations.iter().flatten().filter_map(|own| own.key.as_deref()).collect();
    assert_eq!(keys, ["mine", "node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"]);
}

/// Pods keep to the architectures that are configured, unless they know better.
#[rstest]
#[case::nothing_configured("{ command: make }", &[], None)]
#[case::one("{ command: make }", &[Architecture::Amd64], Some(json!(["amd64"])))]
#[case::both("{ command: make }", &[Architecture::Amd64, Architecture::Arm64], Some(json!(["amd64", "arm64"])))]
#[case::a_requirement(
    "{ command: make, nodeRequirements: [{ key: kubernetes.io/arch, values: [arm64] }] }",
    &[Architecture::Amd64, Architecture::Arm64],
    Some(json!(["arm64"]))
)]
#[case::a_selector(
    "{ command: make, kubernetes: { podSpec: { nodeSelector: { kubernetes.io/arch: arm64 } } } }",
    &[Architecture::Amd64, Architecture::Arm64],
    None
)]
fn architectures(#[case] job: &str, #[case] configured: &[Architecture], #[case] expected: Option<Value>) {
    let mut settings = pod_settings();
    settings.config.architectures = configured.to_vec();
    let affinity = json_of(&try_spec(job, "{}", &settings).unwrap().affinity);
    let terms =
        &affinity["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"];
    assert_eq!(terms[0]["matchExpressions"][0].get("values"), expected.as_ref());
}
