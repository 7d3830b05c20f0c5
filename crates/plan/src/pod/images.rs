//! References to images, and when they are pulled: settled from the images that the pod really has.

mod reference;

use bk_api::config::PullPolicy;
use k8s_openapi::api::core::v1::{Container, PodSpec};

use super::{PodSettings, RenderError, container_path};

/// Checks the reference of every image, and gives containers without a pull policy the configured one. Without any,
/// Kubernetes pulls images without a tag, and those tagged `latest`, always, and others if the node has none.
pub(super) fn settle(spec: &mut PodSpec, settings: &PodSettings) -> Result<(), RenderError> {
    let init = spec.init_containers.iter_mut().flatten();
    init.chain(&mut spec.containers).try_for_each(|container| settle_one(container, settings))
}

/// The same for one container.
pub(super) fn settle_one(container: &mut Container, settings: &PodSettings) -> Result<(), RenderError> {
    check(container)?;
    if let Some(policy) = settings.config.image_pull_policy {
        container.image_pull_policy.get_or_insert_with(|| word(policy).to_owned());
    }
    Ok(())
}

fn check(container: &Container) -> Result<(), RenderError> {
    let image = container.image.as_deref().unwrap_or_default();
    reference::check(image).map_err(|problem| RenderError {
        path: format!("{}.image", container_path(&container.name)),
        problem: match image {
            "" => "a container needs an image".to_owned(),
            image => format!("`{image}` is not the name of an image: {problem}"),
        },
    })
}

fn word(policy: PullPolicy) -> &'static str {
    match policy {
        PullPolicy::Always => "Always",
        PullPolicy::IfNotPresent => "IfNotPresent",
        PullPolicy::Never => "Never",
    }
}
