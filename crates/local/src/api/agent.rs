//! The Agent API.

mod annotations;
mod artifacts;
mod builds;
mod cache;
mod control;
mod data;
mod dispatch;
mod jobs;
mod logs;
mod metrics;
mod pipelines;
mod secrets;
mod sessions;
mod steps;

use axum::Router;
use axum::routing::{delete, get, post, put};
use uuid::Uuid;

use super::Shared;

/// The routes of the Agent API, relative to its base path.
pub(crate) fn router() -> Router<Shared> {
    Router::new()
        .route("/register", post(sessions::register))
        .route("/connect", post(sessions::connect))
        .route("/disconnect", post(sessions::disconnect))
        .route("/heartbeat", post(sessions::heartbeat))
        .route("/ping", get(dispatch::ping))
        .route("/metrics", get(metrics::show))
        .route("/stop", post(control::stop))
        .route("/pause", post(control::pause))
        .route("/resume", post(control::resume))
        .route("/jobs/{job}", get(jobs::state).put(jobs::update))
        .route("/jobs/{job}/acquire", put(dispatch::acquire))
        .route("/jobs/{job}/accept", put(dispatch::accept))
        .route("/jobs/{job}/start", put(jobs::start))
        .route("/jobs/{job}/finish", put(jobs::finish))
        .route("/jobs/{job}/promise_failure", put(jobs::promise_failure))
        .route("/jobs/{job}/chunks", post(logs::chunk))
        .route("/jobs/{job}/header_times", post(logs::header_times))
        .route("/jobs/{job}/data/set", post(data::set))
        .route("/jobs/{job}/data/set-batch", post(data::set_batch))
        .route("/jobs/{job}/data/get", post(data::get_for_job))
        .route("/jobs/{job}/data/exists", post(data::exists_for_job))
        .route("/jobs/{job}/data/keys", post(data::keys_for_job))
        .route("/builds/{build}/data/get", post(data::get_for_build))
        .route("/builds/{build}/data/exists", post(data::exists_for_build))
        .route("/builds/{build}/data/keys", post(data::keys_for_build))
        .route("/jobs/{job}/annotations", post(annotations::annotate))
        .route("/jobs/{job}/annotations/{context}", delete(annotations::remove))
        .route("/jobs/{job}/pipelines", post(pipelines::upload))
        .route("/jobs/{job}/pipelines/{uuid}", get(pipelines::status))
        .merge(artifacts::router())
        .merge(cache::router())
        .merge(super::oidc::router())
        .merge(secrets::router())
        .route("/steps/{step}", put(steps::update))
        .route("/steps/{step}/export", post(steps::export))
        .route("/steps/{step}/cancel", post(steps::cancel))
        .route("/builds/{build}/cancel", post(builds::cancel))
}

/// A secret nobody can guess, recognisable by its prefix.
pub(crate) fn new_token(prefix: &str) -> String {
    format!("{prefix}_{}{}", Uuid::new_v4().simple(), Uuid::new_v4().simple())
}
