//! Builds.

use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::Value;

use super::super::Shared;
use super::super::error::ApiResult;
use super::super::extract::{BaseUrl, Body};
use super::render::{self, Links};
use crate::build::Event;
use crate::pipeline::step::Env;
use crate::problem::Problem;
use crate::store::{builds, pipelines};

const LISTED: u32 = 30;

pub(super) async fn list(
    State(app): State<Shared>,
    base: BaseUrl,
    Path((_, slug)): Path<(String, String)>,
) -> ApiResult<Json<Vec<Value>>> {
    let links = Links::new(&app, &base);
    let builds = app
        .store
        .transact(move |transaction| {
            let pipeline = pipelines::get(transaction, &slug)?;
            builds::recent(transaction, pipeline.id, LISTED)?
                .iter()
                .map(|row| render::build(transaction, &pipeline, row, &links))
                .collect::<Result<Vec<_>, Problem>>()
        })
        .await?;
    Ok(Json(builds))
}

#[derive(Deserialize)]
pub(super) struct NewBuild {
    #[serde(default)]
    commit: String,
    #[serde(default)]
    branch: String,
    #[serde(default)]
    message: String,
    #[serde(default)]
    env: Env,
    author: Option<Author>,
}

#[derive(Deserialize)]
struct Author {
    #[serde(default)]
    name: String,
    #[serde(default)]
    email: String,
}

/// An agent refuses to work without a commit or a branch, so empty ones are replaced.
fn or_default(given: String, fallback: &str) -> String {
    if given.is_empty() { fallback.to_owned() } else { given }
}

pub(super) async fn create(
    State(app): State<Shared>,
    base: BaseUrl,
    Path((_, slug)): Path<(String, String)>,
    Body(request): Body<NewBuild>,
) -> ApiResult<(StatusCode, Json<Value>)> {
    let links = Links::new(&app, &base);
    let policy = app.policy;
    let build = app
        .store
        .transact(move |transaction| {
            let pipeline = pipelines::get(transaction, &slug)?;
            let new = builds::NewBuild {
                branch: or_default(request.branch, &pipeline.default_branch),
                commit: or_default(request.commit, "HEAD"),
                message: request.message,
                author: request.author.map(|author| (author.name, author.email)),
                env: request.env,
                ..builds::NewBuild::default()
            };
            let row = builds::create(transaction, &pipeline, &new, &policy, Timestamp::now())?;
            tracing::info!(pipeline = pipeline.slug, number = row.number, "build created");
            render::build(transaction, &pipeline, &row, &links)
        })
        .await?;
    Ok((StatusCode::CREATED, Json(build)))
}

/// Path of a build: organisation, pipeline, number.
type BuildPath = Path<(String, String, String)>;

pub(super) async fn show(
    State(app): State<Shared>,
    base: BaseUrl,
    Path((_, slug, number)): BuildPath,
) -> ApiResult<Json<Value>> {
    let links = Links::new(&app, &base);
    let build = app
        .store
        .transact(move |transaction| {
            let (pipeline, row) = super::build(transaction, &slug, &number)?;
            render::build(transaction, &pipeline, &row, &links)
        })
        .await?;
    Ok(Json(build))
}

pub(super) async fn jobs(state: State<Shared>, base: BaseUrl, path: BuildPath) -> ApiResult<Json<Value>> {
    let Json(mut build) = show(state, base, path).await?;
    Ok(Json(build["jobs"].take()))
}

pub(super) async fn cancel(
    State(app): State<Shared>,
    base: BaseUrl,
    Path((_, slug, number)): BuildPath,
) -> ApiResult<Json<Value>> {
    let links = Links::new(&app, &base);
    let policy = app.policy;
    let build = app
        .store
        .transact(move |transaction| {
            let (pipeline, row) = super::build(transaction, &slug, &number)?;
            if row.finished_at.is_some() {
                return Err(Problem::Refused(format!("build {number} has ended: it is {}", row.state)));
            }
            builds::apply(transaction, row.id, &Event::CancelBuild, &policy, Timestamp::now())?;
            let row = builds::get(transaction, row.id)?;
            render::build(transaction, &pipeline, &row, &links)
        })
        .await?;
    Ok(Json(build))
}

/// A new build of the same commit, branch, message and environment.
pub(super) async fn rebuild(
    State(app): State<Shared>,
    base: BaseUrl,
    Path((_, slug, number)): BuildPath,
) -> ApiResult<(StatusCode, Json<Value>)> {
    let links = Links::new(&app, &base);
    let policy = app.policy;
    let build = app
        .store
        .transact(move |transaction| {
            let (pipeline, old) = super::build(transaction, &slug, &number)?;
            let new = builds::NewBuild {
                branch: old.branch,
                commit: old.commit,
                message: old.message,
                author: old.author,
                tag: old.tag,
                pull_request: old.pull_request,
                rebuilt_from: Some((old.id, old.number)),
                env: old.env,
                ..builds::NewBuild::default()
            };
            let row = builds::create(transaction, &pipeline, &new, &policy, Timestamp::now())?;
            render::build(transaction, &pipeline, &row, &links)
        })
        .await?;
    Ok((StatusCode::CREATED, Json(build)))
}
