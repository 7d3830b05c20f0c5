//! `buildkite-operator cancel`: ends jobs before their time, by deleting their BuildJobs. The operator tells Buildkite.

use std::io::{BufRead, IsTerminal, Write};

use anyhow::{Result, bail};
use bk_api::{BuildJob, Phase, VerdictCode};
use clap::Args;
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, Preconditions},
};

use super::{
    address,
    connection::{ClusterArgs, Connection, failed},
    describe,
    output::say,
};

/// Options of `cancel`.
#[derive(Debug, Args)]
pub(super) struct CancelArgs {
    /// Jobs: their BuildJobs' names, the UUIDs of the jobs at Buildkite, or the addresses of their pages
    #[allow(clippy::doc_markdown, reason = "users read this, not rustdoc")]
    #[arg(value_name = "JOB", required = true)]
    jobs: Vec<String>,

    /// Do not ask
    #[arg(long, short)]
    yes: bool,

    #[command(flatten)]
    cluster: ClusterArgs,
}

pub(super) async fn run(args: CancelArgs) -> Result<()> {
    let Connection { cluster, namespace } = args.cluster.connect().await?;
    let mut jobs = Vec::new();
    // All of them are found before any is touched.
    for text in &args.jobs {
        let job = address::find(&cluster.calls, &namespace, text).await?;
        match consequence(&job) {
            Some(consequence) => jobs.push((job, consequence)),
            None => say(&format!(
                "BuildJob {} has ended already: {:?}",
                job.name_any(),
                job.status_or_default().phase
            )),
        }
    }
    if jobs.is_empty() || !(args.yes || confirmed(&jobs)?) {
        return Ok(());
    }
    let api = Api::<BuildJob>::namespaced(cluster.calls, &namespace);
    let mut out = std::io::stdout().lock();
    for (job, consequence) in jobs {
        let name = job.name_any();
        // Another one under its name is not meant.
        let preconditions = Some(Preconditions { uid: job.uid(), resource_version: None });
        let params = DeleteParams { preconditions, ..DeleteParams::background() };
        match api.delete(&name, &params).await {
            Ok(_) => writeln!(out, "BuildJob {name} is deleted: {consequence}")?,
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => {
                writeln!(out, "BuildJob {name} is gone: it has ended meanwhile")?;
            }
            Err(error) => return Err(failed(format!("delete BuildJob {namespace}/{name}"))(error)),
        }
    }
    Ok(())
}

/// What comes of the deletion of a BuildJob; nothing if its job has ended.
fn consequence(job: &BuildJob) -> Option<String> {
    let phase = job.status_or_default().phase;
    if phase.is_terminal() {
        return None;
    }
    if job.spec.buildkite.is_none() {
        return Some("its pod is stopped".to_owned());
    }
    let code = VerdictCode::BuildJobDeleted.as_str();
    let page = describe::job_page(job).map(|page| format!(" at {page}")).unwrap_or_default();
    Some(if matches!(phase, Phase::Pending | Phase::Starting) {
        format!(
            "if no agent has its job, the operator ends it in Buildkite as failed, with {code}; if one has, it is stopped with its pod"
        )
    } else {
        format!(
            "its agent is stopped with its pod, and the job ends in Buildkite as failed, with a note {code}; for one that ends as cancelled, \
             cancel it in Buildkite{page}"
        )
    })
}

/// Asks whoever is at the terminal.
fn confirmed(jobs: &[(BuildJob, String)]) -> Result<bool> {
    if !std::io::stdin().is_terminal() {
        bail!("nobody is there to confirm it; pass --yes");
    }
    for (job, consequence) in jobs {
        say(&format!("BuildJob {}: {consequence}", job.name_any()));
    }
    let mut err = std::io::stderr();
    write!(
        err,
        "Delete {}? [y/N] ",
        if jobs.len() == 1 { "it".to_owned() } else { format!("these {}", jobs.len()) }
    )?;
    err.flush()?;
    let mut answer = String::new();
    std::io::stdin().lock().read_line(&mut answer)?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::cli::sample;

    #[test]
    fn what_comes_of_it_is_told_before() {
        let said = |job: &BuildJob| consequence(job).unwrap_or_else(|| "it has ended".to_owned());
        let mut standalone = sample::job("a", json!({"phase": "Running"}));
        standalone.spec.buildkite = None;
        insta::assert_snapshot!(
            [
                &sample::waiting("a"),
                &sample::job("a", json!({"phase": "Running"})),
                &standalone,
                &sample::failed("a")
            ]
            .map(said)
            .join("\n")
        );
    }
}
