//! Git over HTTP: directories on this machine that agents clone from.
//!
//! A directory is registered with the API token and gets a path that cannot be guessed; whoever knows the path
//! may read the repository, as agents have no credentials for it. Git itself answers: `git http-backend`,
//! for fetching only.

mod cgi;
mod directory;

use std::path::{Path as FilePath, PathBuf};

use axum::body::Body as HttpBody;
use axum::extract::{Path, Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::Response;
use axum::routing::{get, post};
use axum::{Json, RequestExt, Router};
use serde::Deserialize;
use serde_json::{Value, json};

use super::Shared;
use super::error::{ApiError, ApiResult};
use super::extract::{BaseUrl, Body, Params};
use crate::store::repositories;

/// The routes that git clients use.
pub(crate) fn router() -> Router<Shared> {
    Router::new()
        .route("/git/{key}/{name}/info/refs", get(advertise))
        .route("/git/{key}/{name}/git-upload-pack", post(upload_pack))
        .route("/git/{key}/{name}/git-receive-pack", post(async || read_only()))
}

#[derive(Deserialize)]
pub(crate) struct NewRepository {
    path: PathBuf,
    /// A commit that the caller knows to be in the repository, as proof that both look at the same directory.
    commit: String,
}

/// Registers a directory and says where it can be cloned from. The same directory keeps its address.
pub(crate) async fn register(
    State(app): State<Shared>,
    BaseUrl(base): BaseUrl,
    Body(request): Body<NewRepository>,
) -> ApiResult<(StatusCode, Json<Value>)> {
    let path = directory::check(&request.path, &request.commit).await?;
    let stored = path.clone();
    let key = app.store.transact(move |transaction| repositories::register(transaction, &stored)).await?;
    let url = format!("{base}/git/{key}/{}.git", clone_name(FilePath::new(&path)));
    tracing::info!(path, "directory served over git");
    Ok((StatusCode::CREATED, Json(json!({ "path": path, "url": url }))))
}

/// The last part of the clone URL, which names the directory that `git clone` makes.
fn clone_name(path: &FilePath) -> String {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let name = name.strip_suffix(".git").unwrap_or(name);
    let clean: String = name
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.') { c } else { '-' })
        .collect();
    let clean = clean.trim_matches(['-', '.']);
    if clean.is_empty() { "repository".to_owned() } else { clean.to_owned() }
}

#[derive(Deserialize)]
struct Service {
    #[serde(default)]
    service: String,
}

async fn advertise(
    State(app): State<Shared>,
    Path((key, _)): Path<(String, String)>,
    Params(Service { service }): Params<Service>,
    headers: HeaderMap,
) -> ApiResult<Response> {
    match service.as_str() {
        "git-upload-pack" => {}
        "git-receive-pack" => return Err(read_only()),
        _ => return Err(ApiError::forbidden("only git clients with the smart protocol are served")),
    }
    let repository = served(&app, &key).await?;
    let call = cgi::Call {
        method: "GET",
        path: "/info/refs",
        query: "service=git-upload-pack",
        headers: &headers,
        body: HttpBody::empty(),
    };
    cgi::run(&repository, call).await
}

async fn upload_pack(
    State(app): State<Shared>,
    Path((key, _)): Path<(String, String)>,
    headers: HeaderMap,
    request: Request,
) -> ApiResult<Response> {
    let kind = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    if kind != "application/x-git-upload-pack-request" {
        return Err(ApiError::new(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "the body must be sent as application/x-git-upload-pack-request",
        ));
    }
    let repository = served(&app, &key).await?;
    let body = request.with_limited_body().into_body();
    let call = cgi::Call { method: "POST", path: "/git-upload-pack", query: "", headers: &headers, body };
    cgi::run(&repository, call).await
}

fn read_only() -> ApiError {
    ApiError::forbidden("this repository is read-only: push to the directory's own remote instead")
}

async fn served(app: &Shared, key: &str) -> ApiResult<PathBuf> {
    let key = key.to_owned();
    let path = app.store.transact(move |transaction| repositories::path(transaction, &key)).await?;
    path.map(PathBuf::from).ok_or_else(|| ApiError::not_found("no repository at this address"))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("/home/me/app", "app")]
    #[case("/srv/app.git", "app")]
    #[case("/home/me/My App!", "My-App")]
    #[case("/home/me/.dotfiles", "dotfiles")]
    #[case("/", "repository")]
    #[case("/home/me/ü", "repository")]
    fn clones_are_named_after_the_directory(#[case] path: &str, #[case] name: &str) {
        assert_eq!(clone_name(FilePath::new(path)), name);
    }
}
