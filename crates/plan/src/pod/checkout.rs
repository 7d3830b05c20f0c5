//! The container that checks out the source.

use bk_api::BuildJob;
use k8s_openapi::api::core::v1::Container;

use super::{CHECKOUT_CONTAINER, PodSettings, append, git::Git, identity, resources};

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
pub(super) fn container(job: &BuildJob, git: &Git, settings: &PodSettings) -> Option<Container> {
    if !has_source(job) || git.is_skipped() {
        return None;
    }
    let mut container = Container {
        name: CHECKOUT_CONTAINER.to_owned(),
        image: Some(settings.config.agent_image.clone()),
        env: Some(git.credentials().env()),
        resources: Some(resources::or_small(
            settings.config.resources.checkout.as_ref(),
            resources::CHECKOUT,
        )),
        ..Container::default()
    };
    append(&mut container.env_from, &git.env_from());
    append(&mut container.volume_mounts, &git.mounts());
    if !git.credentials().is_empty() {
        // The agent keeps what it learns of servers at home.
        identity::give_home(&mut container);
    }
    Some(container)
}

/// Where the source is checked out, once patches are applied. `drafted` is the container before patches, `patched` what they
/// made of it: without it there is no checkout, and one that they changed is meant to be there.
///
/// A checkout needs git and ssh, which only the agent's image is known to have. If the command runs in that image
/// anyway, or there is nothing to check out, one container does both and the job starts sooner; unless something, a Secret
/// say, is for the checkout alone.
pub(super) fn settle(
    job: &BuildJob,
    git: &Git,
    commands: &[Container],
    drafted: Option<&Container>,
    patched: Option<Container>,
    settings: &PodSettings,
) -> Checkout {
    let agent_image = Some(settings.config.agent_image.as_str());
    let in_agent_image = matches!(commands, [only] if only.image.as_deref() == agent_image);
    let fits = in_agent_image && !git.wants_own_container();
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
