use k8s_openapi::api::core::v1::PodSpec;
use rstest::rstest;
use serde_json::json;

use super::*;

#[rstest]
#[case::misspelt(
    json!({"containers": [{"image": "a", "comand": ["x"]}]}),
    "podSpec.containers[0].comand: unknown key `comand`; did you mean `command`?"
)]
#[case::misspelt_without_content(
    json!({"container": []}),
    "podSpec.container: unknown key `container`; did you mean `containers`?"
)]
#[case::wrong_case(
    json!({"serviceaccountname": "x"}),
    "podSpec.serviceaccountname: unknown key `serviceaccountname`; did you mean `serviceAccountName`?"
)]
#[case::like_nothing(json!({"xyz": 1}), "podSpec.xyz: unknown key `xyz`")]
#[case::like_nothing_of_few(
    json!({"volumes": [{"name": "a", "emptyDir": {"quick": true}}]}),
    "podSpec.volumes[0].emptyDir.quick: unknown key `quick`; known: medium, sizeLimit"
)]
#[case::several(
    json!({"containers": [{"imag": "a"}], "volume": []}),
    "podSpec.containers[0].imag: unknown key `imag`; did you mean `image`?; also podSpec.volume: unknown key `volume`; \
     did you mean `volumes`?"
)]
#[case::of_a_wrong_type(
    json!({"containers": [{"image": 3}]}),
    "podSpec.containers[0].image: invalid type: integer `3`, expected a string"
)]
#[case::no_object(json!("x"), "podSpec: invalid type: string \"x\", expected PodSpec")]
fn faults_are_named_with_their_path(#[case] value: Value, #[case] expected: &str) {
    let error = read::<PodSpec>(&value, "podSpec").unwrap_err();
    assert_eq!(error.to_string(), expected);
}

#[test]
fn quantities_maps_and_empty_values_pass() {
    let value = json!({
        "volumes": [],
        "nodeSelector": {"anything/goes": "here"},
        "affinity": null,
        "containers": [{"image": "a", "resources": {"requests": {"cpu": 2, "memory": "1Gi"}, "limits": {}}}],
    });
    let spec: PodSpec = read(&value, "podSpec").unwrap();
    assert_eq!(spec.containers.len(), 1);
}

#[test]
fn schemas_are_small_enough_to_keep() {
    let size = Value::Object(SCHEMAS.clone()).to_string().len();
    assert!(size < 100_000, "{size} bytes");
    assert!(
        SCHEMAS.values().any(|schema| schema["properties"].get("initContainers").is_some()),
        "pods are among them"
    );
}
