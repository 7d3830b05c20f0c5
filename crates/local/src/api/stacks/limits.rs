//! The rate limits of the Stacks API: so many calls per second, stack and endpoint.

use std::collections::HashMap;
use std::sync::PoisonError;
use std::time::Instant;

use axum::Json;
use axum::extract::{Request, State};
use axum::http::header::RETRY_AFTER;
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use serde_json::json;

use super::super::Shared;
use super::super::auth::Registration;
use super::super::error::ApiResult;
use super::super::extract::Path;
use crate::rate_limit::Standing;

/// An endpoint's name in headers, and its calls per second.
#[derive(Clone, Copy)]
struct Scope {
    name: &'static str,
    limit: u32,
}

/// Whose calls are counted together.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(crate) struct Caller {
    endpoint: &'static str,
    stack: String,
}

async fn enforce(
    endpoint: &'static str,
    scope: Scope,
    app: &Shared,
    stack: ApiResult<String>,
    request: Request,
    next: Next,
) -> Response {
    let stack = match stack {
        Ok(stack) => stack,
        // Strangers do not use up what belongs to a stack.
        Err(error) => {
            let mut response = error.into_response();
            announce(response.headers_mut(), scope, Standing::fresh(scope.limit));
            return response;
        }
    };
    let standing = {
        let mut limiter = app.stack_limits.lock().unwrap_or_else(PoisonError::into_inner);
        limiter.count(Caller { endpoint, stack }, scope.limit, Instant::now())
    };
    let mut response = if standing.is_allowed() || !app.config.rate_limits {
        next.run(request).await
    } else {
        refusal(scope, standing)
    };
    announce(response.headers_mut(), scope, standing);
    response
}

fn announce(headers: &mut HeaderMap, scope: Scope, standing: Standing) {
    headers.insert("RateLimit-Scope", HeaderValue::from_static(scope.name));
    headers.insert("RateLimit-Limit", HeaderValue::from(standing.limit));
    headers.insert("RateLimit-Remaining", HeaderValue::from(standing.remaining()));
    headers.insert("RateLimit-Reset", HeaderValue::from(standing.reset));
}

fn refusal(scope: Scope, standing: Standing) -> Response {
    let Standing { limit, current, reset } = standing;
    let message = format!("{} may be called {limit} times per second; wait {reset} s", scope.name);
    let body = json!({ "message": message, "scope": scope.name, "limit": limit, "current": current, "reset": reset });
    let mut response = (StatusCode::TOO_MANY_REQUESTS, Json(body)).into_response();
    response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(reset));
    response
}

macro_rules! endpoints {
    ($($endpoint:ident: $name:literal, $limit:literal;)+) => {
        $(pub(super) async fn $endpoint(
            State(app): State<Shared>,
            caller: ApiResult<Registration>,
            path: ApiResult<Path<HashMap<String, String>>>,
            request: Request,
            next: Next,
        ) -> Response {
            let scope = Scope { name: $name, limit: $limit };
            let stack = caller.and(path).map(|Path(mut path)| path.remove("key").unwrap_or_default());
            enforce(stringify!($endpoint), scope, &app, stack, request, next).await
        })+
    };
}

endpoints! {
    register: "default", 10;
    deregister: "default", 10;
    list: "list-scheduled-jobs", 10;
    reserve: "batch-reserve", 10;
    show: "show-job", 1000;
    states: "batch-load-job-states", 20;
    finish: "finish-job", 100;
    notify: "stack-notification", 200;
}
