//! Resource classes: resources, nodes and priority under one name.
//!
//! A class that the job chose goes before what its containers say, as users of Buildkite's own controller know it. A class
//! that is only the operator's default fills in what nobody has said. The BuildJob's own `resources` go before both.

use std::collections::BTreeMap;

use bk_api::{BuildJob, config::ResourceClass};
use k8s_openapi::{
    api::core::v1::{Container, PodSpec, ResourceRequirements},
    apimachinery::pkg::api::resource::Quantity,
};

use super::{PodSettings, RenderError, placement};

/// The agent query rule that chooses a class.
const RULE: &str = "resource_class";

/// A class, and how it came about.
struct Choice<'a> {
    class: &'a ResourceClass,
    /// Whether it goes before what containers and pod say.
    over: bool,
}

/// Gives the pod and the containers that run commands the resources of the job and of its class.
pub(super) fn apply<'a>(
    job: &BuildJob,
    spec: &mut PodSpec,
    commands: impl IntoIterator<Item = &'a mut Container>,
    settings: &PodSettings,
) -> Result<(), RenderError> {
    let choice = choose(job, settings)?;
    for (index, container) in commands.into_iter().enumerate() {
        if let Some(Choice { class, over }) = &choice {
            merge_resources(&mut container.resources, class.resources.as_ref(), *over);
        }
        if index == 0 {
            merge_resources(&mut container.resources, job.spec.resources.as_deref(), true);
        }
    }
    if let Some(Choice { class, over }) = choice {
        apply_to_pod(spec, class, over);
    }
    Ok(())
}

fn choose<'a>(job: &BuildJob, settings: &'a PodSettings) -> Result<Option<Choice<'a>>, RenderError> {
    let rules = job.spec.buildkite.iter().flat_map(|buildkite| &buildkite.agent_query_rules);
    let by_rule = rules.enumerate().find_map(|(index, rule)| {
        let name = rule.strip_prefix(RULE)?.strip_prefix('=')?;
        Some((name, format!("spec.buildkite.agentQueryRules[{index}]"), true))
    });
    let by_field = job.spec.resource_class.as_deref();
    let by_default = settings.config.default_resource_class.as_deref();
    let chosen = by_field
        .map(|name| (name, "spec.resourceClass".to_owned(), true))
        .or(by_rule)
        .or_else(|| Some((by_default?, "pod_config.defaultResourceClass".to_owned(), false)));
    let Some((name, path, over)) = chosen else { return Ok(None) };
    match settings.resource_classes.get(name) {
        Some(class) => Ok(Some(Choice { class, over })),
        None => Err(RenderError { path, problem: unknown(name, settings) }),
    }
}

fn unknown(name: &str, settings: &PodSettings) -> String {
    let known: Vec<_> = settings.resource_classes.keys().map(String::as_str).collect();
    if known.is_empty() {
        format!("there is no resource class `{name}`: none are configured")
    } else {
        format!("there is no resource class `{name}`; known are {}", known.join(", "))
    }
}

fn apply_to_pod(spec: &mut PodSpec, class: &ResourceClass, over: bool) {
    merge_resources(&mut spec.resources, class.pod_resources.as_ref(), over);
    if !class.node_selector.is_empty() {
        merge(spec.node_selector.get_or_insert_default(), &class.node_selector, over);
    }
    placement::tolerate(spec, &class.tolerations);
    if let Some(affinity) = &class.affinity {
        placement::and_affinity(spec.affinity.get_or_insert_default(), affinity);
    }
    if let Some(priority_class) = &class.priority_class_name
        && (over || spec.priority_class_name.is_none())
    {
        spec.priority_class_name = Some(priority_class.clone());
    }
}

/// Lays requests and limits over those that are there, or under them.
fn merge_resources(into: &mut Option<ResourceRequirements>, from: Option<&ResourceRequirements>, over: bool) {
    let Some(from) = from else { return };
    let into = into.get_or_insert_default();
    let lay = |into: &mut Option<BTreeMap<String, Quantity>>, from: Option<&BTreeMap<String, Quantity>>| {
        if let Some(from) = from {
            merge(into.get_or_insert_default(), from, over);
        }
    };
    lay(&mut into.requests, from.requests.as_ref());
    lay(&mut into.limits, from.limits.as_ref());
    if let Some(claims) = &from.claims {
        let own = into.claims.get_or_insert_default();
        let new: Vec<_> = claims.iter().filter(|claim| !own.contains(claim)).cloned().collect();
        own.extend(new);
    }
}

fn merge<V: Clone>(into: &mut BTreeMap<String, V>, from: &BTreeMap<String, V>, over: bool) {
    for (key, value) in from {
        if over || !into.contains_key(key) {
            into.insert(key.clone(), value.clone());
        }
    }
}
