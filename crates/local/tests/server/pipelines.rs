//! Pipelines as a running server carries them out: what reaches beyond one build, and uploads.

use reqwest::Method;
use serde_json::{Value, json};

use crate::harness::Rig;

impl Rig {
    pub(crate) async fn pipeline(&self, name: &str, yaml: &str) {
        let body = json!({"name": name, "repository": "https://git.local/demo.git", "configuration": yaml});
        self.v2(Method::POST, "pipelines", Some(body)).await.ok();
    }

    pub(crate) async fn start_build(&self, pipeline: &str, body: Value) -> Value {
        self.v2(Method::POST, &format!("pipelines/{pipeline}/builds"), Some(body)).await.ok()
    }

    pub(crate) async fn shown(&self, pipeline: &str, number: u32) -> Value {
        self.v2(Method::GET, &format!("pipelines/{pipeline}/builds/{number}"), None).await.ok()
    }

    /// Runs a job to its end.
    pub(crate) async fn run_job(&self, job: &Value, exit_status: &str) {
        let id = job["id"].as_str().unwrap();
        let (_, token) = self.start_job(id).await;
        self.finish_job(id, &token, exit_status).await.ok();
    }

    pub(crate) async fn upload(
        &self,
        job: &str,
        token: &str,
        uuid: &str,
        pipeline: Value,
    ) -> crate::harness::Answer {
        let body = json!({"uuid": uuid, "pipeline": pipeline});
        self.v3(Method::POST, &format!("jobs/{job}/pipelines"), token, Some(body)).await
    }
}

pub(crate) fn states(build: &Value) -> Vec<&str> {
    build["jobs"].as_array().unwrap().iter().map(|job| job["job_state"].as_str().unwrap()).collect()
}

const PARENT: &str = "
steps:
  - trigger: child
    label: Go
    build: {branch: side, env: {A: b}, meta_data: {k: v}}
  - wait
  - {label: after, command: x}
";

#[tokio::test]
async fn a_trigger_follows_its_build() {
    for (exit_status, expected) in [("0", "passed"), ("1", "failed")] {
        let rig = Rig::start().await;
        rig.pipeline("child", "steps: [{label: inner, command: 'x $BUILDKITE_BRANCH'}]").await;
        rig.pipeline("parent", PARENT).await;
        let parent = rig.start_build("parent", json!({})).await;
        assert_eq!(states(&parent), ["running", "waiting", "waiting"]);
        assert_eq!(parent["state"], "running");
        let child = rig.shown("child", 1).await;
        assert_eq!(parent["jobs"][0]["triggered_build"]["id"], child["id"]);
        assert_eq!((&child["source"], &child["message"]), (&json!("trigger_job"), &json!("Go")));
        assert_eq!((&child["branch"], &child["env"]), (&json!("side"), &json!({"A": "b"})));
        let job = &child["jobs"][0];
        assert_eq!(job["command"], "x side");
        let access = rig.agent().await;
        let path = format!("jobs/{}/acquire", job["id"].as_str().unwrap());
        let env = rig.v3(Method::PUT, &path, &access, None).await.ok()["env"].clone();
        assert_eq!(env["BUILDKITE_TRIGGERED_FROM_BUILD_ID"], parent["id"]);
        assert_eq!(env["BUILDKITE_TRIGGERED_FROM_BUILD_PIPELINE_SLUG"], "parent");
        let token =
            rig.v3(Method::PUT, &path, &access, None).await.ok()["token"].as_str().unwrap().to_owned();
        rig.finish_job(job["id"].as_str().unwrap(), &token, exit_status).await.ok();
        let parent = rig.shown("parent", 1).await;
        assert_eq!(parent["jobs"][0]["state"], expected);
        let after = if exit_status == "0" { "scheduled" } else { "waiting_failed" };
        assert_eq!(parent["jobs"][2]["state"], after);
    }
}

#[tokio::test]
async fn an_async_trigger_does_not_wait_and_soft_failures_are_forgiven() {
    let rig = Rig::start().await;
    rig.pipeline("child", "steps: [{command: x}]").await;
    let yaml = "steps: [{trigger: child, async: true}, {trigger: child, soft_fail: true, parallelism: 2}]";
    rig.pipeline("parent", yaml).await;
    let parent = rig.start_build("parent", json!({})).await;
    assert_eq!(states(&parent), ["finished", "running", "running"]);
    for number in 1..=3 {
        let child = rig.shown("child", number).await;
        rig.run_job(&child["jobs"][0], "3").await;
    }
    assert_eq!(rig.shown("parent", 1).await["state"], "passed");
}

#[tokio::test]
async fn cancelling_goes_down_and_the_end_comes_up() {
    let rig = Rig::start().await;
    rig.pipeline("child", "steps: [{label: one, command: x}, {label: two, command: x}]").await;
    rig.pipeline("parent", PARENT).await;
    rig.start_build("parent", json!({})).await;
    let child = rig.shown("child", 1).await;
    let running = child["jobs"][0]["id"].as_str().unwrap();
    let (_, token) = rig.start_job(running).await;
    let parent = rig.v2(Method::PUT, "pipelines/parent/builds/1/cancel", None).await.ok();
    assert_eq!(states(&parent), ["canceling", "canceled", "canceled"]);
    assert_eq!(states(&rig.shown("child", 1).await), ["canceling", "canceled"]);
    rig.finish_job(running, &token, "-1").await.ok();
    assert_eq!(rig.shown("child", 1).await["state"], "canceled");
    assert_eq!(rig.shown("parent", 1).await["state"], "canceled");
}

#[tokio::test]
async fn a_pipeline_cannot_trigger_itself_for_ever() {
    let rig = Rig::start().await;
    rig.pipeline("loop", "steps: [{command: x}]").await;
    let body = json!({"configuration": "steps: [{trigger: loop}, {trigger: loop, async: true}]"});
    rig.v2(Method::PATCH, "pipelines/loop", Some(body)).await.ok();
    let first = rig.start_build("loop", json!({})).await;
    assert_eq!(first["state"], "failed");
    let all = rig.v2(Method::GET, "pipelines/loop/builds?per_page=100", None).await.ok();
    assert!(all.as_array().unwrap().iter().all(|build| build["state"] != "running"));
    rig.pipeline("gone", "steps: [{trigger: nowhere}]").await;
    let message = rig.v2(Method::POST, "pipelines/gone/builds", Some(json!({}))).await.refused(422);
    assert!(message.contains("steps[0].trigger: there is no pipeline \"nowhere\" to trigger"), "{message}");
}

#[tokio::test]
async fn a_build_that_ends_at_once_lets_its_trigger_go_on() {
    let rig = Rig::start().await;
    rig.pipeline("child", "steps: [{command: x, skip: true}]").await;
    rig.pipeline("parent", PARENT).await;
    let parent = rig.start_build("parent", json!({})).await;
    assert_eq!(states(&parent), ["finished", "finished", "scheduled"]);
}

#[tokio::test]
async fn a_concurrency_group_holds_over_all_builds() {
    let rig = Rig::start().await;
    let yaml = "steps: [{label: a, command: x, concurrency: 1, concurrency_group: g}]";
    rig.pipeline("one", yaml).await;
    rig.pipeline("two", yaml).await;
    rig.start_build("one", json!({})).await;
    rig.start_build("two", json!({})).await;
    rig.start_build("one", json!({})).await;
    let (first, second) = (rig.shown("one", 1).await, rig.shown("two", 1).await);
    assert_eq!((states(&first), states(&second)), (vec!["scheduled"], vec!["limited"]));
    assert_eq!(second["jobs"][0]["state"], "scheduled");
    let access = rig.agent().await;
    let path = format!("jobs/{}/acquire", second["jobs"][0]["id"].as_str().unwrap());
    rig.v3(Method::PUT, &path, &access, None).await.refused(423);
    rig.run_job(&first["jobs"][0], "0").await;
    assert_eq!(states(&rig.shown("two", 1).await), ["scheduled"]);
    assert_eq!(states(&rig.shown("one", 2).await), ["limited"]);
    rig.v2(Method::PUT, "pipelines/two/builds/1/cancel", None).await.ok();
    assert_eq!(states(&rig.shown("one", 2).await), ["scheduled"]);
}

#[tokio::test]
async fn a_matrix_job_has_its_own_values_and_the_agent_the_written_step() {
    let rig = Rig::start().await;
    let build = rig
        .build("steps: [{label: 'on {{matrix}}', command: 'x {{matrix}}', agents: {queue: '{{matrix}}'}, matrix: [a, b], secrets: [S], cache: {paths: [p]}}]")
        .await;
    let names: Vec<_> =
        build["jobs"].as_array().unwrap().iter().map(|job| job["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["on a", "on b"]);
    let job = &build["jobs"][1];
    assert_eq!((&job["command"], &job["agent_query_rules"]), (&json!("x b"), &json!(["queue=b"])));
    let access = rig.agent().await;
    let path = format!("jobs/{}/acquire", job["id"].as_str().unwrap());
    let taken = rig.v3(Method::PUT, &path, &access, None).await.ok();
    assert_eq!(
        (&taken["env"]["BUILDKITE_COMMAND"], &taken["env"]["BUILDKITE_LABEL"]),
        (&json!("x b"), &json!("on b"))
    );
    assert_eq!(taken["matrix_permutation"], json!({"": "b"}));
    assert_eq!(
        (&taken["step"]["command"], &taken["step"]["matrix"]),
        (&json!("x {{matrix}}"), &json!(["a", "b"]))
    );
    assert_eq!(taken["step"]["secrets"], json!([{"key": "S", "environment_variable": "S"}]));
    assert_eq!(taken["step"]["cache"], json!({"paths": ["p"]}));
}

#[tokio::test]
async fn filters_are_decided_when_a_step_is_created() {
    let rig = Rig::start().await;
    let yaml = "
steps:
  - {label: main, command: x, if: build.branch == 'main' && build.env('DEPLOY') == 'yes'}
  - {label: side, command: x, branches: 'side !main'}
  - {label: org, command: x, if: organization.slug == 'local' && pipeline.slug == 'demo'}
";
    rig.pipeline("demo", yaml).await;
    let build = rig.start_build("demo", json!({"env": {"DEPLOY": "yes"}})).await;
    assert_eq!(states(&build), ["scheduled", "broken", "scheduled"]);
    let build = rig.start_build("demo", json!({"branch": "side"})).await;
    assert_eq!(states(&build), ["broken", "scheduled", "scheduled"]);
}

#[tokio::test]
async fn uploads_are_inserted_once_in_their_place() {
    let rig = Rig::start().await;
    rig.build("steps: [{label: up, command: x}, {label: last, command: x}]").await;
    let id = rig.job_id("up").await;
    let (_, token) = rig.start_job(&id).await;
    let one = json!({"steps": [{"command": "x", "label": "one"}], "env": {"FROM": "upload"}});
    for _ in 0..2 {
        rig.upload(&id, &token, "u1", one.clone()).await.ok();
    }
    let two = json!({"steps": [{"command": "x", "label": "two", "if": "build.env('FROM') == 'upload'"}]});
    rig.upload(&id, &token, "u2", two).await.ok();
    let build = rig.current().await;
    let names: Vec<_> =
        build["jobs"].as_array().unwrap().iter().map(|job| job["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["up", "two", "one", "last"]);
    assert_eq!(states(&build), ["running", "waiting", "waiting", "scheduled"]);
    let status = rig.v3(Method::GET, &format!("jobs/{id}/pipelines/u1"), &token, None).await.ok();
    assert_eq!(status["state"], "applied");
    for (pipeline, expected) in [
        (
            json!({"steps": [{"command": "x", "matrix": {"setup": {"os": [{}]}}}]}),
            "steps[0].matrix.setup.os[0]: a matrix value must be",
        ),
        (
            json!({"steps": ["wait", {"command": "x", "labell": "y"}]}),
            "steps[1].labell: unknown attribute labell; did you mean label?",
        ),
        (json!({"steps": [{"trigger": "nowhere"}]}), "steps[0].trigger: there is no pipeline"),
        (json!({"steps": [{"command": "x", "parallelism": 501}]}), "501 jobs; at most 500"),
        (json!("steps"), "a pipeline must be a map with steps"),
    ] {
        let message = rig.upload(&id, &token, "bad", pipeline).await.refused(422);
        assert!(message.contains(expected), "{message}");
    }
    let replace =
        json!({"uuid": "u3", "replace": true, "pipeline": {"steps": [{"command": "x", "label": "new"}]}});
    rig.v3(Method::POST, &format!("jobs/{id}/pipelines"), &token, Some(replace)).await.ok();
    let build = rig.current().await;
    let names: Vec<_> =
        build["jobs"].as_array().unwrap().iter().map(|job| job["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["up", "new", "last"], "last is scheduled already");
    rig.finish_job(&id, &token, "0").await.ok();
    let late = rig.upload(&id, &token, "late", json!({"steps": []})).await;
    assert!(late.status.is_client_error(), "{}", late.body);
}

#[tokio::test]
async fn an_answered_block_tells_who_and_keeps_the_answers() {
    let rig = Rig::start().await;
    let yaml = "
steps:
  - {block: Go, label: gate, fields: [{select: Where, key: where, options: [here, there], default: here}]}
  - {label: after, command: x}
";
    rig.build(yaml).await;
    let path = format!("jobs/{}/unblock", rig.job_id("gate").await);
    let message = rig.v2(Method::PUT, &path, Some(json!({"fields": {"where": "away"}}))).await.refused(422);
    assert!(message.contains("\"away\" is no option of \"where\"; there are here, there"), "{message}");
    assert_eq!(rig.job("gate").await["job_state"], "blocked");
    rig.v2(Method::PUT, &path, Some(json!({}))).await.ok();
    let access = rig.agent().await;
    let after = rig.job_id("after").await;
    let acquired = rig.v3(Method::PUT, &format!("jobs/{after}/acquire"), &access, None).await.ok();
    assert_eq!(acquired["env"]["BUILDKITE_UNBLOCKER"], "Local User");
    let token = acquired["token"].as_str().unwrap();
    let value = rig
        .v3(Method::POST, &format!("jobs/{after}/data/get"), token, Some(json!({"key": "where"})))
        .await
        .ok();
    assert_eq!(value["value"], "here");
}
