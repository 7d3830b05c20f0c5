//! Agents at the Agent API: making them known, and acting for one with the access token that it was given.

use std::{fmt, io::Write as _};

use flate2::{Compression, write::GzEncoder};
use jiff::Timestamp;
use reqwest::{
    Method, RequestBuilder,
    header::{self, HeaderValue},
};
use secrecy::{ExposeSecret, SecretString};
use serde::Serialize;
use serde_json::Value;
use uuid::Uuid;

use crate::{
    agent::{AcquiredJob, ChunkPosition, FinishedJob, RegisteredAgent, StartJob},
    client::{self, decode, http_client, retry, send, usable},
    credentials::Credentials,
    error::Error,
};

/// Where in a log the last words of somebody begin who does not know how much the agent has sent: behind all that it is likely to have.
pub const LAST_WORDS: i64 = 1 << 29;

/// Agents number their chunks from 1, and none has so many.
const BEHIND_ALL: ChunkPosition = ChunkPosition { sequence: 1 << 24, offset: LAST_WORDS, size: 0 };

/// Registers agents with the agent token.
#[derive(Clone, Debug)]
pub struct Registrar {
    http: reqwest::Client,
    endpoint: String,
    credentials: Credentials,
}

/// What came of the wish to end a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finished {
    /// It has ended.
    Now,
    /// It cannot be ended: an agent has it, it has ended before, or it is unknown.
    Settled,
}

/// How a job ends.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct End {
    /// The exit status.
    pub exit_status: i32,
    /// The signal that ended it, such as `SIGKILL`; empty if none did.
    pub signal: String,
    /// Why, for retry rules, such as `agent_stop`; empty if there is nothing to say.
    pub signal_reason: String,
}

/// An agent that is registered, for whoever has its access token.
#[derive(Clone)]
pub struct Session {
    http: reqwest::Client,
    endpoint: String,
    token: HeaderValue,
}

impl fmt::Debug for Session {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Session").field("endpoint", &self.endpoint).finish_non_exhaustive()
    }
}

impl Registrar {
    /// Agents that register at this Agent API with this agent token.
    pub fn new(endpoint: &str, credentials: Credentials, user_agent: &str) -> Result<Self, Error> {
        let endpoint = usable(endpoint, client::DEFAULT_ENDPOINT)?;
        let http = http_client(&endpoint, user_agent)?;
        Ok(Self { http, endpoint, credentials })
    }

    /// The Agent API.
    pub fn endpoint(&self) -> &str {
        &self.endpoint
    }

    /// Registers an agent that describes itself like this, and answers in the service's own words. It is tried once: agents try again by themselves.
    pub async fn register(&self, agent: &impl Serialize) -> Result<Value, Error> {
        const ATTEMPT: &str = "register an agent with the agent token";
        let request = self.http.post(format!("{}/register", self.endpoint));
        let token = self.credentials.header();
        let request = request.header(header::AUTHORIZATION, token.clone()).json(agent);
        let answer = send(ATTEMPT, &self.endpoint, request).await;
        // What stands between us and the service may repeat what it was sent.
        let answer = answer.map_err(|error| error.without(&token))?;
        decode(ATTEMPT, &self.endpoint, answer).await
    }

    /// The same, tried again while it may help; what comes of it can act for the agent.
    pub async fn open(&self, agent: &impl Serialize) -> Result<Session, Error> {
        const ATTEMPT: &str = "register an agent with the agent token";
        let answer = retry(|| self.register(agent)).await?;
        let agent: RegisteredAgent =
            serde_json::from_value(answer).map_err(|source| Error::Decode { attempt: ATTEMPT, source })?;
        self.session(agent.endpoint.as_deref(), &agent.access_token.into())
    }

    /// Acts for an agent that was told to go on at `endpoint`, if it was told anything, with this access token.
    pub fn session(&self, endpoint: Option<&str>, token: &SecretString) -> Result<Session, Error> {
        let endpoint = endpoint.filter(|endpoint| !endpoint.is_empty()).unwrap_or(&self.endpoint);
        let endpoint = usable(endpoint, client::DEFAULT_ENDPOINT)?;
        Ok(Session { http: self.http.clone(), endpoint, token: bearer(token.expose_secret())? })
    }
}

impl Session {
    /// Says that the agent is there.
    pub(crate) async fn connect(&self) -> Result<(), Error> {
        self.call("connect the agent", Method::POST, "connect", None::<&()>).await
    }

    /// Takes a job; answers with who may act for it. Nothing if somebody else has it, or nobody may.
    pub(crate) async fn take(&self, job: Uuid) -> Result<Option<Self>, Error> {
        const ATTEMPT: &str = "acquire the job";
        let acquired = retry(|| async {
            let request = self.request(Method::PUT, &format!("jobs/{job}/acquire"));
            let request = request.header("X-Buildkite-Lock-Acquire-Job", "1");
            decode(ATTEMPT, &self.endpoint, send(ATTEMPT, &self.endpoint, request).await?).await
        });
        let acquired: AcquiredJob = match acquired.await {
            Ok(acquired) => acquired,
            Err(error) if error.is_settled() => {
                tracing::debug!(error = %bk_ops::report::one_line(&error), "the job is somebody else's by now");
                return Ok(None);
            }
            Err(error) => return Err(error),
        };
        let token = if acquired.token.is_empty() { self.token.clone() } else { bearer(&acquired.token)? };
        Ok(Some(Self { token, ..self.clone() }))
    }

    /// Says that a job has begun, and writes the first words into its log.
    pub(crate) async fn begin(&self, job: Uuid, words: &str) -> Result<(), Error> {
        let started = StartJob { started_at: Timestamp::now().to_string() };
        self.call("start the job", Method::PUT, &format!("jobs/{job}/start"), Some(&started)).await?;
        self.write(job, words, ChunkPosition { sequence: 1, offset: 0, size: 0 }).await
    }

    /// Writes the last words into the log of a job whose agent may have written before.
    pub async fn conclude(&self, job: Uuid, words: &str) -> Result<(), Error> {
        self.write(job, words, BEHIND_ALL).await
    }

    /// Ends a job that the agent has. If it has ended before, nothing changes. It is tried once: a repetition could not tell its own first try from
    /// somebody else's end.
    pub async fn finish(&self, job: Uuid, end: &End, chunks_failed_count: u64) -> Result<Finished, Error> {
        let finished = FinishedJob {
            exit_status: end.exit_status.to_string(),
            signal: end.signal.clone(),
            signal_reason: end.signal_reason.clone(),
            finished_at: Timestamp::now().to_string(),
            chunks_failed_count,
            ignore_agent_in_dispatches: true,
        };
        let request = self.request(Method::PUT, &format!("jobs/{job}/finish")).json(&finished);
        match send("finish the job", &self.endpoint, request).await {
            Ok(_) => Ok(Finished::Now),
            Err(error) if error.is_settled() || error.is_refusal() => {
                tracing::debug!(error = %bk_ops::report::one_line(&error), "Buildkite has settled the job already");
                Ok(Finished::Settled)
            }
            Err(error) => Err(error),
        }
    }

    /// Says that the agent is gone. Best effort: the service notices by itself after a while.
    pub async fn disconnect(&self) {
        let request = self.request(Method::POST, "disconnect");
        if let Err(error) = send("disconnect the agent", &self.endpoint, request).await {
            tracing::debug!(error = %bk_ops::report::one_line(&error), "the agent has not said goodbye");
        }
    }

    async fn write(&self, job: Uuid, words: &str, at: ChunkPosition) -> Result<(), Error> {
        const ATTEMPT: &str = "write the job's log";
        let size = i64::try_from(words.len()).unwrap_or(i64::MAX);
        let (position, body) = (ChunkPosition { size, ..at }, gzip(words));
        retry(|| async {
            let request = self.request(Method::POST, &format!("jobs/{job}/chunks")).query(&position);
            let request = request.header(header::CONTENT_TYPE, "text/plain");
            let request = request.header(header::CONTENT_ENCODING, "gzip").body(body.clone());
            send(ATTEMPT, &self.endpoint, request).await.map(drop)
        })
        .await
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

/// An open group of a job's log: its title, and what is in it line by line as terminals have it.
pub fn group(title: &str, message: &str) -> String {
    let mut log = format!("+++ {title}\r\n");
    for line in message.lines() {
        log.push_str(line);
        log.push_str("\r\n");
    }
    log
}

/// The header for a token that the service has handed out.
fn bearer(token: &str) -> Result<HeaderValue, Error> {
    let mut value = HeaderValue::try_from(format!("Token {token}")).map_err(|_| {
        Error::Configuration("Buildkite handed out a token that no header can carry".to_owned())
    })?;
    value.set_sensitive(true);
    Ok(value)
}

fn gzip(text: &str) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    let written = encoder.write_all(text.as_bytes()).and_then(|()| encoder.finish());
    written.expect("memory takes what is written to it")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_log_is_one_open_group_of_whole_lines() {
        assert_eq!(
            group("The job cannot run", "no such image\nlook there"),
            "+++ The job cannot run\r\nno such image\r\nlook there\r\n"
        );
    }

    #[test]
    fn sessions_do_not_print_their_tokens() {
        let session = Session {
            http: bk_ops::http::client("test", std::time::Duration::from_secs(1)).unwrap(),
            endpoint: "http://buildkite".to_owned(),
            token: bearer("secret").unwrap(),
        };
        assert_eq!(format!("{session:?}"), "Session { endpoint: \"http://buildkite\", .. }");
    }
}
