//! `git http-backend` as a CGI program, streamed both ways.

use std::path::Path;
use std::process::Stdio;

use axum::body::Body;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::Response;
use futures::TryStreamExt;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio_util::io::{ReaderStream, StreamReader};

use super::super::error::{ApiError, ApiResult};
use super::directory::{cannot_run, git};

/// How many clones are served at once; the rest wait. Each takes a process that packs objects.
static CLONES: Semaphore = Semaphore::const_new(16);
/// How much git may say about a failure.
const STDERR_KEPT: u64 = 4096;
/// The longest head of a CGI answer; git's are a few hundred bytes.
const HEAD_LIMIT: u64 = 16 * 1024;

/// One request to git.
pub(super) struct Call<'a> {
    pub(super) method: &'a str,
    /// What follows the repository in the path.
    pub(super) path: &'a str,
    pub(super) query: &'a str,
    pub(super) headers: &'a HeaderMap,
    pub(super) body: Body,
}

/// Runs the call and answers with what git says, as it says it.
pub(super) async fn run(repository: &Path, call: Call<'_>) -> ApiResult<Response> {
    let permit =
        CLONES.acquire().await.map_err(|_| ApiError::internal("the server no longer serves clones"))?;
    let mut child = spawn(repository, &call)?;
    let (Some(stdin), Some(stdout), Some(stderr)) =
        (child.stdin.take(), child.stdout.take(), child.stderr.take())
    else {
        return Err(ApiError::internal("git was started without pipes"));
    };
    tokio::spawn(feed(call.body, stdin));
    tokio::spawn(report(stderr));
    let mut output = BufReader::new(stdout);
    let head = read_head(&mut output).await?;
    respond(head, Answer { output, _child: child, _permit: permit })
}

fn spawn(repository: &Path, call: &Call<'_>) -> ApiResult<Child> {
    let mut command = git(repository);
    command
        .arg("http-backend")
        .env("GIT_PROJECT_ROOT", repository)
        .env("GIT_HTTP_EXPORT_ALL", "1")
        .env("PATH_INFO", call.path)
        .env("QUERY_STRING", call.query)
        .env("REQUEST_METHOD", call.method)
        .env_remove("REMOTE_USER")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let passed_on = [
        ("CONTENT_TYPE", header::CONTENT_TYPE),
        ("CONTENT_LENGTH", header::CONTENT_LENGTH),
        ("HTTP_CONTENT_ENCODING", header::CONTENT_ENCODING),
        ("GIT_PROTOCOL", HeaderName::from_static("git-protocol")),
    ];
    for (variable, name) in passed_on {
        match call.headers.get(name).and_then(|value| value.to_str().ok()) {
            Some(value) => command.env(variable, value),
            None => command.env_remove(variable),
        };
    }
    command.spawn().map_err(|error| cannot_run(&error))
}

/// Passes the request's body on. When git has read enough it closes its end, which is no error.
async fn feed(body: Body, mut stdin: ChildStdin) {
    let mut body = StreamReader::new(body.into_data_stream().map_err(std::io::Error::other));
    if let Err(error) = tokio::io::copy_buf(&mut body, &mut stdin).await {
        tracing::debug!(%error, "a git request was not read to its end");
    }
    let _closed = stdin.shutdown().await;
}

async fn report(stderr: ChildStderr) {
    let mut said = String::new();
    let _cut = stderr.take(STDERR_KEPT).read_to_string(&mut said).await;
    if !said.trim().is_empty() {
        tracing::warn!(git = said.trim(), "git said something while it served a clone");
    }
}

/// The head of a CGI answer.
#[derive(Debug, PartialEq, Eq)]
struct Head {
    status: StatusCode,
    headers: Vec<(HeaderName, HeaderValue)>,
}

async fn read_head(output: &mut BufReader<ChildStdout>) -> ApiResult<Head> {
    let broken = || ApiError::internal("git gave no usable answer; the server's log says more");
    let mut lines = Vec::new();
    let mut limited = output.take(HEAD_LIMIT);
    loop {
        let mut line = String::new();
        let read = limited.read_line(&mut line).await.map_err(|_| broken())?;
        if read == 0 || !line.ends_with('\n') {
            return Err(broken());
        }
        let line = line.trim_end_matches(['\r', '\n']);
        if line.is_empty() {
            return parse_head(&lines).ok_or_else(broken);
        }
        lines.push(line.to_owned());
    }
}

fn parse_head(lines: &[String]) -> Option<Head> {
    let mut head = Head { status: StatusCode::OK, headers: Vec::new() };
    for line in lines {
        let (name, value) = line.split_once(':')?;
        let value = value.trim();
        if name.eq_ignore_ascii_case("status") {
            head.status = value.split(' ').next()?.parse().ok()?;
        } else {
            head.headers.push((name.parse().ok()?, value.parse().ok()?));
        }
    }
    Some(head)
}

/// What is left of git's answer. The process ends with it when the client goes away.
struct Answer {
    output: BufReader<ChildStdout>,
    _child: Child,
    _permit: SemaphorePermit<'static>,
}

impl tokio::io::AsyncRead for Answer {
    fn poll_read(
        mut self: std::pin::Pin<&mut Self>,
        context: &mut std::task::Context<'_>,
        buffer: &mut tokio::io::ReadBuf<'_>,
    ) -> std::task::Poll<std::io::Result<()>> {
        std::pin::Pin::new(&mut self.output).poll_read(context, buffer)
    }
}

fn respond(head: Head, answer: Answer) -> ApiResult<Response> {
    let mut response = Response::builder().status(head.status);
    for (name, value) in head.headers {
        response = response.header(name, value);
    }
    response
        .body(Body::from_stream(ReaderStream::with_capacity(answer, 64 * 1024)))
        .map_err(|_| ApiError::internal("git's answer cannot be passed on"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(lines: &[&str]) -> Option<Head> {
        parse_head(&lines.iter().map(|line| (*line).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn a_head_has_a_status_and_headers() {
        let read = head(&["Status: 404 Not Found", "Content-Type: text/plain"]).unwrap();
        assert_eq!(read.status, StatusCode::NOT_FOUND);
        assert_eq!(read.headers, [(header::CONTENT_TYPE, HeaderValue::from_static("text/plain"))]);
        assert_eq!(head(&["Expires: x"]).unwrap().status, StatusCode::OK);
    }

    #[test]
    fn nonsense_is_no_head() {
        assert_eq!(head(&["no colon"]), None);
        assert_eq!(head(&["Status: many"]), None);
        assert_eq!(head(&["bad name: x"]), None);
    }
}
