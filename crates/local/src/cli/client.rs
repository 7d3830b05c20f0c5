//! The REST API as the command line uses it.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, anyhow};
use reqwest::{Method, StatusCode};
use serde::Deserialize;
use serde_json::Value;

/// A server and the token for it.
pub(super) struct Client {
    http: reqwest::Client,
    server: String,
    base: String,
    token: String,
}

/// A build as far as the command line looks at it.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct Build {
    pub(super) number: i64,
    pub(super) state: String,
    pub(super) blocked: bool,
    pub(super) web_url: String,
    pub(super) finished_at: Option<String>,
    pub(super) jobs: Vec<Job>,
}

/// A job of a build.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct Job {
    pub(super) id: String,
    #[serde(rename = "type")]
    pub(super) kind: String,
    pub(super) name: Option<String>,
    pub(super) step_key: Option<String>,
    pub(super) state: String,
    pub(super) command: Option<String>,
    pub(super) exit_status: Option<i64>,
    pub(super) signal_reason: Option<String>,
    #[serde(default)]
    pub(super) soft_failed: bool,
    pub(super) agent: Option<Agent>,
    #[serde(default)]
    pub(super) events: Vec<Event>,
    pub(super) parallel_group_index: Option<u32>,
}

/// The agent of a job.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct Agent {
    pub(super) name: String,
}

/// A line on a job's timeline.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct Event {
    pub(super) detail: String,
}

/// What is new in a log.
#[derive(Debug, Deserialize)]
pub(super) struct LogPart {
    pub(super) content: String,
    pub(super) next_offset: i64,
}

impl Client {
    pub(super) fn new(server: &str, organization: &str, token: String) -> anyhow::Result<Self> {
        let agent = concat!("buildkite-local/", env!("CARGO_PKG_VERSION"));
        let http = bk_ops::http::client(agent, Duration::from_secs(30)).context("cannot set up HTTP")?;
        let base = format!("{}/v2/organizations/{organization}", server.trim_end_matches('/'));
        Ok(Self { http, server: server.to_owned(), base, token })
    }

    /// Creates the pipeline, or brings the one of this slug up to date.
    pub(super) async fn put_pipeline(&self, slug: &str, repository: &str, yaml: &str) -> anyhow::Result<()> {
        let body = serde_json::json!({
            "name": slug, "slug": slug, "repository": repository, "configuration": yaml,
        });
        let changed = self.call(Method::PATCH, &format!("pipelines/{slug}"), Some(&body)).await?;
        if changed.0 == StatusCode::NOT_FOUND {
            checked(self.call(Method::POST, "pipelines", Some(&body)).await?)?;
        } else {
            checked(changed)?;
        }
        Ok(())
    }

    /// Starts a build.
    pub(super) async fn create_build(&self, slug: &str, body: &Value) -> anyhow::Result<Build> {
        let path = format!("pipelines/{slug}/builds");
        read(checked(self.call(Method::POST, &path, Some(body)).await?)?)
    }

    /// Has the server serve a directory of this machine; returns the URL to clone it from.
    pub(super) async fn serve_directory(&self, path: &Path, commit: &str) -> anyhow::Result<String> {
        #[derive(Deserialize)]
        struct Served {
            url: String,
        }
        let body = serde_json::json!({ "path": path, "commit": commit });
        let served: Served = read(checked(self.call(Method::POST, "repositories", Some(&body)).await?)?)?;
        Ok(served.url)
    }

    /// A build as it stands.
    pub(super) async fn build(&self, slug: &str, number: i64) -> anyhow::Result<Build> {
        let path = format!("pipelines/{slug}/builds/{number}");
        read(checked(self.call(Method::GET, &path, None).await?)?)
    }

    /// What a job's log holds after `offset`.
    pub(super) async fn log(&self, job: &str, offset: i64) -> anyhow::Result<LogPart> {
        let path = format!("jobs/{job}/log?offset={offset}");
        read(checked(self.call(Method::GET, &path, None).await?)?)
    }

    async fn call(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> anyhow::Result<(StatusCode, Value)> {
        let url = format!("{}/{path}", self.base);
        let mut request = self.http.request(method, &url).bearer_auth(&self.token);
        if let Some(body) = body {
            request = request.json(body);
        }
        let response = request.send().await.with_context(|| {
            format!("cannot reach {}: start one with `buildkite-local serve`, or give --server", self.server)
        })?;
        let status = response.status();
        let text = response.text().await.with_context(|| format!("the answer of {url} was cut off"))?;
        let value = serde_json::from_str(&text)
            .with_context(|| format!("{url} answered {status} with something that is no JSON"))?;
        Ok((status, value))
    }
}

fn checked((status, value): (StatusCode, Value)) -> anyhow::Result<Value> {
    if status.is_success() {
        return Ok(value);
    }
    let message = value["message"].as_str().unwrap_or("no reason given");
    Err(anyhow!("the server answered {status}: {message}"))
}

fn read<T: for<'de> Deserialize<'de>>(value: Value) -> anyhow::Result<T> {
    serde_json::from_value(value).context("the server's answer has an unknown shape")
}
