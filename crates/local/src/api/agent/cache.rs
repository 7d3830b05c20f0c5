//! The cache registry. Agents keep the archives in a store of their own (`BUILDKITE_AGENT_CACHE_STORE_URL`:
//! `file://`, `s3://` or `nsc://`) and ask here which of them belongs to a key.
//!
//! There is one registry, `default`, which is the cluster's own (`~`). All pipelines share it.

use axum::extract::{FromRequestParts, State};
use axum::http::request::Parts;
use axum::routing::{get, post, put};
use axum::{Json, Router};
use jiff::{SignedDuration, Timestamp};
use serde::Deserialize;
use serde_json::{Value, json};
use uuid::Uuid;

use super::super::Shared;
use super::super::auth::{JobToken, path_parameter};
use super::super::error::{ApiError, ApiResult};
use super::super::extract::Body;
use crate::cache::{Address, CacheProblem, NewEntry};
use crate::store::cache::CacheEntry;
use crate::store::{cache, facts};

const NAME: &str = "default";
/// Agents upload and download by themselves.
const STORE: &str = "agent_managed";
const KEPT: SignedDuration = SignedDuration::from_hours(30 * 24);

/// The routes of the cache registry.
pub(super) fn router() -> Router<Shared> {
    Router::new()
        .route("/cache_registries/{registry}", get(show))
        .route("/cache_registries/{registry}/peek", post(peek))
        .route("/cache_registries/{registry}/store", put(store))
        .route("/cache_registries/{registry}/commit", put(commit))
        .route("/cache_registries/{registry}/retrieve", post(retrieve))
        .route("/cache_registries/{registry}/expire", post(expire))
}

/// A job that names the registry that there is.
struct Caller;

impl FromRequestParts<Shared> for Caller {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, app: &Shared) -> ApiResult<Self> {
        let _job = JobToken::from_request_parts(parts, app).await?;
        match path_parameter(parts, "registry").await?.as_str() {
            "~" | NAME => Ok(Self),
            // Agents know a registry that is missing by this very text.
            _ => Err(ApiError::not_found("Cache registry not found")),
        }
    }
}

fn refused(problem: &CacheProblem) -> ApiError {
    ApiError::unprocessable(problem.to_string())
}

async fn show(_: Caller, State(app): State<Shared>) -> ApiResult<Json<Value>> {
    let id = app.store.transact(facts::cache_registry_id).await?;
    Ok(Json(json!({ "uuid": id, "name": NAME, "store": STORE })))
}

/// The best entry for a key, and whether it is a fallback.
async fn find(app: &Shared, address: &Address) -> ApiResult<Option<(CacheEntry, bool)>> {
    address.check().map_err(|problem| refused(&problem))?;
    let paths = address.target_paths.clone();
    let entries =
        app.store.transact(move |transaction| cache::entries(transaction, &paths, Timestamp::now())).await?;
    Ok(address.best(entries, |entry| &entry.address))
}

/// Agents know a miss by this very text.
fn miss() -> ApiError {
    ApiError::not_found("Cache entry not found")
}

fn render(entry: &CacheEntry, fallback: bool) -> Value {
    json!({
        "target_paths": entry.address.target_paths,
        "cache_key": entry.address.cache_key,
        "blobs": entry.blobs,
        "store": STORE,
        "expires_at": entry.expires_at.to_string(),
        "fallback": fallback,
        "multipart": false,
        "download_instructions": [],
        "message": "",
    })
}

/// Whether there is an entry for exactly this key: then nothing needs to be uploaded.
async fn peek(_: Caller, State(app): State<Shared>, Body(address): Body<Address>) -> ApiResult<Json<Value>> {
    match find(&app, &address).await? {
        Some((entry, false)) => Ok(Json(render(&entry, false))),
        _ => Err(miss()),
    }
}

async fn retrieve(
    _: Caller,
    State(app): State<Shared>,
    Body(address): Body<Address>,
) -> ApiResult<Json<Value>> {
    let (entry, fallback) = find(&app, &address).await?.ok_or_else(miss)?;
    Ok(Json(render(&entry, fallback)))
}

async fn store(_: Caller, State(app): State<Shared>, Body(entry): Body<NewEntry>) -> ApiResult<Json<Value>> {
    entry.check().map_err(|problem| refused(&problem))?;
    let now = Timestamp::now();
    let expires_at = now.checked_add(KEPT).unwrap_or(Timestamp::MAX);
    let id =
        app.store.transact(move |transaction| cache::announce(transaction, &entry, now, expires_at)).await?;
    Ok(Json(json!({ "upload_id": id, "multipart": false, "upload_instructions": [], "message": "" })))
}

#[derive(Deserialize)]
struct Upload {
    upload_id: String,
}

async fn commit(
    _: Caller,
    State(app): State<Shared>,
    Body(Upload { upload_id }): Body<Upload>,
) -> ApiResult<Json<Value>> {
    let unknown = || ApiError::not_found(format!("no cache upload {upload_id:?}"));
    let id = Uuid::parse_str(&upload_id).map_err(|_| unknown())?;
    if app.store.transact(move |transaction| cache::commit(transaction, id)).await? {
        Ok(Json(json!({ "message": "" })))
    } else {
        Err(unknown())
    }
}

/// Forgets an entry whose archive is gone or damaged. One that is forgotten already is no error.
async fn expire(
    _: Caller,
    State(app): State<Shared>,
    Body(address): Body<Address>,
) -> ApiResult<Json<Value>> {
    if let Some((entry, false)) = find(&app, &address).await? {
        app.store.transact(move |transaction| cache::remove(transaction, &entry)).await?;
    }
    Ok(Json(json!({ "message": "" })))
}
