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
    let mut report = Report { document: cli.record.clone(), ..Report::default() };
    for (name, benchmark) in of_server {
        eprintln!("measuring {name}");
        let binary = cli.local.clone();
        let lines = tokio::task::spawn_blocking(move || benchmark(&binary)).await?;
        report.add(name, lines, true);
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
                report.add(&title, lines, command.is_ours());
            }
        }
    }
    report.end()
}

/// What has come of the benchmarks.
#[derive(Default)]
struct Report {
    /// Where figures are written down, too.
    document: Option<PathBuf>,
    /// Benchmarks without figures.
    failed: Vec<String>,
    /// Figures that miss their targets.
    missed: Vec<String>,
}

impl Report {
    /// Prints a benchmark's figures, or why there are none. One that fails does not keep others from being run.
    fn add(&mut self, name: &str, lines: Result<Vec<Line>>, of_record: bool) {
        let shown = lines.and_then(|lines| {
            let table = table(name, &lines);
            println!("\n{table}");
            let missed = lines.iter().filter(|line| line.is_missed());
            self.missed.extend(missed.map(|line| format!("{name}: {}", line.name.trim())));
            let document = self.document.as_deref().filter(|_| of_record);
            document.map_or(Ok(()), |document| record::write(document, name, &table))
        });
        if let Err(error) = shown {
            eprintln!("benchmark {name} failed: {error:#}");
            self.failed.push(name.to_owned());
        }
    }

    /// Names what was missed, which a busy machine may be to blame for, and fails for what was not measured.
    fn end(self) -> Result<()> {
        if !self.missed.is_empty() {
            println!("\ntargets that were missed:\n  {}", self.missed.join("\n  "));
        }
        ensure!(self.failed.is_empty(), "these benchmarks failed: {}", self.failed.join(", "));
        Ok(())
    }
}
