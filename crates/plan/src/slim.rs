//! Objects without what nobody reads, so that a cache of thousands of them is small. Of pods, see
//! [`crate::facts::JobPod`].

use std::{borrow::Cow, collections::BTreeMap};

use bk_api::{BuildJob, names};
use k8s_openapi::api::{batch::v1::Job, core::v1::PodTemplateSpec};

use crate::intake;

/// Leaves out the labels of a BuildJob that follow from the rest of it, which [`labelled`] puts back, and the room that its lists
/// were read into: for four at least, where most have one or three.
pub fn build_job(job: &mut BuildJob) {
    if job.metadata.labels.is_some() && job.metadata.labels == own_labels(job) {
        job.metadata.labels = None;
    }
    if let Some(buildkite) = &mut job.spec.buildkite {
        buildkite.agent_query_rules.shrink_to_fit();
        buildkite.option_plugins.shrink_to_fit();
    }
    if let Some(status) = &mut job.status {
        status.conditions.shrink_to_fit();
    }
}

/// The BuildJob as the API server has it, though a cache had left labels out.
pub fn labelled(job: &BuildJob) -> Cow<'_, BuildJob> {
    let missing = job.metadata.labels.is_none().then(|| own_labels(job)).flatten();
    let Some(labels) = missing else { return Cow::Borrowed(job) };
    let mut job = job.clone();
    job.metadata.labels = Some(labels);
    Cow::Owned(job)
}

/// The labels that a BuildJob was made with, if it came from a queue and says so elsewhere, too.
fn own_labels(job: &BuildJob) -> Option<BTreeMap<String, String>> {
    let annotations = job.metadata.annotations.as_ref()?;
    let buildkite =
        job.spec.buildkite.as_ref().filter(|_| annotations.contains_key(names::ANNOTATION_STACK))?;
    let labels = intake::labels(&buildkite.job_uuid, buildkite.queue.as_deref()?);
    Some(labels.map(|(key, value)| (key.to_owned(), value.to_owned())).into())
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

#[cfg(test)]
mod tests {
    use bk_api::config::SpawnerConfig;

    use super::*;
    use crate::intake::{Candidate, JobDetails};

    fn spawned() -> BuildJob {
        let candidate = Candidate {
            uuid: "0198f0a0-0000-7000-8000-000000000001".to_owned(),
            pipeline: None,
            priority: 0,
            scheduled_at: jiff::Timestamp::UNIX_EPOCH,
            rules: vec!["queue=linux".to_owned()],
        };
        let queue = SpawnerConfig::default().queues().remove(0);
        intake::build_job(&candidate, &queue, "ci", &JobDetails::default())
    }

    #[test]
    fn labels_that_follow_from_the_rest_are_left_out_and_put_back() {
        let job = spawned();
        let mut slim = job.clone();
        build_job(&mut slim);
        assert_eq!(slim.metadata.labels, None);
        assert!(slim.is_spawned());
        assert_eq!(labelled(&slim).metadata.labels, job.metadata.labels);
    }

    #[test]
    fn labels_that_somebody_else_has_given_stay() {
        let mut job = spawned();
        job.metadata.labels.get_or_insert_default().insert("team".to_owned(), "a".to_owned());
        let mut slim = job.clone();
        build_job(&mut slim);
        assert_eq!(slim.metadata.labels, job.metadata.labels);
        let mut by_hand = BuildJob::new("by-hand", job.spec);
        build_job(&mut by_hand);
        assert_eq!(labelled(&by_hand).metadata.labels, None, "it never had any");
        assert!(!by_hand.is_spawned());
    }
}
