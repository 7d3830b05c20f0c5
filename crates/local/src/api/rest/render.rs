//! Pipelines, builds and jobs as REST answers.

use std::collections::HashMap;

use rusqlite::Transaction;
use serde_json::{Map, Value, json};
use uuid::Uuid;

use super::super::Shared;
use super::super::extract::BaseUrl;
use crate::build::{Job, JobKind, JobState};
use crate::pipeline::step::{Kind, Step};
use crate::problem::Problem;
use crate::store::builds::{self, BuildRow};
use crate::store::pipelines::PipelineRow;
use crate::store::{agents, data, jobs};

/// Where things are found.
#[derive(Clone)]
pub(super) struct Links {
    base: String,
    organization: String,
}

impl Links {
    pub(super) fn new(app: &Shared, BaseUrl(base): &BaseUrl) -> Self {
        Self { base: base.clone(), organization: app.config.organization.clone() }
    }

    fn api(&self, path: &str) -> String {
        format!("{}/v2/organizations/{}/{path}", self.base, self.organization)
    }

    fn page(&self, path: &str) -> String {
        format!("{}/{}/{path}", self.base, self.organization)
    }
}

/// A pipeline.
pub(super) fn pipeline(row: &PipelineRow, links: &Links) -> Value {
    json!({
        "id": row.id,
        "slug": row.slug,
        "name": row.name,
        "repository": row.repository,
        "configuration": row.configuration,
        "default_branch": row.default_branch,
        "created_at": row.created_at,
        "url": links.api(&format!("pipelines/{}", row.slug)),
        "builds_url": links.api(&format!("pipelines/{}/builds", row.slug)),
        "web_url": links.page(&row.slug),
    })
}

/// A build with its jobs.
pub(super) fn build(
    transaction: &Transaction<'_>,
    pipeline_row: &PipelineRow,
    row: &BuildRow,
    links: &Links,
) -> Result<Value, Problem> {
    let build = builds::load(transaction, row)?;
    let steps: HashMap<Uuid, (usize, &Step)> =
        build.steps.iter().enumerate().map(|(index, placed)| (placed.id, (index, &placed.step))).collect();
    let mut ordered: Vec<&Job> = build.jobs.iter().collect();
    // Stable, so jobs of one step keep their order of creation.
    ordered.sort_by_key(|job| steps.get(&job.step).map_or(usize::MAX, |(index, _)| *index));
    let jobs = ordered
        .into_iter()
        .map(|job| match steps.get(&job.step) {
            Some((_, step)) => job_of_step(transaction, pipeline_row, row, job, step, links),
            None => Err(Problem::Corrupt(format!("job {} has no step", job.id))),
        })
        .collect::<Result<Vec<_>, _>>()?;
    let path = format!("pipelines/{}/builds/{}", pipeline_row.slug, row.number);
    let author = row.author.as_ref().map(|(name, email)| json!({ "name": name, "email": email }));
    Ok(json!({
        "id": row.id,
        "number": row.number,
        "state": row.state.as_str(),
        "blocked": build.jobs.iter().any(|job| job.state == JobState::Blocked),
        "branch": row.branch,
        "commit": row.commit,
        "message": row.message,
        "source": row.source,
        "author": author,
        "env": row.env,
        "meta_data": data::all(transaction, row.id)?,
        "created_at": row.created_at,
        "scheduled_at": row.created_at,
        "started_at": row.started_at,
        "finished_at": row.finished_at,
        "url": links.api(&path),
        "web_url": links.page(&format!("{}/builds/{}", pipeline_row.slug, row.number)),
        "pipeline": pipeline(pipeline_row, links),
        "jobs": jobs,
    }))
}

/// One job.
pub(super) fn job(
    transaction: &Transaction<'_>,
    pipeline: &PipelineRow,
    build: &BuildRow,
    job: &Job,
    links: &Links,
) -> Result<Value, Problem> {
    let (step, _) = builds::step(transaction, job.step)?;
    job_of_step(transaction, pipeline, build, job, &step, links)
}

fn job_of_step(
    transaction: &Transaction<'_>,
    pipeline: &PipelineRow,
    build: &BuildRow,
    job: &Job,
    step: &Step,
    links: &Links,
) -> Result<Value, Problem> {
    let mut shown = json!({
        "id": job.id,
        "type": jobs::kind_name(job.kind),
        "name": step.label,
        "step_key": step.key,
        "step": { "id": job.step },
        "state": rest_state(job),
        "job_state": job.state.as_str(),
        "created_at": job.created_at,
        "scheduled_at": job.scheduled_at,
        "runnable_at": job.runnable_at,
        "started_at": job.started_at,
        "finished_at": job.finished_at,
    });
    if let (JobKind::Command, Kind::Command(command), Value::Object(fields)) =
        (job.kind, &step.kind, &mut shown)
    {
        let path = format!("pipelines/{}/builds/{}/jobs/{}/log", pipeline.slug, build.number, job.id);
        fields.insert("log_url".to_owned(), json!(links.api(&path)));
        fields.insert("command".to_owned(), json!(command.script));
        command_fields(transaction, job, fields)?;
    }
    Ok(shown)
}

fn command_fields(
    transaction: &Transaction<'_>,
    job: &Job,
    fields: &mut Map<String, Value>,
) -> Result<(), Problem> {
    let agent = match job.agent {
        Some(id) => agents::get(transaction, id)?.map(|agent| {
            json!({ "id": agent.id, "name": agent.name, "hostname": agent.hostname, "meta_data": agent.tags })
        }),
        None => None,
    };
    let events: Vec<Value> = jobs::events(transaction, job.id)?
        .into_iter()
        .map(|event| json!({ "type": event.kind, "detail": event.detail, "at": event.at }))
        .collect();
    let more = json!({
        "agent": agent,
        "agent_query_rules": job.rules,
        "priority": { "number": job.priority },
        "exit_status": job.exit_status,
        "signal": job.signal,
        "signal_reason": job.signal_reason,
        "soft_failed": job.soft_failed,
        "retried": job.retried_in.is_some(),
        "retried_in_job_id": job.retried_in,
        "retries_count": job.retry_count,
        "parallel_group_index": job.parallel.map(|(index, _)| index),
        "parallel_group_total": job.parallel.map(|(_, total)| total),
        "events": events,
    });
    if let Value::Object(more) = more {
        fields.extend(more);
    }
    Ok(())
}

/// The state as the REST API tells it.
pub(super) fn rest_state(job: &Job) -> &'static str {
    match job.state {
        JobState::Finished if job.kind != JobKind::Command || job.exit_status == Some(0) => "passed",
        JobState::Finished => "failed",
        state => state.as_str(),
    }
}
