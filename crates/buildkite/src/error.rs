//! What can go wrong when talking to Buildkite.

use std::time::Duration;

use reqwest::{StatusCode, header::HeaderValue};

/// A call to Buildkite that did not succeed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The service could not be reached, or the connection broke.
    #[error("cannot {attempt} at {endpoint}")]
    Transport {
        /// What was tried.
        attempt: &'static str,
        /// The API's base address.
        endpoint: String,
        /// Why it failed.
        #[source]
        source: reqwest::Error,
    },
    /// The service answered with an error.
    #[error("cannot {attempt}: Buildkite answered {status}: {message}")]
    Status {
        /// What was tried.
        attempt: &'static str,
        /// The HTTP status.
        status: StatusCode,
        /// The service's own words.
        message: String,
        /// How long it asks us to wait.
        retry_after: Option<Duration>,
    },
    /// The service's answer is not what the API promises.
    #[error("cannot {attempt}: Buildkite's answer is not understood")]
    Decode {
        /// What was tried.
        attempt: &'static str,
        /// What is wrong with it.
        #[source]
        source: serde_json::Error,
    },
    /// A query was understood, and not answered.
    #[error("cannot {attempt}: Buildkite answered: {message}")]
    Query {
        /// What was tried.
        attempt: &'static str,
        /// The service's own words.
        message: String,
    },
    /// The endpoint or the token cannot be used at all.
    #[error("{0}")]
    Configuration(String),
}

impl Error {
    /// Whether the same call may succeed later.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Transport { .. } | Self::Decode { .. } | Self::Query { .. } => true,
            Self::Status { status, .. } => {
                *status == StatusCode::TOO_MANY_REQUESTS || status.is_server_error()
            }
            Self::Configuration(_) => false,
        }
    }

    /// The HTTP status, when the service answered.
    pub fn status(&self) -> Option<StatusCode> {
        match self {
            Self::Status { status, .. } => Some(*status),
            _ => None,
        }
    }

    /// How long the service asks us to wait.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Status { retry_after, .. } => *retry_after,
            _ => None,
        }
    }

    /// Whether the job in question is settled or unknown, so that there is nothing left to do for it.
    pub fn is_settled(&self) -> bool {
        matches!(self.status(), Some(StatusCode::NOT_FOUND | StatusCode::UNPROCESSABLE_ENTITY))
    }

    /// The same, without the token of an `Authorization` header in what was answered.
    pub(crate) fn without(mut self, header: &HeaderValue) -> Self {
        let token = header.to_str().ok().and_then(|header| header.split_once(' ')).map(|(_, token)| token);
        if let (Self::Status { message, .. } | Self::Query { message, .. }, Some(token)) = (&mut self, token)
        {
            *message = message.replace(token, "[token]");
        }
        self
    }

    /// Whether the service does not accept the token, or not for this.
    pub fn is_refusal(&self) -> bool {
        matches!(self.status(), Some(StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN))
    }
}
