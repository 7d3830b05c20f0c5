//! Objects without what nobody reads, so that a cache of thousands of them is small. Of pods, see
//! [`crate::facts::JobPod`].

use bk_api::{BuildJob, names};
use k8s_openapi::api::{batch::v1::Job, core::v1::PodTemplateSpec};

/// Gives back the room that a BuildJob's lists were read into: for four at least, where most have one or three.
pub fn build_job(job: &mut BuildJob) {
    if let Some(buildkite) = &mut job.spec.buildkite {
        buildkite.agent_query_rules.shrink_to_fit();
        buildkite.option_plugins.shrink_to_fit();
    }
    if let Some(status) = &mut job.status {
        status.conditions.shrink_to_fit();
    }
}

/// Leaves of a batch Job what [`crate::batch::BatchFacts`] are read off: the template is in the BuildJob.
pub fn batch_job(job: &mut Job) {
    // Managed fields are taken out of whatever is watched.
    if let Some(annotations) = &mut job.metadata.annotations {
        annotations.retain(|key, _| key == names::ANNOTATION_ATTEMPT);
    }
    if let Some(spec) = &mut job.spec {
        spec.template = PodTemplateSpec::default();
    }
}
