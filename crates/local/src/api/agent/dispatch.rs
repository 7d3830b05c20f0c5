//! How agents get jobs: by ping and accept, or by naming one.

use axum::Json;
use axum::extract::State;
use bk_buildkite::agent::{AcquiredJob, Ping, PingJob};
use jiff::Timestamp;
use rusqlite::Transaction;

use super::super::auth::CallingAgent;
use super::super::error::{ApiError, ApiResult};
use super::super::extract::{self, BaseUrl, Path};
use super::super::{App, Shared};
use super::{new_token, sessions};
use crate::build::{Event, JobKind, JobState, Policy, Refusal};
use crate::pipeline::env;
use crate::pipeline::step::Kind;
use crate::pipeline::wire::agent_step;
use crate::problem::Problem;
use crate::store::agents::AgentRow;
use crate::store::jobs::OwnedJob;
use crate::store::{builds, dispatch, facts, jobs, pipelines as queues};

/// What the hosted service tells agents about logs.
const CHUNK_BYTES: u64 = 100 * 1024;

/// An agent asks for work.
pub(super) async fn ping(
    CallingAgent(agent): CallingAgent,
    State(app): State<Shared>,
) -> ApiResult<Json<Ping>> {
    let shared = app.clone();
    let ping = app
        .store
        .transact(move |transaction| {
            let now = Timestamp::now();
            sessions::heard(transaction, &shared, &agent, now)?;
            answer(transaction, &agent, &shared.policy, now)
        })
        .await?;
    Ok(Json(ping))
}

fn answer(
    transaction: &Transaction<'_>,
    agent: &AgentRow,
    policy: &Policy,
    now: Timestamp,
) -> Result<Ping, Problem> {
    let held = jobs::of_agent(transaction, agent.id)?;
    if let Some(order) = standing_order(agent, now) {
        if let Some(owned) = held.filter(is_offer) {
            give_back(transaction, &owned, policy, now)?;
        }
        return Ok(order);
    }
    match held {
        Some(owned) if owned.job.state == JobState::Assigned => Ok(offer(&owned)),
        Some(owned) if owned.job.was_withdrawn() => {
            give_back(transaction, &owned, policy, now)?;
            Ok(Ping::default())
        }
        Some(_) => Ok(Ping::default()),
        None => assign(transaction, agent, policy, now),
    }
}

/// What the agent is told whatever jobs there are.
fn standing_order(agent: &AgentRow, now: Timestamp) -> Option<Ping> {
    let order = |action: &str, message: String| {
        Some(Ping { action: Some(action.to_owned()), message: Some(message), job: None })
    };
    match &agent.pause {
        _ if agent.stopping => order("disconnect", "This agent was asked to stop".to_owned()),
        Some(pause) if now < pause.until && pause.note.is_empty() => {
            order("pause", "This agent is paused".to_owned())
        }
        Some(pause) if now < pause.until => order("pause", format!("This agent is paused: {}", pause.note)),
        _ => None,
    }
}

/// The agent has been told of the job and has not accepted it.
fn is_offer(owned: &OwnedJob) -> bool {
    owned.job.state == JobState::Assigned || owned.job.was_withdrawn()
}

fn offer(owned: &OwnedJob) -> Ping {
    Ping { job: Some(PingJob { id: owned.job.id.to_string() }), ..Ping::default() }
}

/// The agent will not run what it was offered.
fn give_back(
    transaction: &Transaction<'_>,
    owned: &OwnedJob,
    policy: &Policy,
    now: Timestamp,
) -> Result<(), Problem> {
    let event = Event::AgentGone { job: owned.job.id, signal_reason: None };
    builds::apply(transaction, owned.build, &event, policy, now)
}

fn assign(
    transaction: &Transaction<'_>,
    agent: &AgentRow,
    policy: &Policy,
    now: Timestamp,
) -> Result<Ping, Problem> {
    let paused = queues::queue(transaction, &agent.queue)?.is_some_and(|queue| queue.paused);
    if agent.ignored || paused {
        return Ok(Ping::default());
    }
    let Some(id) = dispatch::next(transaction, &agent.queue, &agent.tags)? else {
        return Ok(Ping::default());
    };
    let mut owned = jobs::get(transaction, id)?;
    if !owned.job.assign(agent.id, now) {
        return Ok(Ping::default());
    }
    jobs::save(transaction, owned.build, &owned.job, policy)?;
    tracing::info!(job = %id, agent = agent.name, "job assigned");
    Ok(offer(&owned))
}

/// An agent takes the job that a ping offered it.
pub(super) async fn accept(
    CallingAgent(agent): CallingAgent,
    State(app): State<Shared>,
    BaseUrl(base): BaseUrl,
    Path(job): Path<String>,
) -> ApiResult<Json<AcquiredJob>> {
    let id = extract::id("job", &job)?;
    let shared = app.clone();
    let accepted = app
        .store
        .transact(move |transaction| {
            let mut owned = jobs::get(transaction, id)?;
            let now = Timestamp::now();
            if owned.job.agent == Some(agent.id) && owned.job.was_withdrawn() {
                let refusal = Refusal::NotEligible { id, state: owned.job.state };
                give_back(transaction, &owned, &shared.policy, now)?;
                return Ok(Err(ApiError::from(Problem::from(refusal))));
            }
            owned.job.accept(agent.id, new_token("bkaj"), now)?;
            hand_over(transaction, &shared, &owned, &agent, &base).map(Ok)
        })
        .await??;
    tracing::info!(job = accepted.id, "job accepted");
    Ok(Json(accepted))
}

/// An agent takes a job that it was started for.
pub(super) async fn acquire(
    CallingAgent(agent): CallingAgent,
    State(app): State<Shared>,
    BaseUrl(base): BaseUrl,
    Path(job): Path<String>,
) -> ApiResult<Json<AcquiredJob>> {
    let id = extract::id("job", &job)?;
    let shared = app.clone();
    let acquired = app
        .store
        .transact(move |transaction| {
            let mut owned = jobs::get(transaction, id)?;
            if owned.job.kind != JobKind::Command {
                return Err(Problem::Refused(format!("job {id} is not a command job")));
            }
            owned.job.acquire(agent.id, new_token("bkaj"), Timestamp::now())?;
            tracing::info!(job = %id, agent = agent.name, "job acquired");
            hand_over(transaction, &shared, &owned, &agent, &base)
        })
        .await?;
    Ok(Json(acquired))
}

/// Saves the job that the agent has now, and describes it.
fn hand_over(
    transaction: &Transaction<'_>,
    app: &App,
    owned: &OwnedJob,
    agent: &AgentRow,
    base: &str,
) -> Result<AcquiredJob, Problem> {
    let job = &owned.job;
    jobs::save(transaction, owned.build, job, &app.policy)?;
    let organization = facts::organization(transaction, &app.config.organization, base)?;
    let facts = facts::of_job(transaction, organization, owned, Some(agent))?;
    let (Kind::Command(command), Kind::Command(written)) = (&facts.step.kind, &facts.written.kind) else {
        return Err(Problem::Refused(format!("job {} is not a command job", job.id)));
    };
    Ok(AcquiredJob {
        id: job.id.to_string(),
        state: job.state.to_string(),
        env: env::environment(&facts, command),
        token: job.token.clone().unwrap_or_default(),
        chunks_max_size_bytes: CHUNK_BYTES,
        chunks_interval_seconds: 1,
        log_max_size_bytes: app.config.log_max_bytes,
        step: Some(agent_step(&facts.written, written)),
        matrix_permutation: job.matrix.clone(),
        priority: job.priority,
        runnable_at: job.runnable_at.map(|at| at.to_string()),
    })
}
