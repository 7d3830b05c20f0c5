//! The life of a job, as its agent drives it.

use axum::Json;
use axum::extract::{Path, State};
use bk_buildkite::agent::{AcquiredJob, FinishedJob, JobStatus, StartJob};
use jiff::Timestamp;
use serde_json::json;

use super::super::Shared;
use super::super::auth::{CallingAgent, JobAccess};
use super::super::error::{ApiError, ApiResult};
use super::super::extract::{self, BaseUrl, Body};
use super::new_token;
use crate::build::Event;
use crate::build::job::Ending;
use crate::pipeline::env::{self, Facts};
use crate::pipeline::step::{Command, Kind};
use crate::problem::Problem;
use crate::store::{builds, facts, jobs};

/// What the hosted service tells agents about logs.
const CHUNK_BYTES: u64 = 100 * 1024;

pub(super) async fn acquire(
    CallingAgent(agent): CallingAgent,
    State(app): State<Shared>,
    BaseUrl(base): BaseUrl,
    Path(job): Path<String>,
) -> ApiResult<Json<AcquiredJob>> {
    let id = extract::id("job", &job)?;
    let slug = app.config.organization.clone();
    let policy = app.policy;
    let log_max_size_bytes = app.config.log_max_bytes;
    let acquired = app
        .store
        .transact(move |transaction| {
            let mut owned = jobs::get(transaction, id)?;
            owned.job.accept(agent.id, new_token("bkaj"), Timestamp::now())?;
            jobs::save(transaction, owned.build, &owned.job, &policy)?;
            let organization = facts::organization(transaction, &slug, &base)?;
            let facts = facts::of_job(transaction, organization, &owned, Some(&agent))?;
            let Kind::Command(command) = &facts.step.kind else {
                return Err(Problem::Refused(format!("job {id} is not a command job")));
            };
            tracing::info!(job = %id, agent = agent.name, "job acquired");
            Ok(AcquiredJob {
                id: id.to_string(),
                state: owned.job.state.to_string(),
                env: env::environment(&facts, command),
                token: owned.job.token.clone().unwrap_or_default(),
                chunks_max_size_bytes: CHUNK_BYTES,
                chunks_interval_seconds: 1,
                log_max_size_bytes,
                step: Some(step(&facts, command)),
                priority: owned.job.priority,
                runnable_at: owned.job.runnable_at.map(|at| at.to_string()),
            })
        })
        .await?;
    Ok(Json(acquired))
}

/// The step as the agent knows it: what it verifies a signature against.
fn step(facts: &Facts, command: &Command) -> serde_json::Value {
    let mut step = json!({
        "command": command.script,
        "env": command.env,
        "plugins": command.plugins,
    });
    for (name, value) in [("key", &facts.step.key), ("label", &facts.step.label)] {
        if let Some(value) = value {
            step[name] = json!(value);
        }
    }
    if let Some(signature) = &command.signature {
        step["signature"] = signature.clone();
    }
    step
}

pub(super) async fn start(
    access: JobAccess,
    State(app): State<Shared>,
    Body(request): Body<StartJob>,
) -> ApiResult<Json<serde_json::Value>> {
    let policy = app.policy;
    let JobAccess { job: id, build } = access;
    app.store
        .transact(move |transaction| {
            let mut job = jobs::get(transaction, id)?.job;
            let at = claimed(&request.started_at, job.accepted_at);
            job.start(at)?;
            jobs::save(transaction, build, &job, &policy)?;
            builds::note_start(transaction, build, at)
        })
        .await?;
    tracing::info!(job = %id, "job started");
    Ok(Json(json!({ "id": id })))
}

pub(super) async fn state(access: JobAccess, State(app): State<Shared>) -> ApiResult<Json<JobStatus>> {
    let state = app.store.transact(move |transaction| jobs::state(transaction, access.job)).await?;
    Ok(Json(JobStatus { state: state.to_string() }))
}

pub(super) async fn finish(
    access: JobAccess,
    State(app): State<Shared>,
    Body(request): Body<FinishedJob>,
) -> ApiResult<Json<serde_json::Value>> {
    let exit_status = request.exit_status.parse().map_err(|_| {
        ApiError::unprocessable(format!("exit_status {:?} is no number", request.exit_status))
    })?;
    let some = |text: String| Some(text).filter(|text| !text.is_empty());
    let ending =
        Ending { exit_status, signal: some(request.signal), signal_reason: some(request.signal_reason) };
    let policy = app.policy;
    let JobAccess { job: id, build } = access;
    if request.chunks_failed_count > 0 {
        tracing::warn!(job = %id, chunks = request.chunks_failed_count, "the agent could not deliver all of the log");
    }
    app.store
        .transact(move |transaction| {
            let job = jobs::get(transaction, id)?.job;
            let at = claimed(&request.finished_at, job.started_at.or(job.accepted_at));
            let event = Event::Finished { job: id, ending, at };
            builds::apply(transaction, build, &event, &policy, Timestamp::now())
        })
        .await?;
    tracing::info!(job = %id, exit_status, "job finished");
    Ok(Json(json!({ "id": id })))
}

/// The time that an agent claims, kept between what came before and now: its clock may be wrong.
fn claimed(text: &str, not_before: Option<Timestamp>) -> Timestamp {
    let now = Timestamp::now();
    let at = text.parse().map_or(now, |at: Timestamp| at.min(now));
    not_before.map_or(at, |earliest| at.max(earliest))
}
