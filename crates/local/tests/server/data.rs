//! The limits of meta-data, annotations and log chunks.

use reqwest::Method;
use rstest::rstest;
use serde_json::{Value, json};

use crate::harness::Rig;

async fn running() -> (Rig, String, String) {
    let rig = Rig::start().await;
    rig.build("steps: [{label: one, command: x}]").await;
    let id = rig.job_id("one").await;
    let (_, token) = rig.start_job(&id).await;
    (rig, id, token)
}

#[rstest]
#[case(json!({"body": "x", "style": "loud"}), "loud")]
#[case(json!({"body": "x", "priority": 0}), "priority 0")]
#[case(json!({"body": "x", "priority": 11}), "priority 11")]
#[case(json!({"body": "x", "scope": "pipeline"}), "pipeline")]
#[case(json!({"body": "x".repeat(1024 * 1024 + 1)}), "1 MiB")]
#[tokio::test]
async fn annotations_have_limits(#[case] body: Value, #[case] named: &str) {
    let (rig, id, token) = running().await;
    let path = format!("jobs/{id}/annotations");
    let message = rig.v3(Method::POST, &path, &token, Some(body)).await.refused(422);
    assert!(message.contains(named), "{message}");
}

#[tokio::test]
async fn appending_adds_up_to_the_limit() {
    let (rig, id, token) = running().await;
    let path = format!("jobs/{id}/annotations");
    let append = async |body: String| {
        let body = json!({"body": body, "append": true, "style": "info", "priority": 10});
        rig.v3(Method::POST, &path, &token, Some(body)).await
    };
    append("half".repeat(128 * 1024)).await.ok();
    append("half".repeat(128 * 1024)).await.ok();
    append("!".to_owned()).await.refused(422);
    let removal = format!("{path}/default");
    rig.v3(Method::DELETE, &removal, &token, None).await.ok();
    rig.v3(Method::DELETE, &removal, &token, None).await.refused(404);
    append("!".to_owned()).await.ok();
}

#[tokio::test]
async fn meta_data_values_have_a_limit_and_keys_are_sorted() {
    let (rig, id, token) = running().await;
    let set = async |key: &str, value: String| {
        let body = json!({"key": key, "value": value});
        rig.v3(Method::POST, &format!("jobs/{id}/data/set"), &token, Some(body)).await
    };
    set("z", "x".repeat(100 * 1024)).await.ok();
    set("z", "x".repeat(100 * 1024 + 1)).await.refused(422);
    set("", "x".to_owned()).await.refused(422);
    set("a", String::new()).await.ok();
    let batch = json!({"items": [{"key": "b", "value": "1"}, {"key": "", "value": "2"}]});
    rig.v3(Method::POST, &format!("jobs/{id}/data/set-batch"), &token, Some(batch)).await.refused(422);
    let keys = rig.v3(Method::POST, &format!("jobs/{id}/data/keys"), &token, None).await.ok();
    assert_eq!(keys, json!(["a", "z"]));
}

#[tokio::test]
async fn chunks_are_gzipped_text() {
    let (rig, id, token) = running().await;
    let send = async |kind: &str| {
        let request = rig
            .request(Method::POST, &format!("/v3/jobs/{id}/chunks?sequence=1&offset=0&size=5"))
            .header("Authorization", format!("Token {token}"))
            .header("Content-Type", kind)
            .header("Content-Encoding", "gzip")
            .body("hello");
        rig.send(request).await
    };
    assert!(send("application/json").await.refused(415).contains("text/plain"));
    send("text/plain; charset=utf-8").await.refused(400);
}
