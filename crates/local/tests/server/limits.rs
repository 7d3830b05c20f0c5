//! What is limited: jobs at once in a concurrency group, and how large builds may become.

use std::collections::BTreeSet;

use reqwest::Method;
use serde_json::{Value, json};

use crate::harness::Rig;
use crate::pipelines::states;

const LIMITED: &str = "
steps:
  - {label: a, command: x, concurrency: 2, concurrency_group: g}
  - {label: b, command: x, concurrency: 2, concurrency_group: g, concurrency_method: eager, priority: 5}
  - wait
  - {label: c, command: x, parallelism: 2, concurrency: 2, concurrency_group: g}
";

/// The jobs of both pipelines' builds.
async fn jobs(rig: &Rig) -> Vec<Value> {
    let mut jobs = Vec::new();
    for (pipeline, number) in [("one", 1), ("two", 1), ("one", 2)] {
        let build = rig.shown(pipeline, number).await;
        jobs.extend(build["jobs"].as_array().unwrap().iter().cloned());
    }
    jobs
}

#[tokio::test]
async fn a_group_is_never_exceeded_and_nobody_is_left_behind() {
    let rig = Rig::start().await;
    for pipeline in ["one", "two"] {
        rig.pipeline(pipeline, LIMITED).await;
    }
    for pipeline in ["one", "two", "one"] {
        rig.start_build(pipeline, json!({})).await;
    }
    let mut run = BTreeSet::new();
    for turn in 0.. {
        let jobs = jobs(&rig).await;
        let placed: Vec<&Value> = jobs.iter().filter(|job| job["job_state"] == "scheduled").collect();
        assert!(placed.len() <= 2, "{placed:?}");
        if placed.is_empty() {
            assert!(jobs.iter().all(|job| job["job_state"] == "finished"), "{jobs:?}");
            break;
        }
        // Now the older one, now the newer; a failure frees its place like a success.
        let next = placed[turn % placed.len()];
        assert!(run.insert(next["id"].as_str().unwrap().to_owned()));
        rig.run_job(next, "0").await;
    }
    assert_eq!(run.len(), 12);
}

#[tokio::test]
async fn removing_a_pipeline_frees_its_places_and_ends_what_followed_it() {
    let rig = Rig::start().await;
    let yaml = "steps: [{label: a, command: x, concurrency: 1, concurrency_group: g}]";
    rig.pipeline("one", yaml).await;
    rig.pipeline("two", yaml).await;
    rig.pipeline("parent", "steps: [{trigger: one}]").await;
    rig.start_build("parent", json!({})).await;
    let second = rig.start_build("two", json!({})).await;
    assert_eq!(states(&second), ["limited"]);
    rig.v2(Method::DELETE, "pipelines/one", None).await.ok();
    assert_eq!(states(&rig.shown("two", 1).await), ["scheduled"]);
    assert_eq!(rig.shown("parent", 1).await["state"], "failed");
}

#[tokio::test]
async fn cancelling_a_job_that_waits_lets_those_behind_it_go() {
    let rig = Rig::start().await;
    let yaml = "
steps:
  - {label: slow, key: slow, command: x}
  - {label: a, command: x, depends_on: slow, concurrency: 1, concurrency_group: g}
";
    rig.pipeline("one", yaml).await;
    rig.pipeline("two", "steps: [{label: b, command: x, concurrency: 1, concurrency_group: g}]").await;
    let first = rig.start_build("one", json!({})).await;
    assert_eq!(states(&rig.start_build("two", json!({})).await), ["limited"]);
    let path = format!("pipelines/one/builds/1/jobs/{}/cancel", first["jobs"][1]["id"].as_str().unwrap());
    rig.v2(Method::PUT, &path, None).await.ok();
    assert_eq!(states(&rig.shown("two", 1).await), ["scheduled"]);
}

#[tokio::test]
async fn one_that_waits_for_a_later_one_of_its_group_waits_and_says_why() {
    let rig = Rig::start().await;
    let yaml = "
steps:
  - {label: a, command: x, depends_on: b, concurrency: 1, concurrency_group: g}
  - {label: b, key: b, command: x, concurrency: 1, concurrency_group: g}
";
    let build = rig.build(yaml).await;
    assert_eq!(states(&build), ["waiting", "limited"]);
    let id = rig.job_id("b").await;
    let shown = rig.send(rig.request(Method::GET, &format!("/-/jobs/{id}"))).await.ok();
    let reason = "Waits for concurrency group g: 0 of 1 taken, 1 older to go first, 1 of which still waiting for dependencies";
    let timeline = shown["timeline"].as_array().unwrap();
    assert!(timeline.iter().any(|entry| entry["text"] == reason), "{timeline:?}");
    rig.v2(Method::PUT, "pipelines/demo/builds/1/cancel", None).await.ok();
    assert_eq!(rig.current().await["state"], "canceled");
}

#[tokio::test]
async fn a_build_has_at_most_four_thousand_jobs() {
    let rig = Rig::start().await;
    rig.build("steps: [{label: up, command: x}]").await;
    let id = rig.job_id("up").await;
    let (_, token) = rig.start_job(&id).await;
    let jobs = |count: u32| json!({"steps": [{"command": "x", "parallelism": count}]});
    let message = rig.upload(&id, &token, "many", jobs(501)).await.refused(422);
    assert_eq!(
        message,
        "the pipeline is invalid: the pipeline would create 501 jobs; at most 500 are allowed at once"
    );
    for number in 0..7 {
        rig.upload(&id, &token, &format!("u{number}"), jobs(500)).await.ok();
    }
    let message = rig.upload(&id, &token, "last", jobs(500)).await.refused(422);
    assert_eq!(message, "the pipeline is invalid: the build would have 4001 jobs; at most 4000 are allowed");
    rig.upload(&id, &token, "last", jobs(499)).await.ok();
}

#[tokio::test]
async fn a_build_has_at_most_five_hundred_uploads() {
    let rig = Rig::start().await;
    rig.build("steps: [{label: up, command: x}]").await;
    let id = rig.job_id("up").await;
    let (_, token) = rig.start_job(&id).await;
    let nothing = json!({"steps": []});
    for number in 0..500 {
        rig.upload(&id, &token, &format!("u{number}"), nothing.clone()).await.ok();
    }
    let message = rig.upload(&id, &token, "one-more", nothing.clone()).await.refused(422);
    assert_eq!(message, "the pipeline is invalid: the build has had 500 uploads; no more are allowed");
    rig.upload(&id, &token, "u7", nothing).await.ok();
}

#[tokio::test]
async fn triggers_are_limited_in_depth_and_number() {
    let rig = Rig::start().await;
    rig.pipeline("loop", "steps: [{command: x}]").await;
    let body = json!({"configuration": "steps: [{trigger: loop}]"});
    rig.v2(Method::PATCH, "pipelines/loop", Some(body)).await.ok();
    assert_eq!(rig.start_build("loop", json!({})).await["state"], "failed");
    assert_eq!(rig.v2(Method::GET, "pipelines/loop/builds/12", None).await.status, 404);
    let deepest = rig.shown("loop", 11).await;
    assert_eq!(states(&deepest), ["finished"]);
    assert!(deepest["jobs"][0]["triggered_build"].is_null());

    rig.pipeline("leaf", "steps: [{command: x, skip: true}]").await;
    rig.pipeline("fan", "steps: [{trigger: leaf, async: true, parallelism: 251}]").await;
    let fan = rig.start_build("fan", json!({})).await;
    assert_eq!(fan["state"], "failed");
    let refused = fan["jobs"].as_array().unwrap().iter().filter(|job| job["triggered_build"].is_null());
    assert_eq!(refused.count(), 1);
}

#[tokio::test]
async fn what_is_notified_is_kept_with_the_build() {
    let rig = Rig::start().await;
    let build = rig.build("notify: [{slack: '#a'}]\nsteps: [{label: up, command: x}]").await;
    assert_eq!(build["notify"], json!([{"slack": "#a"}]));
    let id = rig.job_id("up").await;
    let (_, token) = rig.start_job(&id).await;
    let more = json!({"notify": [{"email": "b@example.com"}], "steps": [{"command": "x"}]});
    rig.upload(&id, &token, "more", more).await.ok();
    assert_eq!(rig.current().await["notify"], json!([{"slack": "#a"}, {"email": "b@example.com"}]));
}
