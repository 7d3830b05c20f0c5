//! A way to the API server on which answers can be replaced by failures.

use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, Result};
use axum::{
    Router,
    body::{Body, Bytes},
    extract::{Request, State},
    http::{HeaderMap, Method, StatusCode, header},
    response::{IntoResponse, Response},
};
use serde_json::json;
use tokio::{net::TcpListener, sync::watch};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::environment::Environment;

/// The largest request that is passed on.
const LIMIT: usize = 4 << 20;

/// What happens to some requests.
#[derive(Clone, Debug)]
pub struct Failure {
    /// The requests' method.
    pub method: Method,
    /// How their path ends; a last `*` stands for any name.
    pub path: &'static str,
    /// What happens to them.
    pub kind: Kind,
    /// How many more of them.
    pub times: usize,
}

/// How a request fails.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    /// The API server does not hear of it, and this is the answer.
    Answer(StatusCode),
    /// The API server does what it is asked for, and the connection ends before all of the answer has come.
    Cut,
}

/// A request that is held, so that something can happen meanwhile.
#[derive(Clone, Debug)]
pub struct Hold {
    /// The request's method.
    pub method: Method,
    /// How its path ends.
    pub path: &'static str,
    /// How many of them pass before.
    pub skip: usize,
    /// Whether the API server sees it before it is held.
    pub done: bool,
}

/// The way.
pub struct Proxy {
    /// Its address, for a kubeconfig.
    pub url: String,
    failures: Arc<Mutex<Vec<Failure>>>,
    hold: watch::Sender<Option<Hold>>,
    held: watch::Sender<bool>,
    _stop: DropGuard,
}

#[derive(Clone)]
struct Way {
    http: reqwest::Client,
    server: String,
    failures: Arc<Mutex<Vec<Failure>>>,
    hold: watch::Sender<Option<Hold>>,
    held: watch::Sender<bool>,
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
            hold: watch::Sender::new(None),
            held: watch::Sender::new(false),
        };
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let url = format!("http://{}", listener.local_addr()?);
        let failures = Arc::clone(&way.failures);
        let (asked, reached) = (way.hold.clone(), way.held.clone());
        let router = Router::new().fallback(pass).with_state(way);
        let stop = CancellationToken::new();
        let server = axum::serve(listener, router).into_future();
        tokio::spawn(stop.clone().run_until_cancelled_owned(server));
        Ok(Self { url, failures, hold: asked, held: reached, _stop: stop.drop_guard() })
    }

    /// Lets requests fail from now on.
    pub fn fail(&self, failure: Failure) {
        self.failures.lock().unwrap_or_else(PoisonError::into_inner).push(failure);
    }

    /// Holds a request from now on. It is refused when this is called again.
    pub fn hold(&self, hold: Option<Hold>) {
        self.held.send_replace(false);
        self.hold.send_replace(hold);
    }

    /// Waits until the request is held.
    pub async fn held(&self) -> Result<()> {
        self.held.subscribe().wait_for(|held| *held).await?;
        Ok(())
    }

    /// How many failures have still to come.
    pub fn left(&self) -> usize {
        self.to_come().iter().map(|one| one.times).sum()
    }

    /// The failures that have still to come.
    pub fn to_come(&self) -> Vec<Failure> {
        let failures = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
        failures.iter().filter(|one| one.times > 0).cloned().collect()
    }
}

impl Way {
    fn failure(&self, request: &Request) -> Option<Kind> {
        let mut failures = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
        let failure = failures.iter_mut().find(|failure| {
            failure.times > 0
                && failure.method == request.method()
                && ends_like(request.uri().path(), failure.path)
        })?;
        failure.times -= 1;
        Some(failure.kind)
    }

    /// Whether this is the request to be held.
    fn holds(&self, request: &Request) -> Option<Hold> {
        let mut chosen = None;
        self.hold.send_if_modified(|hold| {
            if let Some(waiting) = hold.as_mut().filter(|hold| hold.is_of(request)) {
                if waiting.skip == 0 {
                    chosen = hold.take();
                } else {
                    waiting.skip -= 1;
                }
            }
            // Those that are held wait for the next one.
            false
        });
        chosen
    }

    /// Holds a request until another is to be held, or none.
    async fn wait(&self) {
        let mut next = self.hold.subscribe();
        self.held.send_replace(true);
        // The sender is this way's own.
        let _changed = next.changed().await;
    }
}

impl Hold {
    fn is_of(&self, request: &Request) -> bool {
        self.method == request.method() && request.uri().path().ends_with(self.path)
    }
}

/// Whether a path ends like this; a last `*` stands for any name.
fn ends_like(path: &str, end: &str) -> bool {
    match end.strip_suffix("/*") {
        Some(parent) => path.rsplit_once('/').is_some_and(|(before, _)| before.ends_with(parent)),
        None => path.ends_with(end),
    }
}

async fn pass(State(way): State<Way>, request: Request) -> Response {
    let failure = way.failure(&request);
    if let Some(Kind::Answer(status)) = failure {
        let answer = json!({
            "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": status.as_u16(),
            "reason": status.canonical_reason().unwrap_or_default().replace(' ', ""),
            "message": "the test wants it so",
        });
        let retry = [(header::RETRY_AFTER, "1"), (header::CONTENT_TYPE, "application/json")];
        return (status, retry, answer.to_string()).into_response();
    }
    let hold = way.holds(&request);
    if hold.as_ref().is_some_and(|hold| !hold.done) {
        way.wait().await;
        return (StatusCode::BAD_GATEWAY, "the test has held it").into_response();
    }
    let answer = forward(&way, request).await;
    if hold.is_some() {
        way.wait().await;
    }
    match answer {
        Ok(response) if matches!(failure, Some(Kind::Cut)) => cut(response),
        Ok(response) => response,
        Err(error) => (StatusCode::BAD_GATEWAY, format!("{error:#}")).into_response(),
    }
}

/// An answer of which nothing but the head arrives.
fn cut(response: Response) -> Response {
    let (head, _) = response.into_parts();
    let broken = std::io::Error::from(std::io::ErrorKind::ConnectionAborted);
    Response::from_parts(head, Body::from_stream(futures::stream::iter([Err::<Bytes, _>(broken)])))
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
