//! What the local cluster, the images, the documents and the tests need from outside: Debian packages, Kubernetes, the agent, kwok,
//! helm, mkdocs, Elasticsearch.

mod golang;
mod maven;
mod packages;
mod python;

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
    progress::note(&format!("helm: {}", helm()?.display()));
    progress::note(&format!("mkdocs: {}", mkdocs()?.display()));
    progress::note(&format!("Elasticsearch: {}", elasticsearch()?.display()));
    Ok(())
}

/// Installs the packages that are missing for everything but what is large and needed by one part alone.
pub(crate) fn packages() -> Result<()> {
    let large = [Need::Browser, Need::Elasticsearch];
    let needs: Vec<Need> = Need::ALL.into_iter().filter(|need| !large.contains(need)).collect();
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

/// The `helm` program, which installs the chart.
pub(crate) fn helm() -> Result<PathBuf> {
    Ok(golang::HELM.build()?.join("helm"))
}

/// The `mkdocs` program, which makes a site of the documents.
pub(crate) fn mkdocs() -> Result<PathBuf> {
    python::mkdocs()
}

/// The directory of Elasticsearch, for the tests that take long.
pub(crate) fn elasticsearch() -> Result<PathBuf> {
    maven::elasticsearch()
}
