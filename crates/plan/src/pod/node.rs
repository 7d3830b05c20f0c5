//! The nodes that a pod may land on, so far as its spec tells.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{NodeSelectorRequirement, NodeSelectorTerm, PodSpec};

const ARCHITECTURE: [&str; 2] = ["kubernetes.io/arch", "beta.kubernetes.io/arch"];
const SYSTEM: [&str; 2] = ["kubernetes.io/os", "beta.kubernetes.io/os"];

/// Which of `offered` architectures, as nodes' labels have them, a pod may land on. What it asks for beyond them counts too:
/// nodes may come later.
pub(super) fn architectures(spec: &PodSpec, offered: &BTreeSet<String>) -> BTreeSet<String> {
    possible(spec, &ARCHITECTURE, offered)
}

/// Whether the pod can only land on Windows nodes.
pub(super) fn is_windows(spec: &PodSpec) -> bool {
    let named = spec.os.as_ref().is_some_and(|os| os.name == "windows");
    let offered = BTreeSet::from(["linux".to_owned()]);
    named || possible(spec, &SYSTEM, &offered) == BTreeSet::from(["windows".to_owned()])
}

/// The values that a node's label may have, under any of these names.
fn possible(spec: &PodSpec, labels: &[&str], offered: &BTreeSet<String>) -> BTreeSet<String> {
    let mut values = everything(spec, labels, offered);
    for label in labels {
        if let Some(value) =
            spec.node_selector.iter().flatten().find(|(key, _)| key == label).map(|(_, value)| value)
        {
            values.retain(|other| other == value);
        }
    }
    let terms = terms(spec);
    if terms.is_empty() {
        return values;
    }
    // A node has to match one of the terms.
    let allowed: BTreeSet<String> = terms
        .iter()
        .flat_map(|term| {
            let requirements = term.match_expressions.iter().flatten();
            let about: Vec<_> = requirements.filter(|r| labels.contains(&r.key.as_str())).collect();
            values
                .iter()
                .filter(move |value| about.iter().all(|r| permits(r, value)))
                .cloned()
                .collect::<Vec<_>>()
        })
        .collect();
    allowed
}

/// What is offered, and every value that the pod itself names.
fn everything(spec: &PodSpec, labels: &[&str], offered: &BTreeSet<String>) -> BTreeSet<String> {
    let selected = spec.node_selector.iter().flatten().filter(|(key, _)| labels.contains(&key.as_str()));
    let required = terms(spec)
        .into_iter()
        .flat_map(|term| term.match_expressions.iter().flatten())
        .filter(|requirement| labels.contains(&requirement.key.as_str()) && requirement.operator == "In")
        .flat_map(|requirement| requirement.values.iter().flatten());
    offered.iter().chain(selected.map(|(_, value)| value)).chain(required).cloned().collect()
}

fn terms(spec: &PodSpec) -> Vec<&NodeSelectorTerm> {
    let affinity = spec.affinity.as_ref().and_then(|affinity| affinity.node_affinity.as_ref());
    let required =
        affinity.and_then(|affinity| affinity.required_during_scheduling_ignored_during_execution.as_ref());
    required.into_iter().flat_map(|selector| &selector.node_selector_terms).collect()
}

fn permits(requirement: &NodeSelectorRequirement, value: &String) -> bool {
    let listed = requirement.values.iter().flatten().any(|listed| listed == value);
    match requirement.operator.as_str() {
        "In" => listed,
        "NotIn" => !listed,
        "DoesNotExist" => false,
        _ => true,
    }
}

#[cfg(test)]
mod tests;
