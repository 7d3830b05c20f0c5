//! The syncer's port: `POST /sync` for whoever knows the token, webhooks included, and `/metrics` and `/healthz`.

use std::{sync::Arc, time::Duration};

use axum::{
    Json, Router,
    body::{Body, Bytes},
    extract::{Query, State},
    http::{HeaderMap, StatusCode, header},
    response::{IntoResponse, Response},
    routing::{get, post},
};
use bk_ops::exposition;
use jiff::Timestamp;
use secrecy::SecretString;
use serde_json::json;
use tokio::sync::{Semaphore, watch};

use crate::{
    address::Address,
    metrics::Metrics,
    syncer::{Awaited, Declined, Handle},
    webhook::{self, Request},
};

/// The longest body of a request. Webhooks tell of every commit of a push.
const BODY: usize = 8 << 20;
/// How many bodies are read at once: whose they are is not known before.
static BODIES: Semaphore = Semaphore::const_new(4);
/// How long a body may take.
const READING: Duration = Duration::from_secs(10);
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

/// The routes.
pub fn routes(endpoint: Endpoint) -> Router {
    Router::new()
        .route("/sync", post(sync))
        .route("/metrics", get(metrics))
        .route("/healthz", get(async || "ok\n"))
        .with_state(endpoint)
}

async fn metrics(State(endpoint): State<Endpoint>, headers: HeaderMap) -> impl IntoResponse {
    let page = endpoint.metrics.text(Timestamp::now());
    let accept = headers.get(header::ACCEPT).and_then(|accept| accept.to_str().ok()).unwrap_or_default();
    let (kind, page) = if exposition::wants_open_metrics(accept) {
        (exposition::OPEN_METRICS, page)
    } else {
        (exposition::TEXT, exposition::plain(&page))
    };
    ([(header::CONTENT_TYPE, kind)], page)
}

async fn sync(
    State(endpoint): State<Endpoint>,
    headers: HeaderMap,
    Query(query): Query<Request>,
    body: Body,
) -> Response {
    let body = match read(body).await {
        Ok(body) => body,
        Err(refusal) => return *refusal,
    };
    let token = endpoint.token.borrow().clone();
    if !webhook::is_known(&headers, &body, token.as_deref()) {
        let challenge = [(header::WWW_AUTHENTICATE, "Bearer")];
        return (challenge, answer(StatusCode::UNAUTHORIZED, "neither token nor signature is the right one"))
            .into_response();
    }
    let (spellings, wait) = webhook::wish(query, &body);
    drop(body);
    match ask(&endpoint.syncer, &spellings).await {
        Err(refusal) => *refusal,
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

/// All of a body, if it is neither long nor slow.
async fn read(body: Body) -> Result<Bytes, Box<Response>> {
    let reading = async {
        let _turn = BODIES.acquire().await;
        axum::body::to_bytes(body, BODY).await
    };
    match tokio::time::timeout(READING, reading).await {
        Ok(Ok(body)) => Ok(body),
        Ok(Err(_)) => {
            let message = format!("the body is cut off, or longer than {BODY} bytes");
            Err(Box::new(answer(StatusCode::PAYLOAD_TOO_LARGE, &message)))
        }
        Err(_) => Err(Box::new(answer(StatusCode::REQUEST_TIMEOUT, "the body takes too long"))),
    }
}

/// Asks for the first of these that there is a mirror of.
async fn ask(syncer: &Handle, spellings: &[String]) -> Result<Awaited, Box<Response>> {
    let refused = |status, message: &str| Err(Box::new(answer(status, message)));
    let mut refusal = refused(
        StatusCode::BAD_REQUEST,
        "say which repository, as `url` in the query or in a JSON object, or as webhooks of GitHub and GitLab do",
    );
    for spelling in spellings {
        let address = match Address::parse(spelling) {
            Ok(address) => address,
            Err(error) => {
                refusal = refused(StatusCode::BAD_REQUEST, &error.to_string());
                continue;
            }
        };
        match syncer.ask(&address).await {
            Ok(awaited) => return Ok(awaited),
            Err(Declined::Busy) => return Err(Box::new(busy())),
            Err(Declined::Unknown) => {
                refusal = refused(StatusCode::NOT_FOUND, &format!("there is no mirror of {address}"));
            }
        }
    }
    refusal
}

fn busy() -> Response {
    let later = [(header::RETRY_AFTER, "5")];
    (later, answer(StatusCode::TOO_MANY_REQUESTS, "too many wait already")).into_response()
}

fn answer(status: StatusCode, message: &str) -> Response {
    (status, Json(json!({ "message": message }))).into_response()
}
