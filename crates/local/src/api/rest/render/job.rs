//! Jobs as REST answers.

use rusqlite::Transaction;
use serde_json::{Map, Value, json};
use uuid::Uuid;

use super::{Links, agent, graphql_id, stamp};
use crate::build::verdict::PlacedStep;
use crate::build::{Job, JobKind, JobState};
use crate::pipeline::gate::Gate;
use crate::pipeline::step::{Command, Kind};
use crate::pipeline::trigger::Trigger;
use crate::problem::Problem;
use crate::store::builds::{self, BuildRow};
use crate::store::pipelines::{self, PipelineRow};
use crate::store::{agents, facts, jobs};

/// Where a job belongs.
#[derive(Clone, Copy)]
pub(super) struct Place<'a> {
    pub(super) pipeline: &'a PipelineRow,
    pub(super) build: &'a BuildRow,
    pub(super) links: &'a Links,
}

impl Place<'_> {
    fn api(self, job: Uuid, path: &str) -> String {
        let build = format!("pipelines/{}/builds/{}", self.pipeline.slug, self.build.number);
        self.links.api(&format!("{build}/jobs/{job}/{path}"))
    }

    fn page(self, job: Uuid) -> String {
        self.links.page(&format!("{}/builds/{}#{job}", self.pipeline.slug, self.build.number))
    }
}

/// One job by its id.
pub(in super::super) fn one_job(
    transaction: &Transaction<'_>,
    id: Uuid,
    links: &Links,
) -> Result<Value, Problem> {
    let owned = jobs::get(transaction, id)?;
    let row = builds::get(transaction, owned.build)?;
    let pipeline = pipelines::by_id(transaction, row.pipeline)?;
    let build = builds::load(transaction, &row)?;
    let step = build
        .steps
        .iter()
        .find(|placed| placed.id == owned.job.step)
        .ok_or_else(|| Problem::Corrupt(format!("job {id} has no step")))?;
    let place = Place { pipeline: &pipeline, build: &row, links };
    render(transaction, place, &owned.job, step, &build.steps)
}

/// One job of a build whose steps are `steps`.
pub(super) fn render(
    transaction: &Transaction<'_>,
    place: Place<'_>,
    job: &Job,
    placed: &PlacedStep,
    steps: &[PlacedStep],
) -> Result<Value, Problem> {
    let step = placed.step.permuted(job.matrix.as_ref());
    let group = placed.group.and_then(|group| steps.iter().find(|one| one.id == group));
    let shown = json!({
        "id": job.id,
        "graphql_id": graphql_id("Job", job.id),
        "type": jobs::kind_name(job.kind),
        "name": step.label,
        "label": step.label,
        "step_key": step.key,
        "group_key": group.and_then(|group| group.step.key.as_ref()),
        "step": { "id": job.step },
        "state": rest_state(job),
        "job_state": job.state.as_str(),
        "web_url": place.page(job.id),
        "build_url": place.links.api(&format!("pipelines/{}/builds/{}", place.pipeline.slug, place.build.number)),
        "created_at": stamp(job.created_at),
        "scheduled_at": stamp(job.scheduled_at),
        "runnable_at": job.runnable_at.map(stamp),
        "started_at": job.started_at.map(stamp),
        "finished_at": job.finished_at.map(stamp),
    });
    let Value::Object(mut fields) = shown else { unreachable!("an object was written") };
    match &step.kind {
        Kind::Command(command) => {
            fields.extend(places(place, job.id));
            fields.extend(command_fields(transaction, place.links, job, command)?);
        }
        Kind::Block(gate) | Kind::Input(gate) => fields.extend(gate_fields(place, job, gate)),
        Kind::Trigger(trigger) => fields.extend(trigger_fields(transaction, place.links, job, trigger)?),
        Kind::Wait { .. } | Kind::Group => {}
    }
    Ok(Value::Object(fields))
}

fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(fields) => fields,
        _ => Map::new(),
    }
}

/// Where a command job's parts are found.
fn places(place: Place<'_>, job: Uuid) -> Map<String, Value> {
    object(json!({
        "log_url": place.api(job, "log"),
        "raw_log_url": place.api(job, "log.txt"),
        "artifacts_url": place.api(job, "artifacts"),
    }))
}

fn command_fields(
    transaction: &Transaction<'_>,
    links: &Links,
    job: &Job,
    command: &Command,
) -> Result<Map<String, Value>, Problem> {
    let agent_row = job.agent.map(|id| agents::get(transaction, id)).transpose()?.flatten();
    let cluster = facts::id_of(transaction, "cluster")?;
    let queue = pipelines::queue(transaction, &job.queue)?;
    let queue_url = |queue: Uuid| links.api(&format!("clusters/{cluster}/queues/{queue}"));
    let events: Vec<Value> = jobs::events(transaction, job.id)?
        .into_iter()
        .map(|event| json!({ "type": event.kind, "detail": event.detail, "at": stamp(event.at) }))
        .collect();
    Ok(object(json!({
        "command": command.script,
        "artifact_paths": command.artifact_paths.join(";"),
        "agent": agent_row.map(|row| agent(&row, links)),
        "agent_query_rules": job.rules,
        "cluster_id": cluster,
        "cluster_url": links.api(&format!("clusters/{cluster}")),
        "cluster_queue_id": queue.as_ref().map(|queue| queue.id),
        "cluster_queue_url": queue.as_ref().map(|queue| queue_url(queue.id)),
        "priority": { "number": job.priority },
        "exit_status": job.exit_status,
        "signal": job.signal,
        "signal_reason": job.signal_reason,
        "soft_failed": job.soft_failed,
        "expired_at": (job.state == JobState::Expired).then(|| job.finished_at.map(stamp)),
        "timeout_in_minutes": job.timeout_in_minutes,
        "retried": job.retried_in.is_some(),
        "retried_in_job_id": job.retried_in,
        "retries_count": job.retry_count,
        "parallel_group_index": job.parallel.map(|(index, _)| index),
        "parallel_group_total": job.parallel.map(|(_, total)| total),
        "matrix": job.matrix,
        "events": events,
    })))
}

fn gate_fields(place: Place<'_>, job: &Job, gate: &Gate) -> Map<String, Value> {
    let unblocked_at = (job.state == JobState::Unblocked).then(|| job.finished_at.map(stamp));
    object(json!({
        "prompt": gate.prompt,
        "fields": gate.fields,
        "unblockable": job.state == JobState::Blocked,
        "unblocked_by": Value::Null,
        "unblocked_at": unblocked_at,
        "unblock_url": place.api(job.id, "unblock"),
    }))
}

/// The build that a trigger job started, and how the job came out.
fn trigger_fields(
    transaction: &Transaction<'_>,
    links: &Links,
    job: &Job,
    trigger: &Trigger,
) -> Result<Map<String, Value>, Problem> {
    let child = match job.child.map(|id| builds::get(transaction, id)).transpose() {
        // It was removed with its pipeline.
        Err(Problem::NotFound(_)) => None,
        found => found?,
    };
    let slug = &trigger.pipeline;
    let child = child.map(|row| {
        json!({
            "id": row.id,
            "number": row.number,
            "url": links.api(&format!("pipelines/{slug}/builds/{}", row.number)),
            "web_url": links.page(&format!("{slug}/builds/{}", row.number)),
        })
    });
    Ok(object(json!({
        "async": trigger.is_async,
        "triggered_build": child,
        "exit_status": job.exit_status,
        "soft_failed": job.soft_failed,
    })))
}

/// The state as the REST API tells it.
pub(crate) fn rest_state(job: &Job) -> &'static str {
    match job.state {
        JobState::Finished if job.kind == JobKind::Waiter || job.exit_status == Some(0) => "passed",
        JobState::Finished => "failed",
        JobState::Limiting | JobState::Limited => "scheduled",
        state => state.as_str(),
    }
}
