//! An agent that takes a job only to end it: how a failure is told where no other way leads to a job without an agent.

use std::io::Write as _;

use flate2::{Compression, write::GzEncoder};
use jiff::Timestamp;
use reqwest::{
    Method, RequestBuilder,
    header::{self, HeaderValue},
};
use serde::Serialize;
use uuid::Uuid;

use crate::{
    agent::{AcquiredJob, ChunkPosition, FinishedJob, RegisterAgent, RegisteredAgent, StartJob},
    client::{self, decode, http_client, retry, send, usable},
    credentials::Credentials,
    error::Error,
    stacks::FinishJob,
};

/// Why the job ends without having run, for its retry rules.
const SIGNAL_REASON: &str = "stack_error";

/// What makes such agents.
#[derive(Clone, Debug)]
pub struct StandIn {
    http: reqwest::Client,
    endpoint: String,
    credentials: Credentials,
    version: String,
}

/// What came of the wish to end a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finished {
    /// It has ended.
    Now,
    /// It cannot be ended: an agent has it, it has ended before, or it is unknown.
    Settled,
}

/// An agent that is registered.
struct Session<'a> {
    http: &'a reqwest::Client,
    endpoint: String,
    token: HeaderValue,
}

impl StandIn {
    /// Agents that register at the Agent API with an agent token.
    pub fn new(endpoint: &str, credentials: Credentials, user_agent: &str) -> Result<Self, Error> {
        let endpoint = usable(endpoint, client::DEFAULT_ENDPOINT)?;
        let http = http_client(&endpoint, user_agent)?;
        let version = user_agent.rsplit('/').next().unwrap_or_default().to_owned();
        Ok(Self { http, endpoint, credentials, version })
    }

    /// Takes a job of a queue, writes why it cannot run into its log, and ends it.
    pub async fn end(&self, queue: &str, job: Uuid, end: &FinishJob) -> Result<Finished, Error> {
        let session = self.register(queue, job).await?;
        let ended = session.end(job, end).await;
        session.disconnect().await;
        ended
    }

    async fn register(&self, queue: &str, job: Uuid) -> Result<Session<'_>, Error> {
        const ATTEMPT: &str = "register an agent with the agent token";
        let body = RegisterAgent {
            name: format!("buildkite-operator-{job}"),
            os: std::env::consts::OS.to_owned(),
            arch: std::env::consts::ARCH.to_owned(),
            ignore_in_dispatches: true,
            version: self.version.clone(),
            meta_data: vec![format!("queue={queue}")],
            ..RegisterAgent::default()
        };
        let agent: RegisteredAgent = retry(|| async {
            let request = self.http.post(format!("{}/register", self.endpoint));
            let request = request.header(header::AUTHORIZATION, self.credentials.header()).json(&body);
            decode(ATTEMPT, &self.endpoint, send(ATTEMPT, &self.endpoint, request).await?).await
        })
        .await?;
        let endpoint = agent.endpoint.filter(|endpoint| !endpoint.is_empty());
        Ok(Session {
            http: &self.http,
            endpoint: endpoint.unwrap_or_else(|| self.endpoint.clone()),
            token: bearer(&agent.access_token)?,
        })
    }
}

impl Session<'_> {
    async fn end(&self, job: Uuid, end: &FinishJob) -> Result<Finished, Error> {
        self.post("connect the agent", "connect", None::<&()>).await?;
        let acquired = match self.acquire(job).await {
            Ok(acquired) => acquired,
            Err(error) if error.is_settled() => {
                tracing::debug!(error = %bk_ops::report::one_line(&error), "the job is somebody else's by now");
                return Ok(Finished::Settled);
            }
            Err(error) => return Err(error),
        };
        let token = if acquired.token.is_empty() { self.token.clone() } else { bearer(&acquired.token)? };
        let holder = Session { http: self.http, endpoint: self.endpoint.clone(), token };
        holder.tell(job, end).await
    }

    async fn acquire(&self, job: Uuid) -> Result<AcquiredJob, Error> {
        const ATTEMPT: &str = "acquire the job";
        retry(|| async {
            let request = self.request(Method::PUT, &format!("jobs/{job}/acquire"));
            let request = request.header("X-Buildkite-Lock-Acquire-Job", "1");
            decode(ATTEMPT, &self.endpoint, send(ATTEMPT, &self.endpoint, request).await?).await
        })
        .await
    }

    /// What remains once the job is ours. Its end matters more than its log.
    async fn tell(&self, job: Uuid, end: &FinishJob) -> Result<Finished, Error> {
        let started = StartJob { started_at: Timestamp::now().to_string() };
        let log = log(&end.detail);
        let written = async {
            self.put("start the job", &format!("jobs/{job}/start"), &started).await?;
            self.write(job, &log).await
        };
        let failed = written.await.inspect_err(|error| {
            tracing::warn!(error = %bk_ops::report::one_line(error), "the job's log does not say why it ends");
        });
        let finished = FinishedJob {
            exit_status: end.exit_status.to_string(),
            signal_reason: SIGNAL_REASON.to_owned(),
            finished_at: Timestamp::now().to_string(),
            chunks_failed_count: u64::from(failed.is_err()),
            ignore_agent_in_dispatches: true,
            ..FinishedJob::default()
        };
        match self.put("finish the job", &format!("jobs/{job}/finish"), &finished).await {
            Ok(()) => Ok(Finished::Now),
            Err(error) if error.is_settled() => Ok(Finished::Settled),
            Err(error) => Err(error),
        }
    }

    async fn write(&self, job: Uuid, log: &str) -> Result<(), Error> {
        const ATTEMPT: &str = "write the job's log";
        let size = i64::try_from(log.len()).unwrap_or(i64::MAX);
        let position = ChunkPosition { sequence: 1, offset: 0, size };
        let body = gzip(log);
        retry(|| async {
            let request = self.request(Method::POST, &format!("jobs/{job}/chunks")).query(&position);
            let request = request.header(header::CONTENT_TYPE, "text/plain");
            let request = request.header(header::CONTENT_ENCODING, "gzip").body(body.clone());
            send(ATTEMPT, &self.endpoint, request).await.map(drop)
        })
        .await
    }

    /// Best effort: the service notices by itself after a while.
    async fn disconnect(&self) {
        let request = self.request(Method::POST, "disconnect");
        if let Err(error) = send("disconnect the agent", &self.endpoint, request).await {
            tracing::debug!(error = %bk_ops::report::one_line(&error), "the agent has not said goodbye");
        }
    }

    async fn post(
        &self,
        attempt: &'static str,
        path: &str,
        body: Option<&impl Serialize>,
    ) -> Result<(), Error> {
        self.call(attempt, Method::POST, path, body).await
    }

    async fn put(&self, attempt: &'static str, path: &str, body: &impl Serialize) -> Result<(), Error> {
        self.call(attempt, Method::PUT, path, Some(body)).await
    }

    async fn call(
        &self,
        attempt: &'static str,
        method: Method,
        path: &str,
        body: Option<&impl Serialize>,
    ) -> Result<(), Error> {
        retry(|| async {
            let request = self.request(method.clone(), path);
            let request = match body {
                Some(body) => request.json(body),
                None => request,
            };
            send(attempt, &self.endpoint, request).await.map(drop)
        })
        .await
    }

    fn request(&self, method: Method, path: &str) -> RequestBuilder {
        let request = self.http.request(method, format!("{}/{path}", self.endpoint));
        request.header(header::AUTHORIZATION, self.token.clone()).header(header::ACCEPT, "application/json")
    }
}

/// The header for a token that the service has handed out.
fn bearer(token: &str) -> Result<HeaderValue, Error> {
    let mut value = HeaderValue::try_from(format!("Token {token}")).map_err(|_| {
        Error::Configuration("Buildkite handed out a token that no header can carry".to_owned())
    })?;
    value.set_sensitive(true);
    Ok(value)
}

/// The job's log: an open group with the message, line by line as terminals have it.
fn log(message: &str) -> String {
    let mut log = "+++ The job cannot run\r\n".to_owned();
    for line in message.lines() {
        log.push_str(line);
        log.push_str("\r\n");
    }
    log
}

fn gzip(text: &str) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    let written = encoder.write_all(text.as_bytes()).and_then(|()| encoder.finish());
    written.expect("memory takes what is written to it")
}

#[cfg(test)]
mod tests {
    use super::log;

    #[test]
    fn the_log_is_one_open_group_of_whole_lines() {
        assert_eq!(
            log("no such image\nlook there"),
            "+++ The job cannot run\r\nno such image\r\nlook there\r\n"
        );
    }
}
