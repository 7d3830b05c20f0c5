//! Directories served over git, with the real git as client.

use std::path::Path;
use std::process::Output;

use reqwest::Method;
use serde_json::json;

use crate::harness::{API, REGISTRATION, Rig};

/// Runs git; commits are Ada's.
async fn git(at: &Path, arguments: &[&str]) -> Output {
    let mut command = tokio::process::Command::new("git");
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("GIT_")) {
        command.env_remove(name);
    }
    let person = ["-c", "user.name=Ada", "-c", "user.email=ada@example.com"];
    command.env("GIT_TERMINAL_PROMPT", "0").current_dir(at).args(person).args(arguments);
    command.output().await.unwrap()
}

async fn good(at: &Path, arguments: &[&str]) -> String {
    let output = git(at, arguments).await;
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

/// A work tree with one commit; returns the commit.
async fn work_tree(at: &Path) -> String {
    good(at, &["init", "--quiet", "--initial-branch", "main"]).await;
    std::fs::write(at.join("file"), "content\n").unwrap();
    good(at, &["add", "."]).await;
    good(at, &["commit", "--quiet", "-m", "first"]).await;
    good(at, &["rev-parse", "HEAD"]).await
}

async fn register(rig: &Rig, path: &Path, commit: &str) -> String {
    let body = json!({"path": path, "commit": commit});
    let answer = rig.v2(Method::POST, "repositories", Some(body)).await.ok();
    answer["url"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn work_trees_and_bare_repositories_are_cloned() {
    let rig = Rig::start().await;
    let directory = tempfile::tempdir().unwrap();
    let (tree, bare) = (directory.path().join("my app"), directory.path().join("bare.git"));
    std::fs::create_dir(&tree).unwrap();
    let commit = work_tree(&tree).await;
    good(directory.path(), &["clone", "--quiet", "--bare", "my app", "bare.git"]).await;
    for (path, name, clone) in [(&tree, "my-app.git", "a"), (&bare, "bare.git", "b")] {
        let url = register(&rig, path, &commit).await;
        assert!(url.ends_with(name), "{url}");
        assert_eq!(register(&rig, path, &commit).await, url, "the address stays");
        good(directory.path(), &["clone", "--quiet", &url, clone]).await;
        assert_eq!(good(&directory.path().join(clone), &["rev-parse", "HEAD"]).await, commit);
        good(directory.path(), &["clone", "--quiet", "--depth", "1", &url, &format!("{clone}-shallow")])
            .await;
    }
}

#[rstest::rstest]
#[case("protocol.version=0")]
#[case("protocol.version=2")]
#[tokio::test]
async fn a_commit_on_no_branch_is_fetched_by_its_id(#[case] protocol: &str) {
    let rig = Rig::start().await;
    let directory = tempfile::tempdir().unwrap();
    let tree = directory.path().join("tree");
    std::fs::create_dir(&tree).unwrap();
    let first = work_tree(&tree).await;
    let url = register(&rig, &tree, &first).await;
    let root = good(&tree, &["rev-parse", "HEAD^{tree}"]).await;
    let loose = good(&tree, &["commit-tree", &root, "-p", &first, "-m", "loose"]).await;
    let clone = directory.path().join("clone");
    good(directory.path(), &["-c", protocol, "clone", "--quiet", &url, "clone"]).await;
    good(&clone, &["-c", protocol, "fetch", "--quiet", "origin", &loose]).await;
    assert_eq!(good(&clone, &["rev-parse", "FETCH_HEAD"]).await, loose);
}

/// Git compresses requests of more than a kilobyte, and sends long ones in chunks.
#[tokio::test]
async fn long_negotiations_are_understood() {
    let rig = Rig::start().await;
    let directory = tempfile::tempdir().unwrap();
    let tree = directory.path().join("tree");
    std::fs::create_dir(&tree).unwrap();
    let commit = work_tree(&tree).await;
    let url = register(&rig, &tree, &commit).await;
    good(directory.path(), &["clone", "--quiet", &url, "clone"]).await;
    let clone = directory.path().join("clone");
    for number in 0..120 {
        good(&clone, &["commit", "--quiet", "--allow-empty", "-m", &number.to_string()]).await;
    }
    good(&tree, &["commit", "--quiet", "--allow-empty", "-m", "news"]).await;
    good(&clone, &["fetch", "--quiet", "origin"]).await;
    good(&clone, &["-c", "protocol.version=0", "-c", "http.postBuffer=1", "fetch", "--quiet", &url]).await;
    let news = good(&tree, &["rev-parse", "HEAD"]).await;
    assert_eq!(good(&clone, &["rev-parse", "FETCH_HEAD"]).await, news);
}

#[tokio::test]
async fn nobody_pushes_and_only_registered_directories_are_served() {
    let rig = Rig::start().await;
    let directory = tempfile::tempdir().unwrap();
    let commit = work_tree(directory.path()).await;
    let url = register(&rig, directory.path(), &commit).await;
    let push = git(directory.path(), &["push", &url, "HEAD:refs/heads/x"]).await;
    assert!(!push.status.success());
    assert!(!good(directory.path(), &["for-each-ref"]).await.contains("refs/heads/x"));
    let path = url.strip_prefix(&rig.root).unwrap();
    let get = |path: String| rig.send(rig.request(Method::GET, &path));
    get(format!("{path}/info/refs?service=git-receive-pack")).await.refused(403);
    get(format!("{path}/info/refs")).await.refused(403);
    get(format!("{path}/HEAD")).await.refused(404);
    get(format!("{path}/objects/info/packs")).await.refused(404);
    let unknown = "/git/00000000000000000000000000000000/x.git/info/refs?service=git-upload-pack";
    get(unknown.to_owned()).await.refused(404);
    let typed = rig.request(Method::POST, &format!("{path}/git-upload-pack")).body("0000");
    rig.send(typed.header("Content-Type", "text/plain")).await.refused(415);
    let receive = rig.request(Method::POST, &format!("{path}/git-receive-pack"));
    rig.send(receive).await.refused(403);
}

#[tokio::test]
async fn what_is_no_repository_of_this_machine_is_refused() {
    let rig = Rig::start().await;
    let directory = tempfile::tempdir().unwrap();
    let tree = directory.path().join("tree");
    std::fs::create_dir_all(tree.join("inner")).unwrap();
    let commit = work_tree(&tree).await;
    let other = "0123456789012345678901234567890123456789";
    let refuse = async |path: &str, commit: &str| {
        let body = json!({"path": path, "commit": commit});
        rig.v2(Method::POST, "repositories", Some(body)).await.refused(422)
    };
    let at = tree.to_str().unwrap();
    assert!(refuse("tree", &commit).await.contains("must be absolute"));
    assert!(refuse("/no/such/place", &commit).await.contains("cannot open /no/such/place"));
    assert!(refuse(at, other).await.contains("on its own machine"));
    assert!(refuse(at, "HEAD").await.contains("full commit id"));
    assert!(refuse(directory.path().to_str().unwrap(), &commit).await.contains("holds no commit"));
    assert!(refuse(&format!("{at}/file"), &commit).await.contains("not a directory"));
    let inner = refuse(&format!("{at}/inner"), &commit).await;
    assert!(inner.contains("holds no commit"), "the repository above is another directory: {inner}");
    let path = "/v2/organizations/local/repositories";
    rig.send(rig.request(Method::POST, path)).await.refused(401);
    rig.send(rig.request(Method::POST, path).bearer_auth(REGISTRATION)).await.refused(401);
    rig.send(rig.request(Method::POST, path).bearer_auth(API)).await.refused(422);
}
