//! Steps of the caller's own build: read, changed and cancelled from inside a job.

use axum::Json;
use axum::extract::State;
use jiff::{SignedDuration, Timestamp};
use serde::Deserialize;
use serde_json::{Value, json};

use super::super::Shared;
use super::super::auth::JobToken;
use super::super::error::{ApiError, ApiResult};
use super::super::extract::{self, Body, Path};
use crate::build::{Event, attributes};
use crate::problem::Problem;
use crate::store::{builds, steps};

/// The longest grace period of a forced cancel, in seconds.
const MAX_GRACE: i64 = 24 * 60 * 60;

#[derive(Deserialize)]
pub(super) struct Cancel {
    #[serde(default)]
    build_id: String,
    #[serde(default)]
    force: bool,
    #[serde(default)]
    force_grace_period: i64,
}

/// Cancels what has not ended of a step. With `force`, agents are given only the grace period to answer.
pub(super) async fn cancel(
    caller: JobToken,
    State(app): State<Shared>,
    Path(step): Path<String>,
    Body(request): Body<Cancel>,
) -> ApiResult<Json<Value>> {
    let build = own_build(&caller, &request.build_id)?;
    if !(0..=MAX_GRACE).contains(&request.force_grace_period) {
        let text = format!("force_grace_period must be between 0 and {MAX_GRACE} seconds");
        return Err(ApiError::unprocessable(text));
    }
    let grace = SignedDuration::from_secs(request.force_grace_period);
    let policy = app.policy;
    let id = app
        .store
        .transact(move |transaction| {
            let step = steps::find(transaction, build, &step)?;
            let now = Timestamp::now();
            let stop_by = request.force.then(|| now.saturating_add(grace).unwrap_or(Timestamp::MAX));
            builds::apply(transaction, build, &Event::CancelStep { step, stop_by }, &policy, now)?;
            Ok(step)
        })
        .await?;
    tracing::info!(step = %id, force = request.force, "step cancelled from inside a job");
    Ok(Json(json!({ "uuid": id })))
}

/// What is asked of a step.
#[derive(Deserialize)]
pub(super) struct Export {
    #[serde(default)]
    build_id: String,
    #[serde(default)]
    attribute: String,
    #[serde(default)]
    format: String,
}

/// One attribute of a step, or the whole step.
pub(super) async fn export(
    caller: JobToken,
    State(app): State<Shared>,
    Path(step): Path<String>,
    Body(request): Body<Export>,
) -> ApiResult<Json<Value>> {
    let build = own_build(&caller, &request.build_id)?;
    let output = app
        .store
        .transact(move |transaction| {
            let id = steps::find(transaction, build, &step)?;
            let build = builds::load(transaction, &builds::get(transaction, build)?)?;
            let placed = build.steps.iter().find(|placed| placed.id == id);
            let placed = placed.ok_or_else(|| Problem::not_found("step", id))?;
            Ok(attributes::export(&build, placed, &request.attribute, &request.format)?)
        })
        .await?;
    Ok(Json(json!({ "output": output })))
}

/// A change to a step. Repetitions carry the same `idempotency_uuid`.
#[derive(Deserialize)]
pub(super) struct Update {
    #[serde(default)]
    idempotency_uuid: String,
    #[serde(default)]
    build_id: String,
    #[serde(default)]
    attribute: String,
    #[serde(default)]
    value: String,
    #[serde(default)]
    append: bool,
}

pub(super) async fn update(
    caller: JobToken,
    State(app): State<Shared>,
    Path(step): Path<String>,
    Body(request): Body<Update>,
) -> ApiResult<Json<Value>> {
    let build = own_build(&caller, &request.build_id)?;
    let id = app
        .store
        .transact(move |transaction| {
            let id = steps::find(transaction, build, &step)?;
            if !request.idempotency_uuid.is_empty()
                && !steps::is_new_update(transaction, build, &request.idempotency_uuid)?
            {
                return Ok(id);
            }
            let (mut step, _) = builds::step(transaction, id)?;
            attributes::change(&mut step, &request.attribute, &request.value, request.append)?;
            steps::save(transaction, id, &step)?;
            Ok(id)
        })
        .await?;
    tracing::info!(step = %id, "step changed from inside a job");
    Ok(Json(json!({ "uuid": id })))
}

/// The build that a call concerns: the caller's own, which is also meant when none is named.
fn own_build(caller: &JobToken, named: &str) -> ApiResult<uuid::Uuid> {
    if named.is_empty() || extract::id("build", named)? == caller.build {
        return Ok(caller.build);
    }
    Err(ApiError::forbidden("this token belongs to another build"))
}
