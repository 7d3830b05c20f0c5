//! The command line.

mod address;
mod artifact_exporter;
mod cancel;
mod completion;
mod connection;
mod crds;
mod describe;
mod doctor;
mod elapsed;
mod exporter;
mod follow;
mod get;
mod installation;
mod lint;
mod log_exporter;
mod logs;
mod metrics_exporter;
mod migrate;
mod output;
mod plan;
mod repo_mirror;
mod repo_syncer;
mod run;
mod run_job;
#[cfg(test)]
mod sample;
mod top;

use std::{
    ffi::{OsStr, OsString},
    path::{Path, PathBuf},
    process::ExitCode,
};

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand, error::ErrorKind};

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
    /// Run one command as a BuildJob, print its log, and exit with its status
    #[command(name = "run-job")]
    RunJob(Box<run_job::RunJobArgs>),
    /// List BuildJobs, BuildEnvironments or RepoMirrors
    #[allow(clippy::doc_markdown, reason = "users read this, not rustdoc")]
    Get(Box<get::GetArgs>),
    /// Tell all that is known about a job
    Describe(describe::DescribeArgs),
    /// Print what the containers of a job print
    Logs(logs::LogsArgs),
    /// End jobs before their time
    Cancel(cancel::CancelArgs),
    /// Show queues, phases and why jobs wait, as they are now
    Top(top::TopArgs),
    /// Check whether an installation can work, and say what to do
    Doctor(doctor::DoctorArgs),
    /// Print the pod that a job becomes, without a cluster or as one would have it
    Plan(plan::PlanArgs),
    /// Find what is wrong with pipelines and manifests, without a cluster
    Lint(lint::LintArgs),
    /// Turn settings of agent-stack-k8s into values of the operator's chart
    Migrate(migrate::MigrateArgs),
    /// Print the custom resource definitions, for `kubectl apply -f -`
    Crds(crds::CrdsArgs),
    /// Print what a shell needs to complete command lines
    Completion(completion::CompletionArgs),
    /// Send what a job writes to the sinks of its pod, as the environment tells
    #[command(name = "log-exporter")]
    LogExporter(exporter::ExporterArgs),
    /// Upload the files of a job's directory as artifacts, as the environment tells
    #[command(name = "artifact-exporter")]
    ArtifactExporter(exporter::ExporterArgs),
    /// Serve or send the metrics in a job's directory, as the environment tells
    #[command(name = "metrics-exporter")]
    MetricsExporter(exporter::ExporterArgs),
    /// Keep the mirrors that RepoMirrors ask for, until told to stop
    #[command(name = "repo-syncer")]
    RepoSyncer(Box<repo_syncer::RepoSyncerArgs>),
    /// Prepare a job's checkout from mirrors, and succeed in any case
    #[command(name = "repo-mirror")]
    RepoMirror(Box<bk_mirrors::borrow::BorrowArgs>),
}

/// Runs Buildkite jobs on Kubernetes: the same as `buildkite-operator run`.
#[derive(Debug, Parser)]
#[command(name = "buildkite-controller", version, max_term_width = 100)]
struct ControllerArgs {
    #[command(flatten)]
    run: RunArgs,
}

/// What kubectl runs for `kubectl buildkite`: the same program, by a link of this name on the `PATH`.
const KUBECTL_PLUGIN: &str = "kubectl-buildkite";

/// `buildkite-operator`, or `kubectl buildkite`.
pub fn operator() -> ExitCode {
    let called = std::env::args_os().next().map(PathBuf::from);
    let is_plugin = called.as_deref().and_then(Path::file_stem) == Some(OsStr::new(KUBECTL_PLUGIN));
    let name = if is_plugin { "kubectl buildkite" } else { "buildkite-operator" };
    let parsed = OperatorArgs::command().bin_name(name).try_get_matches_from(std::env::args_os());
    let args = match parsed.and_then(|matches| OperatorArgs::from_arg_matches(&matches)) {
        Ok(args) => args,
        Err(error) => return usage(&error),
    };
    match args.command {
        Command::Run(args) => outcome(run::run(*args)),
        Command::RunJob(args) => run_job::run(*args),
        Command::Get(args) => outcome(connection::block_on(get::run(*args))),
        Command::Describe(args) => outcome(connection::block_on(describe::run(args))),
        Command::Logs(args) => outcome(connection::block_on(logs::run(args))),
        Command::Cancel(args) => outcome(connection::block_on(cancel::run(args))),
        Command::Top(args) => outcome(connection::block_on(top::run(args))),
        Command::Doctor(args) => verdict(connection::block_on(doctor::run(args))),
        Command::Plan(args) => outcome(plan::run(&args)),
        Command::Lint(args) => lint::run(&args),
        Command::Migrate(args) => outcome(migrate::run(&args)),
        Command::Crds(args) => outcome(crds::run(&args)),
        Command::Completion(args) => outcome(completion::run(&args, name)),
        Command::LogExporter(args) => exporter::run(&args, log_exporter::export),
        Command::ArtifactExporter(args) => exporter::run(&args, artifact_exporter::export),
        Command::MetricsExporter(args) => exporter::run(&args, metrics_exporter::export),
        Command::RepoSyncer(args) => outcome(repo_syncer::run(*args)),
        Command::RepoMirror(args) => repo_mirror::run(*args),
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

/// The outcome of what says by its exit status whether all is well.
fn verdict(result: anyhow::Result<bool>) -> ExitCode {
    match result {
        Ok(false) => ExitCode::FAILURE,
        Ok(true) => ExitCode::SUCCESS,
        Err(error) => outcome(Err(error)),
    }
}

/// `crds | head` is not a failure.
fn is_closed_pipe(error: &anyhow::Error) -> bool {
    error.downcast_ref::<std::io::Error>().is_some_and(|error| error.kind() == std::io::ErrorKind::BrokenPipe)
}
