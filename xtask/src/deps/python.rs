//! What builds the documentation, from pinned packages of Python's index, once per set of versions.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use super::golang::key;
use super::packages::{self, Need};
use crate::{cache, process, progress, workspace};

/// The `mkdocs` program, installed if no earlier run has installed the same.
pub(super) fn mkdocs() -> Result<PathBuf> {
    let source = workspace().join("hack/mkdocs");
    let python = || process::run(Command::new("python3").arg("--version"));
    if python().is_err() {
        packages::install(&[Need::Docs])?;
    }
    let store = cache::root()?.join("programs");
    let target = store.join(format!("mkdocs-{}", key(&source, &[&python()?])?));
    let program = target.join("bin/mkdocs");
    // Programs in such an environment know its path, so it is made in its place. Which is done when this is there:
    let complete = target.join("complete");
    if complete.exists() {
        return Ok(program);
    }
    let _lock = cache::lock(&store.join("mkdocs.lock"), "installing mkdocs")?;
    if complete.exists() {
        return Ok(program);
    }
    progress::step("installing mkdocs (half a minute the first time)", || install(&source, &target))?;
    fs::write(&complete, "").with_context(|| format!("writing {}", complete.display()))?;
    Ok(program)
}

fn install(source: &Path, target: &Path) -> Result<()> {
    let make = || process::run(Command::new("python3").args(["-m", "venv", "--clear"]).arg(target));
    if make().is_err() {
        // Debian has it in a package of its own.
        packages::install(&[Need::Docs])?;
        make()?;
    }
    let mut pip = Command::new(target.join("bin/pip"));
    pip.args([
        "install",
        "--quiet",
        "--disable-pip-version-check",
        "--require-hashes",
        "--only-binary=:all:",
        "--requirement",
    ]);
    process::run(pip.arg(source.join("requirements.txt"))).map(drop)
}
