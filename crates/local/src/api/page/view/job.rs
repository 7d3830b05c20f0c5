//! One job with everything about it except its log.

use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use rusqlite::Transaction;
use serde::Serialize;
use uuid::Uuid;

use super::super::super::Shared;
use super::super::super::error::ApiResult;
use super::super::super::extract::{self, Path};
use super::build::{AnnotationView, ArtifactView, annotations, artifact, kept};
use super::timeline::{self, Entry, Runner};
use super::{Millis, answer, name, status};
use crate::build::{Job, JobKind};
use crate::pipeline::step::{Kind, Step};
use crate::problem::Problem;
use crate::store::agents::{self, AgentRow};
use crate::store::artifacts::ArtifactRow;
use crate::store::data::{self, Annotation};
use crate::store::jobs::{self, JobEvent};
use crate::store::{builds, overview};

#[derive(Serialize)]
struct JobView {
    id: Uuid,
    name: String,
    status: &'static str,
    kind: &'static str,
    key: Option<String>,
    command: Option<String>,
    plugins: Vec<String>,
    image: Option<String>,
    attempt: u32,
    queue: String,
    rules: Vec<String>,
    priority: i64,
    timeout_in_minutes: Option<u32>,
    agent: Option<AgentName>,
    stack: Option<String>,
    /// How it ended, in a sentence.
    ending: Option<String>,
    exit_status: Option<i64>,
    created_at: Millis,
    runnable_at: Option<Millis>,
    started_at: Option<Millis>,
    finished_at: Option<Millis>,
    timeline: Vec<Entry>,
    annotations: Vec<AnnotationView>,
    artifacts: Vec<ArtifactView>,
    /// Every try of the same job, oldest first, with this one.
    attempts: Vec<Attempt>,
    can_cancel: bool,
    can_retry: bool,
    /// Why it cannot be retried by hand, when its step says so.
    no_retry: Option<String>,
}

#[derive(Serialize)]
struct AgentName {
    name: String,
    hostname: String,
    version: String,
    state: String,
    tags: Vec<String>,
}

#[derive(Serialize)]
struct Attempt {
    id: Uuid,
    status: &'static str,
}

/// What a job is shown from.
struct Gathered {
    build: Uuid,
    job: Job,
    step: Step,
    siblings: Vec<Job>,
    agent: Option<AgentRow>,
    stack: Option<String>,
    events: Vec<JobEvent>,
    annotations: Vec<Annotation>,
    artifacts: Vec<ArtifactRow>,
}

fn gather(transaction: &Transaction<'_>, id: Uuid) -> Result<Gathered, Problem> {
    let owned = jobs::get(transaction, id)?;
    let (step, _) = builds::step(transaction, owned.job.step)?;
    let runners = overview::runners(transaction, owned.build)?;
    let mut siblings = jobs::of_build(transaction, owned.build)?;
    siblings.retain(|job| job.step == owned.job.step);
    let mut annotations = data::annotations(transaction, owned.build)?;
    annotations.retain(|annotation| annotation.job == Some(id));
    let mut artifacts = kept(transaction, owned.build)?;
    artifacts.retain(|artifact| artifact.job == id);
    Ok(Gathered {
        build: owned.build,
        agent: owned.job.agent.map(|id| agents::get(transaction, id)).transpose()?.flatten(),
        stack: owned.job.stack.and_then(|id| runners.get(&id).cloned()),
        events: jobs::events(transaction, id)?,
        job: owned.job,
        step,
        siblings,
        annotations,
        artifacts,
    })
}

/// Every try of `job`: those that led to it, and those that followed.
fn attempts(job: &Job, siblings: &[Job]) -> Vec<Attempt> {
    let mut first = job;
    while let Some(before) = siblings.iter().find(|other| other.retried_in == Some(first.id)) {
        first = before;
    }
    let mut next = Some(first);
    let mut found = Vec::new();
    // A chain has no more links than there are jobs.
    while let Some(attempt) = next.filter(|_| found.len() <= siblings.len()) {
        found.push(Attempt { id: attempt.id, status: status::of_job(attempt) });
        next = attempt.retried_in.and_then(|id| siblings.iter().find(|other| other.id == id));
    }
    found
}

fn plugin_names(plugins: &[serde_json::Value]) -> Vec<String> {
    plugins.iter().filter_map(|plugin| plugin.as_object()?.keys().next().cloned()).collect()
}

fn render(gathered: Gathered) -> JobView {
    let Gathered { build, job, step, siblings, agent, stack, events, annotations: notes, artifacts } =
        gathered;
    let command = match &step.kind {
        Kind::Command(command) => Some(&**command),
        _ => None,
    };
    let ended = job.state.is_terminal();
    let manual = command.map(|command| &command.retry.manual);
    let retryable = job.kind == JobKind::Command && ended && job.retried_in.is_none();
    let no_retry = manual.filter(|manual| retryable && !manual.allowed).map(|manual| {
        manual.reason.clone().unwrap_or_else(|| "its step does not allow manual retries".to_owned())
    });
    let runner = Runner { agent: agent.as_ref().map(|agent| agent.name.as_str()), stack: stack.as_deref() };
    JobView {
        id: job.id,
        name: name::of_job(&step, job.matrix.as_ref(), job.parallel),
        status: status::of_job(&job),
        kind: jobs::kind_name(job.kind),
        key: step.key.clone(),
        command: command.map(|command| command.script.clone()),
        plugins: command.map(|command| plugin_names(&command.plugins)).unwrap_or_default(),
        image: command.and_then(|command| command.image.clone()),
        attempt: job.retry_count + 1,
        queue: job.queue.clone(),
        rules: job.rules.clone(),
        priority: job.priority,
        timeout_in_minutes: job.timeout_in_minutes,
        ending: ended.then(|| timeline::ending(&job)),
        exit_status: job.exit_status,
        created_at: Millis(job.created_at),
        runnable_at: job.runnable_at.map(Millis),
        started_at: job.started_at.map(Millis),
        finished_at: job.finished_at.map(Millis),
        timeline: timeline::of_job(&job, &events, &runner),
        attempts: attempts(&job, &siblings),
        can_cancel: !ended,
        can_retry: retryable && no_retry.is_none(),
        no_retry,
        annotations: annotations(notes, build),
        artifacts: artifacts.iter().map(artifact).collect(),
        agent: agent.map(|agent| AgentName {
            name: agent.name,
            hostname: agent.hostname,
            version: agent.version,
            state: agent.state,
            tags: agent.tags,
        }),
        stack,
    }
}

pub(in super::super) async fn show(
    State(app): State<Shared>,
    headers: HeaderMap,
    Path(job): Path<String>,
) -> ApiResult<Response> {
    let id = extract::id("job", &job)?;
    answer(&app, &headers, move |transaction| Ok(render(gather(transaction, id)?))).await
}
