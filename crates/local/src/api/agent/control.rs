//! Stopping, pausing and resuming the calling agent. Its next ping tells it.

use axum::Json;
use axum::extract::State;
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Value, json};

use super::super::Shared;
use super::super::auth::ActingAgent;
use super::super::error::ApiResult;
use super::super::extract::Body;
use crate::store::agents::{self, Pause};

#[derive(Deserialize)]
pub(super) struct Stop {
    #[serde(default)]
    force: bool,
}

/// Gracefully, or with `force` by cancelling the job that the agent has.
pub(super) async fn stop(
    ActingAgent(agent): ActingAgent,
    State(app): State<Shared>,
    Body(Stop { force }): Body<Stop>,
) -> ApiResult<Json<Value>> {
    let policy = app.policy;
    app.store
        .transact(move |transaction| agents::stop(transaction, agent.id, force, &policy, Timestamp::now()))
        .await?;
    tracing::info!(agent = agent.name, force, "agent asked to stop");
    Ok(Json(json!({})))
}

#[derive(Deserialize)]
pub(super) struct PauseRequest {
    #[serde(default)]
    note: String,
    timeout_in_minutes: Option<i64>,
}

pub(super) async fn pause(
    ActingAgent(agent): ActingAgent,
    State(app): State<Shared>,
    Body(request): Body<PauseRequest>,
) -> ApiResult<Json<Value>> {
    let pause = Pause::lasting(request.note, request.timeout_in_minutes, Timestamp::now())?;
    tracing::info!(agent = agent.name, until = %pause.until, "agent paused");
    app.store.transact(move |transaction| agents::set_pause(transaction, agent.id, Some(&pause))).await?;
    Ok(Json(json!({})))
}

pub(super) async fn resume(
    ActingAgent(agent): ActingAgent,
    State(app): State<Shared>,
) -> ApiResult<Json<Value>> {
    app.store.transact(move |transaction| agents::set_pause(transaction, agent.id, None)).await?;
    tracing::info!(agent = agent.name, "agent resumed");
    Ok(Json(json!({})))
}
