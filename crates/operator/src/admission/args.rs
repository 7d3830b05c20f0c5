//! Where the webhooks listen, and under which names.

use std::{net::SocketAddr, path::PathBuf};

use clap::Args;

/// Options of the webhooks.
#[derive(Clone, Debug, Default, Args)]
pub struct WebhookArgs {
    /// Where to answer the API server's questions about BuildJobs and BuildEnvironments, such as
    /// 0.0.0.0:8443 [default: nowhere]
    #[arg(long, env = "BUILDKITE_WEBHOOK_LISTEN", hide_env_values = true, value_name = "ADDR")]
    pub webhook_listen: Option<SocketAddr>,

    /// Names and addresses by which the API server calls the webhooks, for the certificate that the
    /// operator makes
    #[arg(
        long,
        env = "BUILDKITE_WEBHOOK_HOST",
        hide_env_values = true,
        value_name = "HOST",
        value_delimiter = ','
    )]
    pub webhook_host: Vec<String>,

    /// Secret in the operator's namespace that holds that certificate, and the webhook configurations
    /// that are to trust it, all of one name
    #[arg(
        long,
        env = "BUILDKITE_WEBHOOK_NAME",
        hide_env_values = true,
        value_name = "NAME",
        default_value = "buildkite-operator-webhook"
    )]
    pub webhook_name: String,

    /// Directory with a certificate of yours, tls.crt and tls.key, as cert-manager makes it
    /// [default: the operator makes one]
    #[arg(long, env = "BUILDKITE_WEBHOOK_CERTS", hide_env_values = true, value_name = "DIR")]
    pub webhook_certs: Option<PathBuf>,
}
