//! The stream that tells pages that something has changed. What, they ask for themselves.

use std::convert::Infallible;
use std::time::Duration;

use axum::extract::State;
use axum::http::header::CACHE_CONTROL;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures::stream;

use super::super::Shared;

/// Changes that come faster are told as one.
const SHORTEST: Duration = Duration::from_millis(250);

/// What browsers wait before they come again after the stream broke.
const COME_AGAIN: Duration = Duration::from_secs(1);

/// The number of the newest change: at once, and whenever there is a newer one.
pub(super) async fn stream(State(app): State<Shared>) -> Response {
    let mut changes = app.store.changes();
    changes.mark_changed();
    let stopping = app.run.stopping.clone();
    let numbers = stream::unfold((changes, stopping, true), async |(mut changes, stopping, first)| {
        let next = async {
            if !first {
                tokio::time::sleep(SHORTEST).await;
            }
            changes.changed().await.ok()
        };
        stopping.run_until_cancelled(next).await??;
        let number = *changes.borrow_and_update();
        let event = Event::default().data(number.to_string()).retry(COME_AGAIN);
        Some((Ok::<_, Infallible>(event), (changes, stopping, false)))
    });
    ([(CACHE_CONTROL, "no-store")], Sse::new(numbers).keep_alive(KeepAlive::default())).into_response()
}
