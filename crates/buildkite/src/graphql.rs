//! The GraphQL API, as far as the jobs of an organisation are concerned: the way to jobs that are in no cluster.

use std::{
    collections::{BTreeMap, HashMap},
    fmt::Write as _,
};

use jiff::Timestamp;
use reqwest::{StatusCode, header};
use secrecy::SecretString;
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::{
    budget::Budget,
    client::{decode, http_client, send, usable},
    credentials::{Credentials, TokenKind},
    error::Error,
};

/// Buildkite's own GraphQL API.
pub const DEFAULT_ENDPOINT: &str = "https://graphql.buildkite.com/v1";

/// Jobs per page of a listing.
pub const PAGE: u32 = 100;

/// How many jobs one query asks about.
const BATCH: usize = 100;

/// What a listing costs besides its jobs, and each of these: every object counts, whatever is asked of it.
const LISTING_POINTS: u32 = 4;
const LISTED_POINTS: u32 = 3;

const SCHEDULED: &str = "query ScheduledJobs($organization: ID!, $rules: [String!], $first: Int!, $after: String) {
  organization(slug: $organization) {
    jobs(type: [COMMAND], state: [SCHEDULED], clustered: false, agentQueryRules: $rules, order: RECENTLY_ASSIGNED,
         first: $first, after: $after) {
      pageInfo { hasNextPage endCursor }
      edges { node { ... on JobTypeCommand { uuid agentQueryRules scheduledAt priority { number } pipeline { slug } } } }
    }
  }
}";

const JOB: &str = "query Job($uuid: ID!) {
  job(uuid: $uuid) { ... on JobTypeCommand { state command env } }
}";

/// A connection to the GraphQL API, authenticated by an API token. It keeps to the service's limits.
#[derive(Clone, Debug)]
pub struct GraphqlClient {
    http: reqwest::Client,
    endpoint: String,
    credentials: Credentials,
    budget: Budget,
}

/// Which jobs to list.
#[derive(Clone, Copy, Debug)]
pub struct Wanted<'a> {
    /// The organisation's slug.
    pub organization: &'a str,
    /// Rules that jobs must have; any job will do without.
    pub rules: Option<&'a [String]>,
    /// Cursor of the page before.
    pub after: Option<&'a str>,
}

/// One page of a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobsPage {
    /// Jobs that wait for an agent.
    pub jobs: Vec<ScheduledJob>,
    /// Where the next page begins, if there is one.
    pub next: Option<String>,
}

/// A job that waits for an agent.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ScheduledJob {
    /// The job's UUID.
    pub uuid: Uuid,
    /// `key=value` rules that whoever takes the job must satisfy.
    #[serde(default, deserialize_with = "null_is_default")]
    pub agent_query_rules: Vec<String>,
    /// When it was scheduled.
    pub scheduled_at: Option<Timestamp>,
    /// Higher goes first.
    #[serde(default, deserialize_with = "null_is_default")]
    pub priority: Priority,
    /// The job's pipeline, if the token may see it.
    pub pipeline: Option<PipelineSlug>,
}

/// A job's priority.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct Priority {
    /// None is 0.
    pub number: Option<i64>,
}

/// A pipeline as listings name it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct PipelineSlug {
    /// The pipeline's slug.
    pub slug: String,
}

/// A command job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandJob {
    /// Its state, spelt as the other APIs spell it.
    pub state: String,
    /// The step's command.
    pub command: String,
    /// The job's environment.
    pub env: BTreeMap<String, String>,
}

impl GraphqlClient {
    /// A client for the API at `endpoint`, e.g. [`DEFAULT_ENDPOINT`].
    #[allow(clippy::needless_pass_by_value, reason = "the caller has no use for the token any more")]
    pub fn new(endpoint: &str, token: SecretString, user_agent: &str) -> Result<Self, Error> {
        let endpoint = usable(endpoint, DEFAULT_ENDPOINT)?;
        let credentials = Credentials::new(TokenKind::Api, &token)?;
        let http = http_client(&endpoint, user_agent)?;
        Ok(Self { http, endpoint, credentials, budget: Budget::default() })
    }

    /// The token that calls are made with, to be replaced.
    pub fn credentials(&self) -> &Credentials {
        &self.credentials
    }

    /// One page of the jobs outside clusters that wait for an agent; nothing if there is no such organisation for this token.
    pub async fn scheduled_jobs(&self, wanted: Wanted<'_>) -> Result<Option<JobsPage>, Error> {
        const ATTEMPT: &str = "list scheduled jobs with the API token";
        let Wanted { organization, rules, after } = wanted;
        let variables =
            json!({ "organization": organization, "rules": rules, "first": PAGE, "after": after });
        self.budget.spend(LISTING_POINTS).await;
        let listing: Listing = self.query(ATTEMPT, SCHEDULED, variables).await?;
        let page = listing.organization.map(|organization| organization.jobs.unwrap_or_default().page());
        let listed = page.as_ref().map_or(0, |page| page.jobs.len());
        // What was found is paid for afterwards: the next query waits for it.
        self.budget.charge(LISTED_POINTS.saturating_mul(u32::try_from(listed).unwrap_or(u32::MAX)));
        Ok(page)
    }

    /// A command job; nothing if the service does not show it.
    pub async fn job(&self, job: Uuid) -> Result<Option<CommandJob>, Error> {
        const ATTEMPT: &str = "read the job with the API token";
        self.budget.spend_soon(1).await;
        let found: Job = self.query(ATTEMPT, JOB, json!({ "uuid": job })).await?;
        Ok(found.job.and_then(JobNode::command_job))
    }

    /// The states of jobs, spelt as the other APIs spell them; unknown ones are absent.
    pub async fn job_states(&self, jobs: &[Uuid]) -> Result<BTreeMap<Uuid, String>, Error> {
        const ATTEMPT: &str = "read job states with the API token";
        let mut states = BTreeMap::new();
        for batch in jobs.chunks(BATCH) {
            let points = u32::try_from(batch.len()).unwrap_or(u32::MAX);
            self.budget.spend(points).await;
            let mut answer: HashMap<String, Option<JobNode>> =
                self.query(ATTEMPT, &states_query(batch), Value::Null).await?;
            states.extend(batch.iter().enumerate().filter_map(|(index, job)| {
                let node = answer.remove(&format!("j{index}"))??;
                Some((*job, node.state?.to_ascii_lowercase()))
            }));
        }
        Ok(states)
    }

    async fn query<T: DeserializeOwned>(
        &self,
        attempt: &'static str,
        query: &str,
        variables: Value,
    ) -> Result<T, Error> {
        let request = self.http.post(&self.endpoint).header(header::AUTHORIZATION, self.credentials.header());
        let body = json!({ "query": query, "variables": variables });
        let response = send(attempt, &self.endpoint, request.json(&body)).await.inspect_err(|error| {
            if error.status() == Some(StatusCode::TOO_MANY_REQUESTS) {
                self.budget.exhausted(error.retry_after());
            }
        })?;
        answered(attempt, decode(attempt, &self.endpoint, response).await?)
    }
}

/// What a query was answered with. An answer in part is none.
fn answered<T: DeserializeOwned>(attempt: &'static str, answer: Answer) -> Result<T, Error> {
    let Answer { data, errors } = answer;
    match data {
        Some(data) if errors.is_empty() => {
            serde_json::from_value(data).map_err(|source| Error::Decode { attempt, source })
        }
        None if errors.is_empty() => Err(Error::Query { attempt, message: "nothing".to_owned() }),
        _ => Err(Error::Query { attempt, message: in_words(errors) }),
    }
}

/// The service's answer to a query.
#[derive(Deserialize)]
struct Answer {
    data: Option<Value>,
    #[serde(default)]
    errors: Vec<QueryError>,
}

/// Why a query was not answered.
#[derive(Debug, Deserialize)]
pub(crate) struct QueryError {
    message: String,
}

/// All that the service says.
pub(crate) fn in_words(errors: Vec<QueryError>) -> String {
    let messages: Vec<String> = errors.into_iter().map(|error| error.message).collect();
    crate::stacks::crop(&messages.join("; "), 512)
}

fn states_query(jobs: &[Uuid]) -> String {
    let mut query = "query JobStates {".to_owned();
    for (index, job) in jobs.iter().enumerate() {
        // Writing to a String cannot fail.
        let _written =
            write!(query, " j{index}: job(uuid: \"{job}\") {{ ... on JobTypeCommand {{ state }} }}");
    }
    query.push_str(" }");
    query
}

#[derive(Deserialize)]
struct Listing {
    organization: Option<Organization>,
}

#[derive(Deserialize)]
struct Organization {
    jobs: Option<Jobs>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Jobs {
    page_info: Option<PageInfo>,
    edges: Option<Vec<Option<Edge>>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PageInfo {
    has_next_page: bool,
    end_cursor: Option<String>,
}

#[derive(Deserialize)]
struct Edge {
    node: Option<ScheduledJob>,
}

impl Jobs {
    fn page(self) -> JobsPage {
        let edges = self.edges.unwrap_or_default();
        let jobs = edges.into_iter().flatten().filter_map(|edge| edge.node).collect();
        let next = self.page_info.filter(|info| info.has_next_page).and_then(|info| info.end_cursor);
        JobsPage { jobs, next }
    }
}

#[derive(Deserialize)]
struct Job {
    job: Option<JobNode>,
}

/// A job of any type; those that run nothing have no fields.
#[derive(Deserialize)]
struct JobNode {
    state: Option<String>,
    command: Option<String>,
    env: Option<Vec<String>>,
}

impl JobNode {
    fn command_job(self) -> Option<CommandJob> {
        let variables = self.env.unwrap_or_default();
        let pairs = variables.iter().filter_map(|variable| variable.split_once('='));
        Some(CommandJob {
            state: self.state?.to_ascii_lowercase(),
            command: self.command.unwrap_or_default(),
            env: pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect(),
        })
    }
}

fn null_is_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: serde::Deserializer<'de>,
    T: Default + Deserialize<'de>,
{
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}
