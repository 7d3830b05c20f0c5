//! The endpoint that asks for a fetch, with the syncer behind it.

use std::{sync::Arc, time::Duration};

use bk_mirrors::{
    access::Entries,
    endpoint::{self, Endpoint},
    metrics::Metrics,
    syncer::{Handle, Report, Settings, Syncer, Wanted, World},
};
use reqwest::StatusCode;
use secrecy::SecretString;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::scene::Scene;

/// Takes reports, and requests that are passed on.
struct Reports(mpsc::UnboundedSender<Report>, mpsc::UnboundedSender<String>);

impl World for Reports {
    async fn secret(&self, name: &str) -> Result<Entries, String> {
        Err(format!("there is no Secret {name}"))
    }

    async fn report(&self, report: &Report) {
        let _ended = self.0.send(report.clone());
    }

    async fn pass_on(&self, mirror: &str) {
        let _ended = self.1.send(mirror.to_owned());
    }
}

struct Service {
    scene: Scene,
    handle: Handle,
    reports: mpsc::UnboundedReceiver<Report>,
    passed_on: mpsc::UnboundedReceiver<String>,
    url: String,
    client: reqwest::Client,
    _stop: DropGuard,
}

impl Service {
    async fn start(scene: Scene) -> Self {
        let (sender, reports) = mpsc::unbounded_channel();
        let (pass_on, passed_on) = mpsc::unbounded_channel();
        let settings = Settings {
            root: scene.mirrors.path().to_owned(),
            private: scene.workspace.path().to_owned(),
            parallelism: 2,
            rules: scene.rules,
        };
        let metrics = Metrics::default();
        let (syncer, handle) = Syncer::new(settings, Reports(sender, pass_on), metrics.clone());
        let stop = CancellationToken::new();
        tokio::spawn(syncer.run(stop.clone()));
        let (_, token) = watch::channel(Some(Arc::new(SecretString::from("right".to_owned()))));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let app = endpoint::routes(Endpoint { syncer: handle.clone(), token, metrics });
        tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
        let client = bk_ops::http::client("test", Duration::from_secs(30)).unwrap();
        Self { scene, handle, reports, passed_on, url, client, _stop: stop.drop_guard() }
    }

    fn wanted(&self, name: &str) -> Wanted {
        Wanted {
            name: name.to_owned(),
            generation: Some(1),
            address: self.scene.address(name),
            refs: bk_api::repo_mirror::DEFAULT_REFS.map(str::to_owned).into(),
            lfs: false,
            interval: Duration::from_hours(1),
            credentials: None,
            requested: None,
        }
    }

    /// What a webhook gets that has this header.
    async fn hook(&self, (name, value): (&str, &str), body: String) -> (StatusCode, String) {
        let call = self.client.post(format!("{}/sync", self.url)).query(&[("wait", "20")]);
        let answer = call.header(name, value).body(body).send().await.unwrap();
        (answer.status(), answer.text().await.unwrap())
    }

    async fn sync(&self, token: &str, query: &[(&str, &str)], body: String) -> (StatusCode, String) {
        let call = self.client.post(format!("{}/sync", self.url)).query(query).bearer_auth(token).body(body);
        let answer = call.send().await.unwrap();
        (answer.status(), answer.text().await.unwrap())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_knows_the_token_gets_a_fetch() {
    let mut service = Service::start(Scene::new().await).await;
    let app = service.scene.origin.create("app");
    service.handle.want(vec![service.wanted("app")]).await;
    assert!(service.reports.recv().await.unwrap().result.is_ok(), "a new mirror is fetched at once");

    let newest = app.commit("more", "more");
    app.push(&["main"]);
    let url = service.scene.origin.url("app");
    for token in ["", "wrong", "rightly"] {
        assert_eq!(service.sync(token, &[("url", &url)], String::new()).await.0, StatusCode::UNAUTHORIZED);
    }
    let (status, _) = service.sync("right", &[("url", "https://example.com/other")], String::new()).await;
    assert_eq!(status, StatusCode::NOT_FOUND);
    let (status, _) = service.sync("right", &[], String::new()).await;
    assert_eq!(status, StatusCode::BAD_REQUEST);
    assert!(service.reports.try_recv().is_err(), "nobody else causes work");

    let (status, text) = service.sync("right", &[("url", &url), ("wait", "20")], String::new()).await;
    assert_eq!(status, StatusCode::OK, "{text}");
    assert_eq!(service.scene.record("app").head.unwrap().commit, newest);
    let body = serde_json::json!({ "url": url }).to_string();
    let (status, _) = service.sync("right", &[], body).await;
    assert_eq!(status, StatusCode::ACCEPTED);

    let page =
        service.client.get(format!("{}/metrics", service.url)).send().await.unwrap().text().await.unwrap();
    assert!(page.contains("buildkite_repo_mirror_failing{mirror=\"app\"} 0"), "{page}");
    assert!(page.contains("buildkite_repo_mirror_age_seconds{mirror=\"app\"}"), "{page}");
}

/// As GitHub does it.
fn signature(secret: &str, body: &str) -> String {
    let key = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, secret.as_bytes());
    let sum = ring::hmac::sign(&key, body.as_bytes());
    let digits: Vec<String> = sum.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256={}", digits.concat())
}

#[tokio::test(flavor = "multi_thread")]
async fn webhooks_of_github_and_gitlab_get_a_fetch() {
    let mut service = Service::start(Scene::new().await).await;
    let app = service.scene.origin.create("app");
    service.handle.want(vec![service.wanted("app")]).await;
    service.reports.recv().await.unwrap();
    let url = service.scene.origin.url("app");
    let commits: Vec<_> =
        (0..2000).map(|n| serde_json::json!({ "id": n, "message": "x".repeat(100) })).collect();
    let github = serde_json::json!({
        "ref": "refs/heads/main", "commits": commits,
        "repository": { "clone_url": url, "ssh_url": "git@elsewhere:app.git" },
    });
    let github = github.to_string();
    assert!(github.len() > 64 << 10, "pushes are larger than other calls");
    let form: String =
        format!("payload={}", form_urlencoded::byte_serialize(github.as_bytes()).collect::<String>());
    let gitlab = serde_json::json!({
        "object_kind": "push", "project": { "git_ssh_url": "git@elsewhere:app.git", "git_http_url": url },
    });
    let gitlab = gitlab.to_string();
    let hooks = [
        ("x-hub-signature-256", signature("right", &github), github.clone()),
        ("x-hub-signature-256", signature("right", &form), form),
        ("x-gitlab-token", "right".to_owned(), gitlab.clone()),
    ];
    for (number, (header, value, body)) in hooks.into_iter().enumerate() {
        let newest = app.commit("more", &number.to_string());
        app.push(&["main"]);
        let (status, text) = service.hook((header, &value), body).await;
        assert_eq!(status, StatusCode::OK, "{header}: {text}");
        assert_eq!(service.scene.record("app").head.unwrap().commit, newest);
    }
    for (header, value, body) in [
        ("x-hub-signature-256", signature("wrong", &github), github.clone()),
        ("x-hub-signature-256", signature("right", "another"), github),
        ("x-gitlab-token", "wrong".to_owned(), gitlab),
    ] {
        assert_eq!(service.hook((header, &value), body).await.0, StatusCode::UNAUTHORIZED, "{header}");
    }
    let unnamed = r#"{"zen": "Design for failure."}"#.to_owned();
    let signed = signature("right", &unnamed);
    assert_eq!(service.hook(("x-hub-signature-256", &signed), unnamed).await.0, StatusCode::BAD_REQUEST);
    let endless = "x".repeat(9 << 20);
    assert_eq!(service.hook(("x-gitlab-token", "right"), endless).await.0, StatusCode::PAYLOAD_TOO_LARGE);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_is_passed_on_once_for_a_fetch_and_one_that_was_is_heard() {
    let mut service = Service::start(Scene::new().await).await;
    let app = service.scene.origin.create("app");
    service.handle.want(vec![service.wanted("app")]).await;
    service.reports.recv().await.unwrap();
    let url = service.scene.origin.url("app");
    let (status, text) = service.sync("right", &[("url", &url), ("wait", "20")], String::new()).await;
    assert_eq!(status, StatusCode::OK, "{text}");
    assert_eq!(service.passed_on.recv().await.as_deref(), Some("app"));
    service.reports.recv().await.unwrap();

    // Another node's syncer has written it down.
    let newest = app.commit("more", "more");
    app.push(&["main"]);
    let requested = Some("2026-11-18T10:00:00.000Z node-2".to_owned());
    service.handle.want(vec![Wanted { requested: requested.clone(), ..service.wanted("app") }]).await;
    assert!(service.reports.recv().await.unwrap().result.is_ok());
    assert_eq!(service.scene.record("app").head.unwrap().commit, newest);
    // The same again is no news, and neither is its end.
    for requested in [requested, None] {
        service.handle.want(vec![Wanted { requested, ..service.wanted("app") }]).await;
    }
    let (_, _) = service.sync("right", &[("url", &url), ("wait", "20")], String::new()).await;
    service.reports.recv().await.unwrap();
    assert!(service.reports.try_recv().is_err(), "one fetch, for whoever asked last");
    assert_eq!(service.passed_on.recv().await.as_deref(), Some("app"));
    assert!(service.passed_on.try_recv().is_err(), "what was heard from others is not passed on");
}

#[tokio::test(flavor = "multi_thread")]
async fn many_who_ask_at_once_share_a_fetch_and_too_many_are_sent_away() {
    let mut scene = Scene::new().await;
    scene.rules.timeout = Duration::from_secs(2);
    let mut service = Service::start(scene).await;
    service.scene.origin.create("app");
    service.handle.want(vec![service.wanted("app")]).await;
    service.reports.recv().await.unwrap();
    service.scene.origin.fall_silent();
    let url = service.scene.origin.url("app");
    // The first one keeps the mirror busy; the others wait for the run after it.
    let first = service.handle.ask(&service.scene.address("app")).await.unwrap();
    let mut statuses = Vec::new();
    let mut waiting = tokio::task::JoinSet::new();
    for _ in 0..80 {
        let (client, address, url) = (service.client.clone(), service.url.clone(), url.clone());
        waiting.spawn(async move {
            let call = client.post(format!("{address}/sync")).query(&[("url", url.as_str()), ("wait", "20")]);
            call.bearer_auth("right").send().await.unwrap().status()
        });
    }
    while let Some(status) = waiting.join_next().await {
        statuses.push(status.unwrap());
    }
    let count = |wanted: StatusCode| statuses.iter().filter(|status| **status == wanted).count();
    assert_eq!(count(StatusCode::BAD_GATEWAY) + count(StatusCode::TOO_MANY_REQUESTS), 80, "{statuses:?}");
    assert!(count(StatusCode::TOO_MANY_REQUESTS) > 0 && count(StatusCode::BAD_GATEWAY) >= 32, "{statuses:?}");
    assert!(first.await.unwrap().unwrap_err().contains("took longer"));
    let mut runs = 0;
    while let Ok(report) = service.reports.try_recv() {
        assert!(report.result.is_err() && report.record.is_some());
        runs += 1;
    }
    assert_eq!(runs, 2, "one for the first, one for all others");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_secret_is_reported_by_name() {
    let mut service = Service::start(Scene::new().await).await;
    let credentials =
        bk_api::credentials::GitCredentials { https_secret: Some("mine".to_owned()), ssh_secret: None };
    service.handle.want(vec![Wanted { credentials: Some(credentials), ..service.wanted("app") }]).await;
    let report = service.reports.recv().await.unwrap();
    assert_eq!(report.result.unwrap_err(), "there is no Secret mine");
    assert_eq!(report.record, None);
}
