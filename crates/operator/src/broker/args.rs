//! Where the broker listens, and how pods reach it.

use std::net::SocketAddr;

use bk_api::config::Config;
use clap::Args;

/// What the broker's Secrets are called, if nobody says otherwise.
pub(crate) const DEFAULT_NAME: &str = "buildkite-operator-broker";

/// Options of the registration broker.
#[derive(Clone, Debug, Default, Args)]
pub struct BrokerArgs {
    /// Where agents in job pods register with one-time tokens, such as 0.0.0.0:8444
    /// [default: nowhere, they have the agent token]
    #[arg(long, env = "BUILDKITE_BROKER_LISTEN", hide_env_values = true, value_name = "ADDR")]
    pub broker_listen: Option<SocketAddr>,

    /// How job pods reach it, such as `https://buildkite-operator-broker.buildkite.svc:8444/v3`; with
    /// `http` in place of `https` it serves without TLS
    #[arg(long, env = "BUILDKITE_BROKER_URL", hide_env_values = true, value_name = "URL")]
    pub broker_url: Option<String>,

    /// Secret in the operator's namespace with its certificate and its keys, and ConfigMap in the job
    /// namespace with its authority; Secrets with the sessions of agents are called after it
    #[allow(clippy::doc_markdown, reason = "users read this, not rustdoc")]
    #[arg(
        long,
        env = "BUILDKITE_BROKER_NAME",
        hide_env_values = true,
        value_name = "NAME",
        default_value = DEFAULT_NAME
    )]
    pub broker_name: String,
}

impl BrokerArgs {
    /// Whether agents in pods register by way of the operator.
    pub(crate) fn serves(&self, config: &Config) -> bool {
        self.broker_listen.is_some() && config.pods.registers_by_operator()
    }
}
