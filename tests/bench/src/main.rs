//! Measures buildkite-local and the operator from outside: `cargo xtask bench` builds what is measured, starts a cluster
//! where one is needed, and runs this.
//!
//! - [`local`]: the server alone
//! - [`operator`]: a controller between Buildkite and a cluster
//! - [`process`]: what processes use
//! - [`figures`]: the tables
//! - [`record`]: the tables in a document
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "the figures are the result")]

mod figures;
mod local;
mod operator;
mod process;
mod record;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Result, ensure};
use clap::Parser;

use figures::{Line, table};
use operator::{Command, Part, Setup};

/// What to measure.
#[derive(Parser)]
#[command(name = "bk-bench")]
struct Cli {
    /// The buildkite-local to measure, or to measure with.
    #[arg(long, value_name = "FILE")]
    local: PathBuf,
    /// Run the benchmarks whose names contain this.
    #[arg(long, value_name = "NAME")]
    filter: Option<String>,
    /// Measure this controller, too. A shell runs the command, with the variables that docs/benchmarks.md names.
    #[arg(long = "controller", value_name = "NAME=COMMAND")]
    controllers: Vec<Command>,
    /// Put the operator's and buildkite-local's figures into this document, too.
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,
    /// Print the names of the benchmarks instead.
    #[arg(long)]
    list: bool,
}

type OfServer = fn(&Path) -> Result<Vec<Line>>;

const OF_SERVER: [(&str, OfServer); 4] = [
    ("queue", local::queue::run),
    ("build", local::load::one_build),
    ("jobs", local::load::many_builds),
    ("logs", local::logs::run),
];

#[tokio::main]
async fn main() -> ExitCode {
    // Not returned: the standard library would print a stack trace, if asked to, that helps nobody here.
    match run(Cli::parse()).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn run(cli: Cli) -> Result<()> {
    let wanted = |name: &str| cli.filter.as_deref().is_none_or(|filter| name.contains(filter));
    let of_server: Vec<_> = OF_SERVER.into_iter().filter(|(name, _)| wanted(name)).collect();
    let of_controllers: Vec<_> = Part::ALL.into_iter().filter(|part| wanted(part.name())).collect();
    let names = || OF_SERVER.iter().map(|(name, _)| *name).chain(Part::ALL.map(Part::name));
    ensure!(
        !of_server.is_empty() || !of_controllers.is_empty(),
        "no benchmark is called so; there are {}",
        names().collect::<Vec<_>>().join(", ")
    );
    if cli.list {
        names().filter(|name| wanted(name)).for_each(|name| println!("{name}"));
        return Ok(());
    }
    println!("{}", figures::machine()?);
    let record = cli.record.as_deref();
    let mut failed = Vec::new();
    for (name, benchmark) in of_server {
        eprintln!("measuring {name}");
        let binary = cli.local.clone();
        let lines = tokio::task::spawn_blocking(move || benchmark(&binary)).await?;
        failed.extend(show(name, lines, record));
    }
    if !of_controllers.is_empty() {
        let setup = Setup::read(&cli.local)?;
        for part in of_controllers {
            let ours = Command::ours();
            let commands = std::iter::once(&ours).chain(&cli.controllers);
            for command in commands.filter(|command| part.fits(command)) {
                let title = command.title(part);
                eprintln!("measuring {title}");
                let lines = part.run(&setup, command).await;
                failed.extend(show(&title, lines, record.filter(|_| command.is_ours())));
            }
        }
    }
    ensure!(failed.is_empty(), "these benchmarks failed: {}", failed.join(", "));
    Ok(())
}

/// Prints a benchmark's figures, or why there are none. One that fails does not keep others from being run.
fn show(name: &str, lines: Result<Vec<Line>>, document: Option<&Path>) -> Option<String> {
    let shown = lines.and_then(|lines| {
        let table = table(name, &lines);
        println!("\n{table}");
        document.map_or(Ok(()), |document| record::write(document, name, &table))
    });
    let error = shown.err()?;
    eprintln!("benchmark {name} failed: {error:#}");
    Some(name.to_owned())
}
