use k8s_openapi::api::core::v1::ConfigMap;
use rstest::rstest;
use serde_json::{Value, json};

use super::*;
use crate::{
    cli::{
        doctor::finding::{self, Grade},
        sample,
    },
    permissions::{self, Names},
};

fn installation(config: &[(&str, &str)], deployment: Value) -> Installation {
    let data = config.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    let config_map = ConfigMap { data: Some(data), ..ConfigMap::default() };
    Installation {
        namespace: "buildkite".to_owned(),
        config: bk_plan::configuration::read(&config_map.data.unwrap_or_default()),
        is_configured: !config.is_empty(),
        deployment: Ok(serde_json::from_value(deployment).unwrap()),
    }
}

fn deployed(ready: i32) -> Value {
    json!({
        "metadata": {"name": "buildkite-operator"},
        "spec": {"replicas": 2, "selector": {}, "template": {"spec": {"containers": [{"name": "operator", "image": "ci/operator:0.1.0"}]}}},
        "status": {"readyReplicas": ready},
    })
}

/// A definition as the API server has it once it is in use.
fn established() -> Vec<CustomResourceDefinition> {
    let mut all = bk_api::crds::all();
    for definition in &mut all {
        definition.status = serde_json::from_value(json!({
            "conditions": [{"type": "Established", "status": "True"}],
        }))
        .unwrap();
    }
    all
}

#[test]
fn definitions_that_are_missing_unfinished_or_of_another_version() {
    let of = |definitions: &[CustomResourceDefinition]| self::definitions(Ok(definitions));
    assert_eq!(of(&established()).grade, Grade::Ok);
    assert_eq!(of(&established()[1..]).message, "buildjobs.buildkite-operator.dev is missing");
    let mut unfinished = established();
    unfinished[1].status = None;
    assert_eq!(of(&unfinished).message, "buildenvironments.buildkite-operator.dev is not established");
    let mut other = established();
    let schema =
        other[0].spec.versions[0].schema.as_mut().and_then(|schema| schema.open_api_v3_schema.as_mut());
    schema.unwrap().description = Some("as it was".to_owned());
    assert!(
        of(&other).message.starts_with("buildjobs.buildkite-operator.dev is not the one of this program")
    );
    assert_eq!(self::definitions(Err(&"forbidden".to_owned())).grade, Grade::Warn);
}

#[rstest]
#[case("34", Grade::Ok)]
#[case("29+", Grade::Ok)]
#[case("28", Grade::Fail)]
#[case("", Grade::Warn)]
fn versions_of_kubernetes(#[case] minor: &str, #[case] grade: Grade) {
    assert_eq!(kubernetes(minor, "v1").grade, grade);
}

#[rstest]
#[case::held("2026-11-18T10:04:56Z", "pod-1", Grade::Ok)]
#[case::left("2026-11-18T10:04:40Z", "pod-1", Grade::Fail)]
#[case::free("2026-11-18T10:04:56Z", "", Grade::Fail)]
fn leases(#[case] renewed: &str, #[case] holder: &str, #[case] grade: Grade) {
    let spec = json!({"holderIdentity": holder, "leaseDurationSeconds": 6, "renewTime": renewed});
    let lease: Lease = serde_json::from_value(json!({"metadata": {}, "spec": spec})).unwrap();
    assert_eq!(leader(Some(&lease), "buildkite-operator", sample::now()).grade, grade);
}

#[test]
fn each_permission_is_asked_for_by_itself() {
    let names = Names {
        agent_token: "agent".to_owned(),
        api_token: "api".to_owned(),
        deployment: "operator".to_owned(),
    };
    let asked = attributes(&permissions::in_job_namespace(&names), "ci");
    let of = |resource: &str| {
        asked.iter().filter(|one| one.resource.as_deref() == Some(resource)).collect::<Vec<_>>()
    };
    assert_eq!(of("secrets").len(), 6, "three verbs on two of them");
    let status = of("buildjobs").into_iter().find(|one| one.subresource.is_some()).unwrap();
    assert_eq!((status.subresource.as_deref(), status.verb.as_deref()), (Some("status"), Some("patch")));
    let finding = permissions(
        "system:serviceaccount:ci:operator",
        asked.len(),
        &[status.clone(), of("secrets")[0].clone()],
    );
    assert_eq!(
        finding.message,
        "system:serviceaccount:ci:operator may not patch buildjobs/status in ci, get secrets agent in ci"
    );
}

#[test]
fn findings_are_lines_with_advice() {
    let broken = installation(&[("job_spawner_config", "quue: linux")], deployed(1));
    let mirrors_found: Vec<RepoMirror> = ["ready", "broken", "new"]
        .map(|name| {
            let condition = |status: &str| json!([{"type": "Ready", "status": status, "reason": "", "message": "",
                "lastTransitionTime": "2026-11-18T10:00:00Z"}]);
            let status = match name {
                "ready" => json!({"conditions": condition("True")}),
                "broken" => json!({"conditions": condition("True"), "error": "the server does not answer"}),
                _ => json!(null),
            };
            serde_json::from_value(json!({"metadata": {"name": name}, "spec": {"url": "https://example.com/a"}, "status": status})).unwrap()
        })
        .into();
    let mut findings = vec![
        kubernetes("28", "v1.28.3"),
        configuration(&broken),
        configuration(&installation(&[], json!(null))),
        configuration(&installation(&[("job_namespace", "jobs")], json!(null))),
        deployment(&broken),
        deployment(&installation(&[], deployed(0))),
        deployment(&installation(&[], json!(null))),
        leader(None, "buildkite-operator", sample::now()),
        shim(Ok(None), "ci"),
        sink("search", Some(("search-credentials", false)), None),
        sink("loki", None, Some(("http://loki:3100", Err("Connection refused (os error 111)".to_owned())))),
        sink("lines", None, None),
    ];
    findings.extend(mirrors(&mirrors_found));
    insta::assert_snapshot!(finding::lines(&findings).join("\n"));
    insta::assert_json_snapshot!(&findings[..2]);
}

#[test]
fn the_example_of_the_document() {
    let config = [("job_namespace", "ci-jobs"), ("job_spawner_config", "queue: linux")];
    let installed = installation(&config, deployed(2));
    let spec = json!({"holderIdentity": "buildkite-operator-7d9f-x2x4c", "leaseDurationSeconds": 6, "renewTime": "2026-11-18T10:04:56Z"});
    let lease: Lease = serde_json::from_value(json!({"metadata": {}, "spec": spec})).unwrap();
    let denied = ResourceAttributes {
        namespace: Some("ci-jobs".to_owned()),
        resource: Some("buildjobs".to_owned()),
        subresource: Some("status".to_owned()),
        verb: Some("patch".to_owned()),
        ..ResourceAttributes::default()
    };
    let findings = [
        kubernetes("34", "v1.34.4"),
        configuration(&installed),
        deployment(&installed),
        leader(Some(&lease), "buildkite-operator", sample::now()),
        permissions("system:serviceaccount:buildkite:buildkite-operator", 42, &[denied]),
        shim(Ok(None), "ci-jobs"),
        sink("loki", None, Some(("http://loki:3100", Err("Connection refused (os error 111)".to_owned())))),
    ];
    sample::documented(&finding::lines(&findings).join("\n"));
}
