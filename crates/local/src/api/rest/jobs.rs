//! Single jobs: log, cancel, retry, unblock.

use std::collections::HashMap;

use axum::Json;
use axum::extract::{Path, State};
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Value, json};
use uuid::Uuid;

use super::super::Shared;
use super::super::error::{ApiError, ApiResult};
use super::super::extract::{self, BaseUrl, Body, Params};
use super::render::{self, Links};
use crate::build::{Event, JobState, Policy};
use crate::log;
use crate::pipeline::step::Env;
use crate::problem::Problem;
use crate::store::jobs::OwnedJob;
use crate::store::{builds, jobs, logs, pipelines};

/// A job's path comes with and without pipeline and build; the id is all that counts.
type JobPath = Path<HashMap<String, String>>;

fn id(path: &HashMap<String, String>) -> ApiResult<Uuid> {
    extract::id("job", path.get("job").map_or("", String::as_str))
}

#[derive(Deserialize)]
pub(super) struct LogQuery {
    /// Only what comes after this byte of the raw log.
    #[serde(default)]
    offset: i64,
}

pub(super) async fn log(
    State(app): State<Shared>,
    Path(path): JobPath,
    Params(LogQuery { offset }): Params<LogQuery>,
) -> ApiResult<Json<Value>> {
    let id = id(&path)?;
    if offset < 0 {
        return Err(ApiError::bad_request("offset must not be negative"));
    }
    let (ended, excerpt) = app
        .store
        .transact(move |transaction| {
            let state = jobs::state(transaction, id)?;
            Ok((state.is_terminal(), logs::read_from(transaction, id, offset, usize::MAX)?))
        })
        .await?;
    let log = log::read(&excerpt, ended).map_err(|error| Problem::Corrupt(error.to_string()))?;
    Ok(Json(json!({
        "content": log::plain(&log.bytes),
        "size": log.bytes.len(),
        "next_offset": log.end,
        "complete": ended,
        "header_times": [],
    })))
}

pub(super) async fn cancel(
    state: State<Shared>,
    base: BaseUrl,
    Path(path): JobPath,
) -> ApiResult<Json<Value>> {
    let job = id(&path)?;
    apply(state, base, job, Event::CancelJob { job }).await
}

pub(super) async fn retry(
    state: State<Shared>,
    base: BaseUrl,
    Path(path): JobPath,
) -> ApiResult<Json<Value>> {
    let job = id(&path)?;
    apply(state, base, job, Event::Retry { job }).await
}

#[derive(Deserialize, Default)]
pub(super) struct Unblock {
    #[serde(default)]
    fields: Env,
}

pub(super) async fn unblock(
    state: State<Shared>,
    base: BaseUrl,
    Path(path): JobPath,
    Body(request): Body<Unblock>,
) -> ApiResult<Json<Value>> {
    change(state, base, id(&path)?, move |transaction, owned, policy, now| {
        builds::unblock(transaction, owned, &request.fields, policy, now)
    })
    .await
}

async fn apply(state: State<Shared>, base: BaseUrl, job: Uuid, event: Event) -> ApiResult<Json<Value>> {
    change(state, base, job, move |transaction, owned, policy, now| {
        builds::apply(transaction, owned.build, &event, policy, now)
    })
    .await
}

/// Changes a job; answers with the job, or with the one that took its place.
async fn change<F>(State(app): State<Shared>, base: BaseUrl, id: Uuid, with: F) -> ApiResult<Json<Value>>
where
    F: FnOnce(&rusqlite::Transaction<'_>, &OwnedJob, &Policy, Timestamp) -> Result<(), Problem>
        + Send
        + 'static,
{
    let links = Links::new(&app, &base);
    let policy = app.policy;
    let job = app
        .store
        .transact(move |transaction| {
            let owned = jobs::get(transaction, id)?;
            with(transaction, &owned, &policy, Timestamp::now())?;
            let changed = jobs::get(transaction, id)?;
            let shown = match (changed.job.retried_in, changed.job.state) {
                (Some(next), state) if state != JobState::Canceling => jobs::get(transaction, next)?,
                _ => changed,
            };
            let build = builds::get(transaction, shown.build)?;
            let pipeline = pipelines::by_id(transaction, build.pipeline)?;
            render::job(transaction, &pipeline, &build, &shown.job, &links)
        })
        .await?;
    Ok(Json(job))
}
