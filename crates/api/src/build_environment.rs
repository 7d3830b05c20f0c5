//! BuildEnvironment: a container environment with everything it needs, under a name.

use k8s_openapi::api::core::v1::{
    EnvFromSource, EnvVar, LocalObjectReference, ResourceRequirements, SecurityContext, Toleration,
    VolumeMount,
};
use kube::{CustomResource, KubeSchema};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::{
    container_use::{ContainerUse, Startup},
    credentials::GitCredentials,
    placement::{NodePreference, NodeRequirement},
    schema,
};

/// A container environment: an image with its settings, what the pod must have for it, and the containers it brings.
///
/// The same environment can be what a job runs in (`environment`), run beside it (`extraContainers`) or before it
/// (`initContainers`).
#[derive(CustomResource, KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "buildkite-operator.dev",
    version = "v1alpha1",
    kind = "BuildEnvironment",
    plural = "buildenvironments",
    singular = "buildenvironment",
    shortname = "be",
    category = "buildkite",
    namespaced,
    derive = "PartialEq",
    doc = "A container environment with everything it needs: what jobs run in, beside and after.",
    printcolumn(name = "Image", type_ = "string", json_path = ".spec.image"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(
        name = "Service-Account",
        type_ = "string",
        json_path = ".spec.serviceAccountName",
        priority = 1
    )
)]
#[serde(rename_all = "camelCase")]
pub struct BuildEnvironmentSpec {
    /// The image.
    #[schemars(length(min = 1))]
    pub image: String,

    /// When the image is pulled; the operator's configuration decides if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image_pull_policy: Option<crate::config::PullPolicy>,

    /// What to run. A job that runs in this environment brings a command of its own, and this is not used then.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256))]
    pub command: Vec<String>,

    /// Arguments of what to run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256))]
    pub args: Vec<String>,

    /// The directory to run it in; /workspace if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub working_dir: Option<String>,

    /// The environment's variables.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub env: Vec<EnvVar>,

    /// ConfigMaps and Secrets whose entries become variables.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub env_from: Vec<EnvFromSource>,

    /// Requests and limits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<ResourceRequirements>,

    /// Where volumes are mounted. /workspace is mounted in any case.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub volume_mounts: Vec<VolumeMount>,

    /// The user it runs as, and what it may do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub security_context: Option<SecurityContext>,

    /// Further fields of the container, as in a pod's `containers`: probes, ports, lifecycle and so on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::any_object")]
    pub container: Option<Map<String, Value>>,

    /// Volumes that the pod has for it, as in a pod's `volumes`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::any_objects")]
    pub volumes: Vec<Value>,

    /// The pod's service account.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service_account_name: Option<String>,

    /// Secrets with the credentials of image registries.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub image_pull_secrets: Vec<LocalObjectReference>,

    /// What a node must be like. All of them hold.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    pub node_requirements: Vec<NodeRequirement>,

    /// What a node should be like, if there is a choice.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    pub node_preferences: Vec<NodePreference>,

    /// Taints of nodes that it tolerates.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    pub tolerations: Vec<Toleration>,

    /// How the checkout of jobs in this environment authenticates.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub git_credentials: Option<GitCredentials>,

    /// Containers that it brings along, to run before the job.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    #[x_kube(validation = Rule::new("self.all(c, !has(c.startup))")
        .message("init containers run before the job; `startup` is for extraContainers"))]
    pub init_containers: Vec<ContainerUse>,

    /// Containers that it brings along, to run beside the job.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    pub extra_containers: Vec<ContainerUse>,

    /// When it starts if it is an extra container and the job does not say; `before` if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub startup: Option<Startup>,
}
