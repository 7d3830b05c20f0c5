//! `artifact://` links in annotations and logs: the newest artifact of that path.

use axum::extract::State;
use axum::response::Redirect;
use serde::Deserialize;

use super::super::Shared;
use super::super::error::{ApiError, ApiResult};
use super::super::extract::{self, BaseUrl, Params, Path};
use crate::store::artifacts::{self, ArtifactState};
use crate::store::jobs;
use uuid::Uuid;

#[derive(Deserialize)]
pub(super) struct Query {
    path: String,
}

pub(super) async fn of_build(
    State(app): State<Shared>,
    base: BaseUrl,
    Path(build): Path<String>,
    Params(Query { path }): Params<Query>,
) -> ApiResult<Redirect> {
    find(&app, &base, extract::id("build", &build)?, path).await
}

pub(super) async fn of_job(
    State(app): State<Shared>,
    base: BaseUrl,
    Path(job): Path<String>,
    Params(Query { path }): Params<Query>,
) -> ApiResult<Redirect> {
    let job = extract::id("job", &job)?;
    let build = app.store.transact(move |transaction| Ok(jobs::get(transaction, job)?.build)).await?;
    find(&app, &base, build, path).await
}

async fn find(app: &Shared, BaseUrl(base): &BaseUrl, build: Uuid, path: String) -> ApiResult<Redirect> {
    let all = app
        .store
        .transact(move |transaction| artifacts::of_build(transaction, build, Some(ArtifactState::Finished)))
        .await?;
    let newest = all.iter().rev().find(|(artifact, _)| artifact.path == path);
    let (artifact, _) =
        newest.ok_or_else(|| ApiError::not_found(format!("the build has no artifact {path:?}")))?;
    Ok(Redirect::to(&app.files.download_url(base, artifact)))
}
