//! Builds the plain value that a decision depends on. Reads only.

use std::borrow::Cow;

use bk_api::BuildJob;
use bk_plan::{
    batch::BatchFacts,
    facts::PodFacts,
    intake,
    plugin::PluginError,
    recall::{Creation, Explained, Recall},
    remote::Remote,
    surroundings::Surroundings,
};
use jiff::Timestamp;
use kube::runtime::reflector::ObjectRef;
use uuid::Uuid;

use super::{
    Context, surroundings,
    workload::{self, Workload},
};
use crate::{
    details::{self, Details},
    error::Error,
};

/// What was observed, owned; `bk_plan::decide::Observed` borrows from it.
pub(super) struct Observation<'a> {
    pub(super) job: Cow<'a, BuildJob>,
    pub(super) pod: Option<PodFacts>,
    pub(super) batch: Option<BatchFacts>,
    pub(super) explained: Option<Explained>,
    pub(super) creation: Creation,
    pub(super) remote: Option<Remote>,
    pub(super) surroundings: Surroundings,
    pub(super) unreadable: Option<PluginError>,
}

/// Looks at everything that concerns a BuildJob.
pub(super) async fn observe<'a>(
    context: &Context,
    job: &'a BuildJob,
    recall: &Recall,
) -> Result<Observation<'a>, Error> {
    let creation = recall.creation(job.status_or_default().attempt);
    let Workload { pod, batch_job } = workload::find(context, job, creation).await?;
    let remote = uuid(job).and_then(|uuid| context.remote.get(&ObjectRef::from_obj(job), uuid));
    let mut seen = Observation {
        job: Cow::Borrowed(job),
        pod: pod.map(|pod| PodFacts { events: context.happenings.of(&pod), ..PodFacts::of(&pod) }),
        batch: batch_job
            .map(|job| BatchFacts { events: context.happenings.of(&job), ..BatchFacts::of(&job) }),
        explained: recall.explained().cloned(),
        creation,
        remote,
        surroundings: Surroundings::default(),
        unreadable: None,
    };
    let status = job.status_or_default();
    let exists = seen.pod.is_some() || seen.batch.is_some();
    if exists || status.phase.is_terminal() {
        return Ok(seen);
    }
    if intake::needs_details(job) {
        complete(context, &mut seen).await?;
    }
    seen.surroundings = surroundings::find(context, &seen.job).await?;
    Ok(seen)
}

/// The Buildkite job's UUID; the CRD's own rules have checked its form.
pub(super) fn uuid(job: &BuildJob) -> Option<Uuid> {
    job.job_uuid()?.parse().ok()
}

/// Fills in what Buildkite knows about a job of which the BuildJob says little more than its UUID.
async fn complete(context: &Context, seen: &mut Observation<'_>) -> Result<(), Error> {
    let Some(uuid) = uuid(&seen.job) else {
        return Ok(());
    };
    let asked_at = Timestamp::now();
    let details = match details::read(&context.buildkite, &context.stack_key, uuid).await? {
        Details::Known(details) => details,
        Details::Ended(state) => {
            seen.remote = Some(Remote { state, asked_at });
            return Ok(());
        }
    };
    match intake::complete(&seen.job, &details) {
        Ok(job) => seen.job = Cow::Owned(job),
        Err(error) => seen.unreadable = Some(error),
    }
    Ok(())
}
