//! The token changes while the client works.

use wiremock::{Mock, MockServer, ResponseTemplate, matchers::header};

use super::{TOKEN, client, identity, requests};

const NEW: &str = "bkct_new_456";

/// A server that takes one token only.
async fn taking(token: &str) -> MockServer {
    let server = MockServer::start().await;
    let right = header("authorization", format!("Token {token}").as_str());
    Mock::given(right).respond_with(identity()).with_priority(1).mount(&server).await;
    Mock::given(wiremock::matchers::any())
        .respond_with(ResponseTemplate::new(401))
        .with_priority(2)
        .mount(&server)
        .await;
    server
}

#[tokio::test]
async fn calls_are_made_with_the_token_of_the_moment() {
    let server = taking(NEW).await;
    let client = client(&server);
    assert_eq!(client.token_identity().await.unwrap_err().status().unwrap(), 401);
    assert!(client.clone().credentials().replace(&NEW.into()).unwrap());
    client.token_identity().await.unwrap();
    assert!(!client.credentials().replace(&NEW.into()).unwrap(), "it is the same");
}

#[tokio::test]
async fn a_token_that_cannot_be_one_replaces_nothing() {
    let server = taking(TOKEN).await;
    let client = client(&server);
    client.credentials().replace(&"two\nlines".into()).unwrap_err();
    client.token_identity().await.unwrap();
}

/// The old token is refused while its successor arrives: the call is made again with that.
#[tokio::test]
async fn a_call_that_was_under_way_is_repeated_with_the_new_token() {
    let server = MockServer::start().await;
    let old = header("authorization", format!("Token {TOKEN}").as_str());
    let slow = ResponseTemplate::new(401).set_delay(std::time::Duration::from_millis(300));
    Mock::given(old).respond_with(slow).mount(&server).await;
    let new = header("authorization", format!("Token {NEW}").as_str());
    Mock::given(new).respond_with(identity()).mount(&server).await;
    let client = client(&server);
    let rotate = async {
        // Not before the server has the first call.
        while requests(&server).await == 0 {
            tokio::task::yield_now().await;
        }
        client.credentials().replace(&NEW.into()).unwrap();
    };
    let (identity, ()) = tokio::join!(client.token_identity(), rotate);
    assert_eq!(identity.unwrap().organization_slug, "acme");
    assert_eq!(requests(&server).await, 2);
}
