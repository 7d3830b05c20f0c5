//! A part of the REST API v2, for scripts and for the command line.
//!
//! Beyond the hosted one: `events` and `job_state` in jobs, `PUT jobs/{id}/cancel` for a single job, `offset`
//! and `plain` for reading a log as it grows, every job path also without pipeline and build, builds by id,
//! and `POST repositories` for directories that are served over git.

mod account;
mod agents;
mod annotations;
mod artifacts;
pub(crate) mod builds;
mod clusters;
mod filter;
mod jobs;
mod log;
mod paging;
pub(crate) mod pipelines;
pub(crate) mod render;

use std::collections::HashMap;

use axum::Router;
use axum::middleware::from_extractor_with_state;
use axum::routing::{MethodRouter, get, post, put};
use rusqlite::Transaction;

use super::Shared;
use super::auth::{ApiToken, ApiUser};
use super::git;
use crate::problem::Problem;
use crate::store::builds::BuildRow;
use crate::store::pipelines::PipelineRow;
use crate::store::{builds as build_rows, pipelines as pipeline_rows};

/// The routes above the organisation.
pub(crate) fn root(app: &Shared) -> Router<Shared> {
    Router::new()
        .route("/access-token", get(account::access_token))
        .route("/user", get(account::user))
        .route("/meta", get(account::meta))
        .route("/organizations", get(account::organizations))
        .route("/builds", get(builds::list))
        .route_layer(from_extractor_with_state::<ApiToken, _>(app.clone()))
}

/// The routes below an organisation, for callers with the API token.
pub(crate) fn router(app: &Shared) -> Router<Shared> {
    routes().route_layer(from_extractor_with_state::<ApiUser, _>(app.clone()))
}

/// The same routes for whoever mounts them, who also says who may use them.
pub(crate) fn routes() -> Router<Shared> {
    let mut router = Router::new()
        .route("/", get(account::organization))
        .route("/builds", get(builds::list))
        .route("/builds/{id}", get(builds::by_id))
        .route("/jobs/{job}", get(jobs::show))
        .route("/pipelines/{pipeline}/builds/{number}/jobs/{job}", get(jobs::show))
        .route("/pipelines", get(pipelines::list).post(pipelines::create))
        .route("/repositories", post(git::register))
        .route(
            "/pipelines/{pipeline}",
            get(pipelines::show).patch(pipelines::update).put(pipelines::update).delete(pipelines::delete),
        )
        .route("/pipelines/{pipeline}/builds", get(builds::list).post(builds::create))
        .route("/pipelines/{pipeline}/builds/{number}", get(builds::show))
        .route("/pipelines/{pipeline}/builds/{number}/cancel", put(builds::cancel))
        .route("/pipelines/{pipeline}/builds/{number}/rebuild", put(builds::rebuild))
        .route("/pipelines/{pipeline}/builds/{number}/jobs", get(builds::jobs))
        .route("/pipelines/{pipeline}/builds/{number}/annotations", get(annotations::list))
        .merge(artifacts::router())
        .merge(agents::router())
        .merge(clusters::router());
    let actions: [(&str, MethodRouter<Shared>); 7] = [
        ("log", get(log::negotiated)),
        ("log.txt", get(log::text)),
        ("log.html", get(log::html)),
        ("env", get(jobs::env)),
        ("cancel", put(jobs::cancel)),
        ("retry", put(jobs::retry)),
        ("unblock", put(jobs::unblock).merge(post(jobs::unblock))),
    ];
    for (action, handler) in actions {
        router = router
            .route(&format!("/jobs/{{job}}/{action}"), handler.clone())
            .route(&format!("/pipelines/{{pipeline}}/builds/{{number}}/jobs/{{job}}/{action}"), handler);
    }
    router
}

/// The build that a path names by pipeline and number.
fn build(
    transaction: &Transaction<'_>,
    path: &HashMap<String, String>,
) -> Result<(PipelineRow, BuildRow), Problem> {
    let pipeline = pipeline_rows::get(transaction, segment(path, "pipeline"))?;
    let number = segment(path, "number");
    let number = number.parse().map_err(|_| Problem::not_found("build", number))?;
    let build = build_rows::by_number(transaction, pipeline.id, number)?;
    Ok((pipeline, build))
}

/// A part of the path. Handlers are mounted at more than one path, so not all have the same parts.
fn segment<'a>(path: &'a HashMap<String, String>, name: &str) -> &'a str {
    path.get(name).map_or("", String::as_str)
}
