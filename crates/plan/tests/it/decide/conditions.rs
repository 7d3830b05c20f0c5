//! How far a job has come, in conditions.

use bk_api::BuildJobStatus;
use bk_plan::remote::RemoteState::{Acquired, Finished};
use rstest::rstest;

use super::scene::{Scene, buildkite, ended, pending, pod, running, standalone, time, unscheduled};

/// Each condition as `Type=status reason @seconds`.
fn told(status: &BuildJobStatus) -> Vec<String> {
    let seconds = |at: jiff::Timestamp| at.as_second() - time(0).as_second();
    status
        .conditions
        .iter()
        .map(|c| format!("{}={} {} @{}", c.type_, c.status, c.reason, seconds(c.last_transition_time.0)))
        .collect()
}

#[rstest]
#[case::no_node(
    buildkite().pod(unscheduled(pod(pending(), pending()))).at(11),
    &["PodCreated=True PodCreated @1", "Scheduled=False Unschedulable @11", "Started=False ContainersStarting @11"]
)]
#[case::it_starts(
    buildkite().pod(pod(pending(), pending())).at(61),
    &["PodCreated=True PodCreated @1", "Scheduled=True Scheduled @1", "Started=False ContainersStarting @61"]
)]
#[case::it_runs(
    buildkite().pod(pod(running(), running())).word(Acquired, 9).at(10),
    &[
        "PodCreated=True PodCreated @1",
        "Scheduled=True Scheduled @1",
        "Started=True ContainersStarted @2",
        "Acquired=True AgentHasJob @10",
    ]
)]
#[case::it_has_failed(
    buildkite().pod(pod(ended(3, 20), running())).word(Finished, 21).at(22),
    &[
        "PodCreated=True PodCreated @1",
        "Scheduled=True Scheduled @1",
        "Started=True ContainersStarted @2",
        "Finished=True CommandFailed @22",
    ]
)]
#[case::its_spec_makes_no_pod(
    standalone().spec(|spec| spec.kubernetes = serde_json::json!({ "podSpce": {} }).as_object().cloned().map(Into::into)).at(3),
    &["Finished=True InvalidSpec @3"]
)]
#[case::nothing_exports_its_logs(
    buildkite().spec(|spec| spec.log_exporter = serde_json::from_str(r#"{"enabled": true}"#).ok())
        .pod(pod(pending(), pending())).at(61),
    &[
        "PodCreated=True PodCreated @1",
        "Scheduled=True Scheduled @1",
        "Started=False ContainersStarting @61",
        "LogsExported=False NoLogExporter @61",
    ]
)]
fn conditions(#[case] scene: Scene, #[case] expected: &[&str]) {
    assert_eq!(told(&scene.written()), expected);
}

#[test]
fn a_condition_that_stays_keeps_its_time() {
    let starting = buildkite().pod(unscheduled(pod(pending(), pending()))).at(11);
    let mut running = buildkite().pod(pod(running(), running())).word(Acquired, 39).at(40);
    running.job.status = Some(starting.written());
    let told = told(&running.written());
    assert_eq!(told[0], "PodCreated=True PodCreated @1");
    assert_eq!(told[1], "Scheduled=True Scheduled @1");
    assert_eq!(told[2], "Started=True ContainersStarted @2");
}
