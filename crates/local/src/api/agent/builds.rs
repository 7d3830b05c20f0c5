//! The caller's own build, controlled from inside a job.

use axum::Json;
use axum::extract::State;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::super::Shared;
use super::super::auth::BuildAccess;
use super::super::error::ApiResult;
use crate::build::Event;
use crate::store::builds;

/// Cancels the build, the calling job included.
pub(super) async fn cancel(access: BuildAccess, State(app): State<Shared>) -> ApiResult<Json<Value>> {
    let policy = app.policy;
    let build = access.build;
    app.store
        .transact(move |transaction| {
            builds::apply(transaction, build, &Event::CancelBuild, &policy, Timestamp::now())
        })
        .await?;
    tracing::info!(%build, "build cancelled from inside a job");
    Ok(Json(json!({ "uuid": build })))
}
