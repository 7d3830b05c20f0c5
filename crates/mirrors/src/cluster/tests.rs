use bk_api::RepoMirrorSpec;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use rstest::rstest;
use serde_json::Value;

use super::*;
use crate::{mirror::Outcome, place::Record};

fn mirror(name: &str, url: &str) -> RepoMirror {
    RepoMirror::new(name, RepoMirrorSpec { url: url.to_owned(), ..RepoMirrorSpec::default() })
}

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

#[test]
fn two_of_one_repository_and_nonsense_are_refused() {
    let suspended = RepoMirrorSpec { url: "h:d".to_owned(), suspend: true, ..RepoMirrorSpec::default() };
    let mirrors = [
        mirror("a", "git@github.com:example/app.git"),
        mirror("b", "https://github.com/example/app"),
        mirror("c", "nonsense"),
        RepoMirror::new("d", suspended),
    ];
    let (wanted, refused) = wanted(mirrors.iter(), &MirrorConfig::default(), None);
    assert_eq!(wanted.iter().map(|wanted| wanted.name.as_str()).collect::<Vec<_>>(), ["a"]);
    assert_eq!(wanted[0].interval, Duration::from_mins(1));
    assert_eq!(wanted[0].refs, bk_api::repo_mirror::DEFAULT_REFS);
    assert_eq!(refused.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), ["b", "c"]);
    assert_eq!(refused[0].1, "spec.url: RepoMirror a is of the same repository");
}

fn report(result: Result<(), &str>, damage: Option<&str>, second: i64) -> Report {
    let head = bk_api::repo_mirror::MirrorHead { branch: "main".to_owned(), commit: "1234".to_owned() };
    let record = Record {
        generation: "g1".to_owned(),
        last_sync: at(900),
        built_at: at(100),
        head: Some(head),
        damage: damage.map(str::to_owned),
        ..Record::default()
    };
    let outcome = Outcome { record: record.clone(), size_bytes: 42, packs: 1, rebuilt: None, warning: None };
    let (mut wanted, _) =
        wanted([mirror("app", "git@github.com:example/app.git")].iter(), &MirrorConfig::default(), None);
    let result = result.map(|()| outcome).map_err(str::to_owned);
    Report { wanted: wanted.remove(0), at: at(second), result, record: Some(record) }
}

fn nothing() -> RepoMirrorStatus {
    RepoMirrorStatus::default()
}

/// Requests of other nodes' syncers count; by hand, anything that is new does.
#[rstest]
#[case(None, Some("node-1"), None)]
#[case(Some("2026-11-18T10:00:00Z node-2"), Some("node-1"), Some("2026-11-18T10:00:00Z node-2"))]
#[case(Some("2026-11-18T10:00:00Z node-1"), Some("node-1"), None)]
#[case(Some("now"), Some("node-1"), Some("now"))]
#[case(Some("now"), None, Some("now"))]
fn whose_requests_are_heard(
    #[case] annotation: Option<&str>,
    #[case] node: Option<&str>,
    #[case] expected: Option<&str>,
) {
    let mut one = mirror("app", "git@github.com:example/app.git");
    if let Some(text) = annotation {
        one.annotations_mut().insert(names::ANNOTATION_SYNC_REQUESTED.to_owned(), text.to_owned());
    }
    let (wanted, _) = wanted([one].iter(), &MirrorConfig::default(), node);
    assert_eq!(wanted[0].requested.as_deref(), expected);
}

/// A day and two intervals of a minute after its last word.
#[rstest]
#[case(86_400, true)]
#[case(86_520, true)]
#[case(86_521, false)]
fn nodes_that_say_nothing_for_a_day_are_left_out(#[case] age: i64, #[case] stays: bool) {
    let now = 1_000_000;
    let node = |attempt: Option<i64>, sync: Option<i64>| bk_api::repo_mirror::NodeMirror {
        last_attempt: attempt.map(|second| Time(at(second))),
        last_sync: sync.map(|second| Time(at(second))),
        ..Default::default()
    };
    let nodes = [
        ("failing".to_owned(), node(Some(now - 60), Some(1))),
        ("other".to_owned(), node(Some(now - age), Some(1))),
        ("former".to_owned(), node(None, Some(now - 60))),
        ("node-1".to_owned(), node(None, None)),
    ];
    let before = RepoMirrorStatus { nodes: nodes.into(), ..nothing() };
    let patch = status::patch(&report(Ok(()), None, now), Some("node-1"), &before);
    let patched = patch["status"]["nodes"].as_object().unwrap();
    let gone: Vec<_> = patched.iter().filter(|(_, node)| node.is_null()).map(|(name, _)| name).collect();
    assert_eq!(gone, if stays { vec![] } else { vec!["other"] });
    assert_eq!(patched["node-1"]["commit"], "1234");
}

#[test]
fn the_status_after_a_fetch() {
    insta::assert_yaml_snapshot!(status::patch(&report(Ok(()), None, 1000), None, &nothing())["status"]);
}

#[test]
fn the_status_after_a_failure_on_a_node() {
    let report = report(Err("git fetch failed: no route"), Some("pack-1 is cut off"), 1000);
    insta::assert_yaml_snapshot!(status::patch(&report, Some("node-1"), &nothing())["status"]);
}

#[test]
fn a_condition_is_as_old_as_its_last_change() {
    let patch = |report: &Report, before: &Value| {
        let before: RepoMirrorStatus = serde_json::from_value(before["status"].clone()).unwrap_or_default();
        status::patch(report, None, &before)
    };
    let first = patch(&report(Ok(()), None, 1000), &Value::Null);
    let second = patch(&report(Err("away"), None, 2000), &first);
    let third = patch(&report(Err("still away"), None, 3000), &second);
    let since =
        |patch: &Value, index: usize| patch["status"]["conditions"][index]["lastTransitionTime"].clone();
    assert_eq!(since(&third, 0), since(&first, 0), "it could be borrowed from all the time");
    assert_eq!(since(&third, 1), since(&second, 1));
    assert_ne!(since(&second, 1), since(&first, 1));
}

#[test]
fn a_refusal_is_written_once() {
    let mut mirror = mirror("app", "nonsense");
    let patch = status::refused(&mirror, "no address", at(1000)).unwrap();
    mirror.status = serde_json::from_value(patch["status"].clone()).unwrap();
    assert_eq!(status::refused(&mirror, "no address", at(2000)), None);
    assert!(status::refused(&mirror, "another problem", at(2000)).is_some());
}

#[rstest]
#[case(1010, Ok(()), None, false, false)]
#[case(1060, Ok(()), None, false, true)]
#[case(1060, Ok(()), None, true, false)]
#[case(1300, Ok(()), None, true, true)]
#[case(1001, Err("away"), None, true, true)]
#[case(1001, Ok(()), Some("cut off"), true, true)]
fn what_nobody_learns_from_is_not_written(
    #[case] second: i64,
    #[case] result: Result<(), &str>,
    #[case] damage: Option<&str>,
    #[case] many: bool,
    #[case] expected: bool,
) {
    let before = status::Written::of(&report(Ok(()), None, 1000));
    let now = status::Written::of(&report(result, damage, second));
    assert_eq!(now.is_worth_writing(Some(&before), many), expected);
    assert!(now.is_worth_writing(None, many));
}

/// An API server that has one RepoMirror, a configuration and Secrets, and notes what is written.
async fn api_server(config: String) -> (Client, tokio::sync::mpsc::UnboundedReceiver<Value>) {
    use axum::{
        Json, Router,
        body::Body,
        extract::Query,
        routing::{get, patch},
    };
    let (sender, receiver) = tokio::sync::mpsc::unbounded_channel();
    let group = "/apis/buildkite-operator.dev/v1alpha1/namespaces/ci/repomirrors";
    let list = async |Query(query): Query<BTreeMap<String, String>>| {
        if query.contains_key("watch") {
            return axum::response::Response::new(Body::from_stream(futures::stream::pending::<
                Result<Vec<u8>, std::io::Error>,
            >()));
        }
        let mut one = serde_json::to_value(mirror("app", "http://127.0.0.1:9/app")).unwrap();
        one["metadata"]["generation"] = json!(3);
        one["metadata"]["namespace"] = json!("ci");
        one["spec"]["credentials"] = json!({ "httpsSecret": "login" });
        let list = json!({ "apiVersion": "v1", "kind": "List", "metadata": { "resourceVersion": "1" }, "items": [one] });
        axum::response::IntoResponse::into_response(Json(list))
    };
    let config_map = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": CONFIG_MAP },
        "data": { "repo_syncer_config": config },
    });
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "login" },
        "data": { "username": "bWU=", "password": "cGFzcw==", "token": "dG9rZW4=" },
    });
    let note = async move |Json(body): Json<Value>| {
        let _ended = sender.send(body);
        Json(serde_json::to_value(mirror("app", "http://127.0.0.1:9/app")).unwrap())
    };
    let app = Router::new()
        .route(group, get(list))
        .route(
            &format!("{group}/app"),
            get(async || Json(serde_json::to_value(mirror("app", "h:p")).unwrap())),
        )
        .route(&format!("{group}/app/status"), patch(note))
        .route(&format!("/api/v1/namespaces/ci/configmaps/{CONFIG_MAP}"), get(async move || Json(config_map)))
        .route("/api/v1/namespaces/ci/secrets/login", get(async move || Json(secret)));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
    bk_ops::http::install_crypto_provider();
    let config = kube::Config::new(url.parse().unwrap());
    (Client::try_from(config).unwrap(), receiver)
}

#[tokio::test]
async fn a_repo_mirror_is_seen_tried_and_reported() {
    let root = tempfile::tempdir().unwrap();
    let config = format!("{{layout: shared, claimName: c, path: {}}}", root.path().display());
    let (client, mut patches) = api_server(config).await;
    let args = SyncerArgs { namespace: None, operator_namespace: None, node: None, private: None };
    let stop = CancellationToken::new();
    let running = tokio::spawn({
        let stop = stop.clone();
        async move { run((client.clone(), client), "ci", args, stop).await }
    });
    let patch = patches.recv().await.unwrap();
    let status = &patch["status"];
    assert_eq!(status["observedGeneration"], 3);
    assert!(status["error"].as_str().unwrap().starts_with("git fetch failed"), "{status}");
    assert!(!patch.to_string().contains("pass"), "{patch}");
    assert_eq!(status["conditions"][0]["reason"], "NoMirrorYet");
    stop.cancel();
    running.await.unwrap().unwrap();
}

#[tokio::test]
async fn without_a_layout_it_does_not_start() {
    let (client, _patches) = api_server("{}".to_owned()).await;
    let args = SyncerArgs { namespace: None, operator_namespace: None, node: None, private: None };
    let error = run((client.clone(), client), "ci", args, CancellationToken::new()).await.unwrap_err();
    assert!(error.to_string().contains("`layout` says where mirrors are"), "{error}");
}

#[tokio::test]
async fn only_another_configuration_that_can_be_used_is_a_change() {
    let version = |document: &str| {
        let data = BTreeMap::from([("repo_syncer_config".to_owned(), document.to_owned())]);
        Ok(Some(ConfigMap { data: Some(data), ..ConfigMap::default() }))
    };
    let mut versions = futures::stream::iter([
        version("{layout: shared, claimName: mirrors}"),
        Ok(None),
        version("{layout: shared}"),
        version("{}"),
        version("{layout: nodeLocal, hostPath: /mirrors}"),
        version("{layout: shared, claimName: mirrors, intervalSeconds: 7}"),
    ]);
    let args = SyncerArgs { namespace: None, operator_namespace: None, node: None, private: None };
    let config = MirrorConfig {
        layout: Some(MirrorLayout::Shared),
        claim_name: Some("mirrors".to_owned()),
        ..MirrorConfig::default()
    };
    let expected = MirrorConfig { interval_seconds: 7, ..config.clone() };
    assert_eq!(changed(&mut versions, &args, &config).await, expected);
}
