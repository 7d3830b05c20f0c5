//! A server of its own for each test, and calls to it.

use std::io::Write;
use std::net::SocketAddr;
use std::time::Duration;

use buildkite_local::{Config, Server};
use flate2::Compression;
use flate2::write::GzEncoder;
use reqwest::{Method, RequestBuilder, StatusCode};
use serde_json::{Value, json};
use tokio_util::sync::{CancellationToken, DropGuard};

pub(crate) const REGISTRATION: &str = "local-agent-token";
pub(crate) const API: &str = "local-api-token";

/// A running server that stops when dropped.
pub(crate) struct Rig {
    pub(crate) root: String,
    http: reqwest::Client,
    stop: DropGuard,
    running: tokio::task::JoinHandle<Result<(), buildkite_local::ServerError>>,
}

/// An answer, read.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: reqwest::header::HeaderMap,
    pub(crate) body: Value,
}

impl Answer {
    /// The body of a successful answer.
    #[track_caller]
    pub(crate) fn ok(self) -> Value {
        assert!(self.status.is_success(), "{}: {}", self.status, self.body);
        self.body
    }

    /// Checks the status of a refusal, and that it says why.
    #[track_caller]
    pub(crate) fn refused(self, status: u16) -> String {
        assert_eq!(self.status.as_u16(), status, "{}", self.body);
        self.body["message"].as_str().unwrap_or_else(|| panic!("no message in {}", self.body)).to_owned()
    }
}

impl Rig {
    pub(crate) async fn start() -> Self {
        Self::with(|_| {}).await
    }

    pub(crate) async fn with(adjust: impl FnOnce(&mut Config)) -> Self {
        let mut config = Config { listen: SocketAddr::from(([127, 0, 0, 1], 0)), ..Config::default() };
        adjust(&mut config);
        let server = Server::bind(config).await.unwrap();
        let root = format!("http://{}", server.local_addr());
        let stop = CancellationToken::new();
        let stopped = stop.clone().cancelled_owned();
        let running = tokio::spawn(server.run(stopped));
        let http = bk_ops::http::client("test", Duration::from_secs(10)).unwrap();
        Self { root, http, stop: stop.drop_guard(), running }
    }

    /// Stops the server and waits for its end, so that another one can take its files over.
    pub(crate) async fn stop(self) {
        drop(self.stop);
        self.running.await.unwrap().unwrap();
    }

    pub(crate) async fn send(&self, request: RequestBuilder) -> Answer {
        let response = request.send().await.unwrap();
        let (status, headers) = (response.status(), response.headers().clone());
        let text = response.text().await.unwrap();
        let body = if text.is_empty() {
            Value::Null
        } else {
            serde_json::from_str(&text).unwrap_or_else(|_| json!(text))
        };
        Answer { status, headers, body }
    }

    pub(crate) fn request(&self, method: Method, path: &str) -> RequestBuilder {
        self.http.request(method, format!("{}{path}", self.root))
    }

    /// A call of the Agent or Stacks API.
    pub(crate) async fn v3(&self, method: Method, path: &str, token: &str, body: Option<Value>) -> Answer {
        let mut request =
            self.request(method, &format!("/v3/{path}")).header("Authorization", format!("Token {token}"));
        if let Some(body) = body {
            request = request.json(&body);
        }
        self.send(request).await
    }

    /// A call of the REST API.
    pub(crate) async fn v2(&self, method: Method, path: &str, body: Option<Value>) -> Answer {
        let mut request = self.request(method, &format!("/v2/organizations/local/{path}")).bearer_auth(API);
        if let Some(body) = body {
            request = request.json(&body);
        }
        self.send(request).await
    }

    /// Creates the pipeline `demo` and a build of it.
    pub(crate) async fn build(&self, yaml: &str) -> Value {
        let pipeline =
            json!({"name": "demo", "repository": "https://git.local/demo.git", "configuration": yaml});
        self.v2(Method::POST, "pipelines", Some(pipeline)).await.ok();
        self.v2(Method::POST, "pipelines/demo/builds", Some(json!({"message": "hello"}))).await.ok()
    }

    /// The build as it stands.
    pub(crate) async fn current(&self) -> Value {
        self.v2(Method::GET, "pipelines/demo/builds/1?include_retried_jobs=true", None).await.ok()
    }

    /// The newest job whose name is `name`.
    pub(crate) async fn job(&self, name: &str) -> Value {
        let build = self.current().await;
        let jobs = build["jobs"].as_array().unwrap();
        jobs.iter()
            .rfind(|job| job["name"] == name)
            .unwrap_or_else(|| panic!("no job {name} in {build}"))
            .clone()
    }

    pub(crate) async fn job_id(&self, name: &str) -> String {
        self.job(name).await["id"].as_str().unwrap().to_owned()
    }

    /// Registers an agent; returns its access token.
    pub(crate) async fn agent(&self) -> String {
        let body = json!({"name": "", "hostname": "host", "ignore_in_dispatches": true, "meta_data": ["queue=default"]});
        let agent = self.v3(Method::POST, "register", REGISTRATION, Some(body)).await.ok();
        agent["access_token"].as_str().unwrap().to_owned()
    }

    /// An agent acquires and starts the job; returns access token and job token.
    pub(crate) async fn start_job(&self, id: &str) -> (String, String) {
        let access = self.agent().await;
        let job = self.v3(Method::PUT, &format!("jobs/{id}/acquire"), &access, None).await.ok();
        let token = job["token"].as_str().unwrap().to_owned();
        let body = json!({"started_at": "2026-01-01T00:00:00.000000001Z"});
        self.v3(Method::PUT, &format!("jobs/{id}/start"), &token, Some(body)).await.ok();
        (access, token)
    }

    pub(crate) async fn finish_job(&self, id: &str, token: &str, exit_status: &str) -> Answer {
        let body = json!({"exit_status": exit_status, "finished_at": "2026-01-01T00:00:01Z", "chunks_failed_count": 0});
        self.v3(Method::PUT, &format!("jobs/{id}/finish"), token, Some(body)).await
    }

    /// Sends a piece of log.
    pub(crate) async fn chunk(
        &self,
        id: &str,
        token: &str,
        sequence: u32,
        offset: usize,
        text: &[u8],
    ) -> Answer {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(text).unwrap();
        let path = format!("/v3/jobs/{id}/chunks?sequence={sequence}&offset={offset}&size={}", text.len());
        let request = self
            .request(Method::POST, &path)
            .header("Authorization", format!("Token {token}"))
            .header("Content-Type", "text/plain")
            .header("Content-Encoding", "gzip")
            .body(encoder.finish().unwrap());
        self.send(request).await
    }

    /// Asks again until `wanted` holds; fails with the last answer after ten seconds.
    pub(crate) async fn until(&self, name: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        let mut last = Value::Null;
        for _ in 0..500 {
            last = self.job(name).await;
            if wanted(&last) {
                return last;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        panic!("it never came to be: {last}");
    }
}
