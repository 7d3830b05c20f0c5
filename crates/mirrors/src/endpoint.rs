//! The syncer's port: `POST /sync` for whoever knows the token, and `/metrics` and `/healthz`.

use std::{sync::Arc, time::Duration};

use axum::{
    Json, Router,
    body::Bytes,
    extract::{DefaultBodyLimit, Query, State},
    http::{HeaderMap, StatusCode, header},
    response::{IntoResponse, Response},
    routing::{get, post},
};
use jiff::Timestamp;
use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;
use serde_json::json;
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;
use tokio::sync::watch;

use crate::{
    address::Address,
    metrics::Metrics,
    syncer::{Declined, Handle},
};

/// The longest body of a request.
const BODY: usize = 64 * 1024;
/// The longest that a caller may wait for a fetch.
const LONGEST_WAIT: u64 = 300;

/// What requests are answered with.
#[derive(Clone)]
pub struct Endpoint {
    /// The syncer.
    pub syncer: Handle,
    /// The token that callers have to know; nobody may call as long as there is none.
    pub token: watch::Receiver<Option<Arc<SecretString>>>,
    /// The syncer's numbers.
    pub metrics: Metrics,
}

/// What is asked for, in the query or in the body.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
struct Request {
    /// The repository, in any spelling.
    url: Option<String>,
    /// How many seconds to wait for the fetch.
    wait: Option<u64>,
}

/// The routes.
pub fn routes(endpoint: Endpoint) -> Router {
    Router::new()
        .route("/sync", post(sync))
        .route("/metrics", get(metrics))
        .route("/healthz", get(async || "ok\n"))
        .layer(DefaultBodyLimit::max(BODY))
        .with_state(endpoint)
}

async fn metrics(State(endpoint): State<Endpoint>) -> impl IntoResponse {
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    ([(header::CONTENT_TYPE, kind)], endpoint.metrics.text(Timestamp::now()))
}

async fn sync(
    State(endpoint): State<Endpoint>,
    headers: HeaderMap,
    Query(query): Query<Request>,
    body: Bytes,
) -> Response {
    let token = endpoint.token.borrow().clone();
    if !is_known(&headers, token.as_deref()) {
        let challenge = [(header::WWW_AUTHENTICATE, "Bearer")];
        return (challenge, answer(StatusCode::UNAUTHORIZED, "the bearer token is not the right one"))
            .into_response();
    }
    let Request { url: Some(url), wait } = merged(query, &body) else {
        return answer(
            StatusCode::BAD_REQUEST,
            "say which repository, as `url` in the query or in a JSON object",
        );
    };
    let address = match Address::parse(&url) {
        Ok(address) => address,
        Err(error) => return answer(StatusCode::BAD_REQUEST, &error.to_string()),
    };
    match endpoint.syncer.ask(&address).await {
        Err(Declined::Unknown) => answer(StatusCode::NOT_FOUND, &format!("there is no mirror of {address}")),
        Err(Declined::Busy) => {
            let later = [(header::RETRY_AFTER, "5")];
            (later, answer(StatusCode::TOO_MANY_REQUESTS, "too many wait already")).into_response()
        }
        Ok(awaited) => {
            let wait = Duration::from_secs(wait.unwrap_or_default().min(LONGEST_WAIT));
            if wait.is_zero() {
                return answer(StatusCode::ACCEPTED, "the mirror will be fetched");
            }
            match tokio::time::timeout(wait, awaited).await {
                Ok(Ok(Ok(()))) => answer(StatusCode::OK, "the mirror was fetched"),
                Ok(Ok(Err(error))) => answer(StatusCode::BAD_GATEWAY, &error),
                Ok(Err(_)) | Err(_) => answer(StatusCode::ACCEPTED, "the mirror is still to be fetched"),
            }
        }
    }
}

fn answer(status: StatusCode, message: &str) -> Response {
    (status, Json(json!({ "message": message }))).into_response()
}

/// The body's word goes before the query's. A body that is something else, such as a webhook's own, is not looked at.
fn merged(query: Request, body: &[u8]) -> Request {
    let Request { url, wait } = serde_json::from_slice(body).unwrap_or_default();
    Request { url: url.or(query.url), wait: wait.or(query.wait) }
}

/// Whether the caller knows the token. The time that takes tells nothing about it.
fn is_known(headers: &HeaderMap, token: Option<&SecretString>) -> bool {
    let Some(token) = token else { return false };
    let given = headers.get(header::AUTHORIZATION).map(axum::http::HeaderValue::as_bytes).unwrap_or_default();
    let (scheme, given) = given.split_at_checked(7).unwrap_or_default();
    let digest = |bytes: &[u8]| Sha256::digest(bytes);
    let same = digest(given).as_slice().ct_eq(digest(token.expose_secret().as_bytes()).as_slice());
    scheme.eq_ignore_ascii_case(b"bearer ") && !token.expose_secret().is_empty() && bool::from(same)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case(Some("Bearer right"), Some("right"), true)]
    #[case(Some("bearer right"), Some("right"), true)]
    #[case(Some("Bearer wrong"), Some("right"), false)]
    #[case(Some("Bearer right "), Some("right"), false)]
    #[case(Some("Basic right"), Some("right"), false)]
    #[case(Some("Bearer "), Some(""), false)]
    #[case(Some("B"), Some("right"), false)]
    #[case(None, Some("right"), false)]
    #[case(Some("Bearer "), None, false)]
    fn only_the_token_opens(
        #[case] given: Option<&str>,
        #[case] token: Option<&str>,
        #[case] expected: bool,
    ) {
        let mut headers = HeaderMap::new();
        if let Some(given) = given {
            headers.insert(header::AUTHORIZATION, given.parse().unwrap());
        }
        let token = token.map(|token| SecretString::from(token.to_owned()));
        assert_eq!(is_known(&headers, token.as_ref()), expected);
    }

    #[test]
    fn the_body_goes_before_the_query_and_foreign_bodies_are_ignored() {
        let query = Request { url: Some("a:b".to_owned()), wait: Some(1) };
        let merged = |body: &str| super::merged(query.clone(), body.as_bytes());
        assert_eq!(merged(r#"{"url": "c:d"}"#), Request { url: Some("c:d".to_owned()), wait: Some(1) });
        assert_eq!(merged(r#"{"ref": "refs/heads/main"}"#), query);
        assert_eq!(merged("payload=%7B%7D"), query);
    }
}
