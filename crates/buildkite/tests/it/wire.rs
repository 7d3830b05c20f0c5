//! What goes over the wire.

use bk_buildkite::stacks::{FinishJob, ListScheduledJobs, Notification, RegisterStack, ReserveJobs};
use serde_json::{Value, json};
use uuid::Uuid;
use wiremock::{MockServer, ResponseTemplate};

use super::{answering, client};

const JOB: Uuid = Uuid::from_u128(0x0198_f0a0_0000_7000_8000_0000_0000_0001);

/// Method, path with query, and body of the last request.
async fn last(server: &MockServer) -> (String, String, Value) {
    let requests = server.received_requests().await.expect("requests are recorded");
    let request = requests.last().expect("a request was made");
    let query = request.url.query().map(|query| format!("?{query}")).unwrap_or_default();
    let path = format!("{}{query}", request.url.path());
    (request.method.to_string(), path, serde_json::from_slice(&request.body).unwrap_or_default())
}

fn sent(method: &str, path: &str, body: Value) -> (String, String, Value) {
    (method.to_owned(), path.to_owned(), body)
}

#[tokio::test]
async fn jobs_are_listed_page_by_page() {
    let page = json!({
        "jobs": [{
            "id": JOB, "priority": 3, "agent_query_rules": ["queue=linux"], "scheduled_at": "2026-11-15T21:00:00Z",
            "pipeline": { "slug": "rocket", "uuid": "p" }, "build": { "uuid": "b", "number": 7 }, "step": {},
        }],
        "page_info": { "has_next_page": true, "end_cursor": "c2" },
        "cluster_queue": { "id": "q", "dispatch_paused": true },
    });
    let server = answering([ResponseTemplate::new(200).set_body_json(page)]).await;
    let query =
        ListScheduledJobs { queue_key: "linux".to_owned(), limit: Some(50), after: Some("c1".to_owned()) };
    let jobs = client(&server).scheduled_jobs("ops", &query).await.unwrap();
    assert_eq!((jobs.jobs[0].id, jobs.jobs[0].priority, jobs.cluster_queue.is_paused()), (JOB, 3, true));
    assert_eq!(jobs.page_info.end_cursor.as_deref(), Some("c2"));
    let path = "/v3/stacks/ops/scheduled-jobs?queue_key=linux&limit=50&after=c1";
    assert_eq!(last(&server).await, sent("GET", path, Value::Null));
}

#[tokio::test]
async fn a_reservation_may_succeed_in_part() {
    let answer = json!({ "reserved": [JOB], "not_reserved": [Uuid::nil()] });
    let server = answering([ResponseTemplate::new(200).set_body_json(answer)]).await;
    let request = ReserveJobs { job_uuids: vec![JOB, Uuid::nil()], reservation_expiry_seconds: Some(900) };
    let reservation = client(&server).reserve("ops", &request).await.unwrap();
    assert_eq!((reservation.reserved, reservation.not_reserved), (vec![JOB], vec![Uuid::nil()]));
    let body = json!({ "job_uuids": [JOB, Uuid::nil()], "reservation_expiry_seconds": 900 });
    assert_eq!(last(&server).await, sent("PUT", "/v3/stacks/ops/scheduled-jobs/batch-reserve", body));
}

#[tokio::test]
async fn states_are_asked_for_in_one_call() {
    let answer = json!({ "states": { JOB.to_string(): "running" } });
    let server = answering([ResponseTemplate::new(200).set_body_json(answer)]).await;
    let states = client(&server).job_states("ops", &[JOB, Uuid::nil()]).await.unwrap();
    assert_eq!(states.get(&JOB).map(String::as_str), Some("running"));
    assert_eq!(states.get(&Uuid::nil()), None);
    let body = json!({ "job_uuids": [JOB, Uuid::nil()] });
    assert_eq!(last(&server).await, sent("POST", "/v3/stacks/ops/jobs/get-states", body));
}

/// The service takes a missing exit status for −1.
#[tokio::test]
async fn an_exit_status_of_0_is_sent() {
    let server = answering([ResponseTemplate::new(204)]).await;
    let finish = FinishJob { exit_status: 0, detail: "nothing to do".to_owned() };
    client(&server).finish("ops", JOB, &finish).await.unwrap();
    let body = json!({ "exit_status": 0, "detail": "nothing to do" });
    assert_eq!(last(&server).await, sent("POST", &format!("/v3/stacks/ops/jobs/{JOB}/finish"), body));
}

#[tokio::test]
async fn a_stack_registers_even_with_nothing_to_say_about_itself() {
    let answer = json!({ "id": "s", "cluster_queue_key": "linux", "key": "ops", "type": "kubernetes" });
    let server = answering([ResponseTemplate::new(200).set_body_json(answer)]).await;
    let stack = RegisterStack {
        key: "ops".to_owned(),
        kind: "kubernetes".to_owned(),
        queue_key: "_default".to_owned(),
        metadata: std::collections::BTreeMap::new(),
    };
    assert_eq!(client(&server).register(&stack).await.unwrap().cluster_queue_key, "linux");
    let body = json!({ "key": "ops", "type": "kubernetes", "queue_key": "_default", "metadata": {} });
    assert_eq!(last(&server).await, sent("POST", "/v3/stacks/register", body));
}

#[tokio::test]
async fn refused_notifications_are_reported() {
    let answer = json!({ "errors": [{ "error": "too long", "indexes": [0] }] });
    let server = answering([ResponseTemplate::new(200).set_body_json(answer)]).await;
    let item = Notification { job_uuid: JOB, detail: "lost".to_owned(), timestamp: None };
    let refused = client(&server).notify("ops", vec![item]).await.unwrap();
    assert_eq!((refused.errors[0].error.as_str(), refused.errors[0].indexes[0]), ("too long", 0));
    let body = json!({ "notifications": [{ "job_uuid": JOB, "detail": "lost" }] });
    assert_eq!(last(&server).await, sent("POST", "/v3/stacks/ops/notifications", body));
}
