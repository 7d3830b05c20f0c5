//! What Buildkite knows about a job that we are about to run.

use bk_buildkite::StacksClient;
use bk_plan::{intake::JobDetails, remote::RemoteState};
use uuid::Uuid;

use crate::error::Error;

/// A job at Buildkite.
pub enum Details {
    /// What it runs.
    Known(JobDetails),
    /// It is not ours to run: taken, ended or unknown.
    Ended(RemoteState),
}

/// Reads what a job runs.
pub async fn read(buildkite: &StacksClient, stack_key: &str, job: Uuid) -> Result<Details, Error> {
    let error = match buildkite.job(stack_key, job).await {
        Ok(job) => return Ok(Details::Known(JobDetails { env: job.env, command: job.command })),
        Err(error) if error.is_settled() => error,
        Err(error) => return Err(error.into()),
    };
    // "Not found" may also mean that our stack is not registered at the moment. Then this fails as well, and
    // the job is looked at again later.
    let states = buildkite.job_states(stack_key, &[job]).await?;
    match states.get(&job).map_or(RemoteState::Unknown, |word| RemoteState::parse(word)) {
        RemoteState::Waiting => Err(error.into()),
        state => Ok(Details::Ended(state)),
    }
}
