//! What the client is given.

use bk_buildkite::StacksClient;
use rstest::rstest;

use super::{TOKEN, answering, client, identity};

#[rstest]
#[case::no_scheme(
    "agent.buildkite.com/v3",
    TOKEN,
    "the Buildkite endpoint `agent.buildkite.com/v3` is not an HTTP URL; expected something like https://agent.buildkite.com/v3"
)]
#[case::a_port_taken_for_a_scheme(
    "localhost:8080",
    TOKEN,
    "the Buildkite endpoint `localhost:8080` is not an HTTP URL; expected something like https://agent.buildkite.com/v3"
)]
#[case::another_scheme(
    "unix:///run/x.sock",
    TOKEN,
    "the Buildkite endpoint `unix:///run/x.sock` is not an HTTP URL; expected something like https://agent.buildkite.com/v3"
)]
#[case::no_endpoint(
    "",
    TOKEN,
    "the Buildkite endpoint `` is not an HTTP URL; expected something like https://agent.buildkite.com/v3"
)]
#[case::no_token("https://example.com", " \n", "the Buildkite agent token is empty")]
#[case::half_a_file(
    "https://example.com",
    "bkct_1\nbkct_2",
    "the Buildkite agent token has characters that no token has; is it cut or encoded?"
)]
fn what_cannot_be_used_is_refused_with_advice(
    #[case] endpoint: &str,
    #[case] token: &str,
    #[case] expected: &str,
) {
    let error = StacksClient::new(endpoint, token.into(), "test").unwrap_err();
    assert_eq!(error.to_string(), expected);
    assert!(!error.is_retryable());
}

#[rstest]
#[case("/v3")]
#[case("/v3/")]
#[case("/v3//")]
#[tokio::test]
async fn slashes_at_the_end_do_not_matter(#[case] path: &str) {
    let server = answering([identity()]).await;
    let endpoint = format!("{}{path}", server.uri());
    let client = StacksClient::new(&endpoint, TOKEN.into(), "test").unwrap();
    client.token_identity().await.unwrap();
    assert_eq!(client.endpoint(), format!("{}/v3", server.uri()));
    assert_eq!(server.received_requests().await.unwrap()[0].url.path(), "/v3/token");
}

#[tokio::test]
async fn white_space_around_the_token_is_dropped() {
    let server = answering([identity()]).await;
    let client = StacksClient::new(&server.uri(), format!("{TOKEN}\n").into(), "test").unwrap();
    client.token_identity().await.unwrap();
    let sent = &server.received_requests().await.unwrap()[0];
    assert_eq!(sent.headers["authorization"], format!("Token {TOKEN}"));
    assert_eq!(sent.headers["user-agent"], "test");
}

#[tokio::test]
async fn the_client_does_not_show_its_token() {
    let server = answering([identity()]).await;
    let shown = format!("{:?}", client(&server));
    assert!(shown.contains("Credentials(Sensitive)") && !shown.contains(TOKEN), "{shown}");
}
