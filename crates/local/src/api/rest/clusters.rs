//! The one cluster and its queues.

use std::collections::HashMap;

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::routing::{get, post};
use axum::{Json, Router};
use rusqlite::Transaction;
use serde::Deserialize;
use serde_json::{Value, json};
use uuid::Uuid;

use super::super::Shared;
use super::super::error::{ApiResult, Invalid};
use super::super::extract::{self, BaseUrl, Body};
use super::paging::{Listed, Paging};
use super::render::{Links, graphql_id, stamp};
use crate::build::job::DEFAULT_QUEUE;
use crate::problem::Problem;
use crate::store::facts;
use crate::store::pipelines::{self as queues, QueueRow};

/// The routes of clusters and queues, below an organisation.
pub(super) fn router() -> Router<Shared> {
    Router::new()
        .route("/clusters", get(list))
        .route("/clusters/{cluster}", get(show))
        .route("/clusters/{cluster}/queues", get(list_queues).post(create_queue))
        .route("/clusters/{cluster}/queues/{queue}", get(show_queue).delete(delete_queue))
        .route("/clusters/{cluster}/queues/{queue}/pause_dispatch", post(pause))
        .route("/clusters/{cluster}/queues/{queue}/resume_dispatch", post(resume))
}

type ClusterPath = Path<HashMap<String, String>>;

/// The cluster's id, when the path names it.
fn cluster(transaction: &Transaction<'_>, path: &HashMap<String, String>) -> Result<Uuid, Problem> {
    let id = facts::id_of(transaction, "cluster")?;
    match super::segment(path, "cluster") {
        given if given == id.to_string() => Ok(id),
        other => Err(Problem::not_found("cluster", other)),
    }
}

fn render_cluster(id: Uuid, default_queue: Option<&QueueRow>, links: &Links) -> Value {
    let url = links.api(&format!("clusters/{id}"));
    json!({
        "id": id,
        "graphql_id": graphql_id("Cluster", id),
        "default_queue_id": default_queue.map(|queue| queue.id),
        "name": "local",
        "description": Value::Null,
        "emoji": Value::Null,
        "color": Value::Null,
        "url": url,
        "web_url": links.page("clusters"),
        "queues_url": format!("{url}/queues"),
        "default_queue_url": default_queue.map(|queue| format!("{url}/queues/{}", queue.id)),
        "created_at": stamp(facts::born(id)),
        "created_by": Value::Null,
    })
}

fn render_queue(cluster: Uuid, queue: &QueueRow, links: &Links) -> Value {
    let cluster_url = links.api(&format!("clusters/{cluster}"));
    json!({
        "id": queue.id,
        "graphql_id": graphql_id("ClusterQueue", queue.id),
        "key": queue.key,
        "description": Value::Null,
        "url": format!("{cluster_url}/queues/{}", queue.id),
        "web_url": links.page("clusters"),
        "cluster_url": cluster_url,
        "dispatch_paused": queue.paused,
        "dispatch_paused_by": Value::Null,
        "dispatch_paused_at": Value::Null,
        "dispatch_paused_note": Value::Null,
        "created_at": stamp(facts::born(queue.id)),
        "created_by": Value::Null,
    })
}

async fn list(State(app): State<Shared>, base: BaseUrl, paging: Paging) -> ApiResult<Listed> {
    let links = Links::new(&app, &base);
    let cluster = app
        .store
        .transact(move |transaction| {
            let queue = queues::queue(transaction, DEFAULT_QUEUE)?;
            Ok(render_cluster(facts::id_of(transaction, "cluster")?, queue.as_ref(), &links))
        })
        .await?;
    Ok(paging.cut(vec![cluster]))
}

async fn show(State(app): State<Shared>, base: BaseUrl, Path(path): ClusterPath) -> ApiResult<Json<Value>> {
    let links = Links::new(&app, &base);
    let shown = app
        .store
        .transact(move |transaction| {
            let queue = queues::queue(transaction, DEFAULT_QUEUE)?;
            Ok(render_cluster(cluster(transaction, &path)?, queue.as_ref(), &links))
        })
        .await?;
    Ok(Json(shown))
}

async fn list_queues(
    State(app): State<Shared>,
    base: BaseUrl,
    Path(path): ClusterPath,
    paging: Paging,
) -> ApiResult<Listed> {
    let links = Links::new(&app, &base);
    let all = app
        .store
        .transact(move |transaction| {
            let cluster = cluster(transaction, &path)?;
            let all = queues::queues(transaction)?;
            Ok(all.iter().map(|queue| render_queue(cluster, queue, &links)).collect::<Vec<_>>())
        })
        .await?;
    Ok(paging.cut(all))
}

#[derive(Deserialize)]
struct NewQueue {
    #[serde(default)]
    key: String,
}

async fn create_queue(
    State(app): State<Shared>,
    base: BaseUrl,
    Path(path): ClusterPath,
    Body(NewQueue { key }): Body<NewQueue>,
) -> ApiResult<(StatusCode, Json<Value>)> {
    let plain = !key.is_empty() && key.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_'));
    let mut invalid = Invalid::default();
    invalid.check("key", plain, "must be made of letters, digits, hyphens and underscores");
    invalid.end()?;
    let links = Links::new(&app, &base);
    let queue = app
        .store
        .transact(move |transaction| {
            let cluster = cluster(transaction, &path)?;
            if queues::queue(transaction, &key)?.is_some() {
                return Err(Problem::Refused(format!("the queue {key} exists already")));
            }
            queues::create_queue(transaction, &key)?;
            let made = queues::queue(transaction, &key)?.ok_or_else(|| Problem::not_found("queue", &key))?;
            Ok(render_queue(cluster, &made, &links))
        })
        .await?;
    Ok((StatusCode::CREATED, Json(queue)))
}

/// Does something with the queue that a path names; answers with it as it stands then, if it still does.
async fn with_queue<F>(
    app: &Shared,
    base: &BaseUrl,
    path: HashMap<String, String>,
    act: F,
) -> ApiResult<Value>
where
    F: FnOnce(&Transaction<'_>, &QueueRow) -> Result<(), Problem> + Send + 'static,
{
    let id = extract::id("queue", super::segment(&path, "queue"))?;
    let links = Links::new(app, base);
    let shown = app
        .store
        .transact(move |transaction| {
            let cluster = cluster(transaction, &path)?;
            let all = queues::queues(transaction)?;
            let found = all.into_iter().find(|queue| queue.id == id);
            let found = found.ok_or_else(|| Problem::not_found("queue", id))?;
            act(transaction, &found)?;
            let now = queues::queue(transaction, &found.key)?.unwrap_or(found);
            Ok(render_queue(cluster, &now, &links))
        })
        .await?;
    Ok(shown)
}

async fn show_queue(
    State(app): State<Shared>,
    base: BaseUrl,
    Path(path): ClusterPath,
) -> ApiResult<Json<Value>> {
    with_queue(&app, &base, path, |_, _| Ok(())).await.map(Json)
}

async fn delete_queue(
    State(app): State<Shared>,
    base: BaseUrl,
    Path(path): ClusterPath,
) -> ApiResult<StatusCode> {
    with_queue(&app, &base, path, |transaction, queue| {
        if queue.key == DEFAULT_QUEUE {
            return Err(Problem::Refused("the default queue cannot be deleted".to_owned()));
        }
        queues::delete_queue(transaction, queue)
    })
    .await?;
    Ok(StatusCode::NO_CONTENT)
}

async fn pause(State(app): State<Shared>, base: BaseUrl, Path(path): ClusterPath) -> ApiResult<Json<Value>> {
    let act =
        |transaction: &Transaction<'_>, queue: &QueueRow| queues::pause_queue(transaction, &queue.key, true);
    with_queue(&app, &base, path, act).await.map(Json)
}

async fn resume(State(app): State<Shared>, base: BaseUrl, Path(path): ClusterPath) -> ApiResult<Json<Value>> {
    let act =
        |transaction: &Transaction<'_>, queue: &QueueRow| queues::pause_queue(transaction, &queue.key, false);
    with_queue(&app, &base, path, act).await.map(Json)
}
