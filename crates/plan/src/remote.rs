//! What Buildkite says about a job.

use jiff::{SignedDuration, Timestamp};

/// A job's state at Buildkite, and when we asked for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Remote {
    /// The state.
    pub state: RemoteState,
    /// When the question was sent: the state is not older than this.
    pub asked_at: Timestamp,
}

/// How far apart two answers must be that both leave a job out.
const ABSENCE: SignedDuration = SignedDuration::from_secs(30);

/// Since when Buildkite's answers leave a job out. One that does proves little: what answered may lag behind what has reserved the job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Absence(Option<Timestamp>);

impl Absence {
    /// Takes down an answer, and gives it back if it counts: that a job is unknown does only if an answer long enough before has
    /// said the same, and none in between said otherwise.
    pub fn confirm(&mut self, remote: Remote) -> Option<Remote> {
        if remote.state != RemoteState::Unknown {
            self.0 = None;
            return Some(remote);
        }
        let since = *self.0.get_or_insert(remote.asked_at);
        (remote.asked_at.duration_since(since) >= ABSENCE).then_some(remote)
    }
}

/// A job's state at Buildkite, as far as the operator tells states apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RemoteState {
    /// No agent has it yet: waiting, scheduled or reserved.
    Waiting,
    /// An agent has it, and it has not ended.
    Acquired,
    /// The same, and the agent is told to stop: it was cancelled.
    Canceling,
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
    /// The state behind the service's word for it; it has none for a job that it does not show.
    pub fn of(word: Option<&String>) -> Self {
        word.map_or(Self::Unknown, |word| Self::parse(word))
    }

    /// Reads the service's word for a state. A word that is new to us means that somebody has the job: hands off.
    pub fn parse(word: &str) -> Self {
        match word {
            "pending" | "waiting" | "limiting" | "limited" | "scheduled" | "reserved"
            | "platform_limiting" | "platform_limited" => Self::Waiting,
            "finished" | "passed" | "failed" => Self::Finished,
            "canceled" => Self::Canceled,
            "canceling" => Self::Canceling,
            "timed_out" => Self::TimedOut,
            "skipped" | "broken" | "expired" | "waiting_failed" | "blocked_failed" | "unblocked_failed" => {
                Self::NeverRan
            }
            _ => Self::Acquired,
        }
    }

    /// The same, without what makes no difference to what an agent or its pod still does.
    #[must_use]
    pub fn in_short(self) -> Self {
        if self == Self::Canceling { Self::Acquired } else { self }
    }

    /// Whether an agent has the job, and it has not ended.
    pub fn is_acquired(self) -> bool {
        self.in_short() == Self::Acquired
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

    #[test]
    fn a_job_is_unknown_only_if_answers_agree_for_a_while() {
        let mut absence = Absence::default();
        let mut counts = |state, seconds| {
            let asked_at = Timestamp::from_second(seconds).unwrap();
            absence.confirm(Remote { state, asked_at }).is_some()
        };
        assert!(!counts(RemoteState::Unknown, 0));
        assert!(!counts(RemoteState::Unknown, 29));
        assert!(counts(RemoteState::Waiting, 29), "anything else counts at once");
        assert!(!counts(RemoteState::Unknown, 31), "and begins anew");
        assert!(!counts(RemoteState::Unknown, 60));
        assert!(counts(RemoteState::Unknown, 61));
        assert!(counts(RemoteState::Unknown, 62));
    }

    #[rstest]
    #[case("reserved", RemoteState::Waiting)]
    #[case("running", RemoteState::Acquired)]
    #[case("canceling", RemoteState::Canceling)]
    #[case("finished", RemoteState::Finished)]
    #[case("canceled", RemoteState::Canceled)]
    #[case("timed_out", RemoteState::TimedOut)]
    #[case("expired", RemoteState::NeverRan)]
    #[case("a_state_of_tomorrow", RemoteState::Acquired)]
    fn words_become_states(#[case] word: &str, #[case] expected: RemoteState) {
        assert_eq!(RemoteState::parse(word), expected);
    }
}
