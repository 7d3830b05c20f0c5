//! What the server does by itself.

use std::time::Duration;

use reqwest::Method;
use serde_json::json;

use crate::harness::{REGISTRATION, Rig};

const SOON: Duration = Duration::from_millis(150);

#[tokio::test]
async fn an_expired_reservation_goes_back_to_the_queue() {
    let rig = Rig::with(|config| config.reservation = SOON).await;
    let stack = json!({"key": "mine", "type": "custom", "queue_key": "default", "metadata": {}});
    rig.v3(Method::POST, "stacks/register", REGISTRATION, Some(stack)).await.ok();
    rig.build("steps: [{label: one, command: x}]").await;
    let id = rig.job_id("one").await;
    let body = json!({"job_uuids": [id]});
    let path = "stacks/mine/scheduled-jobs/batch-reserve";
    let got = rig.v3(Method::PUT, path, REGISTRATION, Some(body)).await.ok();
    assert_eq!(got["reserved"], json!([id]));
    rig.until("one", |job| job["job_state"] == "scheduled").await;
}

#[tokio::test]
async fn an_accepted_job_that_never_starts_is_offered_again() {
    let rig = Rig::with(|config| config.start_within = SOON).await;
    rig.build("steps: [{label: one, command: x}]").await;
    let id = rig.job_id("one").await;
    let access = rig.agent().await;
    let job = rig.v3(Method::PUT, &format!("jobs/{id}/acquire"), &access, None).await.ok();
    rig.until("one", |job| job["job_state"] == "scheduled").await;
    // The old token is dead: an agent that comes late stops.
    rig.v3(Method::GET, &format!("jobs/{id}"), job["token"].as_str().unwrap(), None).await.refused(401);
}

#[tokio::test]
async fn a_silent_agent_is_lost_with_its_job() {
    let rig = Rig::with(|config| config.agent_lost_after = SOON).await;
    rig.build("steps: [{label: one, command: x}]").await;
    let id = rig.job_id("one").await;
    rig.start_job(&id).await;
    let job = rig.until("one", |job| job["job_state"] == "finished").await;
    assert_eq!((&job["exit_status"], &job["signal_reason"]), (&json!(-1), &json!(null)));
    assert_eq!(job["events"][0]["type"], "agent_lost");
    assert_eq!(rig.current().await["state"], "failed");
}

#[tokio::test]
async fn agents_are_given_time_after_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("state.db");
    {
        let rig = Rig::with(|config| config.database = Some(file.clone())).await;
        rig.build("steps: [{label: one, command: x}]").await;
        let id = rig.job_id("one").await;
        rig.start_job(&id).await;
        rig.stop().await;
    }
    // As if the server had been down for longer than agents may be silent.
    rusqlite::Connection::open(&file).unwrap().execute("UPDATE agents SET lost_at = 1", []).unwrap();
    let rig = Rig::with(|config| config.database = Some(file.clone())).await;
    assert_eq!(rig.job("one").await["job_state"], "running");
    rig.stop().await;
    let database = rusqlite::Connection::open(&file).unwrap();
    let lost_at: i64 = database.query_row("SELECT lost_at FROM agents", [], |row| row.get(0)).unwrap();
    assert!(lost_at > 1);
}

#[tokio::test]
async fn a_cancelled_job_whose_agent_never_answers_is_settled() {
    let rig = Rig::with(|config| config.stop_within = SOON).await;
    rig.build("steps: [{label: one, command: x}]").await;
    let id = rig.job_id("one").await;
    rig.start_job(&id).await;
    rig.v2(Method::PUT, &format!("jobs/{id}/cancel"), None).await.ok();
    let job = rig.until("one", |job| job["job_state"] == "canceled").await;
    assert_eq!(job["signal_reason"], "cancel");
}

#[tokio::test]
async fn a_job_that_nobody_takes_expires() {
    let rig = Rig::with(|config| config.expire_after = SOON).await;
    rig.build("steps: [{label: one, command: x}]").await;
    rig.until("one", |job| job["job_state"] == "expired").await;
    assert_eq!(rig.current().await["state"], "failed");
}

#[tokio::test]
async fn a_lost_agent_loses_every_job_that_it_has() {
    let rig = Rig::with(|config| config.agent_lost_after = SOON).await;
    rig.build("steps: [{label: one, command: x}, {label: two, command: x}]").await;
    let (one, two) = (rig.job_id("one").await, rig.job_id("two").await);
    let (access, _) = rig.start_job(&one).await;
    let job = rig.v3(Method::PUT, &format!("jobs/{two}/acquire"), &access, None).await.ok();
    let body = json!({"started_at": "2026-01-01T00:00:00Z"});
    rig.v3(Method::PUT, &format!("jobs/{two}/start"), job["token"].as_str().unwrap(), Some(body)).await.ok();
    rig.until("one", |job| job["job_state"] == "finished").await;
    assert_eq!(rig.job("two").await["job_state"], "finished");
}

/// The views of pages carry the number of the newest change.
async fn newest_change(rig: &Rig) -> String {
    let view = rig.send(rig.request(Method::GET, "/-/agents")).await;
    view.headers["etag"].to_str().unwrap().to_owned()
}

#[tokio::test]
async fn signs_of_life_are_kept_and_no_page_needs_to_ask_again() {
    let rig = Rig::with(|config| config.agent_lost_after = Duration::from_secs(10)).await;
    let stack = json!({"key": "mine", "type": "custom", "queue_key": "default", "metadata": {}});
    rig.v3(Method::POST, "stacks/register", REGISTRATION, Some(stack)).await.ok();
    let access = rig.agent().await;
    let last_seen = async || rig.v2(Method::GET, "agents", None).await.ok()[0]["last_seen_at"].clone();
    let (first, change) = (last_seen().await, newest_change(&rig).await);
    let list = "stacks/mine/scheduled-jobs?queue_key=default";
    while last_seen().await == first {
        rig.v3(Method::GET, "ping", &access, None).await.ok();
        rig.v3(Method::POST, "heartbeat", &access, Some(json!({"sent_at": ""}))).await.ok();
        rig.v3(Method::GET, list, REGISTRATION, None).await;
    }
    assert_eq!(newest_change(&rig).await, change);
    rig.v3(Method::POST, "disconnect", &access, None).await.ok();
    assert_ne!(newest_change(&rig).await, change);
}
