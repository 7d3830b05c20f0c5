//! The Agent API.

use reqwest::Method;
use serde_json::{Value, json};

use crate::harness::{API, REGISTRATION, Rig};

const ONE: &str = "steps: [{label: one, key: a.b, command: make}]";

#[tokio::test]
async fn an_acquired_job_runs_to_its_end() {
    let rig = Rig::start().await;
    rig.build(ONE).await;
    let id = rig.job_id("one").await;
    let access = rig.agent().await;
    rig.v3(Method::POST, "connect", &access, None).await.ok();
    let job = rig.v3(Method::PUT, &format!("jobs/{id}/acquire"), &access, None).await.ok();
    assert_eq!(job["state"], "accepted");
    let token = job["token"].as_str().unwrap();
    let start = json!({"started_at": "2026-01-01T00:00:00Z"});
    rig.v3(Method::PUT, &format!("jobs/{id}/start"), token, Some(start)).await.ok();
    assert_eq!(rig.current().await["state"], "running");
    let state = rig.v3(Method::GET, &format!("jobs/{id}"), token, None).await.ok();
    assert_eq!(state, json!({"state": "running"}));
    let beat = json!({"sent_at": "2026-01-01T00:00:00Z"});
    assert!(rig.v3(Method::POST, "heartbeat", &access, Some(beat)).await.ok().is_object());
    rig.chunk(&id, token, 1, 0, b"hello\r\n").await.ok();
    rig.finish_job(&id, token, "0").await.ok();
    // The agent pings once more after its job; the token must still be good.
    assert_eq!(rig.v3(Method::GET, "ping", &access, None).await.ok(), json!({}));
    rig.v3(Method::POST, "disconnect", &access, None).await.ok();
    let build = rig.current().await;
    assert_eq!((&build["state"], &build["jobs"][0]["state"]), (&json!("passed"), &json!("passed")));
    let log = rig.v2(Method::GET, &format!("jobs/{id}/log?plain=true"), None).await.ok();
    assert_eq!(log["content"], "hello\n");
    rig.finish_job(&id, token, "0").await.refused(422);
}

#[tokio::test]
async fn the_register_answer_has_what_keeps_agents_from_panicking() {
    let rig = Rig::start().await;
    let body = json!({"name": "", "hostname": "pod", "meta_data": null, "features": null});
    let agent = rig.v3(Method::POST, "register", REGISTRATION, Some(body)).await.ok();
    for interval in ["ping_interval", "job_status_interval", "heartbeat_interval"] {
        assert!(agent[interval].as_u64().unwrap() >= 1, "{interval}");
    }
    assert_eq!(agent["name"], "pod-1");
    assert!(agent["endpoint"].is_null());
}

#[tokio::test]
async fn the_acquired_job_has_strings_and_a_chunk_size() {
    let rig = Rig::start().await;
    rig.build("steps: [{label: one, command: make, env: {N: 1, B: true, F: 1.5}, plugins: [docker#v5]}]")
        .await;
    let id = rig.job_id("one").await;
    let access = rig.agent().await;
    let job = rig.v3(Method::PUT, &format!("jobs/{id}/acquire"), &access, None).await.ok();
    let env = job["env"].as_object().unwrap();
    assert!(env.values().all(Value::is_string), "{env:?}");
    assert!(job["chunks_max_size_bytes"].as_u64().unwrap() > 0);
    assert_eq!(env["BUILDKITE_PULL_REQUEST"], "false");
    assert_eq!(env["BUILDKITE_AGENT_NAME"], "host-1");
    assert_eq!(env["BUILDKITE_BUILD_URL"], format!("{}/local/demo/builds/1", rig.root));
    assert_eq!(
        env["BUILDKITE_PLUGINS"],
        r#"[{"github.com/buildkite-plugins/docker-buildkite-plugin#v5":null}]"#
    );
    assert!(job.get("exit_status").is_none());
}

#[tokio::test]
async fn acquire_is_repeatable_for_the_holder_and_refused_to_others() {
    let rig = Rig::start().await;
    rig.build("steps: [{label: one, command: x}, wait, {label: two, command: x}]").await;
    let (one, two) = (rig.job_id("one").await, rig.job_id("two").await);
    let (access, other) = (rig.agent().await, rig.agent().await);
    let path = format!("jobs/{one}/acquire");
    let first = rig.v3(Method::PUT, &path, &access, None).await.ok();
    let again = rig.v3(Method::PUT, &path, &access, None).await.ok();
    assert_eq!(first, again);
    rig.v3(Method::PUT, &path, &other, None).await.refused(422);
    rig.v3(Method::PUT, &format!("jobs/{two}/acquire"), &other, None).await.refused(423);
    let unknown = format!("jobs/{}/acquire", uuid::Uuid::now_v7());
    rig.v3(Method::PUT, &unknown, &other, None).await.refused(404);
    rig.v2(Method::PUT, &format!("jobs/{one}/cancel"), None).await.ok();
    rig.v3(Method::PUT, &path, &other, None).await.refused(422);
}

#[tokio::test]
async fn each_token_is_good_only_where_it_belongs() {
    let rig = Rig::start().await;
    rig.build("steps: [{label: one, command: x}, {label: two, command: x}]").await;
    let (one, two) = (rig.job_id("one").await, rig.job_id("two").await);
    let (access, token) = rig.start_job(&one).await;
    let (_, other) = rig.start_job(&two).await;
    let state = format!("jobs/{one}");
    assert_ne!(access, token);
    rig.v3(Method::GET, &state, &token, None).await.ok();
    rig.v3(Method::GET, &state, &access, None).await.ok();
    rig.v3(Method::GET, &state, &other, None).await.refused(403);
    rig.v3(Method::GET, &state, "nonsense", None).await.refused(401);
    rig.v3(Method::GET, &state, REGISTRATION, None).await.refused(401);
    rig.v3(Method::GET, "ping", &token, None).await.refused(403);
    rig.v3(Method::GET, "ping", API, None).await.refused(401);
    rig.v3(Method::GET, "token", &access, None).await.refused(401);
    rig.v3(Method::POST, "register", API, Some(json!({}))).await.refused(401);
    rig.finish_job(&one, &other, "0").await.refused(403);
    rig.chunk(&one, &other, 1, 0, b"x").await.refused(403);
    let bare = rig.request(Method::GET, "/v3/ping");
    rig.send(bare).await.refused(401);
}

#[tokio::test]
async fn chunks_may_come_late_twice_and_out_of_order() {
    let rig = Rig::start().await;
    rig.build(ONE).await;
    let id = rig.job_id("one").await;
    let (_, token) = rig.start_job(&id).await;
    let pieces: [&[u8]; 3] = ["\u{1b}_bk;t=1700000000000\u{7}fir".as_bytes(), b"st\r\nsec", b"ond\r\n"];
    let offsets = [0, pieces[0].len(), pieces[0].len() + pieces[1].len()];
    for index in [2, 0, 0, 1] {
        rig.chunk(&id, &token, u32::try_from(index).unwrap() + 1, offsets[index], pieces[index]).await.ok();
    }
    rig.finish_job(&id, &token, "0").await.ok();
    rig.chunk(&id, &token, 2, offsets[1], pieces[1]).await.ok();
    rig.chunk(&id, &token, 9, 100, b"too late").await.refused(422);
    for path in
        [format!("jobs/{id}/log?plain=true"), format!("pipelines/demo/builds/1/jobs/{id}/log?plain=true")]
    {
        assert_eq!(rig.v2(Method::GET, &path, None).await.ok()["content"], "first\nsecond\n");
    }
}

#[tokio::test]
async fn bad_chunks_are_refused() {
    let rig = Rig::start().await;
    rig.build(ONE).await;
    let id = rig.job_id("one").await;
    let (_, token) = rig.start_job(&id).await;
    let auth = format!("Token {token}");
    let path = format!("/v3/jobs/{id}/chunks?sequence=1&offset=0&size=5");
    let plain = rig.request(Method::POST, &path).header("Authorization", &auth).body("hello");
    rig.send(plain).await.refused(415);
    let noise = rig
        .request(Method::POST, &path)
        .header("Authorization", &auth)
        .header("Content-Encoding", "gzip")
        .body("hello");
    rig.send(noise).await.refused(400);
    let missing =
        rig.request(Method::POST, &format!("/v3/jobs/{id}/chunks?sequence=1")).header("Authorization", &auth);
    rig.send(missing).await.refused(400);
}

#[tokio::test]
async fn a_cancelled_job_is_told_so_and_ends_cancelled() {
    let rig = Rig::start().await;
    rig.build(ONE).await;
    let id = rig.job_id("one").await;
    let (_, token) = rig.start_job(&id).await;
    let cancelled = rig.v2(Method::PUT, "pipelines/demo/builds/1/cancel", None).await.ok();
    assert_eq!(cancelled["state"], "canceling");
    let state = rig.v3(Method::GET, &format!("jobs/{id}"), &token, None).await.ok();
    assert_eq!(state["state"], "canceling");
    let body = json!({"exit_status": "-1", "signal": "SIGTERM", "signal_reason": "cancel", "chunks_failed_count": 0});
    rig.v3(Method::PUT, &format!("jobs/{id}/finish"), &token, Some(body)).await.ok();
    let build = rig.current().await;
    assert_eq!((&build["state"], &build["jobs"][0]["job_state"]), (&json!("canceled"), &json!("canceled")));
    assert_eq!(build["jobs"][0]["signal"], "SIGTERM");
}

#[tokio::test]
async fn meta_data_belongs_to_the_build() {
    let rig = Rig::start().await;
    let build = rig.build("steps: [{label: one, command: x}, {label: two, command: x}]").await;
    let (one, two) = (rig.job_id("one").await, rig.job_id("two").await);
    let ((_, first), (_, second)) = (rig.start_job(&one).await, rig.start_job(&two).await);
    let call = |job: String, token: String, what: &'static str, body: Value| {
        let rig = &rig;
        async move { rig.v3(Method::POST, &format!("{job}/data/{what}"), &token, Some(body)).await }
    };
    let (one, two) = (format!("jobs/{one}"), format!("jobs/{two}"));
    call(one.clone(), first.clone(), "get", json!({"key": "k"})).await.refused(404);
    assert_eq!(
        call(one.clone(), first.clone(), "exists", json!({"key": "k"})).await.ok(),
        json!({"exists": false})
    );
    call(one.clone(), first.clone(), "set", json!({"key": "k", "value": "v"})).await.ok();
    let batch = json!({"items": [{"key": "x", "value": "1"}, {"key": "", "value": "2"}]});
    call(one.clone(), first.clone(), "set-batch", batch).await.refused(422);
    assert_eq!(
        call(two, second.clone(), "get", json!({"key": "k"})).await.ok(),
        json!({"key": "k", "value": "v"})
    );
    assert_eq!(rig.current().await["meta_data"], json!({"k": "v"}));
    let by_build = format!("builds/{}", build["id"].as_str().unwrap());
    assert_eq!(call(by_build.clone(), second.clone(), "keys", json!({})).await.ok(), json!(["k"]));
    let foreign = format!("builds/{}", uuid::Uuid::now_v7());
    call(foreign, second, "keys", json!({})).await.refused(403);
}

#[tokio::test]
async fn uploaded_steps_come_after_their_uploader_once() {
    let rig = Rig::start().await;
    rig.build("steps: [{label: up, command: x}, wait, {label: after, command: x}]").await;
    let id = rig.job_id("up").await;
    let (_, token) = rig.start_job(&id).await;
    let path = format!("jobs/{id}/pipelines?async=true");
    let upload = json!({"uuid": "u-1", "pipeline": {"steps": [{"command": "y", "label": "new", "key": "new"}], "env": {"UP": "1"}}});
    for _ in 0..2 {
        rig.v3(Method::POST, &path, &token, Some(upload.clone())).await.ok();
    }
    let names: Vec<Value> =
        rig.current().await["jobs"].as_array().unwrap().iter().map(|job| job["name"].clone()).collect();
    assert_eq!(names, [json!("up"), json!("new"), Value::Null, json!("after")]);
    let applied = rig.v3(Method::GET, &format!("jobs/{id}/pipelines/u-1"), &token, None).await.ok();
    assert_eq!(applied["state"], "applied");
    let broken = json!({"uuid": "u-2", "pipeline": {"steps": [{"command": "y", "key": "new"}]}});
    let message = rig.v3(Method::POST, &path, &token, Some(broken)).await.refused(422);
    assert!(message.contains("already been used"), "{message}");
    let replace =
        json!({"uuid": "u-3", "replace": true, "pipeline": {"steps": [{"command": "z", "label": "only"}]}});
    rig.v3(Method::POST, &path, &token, Some(replace)).await.ok();
    rig.finish_job(&id, &token, "0").await.ok();
    let only = rig.job("only").await;
    assert_eq!(only["job_state"], "scheduled");
    assert_eq!(rig.current().await["jobs"].as_array().unwrap().len(), 2);
    let access = rig.agent().await;
    let path = format!("jobs/{}/acquire", only["id"].as_str().unwrap());
    assert_eq!(rig.v3(Method::PUT, &path, &access, None).await.ok()["env"]["UP"], "1");
}

#[tokio::test]
async fn annotations_with_encoded_contexts_are_removed() {
    let rig = Rig::start().await;
    rig.build(ONE).await;
    let id = rig.job_id("one").await;
    let (_, token) = rig.start_job(&id).await;
    let path = format!("jobs/{id}/annotations");
    let note = json!({"body": "<b>", "context": "a.b/c", "style": "info"});
    rig.v3(Method::POST, &path, &token, Some(note)).await.ok();
    rig.v3(Method::POST, &path, &token, Some(json!({"body": "x", "style": "loud"}))).await.refused(422);
    let listed = rig.v2(Method::GET, "pipelines/demo/builds/1/annotations", None).await.ok();
    let expected = json!([{"context": "a.b/c", "style": "info", "scope": "build", "job_id": null, "priority": 3, "body": "<b>"}]);
    assert_eq!(listed, expected);
    rig.v3(Method::DELETE, &format!("{path}/a%2Eb%2Fc?scope=build"), &token, None).await.ok();
    rig.v3(Method::DELETE, &format!("{path}/a%2Eb%2Fc?scope=build"), &token, None).await.refused(404);
}

#[tokio::test]
async fn what_does_not_exist_is_a_plain_404() {
    let rig = Rig::start().await;
    let stream = rig.request(Method::POST, "/agentedge.v1.AgentEdgeService/StreamPings");
    rig.send(stream).await.refused(404);
    rig.send(rig.request(Method::DELETE, "/v3/ping")).await.refused(405);
}

#[tokio::test]
async fn an_agent_that_leaves_with_its_job_fails_it() {
    let rig = Rig::start().await;
    rig.build(ONE).await;
    let id = rig.job_id("one").await;
    let (access, _) = rig.start_job(&id).await;
    rig.v3(Method::POST, "disconnect", &access, None).await.ok();
    let job = rig.job("one").await;
    assert_eq!((&job["exit_status"], &job["signal_reason"]), (&json!(-1), &json!("agent_stop")));
}
