//! `/metrics`, `/healthz` and `/readyz`.

use std::{
    future::Future,
    net::{Ipv4Addr, Ipv6Addr, SocketAddr},
    time::{Duration, Instant},
};

use axum::{
    Router,
    extract::State,
    http::{HeaderMap, StatusCode, header},
    response::IntoResponse,
    routing::get,
};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::{Form, Health, Metrics};
use crate::error::Error;

/// Listens, if the operator is to, as a flag says.
pub async fn bind(address: Option<SocketAddr>, flag: &str) -> Result<Option<TcpListener>, Error> {
    let Some(address) = address else {
        return Ok(None);
    };
    let mut listener = TcpListener::bind(address).await;
    // Where there is no IPv6, everywhere means everywhere else.
    if listener.is_err() && address.ip() == Ipv6Addr::UNSPECIFIED {
        listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, address.port())).await.or(listener);
    }
    let listener =
        listener.map_err(|error| Error::Setup(format!("cannot listen on {address} for {flag}: {error}")))?;
    Ok(Some(listener))
}

/// Lets a server that listens elsewhere finish what it is doing when the operator stops, but for so long only.
pub(crate) async fn farewell(
    stop: CancellationToken,
    handle: axum_server::Handle<SocketAddr>,
    patience: Duration,
) {
    stop.cancelled().await;
    handle.graceful_shutdown(Some(patience));
}

/// Answers until `end`.
pub async fn serve(
    listener: TcpListener,
    metrics: Metrics,
    health: Health,
    end: impl Future<Output = ()> + Send + 'static,
) {
    let served = axum::serve(listener, routes(metrics, health)).with_graceful_shutdown(end).await;
    if let Err(error) = served {
        tracing::error!(%error, "cannot answer requests for metrics and health any more");
    }
}

fn routes(metrics: Metrics, health: Health) -> Router {
    Router::new()
        .route("/metrics", get(numbers).with_state(metrics))
        .route("/healthz", get(liveness).with_state(health.clone()))
        .route("/readyz", get(readiness).with_state(health))
}

async fn numbers(State(metrics): State<Metrics>, headers: HeaderMap) -> impl IntoResponse {
    let accepted = headers.get(header::ACCEPT).and_then(|accept| accept.to_str().ok());
    let form = Form::accepted(accepted.unwrap_or_default());
    ([(header::CONTENT_TYPE, form.content_type())], metrics.page(form))
}

async fn liveness(State(health): State<Health>) -> (StatusCode, String) {
    told(health.liveness(Instant::now()))
}

async fn readiness(State(health): State<Health>) -> (StatusCode, String) {
    told(health.readiness(Instant::now()))
}

fn told(outcome: Result<(), String>) -> (StatusCode, String) {
    match outcome {
        Ok(()) => (StatusCode::OK, "ok\n".to_owned()),
        Err(problems) => (StatusCode::SERVICE_UNAVAILABLE, problems),
    }
}
