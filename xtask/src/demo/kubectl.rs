//! kubectl for the demo's cluster and namespace.

use std::env;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use super::NAMESPACE;
use super::ownership::{LABEL, Owner};
use crate::{cluster, deps, process, progress};

/// What every call has in common.
pub(super) struct Kubectl {
    program: OsString,
    args: Vec<OsString>,
    /// Variables that are set, or unset.
    environment: Vec<(OsString, Option<OsString>)>,
}

impl Kubectl {
    /// For a cluster of this machine.
    pub(super) fn local(cluster: &cluster::Running) -> Self {
        Self::new(&cluster.kubectl())
    }

    /// For the cluster that the user's kubectl talks to now; it stays that one when the user turns to another.
    pub(super) fn own() -> Result<Self> {
        let mut base = Command::new(deps::kubernetes()?.join("kubectl"));
        if let Some(files) = env::var_os("KUBECONFIG").filter(|files| !files.is_empty()) {
            base.env("KUBECONFIG", absolute(&files)?);
        }
        let current = "--output=jsonpath={.current-context}{\"\\n\"}{.clusters[0].cluster.server}";
        let current = Self::new(&base).output(&["config", "view", "--minify", current]);
        let current = current.context("finding your cluster: is KUBECONFIG set, and a context chosen?")?;
        let (context, server) =
            current.split_once('\n').context("kubectl names no server for your cluster")?;
        progress::note(&format!("your cluster: context {context}, server {server}"));
        base.args(["--context", context]);
        Ok(Self::new(&base))
    }

    fn new(base: &Command) -> Self {
        let mut args: Vec<OsString> = base.get_args().map(OsStr::to_owned).collect();
        args.extend(["--namespace", NAMESPACE].map(OsString::from));
        let environment = base.get_envs().map(|(name, value)| (name.to_owned(), value.map(OsStr::to_owned)));
        Self { program: base.get_program().to_owned(), args, environment: environment.collect() }
    }

    pub(super) fn command(&self, args: &[&str]) -> Command {
        let mut command = self.program(&self.program);
        command.args(&self.args).args(args);
        command
    }

    /// helm for the same cluster and namespace. It has another word for a context.
    pub(super) fn helm(&self, program: &Path, args: &[&str]) -> Command {
        let mut command = self.program(program.as_os_str());
        let own =
            self.args.iter().map(|arg| if arg == "--context" { OsStr::new("--kube-context") } else { arg });
        command.args(own).args(args);
        command
    }

    fn program(&self, program: &OsStr) -> Command {
        let mut command = Command::new(program);
        for (name, value) in &self.environment {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        command
    }

    pub(super) fn output(&self, args: &[&str]) -> Result<String> {
        process::run(&mut self.command(args))
    }

    /// Makes an object from a manifest, which arrives through standard input: arguments can be seen by everybody on
    /// the machine.
    pub(super) fn create(&self, manifest: &str) -> Result<()> {
        let mut command = self.command(&["create", "--filename=-"]);
        process::run(command.stdin(process::input(manifest)?)).map(drop)
    }

    /// Whose an object is.
    pub(super) fn owner(&self, kind: &str, name: &str) -> Result<Owner> {
        Owner::of(&self.output(&["get", kind, name, "--ignore-not-found", "--output=json"])?)
    }

    /// A short way to type all this: a shell script.
    pub(super) fn script(&self) -> String {
        let variables = self.environment.iter().map(|(name, value)| match value {
            Some(value) => format!("export {}={}\n", name.to_string_lossy(), quoted(value)),
            None => format!("unset {}\n", name.to_string_lossy()),
        });
        let words = std::iter::once(&self.program).chain(&self.args).map(|word| quoted(word));
        let words = words.collect::<Vec<_>>().join(" ");
        format!("#!/bin/sh\n{}exec {words} \"$@\"\n", variables.collect::<String>())
    }

    /// The namespace, with the label by which the demo knows it again.
    pub(super) fn ensure_namespace(&self) -> Result<()> {
        if self.owner("namespace", NAMESPACE)? != Owner::Nobody {
            return Ok(());
        }
        self.create(&format!(
            "apiVersion: v1\nkind: Namespace\nmetadata: {{name: {NAMESPACE}, labels: {{{LABEL}: 'true'}}}}\n"
        ))
    }

    /// A Secret with a random value, made once and then left alone.
    pub(super) fn ensure_secret(&self, name: &str, key: &str) -> Result<()> {
        if self.owner("secret", name)? != Owner::Nobody {
            return Ok(());
        }
        let value = random_token()?;
        self.create(&format!(
            "apiVersion: v1\nkind: Secret\nmetadata: {{name: {name}}}\nstringData: {{{key}: {value}}}\n"
        ))
    }
}

/// A list of files, as `KUBECONFIG` has it, that means the same in every directory.
fn absolute(files: &OsStr) -> Result<OsString> {
    let files = env::split_paths(files).filter(|file| !file.as_os_str().is_empty()).map(std::path::absolute);
    let files = files.collect::<std::io::Result<Vec<PathBuf>>>().context("finding the current directory")?;
    env::join_paths(files).context("reading KUBECONFIG")
}

/// A word as a shell reads it.
fn quoted(word: &OsStr) -> String {
    format!("'{}'", word.to_string_lossy().replace('\'', r"'\''"))
}

fn random_token() -> Result<String> {
    use std::io::Read;
    let mut bytes = [0; 16];
    std::fs::File::open("/dev/urandom")
        .and_then(|mut file| file.read_exact(&mut bytes))
        .context("reading /dev/urandom")?;
    Ok(format!("{:032x}", u128::from_ne_bytes(bytes)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_script_means_the_same_as_the_command() {
        let mut base = Command::new("printf");
        base.args(["%s|%s|%s|%s|%s|%s\n", "it's", "a b"])
            .env("KUBECONFIG", "/a b:/c'd")
            .env_remove("HTTPS_PROXY");
        let script = Kubectl::new(&base).script();
        let run = |script: &str| {
            let mut shell = Command::new("sh");
            shell.args(["-c", script, "kubectl", "get", "pods"]).env("HTTPS_PROXY", "http://proxy");
            process::run(&mut shell).unwrap()
        };
        assert_eq!(run(&script), "it's|a b|--namespace|buildkite|get|pods\n");
        let variables = script.replace("exec ", "echo \"$KUBECONFIG ${HTTPS_PROXY-none}\"; : ");
        assert_eq!(run(&variables), "/a b:/c'd none\n");
    }

    #[test]
    fn helm_is_told_of_the_same_cluster() {
        let mut base = Command::new("kubectl");
        base.args(["--context", "mine"]).env("KUBECONFIG", "/a");
        let helm = Kubectl::new(&base).helm(Path::new("helm"), &["list"]);
        assert_eq!(process::line(&helm), "helm --kube-context mine --namespace buildkite list");
        assert!(helm.get_envs().any(|(name, value)| name == "KUBECONFIG" && value == Some(OsStr::new("/a"))));
    }

    #[test]
    fn each_file_of_a_list_becomes_absolute() {
        let here = env::current_dir().unwrap();
        let expected = format!("/a:{}", here.join("b").display());
        assert_eq!(absolute(OsStr::new("/a::b")).unwrap(), OsString::from(expected));
    }
}
