//! The pod of a job that has yet to be.

use bk_api::{
    BuildEnvironmentSpec, BuildJob,
    config::{Config, ResourceClass},
    names,
};
use bk_plan::{
    pod::{self, PodSettings, RenderError},
    surroundings::{Surroundings, wanted},
};
use k8s_openapi::api::core::v1::{Container, PodSpec, PodTemplateSpec};

use crate::Context;

/// Stands for what is not known: nobody looks behind these names.
const ENDPOINT: &str = "https://agent.buildkite.com/v3";
const IMAGE: &str = "image";

/// Why a job cannot become a pod, if it cannot.
pub(crate) fn refusal(job: &BuildJob, context: &Context) -> Option<RenderError> {
    let config = context.config.clone().unwrap_or_else(|| generous(job));
    let surroundings = if context.complete { context.surroundings.clone() } else { completed(job, context) };
    let settings = PodSettings::of(&config, ENDPOINT, names::shim("absent"));
    pod::render(job, 0, &surroundings, &settings).err()
}

/// A configuration that has the resource class which the job asks for.
fn generous(job: &BuildJob) -> Config {
    let mut config = Config::default();
    let rules = job.spec.buildkite.iter().flat_map(|buildkite| &buildkite.agent_query_rules);
    let by_rule = rules.filter_map(|rule| rule.strip_prefix("resource_class="));
    for class in by_rule.chain(job.spec.resource_class.as_deref()) {
        config.resource_classes.insert(class.to_owned(), ResourceClass::default());
    }
    config
}

/// What is known, and something under each other name that the job refers to.
fn completed(job: &BuildJob, context: &Context) -> Surroundings {
    let mut found = context.surroundings.clone();
    loop {
        let names = wanted(job, &found);
        if names.is_empty() {
            return found;
        }
        let environment = BuildEnvironmentSpec { image: IMAGE.to_owned(), ..BuildEnvironmentSpec::default() };
        found
            .environments
            .extend(names.environments.into_iter().map(|name| (name, Some(environment.clone()))));
        let template = PodTemplateSpec {
            spec: Some(PodSpec { containers: vec![Container::default()], ..PodSpec::default() }),
            ..PodTemplateSpec::default()
        };
        found
            .pod_templates
            .extend(names.pod_templates.into_iter().map(|name| (name, Some(template.clone()))));
    }
}
