//! `buildkite-operator describe`: all that is known about one job, on a page.
//!
//! - [`page`]: the page

mod page;

pub(super) use self::page::job_page;

use std::io::Write;

use anyhow::Result;
use bk_api::{BuildJob, names};
use clap::Args;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Event, Pod};
use kube::{Api, Client, ResourceExt, api::ListParams};

use self::page::Subject;
use super::{
    address,
    connection::{ClusterArgs, Connection, failed},
};

/// Options of `describe`.
#[derive(Debug, Args)]
pub(super) struct DescribeArgs {
    /// Jobs: their BuildJobs' names, the UUIDs of the jobs at Buildkite, or the addresses of their pages
    #[allow(clippy::doc_markdown, reason = "users read this, not rustdoc")]
    #[arg(value_name = "JOB", required = true)]
    jobs: Vec<String>,

    #[command(flatten)]
    cluster: ClusterArgs,
}

pub(super) async fn run(args: DescribeArgs) -> Result<()> {
    let Connection { cluster, namespace } = args.cluster.connect().await?;
    for (at, text) in args.jobs.iter().enumerate() {
        let job = address::find(&cluster.calls, &namespace, text).await?;
        let pods = pods(&cluster.calls, &namespace, &job).await?;
        let events = events(&cluster.calls, &namespace, &job, &pods).await;
        let page = page::of(&Subject { job: &job, pods: &pods, events: &events, now: Timestamp::now() });
        let mut out = std::io::stdout().lock();
        write!(out, "{}{page}", if at == 0 { "" } else { "\n" })?;
        out.flush()?;
    }
    Ok(())
}

/// The job's pods that are there, in the order of its attempts.
pub(super) async fn pods(client: &Client, namespace: &str, job: &BuildJob) -> Result<Vec<Pod>> {
    let its = ListParams::default().labels(&format!("{}={}", names::LABEL_BUILD_JOB, job.name_any()));
    let attempt = format!("list the pods of BuildJob {namespace}/{}", job.name_any());
    let listed =
        Api::<Pod>::namespaced(client.clone(), namespace).list(&its).await.map_err(failed(attempt))?;
    let mut pods = listed.items;
    pods.sort_by_key(|pod| (pod.creation_timestamp(), pod.name_any()));
    Ok(pods)
}

/// What happened to the job and its pods, the oldest first; or why that cannot be told.
async fn events(
    client: &Client,
    namespace: &str,
    job: &BuildJob,
    pods: &[Pod],
) -> Result<Vec<Event>, String> {
    let api = Api::<Event>::namespaced(client.clone(), namespace);
    let mut found = Vec::new();
    for uid in job.uid().into_iter().chain(pods.iter().filter_map(ResourceExt::uid)) {
        let about = ListParams::default().fields(&format!("involvedObject.uid={uid}"));
        let listed = api.list(&about).await.map_err(|error| failed("list Events")(error).to_string())?;
        found.extend(listed.items);
    }
    found.sort_by_key(page::last_seen);
    Ok(found)
}
