//! Names within a pod: each is there once, and what is referred to exists. Kubernetes would refuse the pod too, but
//! later, and in its own words.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{Container, PodSpec};

use super::{RenderError, container_path};

/// Leaves one mount for each path of a container: the first that was asked for.
pub(super) fn settle_mounts(spec: &mut PodSpec) {
    let init = spec.init_containers.iter_mut().flatten();
    for container in init.chain(&mut spec.containers) {
        let mut taken = BTreeSet::new();
        if let Some(mounts) = &mut container.volume_mounts {
            mounts.retain(|mount| taken.insert(mount.mount_path.clone()));
        }
    }
}

/// Checks the names in a finished pod.
pub(super) fn check(spec: &PodSpec) -> Result<(), RenderError> {
    let containers = || spec.init_containers.iter().flatten().chain(&spec.containers);
    let mut taken = BTreeSet::new();
    for container in containers() {
        if !taken.insert(&container.name) {
            return Err(RenderError {
                path: container_path(&container.name),
                problem: format!("there are two containers called `{}`; choose another name", container.name),
            });
        }
    }
    let mut volumes = BTreeSet::new();
    for volume in spec.volumes.iter().flatten() {
        if !volumes.insert(volume.name.as_str()) {
            return Err(RenderError {
                path: format!("pod.spec.volumes[{}]", volume.name),
                problem: format!("there are two volumes called `{}`; choose another name", volume.name),
            });
        }
    }
    containers().try_for_each(|container| check_volumes(container, &volumes))
}

fn check_volumes(container: &Container, volumes: &BTreeSet<&str>) -> Result<(), RenderError> {
    let mounts = container.volume_mounts.iter().flatten().map(|mount| (&mount.name, &mount.mount_path));
    let devices = container.volume_devices.iter().flatten().map(|device| (&device.name, &device.device_path));
    match mounts.chain(devices).find(|(volume, _)| !volumes.contains(volume.as_str())) {
        None => Ok(()),
        Some((volume, at)) => Err(RenderError {
            path: container_path(&container.name),
            problem: format!(
                "`{at}` is to show the volume `{volume}`, but the pod has no volume of that name"
            ),
        }),
    }
}
