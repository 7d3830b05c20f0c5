//! What the agent's container has mounted: hooks that it runs, keys and certificates that it goes by. Nobody who writes a step, a
//! BuildEnvironment or a PodTemplate changes these volumes, or has them mounted so that a job could write to them.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{PodSpec, Volume, VolumeMount};

use super::{AGENT_CONTAINER, RenderError};

/// The volumes of a draft that are the agent's, and who may write to them.
#[derive(Debug, Default)]
pub(super) struct Holdings {
    volumes: Vec<Volume>,
    /// The mounts by which containers may, as paths of the pod.
    writers: BTreeSet<String>,
}

impl Holdings {
    /// Those of a draft. The volume `workspace` is everybody's, and so is what is mounted at `plugins`: the agent runs nothing there.
    pub(super) fn of(spec: &PodSpec, workspace: &str, plugins: &str) -> Self {
        let agents = spec.containers.iter().filter(|container| container.name == AGENT_CONTAINER);
        let mounts = agents.flat_map(|agent| agent.volume_mounts.iter().flatten());
        let own = mounts.filter(|mount| mount.name != workspace && mount.mount_path != plugins);
        let names: BTreeSet<&str> = own.map(|mount| mount.name.as_str()).collect();
        let volumes = spec.volumes.iter().flatten().filter(|volume| names.contains(volume.name.as_str()));
        let volumes: Vec<Volume> = volumes.cloned().collect();
        let is_writable = |mount: &&VolumeMount| {
            let mounted = spec.volumes.iter().flatten().find(|volume| volume.name == mount.name);
            mount.read_only != Some(true)
                && mounted.is_some_and(|mounted| {
                    !is_read_only(mounted) && volumes.iter().any(|own| is_same_storage(own, mounted))
                })
        };
        let lists =
            [("initContainers", spec.init_containers.as_deref()), ("containers", Some(&*spec.containers))];
        let containers = lists.into_iter().flat_map(|(list, containers)| {
            containers.into_iter().flatten().map(move |container| (list, container))
        });
        let others = containers.filter(|(_, container)| container.name != AGENT_CONTAINER);
        let writers = others.flat_map(|(list, container)| {
            let writable = container.volume_mounts.iter().flatten().filter(is_writable);
            writable.map(move |mount| {
                format!("pod.spec.{list}[{}].volumeMounts[{}]", container.name, mount.mount_path)
            })
        });
        Self { writers: writers.collect(), volumes }
    }

    /// Refuses what was made of them since `before`, at `path`, by somebody who is not the administrator.
    pub(super) fn check(&self, before: &Self, path: &str) -> Result<(), RenderError> {
        if self.volumes != before.volumes {
            return Err(RenderError {
                path: format!("{path}.volumes"),
                problem:
                    "a step may not change the volumes of `agent`, which runs and trusts what is in them; \
                          `pod_config.podSpecPatch` may"
                        .to_owned(),
            });
        }
        self.check_writers(before)
    }

    /// Refuses containers that may write to them and could not `before`.
    pub(super) fn check_writers(&self, before: &Self) -> Result<(), RenderError> {
        self.writers.difference(&before.writers).next().map_or(Ok(()), |path| {
            Err(RenderError {
                path: path.clone(),
                problem: "the volume is one of `agent`, which runs and trusts what is in it; mount it with \
                          `readOnly: true`"
                    .to_owned(),
            })
        })
    }
}

/// Whether what is written to one volume is in the other: it is the same one, or they are names for the same storage.
fn is_same_storage(one: &Volume, other: &Volume) -> bool {
    let claim =
        |volume: &Volume| volume.persistent_volume_claim.as_ref().map(|claim| claim.claim_name.clone());
    let directory = |volume: &Volume| volume.host_path.as_ref().map(|host| host.path.clone());
    let export = |volume: &Volume| volume.nfs.as_ref().map(|nfs| format!("{}:{}", nfs.server, nfs.path));
    let storage = |volume: &Volume| (claim(volume), directory(volume), export(volume));
    one.name == other.name || (storage(one) != (None, None, None) && storage(one) == storage(other))
}

/// Whether a volume is read-only wherever it is mounted.
fn is_read_only(volume: &Volume) -> bool {
    let claim = volume.persistent_volume_claim.as_ref();
    volume.config_map.is_some()
        || volume.secret.is_some()
        || volume.projected.is_some()
        || volume.downward_api.is_some()
        || volume.image.is_some()
        || claim.is_some_and(|claim| claim.read_only == Some(true))
}
