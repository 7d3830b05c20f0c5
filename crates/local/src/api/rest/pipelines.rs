//! Pipelines.

use std::collections::HashMap;

use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use jiff::Timestamp;
use rusqlite::Transaction;
use serde::Deserialize;
use serde_json::Value;
use uuid::Uuid;

use super::super::Shared;
use super::super::error::{ApiResult, Invalid};
use super::super::extract::{BaseUrl, Body};
use super::paging::{Listed, Paging};
use super::render::{self, Links};
use crate::pipeline;
use crate::problem::Problem;
use crate::store::builds;
use crate::store::pipelines::{self, PipelineRow};

/// Path of a pipeline: its slug.
type PipelinePath = Path<HashMap<String, String>>;

pub(super) async fn list(State(app): State<Shared>, base: BaseUrl, paging: Paging) -> ApiResult<Listed> {
    let rows = app.store.transact(pipelines::all).await?;
    let links = Links::new(&app, &base);
    Ok(paging.cut(rows.iter().map(|row| render::pipeline(row, &links)).collect()))
}

pub(super) async fn show(
    State(app): State<Shared>,
    base: BaseUrl,
    Path(path): PipelinePath,
) -> ApiResult<Json<Value>> {
    let slug = super::segment(&path, "pipeline").to_owned();
    let row = app.store.transact(move |transaction| pipelines::get(transaction, &slug)).await?;
    Ok(Json(render::pipeline(&row, &Links::new(&app, &base))))
}

/// What a pipeline is made of, in REST and in GraphQL.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct Fields {
    pub(crate) name: Option<String>,
    pub(crate) slug: Option<String>,
    pub(crate) repository: Option<String>,
    pub(crate) configuration: Option<String>,
    pub(crate) default_branch: Option<String>,
}

impl Fields {
    /// The new pipeline that these fields describe.
    pub(crate) fn new_pipeline(self) -> ApiResult<PipelineRow> {
        let name = self.name.unwrap_or_default();
        let slug = slug(self.slug.as_deref().unwrap_or(&name));
        let repository = self.repository.unwrap_or_default();
        let mut invalid = Invalid::default();
        invalid.check("name", !slug.is_empty(), "needs at least one letter or digit");
        invalid.check("repository", !repository.is_empty(), "must not be empty");
        invalid.check("configuration", self.configuration.is_some(), "must be given, in YAML");
        invalid.end()?;
        let configuration = self.configuration.unwrap_or_default();
        pipeline::from_yaml(&configuration).map_err(Problem::from)?;
        Ok(PipelineRow {
            id: Uuid::now_v7(),
            slug,
            name,
            repository,
            configuration,
            default_branch: self.default_branch.unwrap_or_else(|| "main".to_owned()),
            created_at: Timestamp::now(),
        })
    }
}

/// Keeps a pipeline whose slug is free.
pub(crate) fn add(transaction: &Transaction<'_>, row: &PipelineRow) -> Result<(), Problem> {
    match pipelines::get(transaction, &row.slug) {
        Ok(_) => Err(Problem::Refused(format!("the pipeline {} exists already", row.slug))),
        Err(Problem::NotFound(_)) => pipelines::save(transaction, row),
        Err(problem) => Err(problem),
    }
}

pub(super) async fn create(
    State(app): State<Shared>,
    base: BaseUrl,
    Body(request): Body<Fields>,
) -> ApiResult<(StatusCode, Json<Value>)> {
    let row = request.new_pipeline()?;
    let saved = row.clone();
    app.store.transact(move |transaction| add(transaction, &saved)).await?;
    Ok((StatusCode::CREATED, Json(render::pipeline(&row, &Links::new(&app, &base)))))
}

pub(super) async fn update(
    State(app): State<Shared>,
    base: BaseUrl,
    Path(path): PipelinePath,
    Body(changes): Body<Fields>,
) -> ApiResult<Json<Value>> {
    let row = app
        .store
        .transact(move |transaction| {
            let mut row = pipelines::get(transaction, super::segment(&path, "pipeline"))?;
            row.name = changes.name.unwrap_or(row.name);
            row.repository = changes.repository.unwrap_or(row.repository);
            row.configuration = changes.configuration.unwrap_or(row.configuration);
            row.default_branch = changes.default_branch.unwrap_or(row.default_branch);
            pipeline::from_yaml(&row.configuration)?;
            pipelines::save(transaction, &row)?;
            Ok(row)
        })
        .await?;
    Ok(Json(render::pipeline(&row, &Links::new(&app, &base))))
}

/// Removes a pipeline with all of its builds.
pub(super) async fn delete(State(app): State<Shared>, Path(path): PipelinePath) -> ApiResult<StatusCode> {
    let slug = super::segment(&path, "pipeline").to_owned();
    let policy = app.policy;
    app.store
        .transact(move |transaction| {
            let row = pipelines::get(transaction, &slug)?;
            builds::remove_pipeline(transaction, row.id, &policy, Timestamp::now())
        })
        .await?;
    Ok(StatusCode::NO_CONTENT)
}

/// `My Pipeline!` → `my-pipeline`.
fn slug(name: &str) -> String {
    let dashed: String =
        name.chars().map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' }).collect();
    dashed.split('-').filter(|part| !part.is_empty()).collect::<Vec<_>>().join("-")
}
