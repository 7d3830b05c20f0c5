//! The API under `/_faults`.

use axum::extract::State;
use axum::http::StatusCode;
use axum::middleware::from_extractor_with_state;
use axum::routing::{delete, get, post};
use axum::{Json, Router};
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Value, json};

use super::super::Shared;
use super::super::agent::new_token;
use super::super::auth::ApiToken;
use super::super::error::{ApiError, ApiResult};
use super::super::extract::{self, Body, Path};
use crate::build::Event;
use crate::fault::{Fault, Faults, Standing};
use crate::problem::Problem;
use crate::store::{agents, builds, jobs, pipelines};
use crate::timer;

/// The routes that set faults; none unless the settings ask for faults.
pub(crate) fn router(app: &Shared) -> Router<Shared> {
    let Some(faults) = app.config.faults.clone() else { return Router::new() };
    let rules = Router::new()
        .route("/_faults", get(list).post(add).delete(clear))
        .route("/_faults/{id}", delete(remove))
        .with_state(faults);
    Router::new()
        .route("/_faults/queues/{key}/pause", post(pause))
        .route("/_faults/queues/{key}/resume", post(resume))
        .route("/_faults/token/rotate", post(rotate))
        .route("/_faults/agents/{agent}/lose", post(lose))
        .route("/_faults/reservations/expire", post(expire))
        .merge(rules)
        .route_layer(from_extractor_with_state::<ApiToken, _>(app.clone()))
}

async fn list(State(faults): State<Faults>) -> Json<Vec<Standing>> {
    Json(faults.list())
}

async fn add(State(faults): State<Faults>, Body(fault): Body<Fault>) -> ApiResult<(StatusCode, Json<Value>)> {
    let id = faults.add(fault).map_err(|error| ApiError::unprocessable(error.to_string()))?;
    Ok((StatusCode::CREATED, Json(json!({ "id": id }))))
}

async fn clear(State(faults): State<Faults>) -> Json<Value> {
    faults.clear();
    Json(json!({}))
}

async fn remove(State(faults): State<Faults>, Path(id): Path<String>) -> ApiResult<Json<Value>> {
    let removed = id.parse().is_ok_and(|id| faults.remove(id));
    if removed { Ok(Json(json!({}))) } else { Err(ApiError::not_found(format!("no fault {id}"))) }
}

async fn pause(state: State<Shared>, key: Path<String>) -> ApiResult<Json<Value>> {
    set_paused(state, key, true).await
}

async fn resume(state: State<Shared>, key: Path<String>) -> ApiResult<Json<Value>> {
    set_paused(state, key, false).await
}

async fn set_paused(
    State(app): State<Shared>,
    Path(key): Path<String>,
    paused: bool,
) -> ApiResult<Json<Value>> {
    let name = key.clone();
    app.store.transact(move |transaction| pipelines::pause_queue(transaction, &name, paused)).await?;
    Ok(Json(json!({ "key": key, "paused": paused })))
}

#[derive(Deserialize)]
struct Rotation {
    token: Option<String>,
}

/// The old registration token is refused from now on. After a restart the one from the settings counts again.
async fn rotate(State(app): State<Shared>, Body(wish): Body<Rotation>) -> ApiResult<Json<Value>> {
    let token = wish.token.unwrap_or_else(|| new_token("bkct"));
    if token.is_empty() || app.tokens.is_api(&token) {
        return Err(ApiError::unprocessable("the token must not be empty, nor the API token"));
    }
    app.tokens.rotate_agent(token.clone());
    Ok(Json(json!({ "token": token })))
}

/// As if the agent had been silent for too long.
async fn lose(State(app): State<Shared>, Path(agent): Path<String>) -> ApiResult<Json<Value>> {
    let id = extract::id("agent", &agent)?;
    let policy = app.policy;
    app.store
        .transact(move |transaction| {
            let agent = agents::get(transaction, id)?.ok_or_else(|| Problem::not_found("agent", id))?;
            timer::lose(transaction, &agent, &policy, Timestamp::now())
        })
        .await?;
    Ok(Json(json!({ "id": id, "connection_state": "lost" })))
}

/// As if every reservation had reached its end.
async fn expire(State(app): State<Shared>) -> ApiResult<Json<Value>> {
    let policy = app.policy;
    let expired = app
        .store
        .transact(move |transaction| {
            let reserved = jobs::reserved(transaction)?;
            for owned in &reserved {
                let event = Event::DeadlinePassed { job: owned.job.id };
                builds::apply(transaction, owned.build, &event, &policy, Timestamp::now())?;
            }
            Ok(reserved.len())
        })
        .await?;
    Ok(Json(json!({ "expired": expired })))
}
