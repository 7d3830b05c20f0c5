//! BuildJobs that somebody deleted before their end. Their pods go with them; Buildkite is told why.
//!
//! This is done when the deletion is seen. If nobody is there to see it, because the operator is not running, a job that no
//! agent has returns to its queue when the reservation lapses, and an agent that is stopped says so itself.

use std::{sync::Arc, time::Duration};

use bk_api::BuildJob;
use bk_plan::{
    decide::{self, Action},
    remote::RemoteState,
};
use futures::StreamExt;
use kube::ResourceExt;
use tokio::sync::mpsc::UnboundedReceiver;
use tracing::Instrument;

use super::{Context, act, into_stream, observe};
use crate::error::Error;

/// How many deletions are dealt with at once.
const CONCURRENCY: usize = 8;

/// How often Buildkite is tried, and how long to wait in between at first.
const ATTEMPTS: u32 = 6;
const PAUSE: Duration = Duration::from_millis(500);

/// Tells Buildkite about BuildJobs that have been deleted, for as long as the process lives.
pub(super) async fn run(context: Arc<Context>, departed: UnboundedReceiver<BuildJob>) {
    let tell = |job: BuildJob| {
        let context = context.clone();
        async move {
            let span = tracing::info_span!("job", build_job = %job.name_any(), job_uuid = job.job_uuid());
            tell(&context, &job).instrument(span).await;
        }
    };
    into_stream(departed).for_each_concurrent(CONCURRENCY, tell).await;
}

async fn tell(context: &Context, job: &BuildJob) {
    for attempt in 0..ATTEMPTS {
        match try_to_tell(context, job).await {
            Ok(()) => return,
            Err(error) => {
                tracing::warn!(error = %bk_ops::report::one_line(&error), "cannot tell Buildkite about a deleted BuildJob");
                let pause = error.retry_after().unwrap_or_default();
                tokio::time::sleep(pause.max(PAUSE * 2_u32.pow(attempt))).await;
            }
        }
    }
}

async fn try_to_tell(context: &Context, job: &BuildJob) -> Result<(), Error> {
    let Some(uuid) = observe::uuid(job) else {
        return Ok(());
    };
    let states = context.buildkite.job_states(&context.stack_key, &[uuid]).await?;
    let state = states.get(&uuid).map_or(RemoteState::Unknown, |word| RemoteState::parse(word));
    match decide::departed(job, state) {
        // If an agent was quicker, it is stopped with its pod.
        Some(Action::FinishRemote(verdict)) => act::finish_remote(context, job, &verdict).await.map(drop)?,
        Some(Action::Notify(verdict)) => act::notify(context, job, &verdict.sentence()).await,
        _ => {}
    }
    Ok(())
}
