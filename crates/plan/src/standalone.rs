//! Standalone BuildJobs for people and programs that run a command on the cluster: from a command line, or from the environment in
//! which an agent elsewhere runs a Buildkite job.
//!
//! - [`inherited`]: which variables of that environment the job gets

mod inherited;

use std::collections::{BTreeMap, BTreeSet};

use bk_api::{BuildJob, BuildJobSpec, CompactObject, build_job::Source, names};
use k8s_openapi::{api::core::v1::EnvVar, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use serde_json::Value;

use crate::{
    options,
    plugin::{self, PluginError},
    pod,
};

/// What somebody wants to have run. What is absent, the environment says if the job comes from one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Order {
    /// The BuildJob's name; the API server makes one if absent.
    pub name: Option<String>,
    /// Where it is created.
    pub namespace: String,
    /// The command: one script, or a program and its arguments.
    pub command: Vec<String>,
    /// The image it runs in.
    pub image: Option<String>,
    /// The BuildEnvironment it runs in.
    pub environment: Option<String>,
    /// Its variables.
    pub env: Vec<(String, String)>,
    /// The repository to check out.
    pub repo: Option<String>,
    /// The commit.
    pub commit: Option<String>,
    /// The branch.
    pub branch: Option<String>,
    /// How long it may run.
    pub timeout: Option<std::time::Duration>,
}

/// A Buildkite job that an agent elsewhere runs, as its hooks see it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hook {
    /// The environment of the hook.
    pub env: BTreeMap<String, String>,
    /// Names of the variables that Buildkite gave to the job, if they are known. The others come from the agent's machine.
    pub given: Option<BTreeSet<String>>,
}

/// A job, and the names of variables that it does not get because they hold secrets.
#[derive(Clone, Debug, PartialEq)]
pub struct Ordered {
    /// The BuildJob to create.
    pub job: BuildJob,
    /// Variables that are kept from it.
    pub withheld: Vec<String>,
}

/// The BuildJob of a command line.
pub fn of(order: &Order) -> BuildJob {
    let mut job = empty(order);
    apply(order, &mut job.spec);
    job
}

/// The BuildJob of a Buildkite job that an agent elsewhere runs. The order goes before the job's own words.
pub fn of_hook(order: &Order, hook: &Hook) -> Result<Ordered, PluginError> {
    let var = |name: &str| hook.env.get(name).filter(|value| !value.is_empty()).cloned();
    let plugins = var("BUILDKITE_PLUGINS").unwrap_or_default();
    let asked = options::of(&hook.env, &plugins)?;
    let mut job = empty(order);
    let spec = &mut job.spec;
    apply(order, spec);
    if spec.command.is_none() {
        spec.command = var("BUILDKITE_COMMAND");
    }
    asked.fill(spec);
    if spec.environment.is_none() && spec.image.is_none() {
        spec.image = var("BUILDKITE_IMAGE");
    }
    if spec.source.is_none() {
        let commit = order.commit.clone().or_else(|| var("BUILDKITE_COMMIT"));
        let branch = order.branch.clone().or_else(|| var("BUILDKITE_BRANCH"));
        spec.source = var("BUILDKITE_REPO").map(|repo| source(repo, commit, branch));
    }
    spec.kubernetes = plugin::kubernetes(&plugins)?.map(CompactObject::from);
    // Those that carry options are left out when the pod is made.
    spec.plugins = serde_json::from_str::<Vec<Value>>(&plugins)
        .unwrap_or_default()
        .into_iter()
        .map(
            |plugin| {
                if let Value::String(name) = plugin { serde_json::json!({ name: null }) } else { plugin }
            },
        )
        .collect();
    let inherited = inherited::of(hook);
    let own: BTreeSet<String> = spec.env.iter().map(|var| var.name.clone()).collect();
    let more = inherited.passed.into_iter().filter(|(name, _)| !own.contains(name));
    spec.env.extend(more.map(|(name, value)| variable(&name, &value)));
    let annotations = job.metadata.annotations.get_or_insert_default();
    for (name, annotation) in [
        ("BUILDKITE_BUILD_URL", names::ANNOTATION_BUILD_URL),
        ("BUILDKITE_PIPELINE_SLUG", names::ANNOTATION_PIPELINE_SLUG),
        ("BUILDKITE_STEP_KEY", names::ANNOTATION_STEP_KEY),
    ] {
        annotations.extend(var(name).map(|value| (annotation.to_owned(), value)));
    }
    Ok(Ordered { job, withheld: inherited.withheld })
}

/// The BuildJob of a template. The order goes before the template's own words.
pub fn of_template(order: &Order, template: &BuildJob) -> BuildJob {
    let mut job = of(order);
    let asked = std::mem::replace(&mut job.spec, template.spec.clone());
    let spec = &mut job.spec;
    spec.command = asked.command.or(spec.command.take());
    spec.timeout = asked.timeout.or(spec.timeout);
    // What a job runs in is one choice.
    if asked.image.is_some() || asked.environment.is_some() {
        (spec.image, spec.environment) = (asked.image, asked.environment);
    }
    let of_template = spec.source.take().map(|own| {
        let (commit, branch) = (order.commit.clone(), order.branch.clone());
        source(own.repo, commit.or(Some(own.commit)), branch.or(Some(own.branch)))
    });
    spec.source = asked.source.or(of_template);
    spec.env.retain(|own| !asked.env.iter().any(|var| var.name == own.name));
    spec.env.extend(asked.env);
    let metadata = &mut job.metadata;
    metadata.labels.clone_from(&template.metadata.labels);
    let own = metadata.annotations.take().unwrap_or_default();
    metadata.annotations.clone_from(&template.metadata.annotations);
    metadata.annotations.get_or_insert_default().extend(own);
    if let (None, Some(name)) = (&order.name, &template.metadata.name) {
        metadata.generate_name = Some(format!("{name}-"));
    }
    job
}

fn empty(order: &Order) -> BuildJob {
    let followed = (names::ANNOTATION_FOLLOWED.to_owned(), "true".to_owned());
    BuildJob {
        metadata: ObjectMeta {
            name: order.name.clone(),
            generate_name: order.name.is_none().then(|| "run-".to_owned()),
            namespace: Some(order.namespace.clone()),
            annotations: Some([followed].into()),
            ..ObjectMeta::default()
        },
        spec: BuildJobSpec::default(),
        status: None,
    }
}

fn apply(order: &Order, spec: &mut BuildJobSpec) {
    spec.command = match &order.command[..] {
        [] => None,
        // A script, as in a pipeline.
        [script] => Some(script.clone()),
        words => Some(pod::command_line(words)),
    };
    spec.image.clone_from(&order.image);
    spec.environment.clone_from(&order.environment);
    spec.timeout = order.timeout.map(Into::into);
    spec.env = order.env.iter().map(|(name, value)| variable(name, value)).collect();
    spec.source = order.repo.clone().map(|repo| source(repo, order.commit.clone(), order.branch.clone()));
}

fn source(repo: String, commit: Option<String>, branch: Option<String>) -> Source {
    Source {
        repo,
        commit: commit.unwrap_or_else(|| "HEAD".to_owned()),
        branch: branch.unwrap_or_else(|| "main".to_owned()),
    }
}

fn variable(name: &str, value: &str) -> EnvVar {
    EnvVar { name: name.to_owned(), value: Some(pod::literal(value)), value_from: None }
}

#[cfg(test)]
mod tests;
