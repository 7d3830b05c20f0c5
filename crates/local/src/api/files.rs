//! The bytes of artifacts: uploads and downloads. Clients send no token here, so each path carries a signature.

pub(crate) mod form;
pub(crate) mod ticket;

use std::io;

use axum::extract::{DefaultBodyLimit, Request, State};
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post, put};
use axum::{Json, Router};
use futures::StreamExt;
use jiff::Timestamp;
use serde_json::json;
use tokio::sync::{Mutex, MutexGuard};
use tower_http::services::ServeFile;
use uuid::Uuid;

use super::Shared;
use super::error::{ApiError, ApiResult};
use super::extract::{self, Path};
use crate::artifact::{parts, path};
use crate::depot::{Bytes, Depot};
use crate::problem::Problem;
use crate::store::artifacts::{self, ArtifactRow, ArtifactState};
use crate::store::{Store, keys};
use ticket::{Purpose, Tickets};

/// The form field that holds the file.
pub(crate) const FILE_FIELD: &str = "file";

/// What an artifact may do in a browser: be looked at. It gets no script, no form and an origin of its own, so
/// that a page among the artifacts cannot press the buttons of ours.
const SANDBOX: &str = "sandbox; default-src 'none'; img-src 'self' data:; style-src 'unsafe-inline'";

/// The routes of uploads and downloads.
pub(crate) fn router() -> Router<Shared> {
    Router::new()
        .route("/_artifacts/{artifact}/download/{ticket}", get(download))
        .route("/_artifacts/{artifact}/upload/{ticket}", post(upload))
        .route("/_artifacts/{artifact}/parts/{part}/{ticket}", put(upload_part))
        // Each artifact has its own limit: what was promised.
        .layer(DefaultBodyLimit::disable())
}

/// The bytes of artifacts, and the signed paths that lead to them.
pub(crate) struct Files {
    pub(crate) depot: Depot,
    tickets: Tickets,
    /// Held while parts are put together, so that a repeated report waits for the first.
    turn: Mutex<()>,
}

impl Files {
    /// With the key that the database keeps; made up when the database is new.
    pub(crate) async fn new(depot: Depot, store: &Store) -> Result<Self, Problem> {
        let fresh = [Uuid::new_v4(), Uuid::new_v4(), Uuid::new_v4()].map(Uuid::into_bytes).concat();
        let secret =
            store.transact(move |transaction| keys::keep(transaction, "artifact links", &fresh)).await?;
        Ok(Self { depot, tickets: Tickets::new(&secret), turn: Mutex::new(()) })
    }

    /// Waits until nobody else puts parts together.
    pub(crate) async fn turn(&self) -> MutexGuard<'_, ()> {
        self.turn.lock().await
    }

    /// Where an artifact can be downloaded from now on. One that is in a bucket is where its client said.
    pub(crate) fn download_url(&self, base: &str, artifact: &ArtifactRow) -> String {
        if artifact.upload_destination.is_empty() {
            return format!("{base}{}", self.tickets.path(artifact.id, Purpose::Download, Timestamp::now()));
        }
        artifact.url.clone()
    }

    /// The path to which an artifact, or a part of it, is to be sent.
    pub(crate) fn upload_path(&self, artifact: Uuid, part: Option<u32>) -> String {
        self.tickets.path(artifact, part.map_or(Purpose::Upload, Purpose::Part), Timestamp::now())
    }
}

/// The artifact in a path whose ticket is good.
async fn admitted(app: &Shared, id: &str, purpose: Purpose, ticket: &str) -> ApiResult<ArtifactRow> {
    let id = extract::id("artifact", id)?;
    if !app.files.tickets.check(id, purpose, ticket, Timestamp::now()) {
        return Err(ApiError::forbidden("this link has expired or is not complete; ask for a new one"));
    }
    Ok(app.store.transact(move |transaction| artifacts::get(transaction, id)).await?)
}

/// One that can still be sent.
fn open(artifact: &ArtifactRow) -> ApiResult<()> {
    if artifact.state == ArtifactState::New {
        return Ok(());
    }
    let text = format!("artifact {} takes no more bytes: it is {}", artifact.id, artifact.state.as_str());
    Err(ApiError::unprocessable(text))
}

/// Bytes on their way to the disk, up to a limit.
struct Reception<'a> {
    bytes: &'a mut Bytes,
    limit: u64,
    path: &'a str,
}

impl Reception<'_> {
    async fn take(&mut self, bytes: &[u8]) -> ApiResult<()> {
        if self.bytes.size() + bytes.len() as u64 > self.limit {
            let text = format!("{:?} has more than the {} bytes that were promised", self.path, self.limit);
            return Err(ApiError::unprocessable(text));
        }
        self.bytes.write(bytes).await.map_err(|error| failed(&error))
    }
}

/// The disk is full, or fails.
pub(super) fn failed(error: &io::Error) -> ApiError {
    tracing::error!(%error, "cannot keep an artifact");
    let status = match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => StatusCode::INSUFFICIENT_STORAGE,
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    };
    ApiError::new(status, format!("the server cannot keep the artifact: {error}"))
}

async fn upload(
    State(app): State<Shared>,
    Path((id, ticket)): Path<(String, String)>,
    request: Request,
) -> ApiResult<Response> {
    let artifact = admitted(&app, &id, Purpose::Upload, &ticket).await?;
    open(&artifact)?;
    let mut incoming = app.files.depot.receive().map_err(|error| failed(&error))?;
    let mut reception =
        Reception { bytes: &mut incoming.bytes, limit: artifact.file_size, path: &artifact.path };
    form::receive(request, FILE_FIELD, &mut reception).await?;
    let received = incoming.bytes.end().await.map_err(|error| failed(&error))?;
    artifact.verify(&received)?;
    app.files.depot.keep(incoming, artifact.id).await.map_err(|error| failed(&error))?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

async fn upload_part(
    State(app): State<Shared>,
    Path((id, part, ticket)): Path<(String, u32, String)>,
    request: Request,
) -> ApiResult<Response> {
    let artifact = admitted(&app, &id, Purpose::Part(part), &ticket).await?;
    open(&artifact)?;
    let id = artifact.id;
    let count = artifact.parts.unwrap_or(1);
    let expected = parts::size(artifact.file_size, count, part);
    // A part that comes again is not there until it has come again.
    app.store.transact(move |transaction| artifacts::forget_part(transaction, id, part)).await?;
    let at = parts::offset(artifact.file_size, count, part);
    let mut bytes = app.files.depot.receive_part(artifact.id, at).await.map_err(|error| failed(&error))?;
    let mut reception = Reception { bytes: &mut bytes, limit: expected, path: &artifact.path };
    let mut body = request.into_body().into_data_stream();
    while let Some(piece) = body.next().await {
        let piece =
            piece.map_err(|error| ApiError::bad_request(format!("the body cannot be read: {error}")))?;
        reception.take(&piece).await?;
    }
    let received = bytes.end().await.map_err(|error| failed(&error))?;
    if received.size != expected {
        let text = format!("part {part} has {} bytes; it must have {expected}", received.size);
        return Err(ApiError::unprocessable(text));
    }
    let etag = format!("\"{}\"", received.sha256);
    let tag = etag.clone();
    app.store.transact(move |transaction| artifacts::set_part(transaction, id, part, &tag)).await?;
    Ok(([(header::ETAG, etag)], Json(json!({}))).into_response())
}

async fn download(
    State(app): State<Shared>,
    Path((id, ticket)): Path<(String, String)>,
    request: Request,
) -> ApiResult<Response> {
    let artifact = admitted(&app, &id, Purpose::Download, &ticket).await?;
    if artifact.state != ArtifactState::Finished {
        return Err(ApiError::not_found(format!("artifact {} is not complete", artifact.id)));
    }
    let served = ServeFile::new(app.files.depot.artifact(artifact.id))
        .try_call(request)
        .await
        .map_err(|error| failed(&error))?;
    if served.status() == StatusCode::NOT_FOUND {
        return Err(ApiError::not_found(format!("the bytes of artifact {} are gone", artifact.id)));
    }
    let mut response = served.into_response();
    let kind = HeaderValue::from_str(&artifact.content_type)
        .ok()
        .filter(|kind| !kind.is_empty())
        .unwrap_or(HeaderValue::from_static("application/octet-stream"));
    let headers: [(HeaderName, HeaderValue); 5] = [
        (header::CONTENT_TYPE, kind),
        (header::CONTENT_DISPOSITION, disposition(path::file_name(&artifact.path))),
        (header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
        (header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(SANDBOX)),
        (header::CACHE_CONTROL, HeaderValue::from_static("private")),
    ];
    for (name, value) in headers {
        response.headers_mut().insert(name, value);
    }
    Ok(response)
}

/// The name to save a file under; any name, since every byte that is not plain is encoded.
fn disposition(name: &str) -> HeaderValue {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    let encoded: String = name
        .bytes()
        .map(|byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") })
        .collect();
    HeaderValue::from_str(&format!("inline; filename*=UTF-8''{encoded}"))
        .expect("percent-encoded text is plain ASCII")
}

/// Removes the files of artifacts that the database no longer knows, because their builds were pruned. Says
/// how many.
pub(crate) async fn sweep(app: &Shared) -> Result<usize, Problem> {
    let unreadable = |error: io::Error| Problem::Refused(format!("cannot read the artifacts: {error}"));
    let ids = app.files.depot.ids().await.map_err(unreadable)?;
    let orphans = app.store.transact(move |transaction| artifacts::orphans(transaction, ids)).await?;
    app.files.depot.remove_all(&orphans).await.map_err(unreadable)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_name_makes_a_header() {
        assert_eq!(disposition("a b\"é\n.txt"), "inline; filename*=UTF-8''a%20b%22%C3%A9%0A.txt");
    }
}
