//! Programs that are built from Go modules in `hack/`, once per set of versions.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use sha2::{Digest, Sha256};

use crate::{cache, process, progress, workspace};

/// A module in `hack/` and what to build from it.
pub(super) struct Module {
    /// The directory in `hack/`, and in the cache.
    name: &'static str,
    /// The package to build.
    package: &'static str,
    /// The module whose version this is about.
    subject: &'static str,
    /// What to call it in front of people, and how long they may have to wait.
    title: &'static str,
    wait: &'static str,
    /// The file to build.
    program: &'static str,
    /// Further names for it: it acts according to the name it is called by.
    links: &'static [&'static str],
}

pub(super) const KUBERNETES: Module = Module {
    name: "kubernetes",
    package: ".",
    subject: "k8s.io/kubernetes",
    title: "Kubernetes",
    wait: "about 7 minutes the first time",
    program: "kubernetes",
    links: &[
        "coredns",
        "etcd",
        "kube-apiserver",
        "kube-controller-manager",
        "kube-proxy",
        "kube-scheduler",
        "kubectl",
        "kubelet",
    ],
};

pub(super) const AGENT: Module = Module {
    name: "agent",
    package: "github.com/buildkite/agent/v3",
    subject: "github.com/buildkite/agent/v3",
    title: "buildkite-agent",
    wait: "about 4 minutes the first time",
    program: "buildkite-agent",
    links: &[],
};

pub(super) const KWOK: Module = Module {
    name: "kwok",
    package: "sigs.k8s.io/kwok/cmd/kwok",
    subject: "sigs.k8s.io/kwok",
    title: "kwok",
    wait: "about 2 minutes the first time",
    program: "kwok",
    links: &[],
};

pub(super) const HELM: Module = Module {
    name: "helm",
    package: "helm.sh/helm/v3/cmd/helm",
    subject: "helm.sh/helm/v3",
    title: "helm",
    wait: "about 3 minutes the first time",
    program: "helm",
    links: &[],
};

impl Module {
    /// The directory with the programs, built if no earlier run has built the same.
    pub(super) fn build(&self) -> Result<PathBuf> {
        let source = workspace().join("hack").join(self.name);
        let toolchain = process::run(Command::new("go").arg("version")).context(
            "building Kubernetes, the agent, kwok and helm needs Go: see https://go.dev/doc/install",
        )?;
        let version = self.version(&source)?;
        let flags = link_flags(self.subject, &version);
        let store = cache::root()?.join("programs");
        let target = store.join(format!("{}-{}", self.name, key(&source, &[&toolchain, &flags])?));
        if target.exists() {
            return Ok(target);
        }
        let purpose = format!("building {}", self.title);
        let _lock = cache::lock(&store.join(format!("{}.lock", self.name)), &purpose)?;
        if target.exists() {
            return Ok(target);
        }
        let prefix = format!(".unfinished-{}-", self.name);
        cache::clear(&store, &prefix)?;
        let scratch = tempfile::Builder::new().prefix(&prefix).tempdir_in(&store)?;
        progress::step(&format!("{purpose} {version} ({})", self.wait), || {
            process::run(
                Command::new("go")
                    .args(["build", "-trimpath", "-ldflags", &flags, "-o"])
                    .arg(scratch.path().join(self.program))
                    .arg(self.package)
                    .env("CGO_ENABLED", "0")
                    .current_dir(&source),
            )
        })?;
        for link in self.links {
            symlink(self.program, scratch.path().join(link))?;
        }
        let finished = scratch.keep();
        fs::rename(&finished, &target)
            .with_context(|| format!("moving {} to {}", finished.display(), target.display()))?;
        Ok(target)
    }

    fn version(&self, source: &Path) -> Result<String> {
        let file = source.join("go.mod");
        let text = fs::read_to_string(&file).with_context(|| format!("reading {}", file.display()))?;
        let version = required(&text, self.subject);
        Ok(version.with_context(|| format!("{} requires no {}", file.display(), self.subject))?.to_owned())
    }
}

/// The version of a module that a `go.mod` requires.
fn required<'a>(go_mod: &'a str, module: &str) -> Option<&'a str> {
    go_mod.lines().find_map(|line| {
        let mut words = line.split_whitespace().skip_while(|word| *word == "require");
        (words.next() == Some(module)).then(|| words.next()).flatten()
    })
}

/// Kubernetes learns its version from the linker only, and clients misbehave when it is v0.0.0.
fn link_flags(subject: &str, version: &str) -> String {
    let mut flags = "-s -w".to_owned();
    if subject == "k8s.io/kubernetes" {
        let mut numbers = version.trim_start_matches('v').split('.');
        let [major, minor] = [(); 2].map(|()| numbers.next().unwrap_or_default());
        for (name, value) in [("gitVersion", version), ("gitMajor", major), ("gitMinor", minor)] {
            flags.push_str(" -X k8s.io/component-base/version.");
            flags.push_str(name);
            flags.push('=');
            flags.push_str(value);
        }
    }
    flags
}

/// A short name for everything that decides how the programs turn out.
pub(super) fn key(source: &Path, settings: &[&str]) -> Result<String> {
    let mut files = fs::read_dir(source)
        .and_then(Iterator::collect::<std::io::Result<Vec<_>>>)
        .with_context(|| format!("listing {}", source.display()))?;
    ensure!(!files.is_empty(), "{} holds no Go module", source.display());
    files.sort_by_key(fs::DirEntry::file_name);
    let mut hash = Sha256::new();
    let mut add = |bytes: &[u8]| {
        // With the length before each part no two sets of parts read the same.
        hash.update((bytes.len() as u64).to_le_bytes());
        hash.update(bytes);
    };
    for file in files {
        add(file.file_name().as_encoded_bytes());
        add(&fs::read(file.path()).with_context(|| format!("reading {}", file.path().display()))?);
    }
    for setting in settings {
        add(setting.as_bytes());
    }
    let digest = hash.finalize();
    let beginning = digest.first_chunk().expect("a SHA-256 digest has 32 bytes");
    Ok(format!("{:016x}", u64::from_be_bytes(*beginning)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_is_the_one_that_go_mod_requires() {
        let single = "module agent\n\nrequire github.com/buildkite/agent/v3 v3.137.2\n";
        assert_eq!(required(single, "github.com/buildkite/agent/v3"), Some("v3.137.2"));
        let block = "require (\n\tk8s.io/kubectl v0.34.4\n\tk8s.io/kubernetes v1.34.4\n)\n";
        assert_eq!(required(block, "k8s.io/kubernetes"), Some("v1.34.4"));
        assert_eq!(required(block, "k8s.io/kube"), None);
    }

    #[test]
    fn only_kubernetes_is_told_its_version() {
        let flags = link_flags("k8s.io/kubernetes", "v1.34.4");
        assert!(flags.contains("version.gitVersion=v1.34.4 "), "{flags}");
        assert!(flags.contains("version.gitMajor=1 "), "{flags}");
        assert!(flags.ends_with("version.gitMinor=34"), "{flags}");
        assert_eq!(link_flags("github.com/buildkite/agent/v3", "v3.137.2"), "-s -w");
    }

    #[test]
    fn the_key_changes_with_names_contents_and_settings() {
        let directory = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| fs::write(directory.path().join(name), text).unwrap();
        let key = |settings: &[&str]| key(directory.path(), settings).unwrap();
        write("go.mod", "module a");
        let before = key(&["go1.26"]);
        assert_eq!(before.len(), 16);
        assert_eq!(key(&["go1.26"]), before);
        assert_ne!(key(&["go1.27"]), before);
        write("go.mod", "module b");
        let edited = key(&["go1.26"]);
        assert_ne!(edited, before);
        write("main.go", "");
        assert_ne!(key(&["go1.26"]), edited);
    }
}
