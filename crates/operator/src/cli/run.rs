//! `buildkite-operator run`.

use std::{num::NonZeroUsize, path::PathBuf};

use bk_ops::logging::LogArgs;
use clap::Args;

use crate::{controller::Controller, settings, shim, spawner::Spawner, states::RemoteStates};

/// Options of `run`. They take precedence over the ConfigMap `buildkite-operator-config`.
#[derive(Debug, Args)]
pub struct RunArgs {
    /// Buildkite agent token [default: the one in the job namespace's agent token Secret]
    #[arg(long, env = "BUILDKITE_AGENT_TOKEN", hide_env_values = true, value_name = "TOKEN")]
    pub token: Option<String>,

    /// Namespace for BuildJobs and their pods [default: the operator's own]
    #[arg(long, short, env = "BUILDKITE_JOB_NAMESPACE", hide_env_values = true, value_name = "NAME")]
    pub namespace: Option<String>,

    /// Kubeconfig to use [default: $KUBECONFIG, ~/.kube/config or the pod's service account]
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,

    /// Image with the Buildkite agent, git and ssh [default: buildkite/agent:3.137.2]
    #[arg(long, env = "BUILDKITE_AGENT_IMAGE", hide_env_values = true, value_name = "IMAGE")]
    pub agent_image: Option<String>,

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

    /// How to log.
    #[command(flatten)]
    pub log: LogArgs,
}

pub(super) fn run(args: RunArgs) -> anyhow::Result<()> {
    bk_ops::http::install_crypto_provider();
    bk_ops::logging::init(&args.log);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(operate(args))
}

async fn operate(args: RunArgs) -> anyhow::Result<()> {
    let shutdown = bk_ops::shutdown::on_signal()?;
    let shim = shim::read(args.shim.as_deref())?;
    let (client, own_namespace) = settings::connect(args.kubeconfig.as_deref()).await?;
    let settings = Box::pin(settings::load(args, client.clone(), &own_namespace)).await?;
    let shim_config_map = shim::ensure(client.clone(), &settings.namespace, &shim).await?;
    tracing::info!(
        version = crate::VERSION,
        namespace = settings.namespace,
        queue = settings.config.spawner.queue,
        endpoint = settings.buildkite.endpoint(),
        agent_image = settings.config.pods.agent_image,
        "buildkite-operator runs"
    );

    let (remote, remote_changes) = RemoteStates::new();
    let controller = Controller::new(client.clone(), &settings, shim_config_map, remote.clone())?;
    let (jobs, pods) = (controller.jobs(), controller.pods());
    let mut spawner = Spawner::new(client.clone(), &settings, jobs.clone());
    let polling = remote.poll(settings.buildkite.clone(), &settings.config.spawner.stack_key, jobs);
    let keeping = shim::keep(client, &settings.namespace, &shim);

    let spawning = async {
        // Without pods to be seen, no job could be followed.
        shutdown.run_until_cancelled(pods.complete()).await;
        let result = spawner.run(&shutdown).await;
        // If Buildkite will not have us, the rest has to end in good order as well.
        shutdown.cancel();
        result
    };
    let (result, (), _, _) = tokio::join!(
        spawning,
        controller.run(remote_changes, shutdown.clone()),
        shutdown.run_until_cancelled(polling),
        shutdown.run_until_cancelled(keeping),
    );
    result?;
    // Last, as Buildkite answers nothing about jobs to a stack that is gone.
    spawner.deregister().await;
    Ok(())
}
