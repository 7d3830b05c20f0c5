//! What a BuildJob refers to by name, as it was found in the job's namespace.

use std::collections::{BTreeMap, BTreeSet};

use bk_api::{BuildEnvironment, BuildEnvironmentSpec, BuildJob, CompactObject, container_use::ContainerUse};
use k8s_openapi::{api::core::v1::PodTemplateSpec, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use serde_json::Value;

/// The most BuildEnvironments that a job may refer to, also by way of others.
pub const MAX_ENVIRONMENTS: usize = 64;

/// The objects that a BuildJob refers to. An entry without a value was looked for, and does not exist.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Surroundings {
    /// BuildEnvironments, also those that others bring.
    pub environments: BTreeMap<String, Option<BuildEnvironmentSpec>>,
    /// What rules may ask of those besides, where it is known.
    pub metadata: BTreeMap<String, ObjectMeta>,
    /// PodTemplates that `kubernetes.podTemplate` names.
    pub pod_templates: BTreeMap<String, Option<PodTemplateSpec>>,
}

impl Surroundings {
    /// Adds a BuildEnvironment that was looked for, if it was found.
    pub fn add(&mut self, name: String, environment: Option<BuildEnvironment>) {
        let (metadata, spec) = environment.map(|found| (found.metadata, found.spec)).unzip();
        self.metadata.extend(metadata.map(|metadata| (name.clone(), metadata)));
        self.environments.insert(name, spec);
    }
}

/// Names that have yet to be looked up.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    /// BuildEnvironments.
    pub environments: BTreeSet<String>,
    /// PodTemplates.
    pub pod_templates: BTreeSet<String>,
}

impl Wanted {
    /// Whether there is nothing left to look up.
    pub fn is_empty(&self) -> bool {
        self.environments.is_empty() && self.pod_templates.is_empty()
    }
}

/// What the job, and the environments found so far, refer to and nobody has looked up yet. What is found may refer
/// to more: look up, add, and ask again until nothing is wanted. That ends, as names are never wanted twice and there are
/// at most [`MAX_ENVIRONMENTS`].
pub fn wanted(job: &BuildJob, found: &Surroundings) -> Wanted {
    let environments = environments(job, found)
        .into_iter()
        .filter(|name| !found.environments.contains_key(name))
        .take(MAX_ENVIRONMENTS.saturating_sub(found.environments.len()))
        .collect();
    let plugin = job.spec.kubernetes.as_ref().map(CompactObject::read).unwrap_or_default();
    let pod_templates = plugin
        .get("podTemplate")
        .and_then(Value::as_str)
        .filter(|name| !name.is_empty() && !found.pod_templates.contains_key(*name))
        .map(str::to_owned)
        .into_iter()
        .collect();
    Wanted { environments, pod_templates }
}

/// Every BuildEnvironment that the job refers to, directly or by way of those that were found.
pub(crate) fn environments(job: &BuildJob, found: &Surroundings) -> BTreeSet<String> {
    let spec = &job.spec;
    let mut waiting: Vec<String> = spec.environment.iter().cloned().collect();
    waiting.extend(named(&spec.init_containers, &spec.extra_containers));
    let mut seen = BTreeSet::new();
    while let Some(name) = waiting.pop() {
        if let Some(Some(environment)) = found.environments.get(&name)
            && !seen.contains(&name)
        {
            waiting.extend(named(&environment.init_containers, &environment.extra_containers));
        }
        seen.insert(name);
    }
    seen
}

fn named<'a>(init: &'a [ContainerUse], extra: &'a [ContainerUse]) -> impl Iterator<Item = String> + 'a {
    init.iter().chain(extra).filter_map(|part| part.environment.clone())
}
