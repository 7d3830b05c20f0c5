//! What both the operator's configuration and a step's `kubernetes` plugin say about the containers of a pod. The
//! plugin's word adds to the configuration's or replaces it.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{EnvFromSource, SecretVolumeSource, Volume, VolumeMount};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Labels and annotations of the pod.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct MetadataParams {
    /// Annotations.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
    /// Labels.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
}

/// How the source is checked out.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct CheckoutParams {
    /// Whether there is no checkout at all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub skip: Option<bool>,
    /// Flags of `git checkout`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub checkout_flags: Option<String>,
    /// Flags of `git clean`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clean_flags: Option<String>,
    /// Flags of `git clone`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clone_flags: Option<String>,
    /// Flags of `git fetch`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fetch_flags: Option<String>,
    /// Whether submodules are left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub no_submodules: Option<bool>,
    /// `key=value` settings of git for cloning submodules.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub submodule_clone_config: Vec<String>,
    /// Mirrors on a volume from which the checkout borrows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub git_mirrors: Option<GitMirrors>,
    /// A Secret whose key `.git-credentials` holds URLs with credentials for HTTPS.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub git_credentials_secret: Option<SecretVolumeSource>,
    /// ConfigMaps and Secrets whose entries become variables of the checkout.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub env_from: Vec<EnvFromSource>,
    /// Further mounts of the checkout.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub extra_volume_mounts: Vec<VolumeMount>,
}

/// Mirrors of git repositories on a volume, kept by the agents themselves.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct GitMirrors {
    /// Where the volume is mounted; /buildkite/git-mirrors if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// The volume.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub volume: Option<Volume>,
    /// Flags of `git clone` for the mirror itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clone_flags: Option<String>,
    /// How many seconds to wait for another agent that has the mirror.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lock_timeout: Option<i64>,
    /// Whether the mirror is taken as it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub skip_update: Option<bool>,
}

/// How commands run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct CommandParams {
    /// How a container's `command` and `args` become a script.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interposer: Option<Interposer>,
    /// ConfigMaps and Secrets whose entries become variables of the command containers.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub env_from: Vec<EnvFromSource>,
    /// Further mounts of the command containers.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub extra_volume_mounts: Vec<VolumeMount>,
}

/// How a container's `command` and `args` become a script.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Interposer {
    /// Each element of `command` is a line; `args` follow the last line, quoted.
    #[default]
    #[serde(alias = "")]
    Buildkite,
    /// `command` and `args` are one command line, quoted.
    Vector,
    /// `command` and `args` are one command line, as they are.
    Legacy,
}

/// How sidecars run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct SidecarParams {
    /// ConfigMaps and Secrets whose entries become variables of the sidecars.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub env_from: Vec<EnvFromSource>,
    /// Further mounts of the sidecars.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub extra_volume_mounts: Vec<VolumeMount>,
}
