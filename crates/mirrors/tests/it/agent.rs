//! The real agent goes on with a prepared checkout: `cargo xtask test --only unit --ignored --filter agent`.

use std::{path::Path, process::Command};

use bk_mirrors::borrow::BorrowArgs;
use rstest::rstest;

use crate::scene::Scene;

/// Runs the agent's bootstrap for a commit. Returns its log.
fn bootstrap(scene: &Scene, builds: &Path, commit: &str, fetch_flags: &str) -> String {
    let program = std::env::var("BUILDKITE_AGENT_PROGRAM").expect("BUILDKITE_AGENT_PROGRAM is the agent");
    let url = scene.origin.url("app");
    let variables = [
        ("BUILDKITE_REPO", url.as_str()),
        ("BUILDKITE_COMMIT", commit),
        ("BUILDKITE_BRANCH", "main"),
        ("BUILDKITE_JOB_ID", "1"),
        ("BUILDKITE_AGENT_NAME", "agent"),
        ("BUILDKITE_ORGANIZATION_SLUG", "org"),
        ("BUILDKITE_PIPELINE_SLUG", "pipeline"),
        ("BUILDKITE_PIPELINE_PROVIDER", "git"),
        ("BUILDKITE_PULL_REQUEST", "false"),
        ("BUILDKITE_COMMAND", "test -f README && git log --oneline -n 1 origin/main && git submodule status"),
        ("BUILDKITE_GIT_FETCH_FLAGS", fetch_flags),
        ("BUILDKITE_GIT_CLEAN_FLAGS", "-ffxdq"),
        ("BUILDKITE_SSH_KEYSCAN", "false"),
        ("GIT_CONFIG_GLOBAL", "/dev/null"),
        ("HOME", "/nonexistent"),
    ];
    let path = std::env::var("PATH").unwrap();
    let done = Command::new(program)
        .arg("bootstrap")
        .env_clear()
        .env("PATH", path)
        .env("BUILDKITE_BUILD_PATH", builds)
        .env("BUILDKITE_BIN_PATH", builds)
        .env("BUILDKITE_ADDITIONAL_HOOKS_PATHS", builds.join("hooks"))
        .envs(variables)
        .output()
        .unwrap();
    let log = [done.stdout, done.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
    assert!(done.status.success(), "{log}");
    log
}

#[rstest]
#[case::usual("-v --prune")]
#[case::shallow("-v --prune --depth=1")]
#[case::partial("-v --prune --filter=blob:none")]
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs the agent's program"]
async fn the_agent_uses_what_it_finds(#[case] fetch_flags: &str) {
    let scene = Scene::new().await;
    let lib = scene.origin.create("lib");
    lib.commit("lib", "lib");
    lib.push(&["main"]);
    let app = scene.origin.create("app");
    app.git(&["submodule", "--quiet", "add", &scene.origin.url("lib"), "lib"]);
    let old = app.commit("app", "app");
    app.push(&["main"]);
    for name in ["lib", "app"] {
        scene.sync(name).await.unwrap();
    }
    let newest = app.commit("more", "more");
    app.push(&["main"]);
    for commit in [old.as_str(), newest.as_str(), "HEAD"] {
        let builds = scene.checkout();
        let checkout = builds.join("agent/org/pipeline");
        let said = scene
            .run(BorrowArgs {
                repository: Some(scene.origin.url("app")),
                checkout: Some(checkout.clone()),
                commit: Some(commit.to_owned()),
                hooks: Some(builds.join("hooks")),
                ..scene.args()
            })
            .await;
        assert!(said.contains("is borrowed from its mirror"), "{said}");
        let log = bootstrap(&scene, &builds, commit, fetch_flags);
        assert!(
            !log.contains("git clone") && !log.contains("Cloning into"),
            "the agent did not clone: {log}"
        );
        assert!(log.contains("is borrowed from its mirror"), "the job's log says so: {log}");
        assert!(!log.contains("has changed") && !log.contains("Checkout failed"), "{log}");
        assert!(checkout.join("lib/lib").is_file(), "{log}");
        assert_eq!(checkout.join("more").exists(), commit != old, "{log}");
        assert!(checkout.join(".git/objects/info/alternates").is_file());
    }
}
