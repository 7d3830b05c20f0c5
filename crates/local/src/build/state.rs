//! The states of jobs and builds, as the wire and the database spell them.

use std::fmt;
use std::str::FromStr;

/// A state was read that this version does not know.
#[derive(Debug, thiserror::Error)]
#[error("unknown state {0:?}; the database was written by another version")]
pub(crate) struct UnknownState(String);

macro_rules! states {
    ($(#[$doc:meta])* $name:ident { $($variant:ident = $text:literal,)+ }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub(crate) enum $name { $($variant,)+ }

        impl $name {
            /// Every state.
            pub(crate) const ALL: &'static [Self] = &[$(Self::$variant,)+];

            /// The state's name on the wire.
            pub(crate) fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $text,)+ }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.as_str())
            }
        }

        impl FromStr for $name {
            type Err = UnknownState;

            fn from_str(text: &str) -> Result<Self, UnknownState> {
                let known = Self::ALL.iter().find(|state| state.as_str() == text);
                known.copied().ok_or_else(|| UnknownState(text.to_owned()))
            }
        }
    };
}

states! {
    /// Where a job is.
    ///
    /// The hosted service also knows `unblocked_failed`: a block that was answered before the steps that it
    /// depends on had failed. Here a block is `blocked`, and can be answered, only once those have passed, and
    /// an answer is final; so the state cannot come about.
    JobState {
        Waiting = "waiting",
        Limiting = "limiting",
        Limited = "limited",
        Blocked = "blocked",
        Unblocked = "unblocked",
        Scheduled = "scheduled",
        Reserved = "reserved",
        Assigned = "assigned",
        Accepted = "accepted",
        Running = "running",
        Canceling = "canceling",
        TimingOut = "timing_out",
        Finished = "finished",
        Canceled = "canceled",
        TimedOut = "timed_out",
        Skipped = "skipped",
        Broken = "broken",
        Expired = "expired",
        WaitingFailed = "waiting_failed",
        BlockedFailed = "blocked_failed",
    }
}

states! {
    /// Where a build is.
    BuildState {
        Scheduled = "scheduled",
        Running = "running",
        Failing = "failing",
        Blocked = "blocked",
        Canceling = "canceling",
        Passed = "passed",
        Failed = "failed",
        Canceled = "canceled",
        NotRun = "not_run",
    }
}

states! {
    /// Where a step is, over all of its jobs.
    StepState {
        Ignored = "ignored",
        WaitingForDependencies = "waiting_for_dependencies",
        Ready = "ready",
        Running = "running",
        Failing = "failing",
        Finished = "finished",
    }
}

states! {
    /// How a step came out, as clients are told.
    StepOutcome {
        Neutral = "neutral",
        Passed = "passed",
        SoftFailed = "soft_failed",
        HardFailed = "hard_failed",
        Errored = "errored",
    }
}

impl JobState {
    /// Nothing more happens to the job, short of somebody retrying it.
    pub(crate) fn is_terminal(self) -> bool {
        matches!(
            self,
            Self::Unblocked
                | Self::Finished
                | Self::Canceled
                | Self::TimedOut
                | Self::Skipped
                | Self::Broken
                | Self::Expired
                | Self::WaitingFailed
                | Self::BlockedFailed
        )
    }

    /// The job cannot be taken yet: others come first, or a person must decide.
    pub(crate) fn waits(self) -> bool {
        self.is_limited() || matches!(self, Self::Waiting | Self::Blocked)
    }

    /// An agent has the job, or has been told to take it.
    pub(crate) fn has_agent(self) -> bool {
        matches!(self, Self::Assigned | Self::Accepted | Self::Running | Self::Canceling | Self::TimingOut)
    }

    /// Its dependencies are met, but its concurrency group has not let it pass yet.
    pub(crate) fn is_limited(self) -> bool {
        matches!(self, Self::Limiting | Self::Limited)
    }

    /// It holds one of the places that its concurrency group has.
    pub(crate) fn holds_place(self) -> bool {
        self.has_agent() || matches!(self, Self::Scheduled | Self::Reserved)
    }

    /// It goes on without a person: somebody can take it or has it, or it is next in its concurrency group.
    pub(crate) fn is_active(self) -> bool {
        self.holds_place() || self.is_limited()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back() {
        for state in JobState::ALL {
            assert_eq!(state.as_str().parse::<JobState>().unwrap(), *state);
        }
        for state in BuildState::ALL {
            assert_eq!(state.as_str().parse::<BuildState>().unwrap(), *state);
        }
        for state in StepState::ALL {
            assert_eq!(state.as_str().parse::<StepState>().unwrap(), *state);
        }
        for outcome in StepOutcome::ALL {
            assert_eq!(outcome.as_str().parse::<StepOutcome>().unwrap(), *outcome);
        }
    }

    #[test]
    fn terminal_and_active_never_overlap() {
        assert!(JobState::ALL.iter().all(|state| !(state.is_terminal() && state.is_active())));
    }
}
