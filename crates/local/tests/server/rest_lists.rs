//! The REST API beyond single builds: lists, agents, artifacts, clusters, the account.

use std::collections::BTreeSet;

use reqwest::Method;
use serde_json::{Value, json};

use crate::harness::{API, REGISTRATION, Rig};

const ONE: &str = "steps: [{label: one, command: x}]";

fn numbers(list: &Value) -> Vec<i64> {
    list.as_array().unwrap().iter().map(|build| build["number"].as_i64().unwrap()).collect()
}

impl Rig {
    async fn more(&self, body: Value) -> Value {
        self.v2(Method::POST, "pipelines/demo/builds", Some(body)).await.ok()
    }

    async fn listed(&self, path: &str) -> Value {
        self.v2(Method::GET, path, None).await.ok()
    }
}

#[tokio::test]
async fn builds_come_in_pages_that_name_the_next() {
    let rig = Rig::start().await;
    rig.build(ONE).await;
    for _ in 0..4 {
        rig.more(json!({})).await;
    }
    let first = rig.v2(Method::GET, "pipelines/demo/builds?per_page=2", None).await;
    let link = first.headers["link"].to_str().unwrap().to_owned();
    assert_eq!(numbers(&first.ok()), [5, 4]);
    let next = link.split('<').nth(1).and_then(|rest| rest.split('>').next()).unwrap();
    let path = next.strip_prefix(&rig.root).unwrap();
    let second = rig.send(rig.request(Method::GET, path).bearer_auth(API)).await;
    assert!(second.headers["link"].to_str().unwrap().contains("rel=\"prev\""));
    assert_eq!(numbers(&second.ok()), [3, 2]);
    assert_eq!(numbers(&rig.listed("pipelines/demo/builds?page=9").await), Vec::<i64>::new());
    rig.v2(Method::GET, "pipelines/demo/builds?page=0", None).await.refused(400);
}

#[tokio::test]
async fn builds_are_found_by_what_they_are() {
    let rig = Rig::start().await;
    rig.build(ONE).await;
    rig.more(json!({"branch": "other", "commit": "abc", "meta_data": {"release": "1.0"}})).await;
    rig.v2(Method::PUT, "pipelines/demo/builds/1/cancel", None).await.ok();
    let found = async |query: &str| numbers(&rig.listed(&format!("builds?{query}")).await);
    assert_eq!(found("").await, [2, 1]);
    assert_eq!(found("state=canceled").await, [1]);
    assert_eq!(found("state[]=canceled&state[]=scheduled").await, [2, 1]);
    assert_eq!(found("state=finished").await, [1]);
    assert_eq!(found("branch=other").await, [2]);
    assert_eq!(found("commit=abc&branch=main").await, Vec::<i64>::new());
    assert_eq!(found("meta_data[release]=1.0").await, [2]);
    assert_eq!(found("created_from=2999-01-01T00:00:00Z").await, Vec::<i64>::new());
    let all = rig.send(rig.request(Method::GET, "/v2/builds").bearer_auth(API)).await.ok();
    assert_eq!(numbers(&all), [2, 1]);
    let lean = rig.listed("builds?exclude_jobs=true&exclude_pipeline=true").await;
    assert!(lean[0].get("jobs").is_none() && lean[0].get("pipeline").is_none());
    let id = all[0]["id"].as_str().unwrap();
    assert_eq!(rig.listed(&format!("builds/{id}")).await["number"], 2);
    rig.v2(Method::GET, "builds?state=tired", None).await.refused(400);
}

#[tokio::test]
async fn jobs_are_listed_by_state_and_without_those_that_were_retried() {
    let rig = Rig::start().await;
    rig.build("steps: [{label: one, key: k, command: x}, {label: two, command: y}]").await;
    let id = rig.job_id("one").await;
    let (_, token) = rig.start_job(&id).await;
    rig.finish_job(&id, &token, "1").await.ok();
    rig.v2(Method::PUT, &format!("jobs/{id}/retry"), None).await.ok();
    let jobs = "pipelines/demo/builds/1/jobs";
    let count = async |query: &str| rig.listed(&format!("{jobs}?{query}")).await.as_array().unwrap().len();
    assert_eq!(count("").await, 2);
    assert_eq!(count("include_retried_jobs=true").await, 3);
    assert_eq!(count("include_retried_jobs=true&state[]=failed").await, 1);
    assert_eq!(count("step_key=k").await, 1);
    let one = rig.listed(&format!("{jobs}/{id}")).await;
    assert_eq!((&one["retried"], &one["state"]), (&json!(true), &json!("failed")));
    assert_eq!(one, rig.listed(&format!("jobs/{id}")).await);
    let next = one["retried_in_job_id"].as_str().unwrap();
    let env = rig.listed(&format!("jobs/{next}/env")).await;
    assert_eq!(
        (&env["env"]["BUILDKITE_RETRY_COUNT"], &env["env"]["BUILDKITE_STEP_KEY"]),
        (&json!("1"), &json!("k"))
    );
}

#[tokio::test]
async fn a_build_is_shown_as_the_hosted_service_shows_it() {
    let rig = Rig::start().await;
    rig.build(ONE).await;
    let asked = json!({
        "commit": "abc", "branch": "b", "message": "m", "author": {"name": "Ada", "email": "ada@example.com"},
        "env": {"A": "1"}, "meta_data": {"k": "v"}, "pull_request_id": 7, "pull_request_base_branch": "main",
        "pull_request_repository": "https://git.local/fork.git",
    });
    let build = rig.more(asked).await;
    let rebuilt = rig.v2(Method::PUT, "pipelines/demo/builds/2/rebuild", None).await.ok();
    assert_eq!(rebuilt["rebuilt_from"]["id"], build["id"]);
    assert_eq!(rebuilt["pull_request"], build["pull_request"]);
    insta::with_settings!({filters => vec![
        (r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", "[id]"),
        (r#""[A-Za-z0-9+/]{40,}={0,2}""#, "\"[graphql id]\""),
        (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", "[time]"),
        (r"127\.0\.0\.1:\d+", "[host]"),
    ]}, {
        insta::assert_json_snapshot!(build);
    });
}

#[tokio::test]
async fn logs_come_as_json_text_and_html() {
    let rig = Rig::start().await;
    rig.build(ONE).await;
    let id = rig.job_id("one").await;
    let (_, token) = rig.start_job(&id).await;
    rig.chunk(&id, &token, 1, 0, b"\x1b_bk;t=1700000000000\x07a <b> \x1b[31mred\x1b[0m\r\n").await.ok();
    rig.finish_job(&id, &token, "0").await.ok();
    let raw = "\u{1b}_bk;t=1700000000000\u{7}a <b> \u{1b}[31mred\u{1b}[0m\r\n";
    let json = rig.listed(&format!("jobs/{id}/log")).await;
    assert_eq!((&json["content"], &json["size"]), (&json!(raw), &json!(raw.len())));
    assert!(json["url"].as_str().unwrap().ends_with(&format!("jobs/{id}/log")));
    let path = format!("/v2/organizations/local/pipelines/demo/builds/1/jobs/{id}/log");
    let text = rig.send(rig.request(Method::GET, &format!("{path}.txt")).bearer_auth(API)).await;
    assert_eq!(
        (&text.headers["content-type"], &text.body),
        (&"text/plain; charset=utf-8".parse().unwrap(), &json!(raw))
    );
    let accepted = rig.request(Method::GET, &path).bearer_auth(API).header("Accept", "text/plain");
    assert_eq!(rig.send(accepted).await.ok(), json!(raw));
    let html = rig.send(rig.request(Method::GET, &format!("{path}.html")).bearer_auth(API)).await.ok();
    assert!(html.as_str().unwrap().contains("a &lt;b&gt;"), "{html}");
    rig.v2(Method::GET, &format!("jobs/{id}/log?offset=-1"), None).await.refused(400);
}

#[tokio::test]
async fn a_long_log_comes_whole_as_text() {
    let rig = Rig::start().await;
    rig.build(ONE).await;
    let id = rig.job_id("one").await;
    let (_, token) = rig.start_job(&id).await;
    let mut whole = String::new();
    for sequence in 0..30_u32 {
        let piece = format!("{sequence} {}\n", "x".repeat(90_000));
        rig.chunk(&id, &token, sequence + 1, whole.len(), piece.as_bytes()).await.ok();
        whole.push_str(&piece);
    }
    rig.finish_job(&id, &token, "0").await.ok();
    let path = format!("/v2/organizations/local/jobs/{id}/log.txt");
    let text = rig.send(rig.request(Method::GET, &path).bearer_auth(API)).await.ok();
    assert!(text == json!(whole), "{} bytes came", text.as_str().unwrap().len());
}

#[tokio::test]
async fn agents_are_listed_stopped_and_paused() {
    let rig = Rig::start().await;
    rig.build(ONE).await;
    let id = rig.job_id("one").await;
    let (access, _) = rig.start_job(&id).await;
    let agents = rig.listed("agents").await;
    let agent = &agents[0];
    assert_eq!((&agent["job"]["id"], &agent["connection_state"]), (&json!(id), &json!("connected")));
    assert_eq!(agent["meta_data"], json!(["queue=default"]));
    assert!(agent.get("access_token").is_none());
    let path = format!("agents/{}", agent["id"].as_str().unwrap());
    rig.v2(Method::PUT, &format!("{path}/pause"), Some(json!({"note": "lunch"}))).await.ok();
    let paused = rig.listed(&path).await;
    assert_eq!((&paused["paused"], &paused["paused_note"]), (&json!(true), &json!("lunch")));
    assert_eq!(rig.v3(Method::GET, "ping", &access, None).await.ok()["action"], "pause");
    rig.v2(Method::PUT, &format!("{path}/resume"), None).await.ok();
    rig.v2(Method::PUT, &format!("{path}/pause"), Some(json!({"timeout_in_minutes": 0}))).await.refused(422);
    rig.v2(Method::PUT, &format!("{path}/stop"), Some(json!({"force": false}))).await.ok();
    assert_eq!(rig.listed(&path).await["connection_state"], "stopping");
    assert_eq!(rig.job("one").await["state"], "running");
    rig.v2(Method::PUT, &format!("{path}/stop"), None).await.ok();
    assert_eq!(rig.job("one").await["state"], "canceling");
    assert_eq!(rig.listed("agents?name=nobody").await, json!([]));
    rig.v2(Method::PUT, "agents/00000000-0000-0000-0000-000000000000/stop", None).await.refused(404);
}

#[tokio::test]
async fn queues_are_made_paused_and_deleted() {
    let rig = Rig::start().await;
    let clusters = rig.listed("clusters").await;
    let cluster = clusters[0]["id"].as_str().unwrap();
    let path = format!("clusters/{cluster}/queues");
    let made = rig.v2(Method::POST, &path, Some(json!({"key": "big"}))).await;
    assert_eq!(made.status, 201);
    let queue = format!("{path}/{}", made.body["id"].as_str().unwrap());
    rig.v2(Method::POST, &path, Some(json!({"key": "big"}))).await.refused(422);
    let keys = |list: Value| -> BTreeSet<String> {
        list.as_array().unwrap().iter().map(|queue| queue["key"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(keys(rig.listed(&path).await), ["big", "default"].map(str::to_owned).into());
    rig.v2(Method::POST, &format!("{queue}/pause_dispatch"), None).await.ok();
    assert_eq!(rig.listed(&queue).await["dispatch_paused"], true);
    rig.v2(Method::POST, &format!("{queue}/resume_dispatch"), None).await.ok();
    assert_eq!(rig.listed(&queue).await["dispatch_paused"], false);
    rig.build("steps: [{label: one, command: x, agents: {queue: big}}]").await;
    rig.v2(Method::DELETE, &queue, None).await.refused(422);
    rig.v2(Method::PUT, "pipelines/demo/builds/1/cancel", None).await.ok();
    assert_eq!(rig.v2(Method::DELETE, &queue, None).await.status, 204);
    assert_eq!(keys(rig.listed(&path).await), ["default"].map(str::to_owned).into());
    rig.v2(Method::POST, &path, Some(json!({"key": "no spaces"}))).await.refused(422);
    rig.v2(Method::GET, "clusters/other/queues", None).await.refused(404);
}

#[tokio::test]
async fn artifacts_are_listed_downloaded_and_deleted() {
    let rig = Rig::start().await;
    rig.build(ONE).await;
    let id = rig.job_id("one").await;
    let (_, token) = rig.start_job(&id).await;
    let batch = json!({"id": "b", "artifacts": [{
        "path": "out/report.txt", "absolute_path": "/build/out/report.txt", "glob_path": "out/*",
        "file_size": 5, "sha1sum": "aaf4c61ddcc5e8a2dabede0f3b482cd9aea9434d", "content_type": "text/plain",
    }]});
    let made = rig.v3(Method::POST, &format!("jobs/{id}/artifacts"), &token, Some(batch)).await.ok();
    let artifact = made["artifact_ids"][0].as_str().unwrap();
    let action = &made["per_artifact_instructions"][artifact]["action"];
    let path = action["path"].as_str().unwrap();
    let form =
        "--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"r\"\r\n\r\nhello\r\n--b--\r\n";
    let sent =
        rig.request(Method::POST, path).header("Content-Type", "multipart/form-data; boundary=b").body(form);
    assert!(rig.send(sent).await.status.is_success());
    let address = format!("pipelines/demo/builds/1/artifacts/{artifact}");
    rig.v2(Method::GET, &format!("{address}/download"), None).await.refused(404);
    let done = json!({"artifacts": [{"id": artifact, "state": "finished"}]});
    rig.v3(Method::PUT, &format!("jobs/{id}/artifacts"), &token, Some(done)).await.ok();
    let listed = rig.listed("pipelines/demo/builds/1/artifacts").await;
    assert_eq!((&listed[0]["filename"], &listed[0]["dirname"]), (&json!("report.txt"), &json!("out")));
    assert_eq!((&listed[0]["state"], &listed[0]["file_size"]), (&json!("finished"), &json!(5)));
    assert_eq!(listed, rig.listed(&format!("jobs/{id}/artifacts")).await);
    let url = listed[0]["download_url"].as_str().unwrap();
    let download = rig.request(Method::GET, url.strip_prefix(&rig.root).unwrap()).bearer_auth(API);
    assert_eq!(rig.send(download).await.ok(), json!("hello"), "the redirection leads to the bytes");
    assert_eq!(rig.v2(Method::DELETE, &address, None).await.status, 204);
    rig.v2(Method::GET, &address, None).await.refused(404);
    assert_eq!(rig.listed("pipelines/demo/builds/1/artifacts").await, json!([]));
}

#[tokio::test]
async fn the_token_says_who_it_is() {
    let rig = Rig::start().await;
    let get = async |path: &str| rig.send(rig.request(Method::GET, path).bearer_auth(API)).await;
    assert_eq!(get("/v2/user").await.ok()["name"], "local");
    let token = get("/v2/access-token").await.ok();
    assert!(token["scopes"].as_array().unwrap().contains(&json!("write_builds")));
    assert_eq!(get("/v2/access-token").await.ok()["uuid"], token["uuid"]);
    let organizations = get("/v2/organizations").await.ok();
    assert_eq!(organizations[0]["slug"], "local");
    assert_eq!(get("/v2/organizations/local").await.ok(), organizations[0]);
    get("/v2/organizations/other").await.refused(404);
    get("/v2/nothing").await.refused(404);
    let refused = rig.send(rig.request(Method::GET, "/v2/user").bearer_auth(REGISTRATION)).await.refused(401);
    assert!(refused.contains("the API token is needed"), "{refused}");
    rig.send(rig.request(Method::GET, "/v2/user")).await.refused(401);
}

#[tokio::test]
async fn pipelines_are_checked_and_deleted() {
    let rig = Rig::start().await;
    let empty = rig.v2(Method::POST, "pipelines", Some(json!({"name": "!"}))).await;
    let fields: Vec<_> =
        empty.body["errors"].as_array().unwrap().iter().map(|error| error["field"].clone()).collect();
    assert_eq!(fields, ["name", "repository", "configuration"]);
    let message = empty.refused(422);
    assert!(message.starts_with("Validation failed: name needs"), "{message}");
    rig.build(ONE).await;
    let id = rig.job_id("one").await;
    let (_, token) = rig.start_job(&id).await;
    rig.chunk(&id, &token, 1, 0, b"x\n").await.ok();
    assert_eq!(rig.v2(Method::DELETE, "pipelines/demo", None).await.status, 204);
    rig.v2(Method::GET, "pipelines/demo", None).await.refused(404);
    rig.v2(Method::GET, &format!("jobs/{id}"), None).await.refused(404);
    assert_eq!(rig.listed("builds").await, json!([]));
}
