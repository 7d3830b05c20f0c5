//! `pod_config.agentConfig`: settings of the agent in job pods.

use k8s_openapi::api::core::v1::Volume;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Settings of the agent in job pods. What is absent is left to the agent.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct AgentConfig {
    /// Whether the agent avoids HTTP/2.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub no_http2: Option<bool>,
    /// Experiments to switch on.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub experiment: Vec<String>,
    /// The shell that runs commands.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shell: Option<String>,
    /// Whether the agent's own log has no colours.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub no_color: Option<bool>,
    /// Whether a job with two hooks of the same kind fails.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub strict_single_hooks: Option<bool>,
    /// Whether large artifacts are sent in one piece.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub no_multipart_artifact_upload: Option<bool>,
    /// How the trace context is encoded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trace_context_encoding: Option<String>,
    /// Where traces go.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tracing_backend: Option<String>,
    /// The service's name in traces.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tracing_service_name: Option<String>,
    /// Whether the trace of the build goes on in the job.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tracing_propagate_traceparent: Option<bool>,
    /// Warnings to leave out.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub disable_warnings_for: Vec<String>,
    /// Whether the agent logs how it signs and verifies.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub debug_signing: Option<bool>,
    /// Whether commits that are there already are not fetched again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub git_skip_fetch_existing_commits: Option<bool>,
    /// How long the agent waits for the job's containers to connect, e.g. `5m`; for ever if the start fence has proved that they
    /// run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub container_start_timeout: Option<String>,
    /// Whether commands run without a terminal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub no_pty: Option<bool>,
    /// Whether only scripts of the repository may run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub no_command_eval: Option<bool>,
    /// Whether hooks of the repository are not run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub no_local_hooks: Option<bool>,
    /// Whether plugins are not run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub no_plugins: Option<bool>,
    /// Whether plugins' settings are checked against their schema.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub plugin_validation: Option<bool>,
    /// Where the agent's hooks are; /workspace/hooks if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hooks_path: Option<String>,
    /// The volume with the agent's hooks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hooks_volume: Option<Volume>,
    /// Further directories with hooks.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub additional_hooks_paths: Vec<String>,
    /// Further volumes with hooks.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub additional_hooks: Vec<AdditionalHooks>,
    /// Where plugins are; /workspace/plugins if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub plugins_path: Option<String>,
    /// The volume with plugins.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub plugins_volume: Option<Volume>,
    /// The file with the keys that sign uploaded pipelines.
    #[serde(rename = "signingJWKSFile", skip_serializing_if = "Option::is_none")]
    pub signing_jwks_file: Option<String>,
    /// Which of the keys signs.
    #[serde(rename = "signingJWKSKeyID", skip_serializing_if = "Option::is_none")]
    pub signing_jwks_key_id: Option<String>,
    /// The volume with the keys that sign.
    #[serde(rename = "signingJWKSVolume", skip_serializing_if = "Option::is_none")]
    pub signing_jwks_volume: Option<Volume>,
    /// The file with the keys that verify jobs.
    #[serde(rename = "verificationJWKSFile", skip_serializing_if = "Option::is_none")]
    pub verification_jwks_file: Option<String>,
    /// The volume with the keys that verify.
    #[serde(rename = "verificationJWKSVolume", skip_serializing_if = "Option::is_none")]
    pub verification_jwks_volume: Option<Volume>,
    /// What becomes of a job that is not signed: `block` or `warn`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub verification_failure_behavior: Option<String>,
}

/// A volume with hooks.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AdditionalHooks {
    /// Where it is mounted.
    pub path: String,
    /// The volume.
    pub volume: Volume,
}
