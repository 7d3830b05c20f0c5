//! A job's pod in a `batch/v1` Job, for tools and quotas that know Jobs.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::{
    api::{
        batch::v1::{Job, JobSpec},
        core::v1::{Pod, PodTemplateSpec},
    },
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};

use crate::facts::PodEvent;

/// When Kubernetes itself ends and removes a Job. The operator does both sooner; this is for when there is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Net {
    /// How long the Job may be active, if there is a limit.
    pub active: Option<SignedDuration>,
    /// How long it stays when it has ended.
    pub finished: SignedDuration,
}

/// What matters about a Job around a job's pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BatchFacts {
    /// The Job's name.
    pub name: String,
    /// The Job's id.
    pub uid: String,
    /// When it was created, or last resumed: from then on it may have a pod.
    pub active_since: Option<Timestamp>,
    /// Whether somebody has asked for its deletion.
    pub is_deleting: bool,
    /// Whether it may not have a pod for now.
    pub is_suspended: bool,
    /// Whether a pod of its has ended: it must not have another.
    pub has_run: bool,
    /// Why it has failed, if it has: there will be no other pod.
    pub failed: Option<String>,
    /// What the cluster says about it beyond its status, oldest first; empty if nobody has asked.
    pub events: Vec<PodEvent>,
}

/// The Job around a pod: the same template, one pod, never a second.
pub fn wrap(pod: Pod, net: Net) -> Job {
    let template = ObjectMeta {
        labels: pod.metadata.labels.clone(),
        annotations: pod.metadata.annotations.clone(),
        ..ObjectMeta::default()
    };
    Job {
        metadata: pod.metadata,
        spec: Some(JobSpec {
            template: PodTemplateSpec { metadata: Some(template), spec: pod.spec },
            backoff_limit: Some(0),
            completions: Some(1),
            parallelism: Some(1),
            // A pod that is going may still run: no other may begin meanwhile.
            pod_replacement_policy: Some("Failed".to_owned()),
            active_deadline_seconds: net.active.map(|limit| limit.as_secs()),
            ttl_seconds_after_finished: Some(net.finished.as_secs().try_into().unwrap_or(i32::MAX)),
            ..JobSpec::default()
        }),
        status: None,
    }
}

impl BatchFacts {
    /// Reads the facts off a Job that [`wrap`] made.
    pub fn of(job: &Job) -> Self {
        let status = job.status.clone().unwrap_or_default();
        let created = job.metadata.creation_timestamp.as_ref();
        let conditions = status.conditions.unwrap_or_default();
        let failed = conditions
            .iter()
            .find(|condition| condition.type_ == "Failed" && condition.status == "True")
            .map(|condition| {
                let words = [condition.reason.as_deref(), condition.message.as_deref()];
                words.into_iter().flatten().collect::<Vec<_>>().join(": ")
            });
        Self {
            name: job.metadata.name.clone().unwrap_or_default(),
            uid: job.metadata.uid.clone().unwrap_or_default(),
            active_since: status.start_time.as_ref().or(created).map(|time| time.0),
            is_deleting: job.metadata.deletion_timestamp.is_some(),
            is_suspended: job.spec.as_ref().is_some_and(|spec| spec.suspend == Some(true)),
            has_run: [status.succeeded, status.failed].into_iter().flatten().any(|count| count > 0),
            failed,
            events: Vec::new(),
        }
    }
}
