//! Logs as agents send them.

use axum::Json;
use axum::extract::State;
use axum::http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use axum::http::{HeaderMap, StatusCode};
use bk_buildkite::agent::ChunkPosition;
use serde_json::json;

use super::super::Shared;
use super::super::auth::JobAccess;
use super::super::error::{ApiError, ApiResult};
use super::super::extract::{Body, Params, RawBody};
use crate::build::JobState;
use crate::log::{self, BadChunk, Chunk};
use crate::problem::Problem;
use crate::store::{jobs, logs};

pub(super) async fn chunk(
    access: JobAccess,
    State(app): State<Shared>,
    Params(position): Params<ChunkPosition>,
    headers: HeaderMap,
    RawBody(body): RawBody,
) -> ApiResult<Json<serde_json::Value>> {
    let ChunkPosition { sequence, offset, size } = position;
    if sequence < 0 || offset < 0 || size < 0 || offset.checked_add(size).is_none() {
        return Err(ApiError::bad_request("sequence, offset or size is out of range"));
    }
    if headers.get(CONTENT_ENCODING).is_none_or(|encoding| encoding != "gzip") {
        return Err(ApiError::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "log chunks must be sent with gzip"));
    }
    let kind = headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or("text/plain");
    if !kind.starts_with("text/plain") {
        let text = format!("log chunks must be sent as text/plain, not {kind:?}");
        return Err(ApiError::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, text));
    }
    let chunk = Chunk { offset, size, gzip: body.to_vec() };
    log::unpack(&chunk).map_err(|error| refused(&error))?;
    let id = access.job;
    let limit = app.config.log_max_bytes;
    app.store
        .transact(move |transaction| {
            let state = jobs::state(transaction, id)?;
            let writing = matches!(state, JobState::Running | JobState::Canceling | JobState::TimingOut);
            // A repetition may come after the end; what it carries is here already.
            if !writing && !logs::has(transaction, id, sequence)? {
                return Err(Problem::Refused(format!("job {id} takes no log: it is {state}")));
            }
            logs::add(transaction, id, sequence, &chunk, i64::try_from(limit).unwrap_or(i64::MAX))
        })
        .await?;
    Ok(Json(json!({})))
}

fn refused(bad: &BadChunk) -> ApiError {
    let status = match bad {
        BadChunk::Gzip(_) => StatusCode::BAD_REQUEST,
        BadChunk::Size { .. } | BadChunk::Larger { .. } => StatusCode::UNPROCESSABLE_ENTITY,
        BadChunk::TooLarge { .. } => StatusCode::PAYLOAD_TOO_LARGE,
    };
    ApiError::new(status, bk_ops::report::one_line(bad))
}

/// Times of group headers from agents without time stamps in their logs. They are not kept.
pub(super) async fn header_times(
    _: JobAccess,
    Body(_): Body<serde_json::Map<String, serde_json::Value>>,
) -> Json<serde_json::Value> {
    Json(json!({}))
}
