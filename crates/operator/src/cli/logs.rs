//! `buildkite-operator logs`: what the containers of a job print.

use anyhow::{Result, bail};
use bk_api::BuildJob;
use clap::Args;
use kube::ResourceExt;

use super::{
    address,
    connection::{ClusterArgs, Connection},
    describe,
    follow::{self, Selection, Watched},
    output::say,
};

/// Options of `logs`.
#[derive(Debug, Args)]
pub(super) struct LogsArgs {
    /// The job: its BuildJob's name, the UUID of the job at Buildkite, or the address of its page
    #[allow(clippy::doc_markdown, reason = "users read this, not rustdoc")]
    #[arg(value_name = "JOB")]
    job: String,

    /// One container of its pod, e.g. agent [default: those that check out and run the command]
    #[arg(long, short, value_name = "NAME")]
    container: Option<String>,

    /// Go on until the job is over, also if it has not started yet
    #[arg(long, short)]
    follow: bool,

    #[command(flatten)]
    cluster: ClusterArgs,
}

pub(super) async fn run(args: LogsArgs) -> Result<()> {
    let Connection { cluster, namespace } = args.cluster.connect().await?;
    let job = address::find(&cluster.calls, &namespace, &args.job).await?;
    let selection = Selection { container: args.container, names: true };
    if args.follow && !job.is_terminal() {
        let watched = Watched::start(cluster.streams.clone(), &namespace, &job);
        if !follow::print(cluster.streams, &namespace, watched, &selection).await? {
            say(&elsewhere(&job));
        }
        return Ok(());
    }
    match describe::pods(&cluster.calls, &namespace, &job).await?.last() {
        Some(pod) => follow::print_so_far(cluster.streams, &namespace, pod, &selection).await,
        None if job.is_terminal() => {
            bail!("the pod of BuildJob {} is gone; {}", job.name_any(), elsewhere(&job))
        }
        None => bail!("BuildJob {} has no pod yet; --follow waits for it", job.name_any()),
    }
}

/// Where the log of a job is that has gone from here.
fn elsewhere(job: &BuildJob) -> String {
    match (describe::job_page(job), &job.spec.buildkite) {
        (Some(page), _) => format!("the whole log is at {page}"),
        (None, Some(_)) => "the whole log is at Buildkite".to_owned(),
        (None, None) => {
            "the log of a standalone job goes with its pod, unless a log exporter or `run-job` has it"
                .to_owned()
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::cli::sample;

    #[test]
    fn what_has_gone_is_somewhere_else() {
        let mut job = sample::job("a", json!(null));
        assert_eq!(
            elsewhere(&job),
            "the whole log is at https://buildkite.com/acme/demo/builds/12#0198f0a0-7b1e-4c3d-9a55-2f6e8d7c1b0a"
        );
        job.spec.buildkite = None;
        assert!(elsewhere(&job).contains("standalone"));
    }
}
