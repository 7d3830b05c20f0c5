//! A server in this process, the command as its users call it, and an agent that does what it is told.

use std::net::SocketAddr;
use std::path::Path;

use std::io::Write;

use assert_cmd::Command;
use buildkite_local::{Config, Server};
use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::json;

pub(crate) fn command() -> Command {
    let mut command = Command::cargo_bin("buildkite-local").unwrap();
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("BUILDKITE")) {
        command.env_remove(name);
    }
    command
}

pub(crate) fn one_line_error(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{text}");
    assert_eq!(text.lines().count(), 1, "{text}");
    text
}

pub(crate) fn pipeline(directory: &Path, yaml: &str) -> String {
    let file = directory.join("pipeline.yml");
    std::fs::write(&file, yaml).unwrap();
    file.to_str().unwrap().to_owned()
}

/// A server in this process, until the runtime ends.
pub(crate) async fn server() -> String {
    let config = Config { listen: SocketAddr::from(([127, 0, 0, 1], 0)), ..Config::default() };
    let server = Server::bind(config).await.unwrap();
    let url = format!("http://{}", server.local_addr());
    tokio::spawn(server.run(std::future::pending()));
    url
}

/// Plays an agent that prints a line and exits with `exit_status`, for the only scheduled job.
pub(crate) async fn play_agent(url: &str, log: &str, exit_status: &str) {
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
    let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
    packed.write_all(log.as_bytes()).unwrap();
    let chunk = http
        .post(format!("{url}/v3/jobs/{id}/chunks?sequence=1&offset=0&size={}", log.len()))
        .header("Authorization", format!("Token {token}"))
        .header("Content-Encoding", "gzip")
        .header("Content-Type", "text/plain")
        .body(packed.finish().unwrap());
    chunk.send().await.unwrap().error_for_status().unwrap();
    let body = json!({"exit_status": exit_status, "chunks_failed_count": 0});
    call("PUT", format!("jobs/{id}/finish"), token, body).await;
}

/// Runs the command against a server, off the test's own threads.
pub(crate) async fn run(url: &str, arguments: &[&str]) -> (i32, String, String) {
    let mut command = command();
    command.args(arguments).args(["--server", url]);
    let output = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}
