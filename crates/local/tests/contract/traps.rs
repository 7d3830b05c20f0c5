//! The ten things that break clients without a word.

use reqwest::Method;
use rstest::rstest;
use serde_json::{Value, json};

use crate::harness::{REGISTRATION, Rig};
use crate::scene::{Scene, Token};

/// A job with every kind of value where only strings may arrive.
const MIXED: &str = r#"
env: {TOP: 1, FLAG: true, NOTHING: null}
steps:
  - {label: one, command: x, env: {N: 1, F: 1.0, B: false, S: "s"}, plugins: [docker#v5, {"./local": {a: 1}}], timeout_in_minutes: 3, priority: 2}
"#;

/// What an agent gets for the job of a pipeline.
async fn acquired(yaml: &str) -> Value {
    let rig = Rig::start().await;
    rig.build(yaml).await;
    let id = rig.job_id("one").await;
    let access = rig.agent().await;
    rig.v3(Method::PUT, &format!("jobs/{id}/acquire"), &access, None).await.ok()
}

#[rstest]
#[case("heartbeat_interval")]
#[case("ping_interval")]
#[case("job_status_interval")]
#[tokio::test]
async fn trap_1_intervals_are_at_least_one(#[case] interval: &str) {
    let rig = Rig::start().await;
    let agent = rig.v3(Method::POST, "register", REGISTRATION, Some(json!({}))).await.ok();
    assert!(agent[interval].as_u64().is_some_and(|seconds| seconds >= 1), "{agent}");
}

#[tokio::test]
async fn trap_2_chunks_have_a_size() {
    assert!(acquired(MIXED).await["chunks_max_size_bytes"].as_u64().is_some_and(|size| size > 0));
}

#[tokio::test]
async fn trap_3_the_environment_is_strings_and_numbers_are_whole() {
    let job = acquired(MIXED).await;
    let env = job["env"].as_object().unwrap();
    assert!(env.values().all(Value::is_string), "{env:?}");
    assert!(job.get("exit_status").is_none_or(|status| status.is_null() || status.is_string()));
    for field in ["chunks_max_size_bytes", "chunks_interval_seconds", "log_max_size_bytes", "priority"] {
        assert!(job[field].is_i64() || job[field].is_u64(), "{field}: {}", job[field]);
    }
    let text = job.to_string();
    assert!(!text.contains(":1.0,") && !text.contains(":1.0}"), "{text}");
}

#[rstest]
#[case::success("0")]
#[case::failure("1")]
#[tokio::test]
async fn trap_4_the_access_token_outlives_the_job(#[case] exit_status: &str) {
    let scene = Scene::new().await;
    let body = format!(r#"{{"exit_status":"{exit_status}"}}"#);
    scene.call("PUT", "/v3/jobs/{one}/finish", Token::Job, &body).await.ok();
    for (method, path) in [("GET", "/v3/ping"), ("POST", "/v3/heartbeat"), ("POST", "/v3/disconnect")] {
        scene.call(method, path, Token::Access, "").await.ok();
    }
}

#[rstest]
#[case("BUILDKITE_REPO")]
#[case("BUILDKITE_COMMIT")]
#[case("BUILDKITE_BRANCH")]
#[case("BUILDKITE_JOB_ID")]
#[case("BUILDKITE_AGENT_NAME")]
#[case("BUILDKITE_ORGANIZATION_SLUG")]
#[case("BUILDKITE_PIPELINE_SLUG")]
#[case("BUILDKITE_PIPELINE_PROVIDER")]
#[tokio::test]
async fn trap_5_the_bootstrap_has_what_it_needs(#[case] name: &str) {
    let job = acquired(MIXED).await;
    assert!(job["env"][name].as_str().is_some_and(|value| !value.is_empty()), "{}", job["env"]);
}

#[tokio::test]
async fn trap_6_no_pull_request_is_the_word_false() {
    assert_eq!(acquired(MIXED).await["env"]["BUILDKITE_PULL_REQUEST"], "false");
}

#[rstest]
#[case("docker#v5", json!([{"github.com/buildkite-plugins/docker-buildkite-plugin#v5": null}]))]
#[case("acme/x#v1", json!([{"github.com/acme/x-buildkite-plugin#v1": null}]))]
#[case("kubernetes: {a: 1}", json!([{"github.com/buildkite-plugins/kubernetes-buildkite-plugin": {"a": 1}}]))]
#[case("\"https://git.example.com/p.git#main\": {b: [2]}", json!([{"https://git.example.com/p.git#main": {"b": [2]}}]))]
#[tokio::test]
async fn trap_7_plugins_are_objects_with_one_canonical_key(#[case] plugin: &str, #[case] expected: Value) {
    let yaml = format!("steps:\n  - label: one\n    command: x\n    plugins:\n      - {plugin}\n");
    let job = acquired(&yaml).await;
    let plugins: Value = serde_json::from_str(job["env"]["BUILDKITE_PLUGINS"].as_str().unwrap()).unwrap();
    assert_eq!(plugins, expected);
    assert_eq!(job["step"]["plugins"], expected);
}

#[tokio::test]
async fn trap_8_listing_never_answers_a_registered_stack_with_a_client_error() {
    let scene = Scene::new().await;
    let list = "/v3/stacks/mine/scheduled-jobs?queue_key=default&limit=1000";
    scene.call("GET", list, Token::Registration, "").await.ok();
    scene.call("POST", "/_faults/queues/default/pause", Token::Api, "").await.ok();
    let paused = scene.call("GET", list, Token::Registration, "").await.ok();
    assert_eq!(paused["jobs"], json!([]));
    // A queue that nobody has named before is empty, not an error.
    let other = "/v3/stacks/mine/scheduled-jobs?queue_key=never-seen&limit=1000";
    assert_eq!(scene.call("GET", other, Token::Registration, "").await.ok()["jobs"], json!([]));
}

#[tokio::test]
async fn trap_9_the_token_names_a_cluster() {
    let rig = Rig::start().await;
    let token = rig.v3(Method::GET, "token", REGISTRATION, None).await.ok();
    assert!(token["cluster_uuid"].as_str().is_some_and(|id| !id.is_empty()), "{token}");
}

#[rstest]
#[case("POST", "/v3/steps/one%2Ekey/cancel", Token::Job, "{}")]
#[case("GET", "/v3/stacks/%6d%69ne/scheduled-jobs?queue_key=default", Token::Registration, "")]
#[case("GET", "/v3/stacks/mine/jobs/{dashes}", Token::Registration, "")]
#[case("GET", "/v2/organizations/l%6fcal/pipelines/dem%6F", Token::Api, "")]
#[tokio::test]
async fn trap_10_segments_are_decoded_before_they_are_compared(
    #[case] method: &str,
    #[case] path: &str,
    #[case] token: Token,
    #[case] body: &str,
) {
    let scene = Scene::new().await;
    let path = path.replace("{dashes}", &scene.fill("{three}").replace('-', "%2D"));
    scene.call(method, &path, token, body).await.ok();
}

#[tokio::test]
async fn the_streaming_ping_does_not_exist() {
    let scene = Scene::new().await;
    let path = "/agentedge.v1.AgentEdgeService/StreamPings";
    let headers = [("Content-Type", "application/grpc")];
    let answer = scene.send("POST", path, Token::Access, &headers, vec![0; 5]).await;
    assert_eq!(answer.status, 404);
}
