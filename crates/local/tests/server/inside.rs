//! What a job does to itself, to its steps and to its build while it runs.

use std::time::Duration;

use reqwest::Method;
use rstest::rstest;
use serde_json::{Value, json};

use crate::harness::{REGISTRATION, Rig};

const TWO: &str = "steps: [{label: one, key: a.b, command: x, timeout_in_minutes: 5}, {label: two, key: two, command: y, env: {A: b}}]";

async fn started(yaml: &str) -> (Rig, String, String) {
    let rig = Rig::start().await;
    rig.build(yaml).await;
    let id = rig.job_id("one").await;
    let (_, token) = rig.start_job(&id).await;
    (rig, id, token)
}

async fn export(rig: &Rig, token: &str, step: &str, body: Value) -> crate::harness::Answer {
    rig.v3(Method::POST, &format!("steps/{step}/export"), token, Some(body)).await
}

#[tokio::test]
async fn steps_are_read_by_id_and_by_key() {
    let (rig, id, token) = started(TWO).await;
    let build = rig.current().await["id"].clone();
    let whole = json!({"build_id": build, "format": "json"});
    // Keys come with their dots encoded.
    let output = export(&rig, &token, "a%2Eb", whole).await.ok()["output"].as_str().unwrap().to_owned();
    let step: Value = serde_json::from_str(&output).unwrap();
    assert_eq!((&step["label"], &step["state"]), (&json!("one"), &json!("running")));
    let by_id = step["id"].as_str().unwrap();
    for (step, attribute, expected) in [
        (by_id, "label", "one"),
        ("two", "state", "ready"),
        ("two", "command", "y"),
        ("two", "outcome", "neutral"),
    ] {
        let answer = export(&rig, &token, step, json!({"attribute": attribute})).await.ok();
        assert_eq!(answer, json!({"output": expected}));
    }
    rig.finish_job(&id, &token, "0").await.ok();
    for (attribute, expected) in [("state", "finished"), ("outcome", "passed")] {
        let answer = export(&rig, &token, by_id, json!({"attribute": attribute})).await.ok();
        assert_eq!(answer["output"], expected);
    }
    export(&rig, &token, "two", json!({"attribute": "env"})).await.refused(422);
    export(&rig, &token, "two", json!({})).await.refused(422);
    export(&rig, &token, "two", json!({"attribute": "colour"})).await.refused(422);
    export(&rig, &token, "three", json!({"attribute": "label"})).await.refused(404);
    let foreign = json!({"build_id": uuid::Uuid::now_v7(), "attribute": "label"});
    export(&rig, &token, "two", foreign).await.refused(403);
    export(&rig, "nonsense", "two", json!({})).await.refused(401);
    export(&rig, REGISTRATION, "two", json!({})).await.refused(401);
}

#[tokio::test]
async fn steps_are_changed_once_per_request() {
    let (rig, _, token) = started(TWO).await;
    let update = async |body: Value| rig.v3(Method::PUT, "steps/two", &token, Some(body)).await;
    let append = json!({"idempotency_uuid": "u-1", "attribute": "label", "value": " more", "append": true});
    update(append.clone()).await.ok();
    update(append).await.ok();
    assert_eq!(rig.job("two more").await["job_state"], "scheduled");
    update(json!({"attribute": "priority", "value": "7"})).await.ok();
    assert_eq!(rig.job("two more").await["priority"], json!({"number": 7}));
    update(json!({"attribute": "priority", "value": "high"})).await.refused(422);
    update(json!({"attribute": "command", "value": "z"})).await.refused(422);
    update(json!({"attribute": "colour", "value": "red"})).await.refused(422);
    // Jobs that start later see the change.
    let id = rig.job_id("two more").await;
    let access = rig.agent().await;
    let job = rig.v3(Method::PUT, &format!("jobs/{id}/acquire"), &access, None).await.ok();
    assert_eq!((&job["env"]["BUILDKITE_LABEL"], &job["priority"]), (&json!("two more"), &json!(7)));
}

#[tokio::test]
async fn a_cancelled_step_ends_when_its_agents_answer_or_when_its_grace_is_over() {
    let (rig, id, token) = started(TWO).await;
    let cancel = async |step: &str, body: Value| {
        rig.v3(Method::POST, &format!("steps/{step}/cancel"), &token, Some(body)).await
    };
    cancel("nowhere", json!({})).await.refused(404);
    cancel("two", json!({"force": true, "force_grace_period": -1})).await.refused(422);
    assert!(cancel("two", json!({"force": false, "force_grace_period": 10})).await.ok()["uuid"].is_string());
    assert_eq!(rig.job("two").await["job_state"], "canceled");
    cancel("a.b", json!({"force": false})).await.ok();
    assert_eq!(rig.job("one").await["job_state"], "canceling");
    let state = rig.v3(Method::GET, &format!("jobs/{id}"), &token, None).await.ok();
    assert_eq!(state["state"], "canceling");
    cancel("a.b", json!({"force": true, "force_grace_period": 0})).await.ok();
    let job = rig.until("one", |job| job["job_state"] == "canceled").await;
    assert_eq!(job["signal_reason"], "cancel");
}

#[tokio::test]
async fn a_job_cancels_its_build_and_no_other() {
    let (rig, _, token) = started(TWO).await;
    let own = rig.current().await["id"].as_str().unwrap().to_owned();
    let foreign = format!("builds/{}/cancel", uuid::Uuid::now_v7());
    rig.v3(Method::POST, &foreign, &token, None).await.refused(403);
    let answer = rig.v3(Method::POST, &format!("builds/{own}/cancel"), &token, None).await.ok();
    assert_eq!(answer, json!({"uuid": own}));
    assert_eq!(rig.current().await["state"], "canceling");
}

#[rstest]
#[case(json!({"timeout": "20"}), 200)]
#[case(json!({"timeout": "65"}), 200)]
#[case(json!({"timeout": "66"}), 422)]
#[case(json!({"timeout": "0"}), 422)]
#[case(json!({"timeout": "soon"}), 422)]
#[case(json!({"timeout": ""}), 422)]
#[case(json!({"priority": "1"}), 422)]
#[case(json!({}), 422)]
#[case(json!([]), 422)]
#[tokio::test]
async fn a_job_changes_its_timeout_within_limits(#[case] body: Value, #[case] status: u16) {
    let (rig, id, token) = started(TWO).await;
    let answer = rig.v3(Method::PUT, &format!("jobs/{id}"), &token, Some(body)).await;
    assert_eq!(answer.status, status, "{}", answer.body);
    if status == 200 {
        assert_eq!(answer.body, json!({"id": id}));
    }
}

#[tokio::test]
async fn the_timeout_of_an_ended_job_or_another_job_stays() {
    let (rig, id, token) = started(TWO).await;
    let other = rig.job_id("two").await;
    let body = || Some(json!({"timeout": "20"}));
    rig.v3(Method::PUT, &format!("jobs/{other}"), &token, body()).await.refused(403);
    rig.finish_job(&id, &token, "0").await.ok();
    rig.v3(Method::PUT, &format!("jobs/{id}"), &token, body()).await.refused(422);
}

#[tokio::test]
async fn a_promised_failure_makes_the_build_fail_early() {
    let (rig, id, token) =
        started("steps: [{label: one, command: x}, {label: two, command: x, cancel_on_build_failing: true}]")
            .await;
    let promise = async |token: &str, body: Value| {
        rig.v3(Method::PUT, &format!("jobs/{id}/promise_failure"), token, Some(body)).await
    };
    for bad in
        [json!({}), json!({"exit_status": 0}), json!({"exit_status": "1"}), json!({"exit_status": 1.5})]
    {
        promise(&token, bad).await.refused(422);
    }
    for _ in 0..2 {
        let answer = promise(&token, json!({"exit_status": 3, "reason": "tests failed"})).await;
        assert_eq!((answer.status.as_u16(), &answer.body), (204, &Value::Null));
    }
    promise(&token, json!({"exit_status": 4})).await.refused(409);
    assert_eq!(rig.current().await["state"], "failing");
    let (one, two) = (rig.job("one").await, rig.job("two").await);
    assert_eq!((&one["job_state"], &two["job_state"]), (&json!("running"), &json!("canceled")));
    assert_eq!(one["events"].as_array().unwrap().len(), 1);
    let (_, other) = {
        let rig = Rig::start().await;
        rig.build("steps: [{label: one, command: x}]").await;
        rig.start_job(&rig.job_id("one").await).await
    };
    promise(&other, json!({"exit_status": 3})).await.refused(401);
    rig.finish_job(&id, &token, "3").await.ok();
    promise(&token, json!({"exit_status": 3})).await.refused(422);
    assert_eq!(rig.current().await["state"], "failed");
}

#[tokio::test]
async fn an_access_token_acts_for_the_job_of_its_agent_only() {
    let rig = Rig::start().await;
    rig.build(TWO).await;
    let (one, two) = (rig.job_id("one").await, rig.job_id("two").await);
    let ((access, _), (other, _)) = (rig.start_job(&one).await, rig.start_job(&two).await);
    rig.v3(Method::GET, &format!("jobs/{one}"), &access, None).await.ok();
    rig.v3(Method::GET, &format!("jobs/{one}"), &other, None).await.refused(403);
    rig.v3(Method::GET, &format!("jobs/{}", uuid::Uuid::now_v7()), &access, None).await.refused(404);
    rig.v3(Method::GET, "jobs/nonsense", &access, None).await.refused(404);
    rig.v3(Method::GET, "jobs/nonsense", "nonsense", None).await.refused(401);
    rig.finish_job(&one, &access, "0").await.ok();
    // Its job is over, but the agent still is the one that had it.
    rig.finish_job(&one, &access, "0").await.refused(422);
    let idle = rig.agent().await;
    rig.v3(Method::POST, "steps/two/export", &idle, Some(json!({}))).await.refused(403);
}

#[tokio::test]
async fn metrics_count_agents_and_jobs_by_queue() {
    let rig = Rig::start().await;
    rig.build(
        "steps:
         - {label: one, command: x}
         - {label: two, command: x, parallelism: 3}
         - {label: big, command: x, agents: {queue: big}}
         - wait
         - {label: last, command: x}",
    )
    .await;
    let id = rig.job_id("one").await;
    let (access, token) = rig.start_job(&id).await;
    let leaving = rig.agent().await;
    rig.agent().await;
    rig.v3(Method::POST, "disconnect", &leaving, None).await.ok();
    let metrics = rig.v3(Method::GET, "metrics", REGISTRATION, None).await.ok();
    let agents = json!({"idle": 1, "busy": 1, "total": 2});
    let jobs = json!({"scheduled": 3, "running": 1, "waiting": 1, "total": 5});
    let big = json!({"scheduled": 1, "running": 0, "waiting": 0, "total": 1});
    assert_eq!(
        metrics,
        json!({
            "agents": {"idle": 1, "busy": 1, "total": 2, "queues": {"default": agents}},
            "jobs": {"scheduled": 4, "running": 1, "waiting": 1, "total": 6, "queues": {"default": jobs, "big": big}},
            "organization": {"slug": "local"},
        })
    );
    rig.finish_job(&id, &token, "0").await.ok();
    let metrics = rig.v3(Method::GET, "metrics", REGISTRATION, None).await.ok();
    assert_eq!((&metrics["agents"]["idle"], &metrics["jobs"]["running"]), (&json!(2), &json!(0)));
    rig.v3(Method::GET, "metrics", &access, None).await.refused(401);
}

#[tokio::test]
async fn a_lost_agent_may_come_back_without_its_job() {
    let rig = Rig::with(|config| config.agent_lost_after = Duration::from_millis(300)).await;
    rig.build(
        "steps: [{label: one, command: x, retry: {automatic: [{exit_status: -1, signal_reason: none}]}}]",
    )
    .await;
    let id = rig.job_id("one").await;
    let (access, token) = rig.start_job(&id).await;
    // The automatic retry asks for what a lost agent leaves: −1 and no reason.
    rig.until("one", |job| job["id"] != json!(id)).await;
    let beat = json!({"sent_at": "2026-01-01T00:00:00Z"});
    rig.v3(Method::POST, "heartbeat", &access, Some(beat)).await.ok();
    rig.v3(Method::GET, "ping", &access, None).await.ok();
    rig.finish_job(&id, &token, "0").await.refused(422);
}

#[tokio::test]
async fn a_build_that_has_ended_cannot_be_cancelled_from_inside() {
    let rig = Rig::start().await;
    let build = rig.build("steps: [{label: one, command: x}]").await;
    let id = rig.job_id("one").await;
    let (_, token) = rig.start_job(&id).await;
    rig.finish_job(&id, &token, "0").await.ok();
    let path = format!("builds/{}/cancel", build["id"].as_str().unwrap());
    rig.v3(Method::POST, &path, &token, None).await.refused(422);
    assert_eq!(rig.current().await["state"], "passed");
}
