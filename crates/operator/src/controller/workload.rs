//! A BuildJob's pod, and the `batch/v1` Job around it if there is one: finding, creating and deleting them.

use std::fmt::Debug;

use bk_api::{BuildJob, build_job::WorkloadKind, names};
use bk_plan::{
    facts::{JobPod, PodFacts},
    recall::{Creation, Recall},
};
use jiff::Timestamp;
use k8s_openapi::{
    api::batch::v1::Job,
    serde::{Serialize, de::DeserializeOwned},
};
use kube::{
    Api, Resource, ResourceExt,
    api::{DeleteParams, EvictParams, ListParams, PostParams, Preconditions, PropagationPolicy},
    core::NamespaceResourceScope,
    runtime::reflector::ObjectRef,
};

use super::Context;
use crate::{cache::Cache, error::Error};

/// What exists of an attempt.
#[derive(Default)]
pub(super) struct Workload {
    pub(super) pod: Option<PodFacts>,
    pub(super) batch_job: Option<Job>,
}

/// What exists of the current attempt. If something that should exist is not in the cache, the API server is
/// asked: a cache may lag, and much follows from an absence. A pod that was created just now is as it was created.
pub(super) async fn find(context: &Context, job: &BuildJob, recall: &Recall) -> Result<Workload, Error> {
    context.pods.complete().await;
    context.batch_jobs.complete().await;
    context.spokesman.complete().await;
    context.nodes.complete().await;
    let status = job.status_or_default();
    let name = names::pod(&job.name_any(), status.attempt);
    let has_registered = || context.spokesman.session(job).is_some();
    let recorded = status.pod_name.is_some() || status.job_name.is_some() || has_registered();
    let creation = recall.creation(status.attempt);
    let ask = (recorded || creation != Creation::Unknown) && !status.phase.is_terminal();
    let kind = match (&status.job_name, &status.pod_name) {
        (Some(_), _) => WorkloadKind::Job,
        (None, Some(_)) => WorkloadKind::Pod,
        (None, None) => job.spec.workload.unwrap_or(context.rules.pod.config.workload),
    };
    let (ask_for_pod, ask_for_job) = (ask && kind == WorkloadKind::Pod, ask && kind == WorkloadKind::Job);
    if let Some(batch_job) = get(context, &context.batch_jobs, &name, job, ask_for_job).await? {
        context.recalls.saw(&batch_job);
        let pod = pod_of(context, job, &batch_job).await?;
        return Ok(Workload { pod, batch_job: Some(batch_job) });
    }
    let awaited = recall.awaited(status.attempt, Timestamp::now()).filter(|_| ask_for_pod);
    let pod = get(context, &context.pods, &name, job, ask_for_pod && awaited.is_none()).await?;
    if let Some(pod) = &pod {
        context.recalls.saw(pod);
    }
    Ok(Workload { pod: pod.map(JobPod::into_facts).or_else(|| awaited.cloned()), batch_job: None })
}

/// The pod of a Job. There is never more than one that counts: a Job whose pod has failed makes no other.
///
/// If the Job says that it has had one, and the cache shows none, the API server is asked.
async fn pod_of(context: &Context, job: &BuildJob, batch_job: &Job) -> Result<Option<PodFacts>, Error> {
    let known = context.job_pods.of(batch_job);
    let object = |name: &String| ObjectRef::new(name).within(&context.namespace);
    let mut cached = known.iter().filter_map(|name| context.pods.get(&object(name)));
    if let Some(pod) = cached.find(|pod| is_owned_by(pod.as_ref(), batch_job)) {
        return Ok(Some(pod.as_ref().clone().into_facts()));
    }
    let counts = batch_job.status.as_ref().map(|status| [status.active, status.succeeded, status.failed]);
    if job.is_terminal() || counts.into_iter().flatten().flatten().all(|count| count == 0) {
        return Ok(None);
    }
    let ours = ListParams::default().labels(&format!("{}={}", names::LABEL_BUILD_JOB, job.name_any()));
    let attempt = format!("list the pods of Job {}/{}", context.namespace, batch_job.name_any());
    let found = api::<JobPod>(context).list(&ours).await.map_err(Error::kubernetes(attempt))?;
    Ok(found.into_iter().find(|pod| is_owned_by(pod, batch_job)).map(JobPod::into_facts))
}

async fn get<K>(
    context: &Context,
    cache: &Cache<K>,
    name: &str,
    job: &BuildJob,
    ask: bool,
) -> Result<Option<K>, Error>
where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>,
    K: Clone + Debug + DeserializeOwned + 'static,
{
    let found = match cache.get(&ObjectRef::new(name).within(&context.namespace)) {
        Some(cached) => Some(cached.as_ref().clone()),
        None if ask => {
            let attempt = format!("read {} {}/{name}", K::kind(&()), context.namespace);
            api::<K>(context).get_opt(name).await.map_err(Error::kubernetes(attempt))?
        }
        None => None,
    };
    Ok(found.filter(|object| is_owned_by(object, job)))
}

/// Whether an object belongs to exactly this one, not to an earlier one of the same name.
pub(super) fn is_owned_by<K: Resource, O: Resource>(object: &K, owner: &O) -> bool {
    object.owner_references().iter().any(|reference| Some(&reference.uid) == owner.meta().uid.as_ref())
}

/// Asks for a pod to be evicted, as a drain does. A disruption budget may be against it for now.
pub(super) async fn evict(context: &Context, name: &str, uid: &str) -> Result<(), Error> {
    let preconditions = Some(Preconditions { uid: Some(uid.to_owned()), resource_version: None });
    let params = EvictParams {
        delete_options: Some(DeleteParams { preconditions, ..DeleteParams::default() }),
        ..EvictParams::default()
    };
    let api = Api::<k8s_openapi::api::core::v1::Pod>::namespaced(context.client.clone(), &context.namespace);
    match api.evict(name, &params).await {
        Ok(_) => {
            tracing::info!(pod = name, "evicted: its node is about to go");
            Ok(())
        }
        Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409 | 429) => Ok(()),
        Err(error) => Err(Error::kubernetes(format!("evict pod {}/{name}", context.namespace))(error)),
    }
}

/// Creates an object of a BuildJob, and returns it as it is now. If it exists and is ours, that is success.
pub(super) async fn create<K>(context: &Context, job: &BuildJob, object: &K) -> Result<K, Error>
where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>,
    K: Clone + Debug + Serialize + DeserializeOwned,
{
    if context.wakefulness.is_drowsy() {
        ensure_current(context, job).await?;
    }
    let (api, kind, name) = (api::<K>(context), K::kind(&()), object.name_any());
    let attempt = format!("create {kind} {}/{name}", context.namespace);
    let params = PostParams { field_manager: Some(names::FIELD_MANAGER.into()), ..PostParams::default() };
    match api.create(&params, object).await {
        Ok(created) => {
            tracing::info!(%kind, name, "created");
            Ok(created)
        }
        Err(kube::Error::Api(status)) if status.is_already_exists() => {
            match api.get_opt(&name).await.map_err(Error::kubernetes(attempt.clone()))? {
                Some(existing) if is_owned_by(&existing, job) => Ok(existing),
                Some(_) => Err(Error::NotOurs { kind: kind.into_owned(), name }),
                // It has just gone: the name is free the next time.
                None => Err(Error::kubernetes(attempt)(kube::Error::Api(status))),
            }
        }
        // What was done all the same need not be tried again.
        Err(error) if is_doubtful(&error) => match api.get_opt(&name).await {
            Ok(Some(existing)) if is_owned_by(&existing, job) => Ok(existing),
            _ => Err(Error::kubernetes(attempt)(error)),
        },
        Err(error) => Err(Error::kubernetes(attempt)(error)),
    }
}

/// Makes sure that the BuildJob is still there, and that nobody has gone on with it since it was looked at.
async fn ensure_current(context: &Context, job: &BuildJob) -> Result<(), Error> {
    let name = job.name_any();
    let attempt = format!("read BuildJob {}/{name}", context.namespace);
    let current = api::<BuildJob>(context).get_opt(&name).await.map_err(Error::kubernetes(attempt))?;
    let standing = |job: &BuildJob| {
        let status = job.status_or_default();
        (
            job.uid(),
            status.attempt,
            status.phase.is_terminal(),
            status.pod_name.clone(),
            status.job_name.clone(),
        )
    };
    let same = |current: &BuildJob| standing(current) == standing(job);
    if current.as_ref().is_some_and(same) { Ok(()) } else { Err(Error::Overtaken(name)) }
}

/// Whether an answer, or none, leaves open what was done.
fn is_doubtful(error: &kube::Error) -> bool {
    match error {
        kube::Error::Api(status) => status.code >= 500,
        _ => true,
    }
}

/// Deletes exactly the object that was looked at, and what it owns; in so many seconds, or in its own time.
pub(super) async fn delete<K>(
    context: &Context,
    name: &str,
    uid: &str,
    policy: PropagationPolicy,
    grace_period_seconds: Option<u32>,
) -> Result<(), Error>
where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>,
    K: Clone + Debug + DeserializeOwned,
{
    let kind = K::kind(&());
    let params = DeleteParams {
        propagation_policy: Some(policy),
        grace_period_seconds,
        preconditions: Some(Preconditions { uid: Some(uid.to_owned()), resource_version: None }),
        ..DeleteParams::default()
    };
    match api::<K>(context).delete(name, &params).await {
        Ok(_) => tracing::info!(%kind, name, "deleted"),
        // Gone already, or another has the name by now.
        Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => {}
        Err(error) => {
            return Err(Error::kubernetes(format!("delete {kind} {}/{name}", context.namespace))(error));
        }
    }
    Ok(())
}

fn api<K>(context: &Context) -> Api<K>
where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>,
{
    Api::namespaced(context.client.clone(), &context.namespace)
}
