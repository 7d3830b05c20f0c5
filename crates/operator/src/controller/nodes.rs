//! The nodes that job pods are on, if the operator may see nodes.

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

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
use tokio::sync::watch;

use super::Context;
use crate::{
    error::Error,
    settings::{self, Cluster},
};

/// How long a node may take to be heard of when the API server can be reached again: kubelets write every ten seconds, and take a while to notice.
const REUNION: SignedDuration = SignedDuration::from_secs(30);

/// The nodes that job pods are on.
pub(super) struct Nodes {
    streams: Client,
    is_wanted: bool,
    known: Mutex<Known>,
    /// Whether all nodes have been seen, or cannot be.
    settled: watch::Sender<bool>,
}

impl Nodes {
    pub(super) fn new(cluster: &Cluster, settings: &PodSettings) -> Self {
        let interrupts = settings.config.node_leaving == NodeLeaving::Interrupt;
        // Agents may have registered by way of the operator though pods are told of no broker any more.
        let has_broker = !settings.broker_secrets.is_empty();
        Self {
            streams: cluster.streams.clone(),
            is_wanted: has_broker || interrupts,
            known: Mutex::new(Known::new(settings.config.node_leaving_taints.clone())),
            settled: watch::Sender::new(false),
        }
    }

    /// Waits until it is known which nodes are silent, or that this cannot be seen for now.
    pub(super) async fn complete(&self) {
        let mut settled = self.settled.subscribe();
        // This holds the sender.
        let _never = settled.wait_for(|settled| *settled).await;
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        // Each change is a single step.
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What is known of nodes.
struct Known {
    /// Taints that say that a node is about to go, besides those that everybody knows.
    taints: Vec<String>,
    /// How those are of which there is something to say.
    nodes: HashMap<String, NodeFacts>,
    /// All that there are, once they have been listed.
    names: Option<HashSet<String>>,
    /// Those of a list that has begun.
    listing: HashSet<String>,
    /// When a node may be as silent as it looks: not while it may have been cut off as we were.
    reunion: Timestamp,
}

impl Known {
    fn new(taints: Vec<String>) -> Self {
        let (nodes, listing) = (HashMap::new(), HashSet::new());
        Self { taints, nodes, names: None, listing, reunion: Timestamp::MIN }
    }

    /// Takes down how a node is; answers with its name if that matters to jobs on it.
    fn see(&mut self, event: watcher::Event<Node>, now: Timestamp) -> Option<String> {
        let facts = match event {
            watcher::Event::Apply(node) => {
                let facts = NodeFacts::of(&node, &self.taints);
                if let Some(names) = &mut self.names {
                    names.insert(facts.name.clone());
                }
                let noticed = self.silent_since(&facts.name).unwrap_or(now.max(self.reunion));
                facts.counted_from(noticed)
            }
            // While nobody watched, the node may have been as cut off as we were: it has time to say something.
            watcher::Event::InitApply(node) => {
                let facts = NodeFacts::of(&node, &self.taints);
                self.listing.insert(facts.name.clone());
                facts.counted_from(now + REUNION)
            }
            watcher::Event::Delete(node) => {
                let name = node.metadata.name?;
                if let Some(names) = &mut self.names {
                    names.remove(&name);
                }
                let noticed = self.silent_since(&name).unwrap_or(now);
                NodeFacts::deleted(name, noticed)
            }
            watcher::Event::Init => {
                self.listing.clear();
                return None;
            }
            watcher::Event::InitDone => {
                self.names = Some(std::mem::take(&mut self.listing));
                return None;
            }
        };
        let name = facts.name.clone();
        let is_plain = facts.silent_since.is_none() && facts.leaving.is_none();
        let before =
            if is_plain { self.nodes.remove(&name) } else { self.nodes.insert(name.clone(), facts.clone()) };
        (before.as_ref() != Some(&facts) && !(is_plain && before.is_none())).then_some(name)
    }

    /// Takes down that nodes cannot be watched for now. A watch that goes on later does not say that it was away.
    fn lose_sight(&mut self, now: Timestamp) {
        self.reunion = now + REUNION;
    }

    fn silent_since(&self, name: &str) -> Option<Timestamp> {
        self.nodes.get(name)?.silent_since
    }

    /// Whether there is no such node any more. One that was deleted while nobody watched is told of by nobody.
    fn lacks(&self, name: &str) -> bool {
        self.names.as_ref().is_some_and(|names| !names.contains(name))
    }

    /// How a node is, if there is something to say of it.
    fn facts(&mut self, name: &str, now: Timestamp) -> Option<NodeFacts> {
        if self.lacks(name) && !self.nodes.get(name).is_some_and(|facts| facts.is_deleted) {
            let noticed = self.silent_since(name).unwrap_or(now);
            self.nodes.insert(name.to_owned(), NodeFacts::deleted(name.to_owned(), noticed));
        }
        self.nodes.get(name).cloned()
    }
}

/// The BuildJobs on nodes that fall silent, or are about to go. An operator that may not see nodes goes by what becomes of their pods.
pub(super) fn follow(context: &Arc<Context>) -> impl Stream<Item = ObjectRef<BuildJob>> + use<> {
    let context = context.clone();
    stream::once(async move {
        let api = Api::<Node>::all(context.nodes.streams.clone());
        let may_see = context.nodes.is_wanted && may_see(&api).await;
        if !may_see {
            context.nodes.settled.send_replace(true);
        }
        let watching = may_see.then(|| watcher(api, settings::watch()).backoff(settings::pauses()));
        let events = stream::iter(watching).flatten();
        events.flat_map(move |event| {
            let concerned = match event {
                Ok(event) => {
                    let is_whole = matches!(event, watcher::Event::InitDone);
                    let touched = context.nodes.lock().see(event, Timestamp::now());
                    let concerned = touched.map(|node| concerned(&context, &node)).unwrap_or_default();
                    if is_whole { bereft(&context) } else { concerned }
                }
                Err(error) => {
                    tracing::warn!(error = bk_ops::report::one_line(&error), "cannot watch nodes");
                    context.nodes.lock().lose_sight(Timestamp::now());
                    // Other work does not wait for it.
                    context.nodes.settled.send_replace(true);
                    Vec::new()
                }
            };
            stream::iter(concerned)
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
    context.nodes.lock().nodes.retain(|name, facts| !facts.is_deleted || has_pods(name));
    build_jobs(context, pods.iter().filter(|pod| is_on(pod, node)))
}

/// The BuildJobs of the pods whose nodes are not among those that have just been listed. Pods that are not known yet are looked at anyway.
fn bereft(context: &Context) -> Vec<ObjectRef<BuildJob>> {
    context.nodes.settled.send_replace(true);
    let pods = context.pods.all();
    let known = context.nodes.lock();
    build_jobs(
        context,
        pods.iter().filter(|pod| pod.facts().node.as_deref().is_some_and(|node| known.lacks(node))),
    )
}

fn build_jobs<'a>(
    context: &Context,
    pods: impl Iterator<Item = &'a Arc<JobPod>>,
) -> Vec<ObjectRef<BuildJob>> {
    pods.filter_map(|pod| Some(ObjectRef::new(pod.build_job()?).within(&context.namespace))).collect()
}

/// How the node of a pod is. Before a job is ended because of its silence, the API server is asked again.
pub(super) async fn of(context: &Context, pod: Option<&PodFacts>) -> Result<Option<NodeFacts>, Error> {
    let Some(name) = pod.and_then(|pod| pod.node.as_deref()) else { return Ok(None) };
    let Some(facts) = context.nodes.lock().facts(name, Timestamp::now()) else { return Ok(None) };
    let patience = SignedDuration::from_secs(context.rules.pod.config.node_loss_seconds.into());
    let is_due = facts.silent_since.is_some_and(|since| Timestamp::now().duration_since(since) >= patience);
    if !is_due {
        return Ok(Some(facts));
    }
    let api = Api::<Node>::all(context.client.clone());
    let node = api.get_opt(name).await.map_err(Error::kubernetes(format!("read node {name}")))?;
    let noticed = facts.silent_since.unwrap_or_default();
    Ok(Some(match node {
        Some(node) => NodeFacts::of(&node, &context.nodes.lock().taints).counted_from(noticed),
        None => NodeFacts::deleted(name.to_owned(), noticed),
    }))
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use watcher::Event::{Apply, Delete, Init, InitApply, InitDone};

    use super::*;

    fn node(ready: &str) -> Node {
        let condition = json!({"type": "Ready", "status": ready, "lastTransitionTime": at(0)});
        serde_json::from_value(json!({"metadata": {"name": "n"}, "status": {"conditions": [condition]}}))
            .unwrap()
    }

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + seconds).unwrap()
    }

    fn known() -> Known {
        Known::new(Vec::new())
    }

    #[test]
    fn silence_counts_from_when_it_was_noticed_and_ends() {
        let mut known = known();
        assert_eq!(known.see(Apply(node("True")), at(1)), None);
        assert_eq!(known.see(Apply(node("Unknown")), at(2)).as_deref(), Some("n"));
        assert_eq!(known.see(Apply(node("Unknown")), at(5)), None, "it is known");
        assert_eq!(known.silent_since("n"), Some(at(2)));
        assert_eq!(known.see(Apply(node("True")), at(6)).as_deref(), Some("n"));
        assert!(known.nodes.is_empty());
    }

    /// The cluster has noticed the silence long ago; the node may be about to say something, as we can again.
    #[test]
    fn a_node_has_time_to_be_heard_of_when_the_cluster_can_be_reached_again() {
        let mut known = known();
        known.see(Apply(node("Unknown")), at(2));
        assert_eq!(known.see(InitApply(node("Unknown")), at(90)).as_deref(), Some("n"));
        assert_eq!(known.silent_since("n"), Some(at(90) + REUNION));
    }

    /// A watch that was broken off goes on where it was, and tells of what has happened meanwhile as if it happened now.
    #[test]
    fn a_node_has_time_to_be_heard_of_when_the_watch_goes_on() {
        let mut known = known();
        known.lose_sight(at(80));
        known.see(Apply(node("Unknown")), at(90));
        assert_eq!(known.silent_since("n"), Some(at(80) + REUNION));
        let mut known = self::known();
        known.lose_sight(at(10));
        known.see(Apply(node("Unknown")), at(90));
        assert_eq!(known.silent_since("n"), Some(at(90)), "that was long ago");
    }

    #[test]
    fn a_node_that_was_deleted_while_nobody_watched_is_missed() {
        let mut known = known();
        assert_eq!(known.facts("gone", at(1)), None, "nothing is known yet");
        for event in [Init, InitApply(node("True")), InitDone] {
            known.see(event, at(2));
        }
        assert_eq!(known.facts("n", at(3)), None);
        let gone = Some(NodeFacts::deleted("gone".to_owned(), at(3)));
        assert_eq!(
            [known.facts("gone", at(3)), known.facts("gone", at(9))],
            [gone.clone(), gone],
            "since then"
        );
        let mut new = node("True");
        new.metadata.name = Some("gone".to_owned());
        known.see(Apply(new), at(10));
        assert_eq!(known.facts("gone", at(11)), None, "it is there after all");
    }

    #[test]
    fn a_node_that_is_deleted_is_silent_from_then_on_or_before() {
        let mut known = known();
        assert_eq!(known.see(Delete(node("True")), at(3)).as_deref(), Some("n"));
        assert_eq!(known.nodes["n"], NodeFacts::deleted("n".to_owned(), at(3)));
        let mut known = self::known();
        known.see(Apply(node("Unknown")), at(1));
        known.see(Delete(node("Unknown")), at(3));
        assert_eq!(known.silent_since("n"), Some(at(1)));
    }
}
