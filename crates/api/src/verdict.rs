//! Why a job ended the way it did, in words that a person can act on and a program can count.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The reason for a job's end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Verdict {
    /// What happened, as a stable word.
    pub code: VerdictCode,
    /// Who can change it.
    pub fault: Fault,
    /// One sentence that says what happened, with names.
    pub message: String,
    /// What to do about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub advice: Option<String>,
    /// The exit status that Buildkite gets, or that the command had.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_status: Option<i32>,
}

impl Verdict {
    /// What people read about it: what happened, the code, and what to do.
    pub fn sentence(&self) -> String {
        match &self.advice {
            Some(advice) => format!("{}. {}: {advice}.", self.message, self.code.as_str()),
            None => format!("{}. ({})", self.message, self.code.as_str()),
        }
    }
}

/// What happened. New codes may be added; existing ones keep their meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum VerdictCode {
    /// The command ended with status 0.
    Passed,
    /// A container of the job ended with another status.
    CommandFailed,
    /// Cancelled in Buildkite.
    Canceled,
    /// Buildkite's time limit for the job passed.
    TimedOut,
    /// The BuildJob cannot be turned into a pod.
    InvalidSpec,
    /// The API server refused the pod.
    PodRefused,
    /// An image cannot be had.
    ImageUnavailable,
    /// A container could not be created or started.
    ContainerNotStarted,
    /// The pod did not start in time.
    StartTimeout,
    /// The agent ended before it took the job.
    AgentNotStarted,
    /// The agent or its pod was lost while the job ran.
    AgentLost,
    /// The job ended, but the pod was gone before its result could be read.
    ResultUnknown,
}

impl VerdictCode {
    /// The code as it appears in statuses, events and metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Passed => "Passed",
            Self::CommandFailed => "CommandFailed",
            Self::Canceled => "Canceled",
            Self::TimedOut => "TimedOut",
            Self::InvalidSpec => "InvalidSpec",
            Self::PodRefused => "PodRefused",
            Self::ImageUnavailable => "ImageUnavailable",
            Self::ContainerNotStarted => "ContainerNotStarted",
            Self::StartTimeout => "StartTimeout",
            Self::AgentNotStarted => "AgentNotStarted",
            Self::AgentLost => "AgentLost",
            Self::ResultUnknown => "ResultUnknown",
        }
    }
}

/// Who can change the outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Fault {
    /// Nobody: this is how it should be.
    None,
    /// The author of the job.
    User,
    /// Whoever configured the operator or the job's environment.
    Configuration,
    /// The cluster.
    Cluster,
    /// Buildkite.
    Buildkite,
}
