//! What can go wrong while the operator works.

use std::time::Duration;

use bk_api::Verdict;
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
    /// A BuildJob of another job has the name of the one that is to be made.
    #[error("BuildJob {0} exists, and is for another job; delete it, and retry this one")]
    NameTaken(String),
    /// The rules of the configuration refuse a job.
    #[error("{}", .0.message)]
    Refused(Box<Verdict>),
    /// A BuildJob that was there before is about to go.
    #[error("BuildJob {0} is being deleted")]
    Leaving(String),
    /// So much time went by since Buildkite was asked about a job that others may have seen it to its end.
    #[error("what Buildkite said about the job is {0:?} old")]
    Outdated(Duration),
    /// A BuildJob has changed, or is gone, since it was looked at.
    #[error("BuildJob {0} is not what it was: others have gone on with it")]
    Overtaken(String),
    /// Another replica may work by now.
    #[error("the Lease may be another replica's: nothing is told to Buildkite any more")]
    TooLate,
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
            // Whatever Buildkite or somebody on the way to it answers, a job's own fault it is not.
            Self::NameTaken(_) | Self::Refused(_) => Some(self.to_string()),
            Self::Buildkite(_)
            | Self::NotOurs { .. }
            | Self::Leaving(_)
            | Self::Outdated(_)
            | Self::Overtaken(_)
            | Self::TooLate
            | Self::Setup(_) => None,
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
            Self::Buildkite(_)
            | Self::NameTaken(_)
            | Self::Refused(_)
            | Self::Leaving(_)
            | Self::Outdated(_)
            | Self::Overtaken(_)
            | Self::TooLate
            | Self::Setup(_) => None,
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
            Self::NotOurs { .. }
            | Self::NameTaken(_)
            | Self::Refused(_)
            | Self::Leaving(_)
            | Self::Outdated(_)
            | Self::Overtaken(_)
            | Self::TooLate
            | Self::Setup(_) => None,
        }
    }

    /// Whether Buildkite does not know what it was asked about: a job, or the stack that asked.
    pub fn is_unknown(&self) -> bool {
        matches!(self, Self::Buildkite(error) if error.status().is_some_and(|status| status.as_u16() == 404))
    }

    /// Whether the same may succeed later, without anybody doing anything.
    pub fn is_temporary(&self) -> bool {
        match self {
            Self::Buildkite(error) => error.is_retryable() || self.is_unknown(),
            Self::Kubernetes { .. }
            | Self::Leaving(_)
            | Self::Outdated(_)
            | Self::Overtaken(_)
            | Self::TooLate => true,
            Self::NotOurs { .. } | Self::NameTaken(_) | Self::Refused(_) | Self::Setup(_) => false,
        }
    }

    /// Whether it lasts until somebody changes something, here or at Buildkite.
    pub fn needs_attention(&self) -> bool {
        match self {
            Self::Setup(_) => true,
            // A forgotten stack or a full batch passes; a token that is not accepted does not.
            Self::Buildkite(error) => {
                error.status().is_some_and(|status| matches!(status.as_u16(), 401 | 403))
            }
            Self::Kubernetes { .. }
            | Self::NotOurs { .. }
            | Self::NameTaken(_)
            | Self::Refused(_)
            | Self::Leaving(_)
            | Self::Outdated(_)
            | Self::Overtaken(_)
            | Self::TooLate => false,
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
    use rstest::rstest;

    use super::{Error, is_refusal};

    #[rstest]
    #[case::the_stack_is_forgotten(404)]
    #[case::the_token_is_refused(401)]
    #[case::too_many(429)]
    #[case::down(503)]
    #[case::not_understood(400)]
    fn nothing_that_buildkite_answers_ends_a_job(#[case] status: u16) {
        let error = Error::Buildkite(bk_buildkite::Error::Status {
            attempt: "read the job",
            status: status.try_into().unwrap(),
            message: "no".to_owned(),
            retry_after: None,
        });
        assert_eq!(error.refusal(), None);
    }

    #[test]
    fn quotas_and_missing_permissions_are_no_refusals() {
        assert!(is_refusal(422, "Pod is invalid: spec.containers[0].image: Required value"));
        assert!(is_refusal(403, "pods \"x\" is forbidden: violates PodSecurity \"restricted:latest\""));
        assert!(!is_refusal(403, "pods \"x\" is forbidden: exceeded quota: ci, requested: pods=1"));
        assert!(!is_refusal(403, "pods is forbidden: User \"u\" cannot create resource \"pods\""));
        assert!(!is_refusal(500, "etcdserver: request timed out"));
    }
}
