//! `cargo xtask docs`: the documents as a site.

use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::{deps, process, progress, workspace};

/// Where the site is built, as mkdocs.yml has it.
const SITE: &str = "target/docs";

/// What to do with the site.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Show it on port 8000 of this machine, with its search, and follow changes of the documents.
    #[arg(long)]
    serve: bool,
}

/// Builds the site, or serves it until it is interrupted.
pub(crate) fn run(args: &Args) -> Result<()> {
    if args.serve {
        return show(mkdocs()?.args(["serve", "--watch=hack/docs", "--watch=README.md"]));
    }
    build()?;
    progress::note(&format!(
        "the site is in {SITE}: open {SITE}/index.html, or use --serve to have its search, too"
    ));
    Ok(())
}

/// Builds the site; a page that has no place in it, and a link that leads nowhere, are errors.
pub(crate) fn build() -> Result<()> {
    show(mkdocs()?.args(["build", "--strict", "--quiet"]))
}

fn mkdocs() -> Result<Command> {
    let mut command = Command::new(deps::mkdocs()?);
    // Its theme would advertise its successor.
    command.current_dir(workspace()).env("NO_MKDOCS_2_WARNING", "1");
    Ok(command)
}

fn show(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| format!("starting {}", process::line(command)))?;
    ensure!(status.success(), "{} ended with {status}", process::line(command));
    Ok(())
}
