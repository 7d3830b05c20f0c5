//! The command line.

mod crds;
mod plan;
mod run;

use std::{ffi::OsString, process::ExitCode};

use clap::{Parser, Subcommand, error::ErrorKind};

pub use run::RunArgs;

/// Runs Buildkite jobs on Kubernetes.
#[derive(Debug, Parser)]
#[command(name = "buildkite-operator", version, max_term_width = 100, arg_required_else_help = true)]
struct OperatorArgs {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Take jobs from Buildkite and run them, until told to stop
    Run(Box<RunArgs>),
    /// Print the pod that a job becomes, without a cluster
    Plan(plan::PlanArgs),
    /// Print the custom resource definitions, for `kubectl apply -f -`
    Crds(crds::CrdsArgs),
}

/// Runs Buildkite jobs on Kubernetes: the same as `buildkite-operator run`.
#[derive(Debug, Parser)]
#[command(name = "buildkite-controller", version, max_term_width = 100)]
struct ControllerArgs {
    #[command(flatten)]
    run: RunArgs,
}

/// `buildkite-operator`.
pub fn operator() -> ExitCode {
    let args = match OperatorArgs::try_parse_from(std::env::args_os()) {
        Ok(args) => args,
        Err(error) => return usage(&error),
    };
    match args.command {
        Command::Run(args) => outcome(run::run(*args)),
        Command::Plan(args) => outcome(plan::run(&args)),
        Command::Crds(args) => outcome(crds::run(&args)),
    }
}

/// `buildkite-controller`.
pub fn controller() -> ExitCode {
    match ControllerArgs::try_parse_from(std::env::args_os().collect::<Vec<OsString>>()) {
        Ok(args) => outcome(run::run(args.run)),
        Err(error) => usage(&error),
    }
}

/// Prints the help that was asked for, or what is wrong with the command line.
fn usage(error: &clap::Error) -> ExitCode {
    if !error.use_stderr() || error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        // Nothing can be done about a closed terminal.
        let _closed = error.print();
    } else {
        #[allow(clippy::print_stderr, reason = "the one line a failed command ends with")]
        {
            eprintln!("{}", complaint(&error.render().to_string()));
        }
    }
    if error.use_stderr() { ExitCode::from(2) } else { ExitCode::SUCCESS }
}

/// What clap says about a command line, without its summary of the usage, on one line.
fn complaint(rendered: &str) -> String {
    let mut parts: Vec<String> = rendered
        .split("\n\n")
        .filter(|part| !part.starts_with("Usage:") && !part.starts_with("For more information"))
        .map(|part| part.split_whitespace().collect::<Vec<_>>().join(" "))
        .collect();
    parts.push("try --help".to_owned());
    parts.join("; ")
}

fn outcome(result: anyhow::Result<()>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if is_closed_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            #[allow(clippy::print_stderr, reason = "the one line a failed command ends with")]
            {
                eprintln!("error: {}", bk_ops::report::one_line(error.as_ref()));
            }
            ExitCode::FAILURE
        }
    }
}

/// `crds | head` is not a failure.
fn is_closed_pipe(error: &anyhow::Error) -> bool {
    error.downcast_ref::<std::io::Error>().is_some_and(|error| error.kind() == std::io::ErrorKind::BrokenPipe)
}
