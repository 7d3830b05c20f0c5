//! The log of a job: as JSON, as text, as HTML.

use axum::Json;
use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::http::header::{ACCEPT, CONTENT_TYPE};
use axum::http::{HeaderMap, HeaderName};
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use serde_json::json;

use super::super::Shared;
use super::super::error::{ApiError, ApiResult};
use super::super::extract::{BaseUrl, Params};
use super::super::transcript;
use super::jobs::{self, JobPath};
use super::render::Links;
use crate::log;

/// The most of a log that one JSON answer holds; the rest is read from `next_offset` on.
const JSON_BYTES: usize = 32 * 1024 * 1024;

#[derive(Deserialize)]
pub(super) struct Wanted {
    /// Only what comes after this byte of the raw log.
    #[serde(default)]
    offset: i64,
    /// Without the agent's time stamps.
    #[serde(default)]
    plain: bool,
}

/// What an answer looks like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    Json,
    Text,
    Html,
}

impl Form {
    fn accepted(headers: &HeaderMap) -> Self {
        let accept = headers.get(ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let first = accept.split([',', ';']).next().unwrap_or_default().trim();
        match first {
            "text/plain" => Self::Text,
            "text/html" => Self::Html,
            _ => Self::Json,
        }
    }

    fn content_type(self) -> (HeaderName, &'static str) {
        let name = match self {
            Self::Json => "application/json",
            Self::Text => "text/plain; charset=utf-8",
            Self::Html => "text/html; charset=utf-8",
        };
        (CONTENT_TYPE, name)
    }
}

/// `…/log`, in the form that the client accepts.
pub(super) async fn negotiated(
    state: State<Shared>,
    base: BaseUrl,
    path: JobPath,
    wanted: Params<Wanted>,
    headers: HeaderMap,
) -> ApiResult<Response> {
    answer(state, base, path, wanted, Form::accepted(&headers)).await
}

/// `…/log.txt`.
pub(super) async fn text(
    state: State<Shared>,
    base: BaseUrl,
    path: JobPath,
    wanted: Params<Wanted>,
) -> ApiResult<Response> {
    answer(state, base, path, wanted, Form::Text).await
}

/// `…/log.html`.
pub(super) async fn html(
    state: State<Shared>,
    base: BaseUrl,
    path: JobPath,
    wanted: Params<Wanted>,
) -> ApiResult<Response> {
    answer(state, base, path, wanted, Form::Html).await
}

async fn answer(
    State(app): State<Shared>,
    base: BaseUrl,
    Path(path): JobPath,
    Params(Wanted { offset, plain }): Params<Wanted>,
    form: Form,
) -> ApiResult<Response> {
    let id = jobs::id(&path)?;
    if offset < 0 {
        return Err(ApiError::bad_request("offset must not be negative"));
    }
    if form != Form::Json {
        let (first, _) = transcript::part(&app, id, offset, transcript::PART).await?;
        let body = transcript::whole(app, id, first, move |bytes| shown(bytes, form, plain));
        return Ok(([form.content_type()], body).into_response());
    }
    let (log, ended) = transcript::part(&app, id, offset, JSON_BYTES).await?;
    let content =
        if plain { log::plain(&log.bytes) } else { String::from_utf8_lossy(&log.bytes).into_owned() };
    Ok(Json(json!({
        "url": Links::new(&app, &base).api(&format!("jobs/{id}/log")),
        "content": content,
        "size": log.bytes.len(),
        "header_times": [],
        "next_offset": log.end,
        "complete": ended && !log.more,
    }))
    .into_response())
}

fn shown(bytes: Vec<u8>, form: Form, plain: bool) -> Bytes {
    match form {
        Form::Html => Bytes::from(escaped(&log::plain(&bytes))),
        _ if plain => Bytes::from(log::plain(&bytes)),
        _ => Bytes::from(bytes),
    }
}

/// Text as HTML shows it. Colours are left out: the page has them.
fn escaped(text: &str) -> String {
    let mut html = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => html.push_str("&amp;"),
            '<' => html.push_str("&lt;"),
            '>' => html.push_str("&gt;"),
            '"' => html.push_str("&quot;"),
            c => html.push(c),
        }
    }
    html
}
