//! What is said about calls that fail.

use bk_buildkite::{Error, StacksClient, stacks::ListScheduledJobs};
use rstest::rstest;
use wiremock::ResponseTemplate;

use super::{TOKEN, answering, client, in_full};

async fn list(client: &StacksClient) -> Error {
    let query = ListScheduledJobs { queue_key: "q".to_owned(), limit: None, after: None };
    client.scheduled_jobs("s", &query).await.expect_err("every server here fails")
}

#[rstest]
#[case::in_json(br#"{"message": "queue is unknown", "code": 7}"#, "queue is unknown")]
#[case::in_other_json(br#"{"error": "no"}"#, r#"{"error": "no"}"#)]
#[case::in_text(b"  upstream says no\n", "upstream says no")]
#[case::in_nothing(b"", "")]
#[case::in_other_bytes(b"caf\xff", "caf\u{fffd}")]
#[tokio::test]
async fn the_services_own_words_are_passed_on(#[case] body: &[u8], #[case] expected: &str) {
    let server = answering([ResponseTemplate::new(404).set_body_bytes(body)]).await;
    let error = list(&client(&server)).await;
    assert_eq!(
        error.to_string(),
        format!("cannot list scheduled jobs: Buildkite answered 404 Not Found: {expected}")
    );
}

#[tokio::test]
async fn a_page_full_of_words_is_cut() {
    let server = answering([ResponseTemplate::new(400).set_body_string("ü".repeat(5_000))]).await;
    let text = list(&client(&server)).await.to_string();
    assert!(text.len() < 600 && text.ends_with('…'), "{text}");
}

#[rstest]
#[case::not_json("<html>", "expected value at line 1 column 1")]
#[case::not_the_right_json("{}", "missing field `jobs` at line 1 column 2")]
#[case::half_of_it(r#"{"jobs": ["#, "EOF while parsing a list at line 1 column 10")]
#[tokio::test]
async fn an_answer_that_makes_no_sense_is_not_taken_for_an_empty_one(
    #[case] body: &str,
    #[case] cause: &str,
) {
    let server = answering([ResponseTemplate::new(200).set_body_string(body)]).await;
    let error = list(&client(&server)).await;
    assert_eq!(error.to_string(), "cannot list scheduled jobs: Buildkite's answer is not understood");
    assert_eq!(std::error::Error::source(&error).unwrap().to_string(), cause);
    assert!(error.is_retryable());
}

#[tokio::test]
async fn a_server_that_is_not_there_is_named_once() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let free = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let client = StacksClient::new(&free, TOKEN.into(), "test").unwrap();
    let error = list(&client).await;
    assert_eq!(error.to_string(), format!("cannot list scheduled jobs at {free}"));
    assert!(error.is_retryable() && !error.is_settled());
    let source = std::error::Error::source(&error).unwrap().to_string();
    assert!(!source.contains(&free), "{source}");
}

/// RFC 2606 keeps the name for nobody.
#[tokio::test]
async fn a_name_that_nobody_knows_is_said_and_may_be_known_later() {
    let client = StacksClient::new("http://nowhere.invalid", TOKEN.into(), "test").unwrap();
    let error = list(&client).await;
    assert!(matches!(error, Error::Transport { .. }) && error.is_retryable() && !error.is_settled());
    assert_eq!(error.to_string(), "cannot list scheduled jobs at http://nowhere.invalid");
    let text = in_full(&error);
    assert!(text.contains("dns error") && !text.contains(TOKEN), "{text}");
}

#[rstest]
#[case::refused(ResponseTemplate::new(401).set_body_string(r#"{"message": "invalid token"}"#))]
#[case::not_understood(ResponseTemplate::new(200).set_body_string("?"))]
#[tokio::test]
async fn no_error_shows_the_token(#[case] answer: ResponseTemplate) {
    let server = answering([answer]).await;
    let text = in_full(&list(&client(&server)).await);
    assert!(!text.contains(TOKEN), "{text}");
}

#[tokio::test]
async fn no_broken_connection_shows_the_token() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    // Accepts, and hangs up before an answer.
    let server = std::thread::spawn(move || listener.accept().map(drop));
    let client = StacksClient::new(&endpoint, TOKEN.into(), "test").unwrap();
    let error = list(&client).await;
    server.join().unwrap().unwrap();
    let text = in_full(&error);
    assert!(matches!(error, Error::Transport { .. }) && !text.contains(TOKEN), "{text}");
}
