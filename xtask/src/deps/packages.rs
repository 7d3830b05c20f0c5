//! Programs that the distribution ships.

use std::env;
use std::fs::{self, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::{cache, process, progress};

/// What packages are for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Need {
    /// A local cluster.
    Cluster,
    /// Images with a Debian root file system.
    Rootfs,
    /// The image with a busybox.
    Toolbox,
    /// The end-to-end tests.
    Tests,
    /// The tests of the page.
    Browser,
    /// Fetching and running Elasticsearch.
    Elasticsearch,
    /// The documents as a site, if Python lacks something: see `python`.
    Docs,
}

impl Need {
    /// All that are installed in advance.
    pub(crate) const ALL: [Self; 6] =
        [Self::Cluster, Self::Rootfs, Self::Toolbox, Self::Tests, Self::Browser, Self::Elasticsearch];
}

/// A Debian package and how to see that it, or something that takes its place, is there.
struct Package {
    need: Need,
    name: &'static str,
    /// One of these must exist: a program on the search path, or a file if it starts with a slash.
    ///
    /// Asked instead of the package manager, so that a machine with Docker's own containerd keeps it.
    proof: &'static [&'static str],
}

const fn package(need: Need, name: &'static str, proof: &'static [&'static str]) -> Package {
    Package { need, name, proof }
}

/// Beyond what the smallest Debian has.
const PACKAGES: [Package; 22] = [
    package(Need::Cluster, "containerd", &["containerd"]),
    package(Need::Cluster, "containernetworking-plugins", &["/usr/lib/cni/bridge", "/opt/cni/bin/bridge"]),
    package(Need::Cluster, "gcc", &["cc"]),
    package(Need::Cluster, "iproute2", &["ip"]),
    package(Need::Cluster, "iptables", &["iptables"]),
    package(Need::Cluster, "libc6-dev", &["/usr/include/unistd.h"]),
    package(Need::Cluster, "mount", &["mount"]),
    package(Need::Cluster, "openssl", &["openssl"]),
    package(Need::Cluster, "runc", &["runc"]),
    package(Need::Cluster, "util-linux", &["nsenter"]),
    package(Need::Rootfs, "mmdebstrap", &["mmdebstrap"]),
    package(Need::Toolbox, "busybox-static", &["/usr/share/doc/busybox-static"]),
    package(Need::Tests, "curl", &["curl"]),
    package(Need::Tests, "git", &["git"]),
    package(Need::Tests, "git-lfs", &["git-lfs"]),
    package(Need::Tests, "openssh-server", &["/usr/sbin/sshd"]),
    package(Need::Tests, "prometheus", &["prometheus"]),
    package(Need::Tests, "prometheus-pushgateway", &["prometheus-pushgateway"]),
    package(Need::Browser, "chromium", &["chromium"]),
    package(Need::Elasticsearch, "default-jre-headless", &["java"]),
    package(Need::Elasticsearch, "maven", &["mvn"]),
    package(Need::Docs, "python3-venv", &["/usr/share/doc/python3-venv"]),
];

/// Installs what is missing.
pub(super) fn install(needs: &[Need]) -> Result<()> {
    let missing = || missing(&PACKAGES, needs, found);
    let root = rustix::process::geteuid().is_root();
    let policy = Path::new(POLICY);
    // A killed run may have left its policy, which keeps the whole machine's packages from starting services.
    if missing().is_empty() && !(root && ours(policy)) {
        return Ok(());
    }
    let list = missing().join(" ");
    ensure!(
        found("apt-get"),
        "this machine lacks what Debian calls {list}, and has no apt-get: please install them"
    );
    ensure!(root, "these packages are missing: {list}; install them with: sudo apt-get install {list}");
    let _lock = cache::lock(&cache::root()?.join("packages.lock"), "installing packages")?;
    let _guard = ServiceGuard::new(policy)?;
    // Another run may have done it meanwhile.
    let missing = missing();
    if missing.is_empty() {
        return Ok(());
    }
    progress::step(&format!("installing {}", missing.join(" ")), || apt_get(&missing))
}

fn missing(packages: &[Package], needs: &[Need], found: impl Fn(&str) -> bool) -> Vec<&'static str> {
    let needed = packages.iter().filter(|package| needs.contains(&package.need));
    let lacking = needed.filter(|package| !package.proof.iter().any(|proof| found(proof)));
    lacking.map(|package| package.name).collect()
}

fn found(proof: &str) -> bool {
    match proof.strip_prefix('/') {
        Some(_) => Path::new(proof).exists(),
        None => search_path().iter().any(|directory| directory.join(proof).is_file()),
    }
}

/// The search path, and where system programs are that an ordinary user's path leaves out.
fn search_path() -> Vec<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path).chain(["/usr/sbin", "/sbin"].map(PathBuf::from)).collect()
}

fn apt_get(packages: &[&str]) -> Result<()> {
    let install = || {
        // Replacing another package could take a container engine away that somebody uses.
        let mut command = Command::new("apt-get");
        command
            .args(["install", "--yes", "--quiet", "--no-install-recommends", "--no-remove"])
            .args(packages);
        process::run(command.env("DEBIAN_FRONTEND", "noninteractive"))
    };
    if install().is_err() {
        // Usually the lists are missing or old, as in a fresh container.
        process::run(Command::new("apt-get").args(["update", "--quiet"]))?;
        install()?;
    }
    Ok(())
}

/// What Debian asks before a package starts its service.
const POLICY: &str = "/usr/sbin/policy-rc.d";
const REFUSAL: &str = "#!/bin/sh\n# buildkite-operator: no services while its packages are being installed; removed afterwards.\nexit 101\n";

fn ours(policy: &Path) -> bool {
    fs::read_to_string(policy).is_ok_and(|text| text == REFUSAL)
}

/// Keeps packages from starting their services while it lives: the cluster runs its own containerd.
struct ServiceGuard<'a> {
    policy: &'a Path,
}

impl<'a> ServiceGuard<'a> {
    fn new(policy: &'a Path) -> Result<Self> {
        match OpenOptions::new().write(true).create_new(true).mode(0o755).open(policy) {
            // Somebody else's policy, as in most containers, or what a killed run has left.
            Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
            file => file.and_then(|mut file| file.write_all(REFUSAL.as_bytes())),
        }
        .with_context(|| format!("writing {}", policy.display()))?;
        Ok(Self { policy })
    }
}

impl Drop for ServiceGuard<'_> {
    fn drop(&mut self) {
        if ours(self.policy) {
            // Nothing sensible is left to do if this fails, and the packages are installed.
            let _ = fs::remove_file(self.policy);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_proof_is_enough_and_only_what_is_needed_is_asked_for() {
        let packages = [
            package(Need::Cluster, "a", &["a"]),
            package(Need::Cluster, "b", &["/usr/b", "/opt/b"]),
            package(Need::Cluster, "c", &["c"]),
            package(Need::Rootfs, "d", &["d"]),
        ];
        let found = |proof: &str| ["a", "/opt/b"].contains(&proof);
        assert_eq!(missing(&packages, &[Need::Cluster], found), ["c"]);
        assert_eq!(missing(&packages, &Need::ALL, found), ["c", "d"]);
    }

    #[test]
    fn services_are_refused_only_while_packages_are_installed() {
        let directory = tempfile::tempdir().unwrap();
        let policy = directory.path().join("policy-rc.d");
        let guard = ServiceGuard::new(&policy).unwrap();
        assert!(ours(&policy));
        drop(guard);
        assert!(!policy.exists());
    }

    #[test]
    fn a_killed_runs_policy_is_removed_and_anybody_elses_is_kept() {
        let directory = tempfile::tempdir().unwrap();
        let policy = directory.path().join("policy-rc.d");
        for (text, kept) in [(REFUSAL, false), ("#!/bin/sh\nexit 101\n", true)] {
            fs::write(&policy, text).unwrap();
            drop(ServiceGuard::new(&policy).unwrap());
            assert_eq!(policy.exists(), kept, "{text}");
        }
    }
}
