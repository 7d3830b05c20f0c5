//! The operator's configuration while it may change: what can be used, and what a new version of it means.

use std::collections::BTreeMap;

use bk_api::config::{CONFIG_MAP, Config};

use crate::{
    options,
    pod::{self, PodSettings},
};

/// Reads the data of the ConfigMap, and refuses what is not understood, and what no pod can be made with.
pub fn read(data: &BTreeMap<String, String>) -> Result<Config, String> {
    let config = Config::from_data(data).map_err(|error| error.to_string())?;
    for queue in config.spawner.queues() {
        options::check_names(&queue.forbid).map_err(|problem| {
            format!("ConfigMap {CONFIG_MAP}, key `job_spawner_config`: `forbid`: {problem}")
        })?;
    }
    // Neither the service's address nor the shim's name makes a difference, nor which image the operator has: only that there is
    // one, as there is none without in which exporters could run. It is found out later.
    let mut trial = config.clone();
    trial.pods.operator_image.get_or_insert_with(|| "trial".to_owned());
    pod::try_out(&PodSettings::of(&trial, "trial", "trial".to_owned()))
        .map_err(|error| format!("ConfigMap {CONFIG_MAP}: no pod can be made with its settings: {error}"))?;
    Ok(config)
}

/// The versions of the ConfigMap that were seen, and the configuration in force.
#[derive(Clone, Debug)]
pub struct Versions {
    in_force: Config,
    /// The last version that was seen; none if there was no ConfigMap.
    seen: Option<String>,
    /// Whether that is something else than the configuration in force.
    differs: bool,
}

/// A version of the ConfigMap, and what reading it came to.
pub type Version = (String, Result<Config, String>);

/// What a version means.
#[derive(Clone, Debug, PartialEq)]
pub enum News {
    /// Nothing new.
    Nothing,
    /// A change has been taken back: the configuration in force is the one that is written.
    Restored,
    /// Another configuration, which can be tried.
    Changed(Box<Config>),
    /// It cannot be used, and why.
    Refused(String),
    /// There is no ConfigMap any more.
    Gone,
}

impl Versions {
    /// Begins with a configuration, and the version of the ConfigMap that it is from, if there is one.
    pub fn new(version: Option<String>, in_force: Config) -> Self {
        Self { in_force, seen: version, differs: false }
    }

    /// What a version means. One that was seen already means nothing: a watch that is begun anew tells of it again.
    pub fn see(&mut self, found: Option<Version>) -> News {
        let Some((version, config)) = found else {
            let was_there = self.seen.take().is_some();
            self.differs |= was_there;
            return if was_there { News::Gone } else { News::Nothing };
        };
        if self.seen.as_ref() == Some(&version) {
            return News::Nothing;
        }
        self.seen = Some(version);
        let differed = self.differs;
        self.differs = config.as_ref() != Ok(&self.in_force);
        match config {
            Err(problem) => News::Refused(problem),
            Ok(config) if self.differs => News::Changed(Box::new(config)),
            Ok(_) if differed => News::Restored,
            Ok(_) => News::Nothing,
        }
    }

    /// The configuration in force.
    pub fn in_force(&self) -> &Config {
        &self.in_force
    }

    /// A changed configuration is in force from now on.
    pub fn adopt(&mut self, config: Config) {
        self.in_force = config;
        self.differs = false;
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn written(key: &str, document: &str) -> Result<Config, String> {
        read(&BTreeMap::from([(key.to_owned(), document.to_owned())]))
    }

    fn version(number: u32, max_in_flight: &str) -> Version {
        let config = written("job_spawner_config", &format!("maxInFlight: {max_in_flight}"));
        (number.to_string(), config)
    }

    fn begin() -> Versions {
        Versions::new(Some("1".to_owned()), written("job_spawner_config", "maxInFlight: 3").unwrap())
    }

    fn changed(max_in_flight: usize) -> News {
        let mut config = Config::default();
        config.spawner.max_in_flight = max_in_flight;
        News::Changed(Box::new(config))
    }

    /// Every key, with something that is not understood, that is out of range, or that no pod can have.
    #[rstest]
    #[case("log_exporter_config", "sinks: {a: {lokki: {url: 'http://x'}}}", "line 1 column 13")]
    #[case(
        "log_exporter_config",
        "sinks: {a: {loki: {url: x}}}",
        "`sinks.a.loki.url` must begin with http://"
    )]
    #[case("log_exporter_config", "enabled: true", "`enabled` needs at least one sink")]
    #[case(
        "log_exporter_config",
        "sinks: {a: {loki: {url: 'http://x', secret: ''}}}",
        "`sinks.a.loki.secret` must not be empty"
    )]
    #[case(
        "log_exporter_config",
        "{sinks: {a: {stdout: {}}}, defaultSinks: [a, a]}",
        "`defaultSinks`: `a` is there twice"
    )]
    #[case(
        "metrics_exporter_config",
        "push: {url: 'http://x', secret: A}",
        "`push.secret` `A` is no name that an object can have"
    )]
    #[case("metrics_exporter_config", "mode: push", "`mode: push` needs `push.url`")]
    #[case("metrics_exporter_config", "prot: 9100", "unknown field `prot`; did you mean `port`?")]
    #[case("artifact_exporter_config", "path: artifacts", "`path` `artifacts` must be an absolute path")]
    #[case("artifact_exporter_config", "drainSeconds: many", "line 1 column 15")]
    #[case("repo_syncer_config", "layout: shared", "`layout: shared` needs `claimName`")]
    #[case(
        "repo_syncer_config",
        "{layout: shared, claimName: Mirrors}",
        "`claimName` `Mirrors` is no name that an object can have"
    )]
    #[case("repo_syncer_config", "endpoint: {tokenSecret: ''}", "`endpoint.tokenSecret` must not be empty")]
    #[case("repo_syncer_config", "gc: {maxPacks: 1}", "`gc.maxPacks` must be at least 2")]
    #[case(
        "validation_config",
        "rules: [{expression: 'self.spec.', message: x}]",
        "`rules[0]`: `expression`: "
    )]
    #[case("validation_config", "newNodes: nodeClasses", "`newNodes: nodeClasses` needs `nodeClasses`")]
    #[case("job_spawner_config", "forbid: [imge]", "`forbid`: `imge`: ")]
    #[case("job_spawner_config", "queues: [{key: a}, {key: a}]", "`queues[1].key: a` is there already")]
    #[case("pod_config", "agentimage: x", "line 1 column 1: unknown field `agentimage`")]
    #[case("resource_classes", "a: {resources: {request: {}, limit: {cpu: 1}}}", "`a.resources.limit`")]
    fn each_key_is_refused_by_name_and_with_the_reason(
        #[case] key: &str,
        #[case] document: &str,
        #[case] reason: &str,
    ) {
        let problem = written(key, document).unwrap_err();
        let place = format!("ConfigMap buildkite-operator-config, key `{key}`: ");
        assert!(problem.starts_with(&place) && problem.contains(reason), "{problem}");
    }

    #[rstest]
    #[case("validation_confg", "{}", "unknown key `validation_confg`")]
    #[case(
        "log_exporter_config",
        "sinks: {a: {file: {volume: {hostPaht: {path: /logs}}}}}",
        "log_exporter_config.sinks.a.file.volume.hostPaht"
    )]
    #[case("pod_config", "podSpecPatch: {containers: [{name: agent, $patch: delete}]}", "no pod can be made")]
    fn so_is_what_no_pod_can_be_made_with(#[case] key: &str, #[case] document: &str, #[case] reason: &str) {
        let problem = written(key, document).unwrap_err();
        assert!(problem.contains(reason), "{problem}");
    }

    /// Though the image in which exporters run is not known yet.
    #[test]
    fn exporters_cannot_share_a_directory() {
        let keys = ["artifact_exporter_config", "metrics_exporter_config"];
        let data = keys.map(|key| (key.to_owned(), "{enabled: true, path: /out}".to_owned()));
        let problem = read(&data.into()).unwrap_err();
        assert!(problem.ends_with("metrics-exporter and artifact-exporter cannot share /out"), "{problem}");
    }

    #[test]
    fn only_another_configuration_is_a_change() {
        let mut versions = begin();
        assert_eq!(versions.see(Some(version(1, "3"))), News::Nothing, "the watch begins with what is there");
        assert_eq!(versions.see(Some(version(2, "3 # a comment"))), News::Nothing);
        assert_eq!(versions.see(Some(version(3, "4"))), changed(4));
        assert_eq!(versions.in_force().spawner.max_in_flight, 3, "it has not been tried yet");
        assert_eq!(versions.see(Some(version(3, "4"))), News::Nothing, "it is being tried");
        assert_eq!(versions.see(Some(version(4, "4 # tried again"))), changed(4));
        assert_eq!(versions.see(Some(version(5, "3"))), News::Restored);
        versions.adopt(Config::default());
        assert_eq!(versions.see(Some(version(6, "25"))), News::Nothing);
    }

    #[test]
    fn what_is_refused_or_gone_leaves_the_last_good_one_in_force() {
        let mut versions = begin();
        let News::Refused(problem) = versions.see(Some(version(2, "0"))) else {
            panic!("it is out of range")
        };
        assert!(problem.ends_with("`maxInFlight` must be at least 1"), "{problem}");
        assert_eq!(versions.see(Some(version(2, "0"))), News::Nothing, "it is told once");
        assert_eq!(versions.see(Some(version(3, "3"))), News::Restored);
        assert_eq!(versions.see(None), News::Gone);
        assert_eq!(versions.see(None), News::Nothing);
        assert_eq!(versions.see(Some(version(4, "3"))), News::Restored);
        assert_eq!(versions.in_force().spawner.max_in_flight, 3);
    }

    #[test]
    fn no_config_map_means_defaults_until_there_is_one() {
        let mut versions = Versions::new(None, Config::default());
        assert_eq!(versions.see(None), News::Nothing);
        assert_eq!(versions.see(Some(version(1, "25"))), News::Nothing);
        assert_eq!(versions.see(Some(version(2, "1"))), changed(1));
    }
}
