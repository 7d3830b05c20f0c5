//! The way from the command line to a cluster.

use std::path::PathBuf;

use anyhow::{Context, Result, anyhow};
use clap::Args;

use crate::settings::{Cluster, NO_CRDS};

/// Which cluster to talk to, and where in it to look.
#[derive(Clone, Debug, Args)]
pub(super) struct ClusterArgs {
    /// Namespace to work in [default: the kubeconfig's]
    #[arg(long, short, env = "BUILDKITE_JOB_NAMESPACE", hide_env_values = true, value_name = "NAME")]
    pub(super) namespace: Option<String>,

    /// Kubeconfig to use [default: $KUBECONFIG, ~/.kube/config or the pod's service account]
    #[arg(long, value_name = "FILE")]
    pub(super) kubeconfig: Option<PathBuf>,

    /// Context of the kubeconfig [default: its current one]
    #[arg(long, value_name = "NAME")]
    pub(super) context: Option<String>,
}

/// A cluster that answers, and the namespace to look in.
pub(super) struct Connection {
    pub(super) cluster: Cluster,
    pub(super) namespace: String,
}

impl ClusterArgs {
    /// The cluster, proven to answer.
    pub(super) async fn connect(&self) -> Result<Connection> {
        let cluster = Cluster::connect_to(self.kubeconfig.as_deref(), self.context.as_deref()).await?;
        // A variable that is set to nothing is not set.
        let given = self.namespace.clone().filter(|name| !name.trim().is_empty());
        let namespace = given.unwrap_or_else(|| cluster.namespace.clone());
        Ok(Connection { cluster, namespace })
    }
}

/// Runs what talks to a cluster.
pub(super) fn block_on<T>(work: impl Future<Output = Result<T>>) -> Result<T> {
    bk_ops::http::install_crypto_provider();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().context("cannot start")?;
    runtime.block_on(work)
}

/// What it means that a call failed; in the API server's own words, if it has said something.
pub(super) fn failed(attempt: impl Into<String>) -> impl FnOnce(kube::Error) -> anyhow::Error {
    let attempt = attempt.into();
    move |error| match error {
        kube::Error::Api(status) if status.code == 404 && status.message.contains("could not find") => {
            anyhow!(NO_CRDS)
        }
        kube::Error::Api(status) => anyhow!("cannot {attempt}: {}", status.message),
        other => anyhow!(other).context(format!("cannot {attempt}")),
    }
}
