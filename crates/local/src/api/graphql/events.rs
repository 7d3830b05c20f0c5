//! What happened to a job.

use async_graphql::{ID, Interface, SimpleObject};
use uuid::Uuid;

use super::super::rest::render::stamp;
use crate::store::jobs;

/// Something that happened to a job.
#[derive(Interface)]
#[allow(clippy::duplicated_attributes, reason = "two fields have the same type")]
#[graphql(
    field(name = "uuid", ty = "&ID"),
    field(name = "type", method = "kind", ty = "&String"),
    field(name = "timestamp", ty = "&String")
)]
pub(super) enum JobEvent {
    StackError(JobEventStackError),
    StackNotification(JobEventStackNotification),
    Generic(JobEventGeneric),
}

/// A stack gave up on the job.
#[derive(SimpleObject)]
pub(super) struct JobEventStackError {
    uuid: ID,
    #[graphql(name = "type")]
    kind: String,
    timestamp: String,
    error_detail: String,
}

/// A stack told something about the job.
#[derive(SimpleObject)]
pub(super) struct JobEventStackNotification {
    uuid: ID,
    #[graphql(name = "type")]
    kind: String,
    timestamp: String,
    message: String,
}

/// Anything else.
#[derive(SimpleObject)]
pub(super) struct JobEventGeneric {
    uuid: ID,
    #[graphql(name = "type")]
    kind: String,
    timestamp: String,
    message: String,
}

/// The event at this place of a job's timeline.
pub(super) fn event(job: Uuid, index: usize, event: jobs::JobEvent) -> JobEvent {
    let uuid = ID(format!("{job}-{index}"));
    let kind = event.kind.to_ascii_uppercase();
    let (timestamp, message) = (stamp(event.at), event.detail);
    match event.kind.as_str() {
        "stack_error" => {
            JobEvent::StackError(JobEventStackError { uuid, kind, timestamp, error_detail: message })
        }
        "notification" => {
            let kind = "STACK_NOTIFICATION".to_owned();
            JobEvent::StackNotification(JobEventStackNotification { uuid, kind, timestamp, message })
        }
        _ => JobEvent::Generic(JobEventGeneric { uuid, kind, timestamp, message }),
    }
}
