//! Agents: who is connected, and stopping, pausing and resuming them.

use std::collections::HashMap;

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::routing::{get, put};
use axum::{Json, Router};
use jiff::Timestamp;
use rusqlite::Transaction;
use serde::Deserialize;
use serde_json::Value;
use uuid::Uuid;

use super::super::Shared;
use super::super::error::ApiResult;
use super::super::extract::{self, BaseUrl, Body};
use super::filter::Pairs;
use super::paging::{Listed, Paging};
use super::render::{self, Links};
use crate::problem::Problem;
use crate::store::agents::{self, AgentRow, Pause};
use crate::store::jobs;

/// The routes of agents, below an organisation.
pub(super) fn router() -> Router<Shared> {
    Router::new()
        .route("/agents", get(list))
        .route("/agents/{agent}", get(show))
        .route("/agents/{agent}/stop", put(stop))
        .route("/agents/{agent}/pause", put(pause))
        .route("/agents/{agent}/resume", put(resume))
}

/// The path of an agent: its id.
type AgentPath = Path<HashMap<String, String>>;

fn id(path: &HashMap<String, String>) -> ApiResult<Uuid> {
    extract::id("agent", super::segment(path, "agent"))
}

fn find(transaction: &Transaction<'_>, id: Uuid) -> Result<AgentRow, Problem> {
    agents::get(transaction, id)?.ok_or_else(|| Problem::not_found("agent", id))
}

fn with_job(transaction: &Transaction<'_>, row: &AgentRow, links: &Links) -> Result<Value, Problem> {
    let mut shown = render::agent(row, links);
    shown["job"] = match jobs::of_agent(transaction, row.id)? {
        Some(owned) => render::one_job(transaction, owned.job.id, links)?,
        None => Value::Null,
    };
    Ok(shown)
}

/// The agents that are connected; by name, host or version when asked.
async fn list(State(app): State<Shared>, base: BaseUrl, paging: Paging, query: Pairs) -> ApiResult<Listed> {
    let links = Links::new(&app, &base);
    let agents = app
        .store
        .transact(move |transaction| {
            let wanted = |name: &str, value: &str| query.one(name).is_none_or(|one| one == value);
            agents::connected(transaction)?
                .iter()
                .filter(|row| {
                    wanted("name", &row.name)
                        && wanted("hostname", &row.hostname)
                        && wanted("version", &row.version)
                })
                .map(|row| with_job(transaction, row, &links))
                .collect::<Result<Vec<_>, _>>()
        })
        .await?;
    Ok(paging.cut(agents))
}

async fn show(State(app): State<Shared>, base: BaseUrl, Path(path): AgentPath) -> ApiResult<Json<Value>> {
    let id = id(&path)?;
    let links = Links::new(&app, &base);
    let agent =
        app.store.transact(move |transaction| with_job(transaction, &find(transaction, id)?, &links)).await?;
    Ok(Json(agent))
}

#[derive(Deserialize)]
struct Stop {
    /// Also end the job that it has. The hosted service does unless told otherwise.
    #[serde(default = "yes")]
    force: bool,
}

fn yes() -> bool {
    true
}

async fn stop(
    State(app): State<Shared>,
    Path(path): AgentPath,
    Body(Stop { force }): Body<Stop>,
) -> ApiResult<StatusCode> {
    let id = id(&path)?;
    let policy = app.policy;
    app.store
        .transact(move |transaction| {
            let row = find(transaction, id)?;
            if row.state != "connected" {
                return Err(Problem::Refused(format!(
                    "agent {} is not connected: it is {}",
                    row.name, row.state
                )));
            }
            agents::stop(transaction, row.id, force, &policy, Timestamp::now())
        })
        .await?;
    Ok(StatusCode::NO_CONTENT)
}

#[derive(Deserialize)]
struct PauseRequest {
    #[serde(default)]
    note: String,
    timeout_in_minutes: Option<i64>,
}

async fn pause(
    State(app): State<Shared>,
    Path(path): AgentPath,
    Body(request): Body<PauseRequest>,
) -> ApiResult<StatusCode> {
    let id = id(&path)?;
    let pause = Pause::lasting(request.note, request.timeout_in_minutes, Timestamp::now())?;
    set_pause(&app, id, Some(pause)).await
}

async fn resume(State(app): State<Shared>, Path(path): AgentPath) -> ApiResult<StatusCode> {
    set_pause(&app, id(&path)?, None).await
}

async fn set_pause(app: &Shared, id: Uuid, pause: Option<Pause>) -> ApiResult<StatusCode> {
    app.store
        .transact(move |transaction| {
            let row = find(transaction, id)?;
            agents::set_pause(transaction, row.id, pause.as_ref())
        })
        .await?;
    Ok(StatusCode::NO_CONTENT)
}
