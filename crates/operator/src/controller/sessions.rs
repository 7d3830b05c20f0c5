//! Sessions of agents: whether they are who they say, and what becomes of those whose BuildJob is gone.

use std::{collections::HashSet, sync::Arc, time::Duration};

use bk_plan::{facts::JobPod, origin::Origin, verdicts};
use kube::{
    ResourceExt,
    runtime::{reflector::ObjectRef, watcher::Event},
};

use super::Context;

/// How often to look for sessions that belong to nobody. Nothing is asked of anybody unless there are some.
const LOOK: Duration = Duration::from_secs(10);

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

/// Ends jobs whose BuildJob and pod are gone, for as long as the process lives: nobody else would. Most have ended by themselves.
pub(super) async fn tend(context: Arc<Context>) {
    context.jobs.complete().await;
    context.pods.complete().await;
    let mut suspects = HashSet::new();
    loop {
        tokio::time::sleep(LOOK).await;
        let here: HashSet<String> = context.jobs.all().iter().filter_map(|job| job.uid()).collect();
        let mut next = HashSet::new();
        for (job, record) in context.spokesman.all() {
            if here.contains(&record.build_job) {
                continue;
            }
            // Twice in a row: a BuildJob may be on its way out of the cache, and its pod with it.
            if !suspects.contains(&job) || has_pod(&context, &job) {
                next.insert(job);
                continue;
            }
            let verdict = verdicts::build_job_deleted(&bk_api::names::build_job(&job));
            let Ok(uuid) = job.parse() else { continue };
            match context.spokesman.end(uuid, &record, &verdict).await {
                Ok(finished) => {
                    tracing::info!(job_uuid = job, ?finished, "the job of a BuildJob that is gone");
                    context.spokesman.forget_record(&job, &record);
                }
                Err(error) => {
                    let error = bk_ops::report::one_line(&error);
                    tracing::warn!(job_uuid = job, error, "cannot end the job of a BuildJob that is gone");
                    next.insert(job);
                }
            }
        }
        suspects = next;
    }
}

/// Whether a pod of that job is still there: its agent ends the job.
fn has_pod(context: &Context, job: &str) -> bool {
    let name = bk_api::names::build_job(job);
    context.pods.all().iter().any(|pod| pod.build_job() == Some(name.as_str()))
}
