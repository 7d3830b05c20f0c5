//! The HTTP side: extracting, authorising, answering. Decisions are made below, in `build` and `pipeline`.

pub(crate) mod agent;
mod auth;
pub(crate) mod error;
mod extract;
pub(crate) mod faults;
pub(crate) mod files;
mod git;
mod graphql;
mod host;
mod oidc;
mod page;
mod rest;
mod stacks;
mod trace;
mod transcript;

use std::sync::{Arc, Mutex};

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::middleware::from_fn_with_state;
use jiff::{SignedDuration, Timestamp};
use tower_http::trace::{DefaultOnResponse, TraceLayer};
use tracing::Level;

use crate::build::Policy;
use crate::config::{Config, Tokens};
use crate::rate_limit::Limiter;
use crate::store::Store;
use error::ApiError;
use files::Files;
use oidc::Issuer;

/// The largest request body: pipelines and log chunks are far smaller.
const MAX_BODY: usize = 16 * 1024 * 1024;

/// What every handler works with.
pub(crate) struct App {
    pub(crate) store: Store,
    pub(crate) config: Config,
    pub(crate) tokens: Tokens,
    pub(crate) policy: Policy,
    /// The bytes of artifacts.
    pub(crate) files: Files,
    /// How often stacks have called lately.
    pub(crate) stack_limits: Mutex<Limiter<stacks::limits::Caller>>,
    /// Signs the tokens of jobs.
    pub(crate) issuer: Issuer,
    /// What the page knows of this run of the server.
    pub(crate) run: page::Run,
}

/// The handle that handlers share.
pub(crate) type Shared = Arc<App>;

impl App {
    pub(crate) fn new(config: Config, tokens: Tokens, store: Store, files: Files) -> Shared {
        let span = |duration| SignedDuration::try_from(duration).unwrap_or(SignedDuration::MAX);
        let policy = Policy {
            start_within: span(config.start_within),
            stop_within: span(config.stop_within),
            expire_after: span(config.expire_after),
        };
        Arc::new(Self {
            store,
            config,
            tokens,
            policy,
            files,
            stack_limits: Mutex::default(),
            issuer: Issuer::default(),
            run: page::Run::begin(),
        })
    }

    /// When an agent heard of now counts as lost.
    pub(crate) fn lost_at(&self, now: Timestamp) -> Timestamp {
        now.checked_add(self.config.agent_lost_after).unwrap_or(Timestamp::MAX)
    }

    /// Whether queues come into being when they are named.
    pub(crate) fn creates_queues(&self) -> bool {
        self.config.queues.is_empty()
    }
}

/// Every route of the server.
pub(crate) fn router(app: Shared) -> Router {
    let traced = TraceLayer::new_for_http()
        .make_span_with(trace::span)
        .on_response(DefaultOnResponse::new().level(Level::DEBUG));
    let faults = app.config.faults.clone();
    let router = Router::new()
        .nest("/v3", agent::router().merge(stacks::router(&app)))
        .nest("/v2", rest::root(&app))
        .nest("/v2/organizations/{org}", rest::router(&app))
        .merge(git::router())
        .merge(graphql::router(&app))
        .merge(files::router())
        .merge(oidc::well_known())
        .merge(page::router(&app))
        .merge(faults::router(&app))
        .fallback(async || ApiError::not_found("there is nothing at this path"))
        .method_not_allowed_fallback(async || ApiError::method_not_allowed())
        .layer(DefaultBodyLimit::max(MAX_BODY))
        .layer(traced)
        .with_state(app);
    match faults {
        Some(faults) => router.layer(from_fn_with_state(faults, faults::strike)),
        None => router,
    }
}
