//! Names within a pod: each is there once, and what is referred to exists. Kubernetes would refuse the pod too, but
//! later, and in its own words.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{Container, PodSpec, VolumeMount};

use super::{RenderError, container_path};

/// Leaves one mount for each path of a container, and refuses two that show different things there: one of them would be missing
/// where somebody counts on it.
pub(super) fn settle_mounts(spec: &mut PodSpec) -> Result<(), RenderError> {
    let init = spec.init_containers.iter_mut().flatten();
    for container in init.chain(&mut spec.containers) {
        let Some(mounts) = &mut container.volume_mounts else { continue };
        let mut settled: Vec<VolumeMount> = Vec::with_capacity(mounts.len());
        for mount in std::mem::take(mounts) {
            match settled.iter().find(|other| place(other) == place(&mount)) {
                None => settled.push(mount),
                Some(other) if shown(other) == shown(&mount) => {}
                Some(other) => return Err(clash(&container.name, other, &mount)),
            }
        }
        *mounts = settled;
    }
    Ok(())
}

fn place(mount: &VolumeMount) -> &str {
    mount.mount_path.trim_end_matches('/')
}

/// What is seen at a mount's path.
fn shown(mount: &VolumeMount) -> (&str, Option<&str>, Option<&str>) {
    (&mount.name, mount.sub_path.as_deref(), mount.sub_path_expr.as_deref())
}

fn clash(container: &str, one: &VolumeMount, other: &VolumeMount) -> RenderError {
    let words = |mount: &VolumeMount| {
        let part = mount.sub_path.as_deref().or(mount.sub_path_expr.as_deref());
        let part = part.map(|part| format!(" (`{part}` of it)")).unwrap_or_default();
        format!("volume `{}`{part}", mount.name)
    };
    RenderError {
        path: format!("{}.volumeMounts[{}]", container_path(container), one.mount_path),
        problem: format!(
            "both {} and {} are to be mounted there; choose another path for one",
            words(one),
            words(other)
        ),
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
    let volumes = volumes(spec)?;
    containers().try_for_each(|container| check_volumes(container, &volumes))
}

/// The names of a pod's volumes, of which each is there once.
pub(super) fn volumes(spec: &PodSpec) -> Result<BTreeSet<&str>, RenderError> {
    let mut volumes = BTreeSet::new();
    for volume in spec.volumes.iter().flatten() {
        if !volumes.insert(volume.name.as_str()) {
            return Err(RenderError {
                path: format!("pod.spec.volumes[{}]", volume.name),
                problem: format!("there are two volumes called `{}`; choose another name", volume.name),
            });
        }
    }
    Ok(volumes)
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
