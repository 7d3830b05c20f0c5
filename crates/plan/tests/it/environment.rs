//! BuildJobs and BuildEnvironments → containers, and what is wrong with them.

pub(crate) mod difference;
mod errors;
mod fields;
mod merging;
mod placement;
mod properties;
mod resource_classes;
mod wanted;

use std::collections::BTreeMap;

use bk_api::BuildEnvironmentSpec;
use bk_plan::{
    pod::{PodSettings, RenderError, render},
    surroundings::Surroundings,
};
use k8s_openapi::api::core::v1::{Container, PodSpec};
use serde_json::Value;

use crate::fixtures::{job, pod_settings};

/// The BuildEnvironments of a namespace, as YAML: by name, their spec.
pub(crate) fn surroundings(environments: &str) -> Surroundings {
    let found: BTreeMap<String, BuildEnvironmentSpec> =
        serde_saphyr::from_str(environments).expect("the fixture is a map of environments");
    Surroundings {
        environments: found.into_iter().map(|(name, spec)| (name, Some(spec))).collect(),
        ..Surroundings::default()
    }
}

fn try_spec(spec: &str, environments: &str, settings: &PodSettings) -> Result<PodSpec, RenderError> {
    let job = job(&format!("spec: {spec}"));
    Ok(render(&job, 0, &surroundings(environments), settings)?.spec.expect("a pod has a spec"))
}

fn spec(spec: &str, environments: &str) -> PodSpec {
    try_spec(spec, environments, &pod_settings()).unwrap_or_else(|error| panic!("{error}"))
}

fn container<'a>(spec: &'a PodSpec, name: &str) -> &'a Container {
    let all = spec.containers.iter().chain(spec.init_containers.iter().flatten());
    all.into_iter().find(|container| container.name == name).expect("there is such a container")
}

fn json_of<T: serde::Serialize>(value: &T) -> Value {
    serde_json::to_value(value).expect("it can be written as JSON")
}
