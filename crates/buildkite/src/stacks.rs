//! Wire types of the Stacks API: how a controller finds and takes jobs without being an agent.

use std::{collections::BTreeMap, time::Duration};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// Spellings that all mean the cluster's default queue: documents and clients differ.
pub const DEFAULT_QUEUE_KEYS: [&str; 4] = ["_default", "__default__", "~", "-"];

/// The longest detail of a finish call, in bytes.
pub const FINISH_DETAIL_MAX: usize = 4096;

/// The longest detail of a notification, in bytes.
pub const NOTIFICATION_DETAIL_MAX: usize = 255;

/// The most items in one batch call.
pub const BATCH_MAX: usize = 1000;

/// Answer to `GET token`: whom a registration token belongs to.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct TokenIdentity {
    /// The token's own id.
    pub uuid: String,
    /// What its owner calls it.
    #[serde(default)]
    pub description: Option<String>,
    /// Informational, `cluster` for cluster tokens.
    #[serde(default)]
    pub token_type: Option<String>,
    /// The organisation's slug.
    pub organization_slug: String,
    /// The organisation's id.
    #[serde(default)]
    pub organization_uuid: Option<String>,
    /// The cluster's id; empty for unclustered tokens, which stacks cannot use.
    #[serde(default)]
    pub cluster_uuid: Option<String>,
    /// The cluster's name.
    #[serde(default)]
    pub cluster_name: Option<String>,
    /// The id of the one queue that the token is good for, if it is bound to one.
    #[serde(default)]
    pub organization_queue_uuid: Option<String>,
    /// The key of that queue.
    #[serde(default)]
    pub organization_queue_key: Option<String>,
}

/// Body of `POST stacks/register`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RegisterStack {
    /// Stable name of the stack, unique per organisation: at most 80 letters, digits, `_` and `-`.
    pub key: String,
    /// `kubernetes`, `elastic` or `custom`.
    #[serde(rename = "type")]
    pub kind: String,
    /// The queue it serves, or one of [`DEFAULT_QUEUE_KEYS`].
    pub queue_key: String,
    /// Flat information about the stack; may be empty, but must be there.
    pub metadata: BTreeMap<String, String>,
}

/// Answer to `POST stacks/register`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Stack {
    /// The stack's id.
    pub id: String,
    /// The organisation's id.
    #[serde(default)]
    pub organization_uuid: Option<String>,
    /// The resolved queue key, to be sent with every list call.
    pub cluster_queue_key: String,
    /// The stack's key as registered.
    pub key: String,
    /// The stack's type as registered.
    #[serde(rename = "type")]
    pub kind: String,
    /// The metadata as registered.
    #[serde(default)]
    pub metadata: BTreeMap<String, String>,
    /// When it was last seen.
    #[serde(default)]
    pub last_connected_on: Option<Timestamp>,
    /// `connected`, `disconnected` or `lost`.
    #[serde(default)]
    pub state: Option<String>,
}

/// Query of `GET stacks/{key}/scheduled-jobs`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ListScheduledJobs {
    /// The resolved queue key.
    pub queue_key: String,
    /// Page size, 1 to 1000.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
    /// Cursor of the page before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
}

/// Answer to `GET stacks/{key}/scheduled-jobs`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ScheduledJobs {
    /// Jobs that wait for somebody to take them, oldest first.
    pub jobs: Vec<ScheduledJob>,
    /// Where the next page begins.
    pub page_info: PageInfo,
    /// The queue's own state.
    pub cluster_queue: ClusterQueue,
    /// How long the service asks not to be asked again, by a header.
    #[serde(skip)]
    pub pause: Option<Duration>,
}

/// One job of a listing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScheduledJob {
    /// The job's UUID.
    pub id: Uuid,
    /// Higher goes first.
    #[serde(default)]
    pub priority: i64,
    /// `key=value` rules that whoever takes the job must satisfy.
    #[serde(default)]
    pub agent_query_rules: Vec<String>,
    /// When the job was scheduled.
    pub scheduled_at: Timestamp,
    /// The job's pipeline.
    pub pipeline: PipelineRef,
    /// The job's build.
    pub build: BuildRef,
    /// The job's step.
    pub step: StepRef,
}

/// A pipeline as listings name it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PipelineRef {
    /// The pipeline's slug.
    pub slug: String,
    /// The pipeline's id.
    pub uuid: String,
}

/// A build as listings name it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BuildRef {
    /// The build's id.
    pub uuid: String,
    /// Its number in the pipeline.
    pub number: i64,
    /// Its branch.
    #[serde(default)]
    pub branch: Option<String>,
}

/// A step as listings name it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepRef {
    /// The step's key, if it has one.
    #[serde(default)]
    pub key: Option<String>,
}

/// Position in a paged listing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PageInfo {
    /// Whether another page follows.
    pub has_next_page: bool,
    /// Opaque cursor to pass as `after`.
    #[serde(default)]
    pub end_cursor: Option<String>,
}

/// State of the queue in a listing. Documents and clients name the pause differently; both are sent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClusterQueue {
    /// The queue's id.
    #[serde(default)]
    pub id: Option<String>,
    /// Documented spelling.
    #[serde(default)]
    pub dispatch_paused: bool,
    /// The Go client's spelling.
    #[serde(default)]
    pub paused: bool,
}

impl ClusterQueue {
    /// Whether no job may be taken from the queue now.
    pub fn is_paused(&self) -> bool {
        self.dispatch_paused || self.paused
    }
}

/// Body of `PUT stacks/{key}/scheduled-jobs/batch-reserve`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ReserveJobs {
    /// At most [`BATCH_MAX`] jobs.
    pub job_uuids: Vec<Uuid>,
    /// How long the reservation holds; the service's default is 900 s, its maximum 3600 s.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reservation_expiry_seconds: Option<u32>,
}

/// Answer to a batch reserve. Partial success is normal.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reservation {
    /// Ours now; repeated calls extend the reservation.
    pub reserved: Vec<Uuid>,
    /// Taken, ended or unknown.
    pub not_reserved: Vec<Uuid>,
}

/// Answer to `GET stacks/{key}/jobs/{uuid}`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct StackJob {
    /// The job's UUID.
    pub id: Uuid,
    /// The job's environment, without what only an agent gets.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// The step's command.
    #[serde(default)]
    pub command: String,
}

/// Body of `POST stacks/{key}/jobs/get-states`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct GetJobStates {
    /// At most [`BATCH_MAX`] jobs.
    pub job_uuids: Vec<Uuid>,
}

/// Answer to `get-states`; unknown jobs are left out.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct JobStates {
    /// State by job.
    pub states: BTreeMap<Uuid, String>,
}

/// Body of `POST stacks/{key}/jobs/{uuid}/finish`: ends a job that no agent has.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct FinishJob {
    /// Always sent: a missing status counts as −1.
    #[serde(default = "unknown_exit_status")]
    pub exit_status: i32,
    /// Shown on the job's page, at most [`FINISH_DETAIL_MAX`] bytes.
    pub detail: String,
}

/// Body of `POST stacks/{key}/notifications`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Notifications {
    /// At most [`BATCH_MAX`] items.
    pub notifications: Vec<Notification>,
}

/// One line on a job's timeline.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Notification {
    /// The job it concerns.
    pub job_uuid: Uuid,
    /// One to 256 characters.
    pub detail: String,
    /// When it happened; now, if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timestamp: Option<Timestamp>,
}

/// Answer to `POST stacks/{key}/notifications`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct NotificationErrors {
    /// Empty when all were stored.
    #[serde(default)]
    pub errors: Vec<NotificationError>,
}

/// Why some notifications were not stored.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct NotificationError {
    /// The reason.
    pub error: String,
    /// Positions in the request.
    pub indexes: Vec<usize>,
}

fn unknown_exit_status() -> i32 {
    -1
}

/// `text` cut to at most `max` bytes at a character boundary, ending in `…` if anything was cut.
pub fn crop(text: &str, max: usize) -> String {
    const ELLIPSIS: &str = "…";
    if text.len() <= max {
        return text.to_owned();
    }
    let end = text.floor_char_boundary(max.saturating_sub(ELLIPSIS.len()));
    format!("{}{ELLIPSIS}", &text[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crop_keeps_short_text_and_cuts_at_characters() {
        assert_eq!(crop("short", 5), "short");
        assert_eq!(crop("äöüäöü", 8), "äö…");
        assert!(crop(&"ü".repeat(300), NOTIFICATION_DETAIL_MAX).len() <= NOTIFICATION_DETAIL_MAX);
    }

    #[test]
    fn a_missing_exit_status_is_minus_one() {
        let finish: FinishJob = serde_json::from_str(r#"{"detail":"gone"}"#).unwrap();
        assert_eq!(finish.exit_status, -1);
    }
}
