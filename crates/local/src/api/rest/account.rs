//! Who is calling, and where: the token, its user, the organisation.

use axum::Json;
use axum::extract::State;
use serde_json::{Value, json};

use super::super::Shared;
use super::super::error::ApiResult;
use super::super::extract::BaseUrl;
use super::paging::{Listed, Paging};
use super::render::{Links, graphql_id, stamp};
use crate::store::facts;

/// What the one API token may do: everything that there is.
const SCOPES: [&str; 12] = [
    "read_agents",
    "write_agents",
    "read_clusters",
    "write_clusters",
    "read_artifacts",
    "write_artifacts",
    "read_builds",
    "write_builds",
    "read_build_logs",
    "read_organizations",
    "read_pipelines",
    "write_pipelines",
];

pub(super) async fn access_token(State(app): State<Shared>) -> ApiResult<Json<Value>> {
    let id = app.store.transact(|transaction| facts::id_of(transaction, "api-token")).await?;
    Ok(Json(json!({
        "uuid": id,
        "scopes": SCOPES,
        "description": "the API token of this server",
        "user": { "name": "local", "email": "local@localhost" },
    })))
}

pub(super) async fn user(State(app): State<Shared>) -> ApiResult<Json<Value>> {
    let id = app.store.transact(|transaction| facts::id_of(transaction, "user")).await?;
    Ok(Json(json!({
        "id": id,
        "graphql_id": graphql_id("User", id),
        "name": "local",
        "email": "local@localhost",
        "avatar_url": Value::Null,
    })))
}

/// What the hosted service says about its own addresses; here it has none of its own.
pub(super) async fn meta() -> Json<Value> {
    Json(json!({ "webhook_ips": [] }))
}

pub(super) async fn organizations(state: State<Shared>, base: BaseUrl, paging: Paging) -> ApiResult<Listed> {
    let Json(one) = organization(state, base).await?;
    Ok(paging.cut(vec![one]))
}

pub(super) async fn organization(State(app): State<Shared>, base: BaseUrl) -> ApiResult<Json<Value>> {
    let links = Links::new(&app, &base);
    let id = app.store.transact(|transaction| facts::id_of(transaction, "organization")).await?;
    let slug = &app.config.organization;
    Ok(Json(json!({
        "id": id,
        "graphql_id": graphql_id("Organization", id),
        "url": links.api(""),
        "web_url": links.page(""),
        "name": slug,
        "slug": slug,
        "pipelines_url": links.api("pipelines"),
        "agents_url": links.api("agents"),
        "emojis_url": links.api("emojis"),
        "created_at": stamp(facts::born(id)),
    })))
}
