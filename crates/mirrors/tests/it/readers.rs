//! Twenty borrowers at work while the remote is rewritten and packs are joined: nobody misses an object.

use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use crate::{
    origin::command,
    scene::{Scene, agent_goes_on},
};

const BORROWERS: usize = 20;
const ROUNDS: usize = 12;

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn no_job_misses_an_object_while_everything_changes() {
    let mut scene = Scene::new().await;
    scene.rules.gc.max_packs = 2;
    let app = scene.origin.create("app");
    for number in 0..20 {
        app.commit(&format!("src/file{number}"), &format!("content {number}").repeat(50));
    }
    app.push(&["main"]);
    scene.sync("app").await.unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let looks = Arc::new(AtomicU64::new(0));
    let mut borrowers = Vec::new();
    let mut joined = 0;
    let mut round = 0;
    // Each round: a history that replaces the one before, a fetch that joins packs, and further jobs in between.
    while round < ROUNDS || looks.load(Ordering::SeqCst) < BORROWERS as u64 {
        app.git(&["checkout", "--quiet", "--orphan", &format!("history{round}")]);
        let commit = app.commit(&format!("src/round{round}"), &format!("round {round}"));
        app.push(&[&format!("history{round}:main")]);
        // Some jobs borrow before the mirror has their commit, and some while it is fetched.
        let (outcome, early) = tokio::join!(scene.sync("app"), scene.borrow("app", &commit));
        joined = joined.max(outcome.unwrap().record.leavings.len());
        let late = scene.borrow("app", &commit).await;
        for (checkout, log) in [early, late] {
            assert!(log.contains("is borrowed from its mirror"), "{log}");
            if borrowers.len() < BORROWERS {
                let (stop, looks, commit) = (stop.clone(), looks.clone(), commit.clone());
                borrowers.push(tokio::task::spawn_blocking(move || {
                    agent_goes_on(&checkout, &commit, &["--prune"]);
                    work(&checkout, &commit, &stop, &looks)
                }));
            }
        }
        scene.pass(60);
        round += 1;
        assert!(round < 400, "borrowers do not get on");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    stop.store(true, Ordering::SeqCst);
    for borrower in borrowers {
        let failure = borrower.await.unwrap();
        assert_eq!(failure, None);
    }
    assert!(joined > 2, "packs were joined meanwhile");
    scene.pass(i64::from(scene.rules.gc.grace_seconds));
    scene.sync("app").await.unwrap();
    let left = std::fs::read_dir(scene.place("app").directory).unwrap().count();
    assert_eq!(left, 3, "the record, the lock, and one repository");
}

/// Looks at everything again and again. Returns what went wrong.
fn work(checkout: &Path, commit: &str, stop: &AtomicBool, looks: &AtomicU64) -> Option<String> {
    let steps: [&[&str]; 5] = [
        &["fsck", "--full", "--no-dangling", "--no-progress"],
        &["log", "--all", "--stat", "--format=%H"],
        &["rev-list", "--objects", "--all"],
        &["checkout", "--quiet", "-f", "origin/main"],
        &["checkout", "--quiet", "-f", commit],
    ];
    while !stop.load(Ordering::SeqCst) {
        for step in steps {
            let done = command(checkout, step).output().unwrap();
            if !done.status.success() {
                return Some(format!("git {step:?}: {}", String::from_utf8_lossy(&done.stderr)));
            }
        }
        looks.fetch_add(1, Ordering::SeqCst);
    }
    None
}
