//! Whether any node can run a pod, one that there is or one that may come. What passes by itself, such as other pods on it, does not
//! count.

use std::{collections::BTreeMap, sync::Arc};

use bk_api::config::{NewNodes, NodeClass, ValidationConfig};
use k8s_openapi::{
    api::core::v1::{Node, NodeSelectorTerm, NodeSpec, NodeStatus, Pod, PodSpec},
    apimachinery::pkg::{api::resource::Quantity, apis::meta::v1::ObjectMeta},
};

use super::{Certainty, Finding};
use crate::nodes::{Amounts, Obstacle, PODS, obstacles};

/// More of a resource than any pod can ask for.
const PLENTY: &str = "100E";

/// Why nodes cannot run a pod, as far as it is told of several at once; the first reason of each counts.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Reason {
    Name(String),
    Selector,
    Affinity,
    Taint(String),
    Resource { name: String, wanted: String },
}

impl Reason {
    /// None for what passes.
    fn of(obstacle: Obstacle) -> Option<Self> {
        if obstacle.may_pass() {
            return None;
        }
        Some(match obstacle {
            Obstacle::Cordoned => return None,
            Obstacle::OtherNode(name) => Self::Name(name),
            Obstacle::Selector { .. } => Self::Selector,
            Obstacle::Affinity(_) => Self::Affinity,
            Obstacle::Taint { taint, .. } => Self::Taint(taint),
            Obstacle::Resource { name, wanted, .. } => Self::Resource { name, wanted },
        })
    }

    fn path(&self, spec: &PodSpec) -> String {
        match self {
            Self::Name(_) => "pod.spec.nodeName".to_owned(),
            Self::Selector => "pod.spec.nodeSelector".to_owned(),
            Self::Affinity => "pod.spec.affinity.nodeAffinity".to_owned(),
            Self::Taint(_) => "pod.spec.tolerations".to_owned(),
            Self::Resource { name, .. } if name == PODS => "pod.spec".to_owned(),
            Self::Resource { name, .. } => {
                let asks = |container: &&_| Amounts::of_container(container).get(name);
                let container = spec.containers.iter().max_by_key(asks).map_or("", |most| &most.name);
                format!("pod.spec.containers[{container}].resources.requests.{name}")
            }
        }
    }

    fn words(&self, count: usize, candidates: &[Arc<Node>]) -> String {
        let one = count == 1;
        let have = if one { "has" } else { "have" };
        let are = if one { "is" } else { "are" };
        match self {
            Self::Name(name) => format!("{are} not {name}, which it is for"),
            Self::Selector => {
                format!("{} the labels of its nodeSelector", if one { "lacks" } else { "lack" })
            }
            Self::Affinity => format!("{are} not what it requires of nodes"),
            Self::Taint(taint) => format!("{have} the taint {taint}, which it does not tolerate"),
            Self::Resource { name, wanted } => {
                let most = candidates.iter().map(|node| Amounts::of_node(node).get(name)).max();
                let most = Amounts::shown(name, most.unwrap_or_default());
                format!("{have} less {name} than the {wanted} that it requests (the most is {most})")
            }
        }
    }
}

/// What is wrong if no node can run the pod, neither one that there is nor one that may come.
pub(super) fn finding(pod: &Pod, nodes: Option<&[Arc<Node>]>, config: &ValidationConfig) -> Option<Finding> {
    let (spec, nodes) = (pod.spec.as_ref()?, nodes?);
    let new_nodes = config.new_nodes();
    let classes: Vec<&NodeClass> = match new_nodes {
        NewNodes::NodeClasses => config.node_classes.values().collect(),
        NewNodes::Any | NewNodes::None => Vec::new(),
    };
    let mut candidates = nodes.to_vec();
    let mut reasons = BTreeMap::<Reason, usize>::new();
    for node in nodes {
        *reasons.entry(reason(spec, node)?).or_default() += 1;
    }
    for class in &classes {
        let node = example(class, spec);
        *reasons.entry(reason(&without_unsaid(class, spec), &node)?).or_default() += 1;
        candidates.push(Arc::new(node));
    }
    // A cluster without nodes will have some.
    let first = reasons.keys().next()?;
    let path = if reasons.len() == 1 { first.path(spec) } else { "pod.spec".to_owned() };
    let told: Vec<String> = reasons
        .iter()
        .map(|(reason, count)| format!("{count} {}", reason.words(*count, &candidates)))
        .collect();
    let plural =
        |count: usize, one: &str, many: &str| format!("{count} {}", if count == 1 { one } else { many });
    let mut counts = vec![plural(nodes.len(), "node", "nodes")];
    if !classes.is_empty() {
        counts.push(plural(classes.len(), "node class", "node classes"));
    }
    let problem = format!("no node can run it ({}): {}", counts.join(", "), told.join(", "));
    Some(match new_nodes {
        NewNodes::Any => {
            Finding::new(Certainty::Warning, path, format!("{problem}; it waits for one that can"))
        }
        NewNodes::None | NewNodes::NodeClasses => Finding::new(Certainty::Refusal, path, problem),
    })
}

/// The first reason why an empty node cannot run the pod; none if it can.
fn reason(spec: &PodSpec, node: &Node) -> Option<Reason> {
    obstacles(spec, node, &Amounts::default()).into_iter().filter_map(Reason::of).min()
}

/// A node of a class. What every node has, and the class does not name, it has plenty of.
fn example(class: &NodeClass, spec: &PodSpec) -> Node {
    let mut allocatable = class.allocatable.clone();
    for (name, _) in Amounts::of_pod(spec).iter().filter(|(name, _)| !name.contains('/')) {
        allocatable.entry(name.to_owned()).or_insert_with(|| Quantity(PLENTY.to_owned()));
    }
    Node {
        metadata: ObjectMeta { labels: Some(class.labels.clone()), ..ObjectMeta::default() },
        spec: Some(NodeSpec { taints: Some(class.taints.clone()), ..NodeSpec::default() }),
        status: Some(NodeStatus { allocatable: Some(allocatable), ..NodeStatus::default() }),
    }
}

/// The pod without what it asks of labels that Kubernetes itself gives to nodes, and of which the class says nothing: they are taken for
/// the right ones.
fn without_unsaid(class: &NodeClass, spec: &PodSpec) -> PodSpec {
    let is_unsaid = |key: &str| {
        let domain = key.split_once('/').map_or("", |(domain, _)| domain);
        let is_given = domain == "kubernetes.io" || domain.ends_with(".kubernetes.io");
        is_given && !class.labels.contains_key(key)
    };
    let mut spec = spec.clone();
    if let Some(selector) = &mut spec.node_selector {
        selector.retain(|key, _| !is_unsaid(key));
    }
    let affinity = spec.affinity.as_mut().and_then(|affinity| affinity.node_affinity.as_mut());
    let Some(own) = affinity else { return spec };
    let Some(required) = &mut own.required_during_scheduling_ignored_during_execution else { return spec };
    let says_something = |term: &NodeSelectorTerm| {
        term.match_expressions.iter().flatten().next().is_some()
            || term.match_fields.iter().flatten().next().is_some()
    };
    // One that says nothing fits no node.
    required.node_selector_terms.retain(says_something);
    for term in &mut required.node_selector_terms {
        if let Some(rules) = &mut term.match_expressions {
            rules.retain(|rule| !is_unsaid(&rule.key));
        }
    }
    if !required.node_selector_terms.iter().all(says_something) {
        // Of one term nothing is left, and one that fits is enough.
        own.required_during_scheduling_ignored_during_execution = None;
    }
    spec
}
