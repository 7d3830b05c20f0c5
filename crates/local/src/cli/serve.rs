//! `buildkite-local serve`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use bk_ops::logging::LogArgs;

use super::terminal::Terminal;
use crate::config::LOOPBACK_AGENT_TOKEN;
use crate::{Config, Faults, Server};

/// Flags of `serve`.
#[derive(clap::Args)]
pub(super) struct Args {
    /// Address to listen on
    #[arg(
        long,
        env = "BUILDKITE_LOCAL_LISTEN",
        default_value = "127.0.0.1:8384",
        value_name = "ADDRESS:PORT"
    )]
    listen: SocketAddr,

    /// File that keeps the state; without it, the state is in memory and ends with the server
    #[arg(long, env = "BUILDKITE_LOCAL_DATABASE", value_name = "FILE")]
    database: Option<PathBuf>,

    /// Directory for the bytes of artifacts [default: <database>.artifacts, or a temporary one]
    #[arg(long, env = "BUILDKITE_LOCAL_ARTIFACTS", value_name = "DIR")]
    artifacts: Option<PathBuf>,

    /// The largest artifact, in MiB
    #[arg(long, env = "BUILDKITE_LOCAL_MAX_ARTIFACT_SIZE", default_value_t = 5 * 1024, value_name = "MIB")]
    max_artifact_size: u64,

    /// YAML file with the secrets of jobs: NAME: value, or NAME: {value: …, pipelines: [slug, …]}
    #[arg(long, env = "BUILDKITE_LOCAL_SECRETS", value_name = "FILE")]
    secrets: Option<PathBuf>,

    /// YAML file with tokens for git repositories by host, for agents that ask the server for them
    #[arg(long, env = "BUILDKITE_LOCAL_GIT_CREDENTIALS", value_name = "FILE")]
    git_credentials: Option<PathBuf>,

    /// Token that agents and stacks register with [default on loopback: local-agent-token]
    #[arg(long, env = "BUILDKITE_LOCAL_AGENT_TOKEN", hide_env_values = true, value_name = "TOKEN")]
    agent_token: Option<String>,

    /// Token of the REST API [default on loopback: local-api-token]
    #[arg(long, env = "BUILDKITE_LOCAL_API_TOKEN", hide_env_values = true, value_name = "TOKEN")]
    api_token: Option<String>,

    /// Slug of the organization
    #[arg(long, env = "BUILDKITE_LOCAL_ORGANIZATION", default_value = "local", value_name = "SLUG")]
    organization: String,

    /// URL under which agents and people reach the server [default: as each request addressed it]
    #[arg(long, env = "BUILDKITE_LOCAL_EXTERNAL_URL", value_name = "URL")]
    external_url: Option<String>,

    /// A queue besides "default"; may be repeated. Without any, queues are created when first named
    #[arg(long = "queue", env = "BUILDKITE_LOCAL_QUEUES", value_delimiter = ',', value_name = "KEY")]
    queues: Vec<String>,

    /// Keep agents and jobs outside clusters, as organizations without clusters do; there are no stacks then
    #[arg(long, env = "BUILDKITE_LOCAL_UNCLUSTERED")]
    unclustered: bool,

    /// Seconds without a heartbeat after which an agent is lost
    #[arg(long, env = "BUILDKITE_LOCAL_AGENT_LOST_AFTER", default_value_t = 180, value_name = "SECONDS")]
    agent_lost_after: u64,

    /// Finished builds to keep of each pipeline [default: all]
    #[arg(long, env = "BUILDKITE_LOCAL_KEEP_BUILDS", value_name = "COUNT")]
    keep_builds: Option<u32>,

    /// Days to keep finished builds for [default: for ever]
    #[arg(long, env = "BUILDKITE_LOCAL_KEEP_DAYS", value_name = "DAYS")]
    keep_days: Option<u32>,

    /// Let tests put faults into the server's way: see the API under /_faults
    #[arg(long, env = "BUILDKITE_LOCAL_FAULTS")]
    faults: bool,

    /// Whether stacks that call more often than the hosted service allows are refused
    #[arg(
        long,
        env = "BUILDKITE_LOCAL_RATE_LIMITS",
        value_enum,
        default_value = "on",
        value_name = "ON-OFF"
    )]
    rate_limits: Switch,

    #[command(flatten)]
    log: LogArgs,
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Switch {
    On,
    Off,
}

pub(super) async fn run(args: Args) -> anyhow::Result<ExitCode> {
    bk_ops::logging::init(&args.log);
    let stop = bk_ops::shutdown::on_signal()?;
    let config = Config {
        listen: args.listen,
        database: args.database,
        artifacts: args.artifacts,
        secrets: args.secrets,
        git_credentials: args.git_credentials,
        max_artifact_bytes: args.max_artifact_size.saturating_mul(1024 * 1024),
        organization: args.organization,
        agent_token: args.agent_token,
        api_token: args.api_token,
        external_url: args.external_url,
        queues: args.queues,
        unclustered: args.unclustered,
        rate_limits: args.rate_limits == Switch::On,
        agent_lost_after: Duration::from_secs(args.agent_lost_after),
        keep_builds: args.keep_builds,
        keep_builds_for: args.keep_days.map(|days| Duration::from_hours(24 * u64::from(days))),
        faults: args.faults.then(Faults::default),
        ..Config::default()
    };
    let url = config.external_url.clone();
    let token = match &config.agent_token {
        Some(_) => "$BUILDKITE_LOCAL_AGENT_TOKEN",
        None => LOOPBACK_AGENT_TOKEN,
    };
    let server = Server::bind(config).await?;
    tracing::info!(
        page = %format_args!("http://{}/", server.local_addr()),
        endpoint = %format_args!("http://{}/v3", server.local_addr()),
        "listening"
    );
    Terminal::stdout()
        .lines(&welcome(&url.unwrap_or_else(|| format!("http://{}", server.local_addr())), token));
    server.run(async move { stop.cancelled().await }).await?;
    Ok(ExitCode::SUCCESS)
}

/// How to use a server that has started.
fn welcome(url: &str, token: &str) -> Vec<String> {
    let url = url.trim_end_matches('/');
    [
        format!("The page     {url}/"),
        format!("An agent     buildkite-agent start --endpoint {url}/v3 --token {token}"),
        format!("A stack      endpoint {url}/v3, token {token}"),
        format!("A build      buildkite-local build --server {url} --watch"),
        "Ctrl-C stops the server.".to_owned(),
    ]
    .into()
}
