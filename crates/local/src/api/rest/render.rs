//! Pipelines, builds, jobs and agents as REST answers.

mod job;

use std::collections::HashMap;

use base64::Engine;
use jiff::Timestamp;
use rusqlite::Transaction;
use serde_json::{Value, json};
use uuid::Uuid;

use super::super::Shared;
use super::super::extract::BaseUrl;
use super::filter::Pairs;
use crate::build::{Job, JobState};
use crate::problem::Problem;
use crate::store::agents::AgentRow;
use crate::store::builds::{self, BuildRow, PullRequest};
use crate::store::pipelines::PipelineRow;
use crate::store::{data, facts};

pub(super) use job::one_job;

/// Where things are found.
#[derive(Clone)]
pub(crate) struct Links {
    base: String,
    organization: String,
}

impl Links {
    pub(crate) fn new(app: &Shared, BaseUrl(base): &BaseUrl) -> Self {
        Self { base: base.clone(), organization: app.config.organization.clone() }
    }

    /// An address in the REST API, below the organisation.
    pub(crate) fn api(&self, path: &str) -> String {
        let url = format!("{}/v2/organizations/{}/{path}", self.base, self.organization);
        url.trim_end_matches('/').to_owned()
    }

    /// An address of the page, below the organisation.
    pub(crate) fn page(&self, path: &str) -> String {
        let url = format!("{}/{}/{path}", self.base, self.organization);
        url.trim_end_matches('/').to_owned()
    }
}

/// How much of a build is shown.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Shape {
    without_jobs: bool,
    without_pipeline: bool,
    with_retried_jobs: bool,
}

impl Shape {
    /// As the query asks.
    pub(super) fn asked(query: &Pairs) -> Self {
        Self {
            without_jobs: query.is_true("exclude_jobs"),
            without_pipeline: query.is_true("exclude_pipeline"),
            with_retried_jobs: query.is_true("include_retried_jobs"),
        }
    }
}

/// A time as the hosted service writes it: always with milliseconds.
pub(crate) fn stamp(time: Timestamp) -> String {
    format!("{time:.3}")
}

/// The id of something in the GraphQL API.
pub(crate) fn graphql_id(kind: &str, id: Uuid) -> String {
    base64::engine::general_purpose::STANDARD.encode(format!("{kind}---{id}"))
}

/// A pipeline.
pub(super) fn pipeline(row: &PipelineRow, links: &Links) -> Value {
    json!({
        "id": row.id,
        "graphql_id": graphql_id("Pipeline", row.id),
        "slug": row.slug,
        "name": row.name,
        "description": Value::Null,
        "repository": row.repository,
        "configuration": row.configuration,
        "default_branch": row.default_branch,
        "provider": { "id": "git", "settings": {} },
        "visibility": "private",
        "created_at": stamp(row.created_at),
        "archived_at": Value::Null,
        "url": links.api(&format!("pipelines/{}", row.slug)),
        "builds_url": links.api(&format!("pipelines/{}/builds", row.slug)),
        "web_url": links.page(&row.slug),
    })
}

/// A build, with its jobs unless the shape says otherwise.
pub(super) fn build(
    transaction: &Transaction<'_>,
    pipeline_row: &PipelineRow,
    row: &BuildRow,
    links: &Links,
    shape: Shape,
) -> Result<Value, Problem> {
    let build = builds::load(transaction, row)?;
    let path = format!("pipelines/{}/builds/{}", pipeline_row.slug, row.number);
    let author = row.author.as_ref().map(|(name, email)| json!({ "name": name, "email": email }));
    let mut shown = json!({
        "id": row.id,
        "graphql_id": graphql_id("Build", row.id),
        "number": row.number,
        "state": row.state.as_str(),
        "blocked": build.jobs.iter().any(|job| job.state == JobState::Blocked),
        "cancel_reason": Value::Null,
        "tag": row.tag,
        "branch": row.branch,
        "commit": row.commit,
        "message": row.message,
        "source": row.source,
        "author": author,
        "creator": Value::Null,
        "env": row.env,
        "meta_data": data::all(transaction, row.id)?,
        "created_at": stamp(row.created_at),
        "scheduled_at": stamp(row.created_at),
        "started_at": row.started_at.map(stamp),
        "finished_at": row.finished_at.map(stamp),
        "pull_request": row.pull_request.as_ref().map(pull_request),
        "rebuilt_from": row.rebuilt_from.map(|(id, number)| {
            let path = format!("pipelines/{}/builds/{number}", pipeline_row.slug);
            json!({ "id": id, "number": number, "url": links.api(&path) })
        }),
        "triggered_from": row.triggered_from.as_ref().map(|from| {
            json!({
                "build_id": from.build,
                "build_number": from.number,
                "build_pipeline_slug": from.pipeline,
            })
        }),
        "cluster_id": facts::id_of(transaction, "cluster")?,
        "url": links.api(&path),
        "web_url": links.page(&format!("{}/builds/{}", pipeline_row.slug, row.number)),
    });
    // The hosted service shows none; here it can be seen that it was read.
    if !row.notify.is_empty() {
        shown["notify"] = json!(row.notify);
    }
    if !shape.without_pipeline {
        shown["pipeline"] = pipeline(pipeline_row, links);
    }
    if !shape.without_jobs {
        let mut ordered: Vec<&Job> = build.jobs.iter().collect();
        if !shape.with_retried_jobs {
            ordered.retain(|job| job.retried_in.is_none());
        }
        let places: HashMap<Uuid, usize> =
            build.steps.iter().enumerate().map(|(index, placed)| (placed.id, index)).collect();
        // Stable, so jobs of one step keep their order of creation.
        ordered.sort_by_key(|job| places.get(&job.step).copied().unwrap_or(usize::MAX));
        let place = job::Place { pipeline: pipeline_row, build: row, links };
        shown["jobs"] = ordered
            .into_iter()
            .map(|job| match places.get(&job.step) {
                Some(index) => job::render(transaction, place, job, &build.steps[*index], &build.steps),
                None => Err(Problem::Corrupt(format!("job {} has no step", job.id))),
            })
            .collect::<Result<Vec<_>, _>>()?
            .into();
    }
    Ok(shown)
}

fn pull_request(one: &PullRequest) -> Value {
    json!({
        "id": one.id,
        "base": one.base_branch,
        "repository": one.repository,
        "labels": one.labels,
        "draft": one.draft,
    })
}

/// An agent, without the job that it has.
pub(super) fn agent(row: &AgentRow, links: &Links) -> Value {
    let state = match row.state.as_str() {
        "connected" if row.stopping => "stopping",
        state => state,
    };
    json!({
        "id": row.id,
        "graphql_id": graphql_id("Agent", row.id),
        "url": links.api(&format!("agents/{}", row.id)),
        "web_url": links.page("agents"),
        "name": row.name,
        "connection_state": state,
        "hostname": row.hostname,
        "ip_address": Value::Null,
        "user_agent": format!("buildkite-agent/{}", row.version),
        "version": row.version,
        "creator": Value::Null,
        "created_at": stamp(row.created_at),
        "last_seen_at": stamp(row.last_seen),
        "priority": Value::Null,
        "meta_data": row.tags,
        "paused": row.pause.is_some(),
        "paused_note": row.pause.as_ref().map(|pause| &pause.note),
        "paused_until": row.pause.as_ref().map(|pause| stamp(pause.until)),
    })
}
