//! What the local cluster, the images and the tests need from outside: Debian packages, Kubernetes, the agent, kwok.

mod golang;
mod packages;

use std::path::PathBuf;

use anyhow::Result;

pub(crate) use self::packages::Need;
use crate::progress;

/// Installs missing packages and builds missing programs; what is there already costs nothing.
pub(crate) fn run() -> Result<()> {
    packages::install(&Need::ALL)?;
    progress::note(&format!("Kubernetes: {}", kubernetes()?.display()));
    progress::note(&format!("buildkite-agent: {}", agent()?.display()));
    progress::note(&format!("kwok: {}", kwok()?.display()));
    Ok(())
}

/// Installs the packages that are missing for everything but the browser, which is large and needed by one part alone.
pub(crate) fn packages() -> Result<()> {
    let needs: Vec<Need> = Need::ALL.into_iter().filter(|need| *need != Need::Browser).collect();
    packages::install(&needs)
}

/// Installs those of them that one task needs.
pub(crate) fn packages_for(need: Need) -> Result<()> {
    packages::install(&[need])
}

/// The directory that holds `kube-apiserver`, `kubelet`, `kubectl`, `etcd`, `coredns` and the rest.
pub(crate) fn kubernetes() -> Result<PathBuf> {
    golang::KUBERNETES.build()
}

/// The `buildkite-agent` program, statically linked.
pub(crate) fn agent() -> Result<PathBuf> {
    Ok(golang::AGENT.build()?.join("buildkite-agent"))
}

/// The `kwok` program, which plays nodes for the test of scale.
pub(crate) fn kwok() -> Result<PathBuf> {
    Ok(golang::KWOK.build()?.join("kwok"))
}
