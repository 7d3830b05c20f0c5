//! The command line.

mod build;
mod client;
mod connection;
mod repository;
mod serve;
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
    }
}
