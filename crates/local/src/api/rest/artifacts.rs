//! Artifacts of builds and jobs.

use std::collections::HashMap;

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::http::header::LOCATION;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use serde_json::{Value, json};
use uuid::Uuid;

use super::super::Shared;
use super::super::error::{ApiError, ApiResult};
use super::super::extract::{self, BaseUrl};
use super::super::files;
use super::paging::{Listed, Paging};
use super::render::{Links, graphql_id, stamp};
use crate::store::artifacts::{self, ArtifactRow, ArtifactState};
use crate::store::{builds, jobs, pipelines};

/// The routes of artifacts, below an organisation.
pub(super) fn router() -> Router<Shared> {
    const BUILD: &str = "/pipelines/{pipeline}/builds/{number}";
    Router::new()
        .route(&format!("{BUILD}/artifacts"), get(of_build))
        .route(&format!("{BUILD}/jobs/{{job}}/artifacts"), get(of_job))
        .route("/jobs/{job}/artifacts", get(of_job))
        .route(&format!("{BUILD}/artifacts/{{artifact}}"), get(show).delete(delete))
        .route(&format!("{BUILD}/artifacts/{{artifact}}/download"), get(download))
        .route(&format!("{BUILD}/jobs/{{job}}/artifacts/{{artifact}}"), get(show).delete(delete))
        .route(&format!("{BUILD}/jobs/{{job}}/artifacts/{{artifact}}/download"), get(download))
}

/// An artifact's path comes with and without its job.
type ArtifactPath = Path<HashMap<String, String>>;

/// An artifact with the build it belongs to.
struct Found {
    artifact: ArtifactRow,
    pipeline: String,
    number: i64,
}

async fn list(app: &Shared, path: HashMap<String, String>) -> ApiResult<Vec<Found>> {
    let job = match path.get("job") {
        Some(id) => Some(extract::id("job", id)?),
        None => None,
    };
    let found = app
        .store
        .transact(move |transaction| {
            let build = match job {
                Some(job) => builds::get(transaction, jobs::get(transaction, job)?.build)?,
                None => super::build(transaction, &path)?.1,
            };
            let pipeline = pipelines::by_id(transaction, build.pipeline)?.slug;
            let all = artifacts::of_build(transaction, build.id, None)?;
            let wanted = all.into_iter().map(|(artifact, _)| artifact);
            let wanted = wanted.filter(|artifact| job.is_none_or(|job| artifact.job == job));
            let found = |artifact| Found { artifact, pipeline: pipeline.clone(), number: build.number };
            Ok(wanted.map(found).collect())
        })
        .await?;
    Ok(found)
}

async fn of_build(
    State(app): State<Shared>,
    base: BaseUrl,
    Path(path): ArtifactPath,
    paging: Paging,
) -> ApiResult<Listed> {
    let links = Links::new(&app, &base);
    let found = list(&app, path).await?;
    Ok(paging.cut(found.iter().map(|found| render(found, &links)).collect()))
}

async fn of_job(
    state: State<Shared>,
    base: BaseUrl,
    path: ArtifactPath,
    paging: Paging,
) -> ApiResult<Listed> {
    of_build(state, base, path, paging).await
}

async fn find(app: &Shared, path: HashMap<String, String>) -> ApiResult<Found> {
    let text = super::segment(&path, "artifact").to_owned();
    let id = extract::id("artifact", &text)?;
    let found = list(app, path).await?;
    found
        .into_iter()
        .find(|found| found.artifact.id == id)
        .ok_or_else(|| ApiError::not_found(format!("no artifact {text}")))
}

async fn show(State(app): State<Shared>, base: BaseUrl, Path(path): ArtifactPath) -> ApiResult<Json<Value>> {
    let found = find(&app, path).await?;
    Ok(Json(render(&found, &Links::new(&app, &base))))
}

/// Where the bytes are: in `Location`, and in the body as the hosted service has it.
async fn download(
    State(app): State<Shared>,
    BaseUrl(base): BaseUrl,
    Path(path): ArtifactPath,
) -> ApiResult<Response> {
    let Found { artifact, .. } = find(&app, path).await?;
    if artifact.state != ArtifactState::Finished {
        let text = format!("artifact {} cannot be downloaded: it is {}", artifact.id, shown_state(&artifact));
        return Err(ApiError::not_found(text));
    }
    let url = app.files.download_url(&base, &artifact);
    Ok((StatusCode::FOUND, [(LOCATION, url.clone())], Json(json!({ "url": url }))).into_response())
}

async fn delete(State(app): State<Shared>, Path(path): ArtifactPath) -> ApiResult<StatusCode> {
    let id: Uuid = find(&app, path).await?.artifact.id;
    app.store.transact(move |transaction| artifacts::delete(transaction, id)).await?;
    app.files.depot.remove(id).await.map_err(|error| files::failed(&error))?;
    Ok(StatusCode::NO_CONTENT)
}

fn shown_state(artifact: &ArtifactRow) -> &'static str {
    artifact.state.as_str()
}

fn render(found: &Found, links: &Links) -> Value {
    let Found { artifact, pipeline, number } = found;
    let build = format!("pipelines/{pipeline}/builds/{number}");
    let address = format!("{build}/jobs/{}/artifacts/{}", artifact.job, artifact.id);
    let (dirname, filename) = artifact.path.rsplit_once('/').unwrap_or((".", &artifact.path));
    json!({
        "id": artifact.id,
        "graphql_id": graphql_id("Artifact", artifact.id),
        "job_id": artifact.job,
        "url": links.api(&address),
        "download_url": links.api(&format!("{address}/download")),
        "state": shown_state(artifact),
        "path": artifact.path,
        "dirname": dirname,
        "filename": filename,
        "mime_type": artifact.content_type,
        "file_size": artifact.file_size,
        "glob_path": artifact.glob_path,
        "original_path": artifact.absolute_path,
        "sha1sum": artifact.sha1sum,
        "sha256sum": artifact.sha256sum,
        "created_at": stamp(artifact.created_at),
    })
}
