//! Annotations of a build.

use std::collections::HashMap;

use axum::Json;
use axum::extract::{Path, State};
use serde_json::{Value, json};

use super::super::Shared;
use super::super::error::ApiResult;
use crate::store::data::{self, Annotation};

pub(super) async fn list(
    State(app): State<Shared>,
    Path(path): Path<HashMap<String, String>>,
) -> ApiResult<Json<Vec<Value>>> {
    let annotations = app
        .store
        .transact(move |transaction| {
            let (_, build) = super::build(transaction, &path)?;
            data::annotations(transaction, build.id)
        })
        .await?;
    Ok(Json(annotations.iter().map(shown).collect()))
}

/// The body as it was written: Markdown, which the hosted service renders.
fn shown(annotation: &Annotation) -> Value {
    json!({
        "context": annotation.context,
        "style": annotation.style,
        "scope": if annotation.job.is_some() { "job" } else { "build" },
        "job_id": annotation.job,
        "priority": annotation.priority,
        "body": annotation.body,
    })
}
