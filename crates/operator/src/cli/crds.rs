//! `buildkite-operator crds`.

use std::io::Write;

use clap::Args;

use super::output::Output;

/// Options of `crds`.
#[derive(Debug, Args)]
pub(super) struct CrdsArgs {
    /// Format of the output
    #[arg(long, short, value_enum, default_value = "yaml")]
    output: Output,
}

pub(super) fn run(args: &CrdsArgs) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    for crd in bk_api::crds::all() {
        if let Output::Yaml = args.output {
            writeln!(out, "---")?;
        }
        args.output.write(&mut out, &crd)?;
    }
    out.flush()?;
    Ok(())
}
