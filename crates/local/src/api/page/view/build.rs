//! One build with its steps as they stand.

use std::collections::BTreeMap;

use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use rusqlite::Transaction;
use serde::Serialize;
use uuid::Uuid;

use super::super::super::Shared;
use super::super::super::error::ApiResult;
use super::super::super::extract::Path;
use super::super::markdown;
use super::pipelines::{BuildLine, build_line};
use super::waiting::{self, Waits};
use super::{Millis, answer, name, status};
use crate::build::Job;
use crate::build::verdict::{Build, PlacedStep};
use crate::pipeline::gate::{Field, Gate};
use crate::pipeline::step::{Kind, Step};
use crate::problem::Problem;
use crate::store::artifacts::{self, ArtifactRow, ArtifactState};
use crate::store::builds::{self, BuildRow};
use crate::store::data::{self, Annotation};
use crate::store::overview::{self, Child};
use crate::store::pipelines::{self, PipelineRow};

#[derive(Serialize)]
struct BuildView {
    pipeline: PipelineName,
    #[serde(flatten)]
    line: BuildLine,
    id: Uuid,
    env: BTreeMap<String, String>,
    meta_data: BTreeMap<String, String>,
    annotations: Vec<AnnotationView>,
    artifacts: Vec<ArtifactView>,
    triggered_from: Option<BuildLink>,
    steps: Vec<StepView>,
}

#[derive(Serialize)]
struct PipelineName {
    slug: String,
    name: String,
    repository: String,
}

/// An annotation, ready to be shown.
#[derive(Serialize)]
pub(super) struct AnnotationView {
    pub(super) context: String,
    pub(super) style: String,
    pub(super) job: Option<Uuid>,
    /// Cleaned: safe to put into the page as it is.
    pub(super) html: String,
}

/// A file that a job kept.
#[derive(Serialize)]
pub(super) struct ArtifactView {
    id: Uuid,
    job: Uuid,
    path: String,
    size: u64,
}

/// Another build, where people find it.
#[derive(Serialize)]
struct BuildLink {
    pipeline: String,
    number: i64,
    state: Option<String>,
}

#[derive(Serialize)]
struct StepView {
    id: Uuid,
    kind: &'static str,
    key: Option<String>,
    /// What it is called.
    name: String,
    group: Option<Uuid>,
    /// Whether a job of the build added it.
    uploaded: bool,
    skip: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    command: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    gate: Option<GateView>,
    jobs: Vec<JobLine>,
}

/// What a block or input step asks.
#[derive(Serialize)]
struct GateView {
    prompt: Option<String>,
    fields: Vec<Field>,
    submit: Option<String>,
}

/// A job among the others of its build.
#[derive(Serialize)]
struct JobLine {
    id: Uuid,
    /// What it is called among the others of its step.
    name: String,
    status: &'static str,
    /// Why it does not run yet.
    waits: Option<Waits>,
    attempt: u32,
    retried: bool,
    parallel: Option<(u32, u32)>,
    child: Option<BuildLink>,
    queue: String,
    agent: Option<String>,
    stack: Option<String>,
    exit_status: Option<i64>,
    signal_reason: Option<String>,
    /// The newest thing that was said about it.
    told: Option<String>,
    created_at: Millis,
    runnable_at: Option<Millis>,
    started_at: Option<Millis>,
    finished_at: Option<Millis>,
}

/// What a build is shown from.
struct Gathered {
    pipeline: PipelineRow,
    row: BuildRow,
    build: Build,
    /// Agents and stacks by id.
    runners: BTreeMap<Uuid, String>,
    /// The newest line on a job's timeline.
    told: BTreeMap<Uuid, String>,
    meta_data: BTreeMap<String, String>,
    annotations: Vec<Annotation>,
    artifacts: Vec<ArtifactRow>,
    /// What trigger jobs started.
    children: BTreeMap<Uuid, Child>,
    waits: BTreeMap<Uuid, Waits>,
}

fn gather(transaction: &Transaction<'_>, slug: &str, number: &str) -> Result<Gathered, Problem> {
    let pipeline = pipelines::get(transaction, slug)?;
    let number = number.parse().map_err(|_| Problem::not_found("build", number))?;
    let row = builds::by_number(transaction, pipeline.id, number)?;
    let build = builds::load(transaction, &row)?;
    Ok(Gathered {
        waits: waiting::of_build(transaction, &build)?,
        build,
        runners: overview::runners(transaction, row.id)?,
        told: overview::told_by_stacks(transaction, row.id)?,
        meta_data: overview::meta_data(transaction, row.id)?,
        annotations: data::annotations(transaction, row.id)?,
        artifacts: kept(transaction, row.id)?,
        children: overview::children(transaction, row.id)?,
        pipeline,
        row,
    })
}

fn render(gathered: Gathered) -> BuildView {
    let mut jobs: BTreeMap<Uuid, Vec<&Job>> = BTreeMap::new();
    for job in &gathered.build.jobs {
        jobs.entry(job.step).or_default().push(job);
    }
    let lines = |placed: &PlacedStep| {
        let jobs = jobs.get(&placed.id).into_iter().flatten();
        jobs.map(|job| job_line(job, &placed.step, &gathered)).collect()
    };
    let steps = gathered.build.steps.iter().map(|placed| step(placed, lines(placed))).collect();
    BuildView {
        line: build_line(&gathered.row),
        id: gathered.row.id,
        env: masked(gathered.row.env),
        meta_data: gathered.meta_data,
        annotations: annotations(gathered.annotations, gathered.row.id),
        artifacts: gathered.artifacts.iter().map(artifact).collect(),
        triggered_from: gathered.row.triggered_from.map(|from| BuildLink {
            pipeline: from.pipeline,
            number: from.number,
            state: None,
        }),
        pipeline: PipelineName {
            slug: gathered.pipeline.slug,
            name: gathered.pipeline.name,
            repository: gathered.pipeline.repository,
        },
        steps,
    }
}

fn step(placed: &PlacedStep, jobs: Vec<JobLine>) -> StepView {
    let asks = |gate: &Gate| {
        Some(GateView {
            prompt: gate.prompt.clone(),
            fields: gate.fields.clone(),
            submit: gate.submit.clone(),
        })
    };
    let (kind, command, gate) = match &placed.step.kind {
        Kind::Command(command) => ("command", Some(command.script.clone()), None),
        Kind::Wait { .. } => ("wait", None, None),
        Kind::Block(gate) => ("block", None, asks(gate)),
        Kind::Input(gate) => ("input", None, asks(gate)),
        Kind::Trigger(trigger) => ("trigger", Some(trigger.pipeline.clone()), None),
        Kind::Group => ("group", None, None),
    };
    StepView {
        id: placed.id,
        kind,
        key: placed.step.key.clone(),
        name: name::of_step(&placed.step),
        group: placed.group,
        uploaded: placed.uploader.is_some(),
        skip: placed.step.skip.clone(),
        command,
        gate,
        jobs,
    }
}

fn job_line(job: &Job, step: &Step, gathered: &Gathered) -> JobLine {
    let named = |id: Option<Uuid>| id.and_then(|id| gathered.runners.get(&id).cloned());
    JobLine {
        id: job.id,
        name: name::of_job(step, job.matrix.as_ref(), job.parallel),
        status: status::of_job(job),
        waits: gathered.waits.get(&job.id).cloned(),
        attempt: job.retry_count + 1,
        retried: job.retried_in.is_some(),
        parallel: job.parallel,
        child: gathered.children.get(&job.id).map(|child| BuildLink {
            pipeline: child.pipeline.clone(),
            number: child.number,
            state: Some(child.state.clone()),
        }),
        queue: job.queue.clone(),
        agent: named(job.agent),
        stack: named(job.stack),
        exit_status: job.exit_status,
        signal_reason: job.signal_reason.clone(),
        told: gathered.told.get(&job.id).cloned(),
        created_at: Millis(job.created_at),
        runnable_at: job.runnable_at.map(Millis),
        started_at: job.started_at.map(Millis),
        finished_at: job.finished_at.map(Millis),
    }
}

/// The artifacts of a build that have come.
pub(super) fn kept(transaction: &Transaction<'_>, build: Uuid) -> Result<Vec<ArtifactRow>, Problem> {
    let all = artifacts::of_build(transaction, build, Some(ArtifactState::Finished))?;
    Ok(all.into_iter().map(|(artifact, _)| artifact).collect())
}

/// An artifact, ready to be shown.
pub(super) fn artifact(row: &ArtifactRow) -> ArtifactView {
    ArtifactView { id: row.id, job: row.job, path: row.path.clone(), size: row.file_size }
}

/// Annotations, ready to be shown.
pub(super) fn annotations(found: Vec<Annotation>, build: Uuid) -> Vec<AnnotationView> {
    found
        .into_iter()
        .map(|annotation| AnnotationView {
            html: markdown::render(&annotation.body, build),
            context: annotation.context,
            style: annotation.style,
            job: annotation.job,
        })
        .collect()
}

/// Names that agents hide the values of in logs.
const SECRET_ENDINGS: [&str; 9] = [
    "_PASSWORD",
    "_SECRET",
    "_TOKEN",
    "_PRIVATE_KEY",
    "_SSH_KEY",
    "_ACCESS_KEY",
    "_SECRET_KEY",
    "_CONNECTION_STRING",
    "_API_KEY",
];

/// Hides the values of variables that look like secrets.
fn masked(env: BTreeMap<String, String>) -> BTreeMap<String, String> {
    let secret = |name: &str| {
        let name = format!("_{}", name.to_ascii_uppercase());
        SECRET_ENDINGS.iter().any(|ending| name.ends_with(ending))
    };
    env.into_iter()
        .map(|(name, value)| if secret(&name) { (name, "••••••".to_owned()) } else { (name, value) })
        .collect()
}

pub(in super::super) async fn show(
    State(app): State<Shared>,
    headers: HeaderMap,
    Path((slug, number)): Path<(String, String)>,
) -> ApiResult<Response> {
    answer(&app, &headers, move |transaction| Ok(render(gather(transaction, &slug, &number)?))).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_looks_like_a_secret_is_hidden() {
        let env = ["DEPLOY_TOKEN", "TOKEN", "db_password", "TOKENS", "BRANCH"];
        let env = env.into_iter().map(|name| (name.to_owned(), "value".to_owned())).collect();
        let shown: Vec<_> =
            masked(env).into_iter().filter(|(_, value)| value == "value").map(|(name, _)| name).collect();
        assert_eq!(shown, ["BRANCH", "TOKENS"]);
    }
}
