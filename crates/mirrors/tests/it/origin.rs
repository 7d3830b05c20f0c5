//! A git server: repositories in a directory, served by `git http-backend`.

use std::{
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use axum::{
    Router,
    body::{Body, Bytes},
    extract::{Request, State},
    http::{HeaderMap, StatusCode, header},
    response::Response,
};
use tokio::io::AsyncWriteExt;

/// A server. It ends with the test.
pub(crate) struct Origin {
    root: tempfile::TempDir,
    url: String,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    root: PathBuf,
    /// `user:password`, if callers have to know it.
    login: Option<String>,
    sent: AtomicU64,
    calls: AtomicU64,
    silent: AtomicBool,
}

impl Origin {
    /// A server that anybody may read.
    pub(crate) async fn start() -> Self {
        Self::with_login(None).await
    }

    /// A server for those who know a user name and a password.
    pub(crate) async fn with_login(login: Option<&str>) -> Self {
        let root = tempfile::tempdir().unwrap();
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let login = login.map(str::to_owned);
        let shared = Arc::new(Shared { root: root.path().to_owned(), login, ..Shared::default() });
        let app = Router::new().fallback(answer).with_state(shared.clone());
        tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
        Self { root, url, shared }
    }

    /// The address of a repository.
    pub(crate) fn url(&self, name: &str) -> String {
        format!("{}/{name}.git", self.url)
    }

    /// Makes a repository with one commit.
    pub(crate) fn create(&self, name: &str) -> Work {
        let bare = self.root.path().join(format!("{name}.git"));
        git(self.root.path(), &["init", "--quiet", "--bare", "-b", "main", bare.to_str().unwrap()]);
        git(&bare, &["config", "uploadpack.allowAnySHA1InWant", "true"]);
        git(&bare, &["config", "uploadpack.allowFilter", "true"]);
        let directory = self.root.path().join(format!("{name}.work"));
        git(self.root.path(), &["clone", "--quiet", bare.to_str().unwrap(), directory.to_str().unwrap()]);
        git(&directory, &["checkout", "--quiet", "-b", "main"]);
        let work = Work { directory };
        work.commit("README", "hello");
        work.push(&["main"]);
        work
    }

    /// How many bytes the server has sent in bodies.
    pub(crate) fn sent(&self) -> u64 {
        self.shared.sent.load(Ordering::SeqCst)
    }

    /// How many calls there were.
    pub(crate) fn calls(&self) -> u64 {
        self.shared.calls.load(Ordering::SeqCst)
    }

    /// From now on the server takes calls and never answers.
    pub(crate) fn fall_silent(&self) {
        self.shared.silent.store(true, Ordering::SeqCst);
    }
}

/// A working copy from which the repository is changed.
pub(crate) struct Work {
    pub(crate) directory: PathBuf,
}

impl Work {
    /// Commits a file. Returns the commit.
    pub(crate) fn commit(&self, file: &str, content: &str) -> String {
        let path = self.directory.join(file);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
        self.git(&["add", "--all"]);
        self.git(&[
            "commit",
            "--quiet",
            "--message",
            &format!("{file}: {}", &content[..content.len().min(20)]),
        ]);
        self.git(&["rev-parse", "HEAD"]).trim().to_owned()
    }

    /// Pushes references.
    pub(crate) fn push(&self, refs: &[&str]) {
        self.git(&[&["push", "--quiet", "--force", "origin"], refs].concat());
    }

    /// Runs git in it.
    pub(crate) fn git(&self, args: &[&str]) -> String {
        git(&self.directory, args)
    }
}

/// Runs git, which must succeed, with nobody's settings.
pub(crate) fn git(directory: &Path, args: &[&str]) -> String {
    let done = command(directory, args).output().unwrap();
    assert!(done.status.success(), "git {args:?}: {}", String::from_utf8_lossy(&done.stderr));
    String::from_utf8_lossy(&done.stdout).into_owned()
}

/// git with nobody's settings.
pub(crate) fn command(directory: &Path, args: &[&str]) -> Command {
    let mut command = Command::new("git");
    command.current_dir(directory).args(args).envs(nobody()).env_remove("GIT_DIR").stdin(Stdio::null());
    command
}

fn nobody() -> [(&'static str, &'static str); 9] {
    [
        ("GIT_CONFIG_GLOBAL", "/dev/null"),
        ("GIT_CONFIG_SYSTEM", "/dev/null"),
        ("GIT_AUTHOR_NAME", "a"),
        ("GIT_AUTHOR_EMAIL", "a@example.com"),
        ("GIT_COMMITTER_NAME", "a"),
        ("GIT_COMMITTER_EMAIL", "a@example.com"),
        ("GIT_TERMINAL_PROMPT", "0"),
        ("GIT_PROTOCOL_FROM_USER", "1"),
        ("GIT_ALLOW_PROTOCOL", "file:http:https"),
    ]
}

async fn answer(State(shared): State<Arc<Shared>>, request: Request) -> Response {
    shared.calls.fetch_add(1, Ordering::SeqCst);
    if shared.silent.load(Ordering::SeqCst) {
        std::future::pending::<()>().await;
    }
    if let Some(login) = &shared.login {
        use base64::Engine;
        let expected = format!("Basic {}", base64::engine::general_purpose::STANDARD.encode(login));
        if request
            .headers()
            .get(header::AUTHORIZATION)
            .is_none_or(|given| given.as_bytes() != expected.as_bytes())
        {
            let refused = Response::builder().status(StatusCode::UNAUTHORIZED);
            return refused
                .header(header::WWW_AUTHENTICATE, "Basic realm=\"git\"")
                .body(Body::empty())
                .unwrap();
        }
    }
    let (parts, body) = request.into_parts();
    let body = axum::body::to_bytes(body, usize::MAX).await.unwrap();
    let path = parts.uri.path().to_owned();
    let query = parts.uri.query().unwrap_or_default().to_owned();
    let output = backend(&shared.root, parts.method.as_str(), &path, &query, &parts.headers, body).await;
    let split = output.windows(4).position(|bytes| bytes == b"\r\n\r\n").expect("a head and a body");
    let head = String::from_utf8_lossy(&output[..split]).into_owned();
    let mut response = Response::builder();
    for line in head.lines() {
        let (name, value) = line.split_once(": ").unwrap();
        response = match name {
            "Status" => response.status(value[..3].parse::<u16>().unwrap()),
            name => response.header(name, value),
        };
    }
    let body = Bytes::from(output).slice(split + 4..);
    shared.sent.fetch_add(body.len() as u64, Ordering::SeqCst);
    response.body(Body::from(body)).unwrap()
}

async fn backend(
    root: &Path,
    method: &str,
    path: &str,
    query: &str,
    headers: &HeaderMap,
    body: Bytes,
) -> Vec<u8> {
    let header =
        |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned();
    let mut child = tokio::process::Command::new("git")
        .arg("http-backend")
        .envs(nobody())
        .env("GIT_PROJECT_ROOT", root)
        .env("GIT_HTTP_EXPORT_ALL", "1")
        .env("PATH_INFO", path)
        .env("QUERY_STRING", query)
        .env("REQUEST_METHOD", method)
        .env("CONTENT_TYPE", header("content-type"))
        .env("HTTP_CONTENT_ENCODING", header("content-encoding"))
        .env("GIT_PROTOCOL", header("git-protocol"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let feeding = tokio::spawn(async move {
        let _enough = stdin.write_all(&body).await;
    });
    let output = child.wait_with_output().await.unwrap();
    feeding.await.unwrap();
    output.stdout
}
