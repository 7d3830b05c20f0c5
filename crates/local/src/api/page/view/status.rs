//! How a job is called on the page: its state, and how it came out, in one word.

use crate::build::{Job, JobKind, JobState};

/// The word for a job.
pub(super) fn of_job(job: &Job) -> &'static str {
    match job.state {
        _ if job.soft_failed => "soft_failed",
        JobState::Finished if job.kind == JobKind::Waiter || job.exit_status == Some(0) => "passed",
        JobState::Finished => "failed",
        state => state.as_str(),
    }
}
