//! The `kubernetes` plugin: where it is in a job's list of plugins, and what it says.
//!
//! - [`list`]: finding it
//! - [`KubernetesPlugin`]: reading it

mod list;

pub(crate) use list::operator;
pub use list::{OPERATOR, PluginError, is_kubernetes, is_operator, kubernetes};

use std::time::Duration;

use bk_api::{
    BuildJob,
    params::{CheckoutParams, CommandParams, MetadataParams, SidecarParams},
};
use jiff::SignedDuration;
use k8s_openapi::api::core::v1::{Container, EnvFromSource, PodSpec, VolumeMount};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::pod::{PodSettings, RenderError, strict};

/// Where the plugin's content is in a BuildJob.
const PATH: &str = "spec.kubernetes";

/// What a step says about its pod. Fields are those that users of Buildkite's own controller know.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct KubernetesPlugin {
    /// The pod to begin with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod_spec: Option<PodSpec>,
    /// The name of a PodTemplate to begin with, where `podSpec` is absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod_template: Option<String>,
    /// The containers of `podSpec`, as they were written before there was one.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub containers: Vec<Container>,
    /// A strategic merge patch for the pod, as its author wrote it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod_spec_patch: Option<Map<String, Value>>,
    /// ConfigMaps and Secrets whose entries become variables of checkout, command containers and sidecars.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub git_env_from: Vec<EnvFromSource>,
    /// Containers that run beside the job and are ready before it starts.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub sidecars: Vec<Container>,
    /// How sidecars run.
    pub sidecar_params: SidecarParams,
    /// How commands run.
    pub command_params: CommandParams,
    /// Mounts of agent, checkout, command containers and sidecars.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub extra_volume_mounts: Vec<VolumeMount>,
    /// Labels and annotations of the pod.
    pub metadata: MetadataParams,
    /// How the source is checked out.
    pub checkout: CheckoutParams,
    /// How long the job may run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub job_active_deadline_seconds: Option<i64>,
}

impl KubernetesPlugin {
    /// Reads what a BuildJob says. All that is wrong is refused with its path, also what nobody knows.
    pub(crate) fn of(job: &BuildJob, settings: &PodSettings) -> Result<Self, RenderError> {
        match &job.spec.kubernetes {
            None => Ok(Self::default()),
            Some(_) if settings.config.prohibit_kubernetes_plugin => Err(RenderError {
                path: PATH.to_owned(),
                problem: "the kubernetes plugin is prohibited here (`pod_config.prohibitKubernetesPlugin`); \
                          remove it from the step"
                    .to_owned(),
            }),
            Some(given) => {
                let given = Value::Object(given.read());
                let plugin: Self = strict::read(&given, PATH)?;
                // Nulls mean something in a patch, and only there.
                let patch = given.get("podSpecPatch").and_then(Value::as_object);
                Ok(Self { pod_spec_patch: patch.cloned(), ..plugin })
            }
        }
    }

    /// The name of the PodTemplate that the pod begins with, if it does.
    pub(crate) fn used_template(&self) -> Option<&str> {
        let template = self.pod_template.as_deref().filter(|name| !name.is_empty());
        template.filter(|_| self.pod_spec.is_none())
    }
}

/// How long a job may run: as its BuildJob says, or else its step's `jobActiveDeadlineSeconds`.
pub fn time_limit(job: &BuildJob) -> Option<SignedDuration> {
    if let Some(timeout) = job.spec.timeout {
        return SignedDuration::try_from(Duration::from(timeout)).ok();
    }
    let seconds = job.spec.kubernetes.as_ref()?.read().get("jobActiveDeadlineSeconds")?.as_i64()?;
    (seconds > 0).then(|| SignedDuration::from_secs(seconds))
}
