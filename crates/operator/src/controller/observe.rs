//! Builds the plain value that a decision depends on. Reads only.

use std::borrow::Cow;

use bk_api::BuildJob;
use bk_plan::{
    batch::BatchFacts,
    facts::{NodeFacts, PodFacts},
    intake,
    plugin::PluginError,
    recall::{Creation, Explained, Recall},
    remote::{Remote, RemoteState},
    surroundings::Surroundings,
};
use jiff::Timestamp;
use kube::ResourceExt;
use uuid::Uuid;

use super::{
    Context, nodes,
    workload::{self, Workload},
};
use crate::{
    error::Error,
    intake::Details,
    surroundings::{self, Place},
};

/// What was observed, owned; `bk_plan::decide::Observed` borrows from it.
pub(super) struct Observation<'a> {
    pub(super) job: Cow<'a, BuildJob>,
    pub(super) pod: Option<PodFacts>,
    pub(super) batch: Option<BatchFacts>,
    pub(super) explained: Option<Explained>,
    pub(super) creation: Creation,
    pub(super) remote: Option<Remote>,
    pub(super) has_session: bool,
    pub(super) node: Option<NodeFacts>,
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
    let Workload { pod, batch_job } = workload::find(context, job, recall).await?;
    let remote = uuid(job).and_then(|uuid| context.remote.get(job, uuid));
    let remote = remote.filter(|remote| recall.still_counts(remote));
    let can_speak = recall.can_speak(job.status_or_default().attempt);
    let node = nodes::of(context, pod.as_ref()).await?;
    let mut seen = Observation {
        job: Cow::Borrowed(job),
        pod: pod.map(|pod| PodFacts { events: context.happenings.of(&pod.uid), ..pod }),
        batch: batch_job.map(|job| {
            let id = job.uid().unwrap_or_default();
            BatchFacts { events: context.happenings.of(&id), ..BatchFacts::of(&job) }
        }),
        explained: recall.explained().cloned(),
        creation,
        remote,
        has_session: can_speak && context.spokesman.session(job).is_some(),
        node,
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
    let place = Place {
        client: &context.client,
        namespace: &context.namespace,
        environments: Some(&context.environments),
    };
    seen.surroundings = surroundings::find(place, &seen.job, Surroundings::default()).await?;
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
    // Nothing can be read of a job that answers agree not to know.
    if seen.remote.is_some_and(|remote| remote.state == RemoteState::Unknown) {
        return Ok(());
    }
    let asked_at = Timestamp::now();
    // Whether Buildkite knows the job at all is found out by asking for its state.
    let ask = |_: &Error| context.remote.want(&seen.job, uuid, true);
    let details = match context.intakes.of(&seen.job).details(uuid).await.inspect_err(ask)? {
        Details::Known(details) => details,
        Details::Ended(state) => {
            seen.remote = Some(Remote { state, asked_at });
            return Ok(());
        }
    };
    match intake::complete(&seen.job, &details, &context.intakes.terms(&seen.job).forbid) {
        Ok(job) => seen.job = Cow::Owned(job),
        Err(error) => seen.unreadable = Some(error),
    }
    Ok(())
}
