//! How jobs and agents begin and end.

use std::time::Duration;

use buildkite_local::{Config, Intervals};
use reqwest::Method;
use rstest::rstest;
use serde_json::{Value, json};

use crate::stage::{Mode, Placed, Stage, jobs};

/// A job that says when it runs, and ends when its agent's home is gone: no process outlives the test.
const ENDLESS: &str =
    r#"steps: [{key: one, command: "echo ready; while test -d \"$$HOME\"; do sleep 0.1; done"}]"#;

async fn running(stage: &Stage) -> Placed {
    let placed = stage.build(ENDLESS).await.unwrap();
    stage.job_when(&placed, "one", "is offered", |job| job["job_state"] == "scheduled").await.unwrap();
    placed
}

async fn ready(stage: &Stage, placed: &Placed) {
    let job = stage.job_when(placed, "one", "runs", |job| job["job_state"] == "running").await.unwrap();
    stage.buildkite.log_with(job["id"].as_str().unwrap().parse().unwrap(), "ready").await.unwrap();
}

async fn ended(stage: &Stage, placed: &Placed) -> Value {
    stage.job_when(placed, "one", "has ended", |job| job["finished_at"].is_string()).await.unwrap()
}

fn ending(job: &Value) -> Value {
    json!([job["job_state"], job["exit_status"], job["signal"], job["signal_reason"]])
}

#[tokio::test]
async fn a_killed_agent_is_lost_with_its_job() {
    let intervals = Intervals { heartbeat: 1, ..Intervals::default() };
    let config = Config { agent_lost_after: Duration::from_secs(3), intervals, ..Config::default() };
    let stage = Stage::with(config).await.unwrap();
    let placed = running(&stage).await;
    let agent = stage.agent_for(&stage.job(&placed, "one").await.unwrap()).unwrap();
    ready(&stage, &placed).await;
    agent.signal("KILL").unwrap();
    let job = ended(&stage, &placed).await;
    assert_eq!(ending(&job), json!(["finished", -1, null, null]));
    assert_eq!(stage.show(&placed, "").await.unwrap()["state"], "failed");
}

#[tokio::test]
async fn an_agent_that_beats_is_not_lost() {
    let intervals = Intervals { heartbeat: 1, ..Intervals::default() };
    let config = Config { agent_lost_after: Duration::from_secs(2), intervals, ..Config::default() };
    let stage = Stage::with(config).await.unwrap();
    let placed = stage.build("steps: [{key: one, command: sleep 5}]").await.unwrap();
    let build = stage.finish(&placed, Mode::Acquire).await.unwrap();
    assert_eq!(build["state"], "passed");
}

#[tokio::test]
async fn a_cancelled_job_is_stopped() {
    let stage = Stage::new().await.unwrap();
    let placed = running(&stage).await;
    let job = stage.job(&placed, "one").await.unwrap();
    let mut agent = stage.agent_for(&job).unwrap();
    ready(&stage, &placed).await;
    stage.rest(Method::PUT, &format!("jobs/{}/cancel", job["id"].as_str().unwrap()), None).await.unwrap();
    let job = ended(&stage, &placed).await;
    assert_eq!(ending(&job), json!(["canceled", -1, "SIGTERM", "cancel"]));
    assert!(agent.ended().await.unwrap().success());
}

#[tokio::test]
async fn a_job_that_takes_too_long_is_stopped() {
    let stage = Stage::new().await.unwrap();
    let steps = ENDLESS.replace("key: one,", "key: one, timeout_in_minutes: 1,");
    let placed = stage.build(&steps).await.unwrap();
    let mut agent = stage.agent_for(&stage.job(&placed, "one").await.unwrap()).unwrap();
    ready(&stage, &placed).await;
    let job = ended(&stage, &placed).await;
    assert_eq!(ending(&job), json!(["timed_out", -1, "SIGTERM", "cancel"]));
    assert!(agent.ended().await.unwrap().success());
}

#[tokio::test]
async fn an_agent_that_is_told_to_stop_twice_takes_its_job_along() {
    let stage = Stage::new().await.unwrap();
    let placed = running(&stage).await;
    let mut agent = stage.agent_for(&stage.job(&placed, "one").await.unwrap()).unwrap();
    ready(&stage, &placed).await;
    agent.signal("TERM").unwrap();
    // The first is a request: the job goes on. The agent must have seen it before the second counts as one.
    bk_e2e::eventually("the agent stops gracefully", async || {
        Ok(agent.log().contains("Received CTRL-C").then_some(()))
    })
    .await
    .unwrap();
    assert_eq!(stage.job(&placed, "one").await.unwrap()["job_state"], "running");
    agent.signal("TERM").unwrap();
    let job = ended(&stage, &placed).await;
    assert_eq!(ending(&job), json!(["finished", -1, "SIGTERM", "agent_stop"]));
    agent.ended().await.unwrap();
}

#[rstest]
#[case::taken(true, 27)]
#[case::unknown(false, 0)]
#[tokio::test]
async fn an_agent_that_cannot_have_its_job_leaves(#[case] taken: bool, #[case] code: i32) {
    let stage = Stage::new().await.unwrap();
    let id = if taken {
        let placed = stage.build("steps: [{key: one, command: 'true'}]").await.unwrap();
        let build = stage.finish(&placed, Mode::Acquire).await.unwrap();
        jobs(&build).next().unwrap()["id"].as_str().unwrap().to_owned()
    } else {
        uuid::Uuid::now_v7().to_string()
    };
    let mut agent = stage.agent(&["--acquire-job", &id]).unwrap();
    assert_eq!(agent.ended().await.unwrap().code(), Some(code), "{}", agent.log());
}

#[tokio::test]
async fn the_exit_status_arrives_and_is_reflected() {
    let stage = Stage::new().await.unwrap();
    let placed = stage.build("steps: [{key: one, command: exit 42}]").await.unwrap();
    let job = stage.job(&placed, "one").await.unwrap();
    let id = job["id"].as_str().unwrap();
    let mut agent = stage.agent(&["--acquire-job", id, "--reflect-exit-status"]).unwrap();
    assert_eq!(agent.ended().await.unwrap().code(), Some(42));
    let job = ended(&stage, &placed).await;
    assert_eq!(ending(&job), json!(["finished", 42, null, null]));
}

#[rstest]
#[case::acquire(Mode::Acquire)]
#[case::classic(Mode::Classic)]
#[tokio::test]
async fn a_failed_job_is_tried_again(#[case] mode: Mode) {
    let steps = r#"
steps:
  - key: flaky
    command: test "$$BUILDKITE_RETRY_COUNT" = 2
    retry: {automatic: [{exit_status: 1, limit: 2}]}
"#;
    let stage = Stage::new().await.unwrap();
    let placed = stage.build(steps).await.unwrap();
    let build = stage.finish(&placed, mode).await.unwrap();
    let tries: Vec<&Value> = jobs(&build).map(|job| &job["exit_status"]).collect();
    assert_eq!((&build["state"], tries), (&json!("passed"), vec![&json!(1), &json!(1), &json!(0)]));
}
