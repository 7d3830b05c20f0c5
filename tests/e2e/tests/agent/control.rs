//! What jobs do to their agent, their build and themselves.

use serde_json::json;

use crate::stage::{Case, Mode, Stage, jobs};

pub(crate) const PAUSE: Case = Case {
    commands: &["pause", "resume"],
    steps: r#"
steps:
  - command:
      - run buildkite-agent pause --note "a look around" --timeout-in-minutes 5
      - run buildkite-agent resume
  - wait
  - command: run echo next
"#,
    results: &["0|", "0|", "0|next"],
};

#[tokio::test]
async fn an_agent_that_was_resumed_goes_on() {
    PAUSE.play(Mode::Classic).await;
}

#[tokio::test]
async fn a_paused_agent_stays_and_takes_nothing() {
    let stage = Stage::new().await.unwrap();
    let steps =
        "steps: [{key: one, command: buildkite-agent pause --note lunch}, wait, {key: two, command: x}]";
    let placed = stage.build(steps).await.unwrap();
    let mut agent = stage.agent(&[]).unwrap();
    bk_e2e::eventually("the agent knows that it is paused", async || {
        Ok(agent.log().contains("lunch").then_some(()))
    })
    .await
    .unwrap();
    assert_eq!(stage.job(&placed, "one").await.unwrap()["exit_status"], 0);
    assert_eq!(stage.job(&placed, "two").await.unwrap()["job_state"], "scheduled");
    agent.signal("TERM").unwrap();
    assert!(agent.ended().await.unwrap().success(), "{}", agent.log());
}

pub(crate) const STOP: Case =
    Case { commands: &["stop"], steps: "steps: [{command: run buildkite-agent stop}]", results: &["0|"] };

#[tokio::test]
async fn an_agent_that_is_told_to_stop_leaves_after_its_job() {
    let stage = Stage::new().await.unwrap();
    let placed = stage.build(STOP.steps).await.unwrap();
    let mut agent = stage.agent(&[]).unwrap();
    assert!(agent.ended().await.unwrap().success(), "{}", agent.log());
    let build = stage.show(&placed, "").await.unwrap();
    assert_eq!(build["state"], "passed");
    assert_eq!(stage.results(&build).await.unwrap(), STOP.results);
}

pub(crate) const JOB: Case = Case {
    commands: &["job update"],
    steps: r"
steps:
  - timeout_in_minutes: 10
    command:
      - run buildkite-agent job update timeout 20
      - run buildkite-agent job update timeout soon
      - run buildkite-agent job update colour green
",
    results: &["0|", "1|", "1|"],
};

#[tokio::test]
async fn a_job_gives_itself_more_time() {
    JOB.play(Mode::Acquire).await;
}

pub(crate) const PROMISE: Case = Case {
    commands: &["job promise-failure"],
    steps: r#"
steps:
  - key: one
    command:
      - run buildkite-agent job promise-failure 3 --reason "a test failed"
      - run buildkite-agent job promise-failure 3
      - run buildkite-agent job promise-failure 4
"#,
    results: &["0|", "0|", "1|"],
};

#[tokio::test]
async fn a_promised_failure_is_kept() {
    let stage = Stage::new().await.unwrap();
    let placed = stage.build(PROMISE.steps).await.unwrap();
    let build = stage.finish(&placed, Mode::Acquire).await.unwrap();
    assert_eq!(stage.results(&build).await.unwrap(), PROMISE.results, "{}", stage.logs(&build).await);
    let job = jobs(&build).next().unwrap();
    assert_eq!((&build["state"], &job["exit_status"]), (&json!("failed"), &json!(3)));
}

pub(crate) const CANCEL: Case = Case {
    commands: &["step cancel", "build cancel"],
    steps: r#"
steps:
  - key: victim
    command: "while test -d \"$$HOME\"; do sleep 0.1; done"
  - key: canceller
    command:
      - run buildkite-agent step cancel --step victim
      - run buildkite-agent build cancel
      - "while test -d \"$$HOME\"; do sleep 0.1; done"
"#,
    results: &["0|", "0|"],
};

#[tokio::test]
async fn jobs_cancel_steps_and_builds() {
    let stage = Stage::new().await.unwrap();
    let placed = stage.build(CANCEL.steps).await.unwrap();
    let _victim = stage.agent_for(&stage.job(&placed, "victim").await.unwrap()).unwrap();
    stage.job_when(&placed, "victim", "runs", |job| job["job_state"] == "running").await.unwrap();
    let _canceller = stage.agent_for(&stage.job(&placed, "canceller").await.unwrap()).unwrap();
    for key in ["victim", "canceller"] {
        let job = stage.job_when(&placed, key, "ends", |job| job["finished_at"].is_string()).await.unwrap();
        assert_eq!(
            (&job["job_state"], &job["signal_reason"]),
            (&json!("canceled"), &json!("cancel")),
            "{key}"
        );
    }
    let build = stage.show(&placed, "").await.unwrap();
    assert_eq!(build["state"], "canceled");
    let results = stage.results(&build).await.unwrap();
    assert!(results.iter().all(|line| line.starts_with("0|")) && results.len() == 2, "{results:?}");
}
