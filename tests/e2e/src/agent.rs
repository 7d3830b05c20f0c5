//! An agent that the test plays itself, where the real one is too large or must not behave.

use std::io::Write;

use anyhow::{Context, Result, ensure};
use bk_buildkite::agent::{ChunkPosition, FinishedJob, RegisterAgent, RegisteredAgent, StartJob};
use flate2::{Compression, write::GzEncoder};
use jiff::Timestamp;
use reqwest::{Method, RequestBuilder, Response};
use uuid::Uuid;

use crate::buildkite::{Buildkite, QUEUE};

/// An agent that has registered and connected.
pub struct PlayedAgent {
    http: reqwest::Client,
    endpoint: String,
    token: String,
}

impl PlayedAgent {
    /// Registers an agent for the operator's queue.
    pub async fn register(buildkite: &Buildkite, name: &str) -> Result<Self> {
        let mut agent = Self {
            http: buildkite.http(),
            endpoint: buildkite.endpoint(),
            token: buildkite.agent_token.clone(),
        };
        let request = RegisterAgent {
            name: name.to_owned(),
            version: "3.137.2".to_owned(),
            script_eval_enabled: true,
            ignore_in_dispatches: true,
            meta_data: vec![format!("queue={QUEUE}")],
            ..RegisterAgent::default()
        };
        let registered: RegisteredAgent =
            agent.send(agent.request(Method::POST, "register").json(&request)).await?.json().await?;
        agent.token = registered.access_token;
        agent.send(agent.request(Method::POST, "connect")).await?;
        Ok(agent)
    }

    /// Takes the job and says that it has begun.
    pub async fn take(&self, job: Uuid) -> Result<()> {
        self.send(self.request(Method::PUT, &format!("jobs/{job}/acquire"))).await?;
        let start = StartJob { started_at: Timestamp::now().to_string() };
        self.send(self.request(Method::PUT, &format!("jobs/{job}/start")).json(&start)).await.map(drop)
    }

    /// Sends the whole of the job's log.
    pub async fn log(&self, job: Uuid, text: &str) -> Result<()> {
        let size = i64::try_from(text.len())?;
        let mut body = GzEncoder::new(Vec::new(), Compression::fast());
        body.write_all(text.as_bytes())?;
        let chunk = self
            .request(Method::POST, &format!("jobs/{job}/chunks"))
            .query(&ChunkPosition { sequence: 1, offset: 0, size })
            .header("Content-Type", "text/plain")
            .header("Content-Encoding", "gzip")
            .body(body.finish()?);
        self.send(chunk).await.map(drop)
    }

    /// Ends the job.
    pub async fn finish(&self, job: Uuid, exit_status: i32) -> Result<()> {
        let finished = FinishedJob {
            exit_status: exit_status.to_string(),
            finished_at: Timestamp::now().to_string(),
            ignore_agent_in_dispatches: true,
            ..FinishedJob::default()
        };
        self.send(self.request(Method::PUT, &format!("jobs/{job}/finish")).json(&finished)).await.map(drop)
    }

    /// Says goodbye.
    pub async fn disconnect(&self) -> Result<()> {
        self.send(self.request(Method::POST, "disconnect")).await.map(drop)
    }

    fn request(&self, method: Method, path: &str) -> RequestBuilder {
        let url = format!("{}/{path}", self.endpoint);
        self.http.request(method, url).header("Authorization", format!("Token {}", self.token))
    }

    async fn send(&self, request: RequestBuilder) -> Result<Response> {
        let response = request.send().await.context("cannot reach Buildkite")?;
        let (status, url) = (response.status(), response.url().clone());
        ensure!(status.is_success(), "{url} answered {status}: {}", response.text().await?);
        Ok(response)
    }
}
