//! Request parts, with errors in the server's own form.

use axum::RequestExt;
use axum::body::Bytes;
use axum::extract::{FromRequest, FromRequestParts, Query, Request};
use axum::http::header::{CONTENT_TYPE, HOST};
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode};
use serde::de::{DeserializeOwned, IgnoredAny};
use uuid::Uuid;

use super::Shared;
use super::error::{ApiError, ApiResult};

/// A JSON body. An empty body reads as `{}`.
pub(crate) struct Body<T>(pub(crate) T);

impl<T, S> FromRequest<S> for Body<T>
where
    T: DeserializeOwned,
    S: Send + Sync,
{
    type Rejection = ApiError;

    async fn from_request(request: Request, state: &S) -> ApiResult<Self> {
        let headers = request.headers().clone();
        let bytes = raw_body(request, state).await?;
        if bytes.is_empty() {
            return object(b"{}").map(Self);
        }
        require_json(&headers)?;
        object(&bytes).map(Self)
    }
}

/// Reads a JSON object. What is not JSON is a bad request; JSON of another shape than wanted cannot be processed.
fn object<T: DeserializeOwned>(bytes: &[u8]) -> ApiResult<T> {
    // A list would be taken for the fields in their order.
    let is_object = bytes.trim_ascii_start().starts_with(b"{");
    match serde_json::from_slice(bytes) {
        Ok(value) if is_object => Ok(value),
        Ok(_) => Err(ApiError::unprocessable("the body must be a JSON object")),
        Err(error) => {
            let is_json = serde_json::from_slice::<IgnoredAny>(bytes).is_ok();
            let status = if is_json { StatusCode::UNPROCESSABLE_ENTITY } else { StatusCode::BAD_REQUEST };
            Err(ApiError::new(status, format!("the body cannot be read: {error}")))
        }
    }
}

fn require_json(headers: &HeaderMap) -> ApiResult<()> {
    let kind = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    if kind.starts_with("application/json") {
        return Ok(());
    }
    Err(ApiError::new(
        StatusCode::UNSUPPORTED_MEDIA_TYPE,
        format!("the body must be sent as application/json, not {kind:?}"),
    ))
}

/// A body as it came.
pub(crate) struct RawBody(pub(crate) Bytes);

impl<S: Send + Sync> FromRequest<S> for RawBody {
    type Rejection = ApiError;

    async fn from_request(request: Request, state: &S) -> ApiResult<Self> {
        raw_body(request, state).await.map(Self)
    }
}

async fn raw_body<S: Send + Sync>(request: Request, state: &S) -> ApiResult<Bytes> {
    // Applies the router's limit to the body.
    let request = request.with_limited_body();
    Bytes::from_request(request, state)
        .await
        .map_err(|rejection| ApiError::new(rejection.status(), rejection.body_text()))
}

/// The parameters of the path, decoded: clients encode even dots.
pub(crate) struct Path<T>(pub(crate) T);

impl<T, S> FromRequestParts<S> for Path<T>
where
    T: DeserializeOwned + Send,
    S: Send + Sync,
{
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> ApiResult<Self> {
        axum::extract::Path::from_request_parts(parts, state)
            .await
            .map(|axum::extract::Path(parameters)| Self(parameters))
            .map_err(|rejection| ApiError::new(rejection.status(), rejection.body_text()))
    }
}

/// The query string.
pub(crate) struct Params<T>(pub(crate) T);

impl<T, S> FromRequestParts<S> for Params<T>
where
    T: DeserializeOwned,
    S: Send + Sync,
{
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> ApiResult<Self> {
        Query::try_from_uri(&parts.uri)
            .map(|Query(params)| Self(params))
            .map_err(|error| ApiError::bad_request(format!("the query cannot be read: {error}")))
    }
}

/// Where the client reaches this server, without a trailing slash.
pub(crate) struct BaseUrl(pub(crate) String);

impl FromRequestParts<Shared> for BaseUrl {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, app: &Shared) -> ApiResult<Self> {
        if let Some(url) = &app.config.external_url {
            return Ok(Self(url.trim_end_matches('/').to_owned()));
        }
        let host = parts
            .headers
            .get(HOST)
            .and_then(|value| value.to_str().ok())
            .ok_or_else(|| ApiError::bad_request("the request has no Host header"))?;
        Ok(Self(format!("http://{host}")))
    }
}

/// An id from a path. What is no UUID names nothing.
pub(crate) fn id(what: &str, text: &str) -> ApiResult<Uuid> {
    Uuid::parse_str(text).map_err(|_| ApiError::not_found(format!("no {what} {text}")))
}
