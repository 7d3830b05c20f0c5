//! The Stacks API.

mod jobs;
mod limits;
mod notifications;

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::middleware::from_fn;
use axum::routing::{get, post, put};
use axum::{Json, Router};
use bk_buildkite::stacks::{DEFAULT_QUEUE_KEYS, RegisterStack, Stack, TokenIdentity};
use jiff::Timestamp;
use rusqlite::Transaction;
use uuid::Uuid;

use super::Shared;
use super::auth::Registration;
use super::error::{ApiError, ApiResult};
use super::extract::Body;
use crate::build::job::DEFAULT_QUEUE;
use crate::problem::Problem;
use crate::store::facts;
use crate::store::pipelines::{self, QueueRow};
use crate::store::stacks::{self, StackRow};

/// The routes of the Stacks API, relative to the Agent API's base path.
pub(crate) fn router() -> Router<Shared> {
    Router::new()
        .route("/token", get(token))
        .route("/stacks/register", post(register).layer(from_fn(limits::register)))
        .route("/stacks/{key}/deregister", post(deregister).layer(from_fn(limits::deregister)))
        .route("/stacks/{key}/scheduled-jobs", get(jobs::list).layer(from_fn(limits::list)))
        .route(
            "/stacks/{key}/scheduled-jobs/batch-reserve",
            put(jobs::reserve).layer(from_fn(limits::reserve)),
        )
        .route("/stacks/{key}/jobs/get-states", post(jobs::states).layer(from_fn(limits::states)))
        .route("/stacks/{key}/jobs/{job}", get(jobs::show).layer(from_fn(limits::show)))
        .route("/stacks/{key}/jobs/{job}/finish", post(jobs::finish).layer(from_fn(limits::finish)))
        .route("/stacks/{key}/notifications", post(notifications::notify).layer(from_fn(limits::notify)))
}

/// Whom the registration token belongs to.
async fn token(_: Registration, State(app): State<Shared>) -> ApiResult<Json<TokenIdentity>> {
    let slug = app.config.organization.clone();
    let (id, organization) = app
        .store
        .transact(move |transaction| {
            Ok((facts::token_id(transaction)?, facts::organization(transaction, &slug, "")?))
        })
        .await?;
    Ok(Json(TokenIdentity {
        uuid: id.to_string(),
        description: Some("local".to_owned()),
        token_type: Some("cluster".to_owned()),
        organization_slug: organization.slug,
        organization_uuid: Some(organization.id.to_string()),
        cluster_uuid: Some(organization.cluster_id.to_string()),
        cluster_name: Some(organization.cluster_name),
    }))
}

async fn register(
    _: Registration,
    State(app): State<Shared>,
    Body(request): Body<RegisterStack>,
) -> ApiResult<(StatusCode, Json<Stack>)> {
    check(&request)?;
    let now = Timestamp::now();
    let slug = app.config.organization.clone();
    let create = app.creates_queues();
    let (known, stack, organization) = app
        .store
        .transact(move |transaction| {
            let queue = queue(transaction, &request.queue_key, create)?;
            let known = stacks::get(transaction, &request.key)?;
            let stack = StackRow {
                id: known.as_ref().map_or_else(Uuid::now_v7, |stack| stack.id),
                key: request.key,
                kind: request.kind,
                queue: queue.key,
                metadata: request.metadata,
                state: "connected".to_owned(),
            };
            stacks::save(transaction, &stack, now)?;
            Ok((known.is_some(), stack, facts::organization(transaction, &slug, "")?))
        })
        .await?;
    tracing::info!(stack = stack.key, queue = stack.queue, kind = stack.kind, "stack registered");
    let status = if known { StatusCode::OK } else { StatusCode::CREATED };
    Ok((
        status,
        Json(Stack {
            id: stack.id.to_string(),
            organization_uuid: Some(organization.id.to_string()),
            cluster_queue_key: stack.queue,
            key: stack.key,
            kind: stack.kind,
            metadata: stack.metadata,
            last_connected_on: Some(now),
            state: Some(stack.state),
        }),
    ))
}

fn check(request: &RegisterStack) -> ApiResult<()> {
    let refuse = |text: &str| Err(ApiError::unprocessable(text));
    let word = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    if request.key.is_empty() || request.key.len() > 80 || !request.key.chars().all(word) {
        return refuse("key must be 1 to 80 letters, digits, _ or -");
    }
    if !["kubernetes", "elastic", "custom"].contains(&request.kind.as_str()) {
        return refuse("type must be kubernetes, elastic or custom");
    }
    let long = |(key, value): (&String, &String)| key.chars().count() > 64 || value.chars().count() > 256;
    if request.metadata.len() > 100 || request.metadata.iter().any(long) {
        return refuse("metadata may have 100 keys of 64 characters with values of 256 characters");
    }
    Ok(())
}

async fn deregister(
    _: Registration,
    State(app): State<Shared>,
    Path(key): Path<String>,
) -> ApiResult<StatusCode> {
    let name = key.clone();
    app.store
        .transact(move |transaction| {
            let mut stack = connected(transaction, &name)?;
            "disconnected".clone_into(&mut stack.state);
            stacks::save(transaction, &stack, Timestamp::now())
        })
        .await?;
    tracing::info!(stack = key, "stack deregistered");
    Ok(StatusCode::NO_CONTENT)
}

/// The stack behind a call. One that is unknown or has left must register first.
fn connected(transaction: &Transaction<'_>, key: &str) -> Result<StackRow, Problem> {
    stacks::get(transaction, key)?
        .filter(|stack| stack.state == "connected")
        .ok_or_else(|| Problem::NotFound(format!("no stack {key}; it must register first")))
}

/// The queue with this key or alias.
fn queue(transaction: &Transaction<'_>, key: &str, create: bool) -> Result<QueueRow, Problem> {
    let key = if DEFAULT_QUEUE_KEYS.contains(&key) { DEFAULT_QUEUE } else { key };
    if create && !key.is_empty() {
        pipelines::create_queue(transaction, key)?;
    }
    pipelines::queue(transaction, key)?.ok_or_else(|| Problem::not_found("queue", key))
}
