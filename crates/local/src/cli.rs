//! The command line.

mod act;
mod agents;
mod build;
mod builds;
mod client;
mod connection;
mod line;
mod log;
mod reference;
mod repository;
mod serve;
mod table;
mod terminal;
mod watch;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// A Buildkite that runs on a laptop
#[derive(Parser)]
#[command(name = "buildkite-local", version, about)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run the server
    Serve(serve::Args),
    /// Start a build of a pipeline file on a server
    Build(build::Args),
    /// Print the log of a job, or of all jobs of a build
    Log(log::Args),
    /// Cancel a build or a job
    Cancel(act::Args),
    /// Run a job again, or all failed jobs of a build
    Retry(act::Args),
    /// Let a blocked build go on
    Unblock(act::UnblockArgs),
    /// List builds
    Builds(builds::Args),
    /// List artifacts, or download them
    Artifacts(builds::ArtifactArgs),
    /// List agents, or stop, pause and resume one
    Agents(agents::Args),
    /// List queues, or pause and resume one
    Queue(agents::QueueArgs),
}

/// An error of the command itself, as opposed to a build that failed.
const FAILED: u8 = 2;

/// Runs the command line of this process.
pub fn main() -> ExitCode {
    let cli = Cli::parse();
    let result = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(anyhow::Error::from)
        .and_then(|runtime| runtime.block_on(run(cli)));
    match result {
        Ok(code) => code,
        Err(error) => {
            terminal::error(&bk_ops::report::one_line(&*error));
            ExitCode::from(FAILED)
        }
    }
}

async fn run(cli: Cli) -> anyhow::Result<ExitCode> {
    match cli.command {
        Command::Serve(args) => serve::run(args).await,
        Command::Build(args) => build::run(args).await,
        Command::Log(args) => log::run(args).await,
        Command::Cancel(args) => act::cancel(args).await,
        Command::Retry(args) => act::retry(args).await,
        Command::Unblock(args) => act::unblock(args).await,
        Command::Builds(args) => builds::run(args).await,
        Command::Artifacts(args) => builds::artifacts(args).await,
        Command::Agents(args) => agents::run(args).await,
        Command::Queue(args) => agents::queue(args).await,
    }
}
