//! `buildkite-local` in this process, and a client that starts builds and asks how they stand.

use std::{net::IpAddr, sync::Arc, time::Duration};

use anyhow::{Context, Result, ensure};
use buildkite_local::Faults;
use jiff::Timestamp;
use reqwest::Method;
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::eventually;

/// The queue that the operator serves unless a test says otherwise.
pub const QUEUE: &str = "bk-operator";

/// How long a call may take: the server shares a busy machine with the cluster and other tests.
const TIMEOUT: Duration = Duration::from_mins(1);

/// A Buildkite of the test's own. If it runs in this process, it stops with the last of its clones.
#[derive(Clone)]
pub struct Buildkite {
    /// What agents and the operator register with.
    pub agent_token: String,
    /// What REST and GraphQL ask for.
    pub api_token: String,
    /// The server's address.
    pub url: String,
    /// What goes wrong there.
    pub faults: Faults,
    http: reqwest::Client,
    _stop: Option<Arc<tokio_util::sync::DropGuard>>,
}

/// A build as the REST API shows it.
#[derive(Clone, Debug, Deserialize)]
pub struct Build {
    /// Its number.
    pub number: u64,
    /// Its state, e.g. `passed`.
    pub state: String,
    /// Its jobs, also waits.
    pub jobs: Vec<Job>,
}

/// A job as the REST API shows it.
#[derive(Clone, Debug, Deserialize)]
pub struct Job {
    /// Its UUID.
    pub id: Uuid,
    /// The step's key.
    pub step_key: Option<String>,
    /// The state as the job itself has it, e.g. `finished`.
    pub job_state: String,
    /// The command's exit status.
    pub exit_status: Option<i32>,
    /// The signal that ended it.
    pub signal: Option<String>,
    /// Why it was ended from outside.
    pub signal_reason: Option<String>,
    /// Whether its failure does not count.
    #[serde(default)]
    pub soft_failed: bool,
    /// The agent that took it.
    pub agent: Option<Value>,
    /// When an agent began with it.
    pub started_at: Option<Timestamp>,
    /// What stacks said about it.
    #[serde(default)]
    pub events: Vec<JobEvent>,
}

/// Something a stack said about a job.
#[derive(Clone, Debug, Deserialize)]
pub struct JobEvent {
    /// The text.
    pub detail: Option<String>,
    /// When it was said.
    pub at: Timestamp,
}

impl Buildkite {
    /// Starts a server on `host` with these settings, but with tokens of its own.
    pub async fn start_with(host: IpAddr, config: buildkite_local::Config) -> Result<Self> {
        let (agent_token, api_token) =
            (format!("agent-{}", Uuid::new_v4()), format!("api-{}", Uuid::new_v4()));
        let faults = config.faults.clone().unwrap_or_default();
        let server = buildkite_local::Server::bind(buildkite_local::Config {
            listen: (host, 0).into(),
            agent_token: Some(agent_token.clone()),
            api_token: Some(api_token.clone()),
            faults: Some(faults.clone()),
            ..config
        })
        .await?;
        let url = format!("http://{}", server.local_addr());
        let stop = CancellationToken::new();
        tokio::spawn(server.run(stop.clone().cancelled_owned()));
        let buildkite = Self::at(url, agent_token, api_token)?;
        Ok(Self { faults, _stop: Some(Arc::new(stop.drop_guard())), ..buildkite })
    }

    /// A server that somebody else has started.
    pub fn at(url: String, agent_token: String, api_token: String) -> Result<Self> {
        let http = bk_ops::http::client("e2e", TIMEOUT)?;
        Ok(Self { agent_token, url, faults: Faults::default(), api_token, http, _stop: None })
    }

    /// The Agent API.
    pub fn endpoint(&self) -> String {
        format!("{}/v3", self.url)
    }

    /// A client for calls to the server.
    pub fn http(&self) -> reqwest::Client {
        self.http.clone()
    }

    /// Starts a build of a pipeline with these steps.
    pub async fn build(&self, repository: &str, steps: &str) -> Result<Build> {
        let slug = format!("e2e-{}", Uuid::new_v4().simple());
        let pipeline = json!({ "name": slug, "repository": repository, "configuration": steps });
        self.call::<Value>(Method::POST, "pipelines", Some(pipeline)).await?;
        let body = json!({ "commit": "HEAD", "branch": "main", "message": "an end-to-end test" });
        let build: Build = self.call(Method::POST, &format!("pipelines/{slug}/builds"), Some(body)).await?;
        ensure!(!build.jobs.is_empty(), "the build has no jobs: {build:?}");
        Ok(build)
    }

    /// A job, wherever it is.
    pub async fn job(&self, id: Uuid) -> Result<Job> {
        self.call(Method::GET, &format!("jobs/{id}"), None).await
    }

    /// Waits until a job is in one of these states.
    pub async fn job_in(&self, id: Uuid, states: &[&str]) -> Result<Job> {
        eventually(&format!("job {id} is {}", states.join(" or ")), async || {
            let job = self.job(id).await?;
            if states.contains(&job.job_state.as_str()) {
                return Ok(Some(job));
            }
            anyhow::bail!("it is {}", job.job_state)
        })
        .await
    }

    /// Waits until a job has ended.
    pub async fn ended(&self, id: Uuid) -> Result<Job> {
        self.job_in(id, &["finished", "canceled", "timed_out", "expired"]).await
    }

    /// Waits for the job that a retry rule makes of another.
    pub async fn retried(&self, id: Uuid) -> Result<Job> {
        eventually(&format!("job {id} is tried again"), async || {
            let job: Value = self.call(Method::GET, &format!("jobs/{id}"), None).await?;
            let next = job["retried_in_job_id"].as_str().context("no other job has come of it")?;
            Ok(Some(self.job(next.parse()?).await?))
        })
        .await
    }

    /// A job's log so far.
    pub async fn log(&self, id: Uuid) -> Result<String> {
        let log: Value = self.call(Method::GET, &format!("jobs/{id}/log?plain=true"), None).await?;
        Ok(log["content"].as_str().unwrap_or_default().to_owned())
    }

    /// Waits until a job's log contains `text`.
    pub async fn log_with(&self, id: Uuid, text: &str) -> Result<String> {
        eventually(&format!("the log of job {id} contains {text:?}"), async || {
            let log = self.log(id).await?;
            Ok(log.contains(text).then_some(log))
        })
        .await
    }

    /// Cancels a job.
    pub async fn cancel(&self, id: Uuid) -> Result<()> {
        self.call::<Value>(Method::PUT, &format!("jobs/{id}/cancel"), None).await.map(drop)
    }

    /// Does something to the server that no user could: `queues/linux/pause`, `token/rotate`, `reservations/expire`.
    pub async fn interfere(&self, what: &str, body: Value) -> Result<()> {
        let url = format!("{}/_faults/{what}", self.url);
        self.http.post(url).bearer_auth(&self.api_token).json(&body).send().await?.error_for_status()?;
        Ok(())
    }

    /// Calls the REST API below the organisation.
    pub async fn call<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: Option<Value>,
    ) -> Result<T> {
        let url = format!("{}/v2/organizations/local/{path}", self.url);
        let mut request = self.http.request(method, &url).bearer_auth(&self.api_token);
        if let Some(body) = body {
            request = request.json(&body);
        }
        let response = request.send().await.with_context(|| format!("cannot call {url}"))?;
        let (status, text) = (response.status(), response.text().await?);
        ensure!(status.is_success(), "{url} answered {status}: {text}");
        serde_json::from_str(&text).with_context(|| format!("{url} answered {text}"))
    }
}
