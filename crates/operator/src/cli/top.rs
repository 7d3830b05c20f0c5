//! `buildkite-operator top`: queues, phases, and why things wait, as they are now.
//!
//! - [`standing`]: BuildJobs + the operator's numbers → how things stand

mod standing;

use std::{
    io::{IsTerminal, Write},
    time::Duration,
};

use anyhow::{Context, Result, anyhow, bail};
use bk_api::BuildJob;
use clap::Args;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, Client, ResourceExt, api::ListParams};

use self::standing::{Numbers, Standing};
use super::{
    connection::{ClusterArgs, Connection, failed},
    installation::Installation,
    output::Format,
};
use crate::USER_AGENT;

/// The port of the operator's page, where its pod does not name one.
const PORT: i32 = 8080;
/// How long the page at an address may take.
const PATIENCE: Duration = Duration::from_secs(5);
/// Moves the cursor to the top left, and clears what is below.
const REDRAW: &str = "\u{1b}[H\u{1b}[J";

/// Options of `top`.
#[derive(Debug, Args)]
#[command(after_help = "--namespace is the operator's own; its configuration says where jobs are.")]
pub(super) struct TopArgs {
    /// Print it once, as is done where the output is no terminal
    #[arg(long)]
    once: bool,

    /// Seconds between two looks
    #[arg(long, value_name = "SECONDS", default_value = "2", value_parser = clap::value_parser!(u64).range(1..))]
    interval: u64,

    /// Address of the operator's page of metrics [default: that of its pods, by way of the API server]
    #[arg(long, value_name = "URL")]
    metrics: Option<String>,

    /// How to print it
    #[arg(long, short, value_enum, default_value = "table")]
    output: Format,

    #[command(flatten)]
    cluster: ClusterArgs,
}

pub(super) async fn run(args: TopArgs) -> Result<()> {
    let Connection { cluster, namespace } = args.cluster.connect().await?;
    let is_live = !args.once && args.output == Format::Table && std::io::stdout().is_terminal();
    loop {
        let standing = Box::pin(look(&args, &cluster.calls, &namespace)).await?;
        let mut out = std::io::stdout().lock();
        if is_live {
            write!(out, "{REDRAW}")?;
        }
        args.output.write(&mut out, &standing, &standing.lines())?;
        out.flush()?;
        drop(out);
        if !is_live {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_secs(args.interval)).await;
    }
}

async fn look(args: &TopArgs, client: &Client, namespace: &str) -> Result<Standing> {
    let installation = Box::pin(Installation::read(client, namespace)).await;
    let numbers = match &args.metrics {
        Some(url) => Some(at(url).await?),
        None => None,
    };
    let numbers = match numbers {
        Some(numbers) => Ok(numbers),
        None => of_pods(&installation, client).await.map_err(|error| error.to_string()),
    };
    let job_namespace = installation.job_namespace();
    let jobs = Api::<BuildJob>::namespaced(client.clone(), job_namespace).list(&ListParams::default()).await;
    let jobs = jobs.map_err(failed(format!("list BuildJobs in namespace {job_namespace}")))?.items;
    let config = installation.config.as_ref().ok();
    Ok(standing::of(&jobs, numbers, config, job_namespace, Timestamp::now()))
}

/// The operator's page at an address.
async fn at(url: &str) -> Result<Numbers> {
    let client = bk_ops::http::client(USER_AGENT, PATIENCE)?;
    let answer = client.get(url).send().await.with_context(|| format!("cannot read {url}"))?;
    if !answer.status().is_success() {
        bail!("cannot read {url}: it answers {}", answer.status());
    }
    Numbers::read(&answer.text().await?).map_err(|problem| anyhow!("{url} is no page of metrics: {problem}"))
}

/// The page of the replica that works.
async fn of_pods(installation: &Installation, client: &Client) -> Result<Numbers> {
    let pods = installation.pods(client).await?;
    let mut problem = anyhow!("no pod of the operator runs");
    for pod in
        pods.iter().filter(|pod| pod.status.as_ref().is_some_and(|s| s.phase.as_deref() == Some("Running")))
    {
        match of_pod(pod, client).await {
            Ok(numbers) if numbers.leads() => return Ok(numbers),
            Ok(_) => problem = anyhow!("no replica of the operator works"),
            Err(error) => problem = error,
        }
    }
    Err(problem)
}

async fn of_pod(pod: &Pod, client: &Client) -> Result<Numbers> {
    let (namespace, name) = (pod.namespace().unwrap_or_default(), pod.name_any());
    let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
    let mut ports = containers.flat_map(|container| container.ports.iter().flatten());
    let named = ports.find(|port| port.name.as_deref() == Some("metrics"));
    let port = named.map_or(PORT, |port| port.container_port);
    let path = format!("/api/v1/namespaces/{namespace}/pods/{name}:{port}/proxy/metrics");
    let request = axum::http::Request::get(path).body(Vec::new())?;
    let page = client
        .request_text(request)
        .await
        .map_err(failed(format!("read the metrics of pod {namespace}/{name}")))?;
    Numbers::read(&page)
        .map_err(|problem| anyhow!("the page of pod {namespace}/{name} is not understood: {problem}"))
}
