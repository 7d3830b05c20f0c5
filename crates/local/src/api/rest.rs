//! A part of the REST API v2, for scripts and for the command line.
//!
//! Beyond the hosted one: `events` and `job_state` in jobs, `PUT jobs/{id}/cancel` for a single job, `offset`
//! for reading a log as it grows, and every job path also without pipeline and build.

mod annotations;
mod builds;
mod jobs;
mod pipelines;
mod render;

use axum::Router;
use axum::middleware::from_extractor_with_state;
use axum::routing::{MethodRouter, get, post, put};
use rusqlite::Transaction;

use super::Shared;
use super::auth::ApiUser;
use super::git;
use crate::problem::Problem;
use crate::store::builds::BuildRow;
use crate::store::pipelines::PipelineRow;
use crate::store::{builds as build_rows, pipelines as pipeline_rows};

/// The routes below an organisation.
pub(crate) fn router(app: &Shared) -> Router<Shared> {
    let mut router = Router::new()
        .route("/pipelines", get(pipelines::list).post(pipelines::create))
        .route("/repositories", post(git::register))
        .route("/pipelines/{pipeline}", get(pipelines::show).patch(pipelines::update))
        .route("/pipelines/{pipeline}/builds", get(builds::list).post(builds::create))
        .route("/pipelines/{pipeline}/builds/{number}", get(builds::show))
        .route("/pipelines/{pipeline}/builds/{number}/cancel", put(builds::cancel))
        .route("/pipelines/{pipeline}/builds/{number}/rebuild", put(builds::rebuild))
        .route("/pipelines/{pipeline}/builds/{number}/jobs", get(builds::jobs))
        .route("/pipelines/{pipeline}/builds/{number}/annotations", get(annotations::list));
    let actions: [(&str, MethodRouter<Shared>); 4] = [
        ("log", get(jobs::log)),
        ("cancel", put(jobs::cancel)),
        ("retry", put(jobs::retry)),
        ("unblock", put(jobs::unblock).merge(post(jobs::unblock))),
    ];
    for (action, handler) in actions {
        router = router
            .route(&format!("/jobs/{{job}}/{action}"), handler.clone())
            .route(&format!("/pipelines/{{pipeline}}/builds/{{number}}/jobs/{{job}}/{action}"), handler);
    }
    router.route_layer(from_extractor_with_state::<ApiUser, _>(app.clone()))
}

/// The build that a path names.
fn build(
    transaction: &Transaction<'_>,
    pipeline: &str,
    number: &str,
) -> Result<(PipelineRow, BuildRow), Problem> {
    let pipeline = pipeline_rows::get(transaction, pipeline)?;
    let number = number.parse().map_err(|_| Problem::not_found("build", number))?;
    let build = build_rows::by_number(transaction, pipeline.id, number)?;
    Ok((pipeline, build))
}
