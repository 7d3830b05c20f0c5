//! The REST API as the command line uses it.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, anyhow};
use reqwest::{Method, StatusCode};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use uuid::Uuid;

/// The most that a list shows: a page of the server's.
const LISTED: &str = "per_page=100";

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
    pub(super) branch: String,
    pub(super) commit: String,
    pub(super) message: String,
    pub(super) created_at: String,
    pub(super) web_url: String,
    pub(super) finished_at: Option<String>,
    pipeline: Pipeline,
    #[serde(default)]
    pub(super) jobs: Vec<Job>,
}

#[derive(Debug, Clone, Deserialize)]
struct Pipeline {
    slug: String,
}

impl Build {
    /// The slug of its pipeline.
    pub(super) fn slug(&self) -> &str {
        &self.pipeline.slug
    }

    /// `demo/3`.
    pub(super) fn name(&self) -> String {
        format!("{}/{}", self.slug(), self.number)
    }
}

/// A job of a build.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct Job {
    pub(super) id: Uuid,
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
    #[serde(default)]
    pub(super) retried: bool,
    pub(super) agent: Option<JobAgent>,
    #[serde(default)]
    pub(super) events: Vec<Event>,
    pub(super) parallel_group_index: Option<u32>,
}

/// The agent of a job.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct JobAgent {
    pub(super) name: String,
}

/// A line on a job's timeline.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct Event {
    pub(super) detail: String,
}

/// What is new in a log, as the agent sent it.
#[derive(Debug, Deserialize)]
pub(super) struct LogPart {
    pub(super) content: String,
    pub(super) next_offset: i64,
    /// The log has ended, and this is its end.
    pub(super) complete: bool,
}

impl Client {
    pub(super) fn new(server: &str, organization: &str, token: String) -> anyhow::Result<Self> {
        let agent = concat!("buildkite-local/", env!("CARGO_PKG_VERSION"));
        let http = bk_ops::http::client(agent, Duration::from_secs(30)).context("cannot set up HTTP")?;
        let server = server.trim_end_matches('/').to_owned();
        let base = format!("{server}/v2/organizations/{organization}");
        Ok(Self { http, server, base, token })
    }

    /// Creates the pipeline, or brings the one of this slug up to date.
    pub(super) async fn put_pipeline(&self, slug: &str, repository: &str, yaml: &str) -> anyhow::Result<()> {
        let body = json!({ "name": slug, "slug": slug, "repository": repository, "configuration": yaml });
        let changed = self.call(Method::PATCH, &format!("pipelines/{slug}"), Some(&body)).await?;
        if changed.0 == StatusCode::NOT_FOUND && self.has_organization().await? {
            checked(self.call(Method::POST, "pipelines", Some(&body)).await?)?;
        } else {
            checked(changed)?;
        }
        Ok(())
    }

    /// Whether the server is for the organisation that was named.
    async fn has_organization(&self) -> anyhow::Result<bool> {
        Ok(self.call(Method::GET, "pipelines?per_page=1", None).await?.0 != StatusCode::NOT_FOUND)
    }

    /// Starts a build.
    pub(super) async fn create_build(&self, slug: &str, body: &Value) -> anyhow::Result<Build> {
        self.send(Method::POST, &format!("pipelines/{slug}/builds"), Some(body)).await
    }

    /// Has the server serve a directory of this machine; returns the URL to clone it from.
    pub(super) async fn serve_directory(&self, path: &Path, commit: &str) -> anyhow::Result<String> {
        #[derive(Deserialize)]
        struct Served {
            url: String,
        }
        let body = json!({ "path": path, "commit": commit });
        let served: Served = self.send(Method::POST, "repositories", Some(&body)).await?;
        Ok(served.url)
    }

    /// A build as it stands, with every job it ever had.
    pub(super) async fn build(&self, slug: &str, number: i64) -> anyhow::Result<Build> {
        self.get(&format!("pipelines/{slug}/builds/{number}?include_retried_jobs=true")).await
    }

    /// A build as the page sees it: with the reasons why jobs wait.
    pub(super) async fn seen_by_the_page<T: DeserializeOwned>(
        &self,
        slug: &str,
        number: i64,
    ) -> anyhow::Result<T> {
        let url = format!("{}/-/pipelines/{slug}/builds/{number}", self.server);
        read(checked(self.call_url(Method::GET, &url, None).await?)?)
    }

    /// The address of the server.
    pub(super) fn server(&self) -> &str {
        &self.server
    }

    /// The build with this id, if there is one.
    pub(super) async fn build_by_id(&self, id: Uuid) -> anyhow::Result<Option<Build>> {
        let answer = self.call(Method::GET, &format!("builds/{id}?include_retried_jobs=true"), None).await?;
        match answer {
            (StatusCode::NOT_FOUND, _) => Ok(None),
            answer => read(checked(answer)?).map(Some),
        }
    }

    /// The newest builds that fit, without their jobs.
    pub(super) async fn builds(&self, filters: &[(&str, String)]) -> anyhow::Result<Vec<Build>> {
        read(self.builds_as_json(None, filters).await?)
    }

    /// The newest builds, of one pipeline when it is named, as the server tells them.
    pub(super) async fn builds_as_json(
        &self,
        pipeline: Option<&str>,
        filters: &[(&str, String)],
    ) -> anyhow::Result<Value> {
        let place = pipeline.map_or("builds".to_owned(), |slug| format!("pipelines/{slug}/builds"));
        let mut url = reqwest::Url::parse(&format!("{}/{place}?exclude_jobs=true", self.base))
            .with_context(|| format!("{} is not a URL", self.server))?;
        url.query_pairs_mut().extend_pairs(filters);
        checked(self.call_url(Method::GET, url.as_str(), None).await?)
    }

    /// What a job's log holds after `offset`.
    pub(super) async fn log(&self, job: Uuid, offset: i64) -> anyhow::Result<LogPart> {
        self.get(&format!("jobs/{job}/log?offset={offset}")).await
    }

    /// A job as it stands.
    pub(super) async fn job(&self, id: Uuid) -> anyhow::Result<Job> {
        self.get(&format!("jobs/{id}")).await
    }

    /// Changes a job: `cancel`, `retry` or `unblock`. Returns the job, or the one that took its place.
    pub(super) async fn change_job(&self, id: Uuid, how: &str, body: Option<&Value>) -> anyhow::Result<Job> {
        self.send(Method::PUT, &format!("jobs/{id}/{how}"), body).await
    }

    /// Cancels a build.
    pub(super) async fn cancel_build(&self, build: &Build) -> anyhow::Result<Build> {
        let path = format!("pipelines/{}/builds/{}/cancel", build.slug(), build.number);
        self.send(Method::PUT, &path, None).await
    }

    /// A list, up to a page.
    pub(super) async fn list(&self, path: &str) -> anyhow::Result<Value> {
        checked(self.call(Method::GET, &format!("{path}?{LISTED}"), None).await?)
    }

    /// Does something that has no answer worth reading.
    pub(super) async fn act(&self, method: Method, path: &str, body: Option<&Value>) -> anyhow::Result<()> {
        checked(self.call(method, path, body).await?).map(drop)
    }

    /// The bytes behind an address of this server's API.
    pub(super) async fn download(&self, url: &str) -> anyhow::Result<reqwest::Response> {
        let response = self.http.get(url).bearer_auth(&self.token).send().await;
        let response = response.with_context(|| format!("cannot download {url}"))?;
        let status = response.status();
        if status.is_success() {
            return Ok(response);
        }
        Err(anyhow!("cannot download {url}: the server answered {status}"))
    }

    async fn get<T: DeserializeOwned>(&self, path: &str) -> anyhow::Result<T> {
        self.send(Method::GET, path, None).await
    }

    async fn send<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> anyhow::Result<T> {
        read(checked(self.call(method, path, body).await?)?)
    }

    async fn call(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> anyhow::Result<(StatusCode, Value)> {
        self.call_url(method, &format!("{}/{path}", self.base), body).await
    }

    async fn call_url(
        &self,
        method: Method,
        url: &str,
        body: Option<&Value>,
    ) -> anyhow::Result<(StatusCode, Value)> {
        let mut request = self.http.request(method, url).bearer_auth(&self.token);
        if let Some(body) = body {
            request = request.json(body);
        }
        let response = request.send().await.with_context(|| {
            format!("cannot reach {}: start one with `buildkite-local serve`, or give --server", self.server)
        })?;
        let status = response.status();
        let text = response.text().await.with_context(|| format!("the answer of {url} was cut off"))?;
        if text.is_empty() {
            return Ok((status, Value::Null));
        }
        let value = serde_json::from_str(&text).with_context(|| {
            format!(
                "{} answered {status} with something that is no JSON: is it buildkite-local?",
                self.server
            )
        })?;
        Ok((status, value))
    }
}

fn checked((status, value): (StatusCode, Value)) -> anyhow::Result<Value> {
    if status.is_success() {
        return Ok(value);
    }
    let message = value["message"].as_str().unwrap_or("no reason given");
    match status {
        StatusCode::UNAUTHORIZED => Err(anyhow!("{message}: give --api-token or BUILDKITE_LOCAL_API_TOKEN")),
        StatusCode::NOT_FOUND | StatusCode::UNPROCESSABLE_ENTITY => Err(anyhow!("{message}")),
        _ => Err(anyhow!("the server answered {status}: {message}")),
    }
}

/// Reads a part of an answer.
pub(super) fn read<T: DeserializeOwned>(value: Value) -> anyhow::Result<T> {
    serde_json::from_value(value).context("the server's answer has an unknown shape")
}
