//! Developer tasks: `cargo xtask --help`.

mod bench;
mod cache;
mod cluster;
mod demo;
mod deps;
mod docs;
mod images;
mod process;
mod progress;
mod stage;
mod test;

use std::path::Path;
use std::process::ExitCode;

use anyhow::Result;
use clap::Parser;

/// Developer tasks.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Cli {
    #[command(subcommand)]
    task: Task,
}

#[derive(clap::Subcommand)]
enum Task {
    /// Install the packages and build the programs that the other tasks need.
    Deps,
    /// Run a real Kubernetes on this machine.
    Cluster(cluster::Args),
    /// Build the project's container images.
    Images(images::Args),
    /// Run the demo: the operator, a Buildkite server and a build, on a local cluster or on yours.
    Demo(demo::Args),
    /// Make a site of the documents.
    Docs(docs::Args),
    /// Measure buildkite-local and the operator, as they ship.
    Bench(bench::Args),
    /// Run every test: format, lints, unit tests, and end to end on a local cluster.
    Test(test::Args),
}

fn main() -> ExitCode {
    // Not returned: the standard library would print a stack trace, if asked to, that helps nobody here.
    run(Cli::parse().task).unwrap_or_else(|error| {
        progress::note(&format!("error: {error:#}"));
        ExitCode::FAILURE
    })
}

fn run(task: Task) -> Result<ExitCode> {
    match task {
        Task::Deps => deps::run().map(|()| ExitCode::SUCCESS),
        Task::Cluster(args) => cluster::run(&args),
        Task::Images(args) => images::run(args).map(|()| ExitCode::SUCCESS),
        Task::Demo(args) => demo::run(&args).map(|()| ExitCode::SUCCESS),
        Task::Docs(args) => docs::run(&args).map(|()| ExitCode::SUCCESS),
        Task::Bench(args) => bench::run(&args).map(|()| ExitCode::SUCCESS),
        Task::Test(args) => test::run(&args).map(|()| ExitCode::SUCCESS),
    }
}

/// The root of the source tree.
fn workspace() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("this package is a directory of the workspace")
}
