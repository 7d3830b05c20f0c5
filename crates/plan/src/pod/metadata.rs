//! Labels and annotations of a job pod.

use std::collections::BTreeMap;

use bk_api::{BuildJob, names};

use super::{PodSettings, RenderError, exporters, tags, workload};
use crate::plugin::KubernetesPlugin;

/// Refuses labels of the step and the configuration that Kubernetes would refuse.
pub(super) fn check(plugin: &KubernetesPlugin, settings: &PodSettings) -> Result<(), RenderError> {
    let given =
        [("pod_config.metadata", &settings.config.metadata), ("spec.kubernetes.metadata", &plugin.metadata)];
    for (path, metadata) in given {
        for (key, value) in &metadata.labels {
            let problem = match value {
                _ if !names::is_label_key(key) => "this is not a legal key of a label",
                value if !names::is_label_value(value) => "this is not a legal value of a label",
                _ => continue,
            };
            return Err(RenderError { path: format!("{path}.labels.{key}"), problem: problem.to_owned() });
        }
        if let Some(key) = metadata.annotations.keys().find(|key| !names::is_label_key(key)) {
            let problem = "this is not a legal key of an annotation".to_owned();
            return Err(RenderError { path: format!("{path}.annotations.{key}"), problem });
        }
    }
    Ok(())
}

/// Labels by which pods are found, and one for each of the agent's tags that is a legal label.
pub(super) fn labels(
    job: &BuildJob,
    plugin: &KubernetesPlugin,
    settings: &PodSettings,
) -> BTreeMap<String, String> {
    let mut labels = settings.config.metadata.labels.clone();
    labels.extend(plugin.metadata.labels.clone());
    let name = job.metadata.name.clone().unwrap_or_default();
    labels.insert(names::LABEL_BUILD_JOB.to_owned(), name);
    if let Some(buildkite) = &job.spec.buildkite {
        labels.insert(names::LABEL_JOB_UUID.to_owned(), buildkite.job_uuid.clone());
        let tags = tags::of(buildkite, settings);
        for (key, value) in tags.iter().filter_map(|tag| tag.split_once('=')) {
            if !key.is_empty() && names::is_label_value(key) && names::is_label_value(value) {
                labels.insert(format!("{}{key}", names::LABEL_TAG_PREFIX), value.to_owned());
            }
        }
    }
    labels
}

/// What people and tools want to know about a pod at a glance.
pub(super) fn annotations(
    job: &BuildJob,
    attempt: u32,
    plugin: &KubernetesPlugin,
    settings: &PodSettings,
) -> BTreeMap<String, String> {
    let mut annotations = BTreeMap::from([(names::ANNOTATION_SAFE_TO_EVICT.to_owned(), "false".to_owned())]);
    annotations.extend(exporters::annotations(job, settings));
    annotations.extend(settings.config.metadata.annotations.clone());
    annotations.extend(plugin.metadata.annotations.clone());
    let mut add = |key: &str, value: String| annotations.insert(key.to_owned(), value);
    add(names::ANNOTATION_ATTEMPT, attempt.to_string());
    if let Some(source) = &job.spec.source {
        add(names::ANNOTATION_BUILD_BRANCH, source.branch.clone());
        add(names::ANNOTATION_BUILD_REPO, source.repo.clone());
    }
    if let Some(buildkite) = &job.spec.buildkite {
        let url = buildkite.url.clone().unwrap_or_default();
        add(names::ANNOTATION_JOB_URL, format!("{url}#{}", buildkite.job_uuid));
        add(names::ANNOTATION_BUILD_URL, url);
        add(names::ANNOTATION_PIPELINE_SLUG, buildkite.pipeline.clone().unwrap_or_default());
        add(names::ANNOTATION_STEP_KEY, buildkite.step.clone().unwrap_or_default());
        add(names::ANNOTATION_JOB_PRIORITY, buildkite.priority.unwrap_or_default().to_string());
    }
    if let Some(template) = plugin.used_template() {
        add(names::ANNOTATION_POD_TEMPLATE, template.to_owned());
    }
    for (index, sidecar) in plugin.sidecars.iter().enumerate() {
        add(&format!("{}{index}", names::ANNOTATION_SIDECAR_PREFIX), workload::sidecar_name(index, sidecar));
    }
    annotations
}
