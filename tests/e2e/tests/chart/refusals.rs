//! What is misspelt or makes no sense is refused with its path.

use rstest::rstest;

use crate::helm;

#[rstest]
#[case::a_value("agentTokn: x", "agentTokn")]
#[case::a_key("config: {job_spawner: {}}", "job_spawner")]
#[case::a_field("config: {pod_config: {agentimage: x}}", "agentimage")]
#[case::where_it_is("config: {pod_config: {agentimage: x}}", "/config/pod_config")]
#[case::deep_inside(
    "config: {resource_classes: {large: {resources: {request: {cpu: 4}}}}}",
    "/config/resource_classes/large/resources"
)]
#[case::a_word("config: {pod_config: {agentDelivery: by-post}}", "'shim', 'init'")]
#[case::a_type("config: {job_spawner_config: {maxInFlight: many}}", "/config/job_spawner_config/maxInFlight")]
#[case::of_kubernetes("tolerations: [{keyy: gpu}]", "/tolerations/0")]
#[case::of_an_enum("image: {pullPolicy: Sometimes}", "/image/pullPolicy")]
#[case::a_number("replicas: two", "/replicas")]
#[case::a_port("broker: {port: 70000}", "/broker/port")]
#[case::of_the_broker("broker: {watchNode: true}", "/broker")]
#[case::a_digest("image: {digest: latest}", "/image/digest")]
#[case::a_syncer_without_layout("repoSyncer: {enabled: true}", "config.repo_syncer_config.layout must say")]
#[case::a_syncer_without_claim(
    "{repoSyncer: {enabled: true}, config: {repo_syncer_config: {layout: shared}}}",
    "config.repo_syncer_config.claimName must name"
)]
#[case::a_syncer_without_directory(
    "{repoSyncer: {enabled: true}, config: {repo_syncer_config: {layout: nodeLocal}}}",
    "config.repo_syncer_config.hostPath must name"
)]
fn values_are_refused_by_name(#[case] values: &str, #[case] expected: &str) {
    let output = helm().template(values).unwrap();
    assert!(!output.status.success(), "{values} is taken");
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(complaint.contains(expected), "{complaint}");
}
