//! Agents that come, stay and leave.

use std::time::Duration;

use axum::Json;
use axum::extract::State;
use bk_buildkite::agent::{Heartbeat, HeartbeatReceived, RegisterAgent, RegisteredAgent};
use jiff::Timestamp;
use rusqlite::Transaction;
use serde_json::json;
use uuid::Uuid;

use super::super::auth::{CallingAgent, Registration};
use super::super::error::ApiResult;
use super::super::extract::Body;
use super::super::{App, Shared};
use super::new_token;
use crate::build::Event;
use crate::dispatch;
use crate::problem::Problem;
use crate::store::agents::{self, AgentRow};
use crate::store::{builds, jobs, pipelines as queues};

/// What part of the time to being lost a sign of life stays fresh, and how long at most.
const FRESH_PART: u32 = 10;
const MAX_FRESH: Duration = Duration::from_secs(5);

pub(super) async fn register(
    _: Registration,
    State(app): State<Shared>,
    Body(request): Body<RegisterAgent>,
) -> ApiResult<Json<RegisteredAgent>> {
    let now = Timestamp::now();
    let lost_at = app.lost_at(now);
    let creates_queues = app.creates_queues();
    let agent = app
        .store
        .transact(move |transaction| {
            let mut tags = request.meta_data.clone();
            let queue = dispatch::queue_of(&tags).to_owned();
            if !tags.iter().any(|tag| tag.starts_with("queue=")) {
                tags.push(format!("queue={queue}"));
            }
            if creates_queues {
                queues::create_queue(transaction, &queue)?;
            } else if queues::queue(transaction, &queue)?.is_none() {
                return Err(Problem::Refused(format!("no queue {queue}")));
            }
            let agent = AgentRow {
                id: Uuid::now_v7(),
                name: agent_name(&request, agents::count(transaction)? + 1),
                access_token: new_token("bkaa"),
                hostname: request.hostname,
                version: request.version,
                tags,
                queue,
                ignored: request.ignore_in_dispatches,
                state: "connected".to_owned(),
                stopping: false,
                pause: None,
                created_at: now,
                last_seen: now,
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
    if request.name.is_empty() {
        return format!("{host}-{number}");
    }
    let random = Uuid::new_v4().simple().to_string();
    request
        .name
        .replace("%hostname", host)
        .replace("%random", &random[..12])
        .replace("%pid", &request.pid.unwrap_or_default().to_string())
        .replace("%spawn", &number.to_string())
        .replace("%n", &number.to_string())
}

pub(super) async fn connect(
    CallingAgent(agent): CallingAgent,
    State(app): State<Shared>,
) -> ApiResult<Json<serde_json::Value>> {
    seen(&app, &agent).await?;
    Ok(Json(json!({ "id": agent.id, "connection_state": "connected" })))
}

pub(super) async fn heartbeat(
    CallingAgent(agent): CallingAgent,
    State(app): State<Shared>,
    Body(_): Body<Heartbeat>,
) -> ApiResult<Json<HeartbeatReceived>> {
    let now = seen(&app, &agent).await?;
    Ok(Json(HeartbeatReceived { received_at: now.to_string() }))
}

async fn seen(app: &Shared, agent: &AgentRow) -> ApiResult<Timestamp> {
    let now = Timestamp::now();
    let (shared, agent) = (app.clone(), agent.clone());
    app.store.transact(move |transaction| heard(transaction, &shared, &agent, now)).await?;
    Ok(now)
}

/// The agent has been heard of. Agents call every second or so; not every call needs to be written down.
pub(super) fn heard(
    transaction: &Transaction<'_>,
    app: &App,
    agent: &AgentRow,
    now: Timestamp,
) -> Result<(), Problem> {
    let fresh = (app.config.agent_lost_after / FRESH_PART).min(MAX_FRESH);
    let silent = Duration::try_from(now.duration_since(agent.last_seen)).unwrap_or_default();
    if agent.state == "connected" && silent < fresh {
        return Ok(());
    }
    agents::seen(transaction, agent.id, now, app.lost_at(now))
}

/// The agent leaves. The jobs that it still has will not be finished by anybody.
pub(super) async fn disconnect(
    CallingAgent(agent): CallingAgent,
    State(app): State<Shared>,
) -> ApiResult<Json<serde_json::Value>> {
    let policy = app.policy;
    let id = agent.id;
    app.store
        .transact(move |transaction| {
            agents::gone(transaction, id, "disconnected")?;
            while let Some(owned) = jobs::of_agent(transaction, id)? {
                let event = Event::AgentGone { job: owned.job.id, signal_reason: Some("agent_stop") };
                builds::apply(transaction, owned.build, &event, &policy, Timestamp::now())?;
            }
            Ok(())
        })
        .await?;
    tracing::info!(agent = agent.name, "agent disconnected");
    Ok(Json(json!({ "id": agent.id, "connection_state": "disconnected" })))
}
