//! `cargo xtask test`: everything that has to hold.

use std::fs;
use std::io::ErrorKind;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use crate::images::{self, Built, Image, binaries};
use crate::process::cargo;
use crate::{cluster, demo, deps, docs, process, progress, stage, workspace};

/// The tests' own cluster, so that a demo beside them is left alone.
const CLUSTER: &str = "test";
/// Where the cluster's logs are kept if something fails on it: shown, they would hide what failed.
const CLUSTER_LOGS: &str = "target/e2e/cluster";

/// Which end-to-end tests were left out of the run against an installation.
const LEFT_OUT: &str = "target/e2e/left-out.txt";
/// The end-to-end tests that every run repeats against an installation by Helm: one for each part of a job's life that the chart has
/// a say in. `--installed` runs all that can be.
const SHARE: [&str; 12] = [
    "buildkite_jobs::a_job_with_a_checkout_passes_and_leaves_nothing",
    "buildkite_jobs::an_exit_status_arrives_as_it_is",
    "cancel::a_running_job_stops",
    "commands::the_operator_cannot_do_more_than_its_role_says",
    "environments::a_job_without_a_command_runs_its_environments",
    "images::an_image_is_pulled_with_the_pods_credentials",
    "job_files::a_sidecar_sends_on_what_a_failed_job_leaves",
    "job_files::what_a_failed_job_has_written_is_there",
    "kubectl_jobs::a_standalone_job_runs_without_buildkite",
    "logs::output_and_files_of_a_job_arrive_complete_and_in_order",
    "pipelines::options_by_variables_are_honoured",
    "workloads::a_buildkite_job_runs_in_a_job",
];

/// The end-to-end tests that do to the cluster what others could not bear: each is run by itself, after them.
const ALONE: [&str; 1] =
    ["node_loss::a_job_on_a_node_that_is_lost_is_ended_and_tried_again_and_the_nodes_return_changes_nothing"];

/// What to run.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Run these parts alone.
    #[arg(long, value_name = "PART", value_delimiter = ',')]
    only: Vec<Part>,
    /// Run the tests with the agent and the end-to-end tests whose names contain this; with --ignored, also others.
    #[arg(long, value_name = "TEXT")]
    filter: Option<String>,
    /// Run those of them that take long, which are left out otherwise, and no others.
    #[arg(long)]
    ignored: bool,
    /// Run the end-to-end tests against an installation by Helm, those that need no process of the operator's.
    #[arg(long)]
    installed: bool,
    /// Leave the cluster running afterwards, for a look around or another run with this option, which uses it again.
    #[arg(long)]
    keep: bool,
    /// The cluster's name: runs with different ones can go on side by side.
    #[arg(long, value_name = "NAME", default_value = CLUSTER, value_parser = cluster::check_name)]
    cluster: String,
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Part {
    /// Format and lints.
    Lint,
    /// The documents as a site, in which every link leads somewhere.
    Docs,
    /// What needs no cluster.
    Unit,
    /// The real agent against buildkite-local.
    Agent,
    /// The page of buildkite-local in a real browser.
    Browser,
    /// The chart and the manifests that are made of it, without a cluster.
    Chart,
    /// The demo.
    Demo,
    /// End to end on a real cluster.
    E2e,
}

impl Args {
    fn wants(&self, part: Part) -> bool {
        self.only.is_empty() || self.only.contains(&part)
    }

    /// How the test programs are told which tests to run.
    fn chosen(&self) -> impl Iterator<Item = &str> {
        self.ignored.then_some("--ignored").into_iter().chain(self.filter.as_deref())
    }

    /// Whether all end-to-end tests are to run.
    fn wants_all(&self) -> bool {
        self.filter.is_none() && !self.ignored
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
        "the demo and the end-to-end tests make a cluster, which needs root: run this as root, or with --only lint,docs,unit,agent,chart"
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
    if args.wants(Part::Docs) {
        passed.time("docs", documents)?;
    }
    if args.wants(Part::Unit) {
        passed.time("unit", || unit(args))?;
    }
    if args.wants(Part::Agent) {
        passed.time("agent", || agent(args))?;
    }
    if args.wants(Part::Browser) {
        passed.time("browser", browser)?;
    }
    if args.wants(Part::Chart) {
        passed.time("chart", || chart(args.filter.as_deref()))?;
    }
    if args.wants_cluster() {
        on_cluster(args, &mut passed)?;
    }
    progress::note(&passed.line());
    Ok(())
}

fn lint() -> Result<()> {
    check("checking the format", &mut cargo(&["fmt", "--all", "--check"]))?;
    // The tests that run only when they are named are checked only when they are named, too.
    for targets in [
        &["--all-targets"][..],
        &["--test", "agent", "--test", "browser", "--test", "chart", "--test", "e2e"],
    ] {
        let mut lints = cargo(&["clippy", "--locked", "--quiet", "--workspace"]);
        check("checking lints", lints.args(targets).args(["--", "--deny", "warnings"]))?;
    }
    Ok(())
}

fn documents() -> Result<()> {
    progress::note("==== building the documents");
    docs::build()
}

fn unit(args: &Args) -> Result<()> {
    if args.ignored {
        // One after the other: they measure.
        let mut command = cargo_test(&["--test", "it", "--", "--test-threads=1", "--nocapture"]);
        command.args(args.chosen()).env("BUILDKITE_AGENT_PROGRAM", deps::agent()?);
        return check("running what takes long of what needs no cluster", &mut command);
    }
    // Shim tests run the program that ships, not a debug build of it.
    let shim = binaries::shim()?;
    let mut command = cargo_test(&["--quiet"]);
    check("running the tests that need no cluster", command.env("BUILDKITE_SHIM", shim))?;
    simulator()
}

/// Runs the simulator at length, with what it simulates optimised: the run takes a fifth of the time then.
fn simulator() -> Result<()> {
    let optimised = "profile.dev.package.bk-plan.opt-level=1";
    let mut command = cargo_test(&["--config", optimised, "--test", "simulator", "--quiet"]);
    check("running a hundred thousand simulated histories", command.env("HISTORIES", "100000"))
}

fn agent(args: &Args) -> Result<()> {
    let mut command = cargo_test(&["--test", "agent", "--"]);
    // The tests mostly wait for agents, so more of them than there are cores run at once.
    command.arg("--test-threads=8").args(args.chosen());
    command.env("E2E_AGENT", deps::agent()?).env("BUILDKITE_SHIM", binaries::shim()?);
    command.env("E2E_LOCAL", binaries::local()?);
    check("running the tests with the real agent", &mut command)
}

fn chart(filter: Option<&str>) -> Result<()> {
    let mut command = cargo_test(&["--test", "chart", "--"]);
    command.args(filter).env("E2E_HELM", deps::helm()?);
    check("running the tests of the chart", &mut command)
}

fn browser() -> Result<()> {
    let mut command = cargo_test(&["--test", "browser", "--quiet"]);
    check("running the tests of the page", &mut command)
}

/// Whatever happens on the cluster, it is removed afterwards.
fn on_cluster(args: &Args, passed: &mut Passed) -> Result<()> {
    let outcome = with_cluster(args, passed);
    if outcome.is_err() {
        match cluster::save_logs(&args.cluster, &workspace().join(CLUSTER_LOGS)) {
            Ok(()) => progress::note(&format!("the cluster's logs are in {CLUSTER_LOGS}")),
            Err(error) => progress::note(&format!("cannot keep the cluster's logs: {error:#}")),
        }
    }
    let removed = if args.keep { Ok(()) } else { cluster::stop(&args.cluster).map(drop) };
    match (outcome, removed) {
        (Err(error), Err(another)) => {
            progress::note(&format!("error: {another:#}"));
            Err(error)
        }
        (outcome, removed) => outcome.and(removed),
    }
}

fn with_cluster(args: &Args, passed: &mut Passed) -> Result<()> {
    if !args.keep {
        // A run that was killed leaves whatever its tests were doing to the cluster, such as taints on its node.
        cluster::stop(&args.cluster)?;
    }
    let cluster = cluster::start(&args.cluster)?;
    let images = images::ensure(&Image::ALL)?;
    images::load(&cluster.containerd_socket, &images)?;
    if args.wants(Part::Demo) {
        progress::note("==== rehearsing the demo");
        passed.time("demo", || demo::rehearse(&cluster, &images))?;
    }
    if args.wants(Part::E2e) && !args.installed {
        let label = "running the end-to-end tests";
        passed.time("e2e", || on_stage(label, &mut end_to_end(args), (&cluster, &images), args))?;
    }
    if args.wants(Part::E2e) && args.wants_all() {
        passed.time("alone", || alone(args, (&cluster, &images)))?;
    }
    if args.wants(Part::E2e) && (args.installed || args.wants_all()) {
        passed.time("installed", || installed(args, (&cluster, &images)))?;
    }
    Ok(())
}

/// The end-to-end tests that are asked for.
fn end_to_end(args: &Args) -> Command {
    let mut command = cargo_test(&["--test", "e2e", "--"]);
    // The tests mostly wait for the cluster, so more of them than there are cores run at once.
    command.arg("--test-threads=4").args(args.chosen());
    command
}

fn on_stage(
    label: &str,
    command: &mut Command,
    (cluster, images): (&cluster::Running, &[Built]),
    args: &Args,
) -> Result<()> {
    // The way through the runtime says nothing, and hides why a test failed.
    command.env("RUST_BACKTRACE", "0");
    stage::describe(command, cluster, images, &binaries::operator()?)?;
    if args.ignored {
        command.env("E2E_ELASTICSEARCH", deps::elasticsearch()?);
    }
    check(label, command)
}

/// The end-to-end tests that bear no others beside them.
fn alone(args: &Args, stage: (&cluster::Running, &[Built])) -> Result<()> {
    let mut command = cargo_test(&["--test", "e2e", "--", "--ignored", "--exact", "--test-threads=1"]);
    command.args(ALONE);
    on_stage("running end-to-end tests that bear no others beside them", &mut command, stage, args)
}

/// The end-to-end tests once more, against what Helm installs: those that are asked for, or a share of them.
fn installed(args: &Args, stage: (&cluster::Running, &[Built])) -> Result<()> {
    let list = workspace().join(LEFT_OUT);
    match fs::remove_file(&list) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            return Err(error).with_context(|| format!("removing {LEFT_OUT}"));
        }
        _ => {}
    }
    let mut command = end_to_end(args);
    if !args.installed {
        command.args(SHARE);
    }
    on_stage(
        "running end-to-end tests against an installation by Helm",
        command.env("E2E_INSTALLED", "helm"),
        stage,
        args,
    )?;
    let left_out = fs::read_to_string(&list).unwrap_or_default().lines().count();
    if left_out > 0 {
        progress::note(&format!(
            "{left_out} of them were left out, as they need a process of the operator's: {LEFT_OUT}"
        ));
    }
    Ok(())
}

/// `cargo test` for the whole workspace, whatever is run of it: with fewer packages cargo would choose other features
/// for the dependencies, and compile half of them again.
fn cargo_test(args: &[&str]) -> Command {
    let mut command = cargo(&["test", "--locked", "--workspace"]);
    command.args(args);
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
        let go = ["agent", "helm", "kubernetes", "kwok"]
            .map(|module| after(&read(&format!("hack/{module}/go.mod")), "go "));
        let go = go.into_iter().max_by_key(numbers).unwrap();
        assert!(
            read("README.md").contains(&format!("Rust {rust} and Go {go} or newer")),
            "Rust {rust}, Go {go}"
        );
    }

    #[test]
    fn the_share_that_is_run_against_an_installation_exists() {
        for name in SHARE.iter().chain(&ALONE) {
            let (module, test) = name.split_once("::").unwrap();
            let file = workspace().join("tests/e2e/tests/e2e").join(module).with_extension("rs");
            let tests = fs::read_to_string(file).unwrap();
            assert!(tests.contains(&format!("async fn {test}(")), "{name}");
        }
    }

    #[test]
    fn the_last_line_names_what_passed() {
        let mut passed = Passed(vec![("lint", Duration::from_secs(121))]);
        passed.time("unit", || Ok(())).unwrap();
        passed.time("demo", || anyhow::bail!("no")).unwrap_err();
        assert_eq!(passed.line(), "all parts passed: lint 2m01s, unit 0.0s");
    }
}
