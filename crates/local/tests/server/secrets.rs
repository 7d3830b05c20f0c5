//! Secrets and git credentials.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use buildkite_local::{Config, Server};
use reqwest::Method;
use rstest::rstest;
use serde_json::json;

use crate::harness::Rig;

fn write(directory: &Path, name: &str, text: &str, mode: u32) -> PathBuf {
    let path = directory.join(name);
    fs::write(&path, text).unwrap();
    fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
    path
}

/// A server with these secrets and a running job of the pipeline `demo`; the job's id and token.
async fn running(directory: &Path, secrets: &str) -> (Rig, String, String) {
    let secrets = write(directory, "secrets.yml", secrets, 0o600);
    let git = write(directory, "git.yml", "git.local: git-token", 0o600);
    let rig = Rig::with(|config| {
        config.secrets = Some(secrets);
        config.git_credentials = Some(git);
    })
    .await;
    rig.build("steps: [{label: one, command: x}, {label: two, command: x}]").await;
    let id = rig.job_id("one").await;
    let (_, token) = rig.start_job(&id).await;
    (rig, id, token)
}

#[tokio::test]
async fn a_job_gets_the_secrets_of_its_pipeline() {
    let directory = tempfile::tempdir().unwrap();
    let file = "OPEN: hunter2\nMINE: {value: hunter3, pipelines: [demo]}\nTHEIRS: {value: hunter4, pipelines: [other]}";
    let (rig, id, token) = running(directory.path(), file).await;
    let get =
        async |key: &str| rig.v3(Method::GET, &format!("jobs/{id}/secrets?key={key}"), &token, None).await;
    let open = get("OPEN").await.ok();
    assert_eq!((&open["key"], &open["value"]), (&json!("OPEN"), &json!("hunter2")));
    assert_eq!(get("OPEN").await.ok()["uuid"], open["uuid"]);
    assert!(uuid::Uuid::parse_str(open["uuid"].as_str().unwrap()).is_ok());
    let mine = get("MINE").await.ok();
    assert_eq!(mine["value"], "hunter3");
    assert_ne!(mine["uuid"], open["uuid"]);
    for (key, status) in [("THEIRS", 403), ("NONE", 404)] {
        let message = get(key).await.refused(status);
        assert!(message.contains(key) && !message.contains("hunter"), "{message}");
    }
    get("").await.refused(422);
    // What the file says now holds.
    write(directory.path(), "secrets.yml", "OPEN: changed", 0o600);
    assert_eq!(get("OPEN").await.ok()["value"], "changed");
    get("MINE").await.refused(404);
    write(directory.path(), "secrets.yml", "OPEN: [hunter2", 0o600);
    let message = get("OPEN").await.refused(503);
    assert!(!message.contains("hunter"), "{message}");
}

#[tokio::test]
async fn secrets_are_for_running_jobs_alone() {
    let directory = tempfile::tempdir().unwrap();
    let (rig, id, token) = running(directory.path(), "A: x").await;
    let other = rig.job_id("two").await;
    rig.v3(Method::GET, &format!("jobs/{other}/secrets?key=A"), &token, None).await.refused(403);
    rig.v3(Method::GET, &format!("jobs/{id}/secrets?key=A"), "nonsense", None).await.refused(401);
    rig.finish_job(&id, &token, "0").await.ok();
    rig.v3(Method::GET, &format!("jobs/{id}/secrets?key=A"), &token, None).await.refused(422);
}

#[rstest]
#[case("repository_access_token")]
#[case("github_code_access_token")]
#[tokio::test]
async fn repositories_have_tokens_by_host(#[case] endpoint: &str) {
    let directory = tempfile::tempdir().unwrap();
    let (rig, id, token) = running(directory.path(), "").await;
    let ask = async |url: &str| {
        let path = format!("jobs/{id}/{endpoint}");
        rig.v3(Method::POST, &path, &token, Some(json!({"repo_url": url}))).await
    };
    assert_eq!(ask("https://git.local/demo.git").await.ok(), json!({"token": "git-token"}));
    assert_eq!(ask("git@git.local:demo.git").await.ok(), json!({"token": "git-token"}));
    assert!(ask("https://elsewhere.local/demo.git").await.refused(404).contains("elsewhere.local"));
    ask("nonsense").await.refused(422);
}

#[tokio::test]
async fn a_server_without_secrets_says_so() {
    let rig = Rig::start().await;
    rig.build("steps: [{label: one, command: x}]").await;
    let id = rig.job_id("one").await;
    let (_, token) = rig.start_job(&id).await;
    rig.v3(Method::GET, &format!("jobs/{id}/secrets?key=A"), &token, None).await.refused(404);
}

#[tokio::test]
async fn files_that_everybody_can_read_or_nobody_understands_stop_the_start() {
    let directory = tempfile::tempdir().unwrap();
    let start = async |secrets: Option<PathBuf>, git_credentials: Option<PathBuf>| {
        let listen = std::net::SocketAddr::from(([127, 0, 0, 1], 0));
        let config = Config { listen, secrets, git_credentials, ..Config::default() };
        Server::bind(config).await.err().map(|error| bk_ops::report::one_line(&error))
    };
    let open = write(directory.path(), "open", "A: hunter2", 0o604);
    assert!(start(Some(open.clone()), None).await.unwrap().contains("chmod 600"));
    assert!(start(None, Some(open)).await.unwrap().contains("chmod 600"));
    let broken = write(directory.path(), "broken", "A: [hunter2", 0o600);
    let error = start(Some(broken), None).await.unwrap();
    assert!(error.contains("broken") && !error.contains("hunter2"), "{error}");
    assert!(start(Some(directory.path().join("none")), None).await.unwrap().contains("cannot read"));
    let good = write(directory.path(), "good", "A: hunter2", 0o640);
    assert_eq!(start(Some(good), None).await, None);
}
