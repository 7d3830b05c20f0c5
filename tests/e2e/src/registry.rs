//! A registry that images are pulled from, and one that refuses in every way a registry can.
//!
//! What it does depends on how an image's name begins; see [`Manner`].

mod image;

use std::{path::PathBuf, sync::Arc, time::Duration};

use anyhow::{Context, Result};
use axum::{
    Router,
    extract::{Path, State},
    http::{HeaderMap, StatusCode, header},
    response::{IntoResponse, Response},
    routing::get,
};
use serde_json::json;
use tokio::{net::TcpListener, sync::watch};
use tokio_util::sync::{CancellationToken, DropGuard};

use self::image::{Blob, Image};
use crate::environment::Environment;

/// Whoever says so may pull what is private.
pub const USER: &str = "puller";
/// The user's password.
pub const PASSWORD: &str = "a-good-password";
/// What an `Authorization` header has to say to pull what is private.
const AUTHORIZATION: &str = "Basic cHVsbGVyOmEtZ29vZC1wYXNzd29yZA==";

/// How slow a slow answer is: longer than failures take to be reported.
pub const SLOW: Duration = Duration::from_secs(7);

/// How the registry treats an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Manner {
    /// It is there for everybody.
    Open,
    /// It is not there.
    Missing,
    /// It is there for those who have the password.
    Private,
    /// It is there, but for nobody.
    Forbidden,
    /// It is there, but it takes [`SLOW`] until the registry says so.
    Slow,
    /// The registry fails until [`Registry::release`].
    Broken,
    /// The registry has no time until [`Registry::release`].
    Busy,
}

impl Manner {
    const ALL: [Self; 7] =
        [Self::Open, Self::Missing, Self::Private, Self::Forbidden, Self::Slow, Self::Broken, Self::Busy];

    fn name(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Missing => "missing",
            Self::Private => "private",
            Self::Forbidden => "forbidden",
            Self::Slow => "slow",
            Self::Broken => "broken",
            Self::Busy => "busy",
        }
    }

    fn of(path: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|manner| path.split('/').next() == Some(manner.name()))
    }
}

/// A running registry.
pub struct Registry {
    /// Host and port, as image names begin.
    pub host: String,
    announcement: PathBuf,
    released: watch::Sender<bool>,
    _stop: DropGuard,
}

struct Shop {
    image: Image,
    released: watch::Receiver<bool>,
}

impl Registry {
    /// Serves the toolbox's image, changed a little so that no node has it yet.
    pub async fn serve(environment: &Environment) -> Result<Self> {
        Self::serve_image(environment, |host| Image::from_archive(&environment.toolbox_archive, host)).await
    }

    /// Serves the agent's image, with another user.
    pub async fn serve_agent_as(environment: &Environment, user: &str) -> Result<Self> {
        Self::serve_image(environment, |_| Image::for_user(&environment.agent_archive, user)).await
    }

    async fn serve_image(
        environment: &Environment,
        image: impl FnOnce(&str) -> Result<Image>,
    ) -> Result<Self> {
        let listener = TcpListener::bind((environment.host, 0)).await?;
        let host = listener.local_addr()?.to_string();
        let image = image(&host)?;
        let (released, receiver) = watch::channel(false);
        let router = Router::new()
            .route("/v2/", get(async || "{}"))
            .route("/v2/{*path}", get(answer))
            .with_state(Arc::new(Shop { image, released: receiver }));
        let stop = CancellationToken::new();
        let stopped = stop.clone().cancelled_owned();
        tokio::spawn(axum::serve(listener, router).with_graceful_shutdown(stopped).into_future());

        // The node takes a registry for one with TLS unless told otherwise, and looks before each pull.
        let announcement = environment.registries.join(&host);
        std::fs::create_dir_all(&announcement)
            .and_then(|()| {
                // Older ones of containerd do not read the file without a table.
                let text = format!("server = \"http://{host}\"\n[host.\"http://{host}\"]\n");
                std::fs::write(announcement.join("hosts.toml"), text)
            })
            .with_context(|| format!("cannot announce the registry in {}", announcement.display()))?;
        Ok(Self { host, announcement, released, _stop: stop.drop_guard() })
    }

    /// The reference of an image that is treated so.
    pub fn image(&self, manner: Manner) -> String {
        format!("{}/{}/image:1", self.host, manner.name())
    }

    /// Lets the broken and busy ones have what they ask for.
    pub fn release(&self) {
        self.released.send_replace(true);
    }

    /// A Secret with the password, for `imagePullSecrets`.
    pub fn pull_secret(&self, name: &str) -> String {
        let auths = json!({ "auths": { &self.host: { "username": USER, "password": PASSWORD } } });
        json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": { "name": name },
            "type": "kubernetes.io/dockerconfigjson",
            "stringData": { ".dockerconfigjson": auths.to_string() },
        })
        .to_string()
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        // The cluster's directory goes with the cluster in any case.
        let _removed = std::fs::remove_dir_all(&self.announcement);
    }
}

async fn answer(State(shop): State<Arc<Shop>>, Path(path): Path<String>, headers: HeaderMap) -> Response {
    let Some(manner) = Manner::of(&path) else { return refuse(StatusCode::NOT_FOUND, "NAME_UNKNOWN") };
    let released = *shop.released.borrow();
    match manner {
        Manner::Missing => return refuse(StatusCode::NOT_FOUND, "MANIFEST_UNKNOWN"),
        Manner::Forbidden => return refuse(StatusCode::FORBIDDEN, "DENIED"),
        Manner::Private => {
            let given = headers.get(header::AUTHORIZATION);
            if given.is_none_or(|given| given != AUTHORIZATION) {
                let challenge = [(header::WWW_AUTHENTICATE, "Basic realm=\"tests\"")];
                return (challenge, refuse(StatusCode::UNAUTHORIZED, "UNAUTHORIZED")).into_response();
            }
        }
        Manner::Slow => {
            if path.ends_with(image::TAG) {
                tokio::time::sleep(SLOW).await;
            }
        }
        Manner::Broken if !released => {
            return refuse(StatusCode::INTERNAL_SERVER_ERROR, "UNKNOWN");
        }
        Manner::Busy if !released => {
            return refuse(StatusCode::SERVICE_UNAVAILABLE, "UNAVAILABLE");
        }
        Manner::Open | Manner::Broken | Manner::Busy => {}
    }
    match shop.image.find(path.rsplit('/').next().unwrap_or_default()) {
        Some(blob) => deliver(blob),
        None => refuse(StatusCode::NOT_FOUND, "BLOB_UNKNOWN"),
    }
}

fn deliver(blob: &Blob) -> Response {
    let headers = [
        (header::CONTENT_TYPE.as_str(), blob.media_type.clone()),
        ("docker-content-digest", blob.digest.clone()),
    ];
    (headers, blob.bytes.clone()).into_response()
}

fn refuse(status: StatusCode, code: &str) -> Response {
    (status, json!({ "errors": [{ "code": code, "message": "the test wants it so" }] }).to_string())
        .into_response()
}

#[cfg(test)]
mod tests {
    use base64::Engine;

    use super::*;

    #[test]
    fn the_password_is_what_the_header_says() {
        let encoded = base64::engine::general_purpose::STANDARD.encode(format!("{USER}:{PASSWORD}"));
        assert_eq!(AUTHORIZATION, format!("Basic {encoded}"));
    }
}
