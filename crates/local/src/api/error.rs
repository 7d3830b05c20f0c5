//! Errors as HTTP answers: a status, and `{"message": …}`.

use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use bk_buildkite::agent::ErrorMessage;

use crate::build::Refusal;
use crate::problem::Problem;

/// A refused or failed request.
#[derive(Debug)]
pub(crate) struct ApiError {
    status: StatusCode,
    message: String,
}

/// What handlers return.
pub(crate) type ApiResult<T> = Result<T, ApiError>;

impl ApiError {
    pub(crate) fn new(status: StatusCode, message: impl Into<String>) -> Self {
        Self { status, message: message.into() }
    }

    pub(crate) fn bad_request(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, message)
    }

    pub(crate) fn unauthorized(message: impl Into<String>) -> Self {
        Self::new(StatusCode::UNAUTHORIZED, message)
    }

    pub(crate) fn forbidden(message: impl Into<String>) -> Self {
        Self::new(StatusCode::FORBIDDEN, message)
    }

    pub(crate) fn not_found(message: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, message)
    }

    pub(crate) fn method_not_allowed() -> Self {
        Self::new(StatusCode::METHOD_NOT_ALLOWED, "this path does not take this method")
    }

    pub(crate) fn unprocessable(message: impl Into<String>) -> Self {
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, message)
    }

    pub(crate) fn internal(message: impl Into<String>) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, message)
    }

    pub(crate) fn message(&self) -> &str {
        &self.message
    }

    pub(crate) fn status(&self) -> StatusCode {
        self.status
    }
}

impl From<Problem> for ApiError {
    fn from(problem: Problem) -> Self {
        let status = match &problem {
            Problem::NotFound(_) | Problem::Job(Refusal::Unknown(_)) => StatusCode::NOT_FOUND,
            Problem::Job(Refusal::Locked { .. }) => StatusCode::LOCKED,
            Problem::Job(Refusal::Promised { .. }) => StatusCode::CONFLICT,
            Problem::Refused(_) | Problem::Job(_) | Problem::Pipeline(_) => StatusCode::UNPROCESSABLE_ENTITY,
            Problem::Stopping => StatusCode::SERVICE_UNAVAILABLE,
            Problem::Database(_) | Problem::Corrupt(_) | Problem::Broken => {
                tracing::error!(error = bk_ops::report::one_line(&problem), "request failed");
                StatusCode::INTERNAL_SERVER_ERROR
            }
        };
        Self::new(status, problem.to_string())
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        (self.status, Json(ErrorMessage { message: self.message })).into_response()
    }
}
