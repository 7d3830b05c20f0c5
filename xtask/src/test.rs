//! `cargo xtask test`: everything that has to hold.

use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::images::{self, Image, binaries};
use crate::{cluster, demo, deps, process, progress, workspace};

/// The tests' own cluster, so that a demo beside them is left alone.
const CLUSTER: &str = "test";

/// What to run.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Run this part alone.
    #[arg(long, value_name = "PART")]
    only: Option<Part>,
    /// Run the end-to-end tests whose names contain this.
    #[arg(long, value_name = "TEXT")]
    filter: Option<String>,
    /// Leave the cluster running afterwards, for another run or a look around.
    #[arg(long)]
    keep: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Part {
    /// Format and lints.
    Lint,
    /// What needs no cluster.
    Unit,
    /// End to end on a real cluster.
    E2e,
    /// The demo.
    Demo,
}

/// Runs the parts in the order in which they are quick to fail.
pub(crate) fn run(args: &Args) -> Result<()> {
    let wanted = |part| args.only.is_none_or(|only| only == part);
    if wanted(Part::Lint) {
        cargo("checking the format", &["fmt", "--all", "--check"])?;
        let lints = ["clippy", "--quiet", "--workspace", "--all-targets", "--", "--deny", "warnings"];
        cargo("checking lints", &lints)?;
    }
    if wanted(Part::Unit) {
        // Shim tests run the program that ships, not a debug build of it.
        let shim = binaries::shim()?;
        let mut command = cargo_command(&["test", "--workspace", "--exclude", "bk-e2e", "--quiet"]);
        check("running the tests that need no cluster", command.env("BUILDKITE_SHIM", shim))?;
    }
    if wanted(Part::E2e) || wanted(Part::Demo) {
        on_cluster(args, wanted(Part::E2e), wanted(Part::Demo))?;
    }
    Ok(())
}

fn on_cluster(args: &Args, e2e: bool, demo: bool) -> Result<()> {
    let cluster = cluster::start(CLUSTER)?;
    let images = images::ensure(&Image::ALL)?;
    images::load(&cluster.containerd_socket, &images)?;
    let mut outcome = Ok(());
    if e2e {
        outcome = end_to_end(args.filter.as_deref(), &cluster);
    }
    if demo && outcome.is_ok() {
        outcome = demo::rehearse(&cluster, &images);
    }
    if outcome.is_err() {
        progress::note("==== the end of the cluster's logs");
        cluster::show_logs(CLUSTER, 30)?;
    }
    if !args.keep {
        cluster::stop(CLUSTER)?;
    }
    outcome
}

fn end_to_end(filter: Option<&str>, cluster: &cluster::Running) -> Result<()> {
    let operator = binaries::operator()?;
    let mut command = cargo_command(&["test", "--package", "bk-e2e", "--test", "e2e", "--"]);
    // The tests mostly wait for the cluster, so more of them than there are cores run at once.
    command
        .arg("--test-threads=4")
        .args(filter)
        .env("E2E_KUBECONFIG", &cluster.kubeconfig)
        .env("E2E_HOST", cluster.machine.to_string())
        .env("E2E_KUBECTL", deps::kubernetes()?.join("kubectl"))
        .env("E2E_OPERATOR", operator)
        .env("BUILDKITE_SHIM", binaries::shim()?)
        .env("E2E_AGENT_IMAGE", Image::Agent.reference(images::TAG))
        .env("E2E_TOOLBOX_IMAGE", Image::Toolbox.reference(images::TAG));
    check("running the end-to-end tests", &mut command)
}

fn cargo(label: &str, args: &[&str]) -> Result<()> {
    check(label, &mut cargo_command(args))
}

fn cargo_command(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO"));
    command.current_dir(workspace()).args(args);
    command
}

/// Runs a program whose output is for the reader.
fn check(label: &str, command: &mut Command) -> Result<()> {
    progress::note(&format!("==== {label}"));
    let status = command.status().with_context(|| format!("starting {}", process::line(command)))?;
    ensure!(status.success(), "{label} failed: {} ended with {status}", process::line(command));
    Ok(())
}
