use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Value, json};

use super::*;
use crate::api_server::{ApiServer, Call, refusal};

const JOB: &str = "0198f0a0-0000-7000-8000-000000000001";

fn record(agent: &str, attempt: u32) -> SessionRecord {
    SessionRecord {
        build_job: "b".to_owned(),
        name: None,
        namespace: "ci".to_owned(),
        attempt,
        agent: agent.to_owned(),
        token: "t".to_owned(),
        endpoint: None,
        address: None,
    }
}

fn held(version: u64, records: &[(&str, SessionRecord)]) -> Value {
    let entry = |(job, record): &(&str, SessionRecord)| {
        ((*job).to_owned(), json!(ByteString(serde_json::to_vec(record).unwrap())))
    };
    let data: serde_json::Map<String, Value> = records.iter().map(entry).collect();
    json!({ "metadata": { "name": "s", "resourceVersion": version.to_string() }, "data": data })
}

fn start(server: &ApiServer) -> Sessions {
    Sessions::start(&server.cluster, "broker")
}

#[tokio::test]
async fn sessions_that_come_together_are_written_together_and_each_once() {
    let server = ApiServer::start(|call, before| match call.method.as_str() {
        "PATCH" => {
            let mut secret = call.body.clone();
            secret["metadata"]["resourceVersion"] = json!((before + 10).to_string());
            (200, secret)
        }
        _ => listed(1, &[]),
    })
    .await;
    let sessions = start(&server);
    // All of one Secret: their last characters add up to the same.
    let jobs = ["a", "b", "c"].map(|first| format!("{first}{}", &JOB[1..]));
    sessions.add(jobs[0].clone(), record("1", 0)).await.unwrap();
    let (one, two, again) = tokio::join!(
        sessions.add(jobs[1].clone(), record("2", 0)),
        sessions.add(jobs[2].clone(), record("3", 0)),
        sessions.add(jobs[0].clone(), record("4", 0)),
    );
    assert!(one.is_ok() && two.is_ok() && matches!(again, Err(NotKept::Used)));
    let writes = server.calls().into_iter().filter(|call| call.method == "PATCH").count();
    assert_eq!(writes, 2);
    sessions.add(jobs[0].clone(), record("5", 1)).await.unwrap();
    assert_eq!(sessions.get(&jobs[0]).unwrap().agent, "5", "another attempt takes its place");
    sessions.remove(&jobs[0], "another");
    assert!(sessions.get(&jobs[0]).is_some(), "of another BuildJob");
    sessions.remove(&jobs[0], "b");
    assert!(sessions.get(&jobs[0]).is_none());
    sessions.add(jobs[0].clone(), record("6", 2)).await.unwrap();
    let last = server.calls().into_iter().rfind(|call| call.method == "PATCH").unwrap();
    assert!(last.body["data"][&jobs[0]].is_string(), "it is not over any more: {}", last.body);
    assert_eq!(sessions.get(&jobs[0]).unwrap().agent, "6");
}

/// What the API server has, in a list.
fn listed(version: u64, records: &[(&str, SessionRecord)]) -> (u16, Value) {
    let metadata = json!({ "resourceVersion": version.to_string() });
    (200, json!({ "metadata": metadata, "items": [held(version, records)] }))
}

/// The API server has done it, and the answer was lost.
#[tokio::test]
async fn a_session_that_is_on_record_is_kept_whatever_was_answered() {
    let written = AtomicBool::new(false);
    let server = ApiServer::start(move |call, _| match call.method.as_str() {
        "PATCH" => {
            written.store(true, Ordering::Relaxed);
            refusal(500, "InternalError")
        }
        _ if !written.load(Ordering::Relaxed) => listed(6, &[]),
        _ => listed(7, &[(JOB, record("mine", 0))]),
    })
    .await;
    let sessions = start(&server);
    sessions.add(JOB.to_owned(), record("mine", 0)).await.unwrap();
    assert_eq!(sessions.get(JOB).unwrap().agent, "mine");
}

#[tokio::test]
async fn of_two_replicas_only_one_registers_an_attempt() {
    let server = ApiServer::start(|call, _| match call.method.as_str() {
        "PATCH" => refusal(409, "Conflict"),
        _ => listed(7, &[(JOB, record("other", 0))]),
    })
    .await;
    let sessions = start(&server);
    assert!(matches!(sessions.add(JOB.to_owned(), record("mine", 0)).await, Err(NotKept::Used)));
    assert_eq!(sessions.get(JOB).unwrap().agent, "other");
}

#[tokio::test]
async fn what_cannot_be_written_down_is_not_kept() {
    let server = ApiServer::start(|_, _| refusal(403, "Forbidden")).await;
    let sessions = start(&server);
    assert!(matches!(sessions.add(JOB.to_owned(), record("mine", 0)).await, Err(NotKept::Failed(_))));
    assert!(sessions.get(JOB).is_none());
}

#[test]
fn an_older_version_changes_nothing() {
    let secret = |version, records: &[_]| serde_json::from_value::<Secret>(held(version, records)).unwrap();
    let mut state = State::default();
    state.see(&secret(7, &[(JOB, record("new", 1))]));
    state.see(&secret(6, &[(JOB, record("old", 0))]));
    assert_eq!(state.records[JOB].agent, "new");
    state.over.insert(JOB.to_owned(), "new".to_owned());
    state.see(&secret(8, &[(JOB, record("new", 1))]));
    assert!(state.records.is_empty() && state.over.contains_key(JOB), "it is over, and still on record");
    state.see(&secret(9, &[]));
    assert!(state.over.is_empty());
    state.over.insert(JOB.to_owned(), "new".to_owned());
    state.see(&secret(10, &[(JOB, record("other", 2))]));
    assert!(state.records[JOB].agent == "other" && state.over.is_empty(), "another agent's is not over");
}

#[test]
fn a_session_without_room_is_not_forgotten_for_what_others_write() {
    let mut state = State::default();
    state.records.insert(JOB.to_owned(), record("roomless", 0));
    state.unwritten.insert(JOB.to_owned());
    let seen: Secret = serde_json::from_value(held(7, &[("other", record("other", 0))])).unwrap();
    state.see(&seen);
    assert_eq!((state.records[JOB].agent.as_str(), state.records.len()), ("roomless", 2));
    let seen: Secret = serde_json::from_value(held(8, &[(JOB, record("younger", 1))])).unwrap();
    state.see(&seen);
    assert_eq!((state.records[JOB].agent.as_str(), state.records.len()), ("younger", 1));
    assert!(state.unwritten.is_empty());
}

/// A cluster that was restored from a backup counts its versions from there.
#[tokio::test]
async fn what_is_there_counts_though_its_version_has_gone_back() {
    let server = ApiServer::start(|call, before| match call.method.as_str() {
        "PATCH" if call.body["metadata"]["resourceVersion"] == "3" => (200, held(4, &[])),
        "PATCH" => refusal(409, "Conflict"),
        _ if before == 0 => listed(700, &[("gone", record("gone", 0))]),
        _ => listed(3, &[]),
    })
    .await;
    let sessions = start(&server);
    sessions.shelf(JOB).lock().see(&serde_json::from_value(held(700, &[])).unwrap());
    sessions.add(JOB.to_owned(), record("mine", 0)).await.expect("it is on record");
    assert_eq!(sessions.get(JOB).unwrap().agent, "mine");
}

/// The second attempt at a job finds room that the first did not.
#[tokio::test]
async fn a_session_that_found_room_is_taken_out_when_it_is_over() {
    let server = ApiServer::start(|call, before| match call.method.as_str() {
        "PATCH" => (200, held(u64::try_from(before).unwrap() + 10, &[])),
        _ => listed(1, &[]),
    })
    .await;
    let sessions = start(&server);
    sessions.shelf(JOB).lock().unwritten.insert(JOB.to_owned());
    sessions.shelf(JOB).lock().records.insert(JOB.to_owned(), record("roomless", 0));
    sessions.add(JOB.to_owned(), record("written", 1)).await.expect("there is room");
    sessions.take_back(JOB, "b");
    let is_removal = |call: &Call| call.method == "PATCH" && call.body["data"][JOB].is_null();
    server.calls_when(|calls| calls.iter().any(is_removal)).await;
}

#[tokio::test]
async fn an_attempt_before_the_one_on_record_registers_nobody() {
    let server = ApiServer::start(|call, _| match call.method.as_str() {
        "PATCH" => refusal(409, "Conflict"),
        _ => listed(7, &[(JOB, record("second", 1))]),
    })
    .await;
    let sessions = start(&server);
    assert!(matches!(sessions.add(JOB.to_owned(), record("first", 0)).await, Err(NotKept::Used)));
    assert_eq!(sessions.get(JOB).unwrap().agent, "second");
}
