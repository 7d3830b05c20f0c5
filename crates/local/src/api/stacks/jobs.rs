//! Finding, reserving and ending jobs.

use axum::Json;
use axum::extract::State;
use bk_buildkite::stacks::{
    BATCH_MAX, ClusterQueue, FINISH_DETAIL_MAX, FinishJob, JobStates, ListScheduledJobs, PageInfo,
    ScheduledJobs, StackJob,
};
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::json;
use uuid::Uuid;

use super::super::Shared;
use super::super::auth::Registration;
use super::super::error::{ApiError, ApiResult};
use super::super::extract::{self, BaseUrl, Body, Params, Path};
use super::{connected, queue};
use crate::build::Event;
use crate::pipeline::env;
use crate::pipeline::step::Kind;
use crate::problem::Problem;
use crate::store::stacks::Cursor;
use crate::store::{builds, facts, jobs, stacks};

const DEFAULT_PAGE: u32 = 100;
const MAX_RESERVATION: i64 = 3600;

pub(super) async fn list(
    _: Registration,
    State(app): State<Shared>,
    Path(key): Path<String>,
    Params(query): Params<ListScheduledJobs>,
) -> ApiResult<Json<ScheduledJobs>> {
    let limit = query.limit.unwrap_or(DEFAULT_PAGE) as usize;
    if !(1..=BATCH_MAX).contains(&limit) {
        return Err(ApiError::bad_request(format!("limit must be between 1 and {BATCH_MAX}")));
    }
    let after = match query.after.as_deref().filter(|after| !after.is_empty()) {
        Some(text) => Some(Cursor::parse(text).ok_or_else(|| ApiError::bad_request("after is no cursor"))?),
        None => None,
    };
    let create = app.creates_queues();
    let page = app
        .store
        .transact(move |transaction| {
            let stack = connected(transaction, &key)?;
            stacks::seen(transaction, &stack, Timestamp::now())?;
            let queue = queue(transaction, &query.queue_key, create)?;
            let (jobs, next) = if queue.paused {
                // Not every controller looks at the flag.
                (Vec::new(), None)
            } else {
                stacks::scheduled(transaction, &queue.key, after, limit)?
            };
            Ok(ScheduledJobs {
                jobs,
                page_info: PageInfo { has_next_page: next.is_some(), end_cursor: next.map(Cursor::to_text) },
                cluster_queue: ClusterQueue {
                    id: Some(queue.id.to_string()),
                    dispatch_paused: queue.paused,
                    paused: queue.paused,
                },
                pause: None,
            })
        })
        .await?;
    Ok(Json(page))
}

/// Ids are read one by one: what is no UUID names no job, and does not spoil the others.
#[derive(Deserialize)]
pub(super) struct ReserveRequest {
    job_uuids: Vec<String>,
    reservation_expiry_seconds: Option<i64>,
}

/// The answer to a reservation, with ids as they were asked for.
#[derive(Default, Serialize)]
pub(super) struct Reserved {
    reserved: Vec<String>,
    not_reserved: Vec<String>,
}

pub(super) async fn reserve(
    _: Registration,
    State(app): State<Shared>,
    Path(key): Path<String>,
    Body(request): Body<ReserveRequest>,
) -> ApiResult<Json<Reserved>> {
    check_batch(request.job_uuids.len())?;
    let span = match request.reservation_expiry_seconds {
        Some(seconds) if (1..=MAX_RESERVATION).contains(&seconds) => SignedDuration::from_secs(seconds),
        Some(_) => {
            let text = format!("reservation_expiry_seconds must be between 1 and {MAX_RESERVATION}");
            return Err(ApiError::unprocessable(text));
        }
        None => SignedDuration::try_from(app.config.reservation).unwrap_or(SignedDuration::from_mins(15)),
    };
    let answer = app
        .store
        .transact(move |transaction| {
            let stack = connected(transaction, &key)?;
            let until = Timestamp::now().saturating_add(span).unwrap_or(Timestamp::MAX);
            let mut answer = Reserved::default();
            for text in request.job_uuids {
                let reserved = match Uuid::parse_str(&text) {
                    Ok(id) => stacks::reserve(transaction, id, stack.id, until)?,
                    Err(_) => false,
                };
                if reserved { answer.reserved.push(text) } else { answer.not_reserved.push(text) }
            }
            Ok(answer)
        })
        .await?;
    Ok(Json(answer))
}

pub(super) async fn show(
    _: Registration,
    State(app): State<Shared>,
    BaseUrl(base): BaseUrl,
    Path((key, job)): Path<(String, String)>,
) -> ApiResult<Json<StackJob>> {
    let id = extract::id("job", &job)?;
    let slug = app.config.organization.clone();
    let job = app
        .store
        .transact(move |transaction| {
            connected(transaction, &key)?;
            let owned = jobs::get(transaction, id)?;
            let organization = facts::organization(transaction, &slug, &base)?;
            let facts = facts::of_job(transaction, organization, &owned, None)?;
            match &facts.step.kind {
                Kind::Command(command) => Ok(StackJob {
                    id,
                    env: env::environment(&facts, command),
                    command: command.script.clone(),
                }),
                _ => Err(Problem::not_found("command job", id)),
            }
        })
        .await?;
    Ok(Json(job))
}

#[derive(Deserialize)]
pub(super) struct StatesRequest {
    job_uuids: Vec<String>,
}

pub(super) async fn states(
    _: Registration,
    State(app): State<Shared>,
    Path(key): Path<String>,
    Body(request): Body<StatesRequest>,
) -> ApiResult<Json<JobStates>> {
    check_batch(request.job_uuids.len())?;
    let ids: Vec<Uuid> = request.job_uuids.iter().filter_map(|text| Uuid::parse_str(text).ok()).collect();
    let states = app
        .store
        .transact(move |transaction| {
            connected(transaction, &key)?;
            stacks::states(transaction, &ids)
        })
        .await?;
    Ok(Json(JobStates { states }))
}

pub(super) async fn finish(
    _: Registration,
    State(app): State<Shared>,
    Path((key, job)): Path<(String, String)>,
    Body(request): Body<FinishJob>,
) -> ApiResult<Json<serde_json::Value>> {
    let id = extract::id("job", &job)?;
    if !(1..=FINISH_DETAIL_MAX).contains(&request.detail.len()) {
        return Err(ApiError::unprocessable(format!("detail must have 1 to {FINISH_DETAIL_MAX} bytes")));
    }
    let policy = app.policy;
    let exit_status = i64::from(request.exit_status);
    app.store
        .transact(move |transaction| {
            let stack = connected(transaction, &key)?;
            let owned = jobs::get(transaction, id)?;
            let now = Timestamp::now();
            let event = Event::StackFinished { job: id, stack: stack.id, exit_status };
            builds::apply(transaction, owned.build, &event, &policy, now)?;
            jobs::add_event(transaction, id, now, "stack_error", &request.detail)
        })
        .await?;
    tracing::info!(job = %id, exit_status, "job finished by its stack");
    Ok(Json(json!({})))
}

pub(super) fn check_batch(count: usize) -> ApiResult<()> {
    if count > BATCH_MAX {
        return Err(ApiError::unprocessable(format!("at most {BATCH_MAX} items are taken at once")));
    }
    Ok(())
}
