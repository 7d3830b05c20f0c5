//! The command line: what it prints and how it ends.
#![allow(clippy::unwrap_used, reason = "a test may fail where it stands")]

use std::net::SocketAddr;
use std::path::Path;

use assert_cmd::Command;
use buildkite_local::{Config, Server};
use serde_json::json;

fn command() -> Command {
    let mut command = Command::cargo_bin("buildkite-local").unwrap();
    for name in ["BUILDKITE_LOCAL_URL", "BUILDKITE_LOCAL_API_TOKEN", "BUILDKITE_LOCAL_AGENT_TOKEN"] {
        command.env_remove(name);
    }
    command
}

fn one_line_error(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{text}");
    assert_eq!(text.lines().count(), 1, "{text}");
    text
}

fn pipeline(directory: &Path, yaml: &str) -> String {
    let file = directory.join("pipeline.yml");
    std::fs::write(&file, yaml).unwrap();
    file.to_str().unwrap().to_owned()
}

/// A server in this process, until the runtime ends.
async fn server() -> String {
    let config = Config { listen: SocketAddr::from(([127, 0, 0, 1], 0)), ..Config::default() };
    let server = Server::bind(config).await.unwrap();
    let url = format!("http://{}", server.local_addr());
    tokio::spawn(server.run(std::future::pending()));
    url
}

#[test]
fn a_server_on_the_network_needs_tokens() {
    let error = one_line_error(command().args(["serve", "--listen", "0.0.0.0:0"]));
    assert!(error.contains("is not loopback, needs an agent token"), "{error}");
    let error = one_line_error(command().args(["serve", "--listen", "0.0.0.0:0", "--agent-token", "a"]));
    assert!(error.contains("needs an API token"), "{error}");
}

#[test]
fn errors_are_one_clear_line() {
    let error = one_line_error(command().args(["build", "none.yml", "--repo", "https://git.local/r.git"]));
    assert!(error.contains("cannot read the pipeline none.yml"), "{error}");
    let directory = tempfile::tempdir().unwrap();
    let file = pipeline(directory.path(), "steps: []");
    // Port 1 is reserved; nothing listens there.
    let error = one_line_error(command().args([
        "build",
        &file,
        "--repo",
        "https://git.local/r.git",
        "--server",
        "http://127.0.0.1:1",
    ]));
    assert!(error.contains("start one with `buildkite-local serve`"), "{error}");
    let error = one_line_error(command().args(["serve", "--database", directory.path().to_str().unwrap()]));
    assert!(error.contains("cannot open the database"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_pipeline_is_explained() {
    let url = server().await;
    let directory = tempfile::tempdir().unwrap();
    let file = pipeline(directory.path(), "steps:\n  - command: x\n    lable: y\n");
    let error = tokio::task::spawn_blocking(move || {
        one_line_error(command().args([
            "build",
            &file,
            "--repo",
            "https://git.local/r.git",
            "--server",
            &url,
        ]))
    })
    .await
    .unwrap();
    assert!(error.contains("line 3") && error.contains("did you mean label?"), "{error}");
}

/// Plays an agent that prints a line and exits with `exit_status`, for the only scheduled job.
async fn play_agent(url: &str, exit_status: &str) {
    let http = bk_ops::http::client("test", std::time::Duration::from_secs(5)).unwrap();
    let call = |method: &str, path: String, token: String, body: serde_json::Value| {
        let request = http.request(method.parse().unwrap(), format!("{url}/v3/{path}"));
        let request = request.header("Authorization", format!("Token {token}")).json(&body);
        async move {
            let response = request.send().await.unwrap().error_for_status().unwrap();
            response.json::<serde_json::Value>().await.unwrap()
        }
    };
    let registration = "local-agent-token".to_owned();
    let stack = json!({"key": "s", "type": "custom", "queue_key": "default", "metadata": {}});
    call("POST", "stacks/register".into(), registration.clone(), stack).await;
    let id = loop {
        let path = "stacks/s/scheduled-jobs?queue_key=default".to_owned();
        let page = call("GET", path, registration.clone(), json!({})).await;
        if let Some(id) = page["jobs"][0]["id"].as_str() {
            break id.to_owned();
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    };
    let agent = call("POST", "register".into(), registration, json!({"name": "robot"})).await;
    let access = agent["access_token"].as_str().unwrap().to_owned();
    let job = call("PUT", format!("jobs/{id}/acquire"), access, json!({})).await;
    let token = job["token"].as_str().unwrap().to_owned();
    call("PUT", format!("jobs/{id}/start"), token.clone(), json!({})).await;
    let body = json!({"exit_status": exit_status, "chunks_failed_count": 0});
    call("PUT", format!("jobs/{id}/finish"), token, body).await;
}

#[rstest::rstest]
#[case("0", 0, "build #1: passed")]
#[case("3", 1, "one: failed with exit status 3")]
#[tokio::test(flavor = "multi_thread")]
async fn watching_ends_with_the_result(#[case] exit_status: &str, #[case] code: i32, #[case] line: &str) {
    let url = server().await;
    let directory = tempfile::tempdir().unwrap();
    let file = pipeline(directory.path(), "steps: [{label: one, command: x}]");
    let watched = {
        let url = url.clone();
        tokio::task::spawn_blocking(move || {
            command()
                .args(["build", &file, "--repo", "https://git.local/r.git", "--server", &url, "--watch"])
                .output()
                .unwrap()
        })
    };
    play_agent(&url, exit_status).await;
    let output = watched.await.unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(code), "{text}");
    assert!(text.lines().any(|printed| printed == line), "{text}");
    assert!(!text.contains('\u{1b}'), "colours in a pipe: {text}");
}
