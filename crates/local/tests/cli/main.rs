//! The command line: what it prints and how it ends.
#![allow(clippy::unwrap_used, reason = "a test may fail where it stands")]

mod commands;
mod harness;
mod help;

use harness::{command, one_line_error, pipeline, play_agent, server};

#[test]
fn a_server_on_the_network_needs_tokens() {
    let error = one_line_error(command().args(["serve", "--listen", "0.0.0.0:0"]));
    assert!(error.contains("is not loopback, needs an agent token"), "{error}");
    let error = one_line_error(command().args(["serve", "--listen", "0.0.0.0:0", "--agent-token", "a"]));
    assert!(error.contains("needs an API token"), "{error}");
}

#[test]
fn errors_are_one_clear_line() {
    let error = one_line_error(command().args(["build", "none.yml", "--repo", "https://git.local/r.git"]));
    assert!(error.contains("cannot read the pipeline none.yml"), "{error}");
    let directory = tempfile::tempdir().unwrap();
    let file = pipeline(directory.path(), "steps: []");
    // Port 1 is reserved; nothing listens there.
    let error = one_line_error(command().args([
        "build",
        &file,
        "--repo",
        "https://git.local/r.git",
        "--server",
        "http://127.0.0.1:1",
    ]));
    assert!(error.contains("start one with `buildkite-local serve`"), "{error}");
    let error = one_line_error(command().args(["serve", "--database", directory.path().to_str().unwrap()]));
    assert!(error.contains("cannot open the database"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_pipeline_is_explained() {
    let url = server().await;
    let directory = tempfile::tempdir().unwrap();
    let file = pipeline(directory.path(), "steps:\n  - command: x\n    lable: y\n");
    let error = tokio::task::spawn_blocking(move || {
        one_line_error(command().args([
            "build",
            &file,
            "--repo",
            "https://git.local/r.git",
            "--server",
            &url,
        ]))
    })
    .await
    .unwrap();
    assert!(error.contains("line 3") && error.contains("did you mean label?"), "{error}");
}

#[rstest::rstest]
#[case("0", 0, "build pipeline/1: passed")]
#[case("3", 1, "one: failed with exit status 3")]
#[tokio::test(flavor = "multi_thread")]
async fn watching_ends_with_the_result(#[case] exit_status: &str, #[case] code: i32, #[case] line: &str) {
    let url = server().await;
    let directory = tempfile::tempdir().unwrap();
    let file = pipeline(directory.path(), "steps: [{label: one, command: x}]");
    let watched = {
        let url = url.clone();
        tokio::task::spawn_blocking(move || {
            command()
                .args(["build", &file, "--repo", "https://git.local/r.git", "--server", &url, "--watch"])
                .output()
                .unwrap()
        })
    };
    play_agent(&url, "one\n", exit_status).await;
    let output = watched.await.unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(code), "{text}");
    assert!(text.lines().any(|printed| printed == line), "{text}");
    assert!(text.lines().any(|printed| printed == "one | one"), "{text}");
    assert!(!text.contains('\u{1b}'), "colours in a pipe: {text}");
}
