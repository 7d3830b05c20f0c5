//! `buildkite-operator repo-syncer`: the one that writes mirrors.

use std::path::PathBuf;

use bk_mirrors::cluster::{self, SyncerArgs};
use bk_ops::logging::LogArgs;
use clap::Args;

use crate::settings::Cluster;

/// Options of `repo-syncer`.
#[derive(Debug, Args)]
pub(super) struct RepoSyncerArgs {
    #[command(flatten)]
    syncer: SyncerArgs,

    /// Kubeconfig to use [default: $KUBECONFIG, ~/.kube/config or the pod's service account]
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,

    #[command(flatten)]
    log: LogArgs,
}

pub(super) fn run(args: RepoSyncerArgs) -> anyhow::Result<()> {
    bk_ops::http::install_crypto_provider();
    bk_ops::logging::init(&args.log);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let stop = bk_ops::shutdown::on_signal()?;
        let Cluster { calls, streams, namespace, .. } = Cluster::connect(args.kubeconfig.as_deref()).await?;
        cluster::run((calls, streams), &namespace, args.syncer, stop).await?;
        Ok(())
    })
}
