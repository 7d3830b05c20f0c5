//! `pod_config` and `resource_classes`: what job pods look like, and how long their traces stay.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Affinity, ResourceRequirements, Toleration};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::agent::AgentConfig;
use crate::{
    build_job::WorkloadKind,
    credentials::GitCredentials,
    params::{CheckoutParams, CommandParams, MetadataParams, SidecarParams},
};

/// `pod_config`: what job pods look like and how long their traces stay.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct PodConfig {
    /// The image with the agent, git and ssh.
    pub agent_image: String,
    /// The operator's own image, for containers beside the job that run its programs; that of the operator's Deployment if absent.
    /// Without either there are none of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub operator_image: Option<String>,
    /// The Secret in the job namespace whose key `BUILDKITE_AGENT_TOKEN` holds the agent token.
    pub agent_token_secret: String,
    /// What agents in pods register with: a one-time token, by way of the operator, or the agent token. By way of the operator if absent, where
    /// it listens for them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent_credentials: Option<AgentCredentials>,
    /// How a pod that registers by way of the operator proves that it is the one.
    pub registration_proof: RegistrationProof,
    /// Whether pods stand alone or in a `batch/v1` Job, where a BuildJob does not say.
    pub workload: WorkloadKind,
    /// How the agent's program gets to the containers that run commands.
    pub agent_delivery: AgentDelivery,
    /// How images that cannot be had are noticed before the job starts.
    pub image_check: ImageCheck,
    /// When images are pulled, where a container does not say; as Kubernetes has it if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image_pull_policy: Option<PullPolicy>,
    /// Which Pod Security Standard the operator's own containers keep.
    pub pod_security: PodSecurity,
    /// The architectures of nodes that jobs may land on; the operator's own if empty. With several, jobs that name
    /// none get the agent by an init container.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub architectures: Vec<Architecture>,
    /// Requests and limits of the operator's own containers.
    pub resources: OwnResources,
    /// The volume behind /workspace; an emptyDir if absent. Its name may be left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workspace_volume: Option<Map<String, Value>>,
    /// A path below the workspace volume, with variables such as `$(BUILDKITE_JOB_ID)`, that is mounted instead of its root.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workspace_sub_path_expr: Option<String>,
    /// A strategic merge patch for every pod's spec.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod_spec_patch: Option<Map<String, Value>>,
    /// Whether patches may change what the operator's own containers run.
    pub allow_unsafe_command_patches: bool,
    /// Whether jobs with the `kubernetes` plugin are refused.
    pub prohibit_kubernetes_plugin: bool,
    /// Settings of the agent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent_config: Option<AgentConfig>,
    /// How sources are checked out.
    pub checkout: CheckoutParams,
    /// How commands run.
    pub command: CommandParams,
    /// How sidecars run.
    pub sidecar: SidecarParams,
    /// Labels and annotations of every pod.
    pub metadata: MetadataParams,
    /// How checkouts authenticate, where an environment does not say.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub git_credentials: Option<GitCredentials>,
    /// Further patterns of variables whose values are hidden in logs.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub additional_redacted_vars: Vec<String>,
    /// How long a job stays on a node that does not answer.
    pub node_loss_seconds: u32,
    /// What becomes of jobs on a node that is about to go.
    pub node_leaving: NodeLeaving,
    /// Taints by which a node says that it is about to go, besides those that the operator knows.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub node_leaving_taints: Vec<String>,
    /// The resource class of jobs that name none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default_resource_class: Option<String>,
    /// How long a job may clean up after it was told to stop.
    pub termination_grace_period_seconds: i64,
    /// How long each step of a job may take.
    pub timeouts: Timeouts,
    /// How long an image may fail to be pulled for reasons that can pass.
    pub image_pull_grace_seconds: u32,
    /// How long a BuildJob that the JobSpawner made stays after it succeeded or was cancelled: Buildkite has its record.
    pub succeeded_ttl_seconds: u32,
    /// How long a BuildJob stays after it failed, or after any end if it was applied by hand.
    pub failed_ttl_seconds: u32,
    /// Whether the pod of a job that failed stays as long as its BuildJob.
    pub keep_pod_on_failure: bool,
}

impl PodConfig {
    /// Whether agents register by way of the operator, if it listens for them.
    pub fn registers_by_operator(&self) -> bool {
        self.agent_credentials != Some(AgentCredentials::Secret)
    }
}

impl Default for PodConfig {
    fn default() -> Self {
        Self {
            agent_image: "buildkite/agent:3.137.2".to_owned(),
            operator_image: None,
            agent_token_secret: "buildkite-agent-token".to_owned(),
            agent_credentials: None,
            registration_proof: RegistrationProof::ServiceAccount,
            workload: WorkloadKind::Pod,
            agent_delivery: AgentDelivery::Shim,
            image_check: ImageCheck::Fence,
            image_pull_policy: None,
            pod_security: PodSecurity::Baseline,
            architectures: Vec::new(),
            resources: OwnResources::default(),
            workspace_volume: None,
            workspace_sub_path_expr: None,
            pod_spec_patch: None,
            allow_unsafe_command_patches: false,
            prohibit_kubernetes_plugin: false,
            agent_config: None,
            checkout: CheckoutParams::default(),
            command: CommandParams::default(),
            sidecar: SidecarParams::default(),
            metadata: MetadataParams::default(),
            git_credentials: None,
            additional_redacted_vars: Vec::new(),
            node_loss_seconds: 10,
            node_leaving: NodeLeaving::Wait,
            node_leaving_taints: Vec::new(),
            default_resource_class: None,
            termination_grace_period_seconds: 60,
            timeouts: Timeouts::default(),
            image_pull_grace_seconds: 30,
            succeeded_ttl_seconds: 0,
            failed_ttl_seconds: 600,
            keep_pod_on_failure: false,
        }
    }
}

/// What agents in pods register with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum AgentCredentials {
    /// A one-time token for the pod's own job, by way of the operator, which alone has the agent token.
    Broker,
    /// The agent token, from its Secret.
    Secret,
}

/// How a pod proves that it is the one whose one-time token it shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum RegistrationProof {
    /// By its address. One that the kubelet has not told yet is compared when it is known.
    Address,
    /// By a token of its service account that is bound to the pod. The operator has the API server review it.
    ServiceAccount,
}

/// What becomes of jobs on a node that is about to go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum NodeLeaving {
    /// They run until the node is drained or gone.
    Wait,
    /// They are evicted at once: those that have not begun go to another node, the others end, and retry rules can start them again in time.
    Interrupt,
}

/// How long each step of a job may take: one ladder from the pod's creation to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Timeouts {
    /// Until a node takes the pod, and before that until the API server does.
    pub schedule_seconds: u32,
    /// Until the images are there, once a node has the pod and its init containers are done.
    pub pull_seconds: u32,
    /// From the node to the agent that has taken the job, pulls and init containers included.
    pub start_seconds: u32,
    /// How long a job may run that says nothing itself; as long as it likes if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_seconds: Option<u32>,
    /// How much longer than its grace period a pod may take to go before it counts as lost.
    pub terminate_seconds: u32,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            schedule_seconds: 900,
            pull_seconds: 600,
            start_seconds: 900,
            run_seconds: None,
            terminate_seconds: 120,
        }
    }
}

/// How the agent's program gets to the containers that run commands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum AgentDelivery {
    /// The agent's container copies it when it starts, and the others wait: no init container, the quickest way.
    #[default]
    Shim,
    /// An init container `copy-agent` copies it, for clusters that do not run programs from ConfigMaps.
    Init,
}

/// How images that cannot be had are noticed before the job starts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum ImageCheck {
    /// The agent takes the job only when every container has started.
    #[default]
    Fence,
    /// Init containers `imagecheck-0`, `imagecheck-1`, … start each image once, and the fence holds besides.
    Init,
    /// Not at all: the agent takes the job as soon as it runs.
    None,
}

/// When images are pulled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum PullPolicy {
    /// Every time.
    Always,
    /// When the node does not have the image.
    IfNotPresent,
    /// Never: the node must have it.
    Never,
}

/// Which Pod Security Standard the operator's own containers keep.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum PodSecurity {
    /// *Baseline*: containers run as their image says.
    #[default]
    Baseline,
    /// *Restricted*: they run without root and without privileges. The user's own containers must do so by themselves.
    Restricted,
}

/// The architecture of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Architecture {
    /// x86-64.
    Amd64,
    /// 64-bit ARM.
    Arm64,
}

impl Architecture {
    /// That of this program, and so of the shim beside it.
    pub const OWN: Self = if cfg!(target_arch = "aarch64") { Self::Arm64 } else { Self::Amd64 };
}

/// Requests and limits of the operator's own containers. What is absent is small.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct OwnResources {
    /// Of `agent`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent: Option<ResourceRequirements>,
    /// Of `checkout`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub checkout: Option<ResourceRequirements>,
    /// Of `copy-agent` and the image checks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub init: Option<ResourceRequirements>,
    /// Of each exporter.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exporter: Option<ResourceRequirements>,
}

/// An entry of `resource_classes`: resources, nodes and priority under one name.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct ResourceClass {
    /// Requests and limits of each container that runs a command.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resources: Option<ResourceRequirements>,
    /// Requests and limits of the pod as a whole.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod_resources: Option<ResourceRequirements>,
    /// Labels that a node must have.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub node_selector: BTreeMap<String, String>,
    /// Taints that are tolerated.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tolerations: Vec<Toleration>,
    /// Where pods go, beyond labels.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub affinity: Option<Affinity>,
    /// The pods' priority class.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority_class_name: Option<String>,
}

/// `resource_classes`: by name.
pub type ResourceClasses = BTreeMap<String, ResourceClass>;
