//! `buildkite-operator completion`.

use std::io::Write;

use anyhow::Context;
use clap::{Args, CommandFactory};
use clap_complete::{Shell, generate};

/// Options of `completion`.
#[derive(Debug, Args)]
pub(super) struct CompletionArgs {
    /// The shell
    #[arg(value_enum)]
    shell: Shell,
}

/// Prints the completion of the program that is called by this name.
pub(super) fn run(args: &CompletionArgs, name: &str) -> anyhow::Result<()> {
    let mut script = Vec::new();
    generate(args.shell, &mut super::OperatorArgs::command(), name.replace(' ', "-"), &mut script);
    std::io::stdout().lock().write_all(&script).context("cannot print the completion")
}
