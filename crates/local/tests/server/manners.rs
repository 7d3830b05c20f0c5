//! Requests that are wrong in themselves: whatever comes, the answer is JSON with a message.

use reqwest::Method;
use rstest::rstest;
use serde_json::json;

use crate::harness::{API, REGISTRATION, Rig};

#[rstest]
#[case::unknown_path(Method::GET, "/v3/nowhere", 404)]
#[case::unknown_root(Method::GET, "/nowhere/at/all/here", 404)]
#[case::stream(Method::POST, "/agentedge.v1.AgentEdgeService/StreamPings", 404)]
#[case::wrong_method(Method::DELETE, "/v3/ping", 405)]
#[case::wrong_method_of_a_stack(Method::DELETE, "/v3/stacks/mine/scheduled-jobs", 405)]
#[case::wrong_method_of_a_job(Method::POST, "/v3/jobs/x/acquire", 405)]
#[case::path_of_no_characters(Method::POST, "/v3/stacks/%FF/deregister", 400)]
#[case::job_of_no_characters(Method::GET, "/-/jobs/%FF", 400)]
#[case::page_of_no_characters(Method::GET, "/local/%FF", 400)]
#[case::artifact_of_no_characters(Method::GET, "/_artifacts/%FF/download/x", 400)]
#[case::part_of_no_number(Method::PUT, "/_artifacts/x/parts/first/x", 400)]
#[case::traversal(Method::GET, "/v3/stacks/%2E%2E%2F%2E%2E/jobs/x", 404)]
#[tokio::test]
async fn odd_paths_and_methods(#[case] method: Method, #[case] path: &str, #[case] status: u16) {
    let rig = Rig::start().await;
    let auth = format!("Token {REGISTRATION}");
    rig.send(rig.request(method, path).header("Authorization", auth)).await.refused(status);
}

#[rstest]
#[case::no_json("register", "application/json", "{", 400)]
#[case::half_a_string("register", "application/json", "\"", 400)]
#[case::another_shape("register", "application/json", "[]", 422)]
#[case::another_type("register", "application/json", r#"{"meta_data": "queue=default"}"#, 422)]
#[case::a_form("register", "application/x-www-form-urlencoded", "name=x", 415)]
#[case::no_type("register", "", "{}", 415)]
#[case::with_a_charset("register", "application/json; charset=utf-8", "{}", 200)]
#[case::a_stack_as_a_form("stacks/register", "text/plain", "{}", 415)]
#[case::deep_nonsense("stacks/register", "application/json", "[[[[[[[[", 400)]
#[tokio::test]
async fn odd_bodies(#[case] path: &str, #[case] kind: &str, #[case] body: &'static str, #[case] status: u16) {
    let rig = Rig::start().await;
    let mut request = rig
        .request(Method::POST, &format!("/v3/{path}"))
        .header("Authorization", format!("Token {REGISTRATION}"))
        .body(body);
    if !kind.is_empty() {
        request = request.header("Content-Type", kind);
    }
    let answer = rig.send(request).await;
    assert_eq!(answer.status, status, "{}", answer.body);
    assert!(status == 200 || answer.body["message"].is_string(), "{}", answer.body);
}

#[tokio::test]
async fn bodies_that_are_too_large_are_refused() {
    let rig = Rig::start().await;
    let note = "x".repeat(17 * 1024 * 1024);
    let access = rig.agent().await;
    rig.v3(Method::POST, "pause", &access, Some(json!({"note": note}))).await.refused(413);
}

#[rstest]
#[case::none("")]
#[case::only_a_scheme("Token")]
#[case::an_empty_token("Token ")]
#[case::another_scheme("Bearer local-agent-token")]
#[case::basic("Basic bG9jYWwtYWdlbnQtdG9rZW4=")]
#[case::a_longer_token("Token local-agent-token2")]
#[tokio::test]
async fn wrong_credentials_are_refused(#[case] authorization: &str) {
    let rig = Rig::start().await;
    for (method, path) in [
        (Method::GET, "token"),
        (Method::GET, "metrics"),
        (Method::GET, "ping"),
        (Method::POST, "register"),
        (Method::POST, "stop"),
        (Method::PUT, "jobs/0198f0a0-0000-4000-8000-00000000000a/acquire"),
        (Method::PUT, "jobs/0198f0a0-0000-4000-8000-00000000000a/accept"),
        (Method::GET, "jobs/0198f0a0-0000-4000-8000-00000000000a"),
        (Method::PUT, "jobs/0198f0a0-0000-4000-8000-00000000000a/promise_failure"),
        (Method::POST, "builds/0198f0a0-0000-4000-8000-00000000000a/cancel"),
        (Method::POST, "steps/x/export"),
        (Method::GET, "stacks/mine/scheduled-jobs?queue_key=default"),
        (Method::POST, "stacks/mine/deregister"),
    ] {
        let mut request = rig.request(method, &format!("/v3/{path}"));
        if !authorization.is_empty() {
            request = request.header("Authorization", authorization);
        }
        rig.send(request).await.refused(401);
    }
}

/// A page of another site can make its own name point here; a browser then lets it send what it likes.
#[rstest]
#[case::somebody_elses("evil.example:8384", 403)]
#[case::the_machines_own("localhost:8384", 200)]
#[case::from_a_container("host.docker.internal:8384", 200)]
#[case::an_address("10.0.0.7:8384", 200)]
#[tokio::test]
async fn tokens_that_everybody_knows_need_a_name_that_nobody_can_own(
    #[case] host: &str,
    #[case] status: u16,
) {
    let rig = Rig::start().await;
    for (path, token) in [
        ("/v3/token", format!("Token {REGISTRATION}")),
        ("/v2/organizations/local/builds", format!("Bearer {API}")),
    ] {
        let request = rig.request(Method::GET, path).header("Authorization", token).header("Host", host);
        let answer = rig.send(request).await;
        assert_eq!(answer.status, status, "{path}: {}", answer.body);
    }
}

#[tokio::test]
async fn tokens_of_ones_own_are_good_under_any_name() {
    let rig = Rig::with(|config| {
        config.agent_token = Some("mine".to_owned());
        config.api_token = Some("my-own".to_owned());
    })
    .await;
    for (path, token) in [("/v3/token", "Token mine"), ("/v2/organizations/local/builds", "Bearer my-own")] {
        let request = rig.request(Method::GET, path).header("Authorization", token);
        rig.send(request.header("Host", "ci.example")).await.ok();
    }
}

#[tokio::test]
async fn a_server_that_stops_does_not_wait_for_ever() {
    use tokio::io::AsyncWriteExt;

    let rig = Rig::start().await;
    let address = rig.root.strip_prefix("http://").unwrap();
    let mut slow = tokio::net::TcpStream::connect(address).await.unwrap();
    let head = format!(
        "POST /v3/register HTTP/1.1\r\nHost: {address}\r\nAuthorization: Token {REGISTRATION}\r\n\
         Content-Type: application/json\r\nContent-Length: 100\r\n\r\n{{"
    );
    slow.write_all(head.as_bytes()).await.unwrap();
    // Another answer shows that the first request has been taken up by then.
    rig.agent().await;
    tokio::time::timeout(std::time::Duration::from_secs(20), rig.stop()).await.unwrap();
}
