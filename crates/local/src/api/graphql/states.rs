//! The states of builds and jobs as GraphQL spells them.

use async_graphql::Enum;

use crate::build::{BuildState, JobKind, JobState};

macro_rules! mirror {
    ($(#[$doc:meta])* $name:ident of $own:ident { $($variant:ident,)+ }) => {
        $(#[$doc])*
        #[derive(Debug, Enum, Clone, Copy, PartialEq, Eq)]
        pub(super) enum $name { $($variant,)+ }

        impl From<$own> for $name {
            fn from(state: $own) -> Self {
                match state { $($own::$variant => Self::$variant,)+ }
            }
        }
    };
}

mirror! {
    /// Where a build is.
    BuildStates of BuildState {
        Scheduled, Running, Failing, Blocked, Canceling, Passed, Failed, Canceled, NotRun,
    }
}

mirror! {
    /// Where a job is.
    JobStates of JobState {
        Waiting, Limiting, Limited, Blocked, Unblocked, Scheduled, Reserved, Assigned, Accepted, Running, Canceling,
        TimingOut, Finished, Canceled, TimedOut, Skipped, Broken, Expired, WaitingFailed, BlockedFailed,
    }
}

/// What kind of job it is.
#[derive(Debug, Enum, Clone, Copy, PartialEq, Eq)]
pub(super) enum JobTypes {
    Command,
    Wait,
    Block,
    Trigger,
}

impl From<JobKind> for JobTypes {
    fn from(kind: JobKind) -> Self {
        match kind {
            JobKind::Command => Self::Command,
            JobKind::Waiter => Self::Wait,
            JobKind::Manual => Self::Block,
            JobKind::Trigger => Self::Trigger,
        }
    }
}
