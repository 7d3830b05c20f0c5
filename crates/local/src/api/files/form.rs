//! The file in a form, as it comes.
//!
//! The parser of forms takes everything that the connection has ready before it hands anything on, and keeps
//! what it has not understood yet. So it is fed one piece at a time, and cut off when it holds too much.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use axum::body::{Body, BodyDataStream, Bytes};
use axum::extract::multipart::{Multipart, MultipartError};
use axum::extract::{FromRequest, Request};
use futures::Stream;

use super::super::error::{ApiError, ApiResult};
use super::Reception;

/// Where the bytes of a file go.
pub(crate) trait Sink {
    /// Takes the next bytes.
    fn take(&mut self, bytes: &[u8]) -> impl Future<Output = ApiResult<()>> + Send;
}

impl Sink for Reception<'_> {
    async fn take(&mut self, bytes: &[u8]) -> ApiResult<()> {
        Reception::take(self, bytes).await
    }
}

/// The most that the parser may hold: the headers of a field, and a little of its bytes.
const MAX_HELD: usize = 1024 * 1024;

/// Copies the file field of this name from the form in a request; fields before it are passed over, and so is
/// what comes behind it.
pub(crate) async fn receive(request: Request, name: &str, into: &mut impl Sink) -> ApiResult<()> {
    let held = Arc::new(AtomicUsize::new(0));
    let feed = held.clone();
    let request = request
        .map(|body| Body::from_stream(Paced { inner: body.into_data_stream(), held: feed, resting: false }));
    let mut form = Multipart::from_request(request, &())
        .await
        .map_err(|rejection| ApiError::new(rejection.status(), rejection.body_text()))?;
    while let Some(mut field) = form.next_field().await.map_err(|error| refused(&error))? {
        let wanted = field.name() == Some(name);
        while let Some(chunk) = field.chunk().await.map_err(|error| refused(&error))? {
            release(&held, chunk.len());
            if wanted {
                into.take(&chunk).await?;
            }
        }
        if wanted {
            return Ok(());
        }
    }
    Err(ApiError::unprocessable(format!("the form has no file field {name:?}")))
}

fn release(held: &AtomicUsize, bytes: usize) {
    // What separates fields is never handed on: it is forgiven by the ceiling, not counted.
    let _previous =
        held.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |held| Some(held.saturating_sub(bytes)));
}

/// Whatever goes wrong with reading a form is the sender's doing, or the connection's.
fn refused(error: &MultipartError) -> ApiError {
    ApiError::bad_request(format!("the form cannot be read: {}", bk_ops::report::one_line(error)))
}

/// Gives one piece, then pretends once that no more has come.
struct Paced {
    inner: BodyDataStream,
    held: Arc<AtomicUsize>,
    resting: bool,
}

impl Stream for Paced {
    type Item = Result<Bytes, axum::Error>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if std::mem::take(&mut self.resting) {
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        let polled = Pin::new(&mut self.inner).poll_next(context);
        if let Poll::Ready(Some(Ok(bytes))) = &polled {
            self.resting = true;
            if self.held.fetch_add(bytes.len(), Ordering::Relaxed) > MAX_HELD {
                let text = format!("a field begins with more than {MAX_HELD} bytes of headers");
                return Poll::Ready(Some(Err(axum::Error::new(text))));
            }
        }
        polled
    }
}
