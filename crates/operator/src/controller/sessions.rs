//! Sessions of agents: whether they are who they say, and what becomes of those whose BuildJob is gone.

use std::{collections::HashSet, sync::Arc, time::Duration};

use bk_api::{BuildJob, names};
use bk_plan::{broker::SessionRecord, facts::JobPod, origin::Origin, verdicts};
use futures::{StreamExt, stream};
use kube::{
    Api, ResourceExt,
    api::ListParams,
    runtime::{reflector::ObjectRef, watcher::Event},
};

use super::Context;
use crate::error::Error;

/// How often to look for sessions that belong to nobody. Nothing is asked of anybody unless there are some.
const LOOK: Duration = Duration::from_secs(10);

/// How many jobs are ended at once of which nothing else is left.
const AT_ONCE: usize = 16;

/// Compares where a pod is with where its agent has registered from.
pub(super) fn compare(context: &Context, event: &Event<JobPod>) {
    let (Event::Apply(pod) | Event::InitApply(pod)) = event else { return };
    let (Some(build_job), Some(attempt)) = (pod.build_job(), pod.attempt()) else { return };
    if pod.facts().addresses.is_none() {
        return;
    }
    let object = ObjectRef::new(build_job).within(&context.namespace);
    if let Some(job) = context.jobs.get(&object)
        && let Some(uuid) = job.job_uuid()
    {
        context.spokesman.compare(uuid, attempt, pod.facts());
    }
}

/// Looks after sessions for as long as the process lives: jobs whose BuildJob and pod are gone are ended, as nobody else would, though most have
/// ended by themselves; and agents of which no pod has told yet where it is are compared once more.
pub(super) async fn tend(context: Arc<Context>) {
    context.jobs.complete().await;
    context.pods.complete().await;
    let mut suspects = HashSet::new();
    loop {
        tokio::time::sleep(LOOK).await;
        // What is in another namespace is none of our affair: it cannot even be looked at.
        let mut sessions = context.spokesman.all();
        sessions.retain(|(_, record)| record.namespace == context.namespace);
        let here: HashSet<String> = context.jobs.all().iter().filter_map(|job| job.uid()).collect();
        let (owned, orphans): (Vec<_>, Vec<_>) =
            sessions.into_iter().partition(|(_, record)| here.contains(&record.build_job));
        for (job, record) in &owned {
            compare_again(&context, job, record);
        }
        // Twice in a row: a BuildJob may be on its way out of the cache, and its pod with it.
        let (context, before) = (&context, &suspects);
        let buried = stream::iter(orphans).map(|(job, record)| async move {
            let is_over = before.contains(&job) && bury(context, &job, &record).await;
            (!is_over).then_some(job)
        });
        suspects = buried.buffer_unordered(AT_ONCE).filter_map(std::future::ready).collect().await;
    }
}

/// Ends the job of a BuildJob that is gone with its pod, as the API server confirms; says whether nothing is left to do.
async fn bury(context: &Context, job: &str, record: &SessionRecord) -> bool {
    let name = record.build_job_name(job);
    if context.pods.all().iter().any(|pod| pod.build_job() == Some(name.as_str())) {
        return false;
    }
    let ended = async {
        if is_left(context, &name, &record.build_job).await? {
            return Ok::<_, Error>(None);
        }
        let Ok(uuid) = job.parse() else { return Ok(None) };
        let verdict = verdicts::build_job_deleted(&name);
        context.spokesman.end(uuid, record, &verdict).await.map(Some)
    };
    match ended.await {
        Ok(Some(finished)) => {
            tracing::info!(job_uuid = job, ?finished, "the job of a BuildJob that is gone");
            context.spokesman.forget_record(job, record);
            true
        }
        Ok(None) => false,
        Err(error) => {
            let error = bk_ops::report::one_line(&error);
            tracing::warn!(job_uuid = job, error, "cannot end the job of a BuildJob that is gone");
            false
        }
    }
}

/// Whether the BuildJob or a pod of it is still there: its agent ends the job.
async fn is_left(context: &Context, name: &str, uid: &str) -> Result<bool, Error> {
    let failed = || Error::kubernetes(format!("see what is left of BuildJob {}/{name}", context.namespace));
    let jobs = Api::<BuildJob>::namespaced(context.client.clone(), &context.namespace);
    let job = jobs.get_opt(name).await.map_err(failed())?;
    if job.is_some_and(|job| job.uid().as_deref() == Some(uid)) {
        return Ok(true);
    }
    let pods = Api::<JobPod>::namespaced(context.client.clone(), &context.namespace);
    let ours = ListParams::default().labels(&format!("{}={name}", names::LABEL_BUILD_JOB));
    Ok(!pods.list(&ours).await.map_err(failed())?.items.is_empty())
}

/// The event that told where the pod is may have come before the session did.
fn compare_again(context: &Context, job: &str, record: &SessionRecord) {
    if record.address.is_none() {
        return;
    }
    let name = record.build_job_name(job);
    // In a Job it has a name that the operator has not given it.
    let is_it = |pod: &Arc<JobPod>| pod.build_job() == Some(&*name) && pod.attempt() == Some(record.attempt);
    if let Some(pod) = context.pods.all().into_iter().find(is_it) {
        context.spokesman.compare(job, record.attempt, pod.facts());
    }
}
