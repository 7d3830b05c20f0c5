//! Secrets for jobs, and tokens for the repositories they check out.
//!
//! Answers name the key that was asked for, never a value other than the one that is granted.

use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::{get, post};
use axum::{Json, Router};
use serde::Deserialize;
use serde_json::{Value, json};

use super::super::Shared;
use super::super::auth::JobAccess;
use super::super::error::{ApiError, ApiResult};
use super::super::extract::{Body, Params};
use crate::problem::Problem;
use crate::secret::{self, Found, GitCredentials, Hidden, Secrets, SecretsError};
use crate::store::{builds, facts, jobs, pipelines};

/// The routes of secrets and credentials.
pub(super) fn router() -> Router<Shared> {
    Router::new()
        .route("/jobs/{job}/secrets", get(secret))
        .route("/jobs/{job}/repository_access_token", post(repository_token))
        // What older agents call it.
        .route("/jobs/{job}/github_code_access_token", post(repository_token))
}

#[derive(Deserialize)]
struct Key {
    #[serde(default)]
    key: String,
}

async fn secret(
    access: JobAccess,
    State(app): State<Shared>,
    Params(Key { key }): Params<Key>,
) -> ApiResult<Json<Value>> {
    if key.is_empty() {
        return Err(ApiError::unprocessable("which secret? The query needs a key"));
    }
    let pipeline = pipeline_of_running(&app, &access).await?;
    let secrets = Secrets::read(app.config.secrets.as_deref()).map_err(|error| unusable(&error))?;
    let Hidden(value) = match secrets.get(&key, &pipeline) {
        Found::Value(value) => value,
        Found::Denied => {
            return Err(ApiError::forbidden(format!(
                "the pipeline {pipeline} may not have the secret {key:?}"
            )));
        }
        Found::Unknown => {
            return Err(ApiError::not_found(format!(
                "no secret {key:?}; the server's --secrets file names them"
            )));
        }
    };
    let name = key.clone();
    let id = app.store.transact(move |transaction| facts::secret_id(transaction, &name)).await?;
    tracing::info!(job = %access.job, key, "a job got a secret");
    Ok(Json(json!({ "key": key, "value": value, "uuid": id })))
}

/// The slug of the job's pipeline, as long as an agent has the job.
async fn pipeline_of_running(app: &Shared, access: &JobAccess) -> ApiResult<String> {
    let (job, build) = (access.job, access.build);
    let slug = app
        .store
        .transact(move |transaction| {
            let state = jobs::get(transaction, job)?.job.state;
            if !state.has_agent() {
                return Err(Problem::Refused(format!("job {job} gets no secrets: it is {state}")));
            }
            let build = builds::get(transaction, build)?;
            Ok(pipelines::by_id(transaction, build.pipeline)?.slug)
        })
        .await?;
    Ok(slug)
}

fn unusable(error: &SecretsError) -> ApiError {
    tracing::error!(error = bk_ops::report::one_line(error), "secrets cannot be read");
    let text = "the server cannot read its secrets; its log says why";
    ApiError::new(StatusCode::SERVICE_UNAVAILABLE, text)
}

#[derive(Deserialize)]
struct Repository {
    #[serde(default)]
    repo_url: String,
}

async fn repository_token(
    access: JobAccess,
    State(app): State<Shared>,
    Body(Repository { repo_url }): Body<Repository>,
) -> ApiResult<Json<Value>> {
    pipeline_of_running(&app, &access).await?;
    let host = secret::host(&repo_url)
        .ok_or_else(|| ApiError::unprocessable("repo_url is not the URL of a repository on a host"))?;
    let credentials = GitCredentials::read(app.config.git_credentials.as_deref());
    let credentials = credentials.map_err(|error| unusable(&error))?;
    let Hidden(token) = credentials.get(host).ok_or_else(|| {
        let text = format!("no token for {host}; the server's --git-credentials file names them by host");
        ApiError::not_found(text)
    })?;
    tracing::info!(job = %access.job, host, "a job got a token for git");
    Ok(Json(json!({ "token": token })))
}
