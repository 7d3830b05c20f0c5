//! The rate-limit headers of the Stacks API. The limits are announced, not enforced.

use axum::extract::Request;
use axum::http::HeaderValue;
use axum::middleware::Next;
use axum::response::Response;

/// Adds what the hosted service says about an endpoint: calls per second, and how many are left.
async fn announce(scope: &'static str, limit: u32, request: Request, next: Next) -> Response {
    let mut response = next.run(request).await;
    let headers = response.headers_mut();
    headers.insert("RateLimit-Scope", HeaderValue::from_static(scope));
    headers.insert("RateLimit-Limit", HeaderValue::from(limit));
    headers.insert("RateLimit-Remaining", HeaderValue::from(limit - 1));
    headers.insert("RateLimit-Reset", HeaderValue::from(1));
    response
}

macro_rules! scopes {
    ($($name:ident: $scope:literal, $limit:literal;)+) => {
        $(pub(super) async fn $name(request: Request, next: Next) -> Response {
            announce($scope, $limit, request, next).await
        })+
    };
}

scopes! {
    register: "default", 10;
    deregister: "default", 10;
    list: "list-scheduled-jobs", 10;
    reserve: "batch-reserve", 10;
    show: "show-job", 1000;
    states: "batch-load-job-states", 20;
    finish: "finish-job", 100;
    notify: "stack-notification", 200;
}
