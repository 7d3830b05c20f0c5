//! What a BuildJob refers to by name, as it was found in the job's namespace.

use std::collections::BTreeMap;

use bk_api::BuildEnvironmentSpec;
use k8s_openapi::api::core::v1::PodTemplateSpec;

/// The objects that a BuildJob refers to. An entry without a value was looked for, and does not exist.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Surroundings {
    /// BuildEnvironments, also those that others bring.
    pub environments: BTreeMap<String, Option<BuildEnvironmentSpec>>,
    /// PodTemplates that `kubernetes.podTemplate` names.
    pub pod_templates: BTreeMap<String, Option<PodTemplateSpec>>,
}
