//! The Stacks API, also through the operator's own client.

use bk_buildkite::{StacksClient, stacks as wire};
use reqwest::Method;
use serde_json::{Value, json};

use crate::harness::{REGISTRATION, Rig};

async fn register(rig: &Rig, key: &str, queue: &str) -> crate::harness::Answer {
    let body = json!({"key": key, "type": "custom", "queue_key": queue, "metadata": {}});
    rig.v3(Method::POST, "stacks/register", REGISTRATION, Some(body)).await
}

async fn list(rig: &Rig, query: &str) -> wire::ScheduledJobs {
    let path = format!("stacks/mine/scheduled-jobs?{query}");
    serde_json::from_value(rig.v3(Method::GET, &path, REGISTRATION, None).await.ok()).unwrap()
}

async fn reserve(rig: &Rig, key: &str, jobs: &[&str], seconds: Option<u32>) -> Value {
    let mut body = json!({"job_uuids": jobs});
    if let Some(seconds) = seconds {
        body["reservation_expiry_seconds"] = json!(seconds);
    }
    let path = format!("stacks/{key}/scheduled-jobs/batch-reserve");
    rig.v3(Method::PUT, &path, REGISTRATION, Some(body)).await.ok()
}

#[tokio::test]
async fn registering_resolves_the_queue_and_is_repeatable() {
    let rig = Rig::start().await;
    for alias in ["_default", "__default__", "~", "-", "default"] {
        let answer = register(&rig, "mine", alias).await;
        assert_eq!(answer.body["cluster_queue_key"], "default", "{alias}");
    }
    assert_eq!(register(&rig, "mine", "default").await.status, 200);
    assert_eq!(register(&rig, "other", "default").await.status, 201);
    register(&rig, "no spaces", "default").await.refused(422);
    let token = rig.v3(Method::GET, "token", REGISTRATION, None).await.ok();
    assert!(!token["cluster_uuid"].as_str().unwrap().is_empty());
}

#[tokio::test]
async fn queues_are_made_on_demand_unless_they_are_listed() {
    let open = Rig::start().await;
    register(&open, "mine", "anything").await.ok();
    let strict = Rig::with(|config| config.queues = vec!["big".into()]).await;
    register(&strict, "mine", "big").await.ok();
    register(&strict, "mine", "anything").await.refused(404);
    let body = json!({"name": "", "meta_data": ["queue=anything"]});
    strict.v3(Method::POST, "register", REGISTRATION, Some(body)).await.refused(422);
}

#[tokio::test]
async fn a_stack_must_be_registered() {
    let rig = Rig::start().await;
    let path = "stacks/mine/scheduled-jobs?queue_key=default";
    rig.v3(Method::GET, path, REGISTRATION, None).await.refused(404);
    register(&rig, "mine", "default").await.ok();
    rig.v3(Method::GET, path, REGISTRATION, None).await.ok();
    let left = rig.v3(Method::POST, "stacks/mine/deregister", REGISTRATION, None).await;
    assert_eq!(left.status, 204);
    rig.v3(Method::GET, path, REGISTRATION, None).await.refused(404);
}

#[tokio::test]
async fn pages_follow_each_other_without_gap_or_repetition() {
    let rig = Rig::start().await;
    register(&rig, "mine", "default").await.ok();
    rig.build(
        "steps: [{command: x, parallelism: 7}, {command: y, agents: {queue: other}}, wait, {command: z}]",
    )
    .await;
    let mut seen = Vec::new();
    let mut after = String::new();
    loop {
        let page = list(&rig, &format!("queue_key=default&limit=3{after}")).await;
        assert!(page.jobs.len() <= 3);
        seen.extend(page.jobs.iter().map(|job| job.id));
        let Some(cursor) = page.page_info.end_cursor else { break };
        assert!(page.page_info.has_next_page);
        after = format!("&after={cursor}");
    }
    assert_eq!(seen.len(), 7);
    seen.sort();
    seen.dedup();
    assert_eq!(seen.len(), 7);
    let other = list(&rig, "queue_key=other").await;
    assert_eq!(other.jobs[0].agent_query_rules, ["queue=other"]);
    for bad in ["limit=0", "limit=1001", "after=x"] {
        let path = format!("stacks/mine/scheduled-jobs?queue_key=default&{bad}");
        rig.v3(Method::GET, &path, REGISTRATION, None).await.refused(400);
    }
}

#[tokio::test]
async fn reservations_are_exclusive_extendable_and_acquirable() {
    let rig = Rig::start().await;
    register(&rig, "mine", "default").await.ok();
    register(&rig, "other", "default").await.ok();
    rig.build("steps: [{label: one, command: make, key: k}]").await;
    let id = rig.job_id("one").await;
    let unknown = uuid::Uuid::now_v7().to_string();
    let got = reserve(&rig, "mine", &[&id, &unknown], None).await;
    assert_eq!(got, json!({"reserved": [id], "not_reserved": [unknown]}));
    assert_eq!(reserve(&rig, "mine", &[&id], Some(60)).await["reserved"], json!([id]));
    assert_eq!(reserve(&rig, "other", &[&id], None).await["not_reserved"], json!([id]));
    assert!(list(&rig, "queue_key=default").await.jobs.is_empty());
    let shown = rig.v3(Method::GET, &format!("stacks/mine/jobs/{id}"), REGISTRATION, None).await.ok();
    assert_eq!((&shown["command"], &shown["env"]["BUILDKITE_STEP_KEY"]), (&json!("make"), &json!("k")));
    assert!(shown["env"].get("BUILDKITE_AGENT_NAME").is_none());
    let ask = json!({"job_uuids": [id, unknown]});
    let states = rig.v3(Method::POST, "stacks/mine/jobs/get-states", REGISTRATION, Some(ask)).await.ok();
    assert_eq!(states, json!({"states": {&id: "reserved"}}));
    let (_, token) = rig.start_job(&id).await;
    rig.finish_job(&id, &token, "0").await.ok();
    assert_eq!(reserve(&rig, "mine", &[&id], None).await["not_reserved"], json!([id]));
}

#[tokio::test]
async fn a_stack_finishes_a_job_once_with_its_reason() {
    let rig = Rig::start().await;
    register(&rig, "mine", "default").await.ok();
    rig.build("steps: [{label: one, command: x, retry: {automatic: [{exit_status: -1, signal_reason: stack_error, limit: 1}]}}]").await;
    let first = rig.job_id("one").await;
    reserve(&rig, "mine", &[&first], None).await;
    let path = format!("stacks/mine/jobs/{first}/finish");
    rig.v3(Method::POST, &path, REGISTRATION, Some(json!({"detail": ""}))).await.refused(422);
    rig.v3(Method::POST, &path, REGISTRATION, Some(json!({"detail": "no such image"}))).await.ok();
    rig.v3(Method::POST, &path, REGISTRATION, Some(json!({"detail": "again"}))).await.refused(422);
    let build = rig.current().await;
    let old = &build["jobs"][0];
    assert_eq!(
        (&old["state"], &old["exit_status"], &old["signal_reason"]),
        (&json!("failed"), &json!(-1), &json!("stack_error"))
    );
    assert_eq!(
        (&old["events"][0]["type"], &old["events"][0]["detail"]),
        (&json!("stack_error"), &json!("no such image"))
    );
    let second = rig.job_id("one").await;
    assert_ne!(first, second);
    let (_, _) = rig.start_job(&second).await;
    let path = format!("stacks/mine/jobs/{second}/finish");
    rig.v3(Method::POST, &path, REGISTRATION, Some(json!({"detail": "late"}))).await.refused(422);
}

#[tokio::test]
async fn good_notifications_are_kept_and_bad_ones_named() {
    let rig = Rig::start().await;
    register(&rig, "mine", "default").await.ok();
    rig.build("steps: [{label: one, command: x}]").await;
    let id = rig.job_id("one").await;
    let unknown = uuid::Uuid::now_v7();
    let body = json!({"notifications": [
        {"job_uuid": id, "detail": "pod created"},
        {"job_uuid": unknown, "detail": "x"},
        {"job_uuid": id, "detail": ""},
        {"job_uuid": id, "detail": "x".repeat(257)},
        {"job_uuid": id, "detail": "x", "timestamp": "2099-01-01T00:00:00Z"},
        {"job_uuid": id, "detail": "x", "timestamp": "1999-01-01T00:00:00Z"},
        {"job_uuid": "no id", "detail": "x"},
    ]});
    let answer = rig.v3(Method::POST, "stacks/mine/notifications", REGISTRATION, Some(body)).await.ok();
    let mut indexes: Vec<u64> = answer["errors"]
        .as_array()
        .unwrap()
        .iter()
        .flat_map(|error| error["indexes"].as_array().unwrap().iter().map(|index| index.as_u64().unwrap()))
        .collect();
    indexes.sort_unstable();
    assert_eq!(indexes, [1, 2, 3, 4, 5, 6]);
    let events = rig.job("one").await["events"].clone();
    assert_eq!(events.as_array().unwrap().len(), 1);
    assert_eq!(events[0]["detail"], "pod created");
}

#[tokio::test]
async fn every_answer_tells_its_rate_limit() {
    let rig = Rig::start().await;
    register(&rig, "mine", "default").await.ok();
    let answer =
        rig.v3(Method::GET, "stacks/mine/scheduled-jobs?queue_key=default", REGISTRATION, None).await;
    assert_eq!(answer.headers["RateLimit-Scope"], "list-scheduled-jobs");
    assert_eq!(answer.headers["RateLimit-Limit"], "10");
    assert!(
        answer.headers.contains_key("RateLimit-Remaining") && answer.headers.contains_key("RateLimit-Reset")
    );
}

#[tokio::test]
async fn our_own_client_finds_takes_and_ends_jobs() {
    let rig = Rig::start().await;
    rig.build("steps: [{label: one, command: make}, {label: two, command: x}]").await;
    let client = StacksClient::new(&format!("{}/v3", rig.root), REGISTRATION.into(), "test").unwrap();
    assert_eq!(client.token_identity().await.unwrap().organization_slug, "local");
    let stack = wire::RegisterStack {
        key: "mine".into(),
        kind: "custom".into(),
        queue_key: "_default".into(),
        metadata: std::collections::BTreeMap::new(),
    };
    let queue_key = client.register(&stack).await.unwrap().cluster_queue_key;
    let query = wire::ListScheduledJobs { queue_key, limit: Some(100), after: None };
    let listed = client.scheduled_jobs("mine", &query).await.unwrap();
    let ids: Vec<_> = listed.jobs.iter().map(|job| job.id).collect();
    let request = wire::ReserveJobs { job_uuids: ids.clone(), reservation_expiry_seconds: Some(60) };
    assert_eq!(client.reserve("mine", &request).await.unwrap().reserved, ids);
    assert_eq!(client.job("mine", ids[0]).await.unwrap().command, "make");
    let note = wire::Notification { job_uuid: ids[0], detail: "waiting for a node".into(), timestamp: None };
    assert!(client.notify("mine", vec![note]).await.unwrap().errors.is_empty());
    let finish = wire::FinishJob { exit_status: 0, detail: "done elsewhere".into() };
    client.finish("mine", ids[1], &finish).await.unwrap();
    let states = client.job_states("mine", &ids).await.unwrap();
    assert_eq!((states[&ids[0]].as_str(), states[&ids[1]].as_str()), ("reserved", "finished"));
    client.deregister("mine").await.unwrap();
}
