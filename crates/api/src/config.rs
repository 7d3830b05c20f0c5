//! The operator's configuration: the ConfigMap `buildkite-operator-config`, whose keys hold scalars or YAML
//! documents. What is not understood is refused, with the key that holds it.

mod agent;
mod artifacts;
mod directory;
mod logs;
mod metrics;
mod mirrors;
mod pods;
mod spawner;
mod strict;
mod validation;
mod values;

use std::collections::BTreeMap;

use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

use crate::spelling;

pub use agent::{AdditionalHooks, AgentConfig};
pub use artifacts::ArtifactExporterConfig;
pub use directory::check_directory;
pub use logs::{
    ElasticsearchSink, FileSink, LogBatch, LogExporterConfig, LogHandling, LogRedaction, LogSink, LokiSink,
    Multiline, OtlpEncoding, OtlpSink, StdoutSink,
};
pub use metrics::{AtEnd, JobLabel, MetricsExporterConfig, OtlpMetrics, PushConfig};
pub use mirrors::{MirrorConfig, MirrorEndpoint, MirrorGc, MirrorLayout};
pub use pods::{
    AgentCredentials, AgentDelivery, Architecture, ImageCheck, NodeLeaving, OwnResources, PodConfig,
    PodSecurity, PullPolicy, RegistrationProof, ResourceClass, ResourceClasses, Timeouts,
};
pub use spawner::{
    CLUSTER_DEFAULT_QUEUE, DEFAULT_QUEUE, IntakeKind, JobDefaults, Queue, QueueConfig, SpawnerConfig,
};
pub use strict::unknown_field;
pub use validation::{
    EnvironmentDefaults, Expression, NewNodes, NodeClass, RuleAction, RuleKind, ValidationConfig,
    ValidationRule,
};
pub use values::ValuesSchema;

/// Name of the ConfigMap in the operator's namespace.
pub const CONFIG_MAP: &str = "buildkite-operator-config";

/// Key of the Secret that holds the agent token.
pub const TOKEN_KEY: &str = "BUILDKITE_AGENT_TOKEN";

/// Key of the Secret that holds the API token.
pub const API_TOKEN_KEY: &str = "BUILDKITE_API_TOKEN";

const KEYS: [&str; 9] = [
    "artifact_exporter_config",
    "job_namespace",
    "job_spawner_config",
    "log_exporter_config",
    "metrics_exporter_config",
    "pod_config",
    "repo_syncer_config",
    "resource_classes",
    "validation_config",
];

/// Everything that can be configured.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Config {
    /// Namespace of BuildJobs and their pods; the operator's own if absent.
    pub job_namespace: Option<String>,
    /// How jobs are taken from Buildkite.
    pub spawner: SpawnerConfig,
    /// Which files of jobs become artifacts.
    pub artifacts: ArtifactExporterConfig,
    /// Where logs of jobs go.
    pub logs: LogExporterConfig,
    /// How metrics of jobs leave their pods.
    pub metrics: MetricsExporterConfig,
    /// What job pods look like and how long their traces stay.
    pub pods: PodConfig,
    /// Resources, nodes and priorities under one name each.
    pub resource_classes: ResourceClasses,
    /// Where mirrors of git repositories are, and how they are kept.
    pub mirrors: MirrorConfig,
    /// What may run, and what environments get that do not have it.
    pub validation: ValidationConfig,
}

/// A configuration that is not understood.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum ConfigError {
    /// A key that means nothing.
    #[error("ConfigMap {CONFIG_MAP}: unknown key `{key}`; known keys are {}", KEYS.join(", "))]
    UnknownKey {
        /// The key.
        key: String,
    },
    /// A value that is not what its key asks for.
    #[error("ConfigMap {CONFIG_MAP}, key `{key}`: {message}")]
    Value {
        /// The key.
        key: &'static str,
        /// What is wrong, and where in the document.
        message: String,
    },
}

impl ConfigError {
    /// The key of the ConfigMap that is not understood, or whose value is not.
    pub fn key(&self) -> &str {
        match self {
            Self::UnknownKey { key } => key,
            Self::Value { key, .. } => key,
        }
    }
}

impl Config {
    /// Reads the data of the ConfigMap. Keys that are absent have their defaults.
    pub fn from_data(data: &BTreeMap<String, String>) -> Result<Self, ConfigError> {
        if let Some(key) = data.keys().find(|key| !KEYS.contains(&key.as_str())) {
            return Err(ConfigError::UnknownKey { key: key.clone() });
        }
        let config = Self {
            job_namespace: data
                .get("job_namespace")
                .map(|value| value.trim().to_owned())
                .filter(|v| !v.is_empty()),
            spawner: document(data, "job_spawner_config")?,
            artifacts: document(data, "artifact_exporter_config")?,
            logs: document(data, "log_exporter_config")?,
            metrics: document(data, "metrics_exporter_config")?,
            pods: document(data, "pod_config")?,
            resource_classes: document(data, "resource_classes")?,
            mirrors: document(data, "repo_syncer_config")?,
            validation: document(data, "validation_config")?,
        };
        config.check()?;
        Ok(config)
    }

    fn check(&self) -> Result<(), ConfigError> {
        self.spawner.check().map_err(|message| ConfigError::Value { key: "job_spawner_config", message })?;
        let refused = |key: &'static str| move |message: String| ConfigError::Value { key, message };
        self.artifacts.check().map_err(refused("artifact_exporter_config"))?;
        self.logs.check().map_err(refused("log_exporter_config"))?;
        self.metrics.check().map_err(refused("metrics_exporter_config"))?;
        self.mirrors.check().map_err(refused("repo_syncer_config"))?;
        self.validation.check().map_err(refused("validation_config"))?;
        if self.pods.termination_grace_period_seconds < 0 {
            let message = "`terminationGracePeriodSeconds` must not be negative".to_owned();
            return Err(ConfigError::Value { key: "pod_config", message });
        }
        let unknown = |class: &&String| !self.resource_classes.contains_key(*class);
        if let Some(class) = self.pods.default_resource_class.as_ref().filter(unknown) {
            let message = format!("`defaultResourceClass: {class}` is not in `resource_classes`");
            return Err(ConfigError::Value { key: "pod_config", message });
        }
        let queues = self.spawner.queues();
        if let Some(class) =
            queues.iter().filter_map(|queue| queue.defaults.resource_class.as_ref()).find(unknown)
        {
            let message = format!("`defaults`: `resourceClass: {class}` is not in `resource_classes`");
            return Err(ConfigError::Value { key: "job_spawner_config", message });
        }
        check_timeouts(self.pods.timeouts)
            .map_err(|message| ConfigError::Value { key: "pod_config", message: message.to_owned() })
    }
}

fn check_timeouts(timeouts: Timeouts) -> Result<(), &'static str> {
    let Timeouts { schedule_seconds, pull_seconds, start_seconds, run_seconds, .. } = timeouts;
    if schedule_seconds == 0 || pull_seconds == 0 || start_seconds == 0 || run_seconds == Some(0) {
        return Err(
            "`timeouts`: scheduleSeconds, pullSeconds, startSeconds and runSeconds must be at least 1",
        );
    }
    // Reservations outlive the start by five minutes, and Buildkite holds none for more than an hour.
    if schedule_seconds.saturating_add(start_seconds) > 3300 {
        return Err("`timeouts`: scheduleSeconds and startSeconds must not be more than 3300 together");
    }
    Ok(())
}

fn document<T: DeserializeOwned + Serialize + Default>(
    data: &BTreeMap<String, String>,
    key: &'static str,
) -> Result<T, ConfigError> {
    match data.get(key) {
        None => Ok(T::default()),
        Some(text) if text.trim().is_empty() => Ok(T::default()),
        Some(text) => {
            let refused = |message: String| ConfigError::Value { key, message };
            let complaint = |error: serde_saphyr::Error| refused(complaint(&error.to_string()));
            let typed: T = serde_saphyr::from_str(text).map_err(complaint)?;
            let given: Value = serde_saphyr::from_str(text).map_err(complaint)?;
            match unknown_field(&given, &typed) {
                Some(path) => Err(refused(format!("`{path}`: there is no such field"))),
                None => Ok(typed),
            }
        }
    }
}

/// What is wrong with a document, in one line: what follows the first line draws the place. A field that is like a known one
/// is taken for a misspelling of it.
fn complaint(text: &str) -> String {
    let line = text.lines().next().unwrap_or_default().trim_start_matches("error: ");
    let Some((before, known)) = line.split_once(", expected one of ") else {
        return line.to_owned();
    };
    let given = before.rsplit('`').nth(1).unwrap_or_default();
    match spelling::nearest(given, known.split(", ").map(|field| field.trim_matches('`'))) {
        Some(nearest) => format!("{before}; did you mean `{nearest}`?"),
        None => line.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn read(entries: &[(&str, &str)]) -> Result<Config, ConfigError> {
        let data = entries.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        Config::from_data(&data)
    }

    #[test]
    fn nothing_means_defaults() {
        assert_eq!(read(&[]), Ok(Config::default()));
    }

    #[test]
    fn documents_override_single_values() {
        let config = read(&[
            ("job_namespace", " ci-jobs\n"),
            ("job_spawner_config", "queue: gpu\nmaxInFlight: 3\ntags: [cluster=prod]\n"),
        ])
        .unwrap();
        assert_eq!(config.job_namespace.as_deref(), Some("ci-jobs"));
        assert_eq!((config.spawner.main_queue().key.as_str(), config.spawner.max_in_flight), ("gpu", 3));
        assert_eq!(config.pods, PodConfig::default());
    }

    #[test]
    fn unknown_keys_are_named() {
        let error = read(&[("job_spawner", "{}")]).unwrap_err();
        insta::assert_snapshot!(error, @"ConfigMap buildkite-operator-config: unknown key `job_spawner`; known keys are artifact_exporter_config, job_namespace, job_spawner_config, log_exporter_config, metrics_exporter_config, pod_config, repo_syncer_config, resource_classes, validation_config");
    }

    #[test]
    fn unknown_fields_name_key_and_nearest_field() {
        let error = |document: &str| read(&[("pod_config", document)]).unwrap_err().to_string();
        insta::assert_snapshot!(error("agentimage: x"), @"ConfigMap buildkite-operator-config, key `pod_config`: line 1 column 1: unknown field `agentimage`; did you mean `agentImage`?");
        insta::assert_snapshot!(error("agentConfig:\n  no-pty: true"), @"ConfigMap buildkite-operator-config, key `pod_config`: line 2 column 3: unknown field `no-pty`; did you mean `noPty`?");
    }

    #[rstest]
    #[case("job_spawner_config", "maxInFlight: 0", "`maxInFlight` must be at least 1")]
    #[case("job_spawner_config", "queue: ''", "`queue` must not be empty")]
    #[case(
        "job_spawner_config",
        "stackKey: a b",
        "`stackKey: a b` must be 1 to 80 letters, digits, `_` or `-`"
    )]
    #[case(
        "job_spawner_config",
        "queues: [{key: a, defaults: {resourceClass: huge}}]",
        "`defaults`: `resourceClass: huge` is not in `resource_classes`"
    )]
    #[case(
        "pod_config",
        "terminationGracePeriodSeconds: -1",
        "`terminationGracePeriodSeconds` must not be negative"
    )]
    #[case(
        "pod_config",
        "defaultResourceClass: huge",
        "`defaultResourceClass: huge` is not in `resource_classes`"
    )]
    #[case(
        "pod_config",
        "timeouts: {scheduleSeconds: 2401, startSeconds: 900}",
        "`timeouts`: scheduleSeconds and startSeconds must not be more than 3300 together"
    )]
    #[case(
        "artifact_exporter_config",
        "path: /workspace/out",
        "`path` `/workspace/out` must not be in /workspace, which is used for something else"
    )]
    #[case("artifact_exporter_config", "drainSeconds: 0", "`drainSeconds` must be 1 to 600")]
    #[case(
        "validation_config",
        "rules: [{expression: 'true', message: no}, {expression: self.spec.image ==, message: no}]",
        "`rules[1]`: `expression`: column 19: Syntax error: mismatched input '<EOF>' expecting {'[', '{', '(', '.', '-', '!', 'true', 'false', 'null', NUM_FLOAT, NUM_INT, NUM_UINT, STRING, BYTES, IDENTIFIER}"
    )]
    #[case(
        "validation_config",
        "rules: [{expression: 'true'}]",
        "`rules[0]`: `message` must say what is wrong, for whoever breaks the rule"
    )]
    #[case(
        "validation_config",
        "rules: [{expression: 'true', message: no, kind: BuildEnvironment, queues: [a]}]",
        "`rules[0]`: `queues` and `pipelines` are for jobs; an environment has none"
    )]
    #[case("validation_config", "newNodes: nodeClasses", "`newNodes: nodeClasses` needs `nodeClasses`")]
    #[case(
        "validation_config",
        "environmentDefaults: {extraContainers: [{name: proxy}]}",
        "`environmentDefaults.extraContainers[0]`: give either `environment`, the name of a BuildEnvironment, or `container`"
    )]
    #[case("metrics_exporter_config", "mode: push", "`mode: push` needs `push.url`")]
    #[case(
        "pod_config",
        "timeouts: {runSeconds: 0}",
        "`timeouts`: scheduleSeconds, pullSeconds, startSeconds and runSeconds must be at least 1"
    )]
    fn values_out_of_range_are_refused(#[case] key: &str, #[case] document: &str, #[case] expected: &str) {
        let error = read(&[(key, document)]).unwrap_err().to_string();
        assert!(error.ends_with(expected), "{error}");
    }

    #[test]
    fn unknown_fields_deep_inside_kubernetes_types_are_named() {
        let error = read(&[("resource_classes", "large: {resources: {request: {cpu: 4}}}")]).unwrap_err();
        insta::assert_snapshot!(error, @"ConfigMap buildkite-operator-config, key `resource_classes`: `large.resources.request`: there is no such field");
    }

    #[test]
    fn tags_need_a_value() {
        let error = read(&[("job_spawner_config", "tags: [linux]")]).unwrap_err().to_string();
        assert!(error.ends_with("tag `linux` must have the form key=value"), "{error}");
    }
}
