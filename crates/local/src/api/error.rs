//! Errors as HTTP answers: a status, and `{"message": …}`.

use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use bk_buildkite::agent::ErrorMessage;
use serde::Serialize;
use serde_json::json;

use crate::build::Refusal;
use crate::problem::Problem;

/// A refused or failed request.
#[derive(Debug)]
pub(crate) struct ApiError {
    status: StatusCode,
    message: String,
    fields: Vec<FieldError>,
}

/// A field that cannot be taken, and why.
#[derive(Debug, Serialize)]
struct FieldError {
    field: &'static str,
    code: &'static str,
    message: &'static str,
}

/// The fields of a request that cannot be taken. All are told at once.
#[derive(Debug, Default)]
pub(crate) struct Invalid(Vec<FieldError>);

impl Invalid {
    /// Notes the field unless it is good.
    pub(crate) fn check(&mut self, field: &'static str, good: bool, message: &'static str) {
        if !good {
            self.0.push(FieldError { field, code: "invalid", message });
        }
    }

    /// Refuses the request when any field was noted.
    pub(crate) fn end(self) -> ApiResult<()> {
        if self.0.is_empty() {
            return Ok(());
        }
        let told: Vec<String> =
            self.0.iter().map(|FieldError { field, message, .. }| format!("{field} {message}")).collect();
        let mut error = ApiError::unprocessable(format!("Validation failed: {}", told.join("; ")));
        error.fields = self.0;
        Err(error)
    }
}

/// What handlers return.
pub(crate) type ApiResult<T> = Result<T, ApiError>;

impl ApiError {
    pub(crate) fn new(status: StatusCode, message: impl Into<String>) -> Self {
        Self { status, message: message.into(), fields: Vec::new() }
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

    /// Why.
    pub(crate) fn message(&self) -> &str {
        &self.message
    }

    pub(crate) fn internal(message: impl Into<String>) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, message)
    }

    /// The status of the answer.
    #[cfg(test)]
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
            Problem::Refused(_) | Problem::Job(_) | Problem::Attribute(_) | Problem::Pipeline(_) => {
                StatusCode::UNPROCESSABLE_ENTITY
            }
            Problem::Stopping => StatusCode::SERVICE_UNAVAILABLE,
            Problem::DiskFull(_) => {
                tracing::error!(error = bk_ops::report::one_line(&problem), "request failed");
                StatusCode::INSUFFICIENT_STORAGE
            }
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
        if self.fields.is_empty() {
            return (self.status, Json(ErrorMessage { message: self.message })).into_response();
        }
        let body = json!({ "message": self.message, "errors": self.fields });
        (self.status, Json(body)).into_response()
    }
}
