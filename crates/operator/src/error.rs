//! What can go wrong while the operator works.

use std::time::Duration;

use bk_plan::verdicts::{self, Blocker};

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
        kind: String,
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

    /// The service's own words, if it will never accept what it was asked for. A quota may have room later,
    /// and missing permissions of the operator are not the fault of what it was asked to make.
    pub fn refusal(&self) -> Option<String> {
        match self {
            Self::Kubernetes { source, .. } => match source.as_ref() {
                kube::Error::Api(status) if is_refusal(status.code, &status.message) => {
                    Some(status.message.clone())
                }
                _ => None,
            },
            // An answer that is not understood will not be understood the next time either.
            Self::Buildkite(error @ bk_buildkite::Error::Decode { .. }) => {
                Some(bk_ops::report::one_line(error))
            }
            Self::Buildkite(error) => (!error.is_retryable() && !self.is_fatal()).then(|| error.to_string()),
            Self::NotOurs { .. } | Self::Setup(_) => None,
        }
    }

    /// What it means for a job that the API server has answered its pod, or what that stands in, like this.
    pub fn of_creation(&self) -> Option<Blocker> {
        match self {
            Self::Kubernetes { source, .. } => match source.as_ref() {
                kube::Error::Api(status) => Some(verdicts::not_created(status.code, &status.message)),
                // There was no answer.
                error => Some(verdicts::not_created(0, &bk_ops::report::one_line(error))),
            },
            Self::NotOurs { .. } => Some(verdicts::not_created(409, &self.to_string())),
            Self::Buildkite(_) | Self::Setup(_) => None,
        }
    }

    /// How long the service asks us to wait.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Buildkite(error) => error.retry_after(),
            Self::Kubernetes { source, .. } => match source.as_ref() {
                kube::Error::Api(status) => {
                    let seconds = status.details.as_ref()?.retry_after_seconds;
                    (seconds > 0).then(|| Duration::from_secs(seconds.into()))
                }
                _ => None,
            },
            Self::NotOurs { .. } | Self::Setup(_) => None,
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

fn is_refusal(code: u16, message: &str) -> bool {
    match code {
        400 | 413 | 422 => true,
        403 => !message.contains("exceeded quota") && !message.contains("is forbidden: User"),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::is_refusal;

    #[test]
    fn quotas_and_missing_permissions_are_no_refusals() {
        assert!(is_refusal(422, "Pod is invalid: spec.containers[0].image: Required value"));
        assert!(is_refusal(403, "pods \"x\" is forbidden: violates PodSecurity \"restricted:latest\""));
        assert!(!is_refusal(403, "pods \"x\" is forbidden: exceeded quota: ci, requested: pods=1"));
        assert!(!is_refusal(403, "pods is forbidden: User \"u\" cannot create resource \"pods\""));
        assert!(!is_refusal(500, "etcdserver: request timed out"));
    }
}
