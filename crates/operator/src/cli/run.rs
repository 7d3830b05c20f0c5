//! `buildkite-operator run`.

use std::{net::SocketAddr, num::NonZeroUsize, path::PathBuf};

use bk_api::config::{Config, IntakeKind};
use bk_ops::logging::LogArgs;
use clap::{
    Args,
    builder::{PossibleValuesParser, TypedValueParser},
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    admission::{WebhookArgs, Webhooks},
    broker::{Broker, BrokerArgs},
    error::Error,
    leadership::{self, Leader},
    settings::{self, Cluster, Configuration, Past, Settings, deployment},
    shifts::{House, drain},
    shim,
    telemetry::{self, Health, Metrics, TraceArgs},
};

/// Options of `run`. They take precedence over the ConfigMap `buildkite-operator-config`.
#[derive(Clone, Debug, Args)]
pub struct RunArgs {
    /// Buildkite token: the agent token, or with `--intake graphql` the API token [default: the one in its
    /// Secret in the job namespace]
    #[arg(long, value_name = "TOKEN")]
    pub token: Option<String>,

    /// Buildkite agent token, where --token is none [default: the one in its Secret in the job namespace]
    #[arg(long, env = "BUILDKITE_AGENT_TOKEN", hide_env_values = true, value_name = "TOKEN")]
    pub agent_token: Option<String>,

    /// How jobs are found: queues of Buildkite clusters by the Stacks API, or agents outside clusters by GraphQL
    /// [default: stacks]
    #[allow(clippy::doc_markdown, reason = "users read this, not rustdoc")]
    #[arg(long, env = "BUILDKITE_INTAKE", hide_env_values = true, value_name = "WAY", value_parser = intake())]
    pub intake: Option<IntakeKind>,

    /// Buildkite's GraphQL API, with `--intake graphql` [default: https://graphql.buildkite.com/v1]
    #[allow(clippy::doc_markdown, reason = "users read this, not rustdoc")]
    #[arg(long, env = "BUILDKITE_GRAPHQL_ENDPOINT", hide_env_values = true, value_name = "URL")]
    pub graphql_endpoint: Option<String>,

    /// Namespace for BuildJobs and their pods [default: the operator's own]
    #[arg(long, short, env = "BUILDKITE_JOB_NAMESPACE", hide_env_values = true, value_name = "NAME")]
    pub namespace: Option<String>,

    /// Kubeconfig to use [default: $KUBECONFIG, ~/.kube/config or the pod's service account]
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,

    /// Image with the Buildkite agent, git and ssh [default: buildkite/agent:3.137.2]
    #[arg(long, env = "BUILDKITE_AGENT_IMAGE", hide_env_values = true, value_name = "IMAGE")]
    pub agent_image: Option<String>,

    /// This program's own image, for containers beside the job that run it [default: that of its Deployment]
    #[arg(long, env = "BUILDKITE_OPERATOR_IMAGE", hide_env_values = true, value_name = "IMAGE")]
    pub operator_image: Option<String>,

    /// Buildkite's Agent API, as seen from the operator and from pods
    /// [default: https://agent.buildkite.com/v3]
    #[allow(clippy::doc_markdown, reason = "users read this, not rustdoc")]
    #[arg(long, env = "BUILDKITE_AGENT_ENDPOINT", hide_env_values = true, value_name = "URL")]
    pub endpoint: Option<String>,

    /// Queue to take jobs from [default: bk-operator]
    #[arg(long, env = "BUILDKITE_QUEUE", hide_env_values = true, value_name = "KEY")]
    pub queue: Option<String>,

    /// The most jobs to have under way at once [default: 25]
    #[arg(long, env = "BUILDKITE_MAX_IN_FLIGHT", hide_env_values = true, value_name = "N")]
    pub max_in_flight: Option<NonZeroUsize>,

    /// The shim to run in job containers [default: buildkite-shim beside this program]
    #[arg(long, env = "BUILDKITE_SHIM", hide_env_values = true, value_name = "FILE")]
    pub shim: Option<PathBuf>,

    /// Where to answer requests for /metrics, /healthz and /readyz, such as 127.0.0.1:8080
    /// [default: nowhere]
    #[arg(long, env = "BUILDKITE_LISTEN", hide_env_values = true, value_name = "ADDRESS")]
    pub listen: Option<SocketAddr>,

    /// Where to answer requests for profiles of the operator itself, such as 127.0.0.1:6060
    /// [default: nowhere]
    #[arg(long, env = "BUILDKITE_PROFILE_LISTEN", hide_env_values = true, value_name = "ADDR")]
    pub profile_listen: Option<SocketAddr>,

    /// Deployment that this operator is of, so that only its last replica deregisters the queues
    #[arg(long, env = "BUILDKITE_OPERATOR_DEPLOYMENT", hide_env_values = true, value_name = "NAME")]
    pub deployment: Option<String>,

    /// Lease that says which of several replicas works; the others stand by [default: none, there is one]
    #[arg(long, env = "BUILDKITE_OPERATOR_LEASE", hide_env_values = true, value_name = "NAME")]
    pub lease: Option<String>,

    /// Where traces of jobs go.
    #[command(flatten)]
    pub traces: TraceArgs,

    /// How to answer the API server's questions about BuildJobs and BuildEnvironments.
    #[command(flatten)]
    pub webhook: WebhookArgs,

    /// How agents in job pods register by way of the operator.
    #[command(flatten)]
    pub broker: BrokerArgs,

    /// How to log.
    #[command(flatten)]
    pub log: LogArgs,
}

impl RunArgs {
    /// The Lease that says which of several replicas works; one without a name is none.
    pub(crate) fn lease(&self) -> Option<String> {
        self.lease.clone().filter(|lease| !lease.trim().is_empty())
    }
}

/// Reads the ways to find jobs under their names in the configuration.
fn intake() -> impl TypedValueParser<Value = IntakeKind> {
    PossibleValuesParser::new(["stacks", "graphql"]).map(|name| match name.as_str() {
        "graphql" => IntakeKind::Graphql,
        _ => IntakeKind::Stacks,
    })
}

pub(super) fn run(args: RunArgs) -> anyhow::Result<()> {
    bk_ops::http::install_crypto_provider();
    bk_ops::logging::init(&args.log);
    // One besides this thread. At its busiest all of it takes a third of a core, and threads that hand work to each other wake each other:
    // with one for every core an agent's registration costs a tenth more.
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    runtime.block_on(operate(args))
}

async fn operate(args: RunArgs) -> anyhow::Result<()> {
    let shutdown = bk_ops::shutdown::on_signal()?;
    let shim = shim::read(args.shim.as_deref())?;
    let listener = telemetry::bind(args.listen, "--listen").await?;
    let (metrics, health) = (Metrics::default(), Health::default());
    // Until it has the Lease, if there is one, others may work.
    metrics.leads(args.lease().is_none());
    let (traces, sender) = telemetry::channel(&args.traces, &metrics)?;
    let (ended, farewells) = (CancellationToken::new(), TaskTracker::new());
    farewells.close();
    let sending = sender.map(|sender| tokio::spawn(sender.run(ended.clone())));
    let answering = listener.map(|listener| {
        let end = shutdown.clone().cancelled_owned();
        tokio::spawn(telemetry::serve(listener, metrics.clone(), health.clone(), end))
    });
    if let Some(listener) = telemetry::bind(args.profile_listen, "--profile-listen").await? {
        tokio::spawn(telemetry::serve_profiles(listener, shutdown.clone().cancelled_owned()));
    }
    let preparing = async {
        let cluster = Cluster::connect(args.kubeconfig.as_deref()).await?;
        let cluster = telemetry::measured(&cluster, &metrics.calls)
            .map_err(Error::kubernetes("count what is asked of the Kubernetes API"))?;
        let webhooks = Webhooks::start(&args.webhook, &cluster, &shim, &shutdown, &farewells).await?;
        let broker = Broker::start(&args.broker, &cluster, &metrics, &shutdown, &farewells).await?;
        broker.report(&health);
        let mut configuration = Configuration::read(&args, &cluster, &metrics).await?;
        let desks = Desks { webhooks: &webhooks, broker: &broker, cluster: &cluster };
        let waiting = stand_by(&args, &cluster, &mut configuration, desks, (&health, &metrics));
        let leader = Box::pin(waiting).await?;
        let cluster = match &leader {
            Some(leader) => leader.fence(&cluster),
            None => cluster,
        };
        let tenure = leader.as_ref().map(Leader::tenure);
        let shutdown = shutdown.clone();
        let house =
            House { args, cluster, tenure, shim, metrics, traces, health, webhooks, broker, shutdown };
        let first = Box::pin(house.prepare(configuration.in_force(), Past::default())).await?;
        Ok::<_, Error>((leader, house, configuration, first))
    };
    let Some(prepared) = Box::pin(shutdown.run_until_cancelled(preparing)).await else {
        farewells.wait().await;
        return Ok(());
    };
    let (leader, house, configuration, first) = prepared?;
    let answering = async {
        if let Some(answering) = answering {
            // It ends when the operator does, or has said why it cannot go on.
            drop(answering.await);
        }
    };
    let working = async {
        let spawner = Box::pin(house.work(configuration, first)).await;
        // It ends by itself only if it has failed.
        shutdown.cancel();
        spawner
    };
    let (spawner, ()) = tokio::join!(working, drain(&shutdown, answering));
    ended.cancel();
    if let Some(sending) = sending {
        sending.await?;
    }
    // Last, as Buildkite answers nothing about jobs to a stack that is gone.
    spawner?.leave().await;
    if let Some(leader) = leader {
        leader.retire().await;
    }
    farewells.wait().await;
    Ok(())
}

/// What answers also while another replica works.
#[derive(Clone, Copy)]
struct Desks<'a> {
    webhooks: &'a Webhooks,
    broker: &'a Broker,
    cluster: &'a Cluster,
}

impl Desks<'_> {
    /// Answers depend on these settings from now on.
    fn learn(self, settings: &Settings) {
        self.webhooks.learn(settings, self.broker.secrets());
        self.broker.learn_standing_by(settings, self.cluster);
    }
}

/// Waits until no other replica works, if there are to be several. What would keep this one from working is found out before. Meanwhile
/// the configuration may change.
async fn stand_by(
    args: &RunArgs,
    cluster: &Cluster,
    configuration: &mut Configuration,
    desks: Desks<'_>,
    (health, metrics): (&Health, &Metrics),
) -> Result<Option<Leader>, Error> {
    let Some(lease) = args.lease() else {
        return Ok(None);
    };
    let config = configuration.in_force().clone();
    let load = |config| Box::pin(settings::load(args, cluster, config, Past::default()));
    let settings = load(config).await?;
    desks.learn(&settings);
    let owner = match &settings.deployed {
        Some(deployed) => {
            deployment::read(&cluster.calls, deployed).await.as_ref().and_then(deployment::owner)
        }
        None => None,
    };
    let learn = async |config: Config| match load(config).await {
        Ok(settings) => desks.learn(&settings),
        Err(error) => {
            let error = bk_ops::report::one_line(&error);
            tracing::warn!(error, "questions are answered by the configuration before");
        }
    };
    tokio::select! {
        leader = leadership::win(cluster, lease, owner, (health, metrics)) => Ok(Some(leader)),
        never = configuration.keep_up(learn) => match never {},
    }
}
