//! Annotations that jobs write.

use std::ops::RangeInclusive;

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
use crate::problem::Problem;
use crate::store::data::{self, Annotation};

const STYLES: [&str; 5] = ["", "success", "info", "warning", "error"];
const MAX_BODY: u32 = 1024 * 1024;
const DEFAULT_PRIORITY: i64 = 3;
const PRIORITIES: RangeInclusive<i64> = 1..=10;

pub(super) async fn annotate(
    access: JobAccess,
    State(app): State<Shared>,
    Body(request): Body<Request>,
) -> ApiResult<Json<serde_json::Value>> {
    if !STYLES.contains(&request.style.as_str()) {
        let text = format!("style {:?} is none of success, info, warning, error", request.style);
        return Err(ApiError::unprocessable(text));
    }
    let priority = request.priority.unwrap_or(DEFAULT_PRIORITY);
    if !PRIORITIES.contains(&priority) {
        return Err(ApiError::unprocessable(format!("priority {priority} is not between 1 and 10")));
    }
    let context = if request.context.is_empty() { "default".to_owned() } else { request.context };
    let annotation = Annotation {
        job: job_scope(&request.scope, access.job)?,
        context,
        style: request.style,
        priority,
        body: request.body,
    };
    app.store
        .transact(move |transaction| {
            let now = Timestamp::now();
            let size = data::annotate(transaction, access.build, &annotation, request.append, now)?;
            if size > MAX_BODY {
                return Err(Problem::Refused(format!(
                    "the annotation would have {size} bytes; 1 MiB is allowed"
                )));
            }
            Ok(())
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
