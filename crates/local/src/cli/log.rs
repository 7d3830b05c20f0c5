//! `buildkite-local log`.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::bail;

use super::client::{Client, Job};
use super::connection::Connection;
use super::line::Form;
use super::reference::{Reference, Target};
use super::terminal::{Terminal, Tone};

const INTERVAL: Duration = Duration::from_millis(500);

/// Flags of `log`.
#[derive(clap::Args)]
#[allow(clippy::struct_excessive_bools, reason = "each is a flag")]
pub(super) struct Args {
    /// A build or a job: PIPELINE/NUMBER, a number, an id or an address
    #[arg(value_name = "BUILD|JOB")]
    name: Reference,

    /// Go on until the log ends
    #[arg(long, short)]
    follow: bool,

    /// Of a build, only the jobs of the step with this key
    #[arg(long, value_name = "KEY")]
    step: Option<String>,

    /// Without colours and other escape sequences, as when standard output is no terminal
    #[arg(long, conflicts_with = "raw")]
    plain: bool,

    /// As the agent sent it, with its time stamps
    #[arg(long, conflicts_with = "timestamps")]
    raw: bool,

    /// Begin each line with when it was written
    #[arg(long)]
    timestamps: bool,

    #[command(flatten)]
    connection: Connection,
}

pub(super) async fn run(args: Args) -> anyhow::Result<ExitCode> {
    let client = args.connection.client()?;
    let terminal = Terminal::stdout();
    let jobs = match args.name.resolve(&client).await? {
        Target::Job(id) => vec![client.job(id).await?],
        Target::Build(build) => {
            let wanted = |job: &Job| args.step.is_none() || job.step_key == args.step;
            let jobs: Vec<Job> =
                build.jobs.iter().filter(|job| job.kind == "script" && wanted(job)).cloned().collect();
            if let (true, Some(step)) = (jobs.is_empty(), &args.step) {
                bail!("build {} has no command step with the key {step}", build.name());
            }
            jobs
        }
    };
    let several = jobs.len() > 1;
    for job in &jobs {
        if several {
            terminal.line(Tone::Quiet, &format!("==> {} ({})", job.title(), job.state));
        }
        print(&args, &client, &terminal, job).await?;
    }
    Ok(ExitCode::SUCCESS)
}

async fn print(args: &Args, client: &Client, terminal: &Terminal, job: &Job) -> anyhow::Result<()> {
    let form = Form { escapes: terminal.has_colours() && !args.plain, timestamps: args.timestamps };
    let mut offset = 0;
    loop {
        let part = client.log(job.id, offset).await?;
        let news = part.next_offset > offset;
        offset = part.next_offset;
        if args.raw {
            terminal.raw(&part.content);
        } else {
            part.content.lines().for_each(|line| terminal.line(Tone::Plain, &form.show(line)));
        }
        if part.complete || (!news && !args.follow) {
            return Ok(());
        }
        if !news {
            tokio::time::sleep(INTERVAL).await;
        }
    }
}
