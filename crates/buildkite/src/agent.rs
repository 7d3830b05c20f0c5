//! Wire types of the Agent API v3: what `buildkite-agent` sends, and what it needs to read.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize};

/// Body of `POST register`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct RegisterAgent {
    /// The wished name; empty leaves the choice to the server.
    #[serde(default)]
    pub name: String,
    /// The machine's name.
    #[serde(default)]
    pub hostname: String,
    /// A description of the operating system.
    #[serde(default)]
    pub os: String,
    /// The processor architecture.
    #[serde(default)]
    pub arch: String,
    /// `false` when the agent runs no arbitrary commands.
    #[serde(default)]
    pub script_eval_enabled: bool,
    /// `true` for agents that acquire one job by its id and take no others.
    #[serde(default)]
    pub ignore_in_dispatches: bool,
    /// Dispatch priority among agents.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<String>,
    /// The agent's version.
    #[serde(default)]
    pub version: String,
    /// The agent's build number.
    #[serde(default)]
    pub build: String,
    /// Tags, `key=value` or bare words.
    #[serde(default, deserialize_with = "null_is_empty")]
    pub meta_data: Vec<String>,
    /// The agent's process id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<i64>,
    /// The machine's id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine_id: Option<String>,
    /// What this agent can do beyond the basics.
    #[serde(default, deserialize_with = "null_is_empty")]
    pub features: Vec<String>,
}

/// Answer to `POST register`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RegisteredAgent {
    /// The agent's id.
    pub id: String,
    /// Its name; jobs see the same in `BUILDKITE_AGENT_NAME`.
    pub name: String,
    /// The token for the agent's further calls.
    pub access_token: String,
    /// Where to send them; `None` means where it registered.
    #[serde(default)]
    pub endpoint: Option<String>,
    /// Headers to send from now on.
    #[serde(default)]
    pub request_headers: Option<BTreeMap<String, String>>,
    /// Seconds between pings. The agent panics on 0.
    pub ping_interval: u32,
    /// Seconds between looks at the running job's state. The agent panics on 0.
    pub job_status_interval: u32,
    /// Seconds between heartbeats. The agent panics on 0.
    pub heartbeat_interval: u32,
    /// The tags as the server understood them.
    #[serde(default, deserialize_with = "null_is_empty")]
    pub meta_data: Vec<String>,
}

/// Body of `POST heartbeat`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Heartbeat {
    /// The agent's clock.
    #[serde(default)]
    pub sent_at: String,
}

/// Answer to `POST heartbeat`. Must be a JSON object: an empty body stops some agents.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct HeartbeatReceived {
    /// The server's clock.
    #[serde(default)]
    pub received_at: String,
}

/// Answer to `GET ping`. Must be a JSON object, possibly empty.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Ping {
    /// `idle`, `pause` or `disconnect`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub action: Option<String>,
    /// Logged by the agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// A job to accept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<PingJob>,
}

/// The job that a ping hands out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PingJob {
    /// The job's id.
    pub id: String,
}

/// Answer to `PUT jobs/{id}/acquire`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct AcquiredJob {
    /// The job's id.
    pub id: String,
    /// The job's state.
    pub state: String,
    /// The job's environment. Every value must be a string, or the agent cannot read the job.
    pub env: BTreeMap<String, String>,
    /// The job's own token.
    #[serde(default)]
    pub token: String,
    /// The largest log chunk. Must be above 0, or the agent gives the job up without finishing it.
    pub chunks_max_size_bytes: u64,
    /// Seconds between log chunks.
    pub chunks_interval_seconds: u64,
    /// The largest log.
    pub log_max_size_bytes: u64,
    /// The command step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<serde_json::Value>,
    /// The combination of the step's matrix that this job stands for: dimension to value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub matrix_permutation: Option<BTreeMap<String, String>>,
    /// Dispatch priority.
    #[serde(default)]
    pub priority: i64,
    /// When the job could first have been taken, RFC 3339.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runnable_at: Option<String>,
}

/// Body of `PUT jobs/{id}/start`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct StartJob {
    /// RFC 3339.
    #[serde(default)]
    pub started_at: String,
}

/// Answer to `GET jobs/{id}`: how an agent learns that its job was cancelled.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct JobStatus {
    /// The job's state.
    pub state: String,
}

/// Body of `PUT jobs/{id}/finish`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct FinishedJob {
    /// A decimal number in a string.
    pub exit_status: String,
    /// Such as `SIGTERM`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub signal: String,
    /// Why the agent ended it, such as `cancel` or `agent_stop`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub signal_reason: String,
    /// RFC 3339.
    #[serde(default)]
    pub finished_at: String,
    /// Log chunks that could not be delivered.
    #[serde(default)]
    pub chunks_failed_count: u64,
    /// The agent leaves after this job: it must not be given another.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub ignore_agent_in_dispatches: bool,
}

/// Query of `POST jobs/{id}/chunks`; the body is a gzip stream.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct ChunkPosition {
    /// Running number; agents count from 1, the Go library from 0.
    pub sequence: i64,
    /// Position in the uncompressed log.
    pub offset: i64,
    /// Uncompressed size.
    pub size: i64,
}

/// A meta-data key.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct MetaDataKey {
    /// The key.
    pub key: String,
}

/// A meta-data key and its value: body of `data/set`, answer to `data/get`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct MetaData {
    /// The key.
    pub key: String,
    /// The value.
    pub value: String,
}

/// Body of `data/set-batch`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct MetaDataBatch {
    /// All of them are set, or none.
    pub items: Vec<MetaData>,
}

/// Answer to `data/exists`.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct MetaDataExists {
    /// Whether the key was set.
    pub exists: bool,
}

/// Body of `POST jobs/{id}/annotations`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Annotation {
    /// Markdown or HTML.
    #[serde(default)]
    pub body: String,
    /// Annotations with the same context replace each other.
    #[serde(default)]
    pub context: String,
    /// `success`, `info`, `warning` or `error`.
    #[serde(default)]
    pub style: String,
    /// Adds to the body instead of replacing it.
    #[serde(default)]
    pub append: bool,
    /// Higher is shown first; 3 when absent.
    #[serde(default)]
    pub priority: Option<i64>,
    /// `build` or `job`.
    #[serde(default)]
    pub scope: String,
}

/// Body of `POST jobs/{id}/pipelines`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PipelineUpload {
    /// The same in every repetition of one upload.
    pub uuid: String,
    /// The pipeline as the agent normalised it.
    pub pipeline: serde_json::Value,
    /// Drops the steps that have not started.
    #[serde(default)]
    pub replace: bool,
}

/// Body of `POST jobs/{id}/oidc/tokens`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct TokenRequest {
    /// Who the token is for; empty leaves it to the server.
    #[serde(default)]
    pub audience: String,
    /// Seconds until it expires; 0 leaves it to the server.
    #[serde(default)]
    pub lifetime: i64,
    /// Claims besides the usual ones.
    #[serde(default, deserialize_with = "null_is_empty")]
    pub claims: Vec<String>,
    /// Claims to be passed on to AWS as session tags.
    #[serde(default, deserialize_with = "null_is_empty")]
    pub aws_session_tags: Vec<String>,
    /// The claim that is the subject, instead of the usual composition.
    #[serde(default)]
    pub subject_claim: String,
}

/// Body of every error answer; the agent shows the message.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ErrorMessage {
    /// What went wrong.
    pub message: String,
}

fn null_is_empty<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn null_lists_are_empty() {
        let register: RegisterAgent =
            serde_json::from_str(r#"{"name":"","meta_data":null,"features":null}"#).unwrap();
        assert!(register.meta_data.is_empty() && register.features.is_empty());
    }
}
