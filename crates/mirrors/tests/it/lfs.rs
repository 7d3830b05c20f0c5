//! Files of Git LFS, with the real program; `cargo xtask test` installs it.

use std::fs;

use bk_mirrors::mirror::{self, Order};

use crate::{
    origin::{command, git},
    scene::Scene,
};

#[tokio::test(flavor = "multi_thread")]
async fn files_of_the_default_branch_are_borrowed_too() {
    let scene = Scene::new().await;
    let app = scene.origin.create("app");
    let store = tempfile::tempdir().unwrap();
    let files = store.path().join("store.git");
    git(store.path(), &["init", "--quiet", "--bare", files.to_str().unwrap()]);
    app.git(&["lfs", "install", "--local"]);
    app.git(&["lfs", "track", "*.bin"]);
    app.git(&["config", "--file", ".lfsconfig", "lfs.url", &format!("file://{}", files.display())]);
    let content = "not in git\n".repeat(10_000);
    let commit = app.commit("large.bin", &content);
    app.push(&["main"]);

    let order = Order { lfs: true, ..scene.order("app") };
    let outcome = mirror::sync(scene.mirrors.path(), &order, scene.rules, scene.now).await.unwrap();
    assert_eq!(outcome.warning, None);
    // Only the mirror has it now.
    fs::remove_dir_all(&files).unwrap();

    let (checkout, log) = scene.borrow("app", &commit).await;
    assert!(log.contains("is borrowed"), "{log}");
    git(&checkout, &["lfs", "install", "--local"]);
    let done = command(&checkout, &["checkout", "--quiet", "--force", &commit]).output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    assert_eq!(fs::read_to_string(checkout.join("large.bin")).unwrap(), content);
}
