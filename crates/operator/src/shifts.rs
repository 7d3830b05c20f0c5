//! The operator's work: one shift for each configuration.
//!
//! When the configuration changes, a shift ends as the operator does, and another begins as after a restart. What a restart cannot harm,
//! a change cannot. Only the farewell is left out: the Lease is kept, the queues stay registered, and questions are answered on.

use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

use bk_api::config::Config;
use bk_plan::pod::PodSettings;
use futures::future::join_all;
use tokio::task::JoinError;
use tokio_util::sync::CancellationToken;

use crate::{
    admission::Webhooks,
    broker::{Broker, Introduction},
    cli::RunArgs,
    controller::{Controller, Links},
    error::Error,
    leadership::Tenure,
    notices,
    settings::{self, Cluster, Configuration, Past, Settings},
    shim,
    spawner::{Slots, Spawner},
    states::RemoteStates,
    telemetry::{Health, Metrics, Telemetry, Traces},
    wakefulness::Wakefulness,
};

/// How long the controller may take to finish what it is doing.
const DRAIN: Duration = Duration::from_secs(10);

/// How soon to try again what pods have to be told.
const PAUSE: Duration = Duration::from_secs(5);

/// What all shifts share.
pub struct House {
    /// How the operator was started.
    pub args: RunArgs,
    /// The way to the API server.
    pub cluster: Cluster,
    /// Until when this process may write, if there are others.
    pub tenure: Option<Tenure>,
    /// The program that job containers begin with.
    pub shim: Vec<u8>,
    /// Numbers.
    pub metrics: Metrics,
    /// What became of each job, step by step.
    pub traces: Traces,
    /// Whether the operator does its work.
    pub health: Health,
    /// Answers to the API server's questions.
    pub webhooks: Webhooks,
    /// Registrations of agents.
    pub broker: Broker,
    /// The end of all shifts.
    pub shutdown: CancellationToken,
}

/// What one shift works by: a configuration that was tried.
pub struct Orders {
    settings: Settings,
    shim_config_map: String,
    broker: Option<Introduction>,
}

impl House {
    /// Tries a configuration. Nothing that jobs notice is done; what is missing is waited for.
    pub async fn prepare(&self, config: &Config, past: Past) -> Result<Orders, Error> {
        let loading = settings::load(&self.args, &self.cluster, config.clone(), past);
        let mut settings = Box::pin(loading).await?;
        settings.intakes = settings.intakes.measured(&self.metrics);
        if let Some(tenure) = &self.tenure {
            settings.intakes = settings.intakes.fenced(tenure);
        }
        let (client, owner) = (self.cluster.calls.clone(), settings.owner.as_ref());
        let shim_config_map = shim::ensure(client, &settings.namespace, &self.shim, owner).await?;
        let Settings { config, namespace, .. } = &settings;
        let broker = self.broker.introduce(config, &self.cluster, namespace, owner).await?;
        Ok(Orders { settings, shim_config_map, broker })
    }

    /// Works by one configuration after the other until the shutdown. Answers with the last spawner, which has not taken its leave.
    pub async fn work(&self, mut configuration: Configuration, first: Orders) -> Result<Spawner, JoinError> {
        let mut orders = first;
        self.metrics.config_applied(false, SystemTime::now());
        loop {
            tell(&orders.settings);
            self.webhooks.learn(&orders.settings, self.broker.secrets());
            self.broker.learn(&orders.settings);
            if let Some(note) = self.webhooks.unheeded(&orders.settings.config.validation) {
                tracing::warn!("{note}");
                orders.settings.announcer.warn("DefaultsUnused", note);
            }
            let end = self.shutdown.child_token();
            let mut shift = Box::pin(self.shift(&orders, &end));
            let settings = &orders.settings;
            let trial = async |config: &Config| Box::pin(self.prepare(config, settings.past())).await;
            let unchanged = configuration.in_force().clone();
            let (next, is_changed) = tokio::select! {
                spawner = &mut shift => return spawner,
                next = Box::pin(configuration.next(Some(&settings.announcer), trial)) => (next, true),
                next = Box::pin(self.introduce_anew(&unchanged, &orders)) => (next, false),
            };
            if is_changed {
                tracing::info!("the configuration has changed: ending the work by the one before");
            }
            end.cancel();
            let spawner = shift.await?;
            if self.shutdown.is_cancelled() {
                return Ok(spawner);
            }
            self.hand_over(settings, &next.settings, spawner.under_way());
            if is_changed {
                self.metrics.config_applied(true, SystemTime::now());
                configuration.begun(&next.settings.announcer);
            }
            orders = next;
        }
    }

    /// The orders by the same configuration, once pods have to be told something else of the broker.
    async fn introduce_anew(&self, config: &Config, orders: &Orders) -> Orders {
        self.broker.outdates(orders.broker.as_ref()).await;
        tracing::warn!(
            "the broker has another authority, or seals one-time tokens with another key: pods are told from now on"
        );
        loop {
            match Box::pin(self.prepare(config, orders.settings.past())).await {
                Ok(orders) => return orders,
                Err(error) => {
                    let error = bk_ops::report::one_line(&error);
                    tracing::warn!(error, "cannot tell pods of the broker yet");
                    tokio::time::sleep(PAUSE).await;
                }
            }
        }
    }

    /// Settles what depends on the settings of two shifts.
    fn hand_over(&self, before: &Settings, after: &Settings, under_way: usize) {
        for queue in before.queues().difference(&after.queues()) {
            self.metrics.queues.forget(queue);
        }
        if before.namespace != after.namespace && under_way > 0 {
            let namespace = &before.namespace;
            let note = format!(
                "{under_way} BuildJobs are under way in namespace {namespace}, in which the operator works no longer: \
                 set `job_namespace` back until they have ended, or delete them"
            );
            tracing::warn!("{note}");
            after.announcer.warn("JobsLeftBehind", &note);
        }
    }

    /// Works until `end`.
    async fn shift(&self, orders: &Orders, end: &CancellationToken) -> Result<Spawner, JoinError> {
        let Orders { settings, shim_config_map, broker } = orders;
        let Self { cluster, shim, metrics, traces, health, shutdown, .. } = self;
        health.serve(settings.queues());
        let telemetry = Telemetry {
            metrics: metrics.clone(),
            traces: traces.clone(),
            health: health.clone(),
            announcer: settings.announcer.clone(),
        };
        let slots = Slots::new(&settings.config.spawner);
        let (remote, remote_changes) = RemoteStates::new(settings.intakes.clone());
        let (notices, courier) = notices::channel(&settings.intakes);
        let wakefulness = Arc::new(Wakefulness::new());
        let pod_settings = PodSettings {
            broker_secrets: self.broker.secrets(),
            ..settings.pods(shim_config_map.clone(), broker.as_ref().map(|broker| broker.access.clone()))
        };
        let spokesman = self.broker.spokesman(&settings.registrar, metrics).fenced(self.tenure.as_ref());
        let controller = Controller::new(
            cluster,
            settings,
            pod_settings,
            Links { remote: remote.clone(), notices, spokesman, wakefulness: wakefulness.clone() },
            &telemetry,
        );
        let (jobs, pods) = (controller.jobs(), controller.pods());
        let mut spawner =
            Spawner::new(cluster.calls.clone(), settings, jobs.clone(), &slots, &telemetry, &wakefulness);
        let polling = remote.poll(jobs);
        let keeping = shim::keep(cluster, &settings.namespace, shim, settings.owner.as_ref());
        let trusting =
            self.broker.keep_trusted(broker.as_ref(), cluster, &settings.namespace, settings.owner.as_ref());
        let following = async {
            let tokens = settings.followed.iter();
            join_all(tokens.map(|(secret, credentials)| secret.follow(cluster.streams.clone(), credentials)))
                .await;
        };
        let ended = CancellationToken::new();
        let telling = tokio::spawn(courier.run(ended.clone()));

        let stop = end.clone();
        // Tasks of their own: they need not wait for the controller's rounds.
        let spawning = tokio::spawn(async move {
            // Without pods to be seen, no job could be followed.
            stop.run_until_cancelled(pods.complete()).await;
            spawner.run(&stop).await;
            spawner
        });
        let spawning = async {
            let spawner = spawning.await;
            if spawner.is_err() || !end.is_cancelled() {
                // It has failed. Whoever restarts the operator mends that.
                shutdown.cancel();
            }
            spawner
        };
        let (spawner, ..) = tokio::join!(
            spawning,
            drain(end, controller.run(remote_changes, slots, end.clone())),
            end.run_until_cancelled(polling),
            end.run_until_cancelled(keeping),
            end.run_until_cancelled(trusting),
            end.run_until_cancelled(following),
        );
        ended.cancel();
        telling.await?;
        spawner
    }
}

/// Says what is worked by.
fn tell(settings: &Settings) {
    let queues: Vec<String> = settings.queues().into_iter().collect();
    tracing::info!(
        version = crate::VERSION,
        namespace = settings.namespace,
        queues = queues.join(", "),
        endpoint = settings.endpoint,
        agent_image = settings.config.pods.agent_image,
        "buildkite-operator runs"
    );
}

/// Lets work come to its end, but for so long only once it is to stop: the API server may not answer. Whoever comes next does what is
/// left undone.
pub(crate) async fn drain(end: &CancellationToken, work: impl Future<Output = ()>) {
    let late = async {
        end.cancelled().await;
        tokio::time::sleep(DRAIN).await;
    };
    tokio::select! {
        () = work => {}
        () = late => tracing::warn!(after = ?DRAIN, "stopping in the middle of calls that are not answered"),
    }
}
