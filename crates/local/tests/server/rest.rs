//! The REST API, the page, and what both refuse.

use reqwest::Method;
use serde_json::json;

use crate::harness::{REGISTRATION, Rig};

#[tokio::test]
async fn pipelines_are_created_listed_and_changed() {
    let rig = Rig::start().await;
    let body = json!({"name": "My Demo!", "repository": "r", "configuration": "steps: []"});
    let created = rig.v2(Method::POST, "pipelines", Some(body.clone())).await;
    assert_eq!(created.status, 201);
    assert_eq!(created.body["slug"], "my-demo");
    rig.v2(Method::POST, "pipelines", Some(body)).await.refused(422);
    let bad = json!({"configuration": "steps:\n  - command: x\n    keyy: z\n"});
    let message = rig.v2(Method::PATCH, "pipelines/my-demo", Some(bad)).await.refused(422);
    assert!(message.contains("line 3") && message.contains("did you mean key?"), "{message}");
    rig.v2(Method::PATCH, "pipelines/my-demo", Some(json!({"repository": "s"}))).await.ok();
    let all = rig.v2(Method::GET, "pipelines", None).await.ok();
    assert_eq!(all[0]["repository"], "s");
    rig.v2(Method::GET, "pipelines/none", None).await.refused(404);
}

#[tokio::test]
async fn a_build_shows_its_jobs() {
    let rig = Rig::start().await;
    let build =
        rig.build("steps: [{label: one, key: k, command: x, agents: {queue: q}}, wait, {input: Go}]").await;
    assert_eq!(
        (&build["number"], &build["state"], &build["commit"]),
        (&json!(1), &json!("scheduled"), &json!("HEAD"))
    );
    let jobs = build["jobs"].as_array().unwrap();
    let kinds: Vec<_> = jobs.iter().map(|job| job["type"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["script", "waiter", "manual"]);
    let job = &jobs[0];
    assert_eq!((&job["step_key"], &job["agent_query_rules"]), (&json!("k"), &json!(["queue=q"])));
    assert!(job["exit_status"].is_null() && job["agent"].is_null() && job["runnable_at"].is_string());
    let number = rig.v2(Method::POST, "pipelines/demo/builds", Some(json!({}))).await.ok();
    assert_eq!(number["number"], 2);
    let listed = rig.v2(Method::GET, "pipelines/demo/builds", None).await.ok();
    assert_eq!(listed.as_array().unwrap().len(), 2);
}

#[tokio::test]
async fn stored_pipelines_know_their_build() {
    let rig = Rig::start().await;
    let build = rig.build("steps: [{label: on $BUILDKITE_BRANCH, command: 'echo $$HOME $HOME'}]").await;
    let job = &build["jobs"][0];
    assert_eq!((&job["name"], &job["command"]), (&json!("on main"), &json!("echo $HOME $HOME")));
}

#[tokio::test]
async fn a_block_is_unblocked_with_its_fields() {
    let rig = Rig::start().await;
    rig.build(
        "steps: [{block: Go, label: gate, fields: [{text: Who, key: who}]}, {label: after, command: x}]",
    )
    .await;
    assert_eq!(rig.current().await["state"], "blocked");
    let gate = rig.job_id("gate").await;
    let path = format!("pipelines/demo/builds/1/jobs/{gate}/unblock");
    rig.v2(Method::PUT, &path, Some(json!({"fields": {"who": "me"}}))).await.ok();
    rig.v2(Method::PUT, &path, None).await.refused(422);
    let after = rig.job_id("after").await;
    let (_, token) = rig.start_job(&after).await;
    let path = format!("jobs/{after}/data/get");
    let value = rig.v3(Method::POST, &path, &token, Some(json!({"key": "who"}))).await.ok();
    assert_eq!(value["value"], "me");
}

#[tokio::test]
async fn retry_answers_with_the_new_job() {
    let rig = Rig::start().await;
    rig.build("steps: [{label: one, command: x}]").await;
    let id = rig.job_id("one").await;
    let path = format!("jobs/{id}/retry");
    rig.v2(Method::PUT, &path, None).await.refused(422);
    let (_, token) = rig.start_job(&id).await;
    rig.finish_job(&id, &token, "3").await.ok();
    assert_eq!(rig.current().await["state"], "failed");
    let next = rig.v2(Method::PUT, &path, None).await.ok();
    assert_eq!((&next["job_state"], &next["retries_count"]), (&json!("scheduled"), &json!(1)));
    let next = next["id"].as_str().unwrap();
    let (_, token) = rig.start_job(next).await;
    rig.finish_job(next, &token, "0").await.ok();
    assert_eq!(rig.current().await["state"], "passed");
}

#[tokio::test]
async fn cancelling_twice_is_harmless_and_after_the_end_refused() {
    let rig = Rig::start().await;
    rig.build("steps: [{label: one, command: x}]").await;
    let id = rig.job_id("one").await;
    rig.start_job(&id).await;
    let path = format!("jobs/{id}/cancel");
    for _ in 0..2 {
        assert_eq!(rig.v2(Method::PUT, &path, None).await.ok()["job_state"], "canceling");
    }
    rig.build_again().await;
    let path = "pipelines/demo/builds/2/cancel";
    assert_eq!(rig.v2(Method::PUT, path, None).await.ok()["state"], "canceled");
    rig.v2(Method::PUT, path, None).await.refused(422);
}

impl Rig {
    async fn build_again(&self) {
        self.v2(Method::POST, "pipelines/demo/builds", Some(json!({}))).await.ok();
    }
}

#[tokio::test]
async fn a_growing_log_is_read_in_parts() {
    let rig = Rig::start().await;
    rig.build("steps: [{label: one, command: x}]").await;
    let id = rig.job_id("one").await;
    let (_, token) = rig.start_job(&id).await;
    rig.chunk(&id, &token, 1, 0, b"one\ntw").await.ok();
    let first = rig.v2(Method::GET, &format!("jobs/{id}/log?offset=0"), None).await.ok();
    assert_eq!(
        (&first["content"], &first["next_offset"], &first["complete"]),
        (&json!("one\n"), &json!(4), &json!(false))
    );
    rig.chunk(&id, &token, 2, 6, b"o\n").await.ok();
    let rest = rig.v2(Method::GET, &format!("jobs/{id}/log?offset=4"), None).await.ok();
    assert_eq!((&rest["content"], &rest["next_offset"]), (&json!("two\n"), &json!(8)));
}

#[tokio::test]
async fn strangers_and_nonsense_are_refused() {
    let rig = Rig::start().await;
    rig.build("steps: [{label: one, command: x}]").await;
    let path = "/v2/organizations/local/pipelines";
    rig.send(rig.request(Method::GET, path)).await.refused(401);
    rig.send(rig.request(Method::GET, path).bearer_auth(REGISTRATION)).await.refused(401);
    let elsewhere = rig.request(Method::GET, "/v2/organizations/else/pipelines");
    rig.send(elsewhere.bearer_auth(crate::harness::API)).await.refused(404);
    let text = rig.request(Method::POST, path).bearer_auth(crate::harness::API).body("{}");
    rig.send(text.header("Content-Type", "text/plain")).await.refused(415);
    let broken = rig.request(Method::POST, path).bearer_auth(crate::harness::API).body("{");
    rig.send(broken.header("Content-Type", "application/json")).await.refused(400);
    let huge =
        rig.request(Method::POST, path).bearer_auth(crate::harness::API).body(vec![b'x'; 17 * 1024 * 1024]);
    rig.send(huge.header("Content-Type", "application/json")).await.refused(413);
    rig.v2(Method::GET, "jobs/no-uuid/log", None).await.refused(404);
    rig.v2(Method::GET, "pipelines/demo/builds/x", None).await.refused(404);
}

#[tokio::test]
async fn what_was_answered_is_there_after_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("state.db");
    let id = {
        let rig = Rig::with(|config| config.database = Some(file.clone())).await;
        rig.build("steps: [{label: one, command: x}]").await;
        let id = rig.job_id("one").await;
        let (_, token) = rig.start_job(&id).await;
        rig.chunk(&id, &token, 1, 0, b"kept\n").await.ok();
        rig.stop().await;
        id
    };
    let rig = Rig::with(|config| config.database = Some(file)).await;
    assert_eq!(rig.job("one").await["job_state"], "running");
    assert_eq!(rig.v2(Method::GET, &format!("jobs/{id}/log"), None).await.ok()["content"], "kept\n");
}
