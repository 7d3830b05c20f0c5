//! What `cargo xtask test` provides.

use std::{net::IpAddr, path::PathBuf};

use anyhow::{Context, Result};

/// Where the tests find the cluster and the programs.
#[derive(Clone, Debug)]
pub struct Environment {
    /// The administrator's kubeconfig.
    pub kubeconfig: PathBuf,
    /// What service accounts have asked of the API server.
    pub audit_log: PathBuf,
    /// Where registries without TLS are announced to the node.
    pub registries: PathBuf,
    /// An address of this machine that pods can reach.
    pub host: IpAddr,
    /// kubectl.
    pub kubectl: PathBuf,
    /// kwok, which plays nodes.
    pub kwok: PathBuf,
    /// helm, which installs the chart.
    pub helm: PathBuf,
    /// The operator, with the shim beside it.
    pub operator: PathBuf,
    /// The agent, for the machine itself.
    pub agent: PathBuf,
    /// The image with the agent.
    pub agent_image: String,
    /// The same image as a file.
    pub agent_archive: PathBuf,
    /// The image with the operator.
    pub operator_image: String,
    /// A small image that is not the agent's.
    pub toolbox_image: String,
    /// The same image as a file.
    pub toolbox_archive: PathBuf,
    /// Whether the operator is to be installed by Helm, rather than to be a process of this machine.
    pub installed: bool,
}

impl Environment {
    /// Reads it from the process's environment.
    pub fn read() -> Result<Self> {
        Ok(Self {
            kubeconfig: variable("E2E_KUBECONFIG")?.into(),
            audit_log: variable("E2E_AUDIT_LOG")?.into(),
            registries: variable("E2E_REGISTRIES")?.into(),
            host: variable("E2E_HOST")?.parse().context("E2E_HOST must be an IP address")?,
            kubectl: variable("E2E_KUBECTL")?.into(),
            kwok: variable("E2E_KWOK")?.into(),
            helm: variable("E2E_HELM")?.into(),
            operator: variable("E2E_OPERATOR")?.into(),
            agent: variable("E2E_AGENT")?.into(),
            agent_image: variable("E2E_AGENT_IMAGE")?,
            agent_archive: variable("E2E_AGENT_ARCHIVE")?.into(),
            operator_image: variable("E2E_OPERATOR_IMAGE")?,
            toolbox_image: variable("E2E_TOOLBOX_IMAGE")?,
            toolbox_archive: variable("E2E_TOOLBOX_ARCHIVE")?.into(),
            installed: std::env::var_os("E2E_INSTALLED").is_some(),
        })
    }
}

pub(crate) fn variable(name: &str) -> Result<String> {
    std::env::var(name).with_context(|| {
        format!("{name} is not set: these tests need a cluster; run them with `cargo xtask test --only e2e`")
    })
}
