//! The objects of the cluster that a pod needs.

use std::fmt;

use k8s_openapi::api::core::v1::{Container, Pod, PodSpec, Volume};

use super::{Certainty, Existence, Finding};
use crate::pod::PodSettings;

/// An object that a pod refers to, in the pod's namespace or in none.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Object {
    /// Its kind.
    pub kind: Kind,
    /// Its name.
    pub name: String,
}

/// A kind of object that pods refer to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// `ConfigMap`
    ConfigMap,
    /// `PersistentVolumeClaim`
    PersistentVolumeClaim,
    /// `PriorityClass`
    PriorityClass,
    /// `RuntimeClass`
    RuntimeClass,
    /// `Secret`
    Secret,
    /// `ServiceAccount`
    ServiceAccount,
}

impl fmt::Display for Object {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:?} \"{}\"", self.kind, self.name)
    }
}

/// A place in a pod that names an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reference {
    /// The object.
    pub object: Object,
    /// The field that names it.
    pub path: String,
    /// Whether the pod cannot start without it.
    pub needed: bool,
}

impl Reference {
    /// What is wrong with it, given what came of looking for the object.
    pub(super) fn finding(&self, existence: Option<&Existence>) -> Option<Finding> {
        let Self { object, path, needed } = self;
        match existence {
            Some(Existence::Found) | None => None,
            Some(Existence::Missing) => {
                let certainty = if *needed { Certainty::Refusal } else { Certainty::Warning };
                Some(Finding::new(certainty, path, format!("there is no {object}")))
            }
            Some(Existence::Untold(why)) => Some(Finding::new(
                Certainty::Warning,
                path,
                format!("cannot tell whether there is a {object}: {why}"),
            )),
        }
    }
}

/// What a pod refers to, each object once. The operator itself provides the shim. References that are marked as optional are none.
pub fn of(pod: &Pod, settings: &PodSettings) -> Vec<Reference> {
    let Some(spec) = &pod.spec else { return Vec::new() };
    let mut found: Vec<Reference> = Vec::new();
    let own = Object { kind: Kind::ConfigMap, name: settings.shim_config_map.clone() };
    for reference in in_spec(spec) {
        let known = found.iter_mut().find(|known| known.object == reference.object);
        match known {
            Some(known) => known.needed |= reference.needed,
            None if reference.object == own || reference.object.name.is_empty() => {}
            None => found.push(reference),
        }
    }
    found
}

fn needed(kind: Kind, name: &str, path: String) -> Reference {
    Reference { object: Object { kind, name: name.to_owned() }, path, needed: true }
}

fn in_spec(spec: &PodSpec) -> Vec<Reference> {
    let mut found = Vec::new();
    let init = spec.init_containers.iter().flatten().map(|container| ("initContainers", container));
    for (list, container) in spec.containers.iter().map(|container| ("containers", container)).chain(init) {
        in_container(container, &format!("pod.spec.{list}[{}]", container.name), &mut found);
    }
    for volume in spec.volumes.iter().flatten() {
        in_volume(volume, &mut found);
    }
    let mut named = |kind, name: &Option<String>, field| {
        found.extend(name.as_deref().map(|name| needed(kind, name, format!("pod.spec.{field}"))));
    };
    named(Kind::ServiceAccount, &spec.service_account_name, "serviceAccountName");
    named(Kind::PriorityClass, &spec.priority_class_name, "priorityClassName");
    named(Kind::RuntimeClass, &spec.runtime_class_name, "runtimeClassName");
    for secret in spec.image_pull_secrets.iter().flatten() {
        let path = format!("pod.spec.imagePullSecrets[{}]", secret.name);
        // The node pulls without, and may well have the image.
        found.push(Reference { needed: false, ..needed(Kind::Secret, &secret.name, path) });
    }
    found
}

fn in_container(container: &Container, path: &str, found: &mut Vec<Reference>) {
    for variable in container.env.iter().flatten() {
        let Some(source) = &variable.value_from else { continue };
        let path = format!("{path}.env[{}]", variable.name);
        if let Some(secret) = source.secret_key_ref.as_ref().filter(|key| key.optional != Some(true)) {
            found.push(needed(Kind::Secret, &secret.name, path));
        } else if let Some(map) = source.config_map_key_ref.as_ref().filter(|key| key.optional != Some(true))
        {
            found.push(needed(Kind::ConfigMap, &map.name, path));
        }
    }
    for (index, source) in container.env_from.iter().flatten().enumerate() {
        let path = format!("{path}.envFrom[{index}]");
        if let Some(secret) = source.secret_ref.as_ref().filter(|secret| secret.optional != Some(true)) {
            found.push(needed(Kind::Secret, &secret.name, path));
        } else if let Some(map) = source.config_map_ref.as_ref().filter(|map| map.optional != Some(true)) {
            found.push(needed(Kind::ConfigMap, &map.name, path));
        }
    }
}

fn in_volume(volume: &Volume, found: &mut Vec<Reference>) {
    let path = format!("pod.spec.volumes[{}]", volume.name);
    if let Some(secret) = volume.secret.as_ref().filter(|secret| secret.optional != Some(true)) {
        found.extend(secret.secret_name.as_deref().map(|name| needed(Kind::Secret, name, path.clone())));
    }
    if let Some(map) = volume.config_map.as_ref().filter(|map| map.optional != Some(true)) {
        found.push(needed(Kind::ConfigMap, &map.name, path.clone()));
    }
    if let Some(claim) = &volume.persistent_volume_claim {
        found.push(needed(Kind::PersistentVolumeClaim, &claim.claim_name, path.clone()));
    }
    let projected = volume.projected.iter().flat_map(|projected| projected.sources.iter().flatten());
    for source in projected {
        if let Some(secret) = source.secret.as_ref().filter(|secret| secret.optional != Some(true)) {
            found.push(needed(Kind::Secret, &secret.name, path.clone()));
        }
        if let Some(map) = source.config_map.as_ref().filter(|map| map.optional != Some(true)) {
            found.push(needed(Kind::ConfigMap, &map.name, path.clone()));
        }
    }
}
