//! The life of a job, as its agent drives it.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use bk_buildkite::agent::{FinishedJob, JobStatus, StartJob};
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::super::Shared;
use super::super::auth::JobAccess;
use super::super::error::{ApiError, ApiResult};
use super::super::extract::Body;
use crate::build::job::{Ending, JobKind};
use crate::build::{Event, Refusal};
use crate::pipeline::step::Kind;
use crate::problem::Problem;
use crate::store::{agents, builds, jobs};

/// How far above its step's timeout a job may set its own, in minutes.
const TIMEOUT_ROOM: u32 = 60;
/// A year of minutes, so that nonsense does not overflow.
const MAX_TIMEOUT: u32 = 366 * 24 * 60;

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
            builds::apply(transaction, build, &event, &policy, Timestamp::now())?;
            match job.agent {
                Some(agent) if request.ignore_agent_in_dispatches => agents::ignore(transaction, agent),
                _ => Ok(()),
            }
        })
        .await?;
    tracing::info!(job = %id, exit_status, "job finished");
    Ok(Json(json!({ "id": id })))
}

/// Changes an attribute of the job: of all, the timeout can be.
pub(super) async fn update(
    access: JobAccess,
    State(app): State<Shared>,
    Body(attributes): Body<Map<String, Value>>,
) -> ApiResult<Json<Value>> {
    let minutes = wished_timeout(&attributes).map_err(ApiError::unprocessable)?;
    let policy = app.policy;
    let JobAccess { job: id, build } = access;
    app.store
        .transact(move |transaction| {
            let mut job = jobs::get(transaction, id)?.job;
            if job.kind != JobKind::Command || job.state.is_terminal() {
                return Err(Refusal::WrongState { id, state: job.state, change: "updated" }.into());
            }
            let (step, _) = builds::step(transaction, job.step)?;
            let most = match step.kind {
                Kind::Command(command) => {
                    command.timeout_in_minutes.map(|first| first.saturating_add(TIMEOUT_ROOM))
                }
                _ => None,
            };
            if let Some(most) = most.filter(|most| minutes > *most) {
                let text = format!("timeout must be at most {most}: {TIMEOUT_ROOM} minutes above the step's");
                return Err(Problem::Refused(text));
            }
            job.timeout_in_minutes = Some(minutes);
            jobs::save(transaction, build, &job, &policy)
        })
        .await?;
    tracing::info!(job = %id, minutes, "job timeout changed");
    Ok(Json(json!({ "id": id })))
}

/// The timeout in an update, which must name it and nothing else.
fn wished_timeout(attributes: &Map<String, Value>) -> Result<u32, String> {
    let mut wished = None;
    for (name, value) in attributes {
        if name != "timeout" && name != "timeout_in_minutes" {
            return Err(format!("{name:?} cannot be changed; timeout can"));
        }
        let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        let minutes = text.trim().parse().ok().filter(|minutes| (1..=MAX_TIMEOUT).contains(minutes));
        wished = Some(minutes.ok_or_else(|| {
            format!("timeout must be a whole number of minutes from 1 to {MAX_TIMEOUT}, not {text:?}")
        })?);
    }
    wished.ok_or_else(|| "nothing to change; give timeout".to_owned())
}

/// What a running job announces about its end.
#[derive(Deserialize)]
pub(super) struct Promise {
    #[serde(default)]
    exit_status: Value,
    #[serde(default)]
    reason: Option<String>,
}

/// The job will fail: the build need not wait for its end to be failing.
pub(super) async fn promise_failure(
    access: JobAccess,
    State(app): State<Shared>,
    Body(promise): Body<Promise>,
) -> ApiResult<StatusCode> {
    let exit_status = promise
        .exit_status
        .as_i64()
        .filter(|status| *status != 0 && i32::try_from(*status).is_ok())
        .ok_or_else(|| ApiError::unprocessable("exit_status must be a whole number other than 0"))?;
    let policy = app.policy;
    let JobAccess { job: id, build } = access;
    app.store
        .transact(move |transaction| {
            let repeated = jobs::get(transaction, id)?.job.promised_exit.is_some();
            let now = Timestamp::now();
            builds::apply(transaction, build, &Event::Promised { job: id, exit_status }, &policy, now)?;
            if repeated {
                return Ok(());
            }
            let reason = promise.reason.filter(|reason| !reason.is_empty());
            let detail = match reason {
                Some(reason) => format!("the job will fail with exit status {exit_status}: {reason}"),
                None => format!("the job will fail with exit status {exit_status}"),
            };
            jobs::add_event(transaction, id, now, "promised_failure", &detail)
        })
        .await?;
    tracing::info!(job = %id, exit_status, "job promised to fail");
    Ok(StatusCode::NO_CONTENT)
}

/// The time that an agent claims, kept between what came before and now: its clock may be wrong.
fn claimed(text: &str, not_before: Option<Timestamp>) -> Timestamp {
    let now = Timestamp::now();
    let at = text.parse().map_or(now, |at: Timestamp| at.min(now));
    not_before.map_or(at, |earliest| at.max(earliest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case(json!({"timeout": "20"}), Some(20))]
    #[case(json!({"timeout_in_minutes": "1"}), Some(1))]
    #[case(json!({"timeout": 20}), Some(20))]
    #[case(json!({"timeout": "0"}), None)]
    #[case(json!({"timeout": "-1"}), None)]
    #[case(json!({"timeout": "1.5"}), None)]
    #[case(json!({"timeout": ""}), None)]
    #[case(json!({"timeout": null}), None)]
    #[case(json!({"timeout": "99999999999999999999"}), None)]
    #[case(json!({"timeout": "4294967295"}), None)]
    #[case(json!({"priority": "1"}), None)]
    #[case(json!({}), None)]
    fn timeouts_are_whole_minutes(#[case] attributes: Value, #[case] expected: Option<u32>) {
        let Value::Object(attributes) = attributes else { unreachable!("the table has objects") };
        assert_eq!(wished_timeout(&attributes).ok(), expected);
    }
}
