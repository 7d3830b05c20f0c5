//! BuildJob: one job to run in a pod, whoever asked for it, and what became of it.

mod status;

use k8s_openapi::{
    api::core::v1::{EnvVar, ResourceRequirements, Toleration},
    apimachinery::pkg::apis::meta::v1::OwnerReference,
};
use kube::{CustomResource, KubeSchema, Resource};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::{
    compact::CompactObject,
    container_use::ContainerUse,
    exporters::{ArtifactExporter, LogExporter, MetricsExporter, RepoMirrorUse},
    names,
    placement::{NodePreference, NodeRequirement},
    schema,
};

pub use status::{BuildJobStatus, Phase};

/// A job to run in a pod of its own.
///
/// With `buildkite` the pod's agent acquires that job from Buildkite and reports to it. Without it the job is
/// *standalone*: the same pod runs `source` and `command` with the agent's bootstrap and no Buildkite behind it.
#[derive(CustomResource, KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "buildkite-operator.dev",
    version = "v1alpha1",
    kind = "BuildJob",
    plural = "buildjobs",
    singular = "buildjob",
    shortname = "bj",
    category = "buildkite",
    namespaced,
    status = "BuildJobStatus",
    derive = "PartialEq",
    validation = Rule::new("self.metadata.name.size() <= 52")
        .message("metadata.name may have 52 characters at most: labels carry it, and pods are named after it"),
    validation = Rule::new("!self.metadata.name.matches('-try[0-9]+$')")
        .message("metadata.name may not end in -try and a number: later pods of a BuildJob are named like that"),
    doc = "A job to run in a pod of its own: a Buildkite job, or a standalone one.",
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(name = "Reason", type_ = "string", json_path = ".status.verdict.code"),
    printcolumn(name = "Exit", type_ = "integer", json_path = ".status.exitStatus"),
    printcolumn(name = "Pipeline", type_ = "string", json_path = ".spec.buildkite.pipeline"),
    printcolumn(name = "Build", type_ = "integer", json_path = ".spec.buildkite.build"),
    printcolumn(name = "Environment", type_ = "string", json_path = ".spec.environment"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(name = "Image", type_ = "string", json_path = ".spec.image", priority = 1),
    printcolumn(name = "Node", type_ = "string", json_path = ".status.nodeName", priority = 1),
    printcolumn(name = "Message", type_ = "string", json_path = ".status.verdict.message", priority = 1)
)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("self == oldSelf")
        .message("the spec of a BuildJob cannot change: its pod is made from it once; create another BuildJob"),
    validation = Rule::new("has(self.buildkite) || has(self.environment) || has(self.kubernetes) || (has(self.command) && size(self.command) > 0)")
        .message("a standalone job (one without `buildkite`) needs a `command`, or an environment that has one"),
    validation = Rule::new("!(has(self.environment) && has(self.image))")
        .message("`environment` and `image` exclude one another: an environment names its image")
)]
pub struct BuildJobSpec {
    /// The Buildkite job to acquire. Absent for standalone jobs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub buildkite: Option<BuildkiteJob>,

    /// What to check out. Buildkite jobs get theirs from Buildkite; it is recorded here for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<Source>,

    /// The command to run, as one shell script. Buildkite jobs get theirs from Buildkite. If there is none, the
    /// environment's `command` runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,

    /// Variables of the containers that run the command. They replace those of the environment by the same name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 1024), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub env: Vec<EnvVar>,

    /// Buildkite plugins of a standalone job: objects of one key each, as in a pipeline.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::plugins")]
    pub plugins: Vec<Value>,

    /// The BuildEnvironment in which the command runs, by its name in the same namespace. What it needs and brings comes
    /// along. Either this or `image`; the agent's own image if neither.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    #[x_kube(validation = schema::object_name())]
    pub environment: Option<String>,

    /// The image in which the command runs, e.g. `golang:1.25`, where no BuildEnvironment is needed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 512))]
    pub image: Option<String>,

    /// Containers that run one after another before the job starts. If one fails, the job fails.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    #[x_kube(validation = Rule::new("self.all(c, !has(c.startup))")
        .message("init containers run before the job; `startup` is for extraContainers"))]
    pub init_containers: Vec<ContainerUse>,

    /// Containers that run beside the job: databases, proxies, reporters.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    pub extra_containers: Vec<ContainerUse>,

    /// Which logs go to the cluster's log sinks, besides the one in Buildkite.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log_exporter: Option<Box<LogExporter>>,

    /// Which files become artifacts of the job by being written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub artifact_exporter: Option<Box<ArtifactExporter>>,

    /// Which files hold metrics of the job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metrics_exporter: Option<Box<MetricsExporter>>,

    /// Whether the checkout borrows from the cluster's mirrors of git repositories.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub repo_mirror: Option<Box<RepoMirrorUse>>,

    /// What a node must be like to run the job. All of them hold.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    pub node_requirements: Vec<NodeRequirement>,

    /// What a node should be like, if there is a choice.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    pub node_preferences: Vec<NodePreference>,

    /// Taints of nodes that the job tolerates: how it gets onto nodes that are set aside.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    pub tolerations: Vec<Toleration>,

    /// Requests and limits of the container that runs the command. They go before those of its environment and of the
    /// resource class.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<Box<ResourceRequirements>>,

    /// A resource class of the operator's configuration: resources, nodes and priority under one name. If absent, the
    /// agent query rule `resource_class=NAME` chooses, and then the operator's default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub resource_class: Option<String>,

    /// The volume behind /workspace, as in a pod's `volumes`; its name may be left out. An emptyDir if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::any_object")]
    pub workspace_volume: Option<Map<String, Value>>,

    /// A path below that volume, with variables such as `$(BUILDKITE_JOB_ID)`, that is mounted instead of its root. The
    /// operator's configuration decides if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 1024))]
    #[x_kube(validation = Rule::new("!self.startsWith('/') && !self.split('/').exists(part, part == '..')")
        .message("workspaceSubPathExpr is a path below the volume: it does not begin with / and has no part that is .."))]
    pub workspace_sub_path_expr: Option<String>,

    /// How long the job may run, e.g. `90m`. It then ends as `TimedOut`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = Rule::new("duration(self) > duration('0s')")
        .message("timeout must be a positive duration such as 90m or 1h30m"))]
    pub timeout: Option<kube::core::Duration>,

    /// The content of the step's `kubernetes` plugin, as its author wrote it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::any_object")]
    pub kubernetes: Option<CompactObject>,

    /// What the pod stands in: nothing (`Pod`), which is quickest, or a `batch/v1` Job (`Job`), for tools and quotas that know
    /// Jobs. The operator's configuration decides if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "WorkloadKind")]
    pub workload: Option<WorkloadKind>,
}

/// What a BuildJob's pod stands in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum WorkloadKind {
    /// Nothing: the pod is all there is. The quickest way.
    #[default]
    Pod,
    /// A `batch/v1` Job, for tools and quotas that know Jobs.
    Job,
}

/// The Buildkite job behind a BuildJob.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct BuildkiteJob {
    /// The job's UUID.
    #[serde(rename = "jobUUID")]
    #[x_kube(validation = Rule::new("self.matches('^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$')")
        .message("jobUUID must be a UUID in lower case"))]
    #[schemars(length(max = 36))]
    pub job_uuid: String,
    /// The queue it was taken from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<String>,
    /// The pipeline's slug.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pipeline: Option<String>,
    /// The build's number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub build: Option<i64>,
    /// The step's key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<String>,
    /// The address of the job's build.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// The job's priority: higher first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<i64>,
    /// The rules by which the job chose its agent, as `key=value`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256))]
    pub agent_query_rules: Vec<String>,
    /// Plugins of the step that only carry options for the operator. The agent is kept from cloning them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub option_plugins: Vec<String>,
}

/// What to check out.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Source {
    /// The repository's address, as git takes it.
    #[schemars(length(min = 1))]
    pub repo: String,
    /// The commit, or `HEAD` for the branch's newest.
    #[serde(default = "head")]
    pub commit: String,
    /// The branch.
    #[serde(default = "main_branch")]
    pub branch: String,
}

impl BuildJob {
    /// The job's status, or the one every BuildJob begins with.
    pub fn status_or_default(&self) -> BuildJobStatus {
        self.status.clone().unwrap_or_default()
    }

    /// The UUID of the Buildkite job behind it; none for standalone jobs.
    pub fn job_uuid(&self) -> Option<&str> {
        self.spec.buildkite.as_ref().map(|job| job.job_uuid.as_str())
    }

    /// A reference that makes an object belong to this BuildJob; none before the API server has given it an id.
    pub fn owner_reference(&self) -> Option<OwnerReference> {
        self.controller_owner_ref(&())
    }

    /// Whether it came from a queue, rather than from somebody's hand. Either mark will do: caches may leave the label out.
    pub fn is_spawned(&self) -> bool {
        let labels = self.metadata.labels.as_ref();
        let annotations = self.metadata.annotations.as_ref();
        labels.is_some_and(|labels| labels.contains_key(names::LABEL_SPAWNED_FROM))
            || annotations.is_some_and(|annotations| annotations.contains_key(names::ANNOTATION_STACK))
    }

    /// Whether the job has ended for good.
    pub fn is_terminal(&self) -> bool {
        self.status.as_ref().is_some_and(|status| status.phase.is_terminal())
    }
}

fn head() -> String {
    "HEAD".to_owned()
}

fn main_branch() -> String {
    "main".to_owned()
}
