//! The container that checks out the source.

use bk_api::BuildJob;
use k8s_openapi::api::core::v1::Container;

use super::{CHECKOUT_CONTAINER, PodSettings};
use crate::plugin::KubernetesPlugin;

/// Where the source is checked out.
pub(super) enum Checkout {
    /// Nowhere.
    Skipped,
    /// In the first command container, before its command.
    InCommand,
    /// In a container of its own.
    Own(Box<Container>),
}

/// The `checkout` container as patches see it; none if there is nothing to check out.
pub(super) fn container(
    job: &BuildJob,
    plugin: &KubernetesPlugin,
    settings: &PodSettings,
) -> Option<Container> {
    has_source(job).then(|| Container {
        name: CHECKOUT_CONTAINER.to_owned(),
        image: Some(settings.config.agent_image.clone()),
        env_from: Some(plugin.git_env_from.clone()).filter(|sources| !sources.is_empty()),
        ..Container::default()
    })
}

/// Where the source is checked out, once patches are applied. `drafted` is the container before patches, `patched` what they
/// made of it: without it there is no checkout, and one that they changed is meant to be there.
///
/// A checkout needs git and ssh, which only the agent's image is known to have. If the command runs in that image
/// anyway, or there is nothing to check out, one container does both and the job starts sooner.
pub(super) fn settle(
    job: &BuildJob,
    commands: &[Container],
    drafted: Option<&Container>,
    patched: Option<Container>,
    settings: &PodSettings,
) -> Checkout {
    let agent_image = Some(settings.config.agent_image.as_str());
    let fits = matches!(commands, [only] if only.image.as_deref() == agent_image);
    match patched {
        None if !has_source(job) => Checkout::InCommand,
        None => Checkout::Skipped,
        Some(patched) if fits && drafted == Some(&patched) => Checkout::InCommand,
        Some(patched) => Checkout::Own(Box::new(patched)),
    }
}

fn has_source(job: &BuildJob) -> bool {
    job.spec.buildkite.is_some() || job.spec.source.is_some()
}
