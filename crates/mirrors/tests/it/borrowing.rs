//! Checkouts out of mirrors, as the agent goes on with them.

use std::fs;

use bk_mirrors::borrow::BorrowArgs;
use rstest::rstest;

use crate::{
    origin::{command, git},
    scene::{Scene, agent_goes_on},
};

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_that_the_mirror_has_is_not_fetched() {
    let scene = Scene::new().await;
    let app = scene.origin.create("app");
    let commit = app.commit("src/main", "code");
    app.git(&["tag", "-a", "v1", "-m", "one"]);
    app.push(&["main", "v1"]);
    scene.sync("app").await.unwrap();
    let calls = scene.origin.calls();
    let (checkout, log) = scene.borrow("app", &commit).await;
    assert!(log.contains("is borrowed from its mirror, fetched ") && !log.contains("newer"), "{log}");
    assert_eq!(scene.origin.calls(), calls, "the server was not asked");
    let sent = scene.origin.sent();
    agent_goes_on(&checkout, &commit, &["-v", "--prune", "--no-tags"]);
    assert_eq!(scene.origin.calls(), calls, "nor by the agent, unless it looks for tags");
    agent_goes_on(&checkout, &commit, &["-v", "--prune"]);
    assert!(scene.origin.sent() - sent < 1000, "and then it gets a list and no objects");
    assert_eq!(fs::read_to_string(checkout.join("src/main")).unwrap(), "code");
    // It looks like a clone.
    assert_eq!(git(&checkout, &["config", "remote.origin.url"]).trim(), scene.origin.url("app"));
    assert_eq!(git(&checkout, &["rev-parse", "origin/HEAD"]).trim(), commit);
    assert_eq!(git(&checkout, &["describe"]).trim(), "v1");
    assert_eq!(git(&checkout, &["status", "--porcelain"]), "");
    git(&checkout, &["fsck", "--strict"]);
    git(&checkout, &["fetch", "--prune", "origin"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn only_what_is_newer_is_fetched() {
    let scene = Scene::new().await;
    let app = scene.origin.create("app");
    app.commit("large", &noise(1 << 20));
    app.push(&["main"]);
    scene.sync("app").await.unwrap();
    let newest = app.commit("small", "new");
    app.push(&["main:refs/pull/9/head"]);
    let (checkout, log) = scene.borrow("app", &newest).await;
    assert!(log.contains("what is newer comes from its server"), "{log}");
    let sent = scene.origin.sent();
    agent_goes_on(&checkout, &newest, &["-v", "--prune"]);
    let fetched = scene.origin.sent() - sent;
    assert!(fetched < 10_000, "{fetched} bytes for one small commit");
    assert_eq!(fs::read_to_string(checkout.join("small")).unwrap(), "new");
    // A pull request's reference, as the agent fetches it.
    git(&checkout, &["fetch", "--", "origin", "refs/pull/9/head", &newest]);
    assert_eq!(git(&checkout, &["rev-parse", "FETCH_HEAD"]).trim(), newest);
}

#[rstest]
#[case::shallow("--depth=1", &["--depth=1"])]
#[case::partial("--filter=blob:none", &["--filter=blob:none"])]
#[case::both("--depth=5 --filter=blob:none --no-tags", &["--depth=5", "--filter=blob:none"])]
#[tokio::test(flavor = "multi_thread")]
async fn shallow_and_partial_clones_work_on(#[case] clone_flags: &str, #[case] fetch_flags: &[&str]) {
    let scene = Scene::new().await;
    let app = scene.origin.create("app");
    for round in 0..5 {
        app.commit("file", &format!("{round}{}", noise(1 << 16)));
    }
    app.push(&["main"]);
    scene.sync("app").await.unwrap();
    let newest = app.commit("small", "new");
    app.push(&["main"]);
    let checkout = scene.checkout();
    let log = scene
        .run(BorrowArgs {
            repository: Some(scene.origin.url("app")),
            checkout: Some(checkout.clone()),
            commit: Some(newest.clone()),
            clone_flags: clone_flags.to_owned(),
            ..scene.args()
        })
        .await;
    assert!(log.contains("is borrowed from its mirror"), "{log}");
    let sent = scene.origin.sent();
    agent_goes_on(&checkout, &newest, fetch_flags);
    assert!(scene.origin.sent() - sent < 100_000, "{} bytes", scene.origin.sent() - sent);
    assert_eq!(fs::read_to_string(checkout.join("small")).unwrap(), "new");
    assert_eq!(git(&checkout, &["status", "--porcelain"]), "");
}

#[tokio::test(flavor = "multi_thread")]
async fn submodules_borrow_too_and_those_without_a_mirror_are_cloned() {
    let scene = Scene::new().await;
    let deep = scene.origin.create("deep");
    deep.commit("deep", &noise(1 << 18));
    deep.push(&["main"]);
    let lib = scene.origin.create("lib");
    lib.git(&["submodule", "--quiet", "add", &scene.origin.url("deep"), "below/deep"]);
    lib.commit("lib", &noise(1 << 18));
    lib.push(&["main"]);
    let plain = scene.origin.create("plain");
    drop(plain);
    let app = scene.origin.create("app");
    app.git(&["submodule", "--quiet", "add", &scene.origin.url("lib"), "vendor/lib"]);
    app.git(&["submodule", "--quiet", "add", &scene.origin.url("plain"), "plain"]);
    app.git(&["config", "--file", ".gitmodules", "submodule.vendor/lib.url", "../lib.git"]);
    let commit = app.commit("app", "app");
    app.push(&["main"]);
    for name in ["app", "lib", "deep"] {
        scene.sync(name).await.unwrap();
    }
    let sent = scene.origin.sent();
    let (checkout, log) = scene.borrow("app", &commit).await;
    assert!(log.contains("2 submodules too"), "{log}");
    agent_goes_on(&checkout, &commit, &[]);
    assert!(scene.origin.sent() - sent < 50_000, "{} bytes", scene.origin.sent() - sent);
    for file in ["vendor/lib/lib", "vendor/lib/below/deep/deep", "plain/README"] {
        assert!(checkout.join(file).is_file(), "{file}");
    }
    assert_eq!(git(&checkout, &["status", "--porcelain"]), "");
}

#[tokio::test(flavor = "multi_thread")]
async fn whatever_is_wrong_costs_one_line() {
    let mut scene = Scene::new().await;
    scene.origin.create("app");
    let (checkout, log) = scene.borrow("app", "HEAD").await;
    assert!(log.ends_with("is cloned from its server: there is no mirror of it\n"), "{log}");
    assert!(!checkout.exists());

    scene.pass(-700_000);
    scene.sync("app").await.unwrap();
    let (_, log) = scene.borrow("app", "HEAD").await;
    assert!(log.ends_with("its mirror was last fetched 194 h ago\n"), "{log}");

    scene.pass(700_000);
    scene.sync("app").await.unwrap();
    // Somebody writes it at this moment: that is no reason to wait.
    let lock = fs::File::open(scene.place("app").lock_file()).unwrap();
    lock.lock().unwrap();
    let (checkout, log) = scene.borrow("app", "HEAD").await;
    assert!(log.contains("is borrowed from its mirror"), "{log}");
    assert!(checkout.join(".git/HEAD").is_file());

    fs::remove_file(scene.repository("app").join("borrowed-refs")).unwrap();
    let (_, log) = scene.borrow("app", "HEAD").await;
    assert!(log.contains("its mirror cannot be read"), "{log}");
    assert_eq!(log.lines().count(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_checkout_that_is_there_is_left_alone() {
    let scene = Scene::new().await;
    let app = scene.origin.create("app");
    scene.sync("app").await.unwrap();
    let args = |checkout: &std::path::Path| BorrowArgs {
        repository: Some(scene.origin.url("app")),
        checkout: Some(checkout.to_owned()),
        ..scene.args()
    };
    let log = scene.run(args(&app.directory)).await;
    assert!(log.contains("has a clone already"), "{log}");
    let filled = scene.workspace.path().join("filled");
    fs::create_dir(&filled).unwrap();
    fs::write(filled.join("mine"), "").unwrap();
    let log = scene.run(args(&filled)).await;
    assert!(log.contains("is not empty"), "{log}");
    assert!(!filled.join(".git").exists());
    let log = scene.run(BorrowArgs { clone_flags: "--mirror".to_owned(), ..args(&scene.checkout()) }).await;
    assert!(log.contains("the clone is to have --mirror"), "{log}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mirror_on_a_volume_that_cannot_be_written_is_enough() {
    let scene = Scene::new().await;
    let app = scene.origin.create("app");
    let commit = app.git(&["rev-parse", "main"]).trim().to_owned();
    scene.sync("app").await.unwrap();
    let before = listing(scene.mirrors.path());
    let (checkout, _) = scene.borrow("app", &commit).await;
    agent_goes_on(&checkout, &commit, &[]);
    git(&checkout, &["commit", "--quiet", "--allow-empty", "--message", "own"]);
    git(&checkout, &["gc", "--quiet", "--prune=now"]);
    git(&checkout, &["fsck", "--strict"]);
    assert_eq!(listing(scene.mirrors.path()), before, "borrowers write nothing");
}

#[tokio::test(flavor = "multi_thread")]
async fn further_repositories_are_beside_the_checkout() {
    let mut scene = Scene::new().await;
    let data = scene.origin.create("data");
    data.commit("table", "old");
    data.push(&["main"]);
    scene.origin.create("plain");
    scene.sync("data").await.unwrap();
    data.commit("table", "new");
    data.push(&["main"]);
    let calls = scene.origin.calls();
    let extra = |scene: &Scene, names: &[&str], directory: &str| BorrowArgs {
        extra_repos: names.iter().map(|name| scene.origin.url(name)).collect(),
        extra_directory: scene.workspace.path().join(directory),
        ..scene.args()
    };
    let table = |scene: &Scene, directory: &str| {
        let place = scene.address("data").canonical().replace(':', "_");
        fs::read_to_string(scene.workspace.path().join(directory).join(place).join("table")).unwrap()
    };
    let log = scene.run(extra(&scene, &["data"], "one")).await;
    assert_eq!(table(&scene, "one"), "old", "{log}");
    assert_eq!(scene.origin.calls(), calls, "the mirror is young enough");

    scene.pass(-1000);
    data.commit("table", "newest");
    scene.sync("data").await.unwrap();
    data.push(&["main"]);
    let log = scene.run(extra(&scene, &["data", "plain", "missing"], "two")).await;
    assert_eq!(table(&scene, "two"), "newest", "{log}");
    assert!(log.contains("fetched now"), "{log}");
    assert!(log.contains("plain is cloned from its server: there is no mirror of it"), "{log}");
    assert!(log.lines().last().unwrap().contains("missing cannot be cloned"), "{log}");
    let plain = scene.workspace.path().join("two").join(scene.address("plain").canonical().replace(':', "_"));
    assert_eq!(git(&plain, &["rev-parse", "--abbrev-ref", "HEAD"]).trim(), "main");
    git(&plain, &["fetch", "origin"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_does_not_answer_delays_no_job_for_long() {
    let scene = Scene::new().await;
    scene.origin.create("app");
    scene.origin.fall_silent();
    let began = std::time::Instant::now();
    let log = scene
        .run(BorrowArgs { extra_repos: vec![scene.origin.url("app")], timeout: 1, ..scene.args() })
        .await;
    assert!(began.elapsed().as_secs() < 15, "{:?}", began.elapsed());
    assert!(log.contains("longer than 1 s"), "{log}");
}

fn listing(directory: &std::path::Path) -> Vec<String> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).unwrap() {
        let entry = entry.unwrap();
        let meta = entry.metadata().unwrap();
        if meta.is_dir() {
            found.extend(listing(&entry.path()));
        } else {
            found.push(format!("{} {} {:?}", entry.path().display(), meta.len(), meta.modified().unwrap()));
        }
    }
    found.sort();
    found
}

/// Text that cannot be compressed much.
fn noise(length: usize) -> String {
    let mut state: u64 = 0x0139_408d_cbbf_7a44 ^ length as u64;
    (0..length)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            char::from(b' ' + u8::try_from(state % 94).unwrap())
        })
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_outlives_a_rebuilt_mirror_reads_on() {
    let mut scene = Scene::new().await;
    let app = scene.origin.create("app");
    let commit = app.git(&["rev-parse", "main"]).trim().to_owned();
    scene.sync("app").await.unwrap();
    let (checkout, _) = scene.borrow("app", &commit).await;
    agent_goes_on(&checkout, &commit, &[]);
    // The remote forgets the job's commit, and a lost index makes the syncer build another repository.
    app.git(&["checkout", "--quiet", "--orphan", "other"]);
    app.commit("README", "other");
    app.push(&["other:main"]);
    let old = scene.repository("app");
    fs::write(old.join("objects/pack/pack-0.idx"), "broken").unwrap();
    assert!(scene.sync("app").await.unwrap().rebuilt.is_some());
    fs::remove_file(old.join("objects/pack/pack-0.idx")).unwrap();
    scene.pass(3600);
    scene.sync("app").await.unwrap();
    assert!(command(&checkout, &["fsck", "--strict"]).status().unwrap().success());
}
