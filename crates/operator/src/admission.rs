//! Admission webhooks: the API server asks, and every replica answers, whether it works or stands by.
//!
//! What is wrong with an object is decided in `bk_plan::admission`.
//!
//! - [`args`]: where to listen, and under which names
//! - [`server`]: questions and answers
//! - [`facts`]: what the cluster has of what an object refers to
//! - [`identity`]: certificates, and when they are made anew
//! - [`keeper`]: keeps certificate, Secret and webhook configurations in step

mod args;
mod facts;
mod identity;
mod keeper;
mod server;

use std::{sync::Arc, time::Duration};

use axum_server::Handle;
use bk_api::config::{EnvironmentDefaults, ValidationConfig};
use bk_plan::{admission::Demands, pod::PodSettings};
use tokio::sync::watch;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

pub use args::WebhookArgs;

use self::{facts::Facts, keeper::Keeper};
use crate::{
    certificates,
    error::Error,
    settings::{Cluster, Settings},
    shim, telemetry,
};

/// How long answers that are under way may take when the operator stops.
const FAREWELL: Duration = Duration::from_secs(5);

/// What answers depend on.
#[derive(Clone, Debug)]
pub(crate) struct Terms {
    /// Whose objects are looked at.
    pub(crate) namespace: String,
    /// What pods are made of, and what users demand.
    pub(crate) demands: Demands,
}

/// The webhooks of this replica, if it has any.
pub struct Webhooks {
    shim_config_map: String,
    listens: bool,
    /// What answers depend on; nothing is answered before it is known. It may be replaced at any time.
    terms: watch::Sender<Option<Arc<Terms>>>,
}

impl Webhooks {
    /// Listens if the operator is to. Answers come once there is a certificate, and [`Self::learn`] was called. Those that are under way when the
    /// operator stops are among its `farewells`.
    pub async fn start(
        args: &WebhookArgs,
        cluster: &Cluster,
        shim: &[u8],
        shutdown: &CancellationToken,
        farewells: &TaskTracker,
    ) -> Result<Self, Error> {
        let (terms, known) = watch::channel(None);
        let listens = args.webhook_listen.is_some();
        let webhooks = Self { shim_config_map: shim::name(shim), listens, terms };
        let Some(listener) = telemetry::bind(args.webhook_listen, "--webhook-listen").await? else {
            return Ok(webhooks);
        };
        let listener = listener
            .into_std()
            .map_err(|error| Error::Setup(format!("cannot listen for --webhook-listen: {error}")))?;
        let (identities, identity) = watch::channel(None);
        let keeper = Keeper::new(args, cluster, identities)?;
        let facts = Facts::new(cluster);
        let router = server::routes(facts.clone(), known);
        let stop = shutdown.clone();
        tokio::spawn(stop.clone().run_until_cancelled_owned(keeper.run()));
        tokio::spawn(stop.clone().run_until_cancelled_owned(facts.watch_nodes(cluster.clone())));
        farewells.spawn(async move {
            let serving = async {
                let tls = certificates::tls("the webhooks", |_| {}, identity, &stop);
                let Some(tls) = tls.await else { return };
                let handle = Handle::new();
                tokio::spawn(telemetry::farewell(stop.clone(), handle.clone(), FAREWELL));
                let served = match axum_server::from_tcp_rustls(listener, tls) {
                    Ok(server) => server.handle(handle).serve(router.into_make_service()).await,
                    Err(error) => Err(error),
                };
                if let Err(error) = served {
                    tracing::error!(%error, "cannot answer the API server's questions any more");
                }
            };
            serving.await;
        });
        Ok(webhooks)
    }

    /// What the configuration asks for in vain, as nobody asks this operator about environments.
    pub fn unheeded(&self, validation: &ValidationConfig) -> Option<&'static str> {
        unheeded(validation, self.listens)
    }

    /// Answers depend on these settings from now on, and on what the operator's broker keeps.
    pub fn learn(&self, settings: &Settings, broker_secrets: Vec<String>) {
        let pod = PodSettings { broker_secrets, ..settings.pods(self.shim_config_map.clone(), None) };
        let demands = Demands { pod, validation: settings.config.validation.clone() };
        self.terms.send_replace(Some(Arc::new(Terms { namespace: settings.namespace.clone(), demands })));
    }
}

/// What the configuration asks for in vain, if nobody asks the operator about environments.
pub(crate) fn unheeded(validation: &ValidationConfig, listens: bool) -> Option<&'static str> {
    let has_defaults = validation.environment_defaults != EnvironmentDefaults::default();
    (has_defaults && !listens).then_some(
        "`environmentDefaults` in `validation_config` have no effect: BuildEnvironments get them from the webhooks, which are \
         switched off; set --webhook-listen, or `webhook.enabled` in the chart",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_that_nobody_gives_are_told_of() {
        let some = "environmentDefaults: {env: [{name: A, value: b}]}";
        let [some, none] = [some, "{}"].map(|text| serde_saphyr::from_str(text).expect("a configuration"));
        assert!(unheeded(&some, false).is_some_and(|note| note.contains("--webhook-listen")));
        assert_eq!([unheeded(&some, true), unheeded(&none, false)], [None, None]);
    }
}
