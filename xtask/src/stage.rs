//! What programs under `tests/` are told about a cluster, through the environment.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use crate::images::{self, Built, Image, binaries};
use crate::{cluster, deps};

/// Tells a program where it finds the cluster, the images in it and the operator. The toolbox and the agent have to be among the images.
pub(crate) fn describe(
    command: &mut Command,
    cluster: &cluster::Running,
    images: &[Built],
    operator: &Path,
) -> Result<()> {
    let toolbox = Image::Toolbox.reference(images::TAG);
    let agent = Image::Agent.reference(images::TAG);
    let archive = |reference: &str| {
        let built = images.iter().find(|image| image.reference == reference);
        built.map(|built| &built.archive).with_context(|| format!("{reference} was not built"))
    };
    command
        .env("E2E_KUBECONFIG", &cluster.kubeconfig)
        .env("E2E_AUDIT_LOG", &cluster.audit_log)
        .env("E2E_HOST", cluster.machine.to_string())
        .env("E2E_KUBECTL", deps::kubernetes()?.join("kubectl"))
        .env("E2E_KWOK", deps::kwok()?)
        .env("E2E_HELM", deps::helm()?)
        .env("E2E_OPERATOR", operator)
        .env("E2E_AGENT", deps::agent()?)
        .env("BUILDKITE_SHIM", binaries::shim()?)
        .env("E2E_AGENT_ARCHIVE", archive(&agent)?)
        .env("E2E_AGENT_IMAGE", agent)
        .env("E2E_OPERATOR_IMAGE", Image::Operator.reference(images::TAG))
        .env("E2E_REGISTRIES", &cluster.registries)
        .env("E2E_TOOLBOX_ARCHIVE", archive(&toolbox)?)
        .env("E2E_TOOLBOX_IMAGE", toolbox);
    cluster.bypass_proxies(command);
    Ok(())
}
