//! Tokens with which jobs prove who they are.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use reqwest::Method;
use ring::signature::{RSA_PKCS1_2048_8192_SHA256, RsaPublicKeyComponents};
use rstest::rstest;
use serde_json::{Value, json};

use crate::harness::{Answer, Rig};

const ONE: &str = "steps: [{label: one, key: deploy, command: x}]";

/// A server with a running job, and the job's id and token.
async fn running() -> (Rig, String, String) {
    let rig = Rig::start().await;
    rig.build(ONE).await;
    let id = rig.job_id("one").await;
    let (_, token) = rig.start_job(&id).await;
    (rig, id, token)
}

async fn request(rig: &Rig, id: &str, token: &str, body: Value) -> Answer {
    rig.v3(Method::POST, &format!("jobs/{id}/oidc/tokens"), token, Some(body)).await
}

fn decode(part: &str) -> Vec<u8> {
    URL_SAFE_NO_PAD.decode(part).unwrap()
}

/// The claims of a token whose signature holds with the key that the server publishes.
async fn verified(rig: &Rig, answer: Answer) -> Value {
    let token = answer.ok()["token"].as_str().unwrap().to_owned();
    let (message, signature) = token.rsplit_once('.').unwrap();
    let (header, claims) = message.split_once('.').unwrap();
    let header: Value = serde_json::from_slice(&decode(header)).unwrap();
    assert_eq!(header["alg"], "RS256");
    let about = rig.send(rig.request(Method::GET, "/.well-known/openid-configuration")).await.ok();
    assert_eq!(about["issuer"], rig.root);
    let jwks = about["jwks_uri"].as_str().unwrap().strip_prefix(&rig.root).unwrap();
    let keys = rig.send(rig.request(Method::GET, jwks)).await.ok();
    let key = keys["keys"].as_array().unwrap().iter().find(|key| key["kid"] == header["kid"]).unwrap();
    let key = RsaPublicKeyComponents {
        n: decode(key["n"].as_str().unwrap()),
        e: decode(key["e"].as_str().unwrap()),
    };
    key.verify(&RSA_PKCS1_2048_8192_SHA256, message.as_bytes(), &decode(signature)).unwrap();
    key.verify(&RSA_PKCS1_2048_8192_SHA256, b"something else", &decode(signature)).unwrap_err();
    serde_json::from_slice(&decode(claims)).unwrap()
}

#[tokio::test]
async fn a_token_says_which_job_has_it() {
    let (rig, id, token) = running().await;
    let answer = request(&rig, &id, &token, json!({})).await;
    let claims = verified(&rig, answer).await;
    assert_eq!(claims["iss"], rig.root);
    assert_eq!(claims["aud"], "https://buildkite.com/local");
    assert_eq!(claims["sub"], "organization:local:pipeline:demo:ref:refs/heads/main:commit:HEAD:step:deploy");
    assert_eq!(claims["exp"].as_i64().unwrap() - claims["iat"].as_i64().unwrap(), 300);
    assert_eq!(claims["nbf"], claims["iat"]);
    assert!((claims["iat"].as_i64().unwrap() - jiff::Timestamp::now().as_second()).abs() < 60);
    let rest = json!({
        "organization_slug": "local", "pipeline_slug": "demo", "build_number": 1, "build_branch": "main",
        "build_tag": null, "build_commit": "HEAD", "build_source": "api", "step_key": "deploy", "job_id": id,
        "runner_environment": "self-hosted",
    });
    for (name, value) in rest.as_object().unwrap() {
        assert_eq!(&claims[name], value, "{name}");
    }
    assert!(claims["agent_id"].is_string() && claims.get("pipeline_id").is_none());
}

#[tokio::test]
async fn a_job_may_ask_for_more() {
    let (rig, id, token) = running().await;
    let body = json!({
        "audience": "sts.amazonaws.com", "lifetime": 60, "subject_claim": "pipeline_id",
        "claims": ["organization_id", "queue_key", "agent_tag:queue", "agent_tag:none"],
        "aws_session_tags": ["pipeline_slug", "build_number", "pipeline_id", "build_tag"],
    });
    let answer = request(&rig, &id, &token, body).await;
    let claims = verified(&rig, answer).await;
    assert_eq!(claims["aud"], "sts.amazonaws.com");
    assert_eq!(claims["exp"].as_i64().unwrap() - claims["iat"].as_i64().unwrap(), 60);
    assert_eq!((&claims["queue_key"], &claims["agent_tag:queue"]), (&json!("default"), &json!("default")));
    assert!(claims["organization_id"].is_string() && claims.get("agent_tag:none").is_none());
    let tags = &claims["https://aws.amazon.com/tags"]["principal_tags"];
    assert_eq!(
        tags,
        &json!({"pipeline_slug": ["demo"], "build_number": ["1"], "pipeline_id": [claims["sub"]]})
    );
}

#[rstest]
#[case(json!({"claims": ["admin"]}), "admin")]
#[case(json!({"claims": ["agent_tag:"]}), "agent_tag:")]
#[case(json!({"aws_session_tags": ["sub"]}), "sub")]
#[case(json!({"subject_claim": "build_branch"}), "build_branch")]
#[case(json!({"lifetime": -1}), "-1")]
#[case(json!({"lifetime": 100_000_000}), "100000000")]
#[case(json!({"audience": "a\nb"}), "audience")]
#[tokio::test]
async fn what_cannot_be_claimed_is_refused(#[case] body: Value, #[case] named: &str) {
    let (rig, id, token) = running().await;
    let message = request(&rig, &id, &token, body).await.refused(422);
    assert!(message.contains(named), "{message}");
}

#[tokio::test]
async fn only_the_running_job_gets_a_token_and_the_key_is_kept() {
    let directory = tempfile::tempdir().unwrap();
    let database = directory.path().join("state.db");
    let keep = |config: &mut buildkite_local::Config| config.database = Some(database.clone());
    let rig = Rig::with(keep).await;
    rig.build("steps: [{label: one, command: x}, {label: two, command: x}]").await;
    let (one, two) = (rig.job_id("one").await, rig.job_id("two").await);
    let (_, token) = rig.start_job(&one).await;
    request(&rig, &two, &token, json!({})).await.refused(403);
    request(&rig, &one, "nonsense", json!({})).await.refused(401);
    request(&rig, &one, &token, json!({"lifetime": "long"})).await.refused(422);
    rig.finish_job(&one, &token, "0").await.ok();
    request(&rig, &one, &token, json!({})).await.refused(422);
    let keys = rig.send(rig.request(Method::GET, "/.well-known/jwks")).await.ok();
    rig.stop().await;
    let rig = Rig::with(keep).await;
    assert_eq!(rig.send(rig.request(Method::GET, "/.well-known/jwks")).await.ok(), keys);
}
