//! The programs that go into images, built or found.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;

use super::catalog::{Binaries, Binary};
use crate::{deps, process, progress};

/// Where Debian's `busybox-static` installs it.
const BUSYBOX: &str = "/bin/busybox";

/// How programs are compiled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Profile {
    /// Quickly, as the tests are: the demo and the tests are not kept waiting.
    Dev,
    /// As they ship.
    Release,
}

impl Profile {
    fn name(self) -> &'static str {
        match self {
            Self::Dev => "dev",
            Self::Release => "release",
        }
    }

    /// What cargo chooses features for. Tests are built for the whole workspace, and share that; what ships gets no
    /// feature that only a test asks for.
    fn packages(self) -> &'static [&'static str] {
        match self {
            Self::Dev => &["--workspace"],
            Self::Release => &["--package", "buildkite-operator", "--package", "buildkite-local"],
        }
    }
}

/// Builds what is missing or out of date.
pub(crate) fn build(wanted: &BTreeSet<Binary>, profile: Profile) -> Result<Binaries> {
    let mut found = Binaries::new();
    if wanted.contains(&Binary::Busybox) {
        deps::packages_for(deps::Need::Toolbox)?;
        found.insert(Binary::Busybox, BUSYBOX.into());
    }
    let ours = [Binary::Operator, Binary::Controller, Binary::Local];
    if ours.iter().any(|binary| wanted.contains(binary)) {
        let programs = ours.map(Binary::name).map(|name| ["--bin", name]).concat();
        let built = cargo(profile.name(), &[profile.packages(), programs.as_slice()].concat())?;
        for binary in ours {
            found.insert(binary, program(&built, binary)?);
        }
    }
    if wanted.contains(&Binary::Shim) {
        found.insert(Binary::Shim, shim()?);
    }
    if wanted.contains(&Binary::Agent) {
        found.insert(Binary::Agent, deps::agent()?);
    }
    Ok(found)
}

/// The shim as it ships: static, and small enough for a `ConfigMap`.
pub(crate) fn shim() -> Result<PathBuf> {
    program(&cargo("shim", &["--package", Binary::Shim.name()])?, Binary::Shim)
}

/// The operator, built as for a demo.
pub(crate) fn operator() -> Result<PathBuf> {
    let mut found = build(&BTreeSet::from([Binary::Operator]), Profile::Dev)?;
    found.remove(&Binary::Operator).context("the operator was built")
}

/// The server, built as for a demo.
pub(crate) fn local() -> Result<PathBuf> {
    let mut found = build(&BTreeSet::from([Binary::Local]), Profile::Dev)?;
    found.remove(&Binary::Local).context("the server was built")
}

/// What is measured, and what measures.
pub(crate) struct Measured {
    pub(crate) operator: PathBuf,
    pub(crate) local: PathBuf,
    pub(crate) bench: PathBuf,
}

/// The programs of a benchmark, as they ship. All in one go, so that their dependencies are compiled once.
pub(crate) fn measured() -> Result<Measured> {
    const BENCH: &str = "bk-bench";
    let names = [Binary::Operator.name(), Binary::Local.name(), BENCH];
    let chosen = names.map(|name| ["--package", name, "--bin", name]).concat();
    let built = cargo("release", &chosen)?;
    let find = |name: &str| built.iter().find(|path| path.ends_with(name)).cloned();
    let [operator, local, bench] = names.map(find);
    let (Some(operator), Some(local), Some(bench)) = (operator, local, bench) else {
        bail!("cargo did not build all of {}", names.join(", "));
    };
    Ok(Measured { operator, local, bench })
}

/// The names under which a busybox serves.
pub(crate) fn applets(busybox: &Path) -> Result<Vec<String>> {
    let list = process::run(Command::new(busybox).arg("--list"))?;
    Ok(list.lines().map(str::to_owned).collect())
}

/// Builds what is chosen and returns the programs that cargo says it made or found fresh.
fn cargo(profile: &str, chosen: &[&str]) -> Result<Vec<PathBuf>> {
    let mut command = process::cargo(&["build", "--quiet", "--message-format=json-render-diagnostics"]);
    command.args(["--profile", profile]).args(chosen).stderr(Stdio::inherit());
    let label = format!("cargo build {} (profile {profile})", chosen.join(" "));
    progress::step(&label, || {
        let output = command.output().with_context(|| format!("starting {}", process::line(&command)))?;
        ensure!(output.status.success(), "{} ended with {}", process::line(&command), output.status);
        executables(&String::from_utf8_lossy(&output.stdout))
    })
}

/// The programs in cargo's messages, one JSON document per line.
fn executables(messages: &str) -> Result<Vec<PathBuf>> {
    #[derive(Deserialize)]
    struct Message {
        executable: Option<PathBuf>,
    }
    messages
        .lines()
        .filter_map(|line| {
            serde_json::from_str(line)
                .map(|message: Message| message.executable)
                .with_context(|| format!("reading cargo's message {line}"))
                .transpose()
        })
        .collect()
}

fn program(built: &[PathBuf], binary: Binary) -> Result<PathBuf> {
    built
        .iter()
        .find(|path| path.ends_with(binary.name()))
        .cloned()
        .with_context(|| format!("cargo built no program named {}", binary.name()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_taken_from_cargos_messages() {
        let messages = concat!(
            r#"{"reason":"compiler-artifact","target":{"name":"bk_api"},"executable":null}"#,
            "\n",
            r#"{"reason":"compiler-artifact","executable":"/t/images/buildkite-local"}"#,
            "\n",
            r#"{"reason":"build-finished","success":true}"#,
            "\n"
        );
        let built = executables(messages).unwrap();
        assert_eq!(built, [PathBuf::from("/t/images/buildkite-local")]);
        assert_eq!(program(&built, Binary::Local).unwrap(), built[0]);
        let error = program(&built, Binary::Shim).unwrap_err().to_string();
        assert_eq!(error, "cargo built no program named buildkite-shim");
        assert!(executables("warning: text").unwrap_err().to_string().contains("warning: text"));
    }
}
