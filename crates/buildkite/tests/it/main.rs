//! The client against a server that answers as the service does, and as it should not.

mod configuration;
mod failures;
mod graphql;
mod retries;
mod rotation;
mod stand_in;
mod wire;

use bk_buildkite::StacksClient;
use wiremock::{Mock, MockServer, ResponseTemplate, matchers::any};

const TOKEN: &str = "bkct_hidden_123";

/// A client of the API below `/v3` of a server.
fn client(server: &MockServer) -> StacksClient {
    StacksClient::new(&format!("{}/v3", server.uri()), TOKEN.into(), "test").expect("a good configuration")
}

/// A server that gives these answers in turn, and the last one from then on.
async fn answering(answers: impl IntoIterator<Item = ResponseTemplate>) -> MockServer {
    let server = MockServer::start().await;
    let mut answers = answers.into_iter().peekable();
    let mut priority = 1;
    while let Some(answer) = answers.next() {
        let mock = Mock::given(any()).respond_with(answer).with_priority(priority);
        let mock = if answers.peek().is_some() { mock.up_to_n_times(1) } else { mock };
        mock.mount(&server).await;
        priority += 1;
    }
    server
}

async fn requests(server: &MockServer) -> usize {
    server.received_requests().await.expect("requests are recorded").len()
}

/// An error with all of its causes, as it would be logged at its most talkative.
fn in_full(error: &bk_buildkite::Error) -> String {
    let mut text = format!("{error} {error:?}");
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        text = format!("{text} {error} {error:?}");
        cause = error.source();
    }
    text
}

/// The answer to `GET token`.
fn identity() -> ResponseTemplate {
    ResponseTemplate::new(200).set_body_json(serde_json::json!({
        "uuid": "t1", "organization_slug": "acme", "cluster_uuid": "c1",
    }))
}
