//! Faults on demand, seen from outside.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use buildkite_local::{Action, Fault, Faults};
use reqwest::Method;
use rstest::rstest;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::harness::{API, Answer, REGISTRATION, Rig};

const ONE: &str = "steps: [{label: one, command: x}]";

async fn rig() -> Rig {
    Rig::with(|config| config.faults = Some(Faults::default())).await
}

impl Rig {
    async fn faults(&self, method: Method, path: &str, body: Option<Value>) -> Answer {
        let mut request = self.request(method, &format!("/_faults{path}")).bearer_auth(API);
        if let Some(body) = body {
            request = request.json(&body);
        }
        self.send(request).await
    }

    async fn fault(&self, fault: Value) {
        assert_eq!(self.faults(Method::POST, "", Some(fault)).await.status, 201);
    }

    /// Sends a ping on a connection of its own; returns every byte that comes back until the connection ends.
    async fn raw_ping(&self, token: &str) -> String {
        let address: SocketAddr = self.root.trim_start_matches("http://").parse().unwrap();
        let mut stream = TcpStream::connect(address).await.unwrap();
        let text = format!(
            "GET /v3/ping HTTP/1.1\r\nHost: {address}\r\nAuthorization: Token {token}\r\nConnection: close\r\n\r\n"
        );
        stream.write_all(text.as_bytes()).await.unwrap();
        let mut bytes = Vec::new();
        // A reset instead of an orderly end is as good: what came before it counts.
        let _reset = stream.read_to_end(&mut bytes).await;
        String::from_utf8(bytes).unwrap()
    }
}

#[tokio::test]
async fn without_the_setting_there_is_no_such_thing() {
    let rig = Rig::start().await;
    for path in ["", "/1", "/token/rotate", "/reservations/expire", "/queues/default/pause"] {
        rig.faults(Method::POST, path, Some(json!({}))).await.refused(404);
    }
}

#[tokio::test]
async fn only_the_api_token_sets_faults() {
    let rig = rig().await;
    let fault = json!({"path": "/v3/ping", "action": "close"});
    for token in [REGISTRATION, "nonsense"] {
        rig.send(rig.request(Method::POST, "/_faults").bearer_auth(token).json(&fault)).await.refused(401);
    }
    rig.send(rig.request(Method::POST, "/_faults").json(&fault)).await.refused(401);
    assert_eq!(rig.faults(Method::GET, "", None).await.ok(), json!([]));
}

#[tokio::test]
async fn an_answer_is_given_so_many_times_with_its_headers() {
    let rig = rig().await;
    let access = rig.agent().await;
    let answer = json!({"status": 429, "body": {"message": "slow down"}, "headers": {"Retry-After": "7"}});
    rig.fault(
        json!({"method": "GET", "path": "/v3/ping", "action": {"answer": answer}, "skip": 1, "times": 2}),
    )
    .await;
    let mut statuses = Vec::new();
    for _ in 0..4 {
        let got = rig.v3(Method::GET, "ping", &access, None).await;
        if got.status == 429 {
            assert_eq!(
                (&got.headers["retry-after"], &got.body["message"]),
                (&"7".parse().unwrap(), &json!("slow down"))
            );
        }
        statuses.push(got.status.as_u16());
    }
    assert_eq!(statuses, [200, 429, 429, 200]);
    let list = rig.faults(Method::GET, "", None).await.ok();
    assert_eq!(
        (&list[0]["hits"], &list[0]["matched"], &list[0]["spent"]),
        (&json!(2), &json!(3), &json!(true))
    );
}

#[tokio::test]
async fn faults_are_listed_removed_and_refused() {
    let rig = rig().await;
    rig.fault(json!({"path": "/v3/jobs/{job}/finish", "action": {"wait_before": 0.5}})).await;
    rig.fault(json!({"path": "/v3/**", "action": "lose_answer"})).await;
    let list = rig.faults(Method::GET, "", None).await.ok();
    let seen: Vec<_> = list.as_array().unwrap().iter().map(|one| (&one["id"], &one["action"])).collect();
    assert_eq!(seen, [(&json!(1), &json!({"wait_before": 0.5})), (&json!(2), &json!("lose_answer"))]);
    rig.faults(Method::DELETE, "/1", None).await.ok();
    rig.faults(Method::DELETE, "/1", None).await.refused(404);
    rig.faults(Method::DELETE, "/x", None).await.refused(404);
    rig.faults(Method::DELETE, "", None).await.ok();
    assert_eq!(rig.faults(Method::GET, "", None).await.ok(), json!([]));
    rig.faults(Method::POST, "", Some(json!({"path": "nowhere", "action": "close"}))).await.refused(422);
    rig.faults(Method::POST, "", Some(json!({"path": "/", "action": "explode"}))).await.refused(422);
}

#[rstest]
#[case::closed(json!("close"), false)]
#[case::lost(json!("lose_answer"), true)]
#[tokio::test]
async fn a_connection_ends_without_a_byte(#[case] action: Value, #[case] handled: bool) {
    let rig = rig().await;
    let access = rig.agent().await;
    rig.build(ONE).await;
    let id = rig.job_id("one").await;
    let acquire = format!("/v3/jobs/{id}/acquire");
    rig.fault(json!({"path": "/v3/ping", "action": action.clone()})).await;
    rig.fault(json!({"method": "PUT", "path": "/v3/jobs/*/acquire", "action": action, "times": 1})).await;
    assert_eq!(rig.raw_ping(&access).await, "");
    let request = rig.request(Method::PUT, &acquire).header("Authorization", format!("Token {access}"));
    assert!(request.send().await.is_err());
    let expected = if handled { "accepted" } else { "scheduled" };
    assert_eq!(rig.job("one").await["job_state"], expected);
    // Acquiring again succeeds either way: a lost answer costs nothing but time.
    rig.v3(Method::PUT, &format!("jobs/{id}/acquire"), &access, None).await.ok();
}

#[tokio::test]
async fn a_body_is_cut_half_way() {
    let rig = rig().await;
    let access = rig.agent().await;
    let whole = rig.raw_ping(&access).await;
    let (head, body) = whole.split_once("\r\n\r\n").unwrap();
    rig.fault(json!({"path": "/v3/ping", "action": "cut_body", "times": 1})).await;
    let cut = rig.raw_ping(&access).await;
    let (cut_head, cut_body) = cut.split_once("\r\n\r\n").unwrap();
    assert!(cut_head.starts_with("HTTP/1.1 200"), "{cut}");
    let length = format!("content-length: {}", body.len());
    assert!(head.contains(&length) && cut_head.contains(&length), "{head}\n{cut_head}");
    assert_eq!(cut_body, &body[..body.len() / 2]);
    assert_eq!(rig.raw_ping(&access).await.split_once("\r\n\r\n").unwrap().1, body);
}

#[rstest]
#[case::before(Action::WaitBefore(0.4))]
#[case::after(Action::WaitAfter(0.4))]
#[tokio::test]
async fn a_request_takes_longer(#[case] action: Action) {
    let faults = Faults::default();
    let rig = Rig::with(|config| config.faults = Some(faults.clone())).await;
    let access = rig.agent().await;
    faults.add(Fault { times: Some(1), ..Fault::always("/v3/ping", action) }).unwrap();
    let begin = Instant::now();
    rig.v3(Method::GET, "ping", &access, None).await.ok();
    assert!(begin.elapsed() >= Duration::from_millis(400));
    assert_eq!(faults.list()[0].hits, 1);
}

#[tokio::test]
async fn a_paused_queue_hands_nothing_out() {
    let rig = rig().await;
    let stack = json!({"key": "mine", "type": "custom", "queue_key": "default", "metadata": {}});
    rig.v3(Method::POST, "stacks/register", REGISTRATION, Some(stack)).await.ok();
    rig.build(ONE).await;
    let list = "stacks/mine/scheduled-jobs?queue_key=default";
    for (path, paused, jobs) in [("pause", true, 0), ("resume", false, 1)] {
        rig.faults(Method::POST, &format!("/queues/default/{path}"), None).await.ok();
        let page = rig.v3(Method::GET, list, REGISTRATION, None).await.ok();
        assert_eq!(page["cluster_queue"]["dispatch_paused"], paused);
        assert_eq!(page["jobs"].as_array().unwrap().len(), jobs);
    }
    rig.faults(Method::POST, "/queues/unheard-of/pause", None).await.refused(404);
}

#[tokio::test]
async fn a_rotated_token_replaces_the_old_one() {
    let rig = rig().await;
    let access = rig.agent().await;
    rig.faults(Method::POST, "/token/rotate", Some(json!({"token": API}))).await.refused(422);
    let token =
        rig.faults(Method::POST, "/token/rotate", None).await.ok()["token"].as_str().unwrap().to_owned();
    rig.v3(Method::GET, "token", REGISTRATION, None).await.refused(401);
    rig.v3(Method::GET, "token", &token, None).await.ok();
    // An agent that is registered has a token of its own.
    rig.v3(Method::GET, "ping", &access, None).await.ok();
}

#[tokio::test]
async fn an_agent_is_lost_at_once() {
    let rig = rig().await;
    rig.build(ONE).await;
    let id = rig.job_id("one").await;
    rig.start_job(&id).await;
    let agent = rig.job("one").await["agent"]["id"].as_str().unwrap().to_owned();
    rig.faults(Method::POST, &format!("/agents/{agent}/lose"), None).await.ok();
    let job = rig.job("one").await;
    assert_eq!((&job["job_state"], &job["exit_status"]), (&json!("finished"), &json!(-1)));
    rig.faults(Method::POST, &format!("/agents/{}/lose", uuid::Uuid::now_v7()), None).await.refused(404);
}

#[tokio::test]
async fn reservations_expire_at_once() {
    let rig = rig().await;
    let stack = json!({"key": "mine", "type": "custom", "queue_key": "default", "metadata": {}});
    rig.v3(Method::POST, "stacks/register", REGISTRATION, Some(stack)).await.ok();
    rig.build(ONE).await;
    let body = json!({"job_uuids": [rig.job_id("one").await]});
    rig.v3(Method::PUT, "stacks/mine/scheduled-jobs/batch-reserve", REGISTRATION, Some(body)).await.ok();
    assert_eq!(rig.job("one").await["job_state"], "reserved");
    assert_eq!(rig.faults(Method::POST, "/reservations/expire", None).await.ok(), json!({"expired": 1}));
    assert_eq!(rig.job("one").await["job_state"], "scheduled");
}
