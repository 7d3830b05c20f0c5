//! What can go wrong while the operator works.

use std::time::Duration;

/// A failure that ends the process, or a round of work that is tried again.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A call to the Kubernetes API failed.
    #[error("cannot {attempt}")]
    Kubernetes {
        /// What was tried, on what.
        attempt: String,
        /// Why it failed.
        #[source]
        source: Box<kube::Error>,
    },
    /// A call to Buildkite failed.
    #[error(transparent)]
    Buildkite(#[from] bk_buildkite::Error),
    /// Another object has the name that ours should have.
    #[error("{kind} {name} exists, but does not belong to this BuildJob; delete it or rename the BuildJob")]
    NotOurs {
        /// The object's kind.
        kind: &'static str,
        /// The object's name.
        name: String,
    },
    /// The operator is not set up to work.
    #[error("{0}")]
    Setup(String),
}

impl Error {
    /// Wraps a failure of the Kubernetes API with what was tried.
    pub fn kubernetes(attempt: impl Into<String>) -> impl FnOnce(kube::Error) -> Self {
        let attempt = attempt.into();
        move |source| Self::Kubernetes { attempt, source: Box::new(source) }
    }

    /// The HTTP status of a refusal by the Kubernetes API.
    pub fn code(&self) -> Option<u16> {
        match self {
            Self::Kubernetes { source, .. } => match source.as_ref() {
                kube::Error::Api(status) => Some(status.code),
                _ => None,
            },
            _ => None,
        }
    }

    /// How long Buildkite asks us to wait.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Buildkite(error) => error.retry_after(),
            _ => None,
        }
    }

    /// Whether trying again without a change of configuration is pointless.
    pub fn is_fatal(&self) -> bool {
        match self {
            Self::Setup(_) => true,
            // A forgotten stack or a full batch is not fatal; a token that is not accepted is.
            Self::Buildkite(error) => {
                error.status().is_some_and(|status| matches!(status.as_u16(), 401 | 403))
            }
            Self::Kubernetes { .. } | Self::NotOurs { .. } => false,
        }
    }
}
