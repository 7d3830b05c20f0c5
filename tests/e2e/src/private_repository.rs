//! The test's repository behind a lock: over SSH with a key, over HTTP with a password.

use std::{
    fs,
    net::{IpAddr, SocketAddr, TcpListener},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use anyhow::{Context, Result, ensure};
use axum::{
    Router,
    body::{Body, Bytes},
    extract::State,
    http::{HeaderMap, Method, StatusCode, Uri, header},
    response::Response,
};
use tempfile::TempDir;
use tokio::io::AsyncWriteExt;
use tokio_util::sync::{CancellationToken, DropGuard};

/// Who may clone over HTTP.
pub const USER: &str = "reader";
/// The user's password.
pub const PASSWORD: &str = "a-secret-of-git";
/// What an `Authorization` header has to say.
const AUTHORIZATION: &str = "Basic cmVhZGVyOmEtc2VjcmV0LW9mLWdpdA==";

/// A repository that an SSH server gives to whoever has the key.
pub struct SshRepository {
    /// Its address.
    pub url: String,
    directory: TempDir,
    server: Child,
}

impl SshRepository {
    /// Serves the bare repository at `path` on `host`.
    pub fn serve(host: IpAddr, path: &Path) -> Result<Self> {
        let directory = TempDir::new()?;
        let file = |name: &str| directory.path().join(name);
        for key in ["host", "client", "stranger"] {
            run(Command::new("ssh-keygen").args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(file(key)))?;
        }
        fs::copy(file("client.pub"), file("authorized_keys"))?;
        let port = TcpListener::bind((host, 0))?.local_addr()?.port();
        let address = SocketAddr::from((host, port));
        for (hosts, key) in [("known_hosts", "host.pub"), ("wrong_hosts", "stranger.pub")] {
            fs::write(file(hosts), format!("[{host}]:{port} {}", fs::read_to_string(file(key))?))?;
        }
        let config = format!(
            "ListenAddress {address}\nHostKey {}\nAuthorizedKeysFile {}\nPidFile none\nStrictModes no\nUsePAM no\n\
             PasswordAuthentication no\nKbdInteractiveAuthentication no\nPermitRootLogin prohibit-password\n",
            file("host").display(),
            file("authorized_keys").display(),
        );
        fs::write(file("sshd_config"), config)?;
        // The server insists on an empty directory of this name.
        fs::create_dir_all("/run/sshd")?;
        let server = Command::new("/usr/sbin/sshd")
            .args(["-D", "-e", "-f"])
            .arg(file("sshd_config"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .context("cannot start sshd")?;
        let user = run(Command::new("id").arg("-un"))?;
        let url = format!("ssh://{}@{address}{}", user.trim(), path.display());
        Ok(Self { url, directory, server })
    }

    /// The key that opens it.
    pub fn key(&self) -> PathBuf {
        self.directory.path().join("client")
    }

    /// The server's key, as ssh keeps it.
    pub fn known_hosts(&self) -> PathBuf {
        self.directory.path().join("known_hosts")
    }

    /// Another server's key under this server's name.
    pub fn wrong_hosts(&self) -> PathBuf {
        self.directory.path().join("wrong_hosts")
    }
}

impl Drop for SshRepository {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ended = self.server.kill();
        let _reaped = self.server.wait();
    }
}

/// A repository that an HTTP server gives to whoever has the password.
pub struct HttpRepository {
    /// Its address.
    pub url: String,
    _stop: DropGuard,
}

impl HttpRepository {
    /// Serves the bare repository at `path` on `host`.
    pub async fn serve(host: IpAddr, path: &Path) -> Result<Self> {
        let root = path.parent().context("a repository is in a directory")?.to_owned();
        let name = path.file_name().and_then(|name| name.to_str()).context("a repository has a name")?;
        let listener = tokio::net::TcpListener::bind((host, 0)).await?;
        let url = format!("http://{}/{name}", listener.local_addr()?);
        let stop = CancellationToken::new();
        let router = Router::new().fallback(answer).with_state(root);
        let server = axum::serve(listener, router).with_graceful_shutdown(stop.clone().cancelled_owned());
        tokio::spawn(server.into_future());
        Ok(Self { url, _stop: stop.drop_guard() })
    }
}

async fn answer(
    State(root): State<PathBuf>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let given = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    if given != Some(AUTHORIZATION) {
        let refusal = Response::builder().status(StatusCode::UNAUTHORIZED);
        let refusal = refusal.header(header::WWW_AUTHENTICATE, "Basic realm=\"git\"");
        return refusal.body(Body::empty()).expect("the refusal is well formed");
    }
    let failed = |error: anyhow::Error| {
        let response = Response::builder().status(StatusCode::INTERNAL_SERVER_ERROR);
        response.body(Body::from(format!("{error:#}"))).expect("the answer is well formed")
    };
    backend(&root, &method, &uri, &headers, &body).await.unwrap_or_else(failed)
}

/// Lets git's own server program answer.
async fn backend(
    root: &Path,
    method: &Method,
    uri: &Uri,
    headers: &HeaderMap,
    body: &[u8],
) -> Result<Response> {
    let text =
        |name: header::HeaderName| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or("");
    let mut child = tokio::process::Command::new("git")
        .arg("http-backend")
        .env("GIT_PROJECT_ROOT", root)
        .env("GIT_HTTP_EXPORT_ALL", "1")
        .env("PATH_INFO", uri.path())
        .env("QUERY_STRING", uri.query().unwrap_or_default())
        .env("REQUEST_METHOD", method.as_str())
        .env("CONTENT_TYPE", text(header::CONTENT_TYPE))
        .env("HTTP_CONTENT_ENCODING", text(header::CONTENT_ENCODING))
        .env("REMOTE_USER", USER)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut input = child.stdin.take().context("the program has an input")?;
    input.write_all(body).await?;
    drop(input);
    let output = child.wait_with_output().await?.stdout;
    let end = output.windows(4).position(|bytes| bytes == b"\r\n\r\n").context("the answer has headers")?;
    let mut response = Response::builder();
    for line in std::str::from_utf8(&output[..end])?.lines() {
        let (name, value) = line.split_once(": ").context("a header has a value")?;
        response = match name {
            "Status" => response.status(value.split(' ').next().unwrap_or_default()),
            _ => response.header(name, value),
        };
    }
    Ok(response.body(Body::from(output[end + 4..].to_vec()))?)
}

fn run(command: &mut Command) -> Result<String> {
    let output = command.output().with_context(|| format!("cannot run {command:?}"))?;
    ensure!(output.status.success(), "{command:?} failed: {}", String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8(output.stdout)?)
}
