//! `cargo xtask bench`: what a release build of buildkite-local takes, over HTTP, as a process of its own.

mod figures;
mod http;
mod load;
mod logs;
mod queue;
mod server;

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Result, ensure};

use crate::{process, progress, workspace};
use figures::{Line, table};

/// What to measure.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Run the benchmarks whose names contain this.
    #[arg(long, value_name = "NAME")]
    filter: Option<String>,
    /// Measure this binary instead of building one.
    #[arg(long, value_name = "FILE")]
    binary: Option<PathBuf>,
}

type Benchmark = fn(&std::path::Path) -> Result<Vec<Line>>;

const BENCHMARKS: [(&str, Benchmark); 4] =
    [("queue", queue::run), ("build", load::one_build), ("jobs", load::many_builds), ("logs", logs::run)];

/// Builds the server, runs the benchmarks and prints their figures.
#[allow(clippy::print_stdout, reason = "the figures are the result")]
pub(crate) fn run(args: &Args) -> Result<()> {
    let wanted = |name: &str| args.filter.as_deref().is_none_or(|filter| name.contains(filter));
    let chosen: Vec<_> = BENCHMARKS.iter().filter(|(name, _)| wanted(name)).collect();
    let names = BENCHMARKS.map(|(name, _)| name).join(", ");
    ensure!(!chosen.is_empty(), "no benchmark is called so; there are {names}");
    let binary = match &args.binary {
        Some(binary) => binary.clone(),
        None => progress::step("building buildkite-local for release", build)?,
    };
    println!("{}", figures::machine()?);
    for (name, benchmark) in chosen {
        let lines = progress::step(&format!("benchmark {name}"), || benchmark(&binary))?;
        println!("\n{}", table(name, &lines));
    }
    Ok(())
}

fn build() -> Result<PathBuf> {
    let mut cargo = Command::new("cargo");
    cargo.args(["build", "--locked", "--release", "--package", "buildkite-local"]).current_dir(workspace());
    process::run(&mut cargo)?;
    let target =
        std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| workspace().join("target"), PathBuf::from);
    Ok(target.join("release/buildkite-local"))
}
