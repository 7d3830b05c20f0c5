//! Which of the jobs that wait in Buildkite to take, and the BuildJobs they become.

use std::collections::{BTreeMap, BTreeSet};

use bk_api::{
    BuildJob, BuildJobSpec,
    build_job::{BuildkiteJob, Source},
    names,
};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::{Deserialize, Serialize};

use crate::{
    plugin::{self, PluginError},
    pod::plugin_directories,
};

/// A job that waits in a queue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Candidate {
    /// The job's UUID.
    pub uuid: String,
    /// Higher goes first.
    pub priority: i64,
    /// Older goes first among equals.
    pub scheduled_at: Timestamp,
    /// What whoever takes the job must offer, as `key=value`.
    pub rules: Vec<String>,
}

/// What an operator offers to jobs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offer {
    /// The queue it serves.
    pub queue: String,
    /// Its further tags, as `key=value`.
    pub tags: Vec<String>,
}

/// The jobs to take now: those whose rules match and that are not here already, highest priority first, then
/// oldest, and no more than there are free slots.
pub fn select<'a>(
    candidates: &'a [Candidate],
    offer: &Offer,
    here: &BTreeSet<String>,
    free: usize,
) -> Vec<&'a Candidate> {
    let mut chosen: Vec<_> = candidates
        .iter()
        .filter(|candidate| !here.contains(&candidate.uuid) && matches(&candidate.rules, offer))
        .collect();
    chosen.sort_by(|a, b| {
        b.priority
            .cmp(&a.priority)
            .then(a.scheduled_at.cmp(&b.scheduled_at))
            .then_with(|| a.uuid.cmp(&b.uuid))
    });
    chosen.truncate(free);
    chosen
}

/// Whether every rule is satisfied. The queue is settled by where the job was listed, and `resource_class`
/// chooses resources, not operators.
fn matches(rules: &[String], offer: &Offer) -> bool {
    rules.iter().all(|rule| {
        let (key, wanted) = rule.split_once('=').unwrap_or((rule, "*"));
        key == "queue"
            || key == "resource_class"
            || offer
                .tags
                .iter()
                .filter_map(|tag| tag.split_once('='))
                .any(|(offered, value)| offered == key && (wanted == "*" || value == "*" || wanted == value))
    })
}

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
pub fn build_job(candidate: &Candidate, queue: &str, namespace: &str, details: &JobDetails) -> BuildJob {
    let buildkite = BuildkiteJob {
        job_uuid: candidate.uuid.clone(),
        queue: Some(queue.to_owned()),
        priority: Some(candidate.priority),
        agent_query_rules: candidate.rules.clone(),
        ..BuildkiteJob::default()
    };
    let mut labels = BTreeMap::from([(names::LABEL_JOB_UUID.to_owned(), candidate.uuid.clone())]);
    // The label's presence is what counts; a queue whose key is no label value is named in the spec.
    let queue_label = if names::is_label_value(queue) { queue } else { "" };
    labels.insert(names::LABEL_SPAWNED_FROM.to_owned(), queue_label.to_owned());
    let job = BuildJob {
        metadata: ObjectMeta {
            name: Some(names::build_job(&candidate.uuid)),
            namespace: Some(namespace.to_owned()),
            labels: Some(labels),
            ..ObjectMeta::default()
        },
        spec: BuildJobSpec { buildkite: Some(buildkite), ..BuildJobSpec::default() },
        status: None,
    };
    complete(&job, details).unwrap_or(job)
}

/// Whether a BuildJob names a Buildkite job without saying what it runs.
pub fn needs_details(job: &BuildJob) -> bool {
    job.spec.buildkite.is_some() && job.spec.command.is_none()
}

/// A BuildJob with what Buildkite knows about its job filled in where the BuildJob itself is silent.
pub fn complete(job: &BuildJob, details: &JobDetails) -> Result<BuildJob, PluginError> {
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
    spec.image = spec.image.take().or_else(|| var("BUILDKITE_IMAGE"));
    spec.source = spec.source.take().or_else(|| {
        Some(Source {
            repo: var("BUILDKITE_REPO")?,
            commit: var("BUILDKITE_COMMIT").unwrap_or_else(|| "HEAD".to_owned()),
            branch: var("BUILDKITE_BRANCH").unwrap_or_else(|| "main".to_owned()),
        })
    });
    let plugins = var("BUILDKITE_PLUGINS").unwrap_or_default();
    if let Some(buildkite) = &mut spec.buildkite
        && buildkite.option_plugins.is_empty()
    {
        buildkite.option_plugins = plugin_directories::options(&plugins);
    }
    if spec.kubernetes.is_none() {
        spec.kubernetes = plugin::kubernetes(&plugins)?;
    }
    Ok(job)
}
