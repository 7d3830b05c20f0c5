//! What the Stacks API refuses, and how often it lets itself be called.

use reqwest::Method;
use rstest::rstest;
use serde_json::{Value, json};

use crate::harness::{API, Answer, REGISTRATION, Rig};

const LIST: &str = "stacks/mine/scheduled-jobs?queue_key=default";

async fn rig() -> Rig {
    let rig = Rig::start().await;
    register(&rig, stack()).await.ok();
    rig
}

fn stack() -> Value {
    json!({"key": "mine", "type": "custom", "queue_key": "default", "metadata": {}})
}

async fn register(rig: &Rig, stack: Value) -> Answer {
    rig.v3(Method::POST, "stacks/register", REGISTRATION, Some(stack)).await
}

fn with(field: &str, value: Value) -> Value {
    let mut stack = stack();
    stack[field] = value;
    stack
}

fn many(count: usize, key: usize, value: usize) -> Value {
    let entries = (0..count).map(|n| (format!("{n:0key$}"), json!("v".repeat(value))));
    Value::Object(entries.collect())
}

#[rstest]
#[case::longest_key(with("key", json!("k".repeat(80))), 201)]
#[case::long_key(with("key", json!("k".repeat(81))), 422)]
#[case::no_key(with("key", json!("")), 422)]
#[case::odd_key(with("key", json!("a.b")), 422)]
#[case::key_of_another_alphabet(with("key", json!("schlüssel")), 422)]
#[case::number_as_key(with("key", json!(7)), 422)]
#[case::kubernetes(with("type", json!("kubernetes")), 201)]
#[case::elastic(with("type", json!("elastic")), 201)]
#[case::unknown_type(with("type", json!("docker")), 422)]
#[case::no_queue(with("queue_key", json!("")), 422)]
#[case::missing_metadata(json!({"key": "mine", "type": "custom", "queue_key": "default"}), 422)]
#[case::null_metadata(with("metadata", Value::Null), 422)]
#[case::nested_metadata(with("metadata", json!({"a": {"b": "c"}})), 422)]
#[case::much_metadata(with("metadata", many(100, 64, 256)), 201)]
#[case::too_much_metadata(with("metadata", many(101, 3, 1)), 422)]
#[case::long_metadata_key(with("metadata", many(1, 65, 1)), 422)]
#[case::long_metadata_value(with("metadata", many(1, 1, 257)), 422)]
#[case::unknown_queue(with("queue_key", json!("small")), 404)]
#[case::known_queue(with("queue_key", json!("big")), 201)]
#[tokio::test]
async fn registering_is_checked(#[case] stack: Value, #[case] status: u16) {
    let rig = Rig::with(|config| config.queues = vec!["big".into()]).await;
    let answer = register(&rig, stack).await;
    if status < 300 {
        assert_eq!(answer.status, status, "{}", answer.body);
        assert_eq!(answer.body["state"], "connected");
    } else {
        answer.refused(status);
    }
}

#[rstest]
#[case("", 400)]
#[case("queue_key=default&limit=0", 400)]
#[case("queue_key=default&limit=1001", 400)]
#[case("queue_key=default&limit=x", 400)]
#[case("queue_key=default&limit=-1", 400)]
#[case("queue_key=default&after=x", 400)]
#[case("queue_key=default&after=-1-1", 400)]
#[case("queue_key=default&after=1-99999999999999999999", 400)]
#[case("queue_key=default&after=%F0%9F%92%A9", 400)]
#[case("queue_key=default&limit=1", 200)]
#[case("queue_key=default&limit=1000&after=", 200)]
#[case("queue_key=__default__", 200)]
#[tokio::test]
async fn listing_is_checked(#[case] query: &str, #[case] status: u16) {
    let rig = rig().await;
    let answer =
        rig.v3(Method::GET, &format!("stacks/mine/scheduled-jobs?{query}"), REGISTRATION, None).await;
    assert_eq!(answer.status, status, "{}", answer.body);
    assert!(status == 200 || answer.body["message"].is_string());
}

#[tokio::test]
async fn a_paused_queue_lists_nothing_and_says_so() {
    let rig = Rig::with(|config| config.faults = Some(buildkite_local::Faults::default())).await;
    register(&rig, stack()).await.ok();
    rig.build("steps: [{command: x}]").await;
    let set = async |what: &str| {
        let path = format!("/_faults/queues/default/{what}");
        rig.send(rig.request(Method::POST, &path).bearer_auth(API)).await.ok()
    };
    let state = async || {
        let page = rig.v3(Method::GET, LIST, REGISTRATION, None).await.ok();
        let queue = &page["cluster_queue"];
        (page["jobs"].as_array().unwrap().len(), queue["paused"].clone(), queue["dispatch_paused"].clone())
    };
    assert_eq!(state().await, (1, json!(false), json!(false)));
    set("pause").await;
    assert_eq!(state().await, (0, json!(true), json!(true)));
    set("resume").await;
    assert_eq!(state().await, (1, json!(false), json!(false)));
}

#[rstest]
#[case::shortest(json!(1), 200)]
#[case::longest(json!(3600), 200)]
#[case::null_is_the_default(Value::Null, 200)]
#[case::none(json!(0), 422)]
#[case::negative(json!(-1), 422)]
#[case::too_long(json!(3601), 422)]
#[case::text(json!("900"), 422)]
#[tokio::test]
async fn reservations_last_for_an_hour_at_most(#[case] seconds: Value, #[case] status: u16) {
    let rig = rig().await;
    let body = json!({"job_uuids": [], "reservation_expiry_seconds": seconds});
    let answer = rig.v3(Method::PUT, RESERVE, REGISTRATION, Some(body)).await;
    assert_eq!(answer.status, status, "{}", answer.body);
}

const RESERVE: &str = "stacks/mine/scheduled-jobs/batch-reserve";

#[tokio::test]
async fn what_is_no_job_is_not_reserved_and_has_no_state() {
    let rig = rig().await;
    rig.build("steps: [{label: one, command: x}]").await;
    let id = rig.job_id("one").await;
    let unknown = uuid::Uuid::now_v7().to_string();
    let body = json!({"job_uuids": ["nonsense", id, unknown, ""]});
    let answer = rig.v3(Method::PUT, RESERVE, REGISTRATION, Some(body.clone())).await.ok();
    assert_eq!(answer, json!({"reserved": [id], "not_reserved": ["nonsense", unknown, ""]}));
    let states = rig.v3(Method::POST, "stacks/mine/jobs/get-states", REGISTRATION, Some(body)).await.ok();
    assert_eq!(states, json!({"states": {id: "reserved"}}));
}

#[rstest]
#[case(Method::PUT, RESERVE, "job_uuids")]
#[case(Method::POST, "stacks/mine/jobs/get-states", "job_uuids")]
#[case(Method::POST, "stacks/mine/notifications", "notifications")]
#[tokio::test]
async fn batches_have_a_thousand_items_at_most(
    #[case] method: Method,
    #[case] path: &str,
    #[case] field: &str,
) {
    let rig = rig().await;
    for (count, status) in [(1000, 200), (1001, 422)] {
        let body = json!({field: vec!["x"; count]});
        let answer = rig.v3(method.clone(), path, REGISTRATION, Some(body)).await;
        assert_eq!(answer.status, status, "{count}: {}", answer.body);
    }
    rig.v3(method.clone(), path, REGISTRATION, Some(json!({}))).await.refused(422);
    rig.v3(method, path, REGISTRATION, Some(json!({field: 7}))).await.refused(422);
}

#[rstest]
#[case::longest(json!({"detail": "d".repeat(4096)}), 200)]
#[case::too_long(json!({"detail": "d".repeat(4097)}), 422)]
#[case::empty(json!({"detail": ""}), 422)]
#[case::missing(json!({}), 422)]
#[case::status_as_text(json!({"detail": "x", "exit_status": "1"}), 422)]
#[tokio::test]
async fn a_finish_says_why(#[case] body: Value, #[case] status: u16) {
    let rig = rig().await;
    rig.build("steps: [{label: one, command: x}]").await;
    let id = rig.job_id("one").await;
    let answer =
        rig.v3(Method::POST, &format!("stacks/mine/jobs/{id}/finish"), REGISTRATION, Some(body)).await;
    assert_eq!(answer.status, status, "{}", answer.body);
    if status == 200 {
        assert_eq!(rig.job("one").await["exit_status"], -1);
    }
}

#[tokio::test]
async fn a_job_takes_a_hundred_notifications() {
    let rig = rig().await;
    rig.build("steps: [{label: one, command: x}, {label: two, command: x}]").await;
    let (one, two) = (rig.job_id("one").await, rig.job_id("two").await);
    let mut items = vec![json!({"job_uuid": one, "detail": "d"}); 102];
    items.push(json!({"job_uuid": two, "detail": "ü".repeat(256)}));
    let body = json!({"notifications": items});
    let answer = rig.v3(Method::POST, "stacks/mine/notifications", REGISTRATION, Some(body)).await.ok();
    assert_eq!(answer["errors"].as_array().unwrap().len(), 1, "{answer}");
    assert_eq!(answer["errors"][0]["indexes"], json!([100, 101]));
    assert_eq!(rig.job("one").await["events"].as_array().unwrap().len(), 100);
}

#[rstest]
#[case::list(Method::GET, LIST, "list-scheduled-jobs", 10)]
#[case::reserve(Method::PUT, RESERVE, "batch-reserve", 10)]
#[case::states(Method::POST, "stacks/mine/jobs/get-states", "batch-load-job-states", 20)]
#[case::show(Method::GET, "stacks/mine/jobs/x", "show-job", 1000)]
#[case::finish(Method::POST, "stacks/mine/jobs/x/finish", "finish-job", 100)]
#[case::notify(Method::POST, "stacks/mine/notifications", "stack-notification", 200)]
#[case::register(Method::POST, "stacks/register", "default", 10)]
#[case::deregister(Method::POST, "stacks/mine/deregister", "default", 10)]
#[tokio::test]
async fn every_answer_tells_its_limit(
    #[case] method: Method,
    #[case] path: &str,
    #[case] scope: &str,
    #[case] limit: u32,
) {
    let rig = Rig::start().await;
    // Whether it is refused for its token, for the missing stack or for its body.
    for (token, left) in [("nonsense", limit), (REGISTRATION, limit - 1), (REGISTRATION, limit - 2)] {
        let answer = rig.v3(method.clone(), path, token, Some(json!([]))).await;
        assert!(answer.body["message"].is_string() && !answer.status.is_success(), "{answer:?}");
        let header = |name: &str| answer.headers[name].to_str().unwrap().to_owned();
        assert_eq!(header("RateLimit-Scope"), scope);
        assert_eq!(header("RateLimit-Limit"), limit.to_string());
        assert_eq!(header("RateLimit-Remaining"), left.to_string());
        assert_eq!(header("RateLimit-Reset"), "1");
    }
}

#[tokio::test]
async fn too_many_calls_are_refused_until_the_next_second() {
    let rig = rig().await;
    register(&rig, with("key", json!("other"))).await.ok();
    let call = async |path: &str| rig.v3(Method::GET, path, REGISTRATION, None).await;
    let mut refused = None;
    for _ in 0..40 {
        let answer = call(LIST).await;
        if answer.status == 429 {
            refused = Some(answer);
            break;
        }
        assert_eq!(answer.status, 200);
    }
    let refused = refused.expect("forty calls do not take four seconds");
    assert_eq!(refused.headers["Retry-After"], "1");
    assert_eq!(refused.headers["RateLimit-Remaining"], "0");
    let body = &refused.body;
    assert_eq!((&body["scope"], &body["limit"]), (&json!("list-scheduled-jobs"), &json!(10)));
    assert!(
        body["current"].as_u64().unwrap() > 10 && body["reset"] == 1 && body["message"].is_string(),
        "{body}"
    );
    // Neither other stacks nor other endpoints are concerned.
    assert_eq!(call("stacks/other/scheduled-jobs?queue_key=default").await.status, 200);
    let states = json!({"job_uuids": []});
    rig.v3(Method::POST, "stacks/mine/jobs/get-states", REGISTRATION, Some(states)).await.ok();
    tokio::time::sleep(std::time::Duration::from_secs(1)).await;
    assert_eq!(call(LIST).await.status, 200);
}

#[tokio::test]
async fn limits_are_told_but_not_enforced_when_they_are_off() {
    let rig = Rig::with(|config| config.rate_limits = false).await;
    register(&rig, stack()).await.ok();
    for _ in 0..30 {
        let answer = rig.v3(Method::GET, LIST, REGISTRATION, None).await;
        assert_eq!(answer.status, 200);
        assert_eq!(answer.headers["RateLimit-Limit"], "10");
    }
}
