//! The caller's own build, controlled from inside a job.

use axum::Json;
use axum::extract::State;
use serde_json::{Value, json};

use super::super::Shared;
use super::super::auth::BuildAccess;
use super::super::error::ApiResult;
use super::super::rest;
use crate::store::builds;

/// Cancels the build, the calling job included. One that has ended stays as it is.
pub(super) async fn cancel(access: BuildAccess, State(app): State<Shared>) -> ApiResult<Json<Value>> {
    let policy = app.policy;
    let build = access.build;
    app.store
        .transact(move |transaction| {
            let row = builds::get(transaction, build)?;
            rest::builds::stop(transaction, &row, &policy)
        })
        .await?;
    tracing::info!(%build, "build cancelled from inside a job");
    Ok(Json(json!({ "uuid": build })))
}
