//! The client of the Stacks API.

use std::{collections::BTreeMap, time::Duration};

use backon::{ExponentialBuilder, Retryable};
use jiff::fmt::rfc2822;
use reqwest::{Method, RequestBuilder, Response, StatusCode, header};
use secrecy::SecretString;
use serde::{Serialize, de::DeserializeOwned};
use uuid::Uuid;

use crate::{
    credentials::{Credentials, TokenKind},
    error::Error,
    gate::{Call, Gates},
    graphql::{self, QueryError},
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

/// The longest pause that it may ask for when it is not a rate limit that is spent.
const LONGEST_OUTAGE: Duration = Duration::from_secs(20);

/// How long an answer may take. What hangs is better asked again.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(15);

/// A connection to one Buildkite cluster, authenticated by its registration token.
///
/// Each call is tried once: callers have loops of their own. All of them keep to the service's limits.
#[derive(Clone, Debug)]
pub struct StacksClient {
    http: reqwest::Client,
    endpoint: String,
    credentials: Credentials,
    gates: Gates,
}

impl StacksClient {
    /// A client for the API at `endpoint`, e.g. [`DEFAULT_ENDPOINT`].
    #[allow(clippy::needless_pass_by_value, reason = "the caller has no use for the token any more")]
    pub fn new(endpoint: &str, token: SecretString, user_agent: &str) -> Result<Self, Error> {
        let endpoint = usable(endpoint, DEFAULT_ENDPOINT)?;
        let credentials = Credentials::new(TokenKind::Agent, &token)?;
        let http = http_client(&endpoint, user_agent)?;
        Ok(Self { http, endpoint, credentials, gates: Gates::default() })
    }

    /// The API's base address.
    pub fn endpoint(&self) -> &str {
        &self.endpoint
    }

    /// The token that calls are made with, to be replaced.
    pub fn credentials(&self) -> &Credentials {
        &self.credentials
    }

    /// Whom the token belongs to.
    pub async fn token_identity(&self) -> Result<TokenIdentity, Error> {
        const ATTEMPT: &str = "identify the agent token";
        self.json(ATTEMPT, self.get("token")).await
    }

    /// Makes the stack known for its queue. Repeating it is harmless.
    pub async fn register(&self, stack: &RegisterStack) -> Result<Stack, Error> {
        const ATTEMPT: &str = "register the stack";
        self.json(ATTEMPT, self.post("stacks/register").json(stack)).await
    }

    /// Says that the stack is gone.
    pub async fn deregister(&self, stack: &str) -> Result<(), Error> {
        let request = self.post(&format!("stacks/{stack}/deregister"));
        self.send("deregister the stack", request.of(stack, Call::Other)).await.map(drop)
    }

    /// One page of the jobs that wait in a queue.
    pub async fn scheduled_jobs(
        &self,
        stack: &str,
        query: &ListScheduledJobs,
    ) -> Result<ScheduledJobs, Error> {
        const ATTEMPT: &str = "list scheduled jobs";
        let request = self.get(&format!("stacks/{stack}/scheduled-jobs")).query(query);
        let response = self.send(ATTEMPT, request.of(stack, Call::List)).await?;
        let pause = retry_after(response.status(), response.headers());
        let page: ScheduledJobs = decode(ATTEMPT, &self.endpoint, response).await?;
        Ok(ScheduledJobs { pause, ..page })
    }

    /// Reserves jobs for this stack, or extends what it has reserved.
    pub async fn reserve(&self, stack: &str, request: &ReserveJobs) -> Result<Reservation, Error> {
        let path = format!("stacks/{stack}/scheduled-jobs/batch-reserve");
        let request = self.request(Method::PUT, &path).json(request);
        self.json("reserve jobs", request.of(stack, Call::Reserve)).await
    }

    /// A job's environment and command.
    pub async fn job(&self, stack: &str, job: Uuid) -> Result<StackJob, Error> {
        let path = format!("stacks/{stack}/jobs/{job}");
        self.json("read the job", self.get(&path).of(stack, Call::Show)).await
    }

    /// The states of up to [`BATCH_MAX`](crate::stacks::BATCH_MAX) jobs; unknown ones are absent.
    pub async fn job_states(&self, stack: &str, jobs: &[Uuid]) -> Result<BTreeMap<Uuid, String>, Error> {
        let body = GetJobStates { job_uuids: jobs.to_vec() };
        let request = self.post(&format!("stacks/{stack}/jobs/get-states")).json(&body);
        let states: JobStates = self.json("read job states", request.of(stack, Call::States)).await?;
        Ok(states.states)
    }

    /// Ends a job that no agent has taken.
    pub async fn finish(&self, stack: &str, job: Uuid, finish: &FinishJob) -> Result<(), Error> {
        let path = format!("stacks/{stack}/jobs/{job}/finish");
        let request = self.post(&path).json(finish).of(stack, Call::Finish);
        self.send("finish the job", request).await.map(drop)
    }

    /// Puts lines on jobs' timelines; answers with those that were refused.
    pub async fn notify(&self, stack: &str, items: Vec<Notification>) -> Result<NotificationErrors, Error> {
        let body = Notifications { notifications: items };
        let request = self.post(&format!("stacks/{stack}/notifications")).json(&body);
        self.json("send notifications", request.of(stack, Call::Notify)).await
    }

    fn get(&self, path: &str) -> Request {
        self.request(Method::GET, path)
    }

    fn post(&self, path: &str) -> Request {
        self.request(Method::POST, path)
    }

    fn request(&self, method: Method, path: &str) -> Request {
        let request = self.http.request(method, format!("{}/{path}", self.endpoint));
        Request { http: request.header(header::ACCEPT, "application/json"), limited: None }
    }

    async fn json<T: DeserializeOwned>(&self, attempt: &'static str, request: Request) -> Result<T, Error> {
        decode(attempt, &self.endpoint, self.send(attempt, request).await?).await
    }

    /// Makes a call, within the service's limits. If its token is refused and there is a newer one by then, once more with that.
    async fn send(&self, attempt: &'static str, request: Request) -> Result<Response, Error> {
        let Request { http: request, limited } = request;
        let once_more = request.try_clone();
        let token = self.credentials.header();
        let refusal = match self.send_with(attempt, request, limited.as_ref(), token.clone()).await {
            Err(error) if error.status() == Some(StatusCode::UNAUTHORIZED) => error,
            outcome => return outcome,
        };
        let newer = self.credentials.header();
        match once_more.filter(|_| newer != token) {
            Some(request) => self.send_with(attempt, request, limited.as_ref(), newer).await,
            None => Err(refusal),
        }
    }

    async fn send_with(
        &self,
        attempt: &'static str,
        request: RequestBuilder,
        limited: Option<&(String, Call)>,
        token: header::HeaderValue,
    ) -> Result<Response, Error> {
        if let Some((stack, call)) = limited {
            self.gates.pass(stack, *call).await.map_err(|left| Error::Status {
                attempt,
                status: StatusCode::TOO_MANY_REQUESTS,
                message: "it is to be left alone for a while, as it said before".to_owned(),
                retry_after: Some(left),
            })?;
        }
        let request = request.header(header::AUTHORIZATION, token);
        let response = request.send().await.map_err(|source| transport(attempt, &self.endpoint, source))?;
        let status = response.status();
        if let Some((stack, call)) = limited {
            let headers = response.headers();
            self.gates.learn(stack, *call, status, headers, retry_after(status, headers));
        }
        success(attempt, response).await
    }
}

/// A call that is not made yet.
struct Request {
    http: RequestBuilder,
    /// The stack and the kind of call that it counts for.
    limited: Option<(String, Call)>,
}

impl Request {
    fn json(self, body: &impl Serialize) -> Self {
        Self { http: self.http.json(body), ..self }
    }

    fn query(self, query: &impl Serialize) -> Self {
        Self { http: self.http.query(query), ..self }
    }

    fn of(self, stack: &str, call: Call) -> Self {
        Self { limited: Some((stack.to_owned(), call)), ..self }
    }
}

/// An endpoint as it is used, or what is wrong with it.
pub(crate) fn usable(endpoint: &str, example: &str) -> Result<String, Error> {
    let endpoint = endpoint.trim_end_matches('/');
    // `localhost:8080` is a URL as well, of the scheme `localhost`.
    if !reqwest::Url::parse(endpoint).is_ok_and(|url| matches!(url.scheme(), "http" | "https")) {
        return Err(Error::Configuration(format!(
            "the Buildkite endpoint `{endpoint}` is not an HTTP URL; expected something like {example}"
        )));
    }
    Ok(endpoint.to_owned())
}

/// What calls to an endpoint are made with.
pub(crate) fn http_client(endpoint: &str, user_agent: &str) -> Result<reqwest::Client, Error> {
    bk_ops::http::client(user_agent, REQUEST_TIMEOUT).map_err(|source| Error::Transport {
        attempt: "prepare the HTTP client",
        endpoint: endpoint.to_owned(),
        source,
    })
}

/// Makes a call; its answer if it is a good one.
pub(crate) async fn send(
    attempt: &'static str,
    endpoint: &str,
    request: RequestBuilder,
) -> Result<Response, Error> {
    let response = request.send().await.map_err(|source| transport(attempt, endpoint, source))?;
    success(attempt, response).await
}

/// What an answer says.
pub(crate) async fn decode<T: DeserializeOwned>(
    attempt: &'static str,
    endpoint: &str,
    response: Response,
) -> Result<T, Error> {
    let body = response.bytes().await.map_err(|source| transport(attempt, endpoint, source))?;
    serde_json::from_slice(&body).map_err(|source| Error::Decode { attempt, source })
}

/// There was no whole answer.
fn transport(attempt: &'static str, endpoint: &str, source: reqwest::Error) -> Error {
    // The address is in the message already, and once is enough.
    Error::Transport { attempt, endpoint: endpoint.to_owned(), source: source.without_url() }
}

/// The answer if it is a good one, or else what it says.
async fn success(attempt: &'static str, response: Response) -> Result<Response, Error> {
    let status = response.status();
    if status.is_success() {
        return Ok(response);
    }
    let retry_after = retry_after(status, response.headers());
    let body = response.bytes().await.unwrap_or_default();
    Err(Error::Status { attempt, status, message: message(&body), retry_after })
}

/// Repeats a call while its failure is temporary, waiting as long as the service asks.
pub(crate) async fn retry<T, F, Fut>(call: F) -> Result<T, Error>
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

/// What `Retry-After` asks for; for a rate limit that does not send it, the end of its window. Every answer
/// carries the window, but only there does it say anything about when to try again.
fn retry_after(status: StatusCode, headers: &header::HeaderMap) -> Option<Duration> {
    let text = |name: &str| headers.get(name)?.to_str().ok();
    let seconds = |name: &str| Duration::try_from_secs_f64(text(name)?.parse().ok()?).ok();
    let time = |name: &str| Some(rfc2822::parse(text(name)?).ok()?.timestamp());
    // The service's times are compared with each other only: clocks differ.
    let until = || Duration::try_from(time("retry-after")? - time("date")?).ok();
    let refused = status == StatusCode::TOO_MANY_REQUESTS;
    let window = || refused.then(|| seconds("ratelimit-reset")).flatten();
    let asked = seconds("retry-after").or_else(until).or_else(window)?;
    // A service that is down does not know when it will be back.
    Some(asked.min(if refused { LONGEST_ASKED } else { LONGEST_OUTAGE }))
}

/// The `message` of an error body, or the beginning of whatever it is.
fn message(body: &[u8]) -> String {
    #[derive(serde::Deserialize)]
    struct Body {
        message: Option<String>,
        #[serde(default)]
        errors: Vec<QueryError>,
    }
    match serde_json::from_slice(body) {
        Ok(Body { message: Some(message), .. }) => crate::stacks::crop(&message, 512),
        Ok(Body { errors, .. }) if !errors.is_empty() => graphql::in_words(errors),
        _ => crate::stacks::crop(String::from_utf8_lossy(body).trim(), 512),
    }
}
