//! Pipelines.

use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::Value;
use uuid::Uuid;

use super::super::Shared;
use super::super::error::{ApiError, ApiResult};
use super::super::extract::{BaseUrl, Body};
use super::render::{self, Links};
use crate::pipeline;
use crate::problem::Problem;
use crate::store::pipelines::{self, PipelineRow};

pub(super) async fn list(State(app): State<Shared>, base: BaseUrl) -> ApiResult<Json<Vec<Value>>> {
    let rows = app.store.transact(pipelines::all).await?;
    let links = Links::new(&app, &base);
    Ok(Json(rows.iter().map(|row| render::pipeline(row, &links)).collect()))
}

pub(super) async fn show(
    State(app): State<Shared>,
    base: BaseUrl,
    Path((_, slug)): Path<(String, String)>,
) -> ApiResult<Json<Value>> {
    let row = app.store.transact(move |transaction| pipelines::get(transaction, &slug)).await?;
    Ok(Json(render::pipeline(&row, &Links::new(&app, &base))))
}

#[derive(Deserialize)]
pub(super) struct NewPipeline {
    name: String,
    slug: Option<String>,
    repository: String,
    configuration: String,
    default_branch: Option<String>,
}

pub(super) async fn create(
    State(app): State<Shared>,
    base: BaseUrl,
    Body(request): Body<NewPipeline>,
) -> ApiResult<(StatusCode, Json<Value>)> {
    let slug = slug(request.slug.as_deref().unwrap_or(&request.name));
    if slug.is_empty() {
        return Err(ApiError::unprocessable("name needs at least one letter or digit"));
    }
    check(&request.repository, &request.configuration)?;
    let row = PipelineRow {
        id: Uuid::now_v7(),
        slug,
        name: request.name,
        repository: request.repository,
        configuration: request.configuration,
        default_branch: request.default_branch.unwrap_or_else(|| "main".to_owned()),
        created_at: Timestamp::now(),
    };
    let saved = row.clone();
    app.store
        .transact(move |transaction| match pipelines::get(transaction, &saved.slug) {
            Ok(_) => Err(Problem::Refused(format!("the pipeline {} exists already", saved.slug))),
            Err(Problem::NotFound(_)) => pipelines::save(transaction, &saved),
            Err(problem) => Err(problem),
        })
        .await?;
    Ok((StatusCode::CREATED, Json(render::pipeline(&row, &Links::new(&app, &base)))))
}

#[derive(Deserialize)]
pub(super) struct PipelineChanges {
    name: Option<String>,
    repository: Option<String>,
    configuration: Option<String>,
    default_branch: Option<String>,
}

pub(super) async fn update(
    State(app): State<Shared>,
    base: BaseUrl,
    Path((_, slug)): Path<(String, String)>,
    Body(changes): Body<PipelineChanges>,
) -> ApiResult<Json<Value>> {
    let row = app
        .store
        .transact(move |transaction| {
            let mut row = pipelines::get(transaction, &slug)?;
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

fn check(repository: &str, configuration: &str) -> ApiResult<()> {
    if repository.is_empty() {
        return Err(ApiError::unprocessable("repository must not be empty"));
    }
    pipeline::from_yaml(configuration).map_err(Problem::from)?;
    Ok(())
}

/// `My Pipeline!` → `my-pipeline`.
fn slug(name: &str) -> String {
    let dashed: String =
        name.chars().map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' }).collect();
    dashed.split('-').filter(|part| !part.is_empty()).collect::<Vec<_>>().join("-")
}
