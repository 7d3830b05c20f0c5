//! Under which names at Buildkite the operator has taken jobs before, as written choices and BuildJobs tell.

use std::collections::{BTreeMap, BTreeSet};

use bk_api::{
    BuildJob,
    config::{Config, Queue},
    names,
};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Api, Client, ResourceExt, api::ListParams, core::PartialObjectMeta};

use super::patience;
use crate::error::Error;

/// Where a written choice has its jobs.
pub(crate) const JOBS: &str = "jobs";
/// Where it has its queue.
pub(crate) const QUEUE: &str = "queue";
/// Where it has the stack that reserves them.
pub(crate) const STACK: &str = "stack";

/// How many BuildJobs are listed at a time.
const PAGE: u32 = 500;

/// What tells written choices from other ConfigMaps.
pub(crate) fn labels() -> BTreeMap<String, String> {
    BTreeMap::from([(names::LABEL_COMPONENT.to_owned(), "intent".to_owned())])
}

/// A stack, and the queue that it serves.
pub(crate) type Name = (String, String);

/// The queues whose jobs were taken by stacks that serve none any more: another name was configured since, or other queues. Those that
/// this process has served so far may take jobs until this moment: whatever is written down, they are among them.
pub(super) async fn former(
    client: &Client,
    namespace: &str,
    config: &Config,
    so_far: BTreeSet<Name>,
) -> Result<Vec<Queue>, Error> {
    let choices = Api::<ConfigMap>::namespaced(client.clone(), namespace);
    let params = ListParams::default().labels(&format!("{}=intent", names::LABEL_COMPONENT));
    let attempt = format!("list ConfigMaps in namespace {namespace}");
    let choices = patience::insist(&attempt, || choices.list(&params)).await;
    let choices = choices.map_err(Error::kubernetes(attempt))?;
    let mut found = so_far;
    found.extend(choices.items.iter().filter_map(of_choice));

    let jobs = Api::<BuildJob>::namespaced(client.clone(), namespace);
    let mut params = ListParams::default().labels(names::LABEL_SPAWNED_FROM).limit(PAGE);
    let attempt = format!("list BuildJobs in namespace {namespace}");
    loop {
        let page = patience::insist(&attempt, || jobs.list_metadata(&params)).await;
        let page = page.map_err(Error::kubernetes(attempt.clone()))?;
        found.extend(page.items.iter().filter_map(of_build_job));
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params = params.continue_token(&token),
            None => return Ok(unserved(found, config)),
        }
    }
}

/// Who has chosen something that may not have been carried out.
fn of_choice(choice: &ConfigMap) -> Option<Name> {
    let data = choice.data.as_ref()?;
    data.get(JOBS).filter(|jobs| *jobs != "[]")?;
    Some((data.get(STACK)?.clone(), data.get(QUEUE)?.clone()))
}

/// Who has reserved a BuildJob's job.
fn of_build_job(job: &PartialObjectMeta<BuildJob>) -> Option<Name> {
    let stack = job.annotations().get(names::ANNOTATION_STACK)?;
    Some((stack.clone(), job.labels().get(names::LABEL_SPAWNED_FROM)?.clone()))
}

/// Those that serve none of the queues that are configured now.
fn unserved(found: BTreeSet<Name>, config: &Config) -> Vec<Queue> {
    let served: BTreeSet<String> = config.spawner.queues().into_iter().map(|queue| queue.stack_key).collect();
    // One stack serves one queue. A queue whose key is no label value is not on BuildJobs: any other says more.
    let stacks: BTreeMap<String, String> =
        found.into_iter().filter(|(stack, _)| !served.contains(stack)).collect();
    stacks.into_iter().map(|(stack, queue)| config.spawner.former(&queue, stack)).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::api_server::ApiServer;

    fn choice(stack: &str, queue: &str, jobs: &str) -> serde_json::Value {
        json!({"metadata": {"name": stack}, "data": {STACK: stack, QUEUE: queue, JOBS: jobs}})
    }

    fn job(stack: &str, queue: &str) -> serde_json::Value {
        json!({
            "apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata",
            "metadata": {
                "name": stack,
                "annotations": {names::ANNOTATION_STACK: stack}, "labels": {names::LABEL_SPAWNED_FROM: queue},
            },
        })
    }

    #[tokio::test]
    async fn stacks_that_serve_nothing_any_more_are_found() {
        let server = ApiServer::start(|call, before| {
            let (kind, items, token) = match (call.path.rsplit('/').next(), before) {
                (Some("configmaps"), _) => (
                    "ConfigMapList",
                    vec![
                        choice("now", "linux", "[{}]"),
                        choice("spent", "linux", "[]"),
                        choice("before", "linux", "[{}]"),
                        choice("other-arm", "arm", "[{}]"),
                    ],
                    "",
                ),
                (_, 1) => {
                    ("PartialObjectMetadataList", vec![job("now", "linux"), job("before", "linux")], "more")
                }
                _ => ("PartialObjectMetadataList", vec![job("other-gpu", ""), job("other-arm", "")], ""),
            };
            let version = if kind == "ConfigMapList" { "v1" } else { "meta.k8s.io/v1" };
            (
                200,
                json!({"apiVersion": version, "kind": kind, "metadata": {"continue": token}, "items": items}),
            )
        })
        .await;
        let data = [("job_spawner_config", "{stackKey: now, queue: linux, forbid: [image]}")];
        let data = data.map(|(key, value)| (key.to_owned(), value.to_owned()));
        let config = Config::from_data(&BTreeMap::from(data)).unwrap();
        let so_far =
            [("now", "linux"), ("idle", "mac")].map(|(stack, queue)| (stack.to_owned(), queue.to_owned()));
        let former = former(&server.cluster.calls, "ci", &config, so_far.into()).await.unwrap();
        let names: Vec<_> =
            former.iter().map(|queue| (queue.stack_key.as_str(), queue.key.as_str())).collect();
        assert_eq!(names, [("before", "linux"), ("idle", "mac"), ("other-arm", "arm"), ("other-gpu", "")]);
        assert_eq!(former[0].forbid, ["image"]);
    }
}
