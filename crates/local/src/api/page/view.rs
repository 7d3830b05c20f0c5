//! What the page shows, as JSON: gathered in one transaction, shaped by pure functions.
//!
//! Each answer carries the number of the newest change as its tag, so a page that asks again while nothing has
//! changed costs no look into the database.

pub(super) mod agents;
pub(super) mod build;
pub(super) mod job;
mod name;
pub(super) mod pipelines;
mod status;
mod timeline;
mod waiting;

use axum::Json;
use axum::http::header::{CACHE_CONTROL, ETAG, IF_NONE_MATCH};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use jiff::Timestamp;
use rusqlite::Transaction;
use serde::{Serialize, Serializer};

use super::super::Shared;
use super::super::error::ApiResult;
use crate::problem::Problem;

/// A time as scripts like it: milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Millis(Timestamp);

impl Serialize for Millis {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_i64(self.0.as_millisecond())
    }
}

/// Answers with what `gather` finds, or that nothing has changed since the caller asked last.
async fn answer<T, F>(app: &Shared, headers: &HeaderMap, gather: F) -> ApiResult<Response>
where
    T: Serialize + Send + 'static,
    F: FnOnce(&Transaction<'_>) -> Result<T, Problem> + Send + 'static,
{
    // Read before the database is: what changes in between is told as a newer number.
    let number = *app.store.changes().borrow();
    let tag = format!("\"{}-{number}\"", app.run.id);
    let named = [(ETAG, tag.clone()), (CACHE_CONTROL, "no-store".to_owned())];
    if headers.get(IF_NONE_MATCH).is_some_and(|known| known == tag.as_str()) {
        return Ok((StatusCode::NOT_MODIFIED, named).into_response());
    }
    let view = app.store.transact(gather).await?;
    Ok((named, Json(view)).into_response())
}
