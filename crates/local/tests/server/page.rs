//! What the page's scripts ask for, and who gets it.

use futures::StreamExt;
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use crate::harness::{API, Rig};

const TWO: &str = "steps: [{label: '<i>one</i>', key: one, command: x}, wait, {block: Go?, key: go, fields: [{text: Name, key: name}]}]";

async fn view(rig: &Rig, path: &str) -> Value {
    rig.send(rig.request(Method::GET, path)).await.ok()
}

#[tokio::test]
async fn shells_are_served_without_data_and_only_where_pages_are() {
    let rig = Rig::start().await;
    for path in ["/", "/agents", "/local/demo", "/local/demo/builds/7", "/local/demo/builds/7/jobs/x"] {
        let shell = rig.send(rig.request(Method::GET, path)).await;
        assert_eq!(shell.status, 200, "{path}");
        let policy = shell.headers["content-security-policy"].to_str().unwrap().to_owned();
        assert!(policy.contains("script-src 'self'") && !policy.contains("unsafe"), "{policy}");
    }
    for path in ["/elsewhere/demo", "/elsewhere/demo/builds/1", "/nothing"] {
        rig.send(rig.request(Method::GET, path)).await.refused(404);
    }
    rig.send(rig.request(Method::POST, "/local/demo")).await.refused(404);
}

#[tokio::test]
async fn assets_are_kept_for_good_under_their_own_version() {
    let rig = Rig::start().await;
    let shell = view(&rig, "/").await;
    let script =
        shell.as_str().unwrap().split("src=\"").nth(1).unwrap().split('"').next().unwrap().to_owned();
    let asset = rig.send(rig.request(Method::GET, &script)).await;
    assert_eq!(asset.headers["content-type"], "text/javascript; charset=utf-8");
    assert!(asset.headers["cache-control"].to_str().unwrap().contains("immutable"));
    rig.send(rig.request(Method::GET, "/-/assets/0000000000000000/app.js")).await.refused(404);
    rig.send(rig.request(Method::GET, &script.replace("app.js", "other.js"))).await.refused(404);
}

#[tokio::test]
async fn a_build_with_its_steps_as_they_stand() {
    let rig = Rig::start().await;
    rig.build(TWO).await;
    let id = rig.job_id("<i>one</i>").await;
    let (_, token) = rig.start_job(&id).await;
    let note = json!({"body": "**bold** <script>alert(1)</script>", "context": "c", "style": "info"});
    rig.v3(Method::POST, &format!("jobs/{id}/annotations"), &token, Some(note)).await.ok();
    let build = view(&rig, "/-/pipelines/demo/builds/1").await;
    assert_eq!(build["state"], "running");
    let kinds: Vec<_> = build["steps"].as_array().unwrap().iter().map(|step| step["kind"].clone()).collect();
    assert_eq!(kinds, ["command", "block"], "the block swallows the wait");
    assert_eq!(build["steps"][0]["jobs"][0]["status"], "running");
    assert!(build["steps"][0]["jobs"][0]["agent"].is_string());
    assert_eq!(build["steps"][1]["gate"]["fields"][0]["key"], "name");
    let html = build["annotations"][0]["html"].as_str().unwrap();
    assert!(html.contains("<strong>bold</strong>") && !html.contains("script"), "{html}");
    let job = view(&rig, &format!("/-/jobs/{id}")).await;
    assert_eq!((&job["can_cancel"], &job["can_retry"]), (&json!(true), &json!(false)));
    let agents = view(&rig, "/-/agents").await;
    assert_eq!(agents["agents"][0]["job"]["id"], json!(id));
    for shown in [&build, &job, &agents] {
        let text = shown.to_string();
        assert!(
            !text.contains(&token) && !text.contains("bkaj_") && !text.contains("access_token"),
            "{text}"
        );
    }
    view(&rig, "/-/pipelines").await;
    rig.send(rig.request(Method::GET, "/-/pipelines/demo/builds/9")).await.refused(404);
    rig.send(rig.request(Method::GET, "/-/pipelines/none")).await.refused(404);
    rig.send(rig.request(Method::GET, "/-/jobs/none")).await.refused(404);
}

#[tokio::test]
async fn an_unchanged_view_is_not_sent_again() {
    let rig = Rig::start().await;
    rig.build(TWO).await;
    let path = "/-/pipelines/demo/builds/1";
    let tag = rig.send(rig.request(Method::GET, path)).await.headers["etag"].clone();
    let again = || rig.request(Method::GET, path).header("If-None-Match", tag.clone());
    assert_eq!(rig.send(again()).await.status, StatusCode::NOT_MODIFIED);
    rig.start_job(&rig.job_id("<i>one</i>").await).await;
    assert_eq!(rig.send(again()).await.status, StatusCode::OK);
}

#[tokio::test]
async fn the_log_is_read_from_where_the_reader_is() {
    let rig = Rig::start().await;
    rig.build(TWO).await;
    let id = rig.job_id("<i>one</i>").await;
    let (_, token) = rig.start_job(&id).await;
    rig.chunk(&id, &token, 1, 0, b"\x1b[31mone\x1b[0m\n").await.ok();
    let path = format!("/-/jobs/{id}/log");
    let first = rig.send(rig.request(Method::GET, &path)).await;
    assert_eq!(first.body, json!("\u{1b}[31mone\u{1b}[0m\n"));
    assert_eq!(first.headers["log-next"], "13");
    assert_eq!(first.headers["log-complete"], "false");
    rig.chunk(&id, &token, 2, 13, b"two\n").await.ok();
    rig.finish_job(&id, &token, "0").await.ok();
    let rest = rig.send(rig.request(Method::GET, &format!("{path}?from=13"))).await;
    assert_eq!(rest.body, json!("two\n"));
    assert_eq!(rest.headers["log-next"], "17");
    assert_eq!(rest.headers["log-complete"], "true");
    let file = rig.send(rig.request(Method::GET, &format!("{path}?download=true"))).await;
    assert!(file.headers["content-disposition"].to_str().unwrap().starts_with("attachment"));
    rig.send(rig.request(Method::GET, &format!("{path}?from=-1"))).await.refused(400);
    rig.send(rig.request(Method::GET, &format!("{path}?from=x"))).await.refused(400);
}

#[tokio::test]
async fn the_stream_tells_of_changes_and_ends_with_the_server() {
    let rig = Rig::start().await;
    let stream = rig.request(Method::GET, "/-/events").send().await.unwrap();
    assert_eq!(stream.headers()["content-type"], "text/event-stream");
    let mut pieces = stream.bytes_stream();
    let mut next = async || String::from_utf8(pieces.next().await.unwrap().unwrap().to_vec()).unwrap();
    let first = next().await;
    assert!(first.contains("data: "), "{first}");
    rig.build(TWO).await;
    let second = next().await;
    assert!(second.contains("data: ") && second != first, "{second}");
    drop(rig);
    // Whatever was still under way, the stream ends rather than keep the server.
    while let Some(piece) = pieces.next().await {
        piece.unwrap();
    }
}

#[tokio::test]
async fn actions_take_the_same_way_as_those_of_scripts() {
    let rig = Rig::start().await;
    rig.build(TWO).await;
    let id = rig.job_id("<i>one</i>").await;
    let act = |method, path: &str| rig.request(method, &format!("/-/rest/local/{path}")).json(&json!({}));
    rig.send(act(Method::PUT, &format!("jobs/{id}/cancel"))).await.ok();
    assert_eq!(rig.job("<i>one</i>").await["job_state"], "canceled");
    rig.send(act(Method::PUT, &format!("jobs/{id}/cancel"))).await.refused(422);
    rig.send(act(Method::PUT, "pipelines/demo/builds/1/rebuild")).await.ok();
    let bare = rig.request(Method::PUT, "/-/rest/local/pipelines/demo/builds/2/cancel");
    rig.send(bare).await.refused(415);
}

#[tokio::test]
async fn other_sites_and_foreign_names_are_refused() {
    let rig = Rig::start().await;
    for path in ["/-/pipelines", "/-/agents", "/-/events", "/-/rest/local/pipelines"] {
        let foreign = rig.request(Method::GET, path).header("Host", "evil.example");
        rig.send(foreign).await.refused(403);
        let other = rig.request(Method::GET, path).header("Sec-Fetch-Site", "cross-site");
        rig.send(other).await.refused(403);
    }
    let post = rig.request(Method::POST, "/-/rest/local/pipelines").header("Origin", "http://evil.example");
    rig.send(post.json(&json!({}))).await.refused(403);
}

#[tokio::test]
async fn on_a_network_the_api_token_signs_in() {
    let rig = Rig::with(|config| {
        config.listen.set_ip([0, 0, 0, 0].into());
        config.agent_token = Some("agents".into());
        config.api_token = Some("people".into());
    })
    .await;
    let list = || rig.request(Method::GET, "/-/pipelines");
    rig.send(list()).await.refused(401);
    rig.send(list().bearer_auth("agents")).await.refused(401);
    rig.send(list().bearer_auth("people")).await.ok();
    let sign_in = |token: &str| rig.request(Method::POST, "/-/session").json(&json!({ "token": token }));
    rig.send(sign_in("agents")).await.refused(401);
    rig.send(sign_in("people").header("Sec-Fetch-Site", "cross-site")).await.refused(403);
    let session = rig.send(sign_in("people")).await;
    let cookie = session.headers["set-cookie"].to_str().unwrap().to_owned();
    assert!(cookie.contains("HttpOnly") && cookie.contains("SameSite=Strict") && !cookie.contains("people"));
    let pair = cookie.split(';').next().unwrap().to_owned();
    rig.send(list().header("Cookie", &pair)).await.ok();
    rig.send(list().header("Cookie", format!("{}x", &pair))).await.refused(401);
    rig.send(rig.request(Method::GET, "/v3/token").header("Authorization", format!("Token {API}")))
        .await
        .refused(401);
}

#[tokio::test]
async fn a_token_that_was_set_is_asked_for_on_loopback_too() {
    let rig = Rig::with(|config| config.api_token = Some("people".into())).await;
    rig.send(rig.request(Method::GET, "/-/pipelines")).await.refused(401);
}
