//! Which nodes a pod may go to, and how soon it leaves a node that is lost.

use bk_api::{
    config::{Architecture, PodConfig},
    placement::{NodeOperator, NodePreference, NodeRequirement},
};
use k8s_openapi::api::core::v1::{
    Affinity, NodeAffinity, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, PodAffinity,
    PodAntiAffinity, PodSpec, PreferredSchedulingTerm, Toleration,
};

use super::append;
use crate::environment::Needs;

/// Taints of a node that does not answer. Kubernetes itself has pods tolerate them for five minutes.
const LOST_NODE: [&str; 2] = ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"];
const NO_EXECUTE: &str = "NoExecute";
const ARCHITECTURE: &str = "kubernetes.io/arch";

/// Adds what the job and its environments say about nodes to what the pod says already.
pub(super) fn apply(spec: &mut PodSpec, needs: &Needs) {
    let rules = node_affinity(&needs.node_requirements, &needs.node_preferences);
    if rules != NodeAffinity::default() {
        let rules = Affinity { node_affinity: Some(rules), ..Affinity::default() };
        and_affinity(spec.affinity.get_or_insert_default(), &rules);
    }
    tolerate(spec, &needs.tolerations);
}

/// Adds what the configuration says about nodes and nobody else does, once patches are applied.
pub(super) fn finish(spec: &mut PodSpec, config: &PodConfig) {
    keep_to_architectures(spec, &config.architectures);
    leave_lost_nodes(spec, config.node_loss_seconds);
}

/// Adds tolerations that are not there yet.
pub(super) fn tolerate(spec: &mut PodSpec, tolerations: &[Toleration]) {
    for toleration in tolerations {
        let own = spec.tolerations.get_or_insert_default();
        if !own.contains(toleration) {
            own.push(toleration.clone());
        }
    }
}

/// Both hold: what is required by either is required, and all preferences count.
pub(super) fn and_affinity(into: &mut Affinity, other: &Affinity) {
    if let Some(other) = &other.node_affinity {
        and_node_affinity(into.node_affinity.get_or_insert_default(), other);
    }
    if let Some(other) = &other.pod_affinity {
        let into = into.pod_affinity.get_or_insert_with(PodAffinity::default);
        append(
            &mut into.required_during_scheduling_ignored_during_execution,
            other.required_during_scheduling_ignored_during_execution.iter().flatten(),
        );
        append(
            &mut into.preferred_during_scheduling_ignored_during_execution,
            other.preferred_during_scheduling_ignored_during_execution.iter().flatten(),
        );
    }
    if let Some(other) = &other.pod_anti_affinity {
        let into = into.pod_anti_affinity.get_or_insert_with(PodAntiAffinity::default);
        append(
            &mut into.required_during_scheduling_ignored_during_execution,
            other.required_during_scheduling_ignored_during_execution.iter().flatten(),
        );
        append(
            &mut into.preferred_during_scheduling_ignored_during_execution,
            other.preferred_during_scheduling_ignored_during_execution.iter().flatten(),
        );
    }
}

fn and_node_affinity(into: &mut NodeAffinity, other: &NodeAffinity) {
    append(
        &mut into.preferred_during_scheduling_ignored_during_execution,
        other.preferred_during_scheduling_ignored_during_execution.iter().flatten(),
    );
    let Some(required) = &other.required_during_scheduling_ignored_during_execution else { return };
    let own = into.required_during_scheduling_ignored_during_execution.get_or_insert_default();
    own.node_selector_terms = if own.node_selector_terms.is_empty() {
        required.node_selector_terms.clone()
    } else {
        both(&own.node_selector_terms, &required.node_selector_terms)
    };
}

/// A node fits a list of terms if it fits any of them. So that it fits both lists, each term of one is joined with each of
/// the other.
fn both(one: &[NodeSelectorTerm], other: &[NodeSelectorTerm]) -> Vec<NodeSelectorTerm> {
    one.iter().flat_map(|one| other.iter().map(|other| join(one, other))).collect()
}

/// A term that says nothing fits no node, and neither does one that is joined with it.
fn join(one: &NodeSelectorTerm, other: &NodeSelectorTerm) -> NodeSelectorTerm {
    if says_nothing(one) || says_nothing(other) {
        return NodeSelectorTerm::default();
    }
    let mut term = one.clone();
    append(&mut term.match_expressions, other.match_expressions.iter().flatten());
    append(&mut term.match_fields, other.match_fields.iter().flatten());
    term
}

fn says_nothing(term: &NodeSelectorTerm) -> bool {
    term.match_expressions.iter().flatten().next().is_none()
        && term.match_fields.iter().flatten().next().is_none()
}

fn node_affinity(requirements: &[NodeRequirement], preferences: &[NodePreference]) -> NodeAffinity {
    let preferred: Vec<_> = preferences
        .iter()
        .map(|preference| PreferredSchedulingTerm {
            weight: preference.weight,
            preference: term(&preference.requirements),
        })
        .collect();
    NodeAffinity {
        required_during_scheduling_ignored_during_execution: (!requirements.is_empty())
            .then(|| NodeSelector { node_selector_terms: vec![term(requirements)] }),
        preferred_during_scheduling_ignored_during_execution: (!preferred.is_empty()).then_some(preferred),
    }
}

fn term(requirements: &[NodeRequirement]) -> NodeSelectorTerm {
    let expressions = requirements.iter().map(|requirement| NodeSelectorRequirement {
        key: requirement.key.clone(),
        operator: format!("{:?}", requirement.operator),
        values: (!requirement.values.is_empty()).then(|| requirement.values.clone()),
    });
    NodeSelectorTerm { match_expressions: Some(expressions.collect()), match_fields: None }
}

/// A pod that says nothing about architectures stays on nodes that the configuration speaks of.
fn keep_to_architectures(spec: &mut PodSpec, architectures: &[Architecture]) {
    let affinity = spec.affinity.as_ref().and_then(|affinity| affinity.node_affinity.as_ref());
    let required = affinity.and_then(|own| own.required_during_scheduling_ignored_during_execution.as_ref());
    let expressions = required
        .iter()
        .flat_map(|own| &own.node_selector_terms)
        .flat_map(|term| term.match_expressions.iter().flatten());
    let said = spec.node_selector.iter().flatten().any(|(key, _)| key == ARCHITECTURE)
        || expressions.into_iter().any(|expression| expression.key == ARCHITECTURE);
    if said || architectures.is_empty() {
        return;
    }
    let names = architectures.iter().map(|architecture| match architecture {
        Architecture::Amd64 => "amd64".to_owned(),
        Architecture::Arm64 => "arm64".to_owned(),
    });
    let requirement =
        NodeRequirement { key: ARCHITECTURE.to_owned(), operator: NodeOperator::In, values: names.collect() };
    let rules = Affinity { node_affinity: Some(node_affinity(&[requirement], &[])), ..Affinity::default() };
    and_affinity(spec.affinity.get_or_insert_default(), &rules);
}

/// The pod leaves a node that does not answer soon, so that its job is not waited for in vain; unless its author tolerates
/// that for longer, or for ever.
fn leave_lost_nodes(spec: &mut PodSpec, seconds: u32) {
    let said = |key: &str| {
        spec.tolerations.iter().flatten().any(|own| {
            let taint = own.key.as_deref().unwrap_or_default();
            let effect = own.effect.as_deref().unwrap_or_default();
            (taint.is_empty() || taint == key) && (effect.is_empty() || effect == NO_EXECUTE)
        })
    };
    let added: Vec<_> = LOST_NODE
        .into_iter()
        .filter(|key| !said(key))
        .map(|key| Toleration {
            key: Some(key.to_owned()),
            operator: Some("Exists".to_owned()),
            effect: Some(NO_EXECUTE.to_owned()),
            toleration_seconds: Some(seconds.into()),
            value: None,
        })
        .collect();
    append(&mut spec.tolerations, &added);
}
