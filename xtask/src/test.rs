//! `cargo xtask test`: everything that has to hold.

use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use crate::images::{self, Built, Image, binaries};
use crate::{cluster, demo, deps, process, progress, workspace};

/// The tests' own cluster, so that a demo beside them is left alone.
const CLUSTER: &str = "test";

/// What to run.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Run these parts alone.
    #[arg(long, value_name = "PART", value_delimiter = ',')]
    only: Vec<Part>,
    /// Run the tests with the agent and the end-to-end tests whose names contain this.
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
    /// The real agent against buildkite-local.
    Agent,
    /// The page of buildkite-local in a real browser.
    Browser,
    /// The demo.
    Demo,
    /// End to end on a real cluster.
    E2e,
}

impl Args {
    fn wants(&self, part: Part) -> bool {
        self.only.is_empty() || self.only.contains(&part)
    }

    /// Whether a cluster is needed.
    fn wants_cluster(&self) -> bool {
        self.wants(Part::Demo) || self.wants(Part::E2e)
    }
}

/// Runs the parts in the order in which they are quick to fail; what the machine lacks is found before all of them.
pub(crate) fn run(args: &Args) -> Result<()> {
    ensure!(
        !args.wants_cluster() || rustix::process::geteuid().is_root(),
        "the demo and the end-to-end tests make a cluster, which needs root: run this as root, or with --only lint,unit,agent"
    );
    if args.wants_cluster() || args.wants(Part::Unit) {
        deps::packages()?;
    }
    if args.wants(Part::Browser) {
        deps::packages_for(deps::Need::Browser)?;
    }
    let mut passed = Passed::default();
    if args.wants(Part::Lint) {
        passed.time("lint", lint)?;
    }
    if args.wants(Part::Unit) {
        passed.time("unit", unit)?;
    }
    if args.wants(Part::Agent) {
        passed.time("agent", || agent(args.filter.as_deref()))?;
    }
    if args.wants(Part::Browser) {
        passed.time("browser", browser)?;
    }
    if args.wants_cluster() {
        on_cluster(args, &mut passed)?;
    }
    progress::note(&passed.line());
    Ok(())
}

fn lint() -> Result<()> {
    check("checking the format", &mut cargo(&["fmt", "--all", "--check"]))?;
    let lints = ["clippy", "--locked", "--quiet", "--workspace", "--all-targets", "--", "--deny", "warnings"];
    check("checking lints", &mut cargo(&lints))
}

fn unit() -> Result<()> {
    // Shim tests run the program that ships, not a debug build of it.
    let shim = binaries::shim()?;
    let mut command = cargo(&[
        "test",
        "--locked",
        "--workspace",
        "--exclude",
        "bk-e2e",
        "--exclude",
        "bk-browser",
        "--quiet",
    ]);
    check("running the tests that need no cluster", command.env("BUILDKITE_SHIM", shim))?;
    simulator()
}

/// Runs the simulator at length, with what it simulates optimised: the run takes a fifth of the time then.
fn simulator() -> Result<()> {
    let optimised = "profile.dev.package.bk-plan.opt-level=1";
    let args =
        ["test", "--locked", "--config", optimised, "--package", "bk-plan", "--test", "simulator", "--quiet"];
    check("running a hundred thousand simulated histories", cargo(&args).env("HISTORIES", "100000"))
}

fn agent(filter: Option<&str>) -> Result<()> {
    let mut command = cargo(&["test", "--locked", "--package", "bk-e2e", "--test", "agent", "--"]);
    // The tests mostly wait for agents, so more of them than there are cores run at once.
    command.arg("--test-threads=8").args(filter).env("E2E_AGENT", deps::agent()?);
    check("running the tests with the real agent", &mut command)
}

fn browser() -> Result<()> {
    let mut command = cargo(&["test", "--locked", "--package", "bk-browser", "--quiet"]);
    check("running the tests of the page", &mut command)
}

/// Whatever happens on the cluster, it is removed afterwards.
fn on_cluster(args: &Args, passed: &mut Passed) -> Result<()> {
    let outcome = with_cluster(args, passed);
    if outcome.is_err() {
        progress::note("==== the end of the cluster's logs");
        if let Err(error) = cluster::show_logs(CLUSTER, 30) {
            progress::note(&format!("cannot show them: {error:#}"));
        }
    }
    let removed = if args.keep { Ok(()) } else { cluster::stop(CLUSTER).map(drop) };
    match (outcome, removed) {
        (Err(error), Err(another)) => {
            progress::note(&format!("error: {another:#}"));
            Err(error)
        }
        (outcome, removed) => outcome.and(removed),
    }
}

fn with_cluster(args: &Args, passed: &mut Passed) -> Result<()> {
    let cluster = cluster::start(CLUSTER)?;
    let images = images::ensure(&Image::ALL)?;
    images::load(&cluster.containerd_socket, &images)?;
    if args.wants(Part::Demo) {
        progress::note("==== rehearsing the demo");
        passed.time("demo", || demo::rehearse(&cluster, &images))?;
    }
    if args.wants(Part::E2e) {
        passed.time("e2e", || end_to_end(args.filter.as_deref(), &cluster, &images))?;
    }
    Ok(())
}

fn end_to_end(filter: Option<&str>, cluster: &cluster::Running, images: &[Built]) -> Result<()> {
    let operator = binaries::operator()?;
    let toolbox = Image::Toolbox.reference(images::TAG);
    let archive = images.iter().find(|image| image.reference == toolbox).context("the toolbox was built")?;
    let mut command = cargo(&["test", "--locked", "--package", "bk-e2e", "--test", "e2e", "--"]);
    // The tests mostly wait for the cluster, so more of them than there are cores run at once.
    command
        .arg("--test-threads=4")
        .args(filter)
        .env("E2E_KUBECONFIG", &cluster.kubeconfig)
        .env("E2E_AUDIT_LOG", &cluster.audit_log)
        .env("E2E_HOST", cluster.machine.to_string())
        .env("E2E_KUBECTL", deps::kubernetes()?.join("kubectl"))
        .env("E2E_KWOK", deps::kwok()?)
        .env("E2E_OPERATOR", operator)
        .env("BUILDKITE_SHIM", binaries::shim()?)
        .env("E2E_AGENT_IMAGE", Image::Agent.reference(images::TAG))
        .env("E2E_REGISTRIES", &cluster.registries)
        .env("E2E_TOOLBOX_ARCHIVE", &archive.archive)
        .env("E2E_TOOLBOX_IMAGE", toolbox);
    cluster.bypass_proxies(&mut command);
    check("running the end-to-end tests", &mut command)
}

fn cargo(args: &[&str]) -> Command {
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

/// The parts that passed, and how long each took.
#[derive(Default)]
struct Passed(Vec<(&'static str, Duration)>);

impl Passed {
    fn time(&mut self, part: &'static str, work: impl FnOnce() -> Result<()>) -> Result<()> {
        let started = Instant::now();
        work()?;
        self.0.push((part, started.elapsed()));
        Ok(())
    }

    fn line(&self) -> String {
        let parts = self.0.iter().map(|(part, took)| format!("{part} {}", progress::duration(*took)));
        format!("all parts passed: {}", parts.collect::<Vec<_>>().join(", "))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// `make` asks for the same versions, which it reads from these files.
    #[test]
    fn the_readme_names_the_versions_that_are_needed() {
        let read = |name: &str| fs::read_to_string(workspace().join(name)).unwrap();
        let after = |text: &str, key: &str| {
            let line =
                text.lines().find_map(|line| line.strip_prefix(key)).expect("the file names a version");
            line.trim_matches('"').to_owned()
        };
        let rust = after(&read("Cargo.toml"), "rust-version = ");
        let numbers =
            |version: &String| version.split('.').map(|number| number.parse().unwrap()).collect::<Vec<u32>>();
        let go = ["agent", "kubernetes", "kwok"]
            .map(|module| after(&read(&format!("hack/{module}/go.mod")), "go "));
        let go = go.into_iter().max_by_key(numbers).unwrap();
        assert!(
            read("README.md").contains(&format!("Rust {rust} and Go {go} or newer")),
            "Rust {rust}, Go {go}"
        );
    }

    #[test]
    fn the_last_line_names_what_passed() {
        let mut passed = Passed(vec![("lint", Duration::from_secs(121))]);
        passed.time("unit", || Ok(())).unwrap();
        passed.time("demo", || anyhow::bail!("no")).unwrap_err();
        assert_eq!(passed.line(), "all parts passed: lint 2m01s, unit 0.0s");
    }
}
