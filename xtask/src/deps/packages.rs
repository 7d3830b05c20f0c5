//! Programs that the distribution ships.

use std::env;
use std::fs::{self, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::{process, progress};

/// A Debian package and how to see that it, or something that takes its place, is there.
struct Package {
    name: &'static str,
    /// One of these must exist: a program on the search path, or a file if it starts with a slash.
    ///
    /// Asked instead of the package manager, so that a machine with Docker's own containerd keeps it.
    proof: &'static [&'static str],
}

const PACKAGES: &[Package] = &[
    Package { name: "busybox-static", proof: &["/usr/share/doc/busybox-static"] },
    Package { name: "containerd", proof: &["containerd"] },
    Package { name: "containernetworking-plugins", proof: &["/usr/lib/cni/bridge", "/opt/cni/bin/bridge"] },
    Package { name: "gcc", proof: &["cc"] },
    Package { name: "git", proof: &["git"] },
    Package { name: "iproute2", proof: &["ip"] },
    Package { name: "iptables", proof: &["iptables"] },
    Package { name: "libc6-dev", proof: &["/usr/include/unistd.h"] },
    Package { name: "mmdebstrap", proof: &["mmdebstrap"] },
    Package { name: "openssh-client", proof: &["ssh"] },
    Package { name: "openssl", proof: &["openssl"] },
    Package { name: "runc", proof: &["runc"] },
    Package { name: "util-linux", proof: &["nsenter"] },
];

/// Installs what is missing.
pub(super) fn install() -> Result<()> {
    let directories = search_path();
    let found = |proof: &str| match proof.strip_prefix('/') {
        Some(_) => Path::new(proof).exists(),
        None => directories.iter().any(|directory| directory.join(proof).is_file()),
    };
    let missing = missing(PACKAGES, found);
    if missing.is_empty() {
        return Ok(());
    }
    let list = missing.join(" ");
    if !found("apt-get") {
        bail!("this machine lacks what Debian calls {list}, and has no apt-get: please install them");
    }
    if !rustix::process::geteuid().is_root() {
        bail!("these packages are missing: {list}; install them with: sudo apt-get install {list}");
    }
    let _guard = ServiceGuard::new()?;
    progress::step(&format!("installing {list}"), || apt_get(&missing))
}

fn missing(packages: &[Package], found: impl Fn(&str) -> bool) -> Vec<&'static str> {
    let lacking = packages.iter().filter(|package| !package.proof.iter().any(|proof| found(proof)));
    lacking.map(|package| package.name).collect()
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

/// Keeps packages from starting their services while it lives: the cluster runs its own containerd.
struct ServiceGuard {
    ours: bool,
}

impl ServiceGuard {
    const POLICY: &str = "/usr/sbin/policy-rc.d";

    fn new() -> Result<Self> {
        match OpenOptions::new().write(true).create_new(true).mode(0o755).open(Self::POLICY) {
            Ok(mut file) => {
                file.write_all(b"#!/bin/sh\nexit 101\n")?;
                Ok(Self { ours: true })
            }
            // Somebody else's policy, as in most containers.
            Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(Self { ours: false }),
            Err(error) => Err(error).with_context(|| format!("writing {}", Self::POLICY)),
        }
    }
}

impl Drop for ServiceGuard {
    fn drop(&mut self) {
        if self.ours {
            // Nothing sensible is left to do if this fails, and the packages are installed.
            let _ = fs::remove_file(Self::POLICY);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_proof_is_enough() {
        let packages = [
            Package { name: "a", proof: &["a"] },
            Package { name: "b", proof: &["/usr/b", "/opt/b"] },
            Package { name: "c", proof: &["c"] },
        ];
        assert_eq!(missing(&packages, |proof| ["a", "/opt/b"].contains(&proof)), ["c"]);
    }
}
