//! The Agent API.

mod annotations;
mod data;
mod jobs;
mod logs;
mod pipelines;

use axum::extract::State;
use axum::routing::{delete, get, post, put};
use axum::{Json, Router};
use bk_buildkite::agent::{Heartbeat, HeartbeatReceived, Ping, RegisterAgent, RegisteredAgent};
use jiff::Timestamp;
use serde_json::json;
use uuid::Uuid;

use super::Shared;
use super::auth::{CallingAgent, Registration};
use super::error::{ApiError, ApiResult};
use super::extract::Body;
use crate::build::Event;
use crate::problem::Problem;
use crate::store::agents::{self, AgentRow};
use crate::store::{builds, pipelines as queues};

/// The routes of the Agent API, relative to its base path.
pub(crate) fn router() -> Router<Shared> {
    Router::new()
        .route("/register", post(register))
        .route("/connect", post(connect))
        .route("/disconnect", post(disconnect))
        .route("/ping", get(ping))
        .route("/heartbeat", post(heartbeat))
        .route("/jobs/{job}", get(jobs::state))
        .route("/jobs/{job}/acquire", put(jobs::acquire))
        .route("/jobs/{job}/start", put(jobs::start))
        .route("/jobs/{job}/finish", put(jobs::finish))
        .route("/jobs/{job}/chunks", post(logs::chunk))
        .route("/jobs/{job}/header_times", post(logs::header_times))
        .route("/jobs/{job}/data/set", post(data::set))
        .route("/jobs/{job}/data/set-batch", post(data::set_batch))
        .route("/jobs/{job}/data/get", post(data::get_for_job))
        .route("/jobs/{job}/data/exists", post(data::exists_for_job))
        .route("/jobs/{job}/data/keys", post(data::keys_for_job))
        .route("/builds/{build}/data/get", post(data::get_for_build))
        .route("/builds/{build}/data/exists", post(data::exists_for_build))
        .route("/builds/{build}/data/keys", post(data::keys_for_build))
        .route("/jobs/{job}/annotations", post(annotations::annotate))
        .route("/jobs/{job}/annotations/{context}", delete(annotations::remove))
        .route("/jobs/{job}/pipelines", post(pipelines::upload))
        .route("/jobs/{job}/pipelines/{uuid}", get(pipelines::status))
        .route("/jobs/{job}/artifacts", post(artifacts).put(artifacts))
}

/// A secret nobody can guess, recognisable by its prefix.
pub(crate) fn new_token(prefix: &str) -> String {
    format!("{prefix}_{}{}", Uuid::new_v4().simple(), Uuid::new_v4().simple())
}

async fn register(
    _: Registration,
    State(app): State<Shared>,
    Body(request): Body<RegisterAgent>,
) -> ApiResult<Json<RegisteredAgent>> {
    let now = Timestamp::now();
    let lost_at = app.lost_at(now);
    let queue = request.meta_data.iter().find_map(|tag| tag.strip_prefix("queue=")).map(str::to_owned);
    let creates_queues = app.creates_queues();
    let agent = app
        .store
        .transact(move |transaction| {
            if let Some(queue) = queue {
                if creates_queues {
                    queues::create_queue(transaction, &queue)?;
                } else if queues::queue(transaction, &queue)?.is_none() {
                    return Err(Problem::Refused(format!("no queue {queue}")));
                }
            }
            let agent = AgentRow {
                id: Uuid::now_v7(),
                name: agent_name(&request, agents::count(transaction)? + 1),
                access_token: new_token("bkaa"),
                hostname: request.hostname,
                version: request.version,
                tags: request.meta_data,
                state: "connected".to_owned(),
                created_at: now,
            };
            agents::insert(transaction, &agent, lost_at)?;
            Ok(agent)
        })
        .await?;
    tracing::info!(
        agent = agent.name,
        hostname = agent.hostname,
        version = agent.version,
        "agent registered"
    );
    let intervals = app.config.intervals;
    Ok(Json(RegisteredAgent {
        id: agent.id.to_string(),
        name: agent.name,
        access_token: agent.access_token,
        endpoint: None,
        request_headers: None,
        ping_interval: intervals.ping,
        job_status_interval: intervals.job_status,
        heartbeat_interval: intervals.heartbeat,
        meta_data: agent.tags,
    }))
}

/// The wished name with its placeholders filled in; the host's with a number when there is no wish.
fn agent_name(request: &RegisterAgent, number: i64) -> String {
    let host = if request.hostname.is_empty() { "agent" } else { &request.hostname };
    match request.name.as_str() {
        "" => format!("{host}-{number}"),
        name => name.replace("%hostname", host).replace("%n", &number.to_string()),
    }
}

async fn connect(
    CallingAgent(agent): CallingAgent,
    State(app): State<Shared>,
) -> ApiResult<Json<serde_json::Value>> {
    seen(&app, &agent).await?;
    Ok(Json(json!({ "id": agent.id, "connection_state": "connected" })))
}

async fn ping(CallingAgent(agent): CallingAgent, State(app): State<Shared>) -> ApiResult<Json<Ping>> {
    seen(&app, &agent).await?;
    Ok(Json(Ping::default()))
}

async fn heartbeat(
    CallingAgent(agent): CallingAgent,
    State(app): State<Shared>,
    Body(_): Body<Heartbeat>,
) -> ApiResult<Json<HeartbeatReceived>> {
    let now = seen(&app, &agent).await?;
    Ok(Json(HeartbeatReceived { received_at: now.to_string() }))
}

async fn seen(app: &Shared, agent: &AgentRow) -> ApiResult<Timestamp> {
    let now = Timestamp::now();
    let (id, lost_at) = (agent.id, app.lost_at(now));
    app.store.transact(move |transaction| agents::seen(transaction, id, now, lost_at)).await?;
    Ok(now)
}

/// The agent leaves. A job that it still has will not be finished by anybody.
async fn disconnect(
    CallingAgent(agent): CallingAgent,
    State(app): State<Shared>,
) -> ApiResult<Json<serde_json::Value>> {
    let policy = app.policy;
    let id = agent.id;
    app.store
        .transact(move |transaction| {
            agents::gone(transaction, id, "disconnected")?;
            if let Some(owned) = crate::store::jobs::of_agent(transaction, id)? {
                let event = Event::AgentGone { job: owned.job.id, signal_reason: Some("agent_stop") };
                builds::apply(transaction, owned.build, &event, &policy, Timestamp::now())?;
            }
            Ok(())
        })
        .await?;
    tracing::info!(agent = agent.name, "agent disconnected");
    Ok(Json(json!({ "id": agent.id, "connection_state": "disconnected" })))
}

async fn artifacts() -> ApiError {
    ApiError::not_found("this server does not keep artifacts; remove artifact_paths and artifact commands")
}
