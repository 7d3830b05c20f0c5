//! BuildJobs that somebody deleted before their end. Their pods go with them; Buildkite is told why.
//!
//! This is done when the deletion is seen, or when it is noticed after a gap in the watch, and tried until it is settled. If nobody
//! is there to see it, because the operator is not running, a job that no agent has returns to its queue when the reservation
//! lapses, and an agent that is stopped says so itself.

use std::{collections::HashSet, sync::Arc, time::Duration};

use bk_api::BuildJob;
use bk_ops::jitter;
use bk_plan::{
    decide::{self, Action},
    intake::pace,
    remote::{Absence, Remote, RemoteState},
};
use futures::StreamExt;
use jiff::Timestamp;
use kube::{ResourceExt, runtime::watcher::Event};
use tokio::sync::mpsc::UnboundedReceiver;
use tracing::Instrument;

use super::{Context, act, into_stream, observe};
use crate::{cache::Cache, error::Error, spawner::Slots};

/// How many deletions are dealt with at once.
const CONCURRENCY: usize = 64;

/// How long to wait for Buildkite to make up its mind.
const UNSETTLED: Duration = Duration::from_secs(5);

/// The BuildJobs that were there before the watch began anew.
#[derive(Default)]
pub(super) struct Census(Vec<Arc<BuildJob>>);

impl Census {
    /// Those that have gone while nobody watched, which is known when the watch has told of everything again.
    pub(super) fn gone_unseen(
        &mut self,
        event: &Event<BuildJob>,
        jobs: &Cache<BuildJob>,
    ) -> Vec<Arc<BuildJob>> {
        match event {
            // The cache keeps what it had until the new list is complete.
            Event::Init => self.0 = jobs.all(),
            Event::InitDone => {
                let here: HashSet<_> = jobs.all().iter().map(|job| job.uid()).collect();
                let before = std::mem::take(&mut self.0);
                return before.into_iter().filter(|job| !here.contains(&job.uid())).collect();
            }
            _ => {}
        }
        Vec::new()
    }
}

/// Tells Buildkite about BuildJobs that have been deleted, for as long as the process lives.
pub(super) async fn run(context: Arc<Context>, slots: Slots, departed: UnboundedReceiver<BuildJob>) {
    let tell = |job: BuildJob| {
        let (context, slots) = (context.clone(), slots.clone());
        async move {
            let span = tracing::info_span!("job", build_job = %job.name_any(), job_uuid = job.job_uuid());
            tell(&context, &slots, &job).instrument(span).await;
        }
    };
    into_stream(departed).for_each_concurrent(CONCURRENCY, tell).await;
}

async fn tell(context: &Context, slots: &Slots, job: &BuildJob) {
    let mut absence = Absence::default();
    let mut failures = 0;
    // Once the job has another BuildJob, it is that one's.
    while job.job_uuid().is_some_and(|uuid| !slots.has_build_job(uuid)) {
        let pause = match try_to_tell(context, job, &mut absence).await {
            Ok(true) => return,
            Ok(false) => UNSETTLED,
            Err(error) => {
                failures += 1;
                tracing::warn!(error = %bk_ops::report::one_line(&error), "cannot tell Buildkite about a deleted BuildJob");
                pace::after_failures(failures, error.retry_after(), jitter::fraction())
            }
        };
        tokio::time::sleep(pause).await;
    }
}

/// Says whether it is settled.
async fn try_to_tell(context: &Context, job: &BuildJob, absence: &mut Absence) -> Result<bool, Error> {
    let Some(uuid) = observe::uuid(job) else {
        return Ok(true);
    };
    let asked_at = Timestamp::now();
    let states = context.intakes.of(job).states(&[uuid]).await?;
    let state = states.get(&uuid).copied().unwrap_or(RemoteState::Unknown);
    let Some(remote) = absence.confirm(Remote { state, asked_at }) else {
        return Ok(false);
    };
    match decide::departed(job, remote.state) {
        // If an agent was quicker, it is stopped with its pod.
        Some(Action::FinishRemote(verdict)) => {
            let progress = act::finish_remote(context, job, &verdict).await?;
            return Ok(!matches!(progress, act::Progress::Unsettled));
        }
        Some(Action::Notify(verdict)) => act::notify(context, job, &verdict.sentence()),
        _ => {}
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use bk_api::BuildJobSpec;
    use futures::stream;

    use super::*;
    use crate::cache::cache;

    fn job(name: &str, uid: &str) -> BuildJob {
        let mut job = BuildJob::new(name, BuildJobSpec::default());
        job.metadata.namespace = Some("ci".to_owned());
        job.metadata.uid = Some(uid.to_owned());
        job
    }

    #[tokio::test]
    async fn what_went_in_a_gap_of_the_watch_is_noticed() {
        let (jobs, feed) = cache::<BuildJob>();
        let list = |listed: Vec<BuildJob>| {
            let applied = listed.into_iter().map(Event::InitApply);
            std::iter::once(Event::Init).chain(applied).chain([Event::InitDone]).collect::<Vec<_>>()
        };
        let mut events = list(vec![job("stays", "1"), job("goes", "2"), job("is-replaced", "3")]);
        events.push(Event::Apply(job("comes", "4")));
        events.extend(list(vec![job("stays", "1"), job("is-replaced", "5"), job("comes", "4")]));
        let mut census = Census::default();
        let mut gone = Vec::new();
        let mut filled = std::pin::pin!(feed.fill(stream::iter(events.into_iter().map(Ok))));
        while let Some(Ok(event)) = filled.next().await {
            gone.extend(census.gone_unseen(&event, &jobs).iter().filter_map(|job| job.uid()));
        }
        gone.sort();
        assert_eq!(gone, ["2", "3"]);
    }
}
