//! What an agent does that takes a job only to end it.

use std::io::Read;

use bk_buildkite::{Credentials, StandIn, TokenKind, session::Finished, stacks::FinishJob};
use flate2::read::GzDecoder;
use rstest::rstest;
use serde_json::{Value, json};
use uuid::Uuid;
use wiremock::{
    Mock, MockServer, Request, ResponseTemplate,
    matchers::{method, path, path_regex},
};

use super::TOKEN;

const JOB: Uuid = Uuid::from_u128(0x0198_f0a0_0000_7000_8000_0000_0000_0001);

/// A service that lets an agent register, and answers calls about the job with these statuses.
async fn service(acquire: u16, start: u16, finish: u16) -> MockServer {
    let server = MockServer::start().await;
    let agent = json!({"id": "a", "name": "n", "access_token": "bkaa", "ping_interval": 1, "job_status_interval": 1, "heartbeat_interval": 1});
    let job = json!({"id": JOB, "state": "accepted", "env": {}, "token": "bkaj", "chunks_max_size_bytes": 1, "chunks_interval_seconds": 1,
        "log_max_size_bytes": 1});
    for (verb, route, status, body) in [
        ("POST", "/v3/register".to_owned(), 200, agent),
        ("PUT", format!("/v3/jobs/{JOB}/acquire"), acquire, job),
        ("PUT", format!("/v3/jobs/{JOB}/start"), start, json!({})),
        ("PUT", format!("/v3/jobs/{JOB}/finish"), finish, json!({})),
    ] {
        let answer = ResponseTemplate::new(status).set_body_json(body);
        Mock::given(method(verb)).and(path(route)).respond_with(answer).mount(&server).await;
    }
    let rest = path_regex("^/v3/(connect|disconnect|jobs/.*/chunks)$");
    Mock::given(method("POST")).and(rest).respond_with(ResponseTemplate::new(200)).mount(&server).await;
    server
}

async fn end(server: &MockServer) -> Result<Finished, bk_buildkite::Error> {
    let credentials = Credentials::new(TokenKind::Agent, &TOKEN.into()).expect("a good token");
    let stand_in =
        StandIn::new(&format!("{}/v3", server.uri()), credentials, "test/1.2").expect("a good endpoint");
    let end = FinishJob { exit_status: -1, detail: "no such image\nlook there".to_owned() };
    stand_in.end("linux", JOB, &end).await
}

/// What was called, with the token.
async fn calls(server: &MockServer) -> Vec<String> {
    let requests = server.received_requests().await.expect("requests are recorded");
    let short = |request: &Request| {
        let token = request.headers["authorization"].to_str().expect("tokens are text").to_owned();
        format!("{} by {token}", request.url.path().rsplit('/').next().expect("a path has a last part"))
    };
    requests.iter().map(short).collect()
}

async fn body(server: &MockServer, call: &str) -> Vec<u8> {
    let requests = server.received_requests().await.expect("requests are recorded");
    requests.into_iter().find(|request| request.url.path().ends_with(call)).expect("the call was made").body
}

#[tokio::test]
async fn the_job_is_taken_explained_and_ended() {
    let server = service(200, 200, 200).await;
    assert_eq!(end(&server).await.unwrap(), Finished::Now);
    let expected = [
        format!("register by Token {TOKEN}"),
        "connect by Token bkaa".to_owned(),
        "acquire by Token bkaa".to_owned(),
        "start by Token bkaj".to_owned(),
        "chunks by Token bkaj".to_owned(),
        "finish by Token bkaj".to_owned(),
        "disconnect by Token bkaa".to_owned(),
    ];
    assert_eq!(calls(&server).await, expected);
    let registered: Value = serde_json::from_slice(&body(&server, "register").await).unwrap();
    assert_eq!((&registered["ignore_in_dispatches"], &registered["version"]), (&json!(true), &json!("1.2")));
    assert_eq!(registered["meta_data"], json!(["queue=linux"]));
    let mut log = String::new();
    GzDecoder::new(&body(&server, "chunks").await[..]).read_to_string(&mut log).unwrap();
    assert_eq!(log, "+++ The job cannot run\r\nno such image\r\nlook there\r\n");
    let finished: Value = serde_json::from_slice(&body(&server, "finish").await).unwrap();
    assert_eq!((&finished["exit_status"], &finished["signal_reason"]), (&json!("-1"), &json!("stack_error")));
}

#[rstest]
#[case::taken_meanwhile(422, 200, 200, "acquire")]
#[case::unknown(404, 200, 200, "acquire")]
#[case::cancelled_at_the_last_moment(200, 422, 422, "finish")]
#[tokio::test]
async fn a_job_that_is_somebody_elses_is_settled(
    #[case] acquire: u16,
    #[case] start: u16,
    #[case] finish: u16,
    #[case] last: &str,
) {
    let server = service(acquire, start, finish).await;
    assert_eq!(end(&server).await.unwrap(), Finished::Settled);
    let calls = calls(&server).await;
    let [.., before, goodbye] = &calls[..] else { panic!("{calls:?}") };
    assert!(before.starts_with(last) && goodbye.starts_with("disconnect"), "{calls:?}");
}

#[tokio::test]
async fn a_log_that_cannot_be_written_does_not_keep_the_job_from_ending() {
    let server = service(200, 400, 200).await;
    assert_eq!(end(&server).await.unwrap(), Finished::Now);
    let finished: Value = serde_json::from_slice(&body(&server, "finish").await).unwrap();
    assert_eq!(finished["chunks_failed_count"], 1);
}

#[tokio::test]
async fn the_agent_leaves_even_if_the_end_is_not_taken() {
    let server = service(200, 200, 400).await;
    let error = end(&server).await.unwrap_err();
    assert!(error.to_string().starts_with("cannot finish the job: Buildkite answered 400"), "{error}");
    assert!(calls(&server).await.last().unwrap().starts_with("disconnect"));
}

#[tokio::test]
async fn a_refused_token_is_named() {
    let server = MockServer::start().await;
    let refusal = ResponseTemplate::new(401).set_body_json(json!({"message": "Invalid access token"}));
    Mock::given(method("POST")).respond_with(refusal).mount(&server).await;
    let error = end(&server).await.unwrap_err().to_string();
    let expected = "cannot register an agent with the agent token: Buildkite answered 401 Unauthorized: Invalid access token";
    assert_eq!(error, expected);
}
