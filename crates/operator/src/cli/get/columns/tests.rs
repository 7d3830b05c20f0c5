use bk_api::{BuildEnvironment, RepoMirror};
use serde_json::json;

use super::*;
use crate::cli::{output, sample};

fn shown<K: Listed>(objects: &[K], wide: bool, with_namespace: bool) -> String {
    let rows: Vec<_> =
        objects.iter().map(|object| row(object, wide, with_namespace, sample::now())).collect();
    output::table(&heads::<K>(wide, with_namespace), &rows).join("\n")
}

#[test]
fn jobs() {
    let mut by_hand = sample::job(
        "nightly",
        json!({"phase": "Succeeded", "exitStatus": 0, "verdict":
        {"code": "Passed", "fault": "None", "message": "the job passed"}}),
    );
    by_hand.spec.buildkite = None;
    let jobs = [sample::waiting("a"), sample::failed("b"), by_hand, sample::job("new", json!(null))];
    insta::assert_snapshot!(shown(&jobs, false, true));
    sample::documented(&shown(&jobs, false, true));
    insta::assert_snapshot!(shown(&jobs, true, false));
}

#[test]
fn environments_and_mirrors() {
    let environment: BuildEnvironment = serde_json::from_value(json!({
        "metadata": {"name": "go", "creationTimestamp": "2026-11-10T10:00:00Z"},
        "spec": {"image": "golang:1.26", "extraContainers": [{"environment": "postgres"}]},
    }))
    .unwrap();
    insta::assert_snapshot!(shown(&[environment], true, false));
    let mirror: RepoMirror = serde_json::from_value(json!({
        "metadata": {"name": "app", "creationTimestamp": "2026-11-10T10:00:00Z"},
        "spec": {"url": "https://github.com/acme/app.git"},
        "status": {
            "lastSync": "2026-11-18T10:04:00Z", "sizeBytes": 52_428_800, "error": "the server does not answer",
            "conditions": [{"type": "Ready", "status": "True", "reason": "Synced", "message": "",
                "lastTransitionTime": "2026-11-10T10:00:00Z"}],
        },
    }))
    .unwrap();
    insta::assert_snapshot!(shown(&[mirror], false, false));
}

#[test]
fn a_row_is_the_same_although_time_passes() {
    let job = sample::waiting("a");
    let later = sample::now() + jiff::SignedDuration::from_mins(3);
    let (one, other) = (row(&job, false, false, sample::now()), row(&job, false, false, later));
    assert_ne!(one, other);
    assert!(is_same::<BuildJob>(&one, &other, false));
    assert!(!is_same::<BuildJob>(&one, &row(&sample::failed("a"), false, false, later), false));
}
