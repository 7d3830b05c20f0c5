//! The commands against a real server.

use std::path::Path;
use std::process::Command;

use crate::harness::{command, pipeline, play_agent, run, server};

const URL: &str = "https://git.local/r.git";

fn git(at: &Path, arguments: &[&str]) -> String {
    let person = ["-c", "user.name=Ada", "-c", "user.email=ada@example.com"];
    let output = Command::new("git").current_dir(at).args(person).args(arguments).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_directory_is_built_as_it_is_committed_or_as_it_is() {
    let url = server().await;
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path().join("My App");
    std::fs::create_dir_all(at.join(".buildkite")).unwrap();
    std::fs::write(at.join(".buildkite/pipeline.yml"), "steps: [{label: one, command: x}]").unwrap();
    git(&at, &["init", "--quiet", "--initial-branch", "trunk"]);
    git(&at, &["add", "."]);
    git(&at, &["commit", "--quiet", "-m", "First"]);
    std::fs::write(at.join("new"), "n").unwrap();
    let path = at.to_str().unwrap();
    let (code, out, err) = run(&url, &["build", "--repo", path]).await;
    assert_eq!(
        (code, err.as_str()),
        (0, "note: 1 file is not committed and left out of the build; add --dirty to build with it\n"),
        "{out}"
    );
    assert!(out.starts_with("build my-app/1 http://"), "{out}");
    let (code, _, err) = run(&url, &["build", "--repo", path, "--dirty", "--meta-data", "k=v"]).await;
    assert_eq!((code, err.as_str()), (0, ""));
    let (_, json, _) = run(&url, &["builds", "my-app", "--output", "json"]).await;
    let builds: serde_json::Value = serde_json::from_str(&json).unwrap();
    let (dirty, clean) = (&builds[0], &builds[1]);
    assert_eq!(clean["commit"], git(&at, &["rev-parse", "HEAD"]));
    assert_eq!((&clean["branch"], &clean["message"]), (&"trunk".into(), &"First".into()));
    assert_eq!(clean["author"]["name"], "Ada");
    assert_eq!(dirty["message"], "First (with uncommitted changes)");
    assert_eq!(dirty["meta_data"]["k"], "v");
    let repository = dirty["pipeline"]["repository"].as_str().unwrap();
    git(directory.path(), &["clone", "--quiet", repository, "clone"]);
    let clone = directory.path().join("clone");
    git(&clone, &["fetch", "--quiet", "origin", dirty["commit"].as_str().unwrap()]);
    git(&clone, &["checkout", "--quiet", "FETCH_HEAD"]);
    assert_eq!(std::fs::read_to_string(clone.join("new")).unwrap(), "n");
}

#[tokio::test(flavor = "multi_thread")]
async fn builds_are_listed_and_named_in_many_ways() {
    let url = server().await;
    let directory = tempfile::tempdir().unwrap();
    let file = pipeline(directory.path(), "steps: [{label: one, key: k, command: x}]");
    let build = async |slug: &str| {
        run(
            &url,
            &["build", &file, "--repo", URL, "--pipeline", slug, "--message", "Try it", "--commit", "abc"],
        )
        .await
        .1
    };
    let address = build("demo").await.split_whitespace().last().unwrap().to_owned();
    let log = "\u{1b}_bk;t=1700000000000\u{7}\u{1b}[31mred\u{1b}[0m\r\n";
    play_agent(&url, log, "1").await;
    let out = async |arguments: &[&str]| run(&url, arguments).await;
    for name in ["1", "demo/1", address.as_str()] {
        assert_eq!(out(&["log", name]).await.1, "red\n", "{name}");
    }
    assert_eq!(out(&["log", "1", "--raw"]).await.1, log);
    let stamped = out(&["log", "1", "--step", "k", "--timestamps"]).await.1;
    assert!(stamped.ends_with(":20.000 red\n"), "{stamped}");
    let (code, _, err) = out(&["log", "1", "--step", "other"]).await;
    assert_eq!((code, err.as_str()), (2, "error: build demo/1 has no command step with the key other\n"));
    let retried = out(&["retry", "1"]).await.1;
    assert!(retried.starts_with("one (") && retried.ends_with("): scheduled\n"), "{retried}");
    let (code, _, err) = out(&["retry", "1"]).await;
    assert_eq!((code, err.as_str()), (2, "error: build demo/1 has no failed job: it is running\n"));
    build("other").await;
    let (_, _, err) = out(&["cancel", "1"]).await;
    assert!(err.contains("several pipelines have a build 1: say ") && err.contains("demo/1"), "{err}");
    assert_eq!(out(&["cancel", "demo/1"]).await.1, "build demo/1: canceled\n");
    let (code, _, err) = out(&["cancel", "demo/1"]).await;
    assert_eq!((code, err.as_str()), (2, "error: build 1 has ended: it is canceled\n"));
    let listed = out(&["builds"]).await.1;
    insta::with_settings!({filters => vec![(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", "[time]             ")]}, {
        insta::assert_snapshot!("builds", listed);
    });
    assert_eq!(out(&["builds", "demo", "--state", "passed"]).await.1, "no build\n");
    let (_, _, err) = out(&["builds", "none"]).await;
    assert_eq!(err, "error: no pipeline none\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_blocked_build_is_told_and_unblocked() {
    let url = server().await;
    let directory = tempfile::tempdir().unwrap();
    let yaml =
        "steps: [{block: Go, key: go, fields: [{text: Who, key: who}]}, {block: Again, depends_on: go}]";
    let file = pipeline(directory.path(), yaml);
    let (code, out, _) = run(&url, &["build", &file, "--repo", URL, "--watch"]).await;
    assert_eq!(code, 4, "{out}");
    assert!(out.contains("blocked: `buildkite-local unblock pipeline/1`, or http://"), "{out}");
    let (code, _, err) = run(&url, &["unblock", "1"]).await;
    assert_eq!(code, 2, "a required field is missing: {err}");
    let (code, out, err) = run(&url, &["unblock", "1", "--field", "who=me"]).await;
    assert_eq!(code, 0, "{err}");
    assert!(out.ends_with("): unblocked\n"), "{out}");
    assert_eq!(run(&url, &["unblock", "1", "--step", "go"]).await.0, 2);
    assert_eq!(run(&url, &["unblock", "1"]).await.0, 0);
    let (_, _, err) = run(&url, &["unblock", "1"]).await;
    assert_eq!(err, "error: build pipeline/1 is not blocked: it is passed\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn agents_and_queues_are_steered() {
    let url = server().await;
    assert_eq!(run(&url, &["agents"]).await.1, "no agent is connected\n");
    let http = bk_ops::http::client("test", std::time::Duration::from_secs(5)).unwrap();
    let body = serde_json::json!({"name": "robot", "hostname": "host", "version": "3.1", "meta_data": ["queue=default"]});
    let register = http.post(format!("{url}/v3/register")).header("Authorization", "Token local-agent-token");
    register.json(&body).send().await.unwrap().error_for_status().unwrap();
    insta::assert_snapshot!("agents", run(&url, &["agents"]).await.1);
    let said = async |arguments: &[&str]| run(&url, arguments).await;
    assert_eq!(said(&["agents", "pause", "robot", "--note", "lunch"]).await.1, "agent robot is paused\n");
    assert!(said(&["agents"]).await.1.contains("paused"));
    assert_eq!(said(&["agents", "resume", "robot"]).await.1, "agent robot goes on\n");
    assert_eq!(said(&["agents", "stop", "robot"]).await.1, "agent robot leaves after its job\n");
    assert!(said(&["agents", "--output", "json"]).await.1.contains("\"stopping\""));
    let (code, _, err) = said(&["agents", "stop", "nobody"]).await;
    assert_eq!(
        (code, err.as_str()),
        (2, "error: no agent nobody is connected; `buildkite-local agents` lists those that are\n")
    );
    assert_eq!(said(&["queue", "pause", "default"]).await.1, "queue default is paused\n");
    assert_eq!(said(&["queue", "list"]).await.1, "QUEUE    STATE\ndefault  paused\n");
    assert_eq!(said(&["queue", "resume", "default"]).await.1, "queue default goes on\n");
    let (_, _, err) = said(&["queue", "pause", "none"]).await;
    assert_eq!(err, "error: no queue none; there is default\n");
}

/// The first Ctrl-C cancels the build, which is then watched to its end.
#[tokio::test(flavor = "multi_thread")]
async fn an_interrupt_cancels_the_build() {
    let url = server().await;
    let directory = tempfile::tempdir().unwrap();
    let file = pipeline(directory.path(), "steps: [{label: one, command: x}]");
    let program = command().get_program().to_owned();
    let mut child = tokio::process::Command::new(program)
        .args(["build", &file, "--repo", URL, "--watch", "--server", &url])
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = tokio::io::BufReader::new(child.stdout.take().unwrap());
    let mut text = String::new();
    while !text.contains("one: scheduled") {
        assert_ne!(tokio::io::AsyncBufReadExt::read_line(&mut lines, &mut text).await.unwrap(), 0, "{text}");
    }
    let id = child.id().unwrap().to_string();
    Command::new("kill").args(["-INT", &id]).status().unwrap();
    tokio::io::AsyncReadExt::read_to_string(&mut lines, &mut text).await.unwrap();
    assert!(text.contains("canceling the build; Ctrl-C again leaves it"), "{text}");
    assert_eq!(child.wait().await.unwrap().code(), Some(3));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_token_is_explained() {
    let url = server().await;
    let (code, _, err) = run(&url, &["builds", "--api-token", "wrong"]).await;
    assert_eq!(code, 2);
    assert_eq!(err, "error: this is not the API token: give --api-token or BUILDKITE_LOCAL_API_TOKEN\n");
    let (_, _, err) = run(&url, &["builds", "--organization", "other"]).await;
    assert_eq!(err, "error: no organization other\n");
}
