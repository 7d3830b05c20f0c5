//! The Stacks API.

mod jobs;
pub(crate) mod limits;
mod notifications;

use axum::extract::State;
use axum::http::StatusCode;
use axum::middleware::from_fn_with_state;
use axum::routing::{get, post, put};
use axum::{Json, Router};
use bk_buildkite::stacks::{DEFAULT_QUEUE_KEYS, RegisterStack, Stack, TokenIdentity};
use jiff::Timestamp;
use rusqlite::Transaction;
use uuid::Uuid;

use super::Shared;
use super::auth::Registration;
use super::error::{ApiError, ApiResult};
use super::extract::{Body, Path};
use crate::build::job::DEFAULT_QUEUE;
use crate::problem::Problem;
use crate::store::facts;
use crate::store::pipelines::{self, QueueRow};
use crate::store::stacks::{self, StackRow};

/// The routes of the Stacks API, relative to the Agent API's base path.
pub(crate) fn router(app: &Shared) -> Router<Shared> {
    macro_rules! limited {
        ($method:ident($handler:path), $limit:ident) => {
            $method($handler).layer(from_fn_with_state(app.clone(), limits::$limit))
        };
    }
    Router::new()
        .route("/token", get(token))
        .route("/stacks/register", limited!(post(register), register))
        .route("/stacks/{key}/deregister", limited!(post(deregister), deregister))
        .route("/stacks/{key}/scheduled-jobs", limited!(get(jobs::list), list))
        .route("/stacks/{key}/scheduled-jobs/batch-reserve", limited!(put(jobs::reserve), reserve))
        .route("/stacks/{key}/jobs/get-states", limited!(post(jobs::states), states))
        .route("/stacks/{key}/jobs/{job}", limited!(get(jobs::show), show))
        .route("/stacks/{key}/jobs/{job}/finish", limited!(post(jobs::finish), finish))
        .route("/stacks/{key}/notifications", limited!(post(notifications::notify), notify))
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
    let clustered = !app.config.unclustered;
    Ok(Json(TokenIdentity {
        uuid: id.to_string(),
        description: Some("local".to_owned()),
        token_type: Some(if clustered { "cluster" } else { "organization" }.to_owned()),
        organization_slug: organization.slug,
        organization_uuid: Some(organization.id.to_string()),
        cluster_uuid: clustered.then(|| organization.cluster_id.to_string()),
        cluster_name: clustered.then_some(organization.cluster_name),
        organization_queue_uuid: None,
        organization_queue_key: None,
    }))
}

async fn register(
    _: Registration,
    State(app): State<Shared>,
    Body(request): Body<RegisterStack>,
) -> ApiResult<(StatusCode, Json<Stack>)> {
    if app.config.unclustered {
        return Err(ApiError::unprocessable(
            "the token belongs to no cluster, and only clusters have stacks",
        ));
    }
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
                registered: true,
                last_seen: now,
            };
            stacks::save(transaction, &stack)?;
            Ok((known.is_some(), stack, facts::organization(transaction, &slug, "")?))
        })
        .await?;
    tracing::info!(stack = stack.key, queue = stack.queue, kind = stack.kind, "stack registered");
    let state = stack.state(now).to_owned();
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
            state: Some(state),
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
    if request.queue_key.is_empty() {
        return refuse("queue_key must not be empty");
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
            stack.registered = false;
            stacks::save(transaction, &stack)
        })
        .await?;
    tracing::info!(stack = key, "stack deregistered");
    Ok(StatusCode::NO_CONTENT)
}

/// The stack behind a call. One that is unknown or has left must register first.
fn connected(transaction: &Transaction<'_>, key: &str) -> Result<StackRow, Problem> {
    stacks::get(transaction, key)?
        .filter(|stack| stack.registered)
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
