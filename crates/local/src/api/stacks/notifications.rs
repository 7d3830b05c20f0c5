//! What stacks say about jobs that wait.

use axum::Json;
use axum::extract::State;
use bk_buildkite::stacks::{Notification, NotificationError, NotificationErrors};
use jiff::{SignedDuration, Timestamp};
use rusqlite::Transaction;
use serde::Deserialize;

use super::super::Shared;
use super::super::auth::Registration;
use super::super::error::ApiResult;
use super::super::extract::{Body, Path};
use super::connected;
use super::jobs::check_batch;
use crate::problem::Problem;
use crate::store::jobs;

const MAX_DETAIL: usize = 256;
const MAX_PER_JOB: i64 = 100;
/// What notifications are on a job's timeline.
const KIND: &str = "notification";
const AFTER_END: SignedDuration = SignedDuration::from_secs(300);
/// Clocks differ a little.
const TOLERANCE: SignedDuration = SignedDuration::from_secs(5);

/// Items are read one by one, so that a bad one does not spoil the others.
#[derive(Deserialize)]
pub(super) struct Request {
    notifications: Vec<serde_json::Value>,
}

pub(super) async fn notify(
    _: Registration,
    State(app): State<Shared>,
    Path(key): Path<String>,
    Body(request): Body<Request>,
) -> ApiResult<Json<NotificationErrors>> {
    check_batch(request.notifications.len())?;
    let errors = app
        .store
        .transact(move |transaction| {
            connected(transaction, &key)?;
            let mut errors: Vec<NotificationError> = Vec::new();
            for (index, item) in request.notifications.into_iter().enumerate() {
                let Some(error) = store(transaction, item)? else { continue };
                match errors.iter_mut().find(|known| known.error == error) {
                    Some(known) => known.indexes.push(index),
                    None => errors.push(NotificationError { error, indexes: vec![index] }),
                }
            }
            Ok(errors)
        })
        .await?;
    Ok(Json(NotificationErrors { errors }))
}

/// Stores an item, or says why not.
fn store(transaction: &Transaction<'_>, item: serde_json::Value) -> Result<Option<String>, Problem> {
    let item: Notification = match serde_json::from_value(item) {
        Ok(item) => item,
        Err(error) => return Ok(Some(format!("the notification cannot be read: {error}"))),
    };
    let job = match jobs::get(transaction, item.job_uuid) {
        Ok(owned) => owned.job,
        Err(Problem::NotFound(_)) => return Ok(Some("job not found".to_owned())),
        Err(problem) => return Err(problem),
    };
    let now = Timestamp::now();
    let at = item.timestamp.unwrap_or(now);
    let later = |time: Timestamp, span| time.saturating_add(span).unwrap_or(Timestamp::MAX);
    let length = item.detail.chars().count();
    let error = match () {
        () if !(1..=MAX_DETAIL).contains(&length) => Some("detail must have 1 to 256 characters"),
        () if at > later(now, TOLERANCE) => Some("timestamp is in the future"),
        () if later(at, TOLERANCE) < job.created_at => Some("timestamp is before the job was created"),
        () if job.finished_at.is_some_and(|end| later(end, AFTER_END) < now) => {
            Some("job finished more than 300 seconds ago")
        }
        () if jobs::count_events(transaction, job.id, KIND)? >= MAX_PER_JOB => {
            Some("job has 100 notifications already")
        }
        () => None,
    };
    if error.is_none() {
        jobs::add_event(transaction, job.id, at, KIND, &item.detail)?;
    }
    Ok(error.map(str::to_owned))
}
