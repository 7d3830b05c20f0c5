//! Annotations that jobs write.

use axum::Json;
use axum::extract::State;
use bk_buildkite::agent::Annotation as Request;
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::json;
use uuid::Uuid;

use super::super::Shared;
use super::super::auth::JobAccess;
use super::super::error::{ApiError, ApiResult};
use super::super::extract::{Body, Params, Path};
use crate::store::data::{self, Annotation};

const STYLES: [&str; 5] = ["", "success", "info", "warning", "error"];
const MAX_BODY: usize = 1024 * 1024;
const DEFAULT_PRIORITY: i64 = 3;

pub(super) async fn annotate(
    access: JobAccess,
    State(app): State<Shared>,
    Body(request): Body<Request>,
) -> ApiResult<Json<serde_json::Value>> {
    if !STYLES.contains(&request.style.as_str()) {
        let text = format!("style {:?} is none of success, info, warning, error", request.style);
        return Err(ApiError::unprocessable(text));
    }
    if request.body.len() > MAX_BODY {
        return Err(ApiError::unprocessable("the annotation is larger than 1 MiB"));
    }
    let context = if request.context.is_empty() { "default".to_owned() } else { request.context };
    let annotation = Annotation {
        job: job_scope(&request.scope, access.job)?,
        context,
        style: request.style,
        priority: request.priority.unwrap_or(DEFAULT_PRIORITY),
        body: request.body,
    };
    app.store
        .transact(move |transaction| {
            data::annotate(transaction, access.build, &annotation, request.append, Timestamp::now())
        })
        .await?;
    Ok(Json(json!({})))
}

#[derive(Deserialize)]
pub(super) struct Scope {
    #[serde(default)]
    scope: String,
}

pub(super) async fn remove(
    access: JobAccess,
    State(app): State<Shared>,
    Path((_, context)): Path<(String, String)>,
    Params(Scope { scope }): Params<Scope>,
) -> ApiResult<Json<serde_json::Value>> {
    let job = job_scope(&scope, access.job)?;
    let name = context.clone();
    let removed = app
        .store
        .transact(move |transaction| data::remove_annotation(transaction, access.build, job, &name))
        .await?;
    if removed {
        Ok(Json(json!({})))
    } else {
        Err(ApiError::not_found(format!("no annotation with context {context:?}")))
    }
}

fn job_scope(scope: &str, job: Uuid) -> ApiResult<Option<Uuid>> {
    match scope {
        "" | "build" => Ok(None),
        "job" => Ok(Some(job)),
        other => Err(ApiError::unprocessable(format!("scope {other:?} is neither build nor job"))),
    }
}
