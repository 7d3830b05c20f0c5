//! The page: pipelines with their builds, and one build with its steps and logs. Rendered here, no scripts.
//!
//! It shows what the REST API guards with its token, so it is served without one on loopback only; elsewhere
//! the API token opens it, as the password of HTTP basic authentication or in `Authorization: Bearer`.

mod html;

use axum::Router;
use axum::extract::{FromRequestParts, Path, State};
use axum::http::request::Parts;
use axum::http::{StatusCode, header};
use axum::response::{Html, IntoResponse, Response};
use axum::routing::get;

use super::Shared;
use super::error::ApiError;
use crate::log;
use crate::problem::Problem;
use crate::store::{builds, data, jobs, logs, pipelines};
use html::{BuildPage, JobView};

const BUILDS_SHOWN: u32 = 20;
/// How much of a log one page shows: its end.
const LOG_SHOWN: i64 = 256 * 1024;

/// The routes of the page.
pub(crate) fn router() -> Router<Shared> {
    Router::new().route("/", get(index)).route("/{org}/{pipeline}/builds/{number}", get(build))
}

/// A person who may look.
struct Viewer;

impl FromRequestParts<Shared> for Viewer {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, app: &Shared) -> Result<Self, Response> {
        use base64::Engine;
        if app.config.listen.ip().is_loopback() {
            return Ok(Self);
        }
        let given =
            parts.headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok()).unwrap_or("");
        let password = match given.split_once(' ') {
            Some(("Bearer", token)) => Some(token.to_owned()),
            Some(("Basic", encoded)) => base64::engine::general_purpose::STANDARD
                .decode(encoded)
                .ok()
                .and_then(|bytes| String::from_utf8(bytes).ok())
                .and_then(|text| text.split_once(':').map(|(_, password)| password.to_owned())),
            _ => None,
        };
        if password.as_deref() == Some(app.tokens.api.as_str()) {
            return Ok(Self);
        }
        let challenge = [(header::WWW_AUTHENTICATE, "Basic realm=\"buildkite-local\"")];
        Err((StatusCode::UNAUTHORIZED, challenge, "The API token is the password.").into_response())
    }
}

/// An error as a page.
struct PageError(ApiError);

impl From<Problem> for PageError {
    fn from(problem: Problem) -> Self {
        Self(problem.into())
    }
}

impl IntoResponse for PageError {
    fn into_response(self) -> Response {
        (self.0.status(), Html(html::error(self.0.message()))).into_response()
    }
}

async fn index(_: Viewer, State(app): State<Shared>) -> Result<Html<String>, PageError> {
    let found = app
        .store
        .transact(|transaction| {
            pipelines::all(transaction)?
                .into_iter()
                .map(|pipeline| {
                    let recent = builds::recent(transaction, pipeline.id, BUILDS_SHOWN)?;
                    Ok((pipeline, recent))
                })
                .collect::<Result<Vec<_>, Problem>>()
        })
        .await?;
    Ok(Html(html::index(&app.config.organization, &found)))
}

async fn build(
    _: Viewer,
    State(app): State<Shared>,
    Path((organization, slug, number)): Path<(String, String, i64)>,
) -> Result<Html<String>, PageError> {
    if organization != app.config.organization {
        return Err(Problem::not_found("organization", organization).into());
    }
    let page = app
        .store
        .transact(move |transaction| {
            let pipeline = pipelines::get(transaction, &slug)?;
            let row = builds::by_number(transaction, pipeline.id, number)?;
            let build = builds::load(transaction, &row)?;
            let mut steps = Vec::new();
            for placed in build.steps {
                let mut views = Vec::new();
                for job in build.jobs.iter().filter(|job| job.step == placed.id) {
                    let events = jobs::events(transaction, job.id)?;
                    let from = logs::length(transaction, job.id)?.saturating_sub(LOG_SHOWN).max(0);
                    let excerpt = logs::read_from(transaction, job.id, from, usize::MAX)?;
                    let log = log::read(&excerpt, job.state.is_terminal())
                        .map_err(|error| Problem::Corrupt(error.to_string()))?;
                    views.push(JobView { job: job.clone(), events, log: log::plain(&log.bytes) });
                }
                steps.push((placed, views));
            }
            let annotations = data::annotations(transaction, row.id)?;
            Ok(BuildPage { pipeline, build: row, steps, annotations })
        })
        .await?;
    Ok(Html(html::build(&page)))
}
