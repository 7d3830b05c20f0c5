//! `buildkite-operator crds`.

use std::io::Write;

use clap::{Args, ValueEnum};

/// Options of `crds`.
#[derive(Debug, Args)]
pub(super) struct CrdsArgs {
    /// Format of the output
    #[arg(long, short, value_enum, default_value = "yaml")]
    output: Output,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Output {
    Yaml,
    Json,
}

pub(super) fn run(args: &CrdsArgs) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    for crd in bk_api::crds::all() {
        match args.output {
            Output::Yaml => write!(out, "---\n{}", serde_saphyr::to_string(&crd)?)?,
            Output::Json => writeln!(out, "{}", serde_json::to_string_pretty(&crd)?)?,
        }
    }
    out.flush()?;
    Ok(())
}
