//! Steps that jobs add to their build.

use axum::Json;
use axum::extract::State;
use bk_buildkite::agent::PipelineUpload;
use jiff::Timestamp;
use serde_json::json;

use super::super::Shared;
use super::super::auth::JobAccess;
use super::super::error::{ApiError, ApiResult};
use super::super::extract::{Body, Path};
use crate::pipeline;
use crate::problem::Problem;
use crate::store::{builds, jobs};

/// Inserts the uploaded steps before it answers, so that nobody has to ask again.
pub(super) async fn upload(
    access: JobAccess,
    State(app): State<Shared>,
    Body(request): Body<PipelineUpload>,
) -> ApiResult<Json<serde_json::Value>> {
    let document = pipeline::from_json(request.pipeline).map_err(Problem::from)?;
    let upload = builds::Upload { uuid: request.uuid, document, replace: request.replace };
    let policy = app.policy;
    app.store
        .transact(move |transaction| {
            let owned = jobs::get(transaction, access.job)?;
            builds::upload(transaction, &owned, &upload, &policy, Timestamp::now())
        })
        .await?;
    Ok(Json(json!({})))
}

/// Uploads are applied at once, so a known one is applied.
pub(super) async fn status(
    access: JobAccess,
    State(app): State<Shared>,
    Path((_, uuid)): Path<(String, String)>,
) -> ApiResult<Json<serde_json::Value>> {
    let name = uuid.clone();
    let known =
        app.store.transact(move |transaction| builds::has_upload(transaction, access.job, &name)).await?;
    if known {
        Ok(Json(json!({ "state": "applied", "message": "" })))
    } else {
        Err(ApiError::not_found(format!("no upload {uuid}")))
    }
}
