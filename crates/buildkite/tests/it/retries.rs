//! What callers learn about when to call again.

use std::time::{Duration, Instant};

use bk_buildkite::stacks::{FinishJob, ListScheduledJobs, ReserveJobs};
use rstest::rstest;
use uuid::Uuid;
use wiremock::ResponseTemplate;

use super::{answering, client, requests};

const ASKED: Duration = Duration::from_millis(700);

#[rstest]
#[case::retry_after("retry-after", 429)]
#[case::retry_after_of_a_failure("retry-after", 503)]
#[case::end_of_the_rate_limits_window("ratelimit-reset", 429)]
#[tokio::test]
async fn the_service_says_when_to_try_again(#[case] header: &str, #[case] status: u16) {
    let wait = ASKED.as_secs_f64().to_string();
    let busy = ResponseTemplate::new(status).insert_header(header, wait.as_str());
    let server = answering([busy]).await;
    let error = client(&server).token_identity().await.unwrap_err();
    assert_eq!((error.is_retryable(), error.retry_after()), (true, Some(ASKED)));
}

/// Also those that are on their way, and callers that do not look at the answer.
#[tokio::test]
async fn a_service_that_wants_to_be_left_alone_is() {
    let busy = ResponseTemplate::new(429).insert_header("retry-after", "60");
    let server = answering([busy]).await;
    let client = client(&server);
    client.job("s", Uuid::nil()).await.unwrap_err();
    let error = client.job("s", Uuid::nil()).await.unwrap_err();
    assert_eq!(error.status().map(|status| status.as_u16()), Some(429));
    assert!(error.retry_after().is_some_and(|left| left > Duration::from_secs(50)), "{error:?}");
    assert_eq!(requests(&server).await, 1);
}

#[tokio::test]
async fn a_listing_that_succeeds_may_put_off_the_next() {
    let listing = ResponseTemplate::new(200).insert_header("retry-after", "7").set_body_json(
        serde_json::json!({ "jobs": [], "page_info": { "has_next_page": false }, "cluster_queue": {} }),
    );
    let server = answering([listing]).await;
    let query = ListScheduledJobs { queue_key: "q".to_owned(), limit: None, after: None };
    let page = client(&server).scheduled_jobs("s", &query).await.unwrap();
    assert_eq!(page.pause, Some(Duration::from_secs(7)));
}

#[tokio::test]
async fn retry_after_outranks_the_rate_limits_window() {
    let busy =
        ResponseTemplate::new(429).insert_header("retry-after", "3").insert_header("ratelimit-reset", "9");
    let server = answering([busy]).await;
    let query = ListScheduledJobs { queue_key: "q".to_owned(), limit: None, after: None };
    let error = client(&server).scheduled_jobs("s", &query).await.unwrap_err();
    assert_eq!(error.retry_after(), Some(Duration::from_secs(3)));
}

#[rstest]
#[case::the_window_of_a_failure(503, "ratelimit-reset", "0", None)]
#[case::a_very_long_wait(429, "retry-after", "86400", Some(300))]
#[case::an_outage_of_unknown_length(503, "retry-after", "86400", Some(20))]
#[tokio::test]
async fn a_wait_is_believed_within_reason(
    #[case] status: u16,
    #[case] header: &str,
    #[case] value: &str,
    #[case] expected: Option<u64>,
) {
    let server = answering([ResponseTemplate::new(status).insert_header(header, value)]).await;
    let query = ListScheduledJobs { queue_key: "q".to_owned(), limit: None, after: None };
    let error = client(&server).scheduled_jobs("s", &query).await.unwrap_err();
    assert_eq!(error.retry_after(), expected.map(Duration::from_secs));
}

/// Whatever the year is here.
#[tokio::test]
async fn a_date_is_understood_by_the_services_own_clock() {
    let busy = ResponseTemplate::new(429)
        .insert_header("date", "Sun, 15 Nov 2015 21:00:00 GMT")
        .insert_header("retry-after", "Sun, 15 Nov 2015 21:00:07 GMT");
    let server = answering([busy]).await;
    let query = ListScheduledJobs { queue_key: "q".to_owned(), limit: None, after: None };
    let error = client(&server).scheduled_jobs("s", &query).await.unwrap_err();
    assert_eq!(error.retry_after(), Some(Duration::from_secs(7)));
}

#[rstest]
#[case::a_date_in_the_past("Sun, 15 Nov 2020 21:00:00 GMT")]
#[case::nonsense("soon")]
#[case::negative("-1")]
#[case::endless("inf")]
#[tokio::test]
async fn a_wait_that_is_not_understood_is_ignored(#[case] wait: &str) {
    let server = answering([ResponseTemplate::new(429).insert_header("retry-after", wait)]).await;
    let error = client(&server).token_identity().await.unwrap_err();
    assert_eq!(error.retry_after(), None);
}

#[rstest]
#[case(400, false)]
#[case(401, false)]
#[case(403, false)]
#[case(404, true)]
#[case(409, false)]
#[case(422, true)]
#[tokio::test]
async fn a_refusal_is_final(#[case] status: u16, #[case] settled: bool) {
    let server = answering([ResponseTemplate::new(status)]).await;
    let finish = FinishJob { exit_status: -1, detail: "no image".to_owned() };
    let error = client(&server).finish("s", Uuid::nil(), &finish).await.unwrap_err();
    assert_eq!(error.status().map(|status| status.as_u16()), Some(status));
    assert_eq!((error.is_retryable(), error.is_settled()), (false, settled));
    assert_eq!(requests(&server).await, 1);
}

/// Their callers have loops of their own, and something better to do with the time.
#[tokio::test]
async fn calls_are_tried_once() {
    let server = answering([ResponseTemplate::new(503)]).await;
    let client = client(&server);
    let query = ListScheduledJobs { queue_key: "q".to_owned(), limit: None, after: None };
    let reserve = ReserveJobs { job_uuids: vec![Uuid::nil()], reservation_expiry_seconds: None };
    let finish = FinishJob { exit_status: -1, detail: "no image".to_owned() };
    let errors = [
        client.scheduled_jobs("s", &query).await.unwrap_err(),
        client.reserve("s", &reserve).await.unwrap_err(),
        client.job_states("s", &[Uuid::nil()]).await.unwrap_err(),
        client.notify("s", Vec::new()).await.unwrap_err(),
        client.deregister("s").await.unwrap_err(),
        client.token_identity().await.unwrap_err(),
        client.job("s", Uuid::nil()).await.unwrap_err(),
        client.finish("s", Uuid::nil(), &finish).await.unwrap_err(),
    ];
    assert!(errors.iter().all(bk_buildkite::Error::is_retryable), "{errors:?}");
    assert_eq!(requests(&server).await, errors.len());
}

#[tokio::test]
async fn a_limit_that_is_spent_is_not_overdrawn() {
    let spent = ResponseTemplate::new(200)
        .insert_header("ratelimit-remaining", "0")
        .insert_header("ratelimit-reset", "0.7")
        .set_body_json(serde_json::json!({ "states": {} }));
    let server = answering([spent]).await;
    let client = client(&server);
    let begin = Instant::now();
    client.job_states("s", &[]).await.unwrap();
    assert!(begin.elapsed() < ASKED, "the first call does not wait");
    client.job_states("s", &[]).await.unwrap();
    assert!(begin.elapsed() >= ASKED, "{:?}", begin.elapsed());
}
