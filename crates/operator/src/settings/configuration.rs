//! The operator's configuration, followed while the operator works or stands by.

use std::{collections::BTreeMap, convert::Infallible};

use bk_api::config::{CONFIG_MAP, Config};
use bk_plan::configuration::{self, News, Version, Versions};
use futures::{FutureExt, StreamExt, stream::BoxStream};
use k8s_openapi::api::core::v1::{ConfigMap, ObjectReference};
use kube::{
    Api, Resource,
    runtime::{events::EventType, watcher},
};

use super::{Cluster, patience, watch_one, with_flags};
use crate::{
    cli::RunArgs,
    error::Error,
    telemetry::{Announcer, Metrics},
};

/// The configuration in force, and what becomes of its ConfigMap.
pub struct Configuration {
    args: RunArgs,
    versions: Versions,
    changes: BoxStream<'static, watcher::Result<Option<ConfigMap>>>,
    /// The ConfigMap, if there is one, for Events about it.
    subject: Option<ObjectReference>,
    metrics: Metrics,
}

impl Configuration {
    /// Reads the ConfigMap, and applies the flags. One that cannot be used is an error: there is no other to work by.
    pub async fn read(args: &RunArgs, cluster: &Cluster, metrics: &Metrics) -> Result<Self, Error> {
        let api = Api::<ConfigMap>::namespaced(cluster.calls.clone(), &cluster.namespace);
        let attempt = format!("read ConfigMap {}/{CONFIG_MAP}", cluster.namespace);
        let found = patience::insist(&attempt, || api.get_opt(CONFIG_MAP)).await;
        let found = found.map_err(Error::kubernetes(attempt))?;
        let (version, config) = match &found {
            Some(config_map) => {
                let (version, config) = version(args, config_map);
                (Some(version), config.map_err(Error::Setup)?)
            }
            None => (None, with_flags(args, Config::default())),
        };
        let streams = Api::<ConfigMap>::namespaced(cluster.streams.clone(), &cluster.namespace);
        Ok(Self {
            args: args.clone(),
            versions: Versions::new(version, config),
            changes: watch_one(streams, CONFIG_MAP).boxed(),
            subject: found.map(|config_map| config_map.object_ref(&())),
            metrics: metrics.clone(),
        })
    }

    /// The configuration in force, with flags applied.
    pub fn in_force(&self) -> &Config {
        self.versions.in_force()
    }

    /// Takes every change that can be read, for as long as no work depends on it. `learn` gets each, until there is another.
    pub async fn keep_up(&mut self, learn: impl AsyncFn(Config)) -> Infallible {
        let mut learning = std::future::pending().boxed_local();
        loop {
            tokio::select! {
                () = &mut learning => learning = std::future::pending().boxed_local(),
                () = self.next(None, async |_| Ok(())) => {
                    tracing::info!("the configuration has changed");
                    learning = learn(self.in_force().clone()).boxed_local();
                }
            }
        }
    }

    /// Waits for a changed configuration by which the operator could work, and answers with what `trial` has made of it. It is in force
    /// from then on. What cannot be used is refused, and people are told; what was in force stays.
    pub async fn next<T>(
        &mut self,
        announcer: Option<&Announcer>,
        trial: impl AsyncFn(&Config) -> Result<T, Error>,
    ) -> T {
        let mut news = self.news().await;
        loop {
            news = match news {
                News::Changed(config) => {
                    tracing::debug!("the configuration has changed, and is tried");
                    tokio::select! {
                        outcome = trial(&config) => match outcome {
                            Ok(outcome) => {
                                self.versions.adopt(*config);
                                self.metrics.config_accepted();
                                return outcome;
                            }
                            Err(error) => {
                                self.refuse(announcer, &bk_ops::report::one_line(&error));
                                self.news().await
                            }
                        },
                        // Whatever it is, the trial is of something that is no longer wanted.
                        newer = self.news() => newer,
                    }
                }
                News::Refused(problem) => {
                    self.refuse(announcer, &problem);
                    self.news().await
                }
                News::Gone => {
                    self.miss(announcer);
                    self.news().await
                }
                News::Restored => {
                    self.metrics.config_accepted();
                    tracing::info!("the ConfigMap has the configuration in force again");
                    self.news().await
                }
                News::Nothing => self.news().await,
            }
        }
    }

    /// Work by a changed configuration has begun.
    pub fn begun(&self, announcer: &Announcer) {
        let note = "the operator works by this configuration from now on";
        if let Some(subject) = &self.subject {
            announcer.tell(subject.clone(), EventType::Normal, "ConfigurationApplied", note);
        }
    }

    /// The next thing that is new.
    async fn news(&mut self) -> News {
        loop {
            let found = match self.changes.next().await {
                Some(Ok(found)) => found,
                Some(Err(error)) => {
                    let error = bk_ops::report::one_line(&error);
                    tracing::warn!(error, "cannot watch the configuration");
                    continue;
                }
                // A watch goes on for as long as the process lives.
                None => std::future::pending().await,
            };
            let version = found.as_ref().map(|config_map| version(&self.args, config_map));
            self.subject = found.map(|config_map| config_map.object_ref(&()));
            match self.versions.see(version) {
                News::Nothing => {}
                news => return news,
            }
        }
    }

    fn refuse(&self, announcer: Option<&Announcer>, problem: &str) {
        self.metrics.config_rejected();
        tracing::error!(problem, "the configuration cannot be used: the one before stays in force");
        if let (Some(announcer), Some(subject)) = (announcer, &self.subject) {
            let note = format!("{problem}; the configuration before stays in force");
            announcer.tell(subject.clone(), EventType::Warning, "ConfigurationRejected", &note);
        }
    }

    fn miss(&self, announcer: Option<&Announcer>) {
        self.metrics.config_rejected();
        let note = format!(
            "ConfigMap {CONFIG_MAP} is gone: its last configuration stays in force until the operator is restarted"
        );
        tracing::warn!("{note}");
        if let Some(announcer) = announcer {
            announcer.warn("ConfigurationMissing", &note);
        }
    }
}

fn version(args: &RunArgs, config_map: &ConfigMap) -> Version {
    let nothing = BTreeMap::new();
    let config = configuration::read(config_map.data.as_ref().unwrap_or(&nothing));
    let version = config_map.metadata.resource_version.clone().unwrap_or_default();
    (version, config.map(|config| with_flags(args, config)))
}
