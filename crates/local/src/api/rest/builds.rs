//! Builds.

use std::collections::HashMap;

use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use jiff::Timestamp;
use rusqlite::Transaction;
use serde::Deserialize;
use serde_json::Value;

use super::super::Shared;
use super::super::error::ApiResult;
use super::super::extract::{self, BaseUrl, Body};
use super::filter::Pairs;
use super::paging::{Listed, Paging};
use super::render::{self, Links, Shape};
use crate::build::{Event, Policy};
use crate::pipeline::step::Env;
use crate::problem::Problem;
use crate::store::builds::{BuildRow, NewBuild, PullRequest};
use crate::store::pipelines::PipelineRow;
use crate::store::{builds, listing, pipelines};

/// Builds of a pipeline, of an organisation, or of all that the caller sees, which is the same here.
pub(super) async fn list(
    State(app): State<Shared>,
    base: BaseUrl,
    Path(path): Path<HashMap<String, String>>,
    paging: Paging,
    query: Pairs,
) -> ApiResult<Listed> {
    let links = Links::new(&app, &base);
    let mut filter = query.builds()?;
    let shape = Shape::asked(&query);
    let slice = paging.slice();
    let (builds, total) = app
        .store
        .transact(move |transaction| {
            if let Some(slug) = path.get("pipeline") {
                filter.pipeline = Some(pipelines::get(transaction, slug)?.id);
            }
            let (rows, total) = listing::builds(transaction, &filter, slice)?;
            let mut shown = Vec::with_capacity(rows.len());
            for row in &rows {
                let pipeline = pipelines::by_id(transaction, row.pipeline)?;
                shown.push(render::build(transaction, &pipeline, row, &links, shape)?);
            }
            Ok((shown, total))
        })
        .await?;
    Ok(paging.listed(builds, total))
}

/// What a build is asked for with, in REST and in GraphQL.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct Request {
    #[serde(default)]
    pub(crate) commit: String,
    #[serde(default)]
    pub(crate) branch: String,
    #[serde(default)]
    pub(crate) message: String,
    pub(crate) tag: Option<String>,
    #[serde(default)]
    pub(crate) env: Env,
    #[serde(default)]
    pub(crate) meta_data: Env,
    pub(crate) author: Option<Author>,
    pub(crate) pull_request_id: Option<i64>,
    pub(crate) pull_request_base_branch: Option<String>,
    pub(crate) pull_request_repository: Option<String>,
    #[serde(default)]
    pub(crate) pull_request_labels: Vec<String>,
}

/// Whose commit a build is of.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct Author {
    #[serde(default)]
    pub(crate) name: String,
    #[serde(default)]
    pub(crate) email: String,
}

impl Request {
    /// An agent refuses to work without a commit or a branch, so empty ones are replaced.
    fn new_build(self, pipeline: &PipelineRow) -> NewBuild {
        let or = |given: String, other: &str| if given.is_empty() { other.to_owned() } else { given };
        let pull_request = self.pull_request_id.map(|id| PullRequest {
            id: id.to_string(),
            base_branch: self.pull_request_base_branch.unwrap_or_default(),
            repository: self.pull_request_repository.unwrap_or_default(),
            labels: self.pull_request_labels,
            draft: false,
        });
        NewBuild {
            branch: or(self.branch, &pipeline.default_branch),
            commit: or(self.commit, "HEAD"),
            message: self.message,
            tag: self.tag,
            author: self.author.map(|author| (author.name, author.email)),
            pull_request,
            env: self.env,
            meta_data: self.meta_data,
            ..NewBuild::default()
        }
    }
}

/// Starts the build that is asked for.
pub(crate) fn start(
    transaction: &Transaction<'_>,
    pipeline: &PipelineRow,
    request: Request,
    policy: &Policy,
) -> Result<BuildRow, Problem> {
    let row = builds::create(transaction, pipeline, &request.new_build(pipeline), policy, Timestamp::now())?;
    tracing::info!(pipeline = pipeline.slug, number = row.number, "build created");
    Ok(row)
}

/// Starts a new build of the same commit, branch, message and environment.
pub(crate) fn repeat(
    transaction: &Transaction<'_>,
    pipeline: &PipelineRow,
    old: BuildRow,
    policy: &Policy,
) -> Result<BuildRow, Problem> {
    let new = NewBuild {
        branch: old.branch,
        commit: old.commit,
        message: old.message,
        author: old.author,
        tag: old.tag,
        pull_request: old.pull_request,
        rebuilt_from: Some((old.id, old.number)),
        env: old.env,
        ..NewBuild::default()
    };
    let row = builds::create(transaction, pipeline, &new, policy, Timestamp::now())?;
    tracing::info!(pipeline = pipeline.slug, number = row.number, from = old.number, "build repeated");
    Ok(row)
}

/// Cancels a build that has not ended.
pub(crate) fn stop(
    transaction: &Transaction<'_>,
    row: &BuildRow,
    policy: &Policy,
) -> Result<BuildRow, Problem> {
    if row.finished_at.is_some() {
        return Err(Problem::Refused(format!("build {} has ended: it is {}", row.number, row.state)));
    }
    builds::apply(transaction, row.id, &Event::CancelBuild, policy, Timestamp::now())?;
    builds::get(transaction, row.id)
}

pub(super) async fn create(
    State(app): State<Shared>,
    base: BaseUrl,
    Path(path): Path<HashMap<String, String>>,
    Body(request): Body<Request>,
) -> ApiResult<(StatusCode, Json<Value>)> {
    let links = Links::new(&app, &base);
    let policy = app.policy;
    let build = app
        .store
        .transact(move |transaction| {
            let pipeline = pipelines::get(transaction, super::segment(&path, "pipeline"))?;
            let row = start(transaction, &pipeline, request, &policy)?;
            render::build(transaction, &pipeline, &row, &links, Shape::default())
        })
        .await?;
    Ok((StatusCode::CREATED, Json(build)))
}

/// Path of a build: pipeline and number.
type BuildPath = Path<HashMap<String, String>>;

/// Does something with the build that a path names; answers with the build that comes of it.
async fn with_build<F>(
    State(app): State<Shared>,
    base: BaseUrl,
    Path(path): BuildPath,
    shape: Shape,
    act: F,
) -> ApiResult<Json<Value>>
where
    F: FnOnce(&Transaction<'_>, &PipelineRow, BuildRow, &Policy) -> Result<BuildRow, Problem>
        + Send
        + 'static,
{
    let links = Links::new(&app, &base);
    let policy = app.policy;
    let build = app
        .store
        .transact(move |transaction| {
            let (pipeline, row) = super::build(transaction, &path)?;
            let row = act(transaction, &pipeline, row, &policy)?;
            render::build(transaction, &pipeline, &row, &links, shape)
        })
        .await?;
    Ok(Json(build))
}

pub(super) async fn show(
    state: State<Shared>,
    base: BaseUrl,
    path: BuildPath,
    query: Pairs,
) -> ApiResult<Json<Value>> {
    with_build(state, base, path, Shape::asked(&query), |_, _, row, _| Ok(row)).await
}

/// A build by its id alone.
pub(super) async fn by_id(
    State(app): State<Shared>,
    base: BaseUrl,
    Path(path): BuildPath,
    query: Pairs,
) -> ApiResult<Json<Value>> {
    let id = extract::id("build", super::segment(&path, "id"))?;
    let links = Links::new(&app, &base);
    let shape = Shape::asked(&query);
    let build = app
        .store
        .transact(move |transaction| {
            let row = builds::get(transaction, id)?;
            let pipeline = pipelines::by_id(transaction, row.pipeline)?;
            render::build(transaction, &pipeline, &row, &links, shape)
        })
        .await?;
    Ok(Json(build))
}

/// The jobs of a build, by state and by step or group when asked.
pub(super) async fn jobs(
    state: State<Shared>,
    base: BaseUrl,
    path: BuildPath,
    paging: Paging,
    query: Pairs,
) -> ApiResult<Listed> {
    let Json(mut build) = show(state, base, path, query.clone()).await?;
    let Value::Array(jobs) = build["jobs"].take() else { return Ok(paging.cut(Vec::new())) };
    let wanted = |name: &str, field: &Value| {
        let mut given = query.all(name).peekable();
        given.peek().is_none() || given.any(|one| field.as_str() == Some(one))
    };
    let found = jobs
        .into_iter()
        .filter(|job| {
            wanted("state", &job["state"])
                && wanted("step_key", &job["step_key"])
                && wanted("group_key", &job["group_key"])
        })
        .collect();
    Ok(paging.cut(found))
}

pub(super) async fn cancel(state: State<Shared>, base: BaseUrl, path: BuildPath) -> ApiResult<Json<Value>> {
    with_build(state, base, path, Shape::default(), |transaction, _, row, policy| {
        stop(transaction, &row, policy)
    })
    .await
}

pub(super) async fn rebuild(
    state: State<Shared>,
    base: BaseUrl,
    path: BuildPath,
) -> ApiResult<(StatusCode, Json<Value>)> {
    let build = with_build(state, base, path, Shape::default(), repeat).await?;
    Ok((StatusCode::CREATED, build))
}
