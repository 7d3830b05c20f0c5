//! The log of a job as bytes, for a page that follows it.

use axum::extract::{Path, State};
use axum::http::HeaderName;
use axum::http::header::{CACHE_CONTROL, CONTENT_DISPOSITION, CONTENT_TYPE, X_CONTENT_TYPE_OPTIONS};
use axum::response::{IntoResponse, Response};
use serde::Deserialize;

use super::super::Shared;
use super::super::error::{ApiError, ApiResult};
use super::super::extract::{self, Params};
use crate::log;
use crate::problem::Problem;
use crate::store::{jobs, logs};

/// The byte at which the next request goes on.
const NEXT: HeaderName = HeaderName::from_static("log-next");
/// `true` when more is there already.
const MORE: HeaderName = HeaderName::from_static("log-more");
/// `true` once nothing will follow.
const COMPLETE: HeaderName = HeaderName::from_static("log-complete");

/// How much is sent at once.
const PART: usize = 1024 * 1024;

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
    let most = if download { usize::MAX } else { PART };
    let (ended, excerpt) = app
        .store
        .transact(move |transaction| {
            let state = jobs::state(transaction, id)?;
            Ok((state.is_terminal(), logs::read_from(transaction, id, from, most)?))
        })
        .await?;
    let log = log::read(&excerpt, ended).map_err(|error| Problem::Corrupt(error.to_string()))?;
    let disposition =
        if download { format!("attachment; filename=\"{id}.log\"") } else { "inline".to_owned() };
    let headers = [
        (CONTENT_TYPE, "text/plain; charset=utf-8".to_owned()),
        (CACHE_CONTROL, "no-store".to_owned()),
        (X_CONTENT_TYPE_OPTIONS, "nosniff".to_owned()),
        (CONTENT_DISPOSITION, disposition),
        (NEXT, log.end.to_string()),
        (MORE, log.more.to_string()),
        (COMPLETE, (ended && !log.more).to_string()),
    ];
    Ok((headers, log.bytes).into_response())
}
