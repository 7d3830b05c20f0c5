//! What is asked of the GraphQL API, and how its answers are understood.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use bk_buildkite::{
    GraphqlClient,
    graphql::{JobsPage, Wanted},
};
use rstest::rstest;
use serde_json::{Value, json};
use uuid::Uuid;
use wiremock::{MockServer, ResponseTemplate};

use super::{answering, requests};

const JOB: Uuid = Uuid::from_u128(0x0198_f0a0_0000_7000_8000_0000_0000_0001);
const TOKEN: &str = "bkua_hidden_123";

fn client(server: &MockServer) -> GraphqlClient {
    GraphqlClient::new(&format!("{}/v1", server.uri()), TOKEN.into(), "test").expect("a good configuration")
}

fn wanted(rules: &[String]) -> Wanted<'_> {
    Wanted { organization: "acme", rules: Some(rules), after: Some("c1") }
}

fn answer(body: Value) -> ResponseTemplate {
    ResponseTemplate::new(200).set_body_json(body)
}

async fn last(server: &MockServer) -> Value {
    let requests = server.received_requests().await.expect("requests are recorded");
    let request = requests.last().expect("a request was made");
    assert_eq!((request.method.as_str(), request.url.path()), ("POST", "/v1"));
    assert_eq!(request.headers["authorization"], format!("Bearer {TOKEN}"));
    serde_json::from_slice(&request.body).expect("a query is JSON")
}

#[tokio::test]
async fn jobs_are_listed_page_by_page() {
    let node = json!({
        "uuid": JOB, "agentQueryRules": ["queue=linux"], "scheduledAt": "2026-11-15T21:00:00Z", "priority": {"number": 3},
        "pipeline": {"slug": "rocket"},
    });
    let jobs = json!({"pageInfo": {"hasNextPage": true, "endCursor": "c2"}, "edges": [{"node": node}, {"node": null}, null]});
    let server = answering([answer(json!({"data": {"organization": {"jobs": jobs}}}))]).await;
    let rules = ["queue=linux".to_owned()];
    let JobsPage { jobs, next } = client(&server).scheduled_jobs(wanted(&rules)).await.unwrap().unwrap();
    assert_eq!(next.as_deref(), Some("c2"));
    assert_eq!(jobs.len(), 1);
    assert_eq!(
        (jobs[0].uuid, jobs[0].priority.number, &jobs[0].agent_query_rules[..]),
        (JOB, Some(3), &rules[..])
    );
    let sent = last(&server).await;
    let variables = json!({"organization": "acme", "rules": ["queue=linux"], "first": 100, "after": "c1"});
    assert_eq!(sent["variables"], variables);
    let query = sent["query"].as_str().unwrap();
    assert!(query.contains("state: [SCHEDULED]") && query.contains("clustered: false"), "{query}");
}

#[tokio::test]
async fn an_organisation_that_is_not_shown_is_nothing() {
    let server = answering([answer(json!({"data": {"organization": null}}))]).await;
    assert_eq!(client(&server).scheduled_jobs(wanted(&[])).await.unwrap(), None);
}

#[tokio::test]
async fn a_job_has_a_command_and_an_environment() {
    let job = json!({"state": "SCHEDULED", "command": "make", "env": ["A=1=2", "EMPTY=", "NOTHING"]});
    let server = answering([answer(json!({"data": {"job": job}}))]).await;
    let job = client(&server).job(JOB).await.unwrap().unwrap();
    assert_eq!((job.state.as_str(), job.command.as_str()), ("scheduled", "make"));
    let env = [("A", "1=2"), ("EMPTY", "")].map(|(name, value)| (name.to_owned(), value.to_owned()));
    assert_eq!(job.env, BTreeMap::from(env));
    assert_eq!(last(&server).await["variables"], json!({"uuid": JOB}));
}

#[rstest]
#[case::unknown(json!({"job": null}))]
#[case::of_another_type(json!({"job": {}}))]
#[tokio::test]
async fn what_runs_nothing_is_no_job(#[case] data: Value) {
    let server = answering([answer(json!({"data": data}))]).await;
    assert_eq!(client(&server).job(JOB).await.unwrap(), None);
}

#[tokio::test]
async fn states_are_asked_for_many_at_a_time() {
    let jobs: Vec<Uuid> = (0..150).map(Uuid::from_u128).collect();
    let first: Value = (0..100).map(|index| (format!("j{index}"), json!({"state": "RUNNING"}))).collect();
    let second = json!({"j0": {"state": "TIMED_OUT"}, "j1": null, "j2": {}});
    let server = answering([answer(json!({"data": first})), answer(json!({"data": second}))]).await;
    let states = client(&server).job_states(&jobs).await.unwrap();
    assert_eq!(requests(&server).await, 2);
    assert_eq!(
        (states.len(), states[&jobs[99]].as_str(), states[&jobs[100]].as_str()),
        (101, "running", "timed_out")
    );
    let query = last(&server).await["query"].as_str().unwrap().to_owned();
    assert!(query.contains(&format!("j49: job(uuid: \"{}\")", jobs[149])), "{query}");
}

#[rstest]
#[case::refused_token(
    ResponseTemplate::new(401).set_body_json(json!({"message": "Authentication required"})),
    "cannot list scheduled jobs with the API token: Buildkite answered 401 Unauthorized: Authentication required", false
)]
#[case::too_complex(
    answer(json!({"errors": [{"message": "Query has complexity of 3, which exceeds 2"}, {"message": "And so on"}]})),
    "cannot list scheduled jobs with the API token: Buildkite answered: Query has complexity of 3, which exceeds 2; And so on",
    true
)]
#[case::in_part(
    answer(json!({"data": {"organization": null}, "errors": [{"message": "Timed out"}]})),
    "cannot list scheduled jobs with the API token: Buildkite answered: Timed out", true
)]
#[case::nothing(answer(json!({})), "cannot list scheduled jobs with the API token: Buildkite answered: nothing", true)]
#[case::no_json(
    ResponseTemplate::new(200).set_body_string("<html>"),
    "cannot list scheduled jobs with the API token: Buildkite's answer is not understood", true
)]
#[tokio::test]
async fn failures_name_the_token_and_the_reason(
    #[case] response: ResponseTemplate,
    #[case] expected: &str,
    #[case] retryable: bool,
) {
    let server = answering([response]).await;
    let error = client(&server).scheduled_jobs(wanted(&[])).await.unwrap_err();
    assert_eq!((error.to_string().as_str(), error.is_retryable()), (expected, retryable));
    assert!(!super::in_full(&error).contains(TOKEN));
}

#[tokio::test]
async fn a_spent_limit_holds_all_queries_back() {
    let body = json!({"errors": [{"message": "Your organization has exceeded the limit of 20000 complexity points."}]});
    let spent = ResponseTemplate::new(429).set_body_json(body).insert_header("ratelimit-reset", "0.5");
    let server = answering([spent, answer(json!({"data": {"job": null}}))]).await;
    let (client, begin) = (client(&server), Instant::now());
    let error = client.scheduled_jobs(wanted(&[])).await.unwrap_err();
    assert!(error.to_string().ends_with("exceeded the limit of 20000 complexity points."), "{error}");
    assert_eq!(error.retry_after(), Some(Duration::from_millis(500)));
    assert_eq!(client.clone().job(JOB).await.unwrap(), None);
    assert!(begin.elapsed() >= Duration::from_millis(500), "{:?}", begin.elapsed());
}

#[rstest]
#[case(
    "graphql.buildkite.com/v1",
    TOKEN,
    "the Buildkite endpoint `graphql.buildkite.com/v1` is not an HTTP URL; expected something like https://graphql.buildkite.com/v1"
)]
#[case("https://example.com", "", "the Buildkite API token is empty")]
fn what_cannot_be_used_is_refused_with_advice(
    #[case] endpoint: &str,
    #[case] token: &str,
    #[case] expected: &str,
) {
    let error = GraphqlClient::new(endpoint, token.into(), "test").unwrap_err();
    assert_eq!(error.to_string(), expected);
}
