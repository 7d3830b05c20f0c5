//! The nodes that job pods are on, if the operator may see nodes.

use std::{collections::HashMap, sync::Arc};

use bk_api::{BuildJob, config::NodeLeaving};
use bk_plan::{
    facts::{JobPod, NodeFacts, PodFacts},
    origin::Origin,
    pod::PodSettings,
};
use futures::{Stream, StreamExt, stream};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Node;
use kube::{
    Api, Client,
    api::ListParams,
    runtime::{WatchStreamExt, reflector::ObjectRef, watcher},
};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::Context;
use crate::{
    error::Error,
    settings::{self, Cluster},
};

/// What is known of nodes. Those of which nothing is to be said, or that no job is on, are left out.
pub(super) struct Nodes {
    streams: Client,
    is_wanted: bool,
    taints: Vec<String>,
    known: Mutex<HashMap<String, NodeFacts>>,
}

impl Nodes {
    pub(super) fn new(cluster: &Cluster, settings: &PodSettings) -> Self {
        let interrupts = settings.config.node_leaving == NodeLeaving::Interrupt;
        Self {
            streams: cluster.streams.clone(),
            is_wanted: settings.broker.is_some() || interrupts,
            taints: settings.config.node_leaving_taints.clone(),
            known: Mutex::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, NodeFacts>> {
        // Each change is a single step.
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes down how a node is; answers with its name if that matters to jobs on it.
    fn see(&self, event: watcher::Event<Node>, now: Timestamp) -> Option<String> {
        let facts = match event {
            watcher::Event::Apply(node) | watcher::Event::InitApply(node) => {
                NodeFacts::of(&node, &self.taints)
            }
            watcher::Event::Delete(node) => {
                let name = node.metadata.name?;
                let silent_since = self.lock().get(&name).and_then(|facts| facts.silent_since);
                NodeFacts::deleted(name, silent_since.unwrap_or(now))
            }
            watcher::Event::Init | watcher::Event::InitDone => return None,
        };
        let name = facts.name.clone();
        let is_plain = facts.silent_since.is_none() && facts.leaving.is_none();
        let before = if is_plain {
            self.lock().remove(&name)
        } else {
            self.lock().insert(name.clone(), facts.clone())
        };
        (before.as_ref() != Some(&facts) && !(is_plain && before.is_none())).then_some(name)
    }
}

/// The BuildJobs on nodes that fall silent, or are about to go. An operator that may not see nodes goes by what becomes of their pods.
pub(super) fn follow(context: &Arc<Context>) -> impl Stream<Item = ObjectRef<BuildJob>> + use<> {
    let context = context.clone();
    stream::once(async move {
        let api = Api::<Node>::all(context.nodes.streams.clone());
        let may_see = context.nodes.is_wanted && may_see(&api).await;
        let watching = may_see.then(|| watcher(api, settings::watch()).backoff(settings::pauses()));
        let events = stream::iter(watching).flatten();
        events.flat_map(move |event| {
            let touched = match event {
                Ok(event) => context.nodes.see(event, Timestamp::now()),
                Err(error) => {
                    tracing::warn!(error = bk_ops::report::one_line(&error), "cannot watch nodes");
                    None
                }
            };
            stream::iter(touched.map(|node| concerned(&context, &node)).unwrap_or_default())
        })
    })
    .flatten()
    .chain(stream::pending())
}

async fn may_see(api: &Api<Node>) -> bool {
    match api.list(&ListParams::default().limit(1)).await {
        Err(kube::Error::Api(status)) if status.code == 403 => {
            tracing::info!(
                "the operator may not see nodes: jobs on one that is lost end when the cluster takes their pods away"
            );
            false
        }
        _ => true,
    }
}

/// The BuildJobs of the pods on a node. Deleted ones that no pod is on are forgotten: their names may never come again.
fn concerned(context: &Context, node: &str) -> Vec<ObjectRef<BuildJob>> {
    let pods = context.pods.all();
    let is_on = |pod: &JobPod, name: &str| pod.facts().node.as_deref() == Some(name);
    let has_pods = |name: &str| pods.iter().any(|pod| is_on(pod, name));
    context.nodes.lock().retain(|name, facts| !facts.is_deleted || has_pods(name));
    let there = pods.iter().filter(|pod| is_on(pod, node));
    there.filter_map(|pod| Some(ObjectRef::new(pod.build_job()?).within(&context.namespace))).collect()
}

/// How the node of a pod is. Before a job is ended because of its silence, the API server is asked again.
pub(super) async fn of(context: &Context, pod: Option<&PodFacts>) -> Result<Option<NodeFacts>, Error> {
    let Some(name) = pod.and_then(|pod| pod.node.as_deref()) else { return Ok(None) };
    let Some(facts) = context.nodes.lock().get(name).cloned() else { return Ok(None) };
    let patience = SignedDuration::from_secs(context.rules.pod.config.node_loss_seconds.into());
    let is_due = facts.silent_since.is_some_and(|since| Timestamp::now().duration_since(since) >= patience);
    if !is_due {
        return Ok(Some(facts));
    }
    let api = Api::<Node>::all(context.client.clone());
    let node = api.get_opt(name).await.map_err(Error::kubernetes(format!("read node {name}")))?;
    let deleted = || facts.silent_since.map(|since| NodeFacts::deleted(name.to_owned(), since));
    Ok(node.map(|node| NodeFacts::of(&node, &context.nodes.taints)).or_else(deleted))
}
