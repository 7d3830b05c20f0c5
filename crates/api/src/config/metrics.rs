//! `metrics_exporter_config`: how metrics of jobs leave their pods.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    directory::{check_directory, check_name},
    logs::check_url,
};
use crate::exporters::MetricsMode;

/// `metrics_exporter_config`: how metrics of jobs leave their pods.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct MetricsExporterConfig {
    /// Whether jobs that say nothing about it have the exporter.
    pub enabled: bool,
    /// The directory of jobs that name none.
    pub path: String,
    /// How metrics leave the pods of jobs that do not say it.
    pub mode: MetricsMode,
    /// Labels that every value gets from its job.
    pub labels: Vec<JobLabel>,
    /// Further labels, the same for all jobs.
    pub extra_labels: BTreeMap<String, String>,
    /// The port on which metrics are served.
    pub port: u16,
    /// The Pushgateway.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub push: Option<PushConfig>,
    /// The receiver of OTLP.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub otlp: Option<OtlpMetrics>,
    /// How often metrics are sent, if they are sent.
    pub interval_seconds: u32,
    /// How long the exporter tries on after the job's end while nobody takes the last values.
    pub drain_seconds: u32,
}

/// Something about a job that becomes a label.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum JobLabel {
    /// The BuildJob's name.
    BuildJob,
    /// The pipeline's slug.
    Pipeline,
    /// The build's number.
    Build,
    /// The step's key.
    Step,
    /// The job's UUID at Buildkite.
    JobUuid,
    /// The pod's namespace.
    Namespace,
    /// The pod's name.
    Pod,
}

impl JobLabel {
    /// The label's name.
    pub fn name(self) -> &'static str {
        match self {
            Self::BuildJob => "build_job",
            Self::Pipeline => "pipeline",
            Self::Build => "build",
            Self::Step => "step",
            Self::JobUuid => "job_uuid",
            Self::Namespace => "namespace",
            Self::Pod => "pod",
        }
    }
}

/// The Pushgateway.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct PushConfig {
    /// Its address.
    pub url: String,
    /// The label `job` of every group.
    pub job: String,
    /// The other labels of a group. Jobs for which they are the same replace each other's metrics.
    pub grouping: Vec<JobLabel>,
    /// What becomes of a group when its job has ended.
    pub at_end: AtEnd,
    /// A Secret in the job namespace with the gateway's credentials.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secret: Option<String>,
}

/// What becomes of pushed metrics when their job has ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum AtEnd {
    /// The last values stay until others replace them.
    #[default]
    Keep,
    /// They are deleted.
    Delete,
}

/// A receiver of OTLP.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct OtlpMetrics {
    /// Its address, to which `/v1/metrics` is added.
    pub url: String,
    /// A Secret in the job namespace with the receiver's credentials.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secret: Option<String>,
}

impl Default for MetricsExporterConfig {
    fn default() -> Self {
        Self {
            enabled: false,
            path: "/metrics".to_owned(),
            mode: MetricsMode::Scrape,
            labels: vec![JobLabel::BuildJob, JobLabel::Pipeline, JobLabel::Build, JobLabel::Step],
            extra_labels: BTreeMap::new(),
            port: 9465,
            push: None,
            otlp: None,
            interval_seconds: 15,
            drain_seconds: 30,
        }
    }
}

impl Default for PushConfig {
    fn default() -> Self {
        let grouping = vec![JobLabel::Pipeline, JobLabel::Step];
        Self { url: String::new(), job: "buildkite".to_owned(), grouping, at_end: AtEnd::Keep, secret: None }
    }
}

impl MetricsExporterConfig {
    /// Refuses what cannot work.
    pub(super) fn check(&self) -> Result<(), String> {
        check_directory(&self.path).map_err(|problem| format!("`path` {problem}"))?;
        if self.port < 1024 {
            return Err("`port` must be 1024 or more, as the exporter is not root".to_owned());
        }
        if !(1..=3600).contains(&self.interval_seconds) {
            return Err("`intervalSeconds` must be 1 to 3600".to_owned());
        }
        if !(1..=600).contains(&self.drain_seconds) {
            return Err("`drainSeconds` must be 1 to 600".to_owned());
        }
        if let Some(name) = self.extra_labels.keys().find(|name| !is_label(name)) {
            return Err(format!(
                "`extraLabels` has `{name}`: names of labels are letters, digits and `_`, begin with no digit and not with `__`"
            ));
        }
        let own = |name: &&String| self.labels.iter().any(|label| label.name() == name.as_str());
        if let Some(name) = self.extra_labels.keys().find(own) {
            return Err(format!("`extraLabels.{name}` is in `labels` too"));
        }
        self.check_receivers()
    }

    fn check_receivers(&self) -> Result<(), String> {
        if let Some(push) = &self.push {
            check_url(&push.url).map_err(|(field, problem)| format!("`push{field}` {problem}"))?;
            if push.job.is_empty() {
                return Err("`push.job` must not be empty".to_owned());
            }
            check_name(push.secret.as_deref()).map_err(|problem| format!("`push.secret` {problem}"))?;
        }
        if let Some(otlp) = &self.otlp {
            check_url(&otlp.url).map_err(|(field, problem)| format!("`otlp{field}` {problem}"))?;
            check_name(otlp.secret.as_deref()).map_err(|problem| format!("`otlp.secret` {problem}"))?;
        }
        match self.missing(self.mode) {
            Some(section) => Err(format!("`mode: {section}` needs `{section}.url`")),
            None => Ok(()),
        }
    }

    /// The section that this mode needs and the configuration does not have.
    pub fn missing(&self, mode: MetricsMode) -> Option<&'static str> {
        match mode {
            MetricsMode::Push if self.push.is_none() => Some("push"),
            MetricsMode::Otlp if self.otlp.is_none() => Some("otlp"),
            _ => None,
        }
    }
}

fn is_label(name: &str) -> bool {
    let known = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    !name.is_empty()
        && !name.starts_with("__")
        && !name.starts_with(|first: char| first.is_ascii_digit())
        && name.bytes().all(known)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::{JobLabel, MetricsExporterConfig};

    fn read(text: &str) -> Result<MetricsExporterConfig, String> {
        let config: MetricsExporterConfig =
            serde_saphyr::from_str(text).map_err(|error| error.to_string())?;
        config.check().map(|()| config)
    }

    #[rstest]
    #[case(
        "path: metrics",
        "`path` `metrics` must be an absolute path without `.`, `..`, `:` and empty parts"
    )]
    #[case("port: 80", "`port` must be 1024 or more, as the exporter is not root")]
    #[case("intervalSeconds: 0", "`intervalSeconds` must be 1 to 3600")]
    #[case("drainSeconds: 9999", "`drainSeconds` must be 1 to 600")]
    #[case("mode: push", "`mode: push` needs `push.url`")]
    #[case("mode: otlp", "`mode: otlp` needs `otlp.url`")]
    #[case("push: {url: gateway}", "`push.url` must begin with http:// or https://, and name a host")]
    #[case("push: {url: 'http://a', job: ''}", "`push.job` must not be empty")]
    #[case("otlp: {url: 'http://a', secret: ''}", "`otlp.secret` must not be empty")]
    #[case(
        "push: {url: 'http://a', secret: My_Secret}",
        "`push.secret` `My_Secret` is no name that an object can have: lower-case letters, digits, `-` and `.`"
    )]
    #[case("extraLabels: {pipeline: a}", "`extraLabels.pipeline` is in `labels` too")]
    #[case(
        "extraLabels: {__a: b}",
        "`extraLabels` has `__a`: names of labels are letters, digits and `_`, begin with no digit and not with `__`"
    )]
    fn what_cannot_work_is_refused(#[case] text: &str, #[case] expected: &str) {
        assert_eq!(read(text), Err(expected.to_owned()));
    }

    #[test]
    fn labels_have_the_names_that_they_are_configured_by() {
        let all = "labels: [build_job, pipeline, build, step, job_uuid, namespace, pod]";
        let labels = read(all).unwrap().labels;
        let names: Vec<&str> = labels.iter().copied().map(JobLabel::name).collect();
        assert_eq!(format!("labels: [{}]", names.join(", ")), all);
    }
}
