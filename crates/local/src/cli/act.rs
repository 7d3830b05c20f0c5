//! `buildkite-local cancel`, `retry` and `unblock`.

use std::collections::BTreeMap;
use std::process::ExitCode;

use anyhow::bail;
use serde_json::json;

use super::client::{Build, Client, Job};
use super::connection::Connection;
use super::reference::{Reference, Target};
use super::terminal::{Terminal, Tone};
use super::watch;

/// Flags of `cancel` and `retry`.
#[derive(clap::Args)]
pub(super) struct Args {
    /// A build or a job: PIPELINE/NUMBER, a number, an id or an address
    #[arg(value_name = "BUILD|JOB")]
    name: Reference,

    #[command(flatten)]
    connection: Connection,
}

pub(super) async fn cancel(args: Args) -> anyhow::Result<ExitCode> {
    let client = args.connection.client()?;
    let terminal = Terminal::stdout();
    match args.name.resolve(&client).await? {
        Target::Build(build) => {
            let build = client.cancel_build(&build).await?;
            terminal.line(Tone::Plain, &format!("build {}: {}", build.name(), build.state));
        }
        Target::Job(id) => told(&terminal, &client.change_job(id, "cancel", None).await?),
    }
    Ok(ExitCode::SUCCESS)
}

fn told(terminal: &Terminal, job: &Job) {
    terminal.line(Tone::Plain, &format!("{} ({}): {}", job.title(), job.id, watch::describe(job)));
}

pub(super) async fn retry(args: Args) -> anyhow::Result<ExitCode> {
    let client = args.connection.client()?;
    let terminal = Terminal::stdout();
    let jobs = match args.name.resolve(&client).await? {
        Target::Job(id) => vec![id],
        Target::Build(build) => {
            let failed: Vec<_> = build.jobs.iter().filter(|job| can_retry(job)).map(|job| job.id).collect();
            if failed.is_empty() {
                bail!("build {} has no failed job: it is {}", build.name(), build.state);
            }
            failed
        }
    };
    for id in jobs {
        told(&terminal, &client.change_job(id, "retry", None).await?);
    }
    Ok(ExitCode::SUCCESS)
}

fn can_retry(job: &Job) -> bool {
    let failed = matches!(job.state.as_str(), "failed" | "timed_out" | "canceled" | "expired");
    job.kind == "script" && failed && !job.retried
}

/// Flags of `unblock`.
#[derive(clap::Args)]
pub(super) struct UnblockArgs {
    /// A build that is blocked, or its block step's job
    #[arg(value_name = "BUILD|JOB")]
    name: Reference,

    /// The key of the block step, when several wait
    #[arg(long, value_name = "KEY")]
    step: Option<String>,

    /// An answer to a field of the step; may be repeated
    #[arg(long = "field", short, value_name = "KEY=VALUE", value_parser = super::build::pair)]
    fields: Vec<(String, String)>,

    #[command(flatten)]
    connection: Connection,
}

pub(super) async fn unblock(args: UnblockArgs) -> anyhow::Result<ExitCode> {
    let client = args.connection.client()?;
    let id = match args.name.resolve(&client).await? {
        Target::Job(id) => id,
        Target::Build(build) => waiting(&build, args.step.as_deref())?.id,
    };
    let fields: BTreeMap<_, _> = args.fields.into_iter().collect();
    unblocked(&client, id, &fields).await
}

async fn unblocked(
    client: &Client,
    id: uuid::Uuid,
    fields: &BTreeMap<String, String>,
) -> anyhow::Result<ExitCode> {
    let job = client.change_job(id, "unblock", Some(&json!({ "fields": fields }))).await?;
    told(&Terminal::stdout(), &job);
    Ok(ExitCode::SUCCESS)
}

/// The one job of the build that waits for a person.
fn waiting<'a>(build: &'a Build, step: Option<&str>) -> anyhow::Result<&'a Job> {
    let wanted = |job: &&Job| job.state == "blocked" && (step.is_none() || job.step_key.as_deref() == step);
    let found: Vec<&Job> = build.jobs.iter().filter(wanted).collect();
    match (found.as_slice(), step) {
        ([one], _) => Ok(one),
        ([], Some(step)) => bail!("build {} has no blocked step with the key {step}", build.name()),
        ([], None) => bail!("build {} is not blocked: it is {}", build.name(), build.state),
        (several, _) => {
            let names: Vec<String> =
                several.iter().map(|job| format!("{} ({})", job.title(), job.id)).collect();
            bail!("several steps of build {} wait: name one of {}", build.name(), names.join(", "))
        }
    }
}
