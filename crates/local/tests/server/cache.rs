//! The cache registry.

use reqwest::Method;
use serde_json::{Value, json};

use crate::harness::{Answer, REGISTRATION, Rig};

async fn running() -> (Rig, String) {
    let rig = Rig::start().await;
    rig.build("steps: [{label: one, command: x}]").await;
    let id = rig.job_id("one").await;
    let (_, token) = rig.start_job(&id).await;
    (rig, token)
}

fn address(parts: &[(&str, bool)]) -> Value {
    let key: Vec<Value> =
        parts.iter().map(|(value, mandatory)| json!({"value": value, "mandatory": mandatory})).collect();
    json!({"target_paths": ["node_modules"], "cache_key": key})
}

fn entry(parts: &[(&str, bool)], digest: &str) -> Value {
    let mut entry = address(parts);
    entry["blobs"] =
        json!([{"digest": {"algorithm": "sha256", "value": digest}, "file_size": 3, "compression": "zip"}]);
    entry["platform"] = json!("linux/amd64");
    entry
}

async fn call(rig: &Rig, token: &str, method: Method, what: &str, body: Value) -> Answer {
    rig.v3(method, &format!("cache_registries/~/{what}"), token, Some(body)).await
}

#[tokio::test]
async fn an_entry_is_found_once_it_is_committed() {
    let (rig, token) = running().await;
    let registry = rig.v3(Method::GET, "cache_registries/~", &token, None).await.ok();
    assert_eq!((&registry["name"], &registry["store"]), (&json!("default"), &json!("agent_managed")));
    let key = [("v1", true), ("main", false)];
    let retrieve =
        async |key: &[(&str, bool)]| call(&rig, &token, Method::POST, "retrieve", address(key)).await;
    assert_eq!(
        call(&rig, &token, Method::POST, "peek", address(&key)).await.refused(404),
        "Cache entry not found"
    );
    let stored = call(&rig, &token, Method::PUT, "store", entry(&key, "abc")).await.ok();
    assert_eq!(retrieve(&key).await.refused(404), "Cache entry not found");
    let commit = json!({"upload_id": stored["upload_id"]});
    call(&rig, &token, Method::PUT, "commit", commit.clone()).await.ok();
    call(&rig, &token, Method::PUT, "commit", commit).await.ok();
    let found = retrieve(&key).await.ok();
    assert_eq!((&found["fallback"], &found["blobs"][0]["digest"]["value"]), (&json!(false), &json!("abc")));
    assert!(
        found["expires_at"].as_str().unwrap().parse::<jiff::Timestamp>().unwrap() > jiff::Timestamp::now()
    );
    call(&rig, &token, Method::POST, "peek", address(&key)).await.ok();
    // Another branch makes do with this one's, but has none of its own.
    let other = [("v1", true), ("feature", false)];
    let fallback = retrieve(&other).await.ok();
    assert_eq!((&fallback["fallback"], &fallback["cache_key"][1]["value"]), (&json!(true), &json!("main")));
    call(&rig, &token, Method::POST, "peek", address(&other)).await.refused(404);
    retrieve(&[("v2", true), ("main", false)]).await.refused(404);
    call(&rig, &token, Method::POST, "expire", address(&key)).await.ok();
    call(&rig, &token, Method::POST, "expire", address(&key)).await.ok();
    retrieve(&key).await.refused(404);
}

#[tokio::test]
async fn what_makes_no_sense_is_refused() {
    let (rig, token) = running().await;
    let key = [("a", true)];
    call(&rig, &token, Method::PUT, "store", address(&key)).await.refused(422);
    call(&rig, &token, Method::POST, "retrieve", json!({})).await.refused(422);
    call(&rig, &token, Method::POST, "peek", json!({"cache_key": "a"})).await.refused(422);
    call(&rig, &token, Method::PUT, "commit", json!({"upload_id": "x"})).await.refused(404);
    call(&rig, REGISTRATION, Method::POST, "peek", address(&key)).await.refused(401);
    let elsewhere = rig.v3(Method::GET, "cache_registries/elsewhere", &token, None).await;
    assert_eq!(elsewhere.refused(404), "Cache registry not found");
}
