//! Builds the plain value that a decision depends on. Reads only.

use std::borrow::Cow;

use bk_api::{BuildJob, names};
use bk_plan::{
    facts::PodFacts,
    intake,
    plugin::PluginError,
    recall::{Creation, Recall},
    remote::Remote,
};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, ResourceExt, runtime::reflector::ObjectRef};
use uuid::Uuid;

use super::Context;
use crate::{
    details::{self, Details},
    error::Error,
};

/// What was observed, owned; `bk_plan::decide::Observed` borrows from it.
pub(super) struct Observation<'a> {
    pub(super) job: Cow<'a, BuildJob>,
    pub(super) pod: Option<PodFacts>,
    pub(super) creation: Creation,
    pub(super) remote: Option<Remote>,
    pub(super) unreadable: Option<PluginError>,
}

/// Looks at everything that concerns a BuildJob.
pub(super) async fn observe<'a>(
    context: &Context,
    job: &'a BuildJob,
    recall: &Recall,
) -> Result<Observation<'a>, Error> {
    let creation = recall.creation(job.status_or_default().attempt);
    let pod = pod(context, job, creation).await?.map(|pod| PodFacts::of(&pod));
    let remote = context.remote.get(&ObjectRef::from_obj(job));
    let mut seen = Observation { job: Cow::Borrowed(job), pod, creation, remote, unreadable: None };
    let status = job.status_or_default();
    let has_pod = seen.pod.is_some() || status.pod_name.is_some();
    if intake::needs_details(job) && !has_pod && !status.phase.is_terminal() {
        complete(context, &mut seen).await?;
    }
    Ok(seen)
}

/// The Buildkite job's UUID; the CRD's own rules have checked its form.
pub(super) fn uuid(job: &BuildJob) -> Option<Uuid> {
    job.job_uuid()?.parse().ok()
}

/// The pod of the current attempt. If one that should exist is not in the cache, the API server is asked: a
/// cache may lag, and much follows from a pod's absence.
async fn pod(context: &Context, job: &BuildJob, creation: Creation) -> Result<Option<Pod>, Error> {
    context.pods.complete().await;
    let status = job.status_or_default();
    let name = status.pod_name.clone().unwrap_or_else(|| names::pod(&job.name_any(), status.attempt));
    let cached = context.pods.get(&ObjectRef::new(&name).within(&context.namespace));
    let pod = match cached {
        Some(pod) => Some(pod.as_ref().clone()),
        None if (status.pod_name.is_some() || creation != Creation::Unknown)
            && !status.phase.is_terminal() =>
        {
            Api::<Pod>::namespaced(context.client.clone(), &context.namespace)
                .get_opt(&name)
                .await
                .map_err(Error::kubernetes(format!("read pod {}/{name}", context.namespace)))?
        }
        None => None,
    };
    Ok(pod.filter(|pod| is_owned_by(pod, job)))
}

/// Whether `pod` belongs to exactly this BuildJob, not to an earlier one of the same name.
pub(super) fn is_owned_by(pod: &Pod, job: &BuildJob) -> bool {
    pod.owner_references().iter().any(|owner| Some(&owner.uid) == job.metadata.uid.as_ref())
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
