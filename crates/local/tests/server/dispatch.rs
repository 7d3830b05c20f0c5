//! Agents that work the classic way: they ping, and are given jobs.

use std::time::Duration;

use reqwest::Method;
use rstest::rstest;
use serde_json::{Value, json};

use crate::harness::{REGISTRATION, Rig};

/// An agent that takes jobs by ping; returns its access token.
async fn agent(rig: &Rig, tags: &str) -> String {
    let tags: Vec<&str> = tags.split_whitespace().collect();
    let body =
        json!({"name": "worker-%n", "hostname": "host", "ignore_in_dispatches": false, "meta_data": tags});
    rig.v3(Method::POST, "register", REGISTRATION, Some(body)).await.ok()["access_token"]
        .as_str()
        .unwrap()
        .to_owned()
}

async fn ping(rig: &Rig, access: &str) -> Value {
    rig.v3(Method::GET, "ping", access, None).await.ok()
}

/// The name of the job that a ping offers.
async fn offered(rig: &Rig, access: &str) -> Option<String> {
    let id = ping(rig, access).await["job"]["id"].as_str()?.to_owned();
    let build = rig.current().await;
    let job = build["jobs"].as_array().unwrap().iter().find(|job| job["id"] == json!(id)).unwrap().clone();
    Some(job["name"].as_str().unwrap().to_owned())
}

/// Accepts, starts and finishes the job that the agent was offered.
async fn work(rig: &Rig, access: &str) -> String {
    let id = ping(rig, access).await["job"]["id"].as_str().expect("a job").to_owned();
    let job = rig.v3(Method::PUT, &format!("jobs/{id}/accept"), access, None).await.ok();
    let token = job["token"].as_str().unwrap();
    rig.v3(Method::PUT, &format!("jobs/{id}/start"), token, Some(json!({}))).await.ok();
    rig.finish_job(&id, token, "0").await.ok();
    id
}

#[tokio::test]
async fn a_ping_hands_out_a_job_which_is_accepted_and_run() {
    let rig = Rig::start().await;
    let access = agent(&rig, "os=linux").await;
    assert_eq!(ping(&rig, &access).await, json!({}));
    rig.build("steps: [{label: one, command: make, agents: {os: linux}}, wait, {label: two, command: x}]")
        .await;
    let id = rig.job_id("one").await;
    // Asking again gives the same job, and nobody else gets it.
    for _ in 0..2 {
        assert_eq!(ping(&rig, &access).await, json!({"job": {"id": id}}));
    }
    assert_eq!(rig.job("one").await["job_state"], "assigned");
    let other = agent(&rig, "os=linux").await;
    assert_eq!(ping(&rig, &other).await, json!({}));
    let path = format!("jobs/{id}/accept");
    rig.v3(Method::PUT, &path, &other, None).await.refused(422);
    let first = rig.v3(Method::PUT, &path, &access, None).await.ok();
    assert_eq!((&first["state"], &first["env"]["BUILDKITE_COMMAND"]), (&json!("accepted"), &json!("make")));
    assert_eq!(first["env"]["BUILDKITE_AGENT_META_DATA_QUEUE"], "default");
    assert_eq!(rig.v3(Method::PUT, &path, &access, None).await.ok(), first);
    // One job at a time.
    assert_eq!(ping(&rig, &access).await, json!({}));
    let token = first["token"].as_str().unwrap();
    rig.v3(Method::PUT, &format!("jobs/{id}/start"), token, Some(json!({}))).await.ok();
    assert_eq!(ping(&rig, &access).await, json!({}));
    rig.finish_job(&id, token, "0").await.ok();
    rig.v3(Method::PUT, &path, &access, None).await.refused(422);
    assert_eq!(work(&rig, &access).await, rig.job_id("two").await);
    assert_eq!(rig.current().await["state"], "passed");
}

#[rstest]
#[case::default_queue("", "", true)]
#[case::named_default("queue=default", "", true)]
#[case::other_queue("", "queue=big", false)]
#[case::same_queue("queue=big", "queue=big", true)]
#[case::rule_of_another_agent("os=linux", "os=darwin", false)]
#[case::any_value("os=*", "os=darwin", true)]
#[case::any_queue("queue=*", "queue=big", true)]
#[case::all_rules("os=linux gpu=true", "os=linux", false)]
#[tokio::test]
async fn only_matching_agents_get_a_job(#[case] rules: &str, #[case] tags: &str, #[case] expected: bool) {
    let rig = Rig::start().await;
    let rules: Vec<&str> = rules.split_whitespace().collect();
    rig.build(&format!("steps: [{{label: one, command: x, agents: {}}}]", json!(rules))).await;
    let access = agent(&rig, tags).await;
    assert_eq!(offered(&rig, &access).await.is_some(), expected);
}

#[tokio::test]
async fn jobs_are_given_by_priority_then_age_then_place() {
    let rig = Rig::start().await;
    rig.build(
        "steps:
         - {label: c, command: x}
         - {label: d, command: x, agents: {os: linux}}
         - {label: a, command: x, priority: 2}
         - {label: b, command: x, priority: 1, agents: {os: linux}}
         - {label: z, command: x, priority: -1}
         - {label: never, command: x, priority: 9, agents: {os: darwin}}",
    )
    .await;
    let mut order = Vec::new();
    for _ in 0..5 {
        let access = agent(&rig, "os=linux").await;
        order.push(offered(&rig, &access).await.unwrap());
    }
    assert_eq!(order, ["a", "b", "c", "d", "z"]);
    let access = agent(&rig, "os=linux").await;
    assert_eq!(offered(&rig, &access).await, None);
}

#[tokio::test]
async fn an_agent_for_one_job_is_given_none() {
    let rig = Rig::start().await;
    rig.build("steps: [{label: one, command: x}]").await;
    let access = rig.agent().await;
    assert_eq!(ping(&rig, &access).await, json!({}));
}

#[tokio::test]
async fn an_agent_that_leaves_after_its_job_is_given_no_other() {
    let rig = Rig::start().await;
    rig.build("steps: [{label: one, command: x}, {label: two, command: x}]").await;
    let access = agent(&rig, "").await;
    let id = ping(&rig, &access).await["job"]["id"].as_str().unwrap().to_owned();
    let job = rig.v3(Method::PUT, &format!("jobs/{id}/accept"), &access, None).await.ok();
    let token = job["token"].as_str().unwrap();
    rig.v3(Method::PUT, &format!("jobs/{id}/start"), token, Some(json!({}))).await.ok();
    let body = json!({"exit_status": "0", "chunks_failed_count": 0, "ignore_agent_in_dispatches": true});
    rig.v3(Method::PUT, &format!("jobs/{id}/finish"), token, Some(body)).await.ok();
    assert_eq!(ping(&rig, &access).await, json!({}));
}

#[tokio::test]
async fn what_is_not_accepted_in_time_is_offered_again() {
    let rig = Rig::with(|config| config.start_within = Duration::from_millis(150)).await;
    rig.build("steps: [{label: one, command: x}]").await;
    let access = agent(&rig, "").await;
    let id = ping(&rig, &access).await["job"]["id"].as_str().unwrap().to_owned();
    rig.until("one", |job| job["job_state"] == "scheduled").await;
    rig.v3(Method::PUT, &format!("jobs/{id}/accept"), &access, None).await.refused(422);
    let other = agent(&rig, "").await;
    assert_eq!(ping(&rig, &other).await["job"]["id"], json!(id));
}

#[tokio::test]
async fn an_agent_that_leaves_gives_its_offer_back() {
    let rig = Rig::start().await;
    rig.build("steps: [{label: one, command: x}]").await;
    let access = agent(&rig, "").await;
    assert_eq!(offered(&rig, &access).await.as_deref(), Some("one"));
    rig.v3(Method::POST, "disconnect", &access, None).await.ok();
    assert_eq!(rig.job("one").await["job_state"], "scheduled");
}

/// The agent is told of the cancellation by the refusal, or asks again without having accepted.
#[rstest]
#[case::it_accepts(true)]
#[case::it_pings(false)]
#[tokio::test]
async fn a_job_cancelled_before_it_is_accepted_ends_cancelled(#[case] accepts: bool) {
    let rig = Rig::start().await;
    rig.build("steps: [{label: one, command: x}]").await;
    let access = agent(&rig, "").await;
    let id = ping(&rig, &access).await["job"]["id"].as_str().unwrap().to_owned();
    rig.v2(Method::PUT, &format!("jobs/{id}/cancel"), None).await.ok();
    assert_eq!(rig.job("one").await["job_state"], "canceling");
    if accepts {
        rig.v3(Method::PUT, &format!("jobs/{id}/accept"), &access, None).await.refused(422);
    } else {
        assert_eq!(ping(&rig, &access).await, json!({}));
    }
    let job = rig.job("one").await;
    assert_eq!((&job["job_state"], &job["exit_status"]), (&json!("canceled"), &Value::Null));
}

#[tokio::test]
async fn a_stopped_agent_is_told_to_leave_after_its_job() {
    let rig = Rig::start().await;
    rig.build("steps: [{label: one, command: x}, {label: two, command: x}]").await;
    let id = rig.job_id("one").await;
    let (access, token) = rig.start_job(&id).await;
    // The command inside the job has the job's token only.
    rig.v3(Method::POST, "stop", &token, Some(json!({}))).await.ok();
    assert_eq!(rig.job("one").await["job_state"], "running");
    rig.finish_job(&id, &token, "0").await.ok();
    let told = ping(&rig, &access).await;
    assert_eq!(told["action"], "disconnect");
    assert!(told.get("job").is_none() && told["message"].is_string());
}

#[tokio::test]
async fn a_forced_stop_cancels_the_job() {
    let rig = Rig::start().await;
    rig.build("steps: [{label: one, command: x}]").await;
    let id = rig.job_id("one").await;
    let (access, _) = rig.start_job(&id).await;
    rig.v3(Method::POST, "stop", &access, Some(json!({"force": true}))).await.ok();
    assert_eq!(rig.job("one").await["job_state"], "canceling");
    assert_eq!(ping(&rig, &access).await["action"], "disconnect");
}

#[tokio::test]
async fn a_paused_agent_stays_without_work_until_it_is_resumed() {
    let rig = Rig::start().await;
    rig.build("steps: [{label: one, command: x}]").await;
    let access = agent(&rig, "").await;
    assert_eq!(offered(&rig, &access).await.as_deref(), Some("one"));
    let note = json!({"note": "too many llamas", "timeout_in_minutes": 60});
    rig.v3(Method::POST, "pause", &access, Some(note)).await.ok();
    let told = ping(&rig, &access).await;
    assert_eq!(told["action"], "pause");
    assert!(told["message"].as_str().unwrap().contains("too many llamas"));
    // What it had been offered is free for others.
    assert_eq!(rig.job("one").await["job_state"], "scheduled");
    rig.v3(Method::POST, "resume", &access, None).await.ok();
    assert_eq!(offered(&rig, &access).await.as_deref(), Some("one"));
    for minutes in [0, -1, 10081] {
        let body = json!({"timeout_in_minutes": minutes});
        rig.v3(Method::POST, "pause", &access, Some(body)).await.refused(422);
    }
    rig.v3(Method::POST, "pause", "nonsense", Some(json!({}))).await.refused(401);
    rig.v3(Method::POST, "pause", REGISTRATION, Some(json!({}))).await.refused(401);
}
