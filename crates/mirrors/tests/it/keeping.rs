//! Mirrors are made, fetched, tidied and rebuilt.

use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    time::Duration,
};

use bk_mirrors::{Error, borrow::Loan, mirror};
use rstest::rstest;

use crate::{
    origin::{command, git},
    scene::Scene,
};

fn packs(repository: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(repository.join("objects/pack")).unwrap();
    entries
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|e| e == "pack"))
        .collect()
}

/// Opens a file that git has written, read-only as it does.
fn writable(file: &Path) -> fs::File {
    let mut permissions = fs::metadata(file).unwrap().permissions();
    #[allow(clippy::permissions_set_readonly_false, reason = "a test's own file")]
    permissions.set_readonly(false);
    fs::set_permissions(file, permissions).unwrap();
    fs::File::options().read(true).write(true).open(file).unwrap()
}

fn cut_off(file: &Path) {
    let length = fs::metadata(file).unwrap().len();
    writable(file).set_len(length / 2).unwrap();
}

/// Changes one byte in the middle.
fn flip(file: &Path) {
    let middle = fs::metadata(file).unwrap().len() / 2;
    let (file, mut byte) = (writable(file), [0]);
    file.read_exact_at(&mut byte, middle).unwrap();
    file.write_all_at(&[!byte[0]], middle).unwrap();
}

#[tokio::test]
async fn branches_tags_and_pull_requests_are_there_and_go_again() {
    let scene = Scene::new().await;
    let app = scene.origin.create("app");
    app.git(&["branch", "feature/a"]);
    app.git(&["tag", "-a", "v1", "-m", "one"]);
    app.push(&["feature/a", "v1", "main:refs/pull/7/head", "main:refs/pull/7/merge"]);
    let outcome = scene.sync("app").await.unwrap();
    assert_eq!(outcome.rebuilt, None);
    let names = |scene: &Scene| git(&scene.repository("app"), &["for-each-ref", "--format=%(refname)"]);
    assert_eq!(names(&scene), "refs/heads/feature/a\nrefs/heads/main\nrefs/pull/7/head\nrefs/tags/v1\n");
    assert_eq!(outcome.record.head.unwrap().branch, "main");

    app.push(&[":feature/a", ":refs/pull/7/head"]);
    let newest = app.commit("more", "more");
    app.push(&["main"]);
    let outcome = scene.sync("app").await.unwrap();
    assert_eq!(names(&scene), "refs/heads/main\nrefs/tags/v1\n");
    assert_eq!(outcome.record.head.unwrap().commit, newest);

    let order = mirror::Order { refs: vec!["refs/tags/*".to_owned()], ..scene.order("app") };
    mirror::sync(scene.mirrors.path(), &order, scene.rules, scene.now).await.unwrap();
    assert_eq!(names(&scene), "refs/tags/v1\n", "what the filter no longer asks for goes");
}

#[tokio::test]
async fn nothing_that_was_fetched_is_ever_lost() {
    let mut scene = Scene::new().await;
    scene.rules.gc.max_packs = 3;
    let app = scene.origin.create("app");
    let mut pushed = Vec::new();
    for round in 0..12 {
        // Each commit replaces the one before: what was there is no longer reachable.
        app.git(&["checkout", "--quiet", "--orphan", &format!("o{round}")]);
        pushed.push(app.commit("file", &format!("round {round}")));
        app.push(&[&format!("o{round}:main")]);
        scene.sync("app").await.unwrap();
        scene.pass(3600);
    }
    scene.pass(90_000);
    let outcome = scene.sync("app").await.unwrap();
    assert!(outcome.packs <= 4, "packs were joined: {}", outcome.packs);
    assert_eq!(outcome.record.leavings, [], "and what was left is gone");
    let repository = scene.repository("app");
    for commit in pushed {
        git(&repository, &["rev-list", "--objects", &commit]);
    }
}

#[tokio::test]
async fn a_repository_that_is_borrowed_from_never_loses_a_file() {
    let mut scene = Scene::new().await;
    scene.rules.gc.max_packs = 2;
    let app = scene.origin.create("app");
    let mut seen: BTreeMap<PathBuf, Vec<PathBuf>> = BTreeMap::new();
    for round in 0..8 {
        app.commit("file", &format!("round {round}"));
        app.push(&["main"]);
        scene.sync("app").await.unwrap();
        seen.insert(scene.repository("app"), packs(&scene.repository("app")));
        for (repository, before) in &seen {
            let now = packs(repository);
            assert!(before.iter().all(|pack| now.contains(pack)), "{}", repository.display());
        }
    }
    assert!(seen.len() > 2, "packs were joined more than once");
    let (old, _) = seen.pop_first().unwrap();
    git(&old, &["fsck", "--strict"]);
    let record = scene.record("app");
    assert_eq!(record.leavings.len(), seen.len());

    scene.pass(i64::from(scene.rules.gc.grace_seconds));
    let outcome = scene.sync("app").await.unwrap();
    assert!(!old.exists() && outcome.record.leavings.is_empty());
    git(&scene.repository("app"), &["fsck", "--strict"]);
    git(&scene.repository("app"), &["rev-list", "--objects", "--all"]);
}

#[tokio::test]
async fn a_clone_that_is_cut_short_is_never_seen() {
    let mut scene = Scene::new().await;
    let app = scene.origin.create("app");
    scene.origin.fall_silent();
    scene.rules.timeout = Duration::from_millis(700);
    let error = scene.sync("app").await.unwrap_err();
    assert!(error.to_string().contains("took longer than"), "{error}");
    assert_eq!(scene.place("app").read().unwrap(), None);

    // A syncer that is killed leaves its work half done.
    let half = scene.place("app").directory.join("g7.new");
    fs::create_dir_all(half.join("objects/pack")).unwrap();
    fs::write(half.join("objects/pack/tmp_pack_x"), "half").unwrap();
    let again = Scene { now: scene.now, ..Scene::new().await };
    let other = again.origin.create("app");
    drop(app);
    let elsewhere = again.place("app").directory;
    fs::create_dir_all(&elsewhere).unwrap();
    fs::rename(&half, elsewhere.join("g7.new")).unwrap();
    let (_, log) = again.borrow("app", "HEAD").await;
    assert!(log.contains("there is no mirror of it"), "{log}");
    again.sync("app").await.unwrap();
    assert!(!elsewhere.join("g7.new").exists());
    assert_eq!(again.record("app").head.unwrap().commit, other.git(&["rev-parse", "main"]).trim());
}

#[tokio::test]
async fn what_a_killed_git_leaves_is_cleared_away() {
    let scene = Scene::new().await;
    let app = scene.origin.create("app");
    scene.sync("app").await.unwrap();
    let repository = scene.repository("app");
    let traces = [
        "packed-refs.lock",
        "HEAD.lock",
        "refs/heads/main.lock",
        "objects/pack/tmp_pack_abc",
        "objects/pack/tmp_idx_abc",
    ];
    for trace in traces {
        fs::create_dir_all(repository.join(trace).parent().unwrap()).unwrap();
        fs::write(repository.join(trace), "").unwrap();
    }
    let newest = app.commit("more", "more");
    app.push(&["main"]);
    assert_eq!(scene.sync("app").await.unwrap().record.head.unwrap().commit, newest);
    for trace in traces {
        assert!(!repository.join(trace).exists(), "{trace}");
    }
}

#[tokio::test]
async fn two_never_write_one_mirror() {
    let scene = Scene::new().await;
    scene.origin.create("app");
    scene.sync("app").await.unwrap();
    let lock = fs::File::open(scene.place("app").lock_file()).unwrap();
    lock.lock().unwrap();
    assert!(matches!(scene.sync("app").await, Err(Error::Locked(_))));
    drop(lock);
    scene.sync("app").await.unwrap();
}

#[tokio::test]
async fn a_pack_that_is_cut_off_is_noticed_and_the_mirror_made_anew() {
    let mut scene = Scene::new().await;
    let app = scene.origin.create("app");
    scene.sync("app").await.unwrap();
    let damaged = scene.repository("app");
    cut_off(&packs(&damaged)[0]);
    let refused = Loan::find(scene.mirrors.path(), &scene.address("app"), scene.now, 60).unwrap_err();
    assert!(refused.to_string().starts_with("its mirror is damaged: pack-"), "{refused}");
    let (checkout, log) = scene.borrow("app", "HEAD").await;
    assert!(log.contains("is cloned from its server: its mirror is damaged"), "{log}");
    assert!(!checkout.exists(), "the agent finds an empty place");

    let newest = app.commit("more", "more");
    app.push(&["main"]);
    let outcome = scene.sync("app").await.unwrap();
    assert!(outcome.rebuilt.unwrap().contains("does not end as its index says"));
    assert_eq!(outcome.record.head.unwrap().commit, newest);
    assert_ne!(scene.repository("app"), damaged);
    assert!(damaged.exists(), "jobs may still read what is left of it");
    git(&scene.repository("app"), &["fsck", "--strict"]);

    scene.pass(i64::from(scene.rules.gc.grace_seconds));
    scene.sync("app").await.unwrap();
    assert!(!damaged.exists());
}

#[rstest]
#[case("pack")]
#[case("idx")]
#[tokio::test]
async fn a_byte_that_has_changed_is_found_by_the_check_and_the_mirror_made_anew(#[case] ending: &str) {
    let mut scene = Scene::new().await;
    let app = scene.origin.create("app");
    // A file that no delta makes small, so that the middle of the pack is in it; and none that a fetch has to read.
    let numbers = (0_u64..20_000).map(|number| number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let noise = numbers.map(|number| number.to_string()).collect::<Vec<_>>().concat();
    app.commit("noise", &noise);
    app.push(&["main"]);
    scene.sync("app").await.unwrap();
    let damaged = scene.repository("app");
    scene.pass(1);
    assert_eq!(scene.sync("app").await.unwrap().rebuilt, None);
    let [pack] = &packs(&damaged)[..] else { panic!("one pack") };
    flip(&pack.with_extension(ending));
    scene.pass(i64::from(scene.rules.gc.verify_seconds));
    let rebuilt = scene.sync("app").await.unwrap().rebuilt.expect("it is noticed");
    assert!(rebuilt.contains(&format!(".{ending}: its content is not what its sum says")), "{rebuilt}");
    git(&scene.repository("app"), &["fsck", "--strict"]);
    assert_eq!(git(&scene.repository("app"), &["show", "main:noise"]), noise);
}

#[tokio::test]
async fn a_lost_object_is_found_by_the_check_and_the_mirror_made_anew() {
    let mut scene = Scene::new().await;
    let app = scene.origin.create("app");
    scene.sync("app").await.unwrap();
    let repository = scene.repository("app");
    // All objects in files of their own, and one of them gone.
    for pack in packs(&repository) {
        let moved = scene.workspace.path().join("moved.pack");
        fs::rename(&pack, &moved).unwrap();
        fs::remove_file(pack.with_extension("idx")).unwrap();
        let unpacked =
            command(&repository, &["unpack-objects", "-q"]).stdin(fs::File::open(&moved).unwrap()).status();
        assert!(unpacked.unwrap().success());
    }
    let blob = git(&repository, &["rev-parse", "main:README"]);
    let (first, rest) = blob.trim().split_at(2);
    fs::remove_file(repository.join("objects").join(first).join(rest)).unwrap();
    assert_eq!(scene.sync("app").await.unwrap().rebuilt, None, "nothing shows it yet");
    scene.pass(i64::from(scene.rules.gc.verify_seconds));
    let outcome = scene.sync("app").await.unwrap();
    assert!(outcome.rebuilt.unwrap().contains("missing blob"));
    git(&scene.repository("app"), &["cat-file", "-e", blob.trim()]);
    drop(app);
}

#[tokio::test]
async fn a_damaged_mirror_that_cannot_be_rebuilt_is_not_borrowed_from() {
    let mut scene = Scene::new().await;
    scene.origin.create("app");
    scene.sync("app").await.unwrap();
    fs::remove_file(&packs(&scene.repository("app"))[0]).unwrap();
    scene.origin.fall_silent();
    scene.rules.timeout = Duration::from_millis(700);
    scene.sync("app").await.unwrap_err();
    let refused = Loan::find(scene.mirrors.path(), &scene.address("app"), scene.now, 60).unwrap_err();
    assert!(refused.to_string().contains("its content cannot be read"), "{refused}");
    assert!(scene.record("app").damage.is_some());
}

#[tokio::test]
async fn a_record_that_cannot_be_read_means_a_new_mirror() {
    let scene = Scene::new().await;
    scene.origin.create("app");
    scene.sync("app").await.unwrap();
    let old = scene.repository("app");
    fs::write(scene.place("app").directory.join("mirror.json"), "{").unwrap();
    let outcome = scene.sync("app").await.unwrap();
    assert!(outcome.rebuilt.unwrap().contains("mirror.json"));
    assert!(old.exists());
    let left: Vec<String> = scene.record("app").leavings.into_iter().map(|leaving| leaving.name).collect();
    assert_eq!(left, ["g1"], "it goes after the time of grace");
}

#[tokio::test]
async fn an_empty_repository_and_one_that_is_gone() {
    let scene = Scene::new().await;
    let app = scene.origin.create("app");
    app.git(&["push", "--quiet", "origin", "main:other"]);
    let bare = app.directory.with_extension("git");
    git(&bare, &["update-ref", "-d", "refs/heads/main"]);
    git(&bare, &["update-ref", "-d", "refs/heads/other"]);
    assert_eq!(scene.sync("app").await.unwrap().record.head, None);
    fs::remove_dir_all(bare).unwrap();
    let error = scene.sync("app").await.unwrap_err();
    assert!(error.to_string().contains("not found"), "{error}");
    assert!(scene.place("app").read().unwrap().is_some(), "what was there stays");
}

#[tokio::test]
async fn without_git_lfs_the_mirror_is_there_and_a_warning_says_so() {
    let scene = Scene::new().await;
    scene.origin.create("app");
    let order = mirror::Order { lfs: true, ..scene.order("app") };
    let outcome = mirror::sync(scene.mirrors.path(), &order, scene.rules, scene.now).await.unwrap();
    if command(scene.mirrors.path(), &["lfs", "version"]).output().unwrap().status.success() {
        assert_eq!(outcome.warning, None);
    } else {
        assert!(outcome.warning.unwrap().starts_with("Git LFS: git lfs failed"));
    }
}
