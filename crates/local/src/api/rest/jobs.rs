//! Single jobs: environment, cancel, retry, unblock.

use std::collections::HashMap;

use axum::Json;
use axum::extract::{Path, State};
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Value, json};
use uuid::Uuid;

use super::super::Shared;
use super::super::error::ApiResult;
use super::super::extract::{self, BaseUrl, Body};
use super::render::{self, Links};
use crate::build::{Event, JobState, Policy};
use crate::pipeline::env as environment;
use crate::pipeline::step::{Env, Kind};
use crate::problem::Problem;
use crate::store::jobs::OwnedJob;
use crate::store::{agents, builds, facts, jobs};

/// A job's path comes with and without pipeline and build; the id is all that counts.
pub(super) type JobPath = Path<HashMap<String, String>>;

pub(super) fn id(path: &HashMap<String, String>) -> ApiResult<Uuid> {
    extract::id("job", super::segment(path, "job"))
}

pub(super) async fn show(
    State(app): State<Shared>,
    base: BaseUrl,
    Path(path): JobPath,
) -> ApiResult<Json<Value>> {
    let id = id(&path)?;
    let links = Links::new(&app, &base);
    let job = app.store.transact(move |transaction| render::one_job(transaction, id, &links)).await?;
    Ok(Json(job))
}

/// The environment of a job, as its agent gets it.
pub(super) async fn env(
    State(app): State<Shared>,
    BaseUrl(base): BaseUrl,
    Path(path): JobPath,
) -> ApiResult<Json<Value>> {
    let id = id(&path)?;
    let slug = app.config.organization.clone();
    let env = app
        .store
        .transact(move |transaction| {
            let owned = jobs::get(transaction, id)?;
            let agent = owned.job.agent.map(|agent| agents::get(transaction, agent)).transpose()?.flatten();
            let organization = facts::organization(transaction, &slug, &base)?;
            let facts = facts::of_job(transaction, organization, &owned, agent.as_ref())?;
            match &facts.step.kind {
                Kind::Command(command) => Ok(environment::environment(&facts, command)),
                _ => {
                    Err(Problem::Refused(format!("job {id} is not a command job, so it has no environment")))
                }
            }
        })
        .await?;
    Ok(Json(json!({ "env": env })))
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
                (Some(next), state) if state != JobState::Canceling => next,
                _ => id,
            };
            render::one_job(transaction, shown, &links)
        })
        .await?;
    Ok(Json(job))
}
