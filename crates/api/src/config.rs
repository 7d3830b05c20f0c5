//! The operator's configuration: the ConfigMap `buildkite-operator-config`, whose keys hold scalars or YAML
//! documents. What is not understood is refused, with the key that holds it.

mod agent;
mod pods;
mod strict;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::Value;

pub use agent::{AdditionalHooks, AgentConfig};
pub use pods::{
    AgentDelivery, Architecture, ImageCheck, OwnResources, PodConfig, PodSecurity, PullPolicy, ResourceClass,
    ResourceClasses, Timeouts,
};
pub use strict::unknown_field;

/// Name of the ConfigMap in the operator's namespace.
pub const CONFIG_MAP: &str = "buildkite-operator-config";

/// Key of the Secret that holds the agent token.
pub const TOKEN_KEY: &str = "BUILDKITE_AGENT_TOKEN";

const KEYS: [&str; 4] = ["job_namespace", "job_spawner_config", "pod_config", "resource_classes"];

/// How alike a field must be to a known one to be taken for it.
const ALIKE: f64 = 0.84;

/// Everything that can be configured.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Config {
    /// Namespace of BuildJobs and their pods; the operator's own if absent.
    pub job_namespace: Option<String>,
    /// How jobs are taken from Buildkite.
    pub spawner: SpawnerConfig,
    /// What job pods look like and how long their traces stay.
    pub pods: PodConfig,
    /// Resources, nodes and priorities under one name each.
    pub resource_classes: ResourceClasses,
}

/// `job_spawner_config`: how jobs are taken from Buildkite.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct SpawnerConfig {
    /// The Agent API's address, for the operator and for the agents in pods.
    pub endpoint: Option<String>,
    /// The queue to serve.
    pub queue: String,
    /// Further tags that jobs may ask for, as `key=value`.
    pub tags: Vec<String>,
    /// Name of this operator at Buildkite, unique in the organisation.
    pub stack_key: String,
    /// The most BuildJobs that may be under way at once.
    pub max_in_flight: usize,
}

impl Default for SpawnerConfig {
    fn default() -> Self {
        Self {
            endpoint: None,
            queue: "bk-operator".to_owned(),
            tags: Vec::new(),
            stack_key: "buildkite-operator".to_owned(),
            max_in_flight: 25,
        }
    }
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
            pods: document(data, "pod_config")?,
            resource_classes: document(data, "resource_classes")?,
        };
        config.check()?;
        Ok(config)
    }

    fn check(&self) -> Result<(), ConfigError> {
        let key = "job_spawner_config";
        if self.spawner.queue.is_empty() {
            return Err(ConfigError::Value { key, message: "`queue` must not be empty".to_owned() });
        }
        if let Some(tag) = self.spawner.tags.iter().find(|tag| !tag.contains('=')) {
            return Err(ConfigError::Value {
                key,
                message: format!("tag `{tag}` must have the form key=value"),
            });
        }
        let stack_key = &self.spawner.stack_key;
        let printable = stack_key.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-'));
        if !printable || !(1..=80).contains(&stack_key.len()) {
            let message = format!("`stackKey: {stack_key}` must be 1 to 80 letters, digits, `_` or `-`");
            return Err(ConfigError::Value { key, message });
        }
        if self.spawner.max_in_flight == 0 {
            return Err(ConfigError::Value { key, message: "`maxInFlight` must be at least 1".to_owned() });
        }
        if self.pods.termination_grace_period_seconds < 0 {
            let message = "`terminationGracePeriodSeconds` must not be negative".to_owned();
            return Err(ConfigError::Value { key: "pod_config", message });
        }
        let default = self.pods.default_resource_class.as_ref();
        if let Some(class) = default.filter(|class| !self.resource_classes.contains_key(*class)) {
            let message = format!("`defaultResourceClass: {class}` is not in `resource_classes`");
            return Err(ConfigError::Value { key: "pod_config", message });
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
    let known = known.split(", ").map(|field| field.trim_matches('`'));
    match known.max_by(|a, b| likeness(given, a).total_cmp(&likeness(given, b))) {
        Some(nearest) if likeness(given, nearest) > ALIKE => format!("{before}; did you mean `{nearest}`?"),
        _ => line.to_owned(),
    }
}

/// How alike two names are that may be spelt in different styles.
fn likeness(a: &str, b: &str) -> f64 {
    let plain = |name: &str| name.replace(['-', '_'], "").to_lowercase();
    strsim::jaro_winkler(&plain(a), &plain(b))
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
        assert_eq!((config.spawner.queue.as_str(), config.spawner.max_in_flight), ("gpu", 3));
        assert_eq!(config.pods, PodConfig::default());
    }

    #[test]
    fn unknown_keys_are_named() {
        let error = read(&[("job_spawner", "{}")]).unwrap_err();
        insta::assert_snapshot!(error, @"ConfigMap buildkite-operator-config: unknown key `job_spawner`; known keys are job_namespace, job_spawner_config, pod_config, resource_classes");
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
