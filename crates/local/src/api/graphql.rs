//! A part of the GraphQL API: what test suites and job spawners ask for.
//!
//! Types, fields and ids are named as the hosted service names them. Queries are bounded in depth and
//! complexity. Errors have GraphQL's own shape, except for a token that is refused.

#![allow(clippy::unused_async, reason = "the resolvers of a schema are asynchronous, all of them")]

mod agent;
mod build;
mod events;
mod ids;
mod job;
mod mutation;
mod page;
mod pipeline;
mod query;
mod states;

use async_graphql::{EmptySubscription, Schema};
use axum::extract::State;
use axum::routing::post;
use axum::{Json, Router};

use super::Shared;
use super::auth::ApiToken;
use super::extract::{BaseUrl, Body};
use super::rest::render::Links;
use mutation::Mutation;
use query::Query;

/// How deep a query may go. Introspection needs 13.
const MAX_DEPTH: usize = 20;
/// How many fields a query may ask for.
const MAX_COMPLEXITY: usize = 2000;

type Api = Schema<Query, Mutation, EmptySubscription>;

/// The routes: where the hosted service has it, and where others look for one.
pub(crate) fn router(app: &Shared) -> Router<Shared> {
    let schema = Schema::build(Query, Mutation, EmptySubscription)
        .limit_depth(MAX_DEPTH)
        .limit_complexity(MAX_COMPLEXITY)
        .data(app.clone())
        .finish();
    let answer =
        move |_: ApiToken, state: State<Shared>, base: BaseUrl, body: Body<async_graphql::Request>| {
            execute(schema.clone(), state, base, body)
        };
    Router::new()
        .route("/v1", post(answer.clone()))
        .route("/v1/graphql", post(answer.clone()))
        .route("/graphql", post(answer))
}

async fn execute(
    schema: Api,
    State(app): State<Shared>,
    base: BaseUrl,
    Body(request): Body<async_graphql::Request>,
) -> Json<async_graphql::Response> {
    let links = Links::new(&app, &base);
    Json(schema.execute(request.data(links).data(base)).await)
}
