//! Why a job ended the way it did, in words that a person can act on and a program can count.

mod catalogue;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use catalogue::{About, Chapter, VerdictCode};

/// Buildkite's exit status for "never ran, or nobody knows how it ended"; users' retry rules know it.
pub const NO_STATUS: i32 = -1;

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
    /// What was seen on the job's pod before it was deleted: conditions, containers, warnings.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 8))]
    pub evidence: Vec<String>,
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
    /// The cluster, or those who look after it.
    Cluster,
    /// Buildkite.
    Buildkite,
}

/// What a sign leads to while no agent has the job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Course {
    /// The job ends as soon as it is seen: waiting cannot help.
    Ends,
    /// It may pass, and is waited for until the time for it is up.
    Waits,
    /// The pod is replaced, and the job ends only if that happened to the last of its pods too.
    Replaces,
}

/// The exit status that goes with a verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// Always this one.
    Always(i32),
    /// That of the container that failed, and −1 if none did.
    Container,
    /// Buildkite has settled the job by itself, and has its own.
    Buildkites,
}

impl Verdict {
    /// A verdict with what its code stands for; the sentence says what happened in this case.
    pub fn new(code: VerdictCode, message: impl Into<String>) -> Self {
        let about = code.about();
        Self {
            code,
            fault: about.fault,
            message: message.into(),
            advice: (!about.advice.is_empty()).then(|| about.advice.to_owned()),
            exit_status: match about.exit {
                Exit::Always(status) => Some(status),
                Exit::Container => Some(NO_STATUS),
                Exit::Buildkites => None,
            },
            evidence: Vec::new(),
        }
    }

    /// With the exit status of the container that failed, where the code leaves it to that.
    #[must_use]
    pub fn of_container(mut self, exit_status: i32) -> Self {
        if self.code.about().exit == Exit::Container {
            self.exit_status = Some(exit_status);
        }
        self
    }

    /// What people read about it: what happened, the code, and what to do.
    pub fn sentence(&self) -> String {
        // Some messages quote a sentence, or ask a question.
        let stop = if self.message.ends_with(['.', '?', '!']) { "" } else { "." };
        match &self.advice {
            Some(advice) => format!("{}{stop} {}: {advice}.", self.message, self.code.as_str()),
            None => format!("{}{stop} ({})", self.message, self.code.as_str()),
        }
    }

    /// With advice that fits this case better than the general one.
    #[must_use]
    pub fn advising(mut self, advice: impl Into<String>) -> Self {
        self.advice = Some(advice.into());
        self
    }
}

#[cfg(test)]
mod tests;
