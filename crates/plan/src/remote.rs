//! What Buildkite says about a job.

use jiff::Timestamp;

/// A job's state at Buildkite, and when we asked for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Remote {
    /// The state.
    pub state: RemoteState,
    /// When the question was sent: the state is not older than this.
    pub asked_at: Timestamp,
}

/// A job's state at Buildkite, as far as the operator tells states apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RemoteState {
    /// No agent has it yet: waiting, scheduled or reserved.
    Waiting,
    /// An agent has it, and it has not ended.
    Acquired,
    /// It has ended with an exit status, good or bad.
    Finished,
    /// It was cancelled, and has ended.
    Canceled,
    /// It took too long, and has ended.
    TimedOut,
    /// It ended without ever running: skipped, expired, broken.
    NeverRan,
    /// Buildkite does not know the job, or does not show it to us.
    Unknown,
}

impl RemoteState {
    /// Reads the service's word for a state. A word that is new to us means that somebody has the job: hands off.
    pub fn parse(word: &str) -> Self {
        match word {
            "pending" | "waiting" | "limiting" | "limited" | "scheduled" | "reserved"
            | "platform_limiting" | "platform_limited" => Self::Waiting,
            "finished" | "passed" | "failed" => Self::Finished,
            "canceled" => Self::Canceled,
            "timed_out" => Self::TimedOut,
            "skipped" | "broken" | "expired" | "waiting_failed" | "blocked_failed" | "unblocked_failed" => {
                Self::NeverRan
            }
            _ => Self::Acquired,
        }
    }

    /// Whether the job has ended for good.
    pub fn is_terminal(self) -> bool {
        matches!(self, Self::Finished | Self::Canceled | Self::TimedOut | Self::NeverRan)
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("reserved", RemoteState::Waiting)]
    #[case("running", RemoteState::Acquired)]
    #[case("canceling", RemoteState::Acquired)]
    #[case("finished", RemoteState::Finished)]
    #[case("canceled", RemoteState::Canceled)]
    #[case("timed_out", RemoteState::TimedOut)]
    #[case("expired", RemoteState::NeverRan)]
    #[case("a_state_of_tomorrow", RemoteState::Acquired)]
    fn words_become_states(#[case] word: &str, #[case] expected: RemoteState) {
        assert_eq!(RemoteState::parse(word), expected);
    }
}
