//! Which of the jobs that wait in Buildkite to take, and the BuildJobs they become.
//!
//! - [`backlog`]: those beyond the first page of a listing
//! - [`candidate`]: jobs that wait, and whether they are for us
//! - [`ledger`]: who has the places that there are
//! - [`shares`]: who gets how many of too few places
//! - [`pace`]: how often to ask

pub mod backlog;
pub mod candidate;
pub mod ledger;
pub mod pace;
pub mod shares;

use std::collections::BTreeMap;

use bk_api::{
    BuildJob, BuildJobSpec, CompactObject,
    build_job::{BuildkiteJob, Source},
    config::{JobDefaults, Queue},
    names,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::{
    options,
    plugin::{self, PluginError},
    pod::plugin_directories,
};

pub use backlog::Backlog;
pub use candidate::{Candidate, Offer};
pub use ledger::{Choice, Ledger, Skip, Terms};

/// What Buildkite tells a stack about a job it has reserved.
#[derive(Clone, Debug, Default)]
pub struct JobDetails {
    /// The job's environment.
    pub env: BTreeMap<String, String>,
    /// The step's command.
    pub command: String,
}

/// The BuildJob of a job taken from a queue. If the job's plugins are not understood, it says no more than
/// which job it is; the controller then finds out why and reports it.
pub fn build_job(candidate: &Candidate, queue: &Queue, namespace: &str, details: &JobDetails) -> BuildJob {
    let buildkite = BuildkiteJob {
        job_uuid: candidate.uuid.clone(),
        queue: Some(queue.key.clone()),
        pipeline: candidate.pipeline.clone(),
        priority: Some(candidate.priority),
        agent_query_rules: candidate.rules.clone(),
        ..BuildkiteJob::default()
    };
    let labels = labels(&candidate.uuid, &queue.key);
    let job = BuildJob {
        metadata: ObjectMeta {
            name: Some(names::build_job(&candidate.uuid)),
            namespace: Some(namespace.to_owned()),
            labels: Some(labels.map(|(key, value)| (key.to_owned(), value.to_owned())).into()),
            annotations: Some(BTreeMap::from([(
                names::ANNOTATION_STACK.to_owned(),
                queue.stack_key.clone(),
            )])),
            ..ObjectMeta::default()
        },
        spec: BuildJobSpec { buildkite: Some(buildkite), ..BuildJobSpec::default() },
        status: None,
    };
    let mut job = complete(&job, details, &queue.forbid).unwrap_or(job);
    fill_in(&mut job.spec, &queue.defaults);
    job
}

/// The labels of the BuildJob of a job taken from a queue.
pub(crate) fn labels<'a>(uuid: &'a str, queue: &'a str) -> [(&'static str, &'a str); 2] {
    // The second one's presence is what counts; a queue whose key is no label value is named in the spec.
    let queue = if names::is_label_value(queue) { queue } else { "" };
    [(names::LABEL_JOB_UUID, uuid), (names::LABEL_SPAWNED_FROM, queue)]
}

/// Gives a job what its queue has for jobs that say nothing.
fn fill_in(spec: &mut BuildJobSpec, defaults: &JobDefaults) {
    let has_pod = spec.kubernetes.as_ref().is_some_and(|plugin| {
        let plugin = plugin.read();
        ["podSpec", "podTemplate", "podSpecPatch"].iter().any(|key| plugin.contains_key(*key))
    });
    if spec.environment.is_none() && spec.image.is_none() && !has_pod {
        spec.environment.clone_from(&defaults.environment);
        spec.image.clone_from(&defaults.image);
    }
    let mut rules = spec.buildkite.iter().flat_map(|job| &job.agent_query_rules);
    if spec.resource_class.is_none() && !rules.any(|rule| rule.starts_with("resource_class=")) {
        spec.resource_class.clone_from(&defaults.resource_class);
    }
}

/// Whether a BuildJob names a Buildkite job without saying what it runs.
pub fn needs_details(job: &BuildJob) -> bool {
    job.spec.buildkite.is_some() && job.spec.command.is_none()
}

/// A BuildJob with what Buildkite knows about its job filled in where the BuildJob itself is silent, unless its step sets options
/// that are forbidden.
pub fn complete(job: &BuildJob, details: &JobDetails, forbidden: &[String]) -> Result<BuildJob, PluginError> {
    let var = |name: &str| details.env.get(name).filter(|value| !value.is_empty()).cloned();
    let mut job = job.clone();
    let spec = &mut job.spec;
    if let Some(buildkite) = &mut spec.buildkite {
        buildkite.pipeline = buildkite.pipeline.take().or_else(|| var("BUILDKITE_PIPELINE_SLUG"));
        buildkite.build =
            buildkite.build.or_else(|| var("BUILDKITE_BUILD_NUMBER").and_then(|number| number.parse().ok()));
        buildkite.step = buildkite.step.take().or_else(|| var("BUILDKITE_STEP_KEY"));
        buildkite.url = buildkite.url.take().or_else(|| var("BUILDKITE_BUILD_URL"));
    }
    spec.command.get_or_insert_with(|| details.command.clone());
    let plugins = var("BUILDKITE_PLUGINS").unwrap_or_default();
    let rules = spec.buildkite.as_ref().map(|buildkite| buildkite.agent_query_rules.as_slice());
    let asked = options::of(&details.env, &plugins)?.with_rules(rules.unwrap_or_default());
    asked.check_permitted(forbidden)?;
    asked.fill(spec);
    if spec.environment.is_none() {
        spec.image = spec.image.take().or_else(|| var("BUILDKITE_IMAGE"));
    }
    spec.source = spec.source.take().or_else(|| {
        Some(Source {
            repo: var("BUILDKITE_REPO")?,
            commit: var("BUILDKITE_COMMIT").unwrap_or_else(|| "HEAD".to_owned()),
            branch: var("BUILDKITE_BRANCH").unwrap_or_else(|| "main".to_owned()),
        })
    });
    if let Some(buildkite) = &mut spec.buildkite
        && buildkite.option_plugins.is_empty()
    {
        buildkite.option_plugins = plugin_directories::options(&plugins);
    }
    if spec.kubernetes.is_none() {
        spec.kubernetes = plugin::kubernetes(&plugins)?.map(CompactObject::from);
    }
    Ok(job)
}
