//! Faults on demand over HTTP: the middleware that carries them out, and the API that sets them.
//!
//! Neither is there unless the settings ask for faults.

pub(crate) mod connection;
mod control;

use axum::Json;
use axum::body::{Body, Bytes};
use axum::extract::{ConnectInfo, Request, State};
use axum::http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use axum::http::{HeaderValue, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

pub(crate) use control::router;

use super::{MAX_BODY, trace};
use crate::fault::{Action, Answer, Faults, span};
use connection::Cut;

/// Lets faults strike. The paths that set them are safe from them.
pub(crate) async fn strike(State(faults): State<Faults>, request: Request, next: Next) -> Response {
    let path = request.uri().path();
    if path.starts_with("/_faults") {
        return next.run(request).await;
    }
    let Some(action) = faults.strike(request.method().as_str(), path) else {
        return next.run(request).await;
    };
    tracing::info!(method = %request.method(), path = trace::shown(path), ?action, "a fault strikes");
    let cut = request.extensions().get::<ConnectInfo<Cut>>().map(|ConnectInfo(cut)| cut.clone());
    match action {
        Action::Answer(answer) => {
            // As a server does that has read the request: the connection stays good.
            let _read = axum::body::to_bytes(request.into_body(), MAX_BODY).await;
            made_up(answer)
        }
        Action::WaitBefore(seconds) => {
            tokio::time::sleep(span(seconds)).await;
            next.run(request).await
        }
        Action::WaitAfter(seconds) => {
            let response = next.run(request).await;
            tokio::time::sleep(span(seconds)).await;
            response
        }
        Action::LoseAnswer => {
            let _lost = next.run(request).await;
            cut_off(cut)
        }
        Action::CutBody => halved(next.run(request).await, cut).await,
        Action::Close => cut_off(cut),
    }
}

fn made_up(answer: Answer) -> Response {
    let status = StatusCode::from_u16(answer.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut response = match answer.body {
        Some(serde_json::Value::String(text)) => (status, text).into_response(),
        Some(value) => (status, Json(value)).into_response(),
        None => (status, Json(serde_json::json!({ "message": "a fault on demand" }))).into_response(),
    };
    for (name, value) in answer.headers {
        if let (Ok(name), Ok(value)) = (axum::http::HeaderName::try_from(name), HeaderValue::try_from(value))
        {
            response.headers_mut().insert(name, value);
        }
    }
    response
}

/// Ends the connection. What is returned is never seen.
fn cut_off(cut: Option<Cut>) -> Response {
    if let Some(cut) = cut {
        cut.now();
    }
    StatusCode::SERVICE_UNAVAILABLE.into_response()
}

/// The answer with its true length, but only half of the body; then the connection ends.
async fn halved(response: Response, cut: Option<Cut>) -> Response {
    let (mut head, body) = response.into_parts();
    let whole = axum::body::to_bytes(body, usize::MAX).await.unwrap_or_default();
    let half = whole.slice(..whole.len() / 2);
    if half.is_empty() {
        return cut_off(cut);
    }
    head.headers.insert(CONTENT_LENGTH, HeaderValue::from(whole.len()));
    head.headers.entry(CONTENT_TYPE).or_insert(HeaderValue::from_static("application/json"));
    let pieces = futures::stream::unfold(Some((half, cut)), async |state| {
        let (half, cut) = state?;
        Some(if half.is_empty() {
            // The half that was handed over leaves before the connection ends.
            tokio::time::sleep(connection::FLUSH).await;
            if let Some(cut) = &cut {
                cut.now();
            }
            (Err(std::io::Error::from(std::io::ErrorKind::ConnectionAborted)), None)
        } else {
            (Ok(half), Some((Bytes::new(), cut)))
        })
    });
    Response::from_parts(head, Body::from_stream(pieces))
}
