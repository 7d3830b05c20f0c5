//! Flags, ConfigMap and Secrets → everything the operator needs to know. The ConfigMap and the Secrets may change.

mod account;
mod cluster;
mod configuration;
pub(crate) mod deployment;
pub(crate) mod intents;
pub(crate) mod patience;
mod ways;

use std::{collections::BTreeSet, num::NonZero};

use bk_api::{config::Config, names};
use bk_buildkite::{Credentials, Registrar, client::DEFAULT_ENDPOINT};
use bk_plan::pod::{BrokerAccess, PodSettings};
use k8s_openapi::{api::core::v1::Namespace, apimachinery::pkg::apis::meta::v1::OwnerReference};
use kube::{Api, Client};

pub(crate) use self::cluster::{pauses, watch, watch_one};
use self::ways::{Access, OwnTokens, Place};
pub use self::{cluster::Cluster, configuration::Configuration};
use crate::{
    cli::RunArgs,
    error::Error,
    intake::{Home, Intakes, Way},
    telemetry::Announcer,
    token::TokenSecret,
};

/// What to say where there are no BuildJobs.
pub(crate) const NO_CRDS: &str =
    "the cluster does not know BuildJobs; install them with `buildkite-operator crds | kubectl apply -f -`";

/// Everything the operator needs to know.
pub struct Settings {
    /// Where BuildJobs and their pods live.
    pub namespace: String,
    /// The configuration, with flags applied.
    pub config: Config,
    /// Buildkite's Agent API, for the operator and for the agents in pods.
    pub endpoint: String,
    /// Who registers agents with the agent token.
    pub registrar: Registrar,
    /// The ways to Buildkite's queues.
    pub intakes: Intakes,
    /// The Buildkite cluster that jobs are in.
    home: Home,
    /// The tokens in use that come from Secrets, and where from.
    pub followed: Vec<(TokenSecret, Credentials)>,
    /// The Deployment that this operator is of.
    pub deployed: Option<Deployed>,
    /// With whom goes what the operator itself keeps in the job namespace: its Deployment, if that is there.
    pub owner: Option<OwnerReference>,
    /// The operator's own service account, if it is in the job namespace.
    pub own_account: Option<String>,
    /// Whether a Lease says which of several replicas works.
    pub is_leased: bool,
    /// Tells people what they have to do something about.
    pub announcer: Announcer,
}

/// The Deployment that the operator is of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Deployed {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

/// What the operator has done so far under other settings.
#[derive(Clone, Default)]
pub struct Past {
    /// The Buildkite cluster that its jobs are in.
    home: Home,
    /// The stacks that it was, and the queues that they served.
    stacks: BTreeSet<intents::Name>,
}

impl Settings {
    /// What other settings have to know of these.
    pub fn past(&self) -> Past {
        let name = |way: &Way| (way.terms.stack_key.clone(), way.terms.key.clone());
        Past { home: self.home.clone(), stacks: self.intakes.all().iter().map(name).collect() }
    }

    /// What pods are made of.
    pub fn pods(&self, shim_config_map: String, broker: Option<BrokerAccess>) -> PodSettings {
        PodSettings {
            own_account: self.own_account.clone(),
            broker,
            ..PodSettings::of(&self.config, &self.endpoint, shim_config_map)
        }
    }

    /// The keys of the queues that are served.
    pub fn queues(&self) -> BTreeSet<String> {
        self.intakes.served().iter().map(|way| way.terms.key.clone()).collect()
    }
}

/// The configuration with what the flags say instead.
fn with_flags(args: &RunArgs, mut config: Config) -> Config {
    config.job_namespace = given(args.namespace.as_ref()).or(config.job_namespace);
    config.pods.agent_image = given(args.agent_image.as_ref()).unwrap_or(config.pods.agent_image);
    config.pods.operator_image = given(args.operator_image.as_ref()).or(config.pods.operator_image);
    config.spawner.intake = args.intake.unwrap_or(config.spawner.intake);
    config.spawner.graphql_endpoint =
        given(args.graphql_endpoint.as_ref()).or(config.spawner.graphql_endpoint);
    config.spawner.endpoint = given(args.endpoint.as_ref()).or(config.spawner.endpoint);
    if let Some(queue) = given(args.queue.as_ref()) {
        config.spawner.serve_only(queue);
    }
    config.spawner.max_in_flight = args.max_in_flight.map_or(config.spawner.max_in_flight, NonZero::get);
    config
}

/// An environment variable that is set to nothing is not set.
fn given(value: Option<&String>) -> Option<String> {
    value.filter(|value| !value.trim().is_empty()).cloned()
}

/// Finds everything that is needed to work by a configuration. What is not there yet is waited for.
pub async fn load(
    args: &RunArgs,
    cluster: &Cluster,
    mut config: Config,
    past: Past,
) -> Result<Settings, Error> {
    let Cluster { calls: client, namespace: own_namespace, .. } = cluster;
    let Past { home, stacks } = past;
    let job_namespace = config.job_namespace.clone().unwrap_or_else(|| own_namespace.clone());
    require_crds(client.clone(), &job_namespace).await?;
    if config.spawner.stack_key.is_none() {
        config.spawner.stack_key = Some(names::operator(&uid(client, &job_namespace).await?));
    }
    let former = intents::former(client, &job_namespace, &config, stacks).await?;
    let own_tokens = OwnTokens {
        given: given(args.token.as_ref()),
        agent: given(args.agent_token.as_ref()),
        is_for_pods: !args.broker.serves(&config),
    };
    let endpoint = config.spawner.endpoint.as_deref().unwrap_or(DEFAULT_ENDPOINT).to_owned();
    let deployed =
        given(args.deployment.as_ref()).map(|name| Deployed { namespace: own_namespace.clone(), name });
    let read = match &deployed {
        Some(deployed) => deployment::read(client, deployed).await,
        None => None,
    };
    if config.pods.operator_image.is_none() {
        config.pods.operator_image = read.as_ref().and_then(deployment::image);
    }
    let owner = read.as_ref().filter(|_| *own_namespace == job_namespace).and_then(deployment::owner);
    let announcer = Announcer::new(client.clone(), deployed.clone(), &job_namespace, &config);
    let place = Place { client, namespace: &job_namespace, announcer: &announcer };
    let Access { intakes, registrar, followed } =
        ways::find(&config, former, &endpoint, own_tokens, &home, place).await?;
    let own_account = account::own(client, &job_namespace).await;
    Ok(Settings {
        namespace: job_namespace,
        config,
        endpoint,
        registrar,
        intakes,
        home,
        followed,
        deployed,
        owner,
        own_account,
        is_leased: args.lease().is_some(),
        announcer,
    })
}

/// The UID of the job namespace, which no other in the world has.
async fn uid(client: &Client, name: &str) -> Result<String, Error> {
    let api = Api::<Namespace>::all(client.clone());
    let attempt = format!(
        "read namespace {name}, after which the operator is called at Buildkite (allow it to, as in deploy/rbac.yaml, \
         or set `stackKey`)"
    );
    let namespace = patience::insist(&attempt, || api.get(name)).await;
    Ok(namespace.map_err(Error::kubernetes(attempt))?.metadata.uid.unwrap_or_default())
}

async fn require_crds(client: Client, namespace: &str) -> Result<(), Error> {
    let jobs = Api::<bk_api::BuildJob>::namespaced(client, namespace);
    let attempt = format!("list BuildJobs in namespace {namespace}");
    let one = kube::api::ListParams::default().limit(1);
    match patience::insist(&attempt, || jobs.list(&one)).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if status.code == 404 => Err(Error::Setup(NO_CRDS.to_owned())),
        Err(error) => Err(Error::kubernetes(attempt)(error)),
    }
}
