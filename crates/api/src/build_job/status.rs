//! What became of a BuildJob.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{exporters::ExporterStatus, verdict::Verdict};

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
    /// The `batch/v1` Job of this attempt, if its pod stands in one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job_name: Option<String>,
    /// The pod of this attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod_name: Option<String>,
    /// The node it runs on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_name: Option<String>,
    /// What the job waits for, while it waits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiting_for: Option<String>,
    /// When the pod of this attempt was created.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod_created_at: Option<Time>,
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
    /// How far the job has come: `PodCreated`, `PodTaken`, `Scheduled`, `Started`, `Registered`, `Acquired`, `Warned`, `Finished`; and what it
    /// asks for and does not get: `LogsExported`, `ArtifactsExported`, `MetricsExported`, `RepoMirrored`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
    /// What came of the exporters in the job's pod, once they have ended.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub exporters: Vec<ExporterStatus>,
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
    /// All of them, in the order in which a job goes through them.
    pub const ALL: [Self; 7] = [
        Self::Pending,
        Self::Starting,
        Self::Running,
        Self::Succeeded,
        Self::Failed,
        Self::Canceled,
        Self::TimedOut,
    ];

    /// Whether the job has ended for good.
    pub fn is_terminal(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed | Self::Canceled | Self::TimedOut)
    }
}
