//! A way to the API server on which answers can be replaced by failures.

use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, Result};
use axum::{
    Router,
    body::Body,
    extract::{Request, State},
    http::{HeaderMap, Method, StatusCode, header},
    response::{IntoResponse, Response},
};
use serde_json::json;
use tokio::net::TcpListener;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::environment::Environment;

/// The largest request that is passed on.
const LIMIT: usize = 4 << 20;

/// What happens to some requests.
#[derive(Clone, Debug)]
pub struct Failure {
    /// The requests' method.
    pub method: Method,
    /// How their path ends.
    pub path: &'static str,
    /// The answer instead.
    pub status: StatusCode,
    /// How many more of them.
    pub times: usize,
}

/// The way.
pub struct Proxy {
    /// Its address, for a kubeconfig.
    pub url: String,
    failures: Arc<Mutex<Vec<Failure>>>,
    _stop: DropGuard,
}

#[derive(Clone)]
struct Way {
    http: reqwest::Client,
    server: String,
    failures: Arc<Mutex<Vec<Failure>>>,
}

impl Proxy {
    /// Passes everything on to the API server. Who asks has to bring a token.
    pub async fn serve(environment: &Environment) -> Result<Self> {
        let kubeconfig = kube::config::Kubeconfig::read_from(&environment.kubeconfig)?;
        let cluster = kubeconfig.clusters.first().and_then(|named| named.cluster.as_ref());
        let cluster = cluster.context("the kubeconfig has a cluster")?;
        let authority = cluster.certificate_authority_data.as_deref().context("with its authority")?;
        let authority = base64::Engine::decode(&base64::engine::general_purpose::STANDARD, authority)?;
        #[expect(
            clippy::disallowed_methods,
            reason = "it trusts another authority, and watches take their time"
        )]
        let way = Way {
            http: reqwest::Client::builder()
                .add_root_certificate(reqwest::Certificate::from_pem(&authority)?)
                .build()?,
            server: cluster.server.clone().context("with its address")?,
            failures: Arc::default(),
        };
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let url = format!("http://{}", listener.local_addr()?);
        let failures = Arc::clone(&way.failures);
        let router = Router::new().fallback(pass).with_state(way);
        let stop = CancellationToken::new();
        let server = axum::serve(listener, router).into_future();
        tokio::spawn(stop.clone().run_until_cancelled_owned(server));
        Ok(Self { url, failures, _stop: stop.drop_guard() })
    }

    /// Lets requests fail from now on.
    pub fn fail(&self, failure: Failure) {
        self.failures.lock().unwrap_or_else(PoisonError::into_inner).push(failure);
    }

    /// How many failures have still to come.
    pub fn left(&self) -> usize {
        self.failures.lock().unwrap_or_else(PoisonError::into_inner).iter().map(|one| one.times).sum()
    }
}

impl Way {
    fn failure(&self, request: &Request) -> Option<StatusCode> {
        let mut failures = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
        let failure = failures.iter_mut().find(|failure| {
            failure.times > 0
                && failure.method == request.method()
                && request.uri().path().ends_with(failure.path)
        })?;
        failure.times -= 1;
        Some(failure.status)
    }
}

async fn pass(State(way): State<Way>, request: Request) -> Response {
    if let Some(status) = way.failure(&request) {
        let answer = json!({
            "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": status.as_u16(),
            "reason": status.canonical_reason().unwrap_or_default().replace(' ', ""),
            "message": "the test wants it so",
        });
        let retry = [(header::RETRY_AFTER, "1"), (header::CONTENT_TYPE, "application/json")];
        return (status, retry, answer.to_string()).into_response();
    }
    match forward(&way, request).await {
        Ok(response) => response,
        Err(error) => (StatusCode::BAD_GATEWAY, format!("{error:#}")).into_response(),
    }
}

async fn forward(way: &Way, request: Request) -> Result<Response> {
    let (parts, body) = request.into_parts();
    let url = format!("{}{}", way.server.trim_end_matches('/'), parts.uri);
    let body = axum::body::to_bytes(body, LIMIT).await?;
    let answer =
        way.http.request(parts.method, url).headers(end_to_end(&parts.headers)).body(body).send().await?;
    let (status, headers) = (answer.status(), end_to_end(answer.headers()));
    Ok((status, headers, Body::from_stream(answer.bytes_stream())).into_response())
}

/// The headers that are not about one connection.
fn end_to_end(headers: &HeaderMap) -> HeaderMap {
    let mut headers = headers.clone();
    for name in [
        header::HOST,
        header::CONNECTION,
        header::CONTENT_LENGTH,
        header::TRANSFER_ENCODING,
        header::CONTENT_ENCODING,
        header::ACCEPT_ENCODING,
    ] {
        headers.remove(name);
    }
    headers
}
