//! What a job wants from the services beside it: what it gets, and what it does not. None of them may fail a job that would have
//! passed: it runs without, and is told.
//!
//! - [`artifacts`]: which of its files become artifacts
//! - [`logs`]: where its logs go
//! - [`metrics`]: how its metrics leave the pod
//! - [`reports`]: what came of it

pub(crate) mod artifacts;
pub(crate) mod logs;
pub(crate) mod metrics;
pub mod reports;

use bk_api::BuildJobSpec;

use crate::pod::PodSettings;

/// Something that a job asks for and does not get.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Missing {
    /// The condition of the BuildJob that says so.
    pub condition: &'static str,
    /// Why, in one word.
    pub reason: &'static str,
    /// What is not done, and why.
    pub message: String,
}

/// What a job gets of a service, and what it asks for and does not get.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Offer<T> {
    /// What it gets.
    pub(crate) granted: Option<T>,
    /// What it does not.
    pub(crate) missing: Option<Missing>,
}

impl<T> Offer<T> {
    /// Neither is anything asked for, nor done.
    pub(crate) const NOTHING: Self = Self { granted: None, missing: None };

    fn refused(missing: Missing) -> Self {
        Self { granted: None, missing: Some(missing) }
    }
}

const NO_MIRROR: (&str, &str, &str) = (
    "RepoMirrored",
    "NoRepoMirror",
    "it clones from the repository itself, and no further ones, as this operator keeps no mirrors",
);
const NO_MIRROR_IMAGE: (&str, &str, &str) = (
    NO_MIRROR.0,
    NO_MIRROR.1,
    "it clones from the repository itself, and no further ones, as this operator does not know its own image: `pod_config.operatorImage` names it",
);

/// What a job asks for and does not get.
pub fn missing(spec: &BuildJobSpec, settings: &PodSettings) -> impl Iterator<Item = Missing> {
    let no_mirror = if settings.mirrors.layout.is_none() { NO_MIRROR } else { NO_MIRROR_IMAGE };
    let has_mirrors = settings.mirrors.layout.is_some() && settings.config.operator_image.is_some();
    let absent = (!has_mirrors && spec.repo_mirror.as_ref().is_some_and(|own| own.enabled)).then(|| {
        let (condition, reason, message) = no_mirror;
        Missing { condition, reason, message: message.to_owned() }
    });
    let exporters = [
        logs::offer(spec, settings).missing,
        artifacts::offer(spec, settings).missing,
        metrics::offer(spec, settings).missing,
    ];
    exporters.into_iter().flatten().chain(absent)
}

/// The field that asks for what a condition tells of.
pub(crate) fn field(condition: &str) -> &'static str {
    match condition {
        "LogsExported" => "spec.logExporter",
        "ArtifactsExported" => "spec.artifactExporter",
        "MetricsExported" => "spec.metricsExporter",
        _ => "spec.repoMirror",
    }
}

/// The same in a sentence for the job's author, if there is anything.
pub fn remark(spec: &BuildJobSpec, settings: &PodSettings) -> Option<String> {
    let messages: Vec<_> = missing(spec, settings).map(|missing| missing.message).collect();
    (!messages.is_empty())
        .then(|| format!("The job runs without something that it asks for: {}", messages.join("; ")))
}
