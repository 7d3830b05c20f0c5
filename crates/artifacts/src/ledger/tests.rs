use std::{collections::BTreeMap, path::PathBuf, time::Duration};

use super::{Ledger, Look, Moment, Outcome, QUIET, QUIET_IF_OPEN, TRIES};

fn look(size: u64) -> Look {
    Look { size, modified: i128::from(size) }
}

fn found<const N: usize>(files: [(&str, u64); N]) -> BTreeMap<PathBuf, Look> {
    files.map(|(path, size)| (path.into(), look(size))).into()
}

fn at(seconds: u64) -> Moment {
    Duration::from_secs(seconds)
}

fn paths<const N: usize>(paths: [&str; N]) -> Vec<PathBuf> {
    paths.map(Into::into).to_vec()
}

/// A ledger with one file that was closed at the beginning.
fn closed() -> Ledger {
    let mut ledger = Ledger::default();
    ledger.seen(at(0), found([("a", 1)]));
    ledger.closed("a".as_ref());
    ledger
}

#[test]
fn a_closed_file_is_uploaded_when_it_has_been_quiet() {
    let ledger = closed();
    assert_eq!(ledger.due(at(0)), paths([]));
    assert_eq!(ledger.next(), Some(QUIET));
    assert_eq!(ledger.due(QUIET), paths(["a"]));
}

#[test]
fn a_file_that_may_be_open_waits_longer() {
    let mut ledger = Ledger::default();
    ledger.seen(at(0), found([("a", 1)]));
    assert_eq!(ledger.due(QUIET_IF_OPEN.saturating_sub(QUIET)), paths([]));
    assert_eq!(ledger.due(QUIET_IF_OPEN), paths(["a"]));
    let mut ledger = closed();
    ledger.written("a".as_ref());
    assert_eq!(ledger.due(QUIET), paths([]));
}

#[test]
fn a_file_that_grows_is_not_quiet() {
    let mut ledger = closed();
    ledger.seen(QUIET, found([("a", 2)]));
    assert_eq!(ledger.due(QUIET), paths([]));
    assert_eq!(ledger.due(QUIET * 2), paths(["a"]));
}

#[test]
fn what_is_uploaded_is_not_uploaded_again_unless_it_changes() {
    let mut ledger = closed();
    ledger.told(at(2), "a".as_ref(), look(1), Outcome::Uploaded);
    assert_eq!((ledger.due(at(60)), ledger.left(at(60)), ledger.next()), (paths([]), paths([]), None));
    ledger.seen(at(60), found([("a", 2)]));
    assert_eq!(ledger.left(at(60)), paths(["a"]));
    assert_eq!(ledger.due(at(61)), paths(["a"]));
}

#[test]
fn a_file_that_changed_during_its_upload_is_uploaded_again() {
    let mut ledger = closed();
    ledger.seen(at(2), found([("a", 2)]));
    ledger.told(at(3), "a".as_ref(), look(1), Outcome::Uploaded);
    assert_eq!(ledger.left(at(3)), paths(["a"]));
}

#[test]
fn small_files_come_first() {
    let mut ledger = Ledger::default();
    ledger.seen(at(0), found([("a", 9), ("b", 1), ("c", 5)]));
    assert_eq!(ledger.left(at(0)), paths(["b", "c", "a"]));
}

#[test]
fn a_failure_is_tried_again_with_growing_pauses_and_anew_at_the_end() {
    let mut ledger = closed();
    let mut now = QUIET;
    let mut pauses = Vec::new();
    for _ in 0..TRIES {
        assert_eq!(ledger.due(now), paths(["a"]));
        ledger.told(now, "a".as_ref(), look(1), Outcome::Failed);
        assert_eq!(ledger.due(now), paths([]));
        let Some(next) = ledger.next() else { break };
        pauses.push(next.saturating_sub(now).as_secs());
        now = next;
    }
    assert_eq!(pauses, [1, 2, 4, 8]);
    assert_eq!((ledger.due(at(10_000)), ledger.missing()), (paths([]), (0, 1)));
    assert_eq!((ledger.left(at(10_000)), ledger.is_waiting("a".as_ref())), (paths([]), false));
    ledger.renew();
    assert_eq!((ledger.left(at(10_000)), ledger.missing()), (paths(["a"]), (1, 0)));
}

#[test]
fn what_has_failed_comes_last() {
    let mut ledger = Ledger::default();
    ledger.seen(at(0), found([("a", 1), ("b", 9)]));
    ledger.told(at(0), "a".as_ref(), look(1), Outcome::Failed);
    assert_eq!((ledger.left(at(0)), ledger.is_waiting("a".as_ref())), (paths(["b"]), true));
    assert_eq!(ledger.left(at(1)), paths(["b", "a"]));
}

#[test]
fn after_lost_events_no_file_counts_as_closed() {
    let mut ledger = closed();
    ledger.unsure();
    assert_eq!((ledger.due(QUIET), ledger.due(QUIET_IF_OPEN)), (paths([]), paths(["a"])));
}

#[test]
fn a_file_that_is_gone_is_nobodys() {
    let mut ledger = closed();
    ledger.seen(at(1), found([]));
    assert_eq!((ledger.left(at(2)), ledger.next()), (paths([]), None));
    ledger.told(at(2), "a".as_ref(), look(1), Outcome::Failed);
}

#[test]
fn what_is_there_after_all_is_not_tried_again() {
    let artifacts = |count| BTreeMap::from([(("a".into(), 1), count)]);
    let mut ledger = closed();
    assert_eq!(ledger.found(&artifacts(1)), 0, "somebody else has uploaded it");
    ledger.told(at(2), "a".as_ref(), look(1), Outcome::Uploaded);
    // It changes, to the same size, and its upload fails.
    let changed = Look { modified: 7, ..look(1) };
    ledger.seen(at(3), BTreeMap::from([("a".into(), changed)]));
    ledger.told(at(4), "a".as_ref(), changed, Outcome::Failed);
    assert_eq!(ledger.found(&artifacts(1)), 0, "this is the one before");
    assert_eq!(ledger.left(at(60)), paths(["a"]));
    ledger.renew();
    assert_eq!(ledger.found(&artifacts(2)), 1);
    assert_eq!((ledger.left(at(60)), ledger.found(&artifacts(2))), (paths([]), 0));
}
