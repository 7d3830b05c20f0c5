//! The log of a job as answers need it: a part, or the whole part by part.

use axum::body::{Body, Bytes};
use futures::stream;
use uuid::Uuid;

use super::Shared;
use crate::log::{self, Log};
use crate::problem::Problem;
use crate::store::{jobs, logs};

/// A whole log goes out in parts of this size, however long it is.
pub(super) const PART: usize = 1024 * 1024;

/// What follows byte `offset`, up to `max` bytes, and whether the job has ended.
pub(super) async fn part(app: &Shared, id: Uuid, offset: i64, max: usize) -> Result<(Log, bool), Problem> {
    let (ended, excerpt) = app
        .store
        .transact(move |transaction| {
            let state = jobs::state(transaction, id)?;
            Ok((state.is_terminal(), logs::read_from(transaction, id, offset, max)?))
        })
        .await?;
    let log = log::read(&excerpt, ended).map_err(|error| Problem::Corrupt(error.to_string()))?;
    Ok((log, ended))
}

/// The whole log from the first part on, each part as `shown` makes it look. It is read as it is sent.
pub(super) fn whole(
    app: Shared,
    id: Uuid,
    first: Log,
    shown: impl Fn(Vec<u8>) -> Bytes + Send + 'static,
) -> Body {
    let parts = stream::unfold((Some(Ok(first)), shown), move |(part_now, shown)| {
        let app = app.clone();
        async move {
            let log: Log = match part_now? {
                Ok(log) => log,
                Err(problem) => return Some((Err::<Bytes, Problem>(problem), (None, shown))),
            };
            let next =
                if log.more { Some(part(&app, id, log.end, PART).await.map(|(log, _)| log)) } else { None };
            Some((Ok(shown(log.bytes)), (next, shown)))
        }
    });
    Body::from_stream(parts)
}
