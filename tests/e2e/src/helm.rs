//! helm, and the chart.

use std::{
    path::{Path, PathBuf},
    process::{Command, Output},
};

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use tempfile::TempDir;

/// The chart.
pub const CHART: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../charts/buildkite-operator");

/// Without a cluster helm takes an old one for granted.
pub const KUBE_VERSION: &str = "--kube-version=v1.34.0";

/// helm with directories of its own.
pub struct Helm {
    program: PathBuf,
    directory: TempDir,
}

impl Helm {
    /// The program at a path.
    pub fn new(program: &Path) -> Result<Self> {
        Ok(Self { program: program.to_owned(), directory: TempDir::new()? })
    }

    /// The one that `cargo xtask test` provides.
    pub fn provided() -> Result<Self> {
        let program = std::env::var("E2E_HELM")
            .context("E2E_HELM is not set: run these tests with `cargo xtask test --only chart`")?;
        Self::new(Path::new(&program))
    }

    /// A call of it.
    pub fn command(&self, args: &[&str]) -> Command {
        let directory = self.directory.path();
        let mut command = Command::new(&self.program);
        command
            .args(args)
            // Else it keeps files in the developer's own directories.
            .env("HELM_CACHE_HOME", directory)
            .env("HELM_CONFIG_HOME", directory)
            .env("HELM_DATA_HOME", directory)
            .env_remove("KUBECONFIG");
        command
    }

    /// Runs it.
    pub fn run(&self, args: &[&str]) -> Result<Output> {
        self.command(args).output().context("cannot run helm")
    }

    /// Writes a file of values, and returns its path.
    pub fn values(&self, values: &str) -> Result<PathBuf> {
        let file = self.directory.path().join("values.yaml");
        std::fs::write(&file, values)?;
        Ok(file)
    }

    /// Runs it; fails if it does.
    pub fn succeed(&self, args: &[&str]) -> Result<String> {
        let output = self.run(args)?;
        ensure!(
            output.status.success(),
            "helm {args:?} failed: {}{}",
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        );
        Ok(String::from_utf8(output.stdout)?)
    }

    /// What the chart becomes with these values, in the namespace `ci`.
    pub fn template(&self, values: &str) -> Result<Output> {
        let file = self.values(values)?;
        self.run(&[
            "template",
            "buildkite-operator",
            CHART,
            KUBE_VERSION,
            "--namespace=ci",
            "--values",
            &file.to_string_lossy(),
        ])
    }

    /// The objects that the chart becomes with these values.
    pub fn render(&self, values: &str) -> Result<Vec<Value>> {
        let output = self.template(values)?;
        ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let documents: Vec<Value> = serde_saphyr::from_multiple(std::str::from_utf8(&output.stdout)?)?;
        Ok(documents.into_iter().filter(|object| !object.is_null()).collect())
    }
}
