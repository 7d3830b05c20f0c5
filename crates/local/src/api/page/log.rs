//! The log of a job as bytes, for a page that follows it.

use axum::body::Bytes;
use axum::extract::State;
use axum::http::HeaderName;
use axum::http::header::{CACHE_CONTROL, CONTENT_DISPOSITION, CONTENT_TYPE, X_CONTENT_TYPE_OPTIONS};
use axum::response::{IntoResponse, Response};
use serde::Deserialize;

use super::super::Shared;
use super::super::error::{ApiError, ApiResult};
use super::super::extract::{self, Params, Path};
use super::super::transcript;

/// The byte at which the next request goes on.
const NEXT: HeaderName = HeaderName::from_static("log-next");
/// `true` when more is there already.
const MORE: HeaderName = HeaderName::from_static("log-more");
/// `true` once nothing will follow.
const COMPLETE: HeaderName = HeaderName::from_static("log-complete");

#[derive(Deserialize)]
pub(super) struct Query {
    /// Only what comes after this byte.
    #[serde(default)]
    from: i64,
    /// As a file to keep.
    #[serde(default)]
    download: bool,
}

pub(super) async fn show(
    State(app): State<Shared>,
    Path(job): Path<String>,
    Params(Query { from, download }): Params<Query>,
) -> ApiResult<Response> {
    let id = extract::id("job", &job)?;
    if from < 0 {
        return Err(ApiError::bad_request("from must not be negative"));
    }
    let (log, ended) = transcript::part(&app, id, from, transcript::PART).await?;
    if download {
        let name = format!("attachment; filename=\"{id}.log\"");
        return Ok(([(CONTENT_DISPOSITION, name)], plain(), transcript::whole(app, id, log, Bytes::from))
            .into_response());
    }
    let headers = [
        (CONTENT_DISPOSITION, "inline".to_owned()),
        (NEXT, log.end.to_string()),
        (MORE, log.more.to_string()),
        (COMPLETE, (ended && !log.more).to_string()),
    ];
    Ok((headers, plain(), log.bytes).into_response())
}

/// Bytes that are text and nothing else, whatever they look like.
fn plain() -> [(HeaderName, &'static str); 3] {
    [
        (CONTENT_TYPE, "text/plain; charset=utf-8"),
        (CACHE_CONTROL, "no-store"),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
    ]
}
