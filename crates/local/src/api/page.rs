//! The page: a shell with scripts, the views that the scripts ask for, and a stream that says when to ask again.
//!
//! The shell and its assets hold nothing secret and are served to everybody. Everything below `/-/` that
//! shows or changes something goes through [`guard::Visitor`].

mod artifact;
mod assets;
mod events;
mod guard;
mod log;
mod markdown;
mod view;

use axum::Router;
use axum::extract::State;
use axum::middleware::from_extractor_with_state;
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, get, post};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::agent::new_token;
use super::error::ApiError;
use super::extract::Path;
use super::{Shared, rest};

/// One run of the server, as pages see it.
pub(crate) struct Run {
    /// Tells this run from others.
    id: String,
    /// What the cookie of a visitor who has signed in holds.
    session: String,
    /// The server is going down: answers that would not end by themselves end now.
    pub(crate) stopping: CancellationToken,
}

impl Run {
    /// A new run: nobody has signed in.
    pub(crate) fn begin() -> Self {
        let id = Uuid::new_v4().simple().to_string();
        Self { id, session: new_token("bkls"), stopping: CancellationToken::new() }
    }
}

/// The routes of the page.
pub(crate) fn router(app: &Shared) -> Router<Shared> {
    let guarded = Router::new()
        .route("/pipelines", get(view::pipelines::list))
        .route("/pipelines/{pipeline}", get(view::pipelines::show))
        .route("/pipelines/{pipeline}/builds/{number}", get(view::build::show))
        .route("/jobs/{job}", get(view::job::show))
        .route("/jobs/{job}/log", get(log::show))
        .route("/jobs/{job}/artifact", get(artifact::of_job))
        .route("/builds/{build}/artifact", get(artifact::of_build))
        .route("/agents", get(view::agents::show))
        .route("/events", get(events::stream))
        // What people change goes the way of scripts, with the visitor's session in place of the API token.
        .nest("/rest/{org}", rest::routes())
        .route_layer(from_extractor_with_state::<guard::Visitor, _>(app.clone()));
    let open = Router::new()
        .route("/session", post(guard::sign_in).delete(guard::sign_out))
        .route("/assets/{version}/{name}", get(assets::serve));
    Router::new()
        .nest("/-", guarded.merge(open))
        .route("/", get(index))
        .route("/agents", get(index))
        .route("/{org}/{pipeline}", page())
        .route("/{org}/{pipeline}/builds", page())
        .route("/{org}/{pipeline}/builds/{number}", page())
        .route("/{org}/{pipeline}/builds/{number}/jobs/{job}", page())
}

/// A page below the organisation. Such paths take nothing else: to clients that try, nothing is there.
fn page() -> MethodRouter<Shared> {
    get(shell).fallback(nothing)
}

async fn nothing() -> ApiError {
    ApiError::not_found("there is nothing at this path")
}

async fn index(State(app): State<Shared>) -> Response {
    assets::shell(&app.config.organization)
}

/// The script reads from the path what to show.
async fn shell(
    State(app): State<Shared>,
    Path(path): Path<std::collections::HashMap<String, String>>,
) -> Response {
    match path.get("org") {
        Some(organization) if *organization == app.config.organization => assets::shell(organization),
        _ => nothing().await.into_response(),
    }
}
