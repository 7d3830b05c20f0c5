//! The pods' nodes, each of which has one: whether they are heard of, and whether they stay.

use std::collections::BTreeMap;

use bk_api::config::NodeLeaving;
use bk_plan::facts::NodeFacts;

use super::{
    kubelet::Step,
    operator::Failure,
    world::{Event, Instant, PodId, World, whole_seconds},
};

/// What the cluster says about the nodes that are not well, by the id of the pod on each.
pub(crate) type Nodes = BTreeMap<String, NodeFacts>;

/// How long the cluster takes to notice that a node does not answer.
pub(crate) const NOTICED: Instant = 20_000;

/// How long pods tolerate that: `nodeLossSeconds`.
pub(crate) const TOLERATION: Instant = 10_000;

/// In per cent: how often a budget is against an eviction.
const BUDGETS: i64 = 20;

impl World {
    /// The cluster notices that a node does not answer.
    pub(super) fn fall_silent(&mut self, pod: PodId) {
        self.note(|_| format!("pod-{pod}: its node is silent"));
        self.node(pod).silent_since = Some(whole_seconds(self.now).0);
        self.publish_pods();
        if self.has_job(pod) {
            self.await_end(pod);
        }
    }

    /// A node says that it is about to go, and goes.
    pub(super) fn node_leaves(&mut self, pod: PodId) {
        self.node(pod).leaving = Some("karpenter.sh/disrupted".to_owned());
        self.publish_pods();
        let delay = self.random.between(1_000, 120_000);
        self.after(delay, Event::Pod(pod, Step::NodeGone));
    }

    fn node(&mut self, pod: PodId) -> &mut NodeFacts {
        let node = self.nodes.entry(format!("pod-{pod}")).or_default();
        "node-1".clone_into(&mut node.name);
        node
    }

    /// The operator asks for an eviction, to which a budget may be opposed.
    pub(super) fn evict_by_request(&mut self, uid: &str) -> Result<(), Failure> {
        if self.rules.pod.config.node_leaving != NodeLeaving::Interrupt {
            self.violate("a job is interrupted that may wait");
        }
        let pod = self.pods.values().find(|stored| stored.facts.uid == uid).map(|stored| stored.id);
        if self.random.chance(BUDGETS) {
            return Err(Failure::Api);
        }
        self.write(|world| {
            if let Some(pod) = pod {
                world.evictions += 1;
                world.disrupt(pod, "EvictionByEvictionAPI");
            }
        })
    }
}
