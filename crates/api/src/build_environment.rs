//! BuildEnvironment: a container environment with everything it needs, under a name.

use k8s_openapi::api::core::v1::{
    EnvFromSource, EnvVar, LocalObjectReference, ResourceRequirements, SecurityContext, Toleration,
    VolumeMount,
};
use kube::{CustomResource, KubeSchema};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::{
    config::PullPolicy,
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
    doc = "A container environment with everything it needs: what jobs run in, beside it, and before.",
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
    /// The image, e.g. `golang:1.25`.
    #[schemars(length(min = 1, max = 512))]
    pub image: String,

    /// When the image is pulled; the operator's configuration decides if absent, and then Kubernetes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "PullPolicy")]
    pub image_pull_policy: Option<PullPolicy>,

    /// What to run: the image's own entrypoint if absent. A job that runs in this environment has a command of its own, and
    /// this runs only if it has none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256))]
    pub command: Vec<String>,

    /// Arguments of what to run. They go together with `command`, also where a job brings its own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256))]
    pub args: Vec<String>,

    /// The directory to run it in. If absent, jobs run in /workspace, and other containers where their image says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub working_dir: Option<String>,

    /// The environment's variables. A job that runs in it may replace them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 1024), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub env: Vec<EnvVar>,

    /// ConfigMaps and Secrets whose entries become variables.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub env_from: Vec<EnvFromSource>,

    /// Requests and limits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<ResourceRequirements>,

    /// Where volumes are mounted. /workspace is mounted in any case.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["mountPath"]))]
    pub volume_mounts: Vec<VolumeMount>,

    /// The user it runs as, and what it may do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub security_context: Option<SecurityContext>,

    /// Further fields of the container, as in a pod's `containers`: probes, ports, lifecycle and so on. An extra container that
    /// has a readiness probe and starts before the job is waited for until it is ready.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::any_object")]
    pub container: Option<Map<String, Value>>,

    /// Volumes that the pod has for it, as in a pod's `volumes`. Two environments may name the same volume, but not
    /// different ones by the same name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::any_objects")]
    pub volumes: Vec<Value>,

    /// The pod's service account. All environments of a job that name one name the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    #[x_kube(validation = schema::object_name())]
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

    /// How the checkout of jobs that run in this environment authenticates. It has no meaning beside or before a job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub git_credentials: Option<GitCredentials>,

    /// Containers that it brings along wherever it is used, to run before the job, and before itself.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    #[x_kube(validation = Rule::new("self.all(c, !has(c.startup))")
        .message("init containers run before the job; `startup` is for extraContainers"))]
    pub init_containers: Vec<ContainerUse>,

    /// Containers that it brings along wherever it is used, to run beside the job.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    pub extra_containers: Vec<ContainerUse>,

    /// When it starts as an extra container, if whoever uses it does not say: `before` the job, which is the default, or `with`
    /// it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Startup")]
    pub startup: Option<Startup>,
}
