//! Node + pod → it fits, or what keeps it from there.
//!
//! This is what the scheduler looks at first: whether the node takes pods, its taints, its labels, and what is left of it. What it does
//! not see is named by [`unexamined`].

mod amounts;

use std::{collections::BTreeMap, fmt};

use k8s_openapi::api::core::v1::{
    Node, NodeSelectorRequirement, NodeSelectorTerm, PodSpec, Taint, Toleration,
};

pub use amounts::Amounts;
pub(crate) use amounts::PODS;

/// The taint of a node that is to take no more pods.
const UNSCHEDULABLE: &str = "node.kubernetes.io/unschedulable";
/// Taints that say how a node is, or that its last hour has come, and not what it is for.
const STATES: [&str; 4] = [
    "node.kubernetes.io/",
    "node.cloudprovider.kubernetes.io/",
    "ToBeDeletedByClusterAutoscaler",
    "DeletionCandidateOfClusterAutoscaler",
];
const NO_SCHEDULE: &str = "NoSchedule";

/// What keeps a pod from a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Obstacle {
    /// The pod is for another node, by its name.
    OtherNode(String),
    /// The node takes no more pods.
    Cordoned,
    /// The node has a taint that the pod does not tolerate.
    Taint {
        /// The taint, as `key=value:effect`.
        taint: String,
        /// Whether it says how the node is at the moment, and not what it is for.
        is_state: bool,
    },
    /// The node's labels are not what the pod's selector says.
    Selector {
        /// The label's key.
        key: String,
        /// The value that the pod asks for.
        wanted: String,
        /// The value that the node has.
        found: Option<String>,
    },
    /// The node fits none of the terms of the pod's affinity; this is what it lacks for each of them.
    Affinity(Vec<String>),
    /// There is not enough of a resource.
    Resource {
        /// The resource's name.
        name: String,
        /// What the pod asks for.
        wanted: String,
        /// What is left of it.
        free: String,
        /// What there is of it for pods in all.
        total: String,
        /// Whether it were enough if the node were empty.
        would_do: bool,
    },
}

impl Obstacle {
    /// Whether it can go by itself: when other pods end, or the node gets well. The others hold until somebody changes the node or the pod.
    pub fn may_pass(&self) -> bool {
        match self {
            Self::Cordoned => true,
            Self::Taint { is_state, .. } => *is_state,
            Self::Resource { would_do, .. } => *would_do,
            Self::OtherNode(_) | Self::Selector { .. } | Self::Affinity(_) => false,
        }
    }
}

impl fmt::Display for Obstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OtherNode(name) => write!(f, "the pod is for node {name} alone"),
            Self::Cordoned => write!(f, "the node is cordoned"),
            Self::Taint { taint, .. } => write!(f, "taint {taint} is not tolerated"),
            Self::Selector { key, wanted, found: Some(found) } => {
                write!(f, "label {key} is {found}, not {wanted}")
            }
            Self::Selector { key, wanted, found: None } => write!(f, "there is no label {key}={wanted}"),
            Self::Affinity(lacks) if lacks.is_empty() => write!(f, "the pod's affinity fits no node"),
            Self::Affinity(lacks) => write!(f, "affinity: {}", lacks.join("; or ")),
            Self::Resource { name, wanted, free, would_do: true, total } => {
                write!(f, "{name}: {wanted} wanted, {free} of {total} left")
            }
            Self::Resource { name, wanted, total, would_do: false, .. } => {
                write!(f, "{name}: {wanted} wanted, the node has {total}")
            }
        }
    }
}

/// What keeps a pod from a node on which pods take `used` already; nothing if it fits.
pub fn obstacles(pod: &PodSpec, node: &Node, used: &Amounts) -> Vec<Obstacle> {
    let mut found = Vec::new();
    let name = node.metadata.name.as_deref().unwrap_or_default();
    found.extend(pod.node_name.clone().filter(|wanted| wanted != name).map(Obstacle::OtherNode));
    taints(pod, node, &mut found);
    found.extend(labels(pod, node, name));
    found.extend(resources(pod, node, used));
    found
}

/// What the pod says about nodes that [`obstacles`] does not look at.
pub fn unexamined(pod: &PodSpec) -> Vec<&'static str> {
    let affinity = pod.affinity.as_ref();
    let ports = pod.containers.iter().flat_map(|container| container.ports.iter().flatten());
    let claims = pod.volumes.iter().flatten().any(|volume| {
        volume.persistent_volume_claim.is_some() || volume.ephemeral.is_some() || volume.csi.is_some()
    });
    [
        (affinity.is_some_and(|a| a.pod_affinity.is_some()), "pod affinity"),
        (affinity.is_some_and(|a| a.pod_anti_affinity.is_some()), "pod anti-affinity"),
        (pod.topology_spread_constraints.iter().flatten().next().is_some(), "topology spread"),
        (pod.resource_claims.iter().flatten().next().is_some(), "resource claims"),
        (claims, "volumes"),
        (ports.into_iter().any(|port| port.host_port.is_some()), "host ports"),
    ]
    .into_iter()
    .filter_map(|(is_there, what)| is_there.then_some(what))
    .collect()
}

fn taints(pod: &PodSpec, node: &Node, found: &mut Vec<Obstacle>) {
    let Some(spec) = &node.spec else { return };
    let tolerations = pod.tolerations.as_deref().unwrap_or_default();
    if spec.unschedulable == Some(true) {
        let taint =
            Taint { key: UNSCHEDULABLE.to_owned(), effect: NO_SCHEDULE.to_owned(), ..Taint::default() };
        if !tolerations.iter().any(|toleration| tolerates(toleration, &taint)) {
            found.push(Obstacle::Cordoned);
        }
    }
    for taint in spec.taints.iter().flatten() {
        let binds = matches!(taint.effect.as_str(), NO_SCHEDULE | "NoExecute") && taint.key != UNSCHEDULABLE;
        if binds && !tolerations.iter().any(|toleration| tolerates(toleration, taint)) {
            let value = taint.value.as_ref().filter(|value| !value.is_empty());
            let value = value.map(|value| format!("={value}")).unwrap_or_default();
            found.push(Obstacle::Taint {
                taint: format!("{}{value}:{}", taint.key, taint.effect),
                is_state: STATES.iter().any(|state| taint.key.starts_with(state)),
            });
        }
    }
}

fn tolerates(toleration: &Toleration, taint: &Taint) -> bool {
    let of = |text: &Option<String>| text.clone().unwrap_or_default();
    let (key, effect) = (of(&toleration.key), of(&toleration.effect));
    let exists = toleration.operator.as_deref() == Some("Exists");
    (effect.is_empty() || effect == taint.effect)
        && (key == taint.key || (key.is_empty() && exists))
        && (exists || of(&toleration.value) == of(&taint.value))
}

fn labels(pod: &PodSpec, node: &Node, name: &str) -> Vec<Obstacle> {
    let no_labels = BTreeMap::new();
    let labels = node.metadata.labels.as_ref().unwrap_or(&no_labels);
    let differing =
        pod.node_selector.iter().flatten().filter(|(key, wanted)| labels.get(*key) != Some(*wanted));
    let mut found: Vec<Obstacle> = differing
        .map(|(key, wanted)| Obstacle::Selector {
            key: key.clone(),
            wanted: wanted.clone(),
            found: labels.get(key).cloned(),
        })
        .collect();
    let affinity = pod.affinity.as_ref().and_then(|affinity| affinity.node_affinity.as_ref());
    if let Some(required) =
        affinity.and_then(|own| own.required_during_scheduling_ignored_during_execution.as_ref())
    {
        let lacks: Vec<Option<String>> =
            required.node_selector_terms.iter().map(|term| lack(term, labels, name)).collect();
        if lacks.iter().all(Option::is_some) {
            let mut lacks: Vec<String> =
                lacks.into_iter().flatten().filter(|lack| !lack.is_empty()).collect();
            lacks.dedup();
            found.push(Obstacle::Affinity(lacks));
        }
    }
    found
}

/// What a node lacks for a term; nothing if it fits. A term that says nothing fits no node.
fn lack(term: &NodeSelectorTerm, labels: &BTreeMap<String, String>, name: &str) -> Option<String> {
    let expressions = term.match_expressions.iter().flatten();
    let by_label = expressions.map(|rule| (rule, labels.get(&rule.key).map(String::as_str)));
    // The only field that there is.
    let fields = term.match_fields.iter().flatten();
    let by_field = fields.map(|rule| (rule, (rule.key == "metadata.name").then_some(name)));
    let rules: Vec<_> = by_label.chain(by_field).collect();
    let unmet: Vec<String> = rules
        .iter()
        .filter(|(rule, value)| !holds(rule, *value))
        .map(|(rule, value)| unmet(rule, *value))
        .collect();
    (rules.is_empty() || !unmet.is_empty()).then(|| unmet.join(" and "))
}

fn holds(rule: &NodeSelectorRequirement, value: Option<&str>) -> bool {
    let values = rule.values.as_deref().unwrap_or_default();
    let is_one = || value.is_some_and(|value| values.iter().any(|wanted| wanted == value));
    let number = |text: Option<&str>| text.and_then(|text| text.parse::<i64>().ok());
    let limit = || number(values.first().map(String::as_str));
    match rule.operator.as_str() {
        "In" => is_one(),
        "NotIn" => !is_one(),
        "Exists" => value.is_some(),
        "DoesNotExist" => value.is_none(),
        "Gt" => number(value).zip(limit()).is_some_and(|(value, limit)| value > limit),
        "Lt" => number(value).zip(limit()).is_some_and(|(value, limit)| value < limit),
        _ => false,
    }
}

fn unmet(rule: &NodeSelectorRequirement, value: Option<&str>) -> String {
    let values = rule.values.as_deref().unwrap_or_default().join(", ");
    let relation = match rule.operator.as_str() {
        "In" => format!("one of {values}"),
        "NotIn" => format!("none of {values}"),
        "Exists" => "there".to_owned(),
        "DoesNotExist" => "absent".to_owned(),
        "Gt" => format!("greater than {values}"),
        "Lt" => format!("less than {values}"),
        other => format!("{other} {values}"),
    };
    format!("{} has to be {relation}, and is {}", rule.key, value.unwrap_or("not there"))
}

fn resources(pod: &PodSpec, node: &Node, used: &Amounts) -> Vec<Obstacle> {
    let total = Amounts::of_node(node);
    let wanted = Amounts::of_pod(pod);
    let short = wanted.iter().filter(|(name, amount)| *amount > total.get(name) - used.get(name));
    short
        .map(|(name, amount)| Obstacle::Resource {
            name: name.to_owned(),
            wanted: Amounts::shown(name, amount),
            free: Amounts::shown(name, (total.get(name) - used.get(name)).max(0)),
            total: Amounts::shown(name, total.get(name)),
            would_do: amount <= total.get(name),
        })
        .collect()
}

#[cfg(test)]
mod tests;
