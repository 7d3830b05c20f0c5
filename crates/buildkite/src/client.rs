//! The client of the Stacks API.

use std::{collections::BTreeMap, time::Duration};

use backon::{ExponentialBuilder, Retryable};
use reqwest::{Method, RequestBuilder, Response, StatusCode, header};
use secrecy::{ExposeSecret, SecretString};
use serde::de::DeserializeOwned;
use uuid::Uuid;

use crate::{
    error::Error,
    stacks::{
        FinishJob, GetJobStates, JobStates, ListScheduledJobs, Notification, NotificationErrors,
        Notifications, RegisterStack, Reservation, ReserveJobs, ScheduledJobs, Stack, StackJob,
        TokenIdentity,
    },
};

/// Buildkite's own Agent API.
pub const DEFAULT_ENDPOINT: &str = "https://agent.buildkite.com/v3";

/// The longest pause between two tries of one call.
const LONGEST_DELAY: Duration = Duration::from_secs(5);

/// The longest pause that the service may ask for.
const LONGEST_ASKED: Duration = Duration::from_mins(5);

const REQUEST_TIMEOUT: Duration = Duration::from_mins(1);

/// A connection to one Buildkite cluster, authenticated by its registration token.
///
/// Calls that are repeated by their caller's own loop (list, reserve, notify) are tried once; the others are
/// retried a few times, honouring `Retry-After`.
#[derive(Clone, Debug)]
pub struct StacksClient {
    http: reqwest::Client,
    endpoint: String,
    /// Marked as sensitive, so that it is never printed.
    authorization: header::HeaderValue,
}

impl StacksClient {
    /// A client for the API at `endpoint`, e.g. [`DEFAULT_ENDPOINT`].
    #[allow(clippy::needless_pass_by_value, reason = "the caller has no use for the token any more")]
    pub fn new(endpoint: &str, token: SecretString, user_agent: &str) -> Result<Self, Error> {
        let endpoint = endpoint.trim_end_matches('/').to_owned();
        // `localhost:8080` is a URL as well, of the scheme `localhost`.
        if !reqwest::Url::parse(&endpoint).is_ok_and(|url| matches!(url.scheme(), "http" | "https")) {
            return Err(Error::Configuration(format!(
                "the Buildkite endpoint `{endpoint}` is not an HTTP URL; expected something like {DEFAULT_ENDPOINT}"
            )));
        }
        let authorization = authorization(token.expose_secret().trim()).map_err(Error::Configuration)?;
        let http = bk_ops::http::client(user_agent, REQUEST_TIMEOUT).map_err(|source| Error::Transport {
            attempt: "prepare the HTTP client",
            endpoint: endpoint.clone(),
            source,
        })?;
        Ok(Self { http, endpoint, authorization })
    }

    /// The API's base address.
    pub fn endpoint(&self) -> &str {
        &self.endpoint
    }

    /// Whom the token belongs to.
    pub async fn token_identity(&self) -> Result<TokenIdentity, Error> {
        const ATTEMPT: &str = "identify the agent token";
        retry(|| async { self.json(ATTEMPT, self.request(Method::GET, "token")).await }).await
    }

    /// Makes the stack known for its queue. Repeating it is harmless.
    pub async fn register(&self, stack: &RegisterStack) -> Result<Stack, Error> {
        const ATTEMPT: &str = "register the stack";
        retry(|| async {
            self.json(ATTEMPT, self.request(Method::POST, "stacks/register").json(stack)).await
        })
        .await
    }

    /// Says that the stack is gone.
    pub async fn deregister(&self, stack: &str) -> Result<(), Error> {
        let path = format!("stacks/{stack}/deregister");
        self.send("deregister the stack", self.request(Method::POST, &path)).await.map(drop)
    }

    /// One page of the jobs that wait in a queue.
    pub async fn scheduled_jobs(
        &self,
        stack: &str,
        query: &ListScheduledJobs,
    ) -> Result<ScheduledJobs, Error> {
        let path = format!("stacks/{stack}/scheduled-jobs");
        self.json("list scheduled jobs", self.request(Method::GET, &path).query(query)).await
    }

    /// Reserves jobs for this stack, or extends what it has reserved.
    pub async fn reserve(&self, stack: &str, request: &ReserveJobs) -> Result<Reservation, Error> {
        let path = format!("stacks/{stack}/scheduled-jobs/batch-reserve");
        self.json("reserve jobs", self.request(Method::PUT, &path).json(request)).await
    }

    /// A job's environment and command.
    pub async fn job(&self, stack: &str, job: Uuid) -> Result<StackJob, Error> {
        let path = format!("stacks/{stack}/jobs/{job}");
        retry(|| async { self.json("read the job", self.request(Method::GET, &path)).await }).await
    }

    /// The states of up to [`BATCH_MAX`](crate::stacks::BATCH_MAX) jobs; unknown ones are absent.
    pub async fn job_states(&self, stack: &str, jobs: &[Uuid]) -> Result<BTreeMap<Uuid, String>, Error> {
        let path = format!("stacks/{stack}/jobs/get-states");
        let body = GetJobStates { job_uuids: jobs.to_vec() };
        let states: JobStates =
            self.json("read job states", self.request(Method::POST, &path).json(&body)).await?;
        Ok(states.states)
    }

    /// Ends a job that no agent has taken.
    pub async fn finish(&self, stack: &str, job: Uuid, finish: &FinishJob) -> Result<(), Error> {
        let path = format!("stacks/{stack}/jobs/{job}/finish");
        retry(|| async {
            self.send("finish the job", self.request(Method::POST, &path).json(finish)).await.map(drop)
        })
        .await
    }

    /// Puts lines on jobs' timelines; answers with those that were refused.
    pub async fn notify(&self, stack: &str, items: Vec<Notification>) -> Result<NotificationErrors, Error> {
        let path = format!("stacks/{stack}/notifications");
        let body = Notifications { notifications: items };
        self.json("send notifications", self.request(Method::POST, &path).json(&body)).await
    }

    fn request(&self, method: Method, path: &str) -> RequestBuilder {
        self.http
            .request(method, format!("{}/{path}", self.endpoint))
            .header(header::AUTHORIZATION, self.authorization.clone())
            .header(header::ACCEPT, "application/json")
    }

    async fn json<T: DeserializeOwned>(
        &self,
        attempt: &'static str,
        request: RequestBuilder,
    ) -> Result<T, Error> {
        let body = self
            .send(attempt, request)
            .await?
            .bytes()
            .await
            .map_err(|source| self.transport(attempt, source))?;
        serde_json::from_slice(&body).map_err(|source| Error::Decode { attempt, source })
    }

    async fn send(&self, attempt: &'static str, request: RequestBuilder) -> Result<Response, Error> {
        let response = request.send().await.map_err(|source| self.transport(attempt, source))?;
        if response.status().is_success() {
            return Ok(response);
        }
        let status = response.status();
        let retry_after = retry_after(status, response.headers());
        let body = response.bytes().await.unwrap_or_default();
        Err(Error::Status { attempt, status, message: message(&body), retry_after })
    }

    fn transport(&self, attempt: &'static str, source: reqwest::Error) -> Error {
        // The address is in the message already, and once is enough.
        Error::Transport { attempt, endpoint: self.endpoint.clone(), source: source.without_url() }
    }
}

/// The header that carries the token, or what is wrong with the token.
fn authorization(token: &str) -> Result<header::HeaderValue, String> {
    if token.is_empty() {
        return Err("the Buildkite agent token is empty".to_owned());
    }
    let mut value = header::HeaderValue::try_from(format!("Token {token}"))
        .map_err(|_| "the Buildkite agent token has characters that no token has; is it cut or encoded?")?;
    value.set_sensitive(true);
    Ok(value)
}

/// Repeats a call while its failure is temporary, waiting as long as the service asks.
async fn retry<T, F, Fut>(call: F) -> Result<T, Error>
where
    F: FnMut() -> Fut,
    Fut: Future<Output = Result<T, Error>>,
{
    let backoff = ExponentialBuilder::default()
        .with_jitter()
        .with_min_delay(Duration::from_millis(200))
        .with_max_delay(LONGEST_DELAY)
        .with_max_times(5);
    call.retry(backoff)
        .when(Error::is_retryable)
        .adjust(|error, delay| match error.retry_after() {
            // A long wait is the caller's business: it has other work to do meanwhile.
            Some(asked) if asked > LONGEST_DELAY => None,
            asked => delay.map(|delay| asked.unwrap_or_default().max(delay)),
        })
        .notify(
            |error, delay| tracing::warn!(error = %bk_ops::report::one_line(error), ?delay, "trying again"),
        )
        .await
}

/// `Retry-After` in seconds; for a rate limit that does not send it, the end of its window. Every answer
/// carries the window, but only there does it say anything about when to try again.
fn retry_after(status: StatusCode, headers: &header::HeaderMap) -> Option<Duration> {
    let seconds = |name| headers.get(name)?.to_str().ok()?.parse::<f64>().ok();
    let window = || (status == StatusCode::TOO_MANY_REQUESTS).then(|| seconds("ratelimit-reset")).flatten();
    let asked = Duration::try_from_secs_f64(seconds("retry-after").or_else(window)?).ok()?;
    Some(asked.min(LONGEST_ASKED))
}

/// The `message` of an error body, or the beginning of whatever it is.
fn message(body: &[u8]) -> String {
    #[derive(serde::Deserialize)]
    struct Body {
        message: String,
    }
    match serde_json::from_slice::<Body>(body) {
        Ok(body) => body.message,
        Err(_) => crate::stacks::crop(String::from_utf8_lossy(body).trim(), 512),
    }
}
