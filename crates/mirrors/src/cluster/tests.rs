use bk_api::RepoMirrorSpec;
use rstest::rstest;
use serde_json::{Value, json};

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
    let (wanted, refused) = wanted(mirrors.iter(), &MirrorConfig::default());
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
        wanted([mirror("app", "git@github.com:example/app.git")].iter(), &MirrorConfig::default());
    let result = result.map(|()| outcome).map_err(str::to_owned);
    Report { wanted: wanted.remove(0), at: at(second), result, record: Some(record) }
}

#[test]
fn the_status_after_a_fetch() {
    insta::assert_yaml_snapshot!(status::patch(&report(Ok(()), None, 1000), None, &[])["status"]);
}

#[test]
fn the_status_after_a_failure_on_a_node() {
    let report = report(Err("git fetch failed: no route"), Some("pack-1 is cut off"), 1000);
    insta::assert_yaml_snapshot!(status::patch(&report, Some("node-1"), &[])["status"]);
}

#[test]
fn a_condition_is_as_old_as_its_last_change() {
    let patch = |report: &Report, before: &Value| {
        let before: Vec<_> =
            serde_json::from_value(before["status"]["conditions"].clone()).unwrap_or_default();
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
