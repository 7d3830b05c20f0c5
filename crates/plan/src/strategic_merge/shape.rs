//! Which lists of a pod merge, and by which key of their elements.

use serde_json::Value;

/// What an object in a pod spec is, as far as the lists in it are concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    /// A pod spec.
    Pod,
    /// A container of any kind.
    Container,
    /// A volume.
    Volume,
    /// The `ephemeral` of a volume.
    EphemeralVolume,
    /// The claim that is made for a volume.
    ClaimTemplate,
    /// The metadata of such a claim.
    Metadata,
    /// Anything else: no list in it merges.
    Other,
}

/// How a list merges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ListRule {
    /// Not at all: the patch's list takes its place.
    Replace,
    /// As a set of values.
    Values,
    /// Element by element, by the value of a key.
    Elements(&'static str, Shape),
}

impl Shape {
    /// How the list `field` merges.
    pub(super) fn list(self, field: &str) -> ListRule {
        let (key, shape) = match (self, field) {
            (Self::Pod, "containers" | "initContainers" | "ephemeralContainers") => ("name", Self::Container),
            (Self::Pod, "volumes") => ("name", Self::Volume),
            (Self::Pod, "imagePullSecrets" | "schedulingGates" | "resourceClaims")
            | (Self::Container, "env") => ("name", Self::Other),
            (Self::Pod, "hostAliases") => ("ip", Self::Other),
            (Self::Pod, "topologySpreadConstraints") => ("topologyKey", Self::Other),
            (Self::Container, "ports") => ("containerPort", Self::Other),
            (Self::Container, "volumeMounts") => ("mountPath", Self::Other),
            (Self::Container, "volumeDevices") => ("devicePath", Self::Other),
            (Self::Metadata, "ownerReferences") => ("uid", Self::Other),
            (Self::Metadata, "finalizers") => return ListRule::Values,
            _ => return ListRule::Replace,
        };
        ListRule::Elements(key, shape)
    }

    /// What the object `field` is.
    pub(super) fn object(self, field: &str) -> Self {
        match (self, field) {
            (Self::Volume, "ephemeral") => Self::EphemeralVolume,
            (Self::EphemeralVolume, "volumeClaimTemplate") => Self::ClaimTemplate,
            (Self::ClaimTemplate, "metadata") => Self::Metadata,
            _ => Self::Other,
        }
    }
}

impl ListRule {
    /// What tells an item of the list from others.
    pub(super) fn identity(self, item: &Value) -> &Value {
        match self {
            Self::Elements(key, _) => item.get(key).unwrap_or(&Value::Null),
            Self::Values | Self::Replace => item,
        }
    }
}
