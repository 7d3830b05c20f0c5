//! BuildJob: one job to run in a pod, whoever asked for it, and what became of it.

use k8s_openapi::{
    api::core::v1::EnvVar,
    apimachinery::pkg::apis::meta::v1::{OwnerReference, Time},
};
use kube::{CustomResource, KubeSchema, Resource};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::verdict::Verdict;

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
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(name = "Node", type_ = "string", json_path = ".status.nodeName", priority = 1),
    printcolumn(name = "Message", type_ = "string", json_path = ".status.verdict.message", priority = 1)
)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("has(self.buildkite) || (has(self.command) && size(self.command) > 0)")
        .message("a standalone job (one without `buildkite`) needs a `command`")
)]
pub struct BuildJobSpec {
    /// The Buildkite job to acquire. Absent for standalone jobs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = Rule::new("self == oldSelf").message("the Buildkite job of a BuildJob cannot change"))]
    pub buildkite: Option<BuildkiteJob>,

    /// What to check out. Buildkite jobs get theirs from Buildkite; it is recorded here for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<Source>,

    /// The command to run, as one shell script. Buildkite jobs get theirs from Buildkite.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,

    /// Additional environment of the container that runs the command.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub env: Vec<EnvVar>,

    /// Buildkite plugins of a standalone job: objects of one key each, as in a pipeline.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "plugins_schema")]
    pub plugins: Vec<Value>,

    /// The image that runs the command; the agent's own image if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,

    /// The content of the step's `kubernetes` plugin, as its author wrote it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "any_object_schema")]
    pub kubernetes: Option<Map<String, Value>>,
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
    pub agent_query_rules: Vec<String>,
}

/// What to check out.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Source {
    /// The repository's address.
    pub repo: String,
    /// The commit, or `HEAD` for the branch's newest.
    #[serde(default = "head")]
    pub commit: String,
    /// The branch.
    #[serde(default = "main_branch")]
    pub branch: String,
}

/// What became of a BuildJob.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BuildJobStatus {
    /// Where the job stands.
    #[serde(default)]
    pub phase: Phase,
    /// The generation of the spec that this status is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// How often a pod was replaced before an agent took the job.
    #[serde(default)]
    pub attempt: u32,
    /// The pod of this attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod_name: Option<String>,
    /// The node it runs on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_name: Option<String>,
    /// What the job waits for, while it waits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiting_for: Option<String>,
    /// When all containers had started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Time>,
    /// When the job had ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<Time>,
    /// The job's exit status.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_status: Option<i32>,
    /// Why it ended as it did. Set before the phase when Buildkite has to be told first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verdict: Option<Verdict>,
}

/// Where a BuildJob stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Phase {
    /// No pod yet.
    #[default]
    Pending,
    /// The pod exists; not all of its containers have started.
    Starting,
    /// All containers have started.
    Running,
    /// Ended with status 0.
    Succeeded,
    /// Ended otherwise, or could not be run.
    Failed,
    /// Cancelled in Buildkite.
    Canceled,
    /// Took longer than it may.
    TimedOut,
}

impl Phase {
    /// Whether the job has ended for good.
    pub fn is_terminal(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed | Self::Canceled | Self::TimedOut)
    }
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

/// The API server's own schema of a pod is larger than the rest of ours a hundred times over; what is in
/// here is checked when the pod is built.
fn any_object_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true })
}

fn plugins_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({
        "type": "array",
        "maxItems": 100,
        "items": { "type": "object", "maxProperties": 1, "x-kubernetes-preserve-unknown-fields": true }
    })
}
