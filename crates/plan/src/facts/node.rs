//! Node → what matters about it for the jobs on it.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, NodeCondition};

/// Taints by which clouds, autoscalers and people say that a node is about to go.
const LEAVING: [&str; 9] = [
    "ToBeDeletedByClusterAutoscaler",
    "aws-node-termination-handler/asg-lifecycle-termination",
    "aws-node-termination-handler/scheduled-maintenance",
    "aws-node-termination-handler/spot-itn",
    "cloud.google.com/impending-node-termination",
    "karpenter.sh/disrupted",
    "karpenter.sh/disruption",
    "node.cloudprovider.kubernetes.io/shutdown",
    "node.kubernetes.io/out-of-service",
];

/// What a kubelet says that shuts its node down.
const SHUTTING_DOWN: &str = "shutting down";

/// What matters about a node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeFacts {
    /// Its name.
    pub name: String,
    /// Since when its kubelet has not been heard of, if it has not, as the cluster says or [as it was noticed](Self::counted_from).
    pub silent_since: Option<Timestamp>,
    /// Whether it is none of the cluster's any more; it is silent since then at the latest.
    pub is_deleted: bool,
    /// By what it says that it is about to go, if it does.
    pub leaving: Option<String>,
}

impl NodeFacts {
    /// A node that has been deleted. The cluster takes up to a minute to take its pods away.
    pub fn deleted(name: String, silent_since: Timestamp) -> Self {
        Self { name, silent_since: Some(silent_since), is_deleted: true, leaving: None }
    }

    /// The same, with its silence, if it is silent, counted from when somebody heard of it: the cluster may have noticed while nobody could.
    #[must_use]
    pub fn counted_from(self, noticed: Timestamp) -> Self {
        Self { silent_since: self.silent_since.map(|_| noticed), ..self }
    }

    /// Reads the facts off a node. These taints count besides those that are known.
    pub fn of(node: &Node, taints: &[String]) -> Self {
        let conditions = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
        let ready = conditions.rev().find(|condition| condition.type_ == "Ready");
        let silent = ready.filter(|ready| ready.status == "Unknown");
        let is_known = |key: &str| LEAVING.contains(&key) || taints.iter().any(|own| own == key);
        let set = node.spec.iter().flat_map(|spec| spec.taints.iter().flatten());
        let leaving = set.map(|taint| taint.key.as_str()).find(|key| is_known(key)).map(str::to_owned);
        Self {
            name: node.metadata.name.clone().unwrap_or_default(),
            silent_since: silent.map(since),
            is_deleted: false,
            leaving: leaving.or_else(|| ready.and_then(shuts_down)),
        }
    }
}

/// Without a time it has been so for ever.
fn since(condition: &NodeCondition) -> Timestamp {
    condition.last_transition_time.as_ref().map_or(Timestamp::UNIX_EPOCH, |time| time.0)
}

fn shuts_down(ready: &NodeCondition) -> Option<String> {
    let message = ready.message.as_deref().filter(|_| ready.status == "False")?;
    message.contains(SHUTTING_DOWN).then(|| message.to_owned())
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;

    fn facts(ready: &str, message: &str, taint: &str) -> NodeFacts {
        let node: Value = json!({
            "metadata": {"name": "n"},
            "spec": {"taints": [{"key": "other", "effect": "NoSchedule"}, {"key": taint, "effect": "NoSchedule"}]},
            "status": {"conditions": [
                {"type": "MemoryPressure", "status": "Unknown"},
                {"type": "Ready", "status": ready, "message": message, "lastTransitionTime": Timestamp::UNIX_EPOCH}]},
        });
        NodeFacts::of(&serde_json::from_value(node).unwrap(), &["ours/leaving".to_owned()])
    }

    #[rstest]
    #[case::well("True", "kubelet is posting ready status", "", false, None)]
    #[case::silent("Unknown", "Kubelet stopped posting node status.", "", true, None)]
    #[case::unwell("False", "container runtime is down", "", false, None)]
    #[case::shutting_down("False", "node is shutting down", "", false, Some("node is shutting down"))]
    #[case::spot(
        "True",
        "",
        "aws-node-termination-handler/spot-itn",
        false,
        Some("aws-node-termination-handler/spot-itn")
    )]
    #[case::by_configuration("True", "", "ours/leaving", false, Some("ours/leaving"))]
    #[case::cordoned("True", "", "node.kubernetes.io/unschedulable", false, None)]
    fn a_node_is_silent_or_about_to_go(
        #[case] ready: &str,
        #[case] message: &str,
        #[case] taint: &str,
        #[case] silent: bool,
        #[case] leaving: Option<&str>,
    ) {
        let facts = facts(ready, message, taint);
        assert_eq!((facts.silent_since.is_some(), facts.leaving.as_deref()), (silent, leaving));
    }
}
