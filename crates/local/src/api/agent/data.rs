//! Build meta-data.

use axum::Json;
use axum::extract::State;
use bk_buildkite::agent::{MetaData, MetaDataBatch, MetaDataExists, MetaDataKey};
use serde_json::json;
use uuid::Uuid;

use super::super::Shared;
use super::super::auth::{BuildReader, JobAccess};
use super::super::error::{ApiError, ApiResult};
use super::super::extract::Body;
use crate::store::data;

/// The largest value that the hosted service takes.
const MAX_VALUE: usize = 100 * 1024;

fn check(item: &MetaData) -> ApiResult<()> {
    if item.key.is_empty() {
        return Err(ApiError::unprocessable("the meta-data key is empty"));
    }
    if item.value.len() > MAX_VALUE {
        let text = format!("the value of {:?} has more than {MAX_VALUE} bytes", item.key);
        return Err(ApiError::unprocessable(text));
    }
    Ok(())
}

pub(super) async fn set(
    access: JobAccess,
    state: State<Shared>,
    Body(item): Body<MetaData>,
) -> ApiResult<Json<serde_json::Value>> {
    set_batch(access, state, Body(MetaDataBatch { items: vec![item] })).await
}

pub(super) async fn set_batch(
    access: JobAccess,
    State(app): State<Shared>,
    Body(batch): Body<MetaDataBatch>,
) -> ApiResult<Json<serde_json::Value>> {
    batch.items.iter().try_for_each(check)?;
    app.store
        .transact(move |transaction| {
            batch
                .items
                .iter()
                .try_for_each(|item| data::set(transaction, access.build, &item.key, &item.value))
        })
        .await?;
    Ok(Json(json!({})))
}

pub(super) async fn get_for_job(
    access: JobAccess,
    State(app): State<Shared>,
    Body(key): Body<MetaDataKey>,
) -> ApiResult<Json<MetaData>> {
    get(&app, access.build, key).await
}

pub(super) async fn get_for_build(
    access: BuildReader,
    State(app): State<Shared>,
    Body(key): Body<MetaDataKey>,
) -> ApiResult<Json<MetaData>> {
    get(&app, access.build, key).await
}

async fn get(app: &Shared, build: Uuid, MetaDataKey { key }: MetaDataKey) -> ApiResult<Json<MetaData>> {
    match value(app, build, key.clone()).await? {
        Some(value) => Ok(Json(MetaData { key, value })),
        None => Err(ApiError::not_found(format!("no meta-data {key:?} in this build"))),
    }
}

pub(super) async fn exists_for_job(
    access: JobAccess,
    State(app): State<Shared>,
    Body(key): Body<MetaDataKey>,
) -> ApiResult<Json<MetaDataExists>> {
    exists(&app, access.build, key).await
}

pub(super) async fn exists_for_build(
    access: BuildReader,
    State(app): State<Shared>,
    Body(key): Body<MetaDataKey>,
) -> ApiResult<Json<MetaDataExists>> {
    exists(&app, access.build, key).await
}

async fn exists(app: &Shared, build: Uuid, key: MetaDataKey) -> ApiResult<Json<MetaDataExists>> {
    Ok(Json(MetaDataExists { exists: value(app, build, key.key).await?.is_some() }))
}

async fn value(app: &Shared, build: Uuid, key: String) -> ApiResult<Option<String>> {
    Ok(app.store.transact(move |transaction| data::get(transaction, build, &key)).await?)
}

pub(super) async fn keys_for_job(
    access: JobAccess,
    State(app): State<Shared>,
) -> ApiResult<Json<Vec<String>>> {
    keys(&app, access.build).await
}

pub(super) async fn keys_for_build(
    access: BuildReader,
    State(app): State<Shared>,
) -> ApiResult<Json<Vec<String>>> {
    keys(&app, access.build).await
}

async fn keys(app: &Shared, build: Uuid) -> ApiResult<Json<Vec<String>>> {
    Ok(Json(app.store.transact(move |transaction| data::keys(transaction, build)).await?))
}
