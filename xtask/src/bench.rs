//! `cargo xtask bench`: builds what is measured as it ships, and starts a cluster where one is needed. The measuring is
//! done by `tests/bench`.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::images::binaries::{self, Measured};
use crate::images::{self, Image};
use crate::{cluster, process, progress, stage, workspace};

/// The benchmarks' own cluster.
const CLUSTER: &str = "bench";
/// How the names of the benchmarks begin that need it.
const ON_CLUSTER: &str = "operator";

/// Where figures are written down.
const DOCUMENT: &str = "docs/benchmarks.md";

/// What to measure.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Run the benchmarks whose names contain this.
    #[arg(long, value_name = "NAME")]
    filter: Option<String>,
    /// Measure this controller, too, beside the operator.
    #[arg(long = "controller", value_name = "NAME=COMMAND")]
    controllers: Vec<String>,
    /// Measure this buildkite-local, instead of one of this tree.
    #[arg(long, value_name = "FILE")]
    binary: Option<PathBuf>,
    /// Write the figures into docs/benchmarks.md, too.
    #[arg(long)]
    record: bool,
    /// Leave the cluster running afterwards, for another run or a look around.
    #[arg(long)]
    keep: bool,
}

/// Builds, prepares and measures.
pub(crate) fn run(args: &Args) -> Result<()> {
    let measured = binaries::measured()?;
    let names = process::run(bench(args, &measured).arg("--list"))?;
    if !names.lines().any(|name| name.starts_with(ON_CLUSTER)) {
        return show(&mut bench(args, &measured));
    }
    let outcome = on_cluster(args, &measured);
    let removed = if args.keep { Ok(()) } else { cluster::stop(CLUSTER).map(drop) };
    outcome.and(removed)
}

fn on_cluster(args: &Args, measured: &Measured) -> Result<()> {
    let cluster = cluster::start(CLUSTER)?;
    let images = images::ensure(&[Image::Agent, Image::Toolbox])?;
    images::load(&cluster.containerd_socket, &images)?;
    let mut command = bench(args, measured);
    stage::describe(&mut command, &cluster, &images, &measured.operator)?;
    let processes = cluster::processes(CLUSTER)?.into_iter().map(|(name, pid)| format!("{name}={pid}"));
    show(command.env("BENCH_PROCESSES", processes.collect::<Vec<_>>().join(",")))
}

fn bench(args: &Args, measured: &Measured) -> Command {
    let mut command = Command::new(&measured.bench);
    let local: &Path = args.binary.as_deref().unwrap_or(&measured.local);
    command.arg("--local").arg(local);
    command.args(args.filter.iter().flat_map(|filter| ["--filter", filter]));
    if args.record {
        command.arg("--record").arg(workspace().join(DOCUMENT));
    }
    command.args(args.controllers.iter().flat_map(|controller| ["--controller", controller]));
    command
}

/// Runs it with its output for the reader.
fn show(command: &mut Command) -> Result<()> {
    progress::note("measuring: nothing else should run on this machine");
    let status = command.status().with_context(|| format!("starting {}", process::line(command)))?;
    ensure!(status.success(), "not everything could be measured");
    Ok(())
}
