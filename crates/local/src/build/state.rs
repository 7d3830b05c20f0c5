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
            #[cfg(test)]
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
                match text {
                    $($text => Ok(Self::$variant),)+
                    other => Err(UnknownState(other.to_owned())),
                }
            }
        }
    };
}

states! {
    /// Where a job is.
    JobState {
        Waiting = "waiting",
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
                | Self::Expired
                | Self::WaitingFailed
                | Self::BlockedFailed
        )
    }

    /// The job cannot be taken yet: others come first, or a person must decide.
    pub(crate) fn waits(self) -> bool {
        matches!(self, Self::Waiting | Self::Blocked)
    }

    /// An agent has the job, or has been told to take it.
    pub(crate) fn has_agent(self) -> bool {
        matches!(self, Self::Assigned | Self::Accepted | Self::Running | Self::Canceling | Self::TimingOut)
    }

    /// Somebody can take it, or has it.
    pub(crate) fn is_active(self) -> bool {
        self.has_agent() || matches!(self, Self::Scheduled | Self::Reserved)
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
    }

    #[test]
    fn terminal_and_active_never_overlap() {
        assert!(JobState::ALL.iter().all(|state| !(state.is_terminal() && state.is_active())));
    }
}
