//! Removes pods and Jobs whose BuildJob is gone, where the cluster itself does not.

use std::{collections::HashSet, sync::Arc, time::Duration};

use bk_api::BuildJob;
use bk_plan::{origin::Origin, orphans};
use jiff::Timestamp;
use k8s_openapi::serde::de::DeserializeOwned;
use kube::{
    Api, Resource, ResourceExt, api::PropagationPolicy, core::NamespaceResourceScope,
    runtime::reflector::ObjectRef,
};

use super::{Context, workload};
use crate::{cache::Cache, error::Error};

/// How often what is known is searched. The API server is asked only about what was found twice.
const INTERVAL: Duration = Duration::from_secs(30);

/// Searches for as long as the process lives.
pub(super) async fn run(context: Arc<Context>) {
    let (mut pods, mut jobs) = (HashSet::new(), HashSet::new());
    context.jobs.complete().await;
    context.pods.complete().await;
    context.batch_jobs.complete().await;
    loop {
        pods = search(&context, &context.pods, &pods).await;
        jobs = search(&context, &context.batch_jobs, &jobs).await;
        tokio::time::sleep(INTERVAL).await;
    }
}

/// Finds what belongs to nobody, and removes what was found before. Returns what was found.
async fn search<K>(context: &Context, cache: &Cache<K>, before: &HashSet<String>) -> HashSet<String>
where
    K: Origin + Resource<Scope = NamespaceResourceScope, DynamicType = ()>,
    K: Clone + std::fmt::Debug + DeserializeOwned + 'static,
{
    let now = Timestamp::now();
    let mut found = HashSet::new();
    for object in cache.all() {
        let Some(name) = object.made_for() else { continue };
        let build_job = context.jobs.get(&ObjectRef::new(name).within(&context.namespace));
        let Some(uid) = object.uid() else { continue };
        if !orphans::is_orphan(object.meta(), build_job.as_deref(), now) {
            continue;
        }
        if before.contains(&uid)
            && let Err(error) = remove::<K>(context, object.meta(), name, &uid).await
        {
            tracing::warn!(error = %bk_ops::report::one_line(&error), "cannot remove what belongs to nobody");
        }
        found.insert(uid);
    }
    found
}

/// Removes an object, if the API server confirms that it belongs to nobody.
async fn remove<K>(
    context: &Context,
    meta: &k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta,
    build_job: &str,
    uid: &str,
) -> Result<(), Error>
where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>,
    K: Clone + std::fmt::Debug + DeserializeOwned,
{
    let live = Api::<BuildJob>::namespaced(context.client.clone(), &context.namespace)
        .get_opt(build_job)
        .await
        .map_err(Error::kubernetes(format!("read BuildJob {}/{build_job}", context.namespace)))?;
    if !orphans::is_orphan(meta, live.as_ref(), Timestamp::now()) {
        return Ok(());
    }
    let name = meta.name.as_deref().unwrap_or_default();
    tracing::warn!(kind = %K::kind(&()), name, build_job, "belongs to no BuildJob and is removed");
    workload::delete::<K>(context, name, uid, PropagationPolicy::Background, None).await
}
